//! Where texts lie: one string for all of them, so that a trace of many small texts is one allocation.

use opentelemetry::KeyValue;

use super::attribute::Value;
use super::record::{Text, Texts};

/// The texts of a trace, or of what is recorded at once.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) text: String,
    pub(crate) lists: Vec<Text>,
    /// Attributes that came by OpenTelemetry's API.
    pub(crate) others: Vec<KeyValue>,
}

impl Memory {
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.lists.clear();
        if !self.others.is_empty() {
            self.others.clear();
        }
    }

    /// Moves all to the end of other memory.
    pub(crate) fn move_to(&mut self, to: &mut Memory) {
        if !self.text.is_empty() {
            to.text.push_str(&self.text);
            self.text.clear();
        }
        if !self.lists.is_empty() {
            to.lists.append(&mut self.lists);
        }
        if !self.others.is_empty() {
            to.others.append(&mut self.others);
        }
    }

    pub(crate) fn text(&self, text: Text) -> &str {
        self.text.get(text.start as usize..(text.start + text.length) as usize).unwrap_or_default()
    }

    pub(crate) fn texts(&self, texts: Texts) -> &[Text] {
        self.lists.get(texts.start as usize..(texts.start + texts.count) as usize).unwrap_or_default()
    }

    /// What was written since the text was so long.
    pub(crate) fn since(&self, start: usize) -> Text {
        Text { start: start as u32, length: (self.text.len() - start) as u32 }
    }

    /// A text of other memory, copied to this.
    pub(crate) fn adopt(&mut self, other: &Memory, text: Text) -> Text {
        let start = self.text.len();
        self.text.push_str(other.text(text));
        self.since(start)
    }

    /// As [`Memory::adopt`], for a list of texts.
    pub(crate) fn adopt_all(&mut self, other: &Memory, texts: Texts) -> Texts {
        let start = self.lists.len() as u32;
        for text in other.texts(texts) {
            let adopted = self.adopt(other, *text);
            self.lists.push(adopted);
        }
        Texts { start, ..texts }
    }

    /// Keeps an attribute of OpenTelemetry's API.
    pub(crate) fn keep(&mut self, other: KeyValue) -> Value {
        self.others.push(other);
        Value::Other((self.others.len() - 1) as u32)
    }
}
