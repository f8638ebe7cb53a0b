//! `astracer order` as a user runs it.

use crate::options::{Codes, INPUT, REFUSED};
use crate::outputs::Folder;
use crate::{Scratch, failure, run, success};

const ORDER: &[&str] = &["order", INPUT];
const FILE: Codes = [0, 2, 0, 0, 0, 2, 2, 1, 1, 2];
/// An event's id, or a number.
const NUMBER: Codes = [0, 2, 2, 2, 2, 2, 2, 2, 2, 2];

/// Rows of the table of options. The recording has spans only.
pub(crate) const OPTIONS: &[(&[&str], &str, Codes)] = &[
    (&["order"], "", [1, 2, 1, 1, 1, 2, 0, 1, 1, 0]),
    (ORDER, "--goal", REFUSED),
    (ORDER, "--offset", REFUSED),
    (ORDER, "--clock-pattern", REFUSED),
    (ORDER, "--layout", REFUSED),
    (ORDER, "--layouts", REFUSED),
    (ORDER, "--log-zone", REFUSED),
    (ORDER, "--expanded-max", REFUSED),
    (ORDER, "--record-max", REFUSED),
    (ORDER, "--out", FILE),
    (ORDER, "--shiviz", FILE),
    (ORDER, "--perfetto", FILE),
    (ORDER, "--html", FILE),
    // It takes two events.
    (ORDER, "--between", REFUSED),
    (ORDER, "--around", NUMBER),
    (&["order", INPUT, "--around", "0"], "--hops", NUMBER),
    (ORDER, "--cause-of", NUMBER),
    (ORDER, "--effect-of", NUMBER),
    // It takes two events.
    (ORDER, "--same", REFUSED),
    (ORDER, "--trace", REFUSED),
    (ORDER, "--from", NUMBER),
    (ORDER, "--to", NUMBER),
    (ORDER, "--only", REFUSED),
    (ORDER, "--process", [1, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
];

const EVENTS: &str = r#"{"type":"LOG","timestamp":1525880625800,"thread":"1@a","message":"asked","id":1}
{"type":"SND","timestamp":1525880625801,"thread":"1@a","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":2}
{"type":"RCV","timestamp":1525880625803,"thread":"2@b","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":3}
{"type":"LOG","timestamp":1525880625804,"thread":"2@b","message":"answered","id":4}
{"type":"LOG","timestamp":1525880625805,"thread":"1@a","message":"waited\n  for long","id":5}
"#;

/// The causes can be followed by hand: 1 < 2 < 3 < 4 and 2 < 5.
#[test]
fn questions_about_an_order_are_answered() {
    let input = Scratch::new("order-ask.jsonl", EVENTS);
    let ask = |args: &[&str]| success(&run(&[&["order", input.path()], args].concat()));
    let text = ask(&["--between", "/^ans/", "1"]);
    assert!(text.contains("A is after B") && text.contains("has 4 events"), "{text}");
    assert!(text.contains("was received by 2@b\n    3 15:43:45.803 RCV 9 B a:1->b:2 ("), "{text}");
    let place = format!("{}:5", input.path());
    assert!(ask(&["--between", &place, "3"]).contains("A and B are concurrent"));
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&ask(&[args, &["--json"]].concat())).expect("JSON")
    };
    assert_eq!(json(&["--between", "1", "5"])["between"]["relation"], "before");
    for (args, events) in [
        (&["--cause-of", "4"][..], [1, 2, 3, 4].as_slice()),
        (&["--around", "3", "--hops", "1"], &[2, 3, 4]),
        (&["--from", "3ms", "--to", "2018-05-09T15:43:45.804Z"], &[3, 4]),
        (&["--only", "LOG,RCV", "--process", "b"], &[3, 4]),
        (&["--from", "/answered/"], &[4, 5]),
    ] {
        assert_eq!(json(args)["selected"]["events"], serde_json::json!(events), "{args:?}");
    }
    let links = &json(&["--only", "LOG"])["selected"]["links"];
    assert_eq!(*links, serde_json::json!([{"before": 1, "after": 4, "kind": "transitive"}]));
    for (args, code, says) in [
        (&["--around", "9"][..], 1, "no event has the id 9"),
        (&["--cause-of", "/x(/"], 2, "invalid regular expression 'x('"),
        (&["--process", "c"], 1, "the names are a, b"),
        (&["--only", "LOG", "--process", "a", "--from", "1h"], 1, "the selection has none of the 5 events"),
    ] {
        failure(&run(&[&["order", input.path()], args].concat()), code, &[says]);
    }
}

