//! The position after the last settled record, in two slots of a small file, and the ends of both
//! logs in two more.

use std::io;

use crate::damage::Damage;
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

/// The numbers of spans that were appended to the logs. Without them, a log whose end was cut off
/// between two frames would look complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) live: Option<u64>,
    pub(crate) dead: Option<u64>,
}

/// The log whose end is noted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Log {
    Live = 2,
    Dead = 3,
}

/// The open file. If a crash tears one slot, the other one is intact and one record older.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Box<dyn DiskFile>,
    sequence: u64,
}

impl Cursor {
    /// Opens or creates the file.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<(Self, Noted)> {
        let mut file = if disk.contains(NAME) { disk.open(NAME)? } else { disk.create(NAME)? };
        let (sequence, noted) = read(&mut *file)?;
        Ok((Cursor { file, sequence }, noted))
    }

    /// Overwrites the older slot with a position. After an error the next write goes to the same
    /// slot, because the other one may be the only intact one.
    pub(crate) fn write(&mut self, position: &Position) -> io::Result<()> {
        let sequence = self.sequence.wrapping_add(1);
        let Position { segment, offset, settled } = *position;
        self.file.write_at(sequence % 2 * SLOT_BYTES, &slot([sequence, segment, offset, settled]))?;
        self.sequence = sequence;
        Ok(())
    }

    /// Notes the number of spans that were appended to a log.
    pub(crate) fn write_end(&mut self, log: Log, spans: u64) -> io::Result<()> {
        self.file.write_at(log as u64 * SLOT_BYTES, &slot([log as u64, 0, 0, spans]))
    }

    /// Makes the position durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

fn slot(fields: [u64; 4]) -> Vec<u8> {
    let mut slot: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    slot.extend_from_slice(&crc(0, &slot).to_le_bytes());
    slot
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// The newest valid position.
    pub(crate) position: Option<Position>,
    pub(crate) ends: Ends,
    /// The length of a file without a valid position; 0 if there is one, or nothing.
    pub(crate) damaged_bytes: u64,
}

impl Noted {
    /// Describes a damaged file.
    pub(crate) fn damage(&self) -> Option<Damage> {
        let note = Damage::new(NAME, (0, self.damaged_bytes), "damaged; settled records are sent again");
        (self.damaged_bytes > 0).then_some(Damage { spans: Some(0), ..note })
    }
}

/// Reads the file without changing anything in the folder.
pub(crate) fn peek(disk: &dyn Disk) -> io::Result<Noted> {
    if !disk.contains(NAME) {
        return Ok(Noted::default());
    }
    Ok(read(&mut *disk.open(NAME)?)?.1)
}

fn read(file: &mut dyn DiskFile) -> io::Result<(u64, Noted)> {
    let (mut newest, mut ends, mut has_content) = (None, Ends::default(), false);
    for index in 0..4 {
        let mut bytes = [0; CONTENT_BYTES + 4];
        let read = file.read_at(index * SLOT_BYTES, &mut bytes)?;
        has_content |= index < 2 && bytes[..read].iter().any(|&byte| byte != 0);
        let (content, sum) = bytes.split_at(CONTENT_BYTES);
        if read < bytes.len() || sum != crc(0, content).to_le_bytes() {
            continue;
        }
        let field = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&content[index * 8..index * 8 + 8]);
            u64::from_le_bytes(number)
        };
        match index {
            2 => ends.live = Some(field(3)),
            3 => ends.dead = Some(field(3)),
            _ => {
                let found = (field(0), Position { segment: field(1), offset: field(2), settled: field(3) });
                newest = newest.filter(|(sequence, _)| *sequence > found.0).or(Some(found));
            }
        }
    }
    let damaged_bytes = if newest.is_none() && has_content { file.bytes()? } else { 0 };
    let position = newest.map(|(_, position)| position);
    Ok((newest.map_or(0, |(sequence, _)| sequence), Noted { position, ends, damaged_bytes }))
}
