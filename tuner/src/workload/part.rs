//! A part of a workload in time, to tune on one part and check on another.

use std::borrow::Cow;
use std::ops::Range;

use astracer_recording::recording::Recording;
use astracer_recording::shape::{Scratch, ShapeId, Shapes};
use astracer_recording::stop::Pulse;

use super::{Calls, Function, Workload};
use crate::buckets::LatencyCell;
use crate::key::{Grouping, Keys};
use crate::statistics::MeanSd;
use crate::stop::Stop;

/// A thinned workload consists of this many stretches.
const STRETCHES: usize = 64;

/// Evenly spaced stretches of `all` traces, together at most about `most` of them: the indices.
fn stretches(all: usize, most: usize) -> impl Iterator<Item = usize> {
    let (length, kept) = match all > most {
        true => (all.div_ceil(STRETCHES), (most / STRETCHES).max(1)),
        false => (1, 1),
    };
    (0..all).filter(move |index| index % length < kept)
}

/// Sums over some of a workload's arrivals, whose means differ from those of the whole.
#[derive(Debug)]
pub(crate) struct PartSums {
    /// The functions, with the means of these arrivals.
    pub(crate) functions: Vec<Function>,
    /// For each function, its mean here minus its mean in the whole, ms.
    shifts: Vec<f64>,
    /// The cells of the whole, with the calls of these arrivals.
    pub(crate) latency_cells: Vec<LatencyCell>,
    /// The number of these arrivals of each path kind.
    pub(crate) path_kinds: Vec<u32>,
    /// The number of entries of [`Workload::calls`].
    calls: usize,
    /// The number of entries of [`Workload::latencies`].
    latencies: usize,
}

impl PartSums {
    /// Sums the arrivals in this order, each given with its time. `None` if asked to stop.
    pub(crate) fn new(workload: &Workload, order: &[(u64, u32)], pulse: &mut Pulse<'_>) -> Option<Self> {
        let (mut calls, mut latencies) = (0, 0);
        let mut path_kinds = vec![0; workload.path_kinds.len()];
        let mut latency_cells = workload.latency_cells.clone();
        latency_cells.iter_mut().for_each(|cell| cell.count = 0);
        let mut max_ns = vec![0; workload.functions.len()];
        let mut sums = vec![(0u64, 0.0, 0.0); workload.functions.len()];
        for &(_, index) in order {
            let index = index as usize;
            path_kinds[workload.arrivals[index].path_kind as usize] += 1;
            let (of_functions, of_cells) = (workload.calls(index), workload.latencies(index));
            calls += of_functions.len();
            latencies += of_cells.len();
            for entry in of_cells {
                latency_cells[entry.cell as usize].count += u64::from(entry.count);
            }
            for entry in of_functions {
                let (count, deviation, squared) = &mut sums[entry.function as usize];
                *count += u64::from(entry.count);
                *deviation += entry.deviation;
                *squared += entry.deviation_squared;
                max_ns[entry.function as usize] = entry.max_ns.max(max_ns[entry.function as usize]);
            }
            if pulse.stopped_after(1 + of_functions.len() + of_cells.len()) {
                return None;
            }
        }
        let shift = |&(count, deviation, _): &(u64, f64, f64)| {
            if count == 0 { 0.0 } else { deviation / count as f64 }
        };
        let shifts: Vec<f64> = sums.iter().map(shift).collect();
        let rows = workload.functions.iter().zip(&sums).zip(&shifts).zip(max_ns);
        let functions = rows.map(|(((whole, sum), shift), max_ns)| {
            let duration_ms = match sum.0 {
                0 => MeanSd::default(),
                count => MeanSd {
                    mean: whole.duration_ms.mean + shift,
                    sd: (sum.2 / count as f64 - shift * shift).max(0.0).sqrt(),
                },
            };
            Function { name: whole.name.clone(), count: sum.0, duration_ms, max_ns }
        });
        Some(Self { functions: functions.collect(), shifts, latency_cells, path_kinds, calls, latencies })
    }

    /// Converts the calls of one of these arrivals from deviations from the whole's mean to
    /// deviations from the mean here.
    #[inline]
    pub(crate) fn shifted(&self, calls: &Calls) -> Calls {
        let (count, shift) = (f64::from(calls.count), self.shifts[calls.function as usize]);
        let squared = calls.deviation_squared - 2.0 * shift * calls.deviation + count * shift * shift;
        Calls { deviation: calls.deviation - count * shift, deviation_squared: squared.max(0.0), ..*calls }
    }
}

impl Workload {
    /// The arrivals with these indices as a separate workload: its functions have the means of
    /// these traces, and its clock starts with the first of them. Keys and functions keep their
    /// numbers. `None` if asked to stop.
    pub fn part(&self, range: Range<usize>, stop: Stop<'_>) -> Option<Self> {
        let end = range.end.min(self.arrivals.len());
        let range = range.start.min(end)..end;
        let at_ns = self.arrivals.get(range.start).map_or(0, |first| first.at_ns);
        let order: Vec<(u64, u32)> =
            range.map(|index| (self.arrivals[index].at_ns.saturating_sub(at_ns), index as u32)).collect();
        let mut part = self.arranged(&order, stop)?;
        part.start = astracer_model::UnixNanos(self.start.0.saturating_add(at_ns));
        Some(part)
    }

