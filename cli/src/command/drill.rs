//! `astracer drill`: lets a bad server stand between a load and the user's server, and counts what
//! becomes of each span.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use astracer_exporters::{Destination, Otlp, Protocol, Retry, Spooled};
use astracer_model::span::Resource;
use astracer_model::{Span, SpanId, UnixNanos};
use astracer_testing::{BadServer, Behaviour};
use astracer_tuner::Stop;
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::target::Target;
use crate::values::rate;
use crate::{layout, output};

mod passage;
mod queue;

use passage::Passage;
use queue::Queue;

const EXAMPLES: &str = "\
Examples:
  astracer drill --forward otlp://localhost:4317
  astracer drill --forward otlp+http://collector:4318 --seconds 300 --json

  load -> exporter and spool -> bad server -> URL

The bad server passes requests on to URL, and in turns answers 503, 429 or
garbage, goes away (GOAWAY), answers slowly, or cuts connections. The spans
are named drill, of the service astracer-drill. Exits with 1 if a span was
lost, or is unaccounted for.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Server that gets the spans: otlp://HOST:PORT (gRPC), otlp+http://HOST:PORT or
    /// zipkin://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub(crate) forward: Target,

    /// Length of the drill in seconds; each fault has an equal part.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,

    /// Make N spans per second.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = rate)]
    pub(crate) rate: f64,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The faults, by their names. The first one is the comparison.
const FAULTS: &[(&str, Behaviour)] = &[
    (NO_FAULT, Behaviour::Takes),
    ("503", Behaviour::Busy(503, None)),
    ("429, pause of 1 s", Behaviour::Busy(429, Some(1))),
    ("garbage", Behaviour::Garbage),
    ("goes away", Behaviour::GoesAway),
    ("slow answer", Behaviour::Late(1_500)),
    ("cut before the answer", Behaviour::HalfClosed),
];

const NO_FAULT: &str = "none";
/// The interval between two batches.
const TICK: Duration = Duration::from_millis(20);
/// The time limit of a request: slow answers take longer.
const REQUEST_MAX: Duration = Duration::from_secs(1);
/// The greatest number of spans of a drill, which are counted one by one.
const SPANS_MAX: f64 = 1e8;
/// The time for what waits at the end.
const END_MAX: Duration = Duration::from_secs(30);

/// A fault, and what became of the spans that were made while it was there or just after it.
#[derive(Debug, Serialize)]
struct Row {
    fault: &'static str,
    made: u64,
    /// Spans that the server accepted.
    arrived: u64,
    /// Spans that the server accepted more than once: their first answer was lost.
    twice: u64,
    /// The greatest number of spans in the spool, or made while a request had no answer.
    waited: u64,
    /// The longest time from a span's end to its acceptance, in milliseconds.
    longest_ms: u64,
    /// Spans that never arrived.
    missing: u64,
}

