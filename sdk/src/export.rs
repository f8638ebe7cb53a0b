//! Export: a bounded queue, and threads that convert records and call the exporter.

mod convert;
mod exporter;
mod list;
mod queue;
#[cfg(all(test, not(loom)))]
mod simulation;
mod ticket;
mod worker;

pub(crate) use self::convert::{Converter, Extras, own_scope};
pub(crate) use self::exporter::{Counting, Export, Plain, Refused, SharedExporter};
pub use self::exporter::{CountingExporter, Exported};
#[cfg(all(test, loom))]
pub(crate) use self::queue::Work;
pub(crate) use self::queue::{Patience, Queue, QueueProgress};
pub(crate) use self::ticket::WaitError;
pub(crate) use self::worker::{Upkeep, Worker, Workers};
