//! Any printed mean can be recomputed from the ids of the traces kept.

use std::collections::HashMap;

use serde_json::Value;

use super::{Scratch, run, success, workload};

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// The durations of each trace of the example, ms, by function: from the table "by hand".
struct ByHand(Vec<HashMap<char, Vec<f64>>>);

impl ByHand {
    fn read() -> Self {
        let rows = section().lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            cells.next()?.parse::<usize>().ok()?;
            let mut durations: HashMap<char, Vec<f64>> = HashMap::new();
            for word in cells.next()?.split_whitespace().filter(|word| word.ends_with(')')) {
                let (name, ms) = word.trim_end_matches(')').split_once('(')?;
                durations.entry(name.chars().next()?).or_default().push(ms.parse().ok()?);
            }
            Some(durations)
        });
        Self(rows.collect())
    }

    /// SS / IEn by the definitions of the page, of the traces with these indices.
    fn dist_over_entropy(&self, kept: &[usize]) -> f64 {
        let all: Vec<usize> = (0..self.0.len()).collect();
        let (mut squares, mut counts) = (0.0, Vec::new());
        for function in ['A', 'B', 'C'] {
            let durations = |traces: &[usize]| -> Vec<f64> {
                traces.iter().filter_map(|&trace| self.0[trace].get(&function)).flatten().copied().collect()
            };
            let of_kept = durations(kept);
            let ((mean, sd), (kept_mean, kept_sd)) = (mean_and_sd(&durations(&all)), mean_and_sd(&of_kept));
            squares += (kept_mean - mean).powi(2) + (kept_sd - sd).powi(2);
            counts.push(of_kept.len() as f64);
        }
        let all: f64 = counts.iter().sum();
        let entropy: f64 = counts.iter().filter(|&&n| n > 0.0).map(|n| -n / all * (n / all).log2()).sum();
        squares.sqrt() / entropy
    }
}

/// The part of the page that works the example by hand.
fn section() -> &'static str {
    PAGE.split("## An example by hand").nth(1).expect("the section")
}

/// The lines of the first block of this language after `text` begins.
fn block<'t>(text: &'t str, language: &str) -> &'t str {
    let (_, after) = text.split_once(&format!("```{language}\n")).expect("a block");
    after.split("```").next().expect("an end").trim_end()
}

