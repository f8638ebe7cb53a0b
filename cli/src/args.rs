//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use astracer_model::Format;
use astracer_recording::source::{Limits, Options};
use astracer_samplers::{Config, Template};
use astracer_tuner::inspect::Column;
use astracer_tuner::{Grouping, Objective, Tunable};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::target::Target;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the job could not be done (the message says why and what to do)
  2    wrong usage
  130  interrupted by Ctrl-C";

/// Adaptive trace sampling: look at recorded traces, and at what samplers would keep of them.
#[derive(Debug, Parser)]
#[command(name = "astracer", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a recording holds: traces, roots, functions and their durations.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(Inspect),
    /// Replay samplers over a recording and show how good the kept part is.
    #[command(after_help = EVALUATE_EXAMPLES)]
    Evaluate(Evaluate),
    /// Find a sampler's parameters for a recording, and write the file that a service loads.
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(Tune),
    /// Write a recording in another format.
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(Convert),
    /// Record traces: take OTLP from any service, and write it to files.
    #[command(after_help = RECEIVE_EXAMPLES)]
    Receive(Receive),
    /// Send recordings to a server.
    #[command(after_help = SEND_EXAMPLES)]
    Send(Send),
}

const RECEIVE_EXAMPLES: &str = "\
Examples:
  astracer receive --out traces/                    gRPC and HTTP, on 4317 and on 4318
  astracer receive --out traces/ --otlp 0.0.0.0:4318 --total-max 50GB --zstd
  astracer tune traces/                             afterwards

Each address takes gRPC and HTTP, protobuf and JSON, plain, gzip and zstd. Ctrl-C ends it and
says what came. Senders are told to wait when the files have reached --total-max.";

const SEND_EXAMPLES: &str = "\
Examples:
  astracer send run.tar.xz --to otlp://localhost:4317
  astracer send spans.json --to otlp+http://localhost:4318 --shift-to-now
  astracer send traces/ --to zipkin://localhost:9411 --rate 5000 --resume progress.json

Schemes: otlp (gRPC), otlp+http, zipkin; over TLS otlps, otlp+https, zipkin+https.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  astracer convert run.tar.xz run.jsonl             OTLP JSON lines
  astracer convert spans.json upload.json --to jaeger-json
  curl -s 'http://localhost:9411/api/v2/traces' | astracer convert - - > traces.jsonl

What the new format can't hold is counted on standard error. Memory stays flat whatever
the size, but for Jaeger's JSON, which has each trace in one piece.";

const TUNE_EXAMPLES: &str = "\
Examples:
  astracer tune run.tar.xz                      bump, at most a tenth of the bytes
  astracer tune run.tar.xz --sampler bucket --size-max 5%
  astracer tune traces/ --traces-per-second 20 --out production.toml
  astracer tune monday/ --validate tuesday/ --report report.html
  astracer tune run.tar.xz --per-root --split 50%
  astracer tune traces/ --objective 1*dist/entropy+0.5*call-trees --seed 7 --json

If no parameters meet the limits, the nearest are shown with the reason, nothing is
written, and the exit code is 1. Ctrl-C writes the best found so far.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  astracer inspect traces/                      every recording in a folder
  astracer inspect run.tar.xz --sort p95        slowest functions first
  curl -s 'http://localhost:16686/api/traces?service=a' | astracer inspect -
  astracer inspect spans.json --json | jq .roots

What the columns mean: docs/metrics.md.";

const EVALUATE_EXAMPLES: &str = "\
Examples:
  astracer evaluate run.tar.xz
  astracer evaluate run.tar.xz --sampler bump:lambda=215,min=0.02
  astracer evaluate traces/ --sampler bucket:capacity=50,rate=2 --seeds 20 --json
  astracer evaluate run.json --sampler ratio:0.05 --kept ids.txt
  astracer evaluate spans/ --key name+http.route
  astracer evaluate run.tar.xz --sampler bump:lambda=215,min=0.02 --baselines all

Samplers:
  always, never, ratio:P, every:N,
  bump:lambda=L,min=P[,window=1s][,shift=on]
  bucket:capacity=C,rate=R (tokens a second)

What the columns mean: docs/metrics.md.";

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
    #[arg(long, value_name = "RULES", default_value = "digits=3,hex=8,uuid")]
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

