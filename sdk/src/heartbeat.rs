//! Heartbeats: spans that carry the number of calls of each key, so that a backend has exact totals
//! beside the kept traces.
//!
//! A heartbeat bypasses the queue and goes to the exporter on one of its threads. It is not a trace
//! of the service: it is not sampled, not counted in [`Stats`](crate::Stats), and not visible to
//! other layers.
//!
//! | attribute | of | meaning |
//! |---|---|---|
//! | `astracer.process` | span | random, the same for all heartbeats of a process |
//! | `astracer.beat` | span | the number of the heartbeat, from 1 |
//! | `astracer.part`, `astracer.parts` | span | a heartbeat of many keys has several spans |
//! | `astracer.key` | event `astracer.key` | the key; missing for keys without a record, together |
//! | `astracer.seen`, `astracer.kept` | event | the key's roots since the process began |

use std::cmp::Reverse;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use astracer_model::otel::otlp_flags;
use astracer_model::span::{Event, Scope};
use astracer_model::value::Attribute;
use astracer_model::{Span, SpanKind, UnixNanos, Value};
use opentelemetry::{TraceFlags, TraceId};
use opentelemetry_sdk::trace::IdGenerator as _;

use crate::ids::RandomIds;
use crate::steering::KeyStats;
use crate::totals::KeyTotals;
use astracer_spans::export::own_scope;

/// Keys per span: fewer than the 128 events that a span may have by default.
const KEYS_PER_SPAN: usize = 100;
/// Keys per heartbeat: those with the most calls.
const KEYS_MAX: usize = 10_000;

pub(crate) const NAME: &str = "astracer.heartbeat";

#[derive(Debug)]
pub(crate) struct Heart {
    process: String,
    beats: i64,
    scope: Arc<Scope>,
    totals: KeyTotals<2>,
}

type Counts = [u64; 2];

impl Default for Heart {
    fn default() -> Self {
        Heart {
            process: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            beats: 0,
            scope: Arc::new(own_scope()),
            totals: KeyTotals::new(|stats| [stats.seen, stats.kept]),
        }
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Heart {
    /// The spans of a heartbeat at `now`. Keys beyond 10,000 are added to those without a record.
    pub(crate) fn beat(&mut self, keys: Vec<KeyStats>, now: SystemTime) -> Vec<Span<'static>> {
        self.beats += 1;
        let now = UnixNanos::from(now);
        let keys = self.note(&keys);
        let trace_id = RandomIds.new_trace_id();
        let parts = keys.len().div_ceil(KEYS_PER_SPAN).max(1);
        let part = |at: usize| {
            let own = keys.iter().skip(at * KEYS_PER_SPAN).take(KEYS_PER_SPAN);
            let events = own.map(|(key, counts)| event(key.as_deref(), *counts, now)).collect();
            Span { events, ..self.span(trace_id, at, parts, now) }
        };
        (0..parts).map(part).collect()
    }

    /// Updates the totals of all keys, and returns them since the process began: the keys with the
    /// most calls first, and all others together last.
    fn note(&mut self, all: &[KeyStats]) -> Vec<(Option<String>, Counts)> {
        self.totals.note(all, usize::MAX);
        let mut reported: Vec<(Option<String>, Counts)> =
            self.totals.each().map(|(key, counts)| (Some(key.to_owned()), counts)).collect();
        reported.sort_by_key(|(_, [seen, _])| Reverse(*seen));
        let are_others = self.totals.others(all) != Counts::default();
        if reported.len() > KEYS_MAX || (reported.len() == KEYS_MAX && are_others) {
            for (key, _) in reported.drain(KEYS_MAX - 1..) {
                self.totals.remove(&key.unwrap_or_default());
            }
        }
        let others = self.totals.others(all);
        if others != Counts::default() {
            reported.push((None, others));
        }
        reported
    }

    fn span(&self, trace_id: TraceId, part: usize, parts: usize, now: UnixNanos) -> Span<'static> {
        Span {
            trace_id: trace_id.into(),
            span_id: RandomIds.new_span_id().into(),
            kind: SpanKind::Internal,
            name: NAME.into(),
            start: Some(now),
            end: Some(now),
            attributes: vec![
                Attribute::new("astracer.process", Value::String(self.process.clone().into())),
                Attribute::new("astracer.beat", Value::Int(self.beats)),
                Attribute::new("astracer.part", Value::Int(part as i64)),
                Attribute::new("astracer.parts", Value::Int(parts as i64)),
            ],
            flags: otlp_flags(TraceFlags::SAMPLED, false),
            // The exporter's thread sets the resource.
            ..Span::of(Arc::default(), self.scope.clone())
        }
    }
}

