//! Keys with attributes that middleware sets on its spans: the sampler counts and decides by them.

use std::collections::BTreeMap;

use astracer_sdk::Key;
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Method, Request};
use tower::ServiceExt as _;

use super::service::layered;
use super::telemetry::{Kind, Telemetry};
use super::{Pair, text};

/// The probability after n calls of a key is 1 - exp(-100 / n^2), at least 1 in 10^9. A trace with
/// the second lowest randomness is kept if its probability differs from 1 by less than 2^-55, about
/// exp(-38): the first two calls of each key have 1 and 1 - exp(-100), the third has 1 - exp(-25).
const SAMPLER: &str = "bump:lambda=10,min=0.000000001,window=1h low";
const KEPT_MAX: u64 = 2;

/// Sends `calls` through the middleware, and compares the sampler's counts and the number of
/// exported traces by key.
#[track_caller]
fn check(pair: Pair, attributes: [&'static str; 2], routes: &[&str], calls: &[(Method, &str, &str)]) {
    for kind in [Kind::Stock, Kind::Ours, Kind::OursExclusive] {
        let case = format!("{pair:?} {kind:?}");
        let key = attributes.into_iter().fold(Key::default(), Key::with_attribute);
        let telemetry = Telemetry::with_key(kind, SAMPLER, key);
        let router = routes.iter().fold(Router::new(), |router, route| router.route(route, any(async || "")));
        let router = layered(pair, router);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        tracing::dispatcher::with_default(&telemetry.dispatch, || {
            for (method, path, key) in calls {
                let request = Request::builder().method(method).uri(*path).body(Body::empty());
                let response = runtime.block_on(router.clone().oneshot(request.expect("a request")));
                assert_eq!(response.expect("the router never fails").status(), 200, "{case}: {path}");
                *expected.entry((*key).to_owned()).or_default() += 1;
            }
        });
        let snapshot = telemetry.handle.snapshot().expect("bump decides by key");
        let seen: BTreeMap<_, _> =
            snapshot.keys.into_iter().map(|known| (known.key, known.counts.seen())).collect();
        assert_eq!(seen, expected, "{case}");
        let mut kept: BTreeMap<String, u64> = BTreeMap::new();
        for span in telemetry.finish() {
            let values = attributes.map(|name| format!(";{name}={}", text(&span["attributes"], name)));
            *kept.entry(format!("{}{}", text(&span, "name"), values.concat())).or_default() += 1;
        }
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(key, seen)| (key, seen.min(KEPT_MAX))).collect();
        assert_eq!(kept, expected, "{case}");
    }
}

#[test]
fn the_method_and_the_route_of_a_request_reach_the_sampler() {
    let (get, post) = (Method::GET, Method::POST);
    let orders = "GET /orders/{id};http.request.method=GET;http.route=/orders/{id}";
    let calls = [
        (get.clone(), "/orders/17", orders),
        (get.clone(), "/orders/18", orders),
        (post.clone(), "/orders/17", "POST /orders/{id};http.request.method=POST;http.route=/orders/{id}"),
        (get.clone(), "/orders/19", orders),
        (get.clone(), "/orders/20", orders),
        (get, "/health", "GET /health;http.request.method=GET;http.route=/health"),
    ];
    for pair in [Pair::AxumTracingOpentelemetry, Pair::TowerOtelHttp] {
        check(pair, ["http.request.method", "http.route"], &["/orders/{id}", "/health"], &calls);
    }
}

#[test]
fn the_service_and_the_method_of_a_call_reach_the_sampler() {
    let [find, list] = ["/orders.Orders/Find", "/orders.Orders/List"];
    let key = |method: &str| format!("orders.Orders/{method};rpc.service=orders.Orders;rpc.method={method}");
    let (to_find, to_list) = (key("Find"), key("List"));
    let post = |path, key| (Method::POST, path, key);
    let calls =
        [post(find, to_find.as_str()), post(find, &to_find), post(list, &to_list), post(find, &to_find)];
    for pair in [Pair::TonicTracingOpentelemetry, Pair::TowerOtelGrpc] {
        check(pair, ["rpc.service", "rpc.method"], &[find, list], &calls);
    }
}
