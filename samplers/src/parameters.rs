//! The parameters file, which the tuner writes and a service loads. It is TOML with a version. This
//! module converts from and to text; reading and writing files is up to the caller.
//!
//! ```toml
//! # Comments like this are for people: where the parameters come from.
//! version = 6
//!
//! random = "stratified"      # or "independent", the default (see RandomSource)
//!
//! [key]                      # what calls are counted by; this table and each of its lines are optional
//! names = "template"         # ids are folded; or "raw", or rules such as "digits=4,uuid" (see Template)
//! attributes = ["http.route"]  # of the root, else of its resource (see KeyRule)
//! at_end = ["http.response.status_code"]  # those that strata see at the root's end
//!
//! [bump]                     # or [bucket], with capacity and rate; or [ratio], with probability
//! lambda = 0.6437
//! min = 0.00004095
//! window = "259ms"           # or: count = "decaying", tau = "2000calls" or "100ms"; or: count = "none"
//! exponent = 2.0
//!
//! [bump.min_by_key]          # other minimum probabilities for single keys: p = max(f(x), min)
//! "GET /health" = 0.001
//!
//! [bump.probability_by_key]  # constant probabilities for single keys: nothing is counted (count = "none")
//! "GET /stock" = 0.02
//!
//! [bump.share_by_key]        # of these keys: their recorded share of all calls. Above 4 times it, p falls as 1/x
//! "GET /stock" = 0.3
//!
//! [bump.root."GET /orders"]  # other parameters for one key; missing ones are inherited
//! lambda = 3.0
//!
//! [cap]                      # bounds on what is kept, whatever the sampler decides (see Cap); each line is optional
//! traces = 100.0             # kept traces per second
//! burst = 25.0               # kept traces at once; the default is a quarter of a second's
//! key_traces = 10.0          # the same for each key; also key_burst
//! new_traces = 2.5           # kept first calls of new keys per second; also new_burst
//! bytes = 1e6                # exported bytes per second; also bytes_burst, key_bytes, key_bytes_burst
//! replicas = 4               # the number of processes that share these
//!
//! [tail]                     # traces that are kept once they have ended (see Tail); only policies is required
//! policies = ["error", "slow:p99", "odd(traces=5)"]
//! provisional = "armed"      # or "never", "always": the dropped traces that are recorded provisionally
//! ring_bytes = 33554432      # memory for recorded traces that no policy has kept
//! hold = "2s"                # how long such a trace stays after its end
//! boost = "on"               # raises a key's head probability after an error (see Boost)
//!
//! [tail.provisional_by_key]  # the same for single keys
//! "GET /health" = "never"
//!
//! [tail.slow_from.p99]       # from when on roots are slow while a key has too few recent calls for slow:p99
//! "GET /orders" = "120ms"
//!
//! [budget]                   # one factor on all probabilities, toward a rate of exported bytes (see Budget)
//! bytes = 50000.0            # bytes per second of this process
//! interval = "60s"           # the default: the factor changes once per interval, at most twofold
//! floor = 0.001              # no probability is scaled below this; 0 by default
//!
//! [budget.floor_by_key]
//! "GET /orders" = 0.02
//!
//! [strata]                   # decide by outcome once a trace has ended; the sampler says what is recorded
//! size = 0.1                 # the share of the bytes to keep (see Strata)
//! record = 5.0               # traces recorded for each that the sampler would keep; or "all"
//! floor = 0.0125             # the least probability of a stratum; an eighth of the size by default
//! half_life = "2000calls"    # of the counts of strata, in calls of all keys
//! lambda = 12.5              # p = lambda / x of others; by default it follows the traffic
//! kind = false               # whether strata are told apart by the kind of their call trees
//!
//! [strata.p."GET /orders"]   # by octave of the duration in ms; e: with an error (see Stratum)
//! "7" = 0.5
//! "8e" = 1.0
//!
//! [recorded]                 # of the recording that the parameters come from, to compare with
//! kept = 0.1                 # the share of its traces that the sampler keeps
//! ```
//!
//! A file may have at most 2 MiB, which take 100 MiB while it is read, and name at most 10,000
//! keys. In memory these keys take at most 4 MiB for tables of f. Each key also takes twice its
//! text and 100 bytes, and 300 bytes more if no other key has the same parameters; probabilities
//! need no table. The keys' counts are bounded by [`Limits`](crate::Limits).
//!
//! An unknown line is an error and not skipped: a misspelt limit would silently be no limit.

