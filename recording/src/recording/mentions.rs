//! Ids that a log record mentions, under whatever name.
//!
//! Once the spans are read, the ids of the recording's traces are known, and a number that equals
//! one of them does not equal it by chance. So every number of the shape of an id is kept until
//! then.

use astracer_model::ids::{SpanId, TraceId};

/// Ids that are kept of one record.
const MENTIONS_MAX: usize = 16;

/// The least decimal number that may be an id: of ids of 64 bits, one in 18,000 is less.
const DECIMAL_DIGITS_MIN: usize = 16;

/// The numbers of the shape of an id in the records of a recording.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    numbers: Vec<u128>,
    /// The end of each record's numbers.
    ends: Vec<u64>,
}

impl Mentions {
    /// Adds the next record, except for the ids that are known already.
    pub(super) fn add(&mut self, text: &[u8], (trace, span): (TraceId, SpanId)) {
        let first = self.numbers.len();
        let known = [0, trace.0, u128::from(span.0)];
        each_id(text, |number| {
            if !known.contains(&number) && !self.numbers[first..].contains(&number) {
                self.numbers.push(number);
            }
            self.numbers.len() - first < MENTIONS_MAX
        });
        self.ends.push(self.numbers.len() as u64);
    }

    /// The numbers of a record.
    pub(super) fn of(&self, record: usize) -> &[u128] {
        let end = self.ends.get(record).map_or(0, |&end| end as usize);
        let first = record.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.numbers.get(first..end).unwrap_or_default()
    }
}

