//! Sums by tenant and resource, over all requests.
//!
//! The sums do not depend on the sampler: they are of local roots and flows, which every request
//! has, and never of other spans, which dropped requests may lack.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tracing::Metadata;
use tracing::callsite::Identifier;

/// Sums of one tenant's use of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantRow {
    /// The tenant's name; `(none)` for requests without one, `(mixed)` for those that served
    /// several, `(others)` for those beyond the bound on rows.
    pub tenant: String,
    /// The name of the requests' local roots, or that of [`flow::consume`](crate::flow::consume);
    /// `(others)` beyond the bound on rows.
    pub resource: String,
    /// Local roots that have ended, or calls of `consume`.
    pub calls: u64,
    /// Local roots that failed: an error on the root itself, a panic, or an event of level ERROR in
    /// the request.
    pub errors: u64,
    /// The time from the beginning of the roots to their ends, in nanoseconds.
    pub wall_ns: u64,
    /// The time in which a thread worked on the requests, all branches included, in nanoseconds.
    pub on_thread_ns: u64,
    /// The part of `wall_ns` in which no thread worked on the request's own line of control: it
    /// waited for a branch, a call, a lock or the scheduler, in nanoseconds.
    pub waiting_ns: u64,
    /// The sum of the amounts given to `consume`.
    pub consumed: u64,
}

/// A callsite at which flows of different tenants were united.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MixedTenants {
    /// The name of the span in which the flows were united; empty outside of spans.
    pub name: &'static str,
    /// The file of that span, if the callsite has one.
    pub file: Option<&'static str>,
    /// The line, if the callsite has one.
    pub line: Option<u32>,
    /// The times.
    pub count: u64,
}

/// Sums of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantSums {
    /// The rows, ordered by tenant and resource.
    pub rows: Vec<TenantRow>,
    /// Where flows of different tenants were united, the most frequent first.
    pub mixed: Vec<MixedTenants>,
}

/// Rows up to which tenants and resources are told apart.
const ROWS_MAX: usize = 10_000;
/// Names that are kept, of tenants and of resources. More are stored anew with each flow.
const NAMES_MAX: usize = 20_000;
/// Longer names of tenants are cut, in bytes.
const NAME_MAX: usize = 256;
const SHARDS: usize = 16;

pub(crate) const NONE: &str = "(none)";
pub(crate) const MIXED: &str = "(mixed)";
pub(crate) const OTHERS: &str = "(others)";

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) wall: u64,
    pub(crate) on_thread: u64,
    pub(crate) waiting: u64,
    pub(crate) consumed: u64,
}

type Rows = HashMap<(Arc<str>, Arc<str>), Sums>;

/// The table of sums, and the member of the baggage that names the tenant.
#[derive(Debug)]
pub(crate) struct Tenants {
    pub(crate) member: String,
    shards: [Mutex<Rows>; SHARDS],
    count: AtomicUsize,
    overflow: Mutex<Sums>,
    names: RwLock<HashSet<Arc<str>>>,
    mixed: Mutex<HashMap<Option<Identifier>, MixedTenants>>,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        let sum = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        sum(&mut self.calls, other.calls);
        sum(&mut self.errors, other.errors);
        sum(&mut self.wall, other.wall);
        sum(&mut self.on_thread, other.on_thread);
        sum(&mut self.waiting, other.waiting);
        sum(&mut self.consumed, other.consumed);
    }

    fn row(&self, tenant: &str, resource: &str) -> TenantRow {
        TenantRow {
            tenant: tenant.to_owned(),
            resource: resource.to_owned(),
            calls: self.calls,
            errors: self.errors,
            wall_ns: self.wall,
            on_thread_ns: self.on_thread,
            waiting_ns: self.waiting,
            consumed: self.consumed,
        }
    }
}

impl Tenants {
    pub(crate) fn new(member: String) -> Self {
        Tenants {
            member,
            shards: Default::default(),
            count: AtomicUsize::new(0),
            overflow: Mutex::default(),
            names: RwLock::default(),
            mixed: Mutex::default(),
        }
    }

