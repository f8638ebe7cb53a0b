//! Configuration from the environment and from a parameters file.
//!
//! A setting that cannot be used is a fault, with the variable, or the file and line. So is an
//! OpenTelemetry variable that is set but has no effect here, because ignoring it silently would
//! mislead. [`OnFault`](crate::OnFault) says whether the service starts with a warning, which names
//! the default in use, or not at all.

use std::path::Path;
use std::time::Duration;

use astracer_model::files;
use astracer_samplers::{Config, ConfigError, Probability, Ratio};
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;

use super::{Builder, default_sampler, with_attributes};
use crate::decider::ParentDecision;
#[cfg(feature = "parameters")]
use crate::fault::SteerError;
use crate::fault::{Fault, Origin};
use crate::propagation::{Propagator, percent_decoded};
use astracer_spans::record::SpanLimits;

const KEPT: &str = "the previous setting";

const QUEUE_SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
/// The specification's default, which operators set without a need.
const QUEUE_SIZE_DEFAULT: &str = "2048";

/// Whether `astracer_file` follows changes of its file. OpenTelemetry has no variable for this.
const WATCH: &str = "ASTRACER_PARAMETERS_WATCH";

const TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";

/// Variables of the specification that this SDK does not implement, each with its substitute.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    (QUEUE_SIZE, "the queue is bounded in bytes, by Builder::with_queue_bytes_max"),
    (TRACES_EXPORTER, "the service chooses its exporter in code"),
    ("OTEL_CONFIG_FILE", "use variables, the builder or a parameters file"),
    ("OTEL_EXPERIMENTAL_CONFIG_FILE", "use variables, the builder or a parameters file"),
];

/// # Environment and files
impl Builder {
    /// Applies the process environment: `OTEL_SDK_DISABLED`, `OTEL_SERVICE_NAME`,
    /// `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and `_ARG`, `OTEL_PROPAGATORS`,
    /// `OTEL_BSP_SCHEDULE_DELAY`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` and the limits
    /// `OTEL_(SPAN_|EVENT_|LINK_)*_LIMIT`. It overrides earlier calls, and later calls override it.
    /// If a resource was set before, its attributes stay unless a variable gives them another
    /// value.
    ///
    /// Some variables of the specification have no effect here, and setting one is a [`Fault`]:
    /// `OTEL_BSP_MAX_QUEUE_SIZE` (unless it is the default, 2048), `OTEL_TRACES_EXPORTER` (unless
    /// it is `otlp` or `none`), `OTEL_CONFIG_FILE` and `OTEL_EXPERIMENTAL_CONFIG_FILE`. Exporters
    /// read the `OTEL_EXPORTER_*` variables and `OTEL_BSP_EXPORT_TIMEOUT` themselves.
    ///
    /// `OTEL_TRACES_SAMPLER` accepts two values besides those of the specification:
    ///
    /// - `astracer` takes the sampler as text from `OTEL_TRACES_SAMPLER_ARG`; without it,
    ///   `bump:lambda=10,min=0.01,window=1s`.
    /// - `astracer_file` takes the path of a parameters file from there: see
    ///   [`with_parameters_file`](Self::with_parameters_file). It follows the changes of the file
    ///   while the service runs, unless `ASTRACER_PARAMETERS_WATCH` is `false`.
    pub fn with_environment(self) -> Self {
        self.with_variables(|name| match std::env::var(name) {
            Ok(value) => Some(value),
            Err(std::env::VarError::NotPresent) => None,
            // Every setting is valid Unicode, so its parser rejects the replacement characters.
            Err(std::env::VarError::NotUnicode(value)) => Some(value.to_string_lossy().into_owned()),
        })
    }

