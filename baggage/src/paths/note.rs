//! The note of one line of control: the longest ways to where it is, and what it is doing.
//!
//! The *path part* merges at joins. The *flow part* (running or paused, open functions, the last
//! reading of the clock) belongs to the line of control alone, and is neither merged nor sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::experiments::{EXPERIMENTS_MAX, Set};
use super::names::{NOT_RECORDED, Place};
use super::path::Path;
use super::pieces::{Piece, Pieces, Spot};
use super::way::{Part, TimeKind};
use super::{CriticalPath, Measure};
use astracer_sdk::Template;

/// Identifies an open function: a span, or a zone.
pub(crate) type Key = (u64, u64);

/// The first half of the key of a zone, which is not a span.
pub(crate) const ZONE: u64 = u64::MAX - 1;

/// Open functions of a line of control. More count for the function around them.
const OPEN_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Open {
    /// (0, 0): it has ended.
    key: Key,
    spot: Spot,
    /// The function around it: its index, plus one; 0: the one in which the line began.
    around: usize,
    is_inside: bool,
}

/// A span that has begun and was not entered yet: if that is the next thing to happen, its time
/// counts from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) key: Key,
    pub(crate) at: u64,
    /// The flow in which it began.
    pub(crate) flow: u32,
}

impl Begun {
    pub(crate) const NEVER: Begun = Begun { key: (0, 0), at: 0, flow: 0 };
}

impl Default for Begun {
    fn default() -> Self {
        Begun::NEVER
    }
}

/// The longest way from the beginning of a request to a point of one line of control.
///
/// [`Flows`](crate::Flows) do this for the requests of a service. Other runtimes call the methods
/// themselves. Times are nanoseconds of one host's clock, from any origin.
#[derive(Debug, Default)]
pub struct Note {
    /// The local root in whose ways the path lies.
    pub(super) frame: u64,
    pub(super) path: Path,
    /// The way from the beginning of the request to the local root.
    pub(super) outer: Option<Box<Outer>>,
    pub(super) set: Option<Arc<Set>>,
    /// When the local root began.
    pub(super) since: u64,
    /// The name of the row in which the local root is counted.
    row: Place,
    /// Where the line of control began.
    base: Spot,
    open: Vec<Open>,
    /// The index of the current function, plus one; 0: `base`.
    current: usize,
    /// The span that began last before the branch was split off.
    begun: Begun,
    /// Up to here all time is in the path or in pieces.
    pub(super) last: u64,
    pieces: Pieces,
    /// When a branch was split off, if that was after `last`.
    forked: u64,
    /// When a branch began, until the time before that is counted.
    spawned: u64,
    root: Option<Key>,
    /// The root began in this flow, and not in one from which it was split off.
    owns_root: bool,
    /// When the root was exited, while the thread is outside of it.
    root_exit: Option<u64>,
    /// When the only call began that the flow makes now.
    pub(super) call_since: Option<u64>,
    threads: u32,
    has_begun: bool,
    /// The local root has ended.
    is_closed: bool,
    is_off: bool,
    is_covered: bool,
    is_paused: bool,
    is_waiting: bool,
    is_daemon: bool,
}

/// The ways that lead to a local root.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    /// The frame of those ways; 0: another process's.
    pub(super) frame: u64,
    pub(super) path: Path,
}

impl Note {
    /// A local root begins in the flow, or in a branch that has none yet, such as a message's.
    ///
    /// It is counted by its key. Its function is its name, with ids folded as tables of recordings
    /// fold them.
    pub(crate) fn begin_root(&mut self, of: &CriticalPath, now: u64, root: Key, (name, key): (&str, &str)) {
        if self.owns_root {
            return;
        }
        let outer = (self.is_active() && !self.is_closed).then(|| {
            self.go_on(of, now);
            self.settle(of);
            Box::new(Outer { frame: self.frame, path: self.path.clone() })
        });
        let threads = self.threads;
        let mut folded = String::new();
        let is_folded = name != key && Template::default().fold(name, &mut folded);
        let name = if is_folded { &folded } else { name };
        let place = of.0.names.inside(Place::NOWHERE, name);
        self.begin(of, now, Some(root), place, name);
        if name != key {
            self.row = of.0.names.inside(Place::NOWHERE, key);
        }
        (self.outer, self.threads) = (outer, threads);
    }

