//! Mutations that are hard on parsers: long numbers, deep nesting, truncated input.
//!
//! proptest chooses the mutations and shrinks a failing list of them. The mutations themselves are
//! written here because no library has them: random bytes do not get past the first token of a
//! trace format, and libFuzzer, which learns the formats by itself, needs a nightly compiler and
//! minutes.

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A part of an input: a start, and a length that is more often short than long.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    start: Index,
    length: Index,
    halvings: u32,
}

/// One change of an input.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    /// Flips one bit.
    FlipBit { at: Index, bit: u8 },
    /// Overwrites one byte with a byte that is special to parsers.
    SetByte { at: Index, byte: u8 },
    /// Truncates the input.
    Truncate { at: Index },
    /// Removes a part.
    Remove { part: Part },
    /// Inserts copies of a part at another place.
    Repeat { part: Part, at: Index, times: usize },
    /// Overwrites a part with a part of another seed.
    Splice { part: Part, seed: Index, from: Part },
    /// Replaces a number.
    Number { at: Index, digits: Vec<u8> },
    /// Wraps a value in nested lists or objects. If `closed` is less than `open`, some are left
    /// open.
    Nest { at: Index, length: usize, bracket: usize, open: usize, closed: usize },
    /// Makes a part the content of nested length-delimited fields of protobuf.
    NestFields { part: Part, field: u8, levels: usize },
    /// Inserts a word that has a meaning in some format.
    Word { at: Index, word: &'static [u8] },
}

/// Bytes that are special to parsers.
const BYTES: &[u8] = b"\0\n\r\"\\{}[]:,|;- 09aAzZ\x7f\x80\xc0\xe2\xff";

const WORDS: &[&[u8]] = &[
    b"null",
    b"true",
    b"NaN",
    b"{}",
    b"[]",
    b"\"\"",
    b"\"\\ud800\"",
    b"\\u0000",
    b"\\",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\r\n",
    b"\n\n",
    b",,",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\x0a\x00",
];

/// Numbers around the limits of integers and floating point.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "01",
    "255",
    "65536",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1e19",
    "1e308",
    "1e309",
    "-1e400",
    "1e-400",
    "0.1",
    "1.",
    ".5",
    "1E",
];

const BRACKETS: &[(&[u8], &[u8])] = &[
    (b"[", b"]"),
    (b"{\"a\":", b"}"),
    (b"{\"value\":{\"arrayValue\":{\"values\":[", b"]}}}"),
    (b"{\"kvlistValue\":{\"values\":[{\"key\":\"k\",\"value\":", b"}]}}"),
];

/// Any mutation.
pub(crate) fn any_mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    let power = |end: u32| (0..end).prop_map(|bits| 1_usize << bits);
    let digits = prop_oneof![
        3 => select(NUMBERS).prop_map(|number| number.as_bytes().to_vec()),
        1 => (select(b"019".as_slice()), power(12)).prop_map(|(digit, length)| vec![digit; length]),
    ];
    let nesting = power(14).prop_flat_map(|open| (Just(open), prop_oneof![2 => Just(open), 1 => 0..=open]));
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::FlipBit { at, bit }),
        (at(), select(BYTES)).prop_map(|(at, byte)| Mutation::SetByte { at, byte }),
        at().prop_map(|at| Mutation::Truncate { at }),
        any_part().prop_map(|part| Mutation::Remove { part }),
        (any_part(), at(), power(6)).prop_map(|(part, at, times)| Mutation::Repeat { part, at, times }),
        (any_part(), at(), any_part()).prop_map(|(part, seed, from)| Mutation::Splice { part, seed, from }),
        (at(), digits).prop_map(|(at, digits)| Mutation::Number { at, digits }),
        (at(), 0..64_usize, 0..BRACKETS.len(), nesting).prop_map(|(at, length, bracket, (open, closed))| {
            Mutation::Nest { at, length, bracket, open, closed }
        }),
        (any_part(), 1..16_u8, power(9))
            .prop_map(|(part, field, levels)| { Mutation::NestFields { part, field, levels } }),
        (at(), select(WORDS)).prop_map(|(at, word)| Mutation::Word { at, word }),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    (any::<Index>(), any::<Index>(), 0..8_u32).prop_map(|(start, length, halvings)| Part {
        start,
        length,
        halvings,
    })
}

impl Part {
    fn of(&self, length: usize) -> std::ops::Range<usize> {
        let start = self.start.index(length + 1);
        let longest = (length - start) >> self.halvings;
        start..start + self.length.index(longest + 1)
    }
}

