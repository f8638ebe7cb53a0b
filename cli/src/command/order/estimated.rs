//! The clocks of hosts whose logs are merged while they are read: from the records of common
//! traces at the beginning of all logs, which are read for it before.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use astracer_causality::clocks::{self, Bounds, ClockEvidence};
use astracer_causality::stretches::Stretches;
use astracer_model::ids::TraceId;
use astracer_model::log::LogRecord;
use astracer_model::sink::Record;
use astracer_recording::merging::{self, Kept, Stream};
use astracer_recording::source;

use super::clocks::sentence;

/// Records that are read.
const RECORDS_MAX: u64 = 500_000;
/// Records without a single trace's id after which none is expected.
const WITHOUT_IDS: u64 = 20_000;
/// Parts of traces on hosts that are kept.
const PARTS_MAX: usize = 200_000;
/// One of this many records without an id is passed on, so that reading can end.
const BEAT: u64 = 8;

/// Which clocks run ahead, and by how much.
#[derive(Debug, Default)]
pub(super) struct Estimated {
    ahead: HashMap<String, i64>,
    says: Vec<String>,
}

/// A record's part of a trace: the host, the trace, and the earliest and latest time.
type Part = (Arc<str>, TraceId, (u64, u64));

impl Estimated {
    /// Reads the beginning of all logs. None of them may be a pipe, which can be read only once.
    /// `host` names that of a record of a stream and a file.
    pub(super) fn of(
        streams: &[Stream],
        options: &source::Options,
        host: &(impl Fn(usize, &LogRecord<'_>, &Arc<str>) -> Arc<str> + Sync),
    ) -> Self {
        let mut files = streams.iter().flat_map(|stream| &stream.files);
        if options.follow || files.any(|path| !path.is_file()) {
            return Self::default();
        }
        let read = AtomicU64::new(0);
        let make = |number: usize, log: &LogRecord<'_>, record: Record<'_>| {
            let count = read.fetch_add(1, Ordering::Relaxed);
            let part = log.when().filter(|_| log.trace_id != TraceId::ZERO).map(|time| {
                let host = host(number, log, &record.place.file);
                (host, log.trace_id, (time.0, time.0.saturating_add(log.resolution)))
            });
            let is_beat = count.is_multiple_of(BEAT);
            (part.is_some() || is_beat).then_some(Kept::<Option<Part>> { writer: 0, ahead: 0, item: part })
        };
        let (mut stretches, mut names) = (Stretches::default(), Vec::new());
        let mut numbers: HashMap<Arc<str>, u32> = HashMap::new();
        merging::merge(streams, options, &make, |kept| {
            if let Some(Kept { item: Some((host, trace, times)), .. }) = kept {
                let number = *numbers.entry(host).or_insert_with_key(|host| {
                    names.push(host.to_string());
                    names.len() as u32 - 1
                });
                stretches.add(trace, number, times);
            }
            let count = read.load(Ordering::Relaxed);
            let is_hopeless = stretches.is_empty() && count >= WITHOUT_IDS;
            count < RECORDS_MAX && stretches.len() < PARTS_MAX && !is_hopeless
        });
        let mut bounds = Bounds::default();
        stretches.bound(|host| host, &mut bounds);
        let clocks = clocks::estimate(&names, bounds, &vec![None; names.len()]);
        let mut found = Self::default();
        for (name, clock) in names.iter().zip(&clocks) {
            if clock.evidence == ClockEvidence::Records && clock.ahead != 0 {
                found.ahead.insert(name.clone(), clock.ahead);
                found.says.push(sentence(name, clock, &names[clock.reference as usize]));
            }
        }
        found
    }

    /// By how many nanoseconds the clock of a host runs ahead.
    pub(super) fn ahead(&self, host: &str) -> i64 {
        self.ahead.get(host).copied().unwrap_or(0)
    }

    /// A sentence on each clock whose times are corrected.
    pub(super) fn says(&self) -> Vec<String> {
        self.says.iter().map(|says| format!("note: {says}; its times are corrected")).collect()
    }
}
