//! Compares traffic with the recording that a parameters file comes from: are its keys still
//! called, and is as much kept as of the recording?
//!
//! A file that no longer fits fails in silence. If all routes are renamed, no key has its own
//! probability any more, and the size is whatever the common parameters keep.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use astracer_samplers::{Config, Nanos, shown_key};

use crate::steering::KeyStats;

/// Counts are noted this often, and compared over the last hour and half hour.
const NOTED: Nanos = Nanos::from_secs(600);
const NOTES: usize = 6;
const NOTES_OF_SIZE: usize = 3;
/// With fewer roots nothing is said.
const ROOTS_MIN: u64 = 1_000;
/// A size off by this factor, for half an hour, is worth a hint.
const OFF: f64 = 1.5;

/// The fit of a parameters file to the traffic of the last hour, or of the time since the start if
/// that is shorter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileFit {
    /// Keys that the file names.
    pub keys: u64,
    /// Keys of the file that were called.
    pub keys_seen: u64,
    /// Roots about which the sampler was asked.
    pub roots: u64,
    /// Roots whose key the file names.
    pub roots_named: u64,
    /// The time over which they were counted.
    pub over: Duration,
    /// The share of roots that is kept, divided by that of the recording, over the last half hour.
    /// `None` until then, and if the file does not have the recording's.
    pub size: Option<f64>,
}

impl FileFit {
    /// A sentence for people if the file seems not to fit any more.
    pub(crate) fn hint(&self) -> Option<String> {
        if self.roots < ROOTS_MIN {
            return None;
        }
        let minutes = self.over.as_secs() / 60;
        if self.keys > 0 && self.keys_seen == 0 {
            return Some(format!(
                "0 of {} keys of the parameters file seen in {minutes} min: all routes renamed? tune on a new recording",
                self.keys
            ));
        }
        let size = self.size.filter(|size| !(1.0 / OFF..=OFF).contains(size))?;
        Some(format!(
            "{size:.1} times as many roots are kept as of the recording, for 30 min ({} of {} keys of the parameters file \
             seen): tune on a new recording",
            self.keys_seen, self.keys
        ))
    }
}

impl fmt::Display for FileFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.over.as_secs() / 60;
        write!(f, "{} of {} keys of the file seen in {minutes} min", self.keys_seen, self.keys)?;
        self.size.map_or(Ok(()), |size| write!(f, ", size x {size:.2}"))
    }
}

/// Counts since the start, at one time.
#[derive(Clone, Debug, Default)]
struct Note {
    at: Nanos,
    roots: u64,
    kept: u64,
    /// For each key of the file, its roots.
    named: Vec<u64>,
}

/// The notes of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// The keys that the notes are about, sorted.
    keys: Vec<String>,
    notes: VecDeque<Note>,
    fit: Option<FileFit>,
}

impl Follower {
    /// Compares counts at `now` with those noted earlier. `recorded_kept` is the share of roots
    /// that was kept of the recording.
    pub(crate) fn note(&mut self, config: &Config, recorded_kept: Option<f64>, all: &[KeyStats], now: Nanos) {
        let mut keys: Vec<String> = match config {
            Config::Bump(bump) => bump.overrides().map(|(key, _)| shown_key(key).into_owned()).collect(),
            Config::TokenBucket(bucket) => {
                bucket.overrides().map(|(key, _)| shown_key(key).into_owned()).collect()
            }
            _ => Vec::new(),
        };
        keys.sort_unstable();
        if keys != self.keys {
            (self.keys, self.notes, self.fit) = (keys, VecDeque::new(), None);
        }
        let places: HashMap<&str, usize> = self.keys.iter().map(String::as_str).zip(0..).collect();
        let mut current = Note { at: now, named: vec![0; self.keys.len()], ..Note::default() };
        for stats in all {
            current.roots += stats.seen;
            current.kept += stats.kept + stats.kept_late;
            if let Some(&place) = stats.key.as_deref().and_then(|key| places.get(key)) {
                current.named[place] += stats.seen;
            }
        }
        if let Some(oldest) = self.notes.front() {
            let named: Vec<u64> = current
                .named
                .iter()
                .zip(&oldest.named)
                .map(|(now, then)| now.saturating_sub(*then))
                .collect();
            let half_hour = (self.notes.len() >= NOTES_OF_SIZE).then(|| self.notes.len() - NOTES_OF_SIZE);
            let size = half_hour.and_then(|place| {
                let then = &self.notes[place];
                let roots = current.roots.saturating_sub(then.roots);
                let kept = current.kept.saturating_sub(then.kept) as f64 / roots as f64;
                Some(kept / recorded_kept.filter(|&recorded| roots >= ROOTS_MIN && recorded > 0.0)?)
            });
            self.fit = Some(FileFit {
                keys: named.len() as u64,
                keys_seen: named.iter().filter(|&&roots| roots > 0).count() as u64,
                roots: current.roots.saturating_sub(oldest.roots),
                roots_named: named.iter().sum(),
                over: Duration::from_nanos(now.saturating_sub(oldest.at).get()),
                size,
            });
        }
        let is_due = self.notes.back().is_none_or(|last| now.saturating_sub(last.at) >= NOTED);
        if is_due {
            self.notes.push_back(current);
            if self.notes.len() > NOTES {
                self.notes.pop_front();
            }
        }
    }

