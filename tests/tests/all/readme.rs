//! README's program in a service with axum and tower-http's `TraceLayer`, as processes of their
//! own: it says what is wrong with the server, and exits with 0.

use std::process::{Command, Output};

use astracer_testing::{Answer, Server};
use astracer_tower::{RemoteParentLayer, inject};
use axum::routing::get;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tower_http::trace::TraceLayer;

/// Set in the other process.
const VARIABLE: &str = "ASTRACER_TEST_README";

/// The README's `main`, with a request as its work.
fn program() -> Result<(), astracer::SetupError> {
    let _guard = astracer::init()?; // OTEL_*, RUST_LOG; exports the last spans when it is dropped
    request();
    Ok(())
}

#[test]
fn the_program_is_the_readme_s() {
    let readme = include_str!("../../../README.md");
    let block = readme.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let work = "// ... the service's work, traced by `tracing`, until Ctrl-C or SIGTERM ...";
    let expected = block.replace("fn main()", "fn program()").replace(work, "request();");
    assert!(include_str!("readme.rs").contains(&expected), "README's program is another: {block}");
}

fn request() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(requests());
}

const ORDERS: usize = 20;

/// Many orders, each of which asks the service itself for a price, and then one health check.
async fn requests() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = reqwest::Client::new();
    let price = (client.clone(), url.clone());
    let order = move || {
        let (client, url) = price.clone();
        async move {
            let mut headers = http::HeaderMap::new();
            inject(&mut headers);
            let price = client.get(format!("{url}/price")).headers(headers).send().await.unwrap();
            price.text().await.unwrap()
        }
    };
    let router = axum::Router::new()
        .route("/orders/{id}", get(order))
        .route("/price", get(async || "7"))
        .route("/health", get(async || "ok"))
        .layer(TraceLayer::new_for_http())
        .layer(RemoteParentLayer::global());
    tokio::spawn(async move { axum::serve(listener, router).await });
    for path in (0..ORDERS).map(|id| format!("/orders/{id}")).chain(["/health".to_owned()]) {
        let response = client.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

/// The other process's part. Does nothing in an ordinary run.
#[test]
fn process() {
    if std::env::var_os(VARIABLE).is_some() {
        // As the runtime ends a `main` that returns a result.
        let code = match program() {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("Error: {error:?}");
                1
            }
        };
        std::process::exit(code);
    }
}

fn run(variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "readme::process", "--nocapture"]).env(VARIABLE, "1").env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_")) {
        command.env_remove(name);
    }
    let Output { status, stderr, .. } = command.envs(variables.iter().copied()).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Variables, the exit code, and texts on standard error.
type Case<'a> = (&'a [(&'a str, &'a str)], i32, &'a [&'a str]);

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const ALWAYS: (&str, &str) = ("OTEL_TRACES_SAMPLER", "always_on");

/// A few seconds: the guard waits for the server that refuses, and for the one that is down.
#[test]
fn the_operator_is_told_and_the_exit_code_stays_0() {
    let (refuses, accepts) = (Server::new([]).then(Answer::status(401)), Server::new([]));
    let [refuses, accepting] = [refuses, accepts.clone()].map(|server| server.url("http"));
    let cases: [Case<'_>; 6] = [
        (
            &[(ENDPOINT, &accepting), ALWAYS, ("OTEL_BSP_SCHEDULE_DELAY", "5s")],
            0,
            &["WARN astracer: OTEL_BSP_SCHEDULE_DELAY: `5s` is not a whole number"],
        ),
        (&[(ENDPOINT, &refuses), ALWAYS], 0, &["WARN astracer: ", "the server requires authentication"]),
        (
            &[(ENDPOINT, "http://127.0.0.1:1"), ALWAYS],
            0,
            &["WARN astracer: ", "no server listens on this port"],
        ),
        // The switch works whatever else is set.
        (&[("OTEL_SDK_DISABLED", "true"), (ENDPOINT, "nowhere"), ("OTEL_TRACES_SAMPLER", "xray")], 0, &[]),
        (&[("OTEL_TRACES_EXPORTER", "none")], 0, &[]),
        (&[(ENDPOINT, "nowhere")], 1, &["Error: OTEL_EXPORTER_OTLP_ENDPOINT: `nowhere` has no scheme"]),
    ];
    std::thread::scope(|scope| {
        let runs = cases.map(|(variables, code, says)| (scope.spawn(|| run(variables)), code, says));
        for (run, code, says) in runs {
            let (found, stderr) = run.join().unwrap();
            // Colours are off where standard error is no terminal.
            let plain = stderr.replace("\u{1b}[33m", "").replace("\u{1b}[0m", "").replace("\u{1b}[2m", "");
            assert_eq!(found, Some(code), "{plain}");
            assert!(says.iter().all(|text| plain.contains(text)), "{says:?}: {plain}");
            assert!(!says.is_empty() || !plain.contains("WARN"), "{plain}");
        }
    });
    assert!(!accepts.requests().is_empty());
}

fn path(span: &Span) -> &str {
    let uri = span.attributes.iter().find(|attribute| attribute.key == "uri").unwrap();
    match uri.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(path)) => path,
        other => panic!("{other:?}"),
    }
}

/// A sampler that keeps the first traces of each key and few of those that repeat keeps the health
/// check that comes last, so it has a key of its own. Each kept order has the price below it: the
/// context went out with reqwest, and in again.
#[test]
fn two_routes_are_two_keys_and_the_context_goes_out_and_in() {
    let server = Server::new([]);
    let url = server.url("http");
    let sampler = [
        ("OTEL_TRACES_SAMPLER", "astracer"),
        ("OTEL_TRACES_SAMPLER_ARG", "bump:lambda=2,min=0.01,window=1h"),
    ];
    let (code, stderr) = run(&[&[(ENDPOINT, &*url)], &sampler[..]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let spans: Vec<Span> = server
        .requests()
        .iter()
        .flat_map(|request| ExportTraceServiceRequest::decode(&*request.body).unwrap().resource_spans)
        .flat_map(|of_resource| of_resource.scope_spans)
        .flat_map(|of_scope| of_scope.spans)
        .collect();
    let at = |prefix: &str| spans.iter().filter(|span| path(span).starts_with(prefix)).collect::<Vec<_>>();
    let (orders, prices) = (at("/orders/"), at("/price"));
    assert_eq!(at("/health").len(), 1);
    assert!((1..ORDERS).contains(&orders.len()), "{}", orders.len());
    assert_eq!(prices.len(), orders.len());
    for price in prices {
        let is_above = |order: &&&Span| order.span_id == price.parent_span_id;
        assert_eq!(orders.iter().find(is_above).unwrap().trace_id, price.trace_id);
    }
}
