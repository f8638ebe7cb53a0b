//! The container: namespaces with slots of values, shared between copies until one changes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::contents::{Contents, Slots, check, names};
use crate::registry::{Namespace, Registry};
use crate::trim;
use crate::typed::{Erased, KEY, Typed, TypedValue, caught};
use crate::wire::WireError;

/// Byte strings that travel with a request: namespaces, which have *slots*, which have sets of
/// values.
///
/// Instrumentation of forks, joins and messages calls [`split`](Self::split),
/// [`merge`](Self::merge), [`serialize`](Self::serialize) and [`deserialize`](Self::deserialize).
/// The other methods take a [`Namespace`] and see only that one.
///
/// An empty baggage has no memory of its own. Copies share theirs until one of them changes, and
/// what arrives stays bytes until somebody looks at it. A slot without values does not exist, nor
/// does a namespace without slots.
#[derive(Default)]
pub struct Baggage {
    held: Option<Arc<Held>>,
    typed: Vec<TypedValue>,
}

#[derive(Debug, Default)]
struct Held {
    received: Option<Received>,
    /// Empty while the contents are still what was received.
    own: Contents,
}

#[derive(Debug)]
struct Received {
    message: Box<[u8]>,
    is_canonical: bool,
    contents: OnceLock<Contents>,
}

impl Held {
    fn contents(&self) -> &Contents {
        self.received.as_ref().map_or(&self.own, Received::contents)
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Held { received: None, own: self.contents().clone() }
    }
}

impl Received {
    fn contents(&self) -> &Contents {
        // The message was checked when it arrived.
        self.contents.get_or_init(|| Contents::read(&self.message).unwrap_or_default())
    }
}

impl Baggage {
    /// An empty baggage.
    pub fn new() -> Self {
        Baggage::default()
    }

    /// Whether it has no namespaces.
    pub fn is_empty(&self) -> bool {
        self.held.is_none() && self.typed.is_empty()
    }

    /// Makes the equal baggage of a branch.
    #[must_use]
    pub fn split(&mut self) -> Baggage {
        let mut typed = Vec::with_capacity(self.typed.len());
        let mut failed = Vec::new();
        for TypedValue { namespace, value } in &mut self.typed {
            let namespace = namespace.clone();
            match caught(&namespace, || value.split()) {
                Some(value) => typed.push(TypedValue { namespace, value }),
                None => failed.push(namespace),
            }
        }
        failed.iter().for_each(|namespace| self.clear(namespace));
        Baggage { held: self.held.clone(), typed }
    }

    /// Unites this with the baggage of a branch that ends here.
    pub fn merge(&mut self, other: Baggage, registry: &Registry) {
        for TypedValue { namespace, value } in other.typed {
            self.absorb(&namespace, value);
        }
        let Some(theirs) = other.held else { return };
        match &self.held {
            None => self.held = Some(theirs),
            Some(ours) if Arc::ptr_eq(ours, &theirs) => return,
            Some(_) => self.change(|contents| {
                contents.merge(theirs.contents());
                trim::trim(contents, registry.limits().flow(), registry);
            }),
        }
        self.read_arrived();
    }

    /// The message of a flow that goes on in another process. Local namespaces
    /// ([`Registry::register_local`]) are left out. Values go until it has at most `limit` bytes;
    /// see [`is_complete`](Self::is_complete).
    pub fn serialize(&self, limit: usize, registry: &Registry) -> Vec<u8> {
        let held = self.held.as_deref();
        let local = registry.local();
        let is_local = |name: &[u8]| contains(&local, name);
        if self.typed.is_empty() {
            match held {
                None => return Vec::new(),
                Some(Held { received: Some(received), .. })
                    if received.is_canonical
                        && received.message.len() <= limit
                        && !names(&received.message).any(is_local) =>
                {
                    return received.message.to_vec();
                }
                Some(held)
                    if held.contents().bytes() <= limit
                        && !held.contents().names().any(|name| is_local(name)) =>
                {
                    return held.contents().write();
                }
                Some(_) => {}
            }
        }
        let mut contents = held.map(|held| held.contents().clone()).unwrap_or_default();
        for name in local.iter() {
            contents.take(name);
        }
        for TypedValue { namespace, value } in
            self.typed.iter().filter(|typed| !is_local(typed.namespace.name()))
        {
            match caught(namespace, || value.write(limit)) {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => contents.add(namespace.name(), KEY, &bytes),
                None => drop(contents.take(namespace.name())),
            }
        }
        trim::trim(&mut contents, limit, registry);
        contents.write()
    }