    /// Like [`Builder::with_environment`], with values from `variable` instead of the process
    /// environment.
    pub fn with_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        self.reads_variables = true;
        // "Empty" means "not set" (OpenTelemetry specification, "Parsing Empty Value").
        let get = |name: &'static str| variable(name).filter(|value| !value.trim().is_empty());
        if let Some(disabled) = self.read("OTEL_SDK_DISABLED", "false", get, boolean) {
            self = self.with_enabled(!disabled);
        }
        self = self.resource_variables(get);
        self = self.sampler_variables(get);
        if let Some(propagators) =
            self.read("OTEL_PROPAGATORS", "tracecontext,baggage", get, Propagator::parse_list)
        {
            self = self.with_propagators(propagators);
        }
        self = self.limit_variables(get);
        if let Some(delay) = self.read("OTEL_BSP_SCHEDULE_DELAY", KEPT, get, milliseconds) {
            self = self.with_batch_delay(delay);
        }
        if let Some(spans) = self.read("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", KEPT, get, positive) {
            self = self.with_batch_spans(spans as usize);
        }
        if let Some(exporter) = get(TRACES_EXPORTER) {
            self.wants_no_exporter = exporter.trim().eq_ignore_ascii_case("none");
        }
        for (name, instead) in WITHOUT_EFFECT {
            // These values ask for the behaviour that the service has in any case.
            let harmless = |value: &String| match name {
                // The exporter is chosen in code, or by `astracer::init` as the variable says.
                TRACES_EXPORTER => ["none", "otlp"].iter().any(|own| value.trim().eq_ignore_ascii_case(own)),
                QUEUE_SIZE => value.trim() == QUEUE_SIZE_DEFAULT,
                _ => false,
            };
            let set = get(name).filter(|value| !harmless(value));
            if let Some(value) = set {
                let message = format!("`{value}` has no effect here: {instead}; unset it");
                self.faults.push(Fault { origin: Origin::Variable(name), message, default: KEPT });
            }
        }
        self
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        default: &'static str,
        get: impl Fn(&'static str) -> Option<String>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(get(name)?.trim()) {
            Ok(value) => Some(value),
            Err(message) => {
                self.faults.push(Fault { origin: Origin::Variable(name), message, default });
                None
            }
        }
    }

    fn resource_variables(mut self, get: impl Fn(&'static str) -> Option<String> + Copy) -> Self {
        let attributes = self.read("OTEL_RESOURCE_ATTRIBUTES", "no attributes", get, resource_attributes);
        let service = get("OTEL_SERVICE_NAME");
        let before = self.resource.take().unwrap_or_else(|| {
            // OpenTelemetry's own environment detector is left out: it would read the variables of
            // the process again, and use parts of a faulty value.
            let detected = Resource::builder_empty().with_detector(Box::new(TelemetryResourceDetector));
            detected.with_service_name(unknown_service()).build()
        });
        let service = service.map(|service| KeyValue::new("service.name", service));
        // If an attribute is given twice, the later value counts.
        let own = attributes.unwrap_or_default().into_iter().chain(service);
        self.resource = Some(with_attributes(&before, own));
        self
    }

    fn sampler_variables(mut self, get: impl Fn(&'static str) -> Option<String> + Copy) -> Self {
        const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let Some(name) = get(SAMPLER) else { return self };
        let argument = get(ARGUMENT);
        // "Enum values SHOULD be interpreted in a case-insensitive manner" (OpenTelemetry
        // specification, "Enum").
        let lower = name.trim().to_ascii_lowercase();
        let config = match &*lower {
            "always_on" | "parentbased_always_on" => Ok(Config::Always),
            "always_off" | "parentbased_always_off" => Ok(Config::Never),
            "traceidratio" | "parentbased_traceidratio" => ratio_config(argument.as_deref().unwrap_or("1")),
            "astracer" => match argument {
                None => Ok(default_sampler()),
                Some(text) => text.parse().map_err(|error: ConfigError| error.to_string()),
            },
            "astracer_file" => return self.file_variable(ARGUMENT, argument, get),
            _ => {
                let known = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, \
                             parentbased_traceidratio, astracer, astracer_file";
                let message = format!("unknown sampler `{}`: use one of {known}", name.trim());
                return self.with_fault(Origin::Variable(SAMPLER), message);
            }
        };
        let asks_always = matches!(&*lower, "always_on" | "always_off" | "traceidratio");
        match config {
            Ok(config) => {
                self.parents = if asks_always { ParentDecision::Ignore } else { ParentDecision::Respect };
                self.with_sampler(config)
            }
            Err(message) => self.with_fault(Origin::Variable(ARGUMENT), message),
        }
    }

    fn file_variable(
        mut self,
        variable: &'static str,
        path: Option<String>,
        get: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        let Some(path) = path else {
            let message = "not set; give the path of a parameters file".to_owned();
            return self.with_fault(Origin::Variable(variable), message);
        };
        let path = path.trim();
        let _watches = self.read(WATCH, "true", get, boolean).unwrap_or(true);
        if let Err(error) = files::open(Path::new(path)) {
            return self.with_fault(Origin::Variable(variable), format!("cannot open `{path}`: {error}"));
        }
        self.parents = ParentDecision::Respect;
        #[cfg(feature = "parameters")]
        if _watches {
            return self.with_watched_parameters_file(path);
        }
        self.with_parameters_file(path)
    }

    fn limit_variables(mut self, get: impl Fn(&'static str) -> Option<String> + Copy) -> Self {
        let mut limits = self.settings.limits;
        // General limits first: they apply unless a specific one is set (OpenTelemetry
        // specification, "Configurable Parameters" of attribute limits).
        type Set = fn(&mut SpanLimits, u32);
        let variables: [(&'static str, Set); 8] = [
            ("OTEL_ATTRIBUTE_COUNT_LIMIT", |limits, max| {
                (limits.attributes, limits.attributes_per_event, limits.attributes_per_link) =
                    (max, max, max);
            }),
            ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", |limits, max| limits.attributes = max),
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", |limits, max| limits.text_length = max),
            ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", |limits, max| limits.text_length = max),
            ("OTEL_SPAN_EVENT_COUNT_LIMIT", |limits, max| limits.events = max),
            ("OTEL_SPAN_LINK_COUNT_LIMIT", |limits, max| limits.links = max),
            ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", |limits, max| limits.attributes_per_event = max),
            ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", |limits, max| limits.attributes_per_link = max),
        ];
        for (name, set) in variables {
            if let Some(max) = self.read(name, KEPT, get, whole) {
                set(&mut limits, max);
            }
        }
        self.with_span_limits(limits)
    }

    /// Takes the sampler, the key and the source of randomness from a parameters file written by
    /// the tuner. The file's cap, budget and tail policies also replace those of
    /// [`with_cap`](Self::with_cap), [`with_budget`](Self::with_budget) and
    /// [`with_tail`](Self::with_tail), each only if the file has it. Later calls override the file.
    #[cfg(feature = "parameters")]
    pub fn with_parameters_file(self, path: impl AsRef<Path>) -> Self {
        self.with_parameters_of(path.as_ref()).0
    }

    /// Without the feature `parameters` no parameters file can be read, so each call is a fault.
    #[cfg(not(feature = "parameters"))]
    pub fn with_parameters_file(self, path: impl AsRef<Path>) -> Self {
        let message = "this program was built without the feature `parameters` of astracer".to_owned();
        self.with_fault(Origin::File(path.as_ref().to_owned(), None), message)
    }

    /// Like [`Builder::with_parameters_file`]; also returns the file's text if it was applied.
    #[cfg(feature = "parameters")]
    pub(super) fn with_parameters_of(self, path: &Path) -> (Self, Option<String>) {
        let text = match files::read_text(path, astracer_samplers::parameters::BYTES_MAX as u64) {
            Ok(text) => text,
            Err(error) => {
                return (self.with_fault(Origin::File(path.to_owned(), None), error.to_string()), None);
            }
        };
        let mut builder = self;
        match text.parse().map_err(SteerError::from) {
            Ok(parameters) => {
                builder.take(parameters);
                (builder, Some(text))
            }
            Err(error) => {
                // The fault prints the line after the file.
                let fault = Origin::File(path.to_owned(), error.line());
                (builder.with_fault(fault, error.reason().to_owned()), None)
            }
        }
    }

    pub(super) fn with_fault(mut self, origin: Origin, message: String) -> Self {
        self.faults.push(Fault { origin, message, default: KEPT });
        self
    }
}

/// The default `service.name` (OpenTelemetry's semantic conventions).
fn unknown_service() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.map_or_else(|| "unknown_service".to_owned(), |name| format!("unknown_service:{name}"))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Ok(true),
        _ if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u32::MAX))
}

