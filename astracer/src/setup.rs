//! The shortest way to a traced service: one call that installs what most services need.

mod interrupt;

use std::fmt;
use std::io::IsTerminal as _;
use std::time::Duration;

use astracer_exporters::Destination;
#[cfg(feature = "_otlp")]
use astracer_exporters::{ConfigError, Otlp};
use astracer_samplers::Config;
use astracer_sdk::{Astracer, AstracerLayer, BuildError, Builder, DroppedSpans, FlushError, Handle};
use opentelemetry_sdk::trace::SpanExporter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::interrupt::Interruptible;

/// Installs tracing for the whole process, by the variables of OpenTelemetry; see [`configure`] for
/// settings in code.
///
/// ```no_run
/// fn main() -> Result<(), astracer::SetupError> {
///     let _guard = astracer::init()?;
///     // ... the service's work, traced by `tracing` ...
///     Ok(())
/// }
/// ```
///
/// # Errors
///
/// See [`Setup::install`].
pub fn init() -> Result<Guard, SetupError> {
    configure().install()
}

/// Returns the settings of [`init`], to change them before [`Setup::install`].
///
/// ```no_run
/// let guard = astracer::configure()
///     .with_service_name("shop")
///     .with_sampler("bump:lambda=10,min=0.01,window=1s".parse()?)
///     .install()?;
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn configure() -> Setup {
    let setup = Setup {
        builder: Astracer::builder().with_environment(),
        spans: spans_by_default(Targets::new()),
        has_exporter: false,
        has_console: true,
        timeout: Duration::from_secs(5),
    };
    let set = std::env::var_os(SPAN_FILTER).map(|set| set.to_string_lossy().into_owned());
    match set.filter(|set| !set.trim().is_empty()).map(|set| (set.parse::<Targets>(), set)) {
        None => setup,
        Some((Ok(filter), _)) => Setup { spans: spans_by_default(filter), ..setup },
        Some((Err(error), set)) => {
            let message = format!("`{}`: {error}; write for example info,my_crate=debug", set.trim());
            setup.with_builder(|builder| builder.with_unusable_variable(SPAN_FILTER, message))
        }
    }
}

/// Chooses spans as `RUST_LOG` chooses lines of the console.
const SPAN_FILTER: &str = "ASTRACER_SPAN_FILTER";

/// A filter with the defaults for what it does not name: INFO, and tower-http's request spans, to
/// which it gives the level DEBUG.
fn spans_by_default(filter: Targets) -> Targets {
    let filter =
        if filter.default_level().is_some() { filter } else { filter.with_default(LevelFilter::INFO) };
    let names_requests = filter.iter().any(|(target, _)| target.starts_with("tower_http"));
    match names_requests {
        true => filter,
        false => filter.with_target(REQUESTS, LevelFilter::DEBUG),
    }
}

const REQUESTS: &str = "tower_http::trace::make_span";

/// Settings of [`configure`]. Those made in code override the variables.
#[must_use = "nothing is installed before `install`"]
#[derive(Debug)]
pub struct Setup {
    builder: Builder,
    spans: Targets,
    has_exporter: bool,
    has_console: bool,
    timeout: Duration,
}

impl Setup {
    /// Sets `service.name`.
    pub fn with_service_name(self, name: impl Into<String>) -> Self {
        self.with_builder(|builder| builder.with_service_name(name))
    }

    /// Sets `service.version`.
    pub fn with_service_version(self, version: impl Into<String>) -> Self {
        self.with_builder(|builder| builder.with_service_version(version))
    }

    /// Sets the sampler.
    pub fn with_sampler(self, sampler: Config) -> Self {
        self.with_builder(|builder| builder.with_sampler(sampler))
    }

    /// Exports to any `SpanExporter` of `opentelemetry_sdk`, in place of OTLP.
    pub fn with_exporter(mut self, exporter: impl SpanExporter + 'static) -> Self {
        self.has_exporter = true;
        self.with_builder(|builder| builder.with_exporter(exporter))
    }

    /// Exports to a destination of [`exporters`](crate::exporters), in place of OTLP.
    pub fn with_destination(mut self, destination: impl Destination + 'static) -> Self {
        self.has_exporter = true;
        self.with_builder(|builder| builder.with_destination(destination))
    }

    /// Sets which spans exist for astracer, and which events they record. `RUST_LOG` has no effect
    /// on them. By default those of level INFO and above exist, and those of tower-http's
    /// `TraceLayer`, which have level DEBUG. The variable `ASTRACER_SPAN_FILTER` changes the
    /// default.
    pub fn with_span_filter(self, filter: Targets) -> Self {
        Setup { spans: filter, ..self }
    }

    /// Sets whether events are printed on standard error; they are by default.
    pub fn with_console(self, has_console: bool) -> Self {
        Setup { has_console, ..self }
    }

    /// Sets how long the guard waits for the last export when it is dropped; 5 seconds by default.
    pub fn with_shutdown_timeout(self, timeout: Duration) -> Self {
        Setup { timeout, ..self }
    }

    /// Changes any other setting.
    pub fn with_builder(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        Setup { builder: change(self.builder), ..self }
    }

