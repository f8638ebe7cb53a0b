//! Connections whose ends know each other by different addresses, and records that reach a log
//! through a pipe.

use astracer_causality::edge::EdgeKind;
use astracer_causality::intake::{Collected, Intake};
use astracer_model::event::EventKind;
use astracer_order::{Options, Order};
use astracer_recording::stop::Pulse;

use crate::texts;

fn collected(files: &[(&str, &str, String)]) -> Collected {
    let mut intake = Intake::new(3);
    for (host, name, text) in files {
        texts::read(&mut intake, host, name, text);
    }
    intake.finish()
}

fn order_of(collected: Collected) -> Order {
    astracer_order::order(collected, &Options::default(), &mut Pulse::never()).expect("not stopped")
}

fn count(order: &Order, kind: EdgeKind) -> usize {
    order.edges.iter().filter(|edge| edge.kind == kind).count()
}

/// A request from `client` to `vip`, as the client sees it, at a number of microseconds.
fn asks(pid: u32, client: &str, vip: &str, ask: &str, at: u32) -> String {
    let socket = format!("3<TCP:[{client}->{vip}]>");
    let us = |after: u32| 200_000 + at + after;
    format!(
        "{pid} 1778749200.{:06} connect(3<TCP:[{client}]>, {{sa_family=AF_INET}}, 16) = 0\n\
         {pid} 1778749200.{:06} sendto({socket}, \"{ask}\", 30, 0, NULL, 0) = {}\n\
         {pid} 1778749200.{:06} recvfrom({socket}, \"answer {ask}\", 100, 0, NULL, NULL) = {} <0.000010>\n\
         {pid} 1778749200.{:06} close({socket}) = 0\n",
        us(0),
        us(200),
        ask.len(),
        us(550),
        ask.len() + 7,
        us(600)
    )
}

/// The same request as the server sees it, which knows the client as `client`.
fn answers(pid: u32, server: &str, client: &str, ask: &str, at: u32) -> String {
    let socket = format!("4<TCP:[{server}->{client}]>");
    let us = |after: u32| 200_000 + at + after;
    format!(
        "{pid} 1778749200.{:06} accept4(3<TCP:[{server}]>, 0, [16], 0) = {socket} <0.000010>\n\
         {pid} 1778749200.{:06} recvfrom({socket}, \"{ask}\", 100, 0, NULL, NULL) = {} <0.000010>\n\
         {pid} 1778749200.{:06} sendto({socket}, \"answer {ask}\", 30, 0, NULL, 0) = {}\n\
         {pid} 1778749200.{:06} close({socket}) = 0\n",
        us(100),
        us(300),
        ask.len(),
        us(400),
        ask.len() + 7,
        us(500)
    )
}

/// A service's address, a published port behind NAT, and a proxy in front of the client's: in each
/// case connect, request and answer are joined, and the pair of addresses is named once.
#[test]
fn translated_addresses_are_joined_by_the_bytes() {
    for (seen, server) in [
        ("10.1.0.5:4711", "10.1.0.9:8080"),
        ("172.17.0.1:5555", "10.96.0.7:80"),
        ("172.17.0.1:5555", "172.17.0.2:8080"),
    ] {
        let files = [
            ("cli", "cli.strace", asks(100, "10.1.0.5:4711", "10.96.0.7:80", "GET /cart/17", 0)),
            ("web", "web.strace", answers(200, server, seen, "GET /cart/17", 0)),
        ];
        let collected = collected(&files);
        let translated: Vec<_> = collected.joins.translated.clone().into_iter().collect();
        assert_eq!(translated, [(format!("10.96.0.7:80 is {server}"), 1)]);
        let order = order_of(collected);
        let counts = [EdgeKind::ConnectAccept, EdgeKind::SendReceive].map(|kind| count(&order, kind));
        assert_eq!(counts, [1, 2], "{server}");
    }
}

/// Two clients whose bytes are equal fit both connections of the server, whose clock is not known.
/// Other bytes fit none.
#[test]
fn what_is_not_unique_is_not_joined() {
    let server = |ask: &str, port: u32, at: u32| {
        answers(200, "172.17.0.2:8080", &format!("172.17.0.1:{port}"), ask, at)
    };
    let client =
        |ask: &str, at: u32| asks(100 + at, &format!("10.1.0.5:{}", 4711 + at), "10.96.0.7:80", ask, at);
    for (asks, joined, ambiguous) in [
        (["GET /same", "GET /same"], 0, 2),
        (["GET /one", "GET /two"], 2, 0),
        (["GET /six", "GET /ten"], 0, 0),
    ] {
        let served = if asks[0] == "GET /six" { ["GET /one", "GET /two"] } else { asks };
        let files = [
            ("cli", "cli.strace", client(asks[0], 0) + &client(asks[1], 1_000)),
            ("web", "web.strace", server(served[0], 5_555, 0) + &server(served[1], 5_556, 1_000)),
        ];
        let collected = collected(&files);
        assert_eq!(collected.joins.translated.values().sum::<u64>(), joined, "{asks:?}");
        let said = collected.joins.unjoined.iter().find(|(reason, _)| reason.contains("fit several"));
        assert_eq!(said.map_or(0, |(_, &number)| number), ambiguous, "{asks:?}");
    }
    // By one clock, only one of both answers lies within each request.
    let files = [
        ("pc", "cli.strace", client("GET /same", 0) + &client("GET /same", 1_000)),
        ("pc", "web.strace", server("GET /same", 5_555, 0) + &server("GET /same", 5_556, 1_000)),
    ];
    assert_eq!(collected(&files).joins.translated.values().sum::<u64>(), 2);
}

/// Records of standard output and error, as a container's runtime writes them to one log, or bare.
#[test]
fn records_join_the_writes_to_a_pipe_that_leads_to_their_log() {
    let texts = ["one of them", "another one", "a third one", "the last one"];
    let line = |at: usize| format!("2026-05-14 09:00:01.00{at} INFO [main] a: {}\n", texts[at]);
    let call = |at: usize| {
        let (pipe, len) = (4242 + at % 2, line(at).len());
        let descriptor = 1 + at % 2;
        format!(
            "100 1778749201.00{at}000 write({descriptor}<pipe:[{pipe}]>, {:?}, {len}) = {len}\n",
            line(at)
        )
    };
    let calls: String = (0..4).map(call).collect();
    let bare: String = (0..4).map(line).collect();
    let wrapped = |at: usize| {
        let stream = ["stdout", "stderr"][at % 2];
        format!("2026-05-14T09:00:01.00{at}900000Z {stream} F {}", line(at))
    };
    let wrapped: String = (0..4).map(wrapped).collect();
    // Records before strace began, and after it ended.
    let around = line(0).replace("one of them", "before") + &bare + &line(3).replace("the last one", "after");
    let other = bare.replace("one", "two");
    for (log, joined) in [(&bare, 4), (&wrapped, 4), (&around, 4), (&other, 0)] {
        let files = [("", "app.strace", calls.clone()), ("", "out.log", log.clone())];
        let collected = collected(&files);
        assert_eq!(collected.joins.write, joined, "{log}: {:?}", collected.joins);
        let order = order_of(collected);
        let logs = order.events.rows().iter().filter(|row| row.kind == EventKind::Log);
        let on_thread = logs.filter(|row| order.events.thread(row).name == "100@local").count();
        assert_eq!(on_thread as u64, joined, "{log}");
    }
}
