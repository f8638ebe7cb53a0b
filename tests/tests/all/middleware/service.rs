//! The service, which runs in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use axum_otel::{AxumOtelOnFailure, AxumOtelOnResponse, AxumOtelSpanCreator};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower_http::trace::TraceLayer;
use tracing::{Level, info, info_span};

use super::telemetry::Telemetry;
use super::{PAIRS, Pair, grpc};

/// Set if this binary runs as the service: the pair, the layer and the sampler.
const VARIABLE: &str = "ASTRACER_TEST_SERVICE";

/// Prefixes of the service's output lines, to tell them from the test harness's output.
const PORT: &str = "astracer-test-port ";
const SPANS: &str = "astracer-test-spans ";

/// The service's process, as its parent sees it.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) port: u16,
}

impl Process {
    pub(crate) fn start(pair: Pair, kind: super::Kind, sampler: &str) -> Self {
        let binary = std::env::current_exe().expect("a test has a path");
        let mut child = Command::new(binary)
            .args(["--exact", "middleware::service::process"])
            .env(VARIABLE, format!("{pair:?};{kind};{sampler}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary can be started");
        let input = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let port = said(&mut output, PORT).parse().expect("a port");
        Process { child, input, output, port }
    }

    /// Stops the service and returns its exports.
    pub(crate) fn finish(mut self) -> Vec<Value> {
        drop(self.input);
        let spans = said(&mut self.output, SPANS);
        assert!(self.child.wait().expect("it was started").success());
        match serde_json::from_str(&spans) {
            Ok(Value::Array(spans)) => spans,
            other => panic!("spans are an array: {other:?}"),
        }
    }
}

/// The rest of the first line that contains `what`.
fn said(output: &mut impl std::io::BufRead, what: &str) -> String {
    let lines = output.lines().map(|line| line.expect("text"));
    lines
        .filter_map(|line| Some(line.split_once(what)?.1.to_owned()))
        .next()
        .expect("the service prints this line before it ends")
}

/// Writes a line to the parent process. The test harness would capture the print macros' output.
fn say(what: &str, text: &str) {
    #[allow(clippy::disallowed_methods, reason = "the parent process reads this output")]
    let mut output = std::io::stdout();
    writeln!(output, "{what}{text}")
        .and_then(|()| output.flush())
        .expect("the parent reads this process's output");
}

/// Runs as the service if this process was started for that. Otherwise does nothing.
#[test]
fn process() {
    let Ok(task) = std::env::var(VARIABLE) else { return };
    let mut parts = task.splitn(3, ';');
    let mut next = || parts.next().expect("three parts");
    let (pair, kind, sampler) = (next(), next(), next());
    let pair = PAIRS.into_iter().find(|known| format!("{known:?}") == pair).expect("a pair");
    let telemetry = Telemetry::new(kind.parse().expect("a layer"), sampler);
    tracing::dispatcher::with_default(&telemetry.dispatch, || serve(router(pair)));
    say(SPANS, &Value::Array(telemetry.finish()).to_string());
}

/// Serves on a free port until the input ends and every connection is closed.
///
/// The middleware ends a request's span when it has polled the end of the response's body. By then
/// the caller may already have its response and have closed this process's input. The caller closes
/// its connections first, so waiting for them terminates.
fn serve(router: Router) {
    let (end, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = end.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        say(PORT, &listener.local_addr().expect("it is bound").port().to_string());
        let until_the_end = async {
            let _ = ended.await;
        };
        axum::serve(listener, router).with_graceful_shutdown(until_the_end).await.expect("it listens");
    });
}

pub(crate) fn router(pair: Pair) -> Router {
    let routes = match pair {
        Pair::AxumTracingOpentelemetry | Pair::AxumOtel | Pair::TowerOtelHttp => {
            Router::new().route("/orders/{id}", get(order))
        }
        Pair::TonicTracingOpentelemetry | Pair::TowerOtelGrpc => {
            Router::new().route_service(grpc::PATH, tower::service_fn(grpc::serve))
        }
    };
    layered(pair, routes)
}

/// Wraps routes in the pair's server middleware.
pub(crate) fn layered(pair: Pair, routes: Router) -> Router {
    match pair {
        Pair::AxumTracingOpentelemetry => {
            routes.layer(axum_tracing_opentelemetry::middleware::OtelAxumLayer::default())
        }
        Pair::AxumOtel => routes.layer(
            TraceLayer::new_for_http()
                .make_span_with(AxumOtelSpanCreator::new().level(Level::INFO))
                .on_response(AxumOtelOnResponse::new().level(Level::INFO))
                .on_failure(AxumOtelOnFailure::new()),
        ),
        Pair::TowerOtelHttp => routes.layer(tower_otel::trace::HttpLayer::server(Level::INFO)),
        Pair::TonicTracingOpentelemetry => {
            routes.layer(tonic_tracing_opentelemetry::middleware::server::OtelGrpcLayer::default())
        }
        Pair::TowerOtelGrpc => routes.layer(tower_otel::trace::GrpcLayer::server(Level::INFO)),
    }
}

async fn order(Path(id): Path<String>) -> String {
    look_up(&id)
}

/// The work of every service for an order.
pub(crate) fn look_up(id: &str) -> String {
    let _span = info_span!("look up", id).entered();
    info!(found = true, "looked up");
    format!("order {id}")
}
