use std::collections::HashMap;

use super::*;
use crate::cap::{Allowance, Cap};
use crate::nanos::Nanos;
use crate::randomness::Randomness;
use astracer_testing::SplitMix;

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn threshold(value: f64) -> Threshold {
    Threshold::from_probability(p(value))
}

fn stratum(text: &str) -> Stratum {
    text.parse().unwrap()
}

#[test]
fn octaves_are_binary_logarithms_of_milliseconds() {
    let octave = |micros: u64| Stratum::new(Nanos::new(micros * 1_000), false).octave;
    assert_eq!([0, 400, 999].map(octave), [-1; 3]);
    assert_eq!([1_000, 1_999, 2_000, 3_999, 1_024_000].map(octave), [0, 0, 1, 1, 10]);
    assert_eq!(Stratum::new(Nanos::new(u64::MAX), false).octave, 40);
}

#[test]
fn strata_are_read_as_they_are_written() {
    for text in ["8", "-1e", "40", "0e:1", "7:9f3a0c"] {
        assert_eq!(stratum(text).to_string(), text);
    }
    for text in ["", "e", "-2", "41", "02", "+2", "8x", "8:", "8:g", "8ee"] {
        assert!(text.parse::<Stratum>().is_err(), "{text}");
    }
}

/// Section 5 of the specification: its own, else of any kind, else the next lower octave's.
#[test]
fn a_stratum_without_a_probability_takes_that_of_the_nearest_below() {
    let strata = Strata::new(p(0.1)).unwrap();
    let given = [("3", 0.1), ("7", 0.5), ("8e", 0.9), ("7:a", 0.3)];
    let strata = given
        .iter()
        .fold(strata, |strata, (text, value)| strata.with_probability("k", stratum(text), p(*value)));
    let of = |text| strata.probability("k", stratum(text)).map(Probability::get);
    assert_eq!(
        ["3", "5", "7", "12", "7:a", "7:b", "12:a"].map(of),
        [0.1, 0.1, 0.5, 0.5, 0.3, 0.5, 0.5].map(Some)
    );
    assert_eq!(["2", "8e", "9e", "7e"].map(of), [None, Some(0.9), Some(0.9), None]);
    assert_eq!(strata.probability("other", stratum("3")), None);
}

#[test]
fn a_multiple_of_the_heads_probability_is_recorded_and_at_most_all() {
    let strata = Strata::new(p(0.1)).unwrap();
    let recorded = |head| strata.recorded(Some(threshold(head))).unwrap().probability().get();
    assert!((recorded(0.02) - 0.1).abs() < 1e-12);
    assert_eq!([0.2, 0.7, 1.0].map(recorded), [1.0; 3]);
    assert_eq!(strata.clone().with_record(Record::All).unwrap().recorded(None), Some(Threshold::ALWAYS));
    for wrong in [0.5, f64::NAN, f64::INFINITY] {
        assert!(strata.clone().with_record(Record::Times(wrong)).is_err());
    }
}

/// One threshold for recording, stratum and policies: r (1 - (1 - q)(1 - q')). The randomness
/// reaches it, and is uniform above it.
#[test]
fn all_decisions_make_one_threshold() {
    let mut random = SplitMix::new(5);
    for (r, q, also) in [(1.0, 0.3, None), (0.5, 1.0, None), (0.03, 0.2, Some(0.5)), (1e-9, 1e-6, Some(1e-3))]
    {
        let draw = Draw { threshold: Some(threshold(q)), keeps: true, recorded: threshold(r) };
        let expected = r * (1.0 - (1.0 - q) * (1.0 - also.unwrap_or(0.0)));
        let mut mean = 0.0;
        for _ in 0..2_000 {
            let (all, rv) = draw.of_all(also.map(threshold), random.next()).unwrap();
            assert!((all.probability().get() / expected - 1.0).abs() < 1e-3, "{r} {q}: {all}");
            assert!(all.keeps(rv));
            let kept = 2f64.powi(56) * all.probability().get();
            mean += (rv.get() - all.get()) as f64 / kept / 2_000.0;
        }
        // A mean of 2,000 uniform numbers: 0.5 with a standard deviation of 0.0065.
        assert!((mean - 0.5).abs() < 0.03, "{mean}");
    }
    let refused = Draw { threshold: None, keeps: false, recorded: threshold(0.5) };
    assert_eq!(refused.of_all(None, 7), None);
    let alone = refused.of_all(Some(threshold(0.5)), 7).unwrap();
    assert!((alone.0.probability().get() - 0.25).abs() < 1e-9);
}

