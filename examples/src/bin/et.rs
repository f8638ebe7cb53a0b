//! The price of tracing in a service: requests of the axum and tonic examples, with no tracing, ours and the stock layer.
//!
//! `cargo xtask instructions` counts the instructions of one request, without a network: the case's name and the number of
//! rounds are the arguments. With `--table` servers run in processes of their own, one for each case in turn (of those whose
//! names begin with the argument that follows, if one does), and the table has the medians of the processor time of a request, the exporter's included: the paper's ET, but by processor time,
//! which other load on the machine disturbs less than throughput.

#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use astracer::{Provisional, RemoteParentLayer, Tail};
use astracer_examples::load::Load;
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

/// Rounds before those that are counted.
const WARM: u64 = 50;
const ROUNDS: usize = 5;
const REQUESTS: u64 = 40_000;
const CONNECTIONS: u32 = 8;

/// The cases: a name, the subscriber and the sampler.
const CASES: [(&str, Tracing, &str); 16] = [
    ("axum, no tracing", Tracing::Off, "never"),
    ("axum, subscriber, dropped", Tracing::Astracer, "never"),
    ("axum, subscriber, 1 %", Tracing::Astracer, "ratio:0.01"),
    ("axum, subscriber, kept", Tracing::Astracer, "always"),
    ("axum, layer, dropped", Tracing::Layer, "never"),
    ("axum, layer, 1 %", Tracing::Layer, "ratio:0.01"),
    ("axum, layer, kept", Tracing::Layer, "always"),
    ("axum, stock, 1 %", Tracing::Stock, "ratio:0.01"),
    ("axum, stock, kept", Tracing::Stock, "always"),
    ("tonic, no tracing", Tracing::Off, "never"),
    ("tonic, subscriber, dropped", Tracing::Astracer, "never"),
    ("tonic, subscriber, 1 %", Tracing::Astracer, "ratio:0.01"),
    ("tonic, subscriber, kept", Tracing::Astracer, "always"),
    ("tonic, layer, kept", Tracing::Layer, "always"),
    ("tonic, stock, 1 %", Tracing::Stock, "ratio:0.01"),
    ("tonic, stock, kept", Tracing::Stock, "always"),
];

fn is_tonic(name: &str) -> bool {
    name.starts_with("tonic")
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--table"), service) => table(service.as_deref().unwrap_or_default()),
        (Some("--serve"), Some(name)) => serve(&name),
        (Some(name), Some(rounds)) => count(name, rounds.parse()?),
        _ => Err("usage: et --table [axum|tonic], or the name of a case and the number of rounds".into()),
    }
}

fn options(name: &str) -> Outcome<Options> {
    let (_, tracing, sampler) =
        *CASES.iter().find(|(known, ..)| *known == name).ok_or_else(|| format!("no case {name}"))?;
    Ok(Options {
        export: Export::None,
        sampler: sampler.parse()?,
        parameters: None,
        shutdown_timeout: 30,
        cap: None,
        live: None,
        tail: Tail::default(),
        hold: Duration::ZERO,
        provisional: Provisional::default(),
        tracing,
    })
}

/// The function that is watched.
#[inline(never)]
fn measured(round: &mut dyn FnMut(), rounds: u64) {
    (0..rounds).for_each(|_| round());
}

#[inline(never)]
fn warm_up(round: &mut dyn FnMut()) {
    (0..WARM).for_each(|_| round());
}

/// A request for a product that is cached, four spans; of the tonic example a quote, two spans.
fn count(name: &str, rounds: u64) -> Outcome<()> {
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

/// Serves until standard input ends; prints the address, and at the end the processor time in nanoseconds.
fn serve(name: &str) -> Outcome<()> {
    let running = options(name)?.start("shop")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    println!("{address}");
    let before = processor_time();
    let server = if is_tonic(name) {
        // On the listener that has the address already: a client may be waiting for it.
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
    println!("{} {said}", (processor_time() - before).as_nanos());
    Ok(())
}

/// The processor time of one request in nanoseconds, and the server's counts.
fn serve_and_load(name: &str, runtime: &tokio::runtime::Runtime) -> Outcome<(f64, String)> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(server.stdout.take().ok_or("no output")?).lines();
    let address: SocketAddr = lines.next().ok_or("no address")??.parse()?;
    let answered = if is_tonic(name) {
        runtime.block_on(ask_all(address))?
    } else {
        let duration_max = Duration::from_secs(300);
        let load = Load { connections: CONNECTIONS, requests_max: REQUESTS, duration_max };
        let outcome = runtime.block_on(load.run(address)).map_err(|error| error.to_string())?;
        outcome.latencies_us.len() as u64
    };
    drop(server.stdin.take());
    let last = lines.next().ok_or("no time")??;
    server.wait()?;
    let (nanos, said) = last.split_once(' ').ok_or("no time")?;
    Ok((nanos.parse::<f64>()? / answered as f64, said.to_owned()))
}

/// Asks for quotes over several connections. Returns the number of answers, of which some are errors of the service.
async fn ask_all(address: SocketAddr) -> Outcome<u64> {
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

/// The first case of the same service: the one without tracing.
fn base(at: usize) -> usize {
    let service = is_tonic(CASES[at].0);
    CASES.iter().position(|(name, ..)| is_tonic(name) == service).unwrap_or(0)
}

fn table(service: &str) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cases = || CASES.iter().enumerate().filter(|(_, (name, ..))| name.starts_with(service));
    let mut times = vec![Vec::new(); CASES.len()];
    let mut said = vec![String::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (at, (name, ..)) in cases() {
            let (time, counts) = serve_and_load(name, &runtime)?;
            times[at].push(time);
            said[at] = counts;
        }
    }
    println!("{REQUESTS} requests, {ROUNDS} interleaved rounds, medians of user and system time a request");
    for (at, (name, ..)) in cases() {
        let mut ratios: Vec<f64> =
            times[at].iter().zip(&times[base(at)]).map(|(own, none)| own / none).collect();
        ratios.sort_by(f64::total_cmp);
        let mut own = times[at].clone();
        own.sort_by(f64::total_cmp);
        let middle = ROUNDS / 2;
        println!("{name:<28} {:>7.2} us {:>6.2}x   {}", own[middle] / 1e3, ratios[middle], said[at]);
    }
    Ok(())
}