mod error;
mod file;

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::str::FromStr;

pub use error::ParametersError;

use crate::budget::Budget;
use crate::bump::{Bump, Count};
use crate::cap::Cap;
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::key::KeyRule;
use crate::per_key::PerKey;
use crate::probability::Probability;
use crate::strata::{Record, Strata};
use crate::stratified::RandomSource;
use crate::tail::{Quantile, SlowFrom, Tail};

/// The versions of the format that this crate reads. It writes the lowest version from 2 on that
/// has everything in the file. Version 2 added `random`, `count`, `tau`, `exponent`, `min_by_key`
/// and `probability_by_key`, and templates with rules; version 3 added `cap`, version 4 `tail` and
/// `budget`, version 5 `share_by_key`, `share`, `boost`, `slow_from`, `new_traces`, `recorded` and
/// half-lives in calls, version 6 `strata` and `at_end`.
const VERSIONS: RangeInclusive<u32> = 1..=6;
const VERSION_PLAIN: u32 = 2;
const VERSION_CAP: u32 = 3;
const VERSION_TAIL: u32 = 4;
const VERSION_PACED: u32 = 5;
/// The greatest length of a file, in bytes. Reading TOML takes about 50 times the length of its
/// text.
pub const BYTES_MAX: usize = 2 << 20;

/// The content of a parameters file. [`Display`](fmt::Display) prints such a file; [`FromStr`]
/// reads it back.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The sampler and its parameters.
    pub config: Config,
    /// The rule that makes keys.
    pub key: KeyRule,
    /// The source of randomness for traces that begin in the service.
    pub random: RandomSource,
    /// Bounds on what is kept.
    pub cap: Cap,
    /// Policies that keep traces once they have ended.
    pub tail: Tail,
    /// A target for exported bytes, toward which all probabilities are scaled.
    pub budget: Option<Budget>,
    /// The strata by which traces are decided once they have ended. The sampler then decides which
    /// are recorded.
    pub strata: Option<Strata>,
    /// The share of traces that the sampler keeps of the recording that its parameters come from.
    pub recorded_kept: Option<Probability>,
    /// Comments for people, without the `#`. They are not read back.
    pub comments: Vec<String>,
}

impl Parameters {
    /// A sampler with default keys: the name with its ids folded.
    pub fn new(config: Config) -> Self {
        Parameters {
            config,
            key: KeyRule::default(),
            random: RandomSource::default(),
            cap: Cap::none(),
            tail: Tail::default(),
            budget: None,
            strata: None,
            recorded_kept: None,
            comments: Vec::new(),
        }
    }
}

impl FromStr for Parameters {
    type Err = ParametersError;

    fn from_str(text: &str) -> Result<Self, ParametersError> {
        file::parse(text)
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.comments.iter().flat_map(|comment| comment.lines()) {
            // TOML comments allow no control character but a tab, and some characters reorder the
            // text around them.
            let line: String = line.chars().map(|c| if acts(c) { ' ' } else { c }).collect();
            writeln!(f, "{}", format!("# {line}").trim_end())?;
        }
        let is_paced = is_paced(&self.config)
            || self.tail.boost.is_some()
            || !self.tail.slow_from.is_empty()
            || self.cap.new_traces.is_some()
            || self.recorded_kept.is_some();
        let version = match (self.tail == Tail::default() && self.budget.is_none(), self.cap.is_none()) {
            _ if self.strata.is_some() => *VERSIONS.end(),
            _ if is_paced => VERSION_PACED,
            (false, _) => VERSION_TAIL,
            (true, false) => VERSION_CAP,
            (true, true) => VERSION_PLAIN,
        };
        writeln!(f, "version = {version}")?;
        if self.random != RandomSource::default() {
            writeln!(f, "random = \"{}\"", self.random.name())?;
        }
        writeln!(f, "\n[key]")?;
        let list = |names: &mut dyn Iterator<Item = &str>| names.map(quoted).collect::<Vec<_>>().join(", ");
        let attributes = list(&mut self.key.attributes());
        writeln!(f, "names = \"{}\"\nattributes = [{attributes}]", self.key.template())?;
        if self.strata.is_some() && self.key.attributes_at_end().len() > 0 {
            writeln!(f, "at_end = [{}]", list(&mut self.key.attributes_at_end()))?;
        }
        writeln!(f)?;
        self.write_sampler(f)?;
        if !self.cap.is_none() {
            write_cap(f, &self.cap)?;
        }
        if self.tail != Tail::default() {
            write_tail(f, &self.tail)?;
        }
        self.budget.as_ref().map_or(Ok(()), |budget| write_budget(f, budget))?;
        self.strata.as_ref().map_or(Ok(()), |strata| write_strata(f, strata))?;
        match self.recorded_kept {
            Some(kept) => writeln!(f, "\n[recorded]\nkept = {}", Number(kept.get())),
            None => Ok(()),
        }
    }
}