/// Ends of the spans as the exporter reports them, whenever they were made.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Ends {
    /// Spans that the server rejected: they are dead letters.
    rejected: u64,
    /// Spans that were given up.
    lost: u64,
    /// Spans in the spool at the end. Some may have arrived, with answers that came too late.
    waiting: u64,
    /// Spans that did not arrive and are none of these.
    unaccounted: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    to: String,
    faults: Vec<Row>,
    #[serde(flatten)]
    ends: Ends,
    /// The last reason for which the server did not accept spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) fn run(args: &Drill, stop: Stop<'_>) -> Result<(), Failure> {
    if args.rate * f64::from(args.seconds) > SPANS_MAX {
        return Err(Failure::Usage(format!(
            "--rate and --seconds make more than {SPANS_MAX} spans; lower one"
        )));
    }
    let passage = Arc::new(Passage::new(args.forward.connect()?));
    let server = {
        let passage = Arc::clone(&passage);
        BadServer::start(Behaviour::Takes, move |body| passage.take(body))
    };
    let folder = tempfile::tempdir().map_err(|error| Failure::Job(format!("a temporary folder: {error}")))?;
    let protocol = if args.forward.is_grpc() { Protocol::Grpc } else { Protocol::HttpProtobuf };
    let retry = Retry::default().with_initial_delay(TICK * 5).with_max_delay(Duration::from_secs(1));
    let otlp = Otlp::builder().with_protocol(protocol).with_endpoint(format!("http://{}", server.address()));
    let otlp = otlp.with_timeout(REQUEST_MAX).with_retry(retry).build();
    let otlp = otlp.map_err(|error| Failure::Job(error.to_string()))?;
    let spooled = Spooled::builder(folder.path()).open(otlp);
    let spooled = spooled.map_err(|error| Failure::Job(error.to_string()))?;

    let display = Progress::message();
    let part = Duration::from_secs(args.seconds.into()) / FAULTS.len() as u32;
    let rows = std::thread::scope(|scope| {
        let queue = Queue::begin(scope, &spooled);
        let mut load = Load::new(args.rate);
        let mut rows: Vec<Row> = Vec::new();
        for (number, &(fault, behaviour)) in FAULTS.iter().enumerate() {
            let begun = Instant::now();
            let (mut made, mut waited) = (0, 0);
            while begun.elapsed() < part && !stop.is_asked() {
                // The second half shows how the spans that waited arrive.
                server.set(if begun.elapsed() < part / 2 { behaviour } else { Behaviour::Takes });
                let waiting = spooled.pending() + queue.waiting();
                display.set_message(format!("{fault}: {} waiting", output::plural(waiting, "span")));
                let spans = load.batch(number);
                made += spans.len() as u64;
                queue.push(spans);
                waited = waited.max(waiting);
                std::thread::sleep(TICK);
            }
            server.set(Behaviour::Takes);
            rows.push(Row { fault, made, arrived: 0, twice: 0, waited, longest_ms: 0, missing: 0 });
            // The first answer may take longer than this part of the drill.
            while passage.is_empty() && !queue.is_done() && !stop.is_asked() {
                std::thread::sleep(TICK);
            }
            if passage.is_empty() {
                // Without a fault: the server takes no spans at all.
                break;
            }
        }
        rows
    });
    if !passage.is_empty() {
        drain(&spooled, stop);
    }
    display.finish_and_clear();
    let counts = spooled.spool_counts();
    let ends = Ends {
        rejected: counts.rejected + spooled.counter().read().rejected,
        lost: counts.lost(),
        waiting: spooled.pending(),
        unaccounted: 0,
    };
    server.set(Behaviour::Ended);
    let faults = with_arrivals(rows, &passage);
    let report = Report {
        to: args.forward.to_string(),
        error: passage.error().map(|error| error.to_string()),
        ends: ends.of(&faults),
        faults,
    };
    if passage.is_empty() && !args.json {
        return report.outcome(stop);
    }
    let printed = if args.json { output::print_json(&report) } else { output::report(&report.render()) };
    Failure::after(printed, report.outcome(stop))
}

/// Waits until nothing waits any more, for a limited time.
fn drain(spooled: &Spooled, stop: Stop<'_>) {
    let begun = Instant::now();
    while spooled.pending() > 0 && begun.elapsed() < END_MAX && !stop.is_asked() {
        spooled.drain(TICK * 5);
    }
}

/// Completes the rows by what arrived.
fn with_arrivals(mut rows: Vec<Row>, passage: &Passage) -> Vec<Row> {
    let arrivals = passage.arrivals(rows.len());
    for (row, arrived) in rows.iter_mut().zip(&arrivals) {
        (row.arrived, row.twice) = (arrived.spans, arrived.twice);
        row.longest_ms = u64::try_from(arrived.longest.as_millis()).unwrap_or(u64::MAX);
        row.missing = row.made.saturating_sub(row.arrived);
    }
    rows
}

impl Ends {
    /// Completes the ends by the missing spans that have none.
    fn of(self, rows: &[Row]) -> Self {
        let missing: u64 = rows.iter().map(|row| row.missing).sum();
        let told = self.rejected + self.lost + self.waiting;
        Ends { unaccounted: missing.saturating_sub(told), ..self }
    }
}

impl Report {
    fn sum(&self, of: impl Fn(&Row) -> u64) -> u64 {
        self.faults.iter().map(of).sum()
    }

    fn render(&self) -> String {
        let mut text = format!(
            "{} of {} arrived at {}\n\n",
            output::plural(self.sum(|row| row.arrived), "span"),
            self.sum(|row| row.made),
            self.to
        );
        let header = ["fault", "made", "arrived", "twice", "waited", "longest", "missing"];
        let rows = self.faults.iter().map(|row| {
            let longest = if row.arrived > 0 { format!("{} ms", row.longest_ms) } else { "-".to_owned() };
            [row.fault.to_owned()]
                .into_iter()
                .chain([row.made, row.arrived, row.twice, row.waited].map(|number| number.to_string()))
                .chain([longest])
                .chain([row.missing.to_string()])
                .collect()
        });
        text.push_str(&layout::table(&header, rows));
        let Ends { rejected, lost, waiting, unaccounted } = self.ends;
        let missing = self.sum(|row| row.missing);
        if missing > 0 {
            let ends = [(rejected, "rejected"), (lost, "lost"), (waiting, "still wait")];
            let ends = ends.iter().filter(|(spans, _)| *spans > 0);
            let ends: Vec<_> = ends.map(|(spans, end)| format!("{} {end}", output::count(*spans))).collect();
            let _ = writeln!(
                text,
                "Missing: {}. Of all, {}.",
                output::plural(missing, "span"),
                match ends.is_empty() {
                    true => "none is told".to_owned(),
                    false => ends.join(", "),
                }
            );
        }
        let _ = match unaccounted {
            0 => writeln!(text, "No span is missing without a report."),
            spans => writeln!(text, "{} lost without a report.", output::plural(spans, "span")),
        };
        if self.faults.iter().any(|row| row.fault == NO_FAULT && row.twice > 0) {
            let _ = writeln!(
                text,
                "Spans arrived twice without a fault: the server answers later than the drill's limit of {} s.",
                REQUEST_MAX.as_secs()
            );
        }
        if let Some(error) = &self.error {
            let _ = writeln!(text, "The server's last refusal: {}", output::escaped(error));
        }
        text
    }

