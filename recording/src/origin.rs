//! The origin of a span, a log record or an event: its host, the clock of that host, its process
//! and its thread.
//!
//! A service is not a machine: its name never counts as a host. Where nothing states a host, the
//! host is unknown. `docs/recordings.md` has the rules as a table.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use astracer_model::span::{Resource, lookup};
use astracer_model::value::{Attribute, Value};

use crate::stem::stem;

/// Attributes of a resource that name a host, best one first: OpenTelemetry's names, then Jaeger's,
/// and addresses of a process's own endpoint as Zipkin and Jaeger state them.
const HOSTS: [&str; 9] = [
    "host.name",
    "k8s.pod.name",
    "hostname",
    "k8s.node.name",
    "host.id",
    "container.id",
    "net.host.ip",
    "zipkin.local.ipv6",
    "ip",
];
/// An instance runs on some host. That host has no other name, but it is one.
const INSTANCE: &str = "service.instance.id";
/// The machine whose clock a pod shares with its neighbours.
const NODE: &str = "k8s.node.name";
/// Attributes of a resource that state a process, best one first: OpenTelemetry's, Jaeger's and
/// X-Trace's. A container mostly runs one process.
const PROCESSES: [&str; 5] = ["process.pid", "pid", "xtrace.process", INSTANCE, "container.name"];
/// Attributes of a span or a record that state its thread, best one first.
pub const THREADS: [&str; 2] = ["thread.id", "thread.name"];

/// The parts of an origin that a resource states; empty if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stated<'r> {
    /// The host.
    pub host: Cow<'r, str>,
    /// The machine whose clock writes the host's times; mostly the host itself.
    pub clock: Cow<'r, str>,
    /// The process: its number, or another name that tells it from others of its service.
    pub process: Cow<'r, str>,
}

/// The host, clock and process that a resource states.
pub fn stated(resource: &Resource) -> Stated<'_> {
    let first = |keys: &[&str]| keys.iter().find_map(|key| text(&resource.attributes, key));
    let host = first(&HOSTS).or_else(|| tracer_address(resource).map(Cow::Borrowed));
    let host = host.or_else(|| first(&[INSTANCE])).unwrap_or_default();
    let clock = first(&[NODE]).unwrap_or_else(|| host.clone());
    Stated { host, clock, process: first(&PROCESSES).unwrap_or_default() }
}

/// The name of the program that a resource states: its service, or else its container; empty if it
/// states none.
pub fn program(resource: &Resource) -> Cow<'_, str> {
    match resource.service_name() {
        "" => text(&resource.attributes, "container.name").unwrap_or_default(),
        service => Cow::Borrowed(service),
    }
}

