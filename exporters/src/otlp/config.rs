//! The settings of OTLP, from code and from `OTEL_EXPORTER_OTLP_*`.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use astracer_model::files;
use astracer_model::text::without_secrets;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::Otlp;
use crate::compression::Compression;
use crate::config::ConfigError;
use crate::sending::{BATCH_TIMEOUT, Sending, setters};

/// A transport and encoding of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`.
    HttpProtobuf,
    /// `http/json`.
    HttpJson,
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    /// Parses a name in upper or lower case, as OpenTelemetry specifies for the values of its
    /// variables.
    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        match name.to_ascii_lowercase().as_str() {
            "grpc" => Ok(Protocol::Grpc),
            "http/protobuf" => Ok(Protocol::HttpProtobuf),
            "http/json" => Ok(Protocol::HttpJson),
            _ => Err(UnknownProtocol(name.to_owned())),
        }
    }
}

/// A name that is not a protocol of OTLP.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownProtocol(String);

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown protocol `{}`: use grpc, http/protobuf or http/json", self.0)
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for UnknownProtocol {}

#[derive(Clone, Debug)]
enum Endpoint {
    /// HTTP appends the path for traces.
    Base(String),
    /// Used unchanged.
    Exact(String),
}

/// Settings of [`Otlp`], from [`Otlp::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OtlpBuilder {
    pub(super) protocol: Protocol,
    /// Where the protocol was set, for errors.
    pub(super) protocol_setting: String,
    endpoint: Option<Endpoint>,
    /// Where the endpoint was set, for errors.
    endpoint_setting: String,
    insecure: bool,
    headers: Vec<(String, String)>,
    headers_setting: String,
    pub(super) sending: Sending,
    signal: Signal,
    fault: Option<ConfigError>,
    /// Variables with unusable values that need not be refused.
    ignored: Vec<ConfigError>,
    is_strict: bool,
}

impl Default for OtlpBuilder {
    fn default() -> Self {
        OtlpBuilder {
            protocol: if cfg!(feature = "otlp-http") { Protocol::HttpProtobuf } else { Protocol::Grpc },
            protocol_setting: "protocol".to_owned(),
            endpoint: None,
            endpoint_setting: "endpoint".to_owned(),
            insecure: false,
            headers: Vec::new(),
            headers_setting: "header".to_owned(),
            sending: Sending::new(4 << 20),
            signal: Signal::Traces,
            fault: None,
            ignored: Vec::new(),
            is_strict: false,
        }
    }
}

/// Headers of each request.
pub(super) type Headers = Vec<(HeaderName, HeaderValue)>;

/// The kind of data that is sent; each has its own endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// The prefixes of the variables for this signal only, and of those for all signals.
    fn prefixes(self) -> [&'static str; 2] {
        match self {
            Signal::Traces => ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"],
            Signal::Metrics => ["OTEL_EXPORTER_OTLP_METRICS_", "OTEL_EXPORTER_OTLP_"],
        }
    }

    /// The path that HTTP appends to a base URL.
    fn path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        }
    }
}

/// Headers that describe a request's body and destination. A second value would make the request
/// invalid.
/// The greatest size of a file with certificates or a key.
const PEM_BYTES_MAX: u64 = 1 << 20;

const FRAMING: [HeaderName; 6] = [
    http::header::CONTENT_LENGTH,
    http::header::TRANSFER_ENCODING,
    http::header::CONTENT_ENCODING,
    http::header::CONTENT_TYPE,
    http::header::HOST,
    http::header::CONNECTION,
];

