//! Bounds: losses are named, counted, and chosen by priority.

use astracer_baggage::{Baggage, Limits, Registry};

fn read(message: &[u8]) -> (Baggage, Registry) {
    let registry = Registry::default();
    (Baggage::deserialize(message, &registry).unwrap(), registry)
}

#[test]
fn the_defaults_are_those_of_the_documents() {
    let limits = Limits::default();
    assert_eq!((limits.flow(), limits.request(), limits.response()), (16_384, 3_000, 2_048));
    let least = Limits::default().with_flow(0).with_request(1).with_response(2);
    assert_eq!((least.flow(), least.request(), least.response()), (64, 64, 64));
}

#[test]
fn values_of_low_priority_go_first() {
    let registry = Registry::default();
    let high = registry.register("z", 1).unwrap();
    let low = registry.register("a", -1).unwrap();
    let mut baggage = Baggage::new();
    for index in 0..100_u8 {
        baggage.add(&high, b"k", &[index; 50]);
        baggage.add(&low, b"k", &[index; 50]);
    }
    let message = baggage.serialize(8_000, &registry);
    assert!(message.len() <= 8_000 && message.len() > 8_000 - 54, "{}", message.len());
    let received = Baggage::deserialize(&message, &registry).unwrap();
    assert_eq!(received.get(&high, b"k").count(), 100);
    // The first ones in byte order stay.
    assert!(received.get(&low, b"k").enumerate().all(|(index, value)| value[0] == index as u8));
    assert_eq!(received.trimmed().collect::<Vec<_>>(), [b"a"]);
    assert!(!received.is_complete() && baggage.is_complete());
    let kept = received.get(&low, b"k").count();
    assert_eq!((registry.losses().trims, registry.losses().values), (1, 100 - kept as u64));
}

#[test]
fn the_mark_survives_merges_and_messages() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut baggage = Baggage::new();
    (0..100_u8).for_each(|index| baggage.add(&token, b"k", &[index; 50]));
    let message = baggage.serialize(300, &registry);
    let (trimmed, _) = read(&message);
    let mut whole = Baggage::new();
    whole.add(&token, b"other", b"");
    whole.merge(trimmed, &registry);
    assert!(!whole.is_complete());
    assert_eq!(whole.trimmed().collect::<Vec<_>>(), [b"n"]);
    whole.clear(&token);
    assert!(!whole.is_empty());
}

/// A single large value does not push the others out.
#[test]
fn a_value_that_leaves_no_room_goes_first() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut baggage = Baggage::new();
    baggage.add(&token, b"a", &[0; 10_000]);
    baggage.add(&token, b"b", b"small");
    let sent = Baggage::deserialize(&baggage.serialize(3_000, &registry), &registry).unwrap();
    assert_eq!(sent.keys(&token).collect::<Vec<_>>(), [b"b"]);
    // In a flow, one is not added at all.
    baggage.add(&token, b"c", &vec![0; 1 << 20]);
    assert_eq!(baggage.keys(&token).collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(!baggage.is_complete());
}

#[test]
fn a_million_values_in_a_slot_stay_within_the_bound() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut baggage = Baggage::new();
    for index in 0..1_000_000_u32 {
        baggage.add(&token, b"k", &index.to_be_bytes());
    }
    let message = baggage.serialize(usize::MAX, &registry);
    assert!(message.len() <= 16 << 10, "{}", message.len());
    let kept = baggage.get(&token, b"k").count();
    // A value takes 6 bytes, and tags, lengths and the mark 50 at most.
    assert!((2_700..=2_731).contains(&kept), "{kept}");
    assert_eq!(registry.losses().values, 1_000_000 - kept as u64);
}

/// A megabyte of 100,000 members: each in its own namespace, in its own slot, or in one slot.
#[test]
fn a_message_of_a_megabyte_is_cut_to_the_bound() {
    for shape in 0..3 {
        let large = Registry::new(Limits::default().with_flow(usize::MAX));
        let one = large.register("n", 0).unwrap();
        let mut baggage = Baggage::new();
        for index in 0..100_000_u32 {
            let name = index.to_be_bytes();
            match shape {
                0 => baggage.add(&large.register(name, 0).unwrap(), b"", b""),
                1 => baggage.add(&one, &name, b"v"),
                _ => baggage.add(&one, b"k", &name),
            }
        }
        let message = baggage.serialize(usize::MAX, &large);
        assert!(message.len() > 600_000);
        let (received, registry) = read(&message);
        let kept = received.serialize(usize::MAX, &registry);
        assert!(kept.len() <= 16 << 10 && kept.len() > 15_000, "{}", kept.len());
        assert!(!received.is_complete());
        // The names of 100,000 namespaces do not fit, so what is lost is only partly named.
        assert!(received.trimmed().map(|name| name.len() + 2).sum::<usize>() <= 4_096);
        assert_eq!(registry.losses().trims, 1);
    }
}

/// Many marks of other processes are shortened like ours.
#[test]
fn marks_of_others_leave_room() {
    let theirs = Registry::new(Limits::default().with_flow(usize::MAX));
    let mut mark = Baggage::new();
    // A name whose first letter is replaced in the bytes.
    let token = theirs.register("Xstracer.trimmed", 0).unwrap();
    (0..5_000_u32).for_each(|index| mark.add(&token, b"names", &index.to_be_bytes()));
    let mut message = mark.serialize(usize::MAX, &theirs);
    let place = message.windows(16).position(|window| window == b"Xstracer.trimmed").unwrap();
    message[place] = b'a';
    let (mut received, registry) = read(&message);
    // In a message, too, it takes a quarter at most.
    let short = Baggage::deserialize(&received.serialize(2_000, &registry), &registry).unwrap();
    let names: usize = short.trimmed().map(|name| name.len() + 2).sum();
    assert!((300..=500).contains(&names), "{names}");
    let own = registry.register("own", 0).unwrap();
    (0..3_000_u32).for_each(|index| received.add(&own, b"k", &index.to_be_bytes()));
    assert!(received.get(&own, b"k").count() > 1_900);
    assert!(!received.is_complete());
    assert!(received.serialize(usize::MAX, &registry).len() <= 16 << 10);
}

#[test]
fn a_bound_below_the_mark_gives_no_bytes() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut baggage = Baggage::new();
    baggage.add(&token, b"key", &[0; 100]);
    for limit in 0..64 {
        assert!(baggage.serialize(limit, &registry).len() <= limit);
    }
    assert!(!baggage.serialize(40, &registry).is_empty());
}
