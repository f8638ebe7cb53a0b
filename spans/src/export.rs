//! Export: a bounded queue, and threads that convert records and call the destination.

mod convert;
mod list;
mod queue;
mod shared;
#[cfg(all(test, not(loom)))]
mod simulation;
mod worker;

pub use self::convert::{Converter, Extras, OWN_SCOPE, Source, own_scope};
#[cfg(all(test, loom))]
pub use self::queue::Work;
pub use self::queue::{Patience, Queue, QueueProgress, WaitError};
pub use self::shared::SharedDestination;
pub use self::worker::{Admission, Upkeep, Worker, Workers};
