//! Clocks that drift or were set: an offset as a function of time.
//!
//! Messages from and to a host bound its offset from above and from below, each at one time. The
//! offset is a straight line as long as one fits between the bounds; where none does, the clock was
//! set, and another line begins. Each line is made as long as possible, which gives the fewest. The
//! lines that fit are a convex polygon of offset and drift, and each bound cuts it.

use std::borrow::Cow;

use crate::clocks::{ClockEvidence, HostClock, Piece};

/// The largest drift that a clock may have, in ns per ns. Crystals drift by up to 100 ppm, and NTP
/// corrects them by up to 500 ppm.
const DRIFT_MAX: f64 = 500e-6;

/// The largest offset from the first bound, in ns: more than a day.
const OFFSET_MAX: f64 = 1e14;

/// Bounds from above and from below that a line needs. Fewer may be wrong stamps.
const BOUNDS_MIN: usize = 3;

/// A clock that is set more often is not described.
const PIECES_MAX: usize = 16;

/// At most one of this many messages may have a wrong stamp; one alone of a few.
const WRONG_PART: usize = 16;
/// Messages of which one may have a wrong stamp.
const FEW: usize = 4;

/// A message from or to a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Its place among others: the time by the clocks that it is compared to, or a number.
    pub(crate) order: u64,
    /// The time by the host's own clock.
    pub(crate) time: u64,
    /// By how much the clock is ahead then, at most if `is_upper`, or else at least.
    pub(crate) ahead: i64,
    pub(crate) is_upper: bool,
    /// The point of the host.
    pub(crate) point: u32,
}

/// True for bounds from above and from below that a line can be fitted to.
pub(crate) fn are_enough(bounds: &[Bound]) -> bool {
    let uppers = bounds.iter().filter(|bound| bound.is_upper).count();
    uppers >= BOUNDS_MIN && bounds.len() - uppers >= BOUNDS_MIN
}

/// Describes a clock by lines, if few enough fit.
pub(crate) fn describe(clock: &mut HostClock, mut bounds: Vec<Bound>) {
    bounds.sort_unstable_by_key(|bound| (bound.order, bound.point));
    let mut pieces = Vec::new();
    let mut rest = &bounds[..];
    while !rest.is_empty() {
        let Some((mut piece, len)) = line(rest).filter(|_| pieces.len() < PIECES_MAX) else { return };
        piece.until = rest[len - 1].time;
        let begin = bounds.len() - rest.len();
        if let Some(before) = pieces.last_mut() {
            join(before, &mut piece, &bounds[..=begin]);
            let step = i128::from(piece.ahead) - i128::from(before.ahead_at(before.until));
            // A step within the errors may be wrong stamps.
            if step.unsigned_abs() <= u128::from(before.within) + u128::from(piece.within) {
                return;
            }
        }
        pieces.push(piece);
        rest = &rest[len..];
    }
    let Some(first) = pieces.first() else { return };
    clock.ahead = first.ahead;
    clock.within = pieces.iter().map(|piece| piece.within).max();
    clock.evidence = ClockEvidence::BothWays;
    if pieces.len() > 1 || first.drift_ppb != 0 {
        clock.pieces = pieces;
    }
}

/// The largest error of a clock's one offset if it may drift, in nanoseconds, between its first
/// and its last message. `None` without bounds from both sides.
pub(crate) fn drifting(clock: &HostClock, bounds: &[Bound]) -> Option<u64> {
    let first = bounds.iter().min_by_key(|bound| bound.time)?;
    let last = bounds.iter().max_by_key(|bound| bound.time)?;
    let mut fits = all_lines();
    for bound in bounds {
        if let Cow::Owned(cut) = cut(&fits, first.since(bound), first.rise(bound), bound.is_upper) {
            fits = cut;
        }
    }
    let own = (i128::from(clock.ahead) - i128::from(first.ahead)) as f64;
    let length = first.since(last);
    let error = |&(offset, drift): &Corner| (offset - own).abs().max((offset + drift * length - own).abs());
    fits.iter()
        .map(error)
        .reduce(f64::max)
        .filter(|&error| error < OFFSET_MAX / 2.0)
        .map(|error| error.ceil() as u64)
}

