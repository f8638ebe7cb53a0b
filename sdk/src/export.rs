//! Export: a bounded queue, and a thread that converts records and calls the exporter.

mod convert;
mod queue;
mod worker;

pub(crate) use self::convert::Converter;
#[cfg(all(test, loom))]
pub(crate) use self::queue::Work;
pub(crate) use self::queue::{Queue, WaitError};
pub(crate) use self::worker::{Export, SharedExporter, Worker};
