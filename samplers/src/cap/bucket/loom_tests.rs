//! A meter's promises, checked by loom over all orders of the atomic steps.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A bucket of two units: of three threads, two get one, in every order.
#[test]
fn loom_a_cap_admits_no_more_than_its_burst() {
    let bucket = Bucket::new(Allowance::new(1.0, 2.0).unwrap());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let meter = Arc::new(Meter::default());
        let ask = move |meter: &Meter| meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::from_secs(5));
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let meter = Arc::clone(&meter);
                thread::spawn(move || ask(&meter))
            })
            .collect();
        let mut answers = vec![ask(&meter)];
        answers.extend(handles.into_iter().map(|handle| handle.join().unwrap()));
        let kept = answers.iter().filter(|answer| matches!(answer, Answer::Kept { .. })).count();
        assert_eq!(kept, 2);
    });
}

/// Threads return and take credit; the total never grows.
#[test]
fn loom_a_unit_that_is_given_back_is_there_once() {
    let bucket = Bucket::new(Allowance::new(1.0, 1.0).unwrap());
    loom::model(move || {
        let meter = Arc::new(Meter::default());
        let ask = move |meter: &Meter| {
            matches!(meter.ask(&bucket, 1, 0, Randomness::MAX, Nanos::from_secs(5)), Answer::Kept { .. })
        };
        let other = Arc::clone(&meter);
        let handle = thread::spawn(move || {
            if ask(&other) {
                other.give_back(&bucket, 1);
            }
        });
        let mine = ask(&meter);
        handle.join().unwrap();
        assert_eq!(ask(&meter), !mine);
    });
}

/// The empty bucket of a slow rate gets a fast one while a thread asks by the new allowance: the
/// thread gets no credit that is not there, and the debt is clamped.
#[test]
fn loom_a_change_of_the_allowance_gives_no_credit() {
    let slow = Bucket::new(Allowance::new(1.0, 2.0).unwrap());
    let fast = Bucket::new(Allowance::new(10.0, 1.0).unwrap());
    loom::model(move || {
        let meter = Arc::new(Meter::default());
        let ask = move |meter: &Meter, bucket: &Bucket, millis| {
            let now = Nanos::from_millis(millis);
            matches!(meter.ask(bucket, 1, 0, Randomness::MAX, now), Answer::Kept { .. })
        };
        assert!(ask(&meter, &slow, 5_000) && ask(&meter, &slow, 5_000));
        let other = Arc::clone(&meter);
        let handle = thread::spawn(move || ask(&other, &fast, 5_100));
        meter.clip(&fast, Nanos::from_millis(5_000));
        let mine = ask(&meter, &fast, 5_100);
        assert!(handle.join().unwrap() != mine, "one unit came back, so one of two calls is admitted");
        assert!(!ask(&meter, &fast, 5_100) && ask(&meter, &fast, 5_200));
    });
}