fn write_tail(f: &mut fmt::Formatter<'_>, tail: &Tail) -> fmt::Result {
    let Tail { rules, provisional, provisional_by_key, ring_bytes, hold, boost, slow_from } = tail;
    let policies: Vec<_> = rules.iter().map(|rule| quoted(&rule.to_string())).collect();
    writeln!(f, "\n[tail]\npolicies = [{}]\nprovisional = \"{provisional}\"", policies.join(", "))?;
    writeln!(f, "ring_bytes = {ring_bytes}")?;
    if let Some(hold) = hold {
        writeln!(f, "hold = \"{hold}\"")?;
    }
    if let Some(boost) = boost {
        writeln!(f, "boost = \"{boost}\"")?;
    }
    if !provisional_by_key.is_empty() {
        writeln!(f, "\n[tail.provisional_by_key]")?;
    }
    for (key, provisional) in provisional_by_key {
        writeln!(f, "{} = \"{provisional}\"", quoted(key))?;
    }
    let mut quantiles: Vec<Quantile> = Vec::new();
    for SlowFrom { quantile, .. } in slow_from {
        if !quantiles.contains(quantile) {
            quantiles.push(*quantile);
        }
    }
    for quantile in quantiles {
        writeln!(f, "\n[tail.slow_from.{}]", quoted(&quantile.to_string()))?;
        for SlowFrom { key, from, .. } in slow_from.iter().filter(|slow| slow.quantile == quantile) {
            writeln!(f, "{} = \"{from}\"", quoted(key))?;
        }
    }
    Ok(())
}

fn write_budget(f: &mut fmt::Formatter<'_>, budget: &Budget) -> fmt::Result {
    writeln!(f, "\n[budget]\nbytes = {}", Number(budget.bytes_per_second()))?;
    let floors = budget.floors();
    writeln!(f, "interval = \"{}\"\nfloor = {}", budget.interval(), Number(floors.default().get()))?;
    if floors.overrides().len() > 0 {
        writeln!(f, "\n[budget.floor_by_key]")?;
    }
    for (key, floor) in floors.overrides() {
        writeln!(f, "{} = {}", quoted(key), Number(floor.get()))?;
    }
    Ok(())
}

fn write_strata(f: &mut fmt::Formatter<'_>, strata: &Strata) -> fmt::Result {
    let Strata { size, record, floor, half_life, lambda, by_kind, probabilities } = strata;
    writeln!(f, "\n[strata]\nsize = {}", Number(size.get()))?;
    match record {
        Record::All => writeln!(f, "record = \"all\"")?,
        Record::Times(times) => writeln!(f, "record = {}", Number(*times))?,
    }
    if let Some(floor) = floor {
        writeln!(f, "floor = {}", Number(floor.get()))?;
    }
    writeln!(f, "half_life = \"{half_life}calls\"")?;
    if let Some(lambda) = lambda {
        writeln!(f, "lambda = {}", Number(*lambda))?;
    }
    writeln!(f, "kind = {by_kind}")?;
    for (key, strata) in probabilities {
        writeln!(f, "\n[strata.p.{}]", quoted(key))?;
        for (stratum, p) in strata {
            writeln!(f, "\"{stratum}\" = {}", Number(p.get()))?;
        }
    }
    Ok(())
}

fn write_cap(f: &mut fmt::Formatter<'_>, cap: &Cap) -> fmt::Result {
    writeln!(f, "\n[cap]")?;
    for (name, value) in cap.values() {
        writeln!(f, "{name} = {}", Number(value))?;
    }
    writeln!(f, "replicas = {}", cap.replicas)
}

