//! The clocks of hosts, from system calls that wait and from log records of the same traces.

use astracer_causality::clocks::{ClockEvidence, HostClock};
use astracer_causality::edge::{Edge, EdgeKind};
use astracer_causality::intake::Intake;
use astracer_model::event::EventKind;
use astracer_order::{Options, Order};
use astracer_recording::stop::Pulse;

use crate::texts;

fn order_of(files: &[(&str, String)]) -> Order {
    let mut intake = Intake::new(3);
    for (number, (host, text)) in files.iter().enumerate() {
        texts::read(&mut intake, host, &format!("{number}.x"), text);
    }
    let order = astracer_order::order(intake.finish(), &Options::default(), &mut Pulse::never());
    order.expect("not stopped")
}

/// The clock of a host other than the reference.
fn compared(order: &Order) -> &HostClock {
    let is_compared = |clock: &&HostClock| clock.evidence != ClockEvidence::Reference;
    order.host_clocks.iter().find(is_compared).expect("two hosts")
}

/// True if the stated range of a clock's offset holds this one, in nanoseconds.
fn holds(clock: &HostClock, offset: i64) -> bool {
    clock.within.is_some_and(|within| (clock.ahead - offset).unsigned_abs() <= within)
}

/// A client that asks, and a server that answers after two seconds, each call on one line. The
/// server's clock is ahead by some milliseconds.
fn asked(ahead: u64, has_durations: bool) -> Order {
    let base = 1_778_749_200_000_000;
    let line = |pid: u32, us: u64, call: &str, taken: u64| {
        let at = base + us;
        let taken = format!(" <{}.{:06}>", taken / 1_000_000, taken % 1_000_000);
        let taken = if has_durations { &taken } else { "" };
        format!("{pid} {}.{:06} {call}{taken}\n", at / 1_000_000, at % 1_000_000)
    };
    let there = ahead * 1_000;
    let socket = "4<TCP:[10.0.0.2:80->10.0.0.1:99]>";
    let server = [
        line(7, there, &format!("accept4(3<TCP:[10.0.0.2:80]>, 0, 0, 0) = {socket}"), 1_000_150),
        line(7, there + 1_000_200, &format!("recvfrom({socket}, \"ask\", 9, 0, 0, 0) = 3"), 200),
        line(7, there + 3_000_500, &format!("sendto({socket}, \"answer\", 6, 0, 0, 0) = 6"), 20),
        line(7, there + 3_000_700, &format!("close({socket}) = 0"), 5),
    ];
    let socket = "3<TCP:[10.0.0.1:99->10.0.0.2:80]>";
    let client = [
        line(5, 1_000_000, &format!("connect({socket}, {{sa_family=AF_INET}}, 16) = 0"), 180),
        line(5, 1_000_300, &format!("sendto({socket}, \"ask\", 3, 0, 0, 0) = 3"), 20),
        line(5, 1_000_350, &format!("recvfrom({socket}, \"answer\", 9, 0, 0, 0) = 6"), 2_000_250),
        line(5, 3_000_700, &format!("close({socket}) = 0"), 5),
    ];
    order_of(&[("server", server.concat()), ("client", client.concat())])
}

/// By hand: with durations, the accept, which is over before the next line (200 us, and one that
/// is cut), shows the server at most 201 us ahead, and the answer at most 100 us behind. An offset
/// that may be none is none. The entries alone would show it two seconds behind.
#[test]
fn calls_that_waited_end_when_they_say_or_before_the_next_line() {
    for has_durations in [true, false] {
        let order = asked(0, has_durations);
        let clock = compared(&order);
        assert!(holds(clock, 0), "{clock:?}");
        assert_eq!((clock.evidence, order.moved()), (ClockEvidence::BothWays, (0, 0)));
        let sign = if order.host_clocks[0] == *clock { 1 } else { -1 };
        let set = asked(500, has_durations);
        let clock = compared(&set);
        assert!(holds(clock, sign * 500_000_000) && !holds(clock, 0), "{clock:?}");
        assert_eq!(set.moved(), (0, 0));
    }
    assert_eq!(compared(&asked(0, true)).within, Some(201_000));
}

