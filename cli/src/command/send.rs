//! `astracer send`: sends recordings to a server.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use astracer_exporters::Destination;
use astracer_recording::convert::{Converted, Converter};
use astracer_recording::source;
use astracer_tuner::Stop;
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{self, Input};
use crate::losses::{self, LossCount};
use crate::output;
use crate::progress::Progress;
use crate::source::{self as arguments, Reading};
use crate::target::Target;
use crate::values::{length, rate};

mod resume;
mod shift;
mod writer;

use resume::Resume;
use writer::{Sent, Writer};

const EXAMPLES: &str = "\
Examples:
  astracer send run.tar.xz --to otlp://localhost:4317
  astracer send spans.json --to otlp+http://localhost:4318 --shift-to-now
  astracer send traces/ --to zipkin://localhost:9411 --rate 5000 --resume state

Schemes: otlp (gRPC), otlp+http, zipkin; with TLS: otlps, otlp+https,
zipkin+https.

OTLP reads OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _CLIENT_CERTIFICATE,
_CLIENT_KEY, _TIMEOUT and _COMPRESSION, and http/json from _PROTOCOL. Variables
for traces, such as OTEL_EXPORTER_OTLP_TRACES_HEADERS, take precedence.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Send {
    /// Recordings to send: files, folders or archives (tar, gz, xz, zst); - reads standard input.
    #[arg(required = true, value_name = "RECORDING")]
    pub(crate) paths: Vec<PathBuf>,

    /// Server: otlp://HOST:PORT (gRPC), otlp+http://HOST:PORT or zipkin://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub(crate) to: Target,

    /// Send at most N spans per second.
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    /// Greatest number of spans in a request.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) batch: u16,

    /// Shift all times by the same amount, so that the last span ends now. The recording is read
    /// twice.
    #[arg(long)]
    pub(crate) shift_to_now: bool,

    /// Give up when the server has accepted nothing for this long, such as 90s or 5m. If it never
    /// answered, give up at once.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = length)]
    pub(crate) wait: Duration,

    /// Keep the progress in FILE, and continue from there if FILE exists. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Print a summary as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The time that the end waits for requests in flight.
const END_MAX: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    to: String,
    accepted: u64,
    rejected: u64,
    resumed_behind: u64,
    /// Spans that an earlier run sent without an answer, at most: they may have arrived twice.
    may_repeat: u64,
    shifted_by_ns: i64,
    losses: Vec<LossCount>,
    message: String,
}

