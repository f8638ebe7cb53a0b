//! One way through a request: the times on it, by place and kind.

use super::names::Place;

/// The ways in which a time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum TimeKind {
    /// A thread worked in the function.
    Work = 0,
    /// The function waited, and for no branch: for a timer, a lock, the scheduler, or for a branch
    /// that was never joined.
    Wait = 1,
    /// A branch was made and had not begun.
    Spawn = 2,
    /// A branch had ended, and the function that waited for it had not resumed.
    Wake = 3,
    /// A call to another process, without the time that the callee took.
    Network = 4,
    /// A call to another process that has not said what it did.
    Opaque = 5,
}

impl TimeKind {
    /// All kinds.
    pub const ALL: [TimeKind; 6] = [
        TimeKind::Work,
        TimeKind::Wait,
        TimeKind::Spawn,
        TimeKind::Wake,
        TimeKind::Network,
        TimeKind::Opaque,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        ["work", "wait", "spawn", "wake", "network", "opaque"][self as usize]
    }
}

/// A place, and the way in which time was spent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part(u32);

impl Part {
    pub(super) fn new(place: Place, kind: TimeKind) -> Self {
        Part(place.0 << 3 | kind as u32)
    }

    pub(super) fn place(self) -> Place {
        Place(self.0 >> 3)
    }

    pub(super) fn kind(self) -> TimeKind {
        TimeKind::ALL.get((self.0 & 7) as usize).copied().unwrap_or(TimeKind::Wait)
    }
}

/// Parts of one way. More are added up for [`Place::OTHERS`].
const PARTS_MAX: usize = 64;
/// The last segments of a way that are kept.
pub(super) const SEGMENTS_MAX: usize = 32;

/// The last stretches of a way in one place, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    kept: Vec<(Part, u64)>,
    /// The index of the oldest one, once the bound is reached.
    oldest: usize,
}

impl Segments {
    #[inline]
    fn add(&mut self, part: Part, nanos: u64) {
        let last = self.oldest.checked_sub(1).unwrap_or(self.kept.len().wrapping_sub(1));
        if let Some((known, time)) = self.kept.get_mut(last)
            && *known == part
        {
            *time = time.saturating_add(nanos);
        } else {
            self.push(part, nanos);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, part: Part, nanos: u64) {
        if self.kept.len() < SEGMENTS_MAX {
            self.kept.push((part, nanos));
        } else if let Some(oldest) = self.kept.get_mut(self.oldest) {
            *oldest = (part, nanos);
            self.oldest = (self.oldest + 1) % SEGMENTS_MAX;
        }
    }

    /// The segments in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Part, u64)> {
        let (after, before) = self.kept.split_at(self.oldest);
        before.iter().chain(after)
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.oldest = 0;
    }
}

impl Clone for Segments {
    fn clone(&self) -> Self {
        Segments { kept: self.kept.clone(), oldest: self.oldest }
    }

    fn clone_from(&mut self, other: &Self) {
        self.kept.clone_from(&other.kept);
        self.oldest = other.oldest;
    }
}

/// One way, or a stretch of it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    pub(super) total: u64,
    /// The time of each part.
    pub(super) parts: Vec<(Part, u64)>,
    /// The last stretches, in order.
    pub(super) segments: Segments,
}

impl Clone for Way {
    fn clone(&self) -> Self {
        Way { total: self.total, parts: self.parts.clone(), segments: self.segments.clone() }
    }

    fn clone_from(&mut self, other: &Self) {
        self.total = other.total;
        self.parts.clone_from(&other.parts);
        self.segments.clone_from(&other.segments);
    }
}

impl Way {
    #[inline]
    pub(super) fn add(&mut self, part: Part, nanos: u64) {
        if nanos == 0 {
            return;
        }
        self.total = self.total.saturating_add(nanos);
        self.add_part(part, nanos);
        self.segments.add(part, nanos);
    }

    fn add_part(&mut self, part: Part, nanos: u64) {
        let of = |parts: &[(Part, u64)], part| parts.iter().rposition(|(known, _)| *known == part);
        let known = of(&self.parts, part).or_else(|| {
            let is_full = self.parts.len() >= PARTS_MAX;
            let part = if is_full { Part::new(Place::OTHERS, part.kind()) } else { part };
            let others = if is_full { of(&self.parts, part) } else { None };
            if others.is_none() {
                // If it is full, at most one more for each kind.
                self.parts.push((part, 0));
            }
            others.or_else(|| self.parts.len().checked_sub(1))
        });
        if let Some((_, time)) = known.and_then(|at| self.parts.get_mut(at)) {
            *time = time.saturating_add(nanos);
        }
    }

    /// Goes on with another stretch.
    pub(super) fn append(&mut self, other: &Way) {
        self.total = self.total.saturating_add(other.total);
        other.parts.iter().for_each(|(part, nanos)| self.add_part(*part, *nanos));
        other.segments.iter().for_each(|(part, nanos)| self.segments.add(*part, *nanos));
    }

    pub(super) fn clear(&mut self) {
        self.total = 0;
        self.parts.clear();
        self.segments.clear();
    }

    /// Shortens the way to a total, all its parts in proportion.
    pub(super) fn cut_to(&mut self, total: u64) {
        if self.total <= total {
            return;
        }
        let whole = self.total.max(1);
        let scale = |nanos: u64| (u128::from(nanos) * u128::from(total) / u128::from(whole)) as u64;
        self.segments.kept.iter_mut().for_each(|(_, nanos)| *nanos = scale(*nanos));
        let mut left = total;
        for (_, nanos) in &mut self.parts {
            // The parts may be more than the whole, where that is the largest number.
            *nanos = scale(*nanos).min(left);
            left -= *nanos;
        }
        if let Some((_, nanos)) = self.parts.first_mut() {
            *nanos += left;
        }
        self.total = total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(place: u32) -> Part {
        Part::new(Place(place), TimeKind::Work)
    }

    #[test]
    fn a_way_has_bounds() {
        let mut way = Way::default();
        (0..1_000_000).for_each(|number| way.add(part(2 + number % 1000), 3));
        assert!(way.parts.len() <= PARTS_MAX + 6 && way.segments.iter().count() == SEGMENTS_MAX);
        assert_eq!(way.parts.iter().map(|(_, nanos)| nanos).sum::<u64>(), 3_000_000);
        way.add(part(1), u64::MAX);
        assert_eq!(way.total, u64::MAX);
    }

    #[test]
    fn a_way_is_cut_in_proportion() {
        let mut way = Way::default();
        [(2, 10), (3, 20), (4, 1)].iter().for_each(|(place, nanos)| way.add(part(*place), *nanos));
        way.cut_to(16);
        // 16 / 31 of 10, 20 and 1 is 5, 10 and 0, and what rounding leaves.
        assert_eq!(way.parts, [(part(2), 6), (part(3), 10), (part(4), 0)]);
        assert_eq!(way.total, 16);
    }

    #[test]
    fn the_last_segments_are_in_order() {
        let mut way = Way::default();
        for number in 0..100 {
            way.add(part(2 + number % 7), u64::from(number) + 1);
            way.add(part(2 + number % 7), 1_000);
        }
        let found: Vec<u64> = way.segments.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!(found, (1_069..=1_100).collect::<Vec<u64>>());
    }

    #[test]
    fn the_largest_numbers_are_cut() {
        let mut way = Way::default();
        (2..6).for_each(|place| way.add(part(place), u64::MAX));
        way.cut_to(100);
        assert_eq!(way.parts.iter().map(|(_, nanos)| nanos).sum::<u64>(), 100);
    }
}
