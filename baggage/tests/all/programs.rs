//! Random programs that fork and join, against a slow model: each line of control has the set of
//! notes that happened before.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;

use astracer_baggage::{BranchExt as _, Done, Fork, Packed, branch_fn, flow};
use astracer_testing::{SplitMix, number, size};
use tracing::{Instrument as _, info_span};

use crate::service::{Service, service};

/// A line of control.
#[derive(Clone, Debug, Default)]
struct Line {
    seen: BTreeSet<String>,
    /// Not in a message's flow before a root has taken it.
    has_root: bool,
}

struct Run<'a> {
    service: &'a Service,
    random: SplitMix,
    notes: u32,
    /// Results that were not joined yet, with their branches' notes.
    results: Vec<(Done<()>, Line)>,
    messages: Vec<(Packed<()>, Line)>,
    steps: Vec<String>,
    /// Short programs come first, so that a failure is easy to read.
    steps_max: usize,
}

impl Run<'_> {
    /// Runs steps in a line of control, and checks it after each.
    fn steps(&mut self, line: &mut Line, depth: usize) {
        for _ in 0..self.random.below(7) {
            if self.steps.len() == self.steps_max {
                return;
            }
            self.step(line, depth);
            let found: BTreeSet<String> = self.service.notes.seen().into_iter().collect();
            assert_eq!(found, line.seen, "{}", self.steps.join("\n"));
        }
    }

    fn step(&mut self, line: &mut Line, depth: usize) {
        let step = self.random.below(if depth < 5 { 14 } else { 4 });
        self.steps.push(format!("{:width$}{step}", "", width = 2 * depth));
        match step {
            0 | 1 => {
                self.notes += 1;
                let note = self.notes.to_string();
                self.service.notes.add(&note);
                line.seen.insert(note);
            }
            2 if !self.results.is_empty() => {
                let index = self.random.index(self.results.len());
                let (result, branch) = self.results.swap_remove(index);
                match self.random.below(4) {
                    0 => drop(result),
                    1 => result.detach(),
                    _ => {
                        result.join();
                        line.seen.extend(branch.seen);
                    }
                }
            }
            3 if !self.messages.is_empty() => {
                let index = self.random.index(self.messages.len());
                let (message, branch) = self.messages.swap_remove(index);
                if self.random.one_in(3) {
                    self.messages.push((message.clone(), branch.clone()));
                }
                message.merge();
                line.seen.extend(branch.seen);
            }
            4 => self.messages.push((Packed::new(()), Line { has_root: false, ..line.clone() })),
            5 => {
                let mut branch = line.clone();
                let result = branch_fn(|| self.steps(&mut branch, depth + 1))();
                self.results.push((result, branch));
            }
            6 | 7 => {
                let mut branch = line.clone();
                let work = async { self.steps(&mut branch, depth + 1) };
                let result = match step {
                    6 => now(work.instrument(info_span!("inside")).branch()),
                    _ => now(work.branch().instrument(info_span!("outside"))),
                };
                self.results.push((result, branch));
            }
            8 => {
                let fork = Fork::here();
                let mut all = line.clone();
                for _ in 0..self.random.below(3) {
                    // A branch of the fork begins with what the ones before have brought.
                    let mut branch = all.clone();
                    fork.run(|| self.steps(&mut branch, depth + 1));
                    all.seen.extend(branch.seen);
                }
                fork.join();
                line.seen.extend(all.seen);
            }
            9 if !self.messages.is_empty() => {
                let index = self.random.index(self.messages.len());
                let (message, mut branch) = self.messages.swap_remove(index);
                message.adopt_fn(|()| self.steps(&mut branch, depth + 1));
            }
            10 => {
                let mut other = Line { has_root: true, ..Line::default() };
                // A message's flow has no root yet.
                let line = if line.has_root { &mut other } else { line };
                line.has_root = true;
                info_span!(parent: None, "other").in_scope(|| self.steps(line, depth + 1));
            }
            // Two threads of one flow, one after the other.
            11 => {
                let note = format!("with {}", self.notes);
                flow::with(|_| self.service.notes.add(&note)).unwrap();
                line.seen.insert(note);
            }
            _ if depth < 5 => info_span!("child").in_scope(|| self.steps(line, depth + 1)),
            _ => {}
        }
    }
}

fn now<F: Future>(work: F) -> F::Output {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

#[test]
fn random_programs_see_what_happened_before() {
    let first = number("ASTRACER_SEED").unwrap_or(0);
    for seed in first..first + size(400, 20_000) {
        println!("seed {seed}");
        let service = service();
        let (mut results, mut messages) = (Vec::new(), Vec::new());
        service.world.inside(|| {
            let mut run = Run {
                service: &service,
                random: SplitMix::new(seed),
                notes: 0,
                results: Vec::new(),
                messages: Vec::new(),
                steps: Vec::new(),
                steps_max: 3 + (seed as usize / 20).min(60),
            };
            info_span!("root").in_scope(|| run.steps(&mut Line { has_root: true, ..Line::default() }, 0));
            (results, messages) = (run.results, run.messages);
        });
        drop((results, messages));
        assert_eq!(service.unmarked(), [], "seed {seed}");
        service.check_sums();
    }
}

/// Threads that exchange messages and results at once: every flow ends, and each branch is counted
/// once. Notes that a thread has merged are never lost.
#[test]
fn threads_exchange_flows() {
    let service = service();
    let messages = Mutex::new(Vec::<(Packed<()>, String)>::new());
    let results = Mutex::new(Vec::<Done<()>>::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (service, messages, results) = (&service, &messages, &results);
            let stay = service.stay();
            scope.spawn(move || {
                stay();
                let mut random = SplitMix::new(number);
                for round in 0..size(300, 30_000) {
                    let root = info_span!("root");
                    let _root = root.enter();
                    let note = format!("{number}-{round}");
                    service.notes.add(&note);
                    match random.below(5) {
                        0 => messages.lock().unwrap().push((Packed::new(()), note.clone())),
                        1 => results.lock().unwrap().push(branch_fn(|| service.notes.add("branch"))()),
                        2 => {
                            let message = messages.lock().unwrap().pop();
                            if let Some((message, theirs)) = message {
                                message.merge();
                                assert!(service.notes.seen().contains(&theirs));
                            }
                        }
                        3 => {
                            let message = messages.lock().unwrap().pop();
                            if let Some((message, theirs)) = message {
                                message.adopt_fn(|()| {
                                    info_span!("handle").in_scope(|| {
                                        assert!(service.notes.seen().contains(&theirs));
                                        results.lock().unwrap().push(branch_fn(|| ())());
                                    });
                                });
                            }
                        }
                        _ => {
                            let result = results.lock().unwrap().pop();
                            result.map(Done::join);
                        }
                    }
                    assert!(service.notes.seen().contains(&note));
                }
            });
        }
    });
    drop((messages.into_inner(), results.into_inner()));
    assert_eq!(service.unmarked(), []);
    service.check_sums();
}
