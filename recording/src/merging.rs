//! Merges logs while they are read: each stream of files is read on a thread of its own, and the
//! records come out by time.
//!
//! ```text
//! files of one log, oldest first -> reader -> window of records -> queue -+
//! files of another               -> reader -> window of records -> queue -+-> least time first
//! ```
//!
//! The records of one process keep the order in which they were written. A time that steps out of
//! the longest non-decreasing run of its window does not move its neighbours. A log whose times
//! step back often, or that several processes wrote, is sorted within its window.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::sets;
use crate::source::{self, LogFileSummary, Options, Summary};
use crate::trend::{Steps, Trend, is_step, trend};
use astracer_model::log::LogRecord;
use astracer_model::problem::{Place, Problem, Problems};
use astracer_model::sink::{Content, Record, Sink, Wants};
use astracer_model::span::Span;

/// The most streams that are read at a time.
pub const STREAMS_MAX: usize = 256;
/// Records of all windows together.
const WINDOWS: usize = 64 << 10;
/// Records of one window.
const WINDOW_MAX: usize = 2_048;
/// Batches that wait for the merger, of each stream.
const BATCHES_MAX: usize = 2;
/// The time after which a followed stream without records is idle.
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// The time between two looks at streams that are all idle.
const LOOK_EACH: Duration = Duration::from_millis(50);

/// The files of one log, oldest first.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The host that the user gives; empty if unknown.
    pub host: String,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// A record as the merger's user wants it.
#[derive(Debug)]
pub struct Kept<T> {
    /// The number of its writer: a process of a host. Records of one are in its order.
    pub writer: u64,
    /// By how many nanoseconds the clock of its host runs ahead.
    pub ahead: i64,
    /// The rest.
    pub item: T,
}

/// Facts about the streams that were merged.
#[derive(Debug)]
#[non_exhaustive]
pub struct Merged {
    /// The files that were read.
    pub files: Vec<LogFileSummary>,
    /// The problems of the input.
    pub problems: Problems,
    /// Files that were not read, with the reason.
    pub skipped: Vec<(Arc<str>, String)>,
    /// Paths that could not be opened, with the reason.
    pub failed: Vec<String>,
    /// Logs whose times step.
    pub steps: Vec<Steps>,
}

struct Timed<T> {
    key: u64,
    time: u64,
    place: Place,
    kept: Kept<T>,
}

/// Records of one stream, with the times that order them.
type Batch<T> = Vec<(u64, Kept<T>)>;

