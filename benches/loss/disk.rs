//! The spool compared with plain sequential writes.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use astracer_exporters::spool::{Folder, Settings, Settlement, Spool};
use astracer_exporters::{Otlp, Spooled};
use astracer_model::Format;
use astracer_testing::SplitMix;

use crate::process::Child;
use crate::receive;

const RECORD_BYTES: usize = 100_000;
const SPANS: u32 = 512;
const TOTAL_BYTES: usize = 1 << 30;
const SEGMENT_BYTES: usize = 8 << 20;
const ROUNDS: usize = 3;

/// Bytes without repetition.
fn noise() -> Vec<u8> {
    let mut random = SplitMix::new(0);
    std::iter::repeat_with(|| random.next() as u8).take(RECORD_BYTES).collect()
}

/// Plain files, each as large as one segment of the spool.
#[derive(Default)]
struct Plain {
    file: Option<File>,
    number: u32,
    bytes: usize,
}

impl Plain {
    fn write(&mut self, folder: &Path, record: &[u8]) {
        if self.file.is_none() || self.bytes + record.len() > SEGMENT_BYTES {
            if let Some(full) = self.file.take() {
                full.sync_data().expect("synced");
            }
            self.number += 1;
            self.bytes = 0;
            self.file = Some(File::create(folder.join(format!("plain-{}", self.number))).expect("a file"));
        }
        if let Some(file) = &mut self.file {
            file.write_all(record).expect("written");
        }
        self.bytes += record.len();
    }
}

pub(crate) fn run() {
    println!(
        "spool: {TOTAL_BYTES} bytes in records of {RECORD_BYTES}, a sync every {SEGMENT_BYTES} bytes, alternating with plain writes"
    );
    let record = noise();
    let (count, turn) = (TOTAL_BYTES / RECORD_BYTES, SEGMENT_BYTES / RECORD_BYTES);
    for _ in 0..ROUNDS {
        let (folder, plain_folder) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let settings = Settings::default().with_max_bytes(4 << 30).with_max_age(Duration::MAX);
        let disk = || Folder::create(folder.path()).expect("a folder");
        let (mut spool, _) = Spool::open(disk(), settings.clone()).expect("a spool");
        let (mut plain, mut ours, mut files) = (Duration::ZERO, Duration::ZERO, Plain::default());
        // The two alternate by segment, so that other load on the machine slows both.
        for _ in 0..count.div_ceil(turn) {
            let begin = Instant::now();
            (0..turn).for_each(|_| files.write(plain_folder.path(), &record));
            plain += begin.elapsed();
            let begin = Instant::now();
            (0..turn).for_each(|_| spool.append(0, 0, SPANS, &record).expect("space"));
            ours += begin.elapsed();
        }
        drop(spool);
        let begin = Instant::now();
        let (mut spool, recovered) = Spool::open(disk(), settings).expect("a spool");
        let first = spool.take(0).expect("readable").expect("a record");
        let recovery = begin.elapsed();
        let begin = Instant::now();
        spool.settle(&first, Settlement::Delivered);
        while let Some(record) = spool.take(0).expect("readable") {
            spool.settle(&record, Settlement::Delivered);
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
    first_sent();
}

/// Measures the time from opening a spool of a gigabyte, left behind by another process, to the
/// arrival of the first spans at the backend. Its files are in the page cache; a disk that must be
/// read adds its own time.
fn first_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |url: &str| {
        let settings = Settings::default().with_max_bytes(4 << 30).with_max_age(Duration::MAX);
        let otlp = Otlp::builder().with_endpoint(url).build().expect("good settings");
        Spooled::builder(folder.path()).with_settings(settings).open(otlp).expect("a spool")
    };
    let body = receive::protobuf(0);
    // Nothing listens on port 9 (discard).
    let spooled = open("http://127.0.0.1:9");
    for _ in 0..TOTAL_BYTES.div_ceil(body.len()) {
        spooled.append(Format::OtlpProto, receive::BATCH, &body).expect("space");
    }
    drop(spooled);
    let mut sink = Child::start(&["--sink"]);
    let url = format!("http://{}", sink.line());
    let begin = Instant::now();
    let spooled = open(&url);
    let opened = begin.elapsed();
    loop {
        sink.say("count");
        if sink.line() != "0" {
            break;
        }
    }
    println!(
        "a spool of {} spans: open after {:.3} s, first spans at the backend after {:.3} s",
        spooled.spool_counts().pending,
        opened.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
}
