//! Records that are written in a drawn layout, with times in a drawn form, are read back. The times
//! are written by jiff, and the readers of forms don't use it.

use astracer_formats::{Limits, logs};
use astracer_model::{LogFormat, LogRecord, UnixNanos};
use jiff::Timestamp;
use jiff::tz::Offset;
use proptest::prelude::*;
use proptest::sample::select;

use crate::collected::Collected;

/// Forms of times by the letters of strftime, and their last digits in nanoseconds.
const FORMS: &[(&str, u64)] = &[
    ("%Y-%m-%d %H:%M:%S,%3f", 1_000_000),
    ("%Y-%m-%dT%H:%M:%S.%9f%:z", 1),
    ("%Y-%m-%d %H:%M:%S.%6f %z", 1_000),
    ("%Y/%m/%d %H:%M:%S", 1_000_000_000),
    ("%d/%b/%Y:%H:%M:%S %z", 1_000_000_000),
    ("%d.%m.%Y %H:%M:%S.%3f", 1_000_000),
    ("%m/%d/%Y %I:%M:%S %p", 1_000_000_000),
    ("%a %b %e %H:%M:%S %Y", 1_000_000_000),
    ("%a, %d %b %Y %H:%M:%S UTC", 1_000_000_000),
    ("%Y%m%d %H:%M:%S.%3f", 1_000_000),
    ("%G-W%V-%uT%H:%M:%S", 1_000_000_000),
    ("%s", 1_000_000_000),
    ("%s.%6f", 1_000),
    ("%s%3f", 1_000_000),
    ("%b %e %H:%M:%S", 1_000_000_000),
    ("%m-%d %H:%M:%S.%3f", 1_000_000),
    ("%H:%M:%S.%3f", 1_000_000),
];
/// Forms from here on lack the year or the date, which is the file's.
const FIRST_PARTIAL: usize = 14;

const LAYOUTS: &[&str] = &[
    "TIME LEVEL [THREAD] LOGGER - MESSAGE",
    "TIME [THREAD] LEVEL LOGGER - MESSAGE",
    "TIME [THREAD] LEVEL LOGGER: MESSAGE",
    "TIME LEVEL LOGGER: MESSAGE",
    "TIME - LOGGER - LEVEL - MESSAGE",
    "TIME|LEVEL|LOGGER|MESSAGE",
    "TIME\tLEVEL\tLOGGER\tMESSAGE",
    "[TIME] LEVEL MESSAGE (LOGGER)",
    "LEVEL [THREAD] TIME a.java:7 - MESSAGE",
    "TIME LEVEL MESSAGE",
    "[LEVEL] TIME MESSAGE",
    "TIME MESSAGE",
];
/// Layouts that need a whole time.
const MEMBERS: &[&str] = &[
    r#"{"time":"TIME","level":"LEVEL","logger":"LOGGER","thread":"THREAD","msg":"MESSAGE"}"#,
    r#"{"a":{"b":[1]},"msg":"MESSAGE","log.level":"LEVEL","@timestamp":"TIME","log.logger":"LOGGER"}"#,
    r#"time="TIME" level=LEVEL logger=LOGGER thread="THREAD" msg="MESSAGE""#,
];
const LEVELS: [&str; 5] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"];
const LOGGERS: [&str; 3] = ["a.b.C", "shop", "shop.orders.Order$Line"];
const THREADS: [&str; 3] = ["main", "http-nio-8080-exec-1", "pool 1 thread 2"];
const WORDS: [&str; 8] =
    ["one", "3", "at 2020-01-02 03:04:05", "x=1", "ERROR", "[b]", "10.0.0.1:80", "\u{e9}"];
const FURTHER: [&str; 4] = ["\tat a.b.C.d(C.java:7)", "caused by: it", "", "    {"];

#[derive(Clone, Debug)]
struct Drawn {
    step: u64,
    level: &'static str,
    logger: &'static str,
    thread: &'static str,
    words: Vec<&'static str>,
    further: Option<&'static str>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let words = prop::collection::vec(select(&WORDS[..]), 0..5);
    let further = prop::option::of(select(&FURTHER[..]));
    (0..5_000_000_000_000u64, select(&LEVELS[..]), select(&LOGGERS[..]), select(&THREADS[..]), words, further)
        .prop_map(|(step, level, logger, thread, words, further)| Drawn {
            step,
            level,
            logger,
            thread,
            words,
            further,
        })
}

fn read(text: &str, changed: u64) -> (logs::Reading, Vec<LogRecord<'static>>) {
    let options = logs::Options { changed: Some(UnixNanos(changed)), ..logs::Options::default() };
    let format = logs::detect(text.as_bytes(), &options);
    let Some(format) = format else { panic!("not recognised:\n{text}") };
    let mut collected = Collected { wants_logs: true, ..Collected::default() };
    let (file, limits) = ("f".into(), Limits::default());
    let reading = logs::read(format, &mut text.as_bytes(), &file, &limits, &options, &mut collected);
    assert_eq!(collected.problems, []);
    collected.assert_places(text.as_bytes());
    (reading, collected.logs)
}

/// A banner between records may mention a date, such as that of a build.
#[test]
fn a_date_within_a_text_begins_no_record() {
    let text = "\
2026-11-21 00:56:22,663 INFO  [main] NameNode: STARTUP_MSG:
/****************************
STARTUP_MSG:   build = https://example.org/hadoop -r baa91f7; compiled by 'root' on 2016-08-18T01:41Z
STARTUP_MSG:   java = 17
****************************/
2026-11-21 00:56:22,700 INFO  [main] NameNode: registered
";
    let (reading, logs) = read(text, 0);
    assert_eq!((reading.lines, logs.len()), (6, 2));
}