/// A request from 1@a to 2@b and its answer; 3@b logs meanwhile. The clock of b is 50 ms ahead.
const ROUND: &str = r#"{"type":"LOG","timestamp":1525880625800,"thread":"1@a","message":"asked","id":1}
{"type":"SND","timestamp":1525880625801,"thread":"1@a","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":2}
{"type":"RCV","timestamp":1525880625853,"thread":"2@b","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":3}
{"type":"LOG","timestamp":1525880625854,"thread":"2@b","message":"worked","id":4}
{"type":"LOG","timestamp":1525880625854,"thread":"3@b","message":"idled","id":5}
{"type":"SND","timestamp":1525880625855,"thread":"2@b","src":"b","src_port":2,"dst":"a","dst_port":1,"size":7,"id":6}
{"type":"RCV","timestamp":1525880625807,"thread":"1@a","src":"b","src_port":2,"dst":"a","dst_port":1,"size":7,"id":7}
{"type":"LOG","timestamp":1525880625808,"thread":"1@a","message":"has it","id":8}
"#;

/// By hand: 1 < 2 < 3 < 4 < 6 < 7 < 8, and on thread 1@a alone 1 < 2 < 7 < 8.
#[test]
fn a_chain_leads_through_other_processes_and_all_between_is_listed() {
    let input = Scratch::new("order-round.jsonl", ROUND);
    let ask = |args: &[&str]| success(&run(&[&["order", input.path()], args].concat()));
    let text = ask(&["--between", "/asked/", "/has it/"]);
    for says in [
        "Certainty: as recorded; through other processes: by bytes.",
        "chain of causes through other processes has 7 events",
        "Between them lie 5 events by causes: a 2, b 3 (--all lists them).",
    ] {
        assert!(unwrapped(&text).contains(says), "{says}: {text}");
    }
    // Lines of one log give an order, but causes only if they state one thread.
    let folder = Folder::new("order-lines");
    let line =
        |second: u32, thread: &str| format!("2026-05-14 09:00:0{second}.000 INFO {thread}a: no {second}\n");
    for (thread, says) in
        [("[main] ", "A is before B: it may have caused B"), ("", "in their log, A is the earlier line")]
    {
        let log = folder.file("app.log", &(line(1, thread) + &line(2, thread)));
        let text = success(&run(&["order", &log, "--between", "/no 1/", "/no 2/"]));
        assert!(unwrapped(&text).contains(says), "{text}");
    }
    let text = ask(&["--between", "/has it/", "/asked/", "--all"]);
    assert!(text.contains("A is after B") && text.contains("a 2, b 3:\non a\n    2 "), "{text}");
    assert_eq!(text.matches("worked").count(), 1, "{text}");
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&ask(&[args, &["--json"]].concat())).expect("JSON")
    };
    let between = &json(&["--between", "1", "8"])["between"];
    let hosts = serde_json::json!([{"host": "a", "events": [2, 7]}, {"host": "b", "events": [3, 4, 6]}]);
    assert_eq!(between["inside"], hosts);
    let ids = |chain: &serde_json::Value| -> Vec<u64> {
        chain.as_array().expect("a list").iter().filter_map(|step| step["event"].as_u64()).collect()
    };
    assert_eq!(
        (ids(&between["chain"]), ids(&between["through"])),
        (vec![1, 2, 7, 8], vec![1, 2, 3, 4, 6, 7, 8])
    );
    assert_eq!(json(&["--effect-of", "4"])["selected"]["events"], serde_json::json!([4, 6, 7, 8]));
}