    /// Some arrivals, in this order and at these times (ns, ascending), as a separate workload.
    /// `None` if asked to stop.
    pub(crate) fn arranged(&self, order: &[(u64, u32)], stop: Stop<'_>) -> Option<Self> {
        let mut pulse = stop.pulse();
        let sums = PartSums::new(self, order, &mut pulse)?;
        let mut call_trees = vec![None; self.call_trees as usize];
        let mut call_tree_count = 0;
        let mut calls = Vec::with_capacity(sums.calls);
        let mut latencies = Vec::with_capacity(sums.latencies);
        let mut arrivals = Vec::with_capacity(order.len());
        for &(at_ns, index) in order {
            let index = index as usize;
            let mut arrival = self.arrivals[index];
            arrival.at_ns = at_ns;
            (arrival.first_call, arrival.first_latency) = (calls.len() as u32, latencies.len() as u32);
            calls.extend(self.calls(index).iter().map(|calls| sums.shifted(calls)));
            latencies.extend_from_slice(self.latencies(index));
            arrival.call_tree = *call_trees[arrival.call_tree as usize].get_or_insert_with(|| {
                call_tree_count += 1;
                call_tree_count - 1
            });
            arrivals.push(arrival);
            if pulse.stopped_after(1 + self.calls(index).len()) {
                return None;
            }
        }
        Some(Self {
            functions: sums.functions,
            keys: self.keys.clone(),
            end_keys: self.end_keys.clone(),
            call_trees: call_tree_count,
            path_kinds: sums.path_kinds,
            start: self.start,
            arrivals,
            trace_ids: order.iter().map(|&(_, index)| self.trace_ids[index as usize]).collect(),
            calls,
            latency_cells: sums.latency_cells,
            latencies,
        })
    }

