//! Keys, by which the calls of local roots are counted.
//!
//! A key is made of the data known when the root is decided: its name, and the attributes that it
//! was created with or that were recorded by then. The root is decided when it is first entered, or
//! when its decision is first needed. Attributes set later change the exported span but not the
//! key.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

pub(crate) use astracer_samplers::Attributes;
use astracer_samplers::{KeyRule, Template};
use astracer_spans::late::EndKey;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use tracing_core::Metadata;

/// The key by which a local root's calls are counted: made by a [`KeyRule`], or by a function of
/// yours. The default is the root's name with ids folded.
///
/// By default a span as tower-http's `TraceLayer` makes it, named `request` with the fields
/// `method` and `uri`, gets a key such as `GET /orders/*`: else all routes would share one. The
/// path is only a guess at the route, so name spans by route where you can.
#[derive(Clone)]
pub struct Key {
    rule: KeyRule,
    /// Whether spans of tower-http's `TraceLayer` are counted by method and path.
    by_path: bool,
    /// The resource's values of the rule's attributes, for roots that lack them.
    of_resource: Arc<[(String, String)]>,
    custom: Option<Arc<CustomKey>>,
}

const UNFOLDED_MAX: usize = 64;

thread_local! {
    static FOLDED: Cell<String> = const { Cell::new(String::new()) };
    /// Callsites whose name is its own template, by the addresses of their metadata.
    static UNFOLDED: [Cell<Option<(usize, Template)>>; UNFOLDED_MAX] = const { [const { Cell::new(None) }; UNFOLDED_MAX] };
}

/// Memory beyond this size in bytes is freed after use.
const MEMORY_MAX: usize = 4096;

