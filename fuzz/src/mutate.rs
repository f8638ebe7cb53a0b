//! A small seeded mutator. It knows what hurts parsers (long numbers, deep nesting, cut input), not the formats.
//!
//! The same seed gives the same inputs on every machine and in every version: the generator is our own.

use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", figure 17).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 if `end` is 0. The bias of the remainder is of no matter here.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % (end.max(1) as u64)) as usize
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A range inside of `0..len`, short more often than long.
    fn range(&mut self, len: usize) -> Range<usize> {
        let start = self.below(len + 1);
        let longest = (len - start) >> self.below(8);
        start..start + self.below(longest + 1)
    }
}

/// A way to change an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// One bit changes.
    FlipBit,
    /// One byte becomes one that parsers care about.
    SetByte,
    /// The end is missing.
    Truncate,
    /// A part is missing.
    Remove,
    /// A part comes twice or more.
    Repeat,
    /// A part is overwritten by a part of another input.
    Splice,
    /// A number becomes one at an edge, or one with hundreds of digits.
    Digits,
    /// A value is wrapped in many levels of lists or objects, of which some are left open.
    Nest,
    /// A part becomes the content of many length-delimited fields of protobuf, one in the other.
    NestFields,
    /// A word that formats give a meaning to is inserted.
    Word,
}

impl Mutation {
    /// Every way.
    pub const ALL: &'static [Mutation] = &[
        Self::FlipBit,
        Self::SetByte,
        Self::Truncate,
        Self::Remove,
        Self::Repeat,
        Self::Splice,
        Self::Digits,
        Self::Nest,
        Self::NestFields,
        Self::Word,
    ];

    /// Changes `input`. `others` are inputs to splice with.
    pub fn apply(self, random: &mut Random, input: &mut Vec<u8>, others: &[Vec<u8>]) {
        match self {
            Self::FlipBit => {
                let (at, bit) = (random.below(input.len()), random.below(8));
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::SetByte => {
                let at = random.below(input.len());
                if let Some(byte) = input.get_mut(at) {
                    *byte = *random.pick(b"\0\n\r\"\\{}[]:,|;- 09aAzZ\x7f\x80\xc0\xe2\xff");
                }
            }
            Self::Truncate => {
                let length = random.below(input.len());
                input.truncate(length);
            }
            Self::Remove => {
                let part = random.range(input.len());
                input.drain(part);
            }
            Self::Repeat => {
                let part = random.range(input.len());
                let at = if random.below(2) == 0 { part.end } else { random.below(input.len() + 1) };
                let times = 1 << random.below(6);
                let copies = input[part].repeat(times);
                input.splice(at..at, copies);
            }
            Self::Splice => {
                let Some(other) = (!others.is_empty()).then(|| random.pick(others)) else { return };
                let part = other[random.range(other.len())].to_vec();
                let target = random.range(input.len());
                input.splice(target, part);
            }
            Self::Digits => digits(random, input),
            Self::Nest => nest(random, input),
            Self::NestFields => nest_fields(random, input),
            Self::Word => {
                let word = *random.pick(WORDS);
                let at = random.below(input.len() + 1);
                input.splice(at..at, word.iter().copied());
            }
        }
    }
}

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

/// Around the edges of the integers and of floating point.
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

fn digits(random: &mut Random, input: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..input.len())
        .filter(|&at| input[at].is_ascii_digit() && (at == 0 || !input[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = *random.pick(&starts);
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = if random.below(4) == 0 {
        let digit = *random.pick(b"019");
        vec![digit; 1 << random.below(12)]
    } else {
        random.pick(NUMBERS).as_bytes().to_vec()
    };
    input.splice(start..start + length, number);
}

const BRACKETS: &[(&[u8], &[u8])] = &[
    (b"[", b"]"),
    (b"{\"a\":", b"}"),
    (b"{\"value\":{\"arrayValue\":{\"values\":[", b"]}}}"),
    (b"{\"kvlistValue\":{\"values\":[{\"key\":\"k\",\"value\":", b"}]}}"),
];

fn nest(random: &mut Random, input: &mut Vec<u8>) {
    let values: Vec<usize> = (0..input.len()).filter(|&at| b"{[\"".contains(&input[at])).collect();
    let at = if values.is_empty() { 0 } else { *random.pick(&values) };
    let (open, close) = *random.pick(BRACKETS);
    let levels = 1 << random.below(14);
    let closed = if random.below(3) == 0 { random.below(levels + 1) } else { levels };
    let end = (at + 1 + random.below(64)).min(input.len()).max(at);
    input.splice(end..end, close.repeat(closed));
    input.splice(at..at, open.repeat(levels));
}

fn nest_fields(random: &mut Random, input: &mut Vec<u8>) {
    let part = random.range(input.len());
    let mut content = input[part.clone()].to_vec();
    let field = 1 + random.below(15) as u8;
    for _ in 0..1 << random.below(9) {
        let mut wrapped = vec![field << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            wrapped.push(length as u8 | 0x80);
            length >>= 7;
        }
        wrapped.push(length as u8);
        wrapped.append(&mut content);
        content = wrapped;
    }
    input.splice(part, content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs for seed 1234567, as the algorithm's public test vectors have them.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.bits(), random.bits(), random.bits()], expected);
    }

    #[test]
    fn every_mutation_changes_a_seed_and_survives_an_empty_one() {
        let seed = br#"{"a": 12, "b": [1, "x"]}"#.to_vec();
        let others = [b"other".to_vec()];
        for &mutation in Mutation::ALL {
            let changed = (0..20).any(|number| {
                let mut input = seed.clone();
                mutation.apply(&mut Random::new(number), &mut input, &others);
                input != seed
            });
            assert!(changed, "{mutation:?}");
            for number in 0..20 {
                mutation.apply(&mut Random::new(number), &mut Vec::new(), &[]);
            }
        }
    }

    #[track_caller]
    fn check_reaches(mutation: Mutation, seed: &[u8], reached: impl Fn(&[u8]) -> bool) {
        let found = (0..10_000).any(|number| {
            let mut input = seed.to_vec();
            mutation.apply(&mut Random::new(number), &mut input, &[]);
            reached(&input)
        });
        assert!(found, "{mutation:?} never gives what is looked for");
    }

    #[test]
    fn digits_reach_the_edges_and_hundreds_of_digits() {
        let seed = br#"{"n": 12}"#;
        check_reaches(Mutation::Digits, seed, |input| input == br#"{"n": 18446744073709551616}"#);
        check_reaches(Mutation::Digits, seed, |input| {
            input.iter().filter(|&&byte| byte == b'9').count() > 500
        });
    }

    #[test]
    fn nesting_is_deep_balanced_or_left_open() {
        let count = |input: &[u8], wanted: u8| input.iter().filter(|&&byte| byte == wanted).count();
        check_reaches(Mutation::Nest, b"[1]", |input| count(input, b'[') > 5000);
        check_reaches(Mutation::Nest, b"[1]", |input| {
            count(input, b'[') > 9 && count(input, b'[') == count(input, b']')
        });
        check_reaches(Mutation::Nest, b"[1]", |input| {
            count(input, b'[') > 9 && count(input, b'[') > count(input, b']')
        });
    }

    #[test]
    fn nested_fields_are_well_formed() {
        // A tag, the length of what follows, and so on inside.
        check_reaches(Mutation::NestFields, b"\x08\x01", |input| input[1..] == *b"\x02\x08\x01");
        check_reaches(Mutation::NestFields, b"\x08\x01", |input| {
            input[1] == 4 && input[3..] == *b"\x02\x08\x01"
        });
    }
}
