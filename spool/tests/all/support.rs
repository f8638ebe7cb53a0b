//! Payloads that identify their record.

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Counts, Settings, Settlement, Spool};

/// The payload of record `number`: the number, followed by more bytes.
pub(crate) fn payload(number: u64, more: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + more, number as u8);
    payload
}

pub(crate) fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

/// The number of spans of a record, chosen so that counts of spans and of records differ.
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

/// Delivers everything; returns the numbers of the records.
pub(crate) fn drain(spool: &mut Spool) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(record) = spool.take(0).unwrap() {
        numbers.push(number(&record.payload));
        spool.settle(&record, Settlement::Delivered);
        check_law(&spool.counts());
    }
    numbers
}
