//! Any printed mean can be recomputed from the ids of the traces kept.

use std::collections::HashMap;

use serde_json::Value;

use super::{Scratch, run, success, workload};

/// The durations of each trace of docs/metrics-example.jsonl, ms: of A, B and C.
const TRACES: [[&[f64]; 3]; 4] =
    [[&[10.0], &[4.0], &[]], [&[14.0], &[4.0], &[]], [&[12.0], &[2.0, 6.0], &[]], [&[], &[], &[8.0]]];

fn mean_and_sd(of: &[f64]) -> (f64, f64) {
    let n = of.len().max(1) as f64;
    let mean = of.iter().sum::<f64>() / n;
    (mean, (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// SS / IEn by the definitions of docs/metrics.md, of the traces with these indices.
fn by_hand(kept: &[usize]) -> f64 {
    let durations = |traces: &[usize], function: usize| -> Vec<f64> {
        traces.iter().flat_map(|&trace| TRACES[trace][function]).copied().collect()
    };
    let (mut squares, mut counts) = (0.0, Vec::new());
    for function in 0..3 {
        let (all, of_kept) = (durations(&[0, 1, 2, 3], function), durations(kept, function));
        let ((mean, sd), (kept_mean, kept_sd)) = (mean_and_sd(&all), mean_and_sd(&of_kept));
        squares += (kept_mean - mean).powi(2) + (kept_sd - sd).powi(2);
        counts.push(of_kept.len() as f64);
    }
    let all: f64 = counts.iter().sum();
    let entropy: f64 = counts.iter().filter(|&&n| n > 0.0).map(|n| -n / all * (n / all).log2()).sum();
    squares.sqrt() / entropy
}

#[test]
fn kept_ids_of_each_seed_give_its_row_by_hand() {
    assert!((by_hand(&[0, 2]) - 8.33207).abs() < 1e-5, "the example of docs/metrics.md");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics-example.jsonl");
    let files: Vec<Scratch> = (40..48).map(|seed| Scratch::new(&format!("ids-{seed}.txt"), "")).collect();
    let kept = files[0].path().replace("ids-40", "ids-{seed}");
    let args = ["evaluate", example, "--sampler", "ratio:0.6", "--seed", "40", "--seeds", "8", "--json"];
    let found = success(&run(&[&args[..], &["--kept", &kept]].concat()));
    let json: Value = serde_json::from_str(&found).expect("JSON");
    let mut compared = 0;
    for (seed, file) in (40u64..).zip(&files) {
        let ids = std::fs::read_to_string(file.path()).expect("written");
        let kept: Vec<usize> = ids
            .lines()
            .map(|id| usize::from_str_radix(&id[..16], 16).or_else(|_| id[..16].parse()).expect("an id") - 1)
            .collect();
        let rows = json["rows"].as_array().expect("rows");
        let is_own = |row: &&Value| row["sampler"] == "ratio:0.6" && row["seed"] == seed;
        let row = rows.iter().find(is_own).expect("a row");
        assert_eq!(row["traces"], kept.len());
        if let Some(value) = row["dist_over_entropy"].as_f64().filter(|_| !kept.is_empty()) {
            let expected = by_hand(&kept);
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
    let text = include_str!("../../../docs/metrics.md");
    let command = text.lines().find(|line| line.contains("--jitter 0,5ms,50ms")).expect("a command");
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