    pub(crate) fn fit(&self) -> Option<&FileFit> {
        self.fit.as_ref()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    fn stats(key: &str, seen: u64, kept: u64) -> KeyStats {
        KeyStats { key: Some(key.to_owned()), seen, kept, ..KeyStats::default() }
    }

    fn file() -> Config {
        "bump:lambda=1,min=0.1,count=decaying,tau=20calls;\"GET /a\":min=0.1;\"GET /b\":min=0.2"
            .parse()
            .unwrap()
    }

    /// Follows this many minutes, in which the counts of each minute are added.
    fn followed(minutes: u64, per_minute: impl Fn(u64) -> Vec<(&'static str, u64, u64)>) -> Option<FileFit> {
        let (mut follower, mut sums) = (Follower::default(), HashMap::new());
        for minute in 0..=minutes {
            let all: Vec<KeyStats> =
                sums.iter().map(|(&key, &(seen, kept))| stats(key, seen, kept)).collect();
            follower.note(&file(), Some(0.1), &all, Nanos::from_secs(minute * MINUTE));
            for (key, seen, kept) in per_minute(minute) {
                let sum: &mut (u64, u64) = sums.entry(key).or_default();
                (sum.0, sum.1) = (sum.0 + seen, sum.1 + kept);
            }
        }
        follower.fit().cloned()
    }

    #[test]
    fn traffic_as_recorded_is_worth_no_hint() {
        let fit = followed(90, |_| vec![("GET /a", 50, 5), ("GET /b", 1, 0), ("GET /c", 50, 5)]).unwrap();
        assert_eq!((fit.keys, fit.keys_seen), (2, 2));
        // Between 50 and 60 minutes, as a note is made each ten minutes.
        assert!((50..=60).contains(&(fit.over.as_secs() / 60)), "{fit:?}");
        assert_eq!(fit.roots, 101 * fit.over.as_secs() / 60);
        assert_eq!(fit.roots_named, 51 * fit.over.as_secs() / 60);
        assert!((fit.size.unwrap() - 10.0 / 101.0 / 0.1).abs() < 1e-9, "{fit:?}");
        assert_eq!(fit.hint(), None);
    }

    #[test]
    fn renamed_routes_are_noticed_within_an_hour_of_their_last_call() {
        let renamed = |minute: u64| match minute {
            0..=30 => vec![("GET /a", 100, 10)],
            _ => vec![("GET /v2/a", 100, 10)],
        };
        assert_eq!(followed(60, renamed).unwrap().hint(), None, "called within the hour");
        let fit = followed(100, renamed).unwrap();
        assert_eq!((fit.keys_seen, fit.roots_named), (0, 0));
        let hint = fit.hint().unwrap();
        assert!(
            hint.starts_with("0 of 2 keys of the parameters file seen in") && hint.contains("renamed"),
            "{hint}"
        );
        // Too few roots show nothing.
        assert_eq!(followed(100, |_| vec![("GET /v2/a", 1, 0)]).unwrap().hint(), None);
    }

    #[test]
    fn a_size_that_is_off_for_half_an_hour_is_noticed() {
        let grown = |from: u64| move |minute: u64| vec![("GET /a", 100, if minute < from { 10 } else { 20 })];
        assert_eq!(followed(90, grown(85)).unwrap().hint(), None);
        let fit = followed(90, grown(50)).unwrap();
        assert!((fit.size.unwrap() - 2.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.hint().unwrap().starts_with("2.0 times as many roots are kept as of the recording"));
        assert_eq!(
            fit.to_string(),
            format!("1 of 2 keys of the file seen in {} min, size x 2.00", fit.over.as_secs() / 60)
        );
    }

    /// Other parameters begin anew, because their keys are others.
    #[test]
    fn a_new_file_is_followed_from_its_beginning() {
        let mut follower = Follower::default();
        for minute in 0..30 {
            follower.note(&file(), None, &[stats("GET /a", 100 * minute, 0)], Nanos::from_secs(60 * minute));
        }
        assert!(follower.fit().is_some());
        follower.note(&"ratio:0.1".parse().unwrap(), None, &[], Nanos::from_secs(1800));
        assert_eq!(follower.fit(), None);
    }
}
