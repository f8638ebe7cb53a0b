//! The rule by which bad instances were chosen, and the variables that differ by that rule alone.

use super::features::{Feature, Kind};
use super::ranking::Ranked;

/// The rule that chose the bad class, if it looks at values that are variables, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChosenBy {
    /// Another rule: recordings, times, ids.
    #[default]
    Others,
    /// The length of an instance.
    Duration,
    /// An error in it.
    Errors,
    /// An attribute: `KEY=VALUE`.
    Attribute(String),
}

impl ChosenBy {
    /// True if a variable differs because the rule chose the classes: an error, the attribute, or
    /// with [`Self::Duration`] any time.
    pub(super) fn decides(&self, ranked: &Ranked) -> bool {
        match self {
            Self::Others => false,
            Self::Duration => match ranked.kind {
                Kind::State => ranked.variable.ends_with(" ms"),
                Kind::Event => !matches!(ranked.feature, Feature::Count | Feature::Present),
            },
            Self::Errors => ranked.kind == Kind::Event && ranked.variable.ends_with(" error"),
            Self::Attribute(pair) => {
                let service = ranked.variable.strip_suffix(pair.as_str());
                ranked.kind == Kind::Event
                    && service.is_some_and(|service| service.is_empty() || service.ends_with(' '))
            }
        }
    }

    /// True if a variable that the rule decides says nothing else, so that it is listed last. A
    /// time still says where the duration comes from.
    pub(super) fn is_empty_for(&self, ranked: &Ranked) -> bool {
        *self != Self::Duration && self.decides(ranked)
    }
}
