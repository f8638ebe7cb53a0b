//! The value of `--instance`: which records of a log are one instance.

use std::sync::Arc;

use astracer_model::log::LogRecord;
use astracer_model::value::Value;
use astracer_recording::recording::{GroupLogs, write_value};
use regex::Regex;

use super::when;

/// One instance of a log, by `--instance`.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    File,
    /// A length in nanoseconds.
    Time(u64),
    Attribute(String),
    Pattern(Regex),
}

/// Parses `file`, `time:60s`, `/REGEX/` or an attribute's key.
pub(super) fn rule(text: &str) -> Result<Rule, String> {
    if text == "file" {
        return Ok(Rule::File);
    }
    if let Some(length) = text.strip_prefix("time:") {
        return match when::length(length)? {
            0 => Err("a stretch of time is longer than 0".to_owned()),
            length => Ok(Rule::Time(length)),
        };
    }
    if let Some(pattern) = text.strip_prefix('/') {
        let pattern = pattern.strip_suffix('/').filter(|pattern| !pattern.is_empty());
        let pattern = pattern.ok_or("a regular expression stands between two slashes: /blk_-?[0-9]+/")?;
        return Regex::new(pattern).map(Rule::Pattern).map_err(|error| error.to_string());
    }
    match text.is_empty() {
        true => Err("use file, time:60s, an attribute's key, or /REGEX/".to_owned()),
        false => Ok(Rule::Attribute(text.to_owned())),
    }
}

impl Rule {
    /// The groups that a recording keeps for this rule.
    pub(super) fn groups(&self) -> Option<GroupLogs> {
        match self {
            Self::File | Self::Time(_) => None,
            Self::Pattern(pattern) => {
                let pattern = pattern.clone();
                Some(GroupLogs(Arc::new(move |_, text, found| {
                    for captures in pattern.captures_iter(text) {
                        // The first group, if there is one, is the id.
                        let id = captures.iter().skip(1).flatten().next().or_else(|| captures.get(0));
                        id.into_iter().for_each(|id| found(id.as_str()));
                    }
                })))
            }
            Self::Attribute(key) => {
                let key = key.clone();
                Some(GroupLogs(Arc::new(move |log, _, found| attribute(log, &key, found))))
            }
        }
    }
}

/// Passes on the value of a record's attribute, or of a part that has a place of its own.
fn attribute(log: &LogRecord<'_>, key: &str, found: &mut dyn FnMut(&str)) {
    let members = if let Value::Map(members) = &log.body { &members[..] } else { &[] };
    let mut all = log.attributes.iter().chain(members).chain(&log.resource.attributes);
    if let Some(own) = all.find(|own| own.key == key) {
        let mut text = String::new();
        write_value(&mut text, &own.value);
        return found(&text);
    }
    match key {
        "trace_id" if log.trace_id.0 != 0 => found(&log.trace_id.to_string()),
        "span_id" if log.span_id.0 != 0 => found(&log.span_id.to_string()),
        "thread" if !log.thread.is_empty() => found(&log.thread),
        "logger" if !log.logger.is_empty() => found(&log.logger),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_the_records_of_one_instance() {
        assert!(matches!(rule("file"), Ok(Rule::File)));
        assert!(matches!(rule("time:60s"), Ok(Rule::Time(60_000_000_000))));
        assert!(matches!(rule("request_id"), Ok(Rule::Attribute(key)) if key == "request_id"));
        assert!(matches!(rule("/blk_-?[0-9]+/"), Ok(Rule::Pattern(_))));
        for wrong in ["", "time:", "time:0", "/x", "//", "/(/"] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_has_all_its_matches_or_their_first_group() {
        let found = |pattern: &str, text: &str| {
            let mut ids = Vec::new();
            let GroupLogs(of) = rule(pattern).unwrap().groups().unwrap();
            of(&LogRecord::default(), text, &mut |id| ids.push(id.to_owned()));
            ids
        };
        assert_eq!(found("/blk_-?[0-9]+/", "ask to delete blk_1 blk_-23"), ["blk_1", "blk_-23"]);
        assert_eq!(found("/id=([a-z]+)/", "id=ab id=9"), ["ab"]);
    }
}