/// Passes the numbers of a text that have the shape of an id, until `found` returns false: 16 or 32
/// hexadecimal digits, also as a UUID or as X-Ray writes them, and decimal numbers of 64 bits.
pub fn each_id(text: &[u8], mut found: impl FnMut(u128) -> bool) {
    let mut at = next_word(text, 0);
    while at < text.len() {
        let start = if text[at..].starts_with(b"0x") || text[at..].starts_with(b"0X") { at + 2 } else { at };
        let end = start + text[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        // `nr-1a2b...` and `_1a2b...` are apart from their prefix, but `s1a2b...` is not.
        let (hex, hex_end) = match grouped(&text[start..], end - start) {
            Some((number, len)) => (Some(number), start + len),
            None if matches!(end - start, 16 | 32) => (hexadecimal(&text[start..end]), end),
            None => (None, end),
        };
        let is_decimal = (DECIMAL_DIGITS_MIN..=20).contains(&(end - start)) && hex_end == end;
        let decimal = is_decimal.then(|| decimal(&text[start..end])).flatten();
        for number in [hex, decimal].into_iter().flatten() {
            if !found(number) {
                return;
            }
        }
        at = next_word(text, hex_end);
    }
}

/// The least characters of an id, which are digits and dashes.
const PARTS_MIN: usize = 16;

/// The start of the next word that may hold an id, from the end of another word on. Most of a text
/// is not looked at: where every 16th character is no part of an id, there is none.
fn next_word(text: &[u8], from: usize) -> usize {
    let mut at = from;
    let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    while let Some(window) = text.get(at..at + PARTS_MIN) {
        let parts = window.iter().rev().take_while(|byte| is_part(byte)).count();
        at += PARTS_MIN - parts;
        if parts > 0 {
            // Its word may begin with other letters, as that of `0x1a2b` does.
            at -= text[from..at].iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            return at + text[at..].iter().take_while(|byte| !byte.is_ascii_alphanumeric()).count();
        }
    }
    text.len()
}

/// The number of a UUID, or of X-Ray's 8 and 24 digits, and its length.
fn grouped(text: &[u8], first: usize) -> Option<(u128, usize)> {
    if first != 8 {
        return None;
    }
    [&[8, 4, 4, 4, 12][..], &[8, 24]].into_iter().find_map(|groups| {
        let (mut number, mut at) = (0, 0);
        for &len in groups {
            if at > 0 {
                at += 1;
                if text.get(at - 1) != Some(&b'-') {
                    return None;
                }
            }
            number = number << (4 * len) | hexadecimal(text.get(at..at + len)?)?;
            at += len;
        }
        (!text.get(at).is_some_and(u8::is_ascii_alphanumeric)).then_some((number, at))
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, &digit| {
        char::from(digit).to_digit(16).map(|digit| number << 4 | u128::from(digit))
    })
}

fn decimal(digits: &[u8]) -> Option<u128> {
    let number = digits.iter().try_fold(0u64, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    });
    number.map(u128::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_shape_of_an_id_are_found() {
        const TRACE: u128 = 0x1a1afe878b33e968617959ce3f1f65a8;
        const SPAN: u128 = 0x3fd4235992edcf45;
        for (text, expected) in [
            ("trace=1a1afe878b33e968617959ce3f1f65a8 3fd4235992edcf45", &[TRACE, SPAN][..]),
            ("\"00-1A1AFE878B33E968617959CE3F1F65A8-3fd4235992edcf45-01\"", &[TRACE, SPAN]),
            ("projects/p/traces/1a1afe878b33e968617959ce3f1f65a8", &[TRACE]),
            ("{\"a\":{\"b\":\"1a1afe87-8b33-e968-6179-59ce3f1f65a8\"}}", &[TRACE]),
            ("Root=1-1a1afe87-8b33e968617959ce3f1f65a8;x", &[TRACE]),
            ("0x3fd4235992edcf45", &[SPAN]),
            // 0x3fd4235992edcf45
            ("4599339987076239173", &[SPAN]),
            // Both readings of 16 decimal digits.
            ("1234567890123456", &[0x1234567890123456, 1234567890123456]),
            ("x1a1afe878b33e968617959ce3f1f65a8 1a1afe878b33e968617959ce3f1f65a8f", &[]),
            ("99999999999999999999 3fd4235992edcf4g 2026-05-14", &[]),
        ] {
            let mut mentions = Mentions::default();
            mentions.add(text.as_bytes(), (TraceId::ZERO, SpanId::ZERO));
            assert_eq!(mentions.of(0), expected, "{text}");
        }
    }

    /// Words of random characters, each looked at from each of its places.
    #[test]
    fn no_id_is_skipped() {
        // Xorshift (G. Marsaglia, 2003).
        let mut state = 11u64;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let mut found_all = 0;
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..below(90))
                .map(|_| b"0123456789abcdef0123456789abcdef-- xX:g"[below(39) as usize])
                .collect();
            let (mut own, mut slow) = (Vec::new(), Vec::new());
            each_id(&text, |number| {
                own.push(number);
                true
            });
            let mut at = 0;
            while at < text.len() {
                let word = text[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                // The reference looks at each word, also near the end of the text.
                let mut ends = at + word.max(1);
                if word > 0 {
                    let mut first = Vec::new();
                    let padded = [&text[at..], &[b' '; 16]].concat();
                    first_ids(&padded, &mut first);
                    slow.extend(first.iter().map(|&(number, _)| number));
                    ends = first.last().map_or(ends, |&(_, len)| at + len).max(ends);
                }
                at = ends;
            }
            assert_eq!(own, slow, "{:?}", String::from_utf8_lossy(&text));
            found_all += own.len();
        }
        assert!(found_all > 300, "{found_all}");
    }

    /// The ids of the word at the start of a text, with its length.
    fn first_ids(text: &[u8], ids: &mut Vec<(u128, usize)>) {
        let skip = if text.starts_with(b"0x") || text.starts_with(b"0X") { 2 } else { 0 };
        let word = text[skip..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let hex = match grouped(&text[skip..], word) {
            Some((number, len)) => Some((number, skip + len)),
            None if word == 16 || word == 32 => {
                hexadecimal(&text[skip..skip + word]).map(|number| (number, skip + word))
            }
            None => None,
        };
        ids.extend(hex);
        if (16..=20).contains(&word) {
            ids.extend(decimal(&text[skip..skip + word]).map(|number| (number, skip + word)));
        }
    }

    #[test]
    fn known_ids_are_left_out_and_the_rest_is_bounded() {
        let mut mentions = Mentions::default();
        let ids = (TraceId(0x1a1afe878b33e968617959ce3f1f65a8), SpanId(0x3fd4235992edcf45));
        mentions.add(b"1a1afe878b33e968617959ce3f1f65a8 3fd4235992edcf45", ids);
        let many: Vec<String> = (1..100).map(|number| format!("{number:016x}")).collect();
        mentions.add(many.join(" ").as_bytes(), ids);
        mentions.add(b"", ids);
        assert_eq!((mentions.of(0), mentions.of(1).len(), mentions.of(2)), (&[][..], 16, &[][..]));
    }
}
