//! Joins spans in file order into traces.
//!
//! The steps are: short trace ids are lengthened; spans without a trace id get their parent's;
//! spans that were written twice are dropped, and pieces of a span merged; each span finds its
//! parent; cycles are cut; missing starts are filled in; each trace gets its root. Every
//! irregularity is counted. Every loop over spans polls whether the user wants to stop.
//!
//! Nothing depends on the order of spans in the input, so ties are settled by the spans' contents.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;

use super::intake::Intake;
use super::logs;
use super::numbers::Numbers;
use super::one_id::{OneId, SharedIds, count_as};
use super::trace_ids::{count_parted, lengthen};
use super::{Marks, NO_TIME, NONE, Recording, SpanRow, TraceRow};
use crate::intern::Symbol;
use crate::stop::Pulse;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::{Problem, ProblemKind};

impl Intake<'_> {
    /// Joins the spans into traces. If [`Self::stop_when`] stopped the work, during reading or
    /// here, the recording has no traces.
    pub fn finish(self) -> Recording {
        join(self)
    }
}

fn join(mut intake: Intake<'_>) -> Recording {
    let mut pulse = Pulse::of(intake.stop.take());
    lengthen(&mut intake, &mut pulse);
    give_trace_ids(&mut intake, &mut pulse);
    let Intake { mut recording, trace_ids, .. } = intake;
    if pulse.stopped() {
        return recording;
    }
    let groups = group_by_trace(&recording, trace_ids.len());
    let mut joiner = Joiner {
        mark: vec![NONE; recording.spans.len()],
        by_id: Vec::new(),
        shared: SharedIds::default(),
        one_id: OneId::default(),
        order: Vec::with_capacity(recording.spans.len()),
        path: Vec::new(),
        pulse,
    };
    let mut traces = Vec::with_capacity(trace_ids.len());
    for (number, &id) in trace_ids.iter().enumerate() {
        let members = &groups.members[groups.first[number] as usize..groups.first[number + 1] as usize];
        traces.extend(joiner.join_trace(&mut recording, id, members));
        if joiner.pulse.stopped() {
            return recording;
        }
    }
    // Replays process traces in order of start.
    traces.sort_by_key(|trace| {
        let root = &recording.spans[trace.root as usize];
        (root.start, Reverse(root.last()), trace.id)
    });
    recording.order = joiner.order;
    recording.traces = traces;
    count_parted(&mut recording, &mut joiner.pulse);
    recording.origins.finish();
    logs::join(&mut recording, &mut joiner.pulse);
    number_names(&mut recording, &mut joiner.pulse);
    recording
}

/// Numbers names and services in the order of the traces. Sums over names are otherwise made in the
/// order of the file, and their last digits depend on it.
fn number_names(recording: &mut Recording, pulse: &mut Pulse<'_>) {
    let mut names = Numbers::new(recording.names.len());
    let mut services = Numbers::new(recording.services.len());
    for trace in &recording.traces {
        let members = &recording.order[trace.first as usize..][..trace.len as usize];
        for &index in members {
            let row = &recording.spans[index as usize];
            names.see(row.name);
            services.see(row.service);
        }
        if pulse.stopped_after(members.len()) {
            return;
        }
    }
    if names.is_changed(&recording.names) {
        recording.names.renumber(&names.of);
        recording.spans.iter_mut().for_each(|row| row.name = Symbol(names.of[row.name.index()]));
    }
    if services.is_changed(&recording.services) {
        recording.services.renumber(&services.of);
        let renumbered = |service: Symbol| Symbol(services.of[service.index()]);
        recording.spans.iter_mut().for_each(|row| row.service = renumbered(row.service));
        recording.logs.rows.iter_mut().for_each(|row| row.service = renumbered(row.service));
    }
}

