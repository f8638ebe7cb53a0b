//! Trace ids of 64 bits, which services on the way cut from 128 bits.
//!
//! In one document, the short and the long form of an id mean one trace, the long one, as in
//! Zipkin. Forms in different documents stay two traces, and each orphan whose parent is in the
//! other one is counted.

use std::collections::{HashMap, HashSet};

use rapidhash::fast::RandomState;

use super::documents::is_long;
use super::intake::Intake;
use super::one_id::count_as;
use super::{NONE, Recording};
use crate::stop::Pulse;
use astracer_model::ids::{SpanId, TraceId};
use astracer_model::problem::ProblemKind;

/// The one long id of a document that ends in some 64 bits; `None` if there are several.
type Longer = HashMap<u64, Option<u32>, RandomState>;

/// Moves the spans with the short form of an id into the trace with the long form.
pub(super) fn lengthen(intake: &mut Intake<'_>, pulse: &mut Pulse<'_>) {
    let end = intake.recording.spans.len() as u32;
    intake.documents.next(end);
    for (start, end) in std::mem::take(&mut intake.documents.mixed) {
        let mut longer = Longer::default();
        let rows = &mut intake.recording.spans[start as usize..end as usize];
        for row in rows.iter().filter(|row| row.trace != NONE) {
            let id = intake.trace_ids[row.trace as usize];
            if is_long(id) {
                let found = longer.entry(id.0 as u64).or_insert(Some(row.trace));
                *found = found.filter(|&other| other == row.trace);
            }
            if pulse.stopped() {
                return;
            }
        }
        for (index, row) in (start..).zip(rows).filter(|(_, row)| row.trace != NONE) {
            let id = intake.trace_ids[row.trace as usize];
            if !is_long(id)
                && let Some(&Some(trace)) = longer.get(&(id.0 as u64))
            {
                row.trace = trace;
                if let Some(full) = intake.recording.full.get_mut(index as usize) {
                    full.trace_id = intake.trace_ids[trace as usize];
                }
            }
        }
    }
}

/// Counts the orphans whose parents are in a trace with the other form of their trace's id.
pub(super) fn count_parted(recording: &mut Recording, pulse: &mut Pulse<'_>) {
    let is_short = |id: TraceId| !is_long(id) && id != TraceId::ZERO;
    let traces = &recording.traces;
    if !(traces.iter().any(|trace| is_short(trace.id)) && traces.iter().any(|trace| is_long(trace.id))) {
        return;
    }
    let mut forms: HashMap<u64, (Option<usize>, Vec<usize>), RandomState> = HashMap::default();
    for (at, trace) in traces.iter().enumerate().filter(|(_, trace)| is_short(trace.id)) {
        forms.entry(trace.id.0 as u64).or_default().0 = Some(at);
    }
    for (at, trace) in traces.iter().enumerate().filter(|(_, trace)| is_long(trace.id)) {
        if let Some((_, long)) = forms.get_mut(&(trace.id.0 as u64)) {
            long.push(at);
        }
    }
    let mut parted = Vec::new();
    for (short, long) in forms.into_values().filter(|(_, long)| !long.is_empty()) {
        let members = |at: usize| {
            let trace = &traces[at];
            recording.order[trace.first as usize..][..trace.len as usize].iter().copied()
        };
        let short: Vec<u32> = short.into_iter().flat_map(members).collect();
        let long: Vec<u32> = long.into_iter().flat_map(members).collect();
        for (orphans, others) in [(&short, &long), (&long, &short)] {
            let ids: HashSet<SpanId, RandomState> =
                others.iter().map(|&index| recording.spans[index as usize].span_id).collect();
            parted.extend(orphans.iter().copied().filter(|&index| {
                let row = &recording.spans[index as usize];
                row.parent == NONE && row.parent_id != SpanId::ZERO && ids.contains(&row.parent_id)
            }));
            if pulse.stopped_after(short.len() + long.len()) {
                return;
            }
        }
    }
    parted.sort_unstable();
    for index in parted {
        count_as(recording, ProblemKind::ShortTraceId, index);
    }
}
