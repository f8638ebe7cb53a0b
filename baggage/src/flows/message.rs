//! Flows that leave this process in a request, or arrive in one.

use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;

use astracer_sdk::{baggage_member, outgoing_context, received_flow};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector};
use tracing::Span;

use super::branch::Branch;
use super::packed::Adopted;
use super::slots::{RECEIVED, ROOT_NOTED, Slot};
use super::stats::Counts;
use super::{FlowRef, Flows, Inner, handling};
use crate::baggage::Baggage;
use crate::header::{self, BAGGAGE_HEADER, List, RETURN_HEADER};

/// A flow that travels in a message: on the caller's side a branch of the current flow, on the
/// other side one that a message has brought.
///
/// The layers of `astracer-tower` do all this for HTTP and gRPC. Other transports call
/// [`branch`](Self::branch) and [`inject`](Self::inject) where they send, and
/// [`extract`](Self::extract) and [`adopt`](Self::adopt) where they receive. Applications' data is
/// in the message, so inject it only into those for your own services.
#[must_use = "a flow that is dropped is merged into none"]
pub struct Flow {
    branch: Branch,
    /// The flow that waits for the answer.
    caller: Option<Calling>,
}

/// A call to another process in progress, in a span of the current flow. Transports enter that span
/// where they send and receive, which needs no mark.
pub struct Calling {
    flow: FlowRef,
    span: u64,
}

impl Calling {
    /// A call in the current span; `None` outside of a request.
    pub fn here() -> Option<Calling> {
        let caller =
            Calling { flow: FlowRef::current()?, span: Span::current().id().map_or(0, |id| id.into_u64()) };
        caller.flow.flows.at_state(caller.flow.number, |state| state.calling.push(caller.span));
        #[cfg(feature = "critical_path")]
        caller.flow.flows.begin_call_path(caller.flow.number);
        Some(caller)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.flow.flows.at_state(self.flow.number, |state| {
            if let Some(at) = state.calling.iter().position(|span| *span == self.span) {
                state.calling.swap_remove(at);
            }
            #[cfg(feature = "critical_path")]
            if let Some(note) = state.path.as_deref_mut() {
                note.give_up_call();
            }
        });
    }
}

impl Flow {
    /// A branch of the current flow, to be sent; `None` outside of a request, or if there are too
    /// many flows.
    pub fn branch() -> Option<Flow> {
        let caller = Calling::here()?;
        let branch = Branch::here();
        branch.is_own().then_some(Flow { branch, caller: Some(caller) })
    }

    /// The flow that a message carries. `None` if it carries none and asks for none back, or if the
    /// caller is refused (see [`Flows::with_any_caller`]); the last is counted, and so is a message
    /// that cannot be read, which gives an empty flow if it asks for one back.
    pub fn extract(flows: &Flows, extractor: &dyn Extractor) -> Option<Flow> {
        let lists = extractor.get_all(BAGGAGE_HEADER).unwrap_or_default();
        let ours = header::ours(lists.into_iter());
        if ours.is_none() && extractor.get(RETURN_HEADER).is_none() {
            return None;
        }
        let inner = &flows.0;
        if inner.refuses() {
            return None;
        }
        let baggage = ours.and_then(|text| inner.read(&text)).map(|message| {
            Counts::add(&inner.messages.received);
            inner.deserialize(&message)
        });
        let (number, slot) = inner.take((0, 0))?;
        slot.state().baggage = baggage.unwrap_or_default();
        let flow = FlowRef { flows: inner.clone(), number };
        Some(Flow { branch: Branch::received(flow), caller: None })
    }

    /// Writes the flow, the members that code has set, and the members that the current context
    /// has received, into a message: its header `baggage` is replaced.
    pub fn inject(&self, injector: &mut dyn Injector) {
        let context = outgoing_context();
        let mut present = Received::default();
        // The propagator keeps members as they came.
        astracer_sdk::inject_baggage(&context, &mut present);
        let list = self.list(present.0.iter().map(String::as_bytes));
        if let Ok(list) = String::from_utf8(list)
            && !list.is_empty()
        {
            injector.set(BAGGAGE_HEADER, list);
        }
    }

