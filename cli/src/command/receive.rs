//! `astracer receive`: records what services send.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use astracer_exporters::spool::{Damage, Settings};
use astracer_exporters::{FileCompression, Files, Spooled, WhenFilesFull};
use astracer_model::files;
use astracer_receiver::{Limits, Received, Receiver, Recording, Refusal, Tls, Token};
use astracer_tuner::Stop;
use clap::Args as ClapArgs;
use serde::Serialize;

use super::spool::sums::Sums;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::target::Target;
use crate::values::{share, size, time_limit};
use crate::{handles, output};

mod notices;

use self::notices::{Notices, records, undelivered};

const EXAMPLES: &str = "\
Examples:
  astracer receive --out traces/                 gRPC and HTTP on 4317 and 4318
  astracer receive --out traces/ --otlp 0.0.0.0:4318 --total-max 50GB --zstd
  astracer receive --out traces/ --forward otlp://collector:4317
  astracer receive --out traces/ --otlp 0.0.0.0:4317 --token-file token \\
    --metrics-addr 127.0.0.1:9464
  astracer tune traces/                          afterwards

Each address accepts gRPC and HTTP, protobuf and JSON, plain, gzip, deflate and
zstd; and both traces and logs, which go to files of their own in DIR.
--forward passes on traces only. Ctrl-C stops the receiver and prints a
summary. When the files reach --total-max, senders are asked to retry later.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Receive {
    /// Folder for the files traces-00000001.jsonl, logs-00000001.jsonl and so on; existing files
    /// stay.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Address to listen on, as HOST:PORT; repeatable.
    #[arg(long, value_name = "ADDRESS", default_values = ["127.0.0.1:4317", "127.0.0.1:4318"], value_parser = address)]
    pub(crate) otlp: Vec<SocketAddr>,

    /// Begin a new file at this size: bytes, or with KB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size, help_heading = "Limits")]
    pub(crate) rotate: u64,

    /// Begin a new file when the current one is this old, such as 10m or 1h.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, help_heading = "Limits")]
    pub(crate) rotate_age: Option<Duration>,

    /// Refuse further spans and logs when all files together have this size.
    #[arg(long, value_name = "SIZE", default_value = "10GB", value_parser = size, help_heading = "Limits")]
    pub(crate) total_max: u64,

    /// Refuse requests larger than this, compressed or not.
    #[arg(long, value_name = "SIZE", default_value = "16MB", value_parser = size, help_heading = "Limits")]
    pub(crate) message_max: u64,

    /// Largest share of the request memory that one client address may use; also its share of the
    /// connections when they run out.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share, help_heading = "Limits")]
    pub(crate) client_share: f64,

    /// Greatest number of open connections, within the open-file limit. A new connection replaces
    /// the one that has been idle longest.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Limits")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,

    /// Close connections that have been idle for this long.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time_limit, help_heading = "Limits")]
    pub(crate) idle_timeout: Duration,

    /// Time limit for the head of a request, and again for its body.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time_limit, help_heading = "Limits")]
    pub(crate) arrival_timeout: Duration,

    /// Also forward the spans (logs stay in the files) to this server: otlp://HOST:PORT (gRPC),
    /// otlp+http://HOST:PORT or zipkin://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub(crate) forward: Option<Target>,

    /// Spool folder for spans waiting to be forwarded [default: the folder of --out with .spool
    /// appended].
    #[arg(long, value_name = "DIR", requires = "forward")]
    pub(crate) spool: Option<PathBuf>,

    /// Greatest size of the dead letters in the spool, which hold what the server refused [default:
    /// what waiting spans leave of 1 GiB].
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "forward", help_heading = "Limits")]
    pub(crate) dead_max: Option<u64>,

    /// Accept traces and logs from web pages of this origin, such as https://shop.example, or * for
    /// any; repeatable.
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) cors: Vec<String>,

    /// Also accept requests for this host name while listening on a loopback address, where only
    /// localhost is accepted otherwise; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,

    /// Accept only requests with the token in this file: authorization: Bearer TOKEN. Use it where
    /// others can reach --otlp.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Accept only TLS connections, with the certificate chain in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Key of --tls-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Accept only senders with a certificate that an authority in this PEM file issued (mTLS).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) client_ca: Option<PathBuf>,

    /// Also serve /metrics (for Prometheus) and /health (200, or 503 with the reason for which
    /// requests are refused) at this HOST:PORT, without TLS and without the token.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) metrics_addr: Option<SocketAddr>,

    /// Compress the files with zstd.
    #[arg(long)]
    pub(crate) zstd: bool,

    /// Print one JSON object at the end instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The time that the end waits for spooled spans to be forwarded. The next run, or
