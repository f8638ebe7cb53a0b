//! A sampler to evaluate: one of astracer's own or a baseline.

use std::fmt;
use std::sync::Arc;

use astracer_baselines::{BaselineSpec, Keys};
use astracer_samplers::strata::Strata;
use astracer_samplers::{Bump, Cap, Config, Count, Limits, Nanos, Probability, Ratio, Sampler};

use crate::draw::Draw;
use crate::late::{self, Late};
use crate::replay::{Decided, replay, replay_baseline};
use crate::stop::Stop;
use crate::workload::Workload;

/// A sampler that can be replayed over a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidate {
    /// A sampler that services can run.
    Ours(Config),
    /// Such a sampler behind a cap.
    Capped(Config, Cap),
    /// Strata behind a sampler, under a cap.
    Late(Arc<Late>, Cap),
    /// A sampler of another project, reimplemented for comparison.
    Baseline(BaselineSpec),
}

impl Candidate {
    /// Whether the phase of a draw affects this sampler.
    pub fn has_windows(&self) -> bool {
        match self {
            Self::Ours(config) | Self::Capped(config, _) => period(config) > Nanos::ZERO,
            Self::Late(..) | Self::Baseline(_) => false,
        }
    }

    /// Like [`Display`](fmt::Display), but if more than three keys have their own parameters, only
    /// their number is written.
    pub fn brief(&self) -> String {
        let (config, cap) = match self {
            Self::Ours(config) => (config, None),
            Self::Capped(config, cap) => (config, Some(cap)),
            Self::Late(..) | Self::Baseline(_) => return self.to_string(),
        };
        let (common, keys): (Config, usize) = match config {
            Config::Bump(per_key) => (per_key.default().clone().into(), per_key.overrides().len()),
            Config::TokenBucket(per_key) => (per_key.default().clone().into(), per_key.overrides().len()),
            other => (other.clone(), 0),
        };
        if keys <= 3 {
            return self.to_string();
        }
        let cap = cap.map_or_else(String::new, |cap| format!(" under {cap}"));
        format!("{common};{keys} keys with own parameters{cap}")
    }

    /// `config` behind `cap`, or `config` alone if the cap limits nothing.
    pub fn capped(config: Config, cap: Cap) -> Self {
        if cap.is_none() { Self::Ours(config) } else { Self::Capped(config, cap) }
    }

    /// The sampler of a parameters file: `config` behind `cap`, with strata after it if there are
    /// any.
    pub fn of_file(config: Config, strata: Option<&Strata>, cap: Cap) -> Self {
        match strata {
            Some(strata) => Self::Late(Arc::new(Late { head: config, strata: strata.clone() }), cap),
            None => Self::capped(config, cap),
        }
    }

    /// One probability for all traces; `None` if it is 0.
    pub(crate) fn equal_share(share: f64) -> Option<Self> {
        let share = Probability::new(share.clamp(0.0, 1.0))?;
        Ratio::new(share).ok().map(|ratio| Self::Ours(ratio.into()))
    }

    /// Replays a workload on one draw. `keep` gets the index of each kept arrival, and its weight;
    /// baselines and samplers that do not decide by chance have no weights. Returns false if asked
    /// to stop before the end.
    pub fn replay(
        &self,
        workload: &Workload,
        draw: &Draw,
        stop: Stop<'_>,
        mut keep: impl FnMut(usize, Option<f64>),
    ) -> bool {
        self.decide_each(workload, draw, stop, |decided| {
            if decided.keep {
                keep(decided.arrival, decided.weight());
            }
        })
    }

