//! What a sampler counts by: the key of a trace.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use astracer_recording::recording::Recording;

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
    /// The rules that are worth a comparison, the simplest first: the name, the name
    /// with those attributes that roots have, and the tree.
    pub fn candidates(recording: &Recording) -> Vec<Self> {
        let labels = recording.label_keys();
        let mut present = vec![false; labels.len()];
        let symbols: HashSet<_> =
            recording.traces().filter_map(|trace| trace.root().label_symbol()).collect();
        for symbol in symbols {
            let values = values(recording.labels().name(symbol), labels);
            present.iter_mut().zip(values).for_each(|(present, (_, value))| *present |= value.is_some());
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

/// The attributes in a label of a recording that was made with these, in their order; `None` where there is none.
pub(crate) fn values<'t>(
    label: &'t str,
    attributes: &'t [String],
) -> impl Iterator<Item = (&'t str, Option<&'t str>)> {
    let mut text = label;
    attributes.iter().enumerate().map(move |(index, attribute)| {
        let value = text.strip_prefix(attribute.as_str()).and_then(|text| text.strip_prefix('='));
        let value = value.unwrap_or(text);
        // Values may hold blanks: one ends where the next name begins.
        let end = attributes.get(index + 1).and_then(|next| value.find(&format!(" {next}=")));
        text = end.map_or("", |end| &value[end + 1..]);
        let value = &value[..end.unwrap_or(value.len())];
        (attribute.as_str(), (value != "-").then_some(value))
    })
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
    use std::sync::Arc;

    use astracer_model::problem::Place;
    use astracer_model::sink::{Record, Sink};
    use astracer_model::value::Attribute;
    use astracer_model::{Span, SpanId, TraceId, UnixNanos, Value};
    use astracer_recording::recording::{Intake, Keep};
    use astracer_samplers::Template;

    use super::*;
    use crate::workload::Workload;

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

    #[test]
    fn labels_are_taken_apart() {
        let attributes = ["http.method", "http.route", "rpc"].map(str::to_owned);
        let values = |label| values(label, &attributes).map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(values("http.method=GET http.route=/a b rpc=-"), [Some("GET"), Some("/a b"), None]);
        assert_eq!(values("http.method=- http.route=- rpc=x=y z"), [None, None, Some("x=y z")]);
    }

    /// The form is the SDK's: attributes behind the name, those that a root lacks left out, values folded as names are.
    #[test]
    fn keys_with_attributes_are_written_as_a_service_writes_them() {
        let labels = ["http.request.method", "http.method", "http.route"].map(str::to_owned).to_vec();
        let mut intake = Intake::new(Keep { labels, ..Keep::default() });
        let place = Place { file: Arc::from("test"), line: 1, byte: 0 };
        for (trace, attributes) in [
            vec![("http.request.method", "GET"), ("http.route", "/orders/12345 now")],
            vec![("http.request.method", "GET")],
            vec![],
        ]
        .into_iter()
        .enumerate()
        {
            let value = |(key, value): (&'static str, &'static str)| Attribute {
                key: key.into(),
                value: Value::String(value.into()),
            };
            let span = Span {
                trace_id: TraceId(trace as u128 + 1),
                span_id: SpanId(trace as u64 + 1),
                name: "handle".into(),
                start: Some(UnixNanos(trace as u64)),
                end: Some(UnixNanos(9)),
                attributes: attributes.into_iter().map(value).collect(),
                ..Span::default()
            };
            intake.span(span, Record { bytes: b"x", place: &place });
        }
        let recording = intake.finish();
        let rules = KeyRule::candidates(&recording);
        let both = KeyRule::NameAnd(vec!["http.request.method".into(), "http.route".into()]);
        assert_eq!(rules, [KeyRule::Name, both.clone(), KeyRule::Tree]);
        let keys = |template: Template| {
            let workload = Workload::with_template(&recording, &both, &template);
            workload.arrivals().iter().map(|arrival| workload.key(arrival).to_owned()).collect::<Vec<_>>()
        };
        let (folded, raw) = (keys(Template::default()), keys(Template::RAW));
        let route = |route| format!("handle;http.request.method=GET;http.route=/orders/{route} now");
        assert_eq!(folded[1..], ["handle;http.request.method=GET", "handle"]);
        assert_eq!((&folded[0], &raw[0]), (&route("*"), &route("12345")));
    }
}
