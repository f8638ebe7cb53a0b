//! Popular middleware, with the real crates on both sides of a call: two processes, one trace.
//!
//! The second process is this binary again, running only [`service::process`]. It listens on a free
//! port, prints the port, serves until its input ends, and then prints its exported spans. The
//! exports of both processes are compared with those of tracing-opentelemetry's own layer.

mod client;
mod grpc;
mod keys;
mod service;
mod telemetry;
mod tenants;

use std::collections::BTreeSet;

use serde_json::Value;

use telemetry::{Kind, Telemetry, lines};

/// Middleware for a service and for its client.
#[derive(Clone, Copy, Debug)]
enum Pair {
    /// axum-tracing-opentelemetry, called through tower-otel on a hyper client.
    AxumTracingOpentelemetry,
    /// axum-otel with tower-http's trace layer, called through tower-otel on a hyper client.
    AxumOtel,
    /// tower-otel on both sides.
    TowerOtelHttp,
    /// tonic-tracing-opentelemetry on both sides.
    TonicTracingOpentelemetry,
    /// tower-otel for gRPC on both sides.
    TowerOtelGrpc,
}

const PAIRS: [Pair; 5] = [
    Pair::AxumTracingOpentelemetry,
    Pair::AxumOtel,
    Pair::TowerOtelHttp,
    Pair::TonicTracingOpentelemetry,
    Pair::TowerOtelGrpc,
];

/// The exported spans of the caller and of the service, for two orders in one trace.
fn call(
    pair: Pair,
    [caller, callee]: [Kind; 2],
    [caller_sampler, callee_sampler]: [&str; 2],
) -> [Vec<Value>; 2] {
    let service = service::Process::start(pair, callee, callee_sampler);
    let telemetry = Telemetry::new(caller, caller_sampler);
    client::run(&telemetry, pair, service.port);
    let port = service.port;
    let (own, theirs) = (telemetry.finish(), service.finish());
    [own, theirs].map(|spans| telemetry::without_port(spans, port))
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

/// Checks that the spans form one complete trace: one root, every other span below an exported
/// span, and the service's spans below the caller's.
#[track_caller]
fn assert_one_trace([own, theirs]: &[Vec<Value>; 2], state: &str, case: &str) {
    assert!(!own.is_empty() && !theirs.is_empty(), "{case}: {own:?} {theirs:?}");
    let all = || own.iter().chain(theirs);
    let traces: BTreeSet<&str> = all().map(|span| text(span, "trace")).collect();
    assert_eq!(traces.len(), 1, "{case}: {traces:?}");
    for span in all() {
        assert_eq!(text(span, "state"), state, "{case}: {span}");
    }
    let ids: BTreeSet<&str> = all().map(|span| text(span, "id")).collect();
    let roots: Vec<_> = all().filter(|span| !ids.contains(text(span, "parent"))).collect();
    assert_eq!(roots.len(), 1, "{case}: {roots:?}");
    assert_eq!(text(roots[0], "name"), "checkout", "{case}");
    let callers: BTreeSet<&str> =
        own.iter().filter(|span| text(span, "kind") == "Client").map(|span| text(span, "id")).collect();
    let entries: Vec<_> = theirs.iter().filter(|span| span["remote"] == true).collect();
    assert_eq!((callers.len(), entries.len()), (2, 2), "{case}: {own:?} {theirs:?}");
    for entry in entries {
        assert_eq!(text(entry, "kind"), "Server", "{case}");
        assert!(callers.contains(text(entry, "parent")), "{case}: {entry}");
    }
}

/// The caller keeps everything. The service follows that decision although its own sampler drops
/// everything.
#[test]
fn kept_traces_are_as_with_the_stock_layer() {
    for pair in PAIRS {
        let stock = call(pair, [Kind::Stock; 2], ["always", "never"]);
        assert_one_trace(&stock, "ot=th:0", &format!("{pair:?} stock"));
        for kind in [Kind::Ours, Kind::OursExclusive] {
            let ours = call(pair, [kind; 2], ["always", "never"]);
            assert_one_trace(&ours, "ot=th:0", &format!("{pair:?} {kind:?}"));
            for (side, (ours, stock)) in ours.iter().zip(&stock).enumerate() {
                let (ours, stock) = (lines(ours), lines(stock));
                assert_eq!(
                    ours,
                    stock,
                    "{pair:?} {kind:?}, side {side}:\n{}\n{}",
                    ours.join("\n"),
                    stock.join("\n")
                );
            }
        }
    }
}

/// The caller drops everything. The service follows that decision although its own sampler keeps
/// everything.
#[test]
fn dropped_traces_are_dropped_on_both_sides() {
    for pair in PAIRS {
        for kind in [Kind::Stock, Kind::Ours, Kind::OursExclusive] {
            let [own, theirs] = call(pair, [kind; 2], ["never", "always"]);
            assert!(own.is_empty() && theirs.is_empty(), "{pair:?} {kind:?}: {own:?} {theirs:?}");
        }
    }
}

/// The weight is propagated. A trace of high randomness is kept with `th:8` on each of its spans,
/// and one of low randomness is dropped, with each combination of layers.
#[test]
fn weights_travel_with_the_trace() {
    let mixed = [
        [Kind::Ours, Kind::Ours],
        [Kind::Ours, Kind::Stock],
        [Kind::Stock, Kind::Ours],
        [Kind::OursExclusive, Kind::Ours],
    ];
    for pair in PAIRS {
        for kinds in mixed {
            let case = format!("{pair:?} {kinds:?}");
            assert_one_trace(&call(pair, kinds, ["ratio:0.5 high", "never"]), "ot=th:8", &case);
            let [own, theirs] = call(pair, kinds, ["ratio:0.5 low", "always"]);
            assert!(own.is_empty() && theirs.is_empty(), "{case}: {own:?} {theirs:?}");
        }
    }
}