/// Two records of one moment, without any message.
#[test]
fn two_records_of_one_moment_state_the_offset_of_clocks() {
    let folder = Folder::new("order-same");
    let line = |host: &str, time: &str, text: &str, trace: &str| {
        format!(
            "{{\"time\":\"2026-05-14T09:00:{time}Z\",\"host\":\"{host}\",\"level\":\"warn\",\"msg\":\"{text}\",\"trace_id\":\"{trace}\"}}\n"
        )
    };
    let (one, other) = ("0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c");
    let a =
        folder.file("a.log", &(line("a", "01.000", "door opens", one) + &line("a", "02.000", "last", other)));
    let b = folder
        .file("b.log", &(line("b", "06.250", "bell \\\"rings\\\"", one) + &line("b", "06.500", "more", one)));
    let json = |args: &[&str]| -> serde_json::Value {
        let all = [&["order", &a, &b, "--json"], args].concat();
        serde_json::from_str(&success(&run(&all))).expect("JSON")
    };
    let report = json(&["--same", "/door/", "/bell/", "--trace", one]);
    let clock = report["clocks"].as_array().expect("a list").iter().find(|clock| clock["host"] == "b");
    assert_eq!(clock.map(|clock| &clock["ahead_ns"]), Some(&5_250_000_000i64.into()), "{report}");
    assert_eq!(report["selected"]["events"].as_array().map(Vec::len), Some(3));
    let text = success(&run(&["order", &a, &b, "--trace", one]));
    assert!(text.contains("WARN door opens (") && text.contains("WARN bell \"rings\" ("), "{text}");
    let merged = success(&run(&["order", &a, &b, "--merged", "--same", "/door/", "/bell/"]));
    let order: Vec<_> = merged.lines().map(|line| line.split_whitespace().last()).collect();
    assert!(merged.lines().last().is_some_and(|line| line.contains("last")), "{order:?}");
    for (args, says) in [
        (["--same", "/door/", "/last/"], "both events are of host 'a', which has one clock"),
        (["--same", "/door/", "/window/"], "no event's text matches /window/"),
    ] {
        let all = [&["order", &a, &b][..], &args].concat();
        let code = if says.starts_with("both") { 2 } else { 1 };
        failure(&run(&all), code, &[says]);
    }
}

const LOG: &str = "2026-05-14 09:00:00.000 INFO up\n2026-05-14 09:00:01.000 WARN slow\n  twice\n2026-05-15 00:00:00.000 ERROR down\n";

