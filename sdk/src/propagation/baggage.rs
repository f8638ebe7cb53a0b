//! W3C Baggage, including several headers.
//!
//! Members that this process does not change are passed on as they were received, in their order.
//! The propagator of `opentelemetry_sdk` encodes them anew: it reads only the first header, ends a
//! value at a second `=`, and leaves a `%` as it is. By "Header Content", there may be several
//! headers, which form one list, and a value may contain `=`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use opentelemetry::baggage::{Baggage as Values, BaggageExt as _, BaggageMetadata, KeyValueMetadata};
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::{Context, StringValue};

use super::percent_decoded;

const BAGGAGE: &str = "baggage";

/// The member that carries data of `astracer-baggage`.
const OURS: &str = "astracer";

/// The length up to which the list has to be read ("Limits"). A longer list is ignored.
const LENGTH_MAX: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct Baggage;

/// The members of a received list, in its order; a value of the context.
struct Received(Vec<Member>);

/// The values of our member of a received list; a value of the context. It is not among the
/// context's baggage, and [`Baggage`] does not write it: a propagator does not know to whom it
/// writes.
struct ReceivedFlow(String);

/// Returns the value of the member `astracer` of the caller's W3C Baggage, which belongs to
/// `astracer-baggage`. If the caller has sent it several times, the values are separated by commas,
/// which no value contains.
pub fn received_flow(context: &Context) -> Option<&str> {
    context.get::<ReceivedFlow>().map(|received| received.0.as_str())
}

/// Writes the members of a context's baggage into the header `baggage`, as the SDK's propagator
/// does: those that were received and not changed leave as they came.
pub fn inject_baggage(context: &Context, injector: &mut dyn Injector) {
    Baggage.inject_context(context, injector);
}

/// Writes a member of W3C Baggage: its key as it is, and its value percent-encoded.
pub fn baggage_member(key: &str, value: &str) -> String {
    member(key, value, &BaggageMetadata::default())
}

struct Member {
    key: String,
    /// The value and metadata under this key in the context's baggage when it was received. `None`:
    /// the context cannot hold it.
    held: Option<(StringValue, BaggageMetadata)>,
    text: String,
}

impl TextMapPropagator for Baggage {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let values = context.baggage();
        // Code that clears the baggage means all of it.
        if values.is_empty() {
            return;
        }
        let received = context.get::<Received>().map_or(&[][..], |received| &received.0);
        let mut written = HashSet::new();
        let mut parts: Vec<Cow<'_, str>> = Vec::new();
        for Member { key, held, text } in received {
            let is_as_received = match held {
                Some(held) => values.get_with_metadata(key) == Some(held),
                None => values.get(key).is_none(),
            };
            if is_as_received {
                written.insert(key.as_str());
                parts.push(Cow::Borrowed(text));
            }
        }
        let new = values.iter().filter(|(key, _)| !written.contains(key.as_str()));
        let mut new: Vec<String> =
            new.map(|(key, (value, metadata))| member(key.as_str(), value.as_str(), metadata)).collect();
        new.sort_unstable();
        parts.extend(new.into_iter().map(Cow::Owned));
        injector.set(BAGGAGE, parts.join(","));
    }

    fn extract_with_context(&self, context: &Context, extractor: &dyn Extractor) -> Context {
        let list = join(&extractor.get_all(BAGGAGE).unwrap_or_default());
        if list.len() > LENGTH_MAX {
            return context.clone();
        }
        let mut values = Values::new();
        let mut members = Vec::new();
        let mut ours: Option<String> = None;
        for text in list.split(',').map(str::trim) {
            let (pair, metadata) = text.split_once(';').unwrap_or((text, ""));
            let Some((key, value)) = pair.split_once('=') else { continue };
            let key = key.trim().to_owned();
            if key == OURS {
                ours = Some(ours.map_or_else(String::new, |first| first + ",") + value.trim());
                continue;
            }
            // A `%` without two digits is kept; bytes that are not UTF-8 become U+FFFD
            // ("Value").
            let value = String::from_utf8_lossy(&percent_decoded(value.trim()).0).into_owned();
            values.insert_with_metadata(key.clone(), value, metadata.trim());
            members.push(Member { key, held: None, text: text.to_owned() });
        }
        let context = match ours {
            Some(value) => &context.with_value(ReceivedFlow(value)),
            None => context,
        };
        if members.is_empty() {
            return context.clone();
        }
        for member in &mut members {
            member.held = values.get_with_metadata(&member.key).cloned();
        }
        let pairs = values.iter().map(|(key, (value, metadata))| {
            KeyValueMetadata::new(key.clone(), value.clone(), metadata.clone())
        });
        context.with_value(Received(members)).with_baggage(pairs)
    }

    fn fields(&self) -> FieldIter<'_> {
        static FIELDS: OnceLock<[String; 1]> = OnceLock::new();
        FieldIter::new(FIELDS.get_or_init(|| [BAGGAGE.to_owned()]))
    }
}

