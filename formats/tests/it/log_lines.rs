use astracer_formats::{Limits, logs};
use astracer_model::{Limit, LogFormat, ProblemKind, Sink as _};

use crate::collected::Collected;

fn detected(text: &str) -> Option<LogFormat> {
    logs::detect(text.as_bytes(), &logs::Options::default())
}

#[test]
fn forms_are_known_by_their_content() {
    for (text, format) in [
        ("2022-02-15T18:40:14.289898Z  INFO fmt: hi\n", Some(LogFormat::TracingText)),
        (
            "\u{1b}[2m2022-02-15T18:40:14.289898Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m fmt: hi\n",
            Some(LogFormat::TracingText),
        ),
        ("{\"time\":\"2022-02-15T18:40:14Z\",\"msg\":\"x\"}\n", Some(LogFormat::JsonLines)),
        ("2026-11-21 00:56:59,259 INFO  [main] n.NameNode: x\n", Some(LogFormat::Layout)),
        ("{\"what\":\"x\",\"n\":1}\n", None),
        ("1795222378918\t4\treadSmall\t115827\t0\t\n", None),
        ("MIT License\n\nCopyright 2023 A: b\n", None),
        ("", None),
    ] {
        assert_eq!(detected(text), format, "{text:?}");
    }
    let options = logs::Options { layout: Some("%d|%m".parse().unwrap()), ..logs::Options::default() };
    assert_eq!(logs::detect(b"18:05:28|x\n", &options), Some(LogFormat::Layout));
}

#[test]
fn lines_that_begin_no_record_belong_to_the_one_before() {
    let text = "torn: x\n2026-11-21 00:56:59,259 WARN  [main] a.B: one\njava.io.E: y\r\n\tat c.D\n\n\
                2026-11-21 00:57:00,001 INFO  [pool 1] a.C: two\u{ff}";
    let text: Vec<u8> = text.chars().map(|next| next as u8).collect();
    let collected = Collected::from_logs(LogFormat::Layout, &text);
    collected.assert_places(&text);
    let bodies: Vec<_> = collected.logs.iter().map(|log| log.text()).collect();
    assert_eq!(bodies, ["one\njava.io.E: y\r\n\tat c.D", "two\u{fffd}"]);
    let problems: Vec<_> = collected.problems.iter().map(|found| (found.kind, found.place.line)).collect();
    assert_eq!(problems, [(ProblemKind::BadRecord, 1), (ProblemKind::BadText, 6)]);
}

#[test]
fn a_record_that_is_too_long_is_reported_and_the_next_is_read() {
    let line = "2026-11-21 00:56:59,259 WARN  [main] a.B: ";
    let text = format!("{line}one\n{line}{}\n{line}two\n{}", "x".repeat(5000), "more\n".repeat(1000));
    let mut collected = Collected { wants_logs: true, ..Collected::default() };
    assert!(collected.wants_logs());
    let limits = Limits { record_bytes_max: 1000, ..Limits::default() };
    let options = logs::Options::default();
    logs::read(LogFormat::Layout, &mut text.as_bytes(), &"f".into(), &limits, &options, &mut collected);
    assert_eq!((collected.logs[0].text(), collected.problems[0].limit), ("one", Some(Limit::RecordBytes)));
    assert!(collected.logs[1].text().starts_with("two\nmore"));
    assert!(collected.logs.iter().all(|log| log.text().len() <= 1000));
}

#[test]
fn bad_json_lines_are_problems() {
    let text =
        "{\"time\":5,\"msg\":\"a\"}\n{\"time\":\n[1]\n{\"msg\":\"b\"} x\n{\"time\":1e30,\"msg\":\"c\"}\n";
    let collected = Collected::from_logs(LogFormat::JsonLines, text);
    let bodies: Vec<_> = collected.logs.iter().map(|log| (log.text(), log.time.is_some())).collect();
    assert_eq!(bodies, [("a", true), ("c", false)]);
    let lines: Vec<_> = collected.problems.iter().map(|found| found.place.line).collect();
    assert_eq!(lines, [2, 3, 4]);
}
