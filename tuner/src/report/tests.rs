//! Compares rows with sums worked out by hand, and checks the page for browsers and readers.

use super::kept::KeptTraces;
use super::{Report, functions, roots, trees};
use crate::candidate::Candidate;
use crate::curves::curves;
use crate::draw::Draw;
use crate::stop::Stop;
use crate::testing::synthetic;
use crate::tune::{Options, StrataOptions, Tuning, tune, tune_strata};
use crate::workload::Workload;
use astracer_baselines as baselines;
use astracer_report::numbers::{percent, three};
use astracer_samplers::RandomSource;

fn options() -> Options {
    let windows = Some(vec![std::time::Duration::from_secs(20)]);
    Options {
        starts: 2,
        iterations: 60,
        replays: 3,
        windows,
        per_key: crate::tune::PerKeyUse::Never,
        ..Options::default()
    }
}

/// The contents of a page without anything that is optional.
fn plain<'a>(workload: &'a Workload, tuning: &'a Tuning) -> Report<'a> {
    Report {
        title: "x",
        workload,
        tuning,
        key: "name",
        keys: None,
        validated: &[],
        curves: None,
        late: None,
        strata: None,
        file: None,
        next: &[],
    }
}

fn kept_of(arrivals: &[usize]) -> KeptTraces {
    KeptTraces { traces: arrivals.iter().map(|&arrival| (arrival, 2.0)).collect(), weighted: true }
}

