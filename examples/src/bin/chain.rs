//! A shop, a stock and a bank in three processes, and a load for them: an error in one of them
//! brings the parts of all three.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin chain -- --sampler ratio:0.01 --tail error --provisional always
//! cargo run --release -p astracer-examples --bin chain -- --service bank --listen 127.0.0.1:7003
//! cargo run --release -p astracer-examples --bin chain -- --service stock --listen 127.0.0.1:7002 --next 127.0.0.1:7003
//! cargo run --release -p astracer-examples --bin chain -- --service shop --listen 127.0.0.1:7001 --next 127.0.0.1:7002
//! ```

#![allow(clippy::print_stdout, reason = "examples show what they do")]

use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};

use astracer_examples::chain;
use astracer_examples::load::answer;
use astracer_examples::telemetry::{self, Export};
use clap::{Parser, ValueEnum};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

/// Three traced services in a chain of calls, which tell each other of traces that they kept late.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// Only serve, as this one of them, until Ctrl-C.
    #[arg(long, value_enum)]
    service: Option<Service>,

    /// The address to serve on.
    #[arg(long, value_name = "ADDRESS", requires = "service")]
    listen: Option<SocketAddr>,

    /// The service that this one asks: the shop's is the stock, the stock's the bank.
    #[arg(long, value_name = "ADDRESS", requires = "service")]
    next: Option<SocketAddr>,

    /// End when standard input does, instead of by Ctrl-C.
    #[arg(long, requires = "service")]
    until_eof: bool,

    /// The number of orders. The bank declines each fifth one, and the shop fails at the third of
    /// each seven.
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "service")]
    orders: u64,
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
        None => all_three(args.orders),
    }
}

fn serve(service: Service, args: Args) -> Result<(), Box<dyn Error>> {
    let mut tracing = args.tracing;
    // One folder for each service.
    if let Export::Folder(folder) = &mut tracing.export {
        folder.push(service.name());
    }
    let running = tracing.start(service.name())?;
    let handle =
        running.handle().ok_or("the services tell each other by --tracing astracer or layer")?.clone();
    let next = || args.next.ok_or("--next is missing: the address of the service that this one asks");
    let listen = args.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
    tokio::runtime::Runtime::new()?.block_on(async {
        let told = |address: SocketAddr| println!("listening on {address}");
        let serving = async {
            if service == Service::Stock {
                let incoming = TcpIncoming::bind(listen)?;
                told(incoming.local_addr()?);
                return chain::stock(incoming, next()?, handle).await;
            }
            let listener = TcpListener::bind(listen).await?;
            told(listener.local_addr()?);
            match service {
                Service::Shop => chain::shop(listener, next()?, handle).await,
                _ => chain::bank(listener, handle).await,
            }
        };
        tokio::select! {
            served = serving => served.map_err(|error| error.to_string()),
            () = end(args.until_eof) => Ok(()),
        }
    })?;
    println!("{}", running.stop()?);
    Ok(())
}

async fn end(until_eof: bool) {
    if until_eof {
        let eof = || std::io::stdin().read_to_end(&mut Vec::new());
        drop(tokio::task::spawn_blocking(eof).await);
    } else {
        drop(tokio::signal::ctrl_c().await);
    }
}

/// A service in a process of its own.
struct Process {
    service: Service,
    child: Child,
    out: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Process {
    /// Starts it with the options of this process.
    fn start(service: Service, next: Option<SocketAddr>) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(of_services(std::env::args_os().skip(1)));
        command.args(["--service", service.name(), "--until-eof"]);
        if let Some(next) = next {
            command.args(["--next", &next.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").ok_or("the service did not start")?;
        Ok(Process { service, address: address.parse()?, child, out })
    }

    /// Ends it, and shows what it has said.
    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        println!("--- {}\n{}", self.service.name(), text.trim_end());
        if self.child.wait()?.success() { Ok(()) } else { Err("a service failed".into()) }
    }
}

/// Without `--orders N`, the one option that is not the services'.
fn of_services(mut options: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut others = Vec::new();
    while let Some(option) = options.next() {
        if option == "--orders" {
            options.next();
        } else if !option.to_string_lossy().starts_with("--orders=") {
            others.push(option);
        }
    }
    others
}

fn all_three(orders: u64) -> Result<(), Box<dyn Error>> {
    let bank = Process::start(Service::Bank, None)?;
    let stock = Process::start(Service::Stock, Some(bank.address))?;
    let shop = Process::start(Service::Shop, Some(stock.address))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut failed = 0;
    for id in 1..=orders {
        let status = runtime.block_on(answer(shop.address, &format!("/orders/{id}")));
        failed += u64::from(status.map_err(|error| error.to_string())?.is_server_error());
    }
    println!("{orders} orders, {failed} failed");
    // From the first to the last, so that nobody is asked who is gone.
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
        let options = ["--tail", "error", "--orders", "7", "--orders=8", "--provisional", "always"];
        let others = of_services(options.into_iter().map(OsString::from));
        assert_eq!(others, ["--tail", "error", "--provisional", "always"]);
    }
}
