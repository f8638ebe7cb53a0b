//! The structure of the file, and its conversion to parameters.

mod newer;
mod strata;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use self::strata::{StrataTable, can_record, strata};
use super::{BYTES_MAX, Parameters, ParametersError, VERSIONS, uncounted};
use crate::budget::Budget;
use crate::bump::Bump;
use crate::cap::Cap;
use crate::config::{self, Config, HalfLife, choose_count};
use crate::config_error::ConfigError;
use crate::key::KeyRule;
use crate::nanos::Nanos;
use crate::per_key::{KEYS_MAX, PerKey};
use crate::probability::Probability;
use crate::ratio::Ratio;
use crate::strata::Strata;
use crate::stratified::RandomSource;
use crate::tail::{Quantile, SlowFrom, Tail};
use crate::template::{Template, TemplateError};
use crate::token_bucket::TokenBucket;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<u32>,
    random: Option<Spanned<String>>,
    #[serde(default)]
    key: Key,
    always: Option<Spanned<Empty>>,
    never: Option<Spanned<Empty>>,
    ratio: Option<Spanned<RatioTable>>,
    every: Option<Spanned<EveryTable>>,
    bump: Option<Spanned<BumpTable>>,
    bucket: Option<Spanned<BucketTable>>,
    cap: Option<Spanned<CapTable>>,
    tail: Option<Spanned<TailTable>>,
    budget: Option<Spanned<BudgetTable>>,
    recorded: Option<Spanned<RecordedTable>>,
    strata: Option<Spanned<StrataTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedTable {
    kept: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TailTable {
    policies: Vec<Spanned<String>>,
    provisional: Option<Spanned<String>>,
    ring_bytes: Option<usize>,
    hold: Option<Spanned<String>>,
    boost: Option<Spanned<String>>,
    #[serde(default)]
    provisional_by_key: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    slow_from: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetTable {
    bytes: Spanned<f64>,
    interval: Option<Spanned<String>>,
    floor: Option<Spanned<f64>>,
    #[serde(default)]
    floor_by_key: BTreeMap<Spanned<String>, Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapTable {
    traces: Option<f64>,
    burst: Option<f64>,
    key_traces: Option<f64>,
    key_burst: Option<f64>,
    new_traces: Option<Spanned<f64>>,
    new_burst: Option<Spanned<f64>>,
    bytes: Option<f64>,
    bytes_burst: Option<f64>,
    key_bytes: Option<f64>,
    key_bytes_burst: Option<f64>,
    replicas: Option<NonZeroU32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Key {
    names: Option<Spanned<String>>,
    attributes: Option<Spanned<Vec<String>>>,
    at_end: Option<Spanned<Vec<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioTable {
    probability: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EveryTable {
    n: NonZeroU64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BumpTable {
    lambda: Spanned<f64>,
    min: Option<Spanned<f64>>,
    window: Option<Spanned<String>>,
    shift: Option<Spanned<bool>>,
    count: Option<Spanned<CountName>>,
    tau: Option<Spanned<String>>,
    exponent: Option<Spanned<f64>>,
    #[serde(default)]
    min_by_key: BTreeMap<Spanned<String>, Spanned<f64>>,
    #[serde(default)]
    probability_by_key: BTreeMap<Spanned<String>, Spanned<f64>>,
    #[serde(default)]
    share_by_key: BTreeMap<Spanned<String>, Spanned<f64>>,
    share: Option<Spanned<f64>>,
    #[serde(default)]
    root: BTreeMap<Spanned<String>, BumpRoot>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum CountName {
    Tumbling,
    Decaying,
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BumpRoot {
    lambda: Option<Spanned<f64>>,
    min: Option<Spanned<f64>>,
    window: Option<Spanned<String>>,
    shift: Option<Spanned<bool>>,
    count: Option<Spanned<CountName>>,
    tau: Option<Spanned<String>>,
    exponent: Option<Spanned<f64>>,
    share: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketTable {
    capacity: Spanned<f64>,
    rate: Spanned<f64>,
    #[serde(default)]
    root: BTreeMap<Spanned<String>, BucketRoot>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketRoot {
    capacity: Option<Spanned<f64>>,
    rate: Option<Spanned<f64>>,
}

type Result<T> = std::result::Result<T, ParametersError>;

pub(super) fn parse(text: &str) -> Result<Parameters> {
    if text.len() > BYTES_MAX {
        let message = format!("the file has {} bytes; the limit is {BYTES_MAX} bytes", text.len());
        return Err(ParametersError::at(text, None, message));
    }
    let file: File =
        toml::from_str(text).map_err(|error| ParametersError::at(text, error.span(), error.message()))?;
    let version = *file.version.get_ref();
    if !VERSIONS.contains(&version) {
        let [first, last] = [VERSIONS.start(), VERSIONS.end()];
        let message = format!("unknown version {version}: use a version from {first} to {last}");
        return Err(ParametersError::at(text, Some(file.version.span()), message));
    }
    newer::refuse(text, &file, version)?;
    let random = match &file.random {
        None => RandomSource::default(),
        Some(name) => RandomSource::from_name(name.get_ref()).ok_or_else(|| {
            ParametersError::at(text, Some(name.span()), "random must be \"independent\" or \"stratified\"")
        })?,
    };
    let template = match &file.key.names {
        None => Template::default(),
        Some(names) => names.get_ref().parse().map_err(|error: TemplateError| {
            ParametersError::at(text, Some(names.span()), error.to_string())
        })?,
    };
    let mut key = KeyRule::new(template);
    if let Some(attributes) = file.key.attributes {
        key = with_attributes(text, key, attributes, KeyRule::with_attribute)?;
    }
    if let Some(at_end) = file.key.at_end {
        if file.strata.is_none() {
            let message = "at_end names attributes of strata; add [strata], or list them as attributes";
            return Err(ParametersError::at(text, Some(at_end.span()), message));
        }
        key = with_attributes(text, key, at_end, KeyRule::with_attribute_at_end)?;
    }
    let cap = file.cap.map(|table| cap(text, table)).transpose()?.unwrap_or_default();
    let tail = file.tail.map(|table| tail(text, table.into_inner())).transpose()?.unwrap_or_default();
    let is_late = file.strata.is_some();
    let tail = if is_late && !tail.is_none() { tail.beside_strata() } else { tail };
    let budget = file.budget.map(|table| budget(text, table.into_inner(), is_late)).transpose()?;
    let strata = file.strata.map(|table| strata(text, table.into_inner())).transpose()?;
    let recorded_kept = file.recorded.map(|table| probability(text, &table.get_ref().kept)).transpose()?;
    let samplers = [
        file.always.map(|_| Ok(Config::Always)),
        file.never.map(|_| Ok(Config::Never)),
        file.ratio.map(|table| ratio(text, table.into_inner())),
        file.every.map(|table| Ok(Config::EveryNth(table.into_inner().n))),
        file.bump.map(|table| bump(text, table.into_inner())),
        file.bucket.map(|table| bucket(text, table)),
    ];
    let mut samplers = samplers.into_iter().flatten();
    let one = "give one sampler: a table [bump], [bucket], [ratio], [every], [always] or [never]";
    match (samplers.next(), samplers.next()) {
        (Some(config), None) => {
            let config = config?;
            if let Some((_, span)) = strata.as_ref().filter(|(strata, _)| !can_record(&config, strata)) {
                let message = "strata record a multiple of what the sampler would keep by chance; give a \
                               [bump] or [ratio], or record = \"all\"";
                return Err(ParametersError::at(text, Some(span.clone()), message));
            }
            let strata = strata.map(|(strata, _)| strata);
            let parameters = Parameters { key, random, cap, tail, strata, ..Parameters::new(config) };
            Ok(Parameters { budget, recorded_kept, ..parameters })
        }
        (None, _) => Err(ParametersError::at(text, None, one)),
        (Some(_), Some(_)) => Err(ParametersError::at(text, None, format!("{one}, not several"))),
    }
}

fn with_attributes(
    text: &str,
    mut key: KeyRule,
    names: Spanned<Vec<String>>,
    with: fn(KeyRule, String) -> KeyRule,
) -> Result<KeyRule> {
    let span = names.span();
    for name in names.into_inner() {
        if name.is_empty() || key.names(&name) {
            let message = "an attribute of the key needs a name, and each may be given once";
            return Err(ParametersError::at(text, Some(span), message));
        }
        key = with(key, name);
    }
    Ok(key)
}

fn cap(text: &str, table: Spanned<CapTable>) -> Result<Cap> {
    let span = table.span();
    let table = table.into_inner();
    let values = [
        (table.traces, table.burst),
        (table.key_traces, table.key_burst),
        (table.new_traces.map(Spanned::into_inner), table.new_burst.map(Spanned::into_inner)),
        (table.bytes, table.bytes_burst),
        (table.key_bytes, table.key_bytes_burst),
    ];
    Cap::from_values(values, table.replicas.unwrap_or(NonZeroU32::MIN))
        .map_err(|error| ParametersError::from_config(text, span, &error))
}

fn tail(text: &str, table: TailTable) -> Result<Tail> {
    check_number(text, table.provisional_by_key.keys())?;
    let mut tail = Tail::default();
    for policy in &table.policies {
        // A text may list several policies, as on a command line.
        tail.rules.extend(from_text::<Tail>(text, policy)?.rules);
    }
    if tail.rules.len() > Tail::RULES_MAX {
        let span = table.policies.last().map(Spanned::span);
        let message = format!("at most {} policies are allowed", Tail::RULES_MAX);
        return Err(ParametersError::at(text, span, message));
    }
    if let Some(provisional) = &table.provisional {
        tail = tail.with_provisional(from_text(text, provisional)?);
    }
    if let Some(ring_bytes) = table.ring_bytes {
        tail = tail.with_ring_bytes(ring_bytes);
    }
    if let Some(hold) = &table.hold {
        let read = Nanos::parse(hold.get_ref());
        let message = "hold must be a time such as \"2s\"";
        let read = read.ok_or_else(|| ParametersError::at(text, Some(hold.span()), message))?;
        tail = tail.with_hold(read);
    }
    if let Some(boost) = &table.boost {
        tail = tail.with_boost(from_text(text, boost)?);
    }
    for (key, provisional) in table.provisional_by_key {
        tail.provisional_by_key.push((key.into_inner(), from_text(text, &provisional)?));
    }
    check_number(text, table.slow_from.values().flat_map(BTreeMap::keys))?;
    for (quantile, keys) in table.slow_from {
        let quantile: Quantile = from_text(text, &quantile)?;
        for (key, from) in keys {
            let message = "write a time, such as \"120ms\"";
            let read = Nanos::parse(from.get_ref());
            let read = read.ok_or_else(|| ParametersError::at(text, Some(from.span()), message))?;
            tail.slow_from.push(SlowFrom { key: key.into_inner(), quantile, from: read });
        }
    }
    Ok(tail)
}

fn from_text<T: FromStr<Err = ConfigError>>(text: &str, value: &Spanned<String>) -> Result<T> {
    let read = value.get_ref().parse();
    read.map_err(|error| ParametersError::from_config(text, value.span(), &error))
}

fn budget(text: &str, table: BudgetTable, is_late: bool) -> Result<Budget> {
    check_number(text, table.floor_by_key.keys())?;
    let mut budget = Budget::new(*table.bytes.get_ref())
        .map_err(|error| ParametersError::from_config(text, table.bytes.span(), &error))?;
    if is_late {
        budget = budget.with_interval(Strata::BUDGET_INTERVAL_MIN);
    }
    if let Some(given) = &table.interval {
        let message = "the interval must be at least a second, with a unit, such as \"60s\" or \"5m\"";
        let interval = Nanos::parse(given.get_ref()).filter(|&interval| interval >= Budget::INTERVAL_MIN);
        let interval = interval.ok_or_else(|| ParametersError::at(text, Some(given.span()), message))?;
        if is_late && interval < Strata::BUDGET_INTERVAL_MIN {
            let message = "with [strata] the interval must be at least \"1h\": bursts are what strata keep, and \
                           a faster budget would undo that; bound bursts with [cap]";
            return Err(ParametersError::at(text, Some(given.span()), message));
        }
        budget = budget.with_interval(interval);
    }
    if let Some(floor) = &table.floor {
        budget = budget.with_floor(probability(text, floor)?);
    }
    for (key, floor) in table.floor_by_key {
        let floor = probability(text, &floor)?;
        budget = budget.with_key_floor(key.into_inner(), floor);
    }
    Ok(budget)
}

fn ratio(text: &str, table: RatioTable) -> Result<Config> {
    let probability = probability(text, &table.probability)?;
    let config = Ratio::new(probability).map(Config::from);
    config.map_err(|error| ParametersError::from_config(text, table.probability.span(), &error))
}

fn bump(text: &str, all: BumpTable) -> Result<Config> {
    check_number(text, all.root.keys().chain(all.min_by_key.keys()).chain(all.probability_by_key.keys()))?;
    let default = BumpRoot {
        lambda: Some(all.lambda),
        min: all.min,
        window: all.window,
        shift: all.shift,
        count: all.count,
        tau: all.tau,
        exponent: all.exponent,
        share: all.share,
    };
    // Parameters missing from `[bump]` have the sampler's defaults; those missing from a key's
    // table are inherited from `[bump]`.
    let fallback = Bump::new(0.0, Probability::ZERO, Bump::WINDOW_DEFAULT)
        .map_err(|error| ParametersError::at(text, None, error.to_string()))?;
    let mut config = PerKey::new(bump_over(text, default, &fallback)?);
    for (key, root) in all.root {
        let parameters = bump_over(text, root, config.default())?;
        config = config.with_override(key.into_inner(), parameters);
    }
    for (key, min) in all.min_by_key {
        let minimum = probability(text, &min)?;
        if config.has(key.get_ref()) {
            let message = "this key has its own table in [bump.root]; give its min there";
            return Err(ParametersError::at(text, Some(key.span()), message));
        }
        let parameters = config.default().clone().with_minimum(minimum);
        config = config.with_override(key.into_inner(), parameters);
    }
    for (key, constant) in all.probability_by_key {
        let constant = probability(text, &constant)?;
        if config.has(key.get_ref()) {
            let message = "this key already has its own parameters; give it once";
            return Err(ParametersError::at(text, Some(key.span()), message));
        }
        let parameters =
            uncounted(constant).map_err(|error| ParametersError::at(text, None, error.to_string()))?;
        config = config.with_override(key.into_inner(), parameters);
    }
    for (key, share) in all.share_by_key {
        let share = probability(text, &share)?;
        let constant = config.has(key.get_ref()).then(|| config.of(key.get_ref()).clone());
        match constant {
            Some(bump) if bump.count().takes_share() => {
                config = config.with_override(key.into_inner(), bump.with_share(Some(share)));
            }
            _ => {
                let message = "a share bounds a constant, or a count with tau in calls; give this key one in \
                               [bump.probability_by_key] or [bump.min_by_key]";
                return Err(ParametersError::at(text, Some(key.span()), message));
            }
        }
    }
    Ok(Config::Bump(config))
}

/// Refuses more keys than a sampler counts, with the line of the first one beyond.
fn check_number<'a>(text: &str, keys: impl Iterator<Item = &'a Spanned<String>>) -> Result<()> {
    let mut starts: Vec<_> = keys.map(Spanned::span).collect();
    if starts.len() <= KEYS_MAX {
        return Ok(());
    }
    starts.sort_unstable_by_key(|span| span.start);
    let message = format!(
        "{} keys have their own parameters, but at most {KEYS_MAX} can; leave out the rarest ones",
        starts.len()
    );
    Err(ParametersError::at(text, starts.get(KEYS_MAX).cloned(), message))
}

fn bump_over(text: &str, table: BumpRoot, inherited: &Bump) -> Result<Bump> {
    let minimum = match &table.min {
        Some(min) => probability(text, min)?,
        None => inherited.minimum(),
    };
    let lambda = table.lambda.as_ref().map_or(inherited.lambda(), |lambda| *lambda.get_ref());
    let exponent = table.exponent.as_ref().map_or(inherited.exponent(), |exponent| *exponent.get_ref());
    // One at a time, so that an error has the line of its cause.
    let at = |span: Option<Range<usize>>| {
        move |error: ConfigError| ParametersError::at(text, span, error.to_string())
    };
    let bump = Bump::new(lambda, minimum, Bump::WINDOW_DEFAULT)
        .map_err(at(table.lambda.as_ref().map(Spanned::span)))?;
    let bump = bump.with_exponent(exponent).map_err(at(table.exponent.as_ref().map(Spanned::span)))?;
    let (window, tau) = (period(text, &table.window)?, half_life(text, &table.tau)?);
    let spans = [
        table.window.map(|window| window.span()),
        table.tau.map(|tau| tau.span()),
        table.shift.as_ref().map(Spanned::span),
        table.count.as_ref().map(Spanned::span),
    ];
    let cause = spans.into_iter().flatten().next();
    let count = table.count.map(|count| match count.into_inner() {
        CountName::Tumbling => config::CountName::Tumbling,
        CountName::Decaying => config::CountName::Decaying,
        CountName::None => config::CountName::None,
    });
    let shift = table.shift.map(Spanned::into_inner);
    let share = match &table.share {
        Some(share) => Some(probability(text, share)?),
        None => None,
    };
    let bump = choose_count(count, window, shift, tau, Some(inherited.count()))
        .and_then(|count| bump.with_count(count))
        .map_err(at(cause))?;
    if let Some(share) = table.share.filter(|_| !bump.count().takes_share()) {
        let message = "a share bounds a constant, or a count with tau in calls; add count = \"none\"";
        return Err(ParametersError::at(text, Some(share.span()), message));
    }
    Ok(bump.with_share(share))
}

fn period(text: &str, value: &Option<Spanned<String>>) -> Result<Option<Nanos>> {
    let Some(value) = value else { return Ok(None) };
    let message = "a window must be a number with a unit, such as \"1s\", \"250ms\" or \"5m\"";
    let nanos = Nanos::parse(value.get_ref());
    nanos.map(Some).ok_or_else(|| ParametersError::at(text, Some(value.span()), message))
}

fn half_life(text: &str, value: &Option<Spanned<String>>) -> Result<Option<HalfLife>> {
    let Some(value) = value else { return Ok(None) };
    let message = "tau must be a number with a unit, such as \"1s\", \"250ms\" or \"2000calls\"";
    let half_life = HalfLife::parse(value.get_ref());
    half_life.map(Some).ok_or_else(|| ParametersError::at(text, Some(value.span()), message))
}

fn bucket(text: &str, table: Spanned<BucketTable>) -> Result<Config> {
    let all = table.into_inner();
    check_number(text, all.root.keys())?;
    let mut config = PerKey::new(bucket_at(text, (*all.capacity.get_ref(), *all.rate.get_ref()), || {
        [Some(all.capacity.span()), Some(all.rate.span())]
    })?);
    for (key, root) in all.root {
        let capacity =
            root.capacity.as_ref().map_or(config.default().capacity(), |capacity| *capacity.get_ref());
        let rate = root.rate.as_ref().map_or(config.default().rate(), |rate| *rate.get_ref());
        let parameters = bucket_at(text, (capacity, rate), || {
            [root.capacity.as_ref().map(Spanned::span), root.rate.as_ref().map(Spanned::span)]
        })?;
        config = config.with_override(key.into_inner(), parameters);
    }
    Ok(Config::TokenBucket(config))
}

/// Builds a bucket; an error has the line of the capacity or of the rate, whichever is at fault.
fn bucket_at(
    text: &str,
    (capacity, rate): (f64, f64),
    spans: impl Fn() -> [Option<Range<usize>>; 2],
) -> Result<TokenBucket> {
    TokenBucket::new(capacity, rate).map_err(|error: ConfigError| {
        let [of_capacity, of_rate] = spans();
        let about_rate = error.part().starts_with("rate");
        let span = if about_rate { of_rate.or(of_capacity) } else { of_capacity.or(of_rate) };
        ParametersError::at(text, span, error.to_string())
    })
}

fn probability(text: &str, value: &Spanned<f64>) -> Result<Probability> {
    Probability::new(*value.get_ref()).ok_or_else(|| {
        ParametersError::at(text, Some(value.span()), "a probability must be a number from 0 to 1")
    })
}
