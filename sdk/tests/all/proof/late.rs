//! The reference's model of late keeping: the history of each local root, in lists and maps.
//!
//! Every local root of a kept or a recorded trace has a part, which is never reused. Memory and
//! time are unlimited here; [`Cramped`](super::compare::Cramped) compares programs in which they
//! are limited.

use std::collections::{BTreeMap, HashSet};

use astracer_sdk::ProvisionalMode;
use opentelemetry::TraceId;

use super::compare::Record;
use super::setup::{Counts, KeyCounts, LateSetup};

/// The spans of one local root.
#[derive(Debug)]
struct Part {
    key: String,
    trace: TraceId,
    began: u64,
    /// An error was seen.
    failed: bool,
    /// Ended spans, and whether each is the local root.
    gathered: Vec<(Record, bool)>,
    is_recorded: bool,
    /// The part was handed over, so later spans do not join it here.
    has_left: bool,
    /// A policy matched the part but had no budget left.
    was_refused: bool,
    duration: u64,
}

#[derive(Debug, Default)]
struct Key {
    counts: KeyCounts,
    is_armed: bool,
    /// Roots that were recorded because they were among the key's first.
    early: u64,
}

#[derive(Debug)]
pub(crate) struct Late {
    setup: LateSetup,
    parts: Vec<Part>,
    /// Parts in the ring, in the order of their ends: first those without an error, then those with
    /// one.
    held: [Vec<usize>; 2],
    /// Parts that were kept, each with the reason.
    kept: Vec<(usize, &'static str)>,
    /// Traces requested by `Handle::keep`, and the number of requests that found nothing. Every
    /// part of these that comes later is kept.
    wanted: Vec<(TraceId, u64)>,
    keys: BTreeMap<String, Key>,
    shapes: HashSet<(String, Vec<Vec<String>>)>,
    counts: Counts,
    pub(crate) is_closed: bool,
}

/// The number of first roots of a key that are recorded.
const EARLY: u64 = 16;

impl Late {
    pub(crate) fn new(setup: LateSetup) -> Self {
        Late {
            setup,
            parts: Vec::new(),
            held: Default::default(),
            kept: Vec::new(),
            wanted: Vec::new(),
            keys: BTreeMap::new(),
            shapes: HashSet::new(),
            counts: Counts { policies: vec![(0, 0); setup.policies.len()], ..Counts::default() },
            is_closed: false,
        }
    }

    /// A local root is decided. Returns its part and whether it is recorded, or `None` if it is
    /// simply dropped.
    pub(crate) fn decided(
        &mut self,
        key: &str,
        trace: TraceId,
        began: u64,
        keep: bool,
    ) -> Option<(usize, bool)> {
        let known = self.keys.entry(key.to_owned()).or_default();
        let is_recorded = !keep
            && match self.setup.provisional {
                ProvisionalMode::Always => true,
                ProvisionalMode::Armed => {
                    known.is_armed || {
                        known.early += 1;
                        known.early <= EARLY
                    }
                }
                _ => false,
            };
        if !keep && !is_recorded {
            return None;
        }
        self.parts.push(Part {
            key: key.to_owned(),
            trace,
            began,
            failed: false,
            gathered: Vec::new(),
            is_recorded,
            has_left: false,
            was_refused: false,
            duration: 0,
        });
        Some((self.parts.len() - 1, is_recorded))
    }

    /// An error is seen in an open part.
    pub(crate) fn mark(&mut self, part: usize) {
        let part = &mut self.parts[part];
        part.failed |= !part.has_left;
    }

    /// A root ends, whether dropped, kept or recorded.
    pub(crate) fn count(&mut self, key: &str, duration: u64, is_error: bool, is_recorded: bool) {
        let is_slow = self.setup.policies.iter().any(|policy| policy.is_slow(duration));
        let key = self.keys.entry(key.to_owned()).or_default();
        key.is_armed |= is_error || is_slow;
        key.counts.calls += 1;
        key.counts.errors += u64::from(is_error);
        key.counts.missed_errors += u64::from(is_error && !is_recorded);
        key.counts.missed_slow += u64::from(is_slow && !is_recorded);
    }

    /// A span of a kept trace ends.
    pub(crate) fn end_kept(&mut self, part: usize, record: &Record, is_root: bool) {
        let is_error = record.failed();
        self.parts[part].failed |= is_error;
        if is_root {
            let Part { key, failed, began, .. } = &self.parts[part];
            let (key, failed, duration) = (key.clone(), *failed, record.duration(*began));
            self.count(&key, duration, failed, true);
        }
    }

    /// A span of a recorded trace ends. Returns the exported spans.
    pub(crate) fn end_recorded(&mut self, at: usize, record: Record, is_root: bool) -> Vec<Record> {
        let is_error = record.failed();
        if is_error {
            self.mark(at);
        }
        let part = &mut self.parts[at];
        let is_late = part.has_left;
        let failed = if is_late { is_error } else { part.failed };
        let (key, duration) = (part.key.clone(), record.duration(part.began));
        let leaves_late = is_late || self.is_closed;
        if is_root {
            self.count(&key, duration, failed, !leaves_late || self.is_there(at));
        }
        if leaves_late {
            return self.end_late(at, record, is_error, is_root);
        }
        let part = &mut self.parts[at];
        part.gathered.push((record, is_root));
        part.duration = duration;
        if is_root { self.end_part(at) } else { Vec::new() }
    }

