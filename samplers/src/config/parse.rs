//! Parses the text form of a config.

use std::num::NonZeroU64;
use std::str::FromStr;

use super::Config;
use crate::bump::{Bump, Count};
use crate::config_error::ConfigError;
use crate::nanos::Nanos;
use crate::per_key::{KEYS_MAX, PerKey};
use crate::probability::Probability;
use crate::ratio::Ratio;
use crate::token_bucket::TokenBucket;

const SAMPLERS: &str = "use one of `bump:lambda=10,min=0.01,window=1s`, `bucket:capacity=50,rate=2`, `ratio:0.1`, \
                        `every:10`, `always`, `never`";

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match name {
            "always" => no_parameters(name, rest).map(|()| Config::Always),
            "never" => no_parameters(name, rest).map(|()| Config::Never),
            "ratio" => {
                let share =
                    rest.ok_or_else(|| ConfigError::missing("ratio", "give a share, such as ratio:0.1"))?;
                Ratio::new(probability(share, share, "ratio:0.1")?).map(Config::Ratio)
            }
            "every" => {
                let n =
                    rest.ok_or_else(|| ConfigError::missing("every", "give a number, such as every:10"))?;
                n.parse::<NonZeroU64>()
                    .map(Config::EveryNth)
                    .map_err(|_| ConfigError::syntax(n, "use a whole number from 1, such as every:10"))
            }
            "bump" => per_key(rest.unwrap_or(""), bump).map(Config::Bump),
            "bucket" => per_key(rest.unwrap_or(""), token_bucket).map(Config::TokenBucket),
            _ => Err(ConfigError::unknown_sampler(name, SAMPLERS)),
        }
    }
}

fn no_parameters(name: &str, rest: Option<&str>) -> Result<(), ConfigError> {
    match rest {
        None => Ok(()),
        Some(rest) => {
            Err(ConfigError::unknown_parameter(rest, format!("`{name}` has no parameters; write {name}")))
        }
    }
}

/// Parses `PARAMETERS;"KEY":PARAMETERS;...`. `parse` reads one list of parameters, and takes those
/// that are missing from its second argument if there is one.
fn per_key<P>(
    text: &str,
    parse: impl Fn(Parameters<'_>, Option<&P>) -> Result<P, ConfigError>,
) -> Result<PerKey<P>, ConfigError> {
    let (first, mut rest) = match text.split_once(';') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    };
    let mut result = PerKey::new(parse(Parameters::read(first)?, None)?);
    while let Some(text) = rest {
        let (key, after) = quoted(text)?;
        // Parameters contain no quote and no semicolon.
        let (parameters, others) = match after.split_once(';') {
            Some((parameters, others)) => (parameters, Some(others)),
            None => (after, None),
        };
        if result.has(&key) {
            return Err(ConfigError::repeated(key, "give each key once"));
        }
        if result.overrides().len() >= KEYS_MAX {
            return Err(ConfigError::out_of_range(
                key,
                format!("at most {KEYS_MAX} keys can have their own parameters"),
            ));
        }
        let parameters = parse(Parameters::read(parameters)?, Some(result.default()))?;
        result.insert(key, parameters);
        rest = others;
    }
    Ok(result)
}

/// Splits `"KEY":rest`.
fn quoted(text: &str) -> Result<(String, &str), ConfigError> {
    let wrong = || ConfigError::syntax(text, "after `;` write a quoted key, such as ;\"GET /\":rate=2");
    let mut key = String::new();
    let mut chars = text.strip_prefix('"').ok_or_else(wrong)?.chars();
    loop {
        match chars.next().ok_or_else(wrong)? {
            '"' => return Ok((key, chars.as_str().strip_prefix(':').ok_or_else(wrong)?)),
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => key.push(c),
                _ => return Err(wrong()),
            },
            c => key.push(c),
        }
    }
}

