//! Writes the variables of a trace. The name of a variable is made once for each combination of
//! symbols, since traces repeat the same few.

use astracer_model::time::UnixNanos;
use astracer_recording::intern::Symbol;

use crate::features::Kind;
use crate::instances::{Observed, VariableId, Variables};

/// The thing that a variable is about; with symbols, the key of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Span,
    Duration,
    Own,
    Gap,
    Error,
    Event,
    Exception,
    Message,
    Number,
    Value,
    Log,
    LogNumber,
}

/// Writes variables with times since `zero`.
pub(super) struct Writer<'w> {
    pub(super) ignore: &'w [String],
    pub(super) run: u32,
    pub(super) zero: UnixNanos,
    pub(super) variables: &'w mut Variables,
    pub(super) observed: &'w mut Observed,
}

/// The symbols of a name: a service's, and two more.
pub(super) type Symbols = [Symbol; 3];

impl Writer<'_> {
    fn time(&self, at: UnixNanos) -> f64 {
        (i128::from(at.0) - i128::from(self.zero.0)) as f64 / 1e6
    }

    /// The number of a variable. Without symbols its name is made each time.
    fn number(
        &mut self,
        kind: Kind,
        about: About,
        symbols: Option<Symbols>,
        name: impl FnOnce() -> String,
    ) -> Option<VariableId> {
        let ignore = self.ignore;
        let name = || Some(name()).filter(|name| !ignore.iter().any(|part| name.contains(part.as_str())));
        let Some([a, b, c]) = symbols else { return self.variables.number(kind, &name()?) };
        let words = [self.run << 8 | about as u32, a.0, b.0, c.0];
        let key = words.into_iter().fold(0, |key, word| key << 32 | u128::from(word));
        self.variables.number_of(key, kind, name)
    }

    /// Adds an event. Returns the number of the variable, if there is room for it.
    pub(super) fn event(
        &mut self,
        about: About,
        symbols: Option<Symbols>,
        at: UnixNanos,
        name: impl FnOnce() -> String,
    ) -> Option<VariableId> {
        let variable = self.number(Kind::Event, about, symbols, name);
        let time = self.time(at);
        self.observed.events.extend(variable.map(|variable| (variable, time)));
        variable
    }

    /// Adds a value of a state.
    pub(super) fn state(
        &mut self,
        about: About,
        symbols: Option<Symbols>,
        at: UnixNanos,
        value: f64,
        name: impl FnOnce() -> String,
    ) {
        let variable = self.number(Kind::State, about, symbols, name);
        let time = self.time(at);
        self.observed.states.extend(variable.map(|variable| (variable, time, value)));
    }
}
