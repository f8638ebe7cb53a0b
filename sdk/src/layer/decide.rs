//! A local root is decided about: once, as late as its parent may still be set, by whichever thread comes first.

use opentelemetry::SpanId;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::TraceState;
use tracing_core::span;

use super::buffer::{Buffer, Pending};
use super::context;
use super::core::Core;
use super::fields::OfRoot;
use super::memory::Memory;
use super::pool::Slot;
use super::record::{Detail, Record};
use super::table::{Handle, Lane};
use super::thread;
use crate::decider::Verdict;
use crate::key::{Lookup, Root};
use crate::settings::ContextMode;
use crate::stats::Loss;

impl Core {
    /// The span's handle, once it is decided about.
    #[inline]
    pub(crate) fn decided(&self, id: &span::Id, lane: &Lane) -> Handle {
        match lane.handle() {
            handle @ (Handle::Record { .. } | Handle::Unwritten { .. } | Handle::Dropped) => return handle,
            Handle::Fresh if lane.claim(Handle::Fresh) => self.decide_fresh(id, lane),
            Handle::Pending { slot } => self.decide_pending(id, lane, slot),
            Handle::Fresh | Handle::Deciding => {}
        }
        loop {
            match lane.handle() {
                // Another thread entered the same new root at the same time. It runs no code of the user's.
                Handle::Deciding => std::thread::yield_now(),
                handle => return handle,
            }
        }
    }

    fn decide_fresh(&self, id: &span::Id, lane: &Lane) {
        let Some(metadata) = lane.metadata() else { return lane.set_handle(Handle::Dropped) };
        let began = lane.began();
        let trace_id = self.ids.new_trace_id();
        let verdict = self.decider.ask_by_name(metadata, trace_id, began, &self.counters);
        let slot = if verdict.keep && !self.is_closed() { self.pool.take() } else { None };
        let Some(slot) = slot else {
            if verdict.keep {
                self.counters.lose(if self.is_closed() { Loss::ShutDown } else { Loss::OpenTraces }, 1);
            }
            if self.settings.context != ContextMode::Off {
                lane.set_ids(trace_id, self.ids.new_span_id());
            }
            return lane.set_handle(Handle::Dropped);
        };
        let span_id = self.ids.new_span_id();
        let mut buffer = slot.lock();
        buffer.trace_id = trace_id;
        buffer.trace_state = verdict.trace_state;
        let record = Record::new(id, span_id, SpanId::INVALID, metadata, began);
        let index = self.fill(&mut buffer, record, None);
        lane.set_span_id(span_id);
        slot.set_trace(&buffer);
        drop(buffer);
        lane.set_handle(Handle::Record { slot: slot.number, index });
    }

    /// Under the trace's lock, so that of two threads one decides. The sampler is ours; a key of the user's making is
    /// made before.
    fn decide_pending(&self, id: &span::Id, lane: &Lane, number: u32) {
        let Some(slot) = self.pool.slot(number) else { return };
        let custom = self.decider.key().is_custom().then(|| self.custom_key(slot));
        let mut buffer = slot.lock();
        if lane.handle() != (Handle::Pending { slot: number }) {
            return;
        }
        let (Some(pending), Some((began, span_id))) =
            (buffer.pending.take(), buffer.records.first().map(|root| (root.start, root.span_id)))
        else {
            return lane.set_handle(Handle::Dropped);
        };
        let Pending { parent, base } = &pending;
        let trace_id = if parent.is_valid() { parent.trace_id() } else { self.ids.new_trace_id() };
        let Verdict { keep, trace_state } = if self.decider.honours(parent, base) {
            self.decider.honour(parent, &self.counters)
        } else {
            let Buffer { key, records, details, attributes, memory, .. } = &mut *buffer;
            let attributes = OfRoot { attributes, memory };
            let key = match &custom {
                Some(key) => key,
                None => self.decider.key_of(&root_of(records, details, memory, &attributes), key),
            };
            self.decider.ask(key, trace_id, parent.trace_state(), began, &self.counters)
        };
        // A base without a parent or baggage need not be kept: see [`Surroundings`].
        let plain = !parent.is_valid() && base.baggage().is_empty();
        if !keep || self.is_closed() {
            if keep {
                self.counters.lose(Loss::ShutDown, 1);
            }
            let mut old = None;
            if self.settings.context != ContextMode::Off {
                lane.set_ids(trace_id, span_id);
                if !plain || trace_state != TraceState::NONE {
                    old = lane.keep_context(context::of_dropped(base, trace_id, span_id, trace_state));
                }
            }
            buffer.clear();
            lane.set_handle(Handle::Dropped);
            drop(buffer);
            self.pool.release(number);
            drop((old, pending));
            return;
        }
        buffer.trace_id = trace_id;
        buffer.trace_state = trace_state;
        if let (Some(root), true) = (buffer.records.first_mut(), parent.is_valid()) {
            root.parent = parent.span_id();
            if parent.is_remote() {
                buffer.detail(0).parent_is_remote = true;
            }
        }
        lane.set_span_id(span_id);
        slot.set_trace(&buffer);
        let handle = Handle::Record { slot: number, index: 0 };
        let own = (!plain).then(|| buffer.span_context(span_id));
        let context = own.and_then(|own| self.context_of_kept(base, id, own));
        let old = context.and_then(|context| lane.keep_context(context));
        lane.set_handle(handle);
        drop(buffer);
        // Values of contexts are the user's, and so is what runs when they are dropped.
        drop((old, pending));
    }

    /// The user's code sees copies: no lock is held. A root that it traces itself is counted by its name.
    #[cold]
    fn custom_key(&self, slot: &Slot) -> String {
        let buffer = slot.lock();
        let Buffer { records, details, attributes, memory, .. } = &*buffer;
        let attributes = OfRoot { attributes, memory }.to_texts();
        let name = root_of(records, details, memory, &()).name().to_owned();
        drop(buffer);
        let Some(_inside) = thread::enter_key() else { return name };
        let mut key = String::new();
        self.decider.key_of(&Root::new(&name, &attributes), &mut key);
        key
    }
}

/// The local root in a trace's memory.
fn root_of<'a>(
    records: &[Record],
    details: &[Detail],
    memory: &'a Memory,
    attributes: &'a dyn Lookup,
) -> Root<'a> {
    let Some(root) = records.first() else { return Root::new("", attributes) };
    let given = details.get(root.detail as usize).and_then(|detail| detail.name);
    Root::new(given.map_or(root.metadata.name(), |name| memory.text(name)), attributes)
}
