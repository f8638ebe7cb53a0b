//! The endpoint's answers as JSON.

use std::fmt::Write as _;

use crate::handle::Handle;
use crate::why::Explanation;

/// The keys that are listed, those with the most roots first.
const KEYS_MAX: usize = 200;

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Control characters lie below U+FFFF, and writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| "null".to_owned(), quoted)
}

fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// Counts of the process and of its keys.
pub(super) fn stats(handle: &Handle) -> String {
    let stats = handle.stats();
    let mut keys = handle.keys();
    let all = keys.len();
    keys.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key.cmp(&b.key)));
    keys.truncate(KEYS_MAX);
    let mut out = String::with_capacity(1_024 + keys.len() * 200);
    let sampler = handle.sampler_config().map(|config| config.to_string());
    let cap = handle.cap().filter(|cap| !cap.is_none()).map(|cap| cap.to_string());
    let _ = write!(
        out,
        "{{\"sampler\":{},\"cap\":{},\"cap_level\":{},\"parameters_fault\":{},\"roots_kept\":{},\"roots_dropped\":{},\
         \"parents_kept\":{},\"parents_dropped\":{},\"spans_open\":{},\"spans_waiting\":{},\"spans_exported\":{},\
         \"spans_lost\":{},\"last_error\":{},\"overrides\":{{",
        text(sampler.as_deref()),
        text(cap.as_deref()),
        number(handle.cap_level()),
        text(handle.parameters_fault().as_deref()),
        stats.roots_kept,
        stats.roots_dropped,
        stats.parents_kept,
        stats.parents_dropped,
        stats.spans_open,
        stats.spans_waiting,
        stats.spans_exported,
        stats.spans_lost.total(),
        text(stats.last_error.as_deref()),
    );
    for (at, (key, (_, left))) in handle.overrides().iter().enumerate() {
        let _ = write!(out, "{}{}:{}", if at == 0 { "" } else { "," }, quoted(key), left.as_secs());
    }
    out.push_str("},\"dry_run\":");
    match handle.dry_run() {
        None => out.push_str("null"),
        Some(dry) => {
            let _ = write!(
                out,
                "{{\"sampler\":{},\"seen\":{},\"kept\":{},\"kept_really\":{},\"kept_by_both\":{}}}",
                quoted(&dry.sampler.to_string()),
                dry.seen(),
                dry.kept_here(),
                dry.kept_really(),
                dry.both_kept
            );
        }
    }
    let _ = write!(out, ",\"keys_all\":{all},\"keys\":[");
    for (at, key) in keys.iter().enumerate() {
        let _ = write!(
            out,
            "{}{{\"key\":{},\"seen\":{},\"kept\":{},\"sampler\":{},\"cap\":{},\"cap_empty\":{},\"override\":{},\
             \"probability\":{},\"tokens\":{}}}",
            if at == 0 { "" } else { "," },
            text(key.key.as_deref()),
            key.seen,
            key.kept,
            key.dropped_by_sampler(),
            key.dropped_by_cap,
            key.dropped_by_empty_cap,
            key.dropped_by_override,
            number(key.probability),
            number(key.tokens),
        );
    }
    out.push_str("]}\n");
    out
}

/// The decision about a trace.
pub(super) fn why(explanation: &Explanation) -> String {
    let Explanation { trace_id, keep, key, reason, randomness, threshold, probability, counts } = explanation;
    let hex = |bits: u64| format!("\"{bits:014x}\"");
    let count =
        |of: fn(&(u64, u64)) -> u64| counts.as_ref().map_or("null".to_owned(), |all| of(all).to_string());
    format!(
        "{{\"trace_id\":\"{trace_id}\",\"keep\":{keep},\"key\":{},\"reason\":{},\"randomness\":{},\"threshold\":{},\
         \"probability\":{},\"seen\":{},\"kept\":{},\"words\":{}}}\n",
        quoted(key),
        text(reason.map(|reason| reason.name()).or(Some("parent"))),
        hex(*randomness),
        threshold.map_or("null".to_owned(), hex),
        number(*probability),
        count(|all| all.0),
        count(|all| all.1),
        quoted(&explanation.to_string()),
    )
}
