//! The `ot` member of W3C tracestate, which carries threshold and randomness:
//! `ot=th:fd70a;rv:6e6d1a75832a2f`.
//!
//! Sources: W3C Trace Context, "tracestate Header"; OpenTelemetry specification, "TraceState
//! Handling".

use std::fmt::{self, Write as _};

use crate::randomness::Randomness;
use crate::threshold::{Threshold, lower_hex};

/// The greatest length of a member's value.
const VALUE_MAX: usize = 256;
/// The greatest number of members in a tracestate.
const MEMBERS_MAX: usize = 32;
const RANDOMNESS_DIGITS: usize = 14;
/// Capacity for `th`, `rv` and a separator.
const TYPICAL: usize = 36;

/// The value of the `ot` member. Displays as that value; sub-keys other than `th` and `rv` are
/// preserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtMember<'a> {
    /// `th`: the threshold by which the trace has been kept so far.
    pub threshold: Option<Threshold>,
    /// `rv`: the trace's randomness, if it differs from the trace id's.
    pub randomness: Option<Randomness>,
    others: Vec<(&'a str, &'a str)>,
}

impl<'a> OtMember<'a> {
    /// Parses the member's value, such as `th:fd70a;rv:6e6d1a75832a2f;key:value`.
    ///
    /// A `th` that is not 1 to 14 lower-case hexadecimal digits is ignored, and so is an `rv` that
    /// is not 14; the other sub-keys hold.
    ///
    /// # Errors
    ///
    /// If the value does not follow the specification's grammar: it is longer than 256 characters,
    /// a key occurs twice or is not a lower-case letter followed by lower-case letters and digits,
    /// or a value contains other characters than letters, digits, `.`, `_` and `-`.
    pub fn parse(value: &'a str) -> Result<Self, TracestateError> {
        if value.len() > VALUE_MAX {
            return Err(TracestateError::new(value, "the value is longer than 256 characters"));
        }
        let mut member = OtMember::default();
        let (mut thresholds, mut randomnesses) = (false, false);
        for part in value.split(';') {
            let wrong = |problem| TracestateError::new(part, problem);
            let (key, value) =
                part.split_once(':').ok_or_else(|| wrong("it is not of the form key:value"))?;
            if !is_key(key) {
                return Err(wrong("a key must be a lower-case letter, then lower-case letters and digits"));
            }
            if !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
                return Err(wrong("a value may only contain letters, digits, `.`, `_` and `-`"));
            }
            let repeated = match key {
                "th" => {
                    member.threshold = Threshold::parse(value);
                    std::mem::replace(&mut thresholds, true)
                }
                "rv" => {
                    let randomness = lower_hex(value, RANDOMNESS_DIGITS..=RANDOMNESS_DIGITS);
                    member.randomness = randomness.map(Randomness::from_low_bits);
                    std::mem::replace(&mut randomnesses, true)
                }
                _ => {
                    let known = member.others.iter().any(|(known, _)| *known == key);
                    member.others.push((key, value));
                    known
                }
            };
            if repeated {
                return Err(wrong("the key is given twice"));
            }
        }
        Ok(member)
    }

    /// The `ot` member of a tracestate; an empty one if it has none.
    ///
    /// # Errors
    ///
    /// As for [`OtMember::parse`].
    pub fn of(tracestate: &'a str) -> Result<Self, TracestateError> {
        match members(tracestate).find_map(ot_value) {
            Some(value) => Self::parse(value),
            None => Ok(Self::default()),
        }
    }

    /// A member with only these two sub-keys.
    pub fn of_numbers(threshold: Option<Threshold>, randomness: Option<Randomness>) -> Self {
        OtMember { threshold, randomness, others: Vec::new() }
    }

    /// Whether the member has sub-keys other than `th` and `rv`.
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.threshold.is_none() && self.randomness.is_none() && self.others.is_empty()
    }

    /// The member's value, at most 256 characters long; empty if the member is. If it would be
    /// longer, foreign sub-keys are dropped from the end, so that an outdated threshold never stays
    /// for lack of space.
    pub fn value(mut self) -> String {
        loop {
            // `th` and `rv` alone take 35 characters: one allocation for nearly every trace.
            let mut value = String::with_capacity(if self.is_empty() { 0 } else { TYPICAL });
            // Writing to a string cannot fail.
            let _ = write!(value, "{self}");
            if value.len() <= VALUE_MAX || self.others.pop().is_none() {
                return value;
            }
        }
    }

    /// The tracestate with this as its `ot` member. It goes first, as the most recently changed
    /// member; the others follow unchanged. An empty member is left out. If there would be more
    /// than 32 members, the last ones are dropped.
    ///
    /// # Errors
    ///
    /// If the member would be longer than 256 characters.
    pub fn write_to(&self, tracestate: &str) -> Result<String, TracestateError> {
        let value = self.to_string();
        if value.len() > VALUE_MAX {
            return Err(TracestateError::new(&value, "the value is longer than 256 characters"));
        }
        let others = members(tracestate).filter(|member| ot_value(member).is_none());
        let mut written = String::with_capacity(tracestate.len() + value.len() + 4);
        let mut count = 0;
        if !value.is_empty() {
            written.push_str("ot=");
            written.push_str(&value);
            count = 1;
        }
        for member in others.take(MEMBERS_MAX - count) {
            if !written.is_empty() {
                written.push(',');
            }
            written.push_str(member);
        }
        Ok(written)
    }
}

