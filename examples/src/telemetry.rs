//! Tracing set-up, with command-line options for the sampler, the exporter and late keeping.
//!
//! A service needs far less: [`Options::start`] is the part to copy, with one exporter in place of
//! the `match`.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use astracer::baggage::critical_path::CriticalPath;
use astracer::baggage::{self, Flows};
use astracer::exporters::{Console, Files, Otlp, Protocol, Zipkin};
use astracer::samplers::Nanos;
use astracer::samplers::parameters::{Parameters, ParametersError};
use astracer::{
    Astracer, Boost, Cap, ContextMode, DroppedSpans, Endpoint, Handle, Key, Operate as _, ProvisionalMode,
    SamplerConfig, Start, Stats, Tail,
};
use clap::{Args, ValueEnum};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::trace::{Link, SpanKind};
use opentelemetry::{Context, KeyValue, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample, SpanData, SpanExporter,
};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::load::TENANT;
use crate::output::Output;

/// Shows something even if the example runs for seconds: in each window of ten seconds it keeps the
/// first call of each root, few of the next ones, and then one in a thousand.
const SAMPLER: &str = "bump:lambda=0.5,min=0.001,window=10s";

/// The policy of `--all`.
const ALL: &str = "all";

/// The latest decisions that the live page can explain.
const EXPLAINED: usize = 10_000;

/// Tracing options, the same for each example.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where kept traces go: console, none, file=FOLDER, otlp=URL (such as http://127.0.0.1:4318)
    /// or zipkin=URL (such as http://127.0.0.1:9411).
    #[arg(long, value_name = "TARGET", default_value = "console")]
    pub export: Export,

    /// The sampler: bump:lambda=L,min=P,window=T, bucket:capacity=C,rate=R, ratio:P, always or
    /// never.
    #[arg(long, value_name = "SAMPLER", default_value = SAMPLER)]
    pub sampler: SamplerConfig,

    /// Keep dropped traces late if a policy matches their outcome, such as
    /// error,slow:p99,slow:20ms,odd.
    #[arg(long, value_name = "POLICIES", default_value = "")]
    pub tail: Tail,

    /// Which dropped traces to record for the policies of --tail: never, armed (after a recent
    /// error or slow request of the same key) or always.
    #[arg(long, value_name = "WHICH", default_value = "armed")]
    pub provisional: ProvisionalMode,

    /// After an error or a slow request, raise the key's head probability for at most a minute: on,
    /// or parts such as probability=0.5,lasting=30s,rest=5m,traces=100.
    #[arg(long, value_name = "BOOST")]
    pub boost: Option<Boost>,

    /// Seconds for which an ended trace that neither a policy nor a stratum kept can still be kept,
    /// for example by a caller; 0 discards it at once [default: 2, or 30 with strata and without
    /// policies].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub hold: Option<Duration>,

    /// Where the random numbers of strata begin: `astracer evaluate --seed` with the same number
    /// keeps the same traces.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Also export the traces that are dropped, without a weight, to compare a sample with
    /// everything.
    #[arg(long)]
    pub all: bool,

    /// Read the sampler from this parameters file, written by `astracer tune`, instead of
    /// --sampler.
    #[arg(long, value_name = "FILE")]
    pub parameters: Option<PathBuf>,

    /// Seconds to wait at the end for the exporter.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub shutdown_timeout: u32,

    /// Hard limits on kept traces per second, such as traces=100,key_traces=20.
    #[arg(long, value_name = "CAP", conflicts_with = "parameters")]
    pub cap: Option<Cap>,

    /// Serve a page with live counts on this local address, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS")]
    pub live: Option<SocketAddr>,

    /// The subscriber: astracer (ours, without a registry), layer (our layer on a registry), stock
    /// (tracing-opentelemetry on a registry, for comparison) or off.
    #[arg(long, value_enum, default_value = "astracer")]
    pub tracing: Tracing,
}

/// Where kept traces go.
#[derive(Clone, Debug)]
pub enum Export {
    /// Trees on standard output.
    Console,
    /// Spans are discarded.
    None,
    /// A folder with files of OTLP JSON lines.
    Folder(PathBuf),
    /// OTLP over HTTP.
    Otlp(String),
    /// Zipkin's JSON over HTTP.
    Zipkin(String),
}

/// The applications of baggage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Applications {
    /// Sums by tenant, critical paths, and X-Trace's events in kept traces.
    All,
    /// None of them.
    None,
}

