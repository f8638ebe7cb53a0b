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
/// the name and to each value, except to numbers of up to three digits, such as status codes. Keys
/// are compared, never parsed: nothing in them is escaped.
///
/// Attributes *at the end* are those that a root gets while it runs, such as the route or the
/// status code. No decision at the start can use them, so [`KeyRule::key`] leaves them out. Late
/// [strata](crate::strata) tell traces apart by [`KeyRule::key_at_end`], which appends them.
///
/// As text, which [`FromStr`] reads and [`Display`](fmt::Display) prints: `name`,
/// `name+http.route+service.name`, `name+end:http.response.status_code` with an attribute at the
/// end, and `name:raw+http.route` for a template other than the default. In an attribute's name
/// `\+` is a plus, `\:` a colon and `\\` a backslash.
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
    at_end: Vec<Cow<'static, str>>,
}

/// A number of at most three digits, such as a status code, is kept as it is.
const CODE_DIGITS: usize = 3;

/// The mark of attributes at the end, in a rule's text.
const AT_END: &str = "end:";

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
impl<S: AsRef<str>> Attributes for [(S, S)] {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.iter().rev().find(|(known, _)| known.as_ref() == name).map(|(_, value)| value.as_ref().into())
    }
}

/// A root's own attributes, and after them its resource's.
impl<A: Attributes + ?Sized, B: Attributes + ?Sized> Attributes for (&A, &B) {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.attribute(name).or_else(|| self.1.attribute(name))
    }
}

impl KeyRule {
    /// Keys by name only, folded by this template.
    pub fn new(template: Template) -> Self {
        KeyRule { template, ..KeyRule::default() }
    }

    /// Adds an attribute. Choose one that roots have when they start and that takes few values,
    /// such as `http.request.method`, `http.route`, `rpc.method` or `messaging.destination.name`.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.attributes.push(name.into());
        self
    }

    /// Adds an attribute that roots have when they end, for the strata of late decisions. Choose
    /// one that takes few values, such as `http.response.status_code`.
    #[must_use]
    pub fn with_attribute_at_end(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.at_end.push(name.into());
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

    /// The names of the attributes at the start, in the rule's order.
    pub fn attributes(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.attributes.iter().map(|name| &**name)
    }

    /// The names of the attributes at the end, in the rule's order.
    pub fn attributes_at_end(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.at_end.iter().map(|name| &**name)
    }

    /// Whether an attribute is in the rule, at the start or at the end.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.attributes().chain(self.attributes_at_end()).any(|known| known == name)
    }

    /// The same rule without the attributes at the end.
    #[must_use]
    pub fn at_start(self) -> Self {
        KeyRule { at_end: Vec::new(), ..self }
    }

    /// Returns true if keys at the start depend only on the name.
    pub fn is_name_only(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Returns the key of a root when it starts. It is `name` itself if the rule changes nothing;
    /// otherwise the key is written to `memory`, replacing its content.
    pub fn key<'a>(
        &self,
        name: &'a str,
        attributes: &(impl Attributes + ?Sized),
        memory: &'a mut String,
    ) -> &'a str {
        memory.clear();
        let changed = self.template.append_folded(name, memory);
        self.append((name, changed), &self.attributes, attributes, memory)
    }

    /// Returns the key of a root that has ended: its key at the start with the attributes at the
    /// end. It is `key` itself if the root has none of them.
    pub fn key_at_end<'a>(
        &self,
        key: &'a str,
        attributes: &(impl Attributes + ?Sized),
        memory: &'a mut String,
    ) -> &'a str {
        memory.clear();
        self.append((key, false), &self.at_end, attributes, memory)
    }

    /// Appends attributes to `base`, which is in memory already if it `changed`.
    fn append<'a>(
        &self,
        (base, mut changed): (&'a str, bool),
        names: &[Cow<'static, str>],
        attributes: &(impl Attributes + ?Sized),
        memory: &'a mut String,
    ) -> &'a str {
        for attribute in names {
            let Some(value) = attributes.attribute(attribute) else { continue };
            if !changed {
                memory.push_str(base);
                changed = true;
            }
            memory.push(';');
            memory.push_str(attribute);
            memory.push('=');
            let is_code = value.len() <= CODE_DIGITS && value.bytes().all(|byte| byte.is_ascii_digit());
            if is_code || !self.template.append_folded(&value, memory) {
                memory.push_str(&value);
            }
        }
        if changed { memory } else { base }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("name")?;
        if self.template != Template::default() {
            write!(f, ":{}", self.template)?;
        }
        let escaped = |name: &str| name.replace('\\', r"\\").replace('+', r"\+");
        for attribute in self.attributes.iter().map(|name| escaped(name)) {
            match attribute.strip_prefix(AT_END) {
                Some(rest) => write!(f, r"+end\:{rest}")?,
                None => write!(f, "+{attribute}")?,
            }
        }
        self.at_end.iter().try_for_each(|attribute| write!(f, "+{AT_END}{}", escaped(attribute)))
    }
}

