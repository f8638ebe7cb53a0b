//! A gRPC client and its server in one trace: the request's metadata carries the trace context.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin tonic
//! ```
//!
//! Look at a printed trace: the server's `quotes.Quotes/Get` stands below the client's span of the
//! same name. The sampler decides once, at the client's span; the server follows that decision.
//! Every thousandth number ends in 777 and fails; `--tail error --provisional always` keeps those
//! calls too.
//!
//! Messages are plain text, so that the example needs no generated code. Services with generated
//! code are traced in the same way.

use std::error::Error;
use std::io::Write as _;
use std::net::Ipv4Addr;

use astracer::{InjectLayer, RemoteParentLayer};
use astracer_examples::output::Output;
use astracer_examples::quotes::{Quotes, call, connect};
use astracer_examples::{ending, telemetry};
use clap::Parser;
use tonic::transport::Server;
use tower_layer::Layer as _;

/// A traced gRPC client that requests quotes from a traced server.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// Number of calls.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    calls: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let running = args.tracing.start("quotes")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (calls, failed) = runtime.block_on(async {
        let mut asked = std::pin::pin!(ending::asked()?);
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        // tonic binds the address itself, so this listener only finds a free port.
        drop(listener);
        let server = tokio::spawn(
            Server::builder().layer(RemoteParentLayer::global()).add_service(Quotes).serve(address),
        );
        let channel = InjectLayer::global().layer(connect(address).await?);
        let (mut calls, mut failed) = (0, 0);
        while calls < args.calls {
            tokio::select! {
                called = call(channel.clone(), calls) => failed += u64::from(called.is_err()),
                () = &mut asked => break,
            }
            calls += 1;
        }
        server.abort();
        Ok::<(u64, u64), Box<dyn Error>>((calls, failed))
    })?;
    writeln!(Output, "{calls} calls, {failed} failed")?;
    writeln!(Output, "{}", running.stop()?)?;
    Ok(())
}