impl Applications {
    /// Flows on which these applications work.
    pub fn flows(self) -> Flows {
        let none = baggage::Applications::new(&baggage::Registry::default());
        Flows::new(match self {
            Applications::All => {
                // As spans are dropped below: `DroppedSpans::Disabled`.
                let paths = CriticalPath::default().without_dropped_spans();
                none.with_tenants(TENANT).with_critical_path(&paths).with_x_trace()
            }
            Applications::None => none,
        })
    }
}

/// The subscriber to install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tracing {
    /// astracer's subscriber, without a registry.
    Astracer,
    /// astracer's layer on a registry.
    Layer,
    /// tracing-opentelemetry's layer on a registry, for comparison.
    Stock,
    /// No subscriber.
    Off,
}

impl FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "console" => Ok(Self::Console),
            None if text == "none" => Ok(Self::None),
            Some(("file", folder)) => Ok(Self::Folder(folder.into())),
            Some(("otlp", url)) => Ok(Self::Otlp(url.to_owned())),
            Some(("zipkin", url)) => Ok(Self::Zipkin(url.to_owned())),
            _ => Err(format!(
                "unknown target '{text}': use console, none, file=FOLDER, otlp=URL or zipkin=URL"
            )),
        }
    }
}

fn read(path: &Path) -> Result<Parameters, Box<dyn Error>> {
    let read = fs::read_to_string(path).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| text.parse().map_err(|error: ParametersError| error.to_string()));
    parsed.map_err(|error| format!("{}: {error}", path.display()).into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds: use a number such as 2, 0.5 or 0"))
}

/// An exporter that discards spans, for measurements without an exporter's cost.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// Makes the stock layer record the traces that its sampler drops, without exporting them
/// (`RecordOnly`). A processor that decides when a trace ends would need this, so it is the fair
/// comparison with late keeping.
#[derive(Clone, Debug)]
struct RecordDropped(Sampler);

impl ShouldSample for RecordDropped {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.0.should_sample(parent, trace_id, name, kind, attributes, links);
        if result.decision == SamplingDecision::Drop {
            result.decision = SamplingDecision::RecordOnly;
        }
        result
    }
}

/// Installed tracing. Call [`stop`](Running::stop) before the process ends, or the last spans are
/// lost.
#[derive(Debug)]
pub enum Running {
    /// Tracing by astracer's subscriber or layer.
    Astracer(Box<Ours>),
    /// Tracing by the stock layer, tracing-opentelemetry's.
    Stock(SdkTracerProvider),
    /// No tracing.
    Off,
}

/// Tracing by astracer.
#[derive(Debug)]
pub struct Ours {
    handle: Handle,
    shutdown_timeout: Duration,
    /// The server of the live page, which ends when this is dropped.
    live: Option<Endpoint>,
}

impl Running {
    /// astracer's handle, if it does the tracing.
    pub fn handle(&self) -> Option<&Handle> {
        match self {
            Self::Astracer(ours) => Some(&ours.handle),
            _ => None,
        }
    }

    /// The address of the live page, with `--live`.
    pub fn live(&self) -> Option<SocketAddr> {
        match self {
            Self::Astracer(ours) => ours.live.as_ref().map(Endpoint::address),
            _ => None,
        }
    }
}

impl Options {
    /// Installs tracing for the whole process. Call it once, at the start.
    ///
    /// # Errors
    ///
    /// If the exporter, the parameters file or an `OTEL_*` variable is not valid, or a subscriber
    /// is installed already.
    pub fn start(&self, service: &'static str) -> Result<Running, Box<dyn Error>> {
        self.start_with(service, None, None)
    }

