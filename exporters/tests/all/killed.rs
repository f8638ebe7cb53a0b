//! A service that is killed at random moments, and disks that are full or cannot be written.
//! Everything that was acknowledged as durable arrives.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use astracer_exporters::spool::{Folder, Settings, Sync};
use astracer_exporters::{Destination, ErrorKind, Files, Otlp, Protocol, Retry, SpoolMode, Spooled};

use astracer_testing::wait_until;

use super::faults::{Mood, Moody, otlp, spans};

const ROUNDS: usize = 50;
const FOLDER: &str = "ASTRACER_TEST_FOLDER";
const URL: &str = "ASTRACER_TEST_URL";
const FIRST: &str = "ASTRACER_TEST_FIRST";

/// Sends spans through a durable spool and prints which batches were acknowledged, until it is
/// killed.
#[test]
#[ignore = "the child of `a_service_that_is_killed_loses_nothing_acknowledged`"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let retry = Retry::default().with_initial_delay(Duration::from_millis(5));
    let otlp =
        Otlp::builder().with_protocol(Protocol::HttpProtobuf).with_endpoint(std::env::var(URL).unwrap());
    let otlp = otlp.with_retry(retry).build().unwrap();
    let spooled = Spooled::builder(folder).with_mode(SpoolMode::Durable).open(otlp).unwrap();
    let mut next: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    loop {
        assert_eq!(spooled.deliver(&spans(next..next + 10)).delivery.accepted, 10);
        println!("\nacknowledged {next}");
        next += 10;
    }
}

#[cfg(unix)]
#[test]
fn a_service_that_is_killed_loses_nothing_acknowledged() {
    let seed = 19;
    println!("seed {seed}");
    let mut random = astracer_testing::SplitMix::new(seed);
    let (server, folder) = (Moody::start(Mood::Takes), tempfile::tempdir().unwrap());
    let (mut acknowledged, mut first) = (BTreeSet::new(), 1);
    for round in 0..ROUNDS {
        // The server is down in every third round.
        server.set(if round % 3 == 2 { Mood::Stopped } else { Mood::Takes });
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "killed::child", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(URL, server.url())
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = random.index(40) + 4;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut note = |line: String| {
            if let Some(number) = line.strip_prefix("acknowledged ").and_then(|rest| rest.parse::<u64>().ok())
            {
                acknowledged.extend(number..number + 10);
                first = first.max(number + 10);
            }
        };
        out.by_ref().take(lines).for_each(|line| note(line.unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        // The lines that it wrote before it was killed.
        out.map_while(Result::ok).for_each(&mut note);
        // The next numbers belong to a batch that was in the spool but not acknowledged yet.
        first += 10;
        let report = astracer_exporters::spool::verify(&Folder::open(folder.path()).unwrap()).unwrap();
        // A kill may cut the write of a batch at the end of a page. It was not acknowledged.
        let is_whole = report.damage.iter().all(|damage| damage.is_harmless());
        assert!(report.is_proven() && is_whole, "{report:?}");
        assert!((acknowledged.len() as u64..first).contains(&report.ledger.acknowledged), "{report:?}");
    }
    server.set(Mood::Takes);
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    assert_eq!(spooled.drain(Duration::from_secs(30)), 0);
    assert_eq!(spooled.counter().read().lost.total(), 0);
    let ledger = spooled.ledger();
    assert_eq!((ledger.passed_on, ledger.waiting), (ledger.acknowledged, 0));
    let taken = BTreeSet::from_iter(server.taken().0);
    let missing: Vec<_> = acknowledged.difference(&taken).collect();
    assert!(missing.is_empty() && acknowledged.len() > 1_000, "{missing:?} of {}", acknowledged.len());
}

/// A file system that is unmounted at the end of a test.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    #[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn tmpfs(path: &'a Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            println!("SKIPPED: mounting a small disk needs root and the right to mount");
        }
        is_mounted.then_some(Mount(path))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// On a disk of 256 kB, spans that do not fit are counted, the rest arrives, and afterwards there
/// is free space again.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_only_what_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(folder.path(), "size=256k") else { return };
    let server = Moody::start(Mood::Stopped);
    let settings = Settings::default().with_segment_bytes(32 << 10).with_sync(Sync::Append);
    let spooled = Spooled::builder(folder.path()).with_settings(settings).open(otlp(&server)).unwrap();
    let (mut accepted, mut lost) = (0, 0);
    for batch in 0..40 {
        let outcome = spooled.deliver(&spans(batch * 500 + 1..=batch * 500 + 500));
        accepted += outcome.delivery.accepted;
        lost += outcome.lost.of(ErrorKind::File);
    }
    assert!(accepted > 0 && lost > 0 && accepted + lost == 20_000, "{accepted} accepted, {lost} lost");
    server.set(Mood::Takes);
    assert_eq!(spooled.drain(Duration::from_secs(30)), 0);
    assert_eq!(server.taken().0.len() as u64, accepted);
    server.set(Mood::Stopped);
    let outcome = spooled.deliver(&spans(30_001..=30_500));
    assert_eq!(outcome.delivery.accepted, 500, "{outcome:?}");
}

/// Files wait for space like others for their server. 2,163 of 5,941 spans were lost in 3.5 s.
#[cfg(target_os = "linux")]
#[test]
fn files_wait_while_their_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(folder.path(), "size=256k") else { return };
    let ballast = folder.path().join("ballast");
    std::fs::write(&ballast, vec![0; 200 << 10]).unwrap();
    let files = Files::builder(folder.path().join("out")).open().unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let batches = (0..40).map(|batch| files.deliver(&spans(batch * 20 + 1..=batch * 20 + 20)));
            batches.map(|outcome| (outcome.delivery.accepted, outcome.lost.total())).collect::<Vec<_>>()
        });
        wait_until("the full disk is noticed", || files.counter().read().waiting.is_some());
        std::fs::remove_file(ballast).unwrap();
        assert_eq!(sent.join().unwrap(), vec![(20, 0); 40]);
    });
    assert_eq!((files.counter().read().sent, files.spans_removed()), (800, 0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_becomes_read_only_costs_only_what_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=4m") else { return };
    let server = Moody::start(Mood::Stopped);
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    assert_eq!(spooled.deliver(&spans(1..=10)).delivery.accepted, 10);
    drop(spooled);
    mount.remount("ro");
    let error = Spooled::builder(folder.path()).open(otlp(&server)).unwrap_err();
    assert!(error.detail().to_lowercase().contains("read-only"), "{error}");
    mount.remount("rw");
    let spooled = Spooled::builder(folder.path()).open(otlp(&server)).unwrap();
    server.set(Mood::Takes);
    assert_eq!(spooled.drain(Duration::from_secs(30)), 0);
    assert_eq!(server.taken().0, Vec::from_iter(1..=10));
}
