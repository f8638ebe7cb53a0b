//! Arguments that commands share: which recordings to read, and how.

use std::path::{Path, PathBuf};

use astracer_formats as records;
use astracer_formats::logs::{self, Given, Zone};
use astracer_model::{Format, Limit};
use astracer_recording::source::{Limits, Options};
use astracer_samplers::Template;
use clap::{Args as ClapArgs, ValueEnum};

use crate::bounded::read_input;
use crate::failure::Failure;
use crate::identity::printed_apart;
use crate::values::size;

/// Which recording, and how to read it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Source {
    /// Recordings to read: files, folders or archives (tar, gz, xz, zst); - reads standard input.
    #[arg(required = true, value_name = "RECORDING")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: Reading,

    #[command(flatten)]
    pub(crate) naming: Naming,
}

/// The names of spans: folded or raw.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Naming {
    /// Fold ids in names (`read(1073742055)` becomes `read(*)`), or keep the names raw.
    #[arg(long, value_enum, default_value_t = Names::Template, help_heading = "Reading")]
    pub(crate) names: Names,

    /// Ids to fold: digits=N (N or more digits), hex=N (N or more hexadecimal digits, one of
    /// them 0 to 9), uuid [default: digits=3,hex=8,uuid].
    #[arg(long, value_name = "RULES", help_heading = "Reading")]
    pub(crate) fold: Option<Template>,
}

impl Source {
    /// The template for folding names, and values in keys.
    pub(crate) fn template(&self) -> Template {
        self.naming.template()
    }

    /// Whether an option names the template.
    pub(crate) fn has_own_template(&self) -> bool {
        self.naming.names == Names::Raw || self.naming.fold.is_some()
    }

    /// The same recordings, with names folded by this template.
    pub(crate) fn folded_by(&self, template: Template) -> Self {
        let naming = match template == Template::RAW {
            true => Naming { names: Names::Raw, fold: None },
            false => Naming { names: Names::Template, fold: Some(template) },
        };
        Self { naming, ..self.clone() }
    }

    /// Refuses inputs that cannot be read, and options that have no effect.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.naming.check()?;
        check_inputs(&self.paths)
    }
}

impl Naming {
    /// The template for folding names.
    fn template(&self) -> Template {
        if self.folds() { self.fold.unwrap_or_default() } else { Template::RAW }
    }

    /// True if ids in names are folded.
    pub(crate) fn folds(&self) -> bool {
        self.names == Names::Template
    }

    /// Refuses an option that has no effect.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.folds() && self.fold.is_some() {
            return Err(Failure::Usage("--fold has no effect with --names raw; omit one of them".into()));
        }
        Ok(())
    }
}

/// Refuses to read standard input twice, and to print into a file that is being read.
pub(crate) fn check_inputs<'p>(paths: impl IntoIterator<Item = &'p PathBuf> + Clone) -> Result<(), Failure> {
    if paths.clone().into_iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(Failure::Usage("standard input can be read only once; write it to a file first".into()));
    }
    printed_apart(paths)
}

/// Options for reading, shared by every command that reads recordings.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Reading {
    /// Format of the files: otlp-json, otlp-proto, jaeger-json, zipkin-json, htrace, nezha-csv or
    /// xtrace-json [default: detected from the content].
    #[arg(long, value_name = "FORMAT", help_heading = "Reading")]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// The option that raises a limit. Other limits, such as the nesting depth, have none.
pub(crate) fn limit_hint(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::ExpandedBytes => Some("raise the limit with --expanded-max"),
        Limit::RecordBytes => Some("raise the limit with --record-max"),
        _ => None,
    }
}

impl Reading {
    /// As the options of the reader.
    pub(crate) fn options(&self) -> Options {
        Options { format: self.format, ..self.bounds.options() }
    }
}

/// Bounds on reading, of any format.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Bounds {
    /// Fail if any part of the input is unusable, instead of skipping that part.
    #[arg(long, help_heading = "Reading")]
    pub(crate) strict: bool,

    /// Stop reading after this many decompressed bytes, as protection against archive bombs: bytes,
    /// or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "64GB", value_parser = size, help_heading = "Reading")]
    pub(crate) expanded_max: u64,

    /// Skip records above this size, because each must fit in memory (a span, the spans of one
    /// resource, or a trace): bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "256MB", value_parser = size, help_heading = "Reading")]
    pub(crate) record_max: u64,
}

impl Bounds {
    /// As the options of the reader.
    pub(crate) fn options(&self) -> Options {
        let record_bytes_max = usize::try_from(self.record_max).unwrap_or(usize::MAX);
        let limits = Limits {
            expanded_bytes_max: self.expanded_max,
            records: records::Limits { record_bytes_max, ..records::Limits::default() },
        };
        Options { limits, ..Options::default() }
    }
}

/// The largest file of layouts.
const LAYOUTS_MAX: u64 = 1 << 20;

/// The layouts of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layouts(Vec<Given>);

fn layouts(path: &str) -> Result<Layouts, String> {
    let read = read_input(Path::new(path), LAYOUTS_MAX);
    let bytes = read.map_err(|error| format!("cannot read {path}: {error}"))?;
    let bytes = bytes.ok_or_else(|| format!("{path} is larger than 1 MiB; is it the right file?"))?;
    let text =
        String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8 text; is it the right file?"))?;
    Given::list(&text).map(Layouts)
}

/// Options for reading logs, shared by the commands that do.
#[derive(Clone, Debug, Default, PartialEq, ClapArgs)]
pub(crate) struct LogReading {
    /// Layout of lines of text in log4j's letters, for files of a name or for all; times also in
    /// strftime's: '%d [%t] %p %c: %m', 'app*.log=%Y-%m-%d %T %m' [default: the usual layouts are
    /// recognised].
    #[arg(long, value_name = "[GLOB=]PATTERN", help_heading = "Reading")]
    pub(crate) layout: Vec<Given>,

    /// File with further layouts: lines of NAME = [GLOB=]PATTERN.
    #[arg(long, value_name = "FILE", value_parser = layouts, help_heading = "Reading")]
    pub(crate) layouts: Option<Layouts>,

    /// Zone of log times that state none: UTC, an offset such as +08:00 or a name such as
    /// Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true, help_heading = "Reading")]
    pub(crate) log_zone: Option<Zone>,
}

impl LogReading {
    /// As the options of the reader.
    pub(crate) fn options(&self) -> logs::Options {
        logs::Options {
            layouts: self
                .layout
                .iter()
                .chain(self.layouts.iter().flat_map(|file| &file.0))
                .cloned()
                .collect(),
            zone: self.log_zone.clone().unwrap_or_default(),
            // Each file's own.
            changed: None,
            clock_pattern: None,
        }
    }
}

/// The values of `--names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Names {
    /// Fold ids.
    Template,
    /// Keep names as recorded.
    Raw,
}
