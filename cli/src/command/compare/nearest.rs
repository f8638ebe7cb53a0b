//! Names that were probably meant, if a name of an option is on no trace.

use std::borrow::Cow;
use std::collections::BTreeSet;

use astracer_recording::recording::Recording;

use crate::failure::Failure;
use crate::output::{brief, escaped};

/// The least similarity, from 0 to 1, of a name that is proposed. clap's for options is 0.7.
const SIMILARITY_MIN: f64 = 0.7;
/// The distinct values of an attribute that are looked at.
const VALUES_MAX: usize = 10_000;

/// The most similar of these names, as the end of a message.
fn proposal<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> String {
    let similar = names.map(|name| (strsim::jaro(wanted, name), name));
    let best = similar.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
    match best.filter(|&(similarity, name)| similarity >= SIMILARITY_MIN && name != wanted) {
        Some((_, name)) => format!("; did you mean '{}'?", brief(name)),
        None => String::new(),
    }
}

/// The failure if no trace has a root of this name.
pub(super) fn no_root(root: &str, recordings: &[&Recording]) -> Failure {
    let traces = recordings.iter().flat_map(|recording| recording.traces());
    let names: BTreeSet<&str> = traces.map(|trace| trace.root().name()).collect();
    Failure::Job(format!(
        "no trace has a root named '{}'{}; `astracer inspect` lists the roots",
        escaped(root),
        proposal(root, names.into_iter())
    ))
}

/// The failure if no trace has this attribute with this value.
pub(super) fn no_attribute(key: &str, value: &str, recordings: &[&Recording]) -> Failure {
    let (mut keys, mut values) = (BTreeSet::new(), BTreeSet::new());
    for recording in recordings {
        let texts = recording.content_texts();
        for content in recording.traces().flat_map(|trace| trace.spans()).filter_map(|span| span.content()) {
            for &(own, kept) in content.attributes.iter().chain(content.resource_attributes) {
                let name = texts.name(own);
                keys.insert(name);
                if name == key && values.len() < VALUES_MAX {
                    values.extend(kept.text(texts).map(Cow::into_owned));
                }
            }
        }
    }
    let reason = match keys.contains(key) {
        true => format!(
            "no trace has {}={}{}",
            escaped(key),
            escaped(value),
            proposal(value, values.iter().map(String::as_str))
        ),
        false => format!("no span has the attribute '{}'{}", escaped(key), proposal(key, keys.into_iter())),
    };
    Failure::Job(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_name_is_proposed() {
        let names = ["service.version", "customer.id", "region"];
        assert_eq!(proposal("servce.version", names.into_iter()), "; did you mean 'service.version'?");
        assert_eq!(proposal("x", names.into_iter()), "");
        assert_eq!(proposal("region", ["region"].into_iter()), "");
    }
}