/// Traffic of three keys: a common one with rare slow calls, a slow one, and a rare one.
fn traffic(random: &mut SplitMix, n: usize) -> Vec<(&'static str, Stratum, u64)> {
    let mut part = |of: u64| random.next() % of;
    (0..n)
        .map(|_| {
            let (key, micros, bytes) = match part(1_000) {
                0..5 => ("rare", 3_000, 2_000),
                5..100 => ("slow", 200_000 + part(400_000), 5_000),
                100..110 => ("common", 900_000, 4_000),
                _ => ("common", 1_500 + part(5_000), 1_000),
            };
            (key, Stratum::new(Nanos::new(micros * 1_000), part(300) == 0), bytes)
        })
        .collect()
}

struct Run {
    decided: f64,
    bytes: f64,
    kept_bytes: f64,
    weights: HashMap<(&'static str, Stratum), (f64, f64, f64)>,
}

/// Plays traffic through a sampler, as a service would: the head records, then strata decide.
fn run(strata: Strata, cap: &Cap, head: f64, seed: u64, traces: &[(&'static str, Stratum, u64)]) -> Run {
    let mut random = SplitMix::new(seed ^ 0x5eed);
    let sampler = StrataSampler::new(strata, cap, seed);
    let recorded = sampler.strata().recorded(Some(threshold(head))).unwrap();
    let mut run = Run { decided: 0.0, bytes: 0.0, kept_bytes: 0.0, weights: HashMap::new() };
    for (at, &(key, stratum, bytes)) in traces.iter().enumerate() {
        let now = Nanos::from_millis(at as u64);
        let sums = run.weights.entry((key, stratum)).or_default();
        sums.0 += 1.0;
        run.bytes += bytes as f64;
        sampler.solve(now);
        if !recorded.keeps(Randomness::from_low_bits(random.next())) {
            continue;
        }
        run.decided += 1.0;
        let draw = sampler.draw(&RecordedTrace { key, stratum, recorded, bytes, now, random: random.next() });
        if draw.keeps {
            let (threshold, _) = draw.of_all(None, random.next()).unwrap();
            let p = threshold.probability().get();
            sums.1 += 1.0 / p;
            sums.2 += (1.0 - p) / p / p;
            run.kept_bytes += bytes as f64;
        }
    }
    assert_eq!(sampler.counts().decided as f64, run.decided);
    run
}

/// The sums of weights are unbiased whatever decides: over seeds, their mean is within four
/// standard errors of the true count. Spread numbers make the true error smaller than this one.
#[test]
fn sums_of_weights_are_those_of_all_traces() {
    let fitted = Strata::new(p(0.1)).unwrap();
    let fitted = [("common", "0", 0.05), ("common", "9", 1.0), ("slow", "7", 0.2), ("slow", "8", 0.6)]
        .iter()
        .fold(fitted, |all, (key, text, value)| all.with_probability(*key, stratum(text), p(*value)));
    let plain = Strata::new(p(0.1)).unwrap();
    let capped = Cap { traces: Allowance::new(60.0, 60.0).ok(), ..Cap::none() };
    let mut random = SplitMix::new(11);
    let traces = traffic(&mut random, 6_000);
    for strata in [plain, fitted] {
        for (record, head) in [(Record::All, 0.1), (Record::Times(5.0), 0.1), (Record::Times(3.0), 0.02)] {
            for cap in [Cap::none(), capped] {
                let mut sums: HashMap<_, (f64, f64, f64)> = HashMap::new();
                let seeds = 30;
                for seed in 0..seeds {
                    let strata = strata.clone().with_record(record).unwrap();
                    for (place, (count, weight, variance)) in run(strata, &cap, head, seed, &traces).weights {
                        let sum = sums.entry(place).or_default();
                        *sum = (count, sum.1 + weight, sum.2 + variance);
                    }
                }
                for (place, (count, weight, variance)) in sums {
                    let seeds = seeds as f64;
                    let error = variance.sqrt() / seeds;
                    // A rare stratum may be in no sample at all; then its error is unknown.
                    if variance > 0.0 && count > 20.0 {
                        let off = (weight / seeds - count).abs();
                        assert!(off <= 4.0 * error, "{place:?} {record:?}: {off} of {count}, {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_share_of_bytes_is_kept_and_rare_strata_whole() {
    let mut random = SplitMix::new(3);
    let traces = traffic(&mut random, 60_000);
    for size in [0.05, 0.1, 0.3] {
        let run = run(
            Strata::new(p(size)).unwrap().with_record(Record::All).unwrap(),
            &Cap::none(),
            1.0,
            9,
            &traces,
        );
        let share = run.kept_bytes / run.bytes;
        assert!((0.9..=1.1).contains(&(share / size)), "{share} of {size}");
        let (_, (count, weight, _)) = run
            .weights
            .iter()
            .find(|((key, place), _)| *key == "common" && place.octave == 9 && place.is_error)
            .unwrap();
        assert!((weight - count).abs() < 1e-6, "each of the rarest stratum: {weight} of {count}");
    }
}

/// Later calls do not pay for the first ones of 70 strata, which are kept. Two thirds of the size
/// were kept of them.
#[test]
fn the_first_traces_of_strata_are_not_paid_for() {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut random = SplitMix::new(5);
    let mut trace = || {
        let place = (70.0f64.powf(random.index(1_000_000) as f64 / 1e6) - 1.0) as u64;
        (keys[(place % 10) as usize], Stratum::new(Nanos::from_millis(1 << (place / 10)), false), 1_000)
    };
    let traces: Vec<_> = (0..4_000).map(|_| trace()).collect();
    let strata = Strata::new(p(0.1)).unwrap().with_record(Record::All).unwrap();
    let kept =
        |n: usize, seed| run(strata.clone(), &Cap::none(), 1.0, seed, &traces[..n]).kept_bytes / 1_000.0;
    let later = (0..10).map(|seed| kept(4_000, seed) - kept(1_000, seed)).sum::<f64>() / 10.0;
    assert!((later / 300.0 - 1.0).abs() < 0.15, "{later} of 3,000");
}

/// Unrecorded traces cannot be kept, so the others are kept more often.
#[test]
fn the_share_of_bytes_is_kept_of_what_is_recorded() {
    let mut random = SplitMix::new(3);
    let traces = traffic(&mut random, 60_000);
    for (head, record) in [(0.1, 5.0), (0.1, 2.0), (0.05, 3.0)] {
        let strata = Strata::new(p(0.1)).unwrap().with_record(Record::Times(record)).unwrap();
        let run = run(strata, &Cap::none(), head, 9, &traces);
        let share = run.kept_bytes / run.bytes;
        assert!((0.09..=0.11).contains(&share), "{head}, {record}: {share}");
    }
}

/// A cap far below what is wanted: rare strata do not take all of it, and sums stay useful.
#[test]
fn a_small_cap_keeps_sums_useful() {
    let mut random = SplitMix::new(12);
    let traces = traffic(&mut random, 20_000);
    // One trace a millisecond, of which a tenth would be kept.
    for (rate, within) in [(50.0, 0.1), (10.0, 0.25)] {
        let cap = Cap { traces: Allowance::new(rate, rate).ok(), ..Cap::none() };
        let strata = Strata::new(p(0.1)).unwrap().with_record(Record::All).unwrap();
        let (mut all, mut weights) = (0.0, 0.0);
        for seed in 0..10 {
            let run = run(strata.clone(), &cap, 1.0, seed, &traces);
            let common = run.weights.iter().filter(|((key, _), _)| *key == "common");
            common.for_each(|(_, (count, weight, _))| {
                all += count;
                weights += weight;
            });
        }
        let off = weights / all - 1.0;
        assert!(off.abs() < within, "{rate}: {off}");
    }
}

/// The specification's figure: with 30 % unique names, at most 1.1 of the size.
#[test]
fn new_keys_share_an_allowance() {
    for one_in in [33, 3, 1] {
        let mut random = SplitMix::new(8);
        let strata = Strata::new(p(0.1)).unwrap().with_record(Record::All).unwrap();
        let sampler = StrataSampler::new(strata, &Cap::none(), 1);
        let (mut all, mut kept) = (0, 0);
        for (at, (key, stratum, bytes)) in traffic(&mut random, 40_000).into_iter().enumerate() {
            let now = Nanos::from_millis(at as u64);
            let unique = format!("unique {at}");
            let key = if at % one_in == 0 { unique.as_str() } else { key };
            sampler.solve(now);
            let trace = RecordedTrace {
                key,
                stratum,
                recorded: Threshold::ALWAYS,
                bytes,
                now,
                random: random.next(),
            };
            all += bytes;
            kept += if sampler.draw(&trace).keeps { bytes } else { 0 };
        }
        let share = kept as f64 / all as f64;
        assert!(share <= 0.11, "one in {one_in}: {share}");
        assert!(sampler.counts().strata <= 100, "{:?}", sampler.counts());
    }
}

/// More strata than there are records: each trace is decided, and the size holds.
#[test]
fn strata_beyond_the_table_count_together() {
    let mut random = SplitMix::new(8);
    let strata = Strata::new(p(0.1)).unwrap().by_kind(true).with_record(Record::All).unwrap();
    let sampler = StrataSampler::new(strata, &Cap::none(), 1);
    let mut kept = 0;
    for at in 0..60_000u64 {
        let now = Nanos::from_millis(at);
        let stratum = stratum("4").with_kind(Some(random.next() % 20_000));
        sampler.solve(now);
        let recorded = Threshold::ALWAYS;
        kept += u64::from(
            sampler
                .draw(&RecordedTrace { key: "k", stratum, recorded, bytes: 10, now, random: random.next() })
                .keeps,
        );
    }
    assert!(sampler.counts().strata <= Strata::MAX);
    assert!((5_400..6_600).contains(&kept), "{kept}");
}

/// A burst of one stratum empties no other: the cap divides its probability and leaves those of 1,
/// within half of it.
#[test]
fn a_cap_leaves_strata_that_are_kept_whole() {
    let strata = Strata::new(p(0.5)).unwrap().with_record(Record::All).unwrap();
    let strata =
        strata.with_probability("burst", stratum("0"), p(0.5)).with_probability("odd", stratum("9"), p(1.0));
    let cap = Cap { traces: Allowance::new(100.0, 100.0).ok(), ..Cap::none() };
    let sampler = StrataSampler::new(strata, &cap, 4);
    let mut random = SplitMix::new(2);
    let (mut odd, mut burst, mut weights) = (0, 0, 0.0);
    for at in 0..20_000u64 {
        let (key, octave) = if at % 250 == 0 { ("odd", "9") } else { ("burst", "0") };
        let now = Nanos::new(at * 100_000);
        let recorded = Threshold::ALWAYS;
        let trace =
            RecordedTrace { key, stratum: stratum(octave), recorded, bytes: 1, now, random: random.next() };
        let draw = sampler.draw(&trace);
        match draw.threshold {
            Some(threshold) if draw.keeps => {
                if key == "odd" {
                    odd += 1;
                    assert_eq!(threshold, Threshold::ALWAYS);
                } else {
                    burst += 1;
                    weights += threshold.adjusted_count();
                }
            }
            _ => assert_eq!(key, "burst", "at {at}"),
        }
    }
    // 2 s of 100 a second and a burst of 100 at most; 10,000 a second are offered, of which 40 are
    // odd.
    assert_eq!(odd, 80);
    assert!(odd + burst <= 300, "{burst}");
    assert!((weights / 19_920.0 - 1.0).abs() < 0.2, "{weights}");
}

/// Nine tenths of the traces are of a stratum that the parameters keep whole, a tenth of one that
/// they keep rarely (the other way round if `healthy`), and a thousandth of a rare one. Returns the
/// share of the bytes kept in each quarter of an hour, at 20 traces a second.
fn quarters(sampler: &StrataSampler, from: u64, healthy: &[bool]) -> Vec<f64> {
    let mut random = SplitMix::new(9 + from);
    let each = 15 * 60 * 20;
    let mut at = from * each;
    let of = |&healthy: &bool| {
        let (mut all, mut kept, mut weights, mut rare) = (0.0, 0.0, 0.0, 0);
        for _ in 0..each {
            let now = Nanos::from_millis(50 * at);
            at += 1;
            let octave = match random.next().is_multiple_of(10) == healthy {
                _ if at.is_multiple_of(1_000) => "12",
                true => "9",
                false => "4",
            };
            sampler.solve(now);
            let recorded = Threshold::ALWAYS;
            let trace = RecordedTrace {
                key: "k",
                stratum: stratum(octave),
                recorded,
                bytes: 100 + random.next() % 900,
                now,
                random: random.next(),
            };
            let draw = sampler.draw(&trace);
            all += trace.bytes as f64;
            if draw.keeps {
                kept += trace.bytes as f64;
                weights += draw.threshold.unwrap().adjusted_count();
                rare += u64::from(octave == "12");
            }
        }
        assert_eq!(rare, each / 1_000, "what is rare stays whole");
        assert!((weights / each as f64 - 1.0).abs() < 0.03, "{weights}");
        kept / all
    };
    healthy.iter().map(of).collect()
}

fn of_size(size: f64) -> Strata {
    let strata = Strata::new(p(size)).unwrap().with_record(Record::All).unwrap();
    strata.with_probability("k", stratum("4"), p(0.05)).with_probability("k", stratum("9"), p(1.0))
}

/// The traces after a slow hour are kept as those before it.
#[test]
fn a_slow_hour_is_not_paid_for_by_the_next_one() {
    let sampler = StrataSampler::new(of_size(0.16), &Cap::none(), 3);
    // By hand: a tenth kept whole and nine tenths with 0.05.
    let as_recorded = |share: &f64| (share / 0.145 - 1.0).abs() < 0.06;
    let before = quarters(&sampler, 0, &[true; 8]);
    assert!(before.iter().all(as_recorded), "{before:?}");
    let slow = quarters(&sampler, 8, &[false; 4]);
    assert!(slow[3] < 0.5 * slow[0] && slow[3] > 0.16, "{slow:?}");
    let after = quarters(&sampler, 12, &[true; 4]);
    // Counts of the slow hour fade within minutes.
    assert!(after[0] > 0.11 && after[1..].iter().all(as_recorded), "{after:?}");
}

/// By hand: nine tenths are kept whole and a tenth with 0.05. After time t the hour is believed to
/// have 0.1 + (1 - exp(-t)) 0.8 of it, and what is kept is divided by the excess over 0.1.
#[test]
fn the_size_comes_back_within_hours_if_requests_become_slower() {
    let sampler = StrataSampler::new(of_size(0.1), &Cap::none(), 3);
    let shares = quarters(&sampler, 0, &[false; 16]);
    for (quarter, share) in shares.iter().enumerate() {
        let hours = (quarter as f64 + 0.5) / 4.0;
        let believed = 0.1 + (1.0 - f64::exp(-hours)) * 0.805;
        let expected = 0.905 * 0.1 / believed;
        assert!((share / expected - 1.0).abs() < 0.15, "after {hours} hours: {share}, not {expected}");
    }
    assert!(shares[15] < 0.11, "{shares:?}");
}

/// A share below the size changes nothing, and a budget holds although all strata are kept whole.
#[test]
fn a_budget_lowers_strata_that_are_kept_whole() {
    let all = Strata::new(p(0.7)).unwrap().with_record(Record::All).unwrap();
    let all = all.with_probability("k", stratum("4"), p(1.0));
    let all = all.with_probability("k", stratum("9"), p(0.6)).with_probability("k", stratum("12"), p(1.0));
    let sampler = StrataSampler::new(all, &Cap::none(), 3);
    let share = quarters(&sampler, 0, &[false; 2])[1];
    assert!((share - 0.64).abs() < 0.01, "{share}");
    sampler.scale(0.25);
    let share = quarters(&sampler, 2, &[false; 2])[1];
    assert!((share / 0.64 - 0.25).abs() < 0.02, "{share}");
}

#[test]
fn a_clock_set_back_and_idle_ages_change_no_weight() {
    let sampler = StrataSampler::new(Strata::new(p(0.1)).unwrap(), &Cap::none(), 1);
    let mut random = SplitMix::new(2);
    for now in [5, 3, u64::MAX, 0] {
        let now = Nanos::new(now);
        sampler.solve(now);
        let trace = RecordedTrace {
            key: "k",
            stratum: stratum("3"),
            recorded: threshold(1e-12),
            bytes: u64::MAX,
            now,
            random: random.next(),
        };
        let draw = sampler.draw(&trace);
        assert!(draw.threshold.is_some(), "{draw:?}");
    }
}

/// Loops of any length are of one kind; another name, or a name at another depth, is another kind.
#[test]
fn kinds_are_sets_of_names_and_depths() {
    let of = |spans: &[(&str, usize)]| {
        let mut kind = Kind::default();
        spans.iter().for_each(|(name, depth)| kind.add(name, *depth));
        kind.take()
    };
    let one = of(&[("root", 0), ("read", 1), ("write", 1)]);
    assert_eq!(one, of(&[("write", 1), ("read", 1), ("read", 1), ("root", 0), ("write", 1)]));
    assert_ne!(one, of(&[("root", 0), ("read", 1), ("write", 2)]));
    assert_ne!(one, of(&[("root", 0), ("read", 1)]));
    assert_ne!(one, of(&[("root", 0), ("read", 1), ("wrote", 1)]));
}