type CustomKey = dyn Fn(&Root<'_>, &mut String) + Send + Sync;

impl Default for Key {
    fn default() -> Self {
        Key { by_path: true, ..KeyRule::default().into() }
    }
}

impl From<KeyRule> for Key {
    fn from(rule: KeyRule) -> Self {
        Key { rule, by_path: false, of_resource: Arc::default(), custom: None }
    }
}

/// The name of spans that tower-http's `TraceLayer` makes by default, and their fields.
const REQUEST: &str = "request";
const METHOD: &str = "method";
const URI: &str = "uri";
/// The most segments of a path in a key. Together with the length it bounds the keys that a client
/// can make up.
const SEGMENTS_MAX: usize = 4;
const PATH_MAX: usize = 128;

/// Appends the path of a URI, with `*` for each segment that looks like an id, as far as a key has
/// it: without the query.
fn append_path(uri: &str, template: &Template, out: &mut String) {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let path = match path.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    let begin = out.len();
    for (number, segment) in path.split('/').skip(1).enumerate() {
        out.push('/');
        if number == SEGMENTS_MAX || out.len() - begin + segment.len() > PATH_MAX {
            out.push('*');
            return;
        }
        let is_number = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
        let mut folded = String::new();
        match segment {
            _ if is_number => out.push('*'),
            _ if template.fold(segment, &mut folded) => out.push_str(&folded),
            _ => out.push_str(segment),
        }
    }
}

impl Key {
    /// The unchanged name. Every id inside a name creates a key of its own.
    pub fn name() -> Self {
        Self::template(Template::RAW)
    }

    /// The name with its ids folded by `template`.
    pub fn template(template: Template) -> Self {
        KeyRule::new(template).into()
    }

    /// Adds the value of an attribute that roots have when they are decided, such as
    /// `http.request.method`, `http.route`, `rpc.method` or `server.address`. The key is then
    /// `name;attribute=value`; templates apply to the values too. For a root without the attribute
    /// the resource's value is used. If that is missing too, the key lacks the part.
    #[must_use]
    pub fn with_attribute(self, name: impl Into<Cow<'static, str>>) -> Self {
        Key { rule: self.rule.with_attribute(name), by_path: false, ..self }
    }

    /// Adds an attribute that roots have when they end, such as `http.response.status_code`. [Late
    /// strata](crate::Builder::with_strata) tell traces apart by it; what is decided at the start
    /// does not know it. If a root lacks it, the resource's value is used, as at the start.
    #[must_use]
    pub fn with_attribute_at_end(self, name: impl Into<Cow<'static, str>>) -> Self {
        Key { rule: self.rule.with_attribute_at_end(name), ..self }
    }

    /// A key made by your function, which appends it to the empty string it is given. The function
    /// is called on the service's threads when a local root is decided, with no lock held. A root
    /// that the function traces itself is counted by its name. So is one for which it panics: see
    /// [`Stats::key_panics`](crate::Stats::key_panics).
    pub fn custom(key: impl Fn(&Root<'_>, &mut String) + Send + Sync + 'static) -> Self {
        Key { custom: Some(Arc::new(key)), ..Self::name() }
    }

    /// Looks up the rule's attributes in the service's resource, once.
    #[must_use]
    pub(crate) fn with_resource(self, resource: &Resource) -> Self {
        let names = self.rule.attributes().chain(self.rule.attributes_at_end()).map(str::to_owned);
        let with_value = |name: String| {
            let value = resource.get(&name.clone().into())?.as_str().into_owned();
            Some((name, value))
        };
        Key { of_resource: names.filter_map(with_value).collect(), ..self }
    }

    pub(crate) fn at_end(&self) -> EndKey {
        EndKey::new(self.rule.clone(), self.of_resource.clone())
    }

    #[cfg(feature = "parameters")]
    pub(crate) fn starts_like(&self, rule: &KeyRule) -> bool {
        self.custom.is_none() && self.rule.clone().at_start() == rule.clone().at_start()
    }

    #[cfg(feature = "parameters")]
    pub(crate) fn ends_like(&self, rule: &KeyRule) -> bool {
        self.rule.attributes_at_end().eq(rule.attributes_at_end())
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub(crate) fn is_name_only(&self) -> bool {
        self.custom.is_none() && self.rule.is_name_only()
    }

    #[inline]
    pub(crate) fn is_name_only_at(&self, metadata: &Metadata<'_>) -> bool {
        self.is_name_only() && !(self.by_path && metadata.name() == REQUEST)
    }

    pub(crate) fn may_need(&self, name: &str) -> bool {
        self.custom.is_some()
            || self.rule.attributes().any(|known| known == name)
            || (self.by_path && matches!(name, METHOD | URI))
    }

    pub(crate) fn with_memory<T>(f: impl FnOnce(&mut String) -> T) -> T {
        let mut memory = FOLDED.try_with(Cell::take).unwrap_or_default();
        let result = f(&mut memory);
        if memory.capacity() <= MEMORY_MAX {
            let _ = FOLDED.try_with(|folded| folded.set(memory));
        }
        result
    }

    /// Lends the key of a root of this callsite, for a key that depends only on the name.
    #[inline]
    pub(crate) fn with_static<T>(
        &self,
        metadata: &'static Metadata<'static>,
        f: impl FnOnce(&str) -> T,
    ) -> T {
        let name = metadata.name();
        let template = *self.rule.template();
        // Most names are their own template. A callsite's name is constant, so that can be
        // remembered.
        let address = std::ptr::from_ref(metadata).addr();
        let known = (address, template);
        let place = address / align_of::<Metadata<'static>>() % UNFOLDED_MAX;
        let is_known = || UNFOLDED.try_with(|places| places[place].get() == Some(known)).unwrap_or(false);
        if template == Template::RAW || is_known() {
            return f(name);
        }
        Self::with_folded(known, (name, place), f)
    }

    /// Like [`Key::with_static`], for a name that may change when folded. If it does not, `known`
    /// is stored at this place.
    #[inline(never)]
    fn with_folded<T>(
        known: (usize, Template),
        (name, place): (&str, usize),
        f: impl FnOnce(&str) -> T,
    ) -> T {
        Self::with_memory(|memory| {
            if known.1.fold(name, memory) {
                return f(memory);
            }
            let _ = UNFOLDED.try_with(|places| places[place].set(Some(known)));
            f(name)
        })
    }

    /// The key of `root`, written to `out` unless the name itself is the key.
    pub(crate) fn of<'a>(&self, root: &Root<'a>, out: &'a mut String) -> &'a str {
        out.clear();
        if let Some(custom) = &self.custom {
            custom(root, out);
            return out;
        }
        if self.by_path
            && root.name == REQUEST
            && let (Some(method), Some(uri)) = (root.attribute(METHOD), root.attribute(URI))
        {
            out.push_str(&method);
            out.push(' ');
            append_path(&uri, self.rule.template(), out);
            return out;
        }
        self.rule.key(root.name, &(root.attributes, &*self.of_resource), out)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custom = if self.custom.is_some() { "custom" } else { "built in" };
        f.debug_struct("Key").field("rule", &self.rule).field("by", &custom).finish()
    }
}

/// A local root that is about to be decided, with the data known by then.
pub struct Root<'a> {
    name: &'a str,
    attributes: &'a dyn Attributes,
}

impl<'a> Root<'a> {
    pub(crate) fn new(name: &'a str, attributes: &'a dyn Attributes) -> Self {
        Root { name, attributes }
    }

    /// The span's name: `otel.name` if it has that field.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The value of an attribute of the span, as text.
    pub fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.attribute(name)
    }
}

impl fmt::Debug for Root<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("name", &self.name).finish_non_exhaustive()
    }
}