    fn arm_if(&mut self, is_error: bool, at: usize) {
        let key = self.keys.entry(self.parts[at].key.clone()).or_default();
        key.is_armed |= is_error;
    }

    /// The root has ended, or is no longer waited for.
    fn end_part(&mut self, at: usize) -> Vec<Record> {
        let part = &mut self.parts[at];
        part.has_left = true;
        if part.gathered.is_empty() {
            return Vec::new();
        }
        let trace = part.trace;
        let decided = if self.setup.is_cramped() { Some("all") } else { self.decide(at) };
        let wanted = self.wanted.iter_mut().find(|(wanted, _)| *wanted == trace);
        let is_wanted = wanted.is_some();
        if let Some((_, asks)) = wanted {
            self.counts.not_there -= std::mem::take(asks);
        }
        if let Some(reason) = decided {
            return self.keep_part(at, reason);
        }
        if is_wanted {
            self.counts.kept_by_hand += 1;
            return self.keep_part(at, "hand");
        }
        self.hold(at);
        if !self.setup.holds {
            let was_refused = usize::from(self.parts[at].was_refused);
            let reason = if self.is_closed { Counts::SHUT_DOWN } else { was_refused };
            self.unhold(at);
            self.give_up(reason, at);
        }
        Vec::new()
    }

    fn hold(&mut self, at: usize) {
        let (spans, roots) = self.size(at);
        self.counts.held.0 += spans;
        self.counts.held.1 += roots;
        self.held[usize::from(self.parts[at].failed)].push(at);
    }

    fn unhold(&mut self, at: usize) {
        let (spans, roots) = self.size(at);
        self.counts.held.0 -= spans;
        self.counts.held.1 -= roots;
        self.held.iter_mut().for_each(|row| row.retain(|held| *held != at));
    }

    fn size(&self, at: usize) -> (u64, u64) {
        let gathered = &self.parts[at].gathered;
        (gathered.len() as u64, gathered.iter().filter(|(_, is_root)| *is_root).count() as u64)
    }

    fn give_up(&mut self, reason: usize, at: usize) {
        let (spans, roots) = self.size(at);
        self.parts[at].gathered.clear();
        self.give_up_spans(reason, spans, roots);
    }

    fn give_up_spans(&mut self, reason: usize, spans: u64, roots: u64) {
        self.counts.given_up[reason].0 += spans;
        self.counts.given_up[reason].1 += roots;
    }

    /// The reason of the first policy that matches the part and has budget left.
    fn decide(&mut self, at: usize) -> Option<&'static str> {
        let part = &self.parts[at];
        let shape = (part.key.clone(), shape(&part.gathered));
        let needs_shapes = self.setup.policies.iter().any(|policy| policy.name == "odd");
        let is_odd = needs_shapes && self.shapes.insert(shape);
        for (place, policy) in self.setup.policies.iter().enumerate() {
            let part = &mut self.parts[at];
            let wants = match policy.name {
                "error" => part.failed,
                "slow" => policy.is_slow(part.duration),
                "odd" => is_odd,
                "attribute" => part.gathered.iter().any(|(record, _)| record.attributes.contains_key("text")),
                _ => part.gathered.len() >= 3,
            };
            let counts = &mut self.counts.policies[place];
            if wants && policy.budget.is_none_or(|budget| counts.0 < budget) {
                counts.0 += 1;
                return Some(policy.name);
            }
            counts.1 += u64::from(wants);
            part.was_refused |= wants;
        }
        None
    }

    fn keep_part(&mut self, at: usize, reason: &'static str) -> Vec<Record> {
        self.kept.push((at, reason));
        let gathered = std::mem::take(&mut self.parts[at].gathered);
        gathered.into_iter().map(|(record, _)| record.kept_late(reason)).collect()
    }

    /// Whether a part's trace was kept or still may be. Otherwise an error that its root reports
    /// counts as missed.
    fn is_there(&self, at: usize) -> bool {
        !self.is_closed && (self.is_held(at) || self.is_kept(self.parts[at].trace))
    }

    fn is_held(&self, at: usize) -> bool {
        self.held.iter().any(|row| row.contains(&at))
    }

    fn is_kept(&self, trace: TraceId) -> bool {
        self.kept.iter().any(|(kept, _)| self.parts[*kept].trace == trace)
    }

