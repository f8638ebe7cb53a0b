//! Texts as large as a caller can make them: a service goes on, and no more is held than the bounds allow.

use std::time::{Duration, Instant};

use tracing::{info, info_span};

use crate::support::world;

/// Root names of a megabyte, each another one: they are counted, by prefixes of bounded length.
#[test]
fn names_of_a_megabyte() {
    for sampler in ["bump:lambda=1,min=0.5,window=1s", "always", "never"] {
        let world = world(|builder| {
            builder
                .with_sampler(sampler.parse().unwrap())
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
        // A record holds a kilobyte of its key, or less.
        let longest = keys.iter().filter_map(|key| key.key.as_ref()).map(String::len).max().unwrap_or(0);
        assert!(longest <= 1_024, "{sampler}: {longest}");
        assert_eq!(stats.spans_exported + stats.spans_lost.total(), stats.roots_kept, "{sampler}: {stats:?}");
    }
}

/// Attributes of ten megabytes are cut at what one span may hold, and counted; the spans arrive.
#[test]
fn attributes_of_ten_megabytes() {
    let world = world(|builder| builder.with_queue_bytes_max(64 << 20));
    let text = "x".repeat(10 << 20);
    let begun = Instant::now();
    let spans = world.run(|| {
        for _ in 0..20 {
            let _root = info_span!("root", small = 1, text = text.as_str()).entered();
            info!(text = text.as_str(), "an event");
        }
    });
    let stats = world.handle.stats();
    assert_eq!((spans.len(), stats.spans_lost.total()), (20, 0), "{stats:?}");
    for span in &spans {
        let held: usize = span.attributes.iter().map(|own| own.value.as_str().len()).sum();
        assert!(held <= 4 << 20, "{held}");
        assert!(span.attributes.iter().any(|own| own.key.as_str() == "small"), "what fits is kept");
    }
    assert!(stats.parts_cut > 0 || spans.iter().all(|span| span.dropped_attributes_count > 0), "{stats:?}");
    // Cutting does not cost what the text would: minutes would be a loop over its bytes for each of them.
    assert!(begun.elapsed() < Duration::from_secs(60));
}
