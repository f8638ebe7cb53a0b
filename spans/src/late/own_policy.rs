//! Policies that are functions supplied by the user, and a trace as all policies see it. The
//! functions run with no lock held, panics are caught, and a function that panics or is slow too
//! often is switched off.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use astracer_model::Value;
use astracer_samplers::Nanos;
use astracer_samplers::tail::{KeyNumber, Trace, Value as TailValue, View};

use super::view::TailTrace;
use crate::clock::Clock;
use crate::panics::{caught, warn};
use crate::record::TraceView;
use crate::reentry::{NotBusy, ReentryGuard};
use crate::stats::OwnPolicyFaults;
use crate::sync::statics::{AtomicBool, AtomicU64, Ordering};

pub type Function = Arc<dyn Fn(&TailTrace<'_>) -> bool + Send + Sync>;

/// Whether the function wants the trace; `None` if it panicked.
pub(super) fn ask(function: &Function, trace: &TailTrace<'_>) -> Option<bool> {
    caught(|| Some(function(trace)), |_| None)
}

/// The number of panics and slow calls after which a function is switched off.
const FAULTS_MAX: u64 = 16;
/// 10 ms.
const SLOW_NANOS: u64 = 10_000_000;

pub struct OwnPolicy {
    pub name: String,
    function: Function,
    panics: AtomicU64,
    slow: AtomicU64,
    is_warned: AtomicBool,
}

impl fmt::Debug for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("name", &self.name).finish_non_exhaustive()
    }
}

impl OwnPolicy {
    pub fn new(name: String, function: Function) -> Self {
        let (panics, slow) = (AtomicU64::new(0), AtomicU64::new(0));
        OwnPolicy { name, function, panics, slow, is_warned: AtomicBool::new(false) }
    }

    /// Relaxed: calls that run at the same time may exceed [`FAULTS_MAX`] by a few.
    fn is_off(&self) -> bool {
        self.panics.load(Ordering::Relaxed) + self.slow.load(Ordering::Relaxed) >= FAULTS_MAX
    }

    /// Whether the function wants a trace whose root has ended. A trace that a policy function
    /// makes itself is never submitted to such functions: each run could make another trace.
    pub fn wants(&self, trace: &TailTrace<'_>, clock: &Clock) -> bool {
        let Some(_guard) = ReentryGuard::enter(&IN_POLICY).filter(|_| !self.is_off()) else { return false };
        let began = clock.ticks();
        let wants = {
            let _not_busy = NotBusy::lift();
            ask(&self.function, trace)
        };
        if clock.nanos_between(began, clock.ticks()) > SLOW_NANOS {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        if wants.is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        wants.unwrap_or(false)
    }

    pub fn stats(&self) -> OwnPolicyFaults {
        OwnPolicyFaults {
            name: self.name.clone(),
            panics: self.panics.load(Ordering::Relaxed),
            slow: self.slow.load(Ordering::Relaxed),
            switched_off: self.is_off(),
        }
    }

    /// Warns once that the function was switched off. Not called on the service's threads, which
    /// may be inside a subscriber.
    pub fn warn(&self) {
        if self.is_off() && !self.is_warned.swap(true, Ordering::Relaxed) {
            let OwnPolicyFaults { name, panics, slow, .. } = self.stats();
            warn(|| {
                tracing::warn!(
                    target: "astracer",
                    parent: None,
                    policy = name,
                    panics,
                    slow,
                    "astracer switched off a policy: it panicked or took more than 10 ms {FAULTS_MAX} times"
                );
            });
        }
    }
}

thread_local!(static IN_POLICY: Cell<bool> = const { Cell::new(false) });

/// A trace, with the user's functions that may want to keep it.
pub(super) struct PolicyView<'a> {
    pub(super) trace: TailTrace<'a>,
    pub(super) own: &'a [OwnPolicy],
}

impl PolicyView<'_> {
    pub(super) fn submitted(&self, key: KeyNumber, now: Nanos, (shape, bytes): (u64, usize)) -> Trace<'_> {
        Trace {
            key,
            now,
            duration: Nanos::new(self.trace.nanos),
            severity: self.trace.severity,
            shape,
            bytes: bytes as u64,
            view: self,
        }
    }
}

impl View for PolicyView<'_> {
    fn any_attribute(&self, name: &str, test: &mut dyn FnMut(TailValue<'_>) -> bool) -> bool {
        let TraceView { attributes, memory, .. } = self.trace.spans;
        attributes.iter().filter(|attribute| attribute.is_named(name, memory)).any(
            |attribute| match attribute.model_value(memory) {
                Value::Bool(value) => test(TailValue::Bool(value)),
                Value::Int(value) => test(TailValue::Int(value)),
                Value::Double(value) => test(TailValue::Float(value)),
                Value::String(text) => test(TailValue::Text(&text)),
                _ => false,
            },
        )
    }

    fn own(&self, name: &str) -> bool {
        let own = self.own.iter().find(|own| own.name == name);
        own.is_some_and(|own| own.wants(&self.trace, self.trace.clock))
    }
}