    /// Reads a message of another process. It may be empty.
    ///
    /// Unknown fields are skipped, and what is repeated is united. Local namespaces of this process
    /// are refused, and counted. Values go until the baggage has at most the bytes of a flow.
    ///
    /// # Errors
    ///
    /// If the message is cut short, or a namespace or a slot has no key. Nothing of it is used
    /// then.
    pub fn deserialize(message: &[u8], registry: &Registry) -> Result<Baggage, WireError> {
        let checked = check(message)?;
        if checked.is_empty {
            return Ok(Baggage::new());
        }
        let limit = registry.limits().flow();
        let local = registry.local();
        let refused = names(message).filter(|name| contains(&local, name)).count();
        let held = if refused > 0 {
            registry.note_refused(refused);
            let mut own = Contents::read(message)?;
            local.iter().for_each(|name| drop(own.take(name)));
            trim::trim(&mut own, limit, registry);
            if own.is_empty() {
                return Ok(Baggage::new());
            }
            Held { received: None, own }
        } else if message.len() <= limit {
            let is_canonical = checked.is_canonical;
            let received = Received { message: message.into(), is_canonical, contents: OnceLock::new() };
            Held { received: Some(received), own: Contents::default() }
        } else {
            let mut own = Contents::read(message)?;
            trim::trim(&mut own, limit, registry);
            Held { received: None, own }
        };
        Ok(Baggage { held: Some(Arc::new(held)), typed: Vec::new() })
    }

    /// Whether no value was removed by a bound, here or in a process before.
    pub fn is_complete(&self) -> bool {
        self.contents().is_none_or(|contents| trim::trimmed(contents).is_none())
    }

    /// The namespaces that lost a value to a bound. Not all of them, if they are many.
    pub fn trimmed(&self) -> impl Iterator<Item = &[u8]> {
        self.contents().and_then(trim::trimmed).into_iter().flatten()
    }

    /// The names of all namespaces, in byte order.
    pub fn namespaces(&self) -> impl Iterator<Item = &[u8]> {
        let mut names: Vec<&[u8]> =
            self.contents().into_iter().flat_map(Contents::names).map(|name| &**name).collect();
        names.extend(self.typed.iter().map(|typed| typed.namespace.name()));
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// The keys of a namespace, in byte order.
    pub fn keys(&self, namespace: &Namespace) -> impl Iterator<Item = &[u8]> {
        self.slots(namespace).into_iter().flat_map(Slots::iter).map(|(key, _)| key)
    }

    /// The values of a slot, in byte order.
    pub fn get(&self, namespace: &Namespace, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.slots(namespace).into_iter().flat_map(move |slots| slots.values(key))
    }

    /// Whether a slot has values.
    pub fn has(&self, namespace: &Namespace, key: &[u8]) -> bool {
        self.slots(namespace).is_some_and(|slots| slots.has(key))
    }

    /// Adds a value to a slot.
    ///
    /// If the baggage exceeds its bound then, values of less priority go, or this one does. One
    /// that takes more than three quarters of the bound is not added.
    pub fn add(&mut self, namespace: &Namespace, key: &[u8], value: &[u8]) {
        let registry = namespace.registry();
        let limit = registry.limits().flow();
        self.change(|contents| trim::add(contents, (namespace.name(), key, value), limit, registry));
    }

    /// Gives a slot these values instead of its own; without values, removes it. Bounds are those
    /// of [`add`](Self::add).
    pub fn replace<'v>(
        &mut self,
        namespace: &Namespace,
        key: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        self.remove(namespace, key);
        values.into_iter().for_each(|value| self.add(namespace, key, value));
    }

    /// Removes a slot.
    pub fn remove(&mut self, namespace: &Namespace, key: &[u8]) {
        if self.has(namespace, key) {
            self.change(|contents| contents.remove(namespace.name(), key));
        }
    }