    /// As [`start`](Self::start). Spans have this member of the caller's baggage as an attribute,
    /// and roots are counted by it, unless the parameters file has a key. Baggage follows each
    /// request in these flows.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(
        &self,
        service: &'static str,
        member: Option<&'static str>,
        flows: Option<Flows>,
    ) -> Result<Running, Box<dyn Error>> {
        match self.tracing {
            Tracing::Off => Ok(Running::Off),
            Tracing::Stock => self.start_stock(service),
            Tracing::Astracer | Tracing::Layer => self.start_ours(service, member, flows),
        }
    }

    fn start_ours(
        &self,
        service: &'static str,
        member: Option<&'static str>,
        flows: Option<Flows>,
    ) -> Result<Running, Box<dyn Error>> {
        let file = self.parameters.clone();
        let builder = match member {
            Some(member) => Astracer::builder()
                .with_baggage_attributes([member])
                .with_key(Key::default().with_attribute(member)),
            None => Astracer::builder(),
        };
        let builder = match flows {
            Some(flows) => builder.with_observer(Arc::new(flows)),
            None => builder,
        };
        let builder = match self.seed {
            Some(seed) => builder.with_seed(seed),
            None => builder,
        };
        let builder = builder
            .with_own_policy(ALL, |_| true)
            .with_sampler(self.sampler.clone())
            .with_cap(self.cap.unwrap_or_default())
            // The live page answers "why was it dropped?" from these.
            .with_explanations(if self.live.is_some() { EXPLAINED } else { 0 })
            .with_tail(self.tail()?)
            // With `Disabled`, spans below a dropped root are not created at all. Use
            // `DroppedSpans::Visible`, the default, if log lines should name the spans that they
            // are in.
            .with_dropped_spans(DroppedSpans::Disabled)
            // `RemoteParentLayer` attaches the caller's context before a request's span begins, so
            // the sampler can decide at once and a dropped root stores no fields.
            .with_start(Start::AtOnce)
            // `Ids` is enough to propagate context, and cheaper. Use `ContextMode::Recording`, the
            // default, if code sets attributes through the OpenTelemetry API.
            .with_context_mode(ContextMode::Ids)
            // `--parameters FILE` does what `OTEL_TRACES_SAMPLER=astracer_file` and
            // `OTEL_TRACES_SAMPLER_ARG=FILE` do; the other `OTEL_*` variables come from the
            // environment. A service calls `with_environment()` instead.
            .with_variables(move |name| match (name, &file) {
                ("OTEL_TRACES_SAMPLER", Some(_)) => Some("astracer_file".to_owned()),
                ("OTEL_TRACES_SAMPLER_ARG", Some(path)) => Some(path.display().to_string()),
                ("OTEL_SERVICE_NAME", _) => std::env::var(name).ok().or_else(|| Some(service.to_owned())),
                _ => std::env::var(name).ok(),
            });
        let builder = match &self.export {
            Export::Console if io::stdout().is_terminal() => {
                builder.with_destination(Console::colored(io::stdout()))
            }
            Export::Console => builder.with_destination(Console::plain(Output)),
            Export::None => builder.with_exporter(Nowhere),
            Export::Folder(folder) => builder.with_destination(Files::builder(folder).open()?),
            Export::Otlp(url) => {
                let otlp = Otlp::builder().with_protocol(Protocol::HttpProtobuf).with_endpoint(url);
                builder.with_destination(otlp.build()?)
            }
            Export::Zipkin(url) => {
                let zipkin =
                    Zipkin::builder().with_endpoint(format!("{}/api/v2/spans", url.trim_end_matches('/')));
                builder.with_destination(zipkin.build()?)
            }
        };
        let astracer = builder.build()?;
        opentelemetry::global::set_text_map_propagator(astracer.propagator());
        // The level applies to all targets, so that libraries' debug spans are not recorded.
        if self.tracing == Tracing::Layer {
            let registry = tracing_subscriber::registry().with(LevelFilter::INFO);
            tracing::subscriber::set_global_default(registry.with(astracer.layer.clone()))?;
        } else {
            let subscriber = astracer.subscriber().with_max_level(LevelFilter::INFO);
            tracing::subscriber::set_global_default(subscriber)?;
        }
        let handle = astracer.handle;
        let live = self.live.map(|address| handle.serve(address, None)).transpose()?;
        let shutdown_timeout = Duration::from_secs(self.shutdown_timeout.into());
        Ok(Running::Astracer(Box::new(Ours { handle, shutdown_timeout, live })))
    }

    fn tail(&self) -> Result<Tail, Box<dyn Error>> {
        let mut tail = match self.boost {
            Some(boost) => self.tail.clone().with_boost(boost),
            None => self.tail.clone(),
        };
        let mut provisional = self.provisional;
        if self.all {
            tail = format!("{tail},own:{ALL}()").trim_start_matches(',').parse()?;
            provisional = ProvisionalMode::Always;
        }
        if tail != Tail::default() {
            tail = tail.with_provisional(provisional);
        }
        let Some(hold) = self.hold else { return Ok(tail) };
        let file = self.parameters.as_ref().map(|path| Ok::<_, Box<dyn Error>>((path, read(path)?)));
        match file.transpose()? {
            Some((path, file)) if file.tail != Tail::default() => {
                let path = path.display();
                return Err(format!("--hold has no effect beside [tail] of {path}: set its `hold`").into());
            }
            Some((_, file)) if file.strata.is_some() => {}
            _ if tail == Tail::default() => {
                return Err(
                    "--hold holds traces for --tail, --boost, --all or a file's [strata]: add one of them, \
                            or leave it out"
                        .into(),
                );
            }
            _ => {}
        }
        Ok(tail.with_hold(Nanos::new(u64::try_from(hold.as_nanos())?)))
    }

    /// Starts the stock layer and a batch processor with the same ratio, for comparison.
    fn start_stock(&self, service: &'static str) -> Result<Running, Box<dyn Error>> {
        if let Some(path) = &self.parameters {
            let path = path.display();
            return Err(format!(
                "--tracing stock cannot use --parameters {path}: give --sampler always, never or ratio:P instead"
            )
            .into());
        }
        let sampler = match self.sampler.to_string().as_str() {
            "always" => Sampler::AlwaysOn,
            "never" => Sampler::AlwaysOff,
            text => match text.strip_prefix("ratio:").and_then(|ratio| ratio.parse().ok()) {
                Some(ratio) => Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))),
                None => {
                    let default = if text == SAMPLER { " (the default)" } else { "" };
                    return Err(format!(
                        "--tracing stock cannot use --sampler {text}{default}: give always, never or ratio:P"
                    )
                    .into());
                }
            },
        };
        let Export::None = self.export else {
            return Err("--tracing stock is for comparisons and exports nothing: add --export none".into());
        };
        let builder = SdkTracerProvider::builder().with_batch_exporter(Nowhere);
        let provider = match (self.tail.is_none(), self.provisional) {
            (true, _) => builder.with_sampler(sampler),
            (false, ProvisionalMode::Always) => builder.with_sampler(RecordDropped(sampler)),
            _ => {
                return Err(
                    "--tracing stock with --tail records all dropped traces: add --provisional always".into(),
                );
            }
        };
        let provider = provider.build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(service));
        let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(layer);
        tracing::subscriber::set_global_default(subscriber)?;
        Ok(Running::Stock(provider))
    }
}