/// The value of the last attribute with this key as text; `None` if it is missing, empty or a list.
fn text<'r>(attributes: &'r [Attribute<'_>], key: &str) -> Option<Cow<'r, str>> {
    let value = attributes.iter().rev().find(|own| own.key == key).map(|own| &own.value)?;
    let text = match value {
        Value::String(text) => Cow::Borrowed(&**text),
        Value::Int(number) => Cow::Owned(number.to_string()),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// HTrace 4 names a tracer `NameNode/192.0.2.2`, which its reader stores as the service.
fn tracer_address(resource: &Resource) -> Option<&str> {
    let tracer = lookup(&resource.attributes, "service.name").and_then(Value::as_str)?;
    let (_, address) = tracer.rsplit_once('/')?;
    address.parse::<IpAddr>().ok().map(|_| address)
}

/// The kind of a file, which decides whether its place states a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Written {
    /// HTrace's spans, which each process writes to a file of its own.
    Tracer,
    /// A log, or what another process on the same host recorded of this one.
    Beside,
    /// Spans that a collector wrote: the file says nothing about their hosts.
    Collected,
}

/// The host that each file's name or folder states, for files that state none themselves:
///
/// - A file of HTrace's spans belongs to the host that its name states, without endings; to the one
///   that its folder states if files in several folders have that name.
/// - A log or a strace belongs to such a host if its name or its folder states it. Otherwise its
///   folder names the host if several folders hold such a file under the same name.
pub fn hosts_of_files(files: &[(Arc<str>, Written)]) -> HashMap<Arc<str>, String> {
    let folder = |file: &str| {
        let path = file.rsplit_once(['/', '\\']).map_or("", |(path, _)| path);
        path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
    };
    // Names that occur in several folders, by kind.
    let mut folders: HashMap<(Written, &str), BTreeSet<String>> = HashMap::new();
    for (file, written) in files {
        folders.entry((*written, stem(file))).or_default().insert(folder(file));
    }
    let by_folder = |file: &str, written| {
        folders.get(&(written, stem(file))).is_some_and(|own| own.len() > 1 && !folder(file).is_empty())
    };
    let mut found: HashMap<Arc<str>, String> = HashMap::new();
    let mut tracers = HashSet::new();
    for (file, _) in files.iter().filter(|(_, written)| *written == Written::Tracer) {
        let host = if by_folder(file, Written::Tracer) { folder(file) } else { stem(file).to_owned() };
        tracers.insert(host.clone());
        found.insert(Arc::clone(file), host);
    }
    for (file, _) in files.iter().filter(|(_, written)| *written == Written::Beside) {
        let known = [stem(file).to_owned(), folder(file)].into_iter().find(|name| tracers.contains(name));
        let known = known.or_else(|| by_folder(file, Written::Beside).then(|| folder(file)));
        found.extend(known.map(|host| (Arc::clone(file), host)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(attributes: &[(&str, Value<'static>)]) -> Resource {
        let own = |(key, value): &(&str, Value<'static>)| Attribute {
            key: Cow::Owned((*key).to_owned()),
            value: value.clone(),
        };
        Resource { attributes: attributes.iter().map(own).collect(), ..Resource::default() }
    }

    fn string(text: &str) -> Value<'static> {
        Value::String(Cow::Owned(text.to_owned()))
    }

    /// The rows of the table in docs/recordings.md, from its last row to its first: each counts
    /// although all below it are stated, too.
    #[test]
    fn each_row_of_the_table_counts_before_those_below() {
        let page = include_str!("../../docs/recordings.md");
        let rows = page.lines().skip_while(|line| !line.starts_with("| host of a span")).skip(2);
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        let key = |row: &&str| row.split('`').nth(1).map(str::to_owned);
        let keys: Vec<String> = rows.iter().filter_map(key).collect();
        let expected = [&HOSTS[..], &["service.name"], &[INSTANCE]].concat();
        assert_eq!(keys, expected, "the table lists what the code reads, in this order");
        let mut attributes = Vec::new();
        for key in keys.iter().rev() {
            let (value, host) = match &**key {
                "service.name" => ("NameNode/192.0.2.2", "192.0.2.2"),
                own => (own, own),
            };
            attributes.push((&**key, string(value)));
            assert_eq!(stated(&resource(&attributes)).host, host, "{key}");
        }
    }

    #[test]
    fn a_service_is_no_host_and_nothing_is_made_up() {
        let none = resource(&[("service.name", string("web")), ("service.version", string("1"))]);
        assert_eq!(stated(&none), Stated::default());
        // Neither an empty text nor a list is a name.
        let odd =
            [("host.name", string("")), ("hostname", Value::Array(Vec::new())), ("ip", string("10.0.0.1"))];
        assert_eq!(stated(&resource(&odd)).host, "10.0.0.1");
        // The text behind the slash is not an address.
        assert_eq!(stated(&resource(&[("service.name", string("shop/cart"))])).host, "");
    }

    #[test]
    fn pods_of_a_node_share_its_clock() {
        let pod = resource(&[("k8s.pod.name", string("cart-1")), ("k8s.node.name", string("n7"))]);
        let Stated { host, clock, .. } = stated(&pod);
        assert_eq!((&*host, &*clock), ("cart-1", "n7"));
        let plain = resource(&[("host.name", string("h1"))]);
        assert_eq!(stated(&plain).clock, "h1");
    }

    #[test]
    fn processes_are_numbers_before_names() {
        for (key, value, expected) in [
            ("process.pid", Value::Int(17), "17"),
            ("pid", string("18"), "18"),
            ("xtrace.process", string("19"), "19"),
            (INSTANCE, string("a-b"), "a-b"),
        ] {
            assert_eq!(stated(&resource(&[(key, value)])).process, expected, "{key}");
        }
    }

    #[test]
    fn files_state_hosts_by_name_or_folder() {
        use Written::{Beside, Collected, Tracer};
        let check = |files: &[(&str, Written)], expected: &[(&str, &str)]| {
            let files: Vec<(Arc<str>, Written)> =
                files.iter().map(|&(file, written)| (file.into(), written)).collect();
            let found = hosts_of_files(&files);
            let mut found: Vec<(&str, &str)> = found.iter().map(|(file, host)| (&**file, &**host)).collect();
            found.sort_unstable();
            assert_eq!(found, expected);
        };
        check(
            &[
                ("r/spans/dn1.json", Tracer),
                ("r/spans/nn.json", Tracer),
                ("r/logs/dn1.log", Beside),
                ("r/strace/nn.strace", Beside),
                ("r/logs/other.log", Beside),
            ],
            &[
                ("r/logs/dn1.log", "dn1"),
                ("r/spans/dn1.json", "dn1"),
                ("r/spans/nn.json", "nn"),
                ("r/strace/nn.strace", "nn"),
            ],
        );
        check(
            &[("dn1/spans.out", Tracer), ("dn2/spans.out", Tracer), ("dn2/app.log", Beside)],
            &[("dn1/spans.out", "dn1"), ("dn2/app.log", "dn2"), ("dn2/spans.out", "dn2")],
        );
        check(
            &[("web/app.log", Beside), ("db/app.log", Beside)],
            &[("db/app.log", "db"), ("web/app.log", "web")],
        );
        // Two processes of one folder, and what a collector wrote: unknown.
        check(&[("run/web.strace", Beside), ("run/db.strace", Beside), ("a/x.json", Collected)], &[]);
    }
}