/// Describes a clock by the one offset that the fewest bounds contradict, if these are few: wrong
/// stamps.
pub(crate) fn settle(clock: &mut HostClock, bounds: &[Bound]) {
    // The offset rises over each upper bound, which it then contradicts, and over each lower one,
    // which it no longer does.
    let mut ends: Vec<(i64, bool)> = bounds.iter().map(|bound| (bound.ahead, bound.is_upper)).collect();
    ends.sort_unstable();
    let mut against = ends.iter().filter(|(_, is_upper)| !is_upper).count();
    let mut best = (usize::MAX, 0, 0);
    for pair in ends.windows(2) {
        let [(least, is_upper), (most, _)] = [pair[0], pair[1]];
        if is_upper {
            against += 1
        } else {
            against -= 1
        }
        best = best.min((against, least, most));
    }
    let (against, least, most) = best;
    let kept = |upper: bool| {
        bounds.iter().filter(|bound| bound.is_upper == upper && (bound.ahead >= most) == upper).count()
    };
    let is_rare = against.saturating_mul(WRONG_PART) <= bounds.len() || against == 1 && bounds.len() >= FEW;
    if !is_rare || kept(true) == 0 || kept(false) == 0 {
        return;
    }
    clock.ahead = i64::midpoint(least, most);
    clock.within = Some(most.abs_diff(least).div_ceil(2));
    clock.evidence = ClockEvidence::BothWays;
    clock.contradicted = against as u64;
}

/// Puts the end of a piece where the next one begins. A bound may hold on both lines; the closer
/// line is its own, because a message takes less time than a clock was set by. `bounds` end with
/// the first of the next piece.
fn join(before: &mut Piece, next: &mut Piece, bounds: &[Bound]) {
    let mut begin = bounds.len() - 1;
    while begin > 1 && bounds[begin - 1].time != before.from {
        let bound = &bounds[begin - 1];
        let off = |piece: &Piece| i128::from(bound.ahead) - i128::from(piece.ahead_at(bound.time));
        let (old, new) = (off(before), off(next));
        let within = i128::from(next.within);
        let holds = if bound.is_upper { new >= -within } else { new <= within };
        if !holds || new.abs() >= old.abs() {
            break;
        }
        begin -= 1;
    }
    (next.ahead, next.from) = (next.ahead_at(bounds[begin].time), bounds[begin].time);
    before.until = bounds[begin - 1].time;
    next.after = Some((bounds[begin - 1].point, bounds[begin].point));
}

/// A corner of the lines that fit: offset at the first bound, and drift.
type Corner = (f64, f64);

/// The longest line from the first bound on, and the number of its bounds.
fn line(bounds: &[Bound]) -> Option<(Piece, usize)> {
    let first = bounds.first()?;
    let mut fits = all_lines();
    let at = |bound: &Bound| first.since(bound);
    let ahead = |bound: &Bound| first.rise(bound);
    // Without drift, if that fits.
    let (mut least, mut most) = (-OFFSET_MAX, OFFSET_MAX);
    let (mut len, mut constant) = (0, 0);
    let mut counts = [0usize; 2];
    for bound in bounds {
        let cut = cut(&fits, at(bound), ahead(bound), bound.is_upper);
        if cut.is_empty() {
            break;
        }
        if let Cow::Owned(cut) = cut {
            fits = cut;
        }
        len += 1;
        counts[usize::from(bound.is_upper)] += 1;
        match bound.is_upper {
            true => most = most.min(ahead(bound)),
            false => least = least.max(ahead(bound)),
        }
        constant += usize::from(least <= most);
    }
    if counts.iter().any(|&count| count < BOUNDS_MIN) {
        return None;
    }
    let last = at(&bounds[len - 1]);
    let (offset, drift) = if constant == len {
        (f64::midpoint(least, most), 0.0)
    } else {
        let sum = fits.iter().fold((0.0, 0.0), |sum, corner| (sum.0 + corner.0, sum.1 + corner.1));
        (sum.0 / fits.len() as f64, sum.1 / fits.len() as f64)
    };
    let error = |corner: &Corner| {
        let begin = corner.0 - offset;
        begin.abs().max((begin + (corner.1 - drift) * last).abs())
    };
    // All lines that fit are possible, also if one without drift is taken.
    let within = fits.iter().map(error).fold(0.0, f64::max);
    let piece = Piece {
        from: first.time,
        until: u64::MAX,
        ahead: first.ahead.saturating_add(offset.round() as i64),
        drift_ppb: (drift * 1e9).round() as i64,
        within: within.ceil() as u64,
        after: None,
    };
    Some((piece, len))
}

