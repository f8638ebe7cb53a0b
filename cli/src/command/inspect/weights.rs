//! `astracer inspect --weights`: compares estimated counts of roots with exact ones from
//! heartbeats.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use astracer_model::sink::Record;
use astracer_model::value::Attribute;
use astracer_model::{Problem, Sink, Span, TraceId, Value};
use astracer_recording::source;
use astracer_recording::weight::ADJUSTED_COUNT;
use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Template, shown_key};
use astracer_tuner::Stop;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::source::Source;

/// The span name of heartbeats, as the SDK sends them.
const HEARTBEAT: &str = "astracer.heartbeat";
/// Stands for all keys that had no record in the sampler's table.
const OTHERS: &str = "(keys without a record)";

/// Sums over a recording.
#[derive(Debug, Serialize)]
struct Weights {
    /// Problems of the input; `inspect` without `--weights` lists them.
    problems: u64,
    heartbeats: u64,
    keys: Vec<Row>,
}

/// The sums of one key.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    key: String,
    /// Roots in the recording.
    roots: u64,
    /// Roots without a weight; each counts once.
    unweighed: u64,
    /// Roots that a late policy kept; they have weight 0, because the other roots represent them.
    late: u64,
    /// The sum of the weights.
    estimate: f64,
    /// The estimate's standard deviation, from the weights themselves: the root of the sum of
    /// w (w - 1). Unknown if roots have no weight: a cap may have dropped others like them.
    deviation: Option<f64>,
    /// The sum of w (w - 1).
    #[serde(skip)]
    variance: f64,
    /// The exact number of roots, from the latest heartbeat of each process.
    seen: Option<u64>,
    /// The relative error of the estimate.
    off: Option<f64>,
}

/// The heartbeats of a process, of which the latest counts.
#[derive(Default)]
struct Process {
    /// The number of the latest heartbeat.
    beat: i64,
    /// The number of spans of the latest heartbeat, and how many of these the recording has.
    parts: i64,
    found: i64,
    /// By key: the number of the latest heartbeat that has the key, and its count.
    keys: HashMap<String, (i64, u64)>,
}

impl Process {
    /// The counts by key in the latest heartbeat. If some of its spans are missing, the keys in
    /// those have their counts from earlier heartbeats.
    fn last(&self) -> impl Iterator<Item = (&String, u64)> {
        let is_whole = self.found >= self.parts;
        let last = self.keys.iter().filter(move |(_, (beat, _))| *beat == self.beat || !is_whole);
        last.map(|(key, (_, count))| (key, *count))
    }
}

struct Sums<'s> {
    stop: Stop<'s>,
    template: Template,
    folded: String,
    /// The ids of the roots and heartbeats so far. A trace id is split in two, because a `u128`
    /// would be aligned to 16 bytes.
    known: HashSet<[u64; 3]>,
    keys: HashMap<String, Row>,
    processes: HashMap<String, Process>,
    heartbeats: u64,
    problems: u64,
    /// The number of problems that lose data.
    losses: u64,
}

fn find<'a>(attributes: &'a [Attribute<'_>], name: &str) -> Option<&'a Value<'a>> {
    attributes.iter().rev().find(|attribute| attribute.key == name).map(|attribute| &attribute.value)
}

fn int(value: Option<&Value<'_>>) -> Option<i64> {
    match value {
        Some(Value::Int(number)) => Some(*number),
        // Zipkin tags are strings.
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    }
}

/// True if a span without a threshold has weight 0, because a late policy kept its trace.
fn is_late(span: &Span<'_>) -> bool {
    match find(&span.attributes, ADJUSTED_COUNT) {
        Some(Value::Double(count)) => *count == 0.0,
        // Formats that only have strings write the SDK's number as `0.0`.
        Some(Value::String(text)) => text.parse::<f64>() == Ok(0.0),
        count => int(count) == Some(0),
    }
}

