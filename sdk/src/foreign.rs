//! Any exporter for OpenTelemetry's trait as a destination: the only place that makes `SpanData`.

use std::any::type_name;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use astracer_model::destination::{Counter, Delivery, DeliveryReport, Destination, ErrorKind, ExportError};
use astracer_model::otel::w3c_flags;
use astracer_model::span::{Event, Link, Scope};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanKind, Status, UnixNanos, Value};
use astracer_spans::export::{OWN_SCOPE, own_scope};
use astracer_spans::sync::{Mutex, lock};
use opentelemetry::trace::{self as otel, SpanContext, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, SpanId, StringValue, TraceId};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter, SpanLinks};

#[derive(Debug)]
pub(crate) struct Foreign<E> {
    exporter: E,
    converter: Mutex<Converter>,
}

impl<E> Foreign<E> {
    pub(crate) fn new(exporter: E) -> Self {
        Foreign { exporter, converter: Mutex::default() }
    }
}

impl<E: SpanExporter> Destination for Foreign<E> {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let mut converter = lock(&self.converter);
        converter.batch += 1;
        let batch = spans.iter().map(|span| converter.span_data(span)).collect();
        drop(converter);
        match futures_executor::block_on(self.exporter.export(batch)) {
            Ok(()) => DeliveryReport::delivered(Delivery::all(spans)),
            Err(error) => DeliveryReport::lost(failed::<E>(&error), spans.len() as u64),
        }
    }

    /// OpenTelemetry's trait reports only success or failure of a whole batch, to the caller.
    fn counter(&self) -> Counter {
        Counter::default()
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.exporter.force_flush().map_err(|error| failed::<E>(&error))
    }

    fn shut_down(&self, timeout: Duration) -> Result<(), ExportError> {
        self.exporter.shutdown_with_timeout(timeout).map_err(|error| failed::<E>(&error))
    }
}

fn failed<E>(error: &OTelSdkError) -> ExportError {
    ExportError::new(ErrorKind::ExporterFailed, type_name::<E>(), error.to_string())
}

/// Converts spans. Keeps what many spans share, because `SpanData` owns its parts.
#[derive(Debug)]
struct Converter {
    scope: Option<(Arc<Scope>, InstrumentationScope)>,
    state: (String, TraceState),
    /// Names and short values, by their address: most of them are constants of the program.
    texts: [[Option<Known>; 2]; TEXTS],
    /// The number of the batch that is being converted.
    batch: u64,
}

/// A text of earlier spans.
#[derive(Debug)]
struct Known {
    text: Arc<str>,
    /// Its place when it was last compared, and the batch. Within a batch the spans' memory does
    /// not change, so that the place alone identifies the text.
    place: (usize, usize),
    batch: u64,
}

const TEXTS: usize = 1 << TEXT_BITS;
const TEXT_BITS: u32 = 8;
const TEXT_BYTES_MAX: usize = 128;

impl Default for Converter {
    fn default() -> Self {
        let texts = [const { [None, None] }; TEXTS];
        Converter { scope: None, state: Default::default(), texts, batch: 0 }
    }
}

impl Converter {
    fn span_data(&mut self, span: &Span<'_>) -> SpanData {
        let (flags, parent_span_is_remote) = w3c_flags(span.flags);
        let (trace_id, span_id) = (TraceId::from(span.trace_id.0), SpanId::from(span.span_id.0));
        let mut events = SpanEvents::default();
        events.events = span.events.iter().map(|event| self.event(event)).collect();
        events.dropped_count = span.dropped_events;
        let mut links = SpanLinks::default();
        links.links = span.links.iter().map(|link| self.link(link)).collect();
        links.dropped_count = span.dropped_links;
        SpanData {
            span_context: SpanContext::new(trace_id, span_id, flags, false, self.state(&span.trace_state)),
            parent_span_id: span.parents.first().map_or(SpanId::INVALID, |parent| SpanId::from(parent.0)),
            parent_span_is_remote,
            span_kind: match span.kind {
                SpanKind::Unspecified | SpanKind::Internal => otel::SpanKind::Internal,
                SpanKind::Server => otel::SpanKind::Server,
                SpanKind::Client => otel::SpanKind::Client,
                SpanKind::Producer => otel::SpanKind::Producer,
                SpanKind::Consumer => otel::SpanKind::Consumer,
            },
            name: span.name.clone().into_owned().into(),
            start_time: time(span.start.unwrap_or_default()),
            end_time: time(span.end.unwrap_or_default()),
            attributes: self.attributes(&span.attributes),
            dropped_attributes_count: span.dropped_attributes,
            events,
            links,
            status: match span.status {
                Status::Unset => otel::Status::Unset,
                Status::Ok => otel::Status::Ok,
                Status::Error => otel::Status::error(span.status_message.clone().into_owned()),
            },
            instrumentation_scope: self.scope(&span.scope),
        }
    }

    fn scope(&mut self, scope: &Arc<Scope>) -> InstrumentationScope {
        match &self.scope {
            Some((known, made)) if Arc::ptr_eq(known, scope) => made.clone(),
            _ => {
                let made = self.instrumentation_scope(scope);
                self.scope.insert((scope.clone(), made)).1.clone()
            }
        }
    }

