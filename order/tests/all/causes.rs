//! The causes that `order` finds in straces, logs, spans and vector clocks of hand-made and random
//! programs.

use std::fmt::Write as _;

use astracer_causality::causes::Clocking;
use astracer_causality::clocks::ClockEvidence;
use astracer_causality::edge::{EdgeKind, Why};
use astracer_causality::intake::{Collected, Intake};
use astracer_formats::{events, logs};
use astracer_order::{Options, Order};
use astracer_recording::stop::Pulse;
use astracer_testing::SplitMix;

use crate::texts;

fn order(collected: Collected, options: &Options) -> Order {
    astracer_order::order(collected, options, &mut Pulse::never()).expect("not stopped")
}

/// Reads files of named hosts.
fn collected(files: &[(&str, &str, &str)]) -> Collected {
    let mut intake = Intake::new(3);
    for &(host, name, text) in files {
        texts::read(&mut intake, host, name, text);
    }
    intake.finish()
}

/// Each event in order: its kind, file and line.
fn lines(order: &Order) -> Vec<String> {
    let rows = order.events.rows();
    let show = |&event: &u32| {
        let row = &rows[event as usize];
        format!("{} {}", row.kind, order.events.place(row))
    };
    order.sequence.iter().map(show).collect()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Two requests from `web` to `shop`, by straces, spans and logs with ids. `back` microseconds are
/// taken off all stamps of the shop.
fn two_services(back: u64) -> Vec<(&'static str, &'static str, String)> {
    let at = |us: u64| format!("1795222600.{us:06}");
    let shop = |us: u64| at(us - back);
    let ns = |us: u64| 1_795_222_600_000_000_000 + us * 1000;
    let (mut client, mut server) = (String::new(), String::new());
    let (mut spans, mut served, mut log) = (String::new(), String::new(), String::new());
    let to = "TCP:[10.0.0.1:5000->10.0.0.2:80]";
    let from = "TCP:[10.0.0.2:80->10.0.0.1:5000]";
    let _ = writeln!(
        client,
        "7 {} connect(3<TCP:[5]>, {{sa_family=AF_INET, sin_port=htons(80)}}, 16) = 0",
        at(100_000)
    );
    let _ = writeln!(server, "9 {} accept4(4<TCP:[10.0.0.2:80]>, NULL, NULL, 0) = 5<{from}>", shop(100_300));
    for request in 0..2u64 {
        let t = 110_000 + request * 20_000;
        let (call, serve) = (0xc0 + request, 0x50 + request);
        let head = format!("GET / HTTP/1.1\\r\\ntraceparent: 00-{TRACE}-{call:016x}-01\\r\\n\\r\\n");
        let _ = writeln!(client, "7 {} sendto(3<{to}>, \"{head}\", 120, 0, NULL, 0) = 120", at(t + 100));
        let _ = writeln!(server, "9 {} read(5<{from}>, \"{head}\", 4096) = 120", shop(t + 500));
        let _ = writeln!(server, "9 {} write(5<{from}>, \"HTTP/1.1 200 OK\", 60) = 60", shop(t + 900));
        let _ = writeln!(client, "7 {} read(3<{to}>, \"HTTP/1.1 200 OK\", 4096) = 60", at(t + 1300));
        for (out, kind, service, id, parent, begin, end) in [
            (&mut spans, 3, "web", call, String::new(), ns(t), ns(t + 1400)),
            (
                &mut served,
                2,
                "shop",
                serve,
                format!("\"parentSpanId\":\"{call:016x}\","),
                ns(t + 600 - back),
                ns(t + 800 - back),
            ),
        ] {
            let _ = writeln!(
                out,
                "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"service.name\",\"value\":{{\"stringValue\":\"{service}\"}}}}]}},\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\"{TRACE}\",\"spanId\":\"{id:016x}\",{parent}\"name\":\"GET /\",\"kind\":{kind},\"startTimeUnixNano\":\"{begin}\",\"endTimeUnixNano\":\"{end}\"}}]}}]}}]}}"
            );
        }
        let _ = writeln!(
            log,
            "{{\"time\":{},\"level\":\"INFO\",\"message\":\"served\",\"trace_id\":\"{TRACE}\",\"span_id\":\"{serve:016x}\"}}",
            ns(t + 700 - back)
        );
    }
    vec![
        ("web", "web/web.strace", client),
        ("shop", "shop/shop.strace", server),
        ("web", "web/spans.json", spans),
        ("shop", "shop/spans.json", served),
        ("shop", "shop/shop.log", log),
    ]
}

fn of(files: &[(&str, &str, String)]) -> Collected {
    collected(&files.iter().map(|(host, name, text)| (*host, *name, &**text)).collect::<Vec<_>>())
}

#[test]
fn spans_are_joined_by_bytes_and_ids() {
    let files = two_services(0);
    let found = of(&files);
    let joins = found.joins.clone();
    assert_eq!((joins.spans, joins.calls, joins.calls_by_bytes, joins.ids), (4, 4, 4, 2));
    let right = order(found, &Options::default());
    let count = |kind| right.edges.iter().filter(|edge| edge.kind == kind).count();
    // Per request: two ends, one child and its return; one send, and one record before the end of
    // its span.
    let (of_spans, of_bytes) = (
        [EdgeKind::Span, EdgeKind::Call, EdgeKind::Return, EdgeKind::Id],
        [EdgeKind::SendReceive, EdgeKind::ConnectAccept],
    );
    assert_eq!((of_spans.map(count), of_bytes.map(count)), ([4, 2, 2, 6], [4, 1]));
    // The order of files changes nothing.
    let turned: Vec<_> = files.iter().rev().cloned().collect();
    assert_eq!(lines(&order(of(&turned), &Options::default())), lines(&right));
    // A clock that is 50 ms late is found, by messages and, without straces, by spans.
    let round_trip = 1_200_000;
    for (evidence, skipped) in [(ClockEvidence::BothWays, ""), (ClockEvidence::Spans, ".strace")] {
        let keep = |back| -> Vec<_> {
            let mut files = two_services(back);
            files.retain(|(_, name, _)| skipped.is_empty() || !name.ends_with(skipped));
            files
        };
        let expected = lines(&order(of(&keep(0)), &Options::default()));
        let set_back = order(of(&keep(50_000)), &Options::default());
        assert_eq!(lines(&set_back), expected, "{evidence:?}");
        let shop = set_back.events.hosts().iter().position(|host| host == "shop").expect("the host");
        let web = set_back.events.hosts().iter().position(|host| host == "web").expect("the host");
        let (shop, web) = (&set_back.host_clocks[shop], &set_back.host_clocks[web]);
        assert!((web.ahead - shop.ahead).abs_diff(50_000_000) <= round_trip, "{shop:?} {web:?}");
        assert!([shop.evidence, web.evidence].contains(&evidence), "{shop:?} {web:?}");
        assert_eq!(set_back.moved(), (0, 0), "{evidence:?}");
        // Taken as they are, the times contradict the causes.
        let raw = order(
            of(&keep(50_000)),
            &Options { clocking: Clocking { raw_times: true, ..Clocking::default() }, ..Options::default() },
        );
        assert!(raw.exists() && raw.moved().0 > 0, "{evidence:?}");
    }
}

#[test]
fn a_stream_is_joined_up_to_a_lost_line() {
    let mut files = two_services(0);
    // The first send is lost: the second answers for the first receive.
    let strace = &mut files[0].2;
    let lost = strace.lines().position(|line| line.contains("sendto")).expect("a send");
    *strace =
        strace.lines().enumerate().filter(|&(at, _)| at != lost).fold(String::new(), |mut all, (_, line)| {
            let _ = writeln!(all, "{line}");
            all
        });
    let first = "GET / HTTP/1.1";
    files[1].2 = files[1].2.replacen(first, "PUT / HTTP/1.1", 1);
    let found = order(of(&files), &Options::default());
    let whys: Vec<Why> = found.unmatched.iter().map(|own| own.why).collect();
    assert_eq!(whys.iter().filter(|&&why| why == Why::NotAsSent).count(), 1, "{whys:?}");
    assert_eq!(whys.iter().filter(|&&why| why == Why::BehindBreak).count(), 2, "{whys:?}");
    // The answers of the other direction are joined as before.
    assert_eq!(found.edges.iter().filter(|edge| edge.kind == EdgeKind::SendReceive).count(), 2);
}

#[test]
fn contradictions_are_told_and_dropped() {
    let event = |kind: &str, time: u64, thread: &str, to: &str, id: u64| {
        let (from, to) = if to == "b" { ("a", "b") } else { ("b", "a") };
        format!(
            "{{\"type\":\"{kind}\",\"timestamp\":{time},\"thread\":\"{thread}@h\",\"src\":\"{from}\",\"src_port\":1,\"dst\":\"{to}\",\"dst_port\":2,\"size\":5,\"id\":{id}}}\n"
        )
    };
    // Each receives before it sends what the other needs.
    let text = [
        event("RCV", 1000, "1", "a", 0),
        event("SND", 1001, "1", "b", 1),
        event("RCV", 1000, "2", "b", 2),
        event("SND", 1001, "2", "a", 3),
    ]
    .concat();
    let read = || collected(&[("", "events.jsonl", &text)]);
    let found = order(read(), &Options::default());
    assert!(!found.exists() && found.sequence.is_empty());
    assert_eq!((found.cycles.len(), found.cycles[0].len()), (1, 4));
    let dropped = order(read(), &Options { drop_cycles: true, ..Options::default() });
    assert!(dropped.exists() && dropped.sequence.len() == 4);
    let kinds: Vec<EdgeKind> = dropped.dropped.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [EdgeKind::SendReceive]);
}