/// The pairs of `name=value,name=value`. Known ones are taken out one by one, so that those left at
/// the end are unknown.
struct Parameters<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Parameters<'a> {
    fn read(text: &'a str) -> Result<Self, ConfigError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                ConfigError::syntax(part, "write parameters as name=value, separated by commas")
            })?;
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(ConfigError::repeated(name, "give each parameter once"));
            }
            pairs.push((name, value));
        }
        Ok(Parameters { pairs })
    }

    /// The parameter's value, and `name=value` for errors.
    fn take(&mut self, name: &str) -> Option<(&'a str, String)> {
        let position = self.pairs.iter().position(|(known, _)| *known == name)?;
        let (name, value) = self.pairs.swap_remove(position);
        Some((value, format!("{name}={value}")))
    }

    fn number(&mut self, name: &str, example: &str) -> Result<Option<f64>, ConfigError> {
        self.take(name).map(|(value, part)| number(value, part, example)).transpose()
    }

    fn finish(self, known: &str) -> Result<(), ConfigError> {
        match self.pairs.first() {
            None => Ok(()),
            Some((name, _)) => Err(ConfigError::unknown_parameter(*name, format!("use {known}"))),
        }
    }
}

fn number(value: &str, part: impl Into<String>, example: &str) -> Result<f64, ConfigError> {
    value.parse().map_err(|_| ConfigError::syntax(part, format!("write a number, for example {example}")))
}

fn probability(value: &str, part: impl Into<String>, example: &str) -> Result<Probability, ConfigError> {
    let part = part.into();
    Probability::new(number(value, part.clone(), example)?).ok_or_else(|| {
        ConfigError::out_of_range(part, format!("a probability must be from 0 to 1, such as {example}"))
    })
}

fn bump(mut parameters: Parameters<'_>, inherited: Option<&Bump>) -> Result<Bump, ConfigError> {
    let lambda =
        parameters.number("lambda", "lambda=10")?.or(inherited.map(Bump::lambda)).ok_or_else(|| {
            ConfigError::missing("lambda", "give a lambda, such as bump:lambda=10,min=0.01,window=1s")
        })?;
    let minimum = match parameters.take("min") {
        Some((value, part)) => probability(value, part, "min=0.01")?,
        None => inherited.map_or(Probability::ZERO, Bump::minimum),
    };
    let count = count(&mut parameters, inherited.map(Bump::count))?;
    // A share is one key's own, so it is never inherited.
    let share = match parameters.take("share") {
        Some((value, part)) if count.takes_share() => Some(probability(value, part, "share=0.01")?),
        Some((_, part)) => {
            let advice = "a share bounds a constant, or a count with tau in calls: add count=none";
            return Err(ConfigError::unknown_parameter(part, advice));
        }
        None => None,
    };
    let exponent = parameters.number("exponent", "exponent=2")?;
    let exponent = exponent.or(inherited.map(Bump::exponent)).unwrap_or(Bump::EXPONENT_DEFAULT);
    parameters.finish("lambda, min, window, shift, count, tau, exponent, share")?;
    let bump =
        Bump::new(lambda, minimum, Bump::WINDOW_DEFAULT)?.with_count(count)?.with_exponent(exponent)?;
    Ok(bump.with_share(share))
}

/// `window` and `shift` belong to a tumbling count, `tau` to a decaying one; each implies its
/// count.
fn count(parameters: &mut Parameters<'_>, inherited: Option<Count>) -> Result<Count, ConfigError> {
    let mut period = |name: &str| {
        let Some((value, part)) = parameters.take(name) else { return Ok(None) };
        let wrong = || {
            let remedy = format!("write a number with a unit (h, m, s, ms, us or ns), such as {name}=1s");
            ConfigError::syntax(part, remedy)
        };
        Nanos::parse(value).ok_or_else(wrong).map(Some)
    };
    let window = period("window")?;
    let half_life = match parameters.take("tau") {
        Some((value, part)) => Some(HalfLife::parse(value).ok_or_else(|| {
            let remedy = "write a number with a unit (h, m, s, ms, us, ns or calls), such as tau=1s";
            ConfigError::syntax(part, remedy)
        })?),
        None => None,
    };
    let shifted = match parameters.take("shift") {
        Some(("on", _)) => Some(true),
        Some(("off", _)) => Some(false),
        Some((_, part)) => return Err(ConfigError::syntax(part, "write shift=on or shift=off")),
        None => None,
    };
    let named = match parameters.take("count") {
        Some((name, part)) => Some(CountName::from_name(name).ok_or_else(|| {
            ConfigError::syntax(part, "write count=tumbling, count=decaying or count=none")
        })?),
        None => None,
    };
    choose_count(named, window, shifted, half_life, inherited)
}

