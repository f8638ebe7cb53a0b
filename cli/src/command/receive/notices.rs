//! Lines for the operator while a receiver runs: that it refuses requests, and that acknowledged
//! spans are lost or not passed on.

use std::time::{Duration, Instant};

use astracer_exporters::Destination as _;
use astracer_receiver::{Event, Receiver};

use crate::command::spool::outage::{Outage, Waiting};
use crate::output;

/// The shortest time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(60);

/// A line that is printed when it changes, at most once a minute.
#[derive(Default)]
struct Line {
    text: Option<String>,
    at: Option<Instant>,
}

impl Line {
    /// Returns the text if it is due.
    fn due(&mut self, text: Option<String>, now: Instant) -> Option<String> {
        let is_early = self.at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        if text.is_none() || text == self.text || is_early {
            return None;
        }
        (self.at, self.text) = (Some(now), text);
        self.text.clone()
    }
}

/// The lines so far.
#[derive(Default)]
pub(super) struct Notices {
    lost: Line,
    undelivered: Line,
    outage: Outage,
    began: Option<Instant>,
}

impl Notices {
    /// Prints what is new.
    pub(super) fn tell(&mut self, receiver: &Receiver) {
        receiver.events().iter().for_each(report_event);
        let lost = lost((receiver.spans_removed(), receiver.logs_removed()));
        let undelivered = undelivered(receiver).map(|text| format!("not passed on: {text}"));
        let now = Instant::now();
        for text in [self.lost.due(lost, now), self.undelivered.due(undelivered, now)].into_iter().flatten() {
            output::note(&text);
        }
        let since = now.saturating_duration_since(*self.began.get_or_insert(now));
        let line = receiver.forward().and_then(|spool| self.outage.tick(since, &Waiting::from(spool)));
        if let Some(line) = line {
            output::note(&line);
        }
    }
}

/// A number of spans, and one of log records unless it is 0.
pub(super) fn records(spans: u64, logs: u64) -> String {
    let spans = output::plural(spans, "span");
    match logs {
        0 => spans,
        _ => format!("{spans} and {}", output::plural(logs, "log record")),
    }
}

/// Acknowledged spans and log records whose file somebody took away.
pub(super) fn lost((spans, logs): (u64, u64)) -> Option<String> {
    (spans + logs > 0).then(|| {
        format!(
            "{} acknowledged but lost, because a file was removed or shortened while it was being written; \
             leave the last file alone, and let --rotate begin the next",
            records(spans, logs)
        )
    })
}

/// Acknowledged spans that the forward target did not accept and will not get from this process.
pub(super) fn undelivered(receiver: &Receiver) -> Option<String> {
    receiver.forward()?.undelivered()
}

/// Tells the operator when the receiver starts or stops refusing requests.
fn report_event(event: &Event) {
    match event {
        Event::Refusing(reason) => output::note(&format!("refusing requests: {}", output::escaped(reason))),
        Event::Taking(refused) => {
            output::note(&format!(
                "accepting requests again, after refusing {}",
                output::plural(*refused, "request")
            ));
        }
        Event::ConnectionsFull => {
            output::note("refusing connections: the limit of --connections is reached and all are busy");
        }
        Event::NotAccepted(why) => {
            output::note(&format!("cannot accept a connection: {}", output::escaped(why)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_when_it_changes_and_once_a_minute() {
        let (mut line, began) = (Line::default(), Instant::now());
        let mut due = |text: Option<&str>, seconds| {
            line.due(text.map(str::to_owned), began + Duration::from_secs(seconds)).is_some()
        };
        assert!(!due(None, 0) && due(Some("1 span"), 1) && !due(Some("1 span"), 90));
        assert!(due(Some("2 spans"), 91) && !due(Some("3 spans"), 92) && due(Some("3 spans"), 151));
    }
}
