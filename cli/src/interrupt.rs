//! Signals: Ctrl-C, what ends services (SIGTERM), and the end of the terminal (SIGHUP) ask the work
//! to stop at its next step. Ctrl-C or SIGTERM behind one of them ends the process at once, but for
//! its unfinished files; so does the first one where nothing is left to save, or nothing is there
//! to be saved yet.

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

/// Whether the first signal ends the process too.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// From here on a signal ends the process at once, but for its unfinished files: no more is done
/// than to write and print a result, which takes long if it is large, and as long as the reader
/// likes if that is a person with a pager.
///
/// # Errors
///
/// If a signal came since the work asked for the last time: nobody would ask for it again.
pub(crate) fn answer_at_once(stop: Stop<'_>) -> Result<(), Failure> {
    AT_ONCE.store(true, Ordering::SeqCst);
    // Behind the store: each signal is seen here or by the thread that takes them.
    if stop.is_asked() {
        return Err(Failure::Interrupted);
    }
    #[cfg(test)]
    crate::stopping_tests::answers_at_once();
    Ok(())
}

/// Runs work that has nothing to save: within it the first signal ends the process too, which may
/// be waiting for input that does not come, or for somebody to read its output.
pub(crate) fn answer_at_once_while<T>(work: impl FnOnce() -> T) -> T {
    let before = AT_ONCE.swap(true, Ordering::SeqCst);
    let result = work();
    AT_ONCE.store(before, Ordering::SeqCst);
    result
}

/// Reads something where nothing is found yet that a signal could lose.
pub(crate) fn answer_at_once_while_reading<T>(
    stop: Stop<'_>,
    read: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    answer_at_once_while(|| {
        // A signal that came before is asked about here, before anything waits.
        if stop.is_asked() { Err(Failure::Interrupted) } else { read() }
    })
}

/// A flag that these signals set.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    // A signal that is not caught still ends the process, without its report.
    if let Err(error) = listen(Arc::clone(&stop)) {
        output::note(&format!("astracer: warning: cannot catch signals: {error}"));
    }
    stop
}

/// Takes signals on a thread of its own, where files may be removed, which a handler must not do.
fn listen(stop: Arc<AtomicBool>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up()))?;
    let take = move || {
        for signal in signals.forever() {
            // Both the kernel and the shell may tell of the terminal's end, so that ends nothing at
            // once.
            let is_second = stop.swap(true, Ordering::SeqCst) && [SIGINT, SIGTERM].contains(&signal);
            if is_second || AT_ONCE.load(Ordering::SeqCst) {
                partial::remove_all();
                tell_soon();
                process::exit(if is_second { 128 + signal } else { Failure::Interrupted.exit_code().into() });
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(take).map(drop)
}

/// Says that the work was interrupted, if nobody has: the thread that works and the one that takes
/// signals both end it.
pub(crate) fn tell() -> bool {
    static TOLD: Mutex<bool> = Mutex::new(false);
    // Held while it is printed: whoever comes second ends the process.
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if *told {
        return false;
    }
    output::note(&format!("astracer: {}", Failure::Interrupted.text().unwrap_or_default()));
    *told = true;
    true
}

/// The same, but the thread that works may hold standard error while it waits for somebody to read
/// it, so this does not wait for long.
fn tell_soon() {
    let (told, heard) = mpsc::channel();
    let tell = move || {
        tell();
        let _ = told.send(());
    };
    if thread::Builder::new().spawn(tell).is_ok() {
        let _ = heard.recv_timeout(Duration::from_millis(200));
    }
}

/// SIGHUP, unless it is ignored: then `nohup` started this process, for it to outlive the terminal.
/// Only Linux tells that without a change of it; elsewhere the signal does what it did.
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

    /// Both threads said it where a signal came between the work's last question and its end.
    #[test]
    fn an_interruption_is_told_once() {
        assert!(tell());
        assert!(!tell());
    }

    /// Such a signal was lost: the work went on to its end, and the exit code was 0.
    #[test]
    fn a_signal_before_the_last_phase_ends_it() {
        let stop = AtomicBool::new(true);
        assert!(matches!(answer_at_once(Stop::when_set(&stop)), Err(Failure::Interrupted)));
        stop.store(false, Ordering::SeqCst);
        assert!(answer_at_once(Stop::when_set(&stop)).is_ok());
    }
}