    fn instrumentation_scope(&mut self, scope: &Scope) -> InstrumentationScope {
        if *scope == own_scope() {
            // Constants are cheap to clone.
            return InstrumentationScope::builder(OWN_SCOPE.0).with_version(OWN_SCOPE.1).build();
        }
        let mut made = InstrumentationScope::builder(scope.name.clone());
        if !scope.version.is_empty() {
            made = made.with_version(scope.version.clone());
        }
        if !scope.schema_url.is_empty() {
            made = made.with_schema_url(scope.schema_url.clone());
        }
        made.with_attributes(self.attributes(&scope.attributes)).build()
    }

    fn state(&mut self, header: &str) -> TraceState {
        if self.state.0 != header {
            self.state = (header.to_owned(), header.parse().unwrap_or_default());
        }
        self.state.1.clone()
    }

    fn event(&mut self, event: &Event<'_>) -> otel::Event {
        let name = event.name.clone().into_owned();
        let attributes = self.attributes(&event.attributes);
        otel::Event::new(name, time(event.time), attributes, event.dropped_attributes)
    }

    fn link(&mut self, link: &Link<'_>) -> otel::Link {
        let (flags, is_remote) = w3c_flags(link.flags);
        let (trace_id, span_id) = (TraceId::from(link.trace_id.0), SpanId::from(link.span_id.0));
        let to = SpanContext::new(trace_id, span_id, flags, is_remote, self.state(&link.trace_state));
        otel::Link::new(to, self.attributes(&link.attributes), link.dropped_attributes)
    }

    fn attributes(&mut self, attributes: &[Attribute<'_>]) -> Vec<KeyValue> {
        let one = |own: &Attribute<'_>| KeyValue::new(self.text(&own.key), self.value(&own.value));
        attributes.iter().map(one).collect()
    }

    fn value(&mut self, of: &Value<'_>) -> opentelemetry::Value {
        match of {
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Double(value) => (*value).into(),
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => opentelemetry::Value::Array(array(items)),
            // Spans of this process have no values of other types.
            Value::Empty | Value::Bytes(_) | Value::Map(_) => "".into(),
        }
    }

    #[inline]
    fn text(&mut self, text: &str) -> Arc<str> {
        let place = (text.as_ptr().addr(), text.len());
        // Fibonacci hashing (Knuth, "The Art of Computer Programming", 6.4).
        let slot = (place.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TEXT_BITS);
        let slot = &mut self.texts[slot as usize % TEXTS];
        for known in slot.iter().flatten() {
            if known.place == place && known.batch == self.batch {
                return known.text.clone();
            }
        }
        compared(slot, text, place, self.batch)
    }
}

/// Finds a text by its content, or keeps it.
#[inline(never)]
fn compared(slot: &mut [Option<Known>; 2], text: &str, place: (usize, usize), batch: u64) -> Arc<str> {
    for known in slot.iter_mut().flatten() {
        if *known.text == *text {
            (known.place, known.batch) = (place, batch);
            return known.text.clone();
        }
    }
    let made = Arc::<str>::from(text);
    if text.len() <= TEXT_BYTES_MAX {
        let [first, second] = slot;
        *second = first.replace(Known { text: made.clone(), place, batch });
    }
    made
}

fn time(time: UnixNanos) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(time.0)
}

/// Lists of this process have items of one type.
fn array(items: &[Value<'_>]) -> Array {
    match items.first() {
        Some(Value::Bool(_)) => {
            Array::Bool(items.iter().map(|item| matches!(item, Value::Bool(true))).collect())
        }
        Some(Value::Int(_)) => {
            let int = |item: &Value<'_>| if let Value::Int(value) = item { Some(*value) } else { None };
            Array::I64(items.iter().filter_map(int).collect())
        }
        Some(Value::Double(_)) => {
            let double = |item: &Value<'_>| if let Value::Double(value) = item { Some(*value) } else { None };
            Array::F64(items.iter().filter_map(double).collect())
        }
        _ => {
            let text = |item: &Value<'_>| item.as_str().map(|text| StringValue::from(text.to_owned()));
            Array::String(items.iter().filter_map(text).collect())
        }
    }
}

#[cfg(all(test, feature = "enabled", not(loom)))]
mod tests {
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkResult;
    use tracing_core::dispatcher::{self, Dispatch};

    use super::*;
    use crate::{Astracer, DroppedSpans};

    /// Records whether its thread has a scoped subscriber, which keeps spans from the global one.
    #[derive(Clone, Debug, Default)]
    struct Listens(Arc<Mutex<Vec<bool>>>);

    impl SpanExporter for Listens {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let none =
                dispatcher::get_default(|dispatch| dispatch.is::<tracing_core::subscriber::NoSubscriber>());
            self.0.lock().unwrap().push(none);
            Ok(())
        }
    }

    /// Uses a global subscriber, as services do: no other test in this binary needs one.
    #[test]
    fn what_the_exporter_traces_does_not_come_back() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let exporter = Listens::default();
        let builder = Astracer::builder()
            .with_dropped_spans(DroppedSpans::Visible)
            .with_sampler("always".parse().unwrap());
        let astracer = builder.with_exporter(exporter.clone()).build().unwrap();
        let subscriber = tracing_subscriber::registry().with(astracer.layer);
        dispatcher::set_global_default(Dispatch::new(subscriber)).unwrap();
        tracing::info_span!("root").in_scope(|| ());
        astracer.handle.flush(Duration::from_secs(60)).unwrap();
        assert_eq!(*exporter.0.lock().unwrap(), [true]);
    }
}
