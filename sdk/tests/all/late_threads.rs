//! Random programs of threads whose traces are kept late, compared with a slow model of each trace.
//!
//! Programs run in rounds. The clock stands still within a round, so that the model knows each
//! root's duration, and advances between rounds, when nothing is in flight. Everything that follows
//! from a trace's own steps is compared exactly, whatever the order of the threads: counts by key;
//! which traces were exported, with all of their spans, for which reason and with which weight; and
//! that each span is counted in exactly one state.

#[path = "late_threads/checks.rs"]
mod checks;
#[path = "late_threads/model.rs"]
mod model;
#[path = "late_threads/service.rs"]
mod service;

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Duration;

use astracer_samplers::Nanos;
use astracer_sdk::{ContextMode, DroppedSpans, ProvisionalMode, Start, Tail};
use astracer_testing::{SplitMix, number, size};

use self::checks::{KeptAt, check_budgets, check_calls, check_exported, check_law};
use self::service::service;
use crate::support::TIMEOUT;

/// The budget of each policy as text, and its limits as (per second, burst): traces, bytes, and
/// traces of one key.
#[derive(Clone, Copy, Debug)]
struct PolicyBudget {
    text: &'static str,
    traces: Option<(u64, u64)>,
    bytes: Option<(u64, u64)>,
    key_traces: Option<(u64, u64)>,
}

const NO_BUDGET: PolicyBudget = PolicyBudget { text: "", traces: None, bytes: None, key_traces: None };
const BUDGETS: [PolicyBudget; 4] = [
    NO_BUDGET,
    PolicyBudget { text: "traces=20,burst=5", traces: Some((20, 5)), ..NO_BUDGET },
    PolicyBudget { text: "bytes=20000,bytes_burst=9000", bytes: Some((20_000, 9_000)), ..NO_BUDGET },
    PolicyBudget {
        text: "traces=50,burst=9,key_traces=3,key_burst=2",
        traces: Some((50, 9)),
        key_traces: Some((3, 2)),
        ..NO_BUDGET
    },
];

/// A longer duration is slow.
const SLOW: Duration = Duration::from_millis(80);
const POLICIES: usize = 3;

/// The behaviour of the policy's own function.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Own {
    Wants,
    /// Panics now and then, until the SDK switches it off.
    Panics,
    /// Calls the SDK's handle, and creates spans.
    CallsBack,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    dropped: DroppedSpans,
    start: Start,
    context: ContextMode,
    samplers: [&'static str; 2],
    provisional: ProvisionalMode,
    budget: PolicyBudget,
    own: Own,
    ring_bytes: usize,
    holds: bool,
    /// Traces reach their maximum age, which is as long as a few rounds.
    ages: bool,
    sets_back: bool,
    /// The round in which the service is shut down.
    shutdown: Option<usize>,
    threads: usize,
    rounds: usize,
    steps: usize,
}

impl Setup {
    fn of(random: &mut SplitMix) -> Self {
        let rounds = 12;
        Setup {
            dropped: random.one_of(&[DroppedSpans::Visible, DroppedSpans::Disabled]),
            start: random.one_of(&[Start::AtOnce, Start::WhenUsed]),
            context: random.one_of(&[ContextMode::Off, ContextMode::Ids, ContextMode::Recording]),
            samplers: [random.one_of(&["never", "ratio:0.3"]), random.one_of(&["never", "ratio:0.1"])],
            provisional: random.one_of(&[
                ProvisionalMode::Always,
                ProvisionalMode::Always,
                ProvisionalMode::Armed,
                ProvisionalMode::Never,
            ]),
            budget: if random.one_in(2) { NO_BUDGET } else { random.one_of(&BUDGETS) },
            own: random.one_of(&[Own::Wants, Own::Panics, Own::CallsBack]),
            ring_bytes: random.one_of(&[64 << 10, 256 << 10, 1 << 20, 32 << 20, 32 << 20]),
            holds: !random.one_in(3),
            ages: random.one_in(4),
            sets_back: random.one_in(4),
            shutdown: random.one_in(4).then(|| random.index(rounds)),
            threads: 1 + random.index(4),
            rounds,
            steps: 20 + random.index(60),
        }
    }

