//! Endpoints: the node where a span ran, and its peer.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::super::json::{Cursor, Fault};
use astracer_model::span::{PeerField, Resource, Span, SpanKind, lookup};
use astracer_model::value::{Attribute, Value};

const SERVICE_NAME: &str = "service.name";
const HOST_IP: &str = "net.host.ip";
const HOST_PORT: &str = "net.host.port";
const LOCAL_IPV6: &str = "zipkin.local.ipv6";

const PEER_SERVICE: &str = "peer.service";
const PEER_ADDRESS: &str = "network.peer.address";
const PEER_PORT: &str = "network.peer.port";
const REMOTE_IPV6: &str = "zipkin.remote.ipv6";

/// The attributes of a remote endpoint's parts: service, address, second address, port.
const PARTS: [&str; 4] = [PEER_SERVICE, PEER_ADDRESS, REMOTE_IPV6, PEER_PORT];

/// The service name of a resource without one, as in OpenTelemetry's default resource.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// A node in the service graph. Unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoint<'a> {
    pub(super) service: Cow<'a, str>,
    pub(super) ipv4: Cow<'a, str>,
    pub(super) ipv6: Cow<'a, str>,
    /// 0 if unknown.
    pub(super) port: u16,
}

/// Attributes that name a peer or its address, in descending rank: the order of the OpenTelemetry
/// to Zipkin transformation.
const PEERS: &[Peer] = &[
    Peer::name(PEER_SERVICE, true),
    Peer::name("server.address", false),
    Peer::name("net.peer.name", true),
    Peer::socket(PEER_ADDRESS, PEER_PORT, true),
    Peer::name("server.socket.domain", false),
    Peer::socket("server.socket.address", "server.socket.port", false),
    Peer::name("net.sock.peer.name", true),
    Peer::socket("net.sock.peer.addr", "net.sock.peer.port", true),
    // Not in the specification's list, but the Collector's own translation from Zipkin wrote it for
    // years.
    Peer::socket("net.peer.ip", "net.peer.port", true),
    Peer::name("peer.hostname", true),
    Peer::socket("peer.address", "", true),
    Peer::name("db.name", false),
];

/// Prefixes of the keys in [`PEERS`] and [`REMOTE_IPV6`].
const PEER_PREFIXES: &[&str] = &["peer.", "server.", "net", "db.", "zipkin."];

struct Peer {
    key: &'static str,
    is_socket: bool,
    /// The key of a socket's port; empty if the address contains it.
    port_key: &'static str,
    /// False for attributes that describe the peer only on the client side of a call. On the server
    /// side they describe the server itself.
    always: bool,
}

impl Peer {
    const fn name(key: &'static str, always: bool) -> Self {
        Self { key, is_socket: false, port_key: "", always }
    }

    const fn socket(key: &'static str, port_key: &'static str, always: bool) -> Self {
        Self { key, is_socket: true, port_key, always }
    }
}

impl<'a> Endpoint<'a> {
    /// Reads an endpoint; `null` means an unknown endpoint.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Fault> {
        let mut endpoint = Self::default();
        cursor.object(|cursor, key| {
            match &*key {
                "serviceName" => endpoint.service = cursor.text_or_null()?,
                "ipv4" => endpoint.ipv4 = cursor.text_or_null()?,
                "ipv6" => endpoint.ipv6 = cursor.text_or_null()?,
                "port" => {
                    endpoint.port = cursor.or_unset(|cursor| {
                        let at = cursor.at();
                        u16::try_from(cursor.u64()?).or_else(|_| cursor.fault_at(at, "invalid port"))
                    })?;
                }
                _ => drop(cursor.skip()?),
            }
            Ok(())
        })?;
        Ok(endpoint)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The endpoint that a resource describes.
    pub(super) fn local(resource: &'a Resource) -> Self {
        let mut endpoint = Self { service: resource.service_name().into(), ..Self::default() };
        if endpoint.service.is_empty() {
            endpoint.service = UNKNOWN_SERVICE.into();
        }
        for attribute in resource.attributes.iter().filter(|attribute| is_local(attribute)) {
            match (&*attribute.key, &attribute.value) {
                (HOST_IP | LOCAL_IPV6, Value::String(text)) => drop(endpoint.take_ip(text)),
                (HOST_PORT, value) => endpoint.port = port(value).unwrap_or(0),
                _ => {}
            }
        }
        endpoint
    }

