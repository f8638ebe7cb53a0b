//! Namespaces, slots and copies.

use astracer_baggage::{Baggage, Registry};

#[test]
fn an_empty_baggage_is_as_large_as_a_vector_and_a_pointer() {
    assert!(size_of::<Baggage>() <= 4 * size_of::<usize>());
}

#[test]
fn names_are_given_once() {
    let registry = Registry::default();
    registry.register("tenant", 0).unwrap();
    let taken = registry.register("tenant", 1).unwrap_err().to_string();
    assert_eq!(
        taken,
        "the namespace 'tenant' is already registered; share its token, or choose another name"
    );
    let reserved = registry.register("astracer.trimmed", 1).unwrap_err().to_string();
    assert!(reserved.contains("reserved"), "{reserved}");
}

#[test]
fn copies_are_equal_and_independent() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut one = Baggage::new();
    one.add(&token, b"k", b"1");
    let mut two = one.split();
    two.add(&token, b"k", b"2");
    one.remove(&token, b"k");
    assert!(one.is_empty() && !one.has(&token, b"k"));
    assert_eq!(two.get(&token, b"k").collect::<Vec<_>>(), [b"1", b"2"]);
    one.merge(two, &registry);
    assert_eq!(one.get(&token, b"k").collect::<Vec<_>>(), [b"1", b"2"]);
}

#[test]
fn changes_that_change_nothing_leave_an_empty_baggage_empty() {
    let registry = Registry::default();
    let (from, to) = (registry.register("n", 0).unwrap(), registry.register("m", 0).unwrap());
    let mut baggage = Baggage::new();
    baggage.replace(&from, b"k", []);
    baggage.remove(&from, b"k");
    baggage.clear(&from);
    baggage.move_to(&from, &to);
    assert!(baggage.is_empty() && baggage.is_complete());
    assert!(baggage.serialize(0, &registry).is_empty());
}

/// Namespaces of other processes stay as they are, also if this process changes its own.
#[test]
fn unknown_namespaces_pass_through() {
    let theirs = Registry::default();
    let unknown = theirs.register("unknown", 0).unwrap();
    let mut sent = Baggage::new();
    sent.add(&unknown, b"", b"");
    let message = sent.serialize(usize::MAX, &theirs);

    let ours = Registry::default();
    let known = ours.register("known", 0).unwrap();
    let mut received = Baggage::deserialize(&message, &ours).unwrap();
    assert_eq!(received.serialize(usize::MAX, &ours), message);
    received.add(&known, b"k", b"v");
    received.remove(&known, b"k");
    assert_eq!(received.serialize(usize::MAX, &ours), message);
}
