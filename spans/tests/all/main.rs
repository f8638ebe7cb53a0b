//! The integration tests of astracer-spans. Spans come from a service that is traced by the layer
//! of astracer-sdk, as in every use of this crate.

mod queue;
mod ring;
