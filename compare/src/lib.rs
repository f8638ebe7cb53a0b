//! Comparison of good and bad traces: which events and values differ between the two classes.
//!
//! The method is that of K. Nagaraj, C. Killian and J. Neville, "Structured Comparative Analysis of
//! Systems Logs to Diagnose Performance Problems" (NSDI 2012), called DISTALYZER. An [instance] is
//! one run of a request. Its log lines and spans are *events*, which have times, and *states*,
//! which have times and values. Each variable is summarised by a few [features], and each feature
//! is compared between the classes by Welch's t-test.
//!
//! ```text
//! traces, logs, instances file -> Instances -> Sample (features of all instances) -> Sums, tests -> Ranked
//! ```
//!
//! [instance]: instances::Head
//! [features]: features::Feature

pub mod chance;
pub mod choice;
pub mod comparison;
pub mod details;
mod explained;
pub mod features;
pub mod file;
pub mod instances;
pub mod logs;
pub mod metrics;
pub mod mix;
pub mod moments;
pub mod network;
pub mod page;
pub mod pairs;
pub mod placebos;
mod presence;
pub mod ranking;
pub mod runs;
pub mod sample;
pub mod singles;
pub mod student;
pub mod tails;
mod templates;
pub mod traces;
pub mod typed;
mod unseen;
pub mod welch;
pub mod words;
mod writer;
