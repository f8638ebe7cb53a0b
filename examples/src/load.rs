//! A load generator: mixed routes of the shop over several connections, and their latencies.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::{Instrument as _, Span, info_span};

/// The size and duration of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections. Each sends one request after another.
    pub connections: u32,
    /// The maximum number of requests over all connections, rounded up to the same number for each.
    pub requests_max: u64,
    /// The maximum duration. The load ends then, even if requests are left.
    pub duration_max: Duration,
    /// Orders per thousand requests, at most 970. One order in five fails.
    pub orders: u64,
    /// Tenants in whose names requests are sent, as W3C Baggage; 0: none is named. Tenant 1 sends
    /// half of the requests, tenant 2 a quarter, and so on.
    pub tenants: u32,
    /// True if each request has a client's span, whose context it carries.
    pub traced: bool,
}

/// The member of the baggage that names the tenant.
pub const TENANT: &str = "tenant.id";

/// Orders per thousand requests in an ordinary load.
pub const ORDERS: u64 = 30;

/// The result of a load.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// Time from the first request to the last response.
    pub duration: Duration,
    /// Responses with a server error. Some orders always fail.
    pub failed: u64,
    /// Latencies of all requests in microseconds, ascending.
    pub latencies_us: Vec<u32>,
}

impl LoadResult {
    /// Requests per second.
    pub fn throughput(&self) -> f64 {
        self.latencies_us.len() as f64 / self.duration.as_secs_f64()
    }

    /// The quantile `share` (0 to 1) of the latencies, in milliseconds.
    pub fn latency_ms(&self, share: f64) -> f64 {
        let last = self.latencies_us.len().saturating_sub(1);
        let rank = (share * last as f64).round() as usize;
        self.latencies_us.get(rank).map_or(0.0, |us| f64::from(*us) / 1e3)
    }
}

impl fmt::Display for LoadResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests ({} failed) in {:.1} s: {:.0} per second, p50 {:.3} ms, p99 {:.3} ms",
            self.latencies_us.len(),
            self.failed,
            self.duration.as_secs_f64(),
            self.throughput(),
            self.latency_ms(0.5),
            self.latency_ms(0.99),
        )
    }
}

impl Load {
    /// Sends the load to an address.
    ///
    /// # Errors
    ///
    /// If a connection fails.
    pub async fn run(self, to: SocketAddr) -> Result<LoadResult, Box<dyn std::error::Error + Send + Sync>> {
        let began = Instant::now();
        let share = self.requests_max.div_ceil(u64::from(self.connections.max(1)));
        let clients: Vec<_> = (0..self.connections.max(1))
            .map(|number| tokio::spawn(client(to, number, (share, self), began + self.duration_max)))
            .collect();
        let (mut latencies_us, mut failed) = (Vec::new(), 0);
        for client in clients {
            let (latencies, failures) = client.await??;
            latencies_us.extend(latencies);
            failed += failures;
        }
        let duration = began.elapsed();
        latencies_us.sort_unstable();
        Ok(LoadResult { duration, failed, latencies_us })
    }
}

/// Sends one request of a tenant over a new connection, and returns the response's status.
///
/// # Errors
///
/// If the connection fails.
pub async fn answer(
    to: SocketAddr,
    path: &str,
    tenant: &str,
) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", "shop").header("baggage", format!("{TENANT}={tenant}"));
    let request = request.body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    response.into_body().collect().await?;
    drop(sender);
    connection.await??;
    Ok(status)
}

async fn client(
    to: SocketAddr,
    number: u32,
    (requests, load): (u64, Load),
    end: Instant,
) -> Result<(Vec<u32>, u64), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let (mut latencies, mut failed) = (Vec::new(), 0);
    for index in 0..requests {
        if Instant::now() >= end {
            break;
        }
        let (method, path) = route(u64::from(number) * 7_919 + index, load.orders);
        let mut request = Request::builder().method(method).uri(path).header("host", "shop");
        if load.tenants > 0 {
            let tenant = (index.trailing_ones() + 1).min(load.tenants);
            request = request.header("baggage", format!("{TENANT}=t{tenant}"));
        }
        let mut request = request.body(Empty::<Bytes>::new())?;
        let sent = Instant::now();
        let span = if load.traced { info_span!("call", otel.kind = "client") } else { Span::none() };
        let exchange = async {
            if load.traced {
                astracer::inject(request.headers_mut());
                crate::json_log::write("request sent");
            }
            let response = sender.send_request(request).await?;
            let is_failed = response.status().is_server_error();
            response.into_body().collect().await?;
            Ok::<bool, hyper::Error>(is_failed)
        };
        failed += u64::from(exchange.instrument(span).await?);
        latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    drop(sender);
    connection.await??;
    Ok((latencies, failed))
}

/// The route of one request. Per thousand requests there are 10 searches, 10 category lists,
/// `orders` orders and one report; all others read a product.
fn route(number: u64, orders: u64) -> (Method, String) {
    // The finalizer of SplitMix64 gives consecutive numbers unrelated routes.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 27;
    let id = mixed / 1000 % 10_000;
    let last_order = 20 + orders;
    match mixed % 1000 {
        0 => (Method::GET, format!("/reports/{}", id % 12 + 1)),
        1..=10 => (Method::GET, "/categories".to_owned()),
        11..=20 => (Method::GET, "/search".to_owned()),
        21.. if mixed % 1000 <= last_order => (Method::POST, format!("/orders/{id}")),
        _ => (Method::GET, format!("/products/{id}")),
    }
}
