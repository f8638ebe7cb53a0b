//! Limits on size and age, dead letters, and a disk that fails.

use std::time::Duration;

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Disk, Settings, Settlement, Sync, WhenSpoolFull, verify};

use crate::support::{check_law, drain, number, open, payload, spans};

/// Bytes of a frame with a payload of 8 bytes.
const FRAME: u64 = 48;

/// Segments of two records, at most three of them.
fn small() -> Settings {
    Settings::default().with_segment_bytes(80 + 2 * FRAME).with_max_bytes(3 * (80 + 2 * FRAME))
}

#[test]
fn a_full_spool_refuses_and_takes_again() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &small());
    let mut appended = 0;
    let error = loop {
        match spool.append(0, 0, 1, &payload(appended, 0)) {
            Ok(()) => appended += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full() && spool.bytes() <= 528, "{error}");
    assert_eq!((appended, spool.counts().appended, spool.bytes()), (6, 6, 528));
    // A segment is freed when everything in it is settled.
    for _ in 0..3 {
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Delivered);
    }
    spool.append(0, 0, 1, &payload(6, 0)).unwrap();
    assert_eq!(drain(&mut spool), [3, 4, 5, 6]);
    // Everything is settled: any number fits again.
    for number in 0..4 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    assert!(spool.append(0, 0, 1, &payload(0, 1_000)).unwrap_err().is_full());
    assert_eq!(drain(&mut spool), [0, 1, 2, 3]);
}

#[test]
fn the_oldest_make_room_if_that_is_asked_for() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &small().with_when_full(WhenSpoolFull::DropOldest));
    for number in 0..10 {
        spool.append(0, 0, spans(number), &payload(number, 0)).unwrap();
        check_law(&spool.counts());
        assert!(spool.bytes() <= 528);
    }
    let left = drain(&mut spool);
    assert_eq!(left.last(), Some(&9));
    let dropped: u64 = (0..left[0]).map(|number| u64::from(spans(number))).sum();
    assert_eq!(spool.counts().dropped, dropped);
}

/// A record whose segment is removed while it is being delivered is counted once, by its own
/// outcome.
#[test]
fn a_record_under_way_is_not_counted_twice() {
    for outcome in [Settlement::Delivered, Settlement::Partly(0)] {
        let disk = MemoryDisk::default();
        let mut spool = open(&disk, &small().with_when_full(WhenSpoolFull::DropOldest));
        spool.append(0, 0, 3, &payload(0, 0)).unwrap();
        let under_way = spool.take(0).unwrap().unwrap();
        for number in 1..8 {
            spool.append(0, 0, 1, &payload(number, 0)).unwrap();
            check_law(&spool.counts());
        }
        let before = spool.counts();
        spool.settle(&under_way, outcome);
        check_law(&spool.counts());
        let delivered = if outcome == Settlement::Delivered { 3 } else { 0 };
        assert_eq!(spool.counts().delivered, delivered);
        assert_eq!(spool.counts().dropped, before.dropped + 3 - delivered);
        drain(&mut spool);
        assert_eq!(spool.counts().pending, 0);
    }
}

#[test]
fn old_records_are_passed_over() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default().with_max_age(Duration::from_nanos(100)));
    for time in [1_000, 1_050, 2_000] {
        spool.append(0, time, 2, &payload(time, 0)).unwrap();
    }
    // If the clock was set back, nothing gets older.
    for (now, oldest) in [(500, 1_000), (1_100, 1_000), (1_101, 1_050), (2_000, 2_000)] {
        let record = spool.take(now).unwrap().unwrap();
        assert_eq!(number(&record.payload), oldest);
        spool.settle(&record, Settlement::Partly(0));
    }
    assert_eq!((spool.counts().expired, spool.counts().pending), (4, 2));
}

#[test]
fn rejected_records_keep_their_reason() {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_dead_letter_bytes(400).with_segment_bytes(150);
    let mut spool = open(&disk, &settings);
    for number in 0..4 {
        spool.append(0, 0, 2, &payload(number, 0)).unwrap();
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Rejected(if number == 3 { "too large" } else { "forbidden" }));
    }
    let counts = spool.counts();
    // Each has a segment of 139 or 133 bytes: two fit, and the oldest two were removed.
    assert_eq!((counts.rejected, counts.dead_letters_lost, counts.pending), (8, 4, 0));
    drop(spool);
    let report = verify(&disk).unwrap();
    assert_eq!(report.reasons, [("forbidden".to_owned(), 2), ("too large".to_owned(), 2)]);
    assert_eq!((report.pending_spans, report.damage.len()), (0, 0));
}