impl Sums<'_> {
    /// False for a span that was already counted.
    fn is_new(&mut self, span: &Span<'_>) -> bool {
        let TraceId(trace) = span.trace_id;
        self.known.insert([(trace >> 64) as u64, trace as u64, span.span_id.0])
    }

    fn heartbeat(&mut self, span: &Span<'_>) {
        self.heartbeats += 1;
        let process = find(&span.attributes, "astracer.process").and_then(Value::as_str).unwrap_or_default();
        let process = self.processes.entry(process.to_owned()).or_default();
        let beat = int(find(&span.attributes, "astracer.beat")).unwrap_or_default();
        if beat > process.beat {
            (process.beat, process.found) = (beat, 0);
        }
        if beat == process.beat {
            process.parts = int(find(&span.attributes, "astracer.parts")).unwrap_or(1);
            process.found += 1;
        }
        for event in &span.events {
            let key = find(&event.attributes, "astracer.key").and_then(Value::as_str).unwrap_or(OTHERS);
            let Some(seen) = int(find(&event.attributes, "astracer.seen")) else { continue };
            let seen = u64::try_from(seen).unwrap_or_default();
            let (last, count) = process.keys.entry(key.to_owned()).or_default();
            if beat > *last {
                (*last, *count) = (beat, seen);
            } else if beat == *last {
                // Earlier versions could list keys without a record twice in one heartbeat.
                *count = count.saturating_add(seen);
            }
        }
    }

    fn root(&mut self, span: &Span<'_>) {
        let key = match find(&span.attributes, "sampler.key").and_then(Value::as_str) {
            Some(key) => key,
            None if self.template.fold(&span.name, &mut self.folded) => &self.folded,
            None => &span.name,
        };
        // Shorten the key as heartbeats do.
        let key = &*shown_key(key);
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_owned(), Row { key: key.to_owned(), ..Row::default() });
        }
        let Some(row) = self.keys.get_mut(key) else { return };
        row.roots += 1;
        let threshold = OtMember::of(&span.trace_state).ok().and_then(|member| member.threshold);
        match threshold {
            Some(threshold) => {
                let weight = threshold.adjusted_count();
                row.estimate += weight;
                row.variance += weight * (weight - 1.0);
            }
            None if is_late(span) => row.late += 1,
            None => {
                row.unweighed += 1;
                row.estimate += 1.0;
            }
        }
    }

    fn finish(mut self) -> Weights {
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        for (key, count) in self.processes.values().flat_map(Process::last) {
            *seen.entry(key.clone()).or_default() += count;
        }
        for (key, count) in seen {
            let row = self.keys.entry(key.clone()).or_insert_with(|| Row { key, ..Row::default() });
            row.seen = Some(count);
        }
        let mut keys: Vec<Row> = self.keys.into_values().collect();
        for row in &mut keys {
            row.deviation = (row.unweighed == 0).then(|| row.variance.sqrt());
            let seen = row.seen.filter(|seen| *seen > 0);
            row.off = seen.map(|seen| (row.estimate - seen as f64) / seen as f64);
        }
        keys.sort_by(|a, b| b.estimate.total_cmp(&a.estimate).then_with(|| a.key.cmp(&b.key)));
        Weights { problems: self.problems, heartbeats: self.heartbeats, keys }
    }
}

impl Sink for Sums<'_> {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        let is_heartbeat = span.name == HEARTBEAT;
        if (is_heartbeat || span.parents.is_empty()) && self.is_new(&span) {
            if is_heartbeat { self.heartbeat(&span) } else { self.root(&span) }
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.problems += 1;
        self.losses += u64::from(problem.kind.loses_data());
    }

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}

    fn stopped(&self) -> bool {
        self.stop.is_asked()
    }
}

pub(super) fn run(args: &Source, top: usize, as_json: bool, stop: Stop<'_>) -> Result<(), Failure> {
    args.check()?;
    let mut sums = Sums {
        stop,
        template: args.template(),
        folded: String::new(),
        known: HashSet::new(),
        keys: HashMap::new(),
        processes: HashMap::new(),
        heartbeats: 0,
        problems: 0,
        losses: 0,
    };
    interrupt::answer_at_once_while_reading(stop, || {
        for path in &args.paths {
            source::read(path, &args.reading.options(), &mut sums)
                .map_err(|error| Failure::Job(error.to_string()))?;
        }
        Ok(())
    })?;
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    if args.reading.bounds.strict && sums.losses > 0 {
        return Err(Failure::Job(format!(
            "{} in the input; inspect without --weights lists them",
            output::plural(sums.losses, "problem")
        )));
    }
    interrupt::answer_at_once(stop)?;
    let mut weights = sums.finish();
    if weights.keys.is_empty() {
        let problems = match weights.problems {
            0 => String::new(),
            problems => format!(
                "; {} in the input, which inspect without --weights lists",
                output::plural(problems, "problem")
            ),
        };
        return Err(Failure::Job(format!("this recording has no root span{problems}")));
    }
    if top > 0 {
        weights.keys.truncate(top);
    }
    if as_json {
        return output::print_json(&weights);
    }
    output::report(&render(&weights))
}

fn render(weights: &Weights) -> String {
    let mut text = output::table(
        &["key", "roots", "without\nweight", "estimate", "sd", "seen", "off"],
        weights.keys.iter().map(|row| {
            vec![
                output::named(&row.key).to_owned(),
                output::count(row.roots),
                output::count(row.unweighed),
                output::whole(row.estimate),
                row.deviation.map_or_else(|| "unknown".to_owned(), output::whole),
                row.seen.map(output::count).unwrap_or_default(),
                row.off.map(|off| format!("{:+.1}%", off * 100.0)).unwrap_or_default(),
            ]
        }),
    );
    let heartbeats = match weights.heartbeats {
        0 => "exact counts (seen) are unknown, because the recording has no heartbeat".to_owned(),
        spans => format!("exact counts (seen) come from {}", output::plural(spans, "heartbeat span")),
    };
    let _ = writeln!(text, "estimate: sum of the weights (ot=th); sd: its standard deviation; {heartbeats}");
    let late = weights.keys.iter().map(|row| row.late).sum::<u64>();
    if late > 0 {
        let _ = writeln!(text, "{} kept by a late policy, with weight 0", output::plural(late, "root"));
    }
    if weights.problems > 0 {
        let _ = writeln!(
            text,
            "{} in the input; inspect without --weights lists them",
            output::plural(weights.problems, "problem")
        );
    }
    text
}
