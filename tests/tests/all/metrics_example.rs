//! The worked example of docs/metrics.md. Every expected number was computed there by hand.

use astracer_tuner::score::{Reference, Score, Tally};
use astracer_tuner::{Grouping, Workload};

#[test]
fn the_worked_example_comes_out_as_computed_by_hand() {
    let recording = crate::read("docs/metrics-example.jsonl");
    assert!(recording.problems().is_empty());
    let workload = Workload::new(&recording, &Grouping::default());
    let reference = Reference::new(&workload);
    let sqrt = f64::sqrt;

    let functions: Vec<_> = workload
        .functions()
        .iter()
        .map(|f| (&*f.name, f.count, f.duration_ms.mean, f.duration_ms.sd))
        .collect();
    assert_eq!(functions, [("A", 3, 12.0, sqrt(8.0 / 3.0)), ("B", 4, 4.0, sqrt(2.0)), ("C", 1, 8.0, 0.0)]);

    let keep = |arrivals: &[usize]| {
        let mut tally = Tally::new(&workload, &reference);
        arrivals.iter().for_each(|&arrival| tally.keep(arrival));
        tally.score()
    };
    let all = keep(&[0, 1, 2, 3]);
    assert_eq!(
        (all.bytes, all.otlp_bytes, all.spans, all.functions_all, all.call_trees_all),
        (784, 448, 8, 3, 3)
    );
    assert_eq!((all.tfcr, all.tfcr_otlp, all.ss_ms, all.dist_over_entropy), (1.0, 1.0, 0.0, 0.0));

    let score = keep(&[0, 2]);
    let close =
        |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
    assert_eq!((score.traces, score.spans, score.bytes, score.otlp_bytes), (2, 5, 507, 285));
    assert_eq!((score.functions, score.call_trees), (2, 2));
    close(score.tfcr, 507.0 / 784.0);
    close(score.tfcr_otlp, 285.0 / 448.0);
    let ss = sqrt(1.0 + (1.0 - sqrt(8.0 / 3.0)).powi(2) + (sqrt(8.0 / 3.0) - sqrt(2.0)).powi(2) + 64.0);
    let entropy = -(0.4 * 0.4f64.log2() + 0.6 * 0.6f64.log2());
    close(score.ss_ms, ss);
    close(score.entropy_bits, entropy);
    close(score.dist_over_entropy, ss / entropy);
    // The format used in the document.
    let printed = |number: f64| format!("{number:.5}");
    assert_eq!(printed(score.ss_ms), "8.09003");
    assert_eq!(printed(score.entropy_bits), "0.97095");
    assert_eq!(printed(score.dist_over_entropy), "8.33207");
    assert_eq!(printed(score.tfcr), "0.64668");

    let nothing: Score = keep(&[]);
    close(nothing.ss_ms, sqrt(144.0 + 8.0 / 3.0 + 16.0 + 2.0 + 64.0));
    assert_eq!(nothing.entropy_bits, 0.0);
    assert!(nothing.dist_over_entropy.is_infinite());
}
