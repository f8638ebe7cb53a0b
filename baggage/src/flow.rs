//! The current flow: functions for code that works on a request.

use std::fmt;

use crate::baggage::Baggage;
use crate::flows::FlowRef;

/// Sets a member of the request's baggage, as if the caller had sent it. It becomes an attribute of
/// kept spans that begin from now on, if `Builder::with_baggage_attributes` of the SDK names it.
///
/// A branch inherits members. Where it is joined, it brings those that the flow does not have.
///
/// # Errors
///
/// [`OutsideRequest`] if the thread is in no flow.
pub fn set(key: &str, value: &str) -> Result<(), OutsideRequest> {
    here().map(|flow| flow.set_member(key, value))
}

/// The value that [`set`] has set; `None` if it has not, also outside of a request.
pub fn get(key: &str) -> Option<String> {
    here().ok()?.member(key)
}

/// Adds to the sums of the request's tenant under a resource of the service's own, such as
/// `consume("disk.read", bytes)`. Does nothing without `Applications::with_tenants`.
///
/// # Errors
///
/// [`OutsideRequest`] if the thread is in no flow.
pub fn consume(resource: &str, amount: u64) -> Result<(), OutsideRequest> {
    here().map(|flow| flow.consume(resource, amount))
}

/// Runs `f` on the baggage of the current flow. Other threads in the flow may change it meanwhile;
/// the changes of both are kept.
///
/// # Errors
///
/// [`OutsideRequest`] if the thread is in no flow.
pub fn with<R>(f: impl FnOnce(&mut Baggage) -> R) -> Result<R, OutsideRequest> {
    here().map(|flow| flow.with(f))
}

fn here() -> Result<FlowRef, OutsideRequest> {
    FlowRef::current().ok_or(OutsideRequest(()))
}

/// The thread is in no flow: outside of a request's root span, or in a task that was spawned
/// without `.branch()` and has not entered a span of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideRequest(());

impl fmt::Display for OutsideRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "outside of any request: call this inside a request's span, and give spawned tasks a `.branch()`",
        )
    }
}

impl std::error::Error for OutsideRequest {}