/// The names of the ways to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountName {
    Tumbling,
    Decaying,
    None,
}

impl CountName {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "tumbling" => Some(CountName::Tumbling),
            "decaying" => Some(CountName::Decaying),
            "none" => Some(CountName::None),
            _ => None,
        }
    }
}

/// `tau` as it is given: a time, or a number of calls of all keys, such as `2000calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfLife {
    Time(Nanos),
    Calls(u64),
}

impl HalfLife {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix("calls") {
            Some(calls) => calls.trim_end().parse().ok().map(HalfLife::Calls),
            None => Nanos::parse(text).map(HalfLife::Time),
        }
    }
}

/// The count that the given name and parameters select; parameters that are not given are
/// inherited.
pub(crate) fn choose_count(
    named: Option<CountName>,
    window: Option<Nanos>,
    shifted: Option<bool>,
    half_life: Option<HalfLife>,
    inherited: Option<Count>,
) -> Result<Count, ConfigError> {
    let tumbles = window.is_some() || shifted.is_some();
    let is_uncounted = match named {
        Some(name) => name == CountName::None,
        None => !tumbles && half_life.is_none() && inherited == Some(Count::Uncounted),
    };
    if is_uncounted {
        let parts =
            [("window", window.is_some()), ("shift", shifted.is_some()), ("tau", half_life.is_some())];
        return match parts.into_iter().find(|(_, given)| *given) {
            Some((part, _)) => {
                Err(ConfigError::unknown_parameter(part, "with count=none nothing is counted; leave it out"))
            }
            None => Ok(Count::Uncounted),
        };
    }
    let is_decaying = match named {
        Some(name) => name == CountName::Decaying,
        None => {
            half_life.is_some()
                || (!tumbles && matches!(inherited, Some(Count::Decaying { .. } | Count::Paced { .. })))
        }
    };
    if is_decaying && tumbles {
        let part = if window.is_some() { "window" } else { "shift" };
        return Err(ConfigError::unknown_parameter(
            part,
            "a decaying count has no window; use tau, or count=tumbling",
        ));
    }
    if !is_decaying && half_life.is_some() {
        return Err(ConfigError::unknown_parameter(
            "tau",
            "a tumbling count has no half-life; use window, or count=decaying",
        ));
    }
    Ok(match (is_decaying, inherited) {
        (false, Some(Count::Tumbling { window: w, shifted: s })) => {
            Count::Tumbling { window: window.unwrap_or(w), shifted: shifted.unwrap_or(s) }
        }
        (false, _) => Count::Tumbling {
            window: window.unwrap_or(Bump::WINDOW_DEFAULT),
            shifted: shifted.unwrap_or(false),
        },
        (true, inherited) => match (half_life, inherited) {
            (Some(HalfLife::Time(half_life)), _) => Count::Decaying { half_life },
            (Some(HalfLife::Calls(half_life)), _) => Count::Paced { half_life },
            (None, Some(count @ (Count::Decaying { .. } | Count::Paced { .. }))) => count,
            (None, _) => Count::Decaying { half_life: Bump::WINDOW_DEFAULT },
        },
    })
}

fn token_bucket(
    mut parameters: Parameters<'_>,
    inherited: Option<&TokenBucket>,
) -> Result<TokenBucket, ConfigError> {
    let example = "give both, such as bucket:capacity=50,rate=2";
    let capacity = parameters
        .number("capacity", "capacity=50")?
        .or(inherited.map(TokenBucket::capacity))
        .ok_or_else(|| ConfigError::missing("capacity", example))?;
    let rate = parameters
        .number("rate", "rate=2")?
        .or(inherited.map(TokenBucket::rate))
        .ok_or_else(|| ConfigError::missing("rate", example))?;
    parameters.finish("capacity, rate")?;
    TokenBucket::new(capacity, rate)
}
