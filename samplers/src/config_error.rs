//! Errors in configs.

use std::fmt;

/// An invalid config: the part at fault, and advice on a valid one.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    kind: Kind,
    part: String,
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Syntax,
    UnknownSampler,
    UnknownParameter,
    Missing,
    Repeated,
    OutOfRange,
}

impl ConfigError {
    fn new(kind: Kind, part: impl Into<String>, remedy: impl Into<String>) -> Self {
        ConfigError { kind, part: part.into(), remedy: remedy.into() }
    }

    pub(crate) fn syntax(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::Syntax, part, remedy)
    }

    pub(crate) fn unknown_sampler(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::UnknownSampler, part, remedy)
    }

    pub(crate) fn unknown_parameter(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::UnknownParameter, part, remedy)
    }

    pub(crate) fn missing(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::Missing, part, remedy)
    }

    pub(crate) fn repeated(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::Repeated, part, remedy)
    }

    pub(crate) fn out_of_range(part: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Kind::OutOfRange, part, remedy)
    }

    /// The part of the text, or the parameter, that is at fault.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Advice on a valid value.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Returns true if the sampler's name is unknown.
    pub fn is_unknown_sampler(&self) -> bool {
        self.kind == Kind::UnknownSampler
    }

    /// Returns true if the sampler has no parameter of this name.
    pub fn is_unknown_parameter(&self) -> bool {
        self.kind == Kind::UnknownParameter
    }

    /// Returns true if a required parameter is missing.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// Returns true if a value is well-formed but outside the parameter's range.
    pub fn is_out_of_range(&self) -> bool {
        self.kind == Kind::OutOfRange
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { kind, part, remedy } = self;
        match kind {
            Kind::Syntax => write!(f, "cannot read `{part}`: {remedy}"),
            Kind::UnknownSampler => write!(f, "unknown sampler `{part}`: {remedy}"),
            Kind::UnknownParameter => write!(f, "unknown parameter `{part}`: {remedy}"),
            Kind::Missing => write!(f, "`{part}` is missing: {remedy}"),
            Kind::Repeated => write!(f, "`{part}` is given twice: {remedy}"),
            Kind::OutOfRange => write!(f, "`{part}` is out of range: {remedy}"),
        }
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}
