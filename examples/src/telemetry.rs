//! Tracing set-up: the one function that a service needs, with a choice of exporters.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use astracer::exporters::{Console, Files, Otlp, Protocol, WithDestination as _, Zipkin};
use astracer::samplers::Nanos;
use astracer::{
    Astracer, Cap, ContextMode, DroppedSpans, Endpoint, Handle, Provisional, SamplerConfig, Start, Stats,
    Tail,
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

/// Suits a service that a newcomer runs briefly: it keeps the first call of each root in ten
/// seconds, and one in a thousand after that.
const SAMPLER: &str = "bump:lambda=0.5,min=0.001,window=10s";

/// Decisions that the live page can explain.
const EXPLAINED: usize = 10_000;

/// Options for tracing.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Target of kept traces: console, none, file=FOLDER, otlp=URL (such as http://127.0.0.1:4318)
    /// or zipkin=URL (http://127.0.0.1:9411).
    #[arg(long, value_name = "TARGET", default_value = "console")]
    pub export: Export,

    /// The sampler: bump:lambda=L,min=P,window=T, bucket:capacity=C,rate=R, ratio:P, always or
    /// never.
    #[arg(long, value_name = "SAMPLER", default_value = SAMPLER)]
    pub sampler: SamplerConfig,

    /// Keep traces for their outcome that the sampler dropped, as in error,slow:p99,slow:20ms,odd.
    #[arg(long, value_name = "POLICIES", default_value = "")]
    pub tail: Tail,

    /// The dropped traces that are recorded so that a policy of --tail may keep them: never, armed
    /// or always.
    #[arg(long, value_name = "WHICH", default_value = "armed")]
    pub provisional: Provisional,

    /// The time for which an ended trace that no policy kept can still be asked for, in seconds; 0:
    /// it goes at once.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub hold: Duration,

    /// Read the sampler from a parameters file of `astracer tune` instead.
    #[arg(long, value_name = "FILE")]
    pub parameters: Option<PathBuf>,

    /// The longest wait for the exporter at the end, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub shutdown_timeout: u32,

    /// Bounds on what is kept, such as traces=100,key_traces=20.
    #[arg(long, value_name = "CAP", conflicts_with = "parameters")]
    pub cap: Option<Cap>,

    /// Serve a page with live counts on this address of this machine, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS")]
    pub live: Option<SocketAddr>,

    /// The subscriber: astracer, layer (ours on a registry), stock (tracing-opentelemetry on a
    /// registry, with the sampler's ratio) or off.
    #[arg(long, value_enum, default_value = "astracer")]
    pub tracing: Tracing,
}

/// The target of kept traces.
#[derive(Clone, Debug)]
pub enum Export {
    /// Trees on standard output.
    Console,
    /// No target.
    None,
    /// A folder with files of OTLP JSON lines.
    Folder(PathBuf),
    /// OTLP over HTTP.
    Otlp(String),
    /// Zipkin's JSON over HTTP.
    Zipkin(String),
}

/// The subscriber that records spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tracing {
    /// Our subscriber.
    Astracer,
    /// Our layer, on a registry.
    Layer,
    /// tracing-opentelemetry's.
    Stock,
    /// None.
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
            _ => Err(format!("'{text}': write console, none, file=FOLDER, otlp=URL or zipkin=URL")),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds such as 2, 0.5 or 0"))
}

/// Discards spans, like an exporter that costs nothing.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// Has the stock layer record what its sampler drops, without exporting it (`RecordOnly`): what a
/// processor of its own that decides when a trace ends would need.
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

/// Active tracing.
#[derive(Debug)]
pub enum Running {
    /// Tracing with our layer.
    Astracer(Box<Ours>),
    /// Tracing with the stock layer.
    Stock(SdkTracerProvider),
    /// No tracing.
    Off,
}

/// Tracing with our layer.
#[derive(Debug)]
pub struct Ours {
    handle: Handle,
    shutdown_timeout: Duration,
    /// The live page, until it is dropped.
    live: Option<Endpoint>,
}

impl Running {
    /// The handle of our tracing.
    pub fn handle(&self) -> Option<&Handle> {
        match self {
            Self::Astracer(ours) => Some(&ours.handle),
            _ => None,
        }
    }

    /// The address of the live page, if there is one.
    pub fn live(&self) -> Option<SocketAddr> {
        match self {
            Self::Astracer(ours) => ours.live.as_ref().map(Endpoint::address),
            _ => None,
        }
    }
}

impl Options {
    /// Installs tracing for the whole process, once at its start.
    ///
    /// # Errors
    ///
    /// If the exporter or the parameters are invalid.
    pub fn start(&self, service: &'static str) -> Result<Running, Box<dyn Error>> {
        match self.tracing {
            Tracing::Off => Ok(Running::Off),
            Tracing::Stock => self.start_stock(service),
            Tracing::Astracer | Tracing::Layer => self.start_ours(service),
        }
    }

