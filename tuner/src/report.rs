//! A tuning as one self-contained HTML page: what was found, how it was found, and what it keeps
//! and misses.
//!
//! The page needs no network and no script. Charts have their numbers in a table beside them,
//! series are told apart by shape and letter as well as by colour, and it is readable on a phone
//! and on paper.

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
    /// The same, with its traces.
    pub workload: &'a Workload,
    /// The result of tuning; after a split, still for the whole workload.
    pub tuning: &'a Tuning,
    /// The rule that keys were made by.
    pub key: &'a str,
    /// The results of other keys.
    pub keys: Option<&'a KeyChoice>,
    /// On other recordings.
    pub validated: &'a [HeldOut],
    /// Samplers at several sizes.
    pub curves: Option<&'a Curves>,
    /// The parameters file.
    pub file: Option<&'a str>,
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        page::page(self)
    }
}

#[cfg(test)]
mod tests;
