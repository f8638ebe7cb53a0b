//! A shop, a stock service and a bank in three processes, and a load for them. An error in one of
//! them keeps the whole trace, in all three.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin chain -- \
//!     --sampler ratio:0.01 --tail error --provisional always
//! ```
//!
//! With `--boost on` in place of the policies, an error keeps the *next* traces of its key: the
//! bank's response tells the stock, and the stock's tells the shop, which decides.
//!
//! Look at the traces with `kept late`: the sampler dropped them in every process. Each failed
//! payment appears under `bank` with the reason `error`, and under `stock` and `shop` with the
//! reason `caller`, with the same trace id.
//!
//! With `--applications all`, each process adds up its requests by tenant, measures the critical
//! path of each, and kept traces have X-Trace's events, which `astracer events` draws. Baggage goes
//! along with the calls, unless `--peers none`:
//!
//! ```text
//! cargo run --release -p astracer-examples --bin chain -- \
//!     --orders 700 --sampler ratio:0.1 --applications all --export file=recorded
//! ```
//!
//! To start each service on its own, in three terminals, add the same options to these commands:
//!
//! ```text
//! cargo run --release -p astracer-examples --bin chain -- \
//!     --service bank --listen 127.0.0.1:7003
//! cargo run --release -p astracer-examples --bin chain -- \
//!     --service stock --listen 127.0.0.1:7002 --next 127.0.0.1:7003
//! cargo run --release -p astracer-examples --bin chain -- \
//!     --service shop --listen 127.0.0.1:7001 --next 127.0.0.1:7002
//! ```

use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;

use astracer::Operate as _;
use astracer::baggage::critical_path::zone;
use astracer_examples::load::answer;
use astracer_examples::output::Output;
use astracer_examples::telemetry::{self, Applications, Export};
use astracer_examples::{chain, ending};
use clap::{Parser, ValueEnum};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

/// Three traced services that call each other, and keep a trace in all of them if one of them keeps
/// it late.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// Run only this service, until Ctrl-C or SIGTERM.
    #[arg(long, value_enum)]
    service: Option<Service>,

    /// The address to serve on. By default the system picks a port.
    #[arg(long, value_name = "ADDRESS", requires = "service")]
    listen: Option<SocketAddr>,

    /// The address of the next service: the stock for the shop, the bank for the stock.
    #[arg(long, value_name = "ADDRESS", requires = "service")]
    next: Option<SocketAddr>,

    /// Stop at the end of standard input, too.
    #[arg(long, requires = "service")]
    until_eof: bool,

    /// Number of orders. The bank declines every fifth; the shop fails at the third of every seven.
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "service")]
    orders: u64,

    /// Applications of baggage: all (sums by tenant, critical paths, and X-Trace's events in kept
    /// traces) or none.
    #[arg(long, value_enum, default_value = "none")]
    applications: Applications,

    /// Services to which baggage goes with each call: all or none.
    #[arg(long, value_enum, default_value = "all")]
    peers: Peers,

    /// Multiply the time of a function by this factor in the critical paths, such as connect=0,
    /// which is the making of connections to the bank.
    #[arg(long, value_name = "FUNCTION=FACTOR", value_parser = experiment)]
    experiment: Option<(String, f64)>,

    /// Let the stock keep its connections to the bank, in place of a new one for each request.
    #[arg(long)]
    keep_connections: bool,

    /// The id of the first order.
    #[arg(long, value_name = "ID", default_value_t = 1, conflicts_with = "service")]
    first: u64,
}