/// `astracer spool drain`, sends the rest.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of display updates and checks for signals.
const TICK: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Report {
    folder: String,
    requests: u64,
    spans: u64,
    rejected: u64,
    logs: u64,
    logs_rejected: u64,
    refused: Vec<Refused>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded: Option<Forwarded>,
}

/// Spans forwarded to another server.
#[derive(Serialize)]
struct Forwarded {
    accepted: u64,
    rejected: u64,
    lost: u64,
    /// Spans in the spool.
    waiting: u64,
    /// Spans that were rejected for good, also in earlier runs; `spool drain --dead` sends them
    /// again.
    dead_letters: u64,
    /// Why the server accepts none; if it does, its last message beside a success.
    message: String,
    #[serde(skip)]
    is_down: bool,
    /// All runs that used the spool.
    ledger: Option<Sums>,
}

#[derive(Serialize)]
struct Refused {
    reason: &'static str,
    requests: u64,
}

pub(crate) fn run(args: &Receive, stop: Stop<'_>) -> Result<(), Failure> {
    if let Some(target) = &args.forward
        && args.otlp.iter().any(|address| target.is_served_at(address))
    {
        return Err(Failure::Usage(format!(
            "--forward {target} is an address of this receiver, which would forward all spans to itself forever; choose \
             another address, or another --otlp"
        )));
    }
    if args.forward.is_some() && settled(&args.out) == settled(&args.spool_folder()) {
        return Err(Failure::Usage(format!(
            "--spool {} is also the folder of --out; choose another one for --spool",
            output::shown(&args.spool_folder())
        )));
    }
    let token = args.token_file.as_deref().map(token).transpose()?;
    let tls = tls(args)?;
    let compression = if args.zstd { FileCompression::Zstd { level: 3 } } else { FileCompression::None };
    let mut files = Files::builder(&args.out);
    if let Some(age) = args.rotate_age {
        files = files.with_rotate_age(age);
    }
    let files = files
        .with_rotate_bytes(args.rotate)
        .with_total_bytes_max(args.total_max)
        .with_when_full(WhenFilesFull::Refuse)
        .with_compression(compression)
        .open()
        .map_err(|error| failed(&error))?;
    let logs = files.beside("logs").map_err(|error| failed(&error))?;
    let mut recording = Recording::from(files).with_logs(logs);
    recording = recording.with_origins(args.cors.clone()).with_hosts(args.host.clone());
    if let Some(token) = token {
        recording = recording.with_token(token);
    }
    if let Some(tls) = tls {
        recording = recording.with_tls(tls);
    }
    if let Some(address) = args.metrics_addr {
        recording = recording.with_metrics(address);
    }
    if let Some(target) = &args.forward {
        let mut settings = Settings::default();
        if let Some(bytes) = args.dead_max {
            settings = settings.with_dead_letter_bytes(bytes);
        }
        let spool = Spooled::builder(args.spool_folder()).with_settings(settings).open(target.connect()?);
        recording = recording.with_forward(spool.map_err(|error| failed(&error))?);
    }
    let message_max = usize::try_from(args.message_max).unwrap_or(usize::MAX);
    let connections = handles::connections(args.connections);
    if connections < args.connections {
        output::note(&format!(
            "warning: the open-file limit allows {}; raise it with `ulimit -n`",
            output::plural(connections.into(), "connection")
        ));
    }
    let limits = Limits::default()
        .with_message_bytes(message_max)
        .with_client_share(args.client_share)
        .with_connections(connections as usize)
        .with_idle_timeout(args.idle_timeout)
        .with_arrival_timeout(args.arrival_timeout);
    let mut receiver = Receiver::start(&args.otlp, limits, recording).map_err(|error| {
        let option = match error.address() {
            None => "another --out folder",
            Some(address) if args.metrics_addr == Some(address) => "another --metrics-addr",
            Some(_) => "another --otlp address",
        };
        let error = error.to_string();
        Failure::Job(format!("{}; choose {option}", output::escaped(&error)))
    })?;
    for address in receiver.addresses() {
        let over = if args.tls_cert.is_some() { " over TLS" } else { "" };
        output::note(&format!("listening on {address} for OTLP (gRPC and HTTP){over}"));
    }
    if let Some(address) = receiver.metrics_address() {
        output::note(&format!("serving http://{address}/metrics and /health"));
    }
    output::note(&format!("writing to {}; press Ctrl-C to stop", output::shown(&args.out)));
    if let Some(target) = &args.forward {
        let spool = output::shown(&args.spool_folder());
        output::note(&format!("forwarding traces to {target} through {spool}; logs stay in the files"));
    }
    for Damage { file, description, .. } in receiver.forward().map_or(Vec::new(), Spooled::damage) {
        let path = output::shown(&args.spool_folder().join(file));
        output::note(&format!("note: {path}: {description}"));
    }
    let display = Progress::message();
    let mut notices = Notices::default();
    while !stop.is_asked() {
        display.suspend(|| notices.tell(&receiver));
        let received = receiver.received();
        let bytes = output::bytes(receiver.total_bytes());
        display.set_message(format!("{}, {bytes}", records(received.spans, received.logs)));
        std::thread::sleep(TICK);
    }
    display.finish_and_clear();
    let ended = receiver.end();
    notices.tell(&receiver);
    receiver.drain(FORWARD_TIMEOUT);
    let in_spool = receiver.forward().map(Spooled::spool_counts).unwrap_or_default();
    let forwarded = receiver.forwarded().map(|(counts, waiting)| Forwarded {
        accepted: counts.sent,
        rejected: in_spool.rejected,
        lost: in_spool.lost(),
        waiting,
        dead_letters: in_spool.dead_letters,
        is_down: counts.waiting.is_some(),
        message: counts.waiting.map_or(counts.message, |error| error.to_string()),
        ledger: receiver.forward().map(|spool| Sums::from(spool.ledger())),
    });
    let undelivered = undelivered(&receiver);
    let removed = (receiver.spans_removed(), receiver.logs_removed());
    let report = Report::new(args, &receiver.received(), receiver.total_bytes(), forwarded);
    let stopped = ended.and(receiver.stop().map(drop));
    let printed = if args.json { output::print_json(&report) } else { output::report(&report.render()) };
    Failure::after(printed, late(removed, undelivered, stopped.err().map(|error| error.to_string())))
}

