//! Two processes on one folder, and a process that is killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Command, Stdio};

use astracer_spool::{Folder, Settings, Settlement, Spool};
use astracer_testing::SplitMix;

use crate::support::{number, payload};

#[test]
fn a_folder_has_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Spool::open(Folder::create(folder.path()).unwrap(), Settings::default());
    let first = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(
        astracer_spool::verify(&Folder::open(folder.path()).unwrap()).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    drop(first);
    open().unwrap();
}

const FOLDER: &str = "ASTRACER_SPOOL_TEST_FOLDER";

/// The child process of the test below: appends records, settles some, and prints them, until it is
/// killed.
#[test]
#[ignore = "the child of `what_was_appended_survives_a_kill`"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let settings = Settings::default().with_segment_bytes(10_000);
    let (mut spool, _) = Spool::open(Folder::create(folder.as_ref()).unwrap(), settings).unwrap();
    let first: u64 = std::env::var("FIRST").unwrap().parse().unwrap();
    for number_now in first.. {
        spool.append(0, 0, 1, &payload(number_now, 200)).unwrap();
        println!("\nappended {number_now}");
        if number_now % 2 == 1 {
            let record = spool.take(0).unwrap().unwrap();
            // Printing the line is the delivery.
            println!("\ndelivered {}", number(&record.payload));
            spool.settle(&record, Settlement::Delivered);
        }
    }
}

#[cfg(unix)]
#[test]
fn what_was_appended_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let seed = 7;
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    let (mut appended, mut delivered, mut first) = (BTreeSet::new(), BTreeSet::new(), 0);
    for _ in 0..50 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "processes::child", "--nocapture"])
            .env(FOLDER, folder.path())
            .env("FIRST", first.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = random.index(60) + 5;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut note = |line: String| {
            if let Some(number) = line.strip_prefix("appended ").and_then(|rest| rest.parse().ok()) {
                appended.insert(number);
                first = first.max(number + 1);
            } else if let Some(number) = line.strip_prefix("delivered ").and_then(|rest| rest.parse().ok()) {
                delivered.insert(number);
            }
        };
        out.by_ref().take(lines).for_each(|line| note(line.unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        // The lines that it wrote before it was killed.
        out.map_while(Result::ok).for_each(note);
    }
    let (mut spool, _) = Spool::open(Folder::create(folder.path()).unwrap(), Settings::default()).unwrap();
    while let Some(record) = spool.take(0).unwrap() {
        delivered.insert(number(&record.payload));
        spool.settle(&record, Settlement::Delivered);
    }
    assert_eq!(spool.counts().damaged, 0);
    let lost: Vec<_> = appended.difference(&delivered).collect();
    assert!(lost.is_empty() && appended.len() > 200, "{lost:?} of {}", appended.len());
}
