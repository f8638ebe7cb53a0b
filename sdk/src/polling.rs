//! Parameters files that may change while the service runs: a file, or another source such as a
//! URL.
//!
//! A thread asks the source at its interval. An answer that cannot be used changes nothing: the
//! last good parameters stay in effect, and the fault is reported once. The thread makes no spans.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use astracer_model::files;
use opentelemetry::Context;

use crate::fault::{Origin, SteerError};
use crate::steering::{Steering, tell};
use astracer_spans::panics::warn;

/// The shortest interval between requests, and the interval between checks of a file.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// The maximum number of bytes read of a file: more than a parameters file may have.
const BYTES_MAX: u64 = (2 << 20) + 1;

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

pub(crate) struct Client {
    place: String,
    every: Duration,
    /// Receives whether the last answer could not be used.
    fetch: Box<dyn FnMut(bool) -> Result<Option<String>, String> + Send>,
    /// Whether a fault counts only if it is found twice in a row: a file may be half written.
    confirms: bool,
    /// The text that last took effect, here or in the builder.
    text: Option<String>,
    fault: Option<String>,
    found: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(source: impl ParametersSource) -> Result<Self, (Origin, String)> {
        let (place, every) = (source.place(), source.interval().max(EVERY_MIN));
        let mut fetch = match source.open() {
            Ok(fetch) => fetch,
            Err(fault) => return Err((Origin::Source(place), fault)),
        };
        let fetch = Box::new(move |_| fetch());
        Ok(Client { place, every, fetch, confirms: false, text: None, fault: None, found: None })
    }

    /// A file, of which `text` is in effect already. It is read again only if its length or
    /// modification time has changed, or if the last check failed.
    pub(crate) fn of_file(path: PathBuf, text: Option<String>) -> Self {
        let place = path.display().to_string();
        let mut stamp = None;
        let fetch = move |again: bool| {
            let now = fs::metadata(&path).ok().map(|known| (known.len(), known.modified().ok()));
            if now.is_some() && now == stamp && !again {
                return Ok(None);
            }
            stamp = now;
            files::read_text(&path, BYTES_MAX).map(Some).map_err(|error| error.to_string())
        };
        let fetch = Box::new(fetch);
        Client { place, every: EVERY_MIN, fetch, confirms: true, text, fault: None, found: None }
    }

    /// Requests the file, and passes a new one to `take`. Returns the current fault, if that is
    /// certain.
    fn ask(&mut self, take: impl FnOnce(&str) -> Result<(), SteerError>) -> Option<Option<String>> {
        let found = match (self.fetch)(self.found.is_some()) {
            Err(fault) => Some(self.with_place(&fault)),
            Ok(None) => self.fault.clone(),
            Ok(Some(text)) => {
                let is_known = self.text.as_ref() == Some(&text);
                let taken = if is_known { Ok(()) } else { take(&text) };
                self.fault = taken.err().map(|error| self.with_place(&error.to_string()));
                if self.fault.is_none() {
                    self.text = Some(text);
                }
                self.fault.clone()
            }
        };
        let is_certain = !self.confirms || found.is_none() || found == self.found;
        self.found.clone_from(&found);
        is_certain.then_some(found)
    }

    fn with_place(&self, fault: &str) -> String {
        format!("{}: {fault}; the last parameters stay in force", self.place)
    }
}

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
    pub(crate) fn run(&self, steering: &Weak<Steering>) {
        let every = self.client.lock().unwrap_or_else(PoisonError::into_inner).every;
        while steering.strong_count() > 0 {
            self.look(steering);
            let state = self.state();
            let is_alive = |state: &mut State| !state.is_over && steering.strong_count() > 0;
            let waited = self.wake.wait_timeout_while(state, every, is_alive);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_over {
                return;
            }
        }
    }

    /// Polls now. The layer may be dropped while this waits for the response.
    pub(crate) fn look(&self, steering: &Weak<Steering>) {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state().is_over {
            return;
        }
        let mut news = None;
        let asked = client.ask(|text| {
            if let Some(steering) = steering.upgrade() {
                news = steering.set_parameters(text)?;
            }
            Ok(())
        });
        let new = asked.and_then(|fault| {
            let before = std::mem::replace(&mut self.state().fault, fault.clone());
            fault.filter(|fault| before.as_ref() != Some(fault))
        });
        // Without a lock: the subscriber may call the handle.
        drop(client);
        if let Some(news) = news {
            tell(&news);
        }
        if let Some(fault) = new {
            warn(|| tracing::warn!(target: "astracer", parent: None, "{fault}"));
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
