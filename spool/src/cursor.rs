//! The file `cursor`: the position after the last settled record with the ledger, in two slots, the
//! number of spans that were appended, and the last failure of the destination.

use std::borrow::Cow;
use std::io;

use crate::damage::Damage;
use crate::disk::{Disk, DiskFile};
use crate::frame::crc;
use crate::ledger::{Book, SUMS};

const NAME: &str = "cursor";
/// The offsets of the two slots. The second one is behind the slots of version 1, so the first
/// write of this version leaves them whole.
const SLOTS: [u64; 2] = [256, 0];
const SLOT_MAGIC: [u8; 8] = *b"astledg2";
const END_AT: u64 = 416;
const END_MAGIC: [u8; 8] = *b"astends2";
const FAILURE_AT: u64 = 448;
const FAILURE_MAGIC: [u8; 8] = *b"astfail2";
/// The greatest length of the text of a failure.
const FAILURE_BYTES_MAX: usize = 200;
/// The size of the whole file, which is reserved at once: a full disk must not stop it.
const FILE_BYTES: u64 = FAILURE_AT + 8 + 8 + 8 + FAILURE_BYTES_MAX as u64 + 4;

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// The number of spans of the log before this position. Their outcomes are final.
    pub(crate) settled: u64,
}

/// The last failure of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The reason.
    pub text: String,
}

/// The open file. If a crash tears one slot, the other one is intact and one record older.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Box<dyn DiskFile>,
    sequence: u64,
}

impl Cursor {
    /// Opens or creates the file.
    pub(crate) fn open(disk: &dyn Disk, sequence: u64) -> io::Result<Self> {
        let opened = if disk.contains(NAME) { disk.open(NAME) } else { disk.create(NAME) };
        let mut file = opened.map_err(named)?;
        let bytes = file.bytes().map_err(named)?;
        if bytes < FILE_BYTES {
            // If there is no room now, there may be when a slot is written.
            let _ = file.write_at(bytes, &vec![0; (FILE_BYTES - bytes) as usize]);
        }
        Ok(Cursor { file, sequence })
    }

    /// Overwrites the older slot. After an error the next write goes to the same slot, because the
    /// other one may be the only intact one.
    pub(crate) fn write(&mut self, position: &Position, book: &Book) -> io::Result<()> {
        let sequence = self.sequence.wrapping_add(1);
        let fields = [[sequence, position.segment, position.offset].as_slice(), &book.to_sums()].concat();
        self.file.write_at(slot_at(sequence), &sealed(&SLOT_MAGIC, &fields, b""))?;
        self.sequence = sequence;
        Ok(())
    }

    /// Notes the number of spans that were appended to the queue.
    pub(crate) fn write_end(&mut self, spans: u64) -> io::Result<()> {
        self.file.write_at(END_AT, &sealed(&END_MAGIC, &[spans], b""))
    }

    /// Notes the last failure of the destination.
    pub(crate) fn write_failure(&mut self, time_ns: u64, text: &str) -> io::Result<()> {
        let text = clipped(text);
        let fields = [time_ns, text.len() as u64];
        self.file.write_at(FAILURE_AT, &sealed(&FAILURE_MAGIC, &fields, text.as_bytes()))
    }

    /// Makes the position durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// The text, or the words of it that fit.
fn clipped(text: &str) -> Cow<'_, str> {
    const MARK: &str = "...";
    if text.len() <= FAILURE_BYTES_MAX {
        return text.into();
    }
    let fitting = || text.char_indices().take_while(|(at, _)| at + MARK.len() <= FAILURE_BYTES_MAX);
    let words = fitting().filter(|(_, char)| char.is_whitespace()).last();
    // A word that takes half of the room, such as a URL, is cut.
    let words = words.filter(|(at, _)| 2 * at > FAILURE_BYTES_MAX);
    let end = words.or(fitting().last()).map_or(0, |(at, _)| at);
    format!("{}{MARK}", text[..end].trim_end()).into()
}

/// An error that names the file.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{NAME}: {error}"))
}

fn slot_at(sequence: u64) -> u64 {
    SLOTS[usize::from(sequence.is_multiple_of(2))]
}

/// Returns a magic word, numbers, a text, and the checksum of them all.
fn sealed(magic: &[u8; 8], fields: &[u64], text: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    fields.iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(&crc(0, &bytes).to_le_bytes());
    bytes
}

fn number(bytes: &[u8], index: usize) -> u64 {
    let word = bytes.get(index * 8..).and_then(<[u8]>::first_chunk::<8>);
    word.copied().map_or(0, u64::from_le_bytes)
}

/// Returns the content before a checksum, if that is right.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (content, sum) = bytes.split_last_chunk::<4>()?;
    (crc(0, content).to_le_bytes() == *sum).then_some(content)
}

/// Reads the numbers behind a magic word.
fn unsealed<const N: usize>(
    file: &mut dyn DiskFile,
    at: u64,
    magic: &[u8; 8],
) -> io::Result<Option<[u64; N]>> {
    let mut bytes = vec![0; 8 + 8 * N + 4];
    let read = file.read_at(at, &mut bytes)?;
    let content = checked(&bytes[..read]).filter(|content| content.starts_with(magic));
    Ok(content
        .filter(|_| read == bytes.len())
        .map(|content| std::array::from_fn(|index| number(content, index + 1))))
}

