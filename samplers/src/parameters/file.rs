//! The file's form, and the way from there to parameters.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;
use toml::Spanned;

use super::{Parameters, ParametersError, VERSION};
use crate::bump::Bump;
use crate::config::{Config, ConfigError, PerKey};
use crate::key::KeyRule;
use crate::nanos::Nanos;
use crate::probability::Probability;
use crate::ratio::Ratio;
use crate::template::{Template, TemplateError};
use crate::token_bucket::TokenBucket;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<u32>,
    #[serde(default)]
    key: Key,
    always: Option<Spanned<Empty>>,
    never: Option<Spanned<Empty>>,
    ratio: Option<Spanned<RatioTable>>,
    every: Option<Spanned<EveryTable>>,
    bump: Option<Spanned<BumpTable>>,
    bucket: Option<Spanned<BucketTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Key {
    names: Option<Spanned<String>>,
    attributes: Vec<String>,
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
    shift: Option<bool>,
    #[serde(default)]
    root: BTreeMap<String, Spanned<BumpRoot>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BumpRoot {
    lambda: Option<Spanned<f64>>,
    min: Option<Spanned<f64>>,
    window: Option<Spanned<String>>,
    shift: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketTable {
    capacity: Spanned<f64>,
    rate: Spanned<f64>,
    #[serde(default)]
    root: BTreeMap<String, Spanned<BucketRoot>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketRoot {
    capacity: Option<Spanned<f64>>,
    rate: Option<Spanned<f64>>,
}

type Result<T> = std::result::Result<T, ParametersError>;

pub(super) fn parse(text: &str) -> Result<Parameters> {
    let file: File =
        toml::from_str(text).map_err(|error| ParametersError::at(text, error.span(), error.message()))?;
    let version = *file.version.get_ref();
    if version != VERSION {
        let message = format!("version {version} is not known; this is for version {VERSION}");
        return Err(ParametersError::at(text, Some(file.version.span()), message));
    }
    let template = match &file.key.names {
        None => Template::default(),
        Some(names) => names.get_ref().parse().map_err(|error: TemplateError| {
            ParametersError::at(text, Some(names.span()), error.to_string())
        })?,
    };
    let key = file.key.attributes.into_iter().fold(KeyRule::new(template), KeyRule::with_attribute);
    let samplers = [
        file.always.map(|_| Ok(Config::Always)),
        file.never.map(|_| Ok(Config::Never)),
        file.ratio.map(|table| ratio(text, table.into_inner())),
        file.every.map(|table| Ok(Config::EveryNth(table.into_inner().n))),
        file.bump.map(|table| bump(text, table)),
        file.bucket.map(|table| bucket(text, table)),
    ];
    let mut samplers = samplers.into_iter().flatten();
    let one = "give one sampler: a table [bump], [bucket], [ratio], [every], [always] or [never]";
    match (samplers.next(), samplers.next()) {
        (Some(config), None) => Ok(Parameters { config: config?, key, comments: Vec::new() }),
        (None, _) => Err(ParametersError::at(text, None, one)),
        (Some(_), Some(_)) => Err(ParametersError::at(text, None, format!("{one}, not several"))),
    }
}

fn ratio(text: &str, table: RatioTable) -> Result<Config> {
    let probability = probability(text, &table.probability)?;
    let config = Ratio::new(probability).map(Config::from);
    config.map_err(|error| ParametersError::from_config(text, table.probability.span(), &error))
}

fn bump(text: &str, table: Spanned<BumpTable>) -> Result<Config> {
    let all = table.into_inner();
    let default = BumpRoot { lambda: Some(all.lambda), min: all.min, window: all.window, shift: all.shift };
    // What the first table may leave out has the sampler's defaults; what roots leave out has the first table's.
    let fallback = Bump::new(0.0, Probability::ZERO, Bump::WINDOW_DEFAULT)
        .map_err(|error| ParametersError::at(text, None, error.to_string()))?;
    let mut config = PerKey::new(bump_over(text, default, &fallback)?);
    for (key, root) in all.root {
        let parameters = bump_over(text, root.into_inner(), config.default())?;
        config = config.with_override(key, parameters);
    }
    Ok(Config::Bump(config))
}

fn bump_over(text: &str, table: BumpRoot, inherited: &Bump) -> Result<Bump> {
    let minimum = match &table.min {
        Some(min) => probability(text, min)?,
        None => inherited.minimum(),
    };
    let window = match &table.window {
        Some(window) => Nanos::parse(window.get_ref()).ok_or_else(|| {
            let message = "a window is a number with a unit: \"1s\", \"250ms\", \"5m\"";
            ParametersError::at(text, Some(window.span()), message)
        })?,
        None => inherited.window(),
    };
    let lambda = table.lambda.as_ref().map_or(inherited.lambda(), |lambda| *lambda.get_ref());
    // One after the other, so that an error has the line of its cause.
    let attempt = |lambda, window| Bump::new(lambda, minimum, window);
    if let (Some(place), Err(error)) = (&table.lambda, attempt(lambda, Bump::WINDOW_DEFAULT)) {
        return Err(ParametersError::from_config(text, place.span(), &error));
    }
    let span = table.window.as_ref().map(Spanned::span).unwrap_or_default();
    let bump = attempt(lambda, window).map_err(|error| ParametersError::from_config(text, span, &error))?;
    Ok(bump.shifted(table.shift.unwrap_or(inherited.is_shifted())))
}

fn bucket(text: &str, table: Spanned<BucketTable>) -> Result<Config> {
    let all = table.into_inner();
    let mut config = PerKey::new(bucket_at(text, (*all.capacity.get_ref(), *all.rate.get_ref()), || {
        [Some(all.capacity.span()), Some(all.rate.span())]
    })?);
    for (key, root) in all.root {
        let root = root.into_inner();
        let capacity =
            root.capacity.as_ref().map_or(config.default().capacity(), |capacity| *capacity.get_ref());
        let rate = root.rate.as_ref().map_or(config.default().rate(), |rate| *rate.get_ref());
        let parameters = bucket_at(text, (capacity, rate), || {
            [root.capacity.as_ref().map(Spanned::span), root.rate.as_ref().map(Spanned::span)]
        })?;
        config = config.with_override(key, parameters);
    }
    Ok(Config::TokenBucket(config))
}

/// A bucket; an error has the line of the capacity or the rate, whichever it is about.
fn bucket_at(
    text: &str,
    (capacity, rate): (f64, f64),
    spans: impl Fn() -> [Option<std::ops::Range<usize>>; 2],
) -> Result<TokenBucket> {
    TokenBucket::new(capacity, rate).map_err(|error: ConfigError| {
        let [of_capacity, of_rate] = spans();
        let about_rate = error.part().starts_with("rate");
        let span = if about_rate { of_rate.or(of_capacity) } else { of_capacity.or(of_rate) };
        ParametersError::at(text, span, error.to_string())
    })
}

fn probability(text: &str, value: &Spanned<f64>) -> Result<Probability> {
    Probability::new(*value.get_ref())
        .ok_or_else(|| ParametersError::at(text, Some(value.span()), "a probability is a number from 0 to 1"))
}
