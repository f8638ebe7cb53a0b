//! Reads real and hostile texts through the public interface.

use std::path::PathBuf;

mod collected;
mod htrace;
mod jaeger_json;
mod log_documents;
mod log_layouts;
mod log_lines;
mod log_shapes;
mod nezha_csv;
mod nezha_logs;
mod otlp_logs;
mod zipkin_json;

/// A file of `tests/data`.
pub(crate) fn sample(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect()
}