/// Puts spans that were written without a trace id into the trace of their parent. HTrace 3's
/// DataNode pipelines write chains of such spans.
///
/// If the user stops this, some spans stay without a trace.
fn give_trace_ids(intake: &mut Intake<'_>, pulse: &mut Pulse<'_>) {
    let without: Vec<u32> = (0u32..)
        .zip(&intake.recording.spans)
        .filter(|(_, row)| row.trace == NONE)
        .map(|(index, _)| index)
        .collect();
    if without.is_empty() {
        return;
    }
    let hasher = RandomState::default();
    let mut by_id = HashTable::with_capacity(intake.recording.spans.len());
    for (index, row) in (0u32..).zip(&intake.recording.spans) {
        if pulse.stopped() {
            return;
        }
        let hash = hasher.hash_one(row.span_id.0);
        let preferred = |index: u32| {
            let row = &intake.recording.spans[index as usize];
            (row.trace == NONE, intake.trace_ids.get(row.trace as usize), row.rank())
        };
        match by_id.find_mut(hash, |&(id, _)| id == row.span_id) {
            // One id in several traces.
            Some((_, known)) if preferred(index) < preferred(*known) => *known = index,
            Some(_) => {}
            None => {
                by_id.insert_unique(hash, (row.span_id, index), |&(id, _): &(SpanId, u32)| {
                    hasher.hash_one(id.0)
                });
            }
        }
    }
    let find = |id: SpanId| by_id.find(hasher.hash_one(id.0), |&(own, _)| own == id).map(|&(_, index)| index);

    let mut chain = Vec::new();
    let mut mark = vec![NONE; intake.recording.spans.len()];
    for &index in &without {
        chain.clear();
        let mut at = index;
        // Walk up to a span that has a trace, or to the end of the chain, whose id becomes the
        // trace id.
        let trace = loop {
            if pulse.stopped() {
                return;
            }
            let row = &intake.recording.spans[at as usize];
            if row.trace != NONE {
                break row.trace;
            }
            chain.push(at);
            mark[at as usize] = index;
            let parent = parents(&intake.recording, at).find_map(find);
            match parent {
                Some(parent) if mark[parent as usize] != index => at = parent,
                _ => {
                    let name = match parent {
                        // A cycle is named by its largest id, wherever the walk entered it.
                        Some(parent) => {
                            let entry = chain.iter().rposition(|&at| at == parent).unwrap_or(0);
                            let ids = chain[entry..].iter();
                            ids.map(|&at| intake.recording.spans[at as usize].span_id).max()
                        }
                        None => Some(row.parent_id).filter(|&id| id != SpanId::ZERO),
                    };
                    let name = name.unwrap_or(row.span_id);
                    let place = intake.recording.place(at);
                    let problem =
                        Problem::new(ProblemKind::NoTraceId, place, format!("span {}", row.span_id));
                    intake.recording.problems.push(problem);
                    break intake.trace_number(TraceId(u128::from(name.0)));
                }
            }
        };
        for &at in &chain {
            intake.recording.spans[at as usize].trace = trace;
        }
    }
}

fn parents(recording: &Recording, index: u32) -> impl Iterator<Item = SpanId> {
    let first = Some(recording.spans[index as usize].parent_id).filter(|&id| id != SpanId::ZERO);
    first.into_iter().chain(recording.more_parents.get(&index).into_iter().flatten().copied())
}

/// Span indices grouped by trace: trace `n` has `members[first[n]..first[n + 1]]`, in input order.
struct Groups {
    first: Vec<u32>,
    members: Vec<u32>,
}

/// A counting sort, which is linear and does not move the spans.
///
/// A trace with events of X-Trace consists of them, as in X-Trace's files. Its other spans, of code
/// without events, are left out.
fn group_by_trace(recording: &Recording, traces: usize) -> Groups {
    let mut first = vec![0u32; traces + 1];
    let mut has_events = vec![false; traces];
    for row in recording.spans.iter().filter(|row| row.marks.has(Marks::EVENT)) {
        has_events[row.trace as usize] = true;
    }
    let is_in = |row: &SpanRow| !has_events[row.trace as usize] || row.marks.has(Marks::EVENT);
    for row in recording.spans.iter().filter(|row| is_in(row)) {
        first[row.trace as usize + 1] += 1;
    }
    for number in 0..traces {
        first[number + 1] += first[number];
    }
    let mut next = first.clone();
    let mut members = vec![0u32; recording.spans.len()];
    for (index, row) in (0u32..).zip(&recording.spans).filter(|(_, row)| is_in(row)) {
        let slot = &mut next[row.trace as usize];
        members[*slot as usize] = index;
        *slot += 1;
    }
    Groups { first, members }
}