proptest! {
    #[test]
    fn records_are_read_back(
        (form, layout) in (0..FORMS.len()).prop_flat_map(|form| {
            let layouts = if form < FIRST_PARTIAL { [LAYOUTS, MEMBERS].concat() } else { LAYOUTS.to_vec() };
            (Just(form), select(layouts))
        }),
        // Seconds of ten digits, and days for which the zone below has the same year.
        start in 1_000_000_000..2_900_000_000u64,
        records in prop::collection::vec(drawn(), 1..30),
    ) {
        let (form, resolution) = FORMS[form];
        let is_one_line = MEMBERS.contains(&layout);
        let mut now = start * 1_000_000_000;
        let (mut text, mut times, mut messages) = (String::new(), Vec::new(), Vec::new());
        for record in &records {
            now += record.step;
            let time = Timestamp::from_nanosecond(i128::from(now)).expect("a time");
            let zone = if form.ends_with("z") { Offset::constant(2) } else { Offset::UTC };
            let time = time.to_zoned_datetime(zone.to_time_zone()).strftime(form).to_string();
            let message = [&["sold"][..], &record.words].concat().join(" ");
            let line = layout
                .replace("TIME", &time)
                .replace("LEVEL", record.level)
                .replace("LOGGER", record.logger)
                .replace("THREAD", record.thread)
                .replace("MESSAGE", &message);
            text.push_str(&line);
            text.push('\n');
            if let Some(further) = record.further {
                text.push_str(further);
                text.push('\n');
            }
            times.push(Some(UnixNanos(now - now % resolution)));
            messages.push(message);
        }
        let (reading, logs) = read(&text, now);
        prop_assert_eq!(reading.lines, text.lines().count() as u64, "lines of {} in\n{}", reading.layout, text);
        prop_assert_eq!(logs.iter().map(|log| log.time).collect::<Vec<_>>(), times, "{}:\n{}", reading.layout, text);
        for ((log, record), message) in logs.iter().zip(&records).zip(&messages) {
            prop_assert_eq!(log.resolution, resolution);
            prop_assert!(log.text().contains(&**message), "{}: {:?}\n{}", reading.layout, log, text);
            let further = record.further.unwrap_or_default().trim_end();
            prop_assert!(log.text().contains(further), "{}: {:?}\n{}", reading.layout, log, text);
            if layout.contains("LEVEL") {
                prop_assert_eq!(&log.severity_text, record.level, "{}:\n{}", reading.layout, text);
            }
            if layout.contains("LOGGER") || is_one_line {
                prop_assert_eq!(&log.logger, record.logger, "{}:\n{}", reading.layout, text);
            }
            if layout.contains("THREAD") {
                prop_assert_eq!(&log.thread, record.thread, "{}:\n{}", reading.layout, text);
            }
        }
    }
}

/// Pieces of which hostile logs are made.
const PIECES: [&[u8]; 24] = [
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b" ",
    b"2026-05-14 09:00:00",
    b"2026-05-14T09:00:00.123456789+02:00",
    b"May 14 09:00:00",
    b"1778749200.5",
    b"@4000000037c219bf2ef02e94",
    b"[    5.123456]",
    b"E0514 09:00:00.123456",
    b"14/May/2026:09:00:00 +0200",
    b"09:00:00",
    b" stdout P ",
    b" stderr F ",
    b"web-1  | ",
    b"<34>",
    b"{\"time\":\"2026-05-14 09:00:00\",\"msg\":\"a\"}",
    b"time=1778749200 level=info msg=\"a",
    b"__CURSOR=a\nMESSAGE\n\x01\0\0\0\0\0\0\0a\n",
    b" INFO [a] b.C: d\n",
    b"\xff\xfe\0\xc3",
    "\u{e9}\u{2028}\u{1f600}".as_bytes(),
];

proptest! {
    /// No text ends the reading, and each of its lines is in a record.
    #[test]
    fn no_line_of_any_text_is_lost(
        pieces in prop::collection::vec((select(&PIECES[..]), 0..60usize, any::<bool>()), 1..40),
        noise in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut text = Vec::new();
        for (piece, len, is_whole) in pieces {
            text.extend_from_slice(&piece[..if is_whole { piece.len() } else { len.min(piece.len()) }]);
        }
        text.extend(noise);
        let options = logs::Options { changed: Some(UnixNanos(1 << 60)), ..logs::Options::default() };
        let format = logs::detect(&text, &options);
        // Documents have no lines.
        let Some(format) = format.filter(|format| *format != LogFormat::JsonDocuments) else { return Ok(()) };
        let mut collected = Collected { wants_logs: true, ..Collected::default() };
        let (file, limits) = ("f".into(), Limits::default());
        let reading =
            logs::read(format, &mut &*text, &file, &limits, &options, &mut collected);
        // UTF-16 and lone carriage returns are converted first.
        if !text.starts_with(b"\xff\xfe") && !text.starts_with(b"\xfe\xff") && text.contains(&b'\n') {
            let feeds = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
            prop_assert_eq!(reading.lines, feeds + u64::from(!text.ends_with(b"\n")), "{:?}", reading);
            collected.assert_places(&text);
        }
    }
}
