//! Polls a source of parameters files, such as a URL.
//!
//! A thread asks the source at its interval. An answer that cannot be used changes nothing: the
//! last good parameters stay in effect, and the fault is reported once. The thread makes no spans.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use opentelemetry::Context;

use crate::core::Shared;
use crate::fault::Origin;
use crate::steering::SteerError;
use astracer_spans::panics::warn;

/// The shortest interval between requests.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// A place that serves parameters files while the service runs, for
/// [`Builder::with_polled_parameters`](crate::Builder::with_polled_parameters). The crate
/// `astracer` has one, `Polling`, for URLs.
pub trait ParametersSource {
    /// The place, as messages name it: without a password.
    fn place(&self) -> String;

    /// The time between an answer and the next request; at least one second.
    fn interval(&self) -> Duration;

    /// Checks the settings, and returns the function that requests the file.
    ///
    /// # Errors
    ///
    /// The reason why a setting cannot be used, for people.
    fn open(self) -> Result<FetchParameters, String>;
}

/// Requests a parameters file. Returns its text, or `None` if it has not changed since the last
/// call; or else the reason, for people. A call must end within a bounded time, and bound the size
/// of the text.
pub type FetchParameters = Box<dyn FnMut() -> Result<Option<String>, String> + Send>;

/// A source that was opened.
pub(crate) struct Client {
    place: String,
    every: Duration,
    fetch: FetchParameters,
    /// The last file.
    text: Option<String>,
    /// The reason why that file was not applied.
    fault: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(source: impl ParametersSource) -> Result<Self, (Origin, String)> {
        let (place, every) = (source.place(), source.interval().max(EVERY_MIN));
        match source.open() {
            Ok(fetch) => Ok(Client { place, every, fetch, text: None, fault: None }),
            Err(fault) => Err((Origin::Source(place), fault)),
        }
    }

    /// Requests the file, and passes a new one to `take`. Returns the current fault.
    fn ask(&mut self, take: impl FnOnce(&str) -> Result<(), SteerError>) -> Option<String> {
        match (self.fetch)() {
            Err(fault) => return Some(self.with_place(&fault)),
            Ok(None) => {}
            Ok(Some(text)) if self.text.as_ref() == Some(&text) => {}
            Ok(Some(text)) => {
                self.fault = take(&text).err().map(|error| self.with_place(&error.to_string()));
                self.text = Some(text);
            }
        }
        self.fault.clone()
    }

    fn with_place(&self, fault: &str) -> String {
        format!("{}: {fault}; the last parameters hold", self.place)
    }
}

/// The thread's state, shared with the handle.
#[derive(Debug)]
pub(crate) struct Poller {
    client: Mutex<Client>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    fault: Option<String>,
}

impl Poller {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Poller { client: Mutex::new(client), state: Mutex::default(), wake: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls until [`finish`](Self::finish) is called, or until all layers and handles are gone.
    pub(crate) fn run(&self, shared: &Weak<Shared>) {
        let every = self.client.lock().unwrap_or_else(PoisonError::into_inner).every;
        while shared.strong_count() > 0 {
            self.look(shared);
            let state = self.state();
            let is_alive = |state: &mut State| !state.is_over && shared.strong_count() > 0;
            let waited = self.wake.wait_timeout_while(state, every, is_alive);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
        }
    }

    /// Polls now. The layer may be dropped while this waits for the response.
    pub(crate) fn look(&self, shared: &Weak<Shared>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state().is_over {
            return;
        }
        let mut news = None;
        let fault = client.ask(|text| {
            if let Some(shared) = shared.upgrade() {
                news = shared.steering().set_parameters(shared.decider(), text)?;
            }
            Ok(())
        });
        let before = std::mem::replace(&mut self.state().fault, fault.clone());
        drop(client);
        if let Some(news) = news {
            news.tell();
        }
        if let Some(fault) = fault.filter(|fault| before.as_ref() != Some(fault)) {
            warn(|| tracing::warn!("astracer: {fault}"));
        }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Ends the thread. A request in flight ends by its timeout.
    pub(crate) fn finish(&self) {
        self.state().is_over = true;
        self.wake.notify_all();
    }
}
