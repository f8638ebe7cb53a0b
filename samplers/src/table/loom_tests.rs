//! The promises of `Sampler`'s section on consistency, checked by loom over all orders of the
//! atomic steps.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p astracer-samplers --lib --release loom_`
//!
//! Tables are as small as possible, with one shard, and threads are preempted at most three times,
//! as loom advises: the index's eight places alone allow more orders than it could visit.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::bump::{Bump, BumpPolicy, Count};
use crate::probability::Probability;
use crate::randomness::Randomness;
use crate::token_bucket::TokenBucket;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn at(key: &str, millis: u64) -> Request<'_> {
    Request::new(key, Randomness::MAX, Nanos::from_millis(millis))
}

fn bump() -> Bump {
    Bump::new(1.0, Probability::ZERO, Nanos::from_secs(1)).unwrap()
}

fn bump_table(keys: u32) -> Table<BumpPolicy> {
    let limits = Limits::single_threaded().with_keys(keys).with_idle(Nanos::from_secs(8));
    Table::new(&PerKey::new(bump()), |bump| BumpPolicy::lone(bump, 1), limits)
}

fn bump_record(number: u32) -> (Record, BumpPolicy) {
    let (record, policy) = (Record::new(), BumpPolicy::lone(&bump(), 1));
    record.open(0, "a", 0, Nanos::ZERO, u64::from(number) << 32);
    (record, policy)
}

/// Runs both at once and returns their answers, the smaller first.
fn both<T: Ord + 'static>(
    shared: Arc<(Record, BumpPolicy)>,
    first: impl Fn(&Record, &BumpPolicy) -> T + 'static,
    second: impl Fn(&Record, &BumpPolicy) -> T,
) -> [T; 2] {
    let other = Arc::clone(&shared);
    let handle = thread::spawn(move || first(&other.0, &other.1));
    let mine = second(&shared.0, &shared.1);
    let mut answers = [handle.join().unwrap(), mine];
    answers.sort_unstable();
    answers
}

#[test]
fn loom_calls_of_a_window_get_different_counts() {
    let thresholds =
        [0, 1, 2].map(|count: u32| Threshold::from_probability(bump().probability(f64::from(count))).get());
    model(move || {
        let step = |record: &Record, policy: &BumpPolicy| {
            record.step(policy, Nanos::from_secs(7), &Pace::default()).threshold
        };
        let answers = both(Arc::new(bump_record(7)), step, step);
        assert_eq!(answers, thresholds[..2]);
    });
}

#[test]
fn loom_a_window_begins_once() {
    let second = Threshold::from_probability(bump().probability(1.0)).get();
    model(move || {
        // Both find the word of a window that has ended, at different times in the new one.
        let early = |record: &Record, policy: &BumpPolicy| {
            record.step(policy, Nanos::from_secs(8), &Pace::default()).threshold
        };
        let later = |record: &Record, policy: &BumpPolicy| {
            record.step(policy, Nanos::from_millis(8_999), &Pace::default()).threshold
        };
        assert_eq!(both(Arc::new(bump_record(7)), early, later), [0, second]);
    });
}

#[test]
fn loom_batches_are_all_added() {
    model(|| {
        let shared = Arc::new(bump_record(7));
        let batch = |record: &Record, policy: &BumpPolicy| {
            record.batch(policy, 8, Nanos::from_secs(7), &Pace::default())
        };
        let _ = both(Arc::clone(&shared), batch, batch);
        let word = shared.0.step(&shared.1, Nanos::from_secs(7), &Pace::default()).write;
        assert_eq!(word, Write::Word(7 << 32 | 17));
    });
}

/// A call of a decaying count uses the word that the other call has just written: they see the
/// counts 0 and 1.
#[test]
fn loom_calls_of_a_decaying_count_get_different_counts() {
    let decaying = Count::Decaying { half_life: Nanos::from_secs(1) };
    let bump = bump().with_count(decaying).unwrap();
    model(move || {
        let (record, policy) = (Record::new(), BumpPolicy::lone(&bump, 1));
        record.open(0, "a", 0, Nanos::ZERO, policy.fresh(Nanos::ZERO, Nanos::ZERO));
        let step = |record: &Record, policy: &BumpPolicy| {
            record.step(policy, Nanos::ZERO, &Pace::default()).threshold
        };
        let [first, second] = both(Arc::new((record, policy)), step, step);
        assert!(first == 0 && second > 0, "{first} {second}");
    });
}

