//! The guarantees of baggage on any bytes: a message that is accepted is within the bounds, and
//! what is written of it means the same. So is W3C baggage in any headers.

use std::collections::HashMap;
use std::sync::LazyLock;

use astracer_baggage::{Baggage, Limits, Registry};
use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::propagation::{Extractor, TextMapCompositePropagator, TextMapPropagator as _};

static PROPAGATOR: LazyLock<TextMapCompositePropagator> =
    LazyLock::new(|| astracer_sdk::Astracer::builder().build().expect("the defaults are valid").propagator());

/// A message is refused, or what it holds is written in byte order, whether it was taken apart or
/// stayed bytes, and is read again as the same.
pub(super) fn check_message(data: &[u8]) {
    for flow in [64, 200, 16 << 10] {
        let registry = Registry::new(Limits::default().with_flow(flow));
        let own = registry.register("own", 1).expect("the name is free");
        let Ok(mut baggage) = Baggage::deserialize(data, &registry) else { return };
        let message = baggage.serialize(usize::MAX, &registry);
        assert!(message.len() <= flow, "{}", message.len());
        assert_eq!(baggage.is_empty(), message.is_empty());
        let again = Baggage::deserialize(&message, &registry).expect("our own bytes");
        assert_eq!(again.serialize(usize::MAX, &registry), message);
        let lost = registry.losses().values;
        assert!(lost == 0 || !baggage.is_complete(), "{lost} values lost without a mark");

        // A copy that was taken apart, and united with itself.
        let mut copy = baggage.split();
        copy.add(&own, b"\xff key of our own", b"");
        let fits = registry.losses().values == lost;
        copy.remove(&own, b"\xff key of our own");
        if fits {
            assert_eq!(copy.serialize(usize::MAX, &registry), message);
        }
        baggage.merge(again, &registry);
        assert_eq!(baggage.serialize(usize::MAX, &registry), message);

        for limit in [0, 31, 32, 64, 300] {
            let short = baggage.serialize(limit, &registry);
            assert!(short.len() <= limit);
            Baggage::deserialize(&short, &registry).expect("our own bytes");
        }
    }
}

/// Headers of a request: one of a name for each line.
struct Headers<'a>(Vec<&'a str>);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key == "baggage" { self.0.first().copied() } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["baggage"]
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        (key == "baggage").then(|| self.0.clone())
    }
}

/// The list that is passed on is within the limit, and is read as what was received.
pub(super) fn check_w3c(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let received = PROPAGATOR.extract_with_context(&Context::new(), &Headers(text.lines().collect()));
    let sent = inject(&received);
    assert!(sent.len() <= 8192, "{}", sent.len());
    let again = PROPAGATOR.extract_with_context(&Context::new(), &Headers(vec![&sent]));
    assert_eq!(members(&again), members(&received));
    assert_eq!(inject(&again), sent);
    let encoded = again.with_baggage(
        received
            .baggage()
            .iter()
            .map(|(key, (value, _))| opentelemetry::KeyValue::new(key.clone(), value.clone())),
    );
    inject(&encoded);
}

fn inject(context: &Context) -> String {
    let mut headers = HashMap::new();
    PROPAGATOR.inject_context(context, &mut headers);
    headers.remove("baggage").unwrap_or_default()
}

fn members(context: &Context) -> Vec<(String, String)> {
    let members = context.baggage().iter().map(|(key, (value, _))| (key.to_string(), value.to_string()));
    let mut members: Vec<_> = members.collect();
    members.sort();
    members
}
