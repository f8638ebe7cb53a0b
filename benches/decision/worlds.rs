//! The same loop with different bodies: no sampler, our samplers, and the baselines.

// governor takes a `&String` if its keys are strings. Building a `String` from a `&str` for each
// call would be unfair to it, so all worlds are passed one.
#![allow(clippy::ptr_arg)]

use std::hint::black_box;
use std::time::Instant;

use astracer_samplers::{Config, Limits, Nanos, Randomness, Request, Sampler};

use crate::rivals;

/// The key of the hot loops.
pub(crate) const HOT: &str = "GET /api/v1/orders/{id}";
pub(crate) const BUMP: &str = "bump:lambda=10,min=0.01,window=1s";
pub(crate) const BUCKET: &str = "bucket:capacity=50,rate=2";

/// The worlds with state per key, for which a million keys are a meaningful test.
pub(crate) const BY_KEY: [&str; 3] = ["bump", "bucket", "governor keyed"];

/// A sampler under test.
pub(crate) trait World: Sync {
    /// Decides `count` times, with a random number each. The loop is inside so that the dynamic
    /// call is not measured.
    fn decide_many(&self, key: &String, seed: u64, count: u64);
}

/// A decision as a function of the key, a random number and the call's number.
struct Body<F>(F);

impl<F: Fn(&String, u64, u64) -> bool + Sync> World for Body<F> {
    fn decide_many(&self, key: &String, seed: u64, count: u64) {
        let mut state = seed;
        for call in 0..count {
            // A Weyl sequence and one multiplication, which is random enough here.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let random = (state ^ state >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
            black_box((self.0)(black_box(key), random, call));
        }
    }
}

fn ours(text: &str) -> impl Fn(&String, u64, u64) -> bool + Sync + use<> {
    let sampler = Sampler::new(&text.parse::<Config>().expect("a valid config"));
    move |key, random, call| {
        // One call per 100 ns, so that windows and buckets advance as they would in a service.
        let request = Request::new(key, Randomness::from_low_bits(random), Nanos::new(call * 100));
        sampler.decide(&request).keep
    }
}

fn ours_capped(text: &str, cap: &str) -> impl Fn(&String, u64, u64) -> bool + Sync + use<> {
    let config: Config = text.parse().expect("a valid config");
    let sampler = Sampler::with_cap(&config, Limits::default(), &cap.parse().expect("a valid cap"));
    move |key, random, call| {
        let request = Request::new(key, Randomness::from_low_bits(random), Nanos::new(call * 100));
        sampler.decide(&request).keep
    }
}

fn ours_with_clock(text: &str) -> impl Fn(&String, u64, u64) -> bool + Sync + use<> {
    let sampler = Sampler::new(&text.parse::<Config>().expect("a valid config"));
    let start = Instant::now();
    move |key, random, _call| {
        let now = Nanos::new(start.elapsed().as_nanos() as u64);
        sampler.decide(&Request::new(key, Randomness::from_low_bits(random), now)).keep
    }
}

/// All worlds, by name.
pub(crate) fn worlds() -> Vec<(&'static str, Box<dyn World>)> {
    vec![
        ("floor", Box::new(Body(|key: &String, random: u64, _| random as usize > key.len()))),
        ("ParentBased(TraceIdRatioBased)", Box::new(Body(rivals::parent_based_ratio()))),
        ("ratio", Box::new(Body(ours("ratio:0.01")))),
        ("bump", Box::new(Body(ours(BUMP)))),
        // The first cap is never reached, which is the usual case; the second is always exceeded.
        ("bump, capped", Box::new(Body(ours_capped(BUMP, "traces=1e9,key_traces=1e9")))),
        ("bump, cap struck", Box::new(Body(ours_capped(BUMP, "traces=1000,burst=100")))),
        ("bump, large lambda", Box::new(Body(ours("bump:lambda=1000000,min=0.0001")))),
        ("bump + clock", Box::new(Body(ours_with_clock(BUMP)))),
        ("bucket", Box::new(Body(ours(BUCKET)))),
        ("bucket + clock", Box::new(Body(ours_with_clock(BUCKET)))),
        ("governor keyed", Box::new(Body(rivals::governor_keyed()))),
        ("governor keyed, fake clock", Box::new(Body(rivals::governor_keyed_fake_clock()))),
        ("JaegerRemoteSampler, per operation", Box::new(Body(rivals::jaeger_remote(rivals::PER_OPERATION)))),
        ("JaegerRemoteSampler, rate limiting", Box::new(Body(rivals::jaeger_remote(rivals::RATE_LIMITING)))),
    ]
}
