//! Layouts of logs: a line of each, and records that are written in a drawn layout and read back.

use astracer_formats::{Limits, logs};
use astracer_model::{LogRecord, UnixNanos};
use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;

use crate::collected::Collected;

/// The time of the lines below: `date --date=2026-05-14T09:00:00Z +%s` is 1778749200.
const SECOND: u64 = 1_778_749_200_000_000_000;

/// A file that was changed last on 2026-05-14 at 10:00 UTC.
fn options() -> logs::Options {
    logs::Options { changed: Some(UnixNanos(SECOND + 3_600_000_000_000)), ..logs::Options::default() }
}

/// The records of a text, and the name of its layout.
#[track_caller]
fn read(text: &str) -> (Vec<LogRecord<'static>>, String, u64) {
    let mut collected = Collected { wants_logs: true, ..Collected::default() };
    let format = logs::detect(text.as_bytes(), &options()).unwrap_or_else(|| panic!("no log: {text:?}"));
    let (file, limits) = ("f".into(), Limits::default());
    let reading = logs::read(format, &mut text.as_bytes(), &file, &limits, &options(), &mut collected);
    (collected.logs, reading.layout.to_string(), reading.lines)
}

/// Each row has a line, the layout's name, the nanoseconds behind 09:00:00, the severity, and the
/// message.
#[test]
fn lines_of_known_loggers_are_read() {
    for (line, layout, nanos, severity, message) in [
        ("2026/05/14 09:00:00 m", "time-text", 0, 0, "m"),
        ("2026/05/14 09:00:00.123456 main.go:12: m", "go", 123_456_000, 0, "m"),
        ("2026/05/14 09:00:00 INFO m", "time-level", 0, 9, "m"),
        (
            "time=2026-05-14T09:00:00.123Z level=WARN msg=\"m \\\"x\\\"\" n=1",
            "key-value",
            123_000_000,
            13,
            "m \"x\"",
        ),
        ("time=\"2026-05-14T09:00:00Z\" level=info msg=\"m\"", "key-value", 0, 9, "m"),
        ("logger=a t=2026-05-14T09:00:00.1Z level=info msg=m", "key-value", 100_000_000, 9, "m"),
        ("2026-05-14T11:00:00.123+0200\tINFO\ta/b.go:12\tm", "zap", 123_000_000, 9, "m"),
        ("2026-05-14T09:00:00Z INF a.go:12 > m", "zerolog", 0, 9, "m"),
        ("I0514 09:00:00.123456       1 main.go:12] m", "klog", 123_456_000, 9, "m"),
        ("E20260514 09:00:00.123456 12345 main.cc:12] m", "klog", 123_456_000, 17, "m"),
        (
            "W260514 09:00:00.123456 12 server/node.go:12 ⋮ [n1] 0  m",
            "cockroach",
            123_456_000,
            13,
            "[n1] 0  m",
        ),
        ("[2026-05-14T09:00:00Z WARN  app::x] m", "env_logger", 0, 13, "m"),
        ("2026-05-14T09:00:00.123456Z  INFO app::x: m", "tracing", 123_456_000, 9, "m"),
        (
            "\u{1b}[2m2026-05-14T09:00:00.123456Z\u{1b}[0m [\u{1b}[32minfo     \u{1b}[0m] m",
            "time-level",
            123_456_000,
            9,
            "m",
        ),
        ("2026-05-14 09:00:00.123 | WARNING  | __main__:f:12 - m", "loguru", 123_000_000, 13, "m"),
        ("2026-05-14 09:00:00,123 - root - INFO - m", "python", 123_000_000, 9, "m"),
        ("[2026-05-14 09:00:00 +0000] [12] [INFO] m", "gunicorn", 0, 9, "m"),
        ("[2026-05-14 09:00:00,123: ERROR/MainProcess] m", "celery", 123_000_000, 17, "m"),
        ("May 14, 2026 9:00:00 AM a.B main", "time-text", 0, 0, "a.B main"),
        ("05/14/2026 09:00:00 AM INFO m", "time-level", 0, 9, "m"),
        ("14/05/2026 09:00:00 INFO m", "time-level", 0, 9, "m"),
        ("14.05.2026 09:00:00 INFO m", "time-level", 0, 9, "m"),
        ("14-05-2026 09:00:00 INFO m", "time-level", 0, 9, "m"),
        ("14-May-2026 09:00:00.123 INFO m", "time-level", 123_000_000, 9, "m"),
        ("2026-W20-4T09:00:00Z INFO m", "time-level", 0, 9, "m"),
        ("2026-134T09:00:00Z INFO m", "time-level", 0, 9, "m"),
        ("Thu, 14 May 2026 09:00:00 GMT m", "time-text", 0, 0, "m"),
        ("Thu May 14 05:00:00 EDT 2026 m", "time-text", 0, 0, "m"),
        ("2026-05-14 09:00:00.123 [main] INFO  a.b.C - m", "logback", 123_000_000, 9, "m"),
        ("2026-05-14 09:00:00,123 INFO [main] a.b.C: m", "log4j", 123_000_000, 9, "m"),
        (
            "2026-05-14 09:00:00,123 [myid:1] - INFO  [main:QuorumPeer@1001] - m",
            "zookeeper",
            123_000_000,
            9,
            "m",
        ),
        (
            "2026-05-14T11:00:00.123+02:00  INFO 1234 --- [app] [           main] a.b.C   : m",
            "spring-boot",
            123_000_000,
            9,
            "m",
        ),
        ("2026-05-14 09:00:00.123 +00:00 [INF] m", "time-level", 123_000_000, 9, "m"),
        ("I, [2026-05-14T09:00:00.123456 #12]  INFO -- : m", "ruby", 123_456_000, 9, "m"),
        ("[2026-05-14 09:00:00,123] INFO m (kafka.server.X)", "kafka", 123_000_000, 9, "m"),
        ("INFO  [main] 2026-05-14 09:00:00,123 X.java:12 - m", "cassandra", 123_000_000, 9, "m"),
        (
            "[2026-05-14T09:00:00,123][WARN ][o.e.n.Node               ] [n1] m",
            "elasticsearch",
            123_000_000,
            13,
            "m",
        ),
        ("2026-05-14 11:00:00.123 CEST [12] ERROR:  m", "postgresql", 123_000_000, 17, "m"),
        ("2026-05-14T09:00:00.123456Z 0 [Warning] [MY-010116] [Server] m", "mysql", 123_456_000, 13, "m"),
        ("12:M 14 May 2026 09:00:00.123 * m", "redis", 123_000_000, 0, "m"),
        ("[12] 2026/05/14 09:00:00.123456 [ERR] m", "nats", 123_456_000, 17, "m"),
        ("2026.05.14 09:00:00.123456 [ 7 ] {q-1} <Error> Application: m", "clickhouse", 123_456_000, 17, "m"),
        ("2026-05-14 09:00:00.123456 I | etcdserver: m", "etcd", 123_456_000, 9, "m"),
        ("2026/05/14 09:00:00 [error] 12#12: *1 m", "nginx-error", 0, 17, "*1 m"),
        ("1.2.3.4 - - [14/May/2026:11:00:00 +0200] \"GET /m\"", "access", 0, 0, "\"GET /m\""),
        (
            "[Thu May 14 09:00:00.123456 2026] [core:notice] [pid 12:tid 34] m",
            "apache-error",
            123_456_000,
            10,
            "m",
        ),
        ("[2026-05-14 09:00:00.123][12][info][main] [source/a.cc:1] m", "envoy", 123_000_000, 9, "m"),
        ("2026-05-14T11:00:00.123456789+02:00 stdout F m", "cri", 123_456_789, 0, "m"),
        ("2026-05-14T09:00:00.123456789Z m", "time-text", 123_456_789, 0, "m"),
        ("web-1  | 2026-05-14T09:00:00.123456789Z m", "time-text", 123_456_789, 0, "m"),
        ("[pod/web-abc/app] 2026-05-14T09:00:00.123456789Z m", "time-text", 123_456_789, 0, "m"),
        ("May 14 09:00:00 h1 sshd[12]: m", "syslog", 0, 0, "m"),
        ("<34>May 14 09:00:00 h1 su[12]: m", "syslog", 0, 18, "m"),
        ("<34>1 2026-05-14T09:00:00.123456Z h1 su 12 ID47 - m", "syslog", 123_456_000, 18, "m"),
        ("05-14 09:00:00.123  1234  5678 W Tag: m", "logcat", 123_000_000, 13, "m"),
        ("[Thu May 14 09:00:00 2026] m", "time-text", 0, 0, "m"),
        ("[ 5.123456] m", "time-text", 3_600_000_000_000, 0, "m"),
        ("09:00:00.123 [info] m", "time-level", 123_000_000, 9, "m"),
        ("1778749200.123457 m", "time-text", 123_457_000, 0, "m"),
        ("1778749200123 m", "time-text", 123_000_000, 0, "m"),
        ("081109 203615 148 INFO dfs.DataNode: m", "hadoop", u64::MAX, 9, "m"),
        (
            "{\"time\":\"2026-05-14T11:00:00.123456789+02:00\",\"level\":\"INFO\",\"msg\":\"m\"}",
            "json",
            123_456_789,
            9,
            "m",
        ),
        ("{\"level\":50,\"time\":1778749200123,\"msg\":\"m\"}", "json", 123_000_000, 17, "m"),
        ("{\"level\":\"info\",\"ts\":1778749200.5,\"msg\":\"m\"}", "json", 500_000_000, 9, "m"),
        (
            "{\"text\":\"m\\n\",\"record\":{\"time\":{\"repr\":\"2026-05-14 09:00:00.123456+00:00\"},\"message\":\"m\",\"level\":{\"name\":\"INFO\"}}}",
            "json",
            123_456_000,
            9,
            "m",
        ),
        (
            "{\"t\":{\"$date\":\"2026-05-14T09:00:00.123+00:00\"},\"s\":\"W\",\"c\":\"NETWORK\",\"ctx\":\"conn1\",\"msg\":\"m\"}",
            "json",
            123_000_000,
            13,
            "m",
        ),
        (
            "{\"@t\":\"2026-05-14T09:00:00.1234567Z\",\"@mt\":\"m\",\"@l\":\"Error\"}",
            "json",
            123_456_700,
            17,
            "m",
        ),
        (
            "{\"instant\":{\"epochSecond\":1778749200,\"nanoOfSecond\":1},\"level\":\"WARN\",\"message\":\"m\"}",
            "json",
            1,
            13,
            "m",
        ),
        (
            "{\"timestamp\":\"2026-05-14T09:00:00Z\",\"severity\":\"ERROR\",\"jsonPayload\":{\"message\":\"m\"}}",
            "json",
            0,
            17,
            "m",
        ),
        (
            "{\"__REALTIME_TIMESTAMP\":\"1778749200123456\",\"_HOSTNAME\":\"h\",\"MESSAGE\":\"m\",\"PRIORITY\":\"3\"}",
            "json",
            123_456_000,
            17,
            "m",
        ),
        (
            "{\"log\":\"m\\n\",\"stream\":\"stdout\",\"time\":\"2026-05-14T09:00:00.1Z\"}",
            "json",
            100_000_000,
            0,
            "m",
        ),
        ("caddy  | {\"level\":\"warn\",\"ts\":1778749200,\"msg\":\"m\"}", "json", 0, 13, "m"),
        (
            "__CURSOR=s=a\n__REALTIME_TIMESTAMP=1778749200123456\n_HOSTNAME=h\nMESSAGE=m\n",
            "journal-export",
            123_456_000,
            0,
            "m",
        ),
    ] {
        let (records, found, lines) = read(&format!("{line}\n"));
        assert_eq!((records.len(), &*found), (1, layout), "{line}");
        let log = &records[0];
        if nanos != u64::MAX {
            assert_eq!(log.time.map(|time| time.0 - SECOND), Some(nanos), "{line}");
        }
        assert_eq!((log.severity.number(), log.text()), (severity, message), "{line}");
        assert_eq!(lines, 1 + line.matches('\n').count() as u64, "{line}");
    }
}

