//! Random operations on a spool whose disk fills up, fails and loses power, checked against a list
//! in memory.

use std::collections::VecDeque;

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Settings, Settlement, Sync, WhenSpoolFull};
use astracer_testing::SplitMix;

use crate::support::{check_law, number, open, payload, spans};

/// A simple queue as a model: the waiting records are those appended and not settled, in order.
#[derive(Default)]
struct Reference {
    waiting: VecDeque<u64>,
}

impl Reference {
    /// Adopts the records that a restart finds. Settled records may be there again (at least once).
    /// If `is_durable`, no waiting record may be missing.
    fn follow(&mut self, disk: &MemoryDisk, settings: &Settings, is_durable: bool) {
        let mut copy = open(&disk.after_power_loss(|_, all| all), settings);
        let mut there = VecDeque::new();
        while let Some(record) = copy.take(0).unwrap() {
            there.push_back(number(&record.payload));
            copy.settle(&record, Settlement::Delivered);
        }
        let lost: Vec<_> = self.waiting.iter().filter(|number| !there.contains(number)).collect();
        assert!(!is_durable || lost.is_empty(), "{lost:?} of {:?}", self.waiting);
        self.waiting = there;
    }
}

fn run(seed: u64, sync: Sync, when_full: WhenSpoolFull) {
    println!("seed {seed} {sync:?} {when_full:?}");
    let mut random = SplitMix::new(seed);
    let mut disk = MemoryDisk::default();
    let settings = Settings::default()
        .with_segment_bytes(400)
        .with_max_bytes(2_000)
        .with_dead_letter_bytes(600)
        .with_sync(sync)
        .with_when_full(when_full);
    let mut spool = open(&disk, &settings);
    let mut reference = Reference::default();
    let mut next = 0;
    for _ in 0..600 {
        match random.below(100) {
            0..45 => {
                let more = random.index(60);
                let before = spool.counts().dropped;
                if spool.append(0, 0, spans(next), &payload(next, more)).is_ok() {
                    reference.waiting.push_back(next);
                }
                // Eviction removes whole records from the front.
                let mut dropped = spool.counts().dropped - before;
                if dropped > 0 && sync != Sync::Append {
                    // Evicted segments may have had holes since a power loss, so only the front is
                    // known.
                    let first = spool.take(0).unwrap();
                    let first = first.map(|record| {
                        spool.settle(&record, Settlement::Partly(0));
                        number(&record.payload)
                    });
                    reference.waiting.retain(|&number| first.is_some_and(|first| number >= first));
                    dropped = 0;
                }
                while dropped > 0 {
                    let first = reference.waiting.pop_front().unwrap();
                    dropped -= u64::from(spans(first));
                }
                next += 1;
            }
            45..85 => {
                let record = spool.take(0).unwrap();
                let expected = reference.waiting.front().copied();
                assert_eq!(record.as_ref().map(|record| number(&record.payload)), expected);
                if let Some(record) = record {
                    let outcome = match random.below(5) {
                        0 => Settlement::Rejected("no"),
                        1 => Settlement::Partly(0),
                        2 => Settlement::PartlyRejected {
                            settled: record.spans,
                            rejected: random.below(u64::from(record.spans) + 1) as u32,
                            reason: "some",
                        },
                        _ => Settlement::Delivered,
                    };
                    spool.settle(&record, outcome);
                    if outcome != Settlement::Partly(0) {
                        reference.waiting.pop_front();
                    }
                }
            }
            85..90 => disk.set_capacity(if random.one_in(2) { None } else { Some(random.index(3_000)) }),
            90..93 => disk.fail_writes(random.one_in(2)),
            93..95 => disk.fail_syncs(random.one_in(2)),
            95..98 => {
                // The process is killed: everything that was written is there.
                disk.set_capacity(None);
                disk.fail_writes(false);
                disk.fail_syncs(false);
                drop(spool);
                spool = open(&disk, &settings);
                reference.follow(&disk, &settings, true);
            }
            _ => {
                // The machine loses power: a random part of the unsynced data is gone, torn
                // anywhere.
                drop(spool);
                disk = disk.after_power_loss(|synced, all| synced + random.index(all - synced + 1));
                spool = open(&disk, &settings);
                reference.follow(&disk, &settings, sync == Sync::Append);
            }
        }
        check_law(&spool.counts());
    }
}

#[test]
fn nothing_appended_is_lost_without_being_counted() {
    for seed in 0..20 {
        for sync in [Sync::Append, Sync::Segment, Sync::Never] {
            for when_full in [WhenSpoolFull::Refuse, WhenSpoolFull::DropOldest] {
                run(seed, sync, when_full);
            }
        }
    }
}