fn experiment(text: &str) -> Result<(String, f64), String> {
    let parts = text.split_once('=').and_then(|(name, factor)| Some((name.to_owned(), factor.parse().ok()?)));
    parts.ok_or_else(|| {
        format!("'{text}' is no experiment: use a function's name and a factor, such as connect=0.5")
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peers {
    All,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Service {
    Shop,
    Stock,
    Bank,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Shop => "shop",
            Service::Stock => "stock",
            Service::Bank => "bank",
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    match args.service {
        Some(service) => serve(service, args),
        None => all_three(args.first, args.orders),
    }
}

fn serve(service: Service, args: Args) -> Result<(), Box<dyn Error>> {
    let mut tracing = args.tracing;
    // With --export file=FOLDER, each service writes to its own folder.
    if let Export::Folder(folder) = &mut tracing.export {
        folder.push(service.name());
    }
    let flows = args.applications.flows();
    let follows = args.applications == Applications::All;
    let running = tracing.start_with(service.name(), None, follows.then(|| flows.clone()))?;
    let baggage = chain::Baggage { flows, sends: args.peers == Peers::All };
    let counted = baggage.flows.clone();
    let handle = running.handle().ok_or("late keeping needs --tracing astracer or --tracing layer")?.clone();
    let connections =
        chain::Connections { are_kept: args.keep_connections, names_connect: args.experiment.is_some() };
    if let Some((function, factor)) = args.experiment {
        handle.critical_path().experiment(&function, zone(function.clone()), factor)?;
    }
    let next = || args.next.ok_or("--next is missing: pass the address of the service that this one calls");
    let listen = args.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
    tokio::runtime::Runtime::new()?.block_on(async {
        let asked = ending::asked().map_err(|error| error.to_string())?;
        let stop = async move {
            tokio::select! {
                () = asked => {}
                () = eof(), if args.until_eof => {}
            }
        };
        let told = |address: SocketAddr| writeln!(Output, "listening on {address}");
        let serving = async {
            if service == Service::Stock {
                let incoming = TcpIncoming::bind(listen)?;
                told(incoming.local_addr()?)?;
                return chain::stock(incoming, next()?, (handle, baggage), connections, stop).await;
            }
            let listener = TcpListener::bind(listen).await?;
            told(listener.local_addr()?)?;
            match service {
                Service::Shop => chain::shop(listener, next()?, (handle, baggage), stop).await,
                _ => tokio::select! {
                    served = chain::bank(listener, (handle, baggage)) => served,
                    () = stop => Ok(()),
                },
            }
        };
        serving.await.map_err(|error| error.to_string())
    })?;
    writeln!(Output, "{}", running.stop()?)?;
    writeln!(Output, "{}", chain::summary(&counted))?;
    Ok(())
}

/// Waits for the end of standard input, on a thread that the runtime does not wait for.
async fn eof() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    drop(end.await);
}

const TENANTS: u32 = 3;

/// A service running in its own process.
struct Process {
    service: Service,
    child: Child,
    out: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Process {
    /// Starts the service with the options of this process, and waits until it listens.
    fn start(service: Service, next: Option<SocketAddr>) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(of_services(std::env::args_os().skip(1)));
        command.args(["--service", service.name(), "--until-eof"]);
        if let Some(next) = next {
            command.args(["--next", &next.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("the service has no standard output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .ok_or("a service did not start: see its error above")?;
        Ok(Process { service, address: address.parse()?, child, out })
    }

    /// Stops the service, and prints its output.
    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        writeln!(Output, "--- {}\n{}", self.service.name(), text.trim_end())?;
        if self.child.wait()?.success() {
            Ok(())
        } else {
            Err("a service failed: see its error above".into())
        }
    }
}

/// The options for the services: all but `--orders` and `--first`, which only this process takes.
fn of_services(mut options: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut others = Vec::new();
    while let Some(option) = options.next() {
        let text = option.to_string_lossy();
        if text == "--orders" || text == "--first" {
            options.next();
        } else if !text.starts_with("--orders=") && !text.starts_with("--first=") {
            others.push(option);
        }
    }
    others
}

fn all_three(first: u64, orders: u64) -> Result<(), Box<dyn Error>> {
    let bank = Process::start(Service::Bank, None)?;
    let stock = Process::start(Service::Stock, Some(bank.address))?;
    let shop = Process::start(Service::Shop, Some(stock.address))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let is_asked = ending::flag()?;
    let (mut sent, mut failed) = (0, 0);
    let ids = first..first.saturating_add(orders);
    for id in ids.take_while(|_| !is_asked.load(Ordering::Relaxed)) {
        sent += 1;
        // Half of the orders are tenant 1's, a quarter tenant 2's, the others tenant 3's.
        let tenant = format!("t{}", (id.trailing_ones() + 1).min(TENANTS));
        let status = runtime.block_on(answer(shop.address, &format!("/orders/{id}"), &tenant));
        failed += u64::from(status.map_err(|error| error.to_string())?.is_server_error());
    }
    writeln!(Output, "{sent} orders, {failed} failed")?;
    // Callers stop first, so that no service calls one that is gone.
    for process in [shop, stock, bank] {
        process.stop()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_not_told_of_orders_however_they_are_written() {
        let options =
            ["--tail", "error", "--orders", "7", "--orders=8", "--first=3", "--provisional", "always"];
        let others = of_services(options.into_iter().map(OsString::from));
        assert_eq!(others, ["--tail", "error", "--provisional", "always"]);
    }
}