    /// Installs, for the whole process:
    ///
    /// - a `tracing` subscriber: a registry with a console, which prints events on standard error,
    ///   and astracer's layer. Each has a filter of its own. The console's is `RUST_LOG`, else
    ///   level INFO. It prints warnings of the target `astracer` in any case, unless `RUST_LOG`
    ///   names `astracer`. The layer's is that of [`with_span_filter`](Self::with_span_filter),
    /// - OTLP in its default form as the exporter, from `OTEL_EXPORTER_OTLP_*` (feature `otlp`),
    ///   unless code set another or `OTEL_TRACES_EXPORTER` is `none`,
    /// - the propagators, as OpenTelemetry's global ones.
    ///
    /// A service that needs another combination puts [`Astracer::builder`]'s parts together itself.
    ///
    /// Variables that cannot be used are ignored with a warning, as OpenTelemetry specifies. An
    /// endpoint, a header or a certificate of the exporter that cannot be used is an error, because
    /// spans would go to the wrong place. With `OTEL_SDK_DISABLED=true` nothing is recorded or
    /// sent.
    ///
    /// # Errors
    ///
    /// If a variable of the exporter cannot be used, a thread cannot be started, or the process has
    /// a subscriber already.
    pub fn install(self) -> Result<Guard, SetupError> {
        let Setup { builder, spans, has_exporter, has_console, timeout } = self;
        let needs_exporter = !has_exporter && builder.is_enabled();
        let refuses = builder.dropped_spans() == DroppedSpans::Disabled;
        let astracer = if needs_exporter { with_otlp(builder)? } else { builder }.build()?;
        let spans =
            SpanFilter { targets: if is_off(&astracer.layer) { Targets::new() } else { spans }, refuses };
        let subscriber = tracing_subscriber::registry().with(has_console.then(console));
        subscriber.with(astracer.layer.clone().with_filter(spans)).try_init()?;
        opentelemetry::global::set_text_map_propagator(astracer.propagator());
        Ok(Guard { handle: astracer.handle, timeout, is_over: false })
    }
}

fn is_off(layer: &AstracerLayer) -> bool {
    Layer::<Registry>::max_level_hint(layer) == Some(LevelFilter::OFF)
}

fn console<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    #[allow(clippy::disallowed_methods, reason = "the service's events, not ours")]
    let stderr = std::io::stderr;
    let has_colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(has_colours);
    let set = std::env::var_os(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let set = set.to_string_lossy();
    let names = |target: &str| set.split(',').any(|directive| directive.trim().starts_with(target));
    let mut filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    // Few services mean a line to lose its request when they print only what is important.
    if !names("tower_http")
        && let Ok(requests) = format!("{REQUESTS}=debug").parse()
    {
        filter = filter.add_directive(requests);
    }
    let own = if names("astracer") { LevelFilter::OFF } else { LevelFilter::WARN };
    lines.with_filter(filter.or(Targets::new().with_target("astracer", own)))
}

/// The filter of astracer's layer.
struct SpanFilter {
    targets: Targets,
    /// The layer disables spans below a dropped root, so it has to be asked for each span.
    refuses: bool,
}

impl<S> Filter<S> for SpanFilter {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::<S>::enabled(&self.targets, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = Filter::<S>::callsite_enabled(&self.targets, metadata);
        if self.refuses && interest.is_always() { Interest::sometimes() } else { interest }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.targets)
    }
}

#[cfg(feature = "_otlp")]
fn with_otlp(builder: Builder) -> Result<Builder, SetupError> {
    let exporter = std::env::var("OTEL_TRACES_EXPORTER").unwrap_or_default();
    if exporter.trim().eq_ignore_ascii_case("none") {
        return Ok(builder);
    }
    Ok(builder.with_destination(Otlp::builder().with_environment().build()?))
}

#[cfg(not(feature = "_otlp"))]
fn with_otlp(builder: Builder) -> Result<Builder, SetupError> {
    Ok(builder)
}

/// Exports the last spans when it is dropped: at the end of `main`, also by an early `?` or a
/// panic. If that fails, it warns, with the target `astracer`, and the exit code stays as it is.
///
/// If no server was ever reached, it tries once more and does not wait. While it waits, Ctrl-C ends
/// the process at once (on Unix), even if the service handles the signal.
#[derive(Debug)]
#[must_use = "an unbound guard is dropped, and shuts down, at once: bind it to a name, such as `_guard`"]
pub struct Guard {
    handle: Handle,
    timeout: Duration,
    is_over: bool,
}

impl Guard {
    /// Returns the handle: counts, flush, and changes at run time.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Exports the last spans and shuts down, within `timeout`.
    ///
    /// # Errors
    ///
    /// See [`Handle::shutdown`].
    pub fn shutdown(mut self, timeout: Duration) -> Result<(), FlushError> {
        self.is_over = true;
        let _interruptible = Interruptible::new();
        self.handle.shutdown(timeout)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_over {
            let _interruptible = Interruptible::new();
            drop(self.handle.shutdown_on_drop(self.timeout));
        }
    }
}

/// The reason why [`Setup::install`] failed.
#[non_exhaustive]
pub enum SetupError {
    /// A variable of the exporter cannot be used.
    #[cfg(feature = "_otlp")]
    Exporter(ConfigError),
    /// The layer cannot be built.
    Build(BuildError),
    /// The process has a subscriber already: call `install` once, and before other set-ups.
    Subscriber(TryInitError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "_otlp")]
            SetupError::Exporter(error) => fmt::Display::fmt(error, f),
            SetupError::Build(error) => fmt::Display::fmt(error, f),
            SetupError::Subscriber(error) => {
                write!(f, "{error}; install astracer once, in place of other global subscribers")
            }
        }
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SetupError {}

#[cfg(feature = "_otlp")]
impl From<ConfigError> for SetupError {
    fn from(error: ConfigError) -> Self {
        SetupError::Exporter(error)
    }
}

impl From<BuildError> for SetupError {
    fn from(error: BuildError) -> Self {
        SetupError::Build(error)
    }
}

impl From<TryInitError> for SetupError {
    fn from(error: TryInitError) -> Self {
        SetupError::Subscriber(error)
    }
}
