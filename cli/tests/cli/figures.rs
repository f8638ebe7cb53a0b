//! One number for one thing: the table, the JSON and the written file of `tune` agree to the
//! printed digits. And the figures of recordings that show too little.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Scratch, run, success};

/// Traces of HTrace 4: one span each. `name` and `ms` get the trace's number.
fn traces(count: u64, name: impl Fn(u64) -> &'static str, ms: impl Fn(u64) -> u64) -> String {
    let mut text = String::new();
    for trace in 1..=count {
        let (name, begin) = (name(trace), 1_000_000 + 50 * trace);
        let end = begin + ms(trace);
        let _ = writeln!(
            text,
            r#"{{"a":"{trace:016x}{trace:016x}","b":{begin},"e":{end},"d":"{name}","r":"s","p":[]}}"#
        );
    }
    text
}

/// Three operations, of which one is rare and slow.
fn shop() -> String {
    let name = |trace: u64| match trace % 40 {
        7 => "report",
        n if n % 3 == 0 => "buy",
        _ => "look",
    };
    traces(1600, name, move |trace| match name(trace) {
        "report" => 500 + trace * 7919 % 4000,
        "buy" => 20 + trace * 7919 % 50,
        _ => 1 + trace * 7919 % 5,
    })
}

/// The cells of a row of the table.
fn row<'t>(table: &'t str, name: &str) -> Vec<&'t str> {
    let line = table.lines().find(|line| line.starts_with(name)).expect(name);
    line[name.len()..].split(['(', ')', ' ']).filter(|cell| !cell.is_empty() && *cell != "to").collect()
}

/// The number, rounded as `text` is: a percentage if it ends with %.
#[track_caller]
fn agree(text: &str, number: &Value) {
    let number = number.as_f64().expect("a number");
    let (digits, number) = match text.strip_suffix('%') {
        Some(digits) => (digits, number * 1e2),
        None => (text, number),
    };
    let digits = digits.replace(',', "");
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    assert_eq!(digits, format!("{number:.decimals$}"), "{text} {number}");
}

#[test]
fn table_json_and_file_have_the_same_figures() {
    let (recording, file) = (Scratch::new("figures.json", &shop()), Scratch::new("figures.toml", ""));
    let args =
        ["tune", recording.path(), "--size-max", "30%", "--one-key", "--no-late", "--out", file.path()];
    let args = [&args[..], &["--starts", "1", "--iterations", "60", "--replays", "24"]].concat();
    let table = success(&run(&args));
    let written = std::fs::read_to_string(file.path()).expect("written");
    let json = success(&run(&[&args[..], &["--json"]].concat()));
    assert_eq!(std::fs::read_to_string(file.path()).expect("written"), written, "the same file");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let figures = ["traces", "tfcr", "functions", "call_trees", "dist_over_entropy"];
    let rows = [("chosen (bump)", "score", "replayed"), ("equal share", "baseline", "replayed_share")];
    for (name, score, replayed) in rows {
        let cells = row(&table, name);
        for (cell, figure) in cells.iter().zip(figures) {
            agree(cell, &json[score][figure]);
            // JSON has the functions found once only.
            if figure != "functions" {
                assert_eq!(json[score][figure], json[replayed][figure]["mean"], "{score} {figure}");
            }
        }
        let interval = &json[replayed]["dist_over_entropy"]["mean_interval"];
        agree(cells[5], &interval[0]);
        agree(cells[6], &interval[1]);
        agree(cells[7], &json[score]["count_error"]);
        assert_eq!(json[score]["count_error"], json[replayed]["counts"]["functions"]);
    }
    assert_eq!(json["value"], json["score"]["dist_over_entropy"], "the objective");
    let line = written.lines().find(|line| line.starts_with("# Replayed")).expect("a comment");
    let words: Vec<&str> = line.split([' ', '(', ')', ',']).filter(|word| !word.is_empty()).collect();
    let after = |word: &str| words[words.iter().position(|at| *at == word).expect(word) + 1];
    agree(after("dist/entropy"), &json["score"]["dist_over_entropy"]);
    agree(after("mean"), &json["replayed"]["dist_over_entropy"]["mean_interval"][0]);
    agree(after("run"), &json["replayed"]["dist_over_entropy"]["run_interval"][0]);
    let size = words[words.iter().position(|word| *word == "%").expect("a size") - 1];
    assert_eq!(size, format!("{:.2}", json["score"]["tfcr"].as_f64().expect("a size") * 1e2));
}