fn mean_and_sd(of: &[f64]) -> (f64, f64) {
    let n = of.len().max(1) as f64;
    let mean = of.iter().sum::<f64>() / n;
    (mean, (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
}

fn indices(ids: &str) -> Vec<usize> {
    ids.lines()
        .map(|id| usize::from_str_radix(&id[..16], 16).or_else(|_| id[..16].parse()).expect("an id") - 1)
        .collect()
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-example.jsonl");

/// Runs the page's own command: it prints the page's row, and the kept ids give the page's figures.
#[test]
fn the_section_by_hand_is_what_its_command_prints() {
    let ids = Scratch::new("by-hand.txt", "");
    let command = block(section(), "sh").replace("docs/metrics-example.jsonl", EXAMPLE);
    let command = command.replace("ids.txt", ids.path());
    let args: Vec<&str> = command.strip_prefix("astracer ").expect("the tool").split_whitespace().collect();
    let printed = success(&run(&args));
    let row = block(section(), "text");
    assert!(printed.lines().any(|line| line == row), "{row} is not in {printed}");
    let kept = indices(&std::fs::read_to_string(ids.path()).expect("written"));
    let json: Value = serde_json::from_str(&success(&run(&[&args[..], &["--json"]].concat()))).expect("JSON");
    let found = json["rows"].as_array().and_then(|rows| rows.last()).expect("a row");
    for (line, field) in
        [("SS =", "ss_ms"), ("IEn,", "entropy_bits"), ("dist/entropy =", "dist_over_entropy")]
    {
        let line =
            section().lines().find_map(|of| of.strip_prefix("- ")?.strip_prefix(line)).expect("a line");
        let written = line.rsplit('=').next().expect("a number").trim().trim_end_matches(" bits");
        let written: f64 = written.trim_end_matches(" ms").parse().expect("a number");
        let of_json = found[field].as_f64().expect("a number");
        assert!((of_json - written).abs() < 1e-5, "{field}: {of_json}, the page says {written}");
    }
    let by_hand = ByHand::read().dist_over_entropy(&kept);
    assert!((found["dist_over_entropy"].as_f64().expect("a number") - by_hand).abs() < 1e-9, "{by_hand}");
}

#[test]
fn kept_ids_of_each_seed_give_its_row_by_hand() {
    let page = ByHand::read();
    let files: Vec<Scratch> = (40..48).map(|seed| Scratch::new(&format!("ids-{seed}.txt"), "")).collect();
    let kept = files[0].path().replace("ids-40", "ids-{seed}");
    let args = ["evaluate", EXAMPLE, "--sampler", "ratio:0.6", "--seed", "40", "--seeds", "8", "--json"];
    let found = success(&run(&[&args[..], &["--kept", &kept]].concat()));
    let json: Value = serde_json::from_str(&found).expect("JSON");
    let mut compared = 0;
    for (seed, file) in (40u64..).zip(&files) {
        let kept = indices(&std::fs::read_to_string(file.path()).expect("written"));
        let rows = json["rows"].as_array().expect("rows");
        let is_own = |row: &&Value| row["sampler"] == "ratio:0.6" && row["seed"] == seed;
        let row = rows.iter().find(is_own).expect("a row");
        assert_eq!(row["traces"], kept.len());
        if let Some(value) = row["dist_over_entropy"].as_f64().filter(|_| !kept.is_empty()) {
            let expected = page.dist_over_entropy(&kept);
            assert!(
                (value - expected).abs() < 1e-9 || expected.is_nan(),
                "{seed}: {value}, by hand {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "{found}");
}

/// The command of docs/metrics.md has the replays of `tune`, without repeating its key.
#[test]
fn the_mean_that_tune_prints_is_that_of_evaluate() {
    let path = workload("hdfs_raw_roots.tar.xz");
    let file = Scratch::new("seeds.toml", "");
    let tuned =
        ["--per-key", "never", "--starts", "1", "--iterations", "40", "--window", "1", "--replays", "24"];
    let args = ["tune", &path, "--names", "raw", "--one-key", "--json", "--out", file.path(), "--seed", "9"];
    let tuned: Value = serde_json::from_str(&success(&run(&[&args[..], &tuned].concat()))).expect("JSON");
    let replayed = &tuned["replayed"];
    assert_eq!(replayed["replays"], 24);
    assert_eq!(tuned["score"]["dist_over_entropy"], replayed["dist_over_entropy"]["mean"], "one number");
    let command = PAGE.lines().find(|line| line.contains("--jitter 0,5ms,50ms")).expect("a command");
    let options: HashMap<&str, &str> = {
        let words: Vec<&str> = command.split_whitespace().collect();
        words.windows(2).filter(|pair| pair[0].starts_with("--")).map(|pair| (pair[0], pair[1])).collect()
    };
    assert_eq!(options["--kept"], "'ids-{seed}.txt'");
    let args = ["evaluate", &path, "--parameters", file.path(), "--seed", "9", "--seeds", "24", "--json"];
    let found = success(&run(&[&args[..], &["--jitter", options["--jitter"]]].concat()));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let summary = found["summary"].as_array().expect("rows").last().expect("a row");
    for (name, of) in [("tfcr", "tfcr"), ("traces", "traces"), ("call_trees", "call_trees")] {
        let (one, other) = (&summary["mean"][name], &replayed[of]["mean"]);
        let (one, other) = (one.as_f64().expect("a number"), other.as_f64().expect("a number"));
        assert!((one / other - 1.0).abs() < 1e-9, "{name}: {one} {other}");
    }
    let mean = summary["mean"]["dist_over_entropy"].as_f64().expect("a number");
    let [low, high] =
        [0, 1].map(|end| replayed["dist_over_entropy"]["mean_interval"][end].as_f64().expect("a number"));
    assert!(low <= mean && mean <= high, "{low} {mean} {high}");
}
