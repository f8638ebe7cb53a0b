//! Truncation at every byte, and a flipped bit in every byte: only what was hit is lost, and the
//! loss is counted.

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Damage, Disk as _, Settings, Settlement, Spool, verify};

use crate::support::{check_law, drain, number, open, payload, spans};

const RECORDS: u64 = 6;

/// Six records in two segments of three.
fn filled() -> (MemoryDisk, Settings) {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_segment_bytes(80 + 3 * (40 + 8 + 12));
    let mut spool = open(&disk, &settings);
    for number in 0..RECORDS {
        spool.append(9, 0, spans(number), &payload(number, 12)).unwrap();
    }
    drop(spool);
    (disk, settings)
}

fn segments(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    disk.files().into_iter().filter(|(name, _)| name.starts_with("live")).collect()
}

#[test]
fn records_come_back_in_order_after_a_restart() {
    let (disk, settings) = filled();
    let files = segments(&disk);
    assert_eq!(
        files.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["live-00000001.seg", "live-00000002.seg"]
    );
    assert!(files.iter().all(|(_, bytes)| bytes.len() == 80 + 3 * 60));
    let mut spool = open(&disk, &settings);
    let first = spool.take(5).unwrap().unwrap();
    assert_eq!((first.kind, first.spans, first.settled, number(&first.payload)), (9, 1, 0, 0));
    // Some of record 1's two spans are settled, then the process restarts.
    spool.settle(&first, Settlement::Delivered);
    let second = spool.take(5).unwrap().unwrap();
    spool.settle(&second, Settlement::Partly(1));
    drop(spool);
    let mut spool = open(&disk, &settings);
    let again = spool.take(5).unwrap().unwrap();
    assert_eq!((again.spans, again.settled, number(&again.payload)), (2, 1, 1));
    spool.settle(&again, Settlement::Partly(1));
    assert_eq!(drain(&mut spool), [1, 2, 3, 4, 5]);
    // 1 + 2 + ... + 6 spans, without the two that were settled.
    assert_eq!((spool.counts().found, spool.counts().delivered, spool.counts().pending), (19, 19, 0));
    drop(spool);
    assert!(drain(&mut open(&disk, &settings)).is_empty());
}

#[test]
fn a_tail_cut_at_any_byte_costs_the_records_that_it_cuts() {
    let (disk, settings) = filled();
    let (name, whole) = segments(&disk).remove(1);
    for bytes in 0..=whole.len() {
        let (disk, _) = filled();
        disk.set(&name, whole[..bytes].to_vec());
        let (mut spool, recovered) = Spool::open(disk.clone(), settings.clone()).unwrap();
        // Whole frames of 60 bytes after the header of 80, of which one copy is enough.
        let left = if bytes < 40 { 0 } else { bytes.saturating_sub(80) as u64 / 60 };
        let torn = if bytes < 80 { 0 } else { (bytes as u64 - 80) % 60 };
        assert_eq!(recovered.torn_bytes, torn, "{bytes}");
        // The spool continues after it.
        spool.append(0, 0, 7, &payload(100, 0)).unwrap();
        let expected: Vec<u64> = (0..3 + left).chain([100]).collect();
        assert_eq!(drain(&mut spool), expected, "{bytes}");
    }
}

#[test]
fn a_flipped_bit_costs_one_record_and_is_counted() {
    let (disk, settings) = filled();
    for (index, (name, whole)) in segments(&disk).into_iter().enumerate() {
        for bit in 0..whole.len() * 8 {
            let (disk, _) = filled();
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            disk.set(&name, damaged);
            let report = verify(&disk).unwrap();
            let mut spool = open(&disk, &settings);
            let delivered = drain(&mut spool);
            let hit = (bit / 8).checked_sub(80).map(|byte| index as u64 * 3 + byte as u64 / 60);
            let expected: Vec<u64> = (0..RECORDS).filter(|&number| Some(number) != hit).collect();
            assert_eq!(delivered, expected, "{name} bit {bit}");
            let counts = spool.counts();
            let lost = hit.map_or(0, |number| u64::from(spans(number)));
            assert_eq!((counts.damaged, counts.pending), (lost, 0), "{name} bit {bit}");
            assert_eq!(report.damage.len(), usize::from(hit.is_some()), "{name} bit {bit}: {report:?}");
        }
    }
}

