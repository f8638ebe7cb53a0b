//! The end of an example by Ctrl-C, or by SIGTERM, which containers send.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns a future that ends with the first of these signals. Neither ends the process from now
/// on. Call it within a tokio runtime.
///
/// # Errors
///
/// If signals cannot be caught.
#[cfg(unix)]
pub fn asked() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that ends with Ctrl-C.
#[cfg(not(unix))]
pub fn asked() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Returns a flag that the first of these signals sets, for code without a runtime.
///
/// # Errors
///
/// If signals cannot be caught.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = {
        let _entered = runtime.enter();
        asked()?
    };
    let flag = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&flag);
    std::thread::spawn(move || {
        runtime.block_on(asked);
        own.store(true, Ordering::Relaxed);
    });
    Ok(flag)
}