    /// Like [`replay`](Self::replay), but `each` also gets the decisions to drop. Baselines report
    /// only what they keep.
    pub(crate) fn decide_each(
        &self,
        workload: &Workload,
        draw: &Draw,
        stop: Stop<'_>,
        mut each: impl FnMut(Decided),
    ) -> bool {
        let ours = |config: &Config, cap: &Cap, each| {
            let sampler = Sampler::with_cap(config, limits(workload), cap);
            replay(workload, &sampler, period(config), draw, stop, each)
        };
        match self {
            Self::Ours(config) => ours(config, &Cap::none(), each),
            Self::Capped(config, cap) => ours(config, cap, each),
            Self::Late(late, cap) => late::replay(workload, (late, cap), limits(workload), draw, stop, each),
            Self::Baseline(spec) => {
                let mut baseline = spec.build(&Keys::new(workload.keys().names()));
                replay_baseline(workload, baseline.as_mut(), draw, stop, |arrival| {
                    each(Decided { arrival, at_ns: 0, keep: true, place: 0, by_chance: None });
                })
            }
        }
    }
}

/// The limits of a record table that is just large enough for the workload's keys, and never larger
/// than that of a service.
///
/// Each replay builds a table, and building one for ten thousand keys would be most of the work of
/// replaying a few thousand calls. Moreover, records are aligned to 128 bytes, and glibc before
/// 2.38 does not reuse a freed block for an aligned allocation of the same size, so each table
/// takes fresh memory.
fn limits(workload: &Workload) -> Limits {
    let service = Limits::single_threaded();
    let keys = u32::try_from(workload.keys().len()).unwrap_or(u32::MAX);
    service.with_keys(keys.min(service.keys()))
}

/// The window that the phase of a draw is a share of: the common window if there is one, else the
/// longest window of any single key, else 0.
fn period(config: &Config) -> Nanos {
    let window = |bump: &Bump| match bump.count() {
        Count::Tumbling { window, .. } => Some(window),
        _ => None,
    };
    match config {
        Config::Bump(bump) => window(bump.default())
            .or_else(|| bump.overrides().filter_map(|(_, own)| window(own)).max())
            .unwrap_or(Nanos::ZERO),
        _ => Nanos::ZERO,
    }
}

impl From<Config> for Candidate {
    fn from(config: Config) -> Self {
        Self::Ours(config)
    }
}

impl From<Late> for Candidate {
    fn from(late: Late) -> Self {
        Self::Late(Arc::new(late), Cap::none())
    }
}

