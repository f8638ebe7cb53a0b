//! Panics of code that is the user's: keys, generators of ids, policies, exporters, subscribers.
//! They end where we call it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `f`; if it panics, that of `instead`, which sees what it panicked with.
pub(crate) fn caught<T>(f: impl FnOnce() -> T, instead: impl FnOnce(&(dyn Any + Send)) -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let result = instead(&*payload);
        // The payload is the user's too, and may panic when it is dropped; what it panics with then
        // is not dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
        result
    })
}

/// Warns the service, from a thread of ours. Its layers may count on what its own threads have,
/// such as a runtime, and panic here.
pub(crate) fn warn(tell: impl FnOnce()) {
    caught(tell, |_| ());
}
