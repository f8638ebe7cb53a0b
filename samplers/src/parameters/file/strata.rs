//! The tables of strata.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::super::ParametersError;
use super::{Result, check_number, from_text, probability};
use crate::config::{Config, HalfLife};
use crate::config_error::ConfigError;
use crate::probability::Probability;
use crate::strata::{Record, Strata, Stratum};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StrataTable {
    size: Spanned<f64>,
    record: Option<Spanned<RecordValue>>,
    floor: Option<Spanned<f64>>,
    half_life: Option<Spanned<String>>,
    lambda: Option<Spanned<f64>>,
    #[serde(default)]
    kind: bool,
    #[serde(default)]
    p: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<f64>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RecordValue {
    Times(f64),
    Named(String),
}

/// Strata with the place of their share in the text.
pub(super) fn strata(text: &str, table: StrataTable) -> Result<(Strata, Range<usize>)> {
    check_number(text, table.p.keys())?;
    let at = |span: Range<usize>| move |error: ConfigError| ParametersError::from_config(text, span, &error);
    let place = table.record.as_ref().map_or_else(|| table.size.span(), Spanned::span);
    let mut strata = Strata::new(probability(text, &table.size)?).map_err(at(table.size.span()))?;
    if let Some(record) = table.record {
        let value = match record.get_ref() {
            RecordValue::Times(times) => Record::Times(*times),
            RecordValue::Named(name) if name == "all" => Record::All,
            RecordValue::Named(_) => {
                let message = "give the number of traces to record for each that the sampler would keep, such as 5.0, \
                               or \"all\"";
                return Err(ParametersError::at(text, Some(record.span()), message));
            }
        };
        strata = strata.with_record(value).map_err(at(record.span()))?;
    }
    if let Some(floor) = &table.floor {
        let value = probability(text, floor)?;
        if value > strata.size() {
            let message = "the floor must be at most the size, since every stratum keeps at least the floor";
            return Err(ParametersError::at(text, Some(floor.span()), message));
        }
        strata = strata.with_floor(value);
    }
    if let Some(given) = &table.half_life {
        let message = "give the half-life in calls, such as \"2000calls\"";
        let calls = match HalfLife::parse(given.get_ref()) {
            Some(HalfLife::Calls(calls)) => u32::try_from(calls).ok(),
            _ => None,
        };
        let calls = calls.ok_or_else(|| ParametersError::at(text, Some(given.span()), message))?;
        strata = strata.with_half_life(calls).map_err(at(given.span()))?;
    }
    if let Some(lambda) = &table.lambda {
        strata = strata.with_lambda(*lambda.get_ref()).map_err(at(lambda.span()))?;
    }
    strata = strata.by_kind(table.kind);
    for (key, of_key) in table.p {
        for (stratum, p) in of_key {
            let place = stratum.span();
            let stratum: Stratum = from_text(text, &stratum)?;
            let value = probability(text, &p)?;
            if stratum.kind.is_some() && !table.kind {
                let message = "kinds of trees are told apart only with kind = true in [strata]";
                return Err(ParametersError::at(text, Some(place), message));
            }
            if value == Probability::ZERO {
                let message = "a stratum's probability must be above 0, or sums would lack its traces; leave the line \
                               out, or give a small one";
                return Err(ParametersError::at(text, Some(p.span()), message));
            }
            strata = strata.with_probability(key.get_ref(), stratum, value);
        }
    }
    Ok((strata, place))
}

/// Whether the sampler can say which traces to record.
pub(super) fn can_record(config: &Config, strata: &Strata) -> bool {
    let is_by_chance = matches!(config, Config::Bump(_) | Config::Ratio(_) | Config::Always);
    is_by_chance || strata.record() == Record::All
}
