//! The observable outcome of a program in a form that two layers can be compared by: ids are
//! replaced by the order of their first appearance.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceContextExt as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::SpanData;

use super::driver::{Answer, Line};

/// A span's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    sampled: bool,
}

impl Mention {
    pub(crate) const NONE: Mention =
        Mention { trace: TraceId::INVALID, span: SpanId::INVALID, sampled: false };

    pub(crate) fn of(ids: &SpanContext) -> Self {
        Mention { trace: ids.trace_id(), span: ids.span_id(), sampled: ids.is_sampled() }
    }
}

/// A context as the service's code sees it, which must agree with the headers that callees receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenContext<Ids = Mention> {
    ids: Ids,
    remote: bool,
    state: String,
    tenant: Option<String>,
}

impl SeenContext {
    /// `headers` are the ids and the trace state that the world's propagator writes for the
    /// context.
    pub(crate) fn of(context: &Context, headers: (Mention, String)) -> Self {
        let tenant = context.baggage().get("tenant").map(|tenant| tenant.as_str().to_owned());
        let span = context.span();
        let own = span.span_context();
        let (ids, state) = headers;
        let expected = if own.is_valid() { Mention::of(own) } else { Mention::NONE };
        assert_eq!(ids, expected, "the headers match the context");
        assert!(!own.is_valid() || state == own.trace_state().header());
        SeenContext { ids, remote: own.is_remote(), state, tenant }
    }

    /// Parses a `traceparent`.
    pub(crate) fn parse(parent: Option<&str>) -> Mention {
        let Some(parent) = parent else { return Mention::NONE };
        let part = |range: std::ops::Range<usize>| u128::from_str_radix(&parent[range], 16).unwrap();
        assert_eq!((parent.len(), &parent[..3]), (55, "00-"), "{parent}");
        Mention {
            trace: TraceId::from(part(3..35)),
            span: SpanId::from(part(36..52) as u64),
            sampled: part(53..55) & 1 == 1,
        }
    }
}

/// The attribute of spans that were kept late.
const REASON: &str = "sampling.reason";

/// An exported span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) name: String,
    /// Empty for internal spans.
    pub(crate) kind: String,
    /// In steps, as is `end`.
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
    pub(crate) ids: Mention,
    pub(crate) parent: Option<Mention>,
    pub(crate) parent_is_remote: bool,
    pub(crate) state: String,
    pub(crate) status: Status,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) events: Vec<(String, BTreeMap<String, String>)>,
    pub(crate) links: Vec<Link>,
    /// The span had an event of level ERROR, whatever its status. Only the reference knows it,
    /// since exported spans do not show it.
    pub(crate) error_events: Unsaid<bool>,
}

/// A value that is equal to any other, so that it is not compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsaid<T>(pub(crate) T);

impl<T> PartialEq for Unsaid<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) to: Mention,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Record {
    pub(crate) fn new(name: &str, start: u64) -> Self {
        Record {
            name: name.to_owned(),
            kind: String::new(),
            start,
            end: None,
            ids: Mention::NONE,
            parent: None,
            parent_is_remote: false,
            state: String::new(),
            status: Status::Unset,
            attributes: BTreeMap::new(),
            events: Vec::new(),
            links: Vec::new(),
            error_events: Unsaid::default(),
        }
    }

    /// Whether the span has an error, by its status or by an event.
    pub(crate) fn failed(&self) -> bool {
        self.error_events.0 || matches!(self.status, Status::Error { .. })
    }

    /// Steps from `since` to the span's end.
    pub(crate) fn duration(&self, since: u64) -> u64 {
        self.end.unwrap_or(since) - since
    }

    /// The span as it is exported if its trace is kept late.
    pub(crate) fn kept_late(mut self, reason: &str) -> Record {
        self.attributes.insert(REASON.to_owned(), reason.to_owned());
        self.attributes.insert("sampler.adjusted_count".to_owned(), "0".to_owned());
        self
    }

    fn is_late(&self) -> bool {
        self.attributes.contains_key(REASON)
    }

    /// Sets the status unless the present one has precedence. `Ok` is final, and of two errors the
    /// later counts (OpenTelemetry specification, "Set Status"), unless only the earlier has a
    /// description.
    pub(crate) fn raise(&mut self, status: &Status) {
        let rank = |status: &Status| match status {
            Status::Unset => 0,
            Status::Error { description } if description.is_empty() => 1,
            Status::Error { .. } => 2,
            Status::Ok => 3,
        };
        if rank(status) >= rank(&self.status) {
            self.status = status.clone();
        }
    }

