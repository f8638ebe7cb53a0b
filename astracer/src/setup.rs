//! The shortest way to a traced service: one call that installs what most services need.

use std::fmt;
use std::time::Duration;

use astracer_exporters::Destination;
#[cfg(feature = "_otlp")]
use astracer_exporters::{ConfigError, Otlp};
use astracer_samplers::Config;
use astracer_sdk::{Astracer, BuildError, Builder, FlushError, Handle};
use opentelemetry_sdk::trace::SpanExporter;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

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
    Setup {
        builder: Astracer::builder().with_environment(),
        has_exporter: false,
        has_console: true,
        timeout: Duration::from_secs(5),
    }
}

/// Settings of [`configure`]. Those made in code override the variables.
#[must_use = "nothing is installed before `install`"]
#[derive(Debug)]
pub struct Setup {
    builder: Builder,
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
    /// - a `tracing` subscriber: a registry with an `EnvFilter`, a formatter that prints events on
    ///   standard error, and astracer's layer. The filter is `RUST_LOG`, else level INFO. Unless
    ///   `RUST_LOG` names `tower_http`, spans of its `TraceLayer` pass too, which have level DEBUG,
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
        let Setup { builder, has_exporter, has_console, timeout } = self;
        let needs_exporter = !has_exporter && builder.is_enabled();
        let astracer = if needs_exporter { with_otlp(builder)? } else { builder }.build()?;
        #[allow(clippy::disallowed_methods, reason = "the service's events, not ours")]
        let console = has_console.then(|| tracing_subscriber::fmt::layer().with_writer(std::io::stderr));
        let subscriber = tracing_subscriber::registry().with(filter()).with(console);
        subscriber.with(astracer.layer.clone()).try_init()?;
        opentelemetry::global::set_text_map_propagator(astracer.propagator());
        Ok(Guard { handle: astracer.handle, timeout, is_over: false })
    }
}

/// `RUST_LOG`, else INFO. tower-http gives request spans the level DEBUG, as few services mean them
/// to be left out when they print only what is important.
fn filter() -> EnvFilter {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    if std::env::var(EnvFilter::DEFAULT_ENV).is_ok_and(|filter| filter.contains("tower_http")) {
        return filter;
    }
    match "tower_http::trace::make_span=debug".parse() {
        Ok(requests) => filter.add_directive(requests),
        Err(_) => filter,
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
        self.handle.shutdown(timeout)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_over {
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
