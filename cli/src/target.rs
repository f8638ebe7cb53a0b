//! Servers as URLs: `otlp://host:4317`.

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::str::FromStr;

use astracer_exporters::{Compression, Destination, Otlp, Protocol, Zipkin};
use astracer_model::Format;
use astracer_model::text::{escaped, is_shown, without_secrets};
use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::failure::Failure;

/// A server to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: String,
    scheme: Scheme,
    /// `host:port`, and a path if one was given.
    rest: String,
    tls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    OtlpGrpc,
    OtlpHttp,
    Zipkin,
}

const SCHEMES: &[(&str, Scheme, bool)] = &[
    ("otlp", Scheme::OtlpGrpc, false),
    ("otlps", Scheme::OtlpGrpc, true),
    ("otlp+http", Scheme::OtlpHttp, false),
    ("otlp+https", Scheme::OtlpHttp, true),
    ("zipkin", Scheme::Zipkin, false),
    ("zipkin+https", Scheme::Zipkin, true),
];

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let found = url.split_once("://").and_then(|(scheme, rest)| {
            let known = SCHEMES.iter().find(|(name, ..)| *name == scheme)?;
            Some((known, rest.trim_end_matches('/')))
                .filter(|(_, rest)| names_server(rest) && rest.chars().all(is_of_url))
        });
        let Some((&(_, scheme, tls), rest)) = found else {
            return Err(format!(
                "invalid server address '{}': use otlp://HOST:PORT (gRPC), otlp+http://HOST:PORT or zipkin://HOST:PORT",
                escaped(&without_secrets(url))
            ));
        };
        Ok(Self { url: url.to_owned(), scheme, rest: rest.to_owned(), tls })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.url))
    }
}

/// Parses a target. clap's own message would quote the user info of an invalid one.
#[derive(Clone, Debug)]
pub(crate) struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = Target;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Target, clap::Error> {
        value.to_string_lossy().parse().map_err(|reason: String| {
            let of = arg.map(|arg| format!("for '{arg}': ")).unwrap_or_default();
            clap::Error::raw(ErrorKind::ValueValidation, format!("{of}{reason}\n")).with_cmd(command)
        })
    }
}

impl ValueParserFactory for Target {
    type Parser = TargetParser;

    fn value_parser() -> TargetParser {
        TargetParser
    }
}

impl Target {
    /// The format that is sent, which limits what spans can carry.
    pub(crate) fn format(&self) -> Format {
        match self.scheme {
            Scheme::OtlpGrpc | Scheme::OtlpHttp => Format::OtlpProto,
            Scheme::Zipkin => Format::ZipkinJson,
        }
    }

    /// True for OTLP over gRPC.
    pub(crate) fn is_grpc(&self) -> bool {
        self.scheme == Scheme::OtlpGrpc
    }

    /// The endpoint as an HTTP URL.
    fn endpoint(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let (server, query) = match self.rest.find('?') {
            Some(query) => self.rest.split_at(query),
            None => (&*self.rest, ""),
        };
        let path = if self.scheme == Scheme::Zipkin && !server.contains('/') { "/api/v2/spans" } else { "" };
        format!("{scheme}://{server}{path}{query}")
    }

    /// True if a server that listens on this address is this target, as far as name resolution
    /// shows.
    pub(crate) fn is_served_at(&self, listening: &SocketAddr) -> bool {
        let server = self.rest.split(['/', '?', '#']).next().unwrap_or_default();
        let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
        let default = if self.tls { 443 } else { 80 };
        let named = |server: &str| server.to_socket_addrs().map(|found| found.collect::<Vec<_>>());
        let found = named(server).or_else(|_| named(&format!("{server}:{default}")));
        let own = listening.ip().to_canonical();
        let is_here = |address: SocketAddr| {
            let ip = address.ip().to_canonical();
            // A connection to 0.0.0.0 reaches this machine, and 0.0.0.0 listens on all addresses.
            let is_own = ip == own
                || ip.is_unspecified() && own.is_loopback()
                || own.is_unspecified() && (ip.is_unspecified() || is_of_this_machine(ip));
            is_own && address.port() == listening.port()
        };
        listening.port() != 0 && found.is_ok_and(|found| found.into_iter().any(is_here))
    }

    /// Creates the client. Nothing is sent yet.
    pub(crate) fn connect(&self) -> Result<Box<dyn Destination>, Failure> {
        let endpoint = self.endpoint();
        let otlp = |protocol| {
            // The URL is given on the command line; headers, certificates and so on come from the
            // environment.
            let builder = Otlp::builder().with_compression(Compression::Gzip).with_strict_variables();
            let builder = builder.with_environment();
            builder
                .with_endpoint(&endpoint)
                .with_protocol(protocol)
                .build()
                .map(|otlp| Box::new(otlp) as Box<dyn Destination>)
        };
        let destination = match self.scheme {
            Scheme::OtlpGrpc => otlp(Protocol::Grpc),
            Scheme::OtlpHttp if asks_for_json() => otlp(Protocol::HttpJson),
            Scheme::OtlpHttp => otlp(Protocol::HttpProtobuf),
            Scheme::Zipkin => {
                let builder = Zipkin::builder().with_endpoint(&endpoint).with_compression(Compression::Gzip);
                builder.build().map(|zipkin| Box::new(zipkin) as Box<dyn Destination>)
            }
        };
        destination.map_err(|error| Failure::Job(format!("{self}: {error}")))
    }
}

