//! A log of JSON lines that name the span they belong to. Each line is one `write`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;

static LOG: OnceLock<File> = OnceLock::new();

/// Opens the log of this process.
///
/// # Errors
///
/// If the file cannot be created.
pub fn open(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    LOG.get_or_init(|| file);
    Ok(())
}

/// Writes a line with the current span's ids, if a log is open. `message` needs no escapes.
pub fn write(message: &str) {
    let Some(mut file) = LOG.get() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let context = Context::current();
    let span = context.span();
    let ids = span.span_context();
    let line = format!(
        "{{\"time\":{now},\"level\":\"INFO\",\"message\":\"{message}\",\"trace_id\":\"{}\",\"span_id\":\"{}\"}}\n",
        ids.trace_id(),
        ids.span_id()
    );
    // A full disk must not fail the request.
    let _ = file.write_all(line.as_bytes());
}
