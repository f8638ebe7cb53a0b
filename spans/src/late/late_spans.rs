//! Late spans, which end after their trace left its slot: they join it in the ring, or follow it to
//! the queue if it was kept.

use astracer_samplers::Nanos;
use astracer_samplers::tail::{Decided, Severity};

use super::LateTraces;
use super::ring::{HeldTrace, LateSpan};
use crate::export::{Patience, Queue};
use crate::record::{Body, Header, KeepReason, Record};
use crate::stats::GivenUp;
use crate::traces::{TraceRef, Traces};

impl LateTraces {
    /// Ends a span of duration `nanos` whose trace has left its slot.
    ///
    /// A trace in the ring is submitted to the policies again if the span has a higher severity, or
    /// is the root. If several local roots share the trace's id, the span joins its own. `count` is
    /// called first, with whether the trace is in the ring or was kept. Returns whether the span
    /// followed a kept trace and the queue took it.
    pub fn end_late(
        &self,
        (late, part): ((Header, Record), TraceRef),
        (severity, now, nanos): (Severity, Nanos, u64),
        mut body: Option<&mut Body>,
        (queue, traces): (&Queue, &Traces),
        count: impl FnOnce(bool),
    ) -> bool {
        let counted = late.1.counted();
        let (trace_id, is_root) = (late.0.trace_id, late.1.is_local_root());
        let give_up_alone = |reason| {
            self.counters.give_up(reason, counted);
            if is_root {
                self.note_root_given_up(trace_id, reason);
            }
        };
        if queue.is_closed() {
            count(false);
            give_up_alone(GivenUp::ShutDown);
            return false;
        }
        let bytes = size_of::<Record>() + body.as_deref().map_or(0, Body::bytes);
        let may_follow = |by: KeepReason, key| match by.policy_index() {
            Some(policy) => self.sampler.may_follow(policy, key, bytes as u64, now),
            None => true,
        };
        let limits = (self.limits(), &may_follow as _);
        let late = self.ring.end_late((late, part), severity, body.as_deref_mut(), limits);
        count(late.key().is_some());
        if let (Severity::Error, Some(key)) = (severity, late.key()) {
            self.sampler.note_error(key, now);
        }
        match late {
            LateSpan::Held(_) => self.counters.held(counted),
            LateSpan::TakenOut(out) => {
                let (mut held, record) = *out;
                let is_worse = severity > held.severity;
                held.severity = held.severity.max(severity);
                if is_root {
                    held.duration = nanos;
                }
                self.join(&mut held, record, body, traces);
                if is_worse || is_root {
                    self.decide_again(held, now, queue);
                } else {
                    self.put_back(held, queue);
                }
            }
            LateSpan::Cut(_) => self.counters.give_up(GivenUp::Cut, counted),
            LateSpan::Refused(_) => self.counters.give_up(GivenUp::Refused, counted),
            LateSpan::GivenUp => give_up_alone(GivenUp::Late),
            LateSpan::Kept(_, kept) => {
                let (mut header, record) = *kept;
                header.state = header.state.without_threshold();
                queue.wait_for_space();
                return queue.push_span(header, record, body);
            }
        }
        false
    }

    /// Adds a late span to its trace, which was taken out of the ring. Evicts traces of lower value
    /// if necessary; if that is not enough, the span is cut.
    fn join(&self, held: &mut HeldTrace, record: Record, body: Option<&mut Body>, traces: &Traces) {
        let (counted, bytes, severity) = (record.counted(), held.bytes_with(body.as_deref()), held.severity);
        if held.is_full(self.limits(), &record) || !self.grow(&mut held.reservation, bytes, severity, traces)
        {
            held.cut();
            return self.counters.give_up(GivenUp::Cut, counted);
        }
        held.add(record, body);
        self.counters.held(counted);
    }

    /// Submits a trace that was taken out of the ring to the policies, and puts it back if none
    /// keeps it.
    fn decide_again(&self, mut held: HeldTrace, now: Nanos, queue: &Queue) {
        // A trace of the head sampler has been exported by now, with its own threshold. So this one
        // gets none.
        match self.decide(&held, now, true).0 {
            Decided::Kept(place) => {
                self.counters.not_held(held.counted);
                self.export(held, (KeepReason::policy(place), None), (queue, Patience::Full));
            }
            decided => {
                if let Decided::Refused(place) = decided {
                    held.refused_by = Some(KeepReason::policy(place));
                }
                self.put_back(held, queue);
            }
        }
    }
}
