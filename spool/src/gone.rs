//! Segments that have no file, found by the gaps in the numbers of a log.

use std::ops::Range;

use crate::damage::Gone;
use crate::disk::Disk;
use crate::segment::file_name;

/// The most names that are looked up to name missing segments.
const NAMES_MAX: usize = 1_000;

/// Finds the segments of a log with these numbers that have no file.
pub(crate) fn gone(disk: &dyn Disk, log: &str, numbers: Range<u64>) -> Gone {
    let names = numbers.take(NAMES_MAX).map(|number| file_name(log, number));
    let mut absent = names.filter(|name| !disk.contains(name));
    let first = absent.next()?;
    let description = match absent.next() {
        Some(_) => "segments from this one on are missing",
        None => "this segment is missing",
    };
    Some((first, description))
}

/// The segments that are gone between the first of these numbers and the next.
pub(crate) fn gone_after(disk: &dyn Disk, log: &str, numbers: &[u64]) -> Gone {
    let [number, next, ..] = *numbers else { return None };
    gone(disk, log, number + 1..next)
}