fn positive(text: &str) -> Result<u32, String> {
    whole(text).and_then(|n| if n == 0 { Err("`0` is too small: use 1 or more".to_owned()) } else { Ok(n) })
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    whole(text).map(|millis| Duration::from_millis(u64::from(millis)))
}

fn ratio_config(text: &str) -> Result<Config, String> {
    let text = text.trim();
    let ratio: f64 = text.parse().map_err(|_| format!("`{text}` is not a number; write for example 0.1"))?;
    let probability =
        Probability::new(ratio).ok_or_else(|| format!("`{ratio}` is not a ratio: it must be from 0 to 1"))?;
    if probability == Probability::ZERO {
        return Ok(Config::Never);
    }
    Ratio::new(probability).map(Config::Ratio).map_err(|error| error.to_string())
}

/// `key=value,key=value`, percent-encoded (OpenTelemetry specification, "Specifying resource
/// information via an environment variable").
fn resource_attributes(text: &str) -> Result<Vec<KeyValue>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not of the form key=value"))?;
            let decode = |text: &str| {
                let (bytes, is_whole) = percent_decoded(text.trim());
                let decoded = String::from_utf8(bytes).ok().filter(|_| is_whole);
                decoded.ok_or_else(|| format!("`{part}` is not percent-encoded UTF-8"))
            };
            let key = decode(key)?;
            if key.is_empty() {
                return Err(format!("`{part}` has no key before `=`"));
            }
            Ok(KeyValue::new(key, decode(value)?))
        })
        .collect()
}