/// The lines that are taken for possible.
fn all_lines() -> Vec<Corner> {
    let corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)];
    corners.map(|(offset, drift)| (offset * OFFSET_MAX, drift * DRIFT_MAX)).to_vec()
}

impl Bound {
    /// The nanoseconds from this message to another, by the host's clock.
    fn since(&self, other: &Self) -> f64 {
        other.time as f64 - self.time as f64
    }

    /// By how much the other bound is above this one, in nanoseconds.
    fn rise(&self, other: &Self) -> f64 {
        (i128::from(other.ahead) - i128::from(self.ahead)) as f64
    }
}

/// The part of a convex polygon whose lines are at most, or at least, `ahead` at a time.
fn cut(fits: &[Corner], at: f64, ahead: f64, is_upper: bool) -> Cow<'_, [Corner]> {
    let sign = if is_upper { 1.0 } else { -1.0 };
    let excess = |&(offset, drift): &Corner| sign * (offset + drift * at - ahead);
    // Most bounds cut nothing.
    if fits.iter().all(|corner| excess(corner) <= 0.0) {
        return Cow::Borrowed(fits);
    }
    let mut left = Vec::with_capacity(fits.len() + 1);
    for (index, corner) in fits.iter().enumerate() {
        let next = &fits[(index + 1) % fits.len()];
        let (own, other) = (excess(corner), excess(next));
        if own <= 0.0 {
            left.push(*corner);
        }
        if own < 0.0 && other > 0.0 || own > 0.0 && other < 0.0 {
            let part = own / (own - other);
            left.push((corner.0 + (next.0 - corner.0) * part, corner.1 + (next.1 - corner.1) * part));
        }
    }
    Cow::Owned(left)
}

impl Piece {
    /// The first of the nearest pieces to a time that the clock shows.
    pub(crate) fn holding(pieces: &[Self], time: u64) -> Option<&Self> {
        let distance = |piece: &&Self| piece.from.saturating_sub(time).max(time.saturating_sub(piece.until));
        pieces.iter().min_by_key(distance)
    }

    /// By how many nanoseconds the clock is ahead at a time that it shows.
    pub fn ahead_at(&self, time: u64) -> i64 {
        let passed = i128::from(time) - i128::from(self.from);
        let drifted = passed * i128::from(self.drift_ppb) / 1_000_000_000;
        self.ahead.saturating_add(i64::try_from(drifted).unwrap_or(0))
    }
}

impl HostClock {
    /// By how much the clock is ahead at a time that it shows, on the piece with this number.
    pub(crate) fn ahead_on(&self, piece: usize, time: u64) -> i64 {
        self.pieces.get(piece).map_or(self.ahead, |piece| piece.ahead_at(time))
    }

