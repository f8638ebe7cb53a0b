//! Catches panics of the user's code (keys, id generators, policies, exporters, subscribers) where
//! this crate calls it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `f`. If `f` panics, the result of `instead`, which gets the panic's payload.
pub fn caught<T>(f: impl FnOnce() -> T, instead: impl FnOnce(&(dyn Any + Send)) -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let result = instead(&*payload);
        // The payload is the user's too, and may panic when it is dropped. The payload of that
        // second panic is leaked, since dropping it could panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
        result
    })
}

/// Emits a warning from one of our threads. The service's layers may need something that only its
/// own threads have, such as a runtime, and panic here.
pub fn warn(report: impl FnOnce()) {
    caught(report, |_| ());
}
