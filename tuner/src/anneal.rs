//! Simulated annealing: the paper's search, on argmin's solver.
//!
//! From a random point within the limits, a step is proposed (and proposed again while it violates the limits), and
//! taken if it is better; if it is worse by delta, it is taken with probability exp(-delta / T), while the temperature
//! T falls. (The paper's text compares the other way round in one place and maximises in another; a minimum is meant.)
//! delta is the difference of the objective's logarithms, so that temperatures mean the same for every workload: at
//! T = 0.5 a point that is 50 % worse is taken with probability 0.44, at T = 0.001 one that is 1 % worse never is.
//!
//! The paper's inner loop of proposals at each temperature is made by cooling a little after each proposal.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use argmin::core::{
    CostFunction, Error, Executor, IterState, KV, Problem as Counted, Solver, TerminationReason,
    TerminationStatus,
};
use argmin::solver::simulatedannealing::{Anneal, SATempFunc, SimulatedAnnealing};

use crate::expect::Scratch;
use crate::problem::{Archive, Problem};
use crate::random::Random;
use crate::space::Point;

/// Where the temperature begins.
const HOT: f64 = 0.5;
/// Where it ends.
const COLD: f64 = 1e-3;
/// Typical length of a step, as a share of an axis, at the hottest and at the coldest.
const STEP_HOT: f64 = 0.2;
const STEP_COLD: f64 = 0.004;
/// So many proposals violate the limits before the search stays where it is for this turn.
const PROPOSALS: u32 = 100;
/// An objective of 0 counts as this, for its logarithm.
const VALUE_MIN: f64 = 1e-12;

/// When a start ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Proposals scored.
    pub(crate) iterations: u64,
    /// Proposals scored without a new best.
    pub(crate) stall: u64,
    /// Not after this.
    pub(crate) deadline: Option<Instant>,
}

/// Searches from one random point. `done` is called after each evaluation.
pub(crate) fn anneal(
    problem: &Problem<'_>,
    schedule: Schedule,
    mut random: Random,
    stop: &AtomicBool,
    done: &dyn Fn(&Archive),
) -> Option<Archive> {
    let mut scratch = problem.scratch();
    let start = problem.feasible(&mut random, &mut scratch)?;
    let cooling = (COLD / HOT).powf(1.0 / schedule.iterations.max(1) as f64);
    let acceptance = Metropolis(RefCell::new(Random::new(random.bits(), 1)));
    let solver = SimulatedAnnealing::new_with_rng(HOT, acceptance)
        .expect("the first temperature is above 0")
        .with_temp_func(SATempFunc::Exponential(cooling))
        .with_stall_best(schedule.stall);
    let archive = RefCell::new(Archive::default());
    let walk = Walk { problem, archive: &archive, done, state: RefCell::new((random, scratch)) };
    let solver = Interruptible { inner: solver, stop, deadline: schedule.deadline };
    let run = Executor::new(walk, solver)
        .configure(|state| state.param(start).max_iters(schedule.iterations))
        .timer(false)
        .run();
    // The walk itself returns no errors; what argmin could still say does not take away what was found.
    drop(run);
    Some(archive.into_inner())
}

/// What argmin walks through.
struct Walk<'a, 'w> {
    problem: &'a Problem<'w>,
    archive: &'a RefCell<Archive>,
    done: &'a dyn Fn(&Archive),
    state: RefCell<(Random, Option<Scratch>)>,
}

impl CostFunction for Walk<'_, '_> {
    type Param = Point;
    type Output = f64;

    fn cost(&self, point: &Point) -> Result<f64, Error> {
        let (_, scratch) = &mut *self.state.borrow_mut();
        let evaluated = self.problem.evaluate(point, scratch);
        let mut archive = self.archive.borrow_mut();
        archive.add(evaluated);
        (self.done)(&archive);
        Ok(evaluated.value.max(VALUE_MIN).ln())
    }
}

impl Anneal for Walk<'_, '_> {
    type Param = Point;
    type Output = Point;
    type Float = f64;

    fn anneal(&self, from: &Point, temperature: f64) -> Result<Point, Error> {
        let (random, scratch) = &mut *self.state.borrow_mut();
        // From hot to cold the step shrinks as the temperature does, on a logarithmic scale.
        let cooled = (temperature / HOT).ln() / (COLD / HOT).ln();
        let scale = STEP_HOT * (STEP_COLD / STEP_HOT).powf(cooled.clamp(0.0, 1.0));
        for _ in 0..PROPOSALS {
            let proposal = self.problem.space.step(from, scale, random);
            if self.problem.limits.hold(&self.problem.kept(&proposal, scratch)) {
                return Ok(proposal);
            }
        }
        Ok(*from)
    }
}

/// Makes argmin's acceptance Metropolis'.
///
/// argmin takes a worse point if 1 / (1 + exp(delta / T)) > u for a uniform u. With u = v / (1 + v) for a uniform v
/// that is the same as exp(-delta / T) > v.
struct Metropolis(RefCell<Random>);

impl rand_core_09::RngCore for Metropolis {
    fn next_u64(&mut self) -> u64 {
        let v = self.0.get_mut().uniform();
        // argmin's uniform number is made of the upper 53 bits.
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

/// A solver that ends early when asked to.
struct Interruptible<'a, S> {
    inner: S,
    stop: &'a AtomicBool,
    deadline: Option<Instant>,
}

type State = IterState<Point, (), (), (), (), f64>;

impl<O, S: Solver<O, State>> Solver<O, State> for Interruptible<'_, S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn init(&mut self, problem: &mut Counted<O>, state: State) -> Result<(State, Option<KV>), Error> {
        self.inner.init(problem, state)
    }

    fn next_iter(&mut self, problem: &mut Counted<O>, state: State) -> Result<(State, Option<KV>), Error> {
        self.inner.next_iter(problem, state)
    }

    fn terminate(&mut self, state: &State) -> TerminationStatus {
        if self.stop.load(Ordering::Relaxed) {
            return TerminationStatus::Terminated(TerminationReason::Interrupt);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return TerminationStatus::Terminated(TerminationReason::Timeout);
        }
        self.inner.terminate(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// argmin's rule with our numbers accepts as Metropolis' does: of 100,000 at each delta / T, within four standard
    /// errors of exp(-delta / T).
    #[test]
    fn worse_points_are_accepted_with_metropolis_probability() {
        use rand_core_09::RngCore;
        let mut numbers = Metropolis(RefCell::new(Random::new(3, 0)));
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
