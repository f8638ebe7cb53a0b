//! Signals: Ctrl-C, SIGTERM and SIGHUP (the terminal closed) ask the work to stop at its next
//! check.
//!
//! A second Ctrl-C or SIGTERM ends the process at once and removes its unfinished files. While
//! there is nothing to save, before anything was found and after everything was written, the first
//! one already does.

use std::ffi::c_int;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use astracer_tuner::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::{output, partial};

/// True while the first signal ends the process at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Makes the next signal end the process at once and remove unfinished files, even if it is the
/// first.
///
/// Call it when only writing and printing of the result are left. Printing may block for as long as
/// a person looks at a pager.
///
/// # Errors
///
/// If a signal arrived after the work's last check, because nothing checks again.
pub(crate) fn answer_at_once(stop: Stop<'_>) -> Result<(), Failure> {
    AT_ONCE.store(true, Ordering::SeqCst);
    // Checked after the store, so that each signal is seen either here or by the signal thread.
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    #[cfg(test)]
    crate::stopping_tests::answers_at_once();
    Ok(())
}

/// Runs work during which the first signal ends the process at once, because there is nothing to
/// save. The work may block on input that never comes, or on a reader of its output.
pub(crate) fn answer_at_once_while<T>(work: impl FnOnce() -> T) -> T {
    let before = AT_ONCE.swap(true, Ordering::SeqCst);
    let result = work();
    AT_ONCE.store(before, Ordering::SeqCst);
    result
}

/// Ends the process with an error once the limit has passed, whatever it does, unless the guard is
/// dropped before. For work that has nothing to save.
pub(crate) fn end_after(limit: Duration, error: String) -> impl Drop {
    let (guard, passed) = mpsc::channel::<()>();
    let wait = move || {
        if passed.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            partial::remove_all();
            output::note(&format!("astracer: {error}"));
            process::exit(Failure::Job(error).exit_code().into());
        }
    };
    // Without the thread, the work takes as long as it takes.
    let _ = thread::Builder::new().name("limit".to_owned()).spawn(wait);
    Guard(Some(guard))
}

struct Guard(Option<mpsc::Sender<()>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Reads input before there is a result that a signal could lose.
pub(crate) fn answer_at_once_while_reading<T>(
    stop: Stop<'_>,
    read: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    answer_at_once_while(|| {
        // A signal that arrived earlier is noticed here, before anything blocks.
        if stop.is_asked() { Err(Failure::Interrupted) } else { read() }
    })
}

/// A flag that is set by the first of these signals.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    outlive_file_limit();
    // Without our handler a signal still ends the process, but without a message.
    if let Err(error) = listen(Arc::clone(&stop)) {
        output::note(&format!("astracer: warning: cannot catch signals: {error}"));
    }
    stop
}

/// Handles SIGXFSZ, which would end the process, so that a write beyond `ulimit -f` fails like one
/// on a full disk.
#[cfg(unix)]
fn outlive_file_limit() {
    let signal = rustix::process::Signal::XFSZ.as_raw();
    // Without the handler, such a write still ends the process.
    let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
}

#[cfg(not(unix))]
fn outlive_file_limit() {}

/// Waits for signals on a separate thread, because files must not be removed in a signal handler.
fn listen(stop: Arc<AtomicBool>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up()))?;
    let take = move || {
        for signal in signals.forever() {
            // The kernel and the shell may both send SIGHUP, so a second one does not end the
            // process.
            let is_second = stop.swap(true, Ordering::SeqCst) && [SIGINT, SIGTERM].contains(&signal);
            if is_second || AT_ONCE.load(Ordering::SeqCst) {
                partial::remove_all();
                report_soon();
                process::exit(if is_second { 128 + signal } else { Failure::Interrupted.exit_code().into() });
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(take).map(drop)
}

/// Reports the interruption, at most once, and returns whether this call did: both the working
/// thread and the signal thread call it.
pub(crate) fn report() -> bool {
    static REPORTED: Mutex<bool> = Mutex::new(false);
    // The lock is held while printing, because the thread that calls second ends the process.
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *reported {
        return false;
    }
    output::note(&format!("astracer: {}", Failure::Interrupted.text().unwrap_or_default()));
    *reported = true;
    true
}

/// As `report`, but waits at most briefly: the working thread may hold standard error while it
/// waits for its reader.
fn report_soon() {
    let (reported, done) = mpsc::channel();
    let report = move || {
        report();
        let _ = reported.send(());
    };
    if thread::Builder::new().spawn(report).is_ok() {
        let _ = done.recv_timeout(Duration::from_millis(200));
    }
}

/// SIGHUP, unless this process ignores it because `nohup` started it. Only Linux shows whether it
/// is ignored without a change of the handler; elsewhere SIGHUP keeps its default effect.
fn hang_up() -> Option<c_int> {
    #[cfg(target_os = "linux")]
    {
        use signal_hook::consts::SIGHUP;

        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        let ignored = u64::from_str_radix(mask.trim(), 16).ok()?;
        (ignored & (1 << (SIGHUP - 1)) == 0).then_some(SIGHUP)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a signal arrived just before the work ended, both threads reported it.
    #[test]
    fn an_interruption_is_told_once() {
        assert!(report());
        assert!(!report());
    }

    /// If a signal arrived after the work's last check, it was lost: the exit code was 0.
    #[test]
    fn a_signal_before_the_last_phase_ends_it() {
        let stop = AtomicBool::new(true);
        assert!(matches!(answer_at_once(Stop::when_set(&stop)), Err(Failure::Interrupted)));
        stop.store(false, Ordering::SeqCst);
        assert!(answer_at_once(Stop::when_set(&stop)).is_ok());
    }
}
