//! Texts as large as a caller can make them: the service continues, and memory stays within the
//! bounds.

use astracer_sdk::SpanLimits;
use tracing::{info, info_span};

use crate::support::{sampling, world};

/// Root names of a megabyte, all different: they are counted by prefixes of bounded length.
#[test]
fn names_of_a_megabyte() {
    for sampler in ["bump:lambda=1,min=0.5,window=1s", "bucket:capacity=5,rate=1", "always"] {
        let world = sampling(sampler, |builder| {
            builder
                .with_cap("key_traces=1000".parse().unwrap())
                .with_explanations(100)
                .with_sampling_attributes(true)
        });
        let mut name = "GET /".repeat(200_000);
        world.run(|| {
            for n in 0..40 {
                name.push_str(&n.to_string());
                info_span!("root", otel.name = name.as_str()).in_scope(|| ());
            }
        });
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 40, "{sampler}");
        let keys = world.handle.keys();
        assert_eq!(keys.iter().map(|key| key.seen).sum::<u64>(), 40, "{sampler}");
        // A record holds at most a kilobyte of its key.
        let longest = keys.iter().filter_map(|key| key.key.as_ref()).map(String::len).max().unwrap_or(0);
        assert!(longest <= 1_024, "{sampler}: {longest}");
        assert_eq!(stats.spans_exported + stats.spans_lost.total(), stats.roots_kept, "{sampler}: {stats:?}");
    }
}

/// Attributes of ten megabytes are cut at the limit on texts, or without one at the bytes that a
/// span may hold. Cuts are counted.
#[test]
fn attributes_of_ten_megabytes() {
    let text = "x".repeat(10 << 20);
    for length_max in [SpanLimits::default().text_length, u32::MAX] {
        let mut limits = SpanLimits::default();
        limits.text_length = length_max;
        let world = world(|builder| builder.with_queue_bytes_max(64 << 20).with_span_limits(limits));
        let spans = world.run(|| {
            for _ in 0..4 {
                let _root = info_span!("root", small = 1, text = text.as_str()).entered();
                info!(text = text.as_str(), "an event");
            }
        });
        let stats = world.handle.stats();
        assert_eq!((spans.len(), stats.spans_lost.total()), (4, 0), "{stats:?}");
        for span in &spans {
            let held: usize = span.attributes.iter().map(|own| own.value.as_str().len()).sum();
            let in_events = span.events.iter().flat_map(|event| &event.attributes);
            let held = held + in_events.map(|own| own.value.as_str().len()).sum::<usize>();
            assert!(held <= 4 << 20, "{held}");
            assert!(
                span.attributes.iter().any(|own| own.key.as_str() == "small"),
                "attributes that fit are kept"
            );
            let cut = span.dropped_attributes_count + span.events.dropped_count;
            assert!(length_max < u32::MAX || cut > 0, "{span:?}");
        }
    }
}