impl From<BaselineSpec> for Candidate {
    fn from(spec: BaselineSpec) -> Self {
        Self::Baseline(spec)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(config) => config.fmt(f),
            Self::Capped(config, cap) => write!(f, "{config} under {cap}"),
            Self::Late(late, cap) if cap.is_none() => late.fmt(f),
            Self::Late(late, cap) => write!(f, "{late} under {cap}"),
            Self::Baseline(spec) => spec.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic;

    #[test]
    fn many_keys_are_a_number_to_people() {
        let few = "bump:lambda=3,min=0.02,window=1s;\"a\":min=0.5;\"b\":min=0.5";
        let many = format!("{few};\"c\":min=0.5;\"d\":min=0.5");
        let brief = |text: &str| {
            let config: Config = text.parse().expect("a sampler");
            (Candidate::Ours(config.clone()).brief(), Candidate::Ours(config).to_string())
        };
        let (of_few, whole) = brief(few);
        assert_eq!(of_few, whole);
        let (of_many, _) = brief(&many);
        assert_eq!(of_many, "bump:lambda=3,min=0.02,window=1s;4 keys with own parameters");
        let capped =
            Candidate::Capped(many.parse().expect("a sampler"), "traces=100,burst=9".parse().expect("a cap"));
        assert_eq!(
            capped.brief(),
            "bump:lambda=3,min=0.02,window=1s;4 keys with own parameters under traces=100,burst=9"
        );
    }

    #[test]
    fn windows_of_single_keys_are_windows() {
        for (text, seconds) in [
            ("bump:lambda=3,window=2s;\"a\":window=9s", 2),
            ("bump:lambda=0,min=0.1,count=none;\"a\":lambda=3,window=4s;\"b\":lambda=3,window=5s", 5),
            ("bump:lambda=3,count=decaying,tau=1s", 0),
            ("ratio:0.5", 0),
        ] {
            let config: Config = text.parse().expect(text);
            assert_eq!(period(&config), Nanos::from_secs(seconds), "{text}");
            assert_eq!(Candidate::from(config).has_windows(), seconds > 0, "{text}");
        }
    }

    #[test]
    fn a_table_of_the_workloads_size_decides_as_a_services() {
        let workload = synthetic(4000, 3);
        assert!(limits(&workload).keys() < Limits::default().keys());
        for text in ["bump:lambda=3,min=0.02,window=500ms", "bump:lambda=2,min=0.01,count=decaying,tau=2s"] {
            let config: Config = text.parse().expect("a sampler");
            let draw = Draw::recorded(1);
            let (mut kept, mut of_service) = (Vec::new(), Vec::new());
            let sampler = Sampler::with_limits(&config, Limits::single_threaded());
            replay(&workload, &sampler, period(&config), &draw, Stop::never(), |decided| {
                of_service.push((decided.keep, decided.weight()));
            });
            Candidate::from(config).decide_each(&workload, &draw, Stop::never(), |decided| {
                kept.push((decided.keep, decided.weight()));
            });
            assert_eq!(kept.len(), workload.arrivals().len());
            assert!(kept == of_service, "{text}");
        }
    }

    /// In any interval of W seconds, at most burst + rate * W are kept, as the cap's formula says.
    /// Over the whole workload, not much less is kept.
    #[test]
    fn caps_bound_what_is_replayed() {
        let workload = synthetic(4000, 3);
        let arrivals = workload.arrivals();
        let seconds = arrivals.last().expect("an arrival").at_ns as f64 / 1e9;
        let quiet = arrivals.iter().map(|arrival| arrival.key).find(|&key| key != arrivals[0].key);
        for (cap, key, of_bytes) in [
            ("traces=2,burst=40", None, false),
            ("key_traces=1,key_burst=20", Some(arrivals[0].key), false),
            ("key_traces=0.1,key_burst=20", quiet, false),
            ("bytes=300,bytes_burst=2000", None, true),
            ("key_bytes=150,key_bytes_burst=1500", Some(arrivals[0].key), true),
            ("key_bytes=20,key_bytes_burst=1500", quiet, true),
            ("traces=4,burst=80,replicas=2", None, false),
        ] {
            let cap: Cap = cap.parse().expect("a cap");
            let sampler = Candidate::capped("always".parse().expect("a sampler"), cap);
            let mut kept = Vec::new();
            assert!(
                sampler.replay(&workload, &Draw::recorded(1), Stop::never(), |index, _| kept.push(index))
            );
            let own = cap.own_share();
            let allowances = [own.traces, own.key_traces, own.bytes, own.key_bytes];
            let allowance = allowances.into_iter().flatten().next().expect("an allowance");
            let amounts: Vec<(f64, f64)> = kept
                .iter()
                .map(|&index| &arrivals[index])
                .filter(|arrival| key.is_none_or(|key| arrival.key == key))
                .map(|arrival| {
                    (arrival.at_ns as f64 / 1e9, if of_bytes { arrival.otlp_bytes as f64 } else { 1.0 })
                })
                .collect();
            for first in 0..amounts.len() {
                let mut sum = 0.0;
                for &(at, amount) in &amounts[first..] {
                    sum += amount;
                    let most = allowance.worst_case(at - amounts[first].0);
                    assert!(sum <= most + 1e-6, "{cap}: {sum} above {most}");
                }
            }
            let sum: f64 = amounts.iter().map(|(_, amount)| amount).sum();
            assert!(sum > 0.5 * allowance.rate() * seconds, "{cap}: {sum} in {seconds} s");
        }
    }
}