#[test]
fn loom_a_token_is_given_once() {
    model(|| {
        let bucket = TokenBucket::new(1.0, 1.0).unwrap();
        let record = Record::new();
        record.open(0, "a", 0, Nanos::ZERO, 0);
        let shared = Arc::new((record, bucket));
        let other = Arc::clone(&shared);
        let handle = thread::spawn(move || other.0.step(&other.1, Nanos::ZERO, &Pace::default()).threshold);
        let mine = shared.0.step(&shared.1, Nanos::ZERO, &Pace::default()).threshold;
        let kept = [handle.join().unwrap(), mine].iter().filter(|&&threshold| threshold == 0).count();
        assert_eq!(kept, 1);
    });
}

/// A budget changes its factor while a key is called: the count continues, whichever minimum the
/// calls see.
#[test]
fn loom_no_call_is_lost_to_another_least_probability() {
    model(|| {
        let table = Arc::new(bump_table(2));
        let _ = table.decide(&at("a", 0));
        let other = Arc::clone(&table);
        let handle = thread::spawn(move || other.decide(&at("a", 0)).threshold);
        let next = bump().with_minimum(Probability::new(1e-9).unwrap());
        let policy = |bump: &Bump| BumpPolicy::lone(bump, 1);
        let next = table.reconfigured(&PerKey::new(next), policy, None, Nanos::ZERO).unwrap();
        assert_ne!(handle.join().unwrap(), Some(Threshold::ALWAYS), "a second call");
        let third = Threshold::from_probability(bump().probability(2.0));
        assert_eq!(next.decide(&at("a", 0)).threshold, Some(third));
    });
}

/// Parameters change while a token is taken: the token is gone under the new parameters too.
#[test]
fn loom_no_token_comes_back_with_other_parameters() {
    model(|| {
        let limits = Limits::single_threaded().with_keys(2).with_idle(Nanos::from_secs(8));
        let bucket = |capacity| PerKey::new(TokenBucket::new(capacity, 1.0).unwrap());
        let table = Arc::new(Table::new(&bucket(2.0), TokenBucket::clone, limits));
        let _ = table.decide(&at("a", 0));
        let other = Arc::clone(&table);
        let handle = thread::spawn(move || other.decide(&at("a", 0)).keep);
        let next = table.reconfigured(&bucket(3.0), TokenBucket::clone, None, Nanos::ZERO).unwrap();
        assert!(handle.join().unwrap(), "a second token");
        assert_eq!([next.decide(&at("a", 0)).keep, next.decide(&at("a", 0)).keep], [true, false]);
    });
}

/// Two first calls of a key at once: one record, two counts, and both calls counted.
#[test]
fn loom_a_key_gets_one_record() {
    model(|| {
        let table = Arc::new(bump_table(2));
        let other = Arc::clone(&table);
        let handle = thread::spawn(move || other.decide(&at("a", 0)).threshold);
        let mine = table.decide(&at("a", 0)).threshold;
        assert_ne!(handle.join().unwrap(), mine);
        let snapshot = table.snapshot();
        assert_eq!((snapshot.keys.len(), snapshot.keys[0].counts.seen()), (1, 2));
    });
}

/// A call of a key that is being evicted is counted, whichever key has the record by then.
#[test]
fn loom_no_call_is_lost_when_its_key_leaves() {
    model(|| {
        let table = Arc::new(bump_table(1));
        let _ = table.decide(&at("a", 0));
        let other = Arc::clone(&table);
        let handle = thread::spawn(move || {
            let _ = other.decide(&at("b", 9_000));
            // The next sweep: the record changes keys.
            let _ = other.decide(&at("b", 10_000));
        });
        let _ = table.decide(&at("a", 9_000));
        handle.join().unwrap();
        let snapshot = table.snapshot();
        let by_key: u64 = snapshot.keys.iter().map(|key| key.counts.seen()).sum();
        assert_eq!(by_key + snapshot.overflow.seen() + snapshot.evicted.seen(), 4);
    });
}