/// Spans that could not be exported. `main` prints it by `Debug`, and exits with 1.
struct NotExported(String);

impl fmt::Debug for NotExported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not everything was exported\n{}", self.0)
    }
}

impl fmt::Display for NotExported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Error for NotExported {}

impl Running {
    /// Exports what is waiting, and returns a summary: roots kept and dropped, spans exported and
    /// lost, and the last error of the exporter.
    ///
    /// # Errors
    ///
    /// If spans could not be exported; the text has the summary, too.
    pub fn stop(self) -> Result<String, Box<dyn Error>> {
        match self {
            Self::Off => Ok("tracing is off".to_owned()),
            Self::Stock(provider) => {
                provider.shutdown()?;
                Ok("the stock layer keeps no counts".to_owned())
            }
            Self::Astracer(ours) => {
                let Ours { handle, shutdown_timeout, live: _ } = *ours;
                let ended = handle.shutdown(shutdown_timeout).map_err(|error| error.to_string());
                let stats = handle.stats();
                let summary = |error: Option<String>| {
                    let error = error.map(|error| format!("\nlast error: {error}"));
                    format!("{stats}{}{}", late(&handle, &stats), error.unwrap_or_default())
                };
                match ended {
                    Ok(()) => Ok(summary(stats.last_error.clone())),
                    Err(error) => Err(NotExported(summary(Some(error))).into()),
                }
            }
        }
    }
}

/// Traces that each policy kept, and each key's roots, errors and durations. Empty without
/// policies.
fn late(handle: &Handle, stats: &Stats) -> String {
    let mut text = String::new();
    for policy in &stats.tail.policies {
        text.push_str(&format!(
            "\nkept late by {}: {} traces, {} more refused by its budget",
            policy.policy, policy.kept, policy.refused
        ));
    }
    let tail = &stats.tail;
    if tail.kept_by_hand + tail.kept_by_caller + tail.not_there + tail.refused_callers + tail.unannounced > 0
    {
        text.push_str(&format!(
            "\nkept late for callers: {} traces, through the handle: {}; requested but not found: {}, over the budget: {}; requests not sent to peers: {}",
            tail.kept_by_caller, tail.kept_by_hand, tail.not_there, tail.refused_callers, tail.unannounced
        ));
    }
    for key in handle.outcomes() {
        let quantile = |of: f64| key.durations.quantile(of).unwrap_or_default().as_secs_f64() * 1e3;
        text.push_str(&format!(
            "\n{}: {} roots, {} failed ({} of these not recorded), p50 {:.2} ms, p99 {:.2} ms",
            key.key.as_deref().unwrap_or("other keys"),
            key.calls,
            key.errors,
            key.missed_errors,
            quantile(0.5),
            quantile(0.99)
        ));
    }
    text
}
