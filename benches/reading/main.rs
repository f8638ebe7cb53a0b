//! Reading recordings, beside the least that any reader of the same bytes has to do.
//!
//! `serde_json` puts the bytes into plain structs that borrow from them: ids and times stay text, nothing is checked
//! beyond JSON, nobody is told where a span stands. Our reader gives whole spans, each with its record and place, to a
//! sink that only counts. Both read from memory, the same bytes in one process.

mod otlp_json;

criterion::criterion_main!(otlp_json::benches);