#[derive(Debug, ClapArgs)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) source: Source,

    /// The column to sort by: name, count (traces, share), mean, sd, median, p75, p95, max, trees, spans, max/s.
    #[arg(long, value_name = "COLUMN", default_value = "count")]
    pub(crate) sort: Column,

    /// Show only the first N rows of each table; 0 shows all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) top: usize,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    pub(crate) source: Source,

    /// A sampler to replay, beside always, ratio:0.1 and ratio:0.01; may be given several times. Without it a bump
    /// and a bucket sampler with middling parameters are replayed.
    #[arg(long = "sampler", value_name = "SAMPLER")]
    pub(crate) samplers: Vec<Config>,

    /// How many seeds to replay each sampler with.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) seeds: u64,

    /// Other projects' samplers to compare with, each made to keep as much as the one --sampler (or a tenth): all, or
    /// names; parameters may follow a name, as in xray:rate=0.05.
    #[arg(long, value_name = "RIVAL", num_args = 1..)]
    pub(crate) baselines: Vec<String>,

    /// Shorten baselines' periods so that each passes ten times at least in this recording; with their own, half a minute
    /// or more, a short recording shows only how they start.
    #[arg(long, requires = "baselines")]
    pub(crate) quicken: bool,

    /// The share of the bytes that baselines keep, for example 5%.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) size: Option<f64>,

    /// What samplers count by: name (of the root), name+ATTRIBUTE, or tree (the whole call tree).
    #[arg(long, value_name = "KEY", default_value_t)]
    pub(crate) key: Grouping,

    /// Write the ids of the traces kept with the first seed to FILE, one a line; needs exactly one --sampler.
    #[arg(long, value_name = "FILE")]
    pub(crate) kept: Option<PathBuf>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) source: Source,

    /// The sampler to tune: bump or bucket.
    #[arg(long, value_name = "SAMPLER", default_value = "bump", value_parser = tunable)]
    pub(crate) sampler: Tunable,

    /// What to make small: dist/entropy, call-trees (missed), counts (error of estimates), latency (distance of
    /// histograms), or a weighted sum.
    #[arg(long, value_name = "OBJECTIVE", default_value_t)]
    pub(crate) objective: Objective,

    /// What the sampler counts by: name (of the root) or name+ATTRIBUTE.
    #[arg(long, value_name = "KEY", default_value_t)]
    pub(crate) key: Grouping,

    /// Give single roots parameters of their own, if that is better on time that they were not tuned on.
    #[arg(long)]
    pub(crate) per_root: bool,

    /// Do not try other keys beside --key.
    #[arg(long)]
    pub(crate) one_key: bool,

    /// Tune on the first SHARE of the time, and show how the parameters do on the rest.
    #[arg(long, value_name = "SHARE", value_parser = part, help_heading = "Checks")]
    pub(crate) split: Option<f64>,

    /// Show how the parameters do on another recording; may be given several times.
    #[arg(long, value_name = "WORKLOAD", help_heading = "Checks")]
    pub(crate) validate: Vec<PathBuf>,

    /// Keep at most this share of the bytes.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, help_heading = "Limits")]
    pub(crate) size_max: f64,

    /// Keep at least this share of the bytes [default: a tenth of --size-max].
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Limits")]
    pub(crate) size_min: Option<f64>,

    /// Keep at most so many traces a second, over the whole recording.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Limits")]
    pub(crate) traces_per_second: Option<f64>,

    /// Keep at most so many bytes a second, over the whole recording: bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(crate) bytes_per_second: Option<u64>,

    /// Look at these window lengths only, in seconds, instead of searching for one (bump).
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = positive, help_heading = "Search")]
    pub(crate) window: Vec<f64>,

    /// Everything random comes from this; the same seed finds the same parameters.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Search")]
    pub(crate) seed: u64,

    /// How many searches to start from random points.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(help_heading = "Search")]
    pub(crate) starts: u32,

    /// How many candidates each start scores at most.
    #[arg(long, value_name = "N", default_value_t = 1500, help_heading = "Search")]
    pub(crate) iterations: u64,

    /// End the search after this many seconds; what is found then depends on the machine.
    #[arg(long, value_name = "SECONDS", value_parser = positive, help_heading = "Search")]
    pub(crate) time: Option<f64>,

    /// Write a page for people too: how it was found, what is kept and missed, and how baselines do at the same sizes.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// The parameters file to write.
    #[arg(long, value_name = "FILE", default_value = "astracer.toml")]
    pub(crate) out: PathBuf,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Convert {
    /// A file, folder or archive (tar, gz, xz, zst) of recorded traces; - reads standard input.
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,

    /// The file to write; - is standard output. A file of this name is replaced once everything is written.
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// The format to write: otlp-json (lines), otlp-proto, jaeger-json, zipkin-json or htrace.
    #[arg(long, value_name = "FORMAT", default_value_t = Format::OtlpJson, value_parser = written)]
    pub(crate) to: Format,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Print one JSON object on what was done, to standard output (to standard error if the traces go there).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Receive {
    /// The folder for the files traces-00000001.jsonl and so on; those of former runs stay.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// An address to listen on; may be given several times.
    #[arg(long, value_name = "ADDRESS", default_values = ["127.0.0.1:4317", "127.0.0.1:4318"])]
    pub(crate) otlp: Vec<SocketAddr>,

    /// Begin a new file at this size: bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size, help_heading = "Limits")]
    pub(crate) rotate: u64,

    /// Take no more when all files together have this size.
    #[arg(long, value_name = "SIZE", default_value = "10GB", value_parser = size, help_heading = "Limits")]
    pub(crate) total_max: u64,

    /// Refuse requests that are larger than this, compressed or not.
    #[arg(long, value_name = "SIZE", default_value = "16MB", value_parser = size, help_heading = "Limits")]
    pub(crate) message_max: u64,

    /// Compress the files with zstd.
    #[arg(long)]
    pub(crate) zstd: bool,

    /// Print one JSON object at the end instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Send {
    /// Files, folders or archives (tar, gz, xz, zst) of recorded traces; - reads standard input.
    #[arg(required = true, value_name = "WORKLOAD")]
    pub(crate) paths: Vec<PathBuf>,

    /// Where to: otlp://HOST:PORT (gRPC), otlp+http://HOST:PORT or zipkin://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub(crate) to: Target,

    /// Send at most so many spans a second.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) rate: Option<f64>,

    /// Spans of one request.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) batch: u16,

    /// Move all times by the same amount, so that the last span ends now. The recording is read twice.
    #[arg(long)]
    pub(crate) shift_to_now: bool,

    /// Note in FILE how far the sending came; if FILE is there, go on from there. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Print one JSON object on what was done.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads the name of a format that can be written.
fn written(text: &str) -> Result<Format, String> {
    let format: Format =
        text.parse().map_err(|error: astracer_model::format::UnknownFormat| error.to_string())?;
    let can = |format: &Format| astracer_formats::writer(*format, Box::new(std::io::sink())).is_some();
    if can(&format) {
        return Ok(format);
    }
    let names: Vec<_> = Format::ALL.iter().filter(|format| can(format)).map(|format| format.name()).collect();
    Err(format!("'{text}' is read, not written; written are {}", names.join(", ")))
}

fn tunable(text: &str) -> Result<Tunable, String> {
    let known = [Tunable::Bump, Tunable::Bucket].into_iter().find(|sampler| sampler.name() == text);
    known.ok_or_else(|| format!("'{text}' can't be tuned: use bump or bucket"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| format!("'{text}' is no number above 0"))
}

/// Reads a share of something that leaves a rest.
fn part(text: &str) -> Result<f64, String> {
    share(text)?;
    share(text).ok().filter(|&share| share < 1.0).ok_or_else(|| format!("'{text}' leaves no rest"))
}

/// Reads "5%" or "0.05".
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    let wrong = || format!("'{text}' is no share: write for example 5% or 0.05");
    share.filter(|share| (0.0..=1.0).contains(share) && *share > 0.0).ok_or_else(wrong)
}

/// Reads "64GB", "10 MB", "4096": decimal units.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write bytes, or a number with KB, MB, GB or TB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match text[digits.len()..].trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        assert_eq!(share("100 %"), Ok(1.0));
        for wrong in ["", "%", "0", "101%", "1.5", "nan", "-1%", "five"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_decimal_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("10 mb"), Ok(10_000_000));
        assert_eq!(size("64GB"), Ok(64_000_000_000));
        for wrong in ["", "GB", "1.5GB", "10 XB", "-1", "99999999999TB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