/// Random programs of processes that send messages: the order of events is that of their vector
/// clocks, for every pair.
#[test]
fn vector_clocks_are_the_order() {
    for seed in 0..12 {
        let mut random = SplitMix::new(seed);
        let hosts = 2 + random.below(4) as usize;
        let mut clocks = vec![vec![0u64; hosts]; hosts];
        let mut sent: Vec<Vec<u64>> = Vec::new();
        let (mut text, mut all) = (String::new(), Vec::new());
        for number in 0..60 {
            let own = random.below(hosts as u64) as usize;
            if random.below(3) == 0 && !sent.is_empty() {
                let message = sent.swap_remove(random.below(sent.len() as u64) as usize);
                for (part, other) in clocks[own].iter_mut().zip(message) {
                    *part = (*part).max(other);
                }
            }
            clocks[own][own] += 1;
            if random.below(2) == 0 {
                sent.push(clocks[own].clone());
            }
            let parts: Vec<String> = (0..hosts)
                .filter(|&at| clocks[own][at] > 0)
                .map(|at| format!("\"p{at}\":{}", clocks[own][at]))
                .collect();
            let _ = writeln!(text, "event {number}\np{own} {{{}}}", parts.join(", "));
            all.push(clocks[own].clone());
        }
        let found = order(collected(&[("", "clocks.log", &text)]), &Options::default());
        assert_eq!(found.events.len(), all.len(), "seed {seed}");
        let number = |event: u32| {
            let text = found.events.text(&found.events.rows()[event as usize]);
            text.trim_start_matches("event ").parse::<usize>().expect("a number")
        };
        let len = all.len();
        let mut reached = vec![vec![false; len]; len];
        for &event in found.sequence.iter().rev() {
            for edge in found.edges.iter().filter(|edge| edge.before == event) {
                let (from, to) = (number(event), number(edge.after));
                reached[from][to] = true;
                let behind = reached[to].clone();
                reached[from].iter_mut().zip(behind).for_each(|(own, behind)| *own |= behind);
            }
        }
        for (a, row) in reached.iter().enumerate() {
            for (b, &is_before) in row.iter().enumerate() {
                let expected = a != b && all[a].iter().zip(&all[b]).all(|(a, b)| a <= b);
                assert_eq!(is_before, expected, "seed {seed}: events {a} and {b}");
            }
        }
    }
}

