use astracer_formats::{Limits, logs};
use astracer_model::{Limit, LogFormat, ProblemKind, Sink as _, Value};

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
    let options = logs::Options { layouts: vec!["%d|%m".parse().unwrap()], ..logs::Options::default() };
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
    assert_eq!(collected.logs[0].attribute("log.lines_before"), Some(&Value::from("torn: x")));
    let problems: Vec<_> = collected.problems.iter().map(|found| (found.kind, found.place.line)).collect();
    assert_eq!(problems, [(ProblemKind::BadText, 6)]);
}

#[test]
fn a_record_that_is_too_long_is_reported_and_the_next_is_read() {
    let line = "2026-11-21 00:56:59,259 WARN  [main] a.B: ";
    let text = format!("{line}one\n{line}{}\n{line}two\n{}", "x".repeat(5000), "more\n".repeat(1000));
    let mut collected = Collected { wants_logs: true, ..Collected::default() };
    assert!(collected.wants().logs);
    let limits = Limits { record_bytes_max: 1000, ..Limits::default() };
    let options = logs::Options::default();
    logs::read(LogFormat::Layout, &mut text.as_bytes(), &"f".into(), &limits, &options, &mut collected);
    assert_eq!((collected.logs[0].text(), collected.problems[0].limit), ("one", Some(Limit::RecordBytes)));
    assert!(collected.logs[1].text().starts_with("two\nmore"));
    assert!(collected.logs.iter().all(|log| log.text().len() <= 1000));
}

#[test]
fn lines_that_are_no_objects_belong_to_the_object_above() {
    let text = "booting\n{\"time\":5,\"msg\":\"a\"}\npanicked at x\n[1]\n{\"msg\":\"b\"} x\n\
                {\"time\":1e30,\"msg\":\"c\"}\n";
    let collected = Collected::from_logs(LogFormat::JsonLines, text);
    let bodies: Vec<_> = collected.logs.iter().map(|log| (log.text(), log.time.is_some())).collect();
    assert_eq!(bodies, [("a\npanicked at x\n[1]\n{\"msg\":\"b\"} x", true), ("c", false)]);
    assert_eq!(collected.logs[0].attribute("log.lines_before"), Some(&Value::from("booting")));
    assert_eq!(collected.problems, []);
}

#[test]
fn lines_that_are_no_json_records_are_kept() {
    let text = "starting\n{\"time\":5,\"msg\":\"a\"}\npanic: x\n\tmain.go:1\n{\"msg\":\"no time\"}\n{\"time\":\n\
                {\"time\":6,\"msg\":\"b\" \"c\"}\n{\"time\":1e30,\"msg\":\"d\"}\n";
    let collected = Collected::from_logs(LogFormat::JsonLines, text);
    let bodies: Vec<_> = collected.logs.iter().map(|log| (log.text(), log.time.is_some())).collect();
    let first = "a\npanic: x\n\tmain.go:1\n{\"msg\":\"no time\"}\n{\"time\":";
    let damaged = "{\"time\":6,\"msg\":\"b\" \"c\"}";
    assert_eq!(bodies, [(first, true), (damaged, false), ("d", false)]);
    assert_eq!(collected.places().iter().map(|place| place.1).collect::<Vec<_>>(), [7]);
}

/// The lines of a stream of CRI: a line in parts, and one that is not JSON.
#[test]
fn prefixes_of_collectors_are_taken_off() {
    let text = "2026-05-14T11:00:00.1+02:00 stdout P {\"level\":\"warn\",\n\
                2026-05-14T11:00:00.2+02:00 stdout F \"msg\":\"x\"}\n\
                2026-05-14T11:00:01.1+02:00 stderr F plain\n";
    let collected = Collected::from_logs(LogFormat::Layout, text);
    let records: Vec<_> = collected.logs.iter().map(|log| (log.time.unwrap().0, log.text())).collect();
    let start = 1_778_749_200_000_000_000; // date --date=2026-05-14T09:00:00Z +%s
    let joined = "{\"level\":\"warn\",\"msg\":\"x\"}";
    assert_eq!(records, [(start + 100_000_000, joined), (start + 1_100_000_000, "plain")]);

    // A line without a time that another container wrote in between is a record of that container.
    let text = "web-1  | 2026-05-14 09:00:00 WARN late\nweb-1  |   at x\ndb | 2026-05-14 09:00:00 INFO y\n\
                web-1  |   at z\n";
    let collected = Collected::from_logs(LogFormat::Layout, text);
    let records: Vec<_> = collected
        .logs
        .iter()
        .map(|log| (log.resource.attributes[0].value.as_str().unwrap_or(""), log.text()))
        .collect();
    assert_eq!(records, [("web-1", "late\n  at x"), ("db", "y"), ("web-1", "  at z")]);
}

