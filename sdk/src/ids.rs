//! Trace and span ids: random, and cheap enough for every span.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;

use opentelemetry::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::IdGenerator;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use astracer_spans::panics::caught;
use astracer_spans::reentry::ReentryGuard;

/// Ids from a generator per thread, seeded by the operating system. They identify and sample, but
/// keep no secrets: an observer of some ids may predict others, as with the SDKs of Go and Java.
#[derive(Debug, Default)]
pub(crate) struct RandomIds;

thread_local!(static GENERATOR: RefCell<Option<SmallRng>> = const { RefCell::new(None) });

#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) custom: Option<Arc<dyn IdGenerator>>,
    /// Whether the low 56 bits of the user's trace ids are random.
    pub(crate) is_random: bool,
}

/// The `random` flag of W3C Trace Context level 2: the low 56 bits of the trace id are random.
pub(crate) const RANDOM: TraceFlags = TraceFlags::new(2);

impl Ids {
    #[inline]
    pub(crate) fn new_trace_id(&self) -> TraceId {
        let own = self.custom.as_ref().and_then(|ids| guarded(|| ids.new_trace_id()));
        own.filter(|id| *id != TraceId::INVALID).unwrap_or_else(|| RandomIds.new_trace_id())
    }

    #[inline]
    pub(crate) fn new_span_id(&self) -> SpanId {
        let own = self.custom.as_ref().and_then(|ids| guarded(|| ids.new_span_id()));
        own.filter(|id| *id != SpanId::INVALID).unwrap_or_else(|| RandomIds.new_span_id())
    }

    #[inline]
    pub(crate) fn flags(&self) -> TraceFlags {
        if self.custom.is_none() || self.is_random { RANDOM } else { TraceFlags::default() }
    }
}

thread_local!(static IN_GENERATOR: Cell<bool> = const { Cell::new(false) });

/// An id of the user's generator; `None` if it panics, which must not unwind into the service, or
/// if this thread is running it already: a span that it makes itself would call it again.
fn guarded<T>(f: impl FnOnce() -> T) -> Option<T> {
    let _guard = ReentryGuard::enter(&IN_GENERATOR)?;
    caught(|| Some(f()), |_| None)
}

/// A random number other than 0, because OpenTelemetry's ids of 0 are invalid.
#[inline]
fn random() -> u64 {
    let number = GENERATOR.try_with(|generator| {
        let mut generator = generator.borrow_mut();
        generator.get_or_insert_with(seeded).random::<NonZeroU64>().get()
    });
    // The generator has no destructor, so it exists as long as the thread and this fallback never
    // runs. `try_with` is used because `with` would not be inlined.
    number.unwrap_or_else(|_| seeded().next_u64().max(1))
}

#[cold]
fn seeded() -> SmallRng {
    // The fallback seed is random too, and cannot fail: the standard library seeds its hashers.
    SmallRng::try_from_os_rng()
        .unwrap_or_else(|_| SmallRng::seed_from_u64(RandomState::new().hash_one(std::thread::current().id())))
}

impl IdGenerator for RandomIds {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(u128::from(random()) << 64 | u128::from(random()))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(random())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_valid_and_differ_between_threads_too() {
        const IDS: usize = 1_000;
        let some =
            || (0..IDS).map(|_| (RandomIds.new_trace_id(), RandomIds.new_span_id())).collect::<Vec<_>>();
        let (own, other) = (some(), std::thread::spawn(some).join().unwrap());
        let all: Vec<_> = own.into_iter().chain(other).collect();
        assert!(all.iter().all(|(trace, span)| *trace != TraceId::INVALID && *span != SpanId::INVALID));
        assert_eq!(all.iter().map(|(trace, _)| trace).collect::<HashSet<_>>().len(), 2 * IDS);
        assert_eq!(all.iter().map(|(_, span)| span).collect::<HashSet<_>>().len(), 2 * IDS);
    }

    /// Samplers use the low 56 bits as randomness. A constant bit would show up in 1,000 ids.
    #[test]
    fn every_bit_of_a_trace_id_varies() {
        let ids: Vec<u128> =
            (0..1_000).map(|_| u128::from_be_bytes(RandomIds.new_trace_id().to_bytes())).collect();
        assert_eq!(ids.iter().fold(0, |ones, id| ones | id), u128::MAX);
        assert_eq!(ids.iter().fold(u128::MAX, |ones, id| ones & id), 0);
    }
}
