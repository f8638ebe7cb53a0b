//! Fits the probabilities of strata, and of the head sampler before them, to a workload.

use std::collections::BTreeMap;

use astracer_samplers::strata::{Record, Strata, Stratum};
use astracer_samplers::{Bump, Config, ConfigError, Count, PerKey, Probability, knee_factor};

use super::Late;
use super::influence::influence;
use crate::growth::Growth;
use crate::stop::Stop;
use crate::workload::Workload;

/// The floor on probabilities, as a share of the size.
const FLOOR: f64 = 0.125;
/// A key that is not in the file is recorded as if the head kept this multiple of the size.
const UNKNOWN: f64 = 4.0;
/// Keys with fewer traces are left out of a file that would have too many strata.
const FEWEST: u32 = 3;
/// Halvings of the interval of C, as a logarithm.
const STEPS: u32 = 140;

/// The size, and how strata are told apart.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitOptions {
    /// The share of the bytes to keep.
    pub size: f64,
    /// The share of traces that is recorded.
    pub record: Record,
    /// Whether strata are told apart by the kind of tree.
    pub by_kind: bool,
}

impl FitOptions {
    /// Strata without kinds.
    pub fn new(size: f64, record: Record) -> Self {
        Self { size, record, by_kind: false }
    }

    /// Tells strata apart by the kind of tree, or not.
    #[must_use]
    pub fn by_kind(self, by_kind: bool) -> Self {
        Self { by_kind, ..self }
    }
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The head sampler and the strata.
    pub late: Late,
    /// The share of the spans that is recorded, in expectation.
    pub recorded: f64,
    /// The share of the bytes that is kept, in expectation.
    pub kept: f64,
    /// Keys without strata, beyond what a service counts.
    pub left_out: usize,
    /// Key at the start, bytes and probability of each stratum.
    strata: Vec<(u32, f64, f64)>,
}

/// Sums over the traces of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    traces: f64,
    bytes: f64,
    influence: f64,
    /// The sum of the probabilities of being recorded.
    recorded: f64,
}

impl Fit {
    /// Fits to a workload. `None` if asked to stop, or if it has no bytes.
    ///
    /// # Errors
    ///
    /// If the size is not a share above 0.
    pub fn new(
        workload: &Workload,
        options: FitOptions,
        stop: Stop<'_>,
    ) -> Option<Result<Self, ConfigError>> {
        let influence = influence(workload, stop)?;
        let arrivals = workload.arrivals();
        let bytes: f64 = arrivals.iter().map(|arrival| arrival.bytes as f64).sum();
        if bytes == 0.0 {
            return None;
        }
        // The head sampler, by key.
        let mut keys = vec![Group::default(); workload.keys().len()];
        for (arrival, influence) in arrivals.iter().zip(&influence) {
            keys[arrival.key as usize].add(arrival.bytes as f64, *influence, 1.0);
        }
        let heads = probabilities(&keys, options.size, bytes);
        let recorded = |key: u32| match options.record {
            Record::All => 1.0,
            Record::Times(times) => (times * heads[key as usize]).min(1.0),
        };
        let groups = |by_kind: bool| {
            let mut groups: BTreeMap<(u32, Stratum), Group> = BTreeMap::new();
            for (arrival, influence) in arrivals.iter().zip(&influence) {
                let group = groups.entry((arrival.end_key, arrival.ending.stratum(by_kind))).or_default();
                group.add(arrival.bytes as f64, *influence, recorded(arrival.key));
            }
            let (places, groups): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
            let p = probabilities(&groups, options.size, bytes);
            places
                .into_iter()
                .zip(groups)
                .zip(p)
                .map(|((place, group), p)| (place, group, p))
                .collect::<Vec<_>>()
        };
        let common = groups(false);
        let own = if options.by_kind { groups(true) } else { Vec::new() };
        let used = if options.by_kind { &own } else { &common };
        let kept = used.iter().map(|(_, group, p)| p * group.bytes).sum::<f64>() / bytes;
        let spans: f64 = arrivals.iter().map(|arrival| f64::from(arrival.spans)).sum();
        let of_spans: f64 =
            arrivals.iter().map(|arrival| recorded(arrival.key) * f64::from(arrival.spans)).sum();
        // The key at the start of each key at the end.
        let mut starts = vec![0; workload.end_keys().len()];
        arrivals.iter().for_each(|arrival| starts[arrival.end_key as usize] = arrival.key);
        let named = named(workload, common.iter().chain(&own).map(|((key, _), ..)| *key));
        let late = || {
            let mut named_at_start = vec![false; keys.len()];
            starts.iter().zip(&named).for_each(|(key, named)| named_at_start[*key as usize] |= named);
            let head = head(workload, (&keys, &named_at_start), &heads, options.size)?;
            let mut strata =
                Strata::new(probability(options.size))?.with_record(options.record)?.by_kind(options.by_kind);
            for ((key, stratum), _, p) in
                common.iter().chain(&own).filter(|((key, _), ..)| named[*key as usize])
            {
                let name = workload.end_keys().name(astracer_recording::intern::Symbol(*key));
                strata = strata.with_probability(name, *stratum, probability(*p));
            }
            Ok(Late { head, strata })
        };
        let strata = used.iter().map(|((key, _), group, p)| (starts[*key as usize], group.bytes, *p));
        let strata = strata.collect();
        let left_out = named.iter().filter(|named| !**named).count();
        Some(late().map(|late| Self { late, recorded: of_spans / spans, kept, left_out, strata }))
    }
}

