//! The key of a trace: the text by which a sampler counts its calls.
//!
//! Services, replays of recordings and parameters files make keys by the same [`KeyRule`]. So
//! parameters that a file gives for a key apply to the calls that had this key in the recording.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::template::Template;

/// A rule that makes keys from a root's name and attributes. The default is the name with its ids
/// folded.
///
/// A key reads `name;attribute=value;attribute=value`, in the order in which the rule names the
/// attributes. An attribute that the root lacks is looked up in its resource, and left out if that
/// lacks it too. If a root has an attribute twice, the last value counts. The template applies to
/// the name and to each value. Keys are compared, never parsed: nothing in them is escaped.
///
/// As text, which [`FromStr`] reads and [`Display`](fmt::Display) prints: `name`,
/// `name+http.route+service.name`, and `name:raw+http.route` for a template other than the default.
/// In an attribute's name `\+` is a plus and `\\` a backslash.
///
/// ```
/// use astracer_samplers::KeyRule;
///
/// let rule: KeyRule = "name+http.route+http.request.method".parse()?;
/// let root = [("http.request.method", "GET"), ("http.route", "/orders/10042")];
/// let mut memory = String::new();
/// assert_eq!(rule.key("handle", &root[..], &mut memory), "handle;http.route=/orders/*;http.request.method=GET");
/// # Ok::<(), astracer_samplers::KeyRuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRule {
    template: Template,
    attributes: Vec<Cow<'static, str>>,
}

/// The attributes of a root and of its resource.
pub trait Attributes {
    /// Returns the attribute's value as text: the root's last one of this name, or the resource's
    /// if the root has none.
    ///
    /// Keys are the same everywhere only if values have the same text everywhere: booleans as
    /// `true` and `false`, numbers in the shortest form that Rust's `Display` gives, arrays as
    /// `[1,2]` or `["a","b"]`.
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// Pairs of name and value.
impl Attributes for [(&str, &str)] {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.iter().rev().find(|(known, _)| *known == name).map(|&(_, value)| value.into())
    }
}

impl KeyRule {
    /// Keys by name only, folded by this template.
    pub fn new(template: Template) -> Self {
        KeyRule { template, attributes: Vec::new() }
    }

    /// Adds an attribute. Choose one that roots have when they start and that takes few values,
    /// such as `http.request.method`, `http.route`, `rpc.method` or `messaging.destination.name`.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.attributes.push(name.into());
        self
    }

    /// The same attributes with another template.
    #[must_use]
    pub fn with_template(self, template: Template) -> Self {
        KeyRule { template, ..self }
    }

    /// The template that is applied to names and values.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The attributes' names, in the rule's order.
    pub fn attributes(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.attributes.iter().map(|name| &**name)
    }

    /// Returns true if keys depend only on the name.
    pub fn is_name_only(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Returns the key of a root. It is `name` itself if the rule changes nothing; otherwise the
    /// key is written to `memory`, replacing its content.
    pub fn key<'a>(
        &self,
        name: &'a str,
        attributes: &(impl Attributes + ?Sized),
        memory: &'a mut String,
    ) -> &'a str {
        memory.clear();
        let mut changed = self.template.append_folded(name, memory);
        for attribute in &self.attributes {
            let Some(value) = attributes.attribute(attribute) else { continue };
            if !changed {
                memory.push_str(name);
                changed = true;
            }
            memory.push(';');
            memory.push_str(attribute);
            memory.push('=');
            if !self.template.append_folded(&value, memory) {
                memory.push_str(&value);
            }
        }
        if changed { memory } else { name }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("name")?;
        if self.template != Template::default() {
            write!(f, ":{}", self.template)?;
        }
        for attribute in &self.attributes {
            write!(f, "+{}", attribute.replace('\\', r"\\").replace('+', r"\+"))?;
        }
        Ok(())
    }
}

/// A text that is not a key rule.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRuleError(String);

impl fmt::Display for KeyRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid key rule `{}`: write name, or name+ATTRIBUTE such as name+http.route", self.0)
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for KeyRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for KeyRuleError {}

impl FromStr for KeyRule {
    type Err = KeyRuleError;

    fn from_str(text: &str) -> Result<Self, KeyRuleError> {
        let wrong = || KeyRuleError(text.to_owned());
        let mut parts = unescaped(text).ok_or_else(wrong)?.into_iter();
        let base = parts.next().unwrap_or_default();
        let template = match base.split_once(':') {
            None => Template::default(),
            Some((_, template)) => template.parse().map_err(|_| wrong())?,
        };
        let attributes: Vec<Cow<'static, str>> = parts.map(Cow::Owned).collect();
        if base.split(':').next() != Some("name") || attributes.iter().any(|name| name.is_empty()) {
            return Err(wrong());
        }
        Ok(KeyRule { template, attributes })
    }
}

/// Splits at plus signs and removes backslashes; `None` if a backslash precedes anything but a plus
/// or a backslash.
fn unescaped(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '+' => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next().filter(|c| matches!(c, '+' | '\\'))?,
            c => c,
        };
        parts.last_mut()?.push(c);
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &str, name: &str, attributes: &[(&str, &str)], key: &str) {
        let rule: KeyRule = rule.parse().unwrap();
        let mut memory = "from the key before".to_owned();
        assert_eq!(rule.key(name, attributes, &mut memory), key);
    }

    #[test]
    fn ids_are_folded_unless_the_rule_says_otherwise() {
        check("name", "sendBlock_1073741825", &[], "sendBlock_*");
        check("name", "GET /", &[("http.route", "/")], "GET /");
        check("name:raw", "sendBlock_1073741825", &[], "sendBlock_1073741825");
        check("name:digits=1", "v2 deadbeef1", &[], "v* deadbeef*");
    }

    #[test]
    fn attributes_follow_the_name_in_the_order_of_the_rule() {
        let rule = "name+http.route+http.request.method";
        let root = [("http.request.method", "GET"), ("http.route", "/orders/1234")];
        check(rule, "request", &root, "request;http.route=/orders/*;http.request.method=GET");
        check(rule, "request", &root[..1], "request;http.request.method=GET");
        check(rule, "request1234", &[], "request*");
        check(rule, "request1234", &root[1..], "request*;http.route=/orders/*");
        check("name:raw+http.route", "r", &root, "r;http.route=/orders/1234");
    }

    #[test]
    fn the_last_value_of_an_attribute_counts() {
        check("name+a", "x", &[("a", "1"), ("b", "2"), ("a", "3")], "x;a=3");
    }

    #[test]
    fn rules_survive_printing() {
        for text in
            ["name", "name+http.route", "name+a+b", "name:raw", "name:digits=4,uuid+a", r"name+a\+b\\c"]
        {
            assert_eq!(text.parse::<KeyRule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        let odd = KeyRule::default().with_attribute("a+b").with_attribute(r"\");
        assert_eq!(odd.to_string().parse(), Ok(odd));
        assert_eq!(r"name+a\+b".parse::<KeyRule>().unwrap().attributes().collect::<Vec<_>>(), ["a+b"]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "names", "name+", "name+a+", "name:", "name:words", "tree", "tree+a", r"name+a\", r"name+\a"]
        {
            let error = text.parse::<KeyRule>().expect_err(text).to_string();
            assert!(error.contains("name+ATTRIBUTE"), "{error}");
        }
    }
}
