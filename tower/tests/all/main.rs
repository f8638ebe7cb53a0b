//! The integration tests of astracer-tower.

mod keep_header;
mod remote_parent;
