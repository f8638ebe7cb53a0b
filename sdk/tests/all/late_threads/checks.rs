//! Compares a program with its model, after each round and at the end.

use std::sync::atomic::Ordering;

use astracer_sdk::{ProvisionalMode, Stats};

use super::model::{ExportedTraces, KEYS, calls};
use super::service::Service;
use super::{Own, POLICIES, SLOW, Setup};

/// Made = exported + lost + open + waiting + held + given up. Only the exporter's thread still
/// runs, so the sums agree sooner or later.
pub(super) fn check_law(service: &Service) -> Result<Stats, String> {
    let mut last = None;
    for _ in 0..100_000 {
        let stats = service.astracer.handle.stats();
        let tail = &stats.tail;
        let spans = stats.spans_exported + stats.spans_lost.total() + stats.spans_open + stats.spans_waiting;
        let traces = stats.traces_exported + stats.traces_lost.total() + stats.traces_open;
        if stats.spans_made == spans + tail.spans_held + tail.spans_given_up.total()
            && stats.traces_made == traces + tail.traces_held + tail.traces_given_up.total()
            && tail.ring_bytes <= tail.ring_bytes_max
        {
            return Ok(stats);
        }
        last = Some(stats);
        std::thread::yield_now();
    }
    Err(format!("the sums do not agree: {last:?}"))
}

/// A time, and the traces and bytes that each policy has kept until then.
pub(super) type KeptAt = (u64, Vec<(u64, u64)>);

/// Checks the documented worst case in each interval of rounds. It does not apply if the clock is
/// set back.
pub(super) fn check_budgets(setup: &Setup, kept: &[KeptAt]) -> Result<(), String> {
    if setup.sets_back {
        return Ok(());
    }
    for policy in 0..POLICIES {
        for (first, (began, _)) in kept.iter().enumerate() {
            let before = first.checked_sub(1).map_or((0, 0), |before| kept[before].1[policy]);
            for (ended, kept) in &kept[first..] {
                let seconds = (ended - began) as f64 / 1e9;
                let most =
                    |of: Option<(u64, u64)>| of.map(|(rate, burst)| burst as f64 + rate as f64 * seconds);
                let (traces, bytes) = (kept[policy].0 - before.0, kept[policy].1 - before.1);
                let keys = setup.budget.key_traces.map(|(rate, burst)| {
                    // Traces of the policy's own function have two more keys.
                    (KEYS.len() as f64 + 2.0) * (burst as f64 + rate as f64 * seconds)
                });
                let is_over =
                    |most: Option<f64>, kept: u64| most.is_some_and(|most| kept as f64 > most + 1e-6);
                if is_over(most(setup.budget.traces), traces)
                    || is_over(most(setup.budget.bytes), bytes)
                    || is_over(keys, traces)
                {
                    return Err(format!(
                        "policy {policy} kept {traces} traces, {bytes} bytes in {seconds} s"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Checks that the roots of each key are counted exactly.
pub(super) fn check_calls(service: &Service) -> Result<(), String> {
    let (setup, handle) = (&service.setup, &service.astracer.handle);
    if setup.shutdown.is_some() {
        return Ok(());
    }
    let expected = calls(&service.traces.lock().unwrap());
    let outcomes = handle.outcomes();
    for (key, expected) in KEYS.iter().zip(expected) {
        let found = outcomes.iter().find(|of| of.key.as_deref() == Some(*key));
        let Some(found) = found else {
            if expected.calls == 0 {
                continue;
            }
            return Err(format!("{key} has no counts: {expected:?}"));
        };
        let (least, most) = match setup.provisional {
            ProvisionalMode::Always if !setup.ages => (expected.errors.1, expected.errors.1),
            _ if setup.ages => (0, expected.errors.1),
            _ => expected.errors,
        };
        if found.calls != expected.calls
            || found.durations.count() != expected.calls
            || found.durations.sum_seconds() != expected.nanos as f64 / 1e9
            || !(least..=most).contains(&found.errors)
            || found.missed_errors > found.errors
        {
            return Err(format!("{key}: {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Checks which traces were exported, with which spans and reasons.
pub(super) fn check_exported(service: &Service, seen: &ExportedTraces, stats: &Stats) -> Result<(), String> {
    let setup = &service.setup;
    let traces = service.traces.lock().unwrap();
    let (mut errors, mut by_hand, mut missing) = (0, seen.inside_by_hand, 0);
    for trace in traces.iter() {
        let failed = trace.failed_if_recorded.load(Ordering::Relaxed);
        let is_slow = u128::from(trace.duration()) > SLOW.as_nanos();
        let asked = trace.asked.load(Ordering::Relaxed);
        let made = trace.made.load(Ordering::Relaxed);
        let Some(exported) = seen.of.get(&trace.number) else {
            // A function that was switched off matches nothing.
            let is_wanted = trace.is_wanted && setup.own != Own::Panics;
            if failed || is_slow || is_wanted || asked {
                missing += 1;
                if setup.has_large_bounds() && setup.provisional == ProvisionalMode::Always {
                    return Err(format!("{trace:?} was not kept: {stats:?}"));
                }
            }
            continue;
        };
        let is_hand = exported.reason.as_deref() == Some("hand");
        by_hand += u64::from(is_hand);
        errors += u64::from(failed);
        if !setup.ages && exported.spans + exported.cut != made {
            return Err(format!("{trace:?}: {exported:?}"));
        }
        let is_right = match exported.reason.as_deref() {
            None | Some("hand") => true,
            // A span that ends late follows another part of its trace.
            Some(_) if setup.ages && trace.is_shared => true,
            Some("error") => failed,
            Some("slow") => is_slow || setup.ages,
            Some("some") => trace.is_wanted,
            Some(_) => false,
        };
        if !is_right {
            return Err(format!("{trace:?} was kept as {exported:?}, requested: {asked}"));
        }
    }
    if setup.ages {
        return Ok(());
    }
    if by_hand != stats.tail.kept_by_hand {
        return Err(format!("{by_hand} kept through the handle: {stats:?}"));
    }
    if missing > 0 && setup.provisional == ProvisionalMode::Always && setup.budget.text.is_empty() {
        let given_up = stats.tail.traces_given_up.ring_full + stats.tail.without_slot;
        if missing > given_up {
            return Err(format!("{missing} traces that a policy matches are missing: {stats:?}"));
        }
    }
    let outcomes = service.astracer.handle.outcomes();
    let of_keys = || outcomes.iter().filter(|of| of.key.as_deref().is_some_and(|key| KEYS.contains(&key)));
    let (counted, missed): (u64, u64) =
        (of_keys().map(|of| of.errors).sum(), of_keys().map(|of| of.missed_errors).sum());
    if setup.budget.text.is_empty() && setup.ring_bytes == 32 << 20 && counted - missed != errors {
        let errors_seen = format!("{errors} failed traces were exported, {counted} counted, {missed} missed");
        return Err(format!("{errors_seen}: {stats:?}"));
    }
    Ok(())
}
