//! Compares the sums behind a score with sums over single traces.

use super::*;

/// Compares every sum behind a score with its definition, over single traces. Whole counts below 32
/// have their own bins, so binning adds no error.
#[test]
fn sums_are_those_over_single_traces() {
    let workload = synthetic(900, 5);
    let length_s = 1.0;
    let (lambda, minimum) = (3.0, 0.05);
    let length = NonZeroU64::new((length_s * 1e9) as u64).expect("a length");
    let counts =
        crate::expect::index::counts_before(&workload, Counting::Tumbling, length, 0.0, &mut Pulse::never());
    let most = counts.expect("not stopped").into_iter().fold(0.0, f64::max);
    assert!((16.0..32.0).contains(&most), "{most}");
    let bump = probabilities(&workload, Counting::Tumbling, lambda, minimum, length_s);
    let curve = Curve::new(Counting::Tumbling, lambda, 2.0);
    let laws = [
        (KeyLaw::Bump(&curve, minimum), bump),
        (KeyLaw::Constant(0.3), vec![0.3; workload.arrivals().len()]),
    ];
    let mut scratch = Scratch::default();
    for (law, p) in laws {
        for stratified in [false, true] {
            let design = Design {
                counting: Counting::Tumbling,
                lengths_ns: vec![length],
                phase: 0.0,
                extras: Extras::ALL,
                stratified,
            };
            let expectation = Expectation::new(&workload, &design, Stop::never()).expect("not stopped");
            // In working memory that another candidate has used.
            expectation.ratio(0.9, &mut scratch, Stop::never()).expect("not stopped");
            let found = expectation.expected(0, |_| law, &mut scratch, Stop::never()).expect("not stopped");
            let anew = expectation.expected(0, |_| law, &mut Scratch::default(), Stop::never());
            assert_eq!(Some(found), anew);
            compare_sums(&workload, &expectation, &scratch, &p);
        }
    }
}

fn compare_sums(workload: &Workload, expectation: &Expectation, scratch: &Scratch, p: &[f64]) {
    let near = |what: &str, place: usize, found: f64, expected: f64| {
        let is_near = found == expected || (found - expected).abs() <= 1e-7 * expected.abs() + 1e-7;
        assert!(is_near, "{what} {place}: {found}, should be {expected}");
    };
    let (functions, kinds) = (workload.functions().len(), workload.path_kinds().len());
    let mut size = [0.0; 4];
    let mut trees = vec![0.0; workload.call_trees() as usize];
    let mut latencies = vec![0.0; workload.latency_cells().len()];
    let mut pivots = vec![0.0; expectation.pivots.len()];
    let mut sums = vec![Sums::default(); functions];
    let mut paths = vec![[0.0; 3]; kinds];
    let mut path_variance = 0.0;
    for key in 0..workload.keys().len() {
        let mut fixed = 0.0;
        // For each function, the sums of p (1 - p) times c, d and q, and of (1 - p) c. For each
        // kind and in total, the sum of 1 - p.
        let (mut apart, mut missed_of) = (vec![[0.0; 4]; functions], vec![0.0; kinds]);
        let (mut missed, mut odds) = (0.0, 0.0);
        let mut certain = vec![0; functions];
        for (index, arrival) in workload.arrivals().iter().enumerate() {
            if arrival.key as usize != key {
                continue;
            }
            let p = p[index];
            let trace = [1.0, f64::from(arrival.spans), arrival.bytes as f64, arrival.otlp_bytes as f64];
            size.iter_mut().zip(trace).for_each(|(sum, of)| *sum += p * of);
            fixed += p * (1.0 - p);
            missed += 1.0 - p;
            odds += (1.0 - p) / p;
            trees[arrival.call_tree as usize] += (1.0 - p).ln();
            for calls in workload.latencies(index) {
                latencies[calls.cell as usize] += f64::from(calls.count).powi(2) * (1.0 - p) / p;
            }
            let kind = arrival.path_kind as usize;
            missed_of[kind] += 1.0 - p;
            paths[kind][0] += (1.0 - p).ln();
            paths[kind][1] += (1.0 - p) / p;
            paths[kind][2] += (1.0 - p) / p;
            for calls in workload.calls(index) {
                let function = calls.function as usize;
                if let Some(place) = expectation.pivots.of_arrival(index as u32).place(calls.function) {
                    pivots[place as usize] = p;
                    continue;
                }
                let (c, d, q) = (f64::from(calls.count), calls.deviation, calls.deviation_squared);
                let of = &mut sums[function];
                for (sum, value) in of.expected.iter_mut().zip([c, d, q]) {
                    *sum += p * value;
                }
                for (sum, product) in
                    of.covariances.iter_mut().zip([c * c, c * d, c * q, d * d, d * q, q * q])
                {
                    *sum += p * (1.0 - p) * product;
                }
                if p == 1.0 {
                    certain[function] = 1;
                } else {
                    of.log_missing += (1.0 - p).ln();
                }
                of.estimate_variance += c * c * (1.0 - p) / p;
                let v = p * (1.0 - p);
                for (sum, value) in apart[function].iter_mut().zip([v * c, v * d, v * q, (1.0 - p) * c]) {
                    *sum += value;
                }
            }
        }
        sums.iter_mut().zip(certain).for_each(|(of, certain)| of.certain += certain);
        path_variance += odds;
        // With stratification, the number of traces kept of such a key does not vary.
        if expectation.stratified && fixed > 0.0 {
            for (of, [c, d, q, missed]) in sums.iter_mut().zip(apart) {
                for (sum, product) in
                    of.covariances.iter_mut().zip([c * c, c * d, c * q, d * d, d * q, q * q])
                {
                    *sum -= product / fixed;
                }
                of.estimate_variance -= missed * missed / fixed;
            }
            for (of, own) in paths.iter_mut().zip(missed_of) {
                of[1] -= own * own / fixed;
                of[2] -= own * missed / fixed;
            }
            path_variance -= missed * missed / fixed;
        }
    }
    (0..4).for_each(|place| near("size", place, scratch.size[place], size[place]));
    let traces =
        |tree: usize| workload.arrivals().iter().filter(|arrival| arrival.call_tree as usize == tree).count();
    let (lone, shared): (Vec<usize>, Vec<usize>) = (0..trees.len()).partition(|&tree| traces(tree) == 1);
    assert!(!lone.is_empty() && shared.len() == scratch.trees.len(), "{lone:?} {shared:?}");
    shared.iter().zip(&scratch.trees).for_each(|(&tree, found)| near("tree", tree, *found, trees[tree]));
    let found = lone.iter().map(|&tree| 1.0 - trees[tree].exp()).sum();
    near("lone trees", lone.len(), scratch.lone_trees, found);
    (0..latencies.len()).for_each(|cell| near("cell", cell, scratch.latencies[cell], latencies[cell]));
    (0..pivots.len()).for_each(|place| near("pivot", place, scratch.pivots[place], pivots[place]));
    for (place, (found, expected)) in scratch.functions.iter().zip(&sums).enumerate() {
        for (found, expected) in found.expected.into_iter().zip(expected.expected) {
            near("expected sum", place, found, expected);
        }
        for (found, expected) in found.covariances.into_iter().zip(expected.covariances) {
            near("covariance", place, found, expected);
        }
        near("ln(1 - p)", place, found.log_missing, expected.log_missing);
        near("variance of a count", place, found.estimate_variance, expected.estimate_variance);
        assert_eq!(found.certain, expected.certain, "function {place}");
    }
    near("variance of all", 0, scratch.paths.variance, path_variance);
    for (place, (found, [log_missing, variance, covariance])) in
        scratch.paths.kinds.iter().zip(paths).enumerate()
    {
        near("kind's ln(1 - p)", place, found.log_missing, log_missing);
        near("kind's variance", place, found.variance, variance);
        near("kind's covariance", place, found.covariance, covariance);
    }
}