    /// Whether a request is measured.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.frame != 0
    }

    /// Whether the way to the local root is known.
    pub(crate) fn has_outer(&self) -> bool {
        self.outer.is_some()
    }

    /// Whether the local root has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn is_daemon(&self) -> bool {
        self.is_daemon
    }

    /// Whether this is the flow's open local root.
    pub(crate) fn is_of(&self, key: Key) -> bool {
        self.owns_root && self.root == Some(key)
    }

    /// Takes the open functions of a note that was split off from the same one, and later.
    pub(crate) fn take_open(&mut self, other: &Note) {
        if self.frame == other.frame {
            self.open.clone_from(&other.open);
            self.current = other.current;
        }
    }

    /// Begins a request, in a function of this name.
    pub(super) fn begin(&mut self, of: &CriticalPath, now: u64, root: Option<Key>, place: Place, name: &str) {
        let set = of.0.running.now();
        let inside = set.as_deref().map_or(0, |set| set.of(name));
        self.clear();
        self.frame = of.0.frames.fetch_add(1, Ordering::Relaxed);
        (self.set, self.since, self.last, self.root, self.row) = (set, now, now, root, place);
        (self.base, self.has_begun, self.owns_root) = (Spot { place, inside }, true, root.is_some());
    }

    /// Empties the note. Its memory stays.
    pub(crate) fn clear(&mut self) {
        self.path.clear();
        self.open.clear();
        self.pieces.clear();
        let (path, open, pieces) = (
            std::mem::take(&mut self.path),
            std::mem::take(&mut self.open),
            std::mem::take(&mut self.pieces),
        );
        *self = Note { path, open, pieces, ..Note::default() };
    }

    pub(super) fn spot(&self) -> Spot {
        match self.current.checked_sub(1).and_then(|at| self.open.get(at)) {
            Some(open) => open.spot,
            None => self.base,
        }
    }

    fn find(&self, key: Key) -> Option<usize> {
        self.open.iter().rposition(|open| open.key == key)
    }

    /// Whether a function is the current one, or around it.
    fn is_around(&self, place: usize) -> bool {
        let mut at = self.current;
        while at > place {
            at = self.open.get(at - 1).map_or(0, |open| open.around);
        }
        at == place
    }

    /// Adds a time to the ways.
    #[inline]
    pub(super) fn spend(&mut self, of: &CriticalPath, spot: Spot, kind: TimeKind, nanos: u64) {
        if nanos > 0 && of.0.measure.counts(kind) {
            self.path.tail.add(Part::new(spot.place, kind), nanos);
            if let Some(set) = &self.set {
                set.add(&mut self.path.changed, spot.inside, nanos);
            }
        }
    }

    fn spend_piece(&mut self, of: &CriticalPath, piece: Piece) {
        self.spend(of, piece.spot, TimeKind::Work, piece.work());
        self.spend(of, piece.spot, piece.kind, piece.wait);
    }

    /// Adds the time up to now to the ways, or to the pieces.
    #[inline]
    pub(super) fn go_on(&mut self, of: &CriticalPath, now: u64) {
        if now <= self.last {
            if now < self.last {
                of.0.counts.clock_back.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        if self.is_daemon || self.is_closed {
            return;
        }
        let kind = match (self.has_begun, self.is_waiting) {
            (false, _) => TimeKind::Spawn,
            // As far as the branch has ended before.
            (true, true) => TimeKind::Wake,
            _ => TimeKind::Wait,
        };
        if self.forked > self.last {
            self.push(of, self.forked.min(now), 0, TimeKind::Work, true);
        }
        if self.spawned > self.last {
            self.wait(of, self.spawned.min(now), TimeKind::Spawn, true);
        }
        if !self.has_begun || self.is_off || self.is_paused || self.is_waiting {
            self.wait(of, now, kind, false);
        } else if self.pieces.is_empty() && self.root_exit.is_none() {
            self.spend(of, self.spot(), TimeKind::Work, now - self.last);
            self.last = now;
        } else {
            self.push(of, now, 0, kind, false);
        }
    }

    #[inline(never)]
    fn wait(&mut self, of: &CriticalPath, to: u64, kind: TimeKind, is_real: bool) {
        self.push(of, to, to.saturating_sub(self.last), kind, is_real);
    }

    fn push(&mut self, of: &CriticalPath, to: u64, wait: u64, kind: TimeKind, is_real: bool) {
        if to <= self.last {
            return;
        }
        let (from, spot) = (self.last, self.spot());
        let is_nested = wait > 0 && self.is_off && self.is_covered;
        let piece = Piece { from, to, wait, spot, kind, is_nested, is_real };
        // Each wait in a call may be for the callee.
        self.pieces.push(piece, self.call_since.is_some());
        self.last = to;
        if self.root_exit.is_none() {
            let mut pieces = std::mem::take(&mut self.pieces);
            pieces.take_known().for_each(|piece| self.spend_piece(of, piece));
            self.pieces = pieces;
        }
    }

    /// The time since then in which the flow has waited, maybe for a call.
    pub(super) fn waited_since(&self, since: u64) -> u64 {
        let own = self.pieces.iter().filter(|piece| piece.from >= since && piece.is_open());
        own.fold(0, |sum, piece| sum.saturating_add(piece.wait))
    }

    /// Adds the time up to now, which counts as a wait if nothing else is known of it.
    pub(super) fn go_on_or_wait(&mut self, of: &CriticalPath, now: u64, may_wait: bool) {
        if may_wait && self.works() {
            self.wait(of, now, TimeKind::Work, false);
        } else {
            self.go_on(of, now);
        }
    }

    /// Whether the flow works, as far as it is known.
    fn works(&self) -> bool {
        self.has_begun && !self.is_off && !self.is_paused && !self.is_waiting
    }

    /// Removes this time from the open waits since then, the last ones first. The others become
    /// those of a kind, and all pieces are added to the ways.
    pub(super) fn take_waits(&mut self, of: &CriticalPath, since: u64, mut nanos: u64, kind: TimeKind) {
        let mut pieces: Vec<Piece> = self.pieces.take_all().collect();
        for piece in pieces.iter_mut().rev().filter(|piece| piece.from >= since && piece.is_open()) {
            let taken = piece.wait.min(nanos);
            nanos -= taken;
            (piece.wait, piece.to, piece.kind) = (piece.wait - taken, piece.to - taken, kind);
        }
        pieces.into_iter().for_each(|piece| self.spend_piece(of, piece));
    }

    /// Adds all pieces to the ways: what is open was for no branch.
    pub(super) fn settle(&mut self, of: &CriticalPath) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.take_all().for_each(|piece| self.spend_piece(of, piece));
        self.pieces = pieces;
    }

    /// A thread enters a span. `now` is called if the clock has to be read.
    pub(crate) fn span_entered(
        &mut self,
        of: &CriticalPath,
        key: Key,
        name: &'static str,
        begun: Begun,
        now: impl FnOnce() -> u64,
    ) {
        if self.root == Some(key) {
            self.root_exit = None;
            return;
        }
        if let Some(at) = self.find(key) {
            self.open[at].is_inside = true;
            if !self.is_around(at + 1) {
                self.go_on(of, now());
                self.current = at + 1;
            }
            return;
        }
        let now = match [begun, self.begun].into_iter().find(|begun| begun.key == key) {
            Some(begun) => begun.at.max(self.last),
            None => now(),
        };
        self.go_on(of, now);
        self.enter(of, key, |of, around| of.0.names.inside_static(around, name), name);
    }

    fn enter(
        &mut self,
        of: &CriticalPath,
        key: Key,
        place: impl FnOnce(&CriticalPath, Place) -> Place,
        name: &str,
    ) {
        let mut around = self.current;
        while let Some(open) = around.checked_sub(1).and_then(|at| self.open.get(at)) {
            if open.is_inside {
                break;
            }
            around = open.around;
        }
        if self.open.len() >= OPEN_MAX {
            of.0.counts.too_deep.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let outside =
            around.checked_sub(1).and_then(|at| self.open.get(at)).map_or(self.base, |open| open.spot);
        let inside = outside.inside | self.set.as_deref().map_or(0, |set| set.of(name));
        let spot = Spot { place: place(of, outside.place), inside };
        self.open.push(Open { key, spot, around, is_inside: true });
        self.current = self.open.len();
    }

    /// A thread exits a span.
    pub(crate) fn span_exited(&mut self, of: &CriticalPath, key: Key, now: impl FnOnce() -> u64) {
        if self.root == Some(key) {
            if self.owns_root {
                let now = now();
                self.go_on(of, now);
                self.root_exit = Some(now.max(self.last));
            }
            return;
        }
        if let Some(at) = self.find(key) {
            self.open[at].is_inside = false;
            if at + 1 == self.current {
                self.go_on(of, now());
            }
        }
    }

    /// A span ends: what follows its last exit is the time of the function around it.
    pub(crate) fn span_ends(&mut self, key: Key) {
        let Some(at) = self.find(key) else { return };
        (self.open[at].key, self.open[at].is_inside) = ((0, 0), false);
        while let Some(open) = self.current.checked_sub(1).and_then(|at| self.open.get(at)) {
            if open.key != (0, 0) {
                break;
            }
            self.current = open.around;
        }
        // Those that have ended may be around others, until those have ended too.
        while self.open.last().is_some_and(|open| open.key == (0, 0)) {
            self.open.pop();
        }
    }

    /// The flow takes a thread.
    pub(crate) fn resumed(&mut self, of: &CriticalPath, now: u64) {
        if !self.has_begun {
            (self.has_begun, self.spawned) = (true, now.max(self.last));
        } else if self.threads == 0 {
            self.go_on(of, now);
        }
        self.threads = self.threads.saturating_add(1);
        (self.is_off, self.is_covered) = (false, false);
    }

    /// The flow leaves a thread, or another flow covers it there.
    pub(crate) fn suspended(&mut self, of: &CriticalPath, now: u64, is_covered: bool) {
        self.threads = self.threads.saturating_sub(1);
        if self.threads == 0 {
            self.go_on(of, now);
            if is_covered {
                self.pieces.nest();
            }
            (self.is_off, self.is_covered) = (true, is_covered);
        }
    }

    /// Makes the note of a branch in `branch`, whose memory is used.
    pub(crate) fn split_into(&mut self, of: &CriticalPath, now: u64, begun: Begun, branch: &mut Note) {
        // The branch may be the span's.
        let since = if begun.at > self.last { begun.at.min(now) } else { now };
        self.go_on(of, since);
        branch.clear();
        branch.path.clone_from(&self.path);
        (branch.frame, branch.since, branch.last) = (self.frame, self.since, self.last);
        (branch.outer, branch.set) = (self.outer.clone(), self.set.clone());
        // The functions that are open are around the branch: it may enter their spans.
        (branch.base, branch.root, branch.current) = (self.base, self.root, self.current);
        branch.open.clone_from(&self.open);
        (branch.begun, branch.forked, branch.is_daemon) = (begun, now, self.is_daemon);
        self.pieces.iter().for_each(|piece| branch.spend_piece(of, *piece));
        self.go_on(of, now);
    }

    /// Takes in a branch, which has ended.
    pub(crate) fn merge(&mut self, of: &CriticalPath, now: u64, branch: &mut Note) {
        if self.is_closed {
            return;
        }
        branch.settle(of);
        if branch.frame != self.frame {
            match branch.outer.take() {
                Some(mut outer) if outer.frame == self.frame => {
                    // A request of its own was made in the branch, such as a worker's.
                    outer.path.append(&mut branch.path, of.0.top);
                    branch.path = outer.path;
                }
                _ => {
                    of.0.counts.foreign.fetch_add(1, Ordering::Relaxed);
                    return self.go_on(of, now);
                }
            }
        }
        let now = now.max(self.last);
        let ended = branch.last.min(now);
        if self.is_daemon && branch.is_daemon {
            self.settle(of);
        } else {
            let was_daemon = std::mem::take(&mut self.is_daemon);
            if was_daemon {
                self.wait(of, now, TimeKind::Wake, false);
            } else {
                // Nothing is known of the flow since: it may have been blocked. It has worked
                // unless a branch that ended meanwhile is joined.
                self.go_on_or_wait(of, now, ended > self.last);
            }
            let mut pieces = std::mem::take(&mut self.pieces);
            pieces.take_until(ended).for_each(|piece| self.spend_piece(of, piece));
            self.pieces = pieces;
        }
        self.is_waiting = false;
        self.path.merge(&mut branch.path, of.0.top);
    }

    /// The stretches that are not in the path yet, up to now: the place, the kind, the time.
    fn unspent(&self, of: &CriticalPath, now: u64) -> impl Iterator<Item = (Spot, u64)> {
        let measure = of.0.measure;
        let counts = move |kind, nanos| if measure.counts(kind) { nanos } else { 0 };
        let open =
            self.pieces.iter().map(move |piece| (piece.spot, piece.work() + counts(piece.kind, piece.wait)));
        let now = now.max(self.last);
        let forked = self.forked.clamp(self.last, now);
        let begun = self.spawned.clamp(forked, now);
        let is_waiting = self.is_off || self.is_paused || self.is_waiting;
        let since = match now - begun {
            nanos if !self.has_begun => counts(TimeKind::Spawn, nanos),
            nanos if is_waiting => counts(TimeKind::Wait, nanos),
            nanos => nanos,
        };
        let before = forked - self.last + counts(TimeKind::Spawn, begun - forked);
        let since = if self.is_daemon { 0 } else { before.saturating_add(since) };
        open.chain([(self.spot(), since)])
    }

    /// The way's length now.
    pub(super) fn length(&self, of: &CriticalPath, now: u64) -> u64 {
        self.unspent(of, now).fold(self.path.total(), |sum, (_, nanos)| sum.saturating_add(nanos))
    }

    /// The length of the longest way now, in each experiment.
    pub(super) fn changed(&self, of: &CriticalPath, now: u64) -> [f64; EXPERIMENTS_MAX] {
        let mut lengths = self.path.changed;
        if let Some(set) = &self.set {
            self.unspent(of, now).for_each(|(spot, nanos)| set.add(&mut lengths, spot.inside, nanos));
        }
        lengths
    }

    /// The local root ends, or the request does. What happened after its last exit is left out.
    pub(crate) fn close(&mut self, of: &CriticalPath, is_recorded: bool, now: impl FnOnce() -> u64) {
        if self.is_daemon && of.0.measure == Measure::Wall {
            // The root is as long as its span. Nothing is known of a daemon's waits.
            (self.is_daemon, self.is_off, self.is_paused, self.is_waiting) = (false, false, false, false);
        }
        match self.root_exit.take() {
            Some(exit) => {
                self.go_on(of, exit);
                self.pieces.end_at(exit);
                self.last = self.last.min(exit);
            }
            None => self.go_on(of, now()),
        }
        self.settle(of);
        (self.owns_root, self.is_closed) = (false, true);
        let root = self.base.place;
        let own = match of.0.has_no_dropped_spans && !is_recorded {
            true => of.0.names.inside(root, NOT_RECORDED),
            false => root,
        };
        of.0.totals.add(self.row, (root, own), &self.path, self.set.as_deref());
    }
}

/// Operations of lines of control whose times and branches the caller knows.
impl Note {
    /// `start`: a request begins.
    pub fn start(of: &CriticalPath, now: u64, function: &str) -> Note {
        let mut note = Note::default();
        let place = of.0.names.inside(Place::NOWHERE, function);
        note.begin(of, now, None, place, function);
        note
    }

    /// `start` of a branch, on the clock of the host where it runs.
    pub fn start_branch(&mut self, of: &CriticalPath, now: u64, same_clock: bool) {
        if !same_clock {
            (self.last, self.forked) = (now, 0);
        }
        self.resumed(of, now);
    }

    /// `pause`: what follows does not count as work.
    pub fn pause(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        self.is_paused = true;
    }

    /// `resume`: the work goes on.
    pub fn resume(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        self.is_paused = false;
    }

    /// `enter`: a function is called. The line of control stays as it is, running or paused.
    pub fn enter_function(&mut self, of: &CriticalPath, now: u64, name: &str) {
        self.go_on(of, now);
        let key = (u64::MAX, self.open.len() as u64 + 1);
        self.enter(of, key, |of, around| of.0.names.inside(around, name), name);
    }

    /// `exit`: the function that was entered last returns.
    pub fn exit_function(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        if let Some(key) = self.open.iter().rfind(|open| open.key.0 == u64::MAX).map(|open| open.key) {
            self.span_ends(key);
        }
    }

    /// `fork`: the note of a branch.
    pub fn fork(&mut self, of: &CriticalPath, now: u64) -> Note {
        let mut branch = Note::default();
        self.split_into(of, now, Begun::NEVER, &mut branch);
        branch
    }

    /// `wait`: what follows is a wait for the branch that is joined next.
    pub fn wait_for_branch(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        self.pieces.close_waits();
        self.is_waiting = true;
    }

    /// `join`: takes in a branch that has ended. `same_clock`: its times are of the same clock; else
    /// they are never compared.
    pub fn join(&mut self, of: &CriticalPath, now: u64, mut branch: Note, same_clock: bool) {
        if !same_clock {
            branch.last = now;
        }
        self.merge(of, now, &mut branch);
    }

    /// `daemonize`: from now on the line of control counts in no way, nor do its branches.
    pub fn daemonize(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        self.is_daemon = true;
    }

    /// `end`: the line of control ends.
    pub fn end(&mut self, of: &CriticalPath, now: u64) {
        self.go_on(of, now);
        self.settle(of);
    }

    /// The longest ways so far, at least one.
    pub(super) fn ways(&mut self, of: &CriticalPath) -> &Path {
        self.settle(of);
        self.path.settle();
        &self.path
    }
}