/// Parts of the writer, the thread, and the resolution.
#[test]
fn the_writer_of_a_line_is_its_resource() {
    let parts = |line: &str| {
        let (records, ..) = read(line);
        let log = &records[0];
        let of = |key: &str| {
            let found = log.resource.attributes.iter().find(|own| own.key == key);
            found.and_then(|own| own.value.as_str()).unwrap_or("-").to_owned()
        };
        let names = ["service.name", "host.name", "process.pid", "k8s.pod.name", "container.name"].map(of);
        (names.join(" "), log.thread.to_string(), log.resolution)
    };
    for (line, names, thread, resolution) in [
        ("May 14 09:00:00 h1 sshd[12]: m", "sshd h1 12 - -", "", 1_000_000_000),
        ("<34>1 2026-05-14T09:00:00.123456Z h1 su 12 ID47 - m", "su h1 12 - -", "", 1_000),
        ("[pod/web-abc/app] 2026-05-14T09:00:00.123456789Z m", "- - - web-abc app", "", 1),
        ("05-14 09:00:00.123  1234  5678 W Tag: m", "- - 1234 - -", "5678", 1_000_000),
        ("2026-05-14 09:00 WARN m", "- - - - -", "", 60_000_000_000),
        (
            "{\"hostname\":\"h\",\"pid\":3,\"level\":30,\"time\":1778749200123,\"msg\":\"m\"}",
            "- h 3 - -",
            "",
            1_000_000,
        ),
        (
            "{\"host.name\":\"a\",\"kubernetes\":{\"pod_name\":\"p\"},\"msg\":\"m\",\"time\":\"2026-05-14T09:00:01.000Z\",\"process\":{\"pid\":5,\"thread\":{\"name\":\"main\"}}}",
            "- a 5 p -",
            "main",
            1_000_000,
        ),
    ] {
        assert_eq!(parts(line), (names.to_owned(), thread.to_owned(), resolution), "{line}");
    }
}

