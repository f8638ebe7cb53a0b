//! Values of a namespace that stay in their own type until bytes are needed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::registry::Namespace;

/// A namespace's value of a type of its own, such as the tuples of a query.
///
/// In a message, the value is one value of the namespace's slot with the empty key. Where messages
/// are merged by a process that does not know the type, that slot has several values, and
/// [`Typed::read`] gets each of them.
pub trait Typed: Send + Sync + 'static {
    /// Makes the value of a branch.
    fn split(&mut self) -> Self
    where
        Self: Sized;

    /// Adds what a branch brings back.
    fn merge(&mut self, other: Self)
    where
        Self: Sized;

    /// Adds what [`Typed::write`] has written, here or in another process. Returns false if the
    /// bytes, which are untrusted, have no meaning.
    fn read(&mut self, bytes: &[u8]) -> bool;

    /// Writes the value in up to `limit` bytes; no bytes if there is nothing to write.
    fn write(&self, limit: usize) -> Vec<u8>;
}

/// The key of the slot that has a typed value's bytes.
pub(crate) const KEY: &[u8] = b"";

pub(crate) trait Erased: Send + Sync {
    fn split(&mut self) -> Box<dyn Erased>;
    fn merge(&mut self, other: Box<dyn Erased>);
    fn read(&mut self, bytes: &[u8]) -> bool;
    fn write(&self, limit: usize) -> Vec<u8>;
    fn is_same_type(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Typed> Erased for T {
    fn split(&mut self) -> Box<dyn Erased> {
        Box::new(Typed::split(self))
    }

    fn merge(&mut self, other: Box<dyn Erased>) {
        if self.is_same_type(other.as_any()) {
            if let Ok(other) = other.into_any().downcast::<T>() {
                Typed::merge(self, *other);
            }
        } else {
            let bytes = other.write(usize::MAX);
            Typed::read(self, &bytes);
        }
    }

    fn read(&mut self, bytes: &[u8]) -> bool {
        Typed::read(self, bytes)
    }

    fn write(&self, limit: usize) -> Vec<u8> {
        Typed::write(self, limit)
    }

    fn is_same_type(&self, other: &dyn Any) -> bool {
        other.is::<T>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub(crate) struct TypedValue {
    pub(crate) namespace: Namespace,
    pub(crate) value: Box<dyn Erased>,
}

/// Calls code of the namespace's owner. After a panic, which is counted, the result is `None`.
pub(crate) fn caught<R>(namespace: &Namespace, f: impl FnOnce() -> R) -> Option<R> {
    // Whatever the code was changing is dropped after a panic.
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_err() {
        namespace.registry().note_panic();
    }
    result.ok()
}
