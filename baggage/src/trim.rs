//! Removing values until baggage fits within a bound.
//!
//! Values that take more than three quarters of the bound go first. Then the namespaces of the
//! lowest priority lose their values, among those of one priority the last in byte order, and in a
//! namespace the last values of the last keys. The namespace [`TRIMMED`] names the namespaces that
//! lost something. It takes about a quarter of the bound at most, and is not removed for others.

use crate::contents::{Contents, bytes_alone};
use crate::registry::{Registry, TRIMMED};
use crate::wire::field_bytes;

/// The slot of names.
const NAMES: &[u8] = b"names";
/// The slot that exists if more namespaces are incomplete than are named.
const MORE: &[u8] = b"more";

/// Removes values until the message has at most `limit` bytes.
pub(crate) fn trim(contents: &mut Contents, limit: usize, registry: &Registry) {
    if contents.bytes() <= limit {
        return;
    }
    shorten_names(contents, limit);
    let mut lost = 0;
    for name in contents.names().filter(|name| ***name != *TRIMMED).cloned().collect::<Vec<_>>() {
        let removed = contents.retain(&name, |key, value| !crowds_out(&name, key, value, limit));
        if removed > 0 {
            note(contents, &name, limit);
            lost += removed;
        }
    }
    lost += remove_least(contents, limit, registry);
    registry.note_trim(lost);
}

/// Adds a value, and removes those that come last if there are too many.
pub(crate) fn add(
    contents: &mut Contents,
    (name, key, value): (&[u8], &[u8], &[u8]),
    limit: usize,
    registry: &Registry,
) {
    // It is refused before it is in, because a search for such values would cost too much for one
    // that is added.
    if crowds_out(name, key, value, limit) {
        return lose(contents, name, 1, registry);
    }
    contents.add(name, key, value);
    if contents.bytes() > limit {
        shorten_names(contents, limit);
        let lost = remove_least(contents, limit, registry);
        registry.note_trim(lost);
    }
}

/// Notes and counts values that a namespace has lost.
pub(crate) fn lose(contents: &mut Contents, name: &[u8], values: usize, registry: &Registry) {
    let limit = registry.limits().flow();
    note(contents, name, limit);
    let also = remove_least(contents, limit, registry);
    registry.note_trim(values + also);
}

/// Whether a value would leave less than a quarter of the bound to others.
fn crowds_out(name: &[u8], key: &[u8], value: &[u8], limit: usize) -> bool {
    bytes_alone(name, key, value) > limit - limit / 4
}

/// Removes the values that come last. Returns their number.
fn remove_least(contents: &mut Contents, limit: usize, registry: &Registry) -> usize {
    if contents.bytes() <= limit {
        return 0;
    }
    let mut lost = 0;
    let mut ranked = registry.ranked(contents.names().filter(|name| ***name != *TRIMMED));
    while contents.bytes() > limit {
        let Some((_, name)) = ranked.pop() else {
            // Only names are left, and the bound is smaller than a settable one.
            contents.take(TRIMMED);
            break;
        };
        note(contents, &name, limit);
        while contents.bytes() > limit && contents.remove_last(&name) {
            lost += 1;
        }
    }
    lost
}

/// Notes that a namespace is incomplete.
pub(crate) fn note(contents: &mut Contents, name: &[u8], limit: usize) {
    if is_noted(contents, name) {
        return;
    }
    let room = (limit / 4).saturating_sub(contents.namespace_bytes(TRIMMED));
    // The slot and the namespace come with the first name.
    let fits = field_bytes(name.len()) + TRIMMED.len() + NAMES.len() <= room;
    if fits { contents.add(TRIMMED, NAMES, name) } else { contents.add(TRIMMED, MORE, b"") }
}

/// Keeps the names within their part of the bound; they may be from several processes.
fn shorten_names(contents: &mut Contents, limit: usize) {
    if contents.namespace_bytes(TRIMMED) <= limit / 4 {
        return;
    }
    if let Some(slots) = contents.take(TRIMMED) {
        slots.values(NAMES).for_each(|name| note(contents, name, limit));
        contents.add(TRIMMED, MORE, b"");
    }
}

/// Whether a namespace is noted as incomplete.
pub(crate) fn is_noted(contents: &Contents, name: &[u8]) -> bool {
    contents.slots(TRIMMED).is_some_and(|slots| slots.values(NAMES).any(|noted| noted == name))
}

/// The names of incomplete namespaces; `None` if none is incomplete.
pub(crate) fn trimmed(contents: &Contents) -> Option<impl Iterator<Item = &[u8]>> {
    contents.slots(TRIMMED).map(|slots| slots.values(NAMES))
}
