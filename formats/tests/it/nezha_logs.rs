use astracer_formats::logs;
use astracer_model::{LogFormat, ProblemKind, Severity, SpanId, TraceId, UnixNanos};

use crate::collected::Collected;
use crate::sample;

const HEADER: &str = "Timestamp,TimeUnixNano,Node,PodName,Container,TraceID,SpanID,Log\n";

fn read(text: impl AsRef<[u8]>) -> Collected {
    let collected = Collected::from_logs(LogFormat::NezhaCsv, text.as_ref());
    collected.assert_places(text.as_ref());
    collected
}

#[test]
fn a_row_is_a_record() {
    let row = r#"2023-01-29T10:05:28.56410145Z,1674986728564101450,33.33.33.116,ts-travel-service-64469b5b48-25zj6,server,8609fbd1b13573b2b5f70109be0b4246,dc69735c11aaf93f,"{""log"":""18:05:28.563 INFO  t.s.TravelServiceImpl#518 TraceID: 8609fbd1b13573b2b5f70109be0b4246 SpanID: dc69735c11aaf93f [getRouteByRouteId][Route Id: 9]\n"",""stream"":""stdout"",""time"":""2023-01-29T10:05:28.56410145Z""}""#;
    let collected = read(format!("{HEADER}{row}\n"));
    assert_eq!(collected.problems, []);
    let [log] = &collected.logs[..] else { panic!("{:?}", collected.logs) };
    assert_eq!(log.time, Some(UnixNanos(1_674_986_728_564_101_450)));
    assert_eq!(log.trace_id, TraceId(0x8609fbd1b13573b2b5f70109be0b4246));
    assert_eq!(log.span_id, SpanId(0xdc69735c11aaf93f));
    assert_eq!((log.severity, &*log.severity_text), (Severity::INFO, "INFO"));
    assert_eq!((&*log.logger, log.code.line), ("t.s.TravelServiceImpl", 518));
    assert_eq!(log.text(), "[getRouteByRouteId][Route Id: 9]");
    assert_eq!(log.resource.service_name(), "ts-travel-service");
    assert_eq!(collected.records[0].1, row.as_bytes());
}

/// Rows of the recordings of 2023-01-29: text of another row behind the closing quote, and a time
/// that Nezha's tool could not read.
#[test]
fn torn_rows_and_rows_without_a_time_are_kept() {
    let torn = r#"2023-01-29T10:06:03.361647039Z,1674986763361647039,33.33.33.76,ts-user-service-687d654649-lrcwv,server,24b5c62bafb05a6974660c972c0f946a,e9a50b7b30baea63,"{""log"":""18:06:03.361 INFO  u.c.UserController#48 TraceID: 24b5c62bafb05a6974660c972c0f946a SpanID: e9a50b7b30baea63 [getUserByUserId]\n"",""stream"":""stdout"",""time"":""2023-01-29T10:06:03.361647039Z""}"ulate distance][calculate time：175  time: Sat May 04 12:46:52 CST 2013]\n"",""stream"":""stdout"",""time"":""2023-01-29T10:06:03.254774537Z""}""#;
    let untimed = r#"2023-01-29T09:20:29.295,-6795364578871345152,33.33.33.167,ts-travel2-service-5c66d57d58-6mp2b,server,e8a3352051e85c13136b27945b8cab5b,dea06c5b784cbd1d,"{""log"":""17:20:29.299 ERROR o.a.c.c.C.[.[.[.[dispatcherServlet]#175 TraceID: e8a3352051e85c13136b27945b8cab5b SpanID: dea06c5b784cbd1d Servlet.service()\n"",""stream"":""stdout"",""time"":""2023-01-29T09:20:29.302Z""}""#;
    let collected = read(format!("{HEADER}{torn}\n{untimed}\n{untimed}\n"));
    assert_eq!(collected.problems, []);
    let loggers: Vec<_> = collected.logs.iter().map(|log| (&*log.logger, log.code.line)).collect();
    let servlet = ("o.a.c.c.C.[.[.[.[dispatcherServlet]", 175);
    assert_eq!(loggers, [("u.c.UserController", 48), servlet, servlet], "equal rows all count");
    assert_eq!(collected.logs[0].text(), "[getUserByUserId]");
    assert_eq!(collected.logs[1].time, Some(UnixNanos(1_674_984_029_302_000_000)));
}

#[test]
fn bad_rows_are_problems() {
    let bad = ",x,,a-b-c,,1,2,text\n,5,,a-b-c,,nonsense,2,text\n,6,,,,,,plain text\n";
    let collected = read(format!("{HEADER}{bad}"));
    let kinds: Vec<_> = collected.problems.iter().map(|problem| (problem.kind, problem.place.line)).collect();
    assert_eq!(kinds, [2, 3].map(|line| (ProblemKind::BadRecord, line)));
    assert_eq!(collected.logs[0].text(), "plain text");
    assert_eq!((collected.logs[0].trace_id, collected.logs[0].time), (TraceId::ZERO, Some(UnixNanos(6))));
}

#[test]
fn the_first_logs_of_a_minute_are_read() {
    let text = std::fs::read(sample("trainticket/log/08_50_log.csv")).expect("a sample");
    assert_eq!(logs::detect(&text, &logs::Options::default()), Some(LogFormat::NezhaCsv));
    assert_eq!(logs::detect(b"TraceID,SpanID,StartTimeUnixNano\n", &logs::Options::default()), None);
    let collected = read(&text);
    let rows = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count() - 1;
    assert_eq!((collected.logs.len(), collected.problems.len()), (rows, 0));
    assert!(collected.logs.iter().all(|log| log.code.line > 0 && log.span_id != SpanId::ZERO));
}