    /// The value of the header `baggage`, in place of the lists that are there already. Their
    /// members leave as they came; up to 64 members and 8,192 bytes leave in all.
    pub fn list<'a>(&self, present: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let Some(flow) = self.branch.flow() else { return Vec::new() };
        let inner = &flow.flows;
        let mut list = List::of(present, &inner.set_members(flow.number));
        let room = list.room().min(inner.applications.registry().limits().request());
        let message = if room == 0 { Vec::new() } else { inner.message(flow.number, room, "call") };
        if room == 0 {
            Counts::add(&inner.messages.without_room);
        } else if !message.is_empty() {
            list.push_ours(&message);
        }
        inner.messages.members_cut.fetch_add(list.cut, Ordering::Relaxed);
        Counts::add(&inner.messages.sent);
        list.text
    }

    /// The bytes of baggage that a response may have: the value of the header `astracer-return`.
    pub fn asked(&self) -> usize {
        self.branch.flow().map_or(0, |flow| flow.flows.applications.registry().limits().response())
    }

    /// Merges a response into the flow that called: the value of the header `astracer-baggage`.
    /// One that cannot be read, or is larger than what was asked for, is counted.
    pub fn merge_answer(self, answer: &str) {
        let asked = self.asked();
        let (Some(flow), Some(caller)) = (self.branch.flow(), &self.caller) else { return };
        let inner = &flow.flows;
        // Four characters of base64 are three bytes.
        if answer.len() / 4 * 3 > asked {
            return Counts::add(&inner.messages.too_large);
        }
        let Some(message) = inner.read(answer) else { return };
        Counts::add(&inner.messages.merged);
        if let Some(slot) = inner.slot(flow.number) {
            slot.state().baggage = inner.deserialize(&message);
        }
        #[cfg(feature = "critical_path")]
        inner.end_call_path(caller.flow.number, flow.number);
        self.branch.join_into(&caller.flow);
    }

    /// Notes that this peer has answered without baggage. What happened there is not known here.
    pub fn end_opaque(self, peer: &str) {
        if let Some(flow) = self.branch.flow() {
            flow.flows.messages.note_opaque(peer);
            #[cfg(feature = "critical_path")]
            if let Some(caller) = &self.caller {
                flow.flows.end_opaque_path(caller.flow.number, flow.number);
            }
        }
        self.branch.detach();
    }

    /// The response to a caller that asked for up to `asked` bytes: the value of the header
    /// `astracer-baggage`, which is empty if the flow has no baggage.
    pub fn answer(&self, asked: usize) -> String {
        self.branch.answer(asked)
    }

    /// Makes a future that works in the flow. A local root that begins there takes the flow.
    pub fn adopt<F: Future>(self, work: impl FnOnce() -> F) -> Adopted<F> {
        Flow::adopt_if(Some(self), work)
    }

    /// The same, or the future alone without a flow.
    pub fn adopt_if<F: Future>(flow: Option<Flow>, work: impl FnOnce() -> F) -> Adopted<F> {
        let branch = flow.map_or_else(Branch::none, |flow| flow.branch);
        let inside = branch.enter();
        let work = work();
        drop(inside);
        Adopted::new(work, branch)
    }

    /// Runs a function in the flow.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _inside = self.branch.enter();
        work()
    }
}

impl Flows {
    /// The members of lists as they came, without `astracer`: what a request has that is passed on
    /// to a peer which must not get it. `None` if it is not in the lists.
    pub fn list_without_ours<'a>(&self, present: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let lists: Vec<&[u8]> = present.collect();
        header::has_ours(&lists).then(|| List::of(lists.into_iter(), &[]).text)
    }

    /// Counts a response with baggage that nobody has asked for.
    pub fn note_unasked(&self) {
        Counts::add(&self.0.messages.unasked);
    }
}

