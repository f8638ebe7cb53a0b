//! Polls the user's wish to stop during long work.

/// Units of work between two polls. A unit takes less than a microsecond, so a poll comes every few milliseconds.
const STRIDE: u32 = 4096;

type Stop<'c> = Box<dyn Fn() -> bool + 'c>;

/// Counts work and polls `stop` at every 4,096th unit of it.
#[derive(Default)]
pub(super) struct Pulse<'c> {
    stop: Option<Stop<'c>>,
    work: u32,
    stopped: bool,
}

impl<'c> Pulse<'c> {
    pub(super) fn new(stop: Option<Stop<'c>>) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Counts one unit of work. Returns true once the user wants no more.
    pub(super) fn stopped(&mut self) -> bool {
        self.work += 1;
        if self.work >= STRIDE {
            self.work = 0;
            self.stopped |= self.stop.as_ref().is_some_and(|stop| stop());
        }
        self.stopped
    }
}
