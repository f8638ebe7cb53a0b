//! What a sampler counts by: the key of a trace.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use astracer_model::recording::Recording;

/// How a trace's key is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyRule {
    /// The root span's name: the paper's choice.
    #[default]
    Name,
    /// The root span's name with the values of some of its attributes (or of its resource's).
    NameAnd(Vec<String>),
    /// The whole call tree. Not known when a trace starts, so no head sampler can use it; it shows what a perfect key
    /// would gain where one root name hides everything.
    Tree,
}

/// Attributes of OpenTelemetry's conventions that a root has when it starts, and that take few values.
pub const START_ATTRIBUTES: [&str; 6] = [
    "http.request.method",
    "http.method",
    "http.route",
    "rpc.service",
    "rpc.method",
    "messaging.destination.name",
];

impl KeyRule {
    /// The rules that are worth a comparison on a recording made with `labels`, the simplest first: the name, the name
    /// with those attributes that roots have, and the tree.
    pub fn candidates(recording: &Recording, labels: &[String]) -> Vec<Self> {
        let mut present = vec![false; labels.len()];
        let symbols: HashSet<_> =
            recording.traces().filter_map(|trace| trace.root().label_symbol()).collect();
        for symbol in symbols {
            let mut text = recording.labels().name(symbol);
            for (index, label) in labels.iter().enumerate() {
                // Values may hold blanks: one ends where the next name begins.
                let value =
                    text.strip_prefix(label.as_str()).and_then(|text| text.strip_prefix('=')).unwrap_or(text);
                let next = labels.get(index + 1).and_then(|next| value.find(&format!(" {next}=")));
                present[index] |= &value[..next.unwrap_or(value.len())] != "-";
                text = next.map_or("", |end| &value[end + 1..]);
            }
        }
        let present: Vec<String> = labels
            .iter()
            .zip(present)
            .filter(|(_, present)| *present)
            .map(|(label, _)| label.clone())
            .collect();
        let with_attributes = (!present.is_empty()).then_some(Self::NameAnd(present));
        [Self::Name].into_iter().chain(with_attributes).chain([Self::Tree]).collect()
    }

    /// The attributes that a recording must keep for this rule.
    pub fn attributes(&self) -> &[String] {
        match self {
            Self::NameAnd(attributes) => attributes,
            Self::Name | Self::Tree => &[],
        }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("name"),
            Self::NameAnd(attributes) => write!(f, "name+{}", attributes.join("+")),
            Self::Tree => f.write_str("tree"),
        }
    }
}

/// A text that is no key rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKeyRule(String);

impl fmt::Display for InvalidKeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is no key: use 'name', 'name+ATTRIBUTE' (for example name+http.route) or 'tree'",
            self.0
        )
    }
}

impl std::error::Error for InvalidKeyRule {}

impl FromStr for KeyRule {
    type Err = InvalidKeyRule;

    fn from_str(text: &str) -> Result<Self, InvalidKeyRule> {
        let invalid = || InvalidKeyRule(text.to_owned());
        match text {
            "name" => Ok(Self::Name),
            "tree" => Ok(Self::Tree),
            _ => {
                let attributes = text.strip_prefix("name+").ok_or_else(invalid)?;
                let attributes: Vec<_> = attributes.split('+').map(str::to_owned).collect();
                if attributes.iter().any(String::is_empty) {
                    Err(invalid())
                } else {
                    Ok(Self::NameAnd(attributes))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_printing_and_others_are_refused() {
        for text in ["name", "tree", "name+http.route", "name+http.request.method+http.route"] {
            assert_eq!(text.parse::<KeyRule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "names", "name+", "name+a+", "tree+a"] {
            let error = text.parse::<KeyRule>().expect_err(text).to_string();
            assert!(error.contains("name+ATTRIBUTE"), "{error}");
        }
    }
}