fn event(key: Option<&str>, [seen, kept]: Counts, now: UnixNanos) -> Event<'static> {
    let mut attributes = Vec::with_capacity(3);
    if let Some(key) = key {
        attributes.push(Attribute::new("astracer.key", Value::String(key.to_owned().into())));
    }
    attributes.push(Attribute::new("astracer.seen", Value::Int(number(seen))));
    attributes.push(Attribute::new("astracer.kept", Value::Int(number(kept))));
    Event { time: now, name: "astracer.key".into(), attributes, dropped_attributes: 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::settings::Settings;
    use astracer_spans::export::Queue;

    /// Even if the exporter takes long to send one.
    #[test]
    fn at_most_one_heartbeat_is_pending() {
        let queue = Queue::new(Settings::default().bounds, Arc::default());
        let mut heart = Heart::default();
        let mut beat = || heart.beat(Vec::new(), SystemTime::UNIX_EPOCH);
        assert!(queue.accepts_heartbeat() && queue.take_heartbeat().is_none());
        queue.send_heartbeat(beat());
        assert!(!queue.accepts_heartbeat());
        assert_eq!(queue.take_heartbeat().map(|spans| spans.len()), Some(1));
        // It is in flight, and no other worker sends it again.
        assert!(!queue.accepts_heartbeat() && queue.take_heartbeat().is_none());
        queue.heartbeat_sent(1, 0);
        assert!(queue.accepts_heartbeat());
        // At the deadline of a shutdown a waiting heartbeat is given up, and none follows.
        queue.send_heartbeat(beat());
        queue.abandon();
        assert!(!queue.accepts_heartbeat() && queue.take_heartbeat().is_none());
        queue.wait_for_heartbeat();
        assert_eq!(queue.heartbeats(), (1, 1));
    }

    fn stats(key: Option<&str>, seen: u64, kept: u64) -> KeyStats {
        KeyStats { key: key.map(str::to_owned), seen, kept, ..KeyStats::default() }
    }

    /// The key, `seen` and `kept` of each event.
    fn reported(heart: &mut Heart, keys: Vec<KeyStats>) -> Vec<(Option<String>, i64, i64)> {
        let spans = heart.beat(keys, SystemTime::UNIX_EPOCH);
        let of = |event: &Event<'_>| {
            let find = |name: &str| event.attributes.iter().find(|own| own.key == name);
            let number = |name: &str| match find(name).map(|own| &own.value) {
                Some(Value::Int(number)) => *number,
                other => panic!("{name}: {other:?}"),
            };
            let key = find("astracer.key").map(|own| own.value.as_str().unwrap().to_owned());
            (key, number("astracer.seen"), number("astracer.kept"))
        };
        spans.iter().flat_map(|span| &span.events).map(of).collect()
    }

    /// The table of default size is full, and other keys were seen too: more often together than
    /// any single key in it.
    #[test]
    fn keys_without_a_record_are_reported_once() {
        let named = || (0..10_000).map(|n| stats(Some(&format!("{n:05}")), 2, 1));
        let mut heart = Heart::default();
        assert_eq!(reported(&mut heart, named().collect()).len(), 10_000);
        for _ in 0..2 {
            let events = reported(&mut heart, named().chain([stats(None, 1_000, 10)]).collect());
            let others: Vec<_> = events.iter().filter(|(key, ..)| key.is_none()).collect();
            assert_eq!(others, [&(None, 1_002, 11)]);
            assert_eq!(events.len(), 10_000);
        }
    }

    #[test]
    fn a_key_continues_its_counts_after_its_record_was_evicted() {
        let mut heart = Heart::default();
        let key = |seen, kept| (Some("a".to_owned()), seen, kept);
        assert_eq!(reported(&mut heart, vec![stats(Some("a"), 100, 9)]), [key(100, 9)]);
        for _ in 0..2 {
            assert_eq!(reported(&mut heart, vec![stats(None, 100, 9)]), [key(100, 9)]);
        }
        let back = || vec![stats(Some("a"), 5, 1), stats(None, 110, 10)];
        for _ in 0..2 {
            assert_eq!(reported(&mut heart, back()), [key(105, 10), (None, 10, 1)]);
        }
        assert_eq!(reported(&mut heart, vec![stats(None, 117, 11)]), [key(105, 10), (None, 12, 1)]);
    }
}