/// Each is told, gets an equal share in its file, and no figure is infinite.
#[test]
fn too_little_to_tune_is_an_equal_share() {
    let alike = |trace: u64| ["a", "b"][trace as usize % 2];
    for (text, reason) in [
        (traces(500, alike, |trace| trace % 9), "50 of 500 traces would be kept, fewer than 100"),
        (traces(1500, alike, |_| 5), "all traces are alike"),
        (traces(1500, |_| "a", |trace| trace % 9), "all traces have the same key"),
    ] {
        let (recording, file) = (Scratch::new("little.json", &text), Scratch::new("little.toml", ""));
        // Outcomes differ where all keys are alike, so that strata may help.
        let no_late = if reason.contains("same key") { &["--no-late"][..] } else { &[] };
        let table = success(&run(&[&["tune", recording.path(), "--out", file.path()], no_late].concat()));
        let told = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&format!("too little to tune: {reason}")), "{table}");
        assert!(!table.split([' ', '(', ')']).any(|word| word == "inf"), "{table}");
        let written = std::fs::read_to_string(file.path()).expect("written");
        assert!(written.contains("sampler = \"ratio\"") || written.contains("ratio"), "{written}");
    }
}

/// 400 names that come twice each: bump keeps every first call, which alone is too much. Constants
/// are within the limits.
#[test]
fn too_many_first_calls_are_no_refusal() {
    let names: Vec<&'static str> = (0..400u32)
        .map(|name| {
            let letter = |place: u32| char::from(b'g' + (name / 20u32.pow(place) % 20) as u8);
            &*Box::leak(format!("{}{}", letter(0), letter(1)).into_boxed_str())
        })
        .collect();
    let text = traces(2000, |trace| names[trace as usize % 400], |trace| 1 + trace * 7919 % 300);
    let (recording, file) = (Scratch::new("first.json", &text), Scratch::new("first.toml", ""));
    let args = ["tune", recording.path(), "--one-key", "--replays", "24", "--json", "--out", file.path()];
    let json: Value = serde_json::from_str(&success(&run(&args))).expect("JSON");
    assert_eq!(json["feasible"], true);
    let size = json["replayed"]["tfcr"]["mean"].as_f64().expect("replayed");
    assert!(size < 0.105, "{size}");
}

/// A hundredth of the traces has calls of a single function only, so its entropy is 0 and
/// dist/entropy has no value.
#[test]
fn no_figure_of_a_single_function_is_infinite() {
    let (recording, kept) = (traces(1500, |_| "a", |trace| trace % 9), "ratio:0.01");
    let recording = Scratch::new("single.json", &recording);
    let args = ["evaluate", recording.path(), "--sampler", kept, "--baselines", "all"];
    let text = success(&run(&[&args[..], &["--verbose"]].concat()));
    let is_infinite = |word: &str| ["inf", "-inf", "NaN"].contains(&word.trim_end_matches('%'));
    assert!(!text.split([' ', '(', ')', '\n']).any(is_infinite), "{text}");
    let json: Value = serde_json::from_str(&success(&run(&[&args[..], &["--json"]].concat()))).expect("JSON");
    let rows = json["evaluation"]["summary"].as_array().or(json["summary"].as_array()).expect("rows");
    assert!(rows.iter().any(|row| row["mean"]["dist_over_entropy"].is_null()), "{rows:?}");
}
