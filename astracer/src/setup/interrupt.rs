//! Ctrl-C while the last spans are exported.

/// Until it is dropped, Ctrl-C ends the process: a handler of the service has nothing left to end.
#[cfg(unix)]
pub(super) struct Interruptible(libc::sigaction);

/// Elsewhere the service's handler stays in place.
#[cfg(not(unix))]
pub(super) struct Interruptible(());

#[cfg(unix)]
#[allow(unsafe_code, reason = "no safe crate sets the default action and restores another one")]
impl Interruptible {
    pub(super) fn new() -> Option<Self> {
        // SAFETY: an action of zeros is one without flags and with an empty mask, and both
        // pointers are those of live structs.
        let own = unsafe {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            let mut service: libc::sigaction = std::mem::zeroed();
            match libc::sigaction(libc::SIGINT, &raw const default, &raw mut service) {
                0 => Interruptible(service),
                _ => return None,
            }
        };
        // A process in the background ignores the Ctrl-C of its terminal: dropping `own` restores
        // that.
        (own.0.sa_sigaction != libc::SIG_IGN).then_some(own)
    }
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "as in `new`")]
impl Drop for Interruptible {
    fn drop(&mut self) {
        // SAFETY: the action is the one that `new` replaced.
        unsafe {
            libc::sigaction(libc::SIGINT, &raw const self.0, std::ptr::null_mut());
        }
    }
}

#[cfg(not(unix))]
impl Interruptible {
    pub(super) fn new() -> Option<Self> {
        None
    }
}
