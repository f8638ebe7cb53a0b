//! Records of one trace that have the same span id.
//!
//! They are copies of a span, pieces of a span, the two sides of a call (in Zipkin's B3 model,
//! client and servers share an id), or different spans whose ids collide. The rules are those of
//! Zipkin's own merge and tree, except that two complete records which contradict each other both
//! stay.

use super::{Marks, NO_TIME, NONE, Recording};
use crate::intern::Symbol;
use astracer_model::Format;
use astracer_model::ids::SpanId;
use astracer_model::problem::{Problem, ProblemKind};
use astracer_model::span::{SpanKind, Status};

/// The ids of one trace that several records share by design.
#[derive(Debug, Default)]
pub(super) struct SharedIds {
    /// Ordered by id.
    calls: Vec<Call>,
    /// Ordered by id, node and start.
    servers: Vec<Server>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    id: SpanId,
    /// [`NONE`] if only servers wrote the id.
    client: u32,
    /// True if the records follow Zipkin's model: a child whose node is not a server's belongs to
    /// the client.
    is_zipkin: bool,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    id: SpanId,
    /// The digest of its node, whose order does not depend on the file's.
    node: u64,
    start: u64,
    index: u32,
}

impl SharedIds {
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.servers.clear();
    }

    /// Orders what was added, for [`Self::parent`].
    pub(super) fn sort(&mut self) {
        self.servers.sort_by_key(|server| (server.id, server.node, server.start));
    }

    /// The record of a shared id that is the parent of `child`; `None` if the id is not shared.
    pub(super) fn parent(&self, recording: &Recording, child: u32, id: SpanId) -> Option<u32> {
        let call = self.calls[self.calls.binary_search_by_key(&id, |call| call.id).ok()?];
        let row = &recording.spans[child as usize];
        let node = recording.nodes.digest(row.node);
        let first = self.servers.partition_point(|server| (server.id, server.node) < (id, node));
        let here = &self.servers[first..];
        let here = &here[..here.partition_point(|server| (server.id, server.node) <= (id, node))];
        if let Some(only) = here.first() {
            // A server that was called again: the child belongs to the last attempt before it.
            let attempt = here.partition_point(|server| server.start <= row.start).saturating_sub(1);
            return Some(here.get(attempt).unwrap_or(only).index);
        }
        let service = |index: u32| recording.spans[index as usize].service;
        let first = self.servers.partition_point(|server| server.id < id);
        let server = self.servers.get(first).filter(|server| server.id == id)?.index;
        if call.client == NONE {
            return Some(server);
        }
        let by_client = row.service == service(call.client) && row.service != service(server);
        Some(if call.is_zipkin || by_client { call.client } else { server })
    }
}

/// The work on the records of one id.
#[derive(Debug, Default)]
pub(super) struct OneId {
    run: Vec<u32>,
    distinct: Vec<u32>,
    /// Copies and pieces that were dropped, and spans whose id is another's too.
    counted: Vec<(ProblemKind, u32)>,
}

impl OneId {
    /// Resolves the records of one id, and appends those that stay to `kept`, in an order that does
    /// not depend on the file's.
    pub(super) fn resolve(
        &mut self,
        recording: &mut Recording,
        same_id: &[(SpanId, u32)],
        kept: &mut Vec<(SpanId, u32)>,
        shared: &mut SharedIds,
    ) {
        let id = same_id[0].0;
        self.run.clear();
        self.run.extend(same_id.iter().map(|&(_, index)| index));
        self.drop_copies(recording);
        if self.distinct.len() > 1 {
            self.merge_pieces(recording);
        }
        self.pair(recording, id, shared);
        kept.extend(self.distinct.iter().map(|&index| (id, index)));
    }

    /// Counts what the records of all ids were.
    pub(super) fn report(&mut self, recording: &mut Recording) {
        for (kind, index) in self.counted.drain(..) {
            count_as(recording, kind, index);
        }
    }

    /// Moves one record of each content from `run` to `distinct`.
    fn drop_copies(&mut self, recording: &Recording) {
        let row = |index: &u32| &recording.spans[*index as usize];
        // The shortest of several spellings stays.
        self.run.sort_by_key(|index| (row(index).content, row(index).record_bytes, *index));
        self.distinct.clear();
        for copies in self.run.chunk_by(|a, b| row(a).content == row(b).content) {
            self.distinct.push(copies[0]);
            let rest = copies[1..].iter().map(|&index| (ProblemKind::DuplicateSpan, index));
            self.counted.extend(rest);
        }
        self.distinct.sort_by_key(|index| row(index).rank());
    }