#[test]
fn a_dead_letter_larger_than_all_that_they_may_take_is_counted_lost() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default().with_dead_letter_bytes(100));
    spool.append(0, 0, 5, &payload(0, 200)).unwrap();
    let record = spool.take(0).unwrap().unwrap();
    spool.settle(&record, Settlement::Rejected("too large"));
    assert_eq!((spool.counts().rejected, spool.counts().dead_letters_lost), (5, 5));
    assert!(disk.files().iter().all(|(name, _)| !name.starts_with("dead")));
}

#[test]
fn a_full_disk_loses_nothing_that_was_appended() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    for number in 0..3 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    let used: usize = disk.files().iter().map(|(_, bytes)| bytes.len()).sum();
    // Space for only a part of a frame.
    disk.set_capacity(Some(used + 30));
    for _ in 0..3 {
        assert!(!spool.append(0, 0, 1, &payload(99, 0)).unwrap_err().is_full());
    }
    // There is no segment yet, and no empty file is left.
    let empty = MemoryDisk::default();
    let mut none = open(&empty, &Settings::default());
    empty.set_capacity(Some(10));
    none.append(0, 0, 1, &payload(0, 0)).unwrap_err();
    assert!(empty.files().iter().all(|(name, _)| name == "cursor"));
    disk.set_capacity(None);
    spool.append(0, 0, 1, &payload(3, 0)).unwrap();
    assert_eq!(drain(&mut spool), [0, 1, 2, 3]);
    assert_eq!(spool.counts().damaged, 0);
}

/// Nothing is written after a torn frame that could not be truncated: the next record gets a new
/// segment.
#[test]
fn a_torn_frame_that_stays_is_not_written_over() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    spool.append(0, 0, 1, &payload(0, 0)).unwrap();
    let used: usize = disk.files().iter().map(|(_, bytes)| bytes.len()).sum();
    disk.set_capacity(Some(used + 500));
    disk.fail_cuts(true);
    spool.append(0, 0, 1, &payload(99, 1_000)).unwrap_err();
    disk.set_capacity(None);
    let torn = disk.files();
    spool.append(0, 0, 1, &payload(1, 0)).unwrap();
    let is_there = |file: &(String, Vec<u8>)| disk.files().contains(file);
    assert!(torn.iter().filter(|(name, _)| name.ends_with(".seg")).all(is_there));
    assert_eq!(drain(&mut spool), [0, 1]);
    assert_eq!(spool.counts().pending, 0);
}

#[test]
fn a_record_whose_sync_failed_is_refused() {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_sync(Sync::Append);
    let mut spool = open(&disk, &settings);
    spool.append(0, 0, 1, &payload(0, 0)).unwrap();
    disk.fail_syncs(true);
    for _ in 0..3 {
        spool.append(0, 0, 1, &payload(1, 0)).unwrap_err();
    }
    disk.fail_syncs(false);
    spool.append(0, 0, 1, &payload(2, 0)).unwrap();
    drop(spool);
    assert_eq!(disk.files().len(), 3, "the cursor and two segments");
    assert_eq!(drain(&mut open(&disk.after_power_loss(|synced, _| synced), &settings)), [0, 2]);
}

/// A disk that fails for a while may keep a rejected record, where it is found again. The next
/// record was then taken for it, skipped, and not counted.
#[test]
fn a_refused_record_that_stays_takes_no_place_of_another() {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_sync(Sync::Append);
    let mut spool = open(&disk, &settings);
    spool.append(0, 0, 3, &payload(0, 0)).unwrap();
    disk.fail_syncs(true);
    disk.fail_cuts(true);
    spool.append(0, 0, 2, &payload(1, 0)).unwrap_err();
    disk.fail_syncs(false);
    disk.fail_cuts(false);
    spool.append(0, 0, 1, &payload(2, 0)).unwrap();
    spool.append(0, 0, 1, &payload(3, 0)).unwrap();
    drop(spool);
    let report = verify(&disk).unwrap();
    assert_eq!((report.pending_records, report.pending_spans), (3, 5));
    let mut spool = open(&disk, &settings);
    assert_eq!(spool.counts().found, 5);
    assert_eq!(drain(&mut spool), [0, 2, 3]);
    assert_eq!((spool.counts().delivered, spool.counts().pending), (5, 0));
}

