//! Payloads that say which record they are, and a small generator of random numbers.

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Counts, Settings, Settlement, Spool};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The payload of record `number`: the number, and some bytes more.
pub(crate) fn payload(number: u64, more: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + more, number as u8);
    payload
}

pub(crate) fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

/// Spans of a record, so that counts of spans and of records differ.
pub(crate) fn spans(number: u64) -> u32 {
    (number % 7 + 1) as u32
}

#[track_caller]
pub(crate) fn check_law(counts: &Counts) {
    let Counts { found, appended, delivered, rejected, expired, damaged, dropped, pending, .. } = *counts;
    let settled = delivered + rejected + expired + damaged + dropped;
    assert_eq!(found + appended, settled + pending, "{counts:?}");
}

pub(crate) fn open(disk: &MemoryDisk, settings: &Settings) -> Spool {
    Spool::open(disk.clone(), settings.clone()).unwrap().0
}

/// Delivers everything; returns the records' numbers.
pub(crate) fn drain(spool: &mut Spool) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(record) = spool.peek(0).unwrap() {
        numbers.push(number(&record.payload));
        spool.settle(&record, Settlement::Delivered);
        check_law(&spool.counts());
    }
    numbers
}
