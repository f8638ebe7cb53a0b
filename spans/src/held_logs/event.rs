//! An event of `tracing` that is kept for later.

use std::error::Error;
use std::fmt;

use tracing_core::field::{Field, Value, Visit, display};
use tracing_core::span::Id;
use tracing_core::{Event, Metadata};

pub struct OwnedEvent {
    metadata: &'static Metadata<'static>,
    values: Vec<(Field, Box<dyn Value + Send + Sync>)>,
    value_bytes: usize,
}

impl fmt::Debug for OwnedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedEvent").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// The most fields that a held event may have.
const FIELDS_MAX: usize = 64;

impl OwnedEvent {
    /// `None` if the event has too many fields to be passed on later.
    pub fn of(event: &Event<'_>) -> Option<Self> {
        let metadata = event.metadata();
        if metadata.fields().len() > FIELDS_MAX {
            return None;
        }
        let mut owned = OwnedEvent { metadata, values: Vec::new(), value_bytes: 0 };
        event.record(&mut owned);
        Some(owned)
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<(Field, Box<dyn Value>)>() + self.value_bytes
    }

    /// Lends the event again, as one outside of all spans: its span may have ended, and another may
    /// have its id.
    pub fn lend(&self, f: impl FnOnce(&Event<'_>)) {
        let fields = self.metadata.fields();
        let Some((first, _)) = self.values.first() else {
            let none: [(&Field, Option<&dyn Value>); 0] = [];
            return f(&Event::new_child_of(None::<Id>, self.metadata, &fields.value_set(&none)));
        };
        let mut values: [(&Field, Option<&dyn Value>); FIELDS_MAX] = [(first, None); FIELDS_MAX];
        for (place, (field, value)) in values.iter_mut().zip(&self.values) {
            *place = (field, Some(&**value));
        }
        f(&Event::new_child_of(None::<Id>, self.metadata, &fields.value_set(&values)));
    }

    fn push<T: Value + Send + Sync + 'static>(&mut self, field: &Field, value: T, bytes: usize) {
        self.values.push((field.clone(), Box::new(value)));
        self.value_bytes += size_of::<T>() + bytes;
    }
}

impl Visit for OwnedEvent {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value, 0);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value, 0);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value, 0);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value, 0);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.push(field, value, 0);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.push(field, value, 0);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value.to_owned(), value.len());
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.push(field, Box::<[u8]>::from(value), value.len());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let error = OwnedError::of(value);
        let bytes = error.bytes();
        self.push(field, Box::<dyn Error + Send + Sync>::from(error), bytes);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let bytes = text.len();
        self.push(field, display(text), bytes);
    }
}

#[derive(Debug)]
struct OwnedError {
    text: String,
    source: Option<Box<OwnedError>>,
}

impl OwnedError {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let text = error.to_string();
        OwnedError { text, source: error.source().map(|source| Box::new(OwnedError::of(source))) }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.source.as_ref().map_or(0, |source| source.bytes())
    }
}

impl fmt::Display for OwnedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for OwnedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
