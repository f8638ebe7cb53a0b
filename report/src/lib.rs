//! Numbers, names and HTML pages formatted for people. Shared by the tuning report, the page of
//! critical paths, the drawing of events and the terminal's tables.
//!
//! Nothing here prints or writes files.

pub mod names;
pub mod numbers;
pub mod page;
