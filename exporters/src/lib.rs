//! Where kept spans go: OTLP, Zipkin, files and the console.
//!
//! What is not here: queues (a batch processor, or astracer-sdk's own worker, decides what to send when), sampling, and
//! printing: the console's output is a writer that the caller gives.
//!
//! ```text
//! SpanData -> Exporter -- model::Span --> Destination -> wire, file, terminal
//!             (of any OpenTelemetry SDK)  (Otlp, Zipkin, Files, Console: takes the model's spans, so also those of a
//!                                          recording; sends, counts, and says what to do about an error)
//! ```
//!
//! Each [`Destination`] works while its caller waits, and [`Exporter`] with it: it is made for the thread of a batch
//! processor, and blocks the executor of an asynchronous one. Beyond the batch that it is given it holds one request.
//!
//! What is sent, rejected and lost is counted by reason: see [`Counts`]. An [`ExportError`] names what went wrong and
//! what to do about it.
//!
//! ```
//! use astracer_exporters::{Exporter, Files};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let files = Files::builder(folder).rotate_bytes(64 << 20).total_bytes_max(1 << 30).open()?;
//! let exporter = Exporter::new(files);
//! let counts = exporter.counter();
//! // An exporter like any other: `SdkTracerProvider::builder().with_batch_exporter(exporter)`.
//! # drop(exporter);
//! assert_eq!(counts.read().lost.total(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod convert;
mod counts;
mod destination;
mod error;
mod exporter;
mod file;

pub use clock::{Clock, SystemClock};
pub use convert::{resource, spans};
pub use counts::{Counter, Counts, Lost};
pub use destination::{Delivery, Destination};
pub use error::{ErrorKind, ExportError};
pub use exporter::Exporter;
pub use file::{Compression as FileCompression, Files, FilesBuilder, Fsync, WhenFull};