    fn start_ours(&self, service: &'static str) -> Result<Running, Box<dyn Error>> {
        let file = self.parameters.clone();
        let builder = Astracer::builder()
            .with_sampler(self.sampler.clone())
            .with_cap(self.cap.unwrap_or_default())
            // For the live page's answers to "why was it dropped?".
            .with_explanations(if self.live.is_some() { EXPLAINED } else { 0 })
            .with_tail(if self.tail.is_none() {
                self.tail.clone()
            } else {
                let hold = Nanos::new(u64::try_from(self.hold.as_nanos())?);
                self.tail.clone().with_provisional(self.provisional).with_hold(hold)
            })
            // With `Disabled`, spans below a dropped root do not exist at all.
            // `DroppedSpans::Visible`, the default, suits services whose logs name their spans.
            .with_dropped_spans(DroppedSpans::Disabled)
            // Requests come with their callers' context attached, so that a dropped one keeps
            // nothing.
            .with_start(Start::AtOnce)
            // Nothing here sets attributes through the OpenTelemetry API, and propagation needs
            // only ids.
            .with_context_mode(ContextMode::Ids)
            // A parameters file is the environment's `astracer_file`; OTEL_* variables determine
            // everything else.
            .with_variables(move |name| match (name, &file) {
                ("OTEL_TRACES_SAMPLER", Some(_)) => Some("astracer_file".to_owned()),
                ("OTEL_TRACES_SAMPLER_ARG", Some(path)) => Some(path.display().to_string()),
                ("OTEL_SERVICE_NAME", _) => std::env::var(name).ok().or_else(|| Some(service.to_owned())),
                _ => std::env::var(name).ok(),
            });
        let builder = match &self.export {
            Export::Console => builder.with_destination(Console::colored(io::stdout())),
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
        // Libraries' events below INFO are hidden globally.
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

    /// Starts the stock layer and batch processor with our ratio, for comparison.
    fn start_stock(&self, service: &'static str) -> Result<Running, Box<dyn Error>> {
        let sampler = match self.sampler.to_string().as_str() {
            "always" => Sampler::AlwaysOn,
            "never" => Sampler::AlwaysOff,
            text => match text.strip_prefix("ratio:").and_then(|ratio| ratio.parse().ok()) {
                Some(ratio) => Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))),
                None => return Err("the stock layer knows always, never and ratio:P only".into()),
            },
        };
        let Export::None = self.export else {
            return Err("the stock layer is here to compare with: use --export none".into());
        };
        let builder = SdkTracerProvider::builder().with_batch_exporter(Nowhere);
        let provider = match (self.tail.is_none(), self.provisional) {
            (true, _) => builder.with_sampler(sampler),
            (false, Provisional::Always) => builder.with_sampler(RecordDropped(sampler)),
            _ => {
                return Err(
                    "the stock layer records all dropped traces or none: use --provisional always".into()
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

impl Running {
    /// Waits until kept spans are exported, and returns a summary, with what was not exported and
    /// why.
    ///
    /// # Errors
    ///
    /// If the stock exporter fails.
    pub fn stop(self) -> Result<String, Box<dyn Error>> {
        match self {
            Self::Off => Ok("no tracing".to_owned()),
            Self::Stock(provider) => {
                provider.shutdown()?;
                Ok("the stock layer does not count".to_owned())
            }
            Self::Astracer(ours) => {
                let Ours { handle, shutdown_timeout, live: _ } = *ours;
                let error = handle.shutdown(shutdown_timeout).err().map(|error| error.to_string());
                let stats = handle.stats();
                let error = error.or(stats.last_error.clone()).map(|error| format!("\nlast error: {error}"));
                Ok(format!("{stats}{}{}", late(&handle, &stats), error.unwrap_or_default()))
            }
        }
    }
}

/// Each key's roots, errors and durations, and the policies' part in what was kept; empty without
/// policies.
fn late(handle: &Handle, stats: &Stats) -> String {
    let mut text = String::new();
    for policy in &stats.tail.policies {
        text.push_str(&format!(
            "\nkept late for {}: {} traces, {} refused",
            policy.policy, policy.kept, policy.refused
        ));
    }
    let tail = &stats.tail;
    if tail.kept_by_hand + tail.kept_by_caller + tail.not_there + tail.refused_callers + tail.untold > 0 {
        text.push_str(&format!(
            "\nkept for callers: {} traces, by hand: {}; asked for and not there: {}, refused: {}; peers not told: {}",
            tail.kept_by_caller, tail.kept_by_hand, tail.not_there, tail.refused_callers, tail.untold
        ));
    }
    for key in handle.outcomes() {
        let quantile = |of: f64| key.durations.quantile(of).unwrap_or_default().as_secs_f64() * 1e3;
        text.push_str(&format!(
            "\n{}: {} roots, {} failed ({} of them not recorded), p50 {:.2} ms, p99 {:.2} ms",
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
