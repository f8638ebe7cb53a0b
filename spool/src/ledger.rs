//! The ledger: every span that the spool acknowledged has one end, or waits.
//!
//! It is stored in the cursor's file, in the same slot as the position. So both change together,
//! and a process that is killed at any time leaves sums of exactly the records before the position.

use crate::record::Ends;

/// Spans by their end, over all processes that used the folder.
///
/// `acknowledged` is the sum of all others: see [`Ledger::is_balanced`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// Spans that were appended, or rejected before they came into the queue.
    pub acknowledged: u64,
    /// Spans that the destination accepted.
    pub passed_on: u64,
    /// Rejected spans that are kept as dead letters.
    pub dead: u64,
    /// Rejected spans whose dead letters were queued again. The spans of these letters were
    /// acknowledged anew.
    pub queued_again: u64,
    /// Spans given up because of their age.
    pub expired: u64,
    /// Spans lost on disk, as waiting records or as dead letters.
    pub damaged: u64,
    /// Spans thrown away to free space, as waiting records or as dead letters; also dead letters
    /// that could not be stored.
    pub thrown_away: u64,
    /// Spans that ended before there was a ledger: those of version 1, or of a lost cursor.
    pub unrecorded: u64,
    /// Spans that wait.
    pub waiting: u64,
}

impl Ledger {
    /// Returns the spans that will not arrive, even if dead letters are sent again.
    pub fn lost(&self) -> u64 {
        self.expired + self.damaged + self.thrown_away
    }

    /// True if each acknowledged span has one end, or waits.
    pub fn is_balanced(&self) -> bool {
        let Ledger { passed_on, dead, queued_again, unrecorded, waiting, .. } = *self;
        self.acknowledged == passed_on + dead + queued_again + unrecorded + waiting + self.lost()
    }
}

/// The sums that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    pub(crate) ends: Ends,
    pub(crate) unrecorded: u64,
    /// Rejected spans that never were in the queue. They are also in `ends`.
    pub(crate) direct: u64,
    /// Rejected spans by what became of them.
    pub(crate) letters: Letters,
}

/// Spans of dead letters. They add up to the rejected spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Letters {
    pub(crate) kept: u64,
    pub(crate) queued_again: u64,
    pub(crate) thrown_away: u64,
    pub(crate) damaged: u64,
}

/// The number of stored sums.
pub(crate) const SUMS: usize = 11;

impl Book {
    /// Returns a ledger that begins when `settled` spans of the queue have ended in unknown ways,
    /// and `kept` of them, if there were as many, are dead letters.
    pub(crate) fn begin(settled: u64, kept: u64) -> Self {
        let (unrecorded, direct) = (settled.saturating_sub(kept), kept.saturating_sub(settled));
        let ends = Ends { rejected: kept, ..Ends::default() };
        Book { ends, unrecorded, direct, letters: Letters { kept, ..Letters::default() } }
    }

    /// Returns the number of spans of the queue that have ended.
    pub(crate) fn settled(&self) -> u64 {
        (self.unrecorded + self.ends.total()).saturating_sub(self.direct)
    }

    pub(crate) fn to_sums(self) -> [u64; SUMS] {
        let Ends { passed_on, rejected, expired, damaged, dropped } = self.ends;
        let Letters { kept, queued_again, thrown_away, damaged: damaged_letters } = self.letters;
        let Book { unrecorded, direct, .. } = self;
        [
            passed_on,
            rejected,
            expired,
            damaged,
            dropped,
            unrecorded,
            direct,
            kept,
            queued_again,
            thrown_away,
            damaged_letters,
        ]
    }

    pub(crate) fn of_sums(sums: [u64; SUMS]) -> Self {
        let [passed_on, rejected, expired, damaged, dropped, unrecorded, direct, letters @ ..] = sums;
        let [kept, queued_again, thrown_away, damaged_letters] = letters;
        Book {
            ends: Ends { passed_on, rejected, expired, damaged, dropped },
            unrecorded,
            direct,
            letters: Letters { kept, queued_again, thrown_away, damaged: damaged_letters },
        }
    }

    /// Adopts the spans of the dead letters that were found.
    pub(crate) fn find_letters(&mut self, found: u64) {
        let letters = &mut self.letters;
        letters.damaged += letters.kept.saturating_sub(found);
        let mut more = found.saturating_sub(letters.kept);
        letters.kept = found;
        // The process ended before it could remove them, or somebody has put them back.
        for source in [&mut letters.thrown_away, &mut letters.damaged, &mut letters.queued_again] {
            let back = more.min(*source);
            *source -= back;
            more -= back;
        }
        // A dropped record that was under way may have been rejected just before the process ended.
        let dropped = more.min(self.ends.dropped);
        self.ends.dropped -= dropped;
        self.ends.rejected += dropped;
        more -= dropped;
        self.direct += more;
        self.ends.rejected += more;
    }

    /// Returns what readers see. `total` is the number of spans that were appended to the queue.
    pub(crate) fn view(&self, total: u64, waiting: u64) -> Ledger {
        let Book { ends, unrecorded, direct, letters } = *self;
        Ledger {
            acknowledged: total + direct,
            passed_on: ends.passed_on,
            dead: letters.kept,
            queued_again: letters.queued_again,
            expired: ends.expired,
            damaged: ends.damaged + letters.damaged,
            thrown_away: ends.dropped + letters.thrown_away,
            unrecorded,
            waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_come_back_as_they_were() {
        let sums = std::array::from_fn(|index| index as u64 + 1);
        let book = Book::of_sums(sums);
        assert_eq!(book.to_sums(), sums);
        // 1 + 2 + 3 + 4 + 5 ended and 6 unrecorded, of which 7 never were in the queue.
        assert_eq!(book.settled(), 14);
    }

    #[test]
    fn a_ledger_that_begins_late_is_balanced() {
        for (settled, kept) in [(10, 3), (3, 10), (0, 0)] {
            let book = Book::begin(settled, kept);
            assert_eq!(book.settled(), settled);
            assert!(book.view(settled + 5, 5).is_balanced(), "{book:?}");
        }
    }

    #[test]
    fn letters_that_are_gone_or_come_back_have_one_end() {
        let mut book = Book::begin(10, 8);
        for found in [8, 5, 0, 8, 12] {
            book.find_letters(found);
            let ledger = book.view(10, 10 - book.settled());
            assert_eq!(ledger.dead, found);
            assert!(ledger.is_balanced(), "{ledger:?}");
        }
        assert_eq!((book.direct, book.letters.damaged), (4, 0));
    }
}
