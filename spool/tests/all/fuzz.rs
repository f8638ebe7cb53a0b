//! Any byte flipped, any cut and any rename of any file: what is delivered and what is told add up
//! to what was acknowledged.

use std::collections::BTreeSet;

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Settings, Settlement, Spool, verify};

use crate::support::{check_law, number, open, payload, spans};

/// Six waiting records in two segments after one that is settled, and two dead letters.
fn filled() -> (MemoryDisk, Settings) {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_segment_bytes(80 + 3 * (40 + 8 + 4));
    let mut spool = open(&disk, &settings);
    for number in 0..6 {
        spool.append(0, 0, spans(number), &payload(number, 4)).unwrap();
    }
    let record = spool.take(0).unwrap().unwrap();
    spool.settle(&record, Settlement::Delivered);
    (6..8).for_each(|number| spool.append_dead(0, 0, spans(number), &payload(number, 4), "no"));
    drop(spool);
    (disk, settings)
}

/// The spans of these records.
fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().map(|number| u64::from(spans(number))).sum()
}

/// Opens, revives and drains what a change of the files left. Returns the numbers of the delivered
/// records, and whether a loss was told.
#[track_caller]
fn check(disk: &MemoryDisk, settings: &Settings, change: &str) -> (BTreeSet<u64>, bool) {
    let report = verify(disk).unwrap();
    let (mut spool, _) = Spool::open(disk.clone(), settings.clone()).unwrap();
    let revived = spool.revive(|letter| Some(letter.spans)).unwrap();
    assert_eq!(revived.left, 0, "{change}");
    let mut delivered = BTreeSet::new();
    while let Some(record) = spool.take(0).unwrap() {
        assert_eq!(spans(number(&record.payload)), record.spans, "{change}");
        delivered.insert(number(&record.payload));
        spool.settle(&record, Settlement::Delivered);
        check_law(&spool.counts());
    }
    let missing: u64 = sum((1..8).filter(|number| !delivered.contains(number)));
    let told: u64 = spool.damage().iter().filter_map(|damage| damage.spans).sum();
    let unknown = spool.damage().iter().any(|damage| damage.spans.is_none());
    assert!(told == missing || unknown && told <= missing, "{change}: {missing} {:?}", spool.damage());
    for damage in [spool.damage(), &report.damage] {
        let is_loss = damage.iter().any(|damage| !damage.is_harmless());
        assert!(is_loss == (missing > 0) || is_loss && unknown, "{change}: {missing} {damage:?}");
    }
    (delivered, missing > 0)
}

#[test]
fn what_is_delivered_and_what_is_told_is_all_that_was_acknowledged() {
    let (disk, settings) = filled();
    let whole = disk.files();
    let (all, _) = check(&disk, &settings, "nothing");
    assert_eq!(all, (1..8).collect());
    let mut losses = 0;
    let mut run = |name: &str, content: Option<Vec<u8>>, other: Option<&str>, change: &str| {
        let disk = MemoryDisk::default();
        for (known, bytes) in whole.iter().filter(|(known, _)| known != name) {
            disk.set(known, bytes.clone());
        }
        content.into_iter().for_each(|content| disk.set(other.unwrap_or(name), content));
        let (_, is_loss) = check(&disk, &settings, &format!("{name} {change}"));
        losses += usize::from(is_loss);
    };
    for (name, bytes) in whole.iter().filter(|(name, _)| name != "lock") {
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                run(name, Some(flipped), None, &format!("byte {at} ^ {mask}"));
            }
            run(name, Some(bytes[..at].to_vec()), None, &format!("cut at {at}"));
        }
        // Whoever removes all dead letters means it.
        if !name.starts_with("dead") {
            run(name, None, None, "removed");
        }
        for other in [
            "live-00000009.seg",
            "dead-00000009.seg",
            "live-18446744073709551615.seg",
            "live-99999999999999999999999.seg",
            "live-x.seg",
            "live-.seg",
            "live-00000001.seg.bak",
            "traces.jsonl",
        ] {
            // A file does not say which of the two logs it belongs to.
            if !(name.starts_with("live") && other.starts_with("dead")) {
                run(name, Some(bytes.clone()), Some(other), &format!("renamed to {other}"));
            }
        }
    }
    assert!(losses > 100, "{losses}");
}

/// Files of other programs, also with extreme numbers, stay as they are and cost nothing.
#[test]
fn foreign_files_are_named_and_left_alone() {
    let (disk, settings) = filled();
    let names = [
        "live-18446744073709551615.seg",
        "live-18446744073709551614.seg",
        "live-00000003.seg",
        "dead-18446744073709551615.seg",
        "live-.seg",
        ".hidden",
        "notes.txt",
    ];
    names.iter().for_each(|name| disk.set(name, b"something else".to_vec()));
    let (mut spool, _) = Spool::open(disk.clone(), settings.clone()).unwrap();
    let named: BTreeSet<&str> = spool.damage().iter().map(|damage| &*damage.file).collect();
    assert_eq!(named, names.into_iter().collect());
    spool.append(0, 0, spans(8), &payload(8, 4)).unwrap();
    let mut delivered = Vec::new();
    while let Some(record) = spool.take(0).unwrap() {
        delivered.push(number(&record.payload));
        spool.settle(&record, Settlement::Delivered);
    }
    assert_eq!((delivered, spool.counts().damaged), (vec![1, 2, 3, 4, 5, 8], 0));
    let left = disk.files().into_iter().filter(|(_, bytes)| bytes == b"something else");
    assert_eq!(left.count(), names.len());
}