impl Fit {
    /// The worst case without a cap if one key is called this many times as often: strata keep
    /// their probabilities, as far as the key is recorded.
    pub(crate) fn growth(&self, workload: &Workload, times: f64) -> Option<Growth> {
        let (mut keys, mut all) = (vec![(0.0, 0.0); workload.keys().len()], (0.0, 0.0));
        for arrival in workload.arrivals() {
            let (traces, bytes) = &mut keys[arrival.key as usize];
            (*traces, *bytes) = (*traces + 1.0, *bytes + arrival.bytes as f64);
            all = (all.0 + 1.0, all.1 + arrival.bytes as f64);
        }
        let Config::Bump(head) = &self.late.head else { return None };
        let of = |(key, name): (u32, &str)| {
            let (traces, bytes) = keys[key as usize];
            let share = traces / all.0;
            let knee = knee_factor(share, times * share / (1.0 + (times - 1.0) * share));
            let recorded = match self.late.strata.record() {
                Record::All => 1.0,
                Record::Times(record) => (record * head.of(name).minimum().get() * knee).min(1.0),
            };
            let own = self.strata.iter().filter(|(of, ..)| *of == key);
            let more: f64 = own.map(|(_, bytes, p)| bytes * (times * p.min(recorded) - p)).sum();
            Growth {
                key: name.to_owned(),
                calls: times,
                kept_bytes: 1.0 + more / (self.kept * all.1),
                bytes: 1.0 + (times - 1.0) * bytes / all.1,
            }
        };
        let keys = (0..).zip(workload.keys().names());
        keys.map(of).max_by(|a, b| a.kept_bytes.total_cmp(&b.kept_bytes))
    }
}

impl Group {
    fn add(&mut self, bytes: f64, influence: f64, recorded: f64) {
        self.traces += 1.0;
        self.bytes += bytes;
        self.influence += influence;
        self.recorded += recorded;
    }

    /// The root of the mean influence per mean byte.
    fn score(&self) -> f64 {
        (self.influence / self.bytes.max(1.0)).sqrt()
    }
}

/// Marks the keys that have strata in the file: all, if a service has counts for them; otherwise
/// the most frequent ones, without those that a service would treat as new. `strata` are the keys
/// of all strata.
fn named(workload: &Workload, strata: impl Iterator<Item = u32>) -> Vec<bool> {
    let mut keys = vec![(0u32, 0usize); workload.end_keys().len()];
    workload.arrivals().iter().for_each(|arrival| keys[arrival.end_key as usize].0 += 1);
    strata.for_each(|key| keys[key as usize].1 += 1);
    if keys.iter().map(|(_, strata)| strata).sum::<usize>() <= Strata::MAX {
        return vec![true; keys.len()];
    }
    let mut order: Vec<usize> = (0..keys.len()).filter(|&key| keys[key].0 >= FEWEST).collect();
    order.sort_by_key(|&key| std::cmp::Reverse(keys[key].0));
    let (mut named, mut sum) = (vec![false; keys.len()], 0);
    for key in order {
        sum += keys[key].1;
        if sum > Strata::MAX {
            break;
        }
        named[key] = true;
    }
    named
}