/// Texts that are not logs, though numbers or times are in them.
#[test]
fn other_texts_are_no_logs() {
    for text in [
        "MIT License\n\nCopyright 2023 A: b\n",
        "1795222378918\t4\treadSmall\t115827\t0\t\n",
        "name,start,value\na,2026-05-14 09:00:00,1\nb,2026-05-14 09:00:01,2\n",
        "meet at 10:00:00\nand then\ngo home\nat last\n",
        "{\n  \"name\": \"x\",\n  \"created\": \"2026-05-14T09:00:00Z\"\n}\n",
    ] {
        assert_eq!(logs::detect(text.as_bytes(), &options()), None, "{text:?}");
    }
}

/// A way to write a time: a pattern of strftime, its last digit in nanoseconds, and the offset of
/// the zone in minutes.
fn stamps() -> impl Strategy<Value = (&'static str, u64, i32)> {
    prop::sample::select(vec![
        ("%Y-%m-%dT%H:%M:%S.%9fZ", 1, 0),
        ("%Y-%m-%d %H:%M:%S,%3f", 1_000_000, 0),
        ("%Y-%m-%dT%H:%M:%S.%6f%:z", 1_000, 330),
        ("%Y/%m/%d %H:%M:%S", 1_000_000_000, 0),
        ("%d/%b/%Y:%H:%M:%S %z", 1_000_000_000, -480),
        ("%b %d %H:%M:%S", 1_000_000_000, 0),
        ("%a %b %d %H:%M:%S %Y", 1_000_000_000, 0),
        ("%d %b %Y %H:%M:%S.%3f", 1_000_000, 0),
        ("%Y%m%d %H:%M:%S.%6f", 1_000, 0),
        ("%m/%d/%Y %I:%M:%S %p", 1_000_000_000, 0),
        ("%m-%d %H:%M:%S.%3f", 1_000_000, 0),
        ("%G-W%V-%uT%H:%M:%SZ", 1_000_000_000, 0),
        ("%s.%6f", 1_000, 0),
    ])
}

