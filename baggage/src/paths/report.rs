//! Ways as callers read them: by the names of functions.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry::{Array, KeyValue, StringValue, Value};

use super::names::Names;
use super::note::Note;
use super::path::Path;
use super::way::{Part, TimeKind, Way};
use super::{CriticalPath, Shared};

/// A way through a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WayTimes {
    /// Its length, in nanoseconds.
    pub total_ns: u64,
    /// The times that make it up, the longest first.
    pub functions: Vec<FunctionTime>,
    /// The last 32 stretches, in order.
    pub segments: Vec<Segment>,
}

/// The time on a way of one function, without those that it called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionTime {
    /// The function's name: that of its span, or of its zone.
    pub name: Arc<str>,
    /// The kind of time.
    pub kind: TimeKind,
    /// The time, in nanoseconds.
    pub nanos: u64,
}

/// A stretch of a way in one function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The function's name.
    pub name: Arc<str>,
    /// The kind of time.
    pub kind: TimeKind,
    /// The length, in nanoseconds.
    pub nanos: u64,
}

/// The part of a function's time on the longest way that can go before another way is the longest.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Slack {
    /// The time of the function on the longest way, with that of what it called, in nanoseconds.
    pub on_path_ns: u64,
    /// The part that can go, if the function gets faster by the same factor everywhere.
    pub nanos: f64,
    /// Ways were left out, one of which may become the longest earlier: the true value is at most
    /// this one.
    pub is_bound: bool,
}

/// The longest way to a point of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Here {
    /// Its length from the beginning of the local root, in nanoseconds.
    pub nanos: u64,
    /// The length from the beginning of the request to that of the local root, as far as it is
    /// known, in nanoseconds.
    pub before_ns: u64,
    /// The length in each experiment that runs for this request.
    pub experiments: Vec<ExperimentLength>,
}

/// The length of the longest way if an experiment were real.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExperimentLength {
    /// The experiment's name.
    pub name: Arc<str>,
    /// The length in nanoseconds.
    pub nanos: f64,
}

impl Names {
    /// The times of parts by the names of their functions, the longest first.
    pub(super) fn functions(&self, parts: impl Iterator<Item = (Part, u64)>) -> Vec<FunctionTime> {
        let mut sums = HashMap::<(Arc<str>, TimeKind), u64>::new();
        for (part, nanos) in parts {
            let sum = sums.entry((self.name(part.place()), part.kind())).or_default();
            *sum = sum.saturating_add(nanos);
        }
        let time = |((name, kind), nanos)| FunctionTime { name, kind, nanos };
        let mut functions: Vec<FunctionTime> = sums.into_iter().map(time).collect();
        functions.sort_by(|a, b| (b.nanos, &a.name, a.kind).cmp(&(a.nanos, &b.name, b.kind)));
        functions
    }
}

/// Adds a time to that of its function.
pub(super) fn add_time(sums: &mut Vec<(Arc<str>, u64)>, name: &Arc<str>, nanos: u64) {
    match sums.iter_mut().find(|(known, _)| Arc::ptr_eq(known, name) || known == name) {
        Some((_, sum)) => *sum = sum.saturating_add(nanos),
        None => sums.push((name.clone(), nanos)),
    }
}

impl Shared {
    pub(super) fn times(&self, way: &Way) -> WayTimes {
        let functions = self.names.functions(way.parts.iter().copied());
        let segment = |&(part, nanos): &(Part, u64)| Segment {
            name: self.names.name(part.place()),
            kind: part.kind(),
            nanos,
        };
        WayTimes { total_ns: way.total, functions, segments: way.segments.iter().map(segment).collect() }
    }

    /// The time on a way in a function of this name, and in those that it called.
    fn within(&self, way: &Way, name: &str) -> u64 {
        let inside = way.parts.iter().filter(|(part, _)| self.names.is_within(part.place(), name));
        inside.fold(0, |sum, (_, nanos)| sum.saturating_add(*nanos))
    }

    /// The slack of a function, on ways that have been given their tail.
    pub(super) fn slack(&self, path: &Path, name: &str) -> Slack {
        let mut ways = path.ways();
        let Some(longest) = ways.next() else {
            return Slack { on_path_ns: 0, nanos: 0.0, is_bound: path.is_cut };
        };
        let own = self.within(&longest, name);
        // The share of the function's time that may go, until a way on which it has less is equal.
        let mut share = 1.0_f64;
        for way in ways {
            let theirs = self.within(&way, name);
            if theirs < own {
                let ahead = longest.total - way.total;
                share = share.min(ahead as f64 / (own - theirs) as f64);
            }
        }
        Slack { on_path_ns: own, nanos: own as f64 * share, is_bound: path.is_cut }
    }
}