struct Joiner<'c> {
    /// For each span, the last walk that visited it during the search for cycles.
    mark: Vec<u32>,
    /// The trace's spans, ordered by id, then by rank.
    by_id: Vec<(SpanId, u32)>,
    shared: SharedIds,
    one_id: OneId,
    order: Vec<u32>,
    /// The path from a span without a start up to its nearest ancestor with one, exclusive.
    path: Vec<u32>,
    pulse: Pulse<'c>,
}

impl Joiner<'_> {
    /// Joins the spans of one trace and appends them to the order. `None` if the trace has no
    /// spans, or if the user stops.
    ///
    /// Apart from sorting, the time is linear in the spans and their parents.
    fn join_trace(&mut self, recording: &mut Recording, id: TraceId, members: &[u32]) -> Option<TraceRow> {
        self.by_id.clear();
        self.by_id.extend(members.iter().map(|&index| (recording.spans[index as usize].span_id, index)));
        if !self.pulse.sort_by_key(&mut self.by_id, |&pair| pair) {
            return None;
        }
        self.resolve_ids(recording);
        let first = self.order.len();
        self.order.extend(self.by_id.iter().map(|&(_, index)| index));

        for at in first..self.order.len() {
            self.find_parent(recording, self.order[at]);
            if self.pulse.stopped() {
                return None;
            }
        }
        for at in first..self.order.len() {
            self.cut_cycle(recording, self.order[at]);
            if self.pulse.stopped() {
                return None;
            }
        }
        self.fill_starts(recording, first);
        // The sort is stable, so equal spans stay in the order of their ids.
        let by_start = |&index: &u32| {
            let row = &recording.spans[index as usize];
            (row.start, Reverse(row.last()))
        };
        if !self.pulse.sort_by_key(&mut self.order[first..], by_start) {
            return None;
        }
        for at in first..self.order.len() {
            check_times(recording, self.order[at]);
            if self.pulse.stopped() {
                return None;
            }
        }
        let root = find_root(recording, id, &self.order[first..])?;
        Some(TraceRow { id, first: first as u32, len: (self.order.len() - first) as u32, root })
    }

    /// Resolves the records that have one id in `by_id`: copies, pieces, and the sides of a call.
    fn resolve_ids(&mut self, recording: &mut Recording) {
        self.shared.clear();
        if self.by_id.windows(2).all(|pair| pair[0].0 != pair[1].0) {
            return;
        }
        let mut kept: Vec<(SpanId, u32)> = Vec::with_capacity(self.by_id.len());
        for same_id in self.by_id.chunk_by(|a, b| a.0 == b.0) {
            match same_id {
                [only] => kept.push(*only),
                _ => self.one_id.resolve(recording, same_id, &mut kept, &mut self.shared),
            }
            if self.pulse.stopped_after(same_id.len()) {
                return;
            }
        }
        self.one_id.report(recording);
        self.shared.sort();
        self.by_id = kept;
    }

    /// Resolves a span's parent: the first of its parents that is in the trace. The server's half
    /// of a shared id already has its client.
    fn find_parent(&self, recording: &mut Recording, index: u32) {
        let row = recording.spans[index as usize];
        if row.parent != NONE {
            return;
        }
        let found = parents(recording, index).find_map(|id| {
            let at = self.by_id.partition_point(|&(own, _)| own < id);
            let &(_, parent) = self.by_id.get(at).filter(|&&(own, _)| own == id)?;
            Some(self.shared.parent(recording, index, id).unwrap_or(parent))
        });
        match found {
            Some(parent) => recording.spans[index as usize].parent = parent,
            None if row.parent_id != SpanId::ZERO => count_as(recording, ProblemKind::Orphan, index),
            None => {}
        }
    }

    /// Follows parents from a span. If the walk returns to a span that it visited itself, cuts the
    /// cycle above its earliest span.
    fn cut_cycle(&mut self, recording: &mut Recording, index: u32) {
        let mut at = index;
        while at != NONE && self.mark[at as usize] == NONE {
            self.mark[at as usize] = index;
            at = recording.spans[at as usize].parent;
            if self.pulse.stopped() {
                return;
            }
        }
        if at == NONE || self.mark[at as usize] != index {
            return;
        }
        let mut earliest = at;
        let mut member = recording.spans[at as usize].parent;
        while member != at {
            let key = |index: u32| recording.spans[index as usize].rank();
            if key(member) < key(earliest) {
                earliest = member;
            }
            member = recording.spans[member as usize].parent;
        }
        recording.spans[earliest as usize].parent = NONE;
        count_as(recording, ProblemKind::Cycle, earliest);
    }

    /// Gives each span without a start, from position `first` of the order, the start of its
    /// nearest ancestor that has one; without such an ancestor the trace's earliest time, or else
    /// the epoch.
    ///
    /// Every span on the path gets the start that was found, so no span is walked over twice.
    /// Otherwise chains of spans without a start would take quadratic time.
    fn fill_starts(&mut self, recording: &mut Recording, first: usize) {
        let mut earliest = None;
        for &index in &self.order[first..] {
            if recording.spans[index as usize].start == NO_TIME {
                count_as(recording, ProblemKind::NoStart, index);
            }
        }
        for &index in &self.order[first..] {
            self.path.clear();
            let mut above = index;
            while above != NONE && recording.spans[above as usize].start == NO_TIME {
                if self.pulse.stopped() {
                    return;
                }
                self.path.push(above);
                above = recording.spans[above as usize].parent;
            }
            if self.path.is_empty() {
                continue;
            }
            let start = if above == NONE {
                *earliest.get_or_insert_with(|| {
                    let rows = self.order[first..].iter().map(|&index| &recording.spans[index as usize]);
                    let ends = rows.clone().filter(|row| !row.marks.has(Marks::LONE)).map(|row| row.end);
                    let times = rows.map(|row| row.start).chain(ends);
                    times.filter(|&time| time != NO_TIME).min().unwrap_or(0)
                })
            } else {
                recording.spans[above as usize].start
            };
            for &on_path in &self.path {
                let row = &mut recording.spans[on_path as usize];
                row.start = start;
                if row.marks.has(Marks::LONE) {
                    row.end = start.saturating_add(row.end).min(NO_TIME - 1);
                    row.marks = row.marks.set_if(Marks::LONE, false);
                }
            }
        }
    }
}

