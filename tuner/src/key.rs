//! What a sampler counts by: the key of a trace.

use std::fmt;
use std::str::FromStr;

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

impl KeyRule {
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
