//! Heartbeats: spans that say how many calls of each key there were, so that a backend has exact totals beside what is kept.
//!
//! A heartbeat goes to the exporter past the queue, on one of the exporter's threads. It is no trace of the service: no sampler is asked, nothing is counted in
//! [`Stats`](crate::Stats), and no layer hears of it.
//!
//! | attribute | of | meaning |
//! |---|---|---|
//! | `astracer.process` | span | random, the same for all heartbeats of a process |
//! | `astracer.beat` | span | the number of the heartbeat, from 1 |
//! | `astracer.part`, `astracer.parts` | span | a heartbeat of many keys has several spans |
//! | `astracer.key` | event `astracer.key` | the key; missing for keys without a record, together |
//! | `astracer.seen`, `astracer.kept` | event | roots of the key since the process began |

use std::hash::{BuildHasher as _, RandomState};
use std::time::SystemTime;

use opentelemetry::trace::{Event, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator as _, SpanData, SpanEvents, SpanLinks};

use crate::export::own_scope;
use crate::ids::RandomIds;
use crate::steering::KeyStats;

/// The keys that a span holds: fewer than the 128 events that spans may have by default.
const KEYS_PER_SPAN: usize = 100;
/// The keys of a heartbeat: those with the most calls.
const KEYS_MAX: usize = 10_000;

/// The name of a heartbeat's spans.
pub(crate) const NAME: &str = "astracer.heartbeat";

#[derive(Debug)]
pub(crate) struct Heart {
    process: String,
    beats: i64,
}

impl Default for Heart {
    fn default() -> Self {
        Heart { process: format!("{:016x}", RandomState::new().hash_one(std::process::id())), beats: 0 }
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Heart {
    /// The spans of a heartbeat at `now`. Keys beyond 10,000 are added up.
    pub(crate) fn beat(&mut self, mut keys: Vec<KeyStats>, now: SystemTime) -> Vec<SpanData> {
        self.beats += 1;
        keys.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key.cmp(&b.key)));
        if keys.len() > KEYS_MAX {
            let beyond = keys.split_off(KEYS_MAX - 1);
            let mut rest = KeyStats::default();
            beyond.iter().for_each(|stats| rest.join(stats));
            keys.push(rest);
        }
        let trace_id = RandomIds.new_trace_id();
        let parts = keys.len().div_ceil(KEYS_PER_SPAN).max(1);
        let part = |at: usize| {
            let own = keys.iter().skip(at * KEYS_PER_SPAN).take(KEYS_PER_SPAN);
            let mut events = SpanEvents::default();
            events.events = own.map(|stats| event(stats, now)).collect();
            self.span(trace_id, at, parts, events, now)
        };
        (0..parts).map(part).collect()
    }

    fn span(
        &self,
        trace_id: TraceId,
        part: usize,
        parts: usize,
        events: SpanEvents,
        now: SystemTime,
    ) -> SpanData {
        let flags = TraceFlags::SAMPLED;
        let ids = SpanContext::new(trace_id, RandomIds.new_span_id(), flags, false, TraceState::NONE);
        SpanData {
            span_context: ids,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: NAME.into(),
            start_time: now,
            end_time: now,
            attributes: vec![
                KeyValue::new("astracer.process", self.process.clone()),
                KeyValue::new("astracer.beat", self.beats),
                KeyValue::new("astracer.part", part as i64),
                KeyValue::new("astracer.parts", parts as i64),
            ],
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: own_scope(),
        }
    }
}

fn event(stats: &KeyStats, now: SystemTime) -> Event {
    let mut attributes = Vec::with_capacity(3);
    if let Some(key) = &stats.key {
        attributes.push(KeyValue::new("astracer.key", key.clone()));
    }
    attributes.push(KeyValue::new("astracer.seen", number(stats.seen)));
    attributes.push(KeyValue::new("astracer.kept", number(stats.kept)));
    Event::new("astracer.key", now, attributes, 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::export::Queue;
    use crate::settings::Settings;

    /// However long the exporter takes for one.
    #[test]
    fn one_heartbeat_is_on_its_way_at_most() {
        let queue = Queue::new(Settings::default().bounds, Arc::default());
        let mut heart = Heart::default();
        let mut beat = || heart.beat(Vec::new(), SystemTime::UNIX_EPOCH);
        assert!(queue.takes_heartbeat() && queue.take_heartbeat().is_none());
        queue.send_heartbeat(beat());
        assert!(!queue.takes_heartbeat());
        assert_eq!(queue.take_heartbeat().map(|spans| spans.len()), Some(1));
        // It is under way, and no worker sends it again.
        assert!(!queue.takes_heartbeat() && queue.take_heartbeat().is_none());
        queue.heartbeat_sent(1, 0);
        assert!(queue.takes_heartbeat());
        // At the deadline of a shutdown one that waits is given up, and none comes after it.
        queue.send_heartbeat(beat());
        queue.abandon();
        assert!(!queue.takes_heartbeat() && queue.take_heartbeat().is_none());
        queue.wait_for_heartbeat();
        assert_eq!(queue.heartbeats(), (1, 1));
    }
}