/// The head sampler: constants by key. A key that becomes far more frequent than recorded is
/// recorded less often.
fn head(
    workload: &Workload,
    (keys, named): (&[Group], &[bool]),
    heads: &[f64],
    size: f64,
) -> Result<Config, ConfigError> {
    let constant =
        |p: f64| Bump::new(0.0, probability(p), Bump::WINDOW_DEFAULT)?.with_count(Count::Uncounted);
    let traces: f64 = keys.iter().map(|group| group.traces).sum();
    let mut head = PerKey::new(constant(UNKNOWN * size)?);
    for ((name, group), p) in workload
        .keys()
        .names()
        .zip(keys)
        .zip(heads)
        .zip(named)
        .filter(|(((_, group), _), named)| **named && group.traces > 0.0)
        .map(|(key, _)| key)
    {
        head = head.with_override(name, constant(*p)?.with_share(Probability::new(group.traces / traces)));
    }
    Ok(Config::Bump(head))
}

/// min(recorded, max(floor, C score)) for each group, with the C at which they keep this share of
/// all bytes.
fn probabilities(groups: &[Group], size: f64, bytes: f64) -> Vec<f64> {
    let all = |c: f64| {
        groups.iter().map(move |group| {
            let most = if group.traces > 0.0 { group.recorded / group.traces } else { 1.0 };
            (c * group.score()).max(FLOOR * size).min(most)
        })
    };
    let kept = |c: f64| all(c).zip(groups).map(|(p, group)| p * group.bytes).sum::<f64>();
    let (mut low, mut high) = (-41.0f64, 41.0f64);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if kept(middle.exp()) > size * bytes { high = middle } else { low = middle }
    }
    all(low.exp()).collect()
}

/// A probability with six digits, as files have it.
fn probability(p: f64) -> Probability {
    Probability::new(format!("{p:.5e}").parse().unwrap_or(p)).unwrap_or(Probability::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;

    fn fit(workload: &Workload, options: FitOptions) -> Fit {
        Fit::new(workload, options, Stop::never()).expect("not stopped").expect("valid")
    }

    /// The expected values are those of an independent implementation in another language, on the
    /// same recording, by its formulas for record = all and record = 5.
    #[test]
    fn probabilities_are_those_of_the_closed_form() {
        let workload = recorded("hdfs_client_ops");
        let fits = [Record::All, Record::DEFAULT].map(|record| fit(&workload, FitOptions::new(0.1, record)));
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 2e-5, "{a} instead of {b}");
        for (key, stratum, all, by_head) in [
            ("client:createSmall", "2", 0.051191387981660307, 0.05121663404570697),
            ("client:createSmall", "8", 0.1915821550327524, 0.19167663763122947),
            ("client:rename", "-1", 0.03741055229598614, 0.037429002063349814),
            ("client:rename", "4", 0.11102229671247589, 0.11107704959423825),
            ("newStreamForCreate", "2", 0.0125, 0.0125),
            ("newStreamForCreate", "6", 0.3393668746156014, 0.14057735613900202),
        ] {
            let stratum = stratum.parse().expect("a stratum");
            for (fit, expected) in fits.iter().zip([all, by_head]) {
                close(fit.late.strata.probability(key, stratum).expect("fitted").get(), expected);
            }
        }
        for fit in &fits {
            close(fit.kept, 0.1);
            let Config::Bump(head) = &fit.late.head else { panic!("constants") };
            let own =
                |key| head.overrides().find(|(name, _)| *name == key).expect("fitted").1.minimum().get();
            close(own("client:rename"), 0.028569297727918115);
        }
        assert_eq!(fits[0].recorded, 1.0);
        // The reference records 39 % of the spans.
        assert!((fits[1].recorded - 0.39).abs() < 0.005, "{}", fits[1].recorded);
    }

    /// A kind that is in the file has its own probability, and any other that of its octave.
    #[test]
    fn strata_by_kind_have_those_without_beside_them() {
        let workload = recorded("hdfs_client_ops");
        let by_kind = fit(&workload, FitOptions::new(0.1, Record::All).by_kind(true)).late.strata;
        let common = fit(&workload, FitOptions::new(0.1, Record::All)).late.strata;
        let mut kinds = 0;
        for arrival in workload.arrivals() {
            let (key, ending) = (workload.end_key(arrival), arrival.ending);
            let unknown = ending.stratum(false).with_kind(Some(ending.kind ^ 1));
            assert_eq!(by_kind.probability(key, unknown), common.probability(key, ending.stratum(false)));
            let own = by_kind.probability(key, ending.stratum(true));
            kinds += u32::from(own != common.probability(key, ending.stratum(false)));
        }
        assert!(kinds > 0);
    }
}
