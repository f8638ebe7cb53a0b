//! Kept traces as exemplars of a key's durations: the latest for each power of two.

use crate::nanos::Nanos;

/// A kept trace as an example of its root's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exemplar {
    /// The trace's id.
    pub trace_id: u128,
    /// The id of its local root.
    pub span_id: u64,
    /// The root's duration.
    pub duration: Nanos,
    /// The wall-clock time of the root's end, in ns since 1970.
    pub unix_nanos: u64,
    /// The monotonic time at which it was noted; dates may be set back.
    noted: Nanos,
}

impl Exemplar {
    /// A kept trace with the duration and the end of its local root.
    pub fn new(trace_id: u128, span_id: u64, duration: Nanos, unix_nanos: u64) -> Self {
        Exemplar { trace_id, span_id, duration, unix_nanos, noted: Nanos::ZERO }
    }

    /// Identifies the power of two of its duration.
    fn octave(&self) -> u32 {
        self.duration.get().leading_zeros()
    }
}

/// The greatest number of exemplars of a key: the number that OpenTelemetry suggests for the
/// reservoir of an exponential histogram.
const EXEMPLARS_MAX: usize = 20;

/// The latest kept trace of each power of two of the durations.
#[derive(Clone, Debug, Default)]
pub(super) struct Exemplars(Vec<Exemplar>);

impl Exemplars {
    /// Notes a trace that has just been kept. It is the latest, whatever its date.
    pub(super) fn note(&mut self, exemplar: Exemplar, now: Nanos) {
        let exemplar = Exemplar { noted: now, ..exemplar };
        match self.place(&exemplar) {
            Some(at) => self.0[at] = exemplar,
            None => self.0.push(exemplar),
        }
    }

    pub(super) fn merge(&mut self, other: &Exemplars) {
        for exemplar in &other.0 {
            match self.place(exemplar) {
                Some(at) if self.0[at].noted > exemplar.noted => {}
                _ => self.note(*exemplar, exemplar.noted),
            }
        }
    }

    /// The index of the exemplar that this one replaces; `None` if there is space for it.
    fn place(&self, exemplar: &Exemplar) -> Option<usize> {
        let known = self.0.iter().position(|known| known.octave() == exemplar.octave());
        let oldest = || (0..self.0.len()).min_by_key(|at| self.0[*at].noted);
        known.or_else(|| oldest().filter(|_| self.0.len() == EXEMPLARS_MAX))
    }

    /// By duration, the shortest first.
    pub(super) fn sorted(mut self) -> Vec<Exemplar> {
        self.0.sort_by_key(|exemplar| exemplar.duration);
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn exemplar(number: u64, duration: u64) -> Exemplar {
        Exemplar::new(number.into(), number, Nanos::new(duration), number)
    }

    #[test]
    fn the_latest_of_each_power_of_two_stays() {
        let (mut one, mut other) = (Exemplars::default(), Exemplars::default());
        let note = |of: &mut Exemplars, number, duration| {
            of.note(exemplar(number, duration), Nanos::new(number));
        };
        note(&mut one, 1, 1_000);
        note(&mut one, 4, 1_020);
        note(&mut other, 3, 600);
        note(&mut other, 2, 5_000);
        one.merge(&other);
        let ids: Vec<u64> = one.sorted().iter().map(|exemplar| exemplar.span_id).collect();
        assert_eq!(ids, [4, 2], "512 to 1,023 ns, and 4,096 to 8,191");
    }

    #[test]
    fn the_latest_stays_where_the_clock_was_set_back() {
        let note = |of: &mut Exemplars, number, date| {
            of.note(Exemplar::new(number, number as u64, Nanos::new(1_000), date), Nanos::new(number as u64));
        };
        let mut exemplars = Exemplars::default();
        note(&mut exemplars, 1, 50);
        note(&mut exemplars, 2, 10);
        assert_eq!(exemplars.clone().sorted()[0].span_id, 2);
        // Kept on threads with another shard.
        for (number, latest) in [(3, 3), (1, 2)] {
            let mut other = Exemplars::default();
            note(&mut other, number, 30 / number as u64);
            for (mut into, of) in [(exemplars.clone(), &other), (other.clone(), &exemplars)] {
                into.merge(of);
                assert_eq!(into.sorted()[0].span_id, latest);
            }
        }
    }

    #[test]
    fn they_are_bounded_and_the_oldest_goes() {
        let mut exemplars = Exemplars::default();
        (0..60).for_each(|octave| exemplars.note(exemplar(octave, 1 << octave), Nanos::new(octave)));
        let ids: Vec<u64> = exemplars.sorted().iter().map(|exemplar| exemplar.span_id).collect();
        assert_eq!(ids, (40..60).collect::<Vec<_>>());
    }
}
