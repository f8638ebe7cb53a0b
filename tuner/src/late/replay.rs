//! Replays late strata: which traces are recorded when they begin, and which of these are kept when
//! their root ends.

use astracer_samplers::strata::{RecordedTrace, StrataSampler};
use astracer_samplers::{Cap, Limits, Nanos, Request, Sampler};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::Late;
use crate::draw::Draw;
use crate::replay::{Decided, Numbers};
use crate::stop::Stop;
use crate::workload::Workload;

/// Decides each arrival and calls `each` with the decision: first for the arrivals that are not
/// recorded, in the order of the draw, then for the others, in the order in which their roots end.
/// Returns false if asked to stop before the end.
///
/// The size of a trace is that of its OTLP messages. A key's allowances under the cap do not apply.
pub(crate) fn replay(
    workload: &Workload,
    (late, cap): (&Late, &Cap),
    limits: Limits,
    draw: &Draw,
    stop: Stop<'_>,
    mut each: impl FnMut(Decided),
) -> bool {
    let head = Sampler::with_limits(&late.head, limits);
    let mut numbers = Numbers::new(workload, draw);
    let Some(arrivals) = draw.arrivals(workload, stop) else { return false };
    let mut recorded = Vec::new();
    for (place, (at_ns, index)) in arrivals.into_iter().enumerate() {
        if stop.is_asked_at(place) {
            return false;
        }
        let arrival = &workload.arrivals()[index as usize];
        let randomness = numbers.of((workload, index as usize), draw);
        let threshold = head.count(&Request::new(workload.key(arrival), randomness, Nanos::new(at_ns)));
        let threshold = late.strata.recorded(threshold);
        match threshold.filter(|threshold| threshold.keeps(randomness)) {
            Some(threshold) => {
                recorded.push((at_ns.saturating_add(arrival.ending.decided_after_ns()), index, threshold));
            }
            None => {
                each(Decided { arrival: index as usize, at_ns, keep: false, place: 0, by_chance: threshold })
            }
        }
    }
    if !stop.pulse().sort_by_key(&mut recorded, |&(end_ns, ..)| end_ns) {
        return false;
    }
    let strata = StrataSampler::new(late.strata.clone(), cap, draw.seed);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(draw.seed);
    for (place, (end_ns, index, threshold)) in recorded.into_iter().enumerate() {
        if stop.is_asked_at(place) {
            return false;
        }
        let arrival = &workload.arrivals()[index as usize];
        let now = Nanos::new(end_ns);
        strata.solve(now);
        let draw = strata.draw(&RecordedTrace {
            key: workload.end_key(arrival),
            stratum: arrival.ending.stratum(late.strata.is_by_kind()),
            recorded: threshold,
            bytes: arrival.otlp_bytes,
            now,
            random: random.next_u64(),
        });
        let by_chance = draw.of_all(None, 0).map(|(threshold, _)| threshold);
        each(Decided { arrival: index as usize, at_ns: end_ns, keep: draw.keeps, place: 0, by_chance });
    }
    true
}
