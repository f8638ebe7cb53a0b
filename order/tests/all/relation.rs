//! The words for two events: before, after, concurrent, or not known to be ordered. Each test makes
//! its word false by a change of its input.

use astracer_causality::edge::{Certainty, EdgeKind};
use astracer_causality::intake::Intake;
use astracer_causality::points::Point;
use astracer_model::event::EventKind;
use astracer_order::evidence::ByClocks;
use astracer_order::links::{Links, Relation, Toward};
use astracer_order::{Options, Order};
use astracer_recording::stop::Pulse;

use crate::texts;

/// The order of texts, each of a host.
fn order_of(files: &[(&str, &str)]) -> Order {
    let mut intake = Intake::new(3);
    for (number, &(host, text)) in files.iter().enumerate() {
        texts::read(&mut intake, host, &format!("{number}-{host}.x"), text);
    }
    let order = astracer_order::order(intake.finish(), &Options::default(), &mut Pulse::never());
    let order = order.expect("not stopped");
    assert!(order.exists());
    order
}

/// The event of a kind whose text begins so.
fn event(order: &Order, kind: EventKind, text: &str) -> u32 {
    let fits = |&event: &u32| {
        let row = &order.events.rows()[event as usize];
        row.kind == kind && order.events.text(row).starts_with(text)
    };
    order.sequence.iter().copied().find(fits).expect("an event")
}

fn start(order: &Order, name: &str) -> u32 {
    event(order, EventKind::SpanStart, name)
}

fn end(order: &Order, name: &str) -> u32 {
    event(order, EventKind::SpanEnd, name)
}

/// The names of the hosts of processes whose evidence is missing.
fn missing(order: &Order, one: u32, other: u32) -> Vec<String> {
    let (events, links) = (&order.events, Links::new(order));
    let host = |&process: &u32| events.hosts()[events.processes()[process as usize].host as usize].clone();
    links.missing(one, other).processes.iter().map(host).collect()
}

/// Two threads on two hosts, with one message between them.
const ASKED: &str = r#"{"type":"LOG","timestamp":1525880625800,"thread":"1@a","message":"asked","id":1}
{"type":"SND","timestamp":1525880625801,"thread":"1@a","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":2}
{"type":"RCV","timestamp":1525880625803,"thread":"2@b","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":3}
{"type":"LOG","timestamp":1525880625804,"thread":"2@b","message":"answered","id":4}
{"type":"LOG","timestamp":1525880625805,"thread":"1@a","message":"waited","id":5}
"#;

