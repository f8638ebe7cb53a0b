//! Signals: Ctrl-C, what ends services (SIGTERM), and the end of the terminal (SIGHUP) ask the work to stop at its next
//! step. Ctrl-C or SIGTERM behind one of them ends the process at once.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output;

/// A flag that these signals set.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let end_at_once = |signal| {
        // Before the flag is set by the same signal: the first one does not find it.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop)).map(drop)
    };
    let ask = |signal| flag::register(signal, Arc::clone(&stop)).map(drop);
    let caught: io::Result<()> = [SIGINT, SIGTERM]
        .into_iter()
        .try_for_each(|signal| end_at_once(signal).and_then(|()| ask(signal)))
        // Both the kernel and the shell may tell of the terminal's end.
        .and_then(|()| hang_up().map_or(Ok(()), ask));
    // A signal that is not caught still ends the process, without its report.
    if let Err(error) = caught {
        output::note(&format!("astracer: warning: can't catch signals: {error}"));
    }
    stop
}

/// SIGHUP, unless it is ignored: then `nohup` started this process, for it to outlive the terminal. Only Linux tells that
/// without a change of it; elsewhere the signal does what it did.
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
