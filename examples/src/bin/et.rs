//! A benchmark, not an example to copy: what tracing costs a service. It serves requests of the
//! axum and tonic examples without tracing, with astracer, and with the stock layer
//! (tracing-opentelemetry).
//!
//! `et CASE ROUNDS` serves one request after another without a network; `cargo xtask instructions`
//! counts the instructions of one of them. `et --table [TEXT]` runs the cases whose names contain
//! `TEXT`, each in a process of its own, and prints the median processor time of a request, the
//! exporter's time included. This is the paper's ET, but in processor time: other load on the
//! machine disturbs it less than throughput.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use astracer::{ProvisionalMode, RemoteParentLayer, Tail};
use astracer_examples::load::{Load, ORDERS};
use astracer_examples::output::Output;
use astracer_examples::quotes::{self, Quotes};
use astracer_examples::shop;
use astracer_examples::telemetry::{Export, Options, Tracing};
use axum::body::Body;
use axum::http::Request;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tower_layer::Layer as _;
use tower_service::Service as _;

/// Requests before the measured ones.
const WARM: u64 = 50;
const ROUNDS: usize = 5;
const REQUESTS: u64 = 40_000;
const CONNECTIONS: u32 = 8;

/// Name, subscriber, sampler, and which dropped traces are recorded for the policy `error()`.
type Case = (&'static str, Tracing, &'static str, Option<ProvisionalMode>);

const CASES: [Case; 24] = [
    ("axum, no tracing", Tracing::Off, "never", None),
    ("axum, subscriber, dropped", Tracing::Astracer, "never", None),
    ("axum, subscriber, 1 %", Tracing::Astracer, "ratio:0.01", None),
    ("axum, subscriber, kept", Tracing::Astracer, "always", None),
    ("axum, layer, dropped", Tracing::Layer, "never", None),
    ("axum, layer, 1 %", Tracing::Layer, "ratio:0.01", None),
    ("axum, layer, kept", Tracing::Layer, "always", None),
    ("axum, stock, 1 %", Tracing::Stock, "ratio:0.01", None),
    ("axum, stock, kept", Tracing::Stock, "always", None),
    ("tonic, no tracing", Tracing::Off, "never", None),
    ("tonic, subscriber, dropped", Tracing::Astracer, "never", None),
    ("tonic, subscriber, 1 %", Tracing::Astracer, "ratio:0.01", None),
    ("tonic, subscriber, kept", Tracing::Astracer, "always", None),
    ("tonic, layer, kept", Tracing::Layer, "always", None),
    ("tonic, stock, 1 %", Tracing::Stock, "ratio:0.01", None),
    ("tonic, stock, kept", Tracing::Stock, "always", None),
    ("axum, 1 % fail, no tracing", Tracing::Off, "never", None),
    ("axum, 1 % fail, subscriber, 1 %", Tracing::Astracer, "ratio:0.01", None),
    (
        "axum, 1 % fail, subscriber, 1 %, counted",
        Tracing::Astracer,
        "ratio:0.01",
        Some(ProvisionalMode::Never),
    ),
    ("axum, 1 % fail, subscriber, 1 %, armed", Tracing::Astracer, "ratio:0.01", Some(ProvisionalMode::Armed)),
    (
        "axum, 1 % fail, subscriber, 1 %, all recorded",
        Tracing::Astracer,
        "ratio:0.01",
        Some(ProvisionalMode::Always),
    ),
    ("axum, 1 % fail, subscriber, kept", Tracing::Astracer, "always", None),
    ("axum, 1 % fail, stock, 1 %", Tracing::Stock, "ratio:0.01", None),
    ("axum, 1 % fail, stock, 1 %, all recorded", Tracing::Stock, "ratio:0.01", Some(ProvisionalMode::Always)),
];

/// The cases with the same service and load; the first of them is the baseline without tracing.
fn service(name: &str) -> &str {
    match name {
        name if is_tonic(name) => "tonic",
        name if name.starts_with(FAILING) => FAILING,
        _ => "axum",
    }
}

/// Cases in which one request in a hundred fails.
const FAILING: &str = "axum, 1 % fail";

fn is_tonic(name: &str) -> bool {
    name.starts_with("tonic")
}

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--table"), only) => table(only.as_deref().unwrap_or_default()),
        (Some("--serve"), Some(name)) => serve(&name),
        (Some(name), Some(rounds)) => count(name, rounds.parse()?),
        _ => Err("usage: et --table [TEXT], or et CASE ROUNDS".into()),
    }
}

fn options(name: &str) -> Fallible<Options> {
    let (_, tracing, sampler, recorded) = *CASES
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| format!("unknown case '{name}': see CASES in et.rs"))?;
    Ok(Options {
        boost: None,
        export: Export::None,
        sampler: sampler.parse()?,
        parameters: None,
        seed: None,
        all: false,
        shutdown_timeout: 30,
        cap: None,
        live: None,
        tail: if recorded.is_some() { "error()".parse()? } else { Tail::default() },
        hold: None,
        provisional: recorded.unwrap_or_default(),
        tracing,
    })
}

/// `cargo xtask instructions` counts the instructions inside this function, found by its name.
#[inline(never)]
fn measured(round: &mut dyn FnMut(), rounds: u64) {
    (0..rounds).for_each(|_| round());
}

#[inline(never)]
fn warm_up(round: &mut dyn FnMut()) {
    (0..WARM).for_each(|_| round());
}