/// True if this machine has the address: only then can a socket be bound to it.
fn is_of_this_machine(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// False for a URL without a host or with an invalid port.
fn names_server(rest: &str) -> bool {
    let server = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    let (host, port) = match server.rsplit_once(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (server, None),
    };
    !host.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Accepts internationalised host names, but nothing that could control a terminal.
fn is_of_url(char: char) -> bool {
    is_shown(char) && !char.is_whitespace()
}

/// True if the environment chooses JSON for OTLP over HTTP.
fn asks_for_json() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let protocol =
        variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    protocol.is_some_and(|protocol| protocol.trim().parse::<Protocol>() == Ok(Protocol::HttpJson))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |url: &str| url.parse::<Target>().map(|target| target.to_string());
        assert_eq!(shown("otlp+https://me:secret@h:1/x"), Ok("otlp+https://***@h:1/x".to_owned()));
        assert_eq!(shown("otlp://h:4317"), Ok("otlp://h:4317".to_owned()));
    }

    /// clap's own message quoted the value.
    #[test]
    fn user_info_of_invalid_addresses_is_not_shown() {
        let command = || Command::new("send").arg(Arg::new("to").long("to").value_parser(TargetParser));
        for url in ["otlp+http://user:s3cret@..:0", "http://user:s3cret@h:1", "user:s3cret@h"] {
            let error = command().try_get_matches_from(["send", "--to", url]).expect_err("invalid");
            let text = format!("{error} {error:?}");
            assert!(text.contains("***@") && text.contains("--to") && !text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_target_is_known_by_its_own_address() {
        let is_served = |url: &str, listening: &str| {
            let target: Target = url.parse().expect("a URL");
            target.is_served_at(&listening.parse().expect("an address"))
        };
        assert!(is_served("otlp://127.0.0.1:4317", "127.0.0.1:4317"));
        assert!(is_served("zipkin://me:secret@127.0.0.1:4317/x", "0.0.0.0:4317"));
        assert!(is_served("otlp+http://[::1]:1", "[::]:1"));
        // Other spellings of one address.
        for url in [
            "otlp://[::ffff:127.0.0.1]:4317",
            "otlp://0.0.0.0:4317",
            "otlp://[::]:4317?x",
            "otlp://127.1:4317",
        ] {
            assert!(is_served(url, "127.0.0.1:4317"), "{url}");
        }
        assert!(is_served("otlp://127.0.0.2:4317", "[::ffff:0.0.0.0]:4317"));
        assert!(is_served("otlp+http://127.0.0.1", "127.0.0.1:80"));
        assert!(!is_served("otlp://192.0.2.1:4317", "0.0.0.0:4317"));
        assert!(!is_served("otlp://127.0.0.1:4318", "127.0.0.1:4317"));
        assert!(!is_served("otlp://127.0.0.2:4317", "127.0.0.1:4317"));
    }

    #[test]
    fn a_server_has_a_host_and_a_port() {
        for wrong in
            ["otlp://", "otlp://:4317", "otlp://:", "otlp://h:", "otlp://h:0", "otlp://h:99999", "otlp://h:x"]
        {
            assert!(wrong.parse::<Target>().is_err_and(|error| error.contains("HOST:PORT")), "{wrong}");
        }
        for wrong in ["zipkin://me:secret@:9411/x", "otlp+http://[::1]:0", "otlp:///path"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
        for right in ["otlp://h", "otlp://[::1]", "otlp+http://[::1]:4318/v1", "zipkin://a:b@h:9411/x:y"] {
            assert!(right.parse::<Target>().is_ok(), "{right}");
        }
    }

    #[test]
    fn urls_name_protocol_and_server() {
        let endpoint = |url: &str| url.parse::<Target>().map(|target| (target.endpoint(), target.format()));
        assert_eq!(endpoint("otlp://h:4317"), Ok(("http://h:4317".to_owned(), Format::OtlpProto)));
        assert_eq!(endpoint("otlp+https://h:1/"), Ok(("https://h:1".to_owned(), Format::OtlpProto)));
        let token = endpoint("zipkin://h:9?token=a/b");
        assert_eq!(token, Ok(("http://h:9/api/v2/spans?token=a/b".to_owned(), Format::ZipkinJson)));
        assert_eq!(endpoint("zipkin://h:9"), Ok(("http://h:9/api/v2/spans".to_owned(), Format::ZipkinJson)));
        assert_eq!(endpoint("zipkin://h:9/x"), Ok(("http://h:9/x".to_owned(), Format::ZipkinJson)));
        for wrong in [
            "",
            "h:4317",
            "otlp://",
            "http://h:1",
            "otlp:h",
            "otlp://h 1",
            "otlp://h\n:1",
            "otlp://h\u{202e}",
        ] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
