//! loom models of the keys' records and counts, and of the table of shapes. Run by
//! `cargo xtask loom`.

use loom::sync::Arc;
use loom::thread;

use super::keys::{KeyNumber, Keys, Shape};
use super::shapes::Shapes;
use super::{Boost, Ended, ProvisionalMode};
use crate::nanos::Nanos;

fn keys(keys_max: usize) -> Arc<Keys> {
    let shape = Shape { shards: 1, quantiles: Box::default(), rules: 0, slow_from: Default::default() };
    Arc::new(Keys::new(keys_max, shape, ProvisionalMode::Armed, &[]))
}

/// Two threads meet a new key: it gets one record, with both of their counts.
#[test]
fn loom_a_new_key_gets_one_record_and_all_counts() {
    loom::model(|| {
        let keys = keys(2);
        let other = keys.clone();
        let call = |keys: &Keys, is_error: bool| {
            let number = keys.number("GET /");
            let ended = Ended { is_error, ..Ended::default() };
            keys.record(number).count(0, &ended, false, keys.shape(), || ended.now);
            number
        };
        let thread = thread::spawn(move || call(&other, true));
        let number = call(&keys, false);
        let elsewhere = thread.join().unwrap();
        let outcomes = keys.outcomes();
        let sum = outcomes.iter().map(|of| (of.calls, of.errors)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert_eq!(sum, (2, 1), "{outcomes:?}");
        assert_eq!(number, elsewhere);
        assert_ne!(keys.number("second"), KeyNumber::OTHERS, "one key must take only one of the two records");
        assert_eq!(keys.number("third"), KeyNumber::OTHERS);
    });
}

/// Two roots of a key fail at once: one boost begins, and each thread sees it afterwards.
#[test]
fn loom_one_boost_begins() {
    loom::model(|| {
        let keys = keys(1);
        let number = keys.number("GET /");
        let other = keys.clone();
        let begin = move |keys: &Keys| {
            let (record, now) = (keys.record(number), Nanos::from_secs(1));
            let begun = record.boost(&Boost::default(), now);
            assert!(record.is_boosted(now));
            u32::from(begun)
        };
        let thread = thread::spawn(move || begin(&other));
        assert_eq!(begin(&keys) + thread.join().unwrap(), 1);
    });
}

/// The first roots of a key begin on two threads: exactly the allowed number are recorded.
#[test]
fn loom_the_first_roots_are_as_many_as_may_be() {
    loom::model(|| {
        let keys = keys(1);
        let number = keys.number("GET /");
        let other = keys.clone();
        let is_early = move |keys: &Keys| u32::from(keys.record(number).is_early(1));
        let thread = thread::spawn(move || is_early(&other));
        assert_eq!(is_early(&keys) + thread.join().unwrap(), 1);
    });
}

/// Two threads note a shape at once: one of them sees that it is new.
#[test]
fn loom_a_new_shape_is_told_of_once() {
    loom::model(|| {
        let shapes = Arc::new(Shapes::new(1));
        let other = shapes.clone();
        let thread = thread::spawn(move || u32::from(other.is_new(1, 77, Nanos::from_secs(1))));
        let told = u32::from(shapes.is_new(1, 77, Nanos::from_secs(1)));
        assert_eq!(told + thread.join().unwrap(), 1);
        assert!(!shapes.is_new(1, 77, Nanos::from_secs(2)));
    });
}