/// Combines what went wrong at the end: acknowledged spans and log records whose file was removed,
/// spans that were not passed on, and an error while closing.
fn late(removed: (u64, u64), undelivered: Option<String>, stopped: Option<String>) -> Result<(), Failure> {
    let undelivered = undelivered.map(|text| format!("not everything was passed on: {text}"));
    // Errors quote file names.
    let stopped = stopped.map(|error| output::escaped(&error).into_owned());
    match notices::lost(removed).into_iter().chain(undelivered).chain(stopped).collect::<Vec<_>>() {
        texts if texts.is_empty() => Ok(()),
        texts => Err(Failure::Job(texts.join("; "))),
    }
}

/// The greatest size of a file with a token.
const TOKEN_BYTES_MAX: u64 = 8 << 10;

/// Reads a token. No message quotes it.
fn token(path: &Path) -> Result<Token, Failure> {
    let failed = |why: &str| Failure::Job(format!("--token-file {}: {why}", output::shown(path)));
    let text = files::read_text(path, TOKEN_BYTES_MAX).map_err(|error| failed(&error.to_string()))?;
    Token::new(text.trim()).ok_or_else(|| {
        failed("not a token: one word of visible ASCII characters is expected, such as from `openssl rand -hex 32`")
    })
}

/// The greatest size of a file with certificates or a key.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Reads the certificates and the key.
fn tls(args: &Receive) -> Result<Option<Tls>, Failure> {
    let read = |option: &str, path: &Path| {
        files::read(path, PEM_BYTES_MAX)
            .map_err(|error| Failure::Job(format!("{option} {}: {error}", output::shown(path))))
    };
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let (chain, key) = (read("--tls-cert", chain)?, read("--tls-key", key)?);
    let clients = args.client_ca.as_deref().map(|path| read("--client-ca", path)).transpose()?;
    let tls = Tls::new(&chain, &key, clients.as_deref());
    tls.map(Some).map_err(|error| {
        Failure::Job(format!("--tls-cert, --tls-key or --client-ca: {}", output::escaped(&error)))
    })
}

/// The folder behind links and dots, which may not exist yet.
fn settled(folder: &Path) -> PathBuf {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    for there in whole.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), whole.strip_prefix(there)) {
            // Joining an empty path would end the result with a slash.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    whole
}

/// Errors quote file names.
fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::Job(output::escaped(&error.to_string()).into_owned())
}

impl Receive {
    fn spool_folder(&self) -> PathBuf {
        self.spool.clone().unwrap_or_else(|| {
            let mut name = self.out.components().as_path().as_os_str().to_owned();
            name.push(".spool");
            name.into()
        })
    }
}

