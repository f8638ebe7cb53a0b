//! One span as a format's record says it: the form in which readers hand spans out and writers take them.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::{SpanId, TraceId};
use crate::time::UnixNanos;
use crate::value::{Attribute, Value};

/// The parents of a span, nearest cause first. Most spans have one or none; HTrace allows several.
pub type Parents = SmallVec<[SpanId; 2]>;

/// One span, borrowed from the reader's buffer where it can be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span<'a> {
    /// The trace; [`TraceId::ZERO`] when the recorder wrote none (HTrace 3 pipelines).
    pub trace_id: TraceId,
    /// The span's own id.
    pub span_id: SpanId,
    /// Parents as written, whether or not they are in the recording. Empty for a root.
    pub parents: Parents,
    /// The operation, as written: folding ids out of names is a later step.
    pub name: Cow<'a, str>,
    /// The side of a call that the span describes.
    pub kind: SpanKind,
    /// When it started.
    pub start: Option<UnixNanos>,
    /// When it ended.
    pub end: Option<UnixNanos>,
    /// How it ended.
    pub status: Status,
    /// The status' description, for errors.
    pub status_message: Cow<'a, str>,
    /// Attributes in the order written.
    pub attributes: Vec<Attribute<'a>>,
    /// Attributes that the SDK cut off.
    pub dropped_attributes: u32,
    /// Timed notes.
    pub events: Vec<Event<'a>>,
    /// Events that the SDK cut off.
    pub dropped_events: u32,
    /// Causes beside the parents.
    pub links: Vec<Link<'a>>,
    /// Links that the SDK cut off.
    pub dropped_links: u32,
    /// The W3C tracestate header's text.
    pub trace_state: Cow<'a, str>,
    /// OTLP's flags: the low 8 bits are W3C trace flags, bits 8 and 9 tell whether the parent was remote.
    pub flags: u32,
    /// True for the server's half of an id that client and server share (Zipkin's B3 model).
    pub shared: bool,
    /// What emitted the span.
    pub resource: Arc<Resource>,
    /// The library that emitted it.
    pub scope: Arc<Scope>,
}

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SpanKind {
    /// The recorder did not say.
    #[default]
    Unspecified = 0,
    /// Work inside a service.
    Internal = 1,
    /// The answering side of a call.
    Server = 2,
    /// The asking side of a call.
    Client = 3,
    /// The sending side of a message.
    Producer = 4,
    /// The receiving side of a message.
    Consumer = 5,
}

impl SpanKind {
    /// OTLP's number for the kind; numbers that it does not define are unspecified.
    pub fn from_otlp(number: i64) -> Self {
        match number {
            1 => Self::Internal,
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Unspecified,
        }
    }

    /// The lower-case word that Jaeger's `span.kind` tag uses; `None` if unspecified.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Unspecified => None,
            Self::Internal => Some("internal"),
            Self::Server => Some("server"),
            Self::Client => Some("client"),
            Self::Producer => Some("producer"),
            Self::Consumer => Some("consumer"),
        }
    }

    /// The kind for a word in either case.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Internal, Self::Server, Self::Client, Self::Producer, Self::Consumer]
            .into_iter()
            .find(|kind| kind.word().is_some_and(|own| own.eq_ignore_ascii_case(word)))
    }
}

/// How a span ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// The recorder did not say.
    #[default]
    Unset = 0,
    /// Explicitly well.
    Ok = 1,
    /// With an error.
    Error = 2,
}

impl Status {
    /// OTLP's number for the code; numbers that it does not define are unset.
    pub fn from_otlp(number: i64) -> Self {
        match number {
            1 => Self::Ok,
            2 => Self::Error,
            _ => Self::Unset,
        }
    }
}

/// A timed note inside a span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// When.
    pub time: UnixNanos,
    /// What.
    pub name: Cow<'a, str>,
    /// Details.
    pub attributes: Vec<Attribute<'a>>,
    /// Attributes that the SDK cut off.
    pub dropped_attributes: u32,
}

