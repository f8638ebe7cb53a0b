//! The position after the last settled record, stored in a small file with two slots.

use std::io;

use crate::disk::{Disk, DiskFile};
use crate::frame::crc;

const NAME: &str = "cursor";
const SLOT_BYTES: u64 = 64;
const CONTENT_BYTES: usize = 32;

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// The number of spans of the log before this position. Their outcomes are final.
    pub(crate) settled: u64,
}

/// The open file. If a crash tears one slot, the other one is intact and one record older.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Box<dyn DiskFile>,
    sequence: u64,
}

impl Cursor {
    /// Opens or creates the file, and returns the newest valid position.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<(Self, Option<Position>)> {
        let mut file = if disk.contains(NAME) { disk.open(NAME)? } else { disk.create(NAME)? };
        let newest = read(&mut *file)?;
        let sequence = newest.map_or(0, |(sequence, _)| sequence);
        Ok((Cursor { file, sequence }, newest.map(|(_, position)| position)))
    }

    /// Overwrites the older slot with a position. After an error the next write goes to the same
    /// slot, because the other one may be the only intact one.
    pub(crate) fn write(&mut self, position: &Position) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let Position { segment, offset, settled } = *position;
        let mut slot: Vec<u8> =
            [sequence, segment, offset, settled].iter().flat_map(|field| field.to_le_bytes()).collect();
        slot.extend_from_slice(&crc(0, &slot).to_le_bytes());
        self.file.write_at(sequence % 2 * SLOT_BYTES, &slot)?;
        self.sequence = sequence;
        Ok(())
    }
}

/// Returns the position without changing anything in the folder.
pub(crate) fn peek(disk: &dyn Disk) -> io::Result<Option<Position>> {
    if !disk.contains(NAME) {
        return Ok(None);
    }
    Ok(read(&mut *disk.open(NAME)?)?.map(|(_, position)| position))
}

fn read(file: &mut dyn DiskFile) -> io::Result<Option<(u64, Position)>> {
    let mut newest = None;
    for slot in 0..2 {
        let mut bytes = [0; CONTENT_BYTES + 4];
        if file.read_at(slot * SLOT_BYTES, &mut bytes)? < bytes.len() {
            continue;
        }
        let (content, sum) = bytes.split_at(CONTENT_BYTES);
        if sum != crc(0, content).to_le_bytes() {
            continue;
        }
        let field = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&content[index * 8..index * 8 + 8]);
            u64::from_le_bytes(number)
        };
        let found = (field(0), Position { segment: field(1), offset: field(2), settled: field(3) });
        newest = newest.filter(|(sequence, _)| *sequence > found.0).or(Some(found));
    }
    Ok(newest)
}