    /// Whether bounds and budgets never apply, so that exactly the traces that a policy matches are
    /// kept.
    fn has_large_bounds(&self) -> bool {
        self.budget.text.is_empty() && self.ring_bytes == 32 << 20 && self.shutdown.is_none() && !self.ages
    }

    fn tail(&self) -> Tail {
        let (text, millis) = (self.budget.text, SLOW.as_millis());
        let tail: Tail = format!("error({text}),own:some({text}),slow:{millis}ms({text})").parse().unwrap();
        let hold = if self.holds { Nanos::from_secs(2) } else { Nanos::ZERO };
        tail.with_provisional(self.provisional).with_ring_bytes(self.ring_bytes).with_hold(hold)
    }
}

fn run(setup: Setup, seed: u64) -> Result<(), String> {
    let (service, checker) = service(setup);
    let (begin, end) = (Barrier::new(setup.threads + 1), Barrier::new(setup.threads + 1));
    let mut random = SplitMix::new(seed ^ 0xc10c);
    let mut laws = Vec::new();
    let mut kept: Vec<KeptAt> = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..setup.threads as u64 {
            let (service, begin, end) = (&service, &begin, &end);
            scope.spawn(move || {
                tracing::dispatcher::with_default(&service.dispatch, || {
                    let (mut random, mut own) = (SplitMix::new(seed ^ (thread + 1) << 40), Vec::new());
                    for round in 0..setup.rounds {
                        begin.wait();
                        for _ in 0..setup.steps {
                            service.step(&mut own, &mut random, round);
                        }
                        if round + 1 == setup.rounds {
                            own.drain(..).for_each(|root| service.let_go(root));
                            let own = service.places.iter().filter_map(|place| place.lock().unwrap().take());
                            own.for_each(|child| service.let_go(child));
                        }
                        end.wait();
                    }
                });
            });
        }
        for _ in 0..setup.rounds {
            let at = service.now();
            begin.wait();
            end.wait();
            laws.push(check_law(&service));
            let policies = service.astracer.handle.stats().tail.policies;
            kept.push((at, policies.iter().map(|policy| (policy.kept, policy.kept_bytes)).collect()));
            service.pass_time(&mut random);
        }
    });
    for law in laws {
        law?;
    }
    check_budgets(&setup, &kept)?;
    let handle = &service.astracer.handle;
    if !service.closed.load(Ordering::Relaxed) {
        if seed.is_multiple_of(3) {
            handle.keep_where(|trace| trace.trace_id().to_bytes()[15] % 2 == 0);
        }
        handle.flush(TIMEOUT).map_err(|error| error.to_string())?;
    }
    let stats = check_law(&service)?;
    let seen = checker.0.lock().unwrap();
    if let Some(lie) = seen.faults.first() {
        return Err(lie.clone());
    }
    if stats.spans_exported != seen.spans || stats.tail.traces_open != 0 {
        return Err(format!("{} spans were exported: {stats:?}", seen.spans));
    }
    check_calls(&service)?;
    if stats.spans_lost.total() == 0 && setup.shutdown.is_none() {
        check_exported(&service, &seen, &stats)?;
    }
    Ok(())
}

#[test]
fn random_programs_of_threads_agree_with_the_model() {
    let first = number("ASTRACER_SEED").or_else(|| number("ASTRACER_FIRST"));
    let count = number("ASTRACER_SESSIONS").unwrap_or(if number("ASTRACER_SEED").is_some() {
        1
    } else {
        size(20, 60)
    });
    let first = first.unwrap_or(0);
    for seed in first..first + count {
        let setup = Setup::of(&mut SplitMix::new(seed));
        if let Err(error) = run(setup, seed) {
            panic!("ASTRACER_SEED={seed}: {setup:?}\n{error}");
        }
    }
}
