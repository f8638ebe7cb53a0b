//! Late spans, which end after their trace left its slot: they join it in the ring, or follow it to
//! the queue if it was kept.

use astracer_samplers::Nanos;
use astracer_samplers::tail::Severity;

use super::LateTraces;
use super::ring::{LateSpan, WayOut};
use crate::export::Patience;
use crate::record::{Body, Header, KeepReason, Record};
use crate::reentry::Busy;
use crate::stats::GivenUp;
use crate::traces::{TraceRef, Traces};
use crate::weight::Weighing;

impl LateTraces {
    /// Ends a span of duration `nanos` whose trace has left its slot.
    ///
    /// A trace in the ring is submitted to the policies again if the span has a higher severity, or
    /// is the root. If several local roots share the trace's id, the span joins its own. `count` is
    /// called first, with whether the trace is in the ring or was kept. Returns whether the span
    /// followed a kept trace and the queue took it.
    pub fn end_late(
        &self,
        ((header, record), part): ((Header, Record), TraceRef),
        (severity, now, nanos): (Severity, Nanos, u64),
        mut body: Option<&mut Body>,
        traces: &Traces,
        count: impl FnOnce(bool),
    ) -> bool {
        let counted = record.counted();
        let (trace_id, is_root) = (header.trace_id, record.is_local_root);
        let bytes = size_of::<Record>() + body.as_deref().map_or(0, Body::bytes);
        let may_follow = |by: KeepReason, key| match by.policy_index() {
            Some(policy) => self.sampler().may_follow(policy, key, bytes as u64, now),
            None => true,
        };
        let (key, span) = match self.queue.is_closed() {
            true => (None, LateSpan::GivenUp(GivenUp::ShutDown)),
            false => {
                let (span, room) = ((&record, body.as_deref_mut()), (self.bytes_max(), &may_follow as _));
                self.ring.end_late((trace_id, part), span, severity, room)
            }
        };
        count(key.is_some());
        if let (Severity::Error, Some(key)) = (severity, key) {
            let _busy = Busy::mark();
            self.sampler().note_error(key, now);
        }
        match span {
            LateSpan::Held => self.queue.counters.held.add(counted),
            LateSpan::GivenUp(reason) => {
                self.queue.counters.give_up(reason, counted);
                if is_root {
                    self.note_open_given_up(trace_id, reason);
                }
            }
            LateSpan::Kept(kept_by, cut) => {
                let state = header.state.with_threshold(None);
                self.queue.wait_for_space(Patience::Full);
                return self.queue.push_span(Header { state, kept_by, cut, ..header }, record, body);
            }
            LateSpan::TakenOut(mut trace) => {
                let is_worse = severity > trace.severity;
                trace.severity = trace.severity.max(severity);
                if is_root {
                    trace.duration = nanos;
                }
                let (bytes, severity) = (trace.bytes_with(body.as_deref()), trace.severity);
                if trace.is_full(self.bytes_max(), &record)
                    || !self.grow(&mut trace.reservation, bytes, severity, traces)
                {
                    trace.header.cut_some(1);
                    self.queue.counters.give_up(GivenUp::Cut, counted);
                } else {
                    trace.add(record, body);
                    self.queue.counters.held.add(counted);
                }
                // No threshold: a trace of the head sampler was exported by now, with its own.
                let again = is_worse || is_root;
                let kept = if again { self.decide(&mut trace, now, Weighing::Never, true) } else { None };
                match kept {
                    Some((by, _)) => self.settle(trace, WayOut::Kept(by, None), Patience::Full),
                    None => self.hold(trace, self.clock.ticks(), Patience::Full),
                }
            }
        }
        false
    }
}
