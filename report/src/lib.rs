//! Numbers, names and pages as people read them: the parts that the report of a tuning, the page of
//! critical paths, the drawing of events and the terminal's tables share.
//!
//! Nothing here prints or writes files.

pub mod names;
pub mod numbers;
pub mod page;
