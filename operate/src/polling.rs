//! A URL that serves the parameters file.
//!
//! The SDK's thread polls it. A request sends the ETag of the previous response (`If-None-Match`),
//! so that an unchanged file costs both sides little. Responses are bounded in size and time.

use std::fmt;
use std::io::Read as _;
#[cfg(feature = "polling-tls")]
use std::sync::Arc;
use std::time::Duration;

use astracer_sdk::{FetchParameters, ParametersSource};
use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// The longest response that is read; parameters files are shorter.
const BYTES_MAX: u64 = 2 << 20;
const REDIRECTS_MAX: u32 = 3;

/// A URL that serves the parameters file, for
/// [`Builder::with_polled_parameters`](astracer_sdk::Builder::with_polled_parameters).
#[derive(Clone)]
#[must_use]
pub struct Polling {
    url: String,
    every: Duration,
    timeout: Duration,
    headers: Vec<(String, String)>,
    #[cfg(feature = "polling-tls")]
    roots: Option<Vec<u8>>,
}

impl Polling {
    /// Polls this URL every minute. An `https` URL needs the feature `polling-tls`. Its server is
    /// verified with the system's certificates, unless others are set.
    pub fn new(url: impl Into<String>) -> Self {
        Polling {
            url: url.into(),
            every: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            headers: Vec::new(),
            #[cfg(feature = "polling-tls")]
            roots: None,
        }
    }

    /// Sets the time between a response and the next request; 60 seconds by default, at least one.
    pub fn with_interval(self, every: Duration) -> Self {
        Polling { every, ..self }
    }

    /// Sets the longest time for a request and its response; ten seconds by default.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Polling { timeout, ..self }
    }

    /// Adds a header to each request, for example `authorization`.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Trusts these certificate authorities, in PEM, instead of the system's.
    #[cfg(feature = "polling-tls")]
    pub fn with_root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        Polling { roots: Some(pem.into()), ..self }
    }

    fn client(&self) -> Result<Client, String> {
        const EXAMPLE: &str = "use for example http://config:8080/astracer.toml";
        let uri: Uri = self.url.parse().map_err(|error| format!("not a URL: {error}; {EXAMPLE}"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(format!("the URL has no scheme or host; {EXAMPLE}"));
        };
        if authority.as_str().contains('@') {
            return Err("messages would show a password in the URL; send it in a header".to_owned());
        }
        let is_tls = scheme == "https";
        if !is_tls && scheme != "http" {
            return Err(format!("unknown scheme `{scheme}`; use http or https"));
        }
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let (Ok(known), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
                // Leave the value out: it may be a secret.
                return Err(format!("{name:?} or its value is not valid in an HTTP header"));
            };
            headers.push((known, value));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .https_only(is_tls)
            .timeout_global(Some(self.timeout))
            .user_agent(concat!("astracer/", env!("CARGO_PKG_VERSION")));
        // A proxy from `HTTP_PROXY` and the like could not reach this machine's own servers.
        let config = if is_loopback(uri.host().unwrap_or_default()) { config.proxy(None) } else { config };
        #[cfg(feature = "polling-tls")]
        let config = if is_tls { config.tls_config(tls(self.roots.as_deref())?) } else { config };
        #[cfg(not(feature = "polling-tls"))]
        if is_tls {
            return Err(
                "https needs the feature `polling-tls`, which this program was built without".to_owned()
            );
        }
        let agent = config.build().new_agent();
        Ok(Client { agent, uri, headers, tag: None })
    }
}

impl ParametersSource for Polling {
    fn place(&self) -> String {
        without_password(&self.url)
    }

    fn interval(&self) -> Duration {
        self.every
    }

    fn open(self) -> Result<FetchParameters, String> {
        let mut client = self.client()?;
        Ok(Box::new(move || client.fetch()))
    }
}

/// Omits the headers, which may be secrets.
impl fmt::Debug for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling").field("url", &without_password(&self.url)).finish_non_exhaustive()
    }
}

fn without_password(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => url.to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(feature = "polling-tls")]
fn tls(own: Option<&[u8]>) -> Result<ureq::tls::TlsConfig, String> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
    let roots = match own {
        None => rustls_native_certs::load_native_certs().certs,
        Some(pem) => {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            read.map_err(|error| format!("the root certificates are not PEM: {error}"))?
        }
    };
    if roots.is_empty() {
        let remedy = "set those of your authority with Polling::with_root_certificates";
        return Err(format!("https needs a root certificate, and none was found; {remedy}"));
    }
    let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    Ok(config.build())
}

struct Client {
    agent: Agent,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The ETag of the last response with a file.
    tag: Option<HeaderValue>,
}

impl Client {
    /// The file, unless the server says that it is unchanged.
    fn fetch(&mut self) -> Result<Option<String>, String> {
        let mut request = self.agent.get(&self.uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(tag) = &self.tag {
            request = request.header("if-none-match", tag);
        }
        let mut response = request.call().map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            304 => return Ok(None),
            200 => {}
            status => return Err(format!("the server answered HTTP {status}")),
        }
        let tag = response.headers().get("etag").cloned();
        let mut text = Vec::new();
        let body = response.body_mut().as_reader().take(BYTES_MAX + 1).read_to_end(&mut text);
        body.map_err(|error| error.to_string())?;
        if text.len() as u64 > BYTES_MAX {
            return Err(format!("the response is longer than {BYTES_MAX} bytes"));
        }
        let text = String::from_utf8(text).map_err(|_| "the response is not UTF-8".to_owned())?;
        // Store the ETag only with a complete response, so that a truncated one is requested again.
        self.tag = tag;
        Ok(Some(text))
    }
}