    /// A shared copy of a name.
    pub(crate) fn name(&self, name: &str) -> Arc<str> {
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        known.unwrap_or_else(|| {
            let name: Arc<str> = name.into();
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            if names.len() < NAMES_MAX {
                names.insert(name.clone());
            }
            name
        })
    }

    /// The name of a tenant as a caller states it. The names of our own rows are nobody's.
    pub(crate) fn tenant(&self, stated: &str) -> Arc<str> {
        let end = (0..=stated.len().min(NAME_MAX)).rev().find(|end| stated.is_char_boundary(*end));
        match &stated[..end.unwrap_or_default()] {
            NONE | MIXED => self.name(OTHERS),
            "" => self.name(NONE),
            tenant => self.name(tenant),
        }
    }

    pub(crate) fn add(&self, tenant: &Arc<str>, resource: &Arc<str>, sums: &Sums) {
        let key = (tenant.clone(), resource.clone());
        let mut rows = lock(&self.shards[shard(tenant, resource)]);
        if let Some(row) = rows.get_mut(&key) {
            return row.add(sums);
        }
        let more = |count: usize| (count < ROWS_MAX).then_some(count + 1);
        if self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            rows.insert(key, *sums);
        } else {
            drop(rows);
            lock(&self.overflow).add(sums);
        }
    }

    /// Notes that flows of different tenants were united in this span.
    pub(crate) fn note_mixed(&self, place: Option<&'static Metadata<'static>>) {
        let mut mixed = lock(&self.mixed);
        let known = mixed.entry(place.map(Metadata::callsite)).or_insert_with(|| MixedTenants {
            name: place.map_or("", Metadata::name),
            file: place.and_then(Metadata::file),
            line: place.and_then(Metadata::line),
            count: 0,
        });
        known.count += 1;
    }

    pub(crate) fn sums(&self) -> TenantSums {
        let mut rows = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            rows.extend(shard.iter().map(|((tenant, resource), sums)| sums.row(tenant, resource)));
        }
        rows.sort_by(|a, b| (&a.tenant, &a.resource).cmp(&(&b.tenant, &b.resource)));
        let overflow = *lock(&self.overflow);
        if overflow.calls + overflow.on_thread > 0 {
            rows.push(overflow.row(OTHERS, OTHERS));
        }
        let mut mixed: Vec<MixedTenants> = lock(&self.mixed).values().cloned().collect();
        mixed.sort_by_key(|place| (std::cmp::Reverse(place.count), place.file, place.line, place.name));
        TenantSums { rows, mixed }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that serve different tenants or routes seldom wait for each other.
fn shard(tenant: &str, resource: &str) -> usize {
    let bytes = tenant.bytes().chain(resource.bytes());
    bytes.fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_call() -> Sums {
        Sums { calls: 1, ..Sums::default() }
    }

    #[test]
    fn a_million_tenants_take_ten_thousand_rows() {
        let tenants = Tenants::new("tenant.id".to_owned());
        let resource = tenants.name("GET /");
        for number in 0..1_000_000 {
            tenants.add(&tenants.tenant(&number.to_string()), &resource, &one_call());
        }
        let rows = tenants.sums().rows;
        assert_eq!(rows.len(), ROWS_MAX + 1);
        assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), 1_000_000);
        let last = rows.last().unwrap();
        assert_eq!((&*last.tenant, last.calls), (OTHERS, 990_000));
        assert_eq!(tenants.names.read().unwrap().len(), NAMES_MAX);
    }

    #[test]
    fn nobody_is_called_like_our_rows() {
        let tenants = Tenants::new(String::new());
        let named = ["(mixed)", "(none)", "", "a"].map(|stated| tenants.tenant(stated).to_string());
        assert_eq!(named, ["(others)", "(others)", "(none)", "a"]);
        let long = "é".repeat(200);
        assert_eq!(*tenants.tenant(&long), *"é".repeat(128));
    }
}