#[test]
fn a_disk_that_cannot_be_read_is_reported_and_can_be_passed_over() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &small());
    for number in 0..5 {
        spool.append(0, 0, 2, &payload(number, 0)).unwrap();
    }
    disk.fail_reads(true);
    assert!(spool.take(0).is_err() && spool.take(0).is_err());
    spool.skip_segment();
    disk.fail_reads(false);
    check_law(&spool.counts());
    assert_eq!(drain(&mut spool), [2, 3, 4]);
    assert_eq!(spool.counts().damaged, 4);
}

/// A process ends when its last segment has been settled and removed, and before another one is
/// begun.
#[test]
fn a_spool_without_segments_goes_on_behind_its_cursor() {
    let disk = MemoryDisk::default();
    // Space for one segment.
    let settings = small().with_max_bytes(80 + 2 * FRAME);
    let mut spool = open(&disk, &settings);
    for number in 0..20 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
        drain(&mut spool);
    }
    // Settled records leave space below the limit, but the disk is full.
    disk.set_capacity(Some(0));
    spool.append(0, 0, 1, &payload(9, 0)).unwrap_err();
    assert_eq!(spool.bytes(), 0);
    drop(spool);
    disk.set_capacity(None);
    let mut spool = open(&disk, &settings);
    for number in 20..22 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    assert_eq!((drain(&mut spool), spool.counts().damaged), (vec![20, 21], 0));
    drop(spool);
    assert_eq!(open(&disk, &settings).counts().found, 0);
}

/// A record that is larger than the limit evicts nothing: the waiting records stay.
#[test]
fn a_record_larger_than_the_limit_drops_nothing() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &small().with_when_full(WhenSpoolFull::DropOldest));
    for number in 0..4 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    assert!(spool.append(0, 0, 1, &payload(9, 1_000)).unwrap_err().is_full());
    check_law(&spool.counts());
    assert_eq!((spool.counts().dropped, drain(&mut spool)), (0, vec![0, 1, 2, 3]));
}

#[test]
fn a_dead_letter_larger_than_the_limit_removes_no_other() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default().with_dead_letter_bytes(300));
    for bytes in [0, 500] {
        spool.append(0, 0, 2, &payload(0, bytes)).unwrap();
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Rejected("forbidden"));
    }
    assert_eq!(spool.counts().dead_letters_lost, 2);
    drop(spool);
    assert_eq!(verify(&disk).unwrap().reasons, [("forbidden".to_owned(), 2)]);
}

/// If two writes of the position fail, the second must not tear the copy that the first has left
/// intact.
#[test]
fn writes_of_the_position_that_fail_leave_the_last_good_one() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    for number in 0..5 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    let records: Vec<_> = (0..4).map(|_| spool.take(0).unwrap().unwrap()).collect();
    let mut settle = |number: usize| spool.settle(&records[number], Settlement::Delivered);
    settle(0);
    settle(1);
    let good = disk.files().into_iter().find(|(name, _)| name == "cursor").unwrap().1;
    disk.fail_writes(true);
    settle(2);
    disk.fail_writes(false);
    settle(3);
    drop(spool);
    // The machine failed during the last write. The slot that was written to matters.
    let mut torn = disk.files().into_iter().find(|(name, _)| name == "cursor").unwrap().1;
    let at = (0..torn.len()).find(|&at| torn[at] != good[at]).unwrap() / 64 * 64;
    torn[at] ^= 0xff;
    disk.set("cursor", torn);
    let mut spool = open(&disk, &Settings::default());
    assert_eq!(drain(&mut spool), [2, 3, 4], "two were settled by the copy that is whole");
}

/// If a record was partly accepted, the rest counts as rejected.
#[test]
fn a_dead_letter_counts_the_spans_that_were_rejected() {
    for (bytes, lost) in [(1_000, 0), (10, 2)] {
        let disk = MemoryDisk::default();
        let mut spool = open(&disk, &Settings::default().with_dead_letter_bytes(bytes));
        spool.append(0, 0, 5, &payload(0, 0)).unwrap();
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Partly(3));
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::Rejected("forbidden"));
        assert_eq!((spool.counts().rejected, spool.counts().dead_letters_lost), (2, lost));
        drop(spool);
        let known = verify(&disk).unwrap().reasons.iter().map(|(_, spans)| spans).sum::<u64>();
        assert_eq!(known + lost, 2);
    }
}