    /// Merges neighbours that are pieces of one span, in the order of Zipkin's merge.
    fn merge_pieces(&mut self, recording: &mut Recording) {
        let is_zipkin = |index: u32| {
            recording.formats[recording.spans[index as usize].file as usize] == Some(Format::ZipkinJson)
        };
        if !self.distinct.iter().all(|&index| is_zipkin(index)) {
            return;
        }
        let row = |index: u32| &recording.spans[index as usize];
        self.distinct.sort_by(|&a, &b| {
            let role = |index: u32| {
                let row = row(index);
                let is_shared = row.marks.has(Marks::SHARED);
                (is_shared, !is_shared && row.kind != SpanKind::Client)
            };
            let node = |index: u32| recording.nodes.order_key(row(index).node, &recording.services);
            role(a)
                .cmp(&role(b))
                .then_with(|| node(a).cmp(&node(b)))
                .then_with(|| row(a).rank().cmp(&row(b).rank()))
        });
        let mut first = self.distinct[0];
        let mut merged = Vec::new();
        for &next in &self.distinct[1..] {
            if let Some(node) = common_node(recording, first, next) {
                let (into, piece) =
                    if recording.spans[next as usize].rank() < recording.spans[first as usize].rank() {
                        (next, first)
                    } else {
                        (first, next)
                    };
                merge(recording, into, piece, node);
                self.counted.push((ProblemKind::SpanPiece, piece));
                merged.push(piece);
                first = into;
            } else {
                first = next;
            }
        }
        if !merged.is_empty() {
            merged.sort_unstable();
            self.distinct.retain(|index| merged.binary_search(index).is_err());
        }
        self.distinct.sort_by_key(|&index| recording.spans[index as usize].rank());
    }

    /// Finds the client and the servers of a call among different records.
    fn pair(&mut self, recording: &mut Recording, id: SpanId, shared: &mut SharedIds) {
        if self.distinct.len() < 2 {
            return;
        }
        let row = |index: u32| &recording.spans[index as usize];
        let is_shared = |index: u32| row(index).marks.has(Marks::SHARED);
        let calls = |index: u32| row(index).kind == SpanKind::Client && !is_shared(index);
        let has_client = self.distinct.iter().any(|&index| calls(index));
        // Some recorders do not mark the server's half.
        let serves = |index: u32| is_shared(index) || has_client && row(index).kind == SpanKind::Server;
        let client =
            self.distinct.iter().copied().filter(|&index| !serves(index)).min_by_key(|&index| !calls(index));
        let has_server = self.distinct.iter().any(|&index| serves(index));
        let mut counted: Vec<u32> = Vec::new();
        if has_server {
            let is_marked = |&index: &u32| {
                recording.formats[row(index).file as usize] == Some(Format::ZipkinJson) || is_shared(index)
            };
            let is_zipkin = self.distinct.iter().any(is_marked);
            shared.calls.push(Call { id, client: client.unwrap_or(NONE), is_zipkin });
            let mut servers: Vec<Server> = Vec::new();
            for &index in self.distinct.iter().filter(|&&index| serves(index)) {
                let row = row(index);
                let node = recording.nodes.digest(row.node);
                servers.push(Server { id, node, start: row.start, index });
            }
            servers.sort_by_key(|server| server.node);
            counted.extend(self.distinct.iter().filter(|&&index| !serves(index) && Some(index) != client));
            match client {
                Some(_) => {
                    let again = servers.windows(2).filter(|pair| pair[0].node == pair[1].node);
                    counted.extend(again.map(|pair| pair[1].index));
                }
                None => counted.extend(&self.distinct[1..]),
            }
            if let Some(client) = client {
                for server in &servers {
                    recording.spans[server.index as usize].parent = client;
                }
            }
            shared.servers.append(&mut servers);
        } else {
            counted.extend(&self.distinct[1..]);
        }
        self.counted.extend(counted.into_iter().map(|index| (ProblemKind::DuplicateId, index)));
    }
}

