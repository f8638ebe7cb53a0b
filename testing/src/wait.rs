//! Waits for other threads and processes.

use std::thread;
use std::time::{Duration, Instant};

/// The longest wait. A test that needs it has failed.
const LONGEST: Duration = Duration::from_secs(60);

/// Waits until `is_met` returns true. Panics with `what` after a minute.
///
/// It asks every millisecond: the condition is met by another thread or process, which cannot wake
/// this one.
#[track_caller]
pub fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < LONGEST, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