/// Some spans were accepted and some rejected, in the attempt that ends the record or in an earlier
/// one.
#[test]
fn a_record_may_be_rejected_in_part() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    spool.append(0, 0, 5, &payload(0, 0)).unwrap();
    let mut settle = |settled, rejected, reason| {
        let record = spool.take(0).unwrap().unwrap();
        spool.settle(&record, Settlement::PartlyRejected { settled, rejected, reason });
        let counts = spool.counts();
        check_law(&counts);
        (counts.delivered, counts.rejected, counts.pending)
    };
    assert_eq!(settle(2, 1, "too large"), (1, 1, 3));
    assert_eq!(settle(5, 2, "forbidden"), (2, 3, 0));
    assert!(spool.take(0).unwrap().is_none());
    drop(spool);
    let report = verify(&disk).unwrap();
    assert_eq!(report.reasons, [("forbidden".to_owned(), 2), ("too large".to_owned(), 1)]);
}

/// `sync` applies to everything that was appended, whatever `Sync` says: to full segments, to the
/// names of the files, and to what a former process left.
#[test]
fn a_sync_makes_all_segments_durable() {
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_segment_bytes(1).with_sync(Sync::Never);
    let after = || drain(&mut open(&disk.after_power_loss(|synced, _| synced), &settings));
    let mut spool = open(&disk, &settings);
    (0..2).for_each(|number| spool.append(0, 0, 1, &payload(number, 0)).unwrap());
    drop(spool);
    let mut spool = open(&disk, &settings);
    (2..4).for_each(|number| spool.append(0, 0, 1, &payload(number, 0)).unwrap());
    disk.fail_syncs(true);
    spool.sync().unwrap_err();
    assert!(after().is_empty());
    // A failed sync is tried again.
    disk.fail_syncs(false);
    spool.sync().unwrap();
    assert_eq!(after(), [0, 1, 2, 3]);
}

#[test]
fn a_record_that_was_taken_in_part_waits_with_the_rest() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    for number in 0..3 {
        spool.append(0, 0, 5, &payload(number, 0)).unwrap();
    }
    let record = spool.take(0).unwrap().unwrap();
    spool.settle(&record, Settlement::Delivered);
    let record = spool.take(0).unwrap().unwrap();
    spool.settle(&record, Settlement::Partly(3));
    assert_eq!(spool.counts().pending, 7);
    drop(spool);
    let report = verify(&disk).unwrap();
    assert_eq!((report.pending_spans, report.pending_records), (7, 2));
}

/// Somebody removes the segments of a spool whose first record is settled.
#[test]
fn a_spool_whose_segments_were_removed_begins_behind_them() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    for number in 0..3 {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
    }
    let record = spool.take(0).unwrap().unwrap();
    spool.settle(&record, Settlement::Delivered);
    drop(spool);
    let segments: Vec<String> =
        disk.files().into_iter().map(|(name, _)| name).filter(|name| name.starts_with("live")).collect();
    assert_eq!(segments.len(), 1);
    Disk::remove(&disk, &segments[0]).unwrap();
    // Twice, because a process that ends before it settles anything leaves the position unchanged.
    for (numbers, damaged) in [(3..6, 2), (6..9, 0)] {
        let mut spool = open(&disk, &Settings::default());
        // The two records that nobody had settled.
        assert_eq!(spool.counts().damaged, damaged);
        for number in numbers {
            spool.append(0, 0, 1, &payload(number, 0)).unwrap();
        }
    }
    let mut spool = open(&disk, &Settings::default());
    assert_eq!((drain(&mut spool), spool.counts().damaged), ((3..9).collect(), 0));
}

/// Without a limit of their own, dead letters share that of waiting records, which come first.
#[test]
fn dead_letters_use_the_room_that_waiting_records_leave() {
    let disk = MemoryDisk::default();
    // Each letter has a segment of its own: 80 bytes, a header of 40, and 8 + 2 + 2 + 8 of payload.
    let settings = Settings::default().with_segment_bytes(1).with_max_bytes(4 * 140);
    let mut spool = open(&disk, &settings);
    (0..3).for_each(|number| spool.append_dead(0, 0, 2, &payload(number, 0), "no"));
    assert_eq!((spool.counts().dead_letters, spool.counts().dead_letters_lost), (6, 0));
    // Records have 128 bytes each. One of them fits beside three letters, and no second one.
    let mut lost = |number| {
        spool.append(0, 0, 1, &payload(number, 0)).unwrap();
        spool.counts().dead_letters_lost
    };
    assert_eq!([lost(3), lost(4), lost(5), lost(6)], [0, 2, 4, 6]);
    // Nothing is left of the room, so the next letter is thrown away at once.
    spool.append_dead(0, 0, 2, &payload(7, 0), "no");
    let ledger = spool.ledger();
    assert_eq!((ledger.dead, ledger.thrown_away, ledger.waiting), (0, 8, 4));
    assert!(ledger.is_balanced());
}
