//! Tables and lines that are newer than the version that a file states. Readers of that version
//! refuse them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::super::{ParametersError, VERSION_CAP, VERSION_PACED, VERSION_TAIL, VERSIONS};
use super::{BumpRoot, CountName, File};
use crate::config::HalfLife;
use crate::template::Template;

/// The version that added probabilities and minimums by key, and other counts than in windows.
const VERSION_BY_KEY: u32 = 2;

/// A part of a file, the version that added it, and its place.
type Part = (&'static str, u32, Option<Range<usize>>);

/// Refuses the part that needs the highest version, if that is above `version`.
pub(super) fn refuse(text: &str, file: &File, version: u32) -> Result<(), ParametersError> {
    let found = tables(file).into_iter().chain(lines(file)).chain(lines_of_bump(file));
    let newer =
        found.filter_map(|(part, since, place)| Some((part, since, place.filter(|_| since > version)?)));
    match newer.max_by_key(|(_, since, place)| (*since, Reverse(place.start))) {
        None => Ok(()),
        Some((part, since, place)) => {
            let message = format!(
                "{part} came with version {since} of the format, and this file has version {version}: write \
                 version = {since}"
            );
            Err(ParametersError::at(text, Some(place), message))
        }
    }
}

/// The tables that version 1 does not have.
fn tables(file: &File) -> [Part; 9] {
    let bump = file.bump.as_ref().map(Spanned::get_ref);
    let tail = file.tail.as_ref();
    [
        ("[bump.min_by_key]", VERSION_BY_KEY, first(bump.map(|bump| &bump.min_by_key))),
        ("[bump.probability_by_key]", VERSION_BY_KEY, first(bump.map(|bump| &bump.probability_by_key))),
        ("[cap]", VERSION_CAP, span(&file.cap)),
        ("[tail]", VERSION_TAIL, span(&file.tail)),
        ("[budget]", VERSION_TAIL, span(&file.budget)),
        ("[bump.share_by_key]", VERSION_PACED, first(bump.map(|bump| &bump.share_by_key))),
        ("[tail.slow_from]", VERSION_PACED, first(tail.map(|tail| &tail.get_ref().slow_from))),
        ("[recorded]", VERSION_PACED, span(&file.recorded)),
        ("[strata]", *VERSIONS.end(), span(&file.strata)),
    ]
}

/// The lines that version 1 does not have, of tables that older versions have.
fn lines(file: &File) -> [Part; 6] {
    let (cap, tail) = (file.cap.as_ref().map(Spanned::get_ref), file.tail.as_ref().map(Spanned::get_ref));
    // A misspelt template is an error of its own.
    let has_rules = |text: &str| {
        text.parse().is_ok_and(|template| ![Template::default(), Template::RAW].contains(&template))
    };
    let names = file.key.names.as_ref().filter(|names| has_rules(names.get_ref()));
    [
        ("random", VERSION_BY_KEY, span(&file.random)),
        ("a template with rules", VERSION_BY_KEY, names.map(Spanned::span)),
        ("boost", VERSION_PACED, tail.and_then(|tail| span(&tail.boost))),
        ("new_traces", VERSION_PACED, cap.and_then(|cap| span(&cap.new_traces))),
        ("new_burst", VERSION_PACED, cap.and_then(|cap| span(&cap.new_burst))),
        ("at_end", *VERSIONS.end(), span(&file.key.at_end)),
    ]
}

/// The same of `[bump]` and of its tables for single keys.
fn lines_of_bump(file: &File) -> impl Iterator<Item = Part> {
    let bump = file.bump.as_ref().map(Spanned::get_ref);
    let common = bump.map(|bump| of_bump(&bump.count, &bump.tau, &bump.exponent, &bump.share));
    let of_root = |root: &BumpRoot| of_bump(&root.count, &root.tau, &root.exponent, &root.share);
    let roots = bump.into_iter().flat_map(|bump| bump.root.values());
    common.into_iter().chain(roots.map(of_root)).flatten()
}

fn of_bump(
    count: &Option<Spanned<CountName>>,
    tau: &Option<Spanned<String>>,
    exponent: &Option<Spanned<f64>>,
    share: &Option<Spanned<f64>>,
) -> [Part; 5] {
    let in_calls =
        tau.as_ref().filter(|tau| matches!(HalfLife::parse(tau.get_ref()), Some(HalfLife::Calls(_))));
    [
        ("count", VERSION_BY_KEY, span(count)),
        ("tau", VERSION_BY_KEY, span(tau)),
        ("exponent", VERSION_BY_KEY, span(exponent)),
        ("tau in calls", VERSION_PACED, in_calls.map(Spanned::span)),
        ("share", VERSION_PACED, span(share)),
    ]
}

fn span<V>(value: &Option<Spanned<V>>) -> Option<Range<usize>> {
    value.as_ref().map(Spanned::span)
}

/// The place of the first key in the text.
fn first<V>(table: Option<&BTreeMap<Spanned<String>, V>>) -> Option<Range<usize>> {
    table?.keys().map(Spanned::span).min_by_key(|span| span.start)
}
