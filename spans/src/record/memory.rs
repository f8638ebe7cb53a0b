//! Memory for texts: all of them share one string, so that many small texts take one allocation.

use opentelemetry::KeyValue;

/// A part of [`Memory::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    pub start: u32,
    pub length: u32,
}

impl Text {
    pub const EMPTY: Text = Text { start: 0, length: 0 };
}

/// A part of [`Memory::lists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Texts {
    pub start: u32,
    pub count: u32,
}

/// The texts of an open span, of a trace's ended spans, or of fields on their way to either.
#[derive(Debug, Default)]
pub struct Memory {
    pub text: String,
    pub lists: Vec<Text>,
    /// Attributes from OpenTelemetry's API, with their names.
    pub others: Vec<KeyValue>,
}

/// The lengths of a [`Memory`]'s parts. Positions in memory that is appended to it have to be moved
/// by these lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub text: u32,
    pub lists: u32,
    pub others: u32,
}

impl Lengths {
    pub fn text(self, text: Text) -> Text {
        Text { start: text.start + self.text, ..text }
    }

    #[inline]
    pub fn bytes(self) -> usize {
        self.text as usize
            + size_of::<Text>() * self.lists as usize
            + size_of::<KeyValue>() * self.others as usize
    }
}

impl Memory {
    #[inline]
    pub fn clear(&mut self) {
        self.text.clear();
        self.lists.clear();
        if !self.others.is_empty() {
            self.others.clear();
        }
    }

    #[inline]
    pub fn lengths(&self) -> Lengths {
        Lengths {
            text: self.text.len() as u32,
            lists: self.lists.len() as u32,
            others: self.others.len() as u32,
        }
    }

    /// Bytes in use, excluding what values from the OpenTelemetry API own.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.lengths().bytes()
    }

    /// Bytes of memory held, used or not; excluding the same.
    pub fn bytes_held(&self) -> usize {
        self.text.capacity() + held(&self.lists) + held(&self.others)
    }

    pub fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.lists.shrink_to_fit();
        self.others.shrink_to_fit();
    }

    /// Moves everything to the end of `to`. Returns the lengths by which positions have to be
    /// moved.
    #[inline(always)]
    pub fn move_to(&mut self, to: &mut Memory) -> Lengths {
        let at = to.lengths();
        if !self.text.is_empty() {
            to.text.push_str(&self.text);
            self.text.clear();
        }
        if !self.lists.is_empty() {
            to.lists.extend(self.lists.drain(..).map(|text| at.text(text)));
        }
        if !self.others.is_empty() {
            to.others.append(&mut self.others);
        }
        at
    }

    /// Moves everything to the end of `to`, as it is.
    pub(super) fn append_to(&mut self, to: &mut Memory) {
        to.text.push_str(&self.text);
        self.text.clear();
        append(&mut self.lists, &mut to.lists);
        append(&mut self.others, &mut to.others);
    }

    #[inline]
    pub fn view(&self) -> MemoryView<'_> {
        MemoryView { text: &self.text, lists: &self.lists, others: &self.others }
    }

    pub fn text(&self, text: Text) -> &str {
        self.view().text(text)
    }

    /// The text written since the memory had `start` bytes of text.
    pub fn since(&self, start: usize) -> Text {
        Text { start: start as u32, length: (self.text.len() - start) as u32 }
    }

    pub fn push(&mut self, text: &str) -> Text {
        let start = self.text.len();
        self.text.push_str(text);
        self.since(start)
    }

    /// Copies a text from another memory to this one.
    pub fn adopt(&mut self, other: &Memory, text: Text) -> Text {
        self.push(other.text(text))
    }

    /// As [`Memory::adopt`], for a list of texts.
    pub fn adopt_all(&mut self, other: &Memory, texts: Texts) -> Texts {
        let start = self.lists.len() as u32;
        for text in other.view().texts(texts) {
            let adopted = self.adopt(other, *text);
            self.lists.push(adopted);
        }
        Texts { start, ..texts }
    }

    /// Stores an attribute from OpenTelemetry's API. Returns its index in [`Memory::others`].
    pub fn keep(&mut self, other: KeyValue) -> u32 {
        self.others.push(other);
        (self.others.len() - 1) as u32
    }
}

/// A [`Memory`], or the memory of one trace in a batch.
#[derive(Clone, Copy, Debug)]
pub struct MemoryView<'a> {
    pub(super) text: &'a str,
    pub(super) lists: &'a [Text],
    pub(super) others: &'a [KeyValue],
}

impl<'a> MemoryView<'a> {
    /// Splits off the first part, which has these lengths.
    pub(super) fn split_off(&mut self, lengths: Lengths) -> Self {
        let text;
        (text, self.text) = self.text.split_at_checked(lengths.text as usize).unwrap_or_default();
        let lists = split(&mut self.lists, lengths.lists as usize);
        MemoryView { text, lists, others: split(&mut self.others, lengths.others as usize) }
    }

    /// An attribute from OpenTelemetry's API, by its index.
    #[inline]
    pub fn other(self, place: u32) -> Option<&'a KeyValue> {
        self.others.get(place as usize)
    }

    pub fn text(self, text: Text) -> &'a str {
        self.text.get(text.start as usize..text.start as usize + text.length as usize).unwrap_or_default()
    }

    pub fn texts(self, texts: Texts) -> &'a [Text] {
        self.lists.get(texts.start as usize..texts.start as usize + texts.count as usize).unwrap_or_default()
    }
}

/// The bytes of memory that a list holds.
pub(super) fn held<T>(list: &Vec<T>) -> usize {
    size_of::<T>() * list.capacity()
}

/// Moves all items to the end of `to`, and touches that list only if there are any.
pub(super) fn append<T>(from: &mut Vec<T>, to: &mut Vec<T>) {
    if !from.is_empty() {
        to.append(from);
    }
}

/// Splits the first `length` items off a list.
pub(crate) fn split<'a, T>(list: &mut &'a [T], length: usize) -> &'a [T] {
    let own;
    (own, *list) = list.split_at(length.min(list.len()));
    own
}

/// The first `max` characters of the text.
pub(super) fn cut_text(text: &str, max: u32) -> &str {
    if text.len() <= max as usize {
        return text;
    }
    text.char_indices().nth(max as usize).map_or(text, |(end, _)| &text[..end])
}