/// Requests of which a client's records enclose the server's by 5 to 9 ms on either side.
fn logs(ahead: u64, is_joined: bool) -> Order {
    let line = |trace: u64, ms: u64, host: &str| {
        let (second, ms) = (ms / 1_000, ms % 1_000);
        format!(
            "{{\"time\":\"2026-05-14T09:00:{second:02}.{ms:03}Z\",\"host\":\"{host}\",\"msg\":\"m\",\"trace_id\":\"{trace:032x}\"}}\n"
        )
    };
    let (mut client, mut server) = (String::new(), String::new());
    for at in 1..=20u64 {
        let (begin, before, behind) = (at * 100, 5 + at % 5, 5 + at * 3 % 5);
        client += &line(at, begin, "client");
        client += &line(at, begin + before + 10 + behind, "client");
        let trace = if is_joined { at } else { at + 100 };
        server += &line(trace, begin + before + ahead, "server");
        server += &line(trace, begin + before + 10 + ahead, "server");
    }
    order_of(&[("", client), ("", server)])
}

#[test]
fn log_records_of_the_same_traces_bound_clocks() {
    let far = logs(50, true);
    let clock = compared(&far);
    assert_eq!(clock.evidence, ClockEvidence::Records);
    let sign = if far.host_clocks[0] == *clock { -1 } else { 1 };
    // 5 ms on either side, 1 ms for the resolution and 1 ms for times that are cut.
    assert!(holds(clock, sign * 50_000_000) && clock.within <= Some(7_000_000), "{clock:?}");
    // An offset that may be none is taken as none.
    assert_eq!(compared(&logs(2, true)).ahead, 0);
    assert!(logs(50, false).host_clocks.iter().all(|clock| clock.evidence == ClockEvidence::None));
}

/// Spans join two hosts with a third exactly. Records of the same trace that suggest otherwise,
/// since neither host waited for the other, change nothing.
#[test]
fn records_do_not_contradict_spans_by_way_of_a_third_host() {
    let span = |host: &str, id: u64, parent: u64, kind: u32, start: u64, end: u64| {
        let nanos = |ms: u64| 1_778_749_200_000_000_000 + ms * 1_000_000;
        format!(
            "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"host.name\",\"value\":{{\"stringValue\":\"{host}\"}}}}]}},\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"{:032x}\",\"spanId\":\"{id:016x}\",\"parentSpanId\":\"{parent:016x}\",\"name\":\"s\",\"kind\":{kind},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\"}}]}}]}}]}}\n",
            7,
            nanos(start),
            nanos(end)
        )
    };
    let spans = [
        span("a", 1, 0, 3, 0, 10),
        span("b", 2, 1, 2, 0, 10),
        span("a", 3, 0, 3, 20, 40),
        span("c", 4, 3, 2, 20, 40),
    ];
    let log = |host: &str, ms: u64| {
        format!(
            "{{\"time\":\"2026-05-14T09:00:00.{ms:03}Z\",\"host\":\"{host}\",\"msg\":\"m\",\"trace_id\":\"{:032x}\"}}\n",
            7
        )
    };
    let logs = [log("b", 5), log("c", 25), log("c", 35)];
    let order = order_of(&[("", spans.concat()), ("", logs.concat())]);
    assert_eq!(order.host_clocks.len(), 3);
    assert!(order.host_clocks.iter().all(|clock| clock.ahead == 0), "{:?}", order.host_clocks);
}

/// Ten minutes of two hosts, in Falcon's form: each second a message there and back, and a log
/// record on each host, in turn. `offset` is that of b's clock at a true time, in microseconds.
fn falcon(offset: impl Fn(u64) -> i64) -> Order {
    order_of(&[("", messages(offset))])
}

/// The events of [`falcon`].
fn messages(offset: impl Fn(u64) -> i64) -> String {
    let mut text = String::new();
    let mut line = |host: &str, us: u64, rest: &str| {
        let time =
            1_778_749_200_000_000 + if host == "b" { us.saturating_add_signed(offset(us)) } else { us };
        let id = text.lines().count();
        text += &format!("{{\"id\":{id},\"timestamp\":{time},\"data\":{{\"host\":\"{host}\"}},{rest}}}\n");
    };
    let message = |kind: &str, host: &str, from: &str, to: &str| {
        let (src_port, dst_port) = if from == "a" { (99, 80) } else { (80, 99) };
        format!(
            "\"type\":\"{kind}\",\"thread\":\"1@{host}\",\"src\":\"{from}\",\"src_port\":{src_port},\"dst\":\"{to}\",\"dst_port\":{dst_port},\"socket_type\":\"TCP\",\"size\":5"
        )
    };
    for second in 1..=600u64 {
        let at = second * 1_000_000;
        line("a", at, &message("SND", "a", "a", "b"));
        line("b", at + 80 + second % 7 * 30, &message("RCV", "b", "a", "b"));
        line("b", at + 500, &message("SND", "b", "b", "a"));
        line("a", at + 580 + second % 5 * 40, &message("RCV", "a", "b", "a"));
        for (host, later) in [("a", 300_000), ("b", 310_000)] {
            line(host, at + later, &format!("\"type\":\"LOG\",\"thread\":\"2@{host}\",\"message\":\"m\""));
        }
    }
    text
}

