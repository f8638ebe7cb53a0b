//! The guarantees of baggage on any bytes: a message that is accepted is within the bounds, and
//! what is written of it means the same. So is W3C baggage in any headers, and a flow in them.

use std::collections::HashMap;
use std::sync::LazyLock;

use astracer_baggage::{Baggage, Flow, Flows, Limits, RETURN_HEADER, Registry};
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

/// Headers of a request with a flow: what is read is bounded, what is sent on keeps others' members
/// and W3C's limits, and an answer has no more than was asked for.
pub(super) fn check_header(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines: Vec<&str> = text.lines().collect();
    let asked = lines.pop().filter(|line| line.len() < 20);
    let headers = Request { lists: lines, asked };
    let flows = Flows::default();
    let flow = Flow::extract(&flows, &headers);
    let stats = flows.stats().messages;
    assert!(stats.received + stats.malformed <= 1, "{stats:?}");
    let Some(flow) = flow else { return };
    let others = [b"k=a==".as_slice(), b" p = 50%25 ;x"];
    let list = String::from_utf8(flow.list(others.into_iter())).expect("our own text");
    assert!(list.len() <= 8192 && list.split(',').count() <= 64, "{list}");
    assert!(list.starts_with("k=a==, p = 50%25 ;x"), "{list}");
    // Another process reads the same, and sends the same on.
    let next = Flows::default();
    if let Some(received) = Flow::extract(&next, &Request { lists: vec![&list], asked: None }) {
        assert_eq!(received.list(others.into_iter()), list.as_bytes());
    }
    assert_eq!(next.stats().messages.malformed, 0);
    let present = headers.lists.iter().map(|list| list.as_bytes());
    let passed_on = flow.list(present);
    assert!(passed_on.len() <= 8192 && passed_on.split(|byte| *byte == b',').count() <= 64);
    for asked in [0, 64, 3000] {
        let answer = flow.answer(asked);
        assert!(answer.len() / 4 * 3 <= asked.min(2048), "{asked}: {answer}");
    }
}

struct Request<'a> {
    lists: Vec<&'a str>,
    asked: Option<&'a str>,
}

impl Extractor for Request<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key == RETURN_HEADER { self.asked } else { self.lists.first().copied() }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["baggage", RETURN_HEADER]
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        (key == "baggage").then(|| self.lists.clone())
    }
}
