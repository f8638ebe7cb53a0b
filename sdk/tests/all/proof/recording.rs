//! The fields of the reference's spans, and a span of the reference as the OpenTelemetry API sees
//! it.

use std::fmt;
use std::sync::{Mutex, Weak};
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanContext, Status};
use tracing::field::{Field, Visit};

use super::compare::Record;
use super::reference::Book;

/// Visits the fields of spans and events.
pub(crate) struct Fields<'a> {
    pub(crate) record: &'a mut Record,
}

impl Fields<'_> {
    fn text(&mut self, name: &str, value: String) {
        match name {
            "otel.name" | "message" => self.record.name = value,
            "otel.kind" => self.record.kind = value,
            name => {
                self.record.attributes.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.text(field.name(), value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.text(field.name(), value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field.name(), format!("{value:?}"));
    }
}

/// A kept span, as the OpenTelemetry API sees it.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) book: Weak<Mutex<Book>>,
    pub(crate) at: usize,
    pub(crate) context: SpanContext,
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Book")
    }
}

impl Recording {
    fn change(&self, f: impl FnOnce(&mut Record)) {
        if let Some(book) = self.book.upgrade() {
            book.lock().unwrap().change(self.at, f);
        }
    }
}

impl Span for Recording {
    fn add_event_with_timestamp<T>(&mut self, _: T, _: SystemTime, _: Vec<KeyValue>)
    where
        T: Into<std::borrow::Cow<'static, str>>,
    {
    }

    fn span_context(&self) -> &SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.change(|record| {
            record.attributes.insert(attribute.key.to_string(), attribute.value.to_string());
        });
    }

    fn set_status(&mut self, _: Status) {}

    fn update_name<T>(&mut self, _: T)
    where
        T: Into<std::borrow::Cow<'static, str>>,
    {
    }

    fn add_link(&mut self, _: SpanContext, _: Vec<KeyValue>) {}

    fn end_with_timestamp(&mut self, _: SystemTime) {}
}
