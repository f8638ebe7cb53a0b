//! Ctrl-C, and the signal that ends services (SIGTERM), asks the work to stop at its next step; a second one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that Ctrl-C sets.
pub(crate) fn on_ctrl_c() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without the handler Ctrl-C still ends the process, if less gently.
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("astracer: warning: can't catch Ctrl-C: {error}");
    }
    stop
}