/// The node of two records if they can be pieces of one span: no part of one contradicts the other.
fn common_node(recording: &mut Recording, a: u32, b: u32) -> Option<u32> {
    let (a, b) = (recording.spans[a as usize], recording.spans[b as usize]);
    let agree = |a: u64, b: u64, unknown: u64| a == b || a == unknown || b == unknown;
    let duration = |row: &super::SpanRow| match (row.start, row.end) {
        (_, NO_TIME) => NO_TIME,
        (_, lone) if row.marks.has(Marks::LONE) => lone,
        (start, end) if end <= start => NO_TIME,
        (start, end) => end - start,
    };
    let kinds = agree(a.kind as u64, b.kind as u64, SpanKind::Unspecified as u64);
    let shared = a.marks.has(Marks::SHARED) == b.marks.has(Marks::SHARED);
    let times = agree(a.start, b.start, NO_TIME) && agree(duration(&a), duration(&b), NO_TIME);
    let parents = agree(a.parent_id.0, b.parent_id.0, 0);
    if !(kinds && shared && times && parents) {
        return None;
    }
    recording.nodes.merge(a.node, b.node, &recording.services)
}

/// Adds a piece to a span. Where both state something, the span's own statement stays.
fn merge(recording: &mut Recording, into: u32, piece: u32, node: u32) {
    let other = recording.spans[piece as usize];
    let row = &mut recording.spans[into as usize];
    if row.parent_id == SpanId::ZERO {
        row.parent_id = other.parent_id;
    }
    if recording.names.name(row.name).is_empty() {
        row.name = other.name;
    }
    if row.kind == SpanKind::Unspecified {
        row.kind = other.kind;
    }
    row.status = match (row.status, other.status) {
        (Status::Error, _) | (_, Status::Error) => Status::Error,
        (Status::Unset, status) | (status, _) => status,
    };
    // `into` ranks first, so it has the start if either has one.
    if other.end != NO_TIME && (row.end == NO_TIME || row.end <= row.start && !row.marks.has(Marks::LONE)) {
        let is_lone = other.marks.has(Marks::LONE);
        row.end = match row.start {
            NO_TIME => other.end,
            start if is_lone => start.saturating_add(other.end),
            _ => other.end,
        };
        row.marks = row.marks.set_if(Marks::LONE, is_lone && row.start == NO_TIME);
    }
    row.node = node;
    row.service = recording.nodes.get(node).service;
    row.record_bytes = row.record_bytes.saturating_add(other.record_bytes);
    row.otlp_bytes = row.otlp_bytes.saturating_add(other.otlp_bytes);
    // The pieces of a span with three pieces stay in the same order whichever file they are in.
    row.content = row.content.wrapping_add(other.content);
    if let Some(more) = recording.more_parents.remove(&piece) {
        recording.more_parents.entry(into).or_insert(more);
    }
    recording.points.merge(into, piece);
    recording.contents.merge(into, piece);
    let (into, piece) = (into as usize, piece as usize);
    if let Some(&[own, theirs]) = pair_of(&recording.span_labels, into, piece).as_ref() {
        recording.span_labels[into] = recording.labels.merge(own, theirs);
    }
    if let Some(&[own, theirs]) = pair_of(&recording.span_trace_states, into, piece).as_ref()
        && recording.trace_states.name(own).is_empty()
    {
        recording.span_trace_states[into] = theirs;
    }
    if let Ok([own, theirs]) = recording.full.get_disjoint_mut([into, piece]) {
        let theirs = std::mem::take(theirs);
        let row = &recording.spans[into];
        own.start = own.start.or(theirs.start);
        own.end = Some(row.end)
            .filter(|&end| end != NO_TIME && !row.marks.has(Marks::LONE))
            .map(astracer_model::UnixNanos);
        own.lone_duration = row.marks.has(Marks::LONE).then_some(row.end);
        own.kind = row.kind;
        own.status = row.status;
        if own.parents.is_empty() {
            own.parents = theirs.parents;
        }
        if own.name.is_empty() {
            own.name = theirs.name;
        }
        if own.status_message.is_empty() {
            own.status_message = theirs.status_message;
        }
        if own.resource.attributes.len() < theirs.resource.attributes.len() {
            own.resource = theirs.resource;
        }
        own.attributes.extend(theirs.attributes);
        own.events.extend(theirs.events);
        own.links.extend(theirs.links);
    }
}

fn pair_of(symbols: &[Symbol], into: usize, piece: usize) -> Option<[Symbol; 2]> {
    Some([*symbols.get(into)?, *symbols.get(piece)?])
}

/// Counts a problem of this kind at the span of this index.
pub(super) fn count_as(recording: &mut Recording, kind: ProblemKind, index: u32) {
    let (place, span_id) = (recording.place(index), recording.spans[index as usize].span_id);
    recording.problems.push_with(kind, || Problem::new(kind, place, format!("span {span_id}")));
}
