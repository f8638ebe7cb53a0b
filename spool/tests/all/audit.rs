//! Random lives of a spool that are ended by a kill between any two changes of the disk, a full
//! disk, or damage: each acknowledged span has one end, or the file is named that prevents it.

use std::time::Duration;

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Record, Report, Settings, Settlement, Spool, WhenSpoolFull, verify};
use astracer_testing::{SplitMix, size};

use crate::support::{check_law, payload};

/// The number of acknowledged spans: at least, and at most.
#[derive(Clone, Copy, Debug)]
struct Acknowledged(u64, u64);

/// A server's reaction.
fn outcome(random: &mut SplitMix, record: &Record) -> Settlement<'static> {
    let left = u64::from(record.spans - record.settled) + 1;
    match random.below(12) {
        0 => Settlement::Rejected("HTTP 400: no"),
        1 => Settlement::Partly(record.settled),
        2 => Settlement::Partly(record.settled + random.below(left) as u32),
        3 => Settlement::PartlyRejected {
            settled: record.settled + random.below(left) as u32,
            rejected: random.below(left) as u32,
            reason: "some",
        },
        4 => Settlement::PerhapsRejected { rejected: random.below(left) as u32, reason: "some of them" },
        _ => Settlement::Delivered,
    }
}

/// One process. Ends when it is killed, at the latest after some operations.
fn live(random: &mut SplitMix, disk: &MemoryDisk, settings: &Settings, known: &mut Acknowledged) {
    if random.below(3) > 0 {
        disk.kill_after(random.index(120));
    }
    let Ok((mut spool, _)) = Spool::open(disk.clone(), settings.clone()) else {
        assert!(disk.is_killed());
        return;
    };
    let mut under_way: Vec<Record> = Vec::new();
    let (mut now, mut is_failing, mut has_copies) = (0, false, false);
    for _ in 0..random.index(120) {
        match random.below(24) {
            0..9 => {
                let spans = random.below(5) as u32 + 1;
                let appended = spool.append(0, now, spans, &payload(7, random.index(60))).is_ok();
                known.1 += u64::from(spans);
                known.0 += if appended && !disk.is_killed() { u64::from(spans) } else { 0 };
                // A refused record does not wait, unless the process was killed in between.
                known.1 -= if appended || disk.is_killed() { 0 } else { u64::from(spans) };
            }
            9..14 => under_way.extend(spool.take(now).unwrap()),
            14..19 => {
                let count = random.index(under_way.len() + 1);
                let some: Vec<Record> =
                    (0..count).map(|_| under_way.swap_remove(random.index(under_way.len()))).collect();
                spool.settle_all(some.iter().map(|record| (record, outcome(random, record))));
            }
            19 => {
                spool.append_dead(0, now, 2, &payload(8, random.index(60)), "refused at once");
                known.1 += 2;
                // A disk that takes no writes stores neither the letter nor that it is missing.
                known.0 += if is_failing || disk.is_killed() { 0 } else { 2 };
            }
            20 => {
                let (before, dead) = (spool.ledger().acknowledged, spool.ledger().dead);
                // Every other letter stays.
                let mut is_meant = false;
                let revived = spool.revive(|letter| {
                    is_meant = !is_meant;
                    is_meant.then_some(letter.spans + 1)
                });
                let more = spool.ledger().acknowledged - before;
                assert!(revived.as_ref().map_or(true, |revived| revived.queued == more));
                known.1 += more;
                match revived {
                    Ok(_) if !disk.is_killed() => known.0 += more,
                    // Letters that stay may be there twice, as `revive` says.
                    _ => (known.1, has_copies) = (known.1 + dead, true),
                }
            }
            21 => now += random.below(400),
            22 => disk.set_capacity(if random.one_in(2) { None } else { Some(random.index(4_000)) }),
            _ => {
                is_failing = random.one_in(4);
                disk.fail_writes(is_failing);
            }
        }
        if disk.is_killed() {
            return;
        }
        check_law(&spool.counts());
        let ledger = spool.ledger();
        assert!(ledger.is_balanced(), "{ledger:?}");
        assert_eq!(ledger.waiting, spool.counts().pending);
    }
    disk.fail_writes(false);
    disk.set_capacity(None);
    // A change, so that the position and the ledger are written if they could not be before.
    let left = under_way.iter().map(|record| (record, Settlement::Partly(record.settled)));
    spool.settle_all(left);
    let ledger = spool.ledger();
    drop(spool);
    if !disk.is_killed() {
        let found = verify(disk).unwrap().ledger;
        // Records that ended behind one that still waits are sent again.
        assert!(found.acknowledged == ledger.acknowledged || has_copies, "{found:?} {ledger:?}");
        assert!(found.waiting >= ledger.waiting, "{found:?} {ledger:?}");
    }
}

/// Copies the files to a disk without faults, after the process has ended.
fn after(disk: &MemoryDisk) -> MemoryDisk {
    disk.after_power_loss(|_, all| all)
}

/// Flips a byte, cuts or removes a file.
fn damage(random: &mut SplitMix, disk: &MemoryDisk) -> String {
    let files = disk.files();
    if files.is_empty() {
        return String::new();
    }
    let (name, mut bytes) = files[random.index(files.len())].clone();
    let at = random.index(bytes.len().max(1));
    match random.below(4) {
        0 => astracer_spool::Disk::remove(disk, &name).unwrap(),
        1 => disk.set(&name, bytes[..at.min(bytes.len())].to_vec()),
        _ => {
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8));
            disk.set(&name, bytes);
        }
    }
    name
}

