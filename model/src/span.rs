//! One span, as its record states it. Readers produce this form, and writers consume it.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::{SpanId, TraceId};
use crate::time::UnixNanos;
use crate::value::{Attribute, Value};

/// The parents of a span, nearest cause first. Most spans have at most one; HTrace allows several.
///
/// Dereferences to a slice. Up to two parents need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents(SmallVec<[SpanId; 2]>);

impl Parents {
    /// No parents: a root.
    pub const fn new() -> Self {
        Self(SmallVec::new_const())
    }

    /// Appends a parent.
    pub fn push(&mut self, parent: SpanId) {
        self.0.push(parent);
    }
}

impl Deref for Parents {
    type Target = [SpanId];

    fn deref(&self) -> &[SpanId] {
        &self.0
    }
}

impl Extend<SpanId> for Parents {
    fn extend<I: IntoIterator<Item = SpanId>>(&mut self, parents: I) {
        self.0.extend(parents);
    }
}

impl FromIterator<SpanId> for Parents {
    fn from_iter<I: IntoIterator<Item = SpanId>>(parents: I) -> Self {
        Self(parents.into_iter().collect())
    }
}

/// One span, borrowed from the reader's buffer where possible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span<'a> {
    /// The trace; [`TraceId::ZERO`] if the recorder wrote none (HTrace 3 pipelines).
    pub trace_id: TraceId,
    /// The span's own id.
    pub span_id: SpanId,
    /// The parents as written, whether or not the recording contains them. Empty for a root.
    pub parents: Parents,
    /// The operation as written, before ids in names are folded.
    pub name: Cow<'a, str>,
    /// The side of a call that the span describes.
    pub kind: SpanKind,
    /// The start time.
    pub start: Option<UnixNanos>,
    /// The end time.
    pub end: Option<UnixNanos>,
    /// The duration in nanoseconds of a span without a start, as Jaeger and Zipkin allow it. `None`
    /// if the start is known: the end then states the duration.
    pub lone_duration: Option<u64>,
    /// The outcome.
    pub status: Status,
    /// The description of an error status.
    pub status_message: Cow<'a, str>,
    /// Attributes in the order written.
    pub attributes: Vec<Attribute<'a>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
    /// Events, in the order written.
    pub events: Vec<Event<'a>>,
    /// The number of events that the SDK discarded.
    pub dropped_events: u32,
    /// Causal links other than parents.
    pub links: Vec<Link<'a>>,
    /// The number of links that the SDK discarded.
    pub dropped_links: u32,
    /// The text of the W3C `tracestate` header.
    pub trace_state: Cow<'a, str>,
    /// OTLP's flags: the low 8 bits are W3C trace flags; bits 8 and 9 state whether the parent was
    /// remote.
    pub flags: u32,
    /// True for the server's half of an id that client and server share (Zipkin's B3 model).
    pub shared: bool,
    /// True if the first parent did not wait for this span (OpenTracing's FOLLOWS_FROM).
    pub follows: bool,
    /// The form in which the record states the fields above.
    pub wording: Wording,
    /// The process that emitted the span.
    pub resource: Arc<Resource>,
    /// The instrumentation library that emitted the span.
    pub scope: Arc<Scope>,
}

/// The form in which a record states its content, where its format differs from OpenTelemetry's. It
/// lets a writer of the same format reproduce the record without additions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wording {
    /// The number of attributes, at the end of the list, that the record holds in a field for the
    /// peer (Zipkin's remote endpoint).
    pub peer_attributes: u8,
    /// That field, if it differs from what a writer would derive from the attributes.
    pub peer: PeerField,
    /// The tags that state the status and its description (Zipkin), if they differ from
    /// OpenTelemetry's specification.
    pub status: Option<StatusTags>,
    /// The tags that state the scope's name.
    pub scope_name: ScopeTags,
    /// The tags that state the scope's version.
    pub scope_version: ScopeTags,
    /// True if the record names no service, so that the name was derived from another field
    /// (X-Trace's class).
    pub derived_service: bool,
    /// True if the record has no label, so that the span's name was derived from another field
    /// (X-Trace's operation or class).
    pub derived_name: bool,
}

/// The field for the peer (Zipkin's remote endpoint).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerField {
    /// The field is the one that a writer derives from attributes that name a peer.
    #[default]
    AsAttributes,
    /// The record has no such field, although attributes name a peer.
    Absent,
    /// The field has the service, the first address, the second address and the port, for each flag
    /// that is true. Their values are those of the [`Wording::peer_attributes`], and of other
    /// attributes with the same names.
    Parts([bool; 4]),
}