    /// A span's peer. If the span came from Zipkin with parts of a remote endpoint, these parts are
    /// restored; otherwise the peer is what the attributes describe.
    pub(super) fn of_peer(span: &'a Span<'_>) -> Option<Self> {
        let parts = match span.wording.peer {
            PeerField::AsAttributes => return Self::remote(span.kind, &span.attributes),
            PeerField::Parts(parts) => parts,
            _ => return None,
        };
        let mut endpoint = Self::default();
        let held = PARTS.into_iter().zip(parts).filter(|&(_, is_part)| is_part);
        for (key, value) in held.filter_map(|(key, _)| Some((key, lookup(&span.attributes, key)?))) {
            match (key, value) {
                (PEER_SERVICE, Value::String(text)) => endpoint.service = Cow::Borrowed(text),
                (PEER_ADDRESS | REMOTE_IPV6, Value::String(text)) => drop(endpoint.take_ip(text)),
                (PEER_PORT, value) => endpoint.port = port(value).unwrap_or(0),
                _ => {}
            }
        }
        (!endpoint.is_empty()).then_some(endpoint)
    }

    /// The peer that a span's attributes describe; `None` if they describe none.
    fn remote(kind: SpanKind, attributes: &'a [Attribute<'_>]) -> Option<Self> {
        // Most spans have no attribute about a peer, which saves searching for each name.
        let tells =
            |attribute: &Attribute<'_>| PEER_PREFIXES.iter().any(|start| attribute.key.starts_with(start));
        if !attributes.iter().any(tells) {
            return None;
        }
        let asks = matches!(kind, SpanKind::Client | SpanKind::Producer);
        let mut endpoint = Self::default();
        for peer in PEERS.iter().filter(|peer| asks || peer.always) {
            // After an address, names of lower rank are ignored; after a name, addresses still
            // count.
            let has_address = !endpoint.ipv4.is_empty() || !endpoint.ipv6.is_empty();
            if has_address || (!peer.is_socket && !endpoint.service.is_empty()) {
                continue;
            }
            match lookup(attributes, peer.key) {
                Some(Value::String(text)) if !text.is_empty() => endpoint.take_peer(peer, text, attributes),
                _ => {}
            }
        }
        if let Some(Value::String(text)) = lookup(attributes, REMOTE_IPV6) {
            endpoint.take_ip(text);
        }
        if endpoint.port == 0 && !endpoint.service.is_empty() {
            // Some recorders know a peer's name and port but not its address.
            endpoint.port = lookup(attributes, PEER_PORT).and_then(port).unwrap_or(0);
        }
        (!endpoint.is_empty()).then_some(endpoint)
    }

    fn take_peer(&mut self, peer: &Peer, text: &'a str, attributes: &[Attribute<'_>]) {
        if peer.is_socket && self.take_ip(text) {
            self.port = lookup(attributes, peer.port_key).and_then(port).unwrap_or(0);
        } else if peer.is_socket
            && let Ok(socket) = text.parse::<SocketAddr>()
        {
            self.port = socket.port();
            match socket.ip() {
                IpAddr::V4(ip) => self.ipv4 = ip.to_string().into(),
                IpAddr::V6(ip) => self.ipv6 = ip.to_string().into(),
            }
        } else if self.service.is_empty() {
            self.service = text.into();
        }
    }

    /// Stores the text if it is an address.
    fn take_ip(&mut self, text: &'a str) -> bool {
        match IpVersion::of(text) {
            Some(IpVersion::V4) => self.ipv4 = text.into(),
            Some(IpVersion::V6) => self.ipv6 = text.into(),
            None => return false,
        }
        true
    }

    /// Converts the endpoint into the attributes of a resource.
    pub(super) fn into_resource_attributes(self) -> Vec<Attribute<'a>> {
        attributes(self, [SERVICE_NAME, HOST_IP, LOCAL_IPV6, HOST_PORT])
    }

    /// Appends the parts of this remote endpoint that a span's attributes lack. Existing attributes
    /// stay, except that the port, which is text in a tag, becomes a number again. An empty
    /// endpoint adds nothing.
    pub(super) fn add_to(self, span: &mut Span<'a>) {
        if self.is_empty() {
            if Endpoint::remote(span.kind, &span.attributes).is_some() {
                span.wording.peer = PeerField::Absent;
            }
            return;
        }
        for own in span.attributes.iter_mut().filter(|own| own.key == PEER_PORT) {
            if self.port != 0 && port(&own.value) == Some(self.port) {
                own.value = Value::Int(i64::from(self.port));
            }
        }
        if Endpoint::remote(span.kind, &span.attributes).as_ref() == Some(&self) {
            return;
        }
        let parts = attributes(self, PARTS);
        let is_part = |name: &str| parts.iter().any(|part| part.key == name);
        span.wording.peer = PeerField::Parts(PARTS.map(is_part));
        for attribute in parts {
            if lookup(&span.attributes, &attribute.key).is_none() {
                span.attributes.push(attribute);
                span.wording.peer_attributes += 1;
            }
        }
    }
}

