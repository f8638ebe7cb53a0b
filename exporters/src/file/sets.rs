//! Sets of files with different prefixes in one folder, under one limit on their total size.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::State;
use astracer_model::destination::{ErrorKind, ExportError};

/// The sets of a folder. One lock covers all of them, so that two sets cannot both take the last
/// bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets(Arc<Mutex<Vec<State>>>);

impl Sets {
    /// Adds a set and returns its index.
    pub(super) fn add(&self, state: State) -> usize {
        let mut states = self.all();
        states.push(state);
        states.len() - 1
    }

    /// Locks the set with this index.
    pub(super) fn lock(&self, index: usize) -> Own<'_> {
        let mut own = Own { states: self.all(), index };
        own.count_beside();
        own
    }

    fn all(&self) -> MutexGuard<'_, Vec<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One set, while all are locked.
pub(super) struct Own<'s> {
    states: MutexGuard<'s, Vec<State>>,
    index: usize,
}

impl Own<'_> {
    fn count_beside(&mut self) {
        let beside = self.states.iter().enumerate().filter(|&(index, _)| index != self.index);
        let bytes = beside.map(|(_, state)| state.total_bytes()).sum();
        self.bytes_beside = bytes;
    }

    /// Writes to this set. If the limit is reached, checks first whether files of the other sets
    /// are still there: each that was removed makes room.
    pub(super) fn write(
        &mut self,
        mut write: impl FnMut(&mut State) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let written = write(self);
        let before = self.bytes_beside;
        if before == 0 || !written.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
            return written;
        }
        self.states.iter_mut().for_each(State::look_again);
        self.count_beside();
        if self.bytes_beside < before { write(self) } else { written }
    }
}

impl Deref for Own<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.states[self.index]
    }
}

impl DerefMut for Own<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.states[self.index]
    }
}