/// One round is a request for a cached product (four spans), or in the tonic cases a quote (two
/// spans).
fn count(name: &str, rounds: u64) -> Fallible<()> {
    let running = options(name)?.start("shop")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut shop = shop::routes();
    let quotes = RemoteParentLayer::global().layer(Quotes);
    let mut buy = || {
        let request = Request::get("/products/1").body(Body::empty()).expect("a request");
        let response = runtime.block_on(shop.call(request));
        assert!(response.is_ok_and(|response| response.status().is_success()));
    };
    let mut ask = || assert!(runtime.block_on(quotes::call(quotes.clone(), 1)).is_ok());
    let round: &mut dyn FnMut() = if is_tonic(name) { &mut ask } else { &mut buy };
    warm_up(round);
    measured(round, rounds);
    running.stop()?;
    Ok(())
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Serves until standard input ends. Prints the address first, and at the end the processor time in
/// nanoseconds.
fn serve(name: &str) -> Fallible<()> {
    let running = options(name)?.start("shop")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    writeln!(Output, "{address}")?;
    let before = processor_time();
    let server = if is_tonic(name) {
        // tonic takes the listener that is bound already: binding the address again could fail
        // while clients connect to it.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let builder = Server::builder().layer(RemoteParentLayer::global());
        let serve = { builder }.add_service(Quotes).serve_with_incoming(incoming);
        runtime.spawn(async { serve.await.map_err(std::io::Error::other) })
    } else {
        runtime.spawn(async move { axum::serve(listener, shop::routes()).await })
    };
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.abort();
    let said = running.stop()?;
    writeln!(Output, "{} {said}", (processor_time() - before).as_nanos())?;
    Ok(())
}

/// The processor time of one request in nanoseconds, and the server's counts.
fn serve_and_load(name: &str, runtime: &tokio::runtime::Runtime) -> Fallible<(f64, String)> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(server.stdout.take().ok_or("the server has no standard output")?).lines();
    let address: SocketAddr = lines.next().ok_or("the server printed no address")??.parse()?;
    let answered = if is_tonic(name) {
        runtime.block_on(ask_all(address))?
    } else {
        let duration_max = Duration::from_secs(300);
        let orders = if service(name) == FAILING { 50 } else { ORDERS };
        let load = Load {
            connections: CONNECTIONS,
            requests_max: REQUESTS,
            duration_max,
            orders,
            tenants: 0,
            traced: false,
        };
        let outcome = runtime.block_on(load.run(address)).map_err(|error| error.to_string())?;
        outcome.latencies_us.len() as u64
    };
    drop(server.stdin.take());
    // The first line has the time and the counts. Lines about policies and keys follow.
    let rest = lines.collect::<Result<Vec<_>, _>>()?;
    server.wait()?;
    let (nanos, said) =
        rest.first().and_then(|line| line.split_once(' ')).ok_or("the server printed no processor time")?;
    Ok((nanos.parse::<f64>()? / answered as f64, said.to_owned()))
}

/// Requests quotes over several connections. Returns the number of responses, which include the
/// service's own errors.
async fn ask_all(address: SocketAddr) -> Fallible<u64> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = quotes::connect(address).await?;
        tasks.spawn(async move {
            for number in 0..REQUESTS / u64::from(CONNECTIONS) {
                match quotes::call(channel.clone(), number).await {
                    Err(status) if status.code() != Code::NotFound => return Err(status),
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect::<Result<(), Status>>()?;
    Ok(REQUESTS)
}

/// The first case of the same service, which is the one without tracing.
fn base(at: usize) -> usize {
    let own = service(CASES[at].0);
    CASES.iter().position(|(name, ..)| service(name) == own).unwrap_or(0)
}

/// The same case without policies, if this case has policies.
fn without_policies(at: usize) -> Option<usize> {
    let (own, tracing, sampler, recorded) = CASES[at];
    let is_it = |(name, of, by, late): &Case| {
        (*of, *by, *late) == (tracing, sampler, None) && service(name) == service(own)
    };
    recorded.and_then(|_| CASES.iter().position(is_it))
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The ratio of two cases, round by round: median (least to greatest).
fn ratio(of: &[f64], to: &[f64]) -> String {
    let ratios = sorted(of.iter().zip(to).map(|(of, to)| of / to).collect());
    format!("{:.2}x ({:.2} to {:.2})", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1])
}

/// Runs and prints the cases whose names contain `only`.
fn table(only: &str) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let chosen = || CASES.iter().enumerate().filter(|(_, (name, ..))| name.contains(only));
    let mut times = vec![Vec::new(); CASES.len()];
    let mut said = vec![String::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (at, (name, ..)) in chosen() {
            let (time, counts) = serve_and_load(name, &runtime)?;
            times[at].push(time);
            said[at] = counts;
        }
    }
    writeln!(
        Output,
        "{REQUESTS} requests, {ROUNDS} interleaved rounds: median user and system time per request, and its ratio to no tracing"
    )?;
    for (at, (name, ..)) in chosen() {
        let median = sorted(times[at].clone())[ROUNDS / 2] / 1e3;
        let late = without_policies(at).map(|without| ratio(&times[at], &times[without]));
        let late = late.map_or(String::new(), |ratio| format!("{ratio} of the case without policies; "));
        writeln!(
            Output,
            "{name:<46} {median:>7.2} us {:>22}   {late}{}",
            ratio(&times[at], &times[base(at)]),
            said[at]
        )?;
    }
    Ok(())
}
