//! Lines for the operator while spans wait in a spool: when they begin to wait, once a minute, and
//! when they flow again.

use std::time::Duration;

use astracer_exporters::{Destination as _, Spooled};

use crate::output;

/// The time between two lines while spans wait. A second outage within this time gets its first
/// line when it is over.
const EVERY: Duration = Duration::from_secs(60);
/// An older record is waiting because spans arrive faster than the server takes them.
const SLOW: Duration = Duration::from_secs(10);

/// The backlog of a spool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    spans: u64,
    /// The age of the oldest record.
    oldest: Option<Duration>,
    /// Why the server accepts none; `None` if it does.
    reason: Option<String>,
}

impl From<&Spooled> for Waiting {
    fn from(spool: &Spooled) -> Self {
        let reason = spool.counter().read().waiting.map(|error| error.to_string());
        Waiting { spans: spool.pending(), oldest: spool.oldest(), reason }
    }
}

impl Waiting {
    fn spans(&self) -> String {
        match self.oldest {
            Some(age) => {
                format!("{}, the oldest for {}", output::plural(self.spans, "span"), whole_seconds(age))
            }
            None => output::plural(self.spans, "span"),
        }
    }
}

/// The lines so far. Times count from any fixed origin.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// The start of the outage that was reported, and the most spans that waited in it.
    began: Option<(Duration, u64)>,
    /// The time of the last line.
    printed: Option<Duration>,
    /// The time of the last look at a backlog without an outage.
    looked: Option<Duration>,
    /// The spans that waited at the last line or look.
    before: u64,
}

impl Outage {
    /// Returns the line that is due.
    pub(crate) fn tick(&mut self, now: Duration, waiting: &Waiting) -> Option<String> {
        let is_over = |time: Option<Duration>| time.is_none_or(|time| now.saturating_sub(time) >= EVERY);
        let is_due = is_over(self.printed);
        let grown = waiting.spans.saturating_sub(self.before);
        let line = match (&mut self.began, &waiting.reason) {
            (None, Some(reason)) if waiting.spans > 0 && is_due => {
                self.began = Some((now, waiting.spans));
                format!("spans begin to wait in the spool ({}): {reason}", waiting.spans())
            }
            (Some((_, most)), Some(reason)) => {
                *most = waiting.spans.max(*most);
                if !is_due {
                    return None;
                }
                let more = if grown > 0 {
                    format!(", {} more than before", output::count(grown))
                } else {
                    String::new()
                };
                format!("still waiting in the spool: {}{more}: {reason}", waiting.spans())
            }
            (Some((began, most)), None) => {
                let most = waiting.spans.max(*most);
                let time = whole_seconds(now.saturating_sub(*began));
                self.began = None;
                format!("spans flow again after {time}; up to {} waited", output::plural(most, "span"))
            }
            (None, _) => {
                if !is_over(self.looked) {
                    return None;
                }
                (self.looked, self.before) = (Some(now), waiting.spans);
                let is_slow = grown > 0 && waiting.oldest.is_some_and(|age| age >= SLOW);
                return is_slow.then(|| {
                    format!(
                        "warning: spans arrive faster than the server takes them: {} in the spool, {} more than \
                         before",
                        waiting.spans(),
                        output::count(grown)
                    )
                });
            }
        };
        (self.printed, self.looked, self.before) = (Some(now), Some(now), waiting.spans);
        Some(output::escaped(&line).into_owned())
    }
}

/// A duration in whole units: "42 s", "3 min", "5 h".
fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn lines(states: &[(u64, u64, Option<u64>, &str)]) -> Vec<Option<String>> {
        let mut outage = Outage::default();
        let tick = |&(now, spans, oldest, reason): &(u64, u64, Option<u64>, &str)| {
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            outage.tick(S(now), &Waiting { spans, oldest: oldest.map(S), reason })
        };
        states.iter().map(tick).collect()
    }

    #[test]
    fn an_outage_has_a_first_line_one_a_minute_and_a_last_one() {
        let told = lines(&[
            (0, 0, None, ""),
            (1, 0, None, "HTTP 503"),
            (61, 40, Some(1), "HTTP 503"),
            (62, 80, Some(2), "HTTP 503"),
            (120, 80, Some(60), "HTTP 503"),
            (121, 1_200, Some(61), "HTTP 503: busy"),
            (181, 1_000, Some(121), "HTTP 503: busy"),
            (190, 900, Some(130), ""),
            (191, 800, Some(131), ""),
        ]);
        let expected = [
            None,
            None,
            Some("spans begin to wait in the spool (40 spans, the oldest for 1 s): HTTP 503"),
            None,
            None,
            Some(
                "still waiting in the spool: 1,200 spans, the oldest for 61 s, 1,160 more than before: HTTP 503: busy",
            ),
            Some("still waiting in the spool: 1,000 spans, the oldest for 2 min: HTTP 503: busy"),
            Some("spans flow again after 2 min; up to 1,200 spans waited"),
            None,
        ];
        assert_eq!(told, expected.map(|line| line.map(str::to_owned)));
    }

    /// A server that fails every second must not fill a log.
    #[test]
    fn outages_that_follow_each_other_are_one_line_a_minute() {
        let states: Vec<_> = (0..600)
            .map(|second| (second, 10, Some(1), if second % 2 == 0 { "HTTP 503" } else { "" }))
            .collect();
        let told = lines(&states).into_iter().flatten().count();
        assert!((10..=22).contains(&told), "{told} lines");
    }

    #[test]
    fn a_backlog_that_grows_without_a_failure_is_a_warning() {
        let told = lines(&[
            (0, 10, Some(1), ""),
            (60, 5_000, Some(30), ""),
            (90, 9_000, Some(60), ""),
            (120, 4_000, Some(61), ""),
        ]);
        assert_eq!(
            told[1].as_deref(),
            Some(
                "warning: spans arrive faster than the server takes them: 5,000 spans, the oldest for 30 s in the \
                 spool, 4,990 more than before"
            )
        );
        assert_eq!(told.iter().flatten().count(), 1);
    }
}
