//! Refuses requests for other hosts while the receiver listens on loopback.
//!
//! A web page can let the name of its own server resolve to 127.0.0.1 ("DNS rebinding"). The
//! browser then takes the receiver for that server and sends it anything. But it also sends the
//! name, by which such a request is recognised.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, Uri};

use crate::answer::Refused;
use crate::counts::Refusal;

/// The host of a request that must be refused, as an extension of the request.
#[derive(Clone, Debug)]
struct Stranger(String);

/// An extension of a request that names more than one host in headers.
#[derive(Clone, Debug)]
struct Ambiguous;

/// Marks a request that names a host other than this machine's loopback and the `allowed` ones.
pub(crate) fn mark<B>(request: &mut Request<B>, allowed: &[String]) {
    if request.headers().get_all(HOST).iter().count() > 1 {
        request.extensions_mut().insert(Ambiguous);
    }
    if let Some(host) = stranger(request.uri(), request.headers(), allowed) {
        request.extensions_mut().insert(Stranger(host));
    }
}

/// Refuses a marked request.
pub(crate) fn check(extensions: &hyper::http::Extensions) -> Result<(), Refused> {
    if extensions.get::<Ambiguous>().is_some() {
        // RFC 9112, section 3.2: this and a proxy could each believe another one.
        return Err(Refused::new(Refusal::Bad, "more than one Host header"));
    }
    let Some(Stranger(host)) = extensions.get() else { return Ok(()) };
    let message = format!(
        "this receiver listens on loopback and does not know the host {host:?}; if the request is wanted, start the \
         receiver with --host {host}"
    );
    Err(Refused::new(Refusal::Host, message))
}

/// HTTP/2 and absolute targets name the host in the URI, HTTP/1.1 in a header. A request without a
/// host does not come from a browser.
fn stranger(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Option<String> {
    let named = headers.get_all(HOST).iter().map(|host| {
        let authority = Authority::try_from(host.as_bytes());
        authority.map(|authority| authority.host().to_owned()).map_err(|_| host)
    });
    let unreadable = "(not readable)".to_owned();
    let named = named.map(|host| host.unwrap_or_else(|_| unreadable.clone()));
    uri.host().map(str::to_owned).into_iter().chain(named).find(|host| !is_known(host, allowed))
}

fn is_known(host: &str, allowed: &[String]) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ip.to_canonical());
    host.eq_ignore_ascii_case("localhost")
        || ip.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
        || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_and_configured_hosts_are_known() {
        let allowed = ["host.docker.internal".to_owned()];
        let found = |uri: &str, host: &str| {
            let mut request = Request::builder().uri(uri);
            if !host.is_empty() {
                request = request.header(HOST, host);
            }
            let request = request.body(()).unwrap();
            stranger(request.uri(), request.headers(), &allowed)
        };
        for host in [
            "",
            "localhost:4318",
            "LOCALHOST",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:4318",
            "Host.docker.internal:1",
        ] {
            assert_eq!(found("/v1/traces", host), None, "{host}");
        }
        for host in
            ["evil.example:4318", "192.0.2.1", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]
        {
            assert!(found("/v1/traces", host).is_some(), "{host}");
        }
        assert_eq!(found("http://evil.example/v1/traces", "localhost"), Some("evil.example".to_owned()));
        assert_eq!(found("http://localhost/v1/traces", "evil.example"), Some("evil.example".to_owned()));
    }
}
