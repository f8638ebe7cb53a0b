//! Messages of others. More are in the goldens.

use astracer_baggage::{Baggage, Registry};

fn read(message: &[u8]) -> Result<String, String> {
    match Baggage::deserialize(message, &Registry::default()) {
        Ok(baggage) => Ok(format!("{baggage:?}")),
        Err(error) => Err(format!("{error}; {}", error.is_cut_short())),
    }
}

/// The message of one namespace `n` with the slot `k` and the value `v`.
const ONE: &[u8] = b"\x0a\x0b\x0a\x01n\x12\x06\x0a\x01k\x12\x01v";

#[test]
fn each_shorter_message_is_cut_short() {
    assert_eq!(read(ONE).unwrap(), r#"{"n/k": ["v"]}"#);
    for length in 1..ONE.len() {
        let error = read(&ONE[..length]).unwrap_err();
        assert_eq!(error, "the baggage ends early; true", "{length}");
    }
}

#[test]
fn a_key_is_required() {
    let error = "the baggage has a namespace or a slot without its key; false";
    assert_eq!(read(b"\x0a\x08\x12\x06\x0a\x01k\x12\x01v").unwrap_err(), error);
    assert_eq!(read(b"\x0a\x08\x0a\x01n\x12\x03\x12\x01v").unwrap_err(), error);
}

/// Protocol Buffers, "Encoding": wire types 0, 1, 2 and 5, and groups, which are nested.
#[test]
fn unknown_fields_of_each_type_are_skipped() {
    let unknown: [&[u8]; 7] = [
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x19\x01\x02\x03\x04\x05\x06\x07\x08",
        b"\x1a\x03abc",
        b"\x1d\x01\x02\x03\x04",
        b"\x1b\x1c",
        b"\x1b\x23\x08\x01\x24\x1a\x01x\x1c",
        b"\x08\x01",
    ];
    for field in unknown {
        let message = [field, ONE, field].concat();
        assert_eq!(read(&message).unwrap(), r#"{"n/k": ["v"]}"#, "{field:x?}");
        let registry = Registry::default();
        let received = Baggage::deserialize(&message, &registry).unwrap();
        assert_eq!(received.serialize(usize::MAX, &registry), ONE);
    }
}

#[test]
fn what_no_encoder_writes_is_refused() {
    let deep: Vec<u8> = [0x1b].repeat(200);
    let broken: [&[u8]; 10] = [
        b"\x00",
        b"\x00\x01",
        b"\x02\x00",
        b"\x1c",
        b"\x1b\x24",
        b"\x1e",
        b"\x1f",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        &deep,
    ];
    for message in broken {
        assert!(read(message).is_err(), "{message:x?}");
        assert!(read(&[ONE, message].concat()).is_err(), "{message:x?}");
    }
}

/// A length may be written in more bytes than it needs. What we write does not.
#[test]
fn long_forms_are_read_and_not_passed_on() {
    let long = b"\x0a\x8c\x00\x0a\x81\x00n\x12\x06\x0a\x01k\x12\x01v";
    let registry = Registry::default();
    let received = Baggage::deserialize(long, &registry).unwrap();
    assert_eq!(received.serialize(usize::MAX, &registry), ONE);
}

/// Neighbours that are the same: a value, a slot or a namespace that is written twice.
#[test]
fn repetitions_are_not_passed_on() {
    let repeated: [&[u8]; 3] = [
        b"\x0a\x0e\x0a\x01n\x12\x09\x0a\x01k\x12\x01v\x12\x01v",
        b"\x0a\x13\x0a\x01n\x12\x06\x0a\x01k\x12\x01v\x12\x06\x0a\x01k\x12\x01v",
        &[ONE, ONE].concat(),
    ];
    for message in repeated {
        let registry = Registry::default();
        let received = Baggage::deserialize(message, &registry).unwrap();
        assert_eq!(received.serialize(usize::MAX, &registry), ONE);
    }
}

/// In whatever order and however often they are written: the same bytes.
#[test]
fn order_and_repetition_do_not_matter() {
    let first = b"\x0a\x0e\x0a\x01n\x12\x09\x0a\x01k\x12\x01w\x12\x01v";
    let second = b"\x0a\x0b\x0a\x01m\x12\x06\x0a\x01k\x12\x01v";
    let registry = Registry::default();
    let messages = [
        [&first[..], second].concat(),
        [&second[..], first].concat(),
        [&first[..], second, first, ONE].concat(),
    ];
    let all = messages
        .map(|message| Baggage::deserialize(&message, &registry).unwrap().serialize(usize::MAX, &registry));
    assert_eq!(all[0], [&second[..], b"\x0a\x0e\x0a\x01n\x12\x09\x0a\x01k\x12\x01v\x12\x01w"].concat());
    assert!(all[1] == all[0] && all[2] == all[0]);
}
