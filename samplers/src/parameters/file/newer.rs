//! Tables that are newer than the version that a file states. Readers of that version refuse them.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::super::{ParametersError, VERSION_CAP, VERSION_PACED, VERSION_TAIL, VERSIONS};
use super::File;

/// The version that added probabilities and minimums by key.
const VERSION_BY_KEY: u32 = 2;

/// Refuses a table that is newer than `version`.
pub(super) fn refuse(text: &str, file: &File, version: u32) -> Result<(), ParametersError> {
    match tables(file).find(|(_, since, _)| *since > version) {
        None => Ok(()),
        Some((table, since, place)) => {
            let message = format!(
                "[{table}] came with version {since} of the format, and this file has version {version}: write \
                 version = {since}"
            );
            Err(ParametersError::at(text, Some(place), message))
        }
    }
}

/// The file's tables that version 1 does not have: the version that added each, and its place.
fn tables(file: &File) -> impl Iterator<Item = (&'static str, u32, Range<usize>)> {
    let bump = file.bump.as_ref().map(Spanned::get_ref);
    let tail = file.tail.as_ref();
    let tables = [
        ("bump.min_by_key", VERSION_BY_KEY, first(bump.map(|bump| &bump.min_by_key))),
        ("bump.probability_by_key", VERSION_BY_KEY, first(bump.map(|bump| &bump.probability_by_key))),
        ("cap", VERSION_CAP, file.cap.as_ref().map(Spanned::span)),
        ("tail", VERSION_TAIL, tail.map(Spanned::span)),
        ("budget", VERSION_TAIL, file.budget.as_ref().map(Spanned::span)),
        ("bump.share_by_key", VERSION_PACED, first(bump.map(|bump| &bump.share_by_key))),
        ("tail.slow_from", VERSION_PACED, first(tail.map(|tail| &tail.get_ref().slow_from))),
        ("recorded", VERSION_PACED, file.recorded.as_ref().map(Spanned::span)),
        ("strata", *VERSIONS.end(), file.strata.as_ref().map(Spanned::span)),
    ];
    tables.into_iter().filter_map(|(table, since, place)| Some((table, since, place?)))
}

/// The place of the first key in the text.
fn first<V>(table: Option<&BTreeMap<Spanned<String>, V>>) -> Option<Range<usize>> {
    table?.keys().map(Spanned::span).min_by_key(|span| span.start)
}