#[test]
fn events_are_concurrent_only_if_messages_of_both_processes_were_recorded() {
    let of = |text: &str| {
        let order = order_of(&[("", text)]);
        let [one, other] = ["answered", "waited"].map(|text| event(&order, EventKind::Log, text));
        (Links::new(&order).between(one, other).0, missing(&order, one, other))
    };
    assert_eq!(of(ASKED), (Relation::Concurrent, vec![]));
    let without = |kind: &str| -> String {
        ASKED.lines().filter(|line| !line.contains(kind)).map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(of(&without("RCV")), (Relation::Unknown, vec!["b".to_owned()]));
    assert_eq!(of(&without("SND")), (Relation::Unknown, vec!["a".to_owned()]));
    let logs = ASKED.lines().filter(|line| line.contains("LOG")).collect::<Vec<_>>().join("\n");
    assert_eq!(of(&logs), (Relation::Unknown, vec!["b".to_owned(), "a".to_owned()]));
}

/// Two events that know only of themselves, by their vector clocks.
#[test]
fn vector_clocks_are_evidence_of_messages() {
    let text = "(?<host>\\S*) (?<clock>{.*})\\n(?<event>.*)\n\na {\"a\":1}\none\nb {\"b\":1}\nother\n";
    let order = order_of(&[("", text)]);
    assert_eq!(order.events.len(), 2);
    assert_eq!(Links::new(&order).between(0, 1).0, Relation::Concurrent);
}

/// A span: its service, name, kind, id, parent (0 for none), and its start and end in ms.
type Span<'a> = (&'a str, &'a str, u32, u32, u32, u64, u64);

const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// Spans of one trace, a line each. Each service has a host of its own.
fn spans(all: &[Span<'_>]) -> String {
    let mut text = String::new();
    for (service, name, kind, id, parent, start, end) in all {
        let parent = match parent {
            0 => String::new(),
            id => format!("\"parentSpanId\":\"{id:016x}\","),
        };
        let value = |key: &str, value: &str| {
            format!("{{\"key\":\"{key}\",\"value\":{{\"stringValue\":\"{value}\"}}}}")
        };
        let resource = [value("service.name", service), value("host.name", &format!("{service}-host"))];
        let nanos = |ms: &u64| 1_764_000_000_000_000_000 + ms * 1_000_000;
        text += &format!(
            "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{}]}},\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"{id:016x}\",{parent}\"name\":\"{name}\",\"kind\":{kind},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\"}}]}}]}}]}}\n",
            resource.join(","),
            nanos(start),
            nanos(end),
        );
    }
    text
}

/// A request that calls `first` on db and `second` on cache, at these times.
fn calls(first: (u64, u64), second: (u64, u64)) -> Vec<Span<'static>> {
    vec![
        ("web", "request", SERVER, 1, 0, 0, 100),
        ("web", "call-first", CLIENT, 2, 1, first.0, first.1),
        ("web", "call-second", CLIENT, 3, 1, second.0, second.1),
        ("db", "first", SERVER, 4, 2, first.0 + 5, first.1 - 5),
        ("cache", "second", SERVER, 5, 3, second.0 + 5, second.1 - 5),
    ]
}

fn first_to_second(all: &[Span<'_>]) -> (Relation, Vec<EdgeKind>) {
    let order = order_of(&[("", &spans(all))]);
    let (relation, chain) = Links::new(&order).between(end(&order, "first"), start(&order, "second"));
    (relation, chain.iter().map(|edge| edge.kind).collect())
}

/// By hand: the end of `first` (50) -> the end of its call (55) -> the start of the next (60) ->
/// `second`.
#[test]
fn a_call_after_another_is_after_it_by_nesting() {
    let (relation, kinds) = first_to_second(&calls((5, 55), (60, 95)));
    assert_eq!(relation, Relation::Before);
    assert_eq!(kinds.iter().map(|kind| kind.certainty()).max(), Some(Certainty::Nesting), "{kinds:?}");
    // Calls that overlap are concurrent: every one of them has spans on both sides.
    assert_eq!(first_to_second(&calls((5, 55), (40, 95))), (Relation::Concurrent, vec![]));
}

#[test]
fn a_call_without_its_server_leaves_a_trace_unknown() {
    let mut all = calls((5, 55), (40, 95));
    // The callee of db's call from within `first` was not recorded.
    all.push(("db", "lost", CLIENT, 6, 4, 20, 30));
    assert_eq!(first_to_second(&all).0, Relation::Unknown);
    let order = order_of(&[("", &spans(&all))]);
    let (one, other) = (end(&order, "first"), start(&order, "second"));
    assert_eq!(missing(&order, one, other), ["db-host"]);
    // Points of one process need no other evidence.
    let (one, other) = (end(&order, "call-first"), start(&order, "call-second"));
    assert_eq!(missing(&order, one, other), [""; 0]);
    // A callee in the same process is none.
    all.push(("db", "inner", SERVER, 7, 6, 21, 29));
    assert_eq!(first_to_second(&all).0, Relation::Unknown);
    *all.last_mut().expect("a span") = ("disk", "inner", SERVER, 7, 6, 21, 29);
    assert_eq!(first_to_second(&all).0, Relation::Concurrent);
}

/// The parent's start is before everything by ids; nesting, though no longer, is not taken.
#[test]
fn a_more_certain_chain_is_taken_before_a_shorter_one() {
    let order = order_of(&[("", &spans(&calls((5, 55), (60, 95))))]);
    let links = Links::new(&order);
    let (relation, chain) = links.between(start(&order, "request"), start(&order, "second"));
    assert_eq!(relation, Relation::Before);
    let kinds: Vec<_> = chain.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [EdgeKind::Call, EdgeKind::Call]);
    let (_, chain) = links.between(start(&order, "first"), end(&order, "request"));
    assert!(chain.iter().any(|edge| edge.kind.certainty() == Certainty::Nesting), "{chain:?}");
}

/// Messages both ways bound the clocks: with delays of 2 and 4 ms they may differ by 3 at most.
#[test]
fn clocks_compare_only_events_between_which_their_error_is_known() {
    let message = |id: u64, time: u64, kind: &str, (from, to): (&str, &str)| {
        let thread = if (kind == "SND") == (from == "a") { "1@a" } else { "2@b" };
        format!(
            "{{\"type\":\"{kind}\",\"timestamp\":{},\"thread\":\"{thread}\",\"src\":\"{from}\",\"src_port\":1,\"dst\":\"{to}\",\"dst_port\":1,\"size\":9,\"id\":{id}}}\n",
            1_525_880_625_000 + time
        )
    };
    let one_way = message(1, 10, "SND", ("a", "b")) + &message(2, 12, "RCV", ("a", "b"));
    let both = one_way.clone() + &message(3, 20, "SND", ("b", "a")) + &message(4, 24, "RCV", ("b", "a"));
    let compared = |text: &str| {
        let order = order_of(&[("", text)]);
        let of = |id: u64| order.events.rows().iter().position(|row| row.id == id).expect("an id") as u32;
        ByClocks::new(&order, of(1), of(2))
    };
    // b may be 2 ms ahead or 4 behind, and 1 more since times are cut to milliseconds. That is no
    // difference: it is taken as right, within 5.
    assert_eq!(compared(&both), Some(ByClocks { earlier: 2_000_000, within: Some(5_000_000) }));
    // One that is surely off is taken in the middle: 100 to 108 ms ahead.
    let off = both.replace("\"timestamp\":1525880625012", "\"timestamp\":1525880625117");
    let off = off.replace("\"timestamp\":1525880625020", "\"timestamp\":1525880625125");
    assert_eq!(compared(&off), Some(ByClocks { earlier: 3_000_000, within: Some(4_000_000) }));
    assert_eq!(compared(&one_way), None);
    let one_clock = one_way.replace("2@b", "2@a");
    assert_eq!(compared(&one_clock), Some(ByClocks { earlier: 2_000_000, within: None }));
}

/// A traced thread that reads and writes, and the start between them of a span that states the
/// thread's number.
#[test]
fn a_span_starts_between_the_calls_of_the_thread_that_it_states() {
    let strace = "\
7 1764000000.001000 read(3<TCP:[10.0.0.1:80->10.0.0.2:99]>, \"x\", 9) = 1
7 1764000000.003000 write(3<TCP:[10.0.0.1:80->10.0.0.2:99]>, \"y\", 1) = 1
";
    let of = |thread: u32, begun: &str| {
        let value = |key: &str, value: &str| {
            format!("{{\"key\":\"{key}\",\"value\":{{\"stringValue\":\"{value}\"}}}}")
        };
        let spans = format!(
            "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{},{}]}},\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"0000000000000001\",\"name\":\"request\",\"attributes\":[{}],\"startTimeUnixNano\":\"{begun}\",\"endTimeUnixNano\":\"1764000000004000000\"}}]}}]}}]}}\n",
            value("service.name", "0-web"),
            value("host.name", "web"),
            value("thread.id", &thread.to_string()),
        );
        let order = order_of(&[("web", strace), ("web", &spans)]);
        let span = start(&order, "request");
        let of_kind = |kind| event(&order, kind, "");
        let links = Links::new(&order);
        let (read, write) = (of_kind(EventKind::Receive), of_kind(EventKind::Send));
        (links.between(read, span).0, links.between(span, write).0)
    };
    assert_eq!(of(7, "1764000000002000500"), (Relation::Before, Relation::Before));
    // Cut to whole milliseconds, the time does not tell on which side of a call it was.
    assert_eq!(of(7, "1764000000002000000"), (Relation::Unknown, Relation::Unknown));
    assert_eq!(of(8, "1764000000002000500"), (Relation::Unknown, Relation::Unknown));
}

/// One file of several processes: by number as syslog states it, by container, by service and by
/// threads that have one name in two of them. Each keeps the order of its lines, which is a cause
/// only where a thread is stated.
#[test]
fn processes_that_share_a_file_are_in_no_order() {
    for text in [
        "May 14 09:00:00 web sshd[7]: one\nMay 14 09:00:01 web sshd[8]: two\nMay 14 09:00:02 web sshd[7]: three\n",
        "a-1  | 2026-05-14T09:00:00Z one\nb-1  | 2026-05-14T09:00:01Z two\na-1  | 2026-05-14T09:00:02Z three\n",
        "{\"time\":\"2026-05-14T09:00:00Z\",\"service\":\"a\",\"msg\":\"one\"}\n\
         {\"time\":\"2026-05-14T09:00:01Z\",\"service\":\"b\",\"msg\":\"two\"}\n\
         {\"time\":\"2026-05-14T09:00:02Z\",\"service\":\"a\",\"msg\":\"three\"}\n",
        "{\"time\":\"2026-05-14T09:00:00Z\",\"pid\":7,\"thread\":\"main\",\"msg\":\"one\"}\n\
         {\"time\":\"2026-05-14T09:00:01Z\",\"pid\":8,\"thread\":\"main\",\"msg\":\"two\"}\n\
         {\"time\":\"2026-05-14T09:00:02Z\",\"pid\":7,\"thread\":\"main\",\"msg\":\"three\"}\n",
    ] {
        let order = order_of(&[("", text)]);
        let log = |part: &str| {
            let fits = |row: &Point| order.events.text(row).contains(part);
            order.events.rows().iter().position(fits).expect("a record") as u32
        };
        let [one, two, three] = ["one", "two", "three"].map(log);
        let links = Links::new(&order);
        let expected = if text.contains("thread") { Relation::Before } else { Relation::Unknown };
        assert_eq!(links.between(one, three).0, expected, "{text}");
        let kind = if text.contains("thread") { EdgeKind::ProgramOrder } else { EdgeKind::Line };
        let edges: Vec<_> = order.edges.iter().map(|edge| (edge.kind, edge.before, edge.after)).collect();
        assert_eq!(edges, [(kind, one, three)], "{text}");
        assert_eq!(links.all(three, Toward::Causes)[one as usize], kind.is_cause(), "{text}");
        assert_eq!(links.between(one, two).0, Relation::Unknown, "{text}");
        assert_eq!(links.between(two, three).0, Relation::Unknown, "{text}");
    }
}