/// A replay that keeps every trace gives the same score as a probability of 1.
#[test]
fn a_score_that_is_certain_is_that_of_keeping_everything() {
    let workload = synthetic(900, 5);
    let reference = Reference::new(&workload);
    let mut tally = Tally::new(&workload, &reference);
    let (mut histograms, mut paths) = (LatencyTally::new(&workload), PathTally::new(&workload));
    for arrival in 0..workload.arrivals().len() {
        tally.keep(arrival);
        histograms.keep(arrival, 1.0);
        paths.keep(arrival, 1.0);
    }
    let certain = Expected::certain(&tally.score(), Some(histograms.distance()), Some(paths.score()));
    let expectation = expectation(&workload, Counting::Tumbling, 1.0);
    let all = expectation.ratio(1.0, &mut Scratch::default(), Stop::never()).expect("not stopped");
    let numbers = |of: &Expected| {
        [
            of.traces,
            of.spans,
            of.bytes,
            of.otlp_bytes,
            of.tfcr,
            of.functions,
            of.functions_all,
            of.call_trees,
            of.call_trees_all,
            of.entropy_bits,
            of.paths.expect("asked for"),
            of.paths_all,
        ]
    };
    for (place, (found, expected)) in numbers(&all).into_iter().zip(numbers(&certain)).enumerate() {
        close(&format!("number {place}"), found, expected, 1e-9);
    }
    for of in [&certain, &all] {
        let distances = [of.ss_ms, of.ss_sd_ms, of.dist_over_entropy];
        let more = [of.latency.expect("asked for"), of.path_distance.expect("asked for")];
        assert!(distances.iter().chain(&more).all(|&distance| distance < 1e-3), "{of:?}");
    }
}

/// Two lengths take the memory of both. A candidate uses one of them, and takes at most the time of
/// the longer.
#[test]
fn tables_of_several_lengths_add_up_in_memory() {
    let workload = synthetic(900, 5);
    let of = |lengths_s: &[u64]| {
        let length = |&seconds: &u64| NonZeroU64::new(seconds * 1_000_000_000).expect("a length");
        let design = Design {
            lengths_ns: lengths_s.iter().map(length).collect(),
            ..Design::uncounted(Extras::ALL, false)
        };
        Expectation::new(&workload, &design, Stop::never()).expect("not stopped")
    };
    let (short, long, both) = (of(&[1]), of(&[4]), of(&[1, 4]));
    assert_eq!(both.keys(), workload.keys().len());
    assert!(short.bytes() > workload.keys().len() * size_of::<crate::expect::table::Cell>());
    assert!(long.bytes() > short.bytes());
    assert_eq!(both.bytes(), short.bytes() + long.bytes());
    assert_eq!(both.cost(), long.cost());
    // At least one unit for each cell visited, but not so much more that nothing would be tried.
    let cells: usize = (0..long.keys()).map(|key| long.tables[0].key(key).cells()).sum();
    let visited = (cells + workload.functions().len() + workload.call_trees() as usize) as u64;
    assert!((visited..100 * visited).contains(&long.cost()), "{} for {visited}", long.cost());
}