/// A text that is not a key rule.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRuleError(String);

impl fmt::Display for KeyRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid key rule `{}`: write name, name+ATTRIBUTE such as name+http.route, or name+end:ATTRIBUTE",
            self.0
        )
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
        let (base, _) = parts.next().unwrap_or_default();
        let template = match base.split_once(':') {
            None => Template::default(),
            Some((_, template)) => template.parse().map_err(|_| wrong())?,
        };
        let mut rule = KeyRule::new(template);
        for (name, is_at_end) in parts {
            if name.is_empty() || rule.names(&name) {
                return Err(wrong());
            }
            rule = if is_at_end { rule.with_attribute_at_end(name) } else { rule.with_attribute(name) };
        }
        if base.split(':').next() == Some("name") { Ok(rule) } else { Err(wrong()) }
    }
}

/// Splits at plus signs and removes backslashes and the mark of attributes at the end, which are
/// returned with `true`. `None` if a backslash precedes anything but a plus, a colon or a
/// backslash.
fn unescaped(text: &str) -> Option<Vec<(String, bool)>> {
    let mut parts = vec![(String::new(), false)];
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let c = match c {
            '+' => {
                let marked = rest.as_str().strip_prefix(AT_END);
                parts.push((String::new(), marked.is_some()));
                rest = marked.unwrap_or(rest.as_str()).chars();
                continue;
            }
            '\\' => rest.next().filter(|c| matches!(c, '+' | ':' | '\\'))?,
            c => c,
        };
        parts.last_mut()?.0.push(c);
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
    fn status_codes_are_no_ids() {
        check("name+code", "r", &[("code", "404")], "r;code=404");
        check("name+code", "r", &[("code", "4041")], "r;code=*");
        check("name+code", "r", &[("code", "")], "r;code=");
    }

    #[test]
    fn attributes_at_the_end_follow_the_key_at_the_start() {
        let rule: KeyRule = "name+a+end:b+end:c".parse().unwrap();
        let root = [("a", "1"), ("b", "x1234"), ("c", "3")];
        let (mut start, mut end) = (String::new(), String::new());
        let start = rule.key("r", &root[..], &mut start);
        assert_eq!(start, "r;a=1");
        assert_eq!(rule.key_at_end(start, &root[..], &mut end), "r;a=1;b=x*;c=3");
        assert_eq!(rule.key_at_end(start, &root[..1], &mut end), "r;a=1");
    }

    #[test]
    fn rules_survive_printing() {
        for text in [
            "name",
            "name+http.route",
            "name+a+b",
            "name:raw",
            "name:digits=4,uuid+a",
            r"name+a\+b\\c",
            "name+end:a",
            r"name+end\:a+end:b\+c",
        ] {
            assert_eq!(text.parse::<KeyRule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        let odd = KeyRule::default().with_attribute("a+b").with_attribute(r"\").with_attribute("end:");
        let odd = odd.with_attribute_at_end("end:+");
        assert_eq!(odd.to_string().parse(), Ok(odd));
        assert_eq!(r"name+a\+b".parse::<KeyRule>().unwrap().attributes().collect::<Vec<_>>(), ["a+b"]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "names",
            "name+",
            "name+a+",
            "name:",
            "name:words",
            "tree",
            "tree+a",
            r"name+a\",
            r"name+\a",
            "name+end:",
            "name+a+a",
            "name+a+end:a",
        ] {
            let error = text.parse::<KeyRule>().expect_err(text).to_string();
            assert!(error.contains("name+ATTRIBUTE"), "{error}");
        }
    }
}