/// The known parts of an endpoint as attributes with these names: service, address, second address,
/// port.
fn attributes<'a>(endpoint: Endpoint<'a>, names: [&'static str; 4]) -> Vec<Attribute<'a>> {
    let Endpoint { service, ipv4, ipv6, port } = endpoint;
    let (first, second) = if ipv4.is_empty() { (ipv6, Cow::Borrowed("")) } else { (ipv4, ipv6) };
    let texts = [service, first, second].into_iter().zip(names);
    let mut attributes: Vec<_> = texts
        .filter(|(text, _)| !text.is_empty())
        .map(|(text, name)| Attribute { key: name.into(), value: Value::String(text) })
        .collect();
    if port != 0 {
        attributes.push(Attribute { key: names[3].into(), value: Value::Int(i64::from(port)) });
    }
    attributes
}

/// The attributes of a span that are written as tags: all except those that came from a remote
/// endpoint and are written there again.
pub(super) fn tagged<'s, 'a>(span: &'s Span<'a>) -> impl Iterator<Item = &'s Attribute<'a>> {
    let own = span.attributes.len().saturating_sub(usize::from(span.wording.peer_attributes));
    let (own, of_peer) = span.attributes.split_at(own);
    own.iter().chain(of_peer.iter().filter(|attribute| !PARTS.contains(&&*attribute.key)))
}

/// Returns true if this resource attribute is written in the local endpoint.
pub(super) fn is_local(attribute: &Attribute<'_>) -> bool {
    match (&*attribute.key, &attribute.value) {
        (SERVICE_NAME, Value::String(_)) => true,
        (HOST_IP, Value::String(text)) => IpVersion::of(text).is_some(),
        (LOCAL_IPV6, Value::String(text)) => IpVersion::of(text) == Some(IpVersion::V6),
        (HOST_PORT, value @ Value::Int(_)) => port(value).is_some(),
        _ => false,
    }
}

/// The port of a span's peer, if this attribute contains it as a number.
pub(super) fn peer_port(attribute: &Attribute<'_>) -> Option<u16> {
    let is_number = matches!(attribute.value, Value::Int(_)) && attribute.key == PEER_PORT;
    if is_number { port(&attribute.value) } else { None }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    /// The version of an address; `None` if the text is not an address. Like Zipkin, this accepts
    /// `192.0.2.07`.
    fn of(text: &str) -> Option<Self> {
        let is_part = |part: &str| {
            part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok()
        };
        if text.split('.').all(is_part) && text.split('.').count() == 4 {
            Some(Self::V4)
        } else {
            text.parse::<Ipv6Addr>().is_ok().then_some(Self::V6)
        }
    }
}

fn port(value: &Value<'_>) -> Option<u16> {
    let port = match value {
        Value::Int(port) => u16::try_from(*port).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    port.filter(|&port| port != 0)
}