fn member(key: &str, value: &str, metadata: &BaggageMetadata) -> String {
    let mut text = format!("{key}=");
    for byte in value.bytes() {
        // The set `baggage-octet`, without `%`, which begins an encoded byte.
        match byte {
            b'"' | b'%' | b',' | b';' | b'\\' => text.push_str(&format!("%{byte:02X}")),
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    if !metadata.as_str().is_empty() {
        text.push(';');
        text.push_str(metadata.as_str());
    }
    text
}

/// Joins the lists that fit within the limit.
fn join(lists: &[&str]) -> String {
    let mut joined = String::new();
    for list in lists {
        let separator = if joined.is_empty() { "" } else { "," };
        if joined.len() + separator.len() + list.len() <= LENGTH_MAX {
            joined.push_str(separator);
            joined.push_str(list);
        }
    }
    // If none fits, the result is too long, and the context stays as it is.
    if joined.is_empty() { lists.concat() } else { joined }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use opentelemetry::KeyValue;

    use super::*;

    fn received(list: &str) -> Context {
        let headers = HashMap::from([(BAGGAGE.to_owned(), list.to_owned())]);
        Baggage.extract_with_context(&Context::new(), &headers)
    }

    fn sent(context: &Context) -> Option<String> {
        let mut headers = HashMap::new();
        Baggage.inject_context(context, &mut headers);
        headers.remove(BAGGAGE)
    }

    /// The members of the specification's examples, and those that the stock propagator changes.
    #[test]
    fn members_are_passed_on_as_they_came() {
        for list in [
            "key1=value1;property1;property2,key2 = value2,key3=value3; propertyKey=propertyValue",
            "userId=Am%C3%A9lie,serverNode=DF%2028,isProduction=false",
            "z=1,k=a==,p=50%25,q=50%,a=%zz,e=",
            "k=1,k=2",
        ] {
            assert_eq!(sent(&received(list)).as_deref(), Some(list));
        }
    }

    /// The propagator takes our member out and never writes it; only astracer-baggage does.
    #[test]
    fn our_member_is_taken_out() {
        let context = received("k=a==, astracer = CgEy ;x,p=50%25");
        assert_eq!((received_flow(&context), context.baggage().len()), (Some("CgEy"), 2));
        assert_eq!(sent(&context).as_deref(), Some("k=a==,p=50%25"));
        let alone = received("astracer=CgEy");
        assert!(alone.baggage().is_empty() && sent(&alone).is_none());
        assert_eq!(received_flow(&received("astracer=CgEy,astracer=Cg,astracer")), Some("CgEy,Cg"));
        assert_eq!(received_flow(&received("Astracer=x,k=astracer")), None);
    }

    #[test]
    fn values_are_decoded() {
        let context = received("userId=Am%C3%A9lie,k=a==,p=50%25,q=50%, r = 1 ;x");
        let value = |key: &str| context.baggage().get(key).map(|value| value.as_str().to_owned());
        let values = ["userId", "k", "p", "q", "r"].map(|key| value(key).unwrap());
        assert_eq!(values, ["Amélie", "a==", "50%", "50%", "1"]);
    }

    #[test]
    fn changed_and_new_members_are_encoded_and_removed_ones_leave() {
        let context = received("z=1,k=a==,p=50%25;m");
        let mut pairs: Vec<KeyValue> = vec![KeyValue::new("k", "a=="), KeyValue::new("new", "50% \u{e9};")];
        assert_eq!(sent(&context.with_baggage(pairs.clone())).unwrap(), "k=a==,new=50%25%20%C3%A9%3B");
        pairs[0] = KeyValue::new("k", "b");
        assert_eq!(sent(&context.with_baggage(pairs)).unwrap(), "k=b,new=50%25%20%C3%A9%3B");
        assert_eq!(sent(&context.with_cleared_baggage()), None);
    }
}
