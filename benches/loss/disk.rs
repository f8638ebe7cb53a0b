//! The spool beside plain sequential writes.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use astracer_exporters::spool::{Folder, Outcome, Settings, Spool};

const RECORD_BYTES: usize = 100_000;
const SPANS: u32 = 512;
const TOTAL_BYTES: usize = 1 << 30;
const SEGMENT_BYTES: usize = 8 << 20;
const ROUNDS: usize = 3;

/// Bytes that do not repeat: 64-bit xorshift (Marsaglia, 2003).
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(RECORD_BYTES).collect()
}

pub(crate) fn run() {
    println!("spool: {TOTAL_BYTES} bytes in records of {RECORD_BYTES}, a sync every {SEGMENT_BYTES} bytes");
    let record = noise();
    let count = TOTAL_BYTES / RECORD_BYTES;
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let begin = Instant::now();
        let mut file = None;
        let mut number = 0;
        let mut bytes = SEGMENT_BYTES;
        for _ in 0..count {
            if bytes + record.len() > SEGMENT_BYTES {
                if let Some(full) = file.take() {
                    let full: File = full;
                    full.sync_data().expect("synced");
                }
                number += 1;
                file = Some(File::create(folder.path().join(format!("plain-{number}"))).expect("a file"));
                bytes = 0;
            }
            if let Some(file) = &mut file {
                file.write_all(&record).expect("written");
            }
            bytes += record.len();
        }
        let plain = begin.elapsed();
        drop(folder);

        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings::default().with_max_bytes(4 << 30).with_max_age(Duration::MAX);
        let disk = || Folder::create(folder.path()).expect("a folder");
        let (mut spool, _) = Spool::open(disk(), settings.clone()).expect("a spool");
        let begin = Instant::now();
        for _ in 0..count {
            spool.append(0, 0, SPANS, &record).expect("space");
        }
        let ours = begin.elapsed();
        drop(spool);
        let begin = Instant::now();
        let (mut spool, recovered) = Spool::open(disk(), settings).expect("a spool");
        let first = spool.peek(0).expect("readable").expect("a record");
        let recovery = begin.elapsed();
        let begin = Instant::now();
        spool.settle(&first, Outcome::Delivered);
        while let Some(record) = spool.peek(0).expect("readable") {
            spool.settle(&record, Outcome::Delivered);
        }
        let rate = |time: Duration| TOTAL_BYTES as f64 / time.as_secs_f64() / 1e6;
        println!(
            "plain {:>6.0} MB/s  spool {:>6.0} MB/s ({:.2} of plain)  first record of {} spans after {:.3} s  \
             read back {:>6.0} MB/s",
            rate(plain),
            rate(ours),
            plain.as_secs_f64() / ours.as_secs_f64(),
            recovered.spans,
            recovery.as_secs_f64(),
            rate(begin.elapsed()),
        );
    }
}
