//! A tuning as one self-contained HTML page: the result, how it was found, and what it keeps and
//! misses.
//!
//! The page needs no network and no script. Each chart has its numbers in a table next to it.
//! Series differ by shape and letter as well as by colour. The page is readable on a phone and on
//! paper.

mod charts;
mod functions;
mod kept;
mod page;
mod roots;
mod trees;

use crate::curves::Curves;
use crate::held_out::HeldOut;
use crate::key_choice::KeyChoice;
use crate::tune::Tuning;
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
    /// The text of the parameters file.
    pub file: Option<&'a str>,
}

impl Report<'_> {
    /// Renders the page.
    pub fn html(&self) -> String {
        page::page(self)
    }
}

#[cfg(test)]
mod tests;