/// A cause in this or another trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link<'a> {
    /// The other span's trace.
    pub trace_id: TraceId,
    /// The other span.
    pub span_id: SpanId,
    /// Its tracestate.
    pub trace_state: Cow<'a, str>,
    /// Details.
    pub attributes: Vec<Attribute<'a>>,
    /// Attributes that the SDK cut off.
    pub dropped_attributes: u32,
    /// OTLP's flags, as on a span.
    pub flags: u32,
}

/// What emitted spans: a process, described by attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Attributes, `service.name` among them.
    pub attributes: Vec<Attribute<'static>>,
    /// Attributes that the SDK cut off.
    pub dropped_attributes: u32,
    /// The schema that the attributes follow.
    pub schema_url: String,
}

impl Resource {
    /// A resource that only has a name.
    pub fn service(name: &str) -> Self {
        Self { attributes: vec![Attribute::new("service.name", name).into_owned()], ..Self::default() }
    }

    /// The value of `service.name`, empty if there is none.
    pub fn service_name(&self) -> &str {
        lookup(&self.attributes, "service.name").and_then(Value::as_str).unwrap_or("")
    }
}

/// The library that emitted spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its attributes.
    pub attributes: Vec<Attribute<'static>>,
    /// Attributes that the SDK cut off.
    pub dropped_attributes: u32,
    /// The schema that the spans follow.
    pub schema_url: String,
}

/// The value of the first attribute with this key.
pub fn lookup<'s, 'a>(attributes: &'s [Attribute<'a>], key: &str) -> Option<&'s Value<'a>> {
    attributes.iter().find(|attribute| attribute.key == key).map(|attribute| &attribute.value)
}

impl<'a> Span<'a> {
    /// A span of this resource and scope with every other field empty. Unlike `default()`, this allocates nothing.
    pub fn of(resource: Arc<Resource>, scope: Arc<Scope>) -> Self {
        Self {
            trace_id: TraceId::ZERO,
            span_id: SpanId::ZERO,
            parents: Parents::new(),
            name: Cow::Borrowed(""),
            kind: SpanKind::Unspecified,
            start: None,
            end: None,
            status: Status::Unset,
            status_message: Cow::Borrowed(""),
            attributes: Vec::new(),
            dropped_attributes: 0,
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            dropped_links: 0,
            trace_state: Cow::Borrowed(""),
            flags: 0,
            shared: false,
            resource,
            scope,
        }
    }

    /// The same span, owning its text.
    pub fn into_owned(self) -> Span<'static> {
        fn own(attributes: Vec<Attribute<'_>>) -> Vec<Attribute<'static>> {
            attributes.into_iter().map(Attribute::into_owned).collect()
        }
        Span {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parents: self.parents,
            name: Cow::Owned(self.name.into_owned()),
            kind: self.kind,
            start: self.start,
            end: self.end,
            status: self.status,
            status_message: Cow::Owned(self.status_message.into_owned()),
            attributes: own(self.attributes),
            dropped_attributes: self.dropped_attributes,
            events: self
                .events
                .into_iter()
                .map(|event| Event {
                    time: event.time,
                    name: Cow::Owned(event.name.into_owned()),
                    attributes: own(event.attributes),
                    dropped_attributes: event.dropped_attributes,
                })
                .collect(),
            dropped_events: self.dropped_events,
            links: self
                .links
                .into_iter()
                .map(|link| Link {
                    trace_id: link.trace_id,
                    span_id: link.span_id,
                    trace_state: Cow::Owned(link.trace_state.into_owned()),
                    attributes: own(link.attributes),
                    dropped_attributes: link.dropped_attributes,
                    flags: link.flags,
                })
                .collect(),
            dropped_links: self.dropped_links,
            trace_state: Cow::Owned(self.trace_state.into_owned()),
            flags: self.flags,
            shared: self.shared,
            resource: self.resource,
            scope: self.scope,
        }
    }
}