/// Before and after b was set forward, a's client calls b's server, which works from 2 to 8 ms of
/// 10. By the clock that held then, each server's span lies within its client's.
#[test]
fn spans_are_corrected_by_the_line_that_holds() {
    let set = |us: u64| if us > 300_500_000 { 500_000 } else { 0 };
    let span = |host: &str, id: u64, parent: u64, kind: u32, us: u64, taken: u64| {
        let begin = 1_778_749_200_000_000 + if host == "b" { us.saturating_add_signed(set(us)) } else { us };
        format!(
            "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"host.name\",\"value\":{{\"stringValue\":\"{host}\"}}}}]}},\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"{:032x}\",\"spanId\":\"{id:016x}\",\"parentSpanId\":\"{parent:016x}\",\"name\":\"s\",\"kind\":{kind},\"startTimeUnixNano\":\"{begin}000\",\"endTimeUnixNano\":\"{}000\"}}]}}]}}]}}\n",
            7,
            begin + taken
        )
    };
    let call =
        |id: u64, us: u64| span("a", id, 0, 3, us, 10_000) + &span("b", id + 1, id, 2, us + 2_000, 6_000);
    let spans = call(1, 100_000_000) + &call(3, 400_000_000);
    let order = order_of(&[("", messages(set)), ("", spans)]);
    let ends = order.edges.iter().filter(|edge| edge.kind == EdgeKind::Return);
    let of_b = |edge: &Edge| {
        Some(edge.before).filter(|&at| order.events.host(&order.events.rows()[at as usize]) == "b")
    };
    let ends: std::collections::BTreeSet<u32> = ends.filter_map(of_b).collect();
    assert_eq!(ends.len(), 2, "{:?}", order.host_clocks);
    assert_eq!(order.moved().0, 0);
}

/// A clock that gains 20 ppm, and one that is set after five minutes. Messages never show more than
/// 300 us of doubt, so that records 10 ms apart are in their true order.
#[test]
fn clocks_that_drift_or_are_set_are_described_and_corrected() {
    let drift = |us: u64| (us * 20 / 1_000_000) as i64;
    let set = |by: i64| move |us: u64| if us > 300_500_000 { by } else { 0 };
    for (order, ppb, by) in [
        (falcon(drift), 20_000, 0),
        (falcon(set(500_000)), 0, 500_000_000),
        (falcon(set(-500_000)), 0, -500_000_000),
    ] {
        let clock = compared(&order);
        let [first, .., last] = [&clock.pieces[..1], &clock.pieces[clock.pieces.len() - 1..]].concat()[..]
        else {
            panic!("no piece: {clock:?}");
        };
        assert_eq!(clock.pieces.len(), if by == 0 { 1 } else { 2 }, "{clock:?}");
        assert!((first.drift_ppb - ppb).abs() < 600 && (last.drift_ppb - ppb).abs() < 600, "{clock:?}");
        assert!(by == 0 || (last.ahead - first.ahead - by).abs() < 600_000, "{clock:?}");
        let rows = order.events.rows();
        // b's last event before, and its first after it was set.
        let lines = last.after.map(|(before, after)| (rows[before as usize].line, rows[after as usize].line));
        assert_eq!(lines, (by != 0).then_some((299 * 6 + 3, 300 * 6 + 2)));
        let is_log = |&&event: &&u32| rows[event as usize].kind == EventKind::Log;
        let logs: Vec<u64> =
            order.sequence.iter().filter(is_log).map(|&event| rows[event as usize].id).collect();
        let inverted = logs.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(inverted <= 1, "{inverted} of {} are inverted", logs.len());
        assert_eq!(order.moved().0, 0);
    }
}
