//! An append-only segmented log on disk: a queue of records that survives the process.
//!
//! A record is a payload of bytes, with its number of spans and the time when it was appended.
//! [`Spool`] appends records at one end and returns them at the other, in order and at least once.
//! Several records may be under way at a time, and may be settled in any order.
//! It has limits on size and age, keeps rejected records in a dead-letter log, and counts every
//! span of a record that it had to give up.
//!
//! This crate knows no trace format, and uses no network, clock or thread: times are arguments, and
//! the caller drives it.
//!
//! # Files
//!
//! | name | content |
//! |---|---|
//! | `lock` | empty; locked by the one process that uses the folder |
//! | `cursor` | the position before the first record that has not ended, and the ledger |
//! | `live-00000001.seg` and so on | segments of waiting records |
//! | `dead-00000001.seg` and so on | segments of rejected records, with the reason |
//!
//! # Format, version 2
//!
//! Version 1 differs in the cursor and in dead letters. Its folders are read, and their ledger
//! begins with the spans that had ended.
//!
//! All numbers are little-endian; checksums are CRC-32 (IEEE).
//!
//! A segment begins with two equal copies of its header, 40 bytes each:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `astspool` |
//! | 8 | 4 | version of segments: 1 |
//! | 12 | 4 | salt: random, so that no payload can contain a valid frame of its own segment |
//! | 16 | 8 | number of the segment, as in its name |
//! | 24 | 8 | spans appended to the log before this segment |
//! | 32 | 4 | zero |
//! | 36 | 4 | checksum of bytes 0 to 35 |
//!
//! Frames follow, each with a header of 40 bytes and a payload:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `fram` |
//! | 4 | 4 | bytes of the payload |
//! | 8 | 8 | time of the append, in nanoseconds since 1970 |
//! | 16 | 4 | spans of the record |
//! | 20 | 4 | kind: defined by the user of the spool |
//! | 24 | 8 | spans appended to the log before this record |
//! | 32 | 4 | checksum of the payload, seeded with the salt |
//! | 36 | 4 | checksum of bytes 0 to 35, seeded with the salt |
//!
//! In a dead letter, the highest bit of the kind is set, and the payload begins with the number of
//! spans that the position must have passed for the letter to count (8 bytes; 0 for a record that
//! never was in the queue), and the reason: its length in 2 bytes, then the text.
//!
//! The cursor consists of parts that begin with a word of 8 bytes and end with their checksum:
//!
//! | offset | word | numbers of 8 bytes |
//! |---|---|---|
//! | 256 and 0, alternately | `astledg2` | sequence number; number of the segment and offset in it of the first record that has not ended; then spans: passed on, rejected, expired, damaged, dropped, ended before the ledger began, rejected without having been in the queue; and of the dead letters those kept, queued again, thrown away, damaged |
//! | 416 | `astends2` | spans appended to the queue |
//! | 448 | `astfail2` | time of the destination's last failure, length of its text; then the text |
//!
//! The spans of the queue that have ended are the sum of these ends, without those that never were
//! in the queue. So the position and the sums change together: see [`Ledger`].
//!
//! # Damage
//!
//! A frame that was being written when the machine stopped fails its checksum; [`Spool::open`]
//! truncates such a tail. Damage between good frames is skipped by searching for the next valid
//! header. Every header has the number of spans before it, and the cursor has the number of all, so
//! the number of lost spans is known. If both copies of a segment's header are damaged, its salt is
//! derived from the first frame and verified by the payload's checksum.
//!
//! [`Spool::damage`] lists what was found. Files that are not part of the spool are in that list,
//! and are left alone.
//!
//! The cursor is synced before a segment is removed, and not otherwise. After a crash of the
//! machine, some records may be returned again, but none is skipped.

mod cursor;
mod damage;
mod dead;
mod disk;
mod frame;
mod gone;
mod inventory;
mod ledger;
mod letters;
mod lock;
mod reading;
mod record;
mod scan;
mod segment;
mod series;
mod settings;
mod settling;
mod spool;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;
mod window;

pub use cursor::Failure;
pub use damage::Damage;
pub use dead::{DeadLetter, Revived};
pub use disk::{Disk, DiskFile, Folder};
pub use ledger::Ledger;
pub use lock::FileLock;
pub use record::{AppendError, Counts, Record, RecordId, Recovered, Settlement};
pub use settings::{Settings, Sync, WhenSpoolFull};
pub use spool::Spool;
pub use verify::{Report, SegmentReport, verify};