    pub(crate) fn of(span: &SpanData, origin: SystemTime, step: Duration) -> Self {
        let steps = |time: SystemTime| {
            let nanos = time.duration_since(origin).unwrap().as_nanos();
            u64::try_from(nanos / step.as_nanos()).unwrap()
        };
        let own = &span.span_context;
        // Exported spans have only the id of their parent, which is of the same trace.
        let parent = Mention { trace: own.trace_id(), span: span.parent_span_id, sampled: true };
        let kind = match span.span_kind {
            SpanKind::Internal => String::new(),
            ref kind => format!("{kind:?}").to_lowercase(),
        };
        let events = span.events.events.iter();
        let links = span.links.links.iter();
        let (state, attributes) = without_late_weight(own.trace_state().header(), pairs(&span.attributes));
        Record {
            name: span.name.to_string(),
            kind,
            start: steps(span.start_time),
            end: Some(steps(span.end_time)),
            ids: Mention::of(own),
            parent: (span.parent_span_id != SpanId::INVALID).then_some(parent),
            parent_is_remote: span.parent_span_is_remote,
            state,
            status: span.status.clone(),
            attributes,
            events: events.map(|event| (event.name.to_string(), pairs(&event.attributes))).collect(),
            links: links
                .map(|link| Link { to: Mention::of(&link.span_context), attributes: pairs(&link.attributes) })
                .collect(),
            error_events: Unsaid::default(),
        }
    }
}

/// Attributes without those that layers add to events.
fn pairs(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let added = |key: &str| key == "level" || key == "target" || key.starts_with("code.");
    let given = attributes.iter().filter(|pair| !added(pair.key.as_str()));
    given.map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
}

/// Which times are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Times {
    None,
    Start,
    StartAndEnd,
}

/// Numbers ids in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Names {
    traces: HashMap<TraceId, usize>,
    spans: HashMap<SpanId, usize>,
}

/// The numbers of a trace and a span, and whether the span is sampled.
pub(crate) type Name = (usize, usize, bool);

impl Names {
    /// The numbers of ids. Of unsampled spans only the trace is compared: callees drop the trace by
    /// the flag, and no span with that id is exported.
    fn of(&mut self, ids: Mention) -> Name {
        let Mention { trace, span, sampled } = ids;
        if trace == TraceId::INVALID {
            return (0, 0, false);
        }
        let next = self.traces.len() + 1;
        let trace = *self.traces.entry(trace).or_insert(next);
        if !sampled {
            return (trace, usize::from(span != SpanId::INVALID), false);
        }
        let next = self.spans.len() + 2;
        (trace, *self.spans.entry(span).or_insert(next), true)
    }

    /// The numbers of a span that is exported although it is not sampled.
    fn of_late(&mut self, ids: Mention) -> Name {
        let (trace, span, _) = self.of(Mention { sampled: true, ..ids });
        (trace, span, ids.sampled)
    }

    /// A step's outcome with numbers for ids.
    pub(crate) fn line(&mut self, line: &Line) -> (SeenContext<Name>, Answer<Name>) {
        let current = self.seen(&line.current);
        let answer = match &line.answer {
            Answer::Nothing => Answer::Nothing,
            Answer::Exists(exists) => Answer::Exists(*exists),
            Answer::Context(seen) => Answer::Context(self.seen(seen)),
            Answer::SetParent(result) => Answer::SetParent(result.clone()),
            Answer::Kept(number) => Answer::Kept(*number),
        };
        (current, answer)
    }

    fn seen(&mut self, seen: &SeenContext) -> SeenContext<Name> {
        let SeenContext { ids, remote, state, tenant } = seen;
        // A dropped trace has no baggage of its own: callees receive the baggage of the place where
        // the call is made.
        let tenant = tenant.clone().filter(|_| ids.sampled || ids.trace == TraceId::INVALID);
        SeenContext { ids: self.of(*ids), remote: *remote && ids.sampled, state: state.clone(), tenant }
    }

    /// One line per record with its times, in the order in which the spans began.
    pub(crate) fn records(&mut self, records: &mut [Record], times: Times) -> Vec<String> {
        records.sort_by_key(|record| record.start);
        let time = |record: &Record| match times {
            Times::None => String::new(),
            Times::Start => format!("{}.. ", record.start),
            Times::StartAndEnd => format!("{}..{} ", record.start, record.end.unwrap_or(0)),
        };
        records.iter().map(|record| time(record) + &self.record(record)).collect()
    }

    fn record(&mut self, record: &Record) -> String {
        let Record { name, kind, parent_is_remote, state, status, .. } = record;
        let (own, parent) = if record.is_late() {
            // A parent's sampled flag is not exported.
            let parent = record.parent.map(|parent| self.of_late(Mention { sampled: false, ..parent }));
            (self.of_late(record.ids), parent)
        } else {
            (self.of(record.ids), record.parent.map(|parent| self.of(parent)))
        };
        let links: Vec<_> = record.links.iter().map(|link| (self.of(link.to), &link.attributes)).collect();
        format!(
            "{name} {kind} {own:?} in {parent:?} (remote: {parent_is_remote}) {state:?} {status:?} {:?} \
             events {:?} links {links:?}",
            record.attributes, record.events,
        )
    }
}

