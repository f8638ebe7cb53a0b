//! Applications: code that works on baggage while a request runs, called at each fork, join,
//! message and span.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::baggage::Baggage;
use crate::registry::{Namespace, Registry};
use crate::wire::WireError;

/// A place in the service's code: a span or an event, as its callsite describes it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Place<'a> {
    /// The name of the span, or of the event's callsite.
    pub name: &'a str,
    /// The module, unless the callsite has another target.
    pub target: &'a str,
}

impl<'a> Place<'a> {
    /// The place of this name.
    pub fn new(name: &'a str, target: &'a str) -> Self {
        Place { name, target }
    }
}

/// Work on the baggage of each request.
///
/// Handlers run on the service's threads, between its own code, and hold no lock of this crate.
/// A handler sees the namespaces with which its application was registered. If it panics, the flow
/// loses these namespaces, and the panic is counted ([`Losses::panics`](crate::Losses::panics)).
///
/// By default a handler does nothing.
#[allow(unused_variables, reason = "names for the documentation")]
pub trait Application: Send + Sync + 'static {
    /// A flow is about to fork.
    fn pre_split(&self, flow: &mut View<'_>) {}
    /// A flow has forked.
    fn post_split(&self, flow: &mut View<'_>, branch: &mut View<'_>) {}
    /// A branch is about to be merged into a flow.
    fn pre_merge(&self, flow: &mut View<'_>, branch: &mut View<'_>) {}
    /// A flow has taken in a branch.
    fn post_merge(&self, flow: &mut View<'_>) {}
    /// A flow is about to be written into a message.
    fn pre_serialize(&self, flow: &mut View<'_>) {}
    /// A flow was read from a message. Not called if there was none, or if it was refused.
    fn post_deserialize(&self, flow: &mut View<'_>) {}
    /// A request begins in this process.
    fn begin(&self, flow: &mut View<'_>) {}
    /// A flow ends in this process: a request, or a branch that was not merged.
    fn end(&self, flow: &mut View<'_>) {}
    /// A flow leaves a thread.
    fn suspend(&self, flow: &mut View<'_>) {}
    /// A flow takes a thread.
    fn resume(&self, flow: &mut View<'_>) {}
    /// A flow enters a span.
    fn enter(&self, flow: &mut View<'_>, span: Place<'_>) {}
    /// A flow exits a span.
    fn exit(&self, flow: &mut View<'_>, span: Place<'_>) {}
    /// An event happens in a flow.
    fn event(&self, flow: &mut View<'_>, event: Place<'_>) {}
}

/// The namespaces of an application in the baggage of one flow.
///
/// The methods are those of [`Baggage`]. A namespace of another application appears empty and does
/// not change.
pub struct View<'a> {
    baggage: &'a mut Baggage,
    own: &'a [Namespace],
    now: u64,
}

impl View<'_> {
    /// Nanoseconds since the UNIX epoch. The clock may be set back.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The keys of a namespace, in byte order.
    pub fn keys(&self, namespace: &Namespace) -> impl Iterator<Item = &[u8]> {
        self.readable(namespace).flat_map(|baggage| baggage.keys(namespace))
    }

    /// The values of a slot, in byte order.
    pub fn get(&self, namespace: &Namespace, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.readable(namespace).flat_map(move |baggage| baggage.get(namespace, key))
    }

    /// Whether a slot has values.
    pub fn has(&self, namespace: &Namespace, key: &[u8]) -> bool {
        self.owns(namespace) && self.baggage.has(namespace, key)
    }

    /// Adds a value to a slot, within the bounds: see [`Baggage::add`].
    pub fn add(&mut self, namespace: &Namespace, key: &[u8], value: &[u8]) {
        if self.owns(namespace) {
            self.baggage.add(namespace, key, value);
        }
    }

    /// Gives a slot these values instead of its own; without values, removes it.
    pub fn replace<'v>(
        &mut self,
        namespace: &Namespace,
        key: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        if self.owns(namespace) {
            self.baggage.replace(namespace, key, values);
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, namespace: &Namespace, key: &[u8]) {
        if self.owns(namespace) {
            self.baggage.remove(namespace, key);
        }
    }

    /// Removes all slots of a namespace, and its typed value.
    pub fn clear(&mut self, namespace: &Namespace) {
        if self.owns(namespace) {
            self.baggage.clear(namespace);
        }
    }

    /// Moves the content of a namespace to another one.
    pub fn move_to(&mut self, namespace: &Namespace, to: &Namespace) {
        if self.owns(namespace) && self.owns(to) {
            self.baggage.move_to(namespace, to);
        }
    }

    /// Runs `f` on the typed value of a namespace; `None` if it is not the application's. See
    /// [`Baggage::with_typed`].
    pub fn with_typed<T: crate::Typed, R>(
        &mut self,
        namespace: &Namespace,
        make: impl FnOnce() -> T,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.owns(namespace).then(|| self.baggage.with_typed(namespace, make, f))
    }

    fn owns(&self, namespace: &Namespace) -> bool {
        self.own.contains(namespace)
    }

    fn readable(&self, namespace: &Namespace) -> impl Iterator<Item = &Baggage> {
        self.owns(namespace).then_some(&*self.baggage).into_iter()
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("own", &self.own).field("now", &self.now).finish_non_exhaustive()
    }
}

/// The applications of a process, in the order in which they are called.
pub struct Applications {
    registry: Registry,
    all: Vec<Registered>,
    #[cfg(feature = "flows")]
    tenants: Option<crate::tenants::Tenants>,
    #[cfg(feature = "flows")]
    x_trace: Option<crate::x_trace::XTrace>,
    #[cfg(feature = "critical_path")]
    critical_path: Option<(crate::paths::CriticalPath, Namespace)>,
}

struct Registered {
    namespaces: Vec<Namespace>,
    application: Box<dyn Application>,
}

impl Applications {
    /// No application yet; baggage passes through.
    pub fn new(registry: &Registry) -> Self {
        Applications {
            registry: registry.clone(),
            all: Vec::new(),
            #[cfg(feature = "flows")]
            tenants: None,
            #[cfg(feature = "flows")]
            x_trace: None,
            #[cfg(feature = "critical_path")]
            critical_path: None,
        }
    }

    /// Adds an application, which sees these namespaces.
    #[must_use]
    pub fn with(mut self, namespaces: impl Into<Vec<Namespace>>, application: impl Application) -> Self {
        self.all.push(Registered { namespaces: namespaces.into(), application: Box::new(application) });
        self
    }

    /// Adds up what each tenant uses, whatever the sampler keeps: see `Flows::tenants`. A member of
    /// the W3C Baggage names the tenant, such as `tenant.id`. The caller sends it, or
    /// [`flow::set`](crate::flow::set) sets it.
    #[cfg(feature = "flows")]
    #[must_use]
    pub fn with_tenants(self, member: impl Into<String>) -> Self {
        Applications { tenants: Some(crate::tenants::Tenants::new(member.into())), ..self }
    }

    /// Notes what happened before what in kept traces, as X-Trace does: their spans' events get
    /// `xtrace.event`, an id, and `xtrace.parents`, the ids of the events directly before. `astracer
    /// events` draws the graph.
    #[cfg(feature = "flows")]
    #[must_use]
    pub fn with_x_trace(self) -> Self {
        Applications { x_trace: Some(crate::x_trace::XTrace::new(&self.registry)), ..self }
    }

    /// Measures the critical path of each request, whatever the sampler keeps: see
    /// [`critical_path`](crate::critical_path).
    #[cfg(feature = "critical_path")]
    #[must_use]
    pub fn with_critical_path(self, measured: &crate::paths::CriticalPath) -> Self {
        let own = self.registry.reserved("astracer.critical_path", i8::MAX - 2);
        Applications { critical_path: Some((measured.clone(), own)), ..self }
    }

    #[cfg(feature = "critical_path")]
    #[inline]
    pub(crate) fn critical_path(&self) -> Option<&crate::paths::CriticalPath> {
        self.critical_path.as_ref().map(|(measured, _)| measured)
    }

    /// The namespace of notes in messages.
    #[cfg(feature = "critical_path")]
    pub(crate) fn critical_path_namespace(&self) -> Option<&Namespace> {
        self.critical_path.as_ref().map(|(_, own)| own)
    }

    #[cfg(feature = "flows")]
    #[inline]
    pub(crate) fn tenants(&self) -> Option<&crate::tenants::Tenants> {
        self.tenants.as_ref()
    }

    #[cfg(feature = "flows")]
    #[inline]
    pub(crate) fn x_trace(&self) -> Option<&crate::x_trace::XTrace> {
        self.x_trace.as_ref()
    }

    /// The registry, which has the bounds and the counts.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// True if no application is registered.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes the baggage of a branch.
    #[must_use]
    pub fn split(&self, flow: &mut Baggage, now: u64) -> Baggage {
        self.call(flow, now, |application, flow| application.pre_split(flow));
        let mut branch = flow.split();
        self.call_with_both(flow, &mut branch, now, |application, flow, branch| {
            application.post_split(flow, branch);
        });
        branch
    }

    /// Merges a branch that ends here.
    pub fn merge(&self, flow: &mut Baggage, mut branch: Baggage, now: u64) {
        self.call_with_both(flow, &mut branch, now, |application, flow, branch| {
            application.pre_merge(flow, branch);
        });
        flow.merge(branch, &self.registry);
        self.call(flow, now, |application, flow| application.post_merge(flow));
    }

    /// The message of a flow that goes on in another process, of up to `limit` bytes.
    pub fn serialize(&self, flow: &mut Baggage, limit: usize, now: u64) -> Vec<u8> {
        self.call(flow, now, |application, flow| application.pre_serialize(flow));
        flow.serialize(limit, &self.registry)
    }

    /// Reads a message of another process: see [`Baggage::deserialize`].
    ///
    /// # Errors
    ///
    /// If the message is cut short, or a namespace or a slot has no key.
    pub fn deserialize(&self, message: &[u8], now: u64) -> Result<Baggage, WireError> {
        let mut flow = Baggage::deserialize(message, &self.registry)?;
        if !flow.is_empty() {
            self.call(&mut flow, now, |application, flow| application.post_deserialize(flow));
        }
        Ok(flow)
    }

    /// Calls one handler of each application.
    pub(crate) fn call(
        &self,
        flow: &mut Baggage,
        now: u64,
        handler: impl Fn(&dyn Application, &mut View<'_>),
    ) {
        for Registered { namespaces, application } in &self.all {
            let mut view = View { baggage: flow, own: namespaces, now };
            if self.panics(|| handler(&**application, &mut view)) {
                namespaces.iter().for_each(|namespace| flow.clear(namespace));
            }
        }
    }

    fn call_with_both(
        &self,
        flow: &mut Baggage,
        branch: &mut Baggage,
        now: u64,
        handler: impl Fn(&dyn Application, &mut View<'_>, &mut View<'_>),
    ) {
        for Registered { namespaces, application } in &self.all {
            let mut first = View { baggage: flow, own: namespaces, now };
            let mut second = View { baggage: branch, own: namespaces, now };
            if self.panics(|| handler(&**application, &mut first, &mut second)) {
                for namespace in namespaces {
                    flow.clear(namespace);
                    branch.clear(namespace);
                }
            }
        }
    }

    fn panics(&self, f: impl FnOnce()) -> bool {
        // After a panic the namespaces that the handler may have left half changed are removed.
        let panicked = catch_unwind(AssertUnwindSafe(f)).is_err();
        if panicked {
            self.registry.note_panic();
        }
        panicked
    }
}

impl fmt::Debug for Applications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces: Vec<_> = self.all.iter().map(|one| &one.namespaces).collect();
        f.debug_struct("Applications").field("namespaces", &namespaces).finish_non_exhaustive()
    }
}