proptest! {
    /// Records of a drawn layout, with further lines, come back with their times, severities and
    /// texts, and every line is in a record.
    #[test]
    fn drawn_layouts_are_read_back(
        (pattern, unit, minutes) in stamps(),
        shape in prop::sample::select(vec![
            "{t} {l} {m}", "[{t}] {l} {m}", "{t} [main] {l}  a.b.C - {m}", "{t} {l} [main] a.b.C: {m}",
            "{t} [{l}] {m}", "{t} {l} 71 --- [main] a.b.C : {m}",
        ]),
        header in prop::sample::select(vec!["", "Welcome\n\n"]),
        records in prop::collection::vec(
            (1u64..5_000_000_000, prop::sample::select(vec!["INFO", "WARN", "ERROR"]), "[a-z][a-z =]{0,20}[a-z]",
             prop::collection::vec("\tat [a-z]{1,9}", 0..3)),
            1..40,
        ),
    ) {
        let zone = TimeZone::fixed(Offset::from_seconds(minutes * 60).expect("an offset"));
        let (mut now, mut text, mut expected) = (SECOND, header.to_owned(), Vec::new());
        for (step, level, message, more) in &records {
            now += step;
            let time = jiff::Timestamp::from_nanosecond(i128::from(now)).expect("a time");
            let stamp = time.to_zoned_datetime(zone.clone()).strftime(pattern).to_string();
            text += &shape.replace("{t}", &stamp).replace("{l}", level).replace("{m}", message);
            text.push('\n');
            more.iter().for_each(|line| text += &format!("{line}\n"));
            let message = [message.trim(), &more.join("\n")].join("\n");
            expected.push((now - now % unit, unit, level.to_string(), message.trim_end().to_owned()));
        }
        let (found, _, lines) = read(&text);
        let found: Vec<_> = found
            .iter()
            .map(|log| {
                let time = log.time.expect("a time").0;
                (time, log.resolution.max(1), log.severity_text.to_string(), log.text().to_owned())
            })
            .collect();
        prop_assert_eq!(found, expected, "{}", text);
        prop_assert_eq!(lines, text.lines().count() as u64);
    }
}
