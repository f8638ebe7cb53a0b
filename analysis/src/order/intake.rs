//! Collects events from readers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use astracer_model::EventFormat;
use astracer_model::event::{Channel, Endpoint, Event};
use astracer_model::problem::{Place, Problem, Problems};
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use rapidhash::fast::RandomState;

use super::events::{Events, NONE, Process, Row, Thread};

type Map<K, V> = HashMap<K, V, RandomState>;

/// A sink that collects events.
#[derive(Default)]
pub struct Intake<'i> {
    events: Events,
    threads: Map<String, u32>,
    processes: Map<(u32, String), u32>,
    hosts: Map<String, u32>,
    channels: Map<Channel<'static>, u32>,
    problems: Problems,
    skipped: Vec<(Arc<str>, String)>,
    left_out: BTreeMap<&'static str, u64>,
    stop: Option<Box<dyn Fn() -> bool + 'i>>,
    progress: Option<Box<dyn Fn(u64) + 'i>>,
}

impl std::fmt::Debug for Intake<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

/// The events of all files, and what was wrong with them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Collected {
    /// The events.
    pub events: Events,
    /// The problems of the input.
    pub problems: Problems,
    /// Files that were not read, with the reason.
    pub skipped: Vec<(Arc<str>, String)>,
    /// Parts of event files that made no event, counted by reason.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl<'i> Intake<'i> {
    /// An empty intake that keeps up to `examples` problems of each kind.
    pub fn new(examples: usize) -> Self {
        Self { problems: Problems::with_examples(examples), ..Self::default() }
    }

    /// Lets `stop` end the reading.
    #[must_use]
    pub fn stop_when(mut self, stop: impl Fn() -> bool + 'i) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    /// Reports bytes that were read.
    #[must_use]
    pub fn progress_to(mut self, progress: impl Fn(u64) + 'i) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// The events, in an order that does not depend on the files'.
    pub fn finish(self) -> Collected {
        let Self { mut events, problems, skipped, left_out, .. } = self;
        let mut seen = HashSet::with_capacity_and_hasher(events.rows.len(), RandomState::default());
        if events.rows.iter().all(|row| seen.insert(row.id)) {
            events.rows.sort_unstable_by_key(|row| row.id);
        } else {
            let files = std::mem::take(&mut events.files);
            events.rows.sort_by(|a, b| {
                (&files[a.file as usize], a.sequence).cmp(&(&files[b.file as usize], b.sequence))
            });
            events.files = files;
            (0..).zip(&mut events.rows).for_each(|(id, row)| row.id = id);
        }
        Collected { events, problems, skipped, left_out }
    }

    fn file(&mut self, file: &Arc<str>) -> u32 {
        if self.events.files.last().is_none_or(|last| !Arc::ptr_eq(last, file)) {
            self.events.files.push(Arc::clone(file));
        }
        self.events.files.len() as u32 - 1
    }

    /// The thread of this name, in a process and on a host that may be unknown.
    fn thread(&mut self, name: &str, process: &str, host: &str) -> u32 {
        if let Some(&found) = self.threads.get(name) {
            return found;
        }
        let host = if host.is_empty() { name.rsplit_once('@').map_or("", |(_, host)| host) } else { host };
        let host = match self.hosts.get(host) {
            Some(&found) => found,
            None => {
                self.events.hosts.push(host.to_owned());
                let index = self.hosts.len() as u32;
                self.hosts.insert(host.to_owned(), index);
                index
            }
        };
        let processes = &mut self.events.processes;
        let process = *self.processes.entry((host, process.to_owned())).or_insert_with_key(|(_, process)| {
            processes.push(Process { name: process.clone(), host });
            processes.len() as u32 - 1
        });
        self.events.threads.push(Thread { name: name.to_owned(), process });
        let index = self.threads.len() as u32;
        self.threads.insert(name.to_owned(), index);
        index
    }

    fn channel(&mut self, channel: &Channel<'_>) -> u32 {
        let owned = |end: &Endpoint<'_>| Endpoint { address: end.address.to_string().into(), port: end.port };
        let key =
            Channel { from: owned(&channel.from), to: owned(&channel.to), is_datagram: channel.is_datagram };
        let channels = &mut self.events.channels;
        *self.channels.entry(key).or_insert_with_key(|key| {
            channels.push(key.clone());
            channels.len() as u32 - 1
        })
    }
}

impl Sink for Intake<'_> {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants_events(&self) -> bool {
        true
    }

    fn event_file(&mut self, file: &Arc<str>, _: EventFormat) {
        self.file(file);
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        let mut row = Row::new(event.kind, event.time.0, &mut self.events.texts, &event.text);
        row.id = event.id.unwrap_or(0);
        row.file = self.file(&record.place.file);
        (row.line, row.sequence, row.bytes) = (record.place.line, event.sequence, event.bytes);
        row.thread = self.thread(&event.thread, &event.process, &event.host);
        row.child = if event.child.is_empty() { NONE } else { self.thread(&event.child, "", "") };
        row.channel = event.channel.as_ref().map_or(NONE, |channel| self.channel(channel));
        self.events.rows.push(row);
    }

    fn left_out(&mut self, reason: &'static str, _: &Place) {
        *self.left_out.entry(reason).or_insert(0) += 1;
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.skipped.push((Arc::clone(file), reason.to_owned()));
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.iter().for_each(|progress| progress(bytes));
    }

    fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop())
    }
}
