//! Numbers, names, charts and HTML pages formatted for people. Shared by the tuning report, the
//! pages of critical paths and comparisons, the drawing of events and the terminal's tables.
//!
//! Nothing here prints or writes files.

pub mod chart;
pub mod names;
pub mod numbers;
pub mod page;