/// Everything is kept, each trace with weight 2: the columns of kept traces equal those of the
/// whole.
#[test]
fn all_kept_is_the_whole() {
    let workload = synthetic(600, 3);
    let all: Vec<usize> = (0..600).collect();
    let kept = kept_of(&all);
    for row in functions::rows(&workload, &kept) {
        assert_eq!((row.kept.count, row.kept.max_ms), (row.all.count, row.all.max_ms), "{}", row.name);
        assert!((row.kept.duration_ms.mean / row.all.duration_ms.mean - 1.0).abs() < 1e-9);
        assert!(
            (row.kept.duration_ms.sd - row.all.duration_ms.sd).abs()
                < 1e-6 * row.all.duration_ms.sd.max(1e-3)
        );
        assert_eq!(row.estimated, 2.0 * row.all.count as f64);
        assert!(
            row.histogram.iter().all(|bar| (bar.all - bar.kept).abs() < 1e-12 && bar.from_ms < bar.to_ms)
        );
        assert!((row.histogram.iter().map(|bar| bar.all).sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert!(
        roots::rows(&workload, &kept)
            .iter()
            .all(|row| { (row.seen, row.bytes, row.kinds) == (row.kept, row.bytes_kept, row.kinds_kept) })
    );
    assert_eq!(trees::missed(&workload, &kept), []);
}

/// One trace is kept: its functions have its durations, and all others were missed.
#[test]
fn one_kept_is_itself() {
    let workload = synthetic(600, 3);
    let (arrival, tree) = (5, workload.arrivals()[5].call_tree);
    let kept = kept_of(&[arrival]);
    for row in functions::rows(&workload, &kept) {
        let index =
            workload.functions().iter().position(|function| *function.name == *row.name).expect("known");
        match workload.calls(arrival).iter().find(|calls| calls.function as usize == index) {
            Some(calls) if calls.count == 1 => {
                assert!((row.kept.duration_ms.mean - calls.max_ns as f64 / 1e6).abs() < 1e-9);
                assert!(
                    (row.kept.max_ms, row.kept.duration_ms.sd.round()) == (calls.max_ns as f64 / 1e6, 0.0)
                );
            }
            Some(calls) => assert_eq!(row.kept.count, u64::from(calls.count)),
            None => assert_eq!((row.kept.count, row.estimated), (0, 0.0)),
        }
    }
    let missed = trees::missed(&workload, &kept);
    assert_eq!(missed.len() as u32, workload.call_trees() - 1);
    let traces: u64 = missed.iter().map(|tree| tree.traces).sum();
    let of_tree = workload.arrivals().iter().filter(|arrival| arrival.call_tree == tree).count() as u64;
    assert_eq!(traces + of_tree, 600);
    assert!(missed.windows(2).all(|pair| pair[0].traces >= pair[1].traces));
    let row = |kept: u64| {
        roots::rows(&workload, &kept_of(&[arrival])).iter().filter(|row| row.kept == kept).count()
    };
    assert_eq!(row(1), 1);
}

/// The tables describe the file that the page shows: the replay uses the same source of randomness
/// as a service that loads it.
#[test]
fn what_is_kept_is_what_a_service_with_the_file_keeps() {
    let workload = synthetic(600, 3);
    let mut kept = Vec::new();
    for random in [RandomSource::Stratified, RandomSource::Independent] {
        let tuning = tune(&workload, &Options { random, ..options() }, Stop::never(), &|_| ());
        let config = tuning.config().expect("found");
        let (mut expected, draw) = (Vec::new(), Draw::recorded(1).with_random(random));
        Candidate::from(config).replay(&workload, &draw, Stop::never(), |arrival, _| expected.push(arrival));
        let found: Vec<usize> =
            KeptTraces::new(&workload, &tuning, None).traces.iter().map(|&(arrival, _)| arrival).collect();
        assert_eq!(found, expected, "{random:?}");
        kept.push(found);
    }
    assert_ne!(kept[0], kept[1]);
}

#[test]
fn the_page_stands_alone_and_escapes_names() {
    let workload = synthetic(600, 3);
    let tuning = tune(&workload, &options(), Stop::never(), &|_| ());
    let baselines: Vec<_> = baselines::all().into_iter().take(3).collect();
    let curves =
        curves(&workload, &tuning, &options(), &baselines, Stop::never(), &|| ()).expect("not stopped");
    let report = Report {
        title: "<b>a & b</b>",
        workload: &workload,
        tuning: &tuning,
        key: "name",
        keys: None,
        validated: &[],
        curves: Some(&curves),
        late: None,
        strata: None,
        file: Some("version = 1"),
        next: &[],
    };
    let page = report.html();
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("&lt;b&gt;a &amp; b&lt;/b&gt;") && !page.contains("<b>a"));
    // Nothing is loaded: there is no link, source, import or URL except the SVG namespace.
    let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "<link", " src=", "@import", "url(", "unsafe-inline"] {
        assert!(!without_namespace.contains(outside), "{outside}");
    }
    // Charts: three by size, single runs, the search, and one for each of up to nine functions; a
    // row for each of the keys, and for traffic as recorded and changed.
    let figures = page.matches("<figure").count();
    let keys = workload.keys().len();
    assert!(figures > 5 + keys + workload.function_count().min(9), "{figures}");
    assert!(page.matches("aria-label=\"dist/entropy").count() == 2 && page.contains("Single runs"));
    assert!(!page.contains("There are no values to draw"));
    for part in
        ["busy", "quiet", "Call trees that were missed", "dist/entropy", "version = 1", "bump:lambda="]
    {
        assert!(page.contains(part), "{part}");
    }
    let (shown, _) = page.split_once("<script>").expect("a script");
    assert!(!shown.contains("NaN") && !shown.contains(">inf"));
}

/// A page about a file that decides by outcome has the figures of its strata: the answer, what is
/// kept, and the costs, with the sampler at the start beside them.
#[test]
fn a_page_of_strata_is_about_their_sample() {
    let workload = synthetic(600, 3);
    let tuning = tune(&workload, &options(), Stop::never(), &|_| ());
    let options = StrataOptions {
        size: 0.1,
        record: None,
        by_kind: Some(false),
        replays: 24,
        seed: 1,
        random: RandomSource::Stratified,
        cap: None,
    };
    let strata = tune_strata(&workload, &options, Stop::never(), &|_| ()).expect("traces").expect("a size");
    let report = |strata| Report { strata, ..plain(&workload, &tuning) };
    let [with, without] = [Some(&strata), None].map(|strata| report(strata).html());
    let heading = format!("{} of the bytes, chosen by outcome, keep", percent(strata.replayed.tfcr.mean));
    let by_weights = strata.replayed.dist_over_entropy_weighted.expect("weights");
    let figures = format!("dist/entropy by weights {}", three(by_weights.mean));
    for part in [&*heading, &*figures, "Decided at the end", "at the start (", "--no-late writes its file"] {
        assert!(with.contains(part) && !without.contains(part), "{part}");
    }
    let own = KeptTraces::new(&workload, &tuning, Some(&strata)).traces;
    let mut replayed = Vec::new();
    let draw = Draw::recorded(1).with_random(tuning.random);
    Candidate::from(strata.late.clone()).replay(&workload, &draw, Stop::never(), |arrival, weight| {
        replayed.push((arrival, weight.expect("a weight")));
    });
    replayed.sort_unstable_by_key(|&(arrival, _)| arrival);
    assert_eq!(own, replayed);
}

#[test]
fn an_infeasible_tuning_says_so() {
    let workload = synthetic(600, 3);
    let limits = crate::Limits { size_min: 0.0, size_max: 1e-6, ..crate::Limits::default() };
    let tuning = tune(&workload, &Options { limits, ..options() }, Stop::never(), &|_| ());
    let report = plain(&workload, &tuning);
    assert!(report.html().contains("No parameters meet the limits"));
}
