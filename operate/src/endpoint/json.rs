//! The endpoint's responses as JSON.

use astracer_sdk::{
    DryRunStats, Explanation, FileFit, Handle, KeyOutcomes, KeyStats, PolicyCounts, TailStats,
};
use serde_json::{Map, Value, json};

/// The maximum number of keys listed, those with the most roots first.
const KEYS_MAX: usize = 200;

pub(super) fn stats(handle: &Handle) -> String {
    let stats = handle.stats();
    let mut keys = handle.keys();
    let all = keys.len();
    keys.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key.cmp(&b.key)));
    keys.truncate(KEYS_MAX);
    let mut outcomes = handle.outcomes();
    outcomes.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.key.cmp(&b.key)));
    outcomes.truncate(KEYS_MAX);
    let overrides: Map<String, Value> =
        handle.overrides().into_iter().map(|(key, (_, left))| (key, left.as_secs().into())).collect();
    let lost_by: Map<String, Value> = stats
        .spans_lost
        .iter()
        .filter(|&(_, spans)| spans > 0)
        .map(|(reason, spans)| (reason.to_owned(), spans.into()))
        .collect();
    let stats = json!({
        "sampler": handle.sampler_config().map(|config| config.to_string()),
        "cap": handle.cap().filter(|cap| !cap.is_none()).map(|cap| cap.to_string()),
        "cap_level": handle.cap_level(),
        "parameters_fault": handle.parameters_fault(),
        "file_fit": handle.file_fit().as_ref().map(fit),
        "roots_kept": stats.roots_kept,
        "roots_dropped": stats.roots_dropped,
        "parents_kept": stats.parents_kept,
        "parents_dropped": stats.parents_dropped,
        "spans_open": stats.spans_open,
        "spans_waiting": stats.spans_waiting,
        "spans_exported": stats.spans_exported,
        "spans_lost": stats.spans_lost.total(),
        "lost_by": lost_by,
        "waiting": stats.waiting,
        "last_error": stats.last_error,
        "hint": stats.hint,
        "tail": late(&stats.tail),
        "overrides": overrides,
        "dry_run": handle.dry_run().as_ref().map(dry_run),
        "keys_all": all,
        "keys": keys.iter().map(key).collect::<Value>(),
        "outcomes": outcomes.iter().map(outcome).collect::<Value>(),
    });
    format!("{stats}\n")
}

fn fit(of: &FileFit) -> Value {
    json!({
        "keys": of.keys,
        "keys_seen": of.keys_seen,
        "roots": of.roots,
        "roots_named": of.roots_named,
        "seconds": of.over.as_secs(),
        "size": of.size,
        "text": of.to_string(),
    })
}

fn late(tail: &TailStats) -> Value {
    let policy = |of: &PolicyCounts| json!({ "policy": of.policy, "budget": of.budget, "kept": of.kept, "bytes": of.kept_bytes, "refused": of.refused });
    let given_up: Map<String, Value> =
        tail.traces_given_up.iter().map(|(reason, traces)| (reason.to_owned(), traces.into())).collect();
    let strata =
        tail.strata.map(|of| json!({ "decided": of.decided, "kept": of.kept, "refused": of.refused }));
    json!({
        "kept": tail.kept,
        "strata": strata,
        "policies": tail.policies.iter().map(policy).collect::<Value>(),
        "kept_by_hand": tail.kept_by_hand,
        "kept_by_caller": tail.kept_by_caller,
        "open": tail.traces_open,
        "held": tail.traces_held,
        "not_there": tail.not_there,
        "refused_callers": tail.refused_callers,
        "untold": tail.unannounced,
        "ring_bytes": tail.ring_bytes,
        "ring_bytes_max": tail.ring_bytes_max,
        "without_slot": tail.without_slot,
        "switched_off": tail.own_faults.iter().filter(|own| own.switched_off).map(|own| &*own.name).collect::<Value>(),
        "given_up": given_up,
    })
}

fn dry_run(dry: &DryRunStats) -> Value {
    json!({
        "sampler": dry.sampler.to_string(),
        "seen": dry.seen(),
        "kept": dry.kept_here(),
        "kept_really": dry.kept_really(),
        "kept_by_both": dry.both_kept,
    })
}

fn outcome(of: &KeyOutcomes) -> Value {
    let millis = |share| of.durations.quantile(share).map(|duration| duration.as_secs_f64() * 1e3);
    json!({
        "key": of.key,
        "calls": of.calls,
        "errors": of.errors,
        "missed_errors": of.missed_errors,
        "p50_ms": millis(0.5),
        "p95_ms": millis(0.95),
        "p99_ms": millis(0.99),
    })
}

fn key(key: &KeyStats) -> Value {
    json!({
        "key": key.key,
        "seen": key.seen,
        "kept": key.kept,
        "kept_late": key.kept_late,
        "sampler": key.dropped_by_sampler(),
        "cap": key.dropped_by_cap,
        "cap_empty": key.dropped_by_empty_cap,
        "override": key.dropped_by_override,
        "probability": key.probability,
        "tokens": key.tokens,
    })
}

pub(super) fn why(explanation: &Explanation) -> String {
    let Explanation { trace_id, keep, key, reason, randomness, threshold, probability, counts, late, .. } =
        explanation;
    // JavaScript numbers cannot hold 56 bits.
    let hex = |bits: u64| format!("{bits:014x}");
    let why = json!({
        "trace_id": trace_id.to_string(),
        "keep": keep,
        "key": key,
        "reason": reason.map_or("parent", |reason| reason.name()),
        "randomness": hex(*randomness),
        "threshold": threshold.map(hex),
        "probability": probability,
        "seen": counts.map(|counts| counts.0),
        "kept": counts.map(|counts| counts.1),
        "late": late,
        "words": explanation.to_string(),
    });
    format!("{why}\n")
}
