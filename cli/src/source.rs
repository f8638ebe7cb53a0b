//! Arguments that commands share: which recording to read, and how.

use std::path::PathBuf;

use astracer_model::Format;
use astracer_recording::source::{Limits, Options};
use astracer_samplers::Template;
use clap::{Args as ClapArgs, ValueEnum};

use crate::values::size;

/// Which recording, and how to read it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Source {
    /// Files, folders or archives (tar, gz, xz, zst) of recorded traces; - reads standard input.
    #[arg(required = true, value_name = "WORKLOAD")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Whether to fold ids in names (`read(1073742055)` becomes `read(*)`), or to leave names raw.
    #[arg(long, value_enum, default_value_t = Names::Template, help_heading = "Reading")]
    pub(crate) names: Names,

    /// What to fold: digits=N (runs of N or more digits), hex=N (hexadecimal runs that hold a digit), uuid.
    #[arg(long, value_name = "RULES", default_value = "digits=3,hex=8,uuid", value_parser = fold_rules)]
    #[arg(help_heading = "Reading")]
    pub(crate) fold: Template,
}

/// How to read files, whichever they are.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Reading {
    /// The format of the files, instead of finding it from their content: otlp-json, otlp-proto, jaeger-json,
    /// zipkin-json, htrace, nezha-csv.
    #[arg(long, value_name = "FORMAT", help_heading = "Reading")]
    pub(crate) format: Option<Format>,

    /// Fail if any part of the input can't be used, instead of going on with the rest.
    #[arg(long, help_heading = "Reading")]
    pub(crate) strict: bool,

    /// Stop reading when the input has expanded to this size (a bomb in an archive): bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "64GB", value_parser = size, help_heading = "Reading")]
    pub(crate) expanded_max: u64,
}

impl Reading {
    /// The same for the model's front door.
    pub(crate) fn options(&self) -> Options {
        let limits = Limits { expanded_bytes_max: self.expanded_max, ..Limits::default() };
        Options { format: self.format, limits }
    }
}

/// What becomes of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Names {
    /// Ids are folded.
    Template,
    /// As recorded.
    Raw,
}

/// Reads "digits=3,hex=8,uuid": rules that are not named are off.
fn fold_rules(text: &str) -> Result<Template, String> {
    let mut template = Template::RAW;
    for rule in text.split(',') {
        let wrong = || {
            format!("'{rule}' is no rule: write digits=N, hex=N or uuid (N at least 1), separated by commas")
        };
        let length =
            |text: &str| text.parse().ok().filter(|&length: &usize| length > 0).ok_or_else(wrong).map(Some);
        template = match rule.split_once('=') {
            Some(("digits", min)) => template.digits(length(min)?),
            Some(("hex", min)) => template.hex(length(min)?),
            None if rule == "uuid" => template.uuids(true),
            _ => return Err(wrong()),
        };
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_rules_add_up_and_others_are_refused() {
        assert_eq!(fold_rules("digits=3,hex=8,uuid"), Ok(Template::default()));
        assert_eq!(fold_rules("digits=1"), Ok(Template::RAW.digits(Some(1))));
        for wrong in ["", "digits", "digits=0", "hex=x", "uuid=1", "digits=3,", "words"] {
            assert!(fold_rules(wrong).is_err(), "{wrong}");
        }
    }
}
