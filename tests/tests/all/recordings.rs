//! The contents of the repository's recordings, and the results of the paper's parameters on them.
//! The expected numbers were published with the recordings.

use astracer_recording::recording::Recording;
use astracer_tuner::{Candidate, Draw, Evaluator, Grouping, Inspection, Stop, Workload};

/// `expected` is (traces, spans, roots, functions, the most frequent root, and its share in
/// percent).
#[track_caller]
fn check(path: &str, expected: (u64, u64, usize, usize, &str, f64)) -> Recording {
    let recording = crate::read(path);
    let inspection = Inspection::new(&recording, Stop::never()).expect("not stopped");
    let first = &inspection.roots[0];
    let share = (first.share * 10_000.0).round() / 100.0;
    let found = (
        inspection.traces,
        inspection.spans,
        inspection.roots.len(),
        inspection.functions.len(),
        &*first.name,
        share,
    );
    assert_eq!(found, expected);
    assert!(recording.problems().is_empty(), "{:?}", recording.problems());
    recording
}

#[test]
fn hdfs_raw_roots() {
    check("workloads/hdfs_raw_roots.tar.xz", (30_777, 72_433, 21, 75, "DFSOutputStream#writeChunk", 61.84));
}

#[test]
fn hdfs_client_ops_and_the_same_with_another_seed() {
    check("workloads/hdfs_client_ops.tar.xz", (6_328, 78_563, 22, 93, "client:stat", 38.05));
    check("workloads/hdfs_client_ops_seed2.tar.xz", (6_328, 85_658, 23, 100, "client:stat", 37.88));
}

#[test]
fn the_papers_bump_finds_all_of_the_write_workload_in_less_than_a_tenth() {
    let recording =
        check("workloads/dfsioe_write.tar.xz", (73_723, 85_522, 13, 43, "DFSOutputStream#write", 98.75));
    let workload = Workload::new(&recording, &Grouping::default());
    let evaluator = Evaluator::new(&workload);
    let score = |sampler: &str, seed| {
        let sampler = Candidate::Ours(sampler.parse().expect("a sampler"));
        evaluator.score(&sampler, &Draw::recorded(seed))
    };
    for seed in 1..=5 {
        let bump = score("bump:lambda=215,min=0.02", seed);
        assert_eq!((bump.functions, bump.functions_all), (43, 43), "seed {seed}");
        assert_eq!((bump.call_trees, bump.call_trees_all), (20, 20), "seed {seed}");
        assert!(bump.tfcr < 0.09, "seed {seed}: {}", bump.tfcr);
        let ratio = score("ratio:0.1", seed);
        assert!(ratio.functions < 43 && ratio.call_trees < 20, "seed {seed}: {ratio:?}");
        assert!(ratio.dist_over_entropy > 5.0 * bump.dist_over_entropy, "seed {seed}");
    }
}