    /// Removes all slots of a namespace, and its typed value.
    pub fn clear(&mut self, namespace: &Namespace) {
        if self.slots(namespace).is_some() {
            self.change(|contents| contents.take(namespace.name()));
        }
        self.take_typed(namespace);
    }

    /// Moves the slots of a namespace, and its typed value, to another one, with which they are
    /// united.
    pub fn move_to(&mut self, namespace: &Namespace, to: &Namespace) {
        if namespace.name() == to.name() {
            return;
        }
        if let Some(value) = self.take_typed(namespace) {
            self.absorb(to, value);
        }
        if self.slots(namespace).is_some() {
            let registry = to.registry();
            self.change(|contents| {
                let Some(slots) = contents.take(namespace.name()) else { return };
                if trim::is_noted(contents, namespace.name()) {
                    trim::note(contents, to.name(), registry.limits().flow());
                }
                let mut moved = Contents::default();
                moved.put(to.name(), slots);
                contents.merge(&moved);
                trim::trim(contents, registry.limits().flow(), registry);
            });
        }
    }

    /// Runs `f` on the typed value of a namespace, which `make` makes if there is none. What
    /// arrived as bytes becomes part of the value.
    ///
    /// If `f` panics, the value is gone.
    pub fn with_typed<T: Typed, R>(
        &mut self,
        namespace: &Namespace,
        make: impl FnOnce() -> T,
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut value = match self.take_typed(namespace).map(|known| known.into_any().downcast::<T>()) {
            Some(Ok(known)) => known,
            _ => Box::new(make()),
        };
        self.read_slots(namespace, &mut *value);
        let result = f(&mut value);
        self.put_typed(namespace, Some(value));
        result
    }

    /// Whether bytes are a message.
    #[cfg(feature = "flows")]
    pub(crate) fn is_message(bytes: &[u8]) -> bool {
        check(bytes).is_ok()
    }

    /// The keys of a namespace of which no message is: none if this is a message that was not taken
    /// apart.
    #[cfg(feature = "flows")]
    pub(crate) fn keys_set(&self, namespace: &Namespace) -> impl Iterator<Item = &[u8]> {
        let held = self.held.as_deref().filter(|held| held.received.is_none());
        let slots = held.and_then(|held| held.own.slots(namespace.name()));
        slots.into_iter().flat_map(Slots::iter).map(|(key, _)| key)
    }

    /// The first value of a slot that this process has set; not one of a message that was not taken
    /// apart.
    #[cfg(feature = "flows")]
    pub(crate) fn get_set(&self, namespace: &Namespace, key: &[u8]) -> Option<&[u8]> {
        let held = self.held.as_deref().filter(|held| held.received.is_none())?;
        held.own.slots(namespace.name())?.values(key).next()
    }

    /// A copy without typed values. Runs no code of applications.
    #[cfg(feature = "flows")]
    pub(crate) fn share(&self) -> Baggage {
        Baggage { held: self.held.clone(), typed: Vec::new() }
    }

    /// Lends the baggage to code that must not run under the lock of this one: a copy, with the
    /// typed values themselves.
    #[cfg(feature = "flows")]
    pub(crate) fn lend(&mut self) -> Lent {
        let typed = std::mem::take(&mut self.typed);
        Lent { before: self.held.clone(), baggage: Baggage { held: self.held.clone(), typed } }
    }

    /// Applies what has changed in lent baggage. Runs no code of applications.
    ///
    /// If this has got typed values meanwhile, they are lent as well. Unite both, and call this
    /// again.
    #[cfg(feature = "flows")]
    pub(crate) fn restore(&mut self, lent: &mut Lent, registry: &Registry) -> Option<Lent> {
        let (before, after) = (lent.before.take(), lent.baggage.held.take());
        if is_same(&self.held, &before) {
            self.held = after;
        } else if !is_same(&before, &after) {
            let empty = Contents::default();
            let of = |held: &Option<Arc<Held>>| held.as_deref().map(|held| held.contents().clone());
            let (before, after) = (of(&before), of(&after));
            self.change(|contents| {
                contents.apply(before.as_ref().unwrap_or(&empty), after.as_ref().unwrap_or(&empty));
                trim::trim(contents, registry.limits().flow(), registry);
            });
        }
        if !self.typed.is_empty() && !lent.baggage.typed.is_empty() {
            return Some(self.lend());
        }
        self.typed.append(&mut lent.baggage.typed);
        None
    }