impl Parameters {
    fn write_sampler(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.config {
            Config::Always => writeln!(f, "[always]"),
            Config::Never => writeln!(f, "[never]"),
            Config::Ratio(ratio) => {
                writeln!(f, "[ratio]\nprobability = {}", Number(ratio.probability().get()))
            }
            Config::EveryNth(n) => writeln!(f, "[every]\nn = {n}"),
            Config::Bump(bump) => write_bump(f, bump),
            Config::TokenBucket(bucket) => tables(f, "bucket", bucket, |f, bucket| {
                writeln!(f, "capacity = {}", Number(bucket.capacity()))?;
                writeln!(f, "rate = {}", Number(bucket.rate()))
            }),
        }
    }
}

fn write_bump(f: &mut fmt::Formatter<'_>, bump: &PerKey<Bump>) -> fmt::Result {
    let write = |f: &mut fmt::Formatter<'_>, bump: &Bump| {
        writeln!(f, "lambda = {}", Number(bump.lambda()))?;
        writeln!(f, "min = {}", Number(bump.minimum().get()))?;
        match bump.count() {
            Count::Tumbling { window, shifted } => {
                writeln!(f, "window = \"{window}\"\nshift = {shifted}")?;
            }
            Count::Decaying { half_life } => writeln!(f, "count = \"decaying\"\ntau = \"{half_life}\"")?,
            Count::Paced { half_life } => {
                writeln!(f, "count = \"decaying\"\ntau = \"{half_life}calls\"")?;
            }
            Count::Uncounted => writeln!(f, "count = \"none\"")?,
        }
        writeln!(f, "exponent = {}", Number(bump.exponent()))?;
        bump.share().map_or(Ok(()), |share| writeln!(f, "share = {}", Number(share.get())))
    };
    writeln!(f, "[bump]")?;
    let default = bump.default();
    write(f, default)?;
    let inherits = |own: &Bump| {
        let is_plain = default.share().is_none() || own.share().is_some();
        is_plain && default.clone().with_minimum(own.minimum()).with_share(own.share()) == *own
    };
    let (minima, others): (Vec<_>, Vec<_>) = bump.overrides().partition(|(_, own)| inherits(own));
    let (constants, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|(_, own)| uncounted(own.minimum()) == Ok((*own).clone().with_share(None)));
    let named = minima.iter().chain(&constants);
    let shares: Vec<_> = named.filter_map(|(key, own)| Some((*key, own.share()?))).collect();
    for (table, keys) in [("min_by_key", minima), ("probability_by_key", constants)] {
        if !keys.is_empty() {
            writeln!(f, "\n[bump.{table}]")?;
        }
        for (key, own) in keys {
            writeln!(f, "{} = {}", quoted(key), Number(own.minimum().get()))?;
        }
    }
    if !shares.is_empty() {
        writeln!(f, "\n[bump.share_by_key]")?;
    }
    for (key, share) in shares {
        writeln!(f, "{} = {}", quoted(key), Number(share.get()))?;
    }
    for (key, own) in others {
        writeln!(f, "\n[bump.root.{}]", quoted(key))?;
        write(f, own)?;
    }
    Ok(())
}

/// Whether some parameters follow the pace of all calls, which version 5 added.
fn is_paced(config: &Config) -> bool {
    let is_paced = |bump: &Bump| bump.share().is_some() || matches!(bump.count(), Count::Paced { .. });
    matches!(config, Config::Bump(bump) if bump.all().any(is_paced))
}

/// The parameters of a key listed in `probability_by_key`.
fn uncounted(probability: Probability) -> Result<Bump, ConfigError> {
    Bump::new(0.0, probability, Bump::WINDOW_DEFAULT)?.with_count(Count::Uncounted)
}

fn tables<P>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parameters: &PerKey<P>,
    write: impl Fn(&mut fmt::Formatter<'_>, &P) -> fmt::Result,
) -> fmt::Result {
    writeln!(f, "[{name}]")?;
    write(f, parameters.default())?;
    for (key, parameters) in parameters.overrides() {
        writeln!(f, "\n[{name}.root.{}]", quoted(key))?;
        write(f, parameters)?;
    }
    Ok(())
}

/// A TOML float: with a point or an exponent, and enough digits to be read back exactly.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug prints "1.0" and, beyond 16 digits, "1e16". Both are TOML.
        write!(f, "{:?}", self.0)
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Writing to a string cannot fail.
            c if acts(c) && c <= '\u{ffff}' => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c if acts(c) => drop(write!(out, "\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// True for characters that control a terminal, reorder the text around them, or have no width, so
/// that two texts could look alike. These are the characters that `astracer_model::text` hides; a
/// test compares the two lists, because this crate does not depend on that one.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests;