    /// The workload itself or, if it has more than `most` traces, only evenly spaced stretches of
    /// it, at their original times. A trial on them says as much, for less time and memory. `None`
    /// if asked to stop.
    pub(crate) fn thinned(&self, most: usize, stop: Stop<'_>) -> Option<Cow<'_, Self>> {
        if self.arrivals.len() <= most {
            return Some(Cow::Borrowed(self));
        }
        let order = stretches(self.arrivals.len(), most);
        let order: Vec<(u64, u32)> = order.map(|index| (self.arrivals[index].at_ns, index as u32)).collect();
        self.arranged(&order, stop).map(Cow::Owned)
    }

    /// The same traces with keys by another grouping; of more than `most` traces only evenly spaced
    /// stretches. `recording` is that of the workload, with the grouping's attributes as labels.
    /// `None` if asked to stop.
    pub fn with_keys(
        &self,
        recording: &Recording,
        grouping: &Grouping,
        most: usize,
        stop: Stop<'_>,
    ) -> Option<Self> {
        let mut pulse = stop.pulse();
        let (mut shapes, mut scratch) = (Shapes::default(), Scratch::default());
        let mut keys = Keys::new(recording, grouping);
        let mut workload = self.thinned(most, stop)?.into_owned();
        let traces = stretches(self.arrivals.len(), most).filter_map(|index| recording.trace(index));
        for (arrival, trace) in workload.arrivals.iter_mut().zip(traces) {
            let shape = match grouping {
                Grouping::Tree => shapes.of_trace(trace, &mut scratch, &mut pulse)?,
                Grouping::Key(_) | Grouping::Outcome(_) => ShapeId(0),
            };
            let key = keys.of(trace, &shapes, shape);
            (arrival.key, arrival.end_key) = (key.at_start.0, key.at_end.0);
            if pulse.stopped() {
                return None;
            }
        }
        (workload.keys, workload.end_keys) = keys.finish();
        Some(workload)
    }

    /// The same traces with roots that take this many times as long.
    pub(crate) fn slowed(&self, times: u64) -> Self {
        let mut slowed = self.clone();
        for arrival in &mut slowed.arrivals {
            arrival.ending.duration_ns = arrival.ending.duration_ns.saturating_mul(times);
        }
        slowed
    }

    /// Splits the workload at this share of the time from the first arrival to the last. `None` if
    /// asked to stop.
    pub fn split(&self, share: f64, stop: Stop<'_>) -> Option<(Self, Self)> {
        let at_ns = (self.length_ns() as f64 * share.clamp(0.0, 1.0)) as u64;
        let middle = self.arrivals.partition_point(|arrival| arrival.at_ns < at_ns);
        Some((self.part(0..middle, stop)?, self.part(middle..self.arrivals.len(), stop)?))
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;
    use crate::key::Grouping;
    use crate::latency::LatencyTally;
    use crate::score::{Reference, Tally};
    use crate::stop::Stop;
    use crate::testing::{synthetic, synthetic_recording};

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{found}, should be {expected}");
    }

    /// A part scores itself by the means of its own traces.
    #[test]
    fn a_part_has_the_means_of_its_traces() {
        let whole = synthetic(1000, 3);
        let range = 300..650;
        let part = whole.part(range.clone(), Stop::never()).expect("not stopped");
        for (function, of_part) in part.functions().iter().enumerate() {
            let of_whole = &whole.functions()[function];
            let (mut count, mut sum) = (0.0, 0.0);
            for calls in
                range.clone().flat_map(|n| whole.calls(n)).filter(|calls| calls.function as usize == function)
            {
                count += f64::from(calls.count);
                sum += calls.deviation + f64::from(calls.count) * of_whole.duration_ms.mean;
            }
            close(of_part.count as f64, count);
            if count > 0.0 {
                close(of_part.duration_ms.mean, sum / count);
                // Deviations are from the part's own mean: they add up to 0, and their squares to n
                // sd^2.
                let own = (0..part.arrivals().len()).flat_map(|n| part.calls(n));
                let own = own.filter(|calls| calls.function as usize == function);
                let (deviation, squared) = own.fold((0.0, 0.0), |(deviation, squared), calls| {
                    (deviation + calls.deviation, squared + calls.deviation_squared)
                });
                close(deviation, 0.0);
                close(squared, count * of_part.duration_ms.sd.powi(2));
            }
        }
        // Keeping all of the part has distance 0, which holds only if its deviations match its
        // means and standard deviations.
        let reference = Reference::new(&part);
        let mut tally = Tally::new(&part, &reference);
        (0..part.arrivals().len()).for_each(|arrival| tally.keep(arrival));
        let score = tally.score();
        assert_eq!((score.traces, score.ss_ms, score.tfcr), (350, 0.0, 1.0));
        assert_eq!(score.call_trees, u64::from(part.call_trees()));
        let mut latencies = LatencyTally::new(&part);
        (0..part.arrivals().len()).for_each(|arrival| latencies.keep(arrival, 1.0));
        assert!(latencies.distance() < 1e-7, "{}", latencies.distance());
        for (n, arrival) in part.arrivals().iter().enumerate() {
            let same = &whole.arrivals()[300 + n];
            assert_eq!(arrival.at_ns, same.at_ns - whole.arrivals()[300].at_ns);
            assert_eq!((part.key(arrival), arrival.bytes), (whole.key(same), same.bytes));
            assert_eq!(part.trace_id(n), whole.trace_id(300 + n));
            assert_eq!(part.calls(n).len(), whole.calls(300 + n).len());
            assert_eq!(part.latencies(n), whole.latencies(300 + n));
        }
    }

    /// A thinned workload begins with the first trace and covers the whole time. With other keys it
    /// is the same as if it were made with them.
    #[test]
    fn a_thinned_workload_has_stretches_of_all_times() {
        let recording = synthetic_recording(6400, 2);
        let whole = Workload::new(&recording, &Grouping::default());
        let thinned = whole.thinned(1600, Stop::never()).expect("not stopped");
        let ids: Vec<_> = (0..6400).filter(|n| n % 100 < 25).map(|n| whole.trace_id(n)).collect();
        assert!(ids.iter().copied().eq((0..1600).map(|n| thinned.trace_id(n))));
        assert_eq!(thinned.arrivals()[1599].at_ns, whole.arrivals()[6324].at_ns);
        assert!(matches!(whole.thinned(6400, Stop::never()), Some(std::borrow::Cow::Borrowed(_))));
        let again =
            whole.with_keys(&recording, &Grouping::Tree, usize::MAX, Stop::never()).expect("not stopped");
        let direct = Workload::new(&recording, &Grouping::Tree);
        let keys = |of: &Workload| of.arrivals().iter().map(|one| of.key(one).to_owned()).collect::<Vec<_>>();
        assert_eq!(keys(&again), keys(&direct));
        let part = whole.with_keys(&recording, &Grouping::Tree, 1600, Stop::never()).expect("not stopped");
        let roots = |of: &Workload| -> Vec<String> {
            keys(of).iter().map(|key| key.split(" #").next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(roots(&part), keys(&thinned));
    }

    #[test]
    fn a_split_loses_nothing() {
        let whole = synthetic(500, 4);
        for share in [0.0, 0.3, 0.5, 1.0] {
            let (first, rest) = whole.split(share, Stop::never()).expect("not stopped");
            assert_eq!(first.arrivals().len() + rest.arrivals().len(), 500);
            assert!(rest.arrivals().first().is_none_or(|first| first.at_ns == 0));
        }
        let all: Workload = whole.part(0..usize::MAX, Stop::never()).expect("not stopped");
        for (of_all, of_whole) in all.functions().iter().zip(whole.functions()) {
            close(of_all.duration_ms.mean, of_whole.duration_ms.mean);
            close(of_all.duration_ms.sd, of_whole.duration_ms.sd);
        }
        let behind = whole.part(700..800, Stop::never()).expect("not stopped");
        assert_eq!(behind.arrivals().len(), 0);
    }
}