impl OtlpBuilder {
    /// Sets the protocol. Defaults to `http/protobuf` if the feature `otlp-http` is enabled, else
    /// `grpc`.
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self.protocol_setting = "protocol".to_owned();
        self
    }

    /// Sets the server: `http://host:port` or `https://host:port`. Over HTTP, `/v1/traces` is
    /// appended. Defaults to `http://localhost:4318`, or port 4317 for gRPC.
    pub fn with_endpoint(mut self, base: impl Into<String>) -> Self {
        self.endpoint = Some(Endpoint::Base(base.into()));
        self.endpoint_setting = "endpoint".to_owned();
        self
    }

    /// Sets the URL for traces, which is used unchanged.
    pub fn with_traces_endpoint(self, url: impl Into<String>) -> Self {
        self.with_exact_endpoint("traces_endpoint", url.into())
    }

    /// Makes [`build`](OtlpBuilder::build) refuse every variable with an unusable value. By default
    /// unknown names, numbers and booleans are ignored with a warning, as OpenTelemetry specifies.
    pub fn with_strict_variables(self) -> Self {
        OtlpBuilder { is_strict: true, ..self }
    }

    pub(super) fn ignored(&self) -> Vec<String> {
        self.ignored.iter().map(ConfigError::ignored).collect()
    }

    pub(super) fn with_signal(self, signal: Signal) -> Self {
        OtlpBuilder { signal, ..self }
    }

    #[cfg(feature = "otlp-grpc")]
    pub(super) fn signal(&self) -> Signal {
        self.signal
    }

    pub(super) fn with_exact_endpoint(mut self, setting: &str, url: String) -> Self {
        self.endpoint = Some(Endpoint::Exact(url));
        self.endpoint_setting = setting.to_owned();
        self
    }

    /// Adds a header to each request (gRPC: metadata).
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    setters!("4 MiB by default, the limit of most gRPC servers.");

    /// Sets the client certificate chain, our own certificate first, and its key, both in PEM.
    #[cfg(feature = "tls")]
    pub fn with_client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.sending.tls.client = Some((chain.into(), key.into()));
        self
    }

    /// Reads the environment: see [`with_variables`](OtlpBuilder::with_variables).
    pub fn with_environment(mut self) -> Self {
        let of_otlp = |name: &OsString| {
            name.to_str().map(str::to_owned).filter(|name| name.starts_with("OTEL_EXPORTER_OTLP_"))
        };
        let faulty = std::env::vars_os()
            .find_map(|(name, value)| if value.to_str().is_none() { of_otlp(&name) } else { None });
        if let Some(name) = faulty {
            // The value may be a secret.
            let fault = ConfigError::new(&name, "the value is not valid UTF-8: percent-encode it");
            self.fault.get_or_insert(fault);
        }
        self.with_variables(|name| std::env::var(name).ok())
    }

    /// Reads
    /// `OTEL_EXPORTER_OTLP_{ENDPOINT, PROTOCOL, HEADERS, TIMEOUT, COMPRESSION, INSECURE, CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY}`
    /// and `OTEL_BSP_EXPORT_TIMEOUT`. As OpenTelemetry's "Protocol exporter" specifies, a variable
    /// with `TRACES_` in its name takes precedence over the one without. All of them override
    /// earlier settings. `TIMEOUT` limits one attempt, and `OTEL_BSP_EXPORT_TIMEOUT` the age of a
    /// batch with all its attempts; 0 means no limit for either. `COMPRESSION` may also be `zstd`.
    ///
    /// An unknown protocol or compression, a timeout that is not a number and a value that is
    /// neither true nor false are ignored, with a warning once the service runs. For an invalid
    /// endpoint, header or certificate, [`build`](OtlpBuilder::build) fails: spans would go to the
    /// wrong place.
    pub fn with_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let prefixes = self.signal.prefixes();
        let get = |name: &str| -> Option<(String, String)> {
            let named = prefixes.iter().map(|prefix| format!("{prefix}{name}"));
            named
                .filter_map(|full| variable(&full).map(|value| (full, value.trim().to_owned())))
                .find(|(_, value)| !value.is_empty())
        };
        let batch_timeout = variable(BATCH_TIMEOUT).map(|value| value.trim().to_owned());
        if let Err(fault) = self.read(&get, batch_timeout.filter(|value| !value.is_empty())) {
            self.fault.get_or_insert(fault);
        }
        self
    }

    fn read(
        &mut self,
        get: &dyn Fn(&str) -> Option<(String, String)>,
        batch_timeout: Option<String>,
    ) -> Result<(), ConfigError> {
        if let Some((name, value)) = get("PROTOCOL") {
            match value.parse() {
                Ok(protocol) => (self.protocol, self.protocol_setting) = (protocol, name),
                Err(error) => {
                    let error: UnknownProtocol = error;
                    self.ignored.push(ConfigError::new(&name, error.to_string()));
                }
            }
        }
        if let Some((name, value)) = get("ENDPOINT") {
            let exact = name.starts_with(self.signal.prefixes()[0]);
            self.endpoint = Some(if exact { Endpoint::Exact(value) } else { Endpoint::Base(value) });
            self.endpoint_setting = name;
        }
        if let Some((name, value)) = get("INSECURE") {
            match value.to_ascii_lowercase().as_str() {
                "true" => self.insecure = true,
                "false" => self.insecure = false,
                _ => {
                    let reason = format!("invalid boolean `{value}`: use true or false");
                    self.ignored.push(ConfigError::new(&name, reason));
                }
            }
        }
        if let Some((name, value)) = get("HEADERS") {
            self.headers = header_list(&value).map_err(|reason| ConfigError::new(&name, reason))?;
            self.headers_setting = name;
        }
        if let Some((name, value)) = get("TIMEOUT") {
            self.ignored.extend(self.sending.read_timeout(&name, &value).err());
        }
        if let Some(value) = batch_timeout {
            self.ignored.extend(self.sending.read_batch_timeout(BATCH_TIMEOUT, &value).err());
        }
        if let Some((name, value)) = get("COMPRESSION") {
            match compression(&value) {
                Ok(compression) => self.sending.compression = compression,
                Err(reason) => self.ignored.push(ConfigError::new(&name, reason)),
            }
        }
        self.read_certificates(get)
    }

    fn read_certificates(
        &mut self,
        get: &dyn Fn(&str) -> Option<(String, String)>,
    ) -> Result<(), ConfigError> {
        let file = |name: &str| -> Result<Option<(String, Vec<u8>)>, ConfigError> {
            let Some((name, path)) = get(name) else { return Ok(None) };
            if !cfg!(feature = "tls") {
                return Err(ConfigError::new(&name, crate::NO_TLS));
            }
            match files::read(Path::new(&path), PEM_BYTES_MAX) {
                Ok(bytes) => Ok(Some((name, bytes))),
                Err(error) => Err(ConfigError::new(&name, format!("cannot read `{path}`: {error}"))),
            }
        };
        let (roots, chain, key) = (file("CERTIFICATE")?, file("CLIENT_CERTIFICATE")?, file("CLIENT_KEY")?);
        match (&chain, &key) {
            (Some((name, _)), None) | (None, Some((name, _))) => {
                let reason = "a client certificate needs both the certificate and its key";
                return Err(ConfigError::new(name, reason));
            }
            _ => {}
        }
        #[cfg(feature = "tls")]
        {
            if let Some((_, roots)) = roots {
                self.sending.tls.roots = Some(roots);
            }
            if let (Some((_, chain)), Some((_, key))) = (chain, key) {
                self.sending.tls.client = Some((chain, key));
            }
        }
        #[cfg(not(feature = "tls"))]
        drop(roots);
        Ok(())
    }

    /// Builds the destination. Nothing is sent, and the server need not be running yet.
    ///
    /// # Errors
    ///
    /// If a setting or variable is invalid, or needs a feature that the program was built without.
    pub fn build(self) -> Result<Otlp, ConfigError> {
        let (builder, uri, headers) = self.checked()?;
        Otlp::new(builder, uri, headers)
    }

    /// Validates the settings, and parses the endpoint and headers.
    pub(super) fn checked(mut self) -> Result<(Self, Uri, Headers), ConfigError> {
        // Metrics have no way to report a warning.
        let is_strict = self.is_strict || self.signal == Signal::Metrics;
        if is_strict && let Some(fault) = self.ignored.first() {
            return Err(fault.clone());
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let uri = self.uri().map_err(|reason| ConfigError::new(&self.endpoint_setting, reason))?;
        if uri.scheme_str() == Some("https") && !cfg!(feature = "tls") {
            return Err(ConfigError::new(&self.endpoint_setting, crate::NO_TLS));
        }
        let headers = self.headers().map_err(|reason| ConfigError::new(&self.headers_setting, reason))?;
        Ok((self, uri, headers))
    }

    fn headers(&self) -> Result<Headers, String> {
        let header = |(name, value): &(String, String)| {
            let parsed = HeaderName::from_str(name).map_err(|_| format!("invalid header name `{name}`"))?;
            if FRAMING.contains(&parsed) {
                return Err(format!("the exporter itself sets the header `{parsed}`: remove it"));
            }
            // The value may be a secret, so errors do not show it.
            let value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of header `{name}` has characters that are not allowed"))?;
            Ok((parsed, value))
        };
        self.headers.iter().map(header).collect()
    }

    /// The URL to which requests are sent.
    fn uri(&self) -> Result<Uri, String> {
        let grpc = self.protocol == Protocol::Grpc;
        let (text, exact) = match &self.endpoint {
            None if grpc => ("http://localhost:4317", false),
            None => ("http://localhost:4318", false),
            Some(Endpoint::Base(text)) => (text.as_str(), false),
            Some(Endpoint::Exact(text)) => (text.as_str(), true),
        };
        let safe = without_secrets(text);
        let text = match text.contains("://") {
            true => text.to_owned(),
            // OpenTelemetry specifies this for gRPC endpoints without a scheme.
            false if grpc => format!("{}://{text}", if self.insecure { "http" } else { "https" }),
            false => return Err(format!("`{safe}` has no scheme: use http://{safe} or https://{safe}")),
        };
        let mut parts =
            text.parse::<Uri>().map_err(|error| format!("invalid URL `{safe}`: {error}"))?.into_parts();
        let scheme = parts.scheme.as_ref().map_or("", |scheme| scheme.as_str());
        if !matches!(scheme, "http" | "https") {
            return Err(format!("unsupported scheme `{scheme}`: use http or https"));
        }
        let given = parts.path_and_query.as_ref();
        let (path, query) = (given.map_or("/", PathAndQuery::path), given.and_then(PathAndQuery::query));
        let mut path = match (grpc, exact) {
            (false, false) => format!("{}{}", path.trim_end_matches('/'), self.signal.path()),
            _ => path.to_owned(),
        };
        if let Some(query) = query {
            path = format!("{path}?{query}");
        }
        parts.path_and_query = Some(path.parse().map_err(|error| format!("invalid URL `{safe}`: {error}"))?);
        Uri::from_parts(parts).map_err(|error| format!("invalid URL `{safe}`: {error}"))
    }
}

fn compression(name: &str) -> Result<Compression, String> {
    match name.to_ascii_lowercase().as_str() {
        "none" => Ok(Compression::None),
        #[cfg(feature = "gzip")]
        "gzip" => Ok(Compression::Gzip),
        #[cfg(feature = "zstd")]
        "zstd" => Ok(Compression::Zstd),
        #[cfg(not(feature = "gzip"))]
        "gzip" => Err(without("gzip")),
        #[cfg(not(feature = "zstd"))]
        "zstd" => Err(without("zstd")),
        _ => Err(format!("unknown compression `{name}`: use gzip, zstd or none")),
    }
}

/// Parses `name=value,name=value`, with values percent-encoded as in W3C Baggage.
fn header_list(text: &str) -> Result<Vec<(String, String)>, String> {
    let header = |part: &str| {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| "a header lacks '=': use name=value, separated by commas".to_owned())?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| format!("the value of header `{}` is not UTF-8", name.trim()))?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(header).collect()
}

#[cfg(not(all(feature = "gzip", feature = "zstd")))]
fn without(feature: &str) -> String {
    format!("this program was built without the feature `{feature}` of astracer")
}

#[cfg(test)]
mod tests;