/// The tags that state a status and its description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusTags {
    /// Whether there is a tag `otel.status_code`.
    pub code: bool,
    /// Whether there is a tag `otel.status_description`.
    pub description: bool,
    /// The tag `error`.
    pub error: ErrorTag,
}

/// The text of the tag `error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorTag {
    /// There is no such tag.
    #[default]
    Absent,
    /// The text is empty; another tag has the description.
    Empty,
    /// The text is `true`, which is not a description.
    True,
    /// The text is the description.
    Description,
    /// The text is something else, and is the value of the span's first attribute with this name.
    Other,
}

/// The names of the tags that state a scope's name or version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeTags {
    /// Both `otel.scope.*` and `otel.library.*`, with the same text, as OpenTelemetry's
    /// specification requires.
    #[default]
    Both,
    /// Only `otel.scope.*`.
    Newer,
    /// Only `otel.library.*`.
    Older,
}

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SpanKind {
    /// The recorder did not state the kind.
    #[default]
    Unspecified = 0,
    /// Work inside a service.
    Internal = 1,
    /// The server side of a call.
    Server = 2,
    /// The client side of a call.
    Client = 3,
    /// The sending side of a message.
    Producer = 4,
    /// The receiving side of a message.
    Consumer = 5,
}

impl SpanKind {
    /// The kind for OTLP's number; undefined numbers are unspecified.
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

    /// The lower-case word of Jaeger's `span.kind` tag; `None` if unspecified.
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

    /// The kind for a word, in either case.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Internal, Self::Server, Self::Client, Self::Producer, Self::Consumer]
            .into_iter()
            .find(|kind| kind.word().is_some_and(|own| own.eq_ignore_ascii_case(word)))
    }
}

/// The outcome of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// The recorder did not state an outcome.
    #[default]
    Unset = 0,
    /// Explicitly successful.
    Ok = 1,
    /// An error.
    Error = 2,
}

impl Status {
    /// The status for OTLP's number; undefined numbers are unset.
    pub fn from_otlp(number: i64) -> Self {
        match number {
            1 => Self::Ok,
            2 => Self::Error,
            _ => Self::Unset,
        }
    }
}

/// A timed event inside a span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// The time of the event.
    pub time: UnixNanos,
    /// The name of the event.
    pub name: Cow<'a, str>,
    /// Attributes in the order written.
    pub attributes: Vec<Attribute<'a>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
}

/// A causal link to a span of this or another trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link<'a> {
    /// The linked span's trace.
    pub trace_id: TraceId,
    /// The linked span.
    pub span_id: SpanId,
    /// The linked span's `tracestate`.
    pub trace_state: Cow<'a, str>,
    /// Attributes in the order written.
    pub attributes: Vec<Attribute<'a>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
    /// OTLP's flags, as on a span.
    pub flags: u32,
}

/// A source of spans: a process, described by attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Attributes, including `service.name`.
    pub attributes: Vec<Attribute<'static>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
    /// The schema that the attributes follow.
    pub schema_url: String,
}

impl Resource {
    /// A resource with a service name and nothing else.
    pub fn service(name: &str) -> Self {
        Self { attributes: vec![Attribute::new("service.name", name).into_owned()], ..Self::default() }
    }

    /// The value of `service.name`; empty if it is not set.
    pub fn service_name(&self) -> &str {
        lookup(&self.attributes, "service.name").and_then(Value::as_str).unwrap_or("")
    }
}

/// An instrumentation library.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The library's name.
    pub name: String,
    /// The library's version.
    pub version: String,
    /// The library's attributes.
    pub attributes: Vec<Attribute<'static>>,
    /// The number of attributes that the SDK discarded.
    pub dropped_attributes: u32,
    /// The schema that the spans follow.
    pub schema_url: String,
}

/// The value of the first attribute with this key.
pub fn lookup<'s, 'a>(attributes: &'s [Attribute<'a>], key: &str) -> Option<&'s Value<'a>> {
    attributes.iter().find(|attribute| attribute.key == key).map(|attribute| &attribute.value)
}

impl<'a> Span<'a> {
    /// A span with this resource and scope and all other fields empty. Unlike `default()`, this
    /// allocates nothing.
    pub fn of(resource: Arc<Resource>, scope: Arc<Scope>) -> Self {
        Self {
            trace_id: TraceId::ZERO,
            span_id: SpanId::ZERO,
            parents: Parents::new(),
            name: Cow::Borrowed(""),
            kind: SpanKind::Unspecified,
            start: None,
            end: None,
            lone_duration: None,
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
            follows: false,
            wording: Wording::default(),
            resource,
            scope,
        }
    }

    /// Converts the span into one that owns its text.
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
            lone_duration: self.lone_duration,
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
            follows: self.follows,
            wording: self.wording,
            resource: self.resource,
            scope: self.scope,
        }
    }
}