pub(crate) fn run(args: &Send, stop: Stop<'_>) -> Result<(), Failure> {
    arguments::check_inputs(&args.paths)?;
    let options = args.reading.options();
    let mut resume = args.resume.as_ref().map(|file| Resume::open(file, args)).transpose()?;
    let noted = resume.as_ref().and_then(Resume::noted).cloned();
    let shift = match &noted {
        Some(noted) => noted.shift_ns,
        None if args.shift_to_now => shift::to_end_at(&args.paths, &options, now_ns(), stop)?,
        None => 0,
    };
    if let Some(resume) = &mut resume {
        resume.begin(shift);
    }
    let (behind, again) = noted.map_or((0, 0), |noted| (noted.spans, noted.in_flight));
    if again > 0 {
        output::note(&format!(
            "continuing behind {}; up to {} of the request that was in flight may arrive twice",
            output::plural(behind, "span"),
            output::plural(again, "span")
        ));
    }
    let destination: Arc<dyn Destination> = Arc::from(args.to.connect()?);
    let sent = Rc::new(Cell::new(Sent::default()));
    let message = Rc::default();
    let progress = Progress::reading(&args.paths);
    let writer = Writer {
        destination: Arc::clone(&destination),
        patience: args.wait,
        has_answered: false,
        shift_ns: shift,
        skip: behind,
        rate: args.rate,
        due: Cell::new(Some(Instant::now())),
        stop,
        resume,
        sent: Rc::clone(&sent),
        message: Rc::clone(&message),
    };
    let mut converter = Converter::to_writer(args.to.format(), Box::new(writer))
        .batch_spans(usize::from(args.batch))
        .examples(load::EXAMPLES)
        .stop_when(|| stop.is_asked())
        .progress_to(|bytes| progress.inc(bytes));
    let mut files = Vec::new();
    for path in &args.paths {
        let asked = || stop.is_asked();
        let summary = source::read_waiting(path, &options, &asked, &mut converter)
            .map_err(|error| Failure::Job(error.to_string()))?;
        files.extend(summary.files);
    }
    let finished = converter.finish();
    progress.finish();
    let sent = sent.get();
    let converted = finished.map_err(|error| stopped_short(args, sent, &error.to_string()))?;
    if stop.is_asked() {
        output::note(&so_far(args, sent));
        return Err(Failure::Interrupted);
    }
    if sent.missing > 0 {
        return Err(Failure::Job(format!(
            "the recording has {} fewer than --resume counts as sent, so it is a different recording; pass another --resume \
             file",
            output::plural(sent.missing, "span")
        )));
    }
    destination.shut_down(END_MAX).map_err(|error| stopped_short(args, sent, &error.to_string()))?;
    let input = Input::of_conversion(&args.paths, &files, &converted);
    input.check(args.reading.bounds.strict, converted.spans == 0)?;
    let printed = if args.json {
        output::print_json(&Report {
            input: &input,
            to: args.to.to_string(),
            accepted: sent.accepted,
            rejected: sent.rejected,
            resumed_behind: behind,
            may_repeat: again,
            shifted_by_ns: shift,
            losses: losses::counts(&converted.losses),
            message: message.take(),
        })
    } else {
        output::report(&render(args, &input, &converted, sent, (behind, again), &message.take()))
    };
    let late = if sent.rejected > 0 {
        let spans = output::plural(sent.rejected, "span");
        Err(Failure::Job(format!("the server rejected {spans}; see its log")))
    } else {
        Ok(())
    };
    Failure::after(printed, late)
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn stopped_short(args: &Send, sent: Sent, reason: &str) -> Failure {
    Failure::Job(format!("{reason}\n{}", so_far(args, sent)))
}

/// A summary of the spans sent before the end came early.
fn so_far(args: &Send, sent: Sent) -> String {
    let accepted = output::plural(sent.accepted, "span");
    let answered = sent.accepted + sent.rejected;
    let twice = match sent.unanswered {
        0 => String::new(),
        spans => format!("; up to {} sent without an answer may arrive twice", output::plural(spans, "span")),
    };
    match args.resume.as_deref().map(output::shown) {
        Some(file) if sent.noted < answered => {
            let again = output::plural(answered - sent.noted, "span");
            format!(
                "{accepted} accepted so far; {file} does not count the last {again}, so repeating the command sends \
                 them again"
            )
        }
        Some(file) => {
            format!("{accepted} accepted so far; repeat the command to continue (state: {file}){twice}")
        }
        None => {
            format!(
                "{accepted} accepted so far; a run with --resume FILE can be continued after a failure{twice}"
            )
        }
    }
}

fn render(
    args: &Send,
    input: &Input,
    converted: &Converted,
    sent: Sent,
    (behind, again): (u64, u64),
    message: &str,
) -> String {
    let mut text = input.heading();
    let _ = writeln!(text, "{} accepted by {}", output::plural(sent.accepted, "span"), args.to);
    if behind > 0 {
        let _ =
            writeln!(text, "skipped, because an earlier run sent them: {}", output::plural(behind, "span"));
    }
    if again > 0 {
        let again = output::plural(again, "span");
        let _ = writeln!(text, "sent before without an answer, so perhaps there twice: up to {again}");
    }
    if sent.rejected > 0 {
        let _ = writeln!(text, "rejected: {}", output::plural(sent.rejected, "span"));
    }
    if !message.is_empty() {
        let _ = writeln!(text, "the server says: {}", output::escaped(message));
    }
    for (loss, spans) in converted.losses.counts() {
        let _ =
            writeln!(text, "lost in this format: {} ({})", loss.describe(), output::plural(spans, "span"));
    }
    text + &input.footing()
}
