//! A table as bytes: a warm start continues from where the previous process was, and damaged bytes
//! change nothing.

use astracer_samplers::{Limits, Nanos, Sampler};
use proptest::prelude::*;

use crate::common::{call, limited, sampler, unlucky};

fn used(config: &str) -> Sampler {
    let sampler = sampler(config);
    for key in ["a", "b", "b", "b", "größe", &"x".repeat(300), &"x".repeat(301)] {
        let _ = call(&sampler, key, 5_000);
    }
    sampler
}

#[test]
fn a_warm_start_goes_on() {
    let config = "bucket:capacity=3,rate=1;\"a\":capacity=1";
    let image = used(config).image(Nanos::from_millis(5_000), 77).unwrap();
    let next = sampler(config);
    let restored = next.restore(&image).unwrap();
    assert_eq!((restored.stamp, restored.now, restored.keys), (77, Nanos::from_secs(5), 5));
    let keys: Vec<String> = next.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect();
    assert_eq!(keys.len(), 5);
    assert!(next.snapshot().unwrap().keys.iter().all(|key| key.counts.seen() == 0));
    let take = |key: &str| (0..9).filter(|_| call(&next, key, 5_000).keep).count();
    assert_eq!([take("a"), take("b"), take("größe"), take(&"x".repeat(300)), take("new")], [0, 0, 2, 2, 3]);
    let bump = used("bump:lambda=0");
    let warm = sampler("bump:lambda=0");
    warm.restore(&bump.image(Nanos::from_secs(5), 0).unwrap()).unwrap();
    assert!(
        !unlucky(&warm, "a", 5_900).keep
            && unlucky(&warm, "a", 6_000).keep
            && unlucky(&warm, "c", 5_900).keep
    );
}

#[test]
fn foreign_and_broken_images_are_refused() {
    let image = used("bump:lambda=1").image(Nanos::from_secs(5), 0).unwrap();
    let small = |keys| limited("bump:lambda=1", Limits::single_threaded().with_keys(keys));
    let fresh = || small(100);
    for end in 0..image.len() {
        assert!(fresh().restore(&image[..end]).is_err(), "{end} bytes");
    }
    for at in 0..image.len() {
        let mut bad = image.clone();
        bad[at] ^= 1 << (at % 8);
        let fresh = fresh();
        assert!(fresh.restore(&bad).is_err(), "a bit of byte {at}");
        assert!(fresh.snapshot().unwrap().keys.is_empty());
    }
    assert_eq!(
        sampler("bump:lambda=2").restore(&image).unwrap_err().to_string(),
        "the snapshot belongs to another sampler"
    );
    assert!(
        sampler("ratio:0.5").restore(&image).is_err() && sampler("ratio:0.5").image(Nanos::ZERO, 0).is_none()
    );
    // With fewer records than the image has keys, the first ones are restored.
    assert_eq!(small(2).restore(&image).unwrap().keys, 2);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(limited("bump:lambda=1", Limits::single_threaded().with_keys(9)).restore(&bytes).is_err());
    }
}