/// The first screen, JSON and standard error say which file gave which records.
#[test]
fn each_file_of_logs_is_described() {
    let folder = Folder::new("order-described");
    let (app, text) = (folder.file("app.log", LOG), folder.file("LICENSE", "MIT\n\nIt ends.\n"));
    let output = run(&["order", &app, &text]);
    assert!(output.status.success(), "{output:?}");
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    let unread = format!("warning: not read: {text}\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&unread), "{output:?}");
    for says in [
        "app.log: 3 records (time-level), 2026-05-14T09:00:00.000Z to 2026-05-15T00:00:00.000Z, 1 error, 1 warning; assumed: zone",
        "the times of 1 file state no zone and are read as UTC; --log-zone names another",
        "not read: 1 file",
        "its first line is 'MIT'; a layout to begin with: '%Y-%m-%d %H:%M:%S %p %m'",
        "state its layout with --layout '[GLOB=]PATTERN'",
    ] {
        assert!(unwrapped(&screen).contains(says), "{says} in {screen}");
    }
    let json = run(&["order", &app, &text, "--json", "--log-zone", "+02:00"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let file = &json["input"]["files"][0];
    for (key, value) in [
        ("layout", "time-level".into()),
        ("log_records", 3.into()),
        ("lines", 4.into()),
        ("first", "2026-05-14T07:00:00.000Z".into()),
        ("last", "2026-05-14T22:00:00.000Z".into()),
        ("errors", 1.into()),
        ("warnings", 1.into()),
        ("assumed", serde_json::json!(["zone"])),
    ] {
        assert_eq!(file[key], value, "{key}: {file}");
    }
    assert_eq!(json["input"]["log_zone"], "UTC+02");
    assert_eq!(json["input"]["skipped"][0]["file"], *text);
    let merged = run(&["order", &app, &text, "--merged"]);
    assert!(merged.status.success());
    assert_eq!(String::from_utf8_lossy(&merged.stdout).lines().count(), 4);
    let says = String::from_utf8_lossy(&merged.stderr).into_owned();
    assert!(says.starts_with(&format!("warning: not read: {text}: ")) && says.contains("--layout"), "{says}");
    failure(
        &run(&["order", &app, &text, "--merged", "--strict"]),
        1,
        &["not read: ", "LICENSE", "omit --strict"],
    );
    failure(&run(&["order", &text]), 1, &["no events in", "first line is 'MIT'", "--layout"]);
    // Commands of spans name those that read it.
    failure(&run(&["inspect", &app]), 1, &["a log, not traces; order, compare and query --logs"]);
    let events = folder.file("events.jsonl", EVENTS);
    failure(&run(&["inspect", &events]), 1, &["a recording of events, not traces; order reads it"]);
}

/// strace saw one of two records; the clock orders the other.
#[test]
fn a_record_that_strace_did_not_see_is_ordered_by_its_clock() {
    let folder = Folder::new("order-lost");
    let traced = "2026-05-14 09:00:01.000 INFO traced line\n";
    let log = folder.file("app.log", &format!("2026-05-14 09:00:00.000 INFO before strace\n{traced}"));
    let calls = format!(
        "100   1778749201.000000 write(3</var/log/app.log>, {traced:?}, 41) = 41\n\
         100   1778749201.100000 exit_group(0) = ?\n100   1778749201.100100 +++ exited with 0 +++\n"
    );
    let calls = folder.file("app.strace", &calls);
    let merged = success(&run(&["order", &log, &calls, "--merged"]));
    let messages: Vec<_> = merged.lines().filter_map(|line| Some(line.split_once("INFO ")?.1)).collect();
    assert_eq!(messages, ["before strace", "traced line"], "{merged}");
}

/// One time of 2066, a clock that was set back, and a rotation whose times are all equal.
#[test]
fn times_out_of_order_are_named_and_move_no_other() {
    let folder = Folder::new("order-steps");
    let line = |time: &str, text: &str| format!("{time} INFO a: {text}\n");
    let day = |second: &str| format!("2026-05-14 09:00:{second}");
    let outlier = [(day("00"), "1"), ("2066-10-24 23:45:52".into(), "2"), (day("02"), "3")];
    let back = [(day("30"), "1"), (day("31"), "2"), (day("02"), "3"), (day("03"), "4")];
    for (name, lines, says) in [
        ("outlier", &outlier[..], "outlier.log:2: the time 2066-10-24T23:45:52.000Z is out of order"),
        ("back", &back, "back.log:1: the time 2026-05-14T09:00:30.000Z is out of order"),
    ] {
        let text: String = lines.iter().map(|(time, text)| line(time, text)).collect();
        let log = folder.file(&format!("{name}.log"), &text);
        let json = success(&run(&["order", &log, "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["moved"]["events"], 0, "{name}");
        assert!(json["steps"][0].as_str().is_some_and(|step| step.contains(says)), "{}", json["steps"]);
    }
    let rotated = [("app.log", "3"), ("app.log.1", "2"), ("app.log.2", "1")];
    let files = rotated.map(|(name, text)| folder.file(name, &line(&day("00"), text)));
    // The same file by another name counts once.
    let again = folder.join("./app.log");
    let out = folder.join("out.jsonl");
    let args = ["order", &files[0], &files[1], &files[2], &again, "--out", &out];
    success(&run(&args));
    let text = std::fs::read_to_string(&out).expect("written");
    let messages: Vec<_> =
        text.lines().filter_map(|line| line.split("INFO a: ").nth(1)?.chars().next()).collect();
    assert_eq!(messages, ['1', '2', '3'], "{text}");
}

/// One stamp of 2066 in a log, and one among events with causes: nothing else moves, and what has
/// its place by other evidence is printed with its own time.
#[test]
fn a_wrong_stamp_is_named_and_its_neighbours_stay() {
    let folder = Folder::new("order-outlier");
    let line = |time: &str, text: &str| format!("2026-05-14 09:00:{time} INFO a: {text}\n");
    let wrong = "2066-10-24 23:45:52.000 INFO a: 2 (bad stamp)\n";
    let a =
        folder.file("a.log", &(line("00.000", "1") + wrong + &line("02.000", "3") + &line("04.000", "4")));
    let b = folder.file("b.log", &(line("01.000", "1") + &line("03.000", "2") + &line("05.000", "3")));
    let (a, b) = (format!("a={a}"), format!("b={b}"));
    let args = ["order", &a, &b, "--offset", "a=0ms", "--merged"];
    let printed = |text: &str| -> Vec<String> { text.lines().map(|line| line[2..26].to_owned()).collect() };
    let times =
        ["00", "00", "01", "02", "03", "04", "05"].map(|second| format!("2026-05-14T09:00:{second}.000Z"));
    let mut expected = times.to_vec();
    expected[1] = "2066-10-24T23:45:52.000Z".to_owned();
    // The step is a note on standard error.
    let stdout = |args: &[&str]| String::from_utf8(run(args).stdout).expect("UTF-8");
    assert_eq!(printed(&stdout(&args)), expected);
    let json = stdout(&[&args[..5], &["--merged=jsonl"]].concat());
    let placed: Vec<_> =
        json.lines().filter(|line| line.contains("\"placed\":\"2026-05-14T09:00:00.000Z\"")).collect();
    assert!(matches!(placed[..], [line] if line.contains("bad stamp")), "{json}");
    // The answer of b is stamped an hour late, before two records of its thread.
    let late = ROUND.replace("1525880625855", "1525884225855");
    let more = late.clone()
        + r#"{"type":"LOG","timestamp":1525880625856,"thread":"2@b","message":"next","id":9}"#
        + "\n";
    let input = Scratch::new("order-late-stamp.jsonl", &more);
    let text = unwrapped(&success(&run(&["order", input.path(), "--offset", "b=50ms"])));
    let says = format!("warning: {}:6: the time 2018-05-09T16:43:45.855Z contradicts", input.path());
    assert!(text.contains(&says) && text.contains("1 event contradicts a cause"), "{text}");
    let merged = success(&run(&["order", input.path(), "--offset", "b=50ms", "--merged"]));
    let last: Vec<_> = merged.lines().map(|line| line.rsplit(' ').next().unwrap_or_default()).collect();
    assert_eq!(last, ["asked", "worked", "idled", "next", "it"], "{merged}");
}

/// Twenty requests that a client's records enclose by 3 to 8 ms; the server's clock is 50 ms ahead.
/// By hand: it is at most 53 ms ahead by the first records, and at least 46 by the last.
/// While logs are read, too, they are merged in their true order.
#[test]
fn logs_with_trace_ids_are_merged_by_corrected_clocks() {
    let folder = Folder::new("order-ids-merged");
    let line = |trace: u64, ms: u64, text: &str| {
        let (second, ms) = (ms / 1_000, ms % 1_000);
        format!(
            "{{\"time\":\"2026-05-14T09:00:{second:02}.{ms:03}Z\",\"msg\":\"{text} /{trace}\",\"trace_id\":\"{trace:032x}\"}}\n"
        )
    };
    let (mut client, mut server) = (String::new(), String::new());
    for at in 1..=20u64 {
        let (begin, before) = (at * 100, 3 + at % 5);
        client += &(line(at, begin, "ask") + &line(at, begin + before + 8 + at * 3 % 5, "has"));
        server += &(line(at, begin + before + 50, "got") + &line(at, begin + before + 54, "sent"));
    }
    let client = format!("a={}", folder.file("cli.log", &client));
    let server = format!("b={}", folder.file("srv.log", &server));
    let merged = |more: &[&str]| {
        let output = run(&[&["order", &client, &server, "--merged"], more].concat());
        let says = String::from_utf8(output.stderr).expect("UTF-8");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let words: Vec<String> =
            text.lines().map(|line| line.split(" | ").nth(1).unwrap_or_default().to_owned()).collect();
        let right = words.chunks(4).filter(|own| {
            let id = own[0].rsplit('/').next().unwrap_or_default();
            (0..4).all(|at| {
                own.get(at)
                    .is_some_and(|word| *word == format!("{} /{id}", ["ask", "got", "sent", "has"][at]))
            })
        });
        (right.count(), says)
    };
    let (right, says) = merged(&[]);
    assert_eq!(right, 20);
    assert!(
        says.starts_with("note: b runs 49.50 ms ahead of a") && says.contains("its times are corrected"),
        "{says}"
    );
    // As the whole order has it.
    assert_eq!(merged(&["--strict"]).0, 20);
    assert_eq!(merged(&["--raw-times"]), (0, String::new()));
}

/// The span began 500 ms after the record's whole second, which only whole milliseconds contradict.
#[test]
fn the_last_digit_of_a_log_bounds_its_clock() {
    let folder = Folder::new("order-resolution");
    let ids = ["5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"];
    let span = serde_json::json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{
        "traceId": ids[0], "spanId": ids[1], "name": "GET", "kind": 3,
        "startTimeUnixNano": "1778749200500000000", "endTimeUnixNano": "1778749200900000000",
    }] }] }] });
    let spans = format!("a={}", folder.file("spans.json", &span.to_string()));
    for (time, ahead_ns) in [("09:00:00", 0), ("09:00:00.000", -499_000_000)] {
        let record = format!("2026-05-14 {time} INFO sold trace_id={} span_id={}\n", ids[0], ids[1]);
        let log = format!("b={}", folder.file("b.log", &record));
        let json = success(&run(&["order", &spans, &log, "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let clocks = json["clocks"].as_array().expect("a list");
        let own = clocks.iter().find(|clock| clock["host"] == "b").expect("b's clock");
        assert_eq!((&own["ahead_ns"], &json["moved"]["events"]), (&ahead_ns.into(), &0.into()), "{time}");
    }
}

/// The scanner knows no form such as `133/2026`; the pattern does.
#[test]
fn a_layout_reads_times_that_are_not_known() {
    let folder = Folder::new("order-layout");
    let log = folder.file("odd.log", "I 133/2026 090007: up\n  for good\nW 134/2026 090008: slow\n");
    let layouts = folder.file("layouts", "# ours\nodd = odd.*=%.1p %j/%Y %H%M%S: %m\n");
    failure(&run(&["order", &log]), 1, &["no events in", "first line is 'I 133/2026 090007: up'"]);
    for args in [["--layout", "%.1p %j/%Y %H%M%S: %m"], ["--layouts", &layouts]] {
        let json = success(&run(&[&["order", &log, "--json"][..], &args].concat()));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let file = &json["input"]["files"][0];
        // Day 133 of 2026 is May 13.
        assert_eq!(
            (&file["first"], &file["last"]),
            (&"2026-05-13T09:00:07.000Z".into(), &"2026-05-14T09:00:08.000Z".into())
        );
        assert_eq!(
            (&file["log_records"], &file["lines"], &file["warnings"]),
            (&2.into(), &3.into(), &1.into())
        );
    }
    // A layout that fits no line is told, and the file is read all the same.
    let log = folder.file("usual.log", "2026-05-14 09:00:00Z INFO up\n");
    let screen = success(&run(&["order", &log, "--layout", "%d|%m"]));
    assert!(unwrapped(&screen).contains("none of its first lines follows the layout stated"), "{screen}");
    let merged = run(&["order", &log, "--merged", "--layout", "%d|%m"]);
    let says = "read as time-level; no line follows the layout stated";
    assert!(String::from_utf8_lossy(&merged.stderr).contains(says), "{merged:?}");
}

#[test]
fn the_logs_of_all_files_become_one() {
    let input = Scratch::new("order-merged.jsonl", EVENTS);
    let text = success(&run(&["order", input.path(), "--merged"]));
    assert_eq!(
        text,
        "  2018-05-09T15:43:45.800Z a 1@a | asked\n  2018-05-09T15:43:45.804Z b 2@b | answered\n\
         ~ 2018-05-09T15:43:45.805Z a 1@a | waited\n  for long\n"
    );
}

/// Each file holds all five events and the message between the two threads.
#[test]
fn an_order_is_written_in_each_format() {
    let input = Scratch::new("order-write.jsonl", EVENTS);
    let [out, shiviz, perfetto, html] = ["out.jsonl", "shiviz.log", "perfetto.json", "page.html"]
        .map(|name| Scratch::new(&format!("order-{name}"), ""));
    let files = [
        "--out",
        out.path(),
        "--shiviz",
        shiviz.path(),
        "--perfetto",
        perfetto.path(),
        "--html",
        html.path(),
    ];
    success(&run(&[&["order", input.path()], &files[..]].concat()));
    let read = |file: &Scratch| std::fs::read_to_string(file.path()).expect("written");
    assert!(
        read(&out).contains(r#""id":3,"clock":2,"#) && read(&out).contains(r#""dependency":2"#),
        "{}",
        read(&out)
    );
    assert!(read(&shiviz).contains(r#"2@b {"2@b":1,"1@a":2}"#), "{}", read(&shiviz));
    let trace: serde_json::Value = serde_json::from_str(&read(&perfetto)).expect("JSON");
    let phases: String = trace["traceEvents"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|event| event["ph"].as_str())
        .collect();
    assert_eq!(phases, "MMMMXXXsfXX");
    // The script draws from these numbers: five events, and an arrow from the second to the third.
    let data = || -> serde_json::Value {
        let page = read(&html);
        let (_, data) = page.split_once(r#"type="application/json">"#).expect("data");
        serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON")
    };
    assert_eq!(
        (data()["x"].as_array().map(Vec::len), &data()["links"]),
        (Some(5), &serde_json::json!([[1, 2, 0]]))
    );
    assert!(read(&html).contains("<li>2 hosts; b is bounded from one side only"), "{}", read(&html));
    assert!(read(&html).contains("5 events in one order that respects every cause"));
    // Severities, which JSON's records state.
    let line = |level: &str| {
        format!(
            "{{\"time\":\"2026-05-14T09:00:01.000Z\",\"host\":\"h\",\"level\":\"{level}\",\"msg\":\"m\"}}\n"
        )
    };
    let log = Scratch::new("order-levels.jsonl", &(line("error") + &line("warn") + &line("info")));
    success(&run(&["order", log.path(), "--html", html.path()]));
    let mut levels: Vec<u64> =
        data()["level"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_u64).collect();
    levels.sort_unstable();
    assert_eq!(levels, [9, 13, 17]);
    assert!(
        read(&html).contains("<li>errors: h 1</li>")
            && read(&html).contains(r#"<option value="17">errors</option>"#)
    );
}

#[test]
fn the_first_screen_says_when_clocks_alone_order_the_logs() {
    let input = Scratch::new("order-screen-of-a-long-name.jsonl", EVENTS);
    let screen = |path: &str| success(&run(&["order", path]));
    let says = "no cause between processes is known: this is an order by clocks";
    let text = screen(input.path());
    assert!(!text.contains(says) && text.contains("astracer order \"$@\" --cause-of 5"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains(input.path())), "{text}");
    let logs = Scratch::new("order-alone.jsonl", &without("size"));
    assert!(screen(logs.path()).contains(says));
}

/// Each of two threads sends what the other needs before it sends.
const CYCLE: &str = r#"{"type":"RCV","timestamp":1525880625800,"thread":"1@a","src":"b","src_port":2,"dst":"a","dst_port":1,"size":9,"id":1}
{"type":"SND","timestamp":1525880625801,"thread":"1@a","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":2}
{"type":"RCV","timestamp":1525880625802,"thread":"2@b","src":"a","src_port":1,"dst":"b","dst_port":2,"size":9,"id":3}
{"type":"SND","timestamp":1525880625803,"thread":"2@b","src":"b","src_port":2,"dst":"a","dst_port":1,"size":9,"id":4}
"#;

/// Contradictions come first, then the clocks, then errors by host. The commands run in a shell,
/// also with a space and a quotation mark in the path.
#[test]
fn the_first_screen_says_what_to_believe_and_what_to_type() {
    let input = Scratch::new("order-cycle.jsonl", CYCLE);
    let output = run(&["order", input.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.starts_with(b"no order exists: 1 contradiction\n2 hosts; "), "{output:?}");
    let text = success(&run(&["order", input.path(), "--drop-cycles"]));
    assert!(text.starts_with("left out because of 1 contradiction: 1 constraint"), "{text}");
    let input = Scratch::new("order-round-first.jsonl", ROUND);
    // By hand: 2 ms from a's SND to b's RCV, and 2 ms back, by clocks that differ by 50 ms and are
    // cut to 1 ms.
    let text = success(&run(&["order", input.path()]));
    assert!(text.starts_with("2 hosts; b is 50 \u{b1} 3 ms ahead of a, from 2 messages\n"), "{text}");
    let folder = Folder::new("order believe it's");
    let log = |host: &str, level: &str| {
        format!(
            "{{\"time\":\"2026-05-14T09:00:01.000Z\",\"host\":\"{host}\",\"level\":\"{level}\",\"msg\":\"m\"}}\n"
        )
    };
    let logs = [log("c", "error"), log("a", "error"), log("a", "warn"), log("a", "fatal"), log("c", "info")];
    let path = folder.file("all of it.jsonl", &logs.concat());
    let text = success(&run(&["order", &path]));
    let says = "2 hosts; c, a unknown: taken as recorded\n\
                no cause between processes is known: this is an order by clocks\n\
                errors: a 2, c 1\nwarnings: a 1\n";
    assert!(text.starts_with(says), "{text}");
    let (_, commands) = text.split_once("next, for a shell:\n").expect("commands");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_astracer")).parent().expect("a folder");
    let html = folder.join("order.html");
    let commands = commands.replace("order.html", &format!("'{}'", html.replace('\'', "'\\''")));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.to_str().expect("UTF-8"));
    let script = format!("set -e\n{commands}");
    let mut shell = std::process::Command::new("sh");
    let shell = shell.env("PATH", path).arg("-c").arg(&script).output().expect("a shell");
    assert!(shell.status.success(), "{script}: {shell:?}");
    assert_eq!(commands.matches("astracer order").count(), 4, "{commands}");
}

/// The lines of [`EVENTS`] that do not hold a text.
fn without(text: &str) -> String {
    EVENTS.lines().filter(|line| !line.contains(text)).map(|line| format!("{line}\n")).collect()
}

/// A text without the line breaks that fit it to 80 columns.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn events_without_recorded_messages_are_not_known_to_be_ordered() {
    let ask = |text: &str, more: &[&str]| {
        let input = Scratch::new("order-unknown.jsonl", text);
        unwrapped(&success(&run(&[&["order", input.path(), "--between", "4", "5"], more].concat())))
    };
    assert!(ask(EVENTS, &[]).contains("A and B are concurrent"));
    let text = ask(&without("RCV"), &[]);
    // Nothing bounds the clocks of both hosts, so they say nothing.
    let says = "A and B are not known to be ordered: no messages of b were recorded";
    assert!(text.contains(says), "{text}");
    let logs = without("size");
    let text = ask(&logs, &[]);
    assert!(text.contains("no messages of b and a were recorded"), "{text}");
    // By one clock, event 4 is 1 ms before event 5.
    let text = ask(&logs.replace("2@b", "2@a"), &[]);
    let says = "no messages of a were recorded; by the clocks, A is 1.000 ms earlier";
    assert!(text.contains(says), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&ask(&logs.replace("2@b", "2@a"), &["--json"])).expect("JSON");
    let between = &json["between"];
    assert_eq!(between["relation"], "unknown");
    assert_eq!(between["missing"]["processes"], serde_json::json!(["a"]));
    assert_eq!(between["by_clocks"], serde_json::json!({"earlier_ns": 1_000_000}));
}

#[test]
fn a_merged_log_marks_what_is_not_known_to_be_ordered() {
    let input = Scratch::new("order-merged-unknown.jsonl", &without("size"));
    let text = success(&run(&["order", input.path(), "--merged"]));
    let marks: String = text.lines().filter_map(|line| line.chars().next()).take(3).collect();
    assert_eq!(marks, " ??", "{text}");
}

/// Spans of h1 that call h2 at 10 to 50 and at `second` to 90 ms. The clock of h2 is `ahead` ms
/// ahead.
fn two_calls(second: u64, ahead: u64) -> String {
    let span = |host: &str, name: &str, kind: u32, id: u64, parent: &str, start: u64, end: u64| {
        format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{host}"}}}},{{"key":"host.name","value":{{"stringValue":"{host}"}}}}]}},"scopeSpans":[{{"spans":[{{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"{id:016x}",{parent}"name":"{name}","kind":{kind},"startTimeUnixNano":"{}","endTimeUnixNano":"{}"}}]}}]}}]}}"#,
            1_764_000_000_000_000_000 + start * 1_000_000,
            1_764_000_000_000_000_000 + end * 1_000_000,
        )
    };
    let of = |id: u64| format!(r#""parentSpanId":"{id:016x}","#);
    [
        span("h1", "request", 2, 1, "", 0, 100),
        span("h1", "call-first", 3, 2, &of(1), 5, 55),
        span("h1", "call-second", 3, 3, &of(1), second - 5, 95),
        span("h2", "first", 2, 4, &of(2), 10 + ahead, 50 + ahead),
        span("h2", "second", 2, 5, &of(3), second + ahead, 90 + ahead),
    ]
    .join("\n")
}

/// By hand: `first` lies 5 ms within its call on both sides, and so does `second`.
#[test]
fn a_chain_says_its_certainty_and_the_clocks_it_relies_on() {
    let ask = |text: &str, two: [&str; 2]| {
        let input = Scratch::new("order-certainty.json", text);
        unwrapped(&success(&run(&["order", input.path(), "--between", two[0], two[1]])))
    };
    let servers = ["/^first$/", "/^second$/"];
    let text = ask(&two_calls(65, 0), servers);
    // The first event of that name is the start, which by ids alone leads nowhere.
    assert!(text.contains("A is before B") && text.contains("Certainty: by nesting. "), "{text}");
    let text = ask(&two_calls(65, 200), servers);
    let says = "Certainty: by nesting; the clock of h2 is corrected by 200.0 ms (within 5.000 ms). ";
    assert!(text.contains(says), "{text}");
    let text = ask(&two_calls(65, 200), ["/^request$/", "/^second$/"]);
    assert!(text.contains("Certainty: by ids. "), "{text}");
    let text = ask(EVENTS, ["1", "4"]);
    assert!(text.contains("Certainty: by bytes. "), "{text}");
    assert!(ask(EVENTS, ["1", "5"]).contains("Certainty: as recorded. "));
}