/// Torn, mixed and hostile straces: everything is counted, nothing panics.
#[test]
fn hostile_straces_are_counted() {
    let files = two_services(0);
    let whole = &files[1].2;
    for cut in (0..whole.len()).step_by(37) {
        let mut bytes = whole.as_bytes().to_vec();
        bytes.truncate(cut.max(60));
        let half = bytes.len() / 2;
        bytes.rotate_left(half);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if events::detect(text.as_bytes(), &logs::Options::default()).is_some() {
            let _ = order(
                collected(&[("a", "x.strace", &text)]),
                &Options { drop_cycles: true, ..Options::default() },
            );
        }
    }
    // One pid and one port used again and again within a second, and a clock that jumps by hours.
    let mut text = String::new();
    for at in 0..200u64 {
        let time = 1_795_222_600 + (at % 7) * 3600;
        let _ = writeln!(text, "1 {time}.5 clone(child_stack=NULL, flags=CLONE_VM) = 5");
        let _ = writeln!(text, "5 {time}.6 connect(3<TCP:[5]>, {{sa_family=AF_INET}}, 16) = 0");
        let _ = writeln!(text, "5 {time}.7 write(3<TCP:[1.1.1.1:5->1.1.1.1:80]>, \"x\", 1) = 1");
        let _ = writeln!(text, "5 {time}.8 +++ exited with 0 +++");
        let _ = writeln!(text, "1 {time}.9 wait4(5, NULL, 0, NULL) = 5");
    }
    let found = order(collected(&[("a", "x.strace", &text)]), &Options::default());
    assert!(found.exists());
    let count = |kind| found.edges.iter().filter(|edge| edge.kind == kind).count();
    assert_eq!((count(EdgeKind::ForkStart), count(EdgeKind::EndJoin)), (200, 200));
    // The same file of two hosts with the same pids.
    let twice = order(
        collected(&[("a", "a/x.strace", &text), ("b", "b/x.strace", &text), ("a", "a/x.strace", &text)]),
        &Options::default(),
    );
    assert_eq!((twice.events.len(), twice.events.hosts().len()), (2 * found.events.len(), 2));
}
