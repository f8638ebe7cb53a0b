//! The integration tests of astracer-tower.

mod baggage;
mod bodies;
mod drawing;
mod keep_header;
mod names;
mod remote_parent;
mod servers;
