//! Threads: a number for each, and the names that spans record as the thread they began on.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::sync::statics::{AtomicU32, Ordering};

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static LEAVES: Leaves = const { Leaves };
}

/// This thread's number, from 1. Numbers are not reused until the counter wraps around.
#[inline]
pub fn number() -> u32 {
    // The compiler seldom inlines `LocalKey::get`, but does inline `try_with`.
    let number = NUMBER.try_with(Cell::get).unwrap_or(0);
    if number != 0 { number } else { register() }
}

#[cold]
fn register() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
    NUMBER.set(number);
    // Skip a thread that is already exiting: nothing would remove its name.
    if LEAVES.try_with(|_| ()).is_ok() {
        names().known.insert(number, ThreadName::of_this_thread());
    }
    number
}

/// A thread, as OpenTelemetry's conventions name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    pub id: i64,
    pub name: Option<Arc<str>>,
}

impl ThreadName {
    fn of_this_thread() -> Self {
        let thread = std::thread::current();
        // `ThreadId` shows its number only in its `Debug` text: `ThreadId(7)`.
        let text = format!("{:?}", thread.id());
        let digits = text.trim_matches(|c: char| !c.is_ascii_digit());
        ThreadName { id: digits.parse().unwrap_or(0), name: thread.name().map(Arc::from) }
    }
}

/// The number by which spans and logs name this thread, as `ThreadId` has it; 0 if it is exiting.
pub fn id() -> i64 {
    thread_local!(static ID: Cell<i64> = Cell::new(ThreadName::of_this_thread().id));
    ID.try_with(Cell::get).unwrap_or(0)
}

/// The names of the threads that occur in a batch, by number; `None` for a thread that ended long
/// ago.
#[derive(Debug, Default)]
pub struct ThreadNames(BTreeMap<u32, Option<ThreadName>>);

impl ThreadNames {
    /// Looks up the name of a thread that is alive or has ended recently.
    pub fn note(&mut self, number: u32) {
        self.0.entry(number).or_insert_with(|| names().known.get(&number).cloned());
    }

    pub fn of(&self, number: u32) -> Option<&ThreadName> {
        self.0.get(&number)?.as_ref()
    }
}

/// The number of names kept after their threads have ended, for spans that wait for export.
const ENDED_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Names {
    known: HashMap<u32, ThreadName>,
    ended: VecDeque<u32>,
}

fn names() -> std::sync::MutexGuard<'static, Names> {
    static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notices the end of its thread by being dropped.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        let Ok(number) = NUMBER.try_with(Cell::get) else { return };
        let mut names = names();
        names.ended.push_back(number);
        if names.ended.len() > ENDED_MAX {
            let oldest = names.ended.pop_front();
            oldest.and_then(|oldest| names.known.remove(&oldest));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_their_threads_and_do_not_accumulate() {
        let spawn = |name: String| {
            let thread = std::thread::Builder::new().name(name).spawn(number).unwrap();
            thread.join().unwrap()
        };
        let first = spawn("first".to_owned());
        assert_ne!(first, number());
        let name = |number| {
            let mut names = ThreadNames::default();
            names.note(number);
            names.of(number).cloned()
        };
        assert_eq!(name(first).unwrap().name.as_deref(), Some("first"));
        let later: Vec<u32> = (0..ENDED_MAX).map(|n| spawn(n.to_string())).collect();
        assert_eq!(name(first), None);
        assert!(name(later[ENDED_MAX - 1]).is_some());
        assert!(names().ended.len() <= ENDED_MAX);
    }
}