/// OpenTelemetry's key-value pairs, of which the last one of a name counts.
pub(crate) struct Pairs<'a>(pub(crate) &'a [KeyValue]);

impl Attributes for Pairs<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let known = self.0.iter().rev().find(|attribute| attribute.key.as_str() == name)?;
        Some(known.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: Key, name: &str, attributes: &[KeyValue], expected: &str) {
        let mut memory = "what was there before".to_owned();
        assert_eq!(key.of(&Root::new(name, &Pairs(attributes)), &mut memory), expected);
    }

    #[test]
    fn ids_are_taken_out_of_names_by_default() {
        check(Key::default(), "sendBlock_1073741825", &[], "sendBlock_*");
        check(Key::default(), "GET /", &[], "GET /");
        check(Key::name(), "sendBlock_1073741825", &[], "sendBlock_1073741825");
    }

    /// `METHOD` and `URI` are read from the span as tower-http 0.6 makes it.
    #[test]
    fn requests_of_a_trace_layer_are_counted_by_method_and_path() {
        let of = |uri: &'static str| [KeyValue::new(METHOD, "GET"), KeyValue::new(URI, uri)];
        for (uri, key) in [
            ("/orders/17", "GET /orders/*"),
            ("/orders/10042?full=1#top", "GET /orders/*"),
            ("http://shop:80/orders/7", "GET /orders/*"),
            ("http://shop", "GET /"),
            ("/", "GET /"),
            ("/v2/users/", "GET /v2/users/"),
            ("/f/0b0a4d6e-6c1f-4d5e-9b1a-2f3c4d5e6f70", "GET /f/*"),
            ("/a/b/c/d/e/f", "GET /a/b/c/d/*"),
            ("*", "GET "),
        ] {
            check(Key::default(), REQUEST, &of(uri), key);
        }
        let long: &'static str = format!("/{}/b", "a".repeat(200)).leak();
        check(Key::default(), REQUEST, &of(long), "GET /*");
        // A rule that the service or a parameters file sets is obeyed to the letter.
        check(Key::name(), REQUEST, &of("/orders/17"), REQUEST);
        check(KeyRule::default().into(), REQUEST, &of("/orders/17"), REQUEST);
        check(Key::default().with_attribute(METHOD), REQUEST, &of("/orders/17"), "request;method=GET");
        check(Key::default(), REQUEST, &of("/orders/17")[..1], REQUEST);
    }

    #[test]
    fn attributes_follow_the_name_in_the_order_they_were_asked_for() {
        let key = || Key::default().with_attribute("http.route").with_attribute("http.request.method");
        let given =
            [KeyValue::new("http.request.method", "GET"), KeyValue::new("http.route", "/orders/1234")];
        check(key(), "request", &given, "request;http.route=/orders/*;http.request.method=GET");
        check(key(), "request", &given[..1], "request;http.request.method=GET");
        check(key(), "request1234", &[], "request*");
        check(Key::name().with_attribute("n"), "x", &[KeyValue::new("n", 1234)], "x;n=1234");
    }

    #[test]
    fn the_resource_has_what_a_root_lacks() {
        let resource = Resource::builder_empty()
            .with_attributes([KeyValue::new("service.name", "shop"), KeyValue::new("http.route", "/")])
            .build();
        let key = Key::default().with_attribute("http.route").with_attribute("service.name");
        let key = key.with_resource(&resource);
        check(key.clone(), "x", &[KeyValue::new("http.route", "/a")], "x;http.route=/a;service.name=shop");
        check(key, "x", &[], "x;http.route=/;service.name=shop");
    }

    #[test]
    fn a_function_of_the_users_replaces_all() {
        let key = Key::custom(|root, out| {
            out.push_str(&root.attribute("tenant").unwrap_or_default());
            out.push_str(root.name());
        });
        check(key.clone(), "/x", &[KeyValue::new("tenant", "a")], "a/x");
        check(key, "/x", &[], "/x");
    }
}
