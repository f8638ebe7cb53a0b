//! The nodes that emitted spans: a service at an address.
//!
//! Zipkin tells the servers of a shared id apart by their whole endpoint, not by their service.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;
use rapidhash::v3::rapidhash_v3;

use crate::intern::{Interner, Symbol};
use astracer_model::span::Resource;
use astracer_model::value::Value;

/// A local endpoint. Unknown parts are symbols of the empty text, or a port of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) service: Symbol,
    ip: Symbol,
    ipv6: Symbol,
    port: u16,
}

/// The distinct nodes of a recording, numbered in order of first use.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Each node, and a digest of its texts, which is the same in every run and order.
    nodes: Vec<(Node, u64)>,
    numbers: HashMap<Node, u32, RandomState>,
    addresses: Interner,
    /// The last resource and its node. Most spans share a resource with the previous span.
    last: Option<(Arc<Resource>, u32)>,
}

impl Nodes {
    /// The number of the node that a resource describes.
    pub(super) fn of(&mut self, resource: &Arc<Resource>, services: &mut Interner) -> u32 {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, resource)
        {
            return *number;
        }
        let unknown = self.addresses.intern("");
        let service = services.intern(resource.service_name());
        let mut node = Node { service, ip: unknown, ipv6: unknown, port: 0 };
        // The names under which Zipkin's reader stores a local endpoint.
        for attribute in &resource.attributes {
            match (&*attribute.key, &attribute.value) {
                ("net.host.ip", Value::String(ip)) => node.ip = self.addresses.intern(ip),
                ("zipkin.local.ipv6", Value::String(ip)) => node.ipv6 = self.addresses.intern(ip),
                ("net.host.port", Value::Int(port)) => node.port = u16::try_from(*port).unwrap_or(0),
                _ => {}
            }
        }
        let number = self.number(node, services);
        self.last = Some((Arc::clone(resource), number));
        number
    }

    fn number(&mut self, node: Node, services: &Interner) -> u32 {
        let next = self.nodes.len() as u32;
        let number = *self.numbers.entry(node).or_insert(next);
        if number == next {
            let texts =
                [services.name(node.service), self.addresses.name(node.ip), self.addresses.name(node.ipv6)];
            let digest = texts.iter().fold(u64::from(node.port), |digest, text| {
                digest.rotate_left(17) ^ rapidhash_v3(text.as_bytes())
            });
            self.nodes.push((node, digest));
        }
        number
    }

    pub(super) fn get(&self, number: u32) -> Node {
        self.nodes[number as usize].0
    }

    /// A digest of the node's texts, which does not depend on the order of nodes.
    pub(super) fn digest(&self, number: u32) -> u64 {
        self.nodes[number as usize].1
    }

    /// A text that orders nodes independently of the order in which they were found.
    pub(super) fn order_key<'n>(&'n self, number: u32, services: &'n Interner) -> impl Ord + use<'n> {
        let node = self.get(number);
        let [ip, ipv6] = [node.ip, node.ipv6].map(|address| self.addresses.name(address));
        (services.name(node.service), ip, ipv6, node.port)
    }

    /// Combines what two parts of one span state about their node; `None` if they contradict each
    /// other.
    pub(super) fn merge(&mut self, a: u32, b: u32, services: &Interner) -> Option<u32> {
        if a == b {
            return Some(a);
        }
        let (one, other) = (self.get(a), self.get(b));
        let addresses = &self.addresses;
        let node = Node {
            service: merged(one.service, other.service, |symbol| services.name(symbol).is_empty())?,
            ip: merged(one.ip, other.ip, |symbol| addresses.name(symbol).is_empty())?,
            ipv6: merged(one.ipv6, other.ipv6, |symbol| addresses.name(symbol).is_empty())?,
            port: merged(one.port, other.port, |port| port == 0)?,
        };
        Some(self.number(node, services))
    }
}

fn merged<T: Copy + PartialEq>(a: T, b: T, is_unknown: impl Fn(T) -> bool) -> Option<T> {
    if a == b || is_unknown(b) {
        Some(a)
    } else if is_unknown(a) {
        Some(b)
    } else {
        None
    }
}
