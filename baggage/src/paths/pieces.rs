//! Stretches of a line of control whose meaning is still open.
//!
//! A wait may have been for a branch, which only its join reveals. So the last wait, and what came
//! after it, is not yet added to the ways. The waits of a future that polls branches itself, as
//! `join!` does, stay open too, until a join.

use super::names::Place;
use super::way::TimeKind;

/// A place, and the experiments that change it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spot {
    pub(super) place: Place,
    pub(super) inside: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The part in which the flow waited, or may have; else it worked.
    pub(super) wait: u64,
    pub(super) spot: Spot,
    /// The kind of the wait if it was for no branch.
    pub(super) kind: TimeKind,
    /// A branch was polled inside the line of control meanwhile.
    pub(super) is_nested: bool,
    /// The wait was for no branch.
    pub(super) is_real: bool,
}

impl Piece {
    pub(super) fn is_open(&self) -> bool {
        self.wait > 0 && !self.is_real
    }

    pub(super) fn work(&self) -> u64 {
        (self.to - self.from).saturating_sub(self.wait)
    }

    /// The parts before and after an instant inside.
    fn split(self, at: u64) -> (Piece, Piece) {
        let wait = self.wait.min(self.to - at);
        let after = Piece { from: at, wait, ..self };
        (Piece { to: at, wait: self.wait - wait, ..self }, after)
    }
}

/// Pieces beyond which the oldest ones are united.
const PIECES_MAX: usize = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the next piece.
    pub(super) fn push(&mut self, piece: Piece, keeps_open: bool) {
        if piece.wait > 0 && !piece.is_nested && !keeps_open {
            self.close_waits();
        }
        match self.0.last_mut() {
            Some(last)
                if last.to == piece.from
                    && last.spot.place == piece.spot.place
                    && (last.wait > 0, last.is_nested, last.kind)
                        == (piece.wait > 0, piece.is_nested, piece.kind)
                    && last.is_real == piece.is_real =>
            {
                (last.to, last.wait) = (piece.to, last.wait + piece.wait);
            }
            _ => self.0.push(piece),
        }
        if self.0.len() > PIECES_MAX {
            let first = self.0.remove(0);
            let second = &mut self.0[0];
            let larger = if first.to - first.from > second.to - second.from { first } else { *second };
            let is_real = !first.is_open() && !second.is_open();
            *second =
                Piece { from: first.from, to: second.to, wait: first.wait + second.wait, is_real, ..larger };
        }
    }

    /// The waits so far were for no branch, unless branches were polled meanwhile.
    pub(super) fn close_waits(&mut self) {
        self.0.iter_mut().filter(|piece| !piece.is_nested).for_each(|piece| piece.is_real = true);
    }

    /// A branch is polled: the last wait may have been for it.
    pub(super) fn nest(&mut self) {
        if let Some(wait) = self.0.iter_mut().rfind(|piece| piece.wait > 0) {
            wait.is_nested = true;
        }
    }

    /// Removes the pieces at the beginning whose meaning is known.
    pub(super) fn take_known(&mut self) -> impl Iterator<Item = Piece> {
        let known = self.0.iter().position(Piece::is_open).unwrap_or(self.0.len());
        self.0.drain(..known)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Piece> {
        self.0.drain(..)
    }

    /// Removes what lies after an instant.
    pub(super) fn end_at(&mut self, at: u64) {
        self.0.retain(|piece| piece.from < at);
        if let Some(last) = self.0.last_mut().filter(|last| last.to > at) {
            *last = last.split(at).0;
        }
    }

    /// A branch that ended at an instant is joined: the open waits until then were for it. Removes
    /// what lies before the instant, or at least before the first open wait, at whose beginning the
    /// flow's own way would end. If the flow waited on, it was to be woken.
    pub(super) fn take_until(&mut self, ended: u64) -> impl Iterator<Item = Piece> {
        let end = self.0.last().map_or(0, |last| last.to);
        let at = ended.max(self.0.iter().find(|piece| piece.is_open()).map_or(end, |piece| piece.from));
        let count = self.0.partition_point(|piece| piece.from < at);
        let mut rest = self.0.split_off(count);
        if let Some(last) = self.0.last_mut().filter(|last| last.to > at) {
            let (before, after) = last.split(at);
            *last = before;
            rest.insert(0, after);
        }
        if let Some(first) = rest.first_mut().filter(|first| first.from == at && first.kind == TimeKind::Wait)
        {
            first.kind = TimeKind::Wake;
        }
        let before = std::mem::replace(&mut self.0, rest);
        before.into_iter().map(|piece| {
            let wait = if piece.is_open() { 0 } else { piece.wait };
            Piece { to: piece.to - (piece.wait - wait), wait, ..piece }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work and then a wait, in a function of this number.
    fn piece(from: u64, to: u64, wait: u64, place: u32) -> Piece {
        let spot = Spot { place: Place(place), inside: 0 };
        Piece { from, to, wait, spot, kind: TimeKind::Wait, is_nested: false, is_real: false }
    }

    #[test]
    fn what_lies_after_an_instant_is_removed() {
        let mut pieces = Pieces::default();
        pieces.push(piece(0, 10, 4, 2), false);
        pieces.push(piece(10, 20, 0, 2), false);
        pieces.end_at(7);
        let left: Vec<(u64, u64, u64)> =
            pieces.iter().map(|piece| (piece.from, piece.to, piece.wait)).collect();
        assert_eq!(left, [(0, 7, 1)]);
    }

    /// When two pieces are united, the longer one's function has the time.
    #[test]
    fn the_oldest_pieces_are_united() {
        let mut pieces = Pieces::default();
        pieces.push(piece(0, 10, 10, 2), false);
        for number in 0..PIECES_MAX as u64 {
            pieces.push(piece(10 + number, 11 + number, 0, 3 + number as u32), true);
        }
        let all: Vec<Piece> = pieces.take_all().collect();
        assert_eq!((all.len(), all[0].from, all[0].to, all[0].wait), (PIECES_MAX, 0, 11, 10));
        assert_eq!(all[0].spot.place, Place(2));
    }
}