fn check_times(recording: &mut Recording, index: u32) {
    let row = recording.spans[index as usize];
    if row.end == NO_TIME {
        count_as(recording, ProblemKind::NoEnd, index);
    } else if row.end < row.start {
        count_as(recording, ProblemKind::EndBeforeStart, index);
    }
    if row.parent != NONE && row.start < recording.spans[row.parent as usize].start {
        count_as(recording, ProblemKind::ClockSkew, index);
    }
}

/// The root of a trace whose members are ordered by start.
fn find_root(recording: &mut Recording, id: TraceId, members: &[u32]) -> Option<u32> {
    let is_root = |&&index: &&u32| recording.spans[index as usize].parent_id == SpanId::ZERO;
    let mut roots =
        members.iter().filter(is_root).filter(|&&index| recording.spans[index as usize].parent == NONE);
    let (root, second) = (roots.next().copied(), roots.next().copied());
    if let Some(second) = second {
        count_in(recording, ProblemKind::SeveralRoots, second, id);
    }
    root.or_else(|| {
        let top = members.iter().copied().find(|&index| recording.spans[index as usize].parent == NONE)?;
        count_in(recording, ProblemKind::NoRoot, top, id);
        Some(top)
    })
}

fn count_in(recording: &mut Recording, kind: ProblemKind, index: u32, trace: TraceId) {
    let (place, span_id) = (recording.place(index), recording.spans[index as usize].span_id);
    let detail = || format!("trace {trace}, span {span_id}");
    recording.problems.push_with(kind, || Problem::new(kind, place, detail()));
}