/// The lists that a propagator writes.
#[derive(Default)]
struct Received(Vec<String>);

impl Injector for Received {
    fn set(&mut self, _: &str, value: String) {
        self.0.push(value);
    }
}

impl Branch {
    pub(super) fn answer(&self, asked: usize) -> String {
        let Some(flow) = self.flow() else { return String::new() };
        let inner = &flow.flows;
        let limit = asked.min(inner.applications.registry().limits().response());
        Counts::add(&inner.messages.answered);
        header::encoded(&inner.message(flow.number, limit, "answer"))
    }
}

impl Inner {
    fn refuses(&self) -> bool {
        let refuses =
            self.refuses_callers.load(Ordering::Relaxed) && !self.trusts_all.load(Ordering::Relaxed);
        if refuses {
            Counts::add(&self.messages.refused_callers);
        }
        refuses
    }

    /// The bytes of untrusted text; `None`, which is counted, if it is malformed.
    fn read(&self, text: &str) -> Option<Vec<u8>> {
        let message = header::decoded(text).filter(|message| Baggage::is_message(message));
        if message.is_none() {
            Counts::add(&self.messages.malformed);
        }
        message
    }

    fn deserialize(&self, message: &[u8]) -> Baggage {
        let now = if self.applications.is_empty() { 0 } else { self.now() };
        handling(|| self.applications.deserialize(message, now)).unwrap_or_default()
    }

    /// Begins a request's flow with what the SDK has extracted. Runs no code of the service.
    pub(super) fn receive_from_context(&self, slot: &Slot, base: Option<&Context>) {
        let Some(text) = base.and_then(received_flow) else { return };
        if self.refuses() {
            return;
        }
        if let Some(message) = self.read(text)
            && let Ok(baggage) = Baggage::deserialize(&message, self.applications.registry())
        {
            Counts::add(&self.messages.received);
            if !baggage.is_empty() {
                slot.set(RECEIVED);
            }
            slot.state().baggage = baggage;
        }
    }

    /// The message of a flow that goes on elsewhere.
    fn message(&self, number: u32, limit: usize, name: &'static str) -> Vec<u8> {
        // After the root's end, that is what the caller waited for.
        if name == "call" || self.slot(self.resolve(number)).is_some_and(|slot| slot.has(ROOT_NOTED)) {
            self.note_x_trace(number, name);
        }
        #[cfg(feature = "critical_path")]
        self.put_path(number, name == "call", limit);
        let message = match self.applications.is_empty() {
            true => {
                let shared = self.at_state(number, |state| state.baggage.share()).unwrap_or_default();
                shared.serialize(limit, self.applications.registry())
            }
            false => {
                let now = self.now();
                self.with_baggage(number, |flow| handling(|| self.applications.serialize(flow, limit, now)))
            }
        };
        #[cfg(feature = "critical_path")]
        self.remove_path(number);
        message
    }

    /// The members that code has set, each with its text in a list.
    fn set_members(&self, number: u32) -> Vec<(String, String)> {
        let baggage = self.at_state(number, |state| state.baggage.share()).unwrap_or_default();
        let mut members = Vec::new();
        for key in baggage.keys_set(&self.members) {
            let value = baggage.get(&self.members, key).next().map(String::from_utf8_lossy);
            if let Ok(key) = std::str::from_utf8(key)
                && is_token(key)
            {
                members.push((key.to_owned(), baggage_member(key, &value.unwrap_or_default())));
            } else {
                self.messages.members_cut.fetch_add(1, Ordering::Relaxed);
            }
        }
        members
    }
}

/// Whether a key may be written as it is ("key" of W3C Baggage).
fn is_token(key: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !key.is_empty() && key.bytes().all(is_part)
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("is_call", &self.caller.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").field("span", &self.span).finish_non_exhaustive()
    }
}
