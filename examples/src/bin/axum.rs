//! An axum service and a load for it, in one process or in two.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin axum
//! ```
//!
//! Look at which traces are printed. Of 20,000 requests about 19,000 are for products and 20 for
//! reports. The sampler keeps about one product request in a thousand, but also the first request
//! of each route. The last line counts the roots that were kept and dropped. Then try:
//!
//! ```text
//! cargo run --release -p astracer-examples --bin axum -- --sampler always --export file=recorded
//! cargo run --release -p astracer-examples --bin axum -- \
//!     --export none --cap traces=100 --live 127.0.0.1:9464
//! cargo run --release -p astracer-examples --bin axum -- \
//!     --sampler ratio:0.01 --tail error,slow:20ms
//! cargo run --release -p astracer-examples --bin axum -- \
//!     --parameters astracer.toml --export otlp=http://127.0.0.1:4318
//! cargo run --release -p astracer-examples --bin axum -- --tenants 3 --export none
//! ```
//!
//! The first of these records every trace for `astracer tune`. The second shows live counts in a
//! browser. The third keeps errors and slow requests that the sampler dropped. The fourth runs with
//! tuned parameters, takes over changes of their file while it runs, and exports to a collector.
//! The last counts requests by route and tenant, and its spans have the tenant as an attribute.

use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use astracer_examples::load::{Load, ORDERS, TENANT};
use astracer_examples::output::Output;
use astracer_examples::telemetry::{self, Applications};
use astracer_examples::{chain, ending, json_log, shop};
use clap::Parser;
use tokio::net::TcpListener;

/// A traced HTTP shop, and a load for it.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// Only serve, on this address, until Ctrl-C or SIGTERM.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    listen: Option<SocketAddr>,

    /// Only send load, to this address.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<SocketAddr>,

    /// Write a JSON line with the span's ids for each request to this file. With --to, the load is
    /// traced too.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Maximum number of requests to send.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    requests: u64,

    /// Stop sending after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,

    /// Number of connections.
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: u32,

    /// Applications of baggage: all (sums by tenant, critical paths, and X-Trace's events in kept
    /// traces) or none.
    #[arg(long, value_enum, default_value = "none")]
    applications: Applications,

    /// Send `baggage: tenant.id=..` for this many tenants, and count requests by route and tenant.
    #[arg(long, value_name = "N", default_value_t = 0)]
    tenants: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let load = Load {
        connections: args.connections,
        requests_max: args.requests,
        duration_max: Duration::from_secs(args.seconds),
        orders: ORDERS,
        tenants: args.tenants,
        traced: args.to.is_some() && args.log.is_some(),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    if let Some(log) = &args.log {
        json_log::open(log)?;
    }
    if let Some(to) = args.to {
        let running = load.traced.then(|| args.tracing.start("load")).transpose()?;
        let outcome = runtime.block_on(load.run(to)).map_err(|error| error.to_string())?;
        writeln!(Output, "{outcome}")?;
        if let Some(running) = running {
            writeln!(Output, "{}", running.stop()?)?;
        }
        return Ok(());
    }
    let by_tenant = args.tenants > 0;
    let follows = by_tenant || args.applications == Applications::All;
    let flows = args.applications.flows();
    let running =
        args.tracing.start_with("shop", by_tenant.then_some(TENANT), follows.then(|| flows.clone()))?;
    if let Some(address) = running.live() {
        writeln!(Output, "live counts: http://{address}/")?;
    }
    runtime.block_on(async {
        let asked = ending::asked()?;
        let listener = TcpListener::bind(args.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into())).await?;
        let address = listener.local_addr()?;
        let service = axum::serve(listener, shop::routes());
        if args.listen.is_some() {
            writeln!(Output, "listening on {address}; stop with Ctrl-C")?;
            service.with_graceful_shutdown(asked).await?;
        } else {
            let service = tokio::spawn(service.into_future());
            tokio::select! {
                outcome = load.run(address) => {
                    writeln!(Output, "{}", outcome.map_err(|error| error.to_string())?)?;
                }
                () = asked => writeln!(Output, "stopped")?,
            }
            service.abort();
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    if by_tenant && let Some(handle) = running.handle() {
        for key in handle.keys() {
            let name = key.key.as_deref().unwrap_or("other keys");
            writeln!(Output, "{} of {} roots kept: {name}", key.kept + key.kept_late, key.seen)?;
        }
    }
    writeln!(Output, "{}", running.stop()?)?;
    if args.applications == Applications::All {
        writeln!(Output, "{}", chain::summary(&flows))?;
    }
    Ok(())
}