    /// A span ends after its part was handed over. It follows the part's spans.
    fn end_late(&mut self, at: usize, record: Record, is_error: bool, is_root: bool) -> Vec<Record> {
        if self.is_closed {
            self.give_up_spans(Counts::SHUT_DOWN, 1, u64::from(is_root));
            return Vec::new();
        }
        // A span follows its own part. If that part was given up, the span follows the trace's last
        // kept part.
        let is_own = |(kept, _): &&(usize, &str)| *kept == at;
        let is_of_trace = |(kept, _): &&(usize, &str)| self.parts[*kept].trace == self.parts[at].trace;
        let latest = || self.kept.iter().rev().find(is_of_trace).filter(|_| !self.is_held(at));
        if let Some((kept, reason)) = self.kept.iter().find(is_own).or_else(latest).copied() {
            self.arm_if(is_error, kept);
            return vec![record.kept_late(reason)];
        }
        if !self.is_held(at) {
            self.give_up_spans(Counts::LATE, 1, u64::from(is_root));
            return Vec::new();
        }
        self.arm_if(is_error, at);
        if !is_root && (!is_error || self.parts[at].failed) {
            self.parts[at].gathered.push((record, is_root));
            self.counts.held.0 += 1;
            return Vec::new();
        }
        // The policies are asked again if this is the root, or if the span has an error and the
        // part had none before.
        self.unhold(at);
        let part = &mut self.parts[at];
        if is_root {
            part.duration = record.duration(part.began);
        }
        part.gathered.push((record, is_root));
        part.failed |= is_error;
        if let Some(reason) = self.decide(at) {
            return self.keep_part(at, reason);
        }
        self.hold(at);
        Vec::new()
    }

    /// The last part of a trace in the ring.
    fn find(&self, trace: TraceId, rows: [usize; 2]) -> Option<usize> {
        let of_trace = |at: &&usize| self.parts[**at].trace == trace;
        rows.iter().find_map(|row| self.held[*row].iter().rev().find(of_trace).copied())
    }

    /// `Handle::keep`. Returns whether the trace was found, and the exported spans.
    pub(crate) fn keep(&mut self, trace: TraceId) -> (bool, Vec<Record>) {
        let mut exported = Vec::new();
        while let Some(at) = self.find(trace, [1, 0]) {
            self.unhold(at);
            self.counts.kept_by_hand += 1;
            exported.extend(self.keep_part(at, "hand"));
        }
        let is_there = !exported.is_empty();
        let in_vain = u64::from(!self.is_kept(trace));
        self.counts.not_there += in_vain;
        match self.wanted.iter_mut().find(|(wanted, _)| *wanted == trace) {
            Some((_, asks)) => *asks += in_vain,
            None => self.wanted.push((trace, in_vain)),
        }
        (is_there, exported)
    }

    /// `Handle::keep_where` for all traces with a span of this name. Returns their number, and the
    /// exported spans.
    pub(crate) fn keep_where(&mut self, name: &str) -> (u64, Vec<Record>) {
        let has_it = |part: &Part| part.gathered.iter().any(|(record, _)| record.name == name);
        let all: Vec<usize> = self.held.concat().into_iter().filter(|at| has_it(&self.parts[*at])).collect();
        let mut exported = Vec::new();
        for at in &all {
            self.unhold(*at);
            self.counts.kept_by_hand += 1;
            exported.extend(self.keep_part(*at, "hand"));
        }
        (all.len() as u64, exported)
    }

    pub(crate) fn arm_all(&mut self) {
        self.keys.values_mut().for_each(|key| key.is_armed = true);
    }

    /// The shutdown submits the recorded spans of open traces to the policies, and gives up the
    /// rest.
    pub(crate) fn shut_down(&mut self, now: u64) -> Vec<Record> {
        self.is_closed = true;
        let mut exported = Vec::new();
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            if part.is_recorded && !part.has_left {
                part.duration = now - part.began;
                exported.extend(self.end_part(at));
            }
        }
        for at in self.held.concat() {
            self.unhold(at);
            self.give_up(Counts::SHUT_DOWN, at);
        }
        exported
    }

    pub(crate) fn counts(&self) -> Counts {
        let open = self.parts.iter().filter(|part| part.is_recorded && !part.has_left);
        Counts { traces_open: open.count() as u64, ..self.counts.clone() }
    }

    /// The counts of ended roots by key.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, KeyCounts> {
        let ended = self.keys.iter().filter(|(_, key)| key.counts.calls > 0);
        ended.map(|(name, key)| (name.clone(), key.counts)).collect()
    }
}

/// The names from a span up to its topmost recorded ancestor.
fn path<'a>(mut record: &'a Record, gathered: &'a [(Record, bool)]) -> Vec<String> {
    let mut names = vec![record.name.clone()];
    let above = |of: &Record, other: &Record| of.parent.is_some_and(|parent| parent.span == other.ids.span);
    while let Some((next, _)) = gathered.iter().find(|(other, _)| above(record, other)) {
        names.push(next.name.clone());
        record = next;
    }
    names
}

fn shape(gathered: &[(Record, bool)]) -> Vec<Vec<String>> {
    let mut paths: Vec<_> = gathered.iter().map(|(record, _)| path(record, gathered)).collect();
    paths.sort();
    paths.dedup();
    paths
}
