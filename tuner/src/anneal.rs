//! Simulated annealing, the search of the paper, on argmin's solver.
//!
//! The walk starts at a random point within the limits. Each step proposes a neighbour, and
//! proposes again while the limits are violated. A better point is always accepted; one that is
//! worse by delta is accepted with probability exp(-delta / T), where the temperature T falls as
//! the walk goes on. (The paper's text has the comparison reversed in one place and maximises in
//! another; it means a minimum.) delta is the difference of the objective's logarithms, so
//! temperatures mean the same for every workload: at T = 0.5 a point that is 50 % worse is accepted
//! with probability 0.44, and at T = 0.001 one that is 1 % worse is practically never accepted.
//!
//! The paper runs an inner loop of proposals at each temperature. Here the temperature falls a
//! little after each proposal instead.

use std::cell::RefCell;

use argmin::core::{
    CostFunction, Error, Executor, IterState, KV, Problem as Counted, Solver, TerminationReason,
    TerminationStatus,
};
use argmin::solver::simulatedannealing::{Anneal, SATempFunc, SimulatedAnnealing};

use crate::problem::{Archive, Landscape};
use crate::random::Random;
use crate::stop::Stop;

/// The final temperature.
const COLD: f64 = 1e-3;
/// Typical step length at the final temperature, as a share of an axis.
const STEP_COLD: f64 = 0.004;
/// After this many proposals that violate the limits, the walk stays where it is for this step.
const PROPOSALS: u32 = 100;
/// An objective of 0 is raised to this, because the search needs its logarithm.
const VALUE_MIN: f64 = 1e-12;

/// The cooling schedule of a walk, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The initial temperature.
    pub(crate) hot: f64,
    /// Typical step length at the initial temperature, as a share of an axis.
    pub(crate) step_hot: f64,
    /// The walk ends after scoring this many proposals.
    pub(crate) iterations: u64,
    /// The walk ends after scoring this many proposals in a row without a new best.
    pub(crate) stall: u64,
}

/// Walks from `start` and returns what it evaluated. `done` is called after each evaluation.
pub(crate) fn anneal<L: Landscape>(
    landscape: &L,
    start: L::Point,
    schedule: Schedule,
    mut random: Random,
    stop: Stop<'_>,
    done: &dyn Fn(&Archive<L::Point>),
) -> Archive<L::Point> {
    let cooling = (COLD / schedule.hot).powf(1.0 / schedule.iterations.max(1) as f64);
    let acceptance = Metropolis(Random::new(random.bits(), 0));
    let solver = SimulatedAnnealing::new_with_rng(schedule.hot, acceptance)
        .expect("the first temperature is above 0")
        .with_temp_func(SATempFunc::Exponential(cooling))
        .with_stall_best(schedule.stall);
    let archive = RefCell::new(Archive::default());
    let state = RefCell::new((random, L::Scratch::default()));
    let walk = Walk { landscape, schedule, archive: &archive, done, state };
    let solver = Interruptible { inner: solver, stop };
    let run = Executor::new(walk, solver)
        .configure(|state| state.param(start).max_iters(schedule.iterations))
        .timer(false)
        .run();
    // An error here means that the walk was stopped, and the archive holds what it found until
    // then.
    drop(run);
    archive.into_inner()
}

/// The problem as argmin sees it.
struct Walk<'a, L: Landscape> {
    landscape: &'a L,
    schedule: Schedule,
    archive: &'a RefCell<Archive<L::Point>>,
    done: &'a dyn Fn(&Archive<L::Point>),
    state: RefCell<(Random, L::Scratch)>,
}

impl<L: Landscape> CostFunction for Walk<'_, L> {
    type Param = L::Point;
    type Output = f64;

    fn cost(&self, point: &L::Point) -> Result<f64, Error> {
        let (_, scratch) = &mut *self.state.borrow_mut();
        // The error ends argmin's run. Earlier evaluations are already in the archive.
        let evaluated = self.landscape.evaluate(point, scratch).ok_or_else(|| Error::msg("asked to stop"))?;
        let value = evaluated.value;
        let mut archive = self.archive.borrow_mut();
        archive.add(evaluated);
        (self.done)(&archive);
        Ok(value.max(VALUE_MIN).ln())
    }
}

impl<L: Landscape> Anneal for Walk<'_, L> {
    type Param = L::Point;
    type Output = L::Point;
    type Float = f64;

    fn anneal(&self, from: &L::Point, temperature: f64) -> Result<L::Point, Error> {
        let (random, _) = &mut *self.state.borrow_mut();
        let Schedule { hot, step_hot, .. } = self.schedule;
        // The step length falls with the temperature, from `step_hot` to `STEP_COLD`, both on a
        // logarithmic scale.
        let cooled = (temperature / hot).ln() / (COLD / hot).ln();
        let scale = step_hot * (STEP_COLD / step_hot).powf(cooled.clamp(0.0, 1.0));
        for _ in 0..PROPOSALS {
            let proposal = self.landscape.step(from, scale, random);
            if self.landscape.allows(&proposal) {
                return Ok(proposal);
            }
        }
        Ok(from.clone())
    }
}

/// A source of random numbers that turns argmin's acceptance rule into that of Metropolis.
///
/// argmin accepts a worse point if 1 / (1 + exp(delta / T)) > u for a uniform u. If u = v / (1 + v)
/// for a uniform v, this is equivalent to exp(-delta / T) > v.
struct Metropolis(Random);

impl rand_core_09::RngCore for Metropolis {
    fn next_u64(&mut self) -> u64 {
        let v = self.0.uniform();
        // argmin makes its uniform number from the upper 53 bits.
        ((v / (1.0 + v) * (1u64 << 53) as f64) as u64) << 11
    }

    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A solver that also ends when `stop` is requested.
struct Interruptible<'a, S> {
    inner: S,
    stop: Stop<'a>,
}

type State<P> = IterState<P, (), (), (), (), f64>;

impl<O, P: Clone, S: Solver<O, State<P>>> Solver<O, State<P>> for Interruptible<'_, S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn init(&mut self, problem: &mut Counted<O>, state: State<P>) -> Result<(State<P>, Option<KV>), Error> {
        self.inner.init(problem, state)
    }

    fn next_iter(
        &mut self,
        problem: &mut Counted<O>,
        state: State<P>,
    ) -> Result<(State<P>, Option<KV>), Error> {
        self.inner.next_iter(problem, state)
    }

    fn terminate(&mut self, state: &State<P>) -> TerminationStatus {
        if self.stop.is_asked() {
            return TerminationStatus::Terminated(TerminationReason::Interrupt);
        }
        self.inner.terminate(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With our numbers, argmin's rule accepts as often as that of Metropolis: out of 100,000
    /// proposals at each delta / T, the accepted share is within four standard errors of exp(-delta
    /// / T).
    #[test]
    fn worse_points_are_accepted_with_metropolis_probability() {
        use rand_core_09::RngCore;
        let mut numbers = Metropolis(Random::new(3, 0));
        for delta_by_t in [0.0f64, 0.1, 0.7, 2.0, 5.0] {
            let accepts =
                |bits: u64| 1.0 / (1.0 + delta_by_t.exp()) > (bits >> 11) as f64 / (1u64 << 53) as f64;
            let accepted = (0..100_000).filter(|_| accepts(numbers.next_u64())).count() as f64 / 1e5;
            let expected = (-delta_by_t).exp();
            let error = (expected * (1.0 - expected) / 1e5).sqrt();
            assert!(
                (accepted - expected).abs() <= 4.0 * error + 1e-9,
                "{delta_by_t}: {accepted}, not {expected}"
            );
        }
    }
}