    /// The piece of the next time that a thread shows, which was on a piece at the time before. A
    /// thread's pieces follow each other.
    pub(crate) fn next_piece(&self, mut piece: usize, before: u64, time: u64) -> usize {
        while let (Some(own), Some(next)) = (self.pieces.get(piece), self.pieces.get(piece + 1)) {
            let is_set_back = time < before && time.abs_diff(next.from) < time.abs_diff(own.until);
            let is_later = time > own.until && time >= u64::midpoint(own.until, next.from.max(own.until));
            if !is_set_back && !is_later {
                break;
            }
            piece += 1;
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    fn clock() -> HostClock {
        HostClock {
            ahead: 0,
            reference: 0,
            within: None,
            evidence: ClockEvidence::Unsteady,
            messages: (0, 0),
            contradicted: 0,
            drifting: None,
            pieces: Vec::new(),
        }
    }

    /// A minute of messages in both directions, 50 to 300 us on the way, and the true offset of the
    /// host at each of its times.
    fn messages(seed: u64, offset: impl Fn(u64) -> i64) -> (Vec<Bound>, Vec<(u64, i64)>) {
        let mut random = SplitMix::new(seed);
        let (mut bounds, mut truth) = (Vec::new(), Vec::new());
        for at in 0..600u64 {
            let order = 1_778_749_200_000_000_000 + at * 100_000_000;
            let delay = 50_000 + random.below(250_000);
            let is_upper = at % 2 == 0;
            // Sent here and received there, or the other way.
            let there = if is_upper { order + delay } else { order - delay };
            let time = there.saturating_add_signed(offset(there));
            let ahead = time as i64 - order as i64;
            bounds.push(Bound { order, time, ahead, is_upper, point: at as u32 });
            truth.push((time, offset(there)));
        }
        (bounds, truth)
    }

    #[test]
    fn the_true_offset_lies_within_what_is_said() {
        const BEGIN: i128 = 1_778_749_200_000_000_000;
        for seed in 0..20 {
            let drift = |there: u64| ((i128::from(there) - BEGIN) * 20 / 1_000_000) as i64;
            let set = |there: u64| if i128::from(there) > BEGIN + 30_000_000_000 { -500_000_000 } else { 7 };
            let both = |there: u64| set(there) + drift(there);
            for (offset, pieces) in [(&drift as &dyn Fn(u64) -> i64, 1), (&set, 2), (&both, 2)] {
                let (bounds, truth) = messages(seed, offset);
                let mut found = clock();
                describe(&mut found, bounds);
                assert_eq!(found.pieces.len(), pieces, "seed {seed}: {found:?}");
                let (mut piece, mut before) = (0, 0);
                for (at, (time, ahead)) in truth.into_iter().enumerate() {
                    piece = found.next_piece(piece, before, time);
                    before = time;
                    let own = found.ahead_on(piece, time);
                    let within = found.pieces[piece].within;
                    assert!(
                        (own - ahead).unsigned_abs() <= within + 1,
                        "seed {seed}, {at}: {own} {ahead} {within}"
                    );
                    assert!(within < 700_000, "seed {seed}: {within}");
                }
            }
        }
    }

    /// If one offset fits, there are no pieces, and a step within the errors is not claimed.
    #[test]
    fn what_one_offset_or_an_error_explains_is_no_piece() {
        let (bounds, _) = messages(3, |_| 5_000_000);
        let mut found = clock();
        describe(&mut found, bounds);
        assert_eq!((found.pieces.len(), found.evidence), (0, ClockEvidence::BothWays));
        assert!(found.within.is_some_and(|within| found.ahead.abs_diff(5_000_000) <= within), "{found:?}");
        let (mut bounds, _) = messages(3, |_| 0);
        // By hand: from -0.05 to 1.05 ms in the first half, and from -1.05 to -0.21 in the second.
        for (at, bound) in bounds.iter_mut().enumerate() {
            bound.ahead += match (at < 300, bound.is_upper) {
                (true, true) => 1_000_000,
                (true, false) => 0,
                (false, true) => -260_000,
                (false, false) => -1_000_000,
            };
        }
        let mut found = clock();
        describe(&mut found, bounds);
        assert_eq!(found.evidence, ClockEvidence::Unsteady, "{found:?}");
    }

    /// Two wrong stamps are not a clock that was set.
    #[test]
    fn a_wrong_stamp_makes_no_piece() {
        let (mut bounds, _) = messages(1, |_| 0);
        bounds[599].ahead += 40_000_000_000;
        let mut found = clock();
        describe(&mut found, bounds.clone());
        assert_eq!((found.pieces.len(), found.evidence), (0, ClockEvidence::Unsteady));
        // All but these describe it.
        bounds[300].ahead -= 40_000_000_000;
        settle(&mut found, &bounds);
        assert_eq!((found.evidence, found.contradicted), (ClockEvidence::BothWays, 2));
        assert!(found.within.is_some_and(|within| found.ahead.unsigned_abs() <= within && within < 100_000));
        // Half of them contradict the others.
        let mut found = clock();
        bounds[300..].iter_mut().for_each(|bound| bound.ahead += 40_000_000_000);
        settle(&mut found, &bounds);
        assert_eq!(found.evidence, ClockEvidence::Unsteady);
    }
}
