//! Finds attributes of roots that keys could have, in the beginning of a recording.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use astracer_model::sink::Record;
use astracer_model::{Problem, Sink, Span};
use astracer_recording::source;
use astracer_tuner::Stop;
use astracer_tuner::key::VALUES_MAX;

use crate::load::is_read_once;
use crate::source::Source;

/// Spans that are looked at: a second of reading at most.
const SPANS_MAX: u64 = 100_000;
/// Different attributes that are followed.
const NAMES_MAX: usize = 1_000;

/// The attributes of root spans that most of them carry, with 2 to [`VALUES_MAX`] values, in the
/// first spans of these recordings. Standard input is not looked at, because it can be read only
/// once. A recording that cannot be read has none; reading it reports the error.
pub(crate) fn found(from: &Source, stop: Stop<'_>) -> Vec<String> {
    let mut roots = Roots { stop, spans: 0, roots: 0, names: HashMap::new(), hasher: RandomState::new() };
    for path in from.paths.iter().filter(|path| !is_read_once(path)) {
        let _ = source::read(path, &from.reading.options(), &mut roots);
    }
    let is_telling = |(_, of): &(&String, &Values)| {
        2 * of.roots > roots.roots && (2..=VALUES_MAX).contains(&of.values.len())
    };
    let mut names: Vec<String> =
        roots.names.iter().filter(is_telling).map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

/// The values of one attribute.
#[derive(Default)]
struct Values {
    roots: u64,
    /// Hashes of the values, at most one more than [`VALUES_MAX`].
    values: HashSet<u64>,
}

struct Roots<'s> {
    stop: Stop<'s>,
    spans: u64,
    roots: u64,
    names: HashMap<String, Values>,
    hasher: RandomState,
}

impl Sink for Roots<'_> {
    fn span(&mut self, span: Span<'_>, _record: Record<'_>) {
        self.spans += 1;
        if !span.parents.is_empty() {
            return;
        }
        self.roots += 1;
        for attribute in &span.attributes {
            let is_known = self.names.contains_key(&*attribute.key);
            if !is_known && self.names.len() >= NAMES_MAX {
                continue;
            }
            let of = self.names.entry(attribute.key.to_string()).or_default();
            of.roots += 1;
            if of.values.len() <= VALUES_MAX {
                of.values.insert(self.hasher.hash_one(format!("{:?}", attribute.value)));
            }
        }
    }

    fn problem(&mut self, _problem: Problem) {}

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}

    fn stopped(&self) -> bool {
        self.spans >= SPANS_MAX || self.stop.is_asked()
    }
}