fn names_a_file(report: &Report) -> bool {
    report.is_ledger_lost || report.damage.iter().any(|damage| !damage.is_harmless())
}

fn run(seed: u64) {
    let mut random = SplitMix::new(seed);
    let mut disk = MemoryDisk::default();
    let mut settings = Settings::default()
        .with_segment_bytes(200 + random.below(600))
        .with_max_bytes(1_000 + random.below(3_000))
        .with_max_age(Duration::from_nanos(1_000));
    if random.one_in(2) {
        settings = settings.with_when_full(WhenSpoolFull::DropOldest);
    }
    if random.one_in(2) {
        settings = settings.with_dead_letter_bytes(random.below(1_500));
    }
    let mut known = Acknowledged(0, 0);
    for _ in 0..random.index(6) + 2 {
        live(&mut random, &disk, &settings, &mut known);
        disk = after(&disk);
        let report = verify(&disk).unwrap();
        let ledger = report.ledger;
        assert!(report.is_proven() && report.unaccounted() == 0, "{report:?}");
        assert!((known.0..=known.1).contains(&ledger.acknowledged), "{known:?} {ledger:?}");
        // The last record may be there without having been acknowledged.
        known.1 = ledger.acknowledged;
        if random.one_in(3) {
            let name = damage(&mut random, &disk);
            let report = verify(&disk).unwrap();
            let is_exact = report.is_proven() && (known.0..=known.1).contains(&report.ledger.acknowledged);
            // A folder with nothing but a cursor whose content is gone looks like a new one.
            let is_new = report.live.is_empty() && report.dead.is_empty() && name == "cursor";
            assert!(is_new || is_exact || names_a_file(&report), "{name}: {known:?} {report:?}");
            // A reader of the whole log knows what the damage cost.
            let (mut spool, _) = Spool::open(disk.clone(), settings.clone()).unwrap();
            while let Some(record) = spool.take(0).unwrap() {
                spool.settle(&record, Settlement::Delivered);
            }
            let ledger = spool.ledger();
            drop(spool);
            disk = after(&disk);
            let report = verify(&disk).unwrap();
            assert!(report.is_proven() && report.ledger == ledger, "{name}: {ledger:?} {report:?}");
            assert_eq!(ledger.waiting, 0);
            known = Acknowledged(ledger.acknowledged, ledger.acknowledged);
        }
    }
}

#[test]
fn each_acknowledged_span_has_one_end() {
    for seed in 0..size(200, 10_000) {
        println!("seed {seed}");
        run(seed);
    }
}

/// CRC-32 bit by bit, as the catalogue of parametrised CRC algorithms defines it.
fn crc(bytes: &[u8]) -> u32 {
    let bit = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), bit))
}

/// A cursor of version 1: slots of 64 bytes with four numbers and their checksum.
#[test]
fn a_folder_of_version_1_is_read_and_gets_a_ledger() {
    let disk = MemoryDisk::default();
    let mut spool = Spool::open(disk.clone(), Settings::default()).unwrap().0;
    (0..4).for_each(|_| spool.append(0, 0, 3, &payload(0, 0)).unwrap());
    drop(spool);
    // Frames of 48 bytes behind 80. The first one and one span of the second have ended.
    let mut cursor = vec![0; 256];
    for (index, numbers) in [(0, [2, 1, 128, 4]), (1, [1, 1, 80, 0]), (2, [2, 0, 0, 12]), (3, [3, 0, 0, 0])] {
        let content: Vec<u8> = numbers.iter().flat_map(|number: &u64| number.to_le_bytes()).collect();
        cursor[index * 64..index * 64 + 32].copy_from_slice(&content);
        cursor[index * 64 + 32..index * 64 + 36].copy_from_slice(&crc(&content).to_le_bytes());
    }
    disk.set("cursor", cursor);
    let before = verify(&disk).unwrap();
    assert_eq!((before.pending_spans, before.pending_records, before.damage.len()), (8, 3, 0));
    let mut spool = Spool::open(disk.clone(), Settings::default()).unwrap().0;
    let ledger = spool.ledger();
    assert_eq!((ledger.acknowledged, ledger.unrecorded, ledger.waiting), (12, 4, 8));
    let record = spool.take(0).unwrap().unwrap();
    assert_eq!((record.spans, record.settled), (3, 1));
    spool.settle(&record, Settlement::Delivered);
    drop(spool);
    let report = verify(&disk).unwrap();
    assert_eq!((report.ledger.passed_on, report.ledger.waiting, report.is_proven()), (2, 6, true));
}

/// An empty file behind the last segment costs nothing.
#[test]
fn an_empty_extra_segment_is_a_note() {
    let disk = MemoryDisk::default();
    let mut spool = Spool::open(disk.clone(), Settings::default()).unwrap().0;
    spool.append(0, 0, 3, &payload(0, 0)).unwrap();
    drop(spool);
    disk.set("live-00000002.seg", Vec::new());
    let report = verify(&disk).unwrap();
    assert!(report.is_proven() && report.damage.iter().all(|damage| damage.is_harmless()), "{report:?}");
    let spool = Spool::open(disk, Settings::default()).unwrap().0;
    assert_eq!((spool.counts().pending, spool.counts().damaged), (3, 0));
}