#[test]
fn utf_16_and_carriage_returns_are_read() {
    let line = "2026-05-14 09:00:00 INFO \u{e9}\r\n2026-05-14 09:00:01 INFO b\r\n";
    let mut bytes = vec![0xff, 0xfe];
    bytes.extend(line.encode_utf16().flat_map(u16::to_le_bytes));
    for text in [bytes, line.replace('\n', "").into_bytes()] {
        let format = logs::detect(&text, &logs::Options::default()).expect("a log");
        let collected = Collected::from_logs(format, &text);
        assert_eq!(collected.logs.iter().map(|log| log.text()).collect::<Vec<_>>(), ["\u{e9}", "b"]);
        assert_eq!(collected.problems, []);
    }
}

/// A truncated file begins with NULs, and a binary part is in its middle.
#[test]
fn binary_parts_are_kept() {
    let text =
        b"\0\0\0\x002026-05-14 09:00:00 INFO a\n\xff\xfe\0\x01\n2026-05-14 09:00:01 INFO b\n99999-05-14 0:00\n";
    let collected = Collected::from_logs(LogFormat::Layout, text);
    let bodies: Vec<_> = collected.logs.iter().map(|log| log.text()).collect();
    assert_eq!(bodies, ["a\n\u{fffd}\u{fffd}\0\u{1}", "b\n99999-05-14 0:00"]);
    assert_eq!(collected.kinds(), [ProblemKind::BadText]);
}

/// A logger may mix the layouts of its name: RFC 5424 with and without structured data, and
/// journald's export without its cursors.
#[test]
fn mixed_records_are_read() {
    let text = "<34>1 2026-05-14T09:00:00Z h su 7 A - up\n<34>1 2026-05-14T09:00:00Z h su 7 B [a b=\"c\"] on\n\
                <34>1 2026-05-14T09:00:00Z h su 7 C - off\n";
    let collected = Collected::from_logs(LogFormat::Layout, text);
    assert_eq!(collected.logs.iter().map(|log| log.text()).collect::<Vec<_>>(), ["up", "on", "off"]);
    assert_eq!(collected.logs[1].attribute("structured"), Some(&Value::from("a b=\"c\"")));

    let text = "__REALTIME_TIMESTAMP=1778749200000000\nMESSAGE=a\n\n__REALTIME_TIMESTAMP=1778749201000000\nMESSAGE=b\n";
    assert_eq!(detected(text), Some(LogFormat::JournalExport));
    let collected = Collected::from_logs(LogFormat::JournalExport, text);
    assert_eq!(collected.logs.iter().map(|log| log.text()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(detected("KEY=1\nMESSAGE=a\n"), None);
}

/// A time means what the user states, whatever it looks like. The instants are those
/// of `date`.
#[test]
fn stated_times_are_read_as_stated() {
    for (layout, text, seconds) in [
        ("%d{dd.MM.yy HHmmss} %m", "14.05.26 090000 up", 1_778_749_200),
        ("%d{yyyy-MM-dd'|'HH:mm:ss}|%m", "2026-05-14|09:00:00|up", 1_778_749_200),
        ("%Y-%m-%d|%H:%M:%S|%m", "2026-05-14|09:00:00|up", 1_778_749_200),
        // May, and then June.
        ("%d{MM/dd/yyyy HH:mm:ss} %m", "05/06/2026 09:00:00 up", 1_778_058_000),
        ("%d{dd/MM/yyyy HH:mm:ss} %m", "05/06/2026 09:00:00 up", 1_780_650_000),
        ("%d{HH:mm:ss,SSS dd-MM-yyyy} %m", "09:00:00,000 14-05-2026 up", 1_778_749_200),
        ("%d{ISO8601} %m", "2026-05-14 09:00:00,000 up", 1_778_749_200),
        ("%d %m", "2026-05-14 09:00:00 Europe/Berlin up", 1_778_742_000),
    ] {
        let options =
            logs::Options { layouts: vec![layout.parse().expect(layout)], ..logs::Options::default() };
        let mut collected = Collected { wants_logs: true, ..Collected::default() };
        let (file, limits) = ("f".into(), Limits::default());
        logs::read(LogFormat::Layout, &mut text.as_bytes(), &file, &limits, &options, &mut collected);
        let found: Vec<_> = collected.logs.iter().map(|log| (log.time.unwrap().0, log.text())).collect();
        assert_eq!(found, [(seconds * 1_000_000_000, "up")], "{layout}");
    }
}

#[test]
fn a_layout_that_fits_no_line_is_told() {
    let options = logs::Options { layouts: vec!["%d|%m".parse().unwrap()], ..logs::Options::default() };
    let read = |text: &str| {
        let mut collected = Collected { wants_logs: true, ..Collected::default() };
        let (file, limits) = ("f".into(), Limits::default());
        let reading =
            logs::read(LogFormat::Layout, &mut text.as_bytes(), &file, &limits, &options, &mut collected);
        (reading.layout.into_owned(), reading.is_layout_unfit, collected.skipped)
    };
    assert_eq!(read("2026-05-14 09:00:00|up\n"), ("given".to_owned(), false, Vec::new()));
    assert_eq!(read("2026-05-14 09:00:00 INFO up\n"), ("time-level".to_owned(), true, Vec::new()));
    let (_, _, skipped) = read("14. 9 Uhr: up\n");
    assert!(skipped[0].1.contains("follows the layout stated"), "{skipped:?}");
}
