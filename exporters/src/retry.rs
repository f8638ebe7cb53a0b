//! The retry policy: delays between attempts, and the age at which a batch is given up.

use std::time::Duration;

/// Determines when a failed request is sent again.
///
/// The delay before the second attempt is [`with_initial_delay`](Retry::with_initial_delay). It
/// doubles with each further failure, up to [`with_max_delay`](Retry::with_max_delay). Each delay
/// is drawn uniformly from its upper half, so that clients that failed at the same time do not
/// retry at the same time. If the server asks for a pause (HTTP's `Retry-After`, gRPC's
/// `RetryInfo`), the delay is at least that long, up to
/// [`with_max_server_delay`](Retry::with_max_server_delay). Attempts end when the batch is older
/// than [`with_max_age`](Retry::with_max_age).
///
/// A server may have accepted a batch whose response was lost, so a retry delivers *at least once*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Retry {
    max_attempts: u32,
    initial_delay: Duration,
    max_delay: Duration,
    max_server_delay: Duration,
    max_age: Duration,
}

/// The default of [`Retry::with_max_server_delay`].
const MAX_SERVER_DELAY: Duration = Duration::from_secs(3_600);

impl Default for Retry {
    /// Any number of attempts, 1 s to 30 s apart, until the batch is 5 minutes old.
    fn default() -> Self {
        Retry {
            max_attempts: u32::MAX,
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            max_server_delay: MAX_SERVER_DELAY,
            max_age: Duration::from_secs(300),
        }
    }
}

impl Retry {
    /// Sends each batch once and immediately, even while others fail, except during a pause that
    /// the server asked for.
    pub const NEVER: Retry = Retry {
        max_attempts: 1,
        initial_delay: Duration::ZERO,
        max_delay: Duration::ZERO,
        max_server_delay: MAX_SERVER_DELAY,
        max_age: Duration::ZERO,
    };

    /// Sets the delay after the first failure; 1 s by default.
    pub fn with_initial_delay(mut self, delay: Duration) -> Self {
        self.initial_delay = delay;
        self
    }

    /// Sets the longest delay, unless the server asks for a longer pause; 30 s by default.
    pub fn with_max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets the longest pause that a server can ask for; an hour by default. A mistaken
    /// `Retry-After` of a year would otherwise end the export.
    pub fn with_max_server_delay(mut self, delay: Duration) -> Self {
        self.max_server_delay = delay;
        self
    }

    /// Sets the age at which a batch is given up, counted from the call that sends it; 5 minutes by
    /// default. The queue before the exporter should be able to hold the traffic of that time. With
    /// zero there is no waiting: each batch is sent at most once, as with [`Retry::NEVER`].
    pub fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Limits the attempts for one request, including the first; unlimited by default.
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    pub(crate) fn max_age(&self) -> Duration {
        self.max_age
    }

    pub(crate) fn max_server_delay(&self) -> Duration {
        self.max_server_delay
    }

    pub(crate) fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The delay after `failures` consecutive failures, from 1. `asked` is the pause that the
    /// server asked for, and `chance` is a uniform random number.
    pub(crate) fn delay(&self, failures: u32, asked: Option<Duration>, chance: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let half = self.initial_delay.saturating_mul(factor).min(self.max_delay) / 2;
        let own = half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX));
        own.max(asked.unwrap_or_default().min(self.max_server_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn delays_double_up_to_the_longest() {
        let retry = Retry::default().with_initial_delay(MS(100)).with_max_delay(MS(1_000));
        let all = |chance| (1..7).map(|failures| retry.delay(failures, None, chance)).collect::<Vec<_>>();
        assert_eq!(all(u32::MAX), [100, 200, 400, 800, 1_000, 1_000].map(MS));
        assert_eq!(all(0), [50, 100, 200, 400, 500, 500].map(MS));
        assert_eq!(retry.delay(400, None, u32::MAX), MS(1_000));
    }

    #[test]
    fn the_server_is_waited_for_up_to_an_hour() {
        let retry = Retry::default().with_initial_delay(MS(100)).with_max_delay(MS(1_000));
        assert_eq!(retry.delay(1, Some(MS(3_500_000)), 0), MS(3_500_000));
        assert_eq!(retry.delay(1, Some(Duration::MAX), 0), MS(3_600_000));
        let retry = retry.with_max_server_delay(MS(2_000));
        assert_eq!(retry.delay(1, Some(MS(3_500_000)), 0), MS(2_000));
        // A server cannot shorten the delay.
        assert_eq!(retry.delay(1, Some(MS(1)), u32::MAX), MS(100));
    }
}
