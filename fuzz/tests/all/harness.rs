//! The replay finds planted defects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use astracer_fuzz::replay::{Failure, Options, replay};

const SEED: (&str, &[u8]) = ("a", br#"{"id": 12, "list": ["x", {"b": 1}]}"#);

fn find(test: &str, target: fn(&[u8]), seeds: &[(&str, &[u8])]) -> Result<usize, Failure> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("harness-{test}"));
    let folder: PathBuf = scratch.join("seeds");
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, content) in seeds {
        std::fs::write(folder.join(name), content).unwrap();
    }
    replay(
        test,
        target,
        &folder,
        &Options { seed: 7, rounds: 2000, scratch, work_max: Duration::from_millis(200) },
    )
}

#[test]
fn a_target_that_keeps_its_promise_passes() {
    // The seed, its 35 shorter prefixes (including the empty one), and the mutations.
    assert_eq!(find("good", |_| (), &[SEED]).unwrap(), 1 + SEED.1.len() + 2000);
}

#[test]
fn a_seed_that_breaks_is_named() {
    let failure = find("seed", |data| assert!(!data.starts_with(b"BAD"), "bad"), &[SEED, ("b", b"BAD seed")])
        .unwrap_err();
    assert_eq!((failure.origin.as_str(), failure.message.as_str()), ("the first 8 bytes of b", "bad"));
    assert_eq!(std::fs::read(&failure.file).unwrap(), b"BAD seed");
    // If the process had crashed, this file would still contain the input.
    assert_eq!(std::fs::read(failure.file.with_file_name("fuzz-seed-running")).unwrap(), b"BAD seed");
}

#[test]
fn a_cut_seed_is_tried_at_every_byte() {
    let failure = find("cut", |data| assert!(data.len() != 17, "cut"), &[SEED]).unwrap_err();
    assert_eq!(failure.origin, "the first 17 bytes of a");
}

#[test]
fn deep_nesting_is_found_and_made_smaller() {
    fn deep(data: &[u8]) {
        assert!(data.iter().filter(|&&byte| byte == b'[').count() < 1000, "deep");
    }
    let failure = find("deep", deep, &[SEED]).unwrap_err();
    // One of up to three mutations suffices, and 1024 is the smallest power of two that breaks the
    // guarantee.
    assert!(failure.origin.contains("Nest") && failure.origin.contains("open: 1024"), "{}", failure.origin);
    assert_eq!(failure.origin.matches("at: ").count(), 1, "{}", failure.origin);
}

#[test]
fn huge_numbers_are_found() {
    fn huge(data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        assert!(numbers.all(|digits| digits.parse::<u64>().is_ok()), "huge");
    }
    let failure = find("huge", huge, &[SEED]).unwrap_err();
    assert!(failure.message.contains("huge"), "{}", failure.message);
    assert!(failure.origin.ends_with("seed 7"), "{}", failure.origin);
}

#[test]
fn the_same_seed_finds_the_same() {
    fn odd(data: &[u8]) {
        assert!(!data.windows(2).any(|pair| pair == b"\xff\xff"), "odd");
    }
    let [first, second] = ["same-1", "same-2"].map(|test| find(test, odd, &[SEED]).unwrap_err());
    assert_eq!(first.origin, second.origin);
    assert_eq!(std::fs::read(first.file).unwrap(), std::fs::read(second.file).unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn an_input_that_takes_too_long_is_found() {
    fn slow(data: &[u8]) {
        // More than the 200 ms of processor time that `find` allows, at any speed of today.
        let turns = if data.len() == 35 { 1_000_000_000u64 } else { 0 };
        let mut sum = 0u64;
        while std::hint::black_box(sum) < turns {
            sum += 1;
        }
    }
    let failure = find("slow", slow, &[SEED]).unwrap_err();
    assert!(failure.message.contains("35 bytes took") && failure.message.contains("of processor time"));
}
