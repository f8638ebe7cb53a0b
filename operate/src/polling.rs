//! A URL that serves the parameters file.
//!
//! The SDK's thread polls it. A request sends the ETag of the previous response (`If-None-Match`),
//! so that an unchanged file costs both sides little. Responses are bounded in size and time.

use std::fmt;
use std::io::Read as _;
#[cfg(feature = "polling-tls")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use astracer_sdk::{FetchParameters, ParametersSource};
use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue, Response, Uri};

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
    /// Polls this URL every minute. Redirects are followed to the same scheme, host and port only,
    /// three at most. An `https` URL needs the feature `polling-tls`. Its server is
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
            // The client follows them itself, within the origin.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .https_only(is_tls)
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
        Ok(Client { agent, uri, headers, timeout: self.timeout, tag: None })
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
    /// The time limit of a request with its redirects.
    timeout: Duration,
    /// The ETag of the last response with a file.
    tag: Option<HeaderValue>,
}

/// Resolves the location of a redirect (RFC 3986, section 5.2, without dot segments). It must have
/// the same origin: the headers may be secrets, and another origin was not chosen.
fn redirected(from: &Uri, location: &str) -> Result<Uri, String> {
    let unusable = || "the server redirects to a location that is not a URL".to_owned();
    let (Some(scheme), Some(authority)) = (from.scheme_str(), from.authority()) else {
        return Err(unusable());
    };
    let location = location.split('#').next().unwrap_or_default();
    let has_scheme = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
    let whole = if has_scheme {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = match location.as_bytes().first() {
            Some(b'/') => location.to_owned(),
            Some(b'?') => format!("{}{location}", from.path()),
            _ => format!("{folder}/{location}"),
        };
        format!("{scheme}://{authority}{path}")
    };
    let uri: Uri = whole.parse().map_err(|_| unusable())?;
    if origin(&uri) != origin(from) {
        // Without the path, the query and a password, which may be secrets.
        let (scheme, host, port) = origin(&uri);
        return Err(format!(
            "the server redirects to {scheme}://{host}:{port}, another origin; set that URL"
        ));
    }
    Ok(uri)
}

/// The scheme, host and port, in the form that is compared (RFC 6454, section 4).
fn origin(uri: &Uri) -> (String, String, u16) {
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, uri.host().unwrap_or_default().to_ascii_lowercase(), port)
}

impl Client {
    fn get(&self, uri: &Uri, timeout: Duration) -> Result<Response<ureq::Body>, String> {
        let mut request = self.agent.get(uri).config().timeout_global(Some(timeout)).build();
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(tag) = &self.tag {
            request = request.header("if-none-match", tag);
        }
        request.call().map_err(|error| error.to_string())
    }

    /// The file, unless the server says that it is unchanged.
    fn fetch(&mut self) -> Result<Option<String>, String> {
        let begun = Instant::now();
        let mut uri = self.uri.clone();
        let mut redirects = 0;
        let mut response = loop {
            let response = self.get(&uri, self.timeout.saturating_sub(begun.elapsed()))?;
            let location = match response.status().as_u16() {
                301..=303 | 307 | 308 => response.headers().get("location"),
                _ => break response,
            };
            redirects += 1;
            if redirects > REDIRECTS_MAX {
                return Err(format!("the server redirects more than {REDIRECTS_MAX} times"));
            }
            let location = location.and_then(|location| location.to_str().ok());
            uri = redirected(&uri, location.ok_or("the server redirects without a location")?)?;
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_within_the_origin() {
        let from: Uri = "http://config:80/a/b.toml?x=1".parse().unwrap();
        for (location, expected) in [
            ("/c.toml", "http://config:80/c.toml"),
            ("c.toml?y=2#z", "http://config:80/a/c.toml?y=2"),
            ("?y=2", "http://config:80/a/b.toml?y=2"),
            ("http://CONFIG/c", "http://CONFIG/c"),
            ("//config/c", "http://config/c"),
        ] {
            assert_eq!(redirected(&from, location).map(|uri| uri.to_string()).as_deref(), Ok(expected));
        }
        for location in [
            "https://config/a",
            "http://config:8080/a",
            "http://other/a",
            "//other/a?token=s3cret",
            "http://config@other/",
            "file:///etc/passwd",
            "http://[",
        ] {
            let fault = redirected(&from, location).unwrap_err();
            assert!(fault.starts_with("the server redirects to ") && !fault.contains("s3cret"), "{fault}");
        }
    }
}