/// Reads all streams, makes an item of each record that `make` keeps, with the number of its
/// stream, and passes the items to `out` by time until it returns false. With
/// [`Options::follow`] it never ends by itself: the newest file of each stream is waited for, and
/// `None` is passed while there is nothing more.
pub fn merge<T: Send>(
    streams: &[Stream],
    options: &Options,
    make: &(impl Fn(usize, &LogRecord<'_>, Record<'_>) -> Option<Kept<T>> + Sync),
    mut out: impl FnMut(Option<Kept<T>>) -> bool,
) -> Merged {
    let window = (WINDOWS / streams.len().max(1)).clamp(16, WINDOW_MAX);
    thread::scope(|scope| {
        let (mut queues, mut readers) = (Vec::new(), Vec::new());
        for (number, stream) in streams.iter().enumerate() {
            let (sender, batches) = sync_channel(BATCHES_MAX);
            let feed = move || {
                let make = |log: &LogRecord<'_>, record: Record<'_>| make(number, log, record);
                read(stream, options, Feed::new(&make, sender, window))
            };
            readers.push(scope.spawn(feed));
            queues.push(Queue { batches, current: VecDeque::new(), state: State::Busy });
        }
        let mut heads: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut waiting: Vec<usize> = (0..queues.len()).collect();
        loop {
            waiting.retain(|&number| {
                let queue = &mut queues[number];
                heads.extend(queue.key(options.follow).map(|key| Reverse((key, number))));
                queue.current.is_empty() && queue.state != State::Ended
            });
            let Some(Reverse((_, number))) = heads.pop() else {
                if waiting.is_empty() || !out(None) {
                    break;
                }
                thread::sleep(LOOK_EACH);
                continue;
            };
            let queue = &mut queues[number];
            if let Some((_, kept)) = queue.current.pop_front()
                && !out(Some(kept))
            {
                break;
            }
            waiting.push(number);
        }
        // Readers that still send see that nobody receives.
        drop(queues);
        let mut merged = Merged {
            files: Vec::new(),
            problems: Problems::with_examples(3),
            skipped: Vec::new(),
            failed: Vec::new(),
            steps: Vec::new(),
        };
        for reader in readers {
            match reader.join() {
                Ok(own) => {
                    merged.files.extend(own.files);
                    own.problems.into_iter().for_each(|problem| merged.problems.push(problem));
                    merged.skipped.extend(own.skipped);
                    merged.failed.extend(own.failed);
                    merged.steps.extend(own.steps);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        merged
    })
}

struct Queue<T> {
    batches: Receiver<Batch<T>>,
    current: VecDeque<(u64, Kept<T>)>,
    state: State,
}

/// The state of a stream whose batches are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    /// It is followed, and nothing came for a while, so the others do not wait for it.
    Idle,
    Ended,
}

impl<T> Queue<T> {
    /// The time that orders the next record; waits for it, unless the stream is idle. `None` at the
    /// end too.
    fn key(&mut self, follow: bool) -> Option<u64> {
        while self.current.is_empty() && self.state != State::Ended {
            let next = match (follow, self.state) {
                (true, State::Idle) => self.batches.try_recv().map_err(|error| error == TryRecvError::Empty),
                (true, _) => {
                    let next = self.batches.recv_timeout(IDLE_AFTER);
                    next.map_err(|error| error == RecvTimeoutError::Timeout)
                }
                (false, _) => self.batches.recv().map_err(|_| false),
            };
            match next {
                Ok(batch) => (self.current, self.state) = (batch.into(), State::Busy),
                Err(true) => {
                    self.state = State::Idle;
                    return None;
                }
                Err(false) => self.state = State::Ended,
            }
        }
        self.current.front().map(|&(key, _)| key)
    }
}

/// Facts about one stream.
struct Own {
    files: Vec<LogFileSummary>,
    problems: Vec<Problem>,
    skipped: Vec<(Arc<str>, String)>,
    failed: Vec<String>,
    steps: Option<Steps>,
}

fn read<T: Send, M>(stream: &Stream, options: &Options, mut feed: Feed<'_, T, M>) -> Own
where
    M: Fn(&LogRecord<'_>, Record<'_>) -> Option<Kept<T>>,
{
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    for (at, path) in (1..).zip(&stream.files) {
        if feed.is_over {
            break;
        }
        let is_newest = at == stream.files.len() && !sets::is_packed(&path.to_string_lossy());
        let options = Options { follow: options.follow && is_newest, ..options.clone() };
        match source::read(path, &options, &mut feed) {
            Ok(Summary { log_files, .. }) => files.extend(log_files),
            Err(error) if error.is_unrecognised() => {}
            Err(error) => failed.push(error.to_string()),
        }
    }
    feed.send(0);
    let Feed { problems, skipped, steps, foreign, .. } = feed;
    failed.extend(foreign.map(|file| {
        format!("{file} holds more than log records; write it to a file, which is read with its causes")
    }));
    Own { files, problems, skipped, failed, steps }
}

/// The sink of one stream.
struct Feed<'m, T, M> {
    make: &'m M,
    out: SyncSender<Batch<T>>,
    window_max: usize,
    window: Vec<Timed<T>>,
    /// The time of the last record that has one.
    last: u64,
    is_sorted: bool,
    is_over: bool,
    problems: Vec<Problem>,
    skipped: Vec<(Arc<str>, String)>,
    steps: Option<Steps>,
    /// A file with other content, which only a stream that was not looked at before may have.
    foreign: Option<Arc<str>>,
}

/// Problems of a stream that are kept.
const PROBLEMS_MAX: usize = 10_000;

impl<'m, T, M> Feed<'m, T, M> {
    fn new(make: &'m M, out: SyncSender<Batch<T>>, window_max: usize) -> Self {
        Self {
            make,
            out,
            window_max,
            window: Vec::new(),
            last: 0,
            is_sorted: false,
            is_over: false,
            problems: Vec::new(),
            skipped: Vec::new(),
            steps: None,
            foreign: None,
        }
    }

    /// Orders the window, and sends all of it but the last `keep` records.
    fn send(&mut self, keep: usize) {
        self.order();
        let count = self.window.len().saturating_sub(keep);
        let batch: Batch<T> = self.window.drain(..count).map(|timed| (timed.key, timed.kept)).collect();
        if !batch.is_empty() && self.out.send(batch).is_err() {
            self.is_over = true;
        }
    }

    fn order(&mut self) {
        if self.window.is_sorted_by_key(|timed| timed.time) {
            self.window.iter_mut().for_each(|timed| timed.key = timed.time);
            return;
        }
        let times: Vec<u64> = self.window.iter().map(|timed| timed.time).collect();
        let writer = self.window.first().map(|timed| timed.kept.writer);
        self.is_sorted |= self.window.iter().any(|timed| Some(timed.kept.writer) != writer);
        let trend = if self.is_sorted { Trend::Unsteady } else { trend(&times) };
        let Trend::Rising(keys) = trend else {
            self.is_sorted = true;
            for at in 1..self.window.len() {
                if times[at] < times[at - 1] {
                    self.step(at, times[at - 1], true);
                }
            }
            self.window.iter_mut().for_each(|timed| timed.key = timed.time);
            self.window.sort_by_key(|timed| timed.time);
            return;
        };
        for (at, key) in keys.into_iter().enumerate() {
            // Half of the window was ordered before.
            if is_step(times[at], key) && self.window[at].key != key {
                self.step(at, key, false);
            }
            self.window[at].key = key;
        }
    }

    fn step(&mut self, at: usize, neighbour: u64, is_sorted: bool) {
        let Timed { place, time, kept, .. } = &self.window[at];
        // As the log has them.
        let stated = |time: u64| time.saturating_add_signed(kept.ahead);
        let steps = self.steps.get_or_insert_with(|| Steps {
            first: place.clone(),
            time: stated(*time),
            neighbour: stated(neighbour),
            count: 0,
            is_sorted,
        });
        steps.count += 1;
        steps.is_sorted |= is_sorted;
    }
}

impl<T, M> Sink for Feed<'_, T, M>
where
    M: Fn(&LogRecord<'_>, Record<'_>) -> Option<Kept<T>>,
{
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn file(&mut self, file: &Arc<str>, content: Content) {
        if !matches!(content, Content::Logs(_)) {
            self.foreign.get_or_insert_with(|| Arc::clone(file));
        }
    }

    fn wants(&self) -> Wants {
        Wants { logs: true, events: true }
    }

    fn log(&mut self, log: LogRecord<'_>, record: Record<'_>) {
        let time = log.when().map_or(self.last, |time| time.0);
        self.last = time;
        let Some(kept) = (self.make)(&log, record) else { return };
        let time = time.saturating_add_signed(kept.ahead.saturating_neg());
        // No record has this key before the window is ordered.
        self.window.push(Timed { key: u64::MAX, time, place: record.place.clone(), kept });
        if self.window.len() >= 2 * self.window_max {
            self.send(self.window_max);
        }
    }

    fn idle(&mut self) {
        self.send(0);
    }

    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        self.skipped.push((Arc::clone(file), reason.to_owned()));
    }

    fn stopped(&self) -> bool {
        self.is_over || self.foreign.is_some()
    }
}