impl Mutation {
    /// Changes `input`; `seeds` are inputs to splice with.
    pub(crate) fn apply(&self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        match self {
            Self::FlipBit { at, bit } if !input.is_empty() => *at.get_mut(input) ^= 1 << bit,
            Self::SetByte { at, byte } if !input.is_empty() => *at.get_mut(input) = *byte,
            Self::FlipBit { .. } | Self::SetByte { .. } => {}
            Self::Truncate { at } => input.truncate(at.index(input.len() + 1)),
            Self::Remove { part } => {
                input.drain(part.of(input.len()));
            }
            Self::Repeat { part, at, times } => {
                let copies = input[part.of(input.len())].repeat(*times);
                let at = at.index(input.len() + 1);
                input.splice(at..at, copies);
            }
            Self::Splice { part, seed, from } => {
                if !seeds.is_empty() {
                    let seed = seed.get(seeds);
                    input.splice(part.of(input.len()), seed[from.of(seed.len())].iter().copied());
                }
            }
            Self::Number { at, digits } => replace_number(input, at, digits),
            Self::Nest { at, length, bracket, open, closed } => {
                let values: Vec<usize> =
                    (0..input.len()).filter(|&at| b"{[\"".contains(&input[at])).collect();
                let at = if values.is_empty() { 0 } else { *at.get(&values) };
                let end = (at + 1 + length).min(input.len()).max(at);
                let (opening, closing) = BRACKETS[*bracket];
                input.splice(end..end, closing.repeat(*closed));
                input.splice(at..at, opening.repeat(*open));
            }
            Self::NestFields { part, field, levels } => {
                let part = part.of(input.len());
                let nested =
                    (0..*levels).fold(input[part.clone()].to_vec(), |content, _| wrap(*field, content));
                input.splice(part, nested);
            }
            Self::Word { at, word } => {
                let at = at.index(input.len() + 1);
                input.splice(at..at, word.iter().copied());
            }
        }
    }
}

fn replace_number(input: &mut Vec<u8>, at: &Index, digits: &[u8]) {
    let starts: Vec<usize> = (0..input.len())
        .filter(|&at| input[at].is_ascii_digit() && (at == 0 || !input[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = *at.get(&starts);
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    input.splice(start..start + length, digits.iter().copied());
}

/// A length-delimited field of protobuf: tag, length as a varint, content.
fn wrap(field: u8, mut content: Vec<u8>) -> Vec<u8> {
    let mut wrapped = vec![field << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        wrapped.push(length as u8 | 0x80);
        length >>= 7;
    }
    wrapped.push(length as u8);
    wrapped.append(&mut content);
    wrapped
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Checks that some of 5000 single mutations of `seed` reach a state.
    #[track_caller]
    fn check_reaches(seed: &[u8], reached: impl Fn(&Mutation, &[u8]) -> bool) {
        let mut runner = TestRunner::deterministic();
        let found = (0..5000).any(|_| {
            let mutation = any_mutation().new_tree(&mut runner).unwrap().current();
            let mut input = seed.to_vec();
            mutation.apply(&mut input, &[b"other".to_vec()]);
            reached(&mutation, &input)
        });
        assert!(found);
    }

    #[test]
    fn an_empty_input_survives_every_mutation() {
        let mut runner = TestRunner::deterministic();
        for _ in 0..1000 {
            any_mutation().new_tree(&mut runner).unwrap().current().apply(&mut Vec::new(), &[]);
        }
    }

    #[test]
    fn numbers_reach_the_edges_and_hundreds_of_digits() {
        let seed = br#"{"n": 12}"#;
        check_reaches(seed, |_, input| input == br#"{"n": 18446744073709551616}"#);
        check_reaches(seed, |_, input| input.iter().filter(|&&byte| byte == b'9').count() > 500);
    }

    #[test]
    fn nesting_is_deep_and_balanced_or_left_open() {
        let count = |input: &[u8], wanted: u8| input.iter().filter(|&&byte| byte == wanted).count();
        check_reaches(b"[1]", |_, input| count(input, b'[') > 5000);
        check_reaches(b"[1]", |_, input| count(input, b'[') > 9 && count(input, b'[') == count(input, b']'));
        check_reaches(b"[1]", |_, input| count(input, b'[') > 9 && count(input, b'[') > count(input, b']'));
    }

    #[test]
    fn nested_fields_are_well_formed() {
        // Field 1 twice: a tag, the length of the rest, and the same inside.
        assert_eq!(wrap(1, wrap(1, vec![8, 1])), b"\x0a\x04\x0a\x02\x08\x01");
        assert_eq!(wrap(2, vec![7; 300])[..4], [0x12, 0xac, 0x02, 7]);
    }

    #[test]
    fn parts_of_other_seeds_are_spliced_in() {
        check_reaches(b"[1]", |mutation, input| {
            matches!(mutation, Mutation::Splice { .. }) && input.windows(3).any(|part| part == b"the")
        });
    }
}