/// The content of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// The newest valid position.
    pub(crate) position: Option<Position>,
    /// The ledger; `None` in version 1.
    pub(crate) book: Option<Book>,
    /// The number of spans that were appended to the queue. Without it, a log whose end was cut off
    /// between two frames would look complete.
    pub(crate) end: Option<u64>,
    /// The number of spans of dead letters that version 1 had appended.
    pub(crate) dead_end: Option<u64>,
    pub(crate) failure: Option<Failure>,
    pub(crate) sequence: u64,
    /// The length of a file without a valid position; 0 if there is one, or nothing.
    damaged_bytes: u64,
    is_missing: bool,
    /// True if a part of the file is damaged whose last content may be newer than what is left.
    is_stale: bool,
}

impl Noted {
    /// Describes a damaged file, or one that is missing from a folder with segments.
    pub(crate) fn damage(&self, has_segments: bool) -> Option<Damage> {
        let description = match self.is_missing {
            true => "missing; settled records are sent again, and the ledger begins anew",
            false if self.is_stale => "damaged in part; the ledger may lack its last changes",
            false => "damaged; settled records are sent again, and the ledger begins anew",
        };
        let note = Damage::new(NAME, (0, self.damaged_bytes), description);
        let is_lost = self.damaged_bytes > 0 || self.is_stale || self.is_missing && has_segments;
        is_lost.then_some(Damage { spans: Some(0), ..note })
    }
}

/// Reads the file without changing anything in the folder.
pub(crate) fn peek(disk: &dyn Disk) -> io::Result<Noted> {
    if !disk.contains(NAME) {
        return Ok(Noted { is_missing: true, ..Noted::default() });
    }
    disk.open(NAME).and_then(|mut file| read(&mut *file)).map_err(named)
}

fn read(file: &mut dyn DiskFile) -> io::Result<Noted> {
    let mut noted = Noted::default();
    let (mut newest, mut slots) = (None, 0);
    for at in SLOTS {
        let Some(fields) = unsealed::<{ 3 + SUMS }>(file, at, &SLOT_MAGIC)? else { continue };
        slots += 1;
        newest = newest.filter(|known: &[u64; 3 + SUMS]| known[0] > fields[0]).or(Some(fields));
    }
    if let Some([sequence, segment, offset, sums @ ..]) = newest {
        let book = Book::of_sums(sums);
        noted.position = Some(Position { segment, offset, settled: book.settled() });
        (noted.sequence, noted.book) = (sequence, Some(book));
    } else {
        read_version_1(file, &mut noted)?;
    }
    if let Some([end]) = unsealed(file, END_AT, &END_MAGIC)? {
        noted.end = Some(end);
    } else {
        noted.is_stale = newest.is_some();
    }
    // From the second write on, both slots are there.
    noted.is_stale |= slots == 1 && noted.sequence > 1;
    noted.failure = read_failure(file)?;
    let bytes = file.bytes()?;
    if noted.position.is_none() {
        let mut content = vec![0; bytes.min(FILE_BYTES) as usize];
        let read = file.read_at(0, &mut content)?;
        // The number of appended spans is written before the first position.
        let (slots, end) = (content[..read].iter().take(END_AT as usize), noted.end);
        noted.damaged_bytes =
            if slots.clone().any(|&byte| byte != 0) || end.is_some_and(|end| end > 0) { bytes } else { 0 };
    }
    Ok(noted)
}

fn read_failure(file: &mut dyn DiskFile) -> io::Result<Option<Failure>> {
    let mut bytes = vec![0; (FILE_BYTES - FAILURE_AT) as usize];
    let read = file.read_at(FAILURE_AT, &mut bytes)?;
    let length = usize::try_from(number(&bytes, 2)).unwrap_or(usize::MAX).min(FAILURE_BYTES_MAX);
    let content = bytes[..read].get(..24 + length + 4).and_then(checked);
    let content = content.filter(|content| content.starts_with(&FAILURE_MAGIC));
    let text = content.and_then(|content| str::from_utf8(&content[24..]).ok());
    Ok(text.map(|text| Failure { time_ns: number(&bytes, 1), text: text.to_owned() }))
}

/// Reads four slots of 64 bytes, with four numbers each: two positions, and the ends of both logs.
fn read_version_1(file: &mut dyn DiskFile, noted: &mut Noted) -> io::Result<()> {
    let mut newest = None;
    for index in 0..4 {
        let mut bytes = [0; 36];
        let read = file.read_at(index * 64, &mut bytes)?;
        let Some(content) = checked(&bytes).filter(|_| read == bytes.len()) else { continue };
        let [sequence, segment, offset, settled] = std::array::from_fn(|index| number(content, index));
        match index {
            2 => noted.end = Some(settled),
            3 => noted.dead_end = Some(settled),
            _ => {
                let found = (sequence, Position { segment, offset, settled });
                newest = newest.filter(|(known, _)| *known > sequence).or(Some(found));
            }
        }
    }
    noted.position = newest.map(|(_, position)| position);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_failure_ends_with_a_word() {
        let long = "é".repeat(200);
        for (text, clipped_at) in [
            ("refused".to_owned(), "refused".to_owned()),
            ("a".repeat(200), "a".repeat(200)),
            // 50 words are 200 bytes and need no mark; of 51, 49 fit beside it.
            ("abc ".repeat(50), "abc ".repeat(50)),
            ("abc ".repeat(51), format!("{}abc...", "abc ".repeat(48))),
            (format!("no answer from {long}"), format!("no answer from {}...", "é".repeat(91))),
        ] {
            assert_eq!(clipped(&text), clipped_at);
            assert!(clipped(&text).len() <= FAILURE_BYTES_MAX);
        }
    }
}
