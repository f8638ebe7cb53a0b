//! The recorded values of a root's attributes, as the rule for keys reads them.

use std::borrow::Cow;

use crate::intern::Symbol;
use crate::recording::{Recording, TraceView};
use astracer_samplers::Attributes;

/// The values of a root's attributes, or else of its resource's.
#[derive(Clone, Copy, Debug)]
pub struct RootAttributes<'r> {
    recording: &'r Recording,
    set: Option<Symbol>,
}

impl<'r> RootAttributes<'r> {
    /// The attributes of a trace's root. Only attributes in [`Recording::label_keys`] are known.
    pub fn new(recording: &'r Recording, trace: TraceView<'r>) -> Self {
        RootAttributes { recording, set: trace.root().label_symbol() }
    }
}

impl Attributes for RootAttributes<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let position = self.recording.label_keys().iter().position(|key| key == name)?;
        self.recording.label_values(self.set?).nth(position)?.map(Cow::Borrowed)
    }
}