/// The critical path of a request that has ended, as attributes say it.
pub(crate) struct Summary {
    total: u64,
    /// The time of each function, the longest first.
    functions: Vec<(Arc<str>, u64)>,
    /// The time of each kind.
    kinds: [u64; TimeKind::ALL.len()],
    is_cut: bool,
    experiments: Vec<ExperimentLength>,
}

/// Functions that attributes name, the longest first.
const NAMED_MAX: usize = 32;

impl Summary {
    /// At most 16 attributes.
    pub(crate) fn attributes(self) -> Vec<KeyValue> {
        let number = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let mut attributes = vec![KeyValue::new("astracer.critical_path.total_ns", number(self.total))];
        let shown = &self.functions[..self.functions.len().min(NAMED_MAX)];
        let names: Vec<StringValue> = shown.iter().map(|(name, _)| name.clone().into()).collect();
        let times = shown.iter().map(|(_, nanos)| number(*nanos)).collect();
        let mut list = |key: &'static str, array| attributes.push(KeyValue::new(key, Value::Array(array)));
        list("astracer.critical_path.functions", Array::String(names));
        list("astracer.critical_path.functions_ns", Array::I64(times));
        if !self.experiments.is_empty() {
            let names = self.experiments.iter().map(|of| of.name.clone().into()).collect();
            let lengths = self.experiments.iter().map(|of| of.nanos).collect();
            list("astracer.critical_path.experiments", Array::String(names));
            list("astracer.critical_path.experiments_ns", Array::F64(lengths));
        }
        let of_kind = |key: &'static str, kind| {
            let nanos = self.kinds[kind as usize];
            (nanos > 0).then(|| KeyValue::new(key, number(nanos)))
        };
        attributes.extend(of_kind("astracer.critical_path.wait_ns", TimeKind::Wait));
        attributes.extend(of_kind("astracer.critical_path.spawn_ns", TimeKind::Spawn));
        attributes.extend(of_kind("astracer.critical_path.wake_ns", TimeKind::Wake));
        attributes.extend(of_kind("astracer.critical_path.network_ns", TimeKind::Network));
        attributes.extend(of_kind("astracer.critical_path.opaque_ns", TimeKind::Opaque));
        if self.is_cut {
            attributes.push(KeyValue::new("astracer.critical_path.ways_cut", true));
        }
        attributes
    }
}

impl Note {
    /// The critical path of a request that has ended.
    pub(crate) fn summary(&self, of: &CriticalPath) -> Summary {
        let experiments = self.experiments(of, self.last);
        let path = &self.path;
        let (mut total, mut functions, mut kinds) = (0, Vec::new(), [0_u64; TimeKind::ALL.len()]);
        path.with_longest(|way| {
            total = way.total;
            let mut times = way.parts.iter().map(|(_, nanos)| *nanos);
            of.0.names.each(way.parts.iter().map(|(part, _)| part.place()), |name| {
                add_time(&mut functions, name, times.next().unwrap_or_default());
            });
            functions.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
            for (part, nanos) in &way.parts {
                let sum = &mut kinds[part.kind() as usize];
                *sum = sum.saturating_add(*nanos);
            }
        });
        Summary { total, functions, kinds, is_cut: path.is_cut, experiments }
    }

    /// The longest ways to here, the longest first.
    pub fn longest(&mut self, of: &CriticalPath) -> Vec<WayTimes> {
        self.ways(of).ways().map(|way| of.0.times(&way)).collect()
    }

    /// The length of the longest way to here, in nanoseconds.
    pub fn nanos(&self, of: &CriticalPath, now: u64) -> u64 {
        self.length(of, now)
    }

    pub(crate) fn here(&mut self, of: &CriticalPath, now: u64) -> Here {
        let nanos = self.length(of, now);
        Here { nanos, before_ns: self.before(), experiments: self.experiments(of, now) }
    }

    /// The slack of a function.
    pub fn slack(&mut self, of: &CriticalPath, name: &str) -> Slack {
        let path = self.ways(of);
        of.0.slack(path, name)
    }

    /// The length of the longest way to here in each experiment that runs for this request.
    pub fn experiments(&self, of: &CriticalPath, now: u64) -> Vec<ExperimentLength> {
        let set = self.set.as_deref().map(|set| &set.0[..]).unwrap_or_default();
        let all = set.iter().zip(self.changed(of, now));
        all.map(|(experiment, nanos)| ExperimentLength { name: experiment.name.clone(), nanos }).collect()
    }
}