    fn outcome(&self, stop: Stop<'_>) -> Result<(), Failure> {
        let failed = |text: String| Err(Failure::Job(text));
        let missing = self.sum(|row| row.missing);
        let (unaccounted, lost) = (self.ends.unaccounted, self.ends.lost + self.ends.rejected);
        match () {
            () if unaccounted > 0 => {
                failed(format!("{} lost without a report", output::plural(unaccounted, "span")))
            }
            () if self.sum(|row| row.arrived) == 0 => {
                let reason = self.error.as_deref().unwrap_or("it was not asked");
                failed(format!("{} accepted nothing: {}", self.to, output::escaped(reason)))
            }
            () if lost > 0 => failed(format!("{} lost or rejected", output::plural(lost, "span"))),
            () if stop.is_asked() => Err(Failure::Interrupted),
            () if missing > 0 => failed(format!(
                "{} did not arrive within {} s of the drill's end",
                output::plural(missing, "span"),
                END_MAX.as_secs()
            )),
            () => Ok(()),
        }
    }
}

/// Makes spans at a rate. The id of a span is its number; the trace has the number of its fault.
struct Load {
    rate: f64,
    begun: Instant,
    made: u64,
    /// Makes the ids of a drill its own.
    drill: u64,
    resource: Arc<Resource>,
}

impl Load {
    fn new(rate: f64) -> Self {
        let resource = Arc::new(Resource::service("astracer-drill"));
        Load { rate, begun: Instant::now(), made: 0, drill: now().0, resource }
    }

    /// The spans that are due.
    fn batch(&mut self, fault: usize) -> Vec<Span<'static>> {
        // A slow machine skips spans: at most as many as one second has are made at once.
        let due = (self.begun.elapsed().as_secs_f64() * self.rate) as u64;
        self.made = self.made.max(due.saturating_sub(self.rate.ceil() as u64));
        let end = now();
        let span = |number: u64| Span {
            trace_id: passage::trace(self.drill, fault, number),
            span_id: SpanId(number + 1),
            name: "drill".into(),
            start: Some(UnixNanos(end.0.saturating_sub(1_000_000))),
            end: Some(end),
            resource: Arc::clone(&self.resource),
            ..Span::default()
        };
        let spans = (self.made..due).map(span).collect();
        self.made = due;
        spans
    }
}

fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans that the exporter has not reported are lost without a report, which is an error.
    #[test]
    fn spans_that_nobody_reports_are_an_error() {
        let row = |made: u64, arrived: u64| {
            let (twice, waited, longest_ms) = (0, 0, 0);
            Row { fault: "f", made, arrived, twice, waited, longest_ms, missing: made - arrived }
        };
        let report = |faults: Vec<Row>, ends: Ends| Report {
            to: "t".to_owned(),
            ends: ends.of(&faults),
            faults,
            error: None,
        };
        for (rejected, lost, waiting, unaccounted, says) in [
            (0, 1, 0, 2, Some("2 spans lost without a report")),
            (1, 2, 0, 0, Some("3 spans lost or rejected")),
            (0, 0, 3, 0, Some("3 spans did not arrive within 30 s of the drill's end")),
            // Others wait for an answer, but have arrived.
            (0, 0, 9, 0, Some("3 spans did not arrive within 30 s of the drill's end")),
        ] {
            let ends = Ends { rejected, lost, waiting, unaccounted: 0 };
            let report = report(vec![row(10, 7), row(5, 5)], ends);
            assert_eq!(report.ends.unaccounted, unaccounted);
            assert_eq!(report.outcome(Stop::never()).as_ref().err().and_then(Failure::text), says);
            assert!(report.render().contains("Missing: 3 spans."), "{}", report.render());
        }
        let nothing = report(vec![row(10, 0)], Ends { waiting: 10, ..Ends::default() });
        let nothing = nothing.outcome(Stop::never());
        assert!(nothing.unwrap_err().text().unwrap_or_default().contains("accepted nothing"));
    }
}
