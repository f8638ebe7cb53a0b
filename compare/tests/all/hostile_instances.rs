//! Instances that no service would send: comparisons give finite numbers, and one result whatever
//! the order of files.

use std::fmt::Write as _;

use astracer_compare::comparison::{Comparison, Options, Verdict, compare};
use astracer_compare::file::InstancesFile;
use astracer_compare::instances::Class;
use astracer_compare::traces::{Chosen, Method, Traces};
use astracer_formats::Limits;
use astracer_model::Format;
use astracer_recording::recording::{Intake, Keep};
use astracer_recording::stop::Pulse;
use astracer_testing::SplitMix;
use serde_json::Value;

fn options(paper: bool) -> Options {
    Options {
        paper,
        variables_max: 1_000,
        networks: Some(Default::default()),
        details: true,
        ..Options::default()
    }
}

fn compared(files: &[&str], options: &Options) -> Comparison {
    let mut all = InstancesFile::default();
    for (run, file) in (0..).zip(files) {
        all.read(file.as_bytes(), run).expect("instances");
    }
    all.sort();
    compare(&all, options, &mut Pulse::never()).expect("not stopped")
}

/// JSON has no NaN and no infinity, so they would be null.
fn check(comparison: &Comparison) {
    let json = serde_json::to_value(comparison).expect("JSON");
    let rows = ["tests", "ranked", "networks"].map(|key| &json[key]);
    for row in rows.into_iter().flat_map(|rows| rows.as_array().expect("rows")) {
        check_numbers(row);
    }
}

fn check_numbers(value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| {
            assert!(!item.is_null(), "{value}");
            check_numbers(item);
        }),
        Value::Object(members) => {
            const OPTIONAL: [&str; 4] = ["chance", "null_ratio", "placebo_t", "time_ms"];
            for (name, member) in members {
                assert!(!member.is_null() || OPTIONAL.contains(&name.as_str()), "{name}: {value}");
                check_numbers(member);
            }
        }
        _ => {}
    }
}

/// Thirty instances with runs of length 0, huge and tiny values, constants, equal columns, and
/// weights from 1 to 2^56.
fn hostile(seed: u64, class: u64, is_weighted: bool) -> String {
    let mut random = SplitMix::new(seed);
    let mut text = String::new();
    for n in 0..30 {
        let value = [0.0, 1.0, -1.0, 1e-300, 1e65, 1e308, -1e308, 5.5][random.index(8)];
        let weight = if is_weighted { 1u64 << random.below(57) } else { 1 };
        let noise = random.unit() + class as f64;
        let _ = writeln!(
            text,
            r#"{{"id":"{seed}-{n}","cls":{class},"dur":{},"us":{value},"weight":{weight},"type":"t{}",
            "ev":{{"always":[1],"sometimes":[{}],"huge":[1e308,1e308,-1e308]}},
            "st":{{"wild":[[{value},{value}],[1,0]],"noise":[[1,{noise}]],"equal":[[1,{noise}]],
            "constant":[[1,7]],"gap a->b ms":[[1,-3]]}}}}"#,
            random.below(3) * 10,
            random.below(2),
            if random.one_in(2) { "1" } else { "1,2" },
        );
        // One line each.
        text = text.replace(",\n", ",");
    }
    text
}

#[test]
fn extreme_values_give_finite_numbers() {
    for is_weighted in [false, true] {
        for paper in [false, true] {
            let files = [hostile(1, 0, is_weighted), hostile(2, 1, is_weighted)];
            let comparison = compared(&[&files[0], &files[1]], &options(paper));
            check(&comparison);
            assert!(is_weighted || comparison.tested > 0, "the noise can be tested");
            assert_eq!(comparison.negative_gaps, 60);
            let with_tail = compared(&[&files[0], &files[1]], &Options { tail: Some(0.5), ..options(paper) });
            check(&with_tail);
        }
    }
}

#[test]
fn the_order_of_files_and_lines_changes_nothing() {
    let files = [hostile(1, 0, false), hostile(2, 1, false), hostile(3, 0, false), hostile(4, 0, false)];
    let json = |files: &[String]| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        serde_json::to_string(&compared(&files, &options(false))).expect("JSON")
    };
    let check = |files: &[String]| {
        let (want, got) = (json(&files_in_order(files)), json(files));
        let same = want.bytes().zip(got.bytes()).take_while(|(a, b)| a == b).count();
        let near = |text: &str| text[same.saturating_sub(200)..(same + 50).min(text.len())].to_owned();
        assert!(want == got, "{} differs from {}", near(&want), near(&got));
    };
    let reversed: Vec<String> = files.iter().rev().cloned().collect();
    check(&reversed);
    let backwards = |file: &String| file.lines().rev().map(|line| format!("{line}\n")).collect();
    check(&files.iter().map(backwards).collect::<Vec<String>>());
}

