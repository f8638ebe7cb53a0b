//! A tuning as one self-contained HTML page: the result, how it was found, and what it keeps and
//! misses.
//!
//! Each chart has its numbers beside it or in a table. Lines have their names at their ends.

mod charts;
mod figures;
mod functions;
mod kept;
mod page;
mod roots;
mod samplers;
mod strata;
mod trees;

use astracer_report::page::Next;

use crate::curves::Curves;
use crate::held_out::HeldOut;
use crate::key_choice::KeyChoice;
use crate::tail::TailSummary;
use crate::tune::{StrataTuning, Tuning};
use crate::workload::Workload;

/// The contents of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The recording's name, for the title.
    pub title: &'a str,
    /// The whole recording, even if the time was split for tuning.
    pub workload: &'a Workload,
    /// The result of tuning.
    pub tuning: &'a Tuning,
    /// The rule that made the keys.
    pub key: &'a str,
    /// The results with other keys.
    pub keys: Option<&'a KeyChoice>,
    /// The results on other recordings.
    pub validated: &'a [HeldOut],
    /// Samplers at several sizes.
    pub curves: Option<&'a Curves>,
    /// The decisions at the end of traces, if late policies were replayed.
    pub late: Option<&'a TailSummary>,
    /// The strata in the parameters file, if it has any: they decide in place of the sampler that
    /// was tuned.
    pub strata: Option<&'a StrataTuning>,
    /// The text of the parameters file.
    pub file: Option<&'a str>,
    /// Commands to run next.
    pub next: &'a [Next],
}

impl Report<'_> {
    /// Renders the page.
    pub fn html(&self) -> String {
        page::page(self)
    }
}

#[cfg(test)]
mod tests;
