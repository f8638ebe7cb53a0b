//! The baselines, each set up as its documentation recommends.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_sdk::runtime;
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

/// Asks a sampler about a root span without attributes and links.
fn is_sampled(sampler: &impl ShouldSample, key: &str, random: u64) -> bool {
    let trace_id = TraceId::from(u128::from(random) << 64 | u128::from(random));
    let result = sampler.should_sample(None, trace_id, key, &SpanKind::Internal, &[], &[]);
    result.decision == SamplingDecision::RecordAndSample
}

pub(crate) fn parent_based_ratio() -> impl Fn(&String, u64, u64) -> bool + Sync {
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.01)));
    move |key, random, _| is_sampled(&sampler, key, random)
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MIN.saturating_add(1)).allow_burst(NonZeroU32::MIN.saturating_add(49))
}

pub(crate) fn governor_keyed() -> impl Fn(&String, u64, u64) -> bool + Sync {
    let limiter = RateLimiter::<String, _, _, _>::dashmap(quota());
    move |key, _, _| limiter.check_key(key).is_ok()
}

pub(crate) fn governor_keyed_fake_clock() -> impl Fn(&String, u64, u64) -> bool + Sync {
    let limiter = RateLimiter::<String, _, _, _>::dashmap_with_clock(quota(), FakeRelativeClock::default());
    move |key, _, _| limiter.check_key(key).is_ok()
}

pub(crate) const PER_OPERATION: &str = r#"{"strategyType":"PROBABILISTIC","operationSampling":{
    "defaultSamplingProbability":0.01,"defaultLowerBoundTracesPerSecond":0,"defaultUpperBoundTracesPerSecond":0,
    "perOperationStrategies":[
        {"operation":"GET /api/v1/orders/{id}","probabilisticSampling":{"samplingRate":0.01}},
        {"operation":"probe","probabilisticSampling":{"samplingRate":1}}]}}"#;

pub(crate) const RATE_LIMITING: &str =
    r#"{"strategyType":"RATELIMITING","rateLimitingSampling":{"maxTracesPerSecond":2}}"#;

/// A server with a fixed response and no network.
#[derive(Debug)]
struct Canned(&'static str);

#[async_trait::async_trait]
impl HttpClient for Canned {
    async fn send_bytes(&self, _request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(Response::new(Bytes::from_static(self.0.as_bytes())))
    }
}

/// The OpenTelemetry SDK's Jaeger sampler, with its strategy from a fixed response. The strategy is
/// fetched before this returns, and never again.
pub(crate) fn jaeger_remote(strategy: &'static str) -> impl Fn(&String, u64, u64) -> bool + Sync {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime");
    let sampler = {
        let _inside = tokio.enter();
        // The fallback drops everything until the strategy arrives, within the first interval.
        Sampler::jaeger_remote(runtime::Tokio, Canned(strategy), Sampler::AlwaysOff, "bench")
            .with_update_interval(Duration::from_millis(200))
            .with_leaky_bucket_size(50.0)
            .build()
            .expect("a sampler")
    };
    let arrived = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        is_sampled(&sampler, "probe", u64::MAX >> 8)
    });
    assert!(arrived, "the strategy did not arrive within two seconds");
    // Dropping the runtime ends the updates but keeps the strategy, so that no other thread runs
    // during the benchmark.
    drop(tokio);
    move |key, random, _| is_sampled(&sampler, key, random)
}