/// The files of that test as they are made.
fn files_in_order(files: &[String]) -> Vec<String> {
    let mut files: Vec<String> = files
        .iter()
        .map(|file| {
            let mut lines: Vec<&str> = file.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        })
        .collect();
    files.sort_unstable();
    files
}

#[test]
fn variables_beyond_the_limit_are_counted() {
    let mut text = String::new();
    for n in 0..20 {
        let events: Vec<String> = (0..3_000).map(|name| format!(r#""e{}":[1]"#, name + n)).collect();
        let _ = writeln!(text, r#"{{"cls":{},"dur":9,"ev":{{{}}}}}"#, n % 2, events.join(","));
    }
    let comparison = compared(&[&text], &options(false));
    check(&comparison);
    assert!(comparison.left_out.variables >= 20 * 2_000, "{:?}", comparison.left_out);
}

/// Runs that are alike confirm a real change; runs that differ by a constant confirm nothing.
#[test]
fn constants_of_each_run_confirm_nothing() {
    let run = |class: u64, seed: u64, version: u64, more: f64| {
        let mut random = SplitMix::new(seed);
        let mut text = String::new();
        for n in 0..30 {
            // The version is constant in good runs, and the bad one has two.
            let version = version + class * (n % 2);
            let time = random.unit() + more;
            let _ = writeln!(
                text,
                r#"{{"id":"{seed}-{n}","cls":{class},"dur":9,"st":{{"version":[[1,{version}]],"time":[[1,{time}]]}}}}"#
            );
        }
        text
    };
    let files = [run(0, 1, 1, 0.0), run(0, 2, 2, 0.0), run(0, 3, 3, 0.0), run(1, 4, 90, 5.0)];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let comparison = compared(&files, &options(false));
    let confirmed = |name: &str| {
        comparison.ranked.iter().find(|row| row.ranked.variable == name).map(|row| row.confirmed)
    };
    assert_eq!((confirmed("time"), comparison.verdict), (Some(true), Verdict::Confirmed));
    assert_eq!(confirmed("version"), Some(false), "good runs differ, too");
    assert_eq!(compared(&files[2..], &options(false)).verdict, Verdict::Unconfirmed);
}

/// Attributes that are no numbers, a root of length 0, a child that outlives it, a negative gap.
#[test]
fn odd_traces_are_compared() {
    let mut spans = String::new();
    for n in 1..=40u64 {
        let span = |id: u64, parent: &str, name: &str, length: u64, value: &str| {
            format!(
                r#"{{"traceId":"{n:032x}","spanId":"{id:016x}","parentSpanId":"{parent}","name":"{name}",
                "startTimeUnixNano":"{}","endTimeUnixNano":"{}",
                "attributes":[{{"key":"x","value":{{"doubleValue":{value}}}}},
                {{"key":"class","value":{{"stringValue":"{}"}}}}]}}"#,
                n * 1_000_000_000,
                n * 1_000_000_000 + length,
                n % 2,
            )
        };
        let value = [r#""NaN""#, r#""Infinity""#, r#""-Infinity""#, "1.5"][(n / 2 % 4) as usize];
        let root = span(1, "", "root", 0, value);
        for (service, span) in [("a", root), ("b", span(2, "0000000000000001", "child", n * 1_000, value))] {
            let comma = if spans.is_empty() { "" } else { "," };
            let _ = write!(
                spans,
                r#"{comma}{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{service}"}}}}]}},
                "scopeSpans":[{{"spans":[{span}]}}]}}"#
            );
        }
    }
    let text = format!(r#"{{"resourceSpans":[{spans}]}}"#);
    let mut intake = Intake::new(Keep { contents: true, ..Keep::default() });
    astracer_formats::read(
        Format::OtlpJson,
        &mut text.as_bytes(),
        &"odd".into(),
        &Limits::default(),
        &mut intake,
    );
    let recording = intake.finish();
    assert_eq!(recording.trace_count(), 40);
    let class = |even| if even { Class::Good } else { Class::Bad };
    let chosen = recording.traces().enumerate().map(|(at, trace)| Chosen {
        recording: &recording,
        trace,
        class: class(at % 2 == 0),
        run: 0,
    });
    let method = Method::default();
    let mut pulse = Pulse::never();
    let traces = Traces::new(chosen.collect(), &method, &mut pulse).expect("not stopped");
    let comparison = compare(&traces, &options(false), &mut pulse).expect("not stopped");
    check(&comparison);
    assert_eq!(comparison.negative_gaps, 40);
    assert!(comparison.left_out.not_finite > 0);
    assert!(
        comparison.ranked.iter().all(|row| !row.ranked.variable.ends_with(" x")),
        "{:?}",
        comparison.ranked
    );
}