/// Compares programs in which bounds lose spans. The remaining spans must still be true: spans of
/// one trace of ours are in one trace of the reference's, whatever was lost.
#[derive(Debug, Default)]
pub(crate) struct Cramped {
    /// The reference's trace for each of ours.
    traces: HashMap<TraceId, TraceId>,
    pub(crate) exported: u64,
    /// The reference's spans so far. A held trace may be exported in a later program than by the
    /// reference.
    expected: Vec<Record>,
    /// The starts of exported spans.
    seen: HashSet<u64>,
}

impl Cramped {
    fn compare(&mut self, got: Mention, expected: Mention) -> Result<(), String> {
        if !got.sampled {
            return Ok(());
        }
        let known = *self.traces.entry(got.trace).or_insert(expected.trace);
        if expected.sampled && known == expected.trace {
            Ok(())
        } else {
            Err(format!(
                "{got:?} was in the reference's trace {known} before, and is in that of {expected:?} now"
            ))
        }
    }

    pub(crate) fn compare_lines(&mut self, got: &[Line], expected: &[Line]) -> Result<(), String> {
        for (step, (got, expected)) in got.iter().zip(expected).enumerate() {
            let in_step = |error| format!("step {step}: {error}");
            self.compare(got.current.ids, expected.current.ids).map_err(in_step)?;
            if let (Answer::Context(got), Answer::Context(expected)) = (&got.answer, &expected.answer) {
                self.compare(got.ids, expected.ids).map_err(in_step)?;
            }
        }
        Ok(())
    }

    /// Checks that each exported span is one of the reference's, has no other attributes, and has
    /// one of its ancestors there as its parent.
    pub(crate) fn compare_records(&mut self, got: &[Record], expected: Vec<Record>) -> Result<(), String> {
        self.exported += got.len() as u64;
        self.expected.extend(expected);
        let expected = std::mem::take(&mut self.expected);
        let compared = self.compare_with(got, &expected);
        self.expected = expected;
        compared
    }

    fn compare_with(&mut self, got: &[Record], expected: &[Record]) -> Result<(), String> {
        // Spans begin one at a time, so the start identifies a span.
        let by_start: HashMap<u64, &Record> = expected.iter().map(|record| (record.start, record)).collect();
        let by_id: HashMap<SpanId, &Record> =
            expected.iter().map(|record| (record.ids.span, record)).collect();
        let counterpart: HashMap<SpanId, SpanId> = got
            .iter()
            .filter_map(|record| Some((record.ids.span, by_start.get(&record.start)?.ids.span)))
            .collect();
        for record in got {
            let expected =
                by_start.get(&record.start).ok_or_else(|| format!("the reference has no span {record:?}"))?;
            if !self.seen.insert(record.start) {
                return Err(format!("exported twice: {record:?}"));
            }
            let is_late = record.is_late();
            let sampled = |ids: Mention| Mention { sampled: ids.sampled || is_late, ..ids };
            self.compare(sampled(record.ids), sampled(expected.ids))?;
            // The reason may differ, and the number of cut spans is added.
            let is_part = |(key, value): (&String, &String)| {
                is_late && key.starts_with("sampl") || expected.attributes.get(key) == Some(value)
            };
            if record.name != expected.name || !record.attributes.iter().all(is_part) {
                return Err(format!("{record:?} is not {expected:?}"));
            }
            let Some(parent) = record.parent.and_then(|parent| counterpart.get(&parent.span)) else {
                continue;
            };
            let above = |record: &&Record| record.parent.and_then(|parent| by_id.get(&parent.span).copied());
            let mut ancestors = std::iter::successors(Some(*expected), above).skip(1);
            if !ancestors.any(|ancestor| ancestor.ids.span == *parent) {
                return Err(format!("{record:?} is not below {parent} in the reference"));
            }
        }
        Ok(())
    }
}

/// The weight of a trace that was kept late is left out, because `late_weights` tests it. The
/// attribute and the trace state have to agree on it.
fn without_late_weight(
    state: String,
    mut attributes: BTreeMap<String, String>,
) -> (String, BTreeMap<String, String>) {
    if !attributes.contains_key(REASON) {
        return (state, attributes);
    }
    let (others, weights): (Vec<&str>, Vec<&str>) =
        state.split(',').partition(|member| !member.starts_with("ot=th:"));
    let calls = weights.first().map_or(0.0, |weight| {
        let digits = format!("{:0<14}", weight.trim_start_matches("ot=th:"));
        let rejected = u64::from_str_radix(&digits, 16).expect("hexadecimal digits");
        2_f64.powi(56) / (2_f64.powi(56) - rejected as f64)
    });
    let count = attributes.insert("sampler.adjusted_count".to_owned(), "0".to_owned());
    let count: f64 = count.and_then(|count| count.parse().ok()).expect("a count");
    assert!((count - calls).abs() <= calls * 1e-9, "{count} for {state}");
    (others.join(","), attributes)
}