impl fmt::Display for OtMember<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(threshold) = self.threshold {
            write!(f, "th:{threshold}")?;
            separator = ";";
        }
        if let Some(randomness) = self.randomness {
            write!(f, "{separator}rv:{:0RANDOMNESS_DIGITS$x}", randomness.get())?;
            separator = ";";
        }
        for (key, value) in &self.others {
            write!(f, "{separator}{key}:{value}")?;
            separator = ";";
        }
        Ok(())
    }
}

fn is_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// The members of a tracestate, without optional white space and empty members.
fn members(tracestate: &str) -> impl Iterator<Item = &str> {
    tracestate.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
}

fn ot_value(member: &str) -> Option<&str> {
    member.strip_prefix("ot=")
}

/// An `ot` member that does not follow the specification's grammar. Proceed as if there were none.
#[derive(Clone, PartialEq, Eq)]
pub struct TracestateError {
    part: String,
    problem: &'static str,
}

impl TracestateError {
    fn new(part: &str, problem: &'static str) -> Self {
        TracestateError { part: part.to_owned(), problem }
    }
}

impl fmt::Display for TracestateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tracestate member ot: `{}`: {}", self.part, self.problem)
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for TracestateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TracestateError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn round_trip(value: &str) -> OtMember<'_> {
        let member = OtMember::parse(value).unwrap();
        assert_eq!(member.to_string(), value);
        member
    }

    #[test]
    fn reads_and_prints_threshold_randomness_and_others() {
        let member = round_trip("th:fd70a;rv:6e6d1a75832a2f;p:8;foo1:a.B_c-9;empty:");
        assert_eq!(member.threshold.unwrap().get(), 0xfd_70a0_0000_0000);
        assert_eq!(member.randomness.unwrap().get(), 0x6e_6d1a_7583_2a2f);
        assert_eq!(round_trip("th:0").threshold, Some(Threshold::ALWAYS));
        assert_eq!(round_trip("rv:00000000000001").randomness, Some(Randomness::from_low_bits(1)));
        assert_eq!(round_trip("foo:bar;k1:13").threshold, None);
        // Order and padding are not kept.
        assert_eq!(
            OtMember::parse("k:1;rv:00000000000000;th:c000").unwrap().to_string(),
            "th:c;rv:00000000000000;k:1"
        );
    }

    #[test]
    fn refuses_what_the_grammar_refuses() {
        for value in [
            "",
            ";",
            "th",
            "th:0;",
            ";th:0",
            "th:0;;k:1",
            "th:0;th:0",
            "rv:00000000000000;rv:00000000000000",
            "k:1;k:2",
            "1k:1",
            "K:1",
            "kK:1",
            "k_:1",
            ":1",
            "k:a b",
            "k:a,b",
            "k:a=b",
            "k:a:b",
            "k:é",
            " k:1",
            "th:+1",
            "th:x;th:0",
            "rv:1;rv:00000000000000",
        ] {
            assert!(OtMember::parse(value).is_err(), "{value}");
        }
        let long = format!("k:{}", "x".repeat(254));
        assert!(OtMember::parse(&long).is_ok());
        assert!(OtMember::parse(&format!("{long}x")).is_err());
        let error = OtMember::parse("k:1;th:+").unwrap_err().to_string();
        assert_eq!(
            error,
            "tracestate member ot: `th:+`: a value may only contain letters, digits, `.`, `_` and `-`"
        );
    }

    /// As in the SDKs of Java and Python: a malformed sub-key is ignored, and the others hold.
    #[test]
    fn leaves_a_malformed_threshold_or_randomness_out() {
        for th in ["", "FD70A", "0g", "000000000000000", "8.0", "-1"] {
            let text = format!("th:{th};rv:6e6d1a75832a2f;k:1");
            assert_eq!(OtMember::parse(&text).unwrap().value(), "rv:6e6d1a75832a2f;k:1", "{th}");
        }
        for rv in ["", "6e6d1a75832a2", "6e6d1a75832a2ff", "6E6D1A75832A2F", "6e6d1a75832a2g"] {
            let text = format!("th:8;rv:{rv};k:1");
            assert_eq!(OtMember::parse(&text).unwrap().value(), "th:8;k:1", "{rv}");
        }
    }

    #[test]
    fn gives_up_others_before_its_own() {
        let text = format!("a:1;b:{};c:3", "x".repeat(242));
        let mut member = OtMember::parse(&text).unwrap();
        assert_eq!(member.clone().value(), text);
        member.threshold = Threshold::parse("8");
        assert_eq!(member.clone().value(), format!("th:8;a:1;b:{}", "x".repeat(242)));
        member.randomness = Some(Randomness::from_low_bits(1));
        assert_eq!(member.value(), "th:8;rv:00000000000001;a:1");
    }

    #[test]
    fn finds_its_member_among_others() {
        assert_eq!(OtMember::of("a=1, ot=th:8 ,b=2").unwrap().threshold.unwrap().get(), 1 << 55);
        assert_eq!(OtMember::of("a=1,not=th:8,t@ot=th:8").unwrap(), OtMember::default());
        assert_eq!(OtMember::of("").unwrap(), OtMember::default());
        assert!(OtMember::of("ot=").is_err());
    }

    #[test]
    fn writes_itself_in_front_and_keeps_the_rest() {
        let mut member = OtMember::of("a=1,ot=rv:00000000000001;x:y,b=ot=1").unwrap();
        member.threshold = Threshold::parse("8");
        let written = member.write_to("a=1,ot=rv:00000000000001;x:y,b=ot=1").unwrap();
        assert_eq!(written, "ot=th:8;rv:00000000000001;x:y,a=1,b=ot=1");
        assert_eq!(OtMember::default().write_to("a=1 ,, ot=th:8,b=2").unwrap(), "a=1,b=2");
        assert_eq!(member.write_to("").unwrap(), "ot=th:8;rv:00000000000001;x:y");
        let crowd: Vec<String> = (0..40).map(|i| format!("k{i}=v")).collect();
        let written = member.write_to(&crowd.join(",")).unwrap();
        assert_eq!(written.split(',').count(), 32);
        assert!(written.starts_with("ot=th:8") && written.ends_with(",k30=v"));
        let written = OtMember::default().write_to(&crowd.join(",")).unwrap();
        assert!(written.starts_with("k0=v,") && written.ends_with(",k31=v"));
    }

    #[test]
    fn does_not_grow_beyond_what_a_member_can_hold() {
        let full = format!("k:{}", "x".repeat(254));
        let mut member = OtMember::parse(&full).unwrap();
        assert!(member.write_to("").is_ok());
        member.threshold = Some(Threshold::ALWAYS);
        assert!(member.write_to("").is_err());
    }

    proptest! {
        #[test]
        fn thresholds_round_trip(value in 0u64..1 << 56, zeros in 0u32..14) {
            let threshold = Threshold::new(value >> (4 * zeros) << (4 * zeros)).unwrap();
            prop_assert_eq!(Threshold::parse(&threshold.to_string()), Some(threshold));
        }

        #[test]
        fn members_round_trip(th: Option<u64>, rv: Option<u64>, others in "(;[a-q][a-z0-9]{0,3}:[a-zA-Z0-9._-]{0,5}){0,4}") {
            let mut member = OtMember::parse(others.strip_prefix(';').unwrap_or("x:y")).unwrap_or_default();
            member.threshold = th.map(|th| Threshold::new(th >> 8).unwrap());
            member.randomness = rv.map(Randomness::from_low_bits);
            let written = member.write_to("a=1").unwrap();
            prop_assert_eq!(OtMember::of(&written).unwrap(), member);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(ot=)?(th|rv|k)?:?[0-9a-f;:=,.é ]{0,40}") {
            let _ = OtMember::parse(&text);
            let _ = OtMember::of(&text).map(|member| member.write_to(&text));
        }
    }
}