/// Parses HOST:PORT. If the name has several addresses, the first IPv4 address is used, else the
/// first.
fn address(text: &str) -> Result<SocketAddr, String> {
    let found: Vec<SocketAddr> =
        text.to_socket_addrs().map_err(|error| format!("{error}; use HOST:PORT"))?.collect();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.copied().ok_or_else(|| "the host name has no address".to_owned())
}

/// Normalises an origin to what browsers send: lower case, without the default port. Otherwise it
/// would never match.
fn origin(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let is_server = |server: &str| {
        !server.is_empty()
            && server.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@\\*".contains(&byte))
    };
    match lower.split_once("://") {
        _ if lower == "*" || lower == "null" => Ok(lower),
        Some((scheme, server)) if !scheme.is_empty() && is_server(server) => {
            let port = match scheme {
                "http" => ":80",
                "https" => ":443",
                _ => "",
            };
            Ok(format!("{scheme}://{}", server.strip_suffix(port).unwrap_or(server)))
        }
        _ => Err(format!(
            "invalid origin '{text}': use scheme, host and port without a path, such as https://shop.example, or *"
        )),
    }
}

impl Report {
    fn new(args: &Receive, received: &Received, bytes: u64, forwarded: Option<Forwarded>) -> Self {
        let refused = Refusal::ALL
            .iter()
            .map(|&reason| Refused { reason: reason.slug(), requests: received.refused(reason) });
        Self {
            folder: args.out.to_string_lossy().into_owned(),
            requests: received.requests,
            spans: received.spans,
            rejected: received.rejected,
            logs: received.logs,
            logs_rejected: received.logs_rejected,
            refused: refused.filter(|refused| refused.requests > 0).collect(),
            bytes,
            forwarded,
        }
    }

    fn render(&self) -> String {
        let mut text = String::new();
        let requests = output::plural(self.requests, "request");
        let _ = writeln!(
            text,
            "{} in {requests}; {} holds {}",
            records(self.spans, self.logs),
            output::escaped(&self.folder),
            output::bytes(self.bytes)
        );
        if self.rejected + self.logs_rejected > 0 {
            let _ = writeln!(text, "rejected as invalid: {}", records(self.rejected, self.logs_rejected));
        }
        if let Some(Forwarded { accepted, rejected, lost, waiting, dead_letters, message, is_down, ledger }) =
            &self.forwarded
        {
            let _ = writeln!(
                text,
                "forwarded: {}; {rejected} rejected, {lost} lost, {waiting} waiting in the spool, \
                 {dead_letters} dead letters there",
                output::plural(*accepted, "span")
            );
            if *waiting > 0 {
                let _ = writeln!(text, "the next run, or `astracer spool drain`, sends what is waiting");
            }
            if !message.is_empty() {
                let whose = if *is_down { "why they wait" } else { "the server says" };
                let _ = writeln!(text, "{whose}: {}", output::escaped(message));
            }
            if let Some(ledger) = ledger {
                let _ = writeln!(text, "{}", ledger.line());
            }
        }
        for Refused { reason, requests } in &self.refused {
            let _ = writeln!(text, "refused ({reason}): {}", output::plural(*requests, "request"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If two things went wrong, both are reported.
    #[test]
    fn all_failures_at_the_end_are_reported() {
        assert!(late((0, 0), None, None).is_ok());
        let text = |removed, stopped: Option<&str>| {
            late((removed, 0), None, stopped.map(str::to_owned))
                .unwrap_err()
                .text()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(text(0, Some("s: \u{1b}no")), "s: \\u{1b}no");
        let both = text(2, Some("s: no"));
        assert!(both.starts_with("2 spans acknowledged but lost") && both.ends_with("; s: no"), "{both}");
        let spool = late((0, 0), Some("the spool s: 2 spans".to_owned()), None).unwrap_err();
        assert_eq!(spool.text(), Some("not everything was passed on: the spool s: 2 spans"));
        let logs = late((1, 3), None, None).unwrap_err();
        assert!(
            logs.text().unwrap_or_default().starts_with("1 span and 3 log records acknowledged but lost")
        );
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        for (text, read) in [
            ("*", "*"),
            ("null", "null"),
            ("https://Shop.example", "https://shop.example"),
            ("https://shop.example:443", "https://shop.example"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("chrome-extension://abc", "chrome-extension://abc"),
        ] {
            assert_eq!(origin(text), Ok(read.to_owned()));
        }
        let wrong = [
            "",
            "shop.example",
            "https://",
            "https://a/",
            "https://a/b",
            "https://a\r\nx: y",
            "https://*.a",
            "://a",
        ];
        for wrong in wrong {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