#[test]
fn a_segment_without_a_readable_header_costs_nothing() {
    for index in 0..2 {
        let (disk, settings) = filled();
        let (name, mut bytes) = segments(&disk).remove(index);
        bytes[..80].fill(0);
        disk.set(&name, bytes);
        let mut spool = open(&disk, &settings);
        spool.append(0, 0, 1, &payload(6, 0)).unwrap();
        assert_eq!(drain(&mut spool), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(spool.damage()[0].description, "damaged segment header");
        check_law(&spool.counts());
    }
}

/// The bytes of a real frame inside a payload are not taken for a frame, because the salt differs.
#[test]
fn a_payload_cannot_pose_as_a_frame() {
    let (other, settings) = filled();
    let frame = segments(&other)[0].1[80..140].to_vec();
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &settings);
    spool.append(0, 0, 1, &[payload(1, 0), frame].concat()).unwrap();
    spool.append(0, 0, 1, &payload(2, 0)).unwrap();
    drop(spool);
    let (name, mut bytes) = segments(&disk).remove(0);
    bytes[85] ^= 1;
    disk.set(&name, bytes);
    let mut spool = open(&disk, &settings);
    assert_eq!((drain(&mut spool), spool.counts().damaged), (vec![2], 1));
}

#[test]
fn a_lost_cursor_costs_duplicates_and_no_record() {
    let (disk, settings) = filled();
    let mut spool = open(&disk, &settings);
    for _ in 0..2 {
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Delivered);
    }
    drop(spool);
    disk.set("cursor", vec![0xff; 128]);
    assert_eq!(drain(&mut open(&disk, &settings)), [0, 1, 2, 3, 4, 5]);
}

/// Six records in segments of one: without the file of a segment, its name is the place of what is
/// lost, for `verify` and for a process that reads on. A range has the name of its first segment.
#[test]
fn a_missing_segment_is_named() {
    let filled = || {
        let disk = MemoryDisk::default();
        let settings = Settings::default().with_segment_bytes(80);
        let mut spool = open(&disk, &settings);
        (0..6).for_each(|number| spool.append(0, 0, spans(number), &payload(number, 0)).unwrap());
        drop(spool);
        (disk, settings)
    };
    let (one, several) = ("this segment is missing", "segments from this one on are missing");
    for (gone, says) in [(3..4, one), (1..2, one), (2..5, several), (1..3, several), (1..7, several)] {
        let (disk, settings) = filled();
        let name = |number: u64| format!("live-{number:08}.seg");
        gone.clone().for_each(|number| disk.remove(&name(number)).unwrap());
        let lost: u64 = gone.clone().map(|number| u64::from(spans(number - 1))).sum();
        let expected = [(name(gone.start), 0, Some(lost), says)];
        let places = |damage: &[Damage]| -> Vec<_> {
            let place =
                |damage: &Damage| (damage.file.clone(), damage.offset, damage.spans, damage.description);
            damage.iter().map(place).collect()
        };
        assert_eq!(places(&verify(&disk).unwrap().damage), expected, "{gone:?}");
        let mut spool = open(&disk, &settings);
        drain(&mut spool);
        assert_eq!(places(spool.damage()), expected, "{gone:?}");
    }
    // A file in the segment's place is named as it is.
    let (disk, _) = filled();
    disk.set("live-00000003.seg", vec![0; 200]);
    let damage = verify(&disk).unwrap().damage;
    assert!(damage.iter().all(|damage| ![one, several].contains(&damage.description)), "{damage:?}");
}
