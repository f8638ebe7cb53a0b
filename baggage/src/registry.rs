//! The names of a process's namespaces, the right to use each of them, and the bounds on baggage.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The first characters of the names of this crate's own namespaces.
const RESERVED: &[u8] = b"astracer.";
/// The namespace that has the names of incomplete ones.
pub(crate) const TRIMMED: &[u8] = b"astracer.trimmed";
/// The smallest settable bound. The namespace [`TRIMMED`] without names takes 32 bytes.
const BYTES_MIN: usize = 64;

/// Bounds on the bytes of baggage, as a message has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    flow: usize,
    request: usize,
    response: usize,
}

impl Default for Limits {
    /// 16 KiB for a flow, 3,000 bytes in a request, 2 KiB in a response.
    fn default() -> Self {
        // Python's OpenTelemetry drops members above 4,096 characters: base64 makes 4,000 of 3,000.
        Limits { flow: 16 << 10, request: 3_000, response: 2 << 10 }
    }
}

impl Limits {
    /// Sets the bound of a flow in this process; 64 bytes at least.
    #[must_use]
    pub fn with_flow(self, bytes: usize) -> Self {
        Limits { flow: bytes.max(BYTES_MIN), ..self }
    }

    /// Sets the bound of a request to another process; 64 bytes at least.
    #[must_use]
    pub fn with_request(self, bytes: usize) -> Self {
        Limits { request: bytes.max(BYTES_MIN), ..self }
    }

    /// Sets the bound of a response to the calling process; 64 bytes at least.
    #[must_use]
    pub fn with_response(self, bytes: usize) -> Self {
        Limits { response: bytes.max(BYTES_MIN), ..self }
    }

    /// The bytes of a flow in this process.
    pub fn flow(&self) -> usize {
        self.flow
    }

    /// The bytes in a request to another process.
    pub fn request(&self) -> usize {
        self.request
    }

    /// The bytes in a response to the calling process.
    pub fn response(&self) -> usize {
        self.response
    }
}

/// The namespaces that this process uses, their priorities, and the bounds on all baggage.
///
/// Clones are the same registry.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Shared>);

/// Names of namespaces. A new list replaces it, so that readers hold no lock.
pub(crate) type LocalNames = Arc<[Arc<[u8]>]>;

#[derive(Debug)]
struct Shared {
    limits: Limits,
    names: RwLock<BTreeMap<Arc<[u8]>, i8>>,
    /// The namespaces that stay in this process.
    local: RwLock<LocalNames>,
    trims: AtomicU64,
    values: AtomicU64,
    panics: AtomicU64,
    refused: AtomicU64,
}

/// Names of namespaces; the first one that loses values is popped first.
pub(crate) type Ranked = BinaryHeap<(Reverse<i8>, Arc<[u8]>)>;

/// Losses of all baggage of a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Times that a bound was exceeded.
    pub trims: u64,
    /// Values that were removed to get back within a bound.
    pub values: u64,
    /// Panics of handlers and of typed values. Each removed its namespaces from one flow.
    pub panics: u64,
    /// Namespaces that arrived, but are local to this process.
    pub refused: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new(Limits::default())
    }
}

impl Registry {
    /// A registry without namespaces.
    pub fn new(limits: Limits) -> Self {
        Registry(Arc::new(Shared {
            limits,
            names: RwLock::default(),
            local: RwLock::new(LocalNames::from([])),
            trims: AtomicU64::new(0),
            values: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Registers a namespace. Only who has the token can read and change the namespace.
    ///
    /// If a bound is exceeded, values of the lowest priority are removed first. Namespaces that
    /// only pass through this process have priority 0.
    ///
    /// # Errors
    ///
    /// If the name is registered already, or begins with `astracer.`.
    pub fn register(&self, name: impl AsRef<[u8]>, priority: i8) -> Result<Namespace, NamespaceTaken> {
        let name: Arc<[u8]> = name.as_ref().into();
        let mut names = self.0.names.write().unwrap_or_else(PoisonError::into_inner);
        if name.starts_with(RESERVED) || names.contains_key(&name) {
            return Err(NamespaceTaken(name));
        }
        names.insert(name.clone(), priority);
        Ok(Namespace { name, registry: self.clone() })
    }

    /// Registers a namespace that stays in this process: no message carries it, and what arrives
    /// under its name is refused.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register).
    pub fn register_local(&self, name: impl AsRef<[u8]>, priority: i8) -> Result<Namespace, NamespaceTaken> {
        let namespace = self.register(name, priority)?;
        self.keep_local(&namespace);
        Ok(namespace)
    }

    /// Declares a namespace local.
    pub(crate) fn keep_local(&self, namespace: &Namespace) {
        let mut local = self.0.local.write().unwrap_or_else(PoisonError::into_inner);
        if !local.contains(&namespace.name) {
            *local = local.iter().cloned().chain([namespace.name.clone()]).collect();
        }
    }

    /// The namespaces that stay in this process, as they are now: typed values are written while
    /// these are in use, and may register a namespace.
    pub(crate) fn local(&self) -> LocalNames {
        self.0.local.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The token of a namespace of this crate.
    #[cfg(feature = "flows")]
    pub(crate) fn reserved(&self, name: &str, priority: i8) -> Namespace {
        let mut names = self.0.names.write().unwrap_or_else(PoisonError::into_inner);
        let known = names.get_key_value(name.as_bytes()).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name: Arc<[u8]> = name.as_bytes().into();
            names.insert(name.clone(), priority);
            name
        });
        Namespace { name, registry: self.clone() }
    }

    /// The bounds.
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Counts of what was lost so far.
    pub fn losses(&self) -> Losses {
        Losses {
            trims: self.0.trims.load(Ordering::Relaxed),
            values: self.0.values.load(Ordering::Relaxed),
            panics: self.0.panics.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
        }
    }

    /// The names in the order in which namespaces lose values.
    pub(crate) fn ranked<'n>(&self, names: impl Iterator<Item = &'n Arc<[u8]>>) -> Ranked {
        let priorities = self.0.names.read().unwrap_or_else(PoisonError::into_inner);
        let ranked = |name: &Arc<[u8]>| (Reverse(priorities.get(name).copied().unwrap_or(0)), name.clone());
        names.map(ranked).collect()
    }

    pub(crate) fn note_trim(&self, values: usize) {
        self.0.trims.fetch_add(1, Ordering::Relaxed);
        self.0.values.fetch_add(values as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_refused(&self, namespaces: usize) {
        self.0.refused.fetch_add(namespaces as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_panic(&self) {
        self.0.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// The right to read and change one namespace. Clones are the same right.
#[derive(Clone)]
pub struct Namespace {
    name: Arc<[u8]>,
    registry: Registry,
}

impl Namespace {
    /// The name, which messages carry.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.name, &other.name)
    }
}

impl Eq for Namespace {}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({})", self.name.escape_ascii())
    }
}

/// A name that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTaken(Arc<[u8]>);

impl fmt::Display for NamespaceTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.escape_ascii();
        if self.0.starts_with(RESERVED) {
            return write!(f, "the namespace '{name}' is reserved; choose a name without 'astracer.'");
        }
        write!(f, "the namespace '{name}' is already registered; share its token, or choose another name")
    }
}

impl std::error::Error for NamespaceTaken {}
