//! Export: a bounded queue, and threads that convert records and call the destination.

mod convert;
mod list;
mod queue;
mod shared;
#[cfg(all(test, not(loom)))]
mod simulation;
mod ticket;
mod worker;

pub(crate) use self::convert::{Converter, Extras, Source, own_scope};
#[cfg(all(test, loom))]
pub(crate) use self::queue::Work;
pub(crate) use self::queue::{Patience, Queue, QueueProgress};
pub(crate) use self::shared::SharedDestination;
pub(crate) use self::ticket::WaitError;
pub(crate) use self::worker::{Admission, Upkeep, Worker, Workers};