    fn contents(&self) -> Option<&Contents> {
        self.held.as_deref().map(Held::contents)
    }

    fn slots(&self, namespace: &Namespace) -> Option<&Slots> {
        self.contents()?.slots(namespace.name())
    }

    /// Changes a copy of the contents that nobody shares.
    fn change<R>(&mut self, f: impl FnOnce(&mut Contents) -> R) -> R {
        let held = Arc::make_mut(self.held.get_or_insert_default());
        if let Some(mut received) = held.received.take() {
            held.own = match received.contents.take() {
                Some(contents) => contents,
                None => Contents::read(&received.message).unwrap_or_default(),
            };
        }
        let result = f(&mut held.own);
        if held.own.is_empty() {
            self.held = None;
        }
        result
    }

    fn take_typed(&mut self, namespace: &Namespace) -> Option<Box<dyn Erased>> {
        let index = self.typed.iter().position(|typed| typed.namespace == *namespace)?;
        Some(self.typed.swap_remove(index).value)
    }

    /// Unites a typed value with that of the namespace.
    fn absorb(&mut self, namespace: &Namespace, mut value: Box<dyn Erased>) {
        let value = match self.take_typed(namespace) {
            Some(mut known) => caught(namespace, || known.merge(value)).map(|()| known),
            None => caught(namespace, || self.read_slots(namespace, &mut *value)).map(|()| value),
        };
        self.put_typed(namespace, value);
    }

    /// Adds the bytes of values whose type is known to those values.
    fn read_arrived(&mut self) {
        for TypedValue { namespace, mut value } in std::mem::take(&mut self.typed) {
            let read = caught(&namespace, || self.read_slots(&namespace, &mut *value));
            self.put_typed(&namespace, read.map(|()| value));
        }
    }

    /// `None`: the owner's code has panicked.
    fn put_typed(&mut self, namespace: &Namespace, value: Option<Box<dyn Erased>>) {
        match value {
            Some(value) => self.typed.push(TypedValue { namespace: namespace.clone(), value }),
            None => self.clear(namespace),
        }
    }

    fn read_slots(&mut self, namespace: &Namespace, value: &mut dyn Erased) {
        if self.has(namespace, KEY) {
            let mut unread = 0_usize;
            for bytes in self.get(namespace, KEY) {
                unread += usize::from(!value.read(bytes));
            }
            self.remove(namespace, KEY);
            if unread > 0 {
                self.change(|contents| trim::lose(contents, namespace.name(), unread, namespace.registry()));
            }
        }
    }
}

/// Baggage that was lent.
#[cfg(feature = "flows")]
#[derive(Default)]
pub(crate) struct Lent {
    before: Option<Arc<Held>>,
    pub(crate) baggage: Baggage,
}

#[cfg(feature = "flows")]
impl Lent {
    /// Unites the typed values of two lent ones.
    pub(crate) fn unite(&mut self, mut other: Lent) {
        for TypedValue { namespace, value } in std::mem::take(&mut self.baggage.typed) {
            other.baggage.absorb(&namespace, value);
        }
        *self = other;
    }
}

#[cfg(feature = "flows")]
fn is_same(one: &Option<Arc<Held>>, other: &Option<Arc<Held>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl fmt::Debug for Baggage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for name in self.contents().into_iter().flat_map(Contents::names) {
            for (key, values) in
                self.contents().and_then(|contents| contents.slots(name)).into_iter().flat_map(Slots::iter)
            {
                let key = format_args!("{}/{}", name.escape_ascii(), key.escape_ascii()).to_string();
                map.entry(&key, &values.map(|value| value.escape_ascii().to_string()).collect::<Vec<_>>());
            }
        }
        map.finish()
    }
}

fn contains(names: &[Arc<[u8]>], name: &[u8]) -> bool {
    names.iter().any(|own| **own == *name)
}
