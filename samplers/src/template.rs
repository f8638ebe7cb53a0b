//! Templates: names with their ids folded, so that `sendBlock_1073741825` and
//! `sendBlock_1073741826` become one.
//!
//! By default these become `*`:
//!
//! - a UUID (8-4-4-4-12 hexadecimal digits, either case);
//! - a run of eight or more hexadecimal digits that includes a decimal digit;
//! - a run of three or more decimal digits, anywhere.
//!
//! UUIDs and hexadecimal runs must stand alone: no letter, digit, `*` or non-ASCII character may be
//! next to them, except for a `0x` in front that itself stands alone. So the ids in
//! `Object@1b6d3586` and `block_0a1b2c3d` are folded, and the `deadbeef1` inside `undeadbeef1` is
//! not. Underscores, hyphens and all other punctuation are separators. Folding is idempotent: the
//! template of a template is itself.

use std::fmt;
use std::str::FromStr;

/// A rule for folding ids: the parts of a name that become `*`.
///
/// As text, which [`FromStr`] reads and [`Display`](fmt::Display) prints: `template` (the default),
/// `raw` (nothing is folded), or the kinds of ids with their least lengths, such as
/// `digits=3,hex=8,uuid`. Kinds that are not listed are not folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    digits_min: usize,
    hex_min: usize,
    uuids: bool,
}

/// A length that no name reaches, so that nothing is folded.
const OFF: usize = usize::MAX;

impl Default for Template {
    fn default() -> Self {
        Template { digits_min: 3, hex_min: 8, uuids: true }
    }
}

impl Template {
    /// Folds nothing.
    pub const RAW: Template = Template { digits_min: OFF, hex_min: OFF, uuids: false };

    /// Folds runs of at least `min` decimal digits; `None` or 0 turns this off.
    #[must_use]
    pub fn digits(self, min: Option<usize>) -> Self {
        Template { digits_min: min.filter(|&min| min > 0).unwrap_or(OFF), ..self }
    }

    /// Folds runs of at least `min` hexadecimal digits that include a decimal digit; `None` or 0
    /// turns this off.
    #[must_use]
    pub fn hex(self, min: Option<usize>) -> Self {
        Template { hex_min: min.filter(|&min| min > 0).unwrap_or(OFF), ..self }
    }

    /// Turns the folding of UUIDs on or off.
    #[must_use]
    pub fn uuids(self, uuids: bool) -> Self {
        Template { uuids, ..self }
    }

    /// Writes the template of `name` to `out`, replacing its content and reusing its memory, and
    /// returns true. If there is nothing to fold, returns false and leaves `out` as it is: the name
    /// is its own template.
    pub fn fold(&self, name: &str, out: &mut String) -> bool {
        self.write::<true>(name, out)
    }

    /// As [`Template::fold`], but appends to `out`.
    pub(crate) fn append_folded(&self, name: &str, out: &mut String) -> bool {
        self.write::<false>(name, out)
    }

    fn write<const REPLACE: bool>(&self, name: &str, out: &mut String) -> bool {
        let bytes = name.as_bytes();
        // Fast path for the usual name: only a UUID can be an id without a decimal digit.
        if bytes.len() < UUID_LENGTH && !bytes.iter().any(u8::is_ascii_digit) {
            return false;
        }
        let mut copied = 0;
        let mut at = 0;
        let mut folded = false;
        while at < bytes.len() {
            let Some(length) = self.id_at(bytes, at) else {
                at += 1;
                continue;
            };
            if REPLACE && !folded {
                out.clear();
            }
            folded = true;
            // Ids are ASCII, so both ends are character boundaries.
            out.push_str(&name[copied..at]);
            out.push('*');
            at += length;
            copied = at;
        }
        if folded {
            out.push_str(&name[copied..]);
        }
        folded
    }

    /// The length of the id that begins at `at`; `None` if none does.
    fn id_at(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let rest = &bytes[at..];
        if !rest[0].is_ascii_hexdigit() {
            return None;
        }
        if begins_alone(bytes, at) {
            if self.uuids && is_uuid(rest) && ends_alone(rest, UUID_LENGTH) {
                return Some(UUID_LENGTH);
            }
            let hex = run(rest, u8::is_ascii_hexdigit);
            if hex >= self.hex_min && ends_alone(rest, hex) && rest[..hex].iter().any(u8::is_ascii_digit) {
                return Some(hex);
            }
        }
        // Only at a run's start: the rest of a run that was too short is not scanned again.
        let starts = at == 0 || !bytes[at - 1].is_ascii_digit();
        let digits = if starts { run(rest, u8::is_ascii_digit) } else { 0 };
        (digits > 0 && digits >= self.digits_min).then_some(digits)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Template::default() {
            return f.write_str("template");
        }
        if *self == Template::RAW {
            return f.write_str("raw");
        }
        let mut separator = "";
        for (kind, min) in [("digits", self.digits_min), ("hex", self.hex_min)] {
            if min != OFF {
                write!(f, "{separator}{kind}={min}")?;
                separator = ",";
            }
        }
        if self.uuids { write!(f, "{separator}uuid") } else { Ok(()) }
    }
}

/// A text that is not a template.
#[derive(Clone, PartialEq, Eq)]
pub struct TemplateError(String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid template `{}`: write template, raw, or a comma-separated list of digits=N, hex=N and uuid, each \
             at most once, with N at least 1",
            self.0
        )
    }
}

/// The same text as `Display`: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TemplateError {}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        match text {
            "template" => return Ok(Template::default()),
            "raw" => return Ok(Template::RAW),
            _ => {}
        }
        let mut template = Template::RAW;
        for (number, part) in text.split(',').enumerate() {
            let wrong = || TemplateError(part.to_owned());
            let kind = part.split('=').next();
            if text.split(',').take(number).any(|before| before.split('=').next() == kind) {
                return Err(wrong());
            }
            let min = |text: &str| match text.parse() {
                Ok(min) if (1..OFF).contains(&min) => Ok(Some(min)),
                _ => Err(wrong()),
            };
            template = match part.split_once('=') {
                Some(("digits", length)) => template.digits(min(length)?),
                Some(("hex", length)) => template.hex(min(length)?),
                None if part == "uuid" => template.uuids(true),
                _ => return Err(wrong()),
            };
        }
        Ok(template)
    }
}

const UUID_LENGTH: usize = 36;

fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() >= UUID_LENGTH
        && bytes[..UUID_LENGTH].iter().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn run(bytes: &[u8], is: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is(byte)).unwrap_or(bytes.len())
}

/// Returns true if this byte belongs to a word, so that an id next to it does not stand alone.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'*' || !byte.is_ascii()
}

fn begins_alone(bytes: &[u8], at: usize) -> bool {
    let alone = |at: usize| at == 0 || !is_word(bytes[at - 1]);
    alone(at) || (at >= 2 && matches!(&bytes[at - 2..at], b"0x" | b"0X") && alone(at - 2))
}

fn ends_alone(bytes: &[u8], length: usize) -> bool {
    bytes.get(length).is_none_or(|&byte| !is_word(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_with(template: Template, name: &str, expected: &str) {
        let mut out = "before".to_owned();
        let folded = template.fold(name, &mut out);
        assert_eq!(folded, name != expected, "{name}");
        assert_eq!(out, if folded { expected } else { "before" }, "{name}");
    }

    #[track_caller]
    fn check(name: &str, expected: &str) {
        check_with(Template::default(), name, expected);
    }

    #[test]
    fn templates_survive_printing_and_other_texts_are_refused() {
        for (text, template) in [
            ("template", Template::default()),
            ("raw", Template::RAW),
            ("digits=1", Template::RAW.digits(Some(1))),
            ("hex=4", Template::RAW.hex(Some(4))),
            ("uuid", Template::RAW.uuids(true)),
            ("digits=3,hex=9,uuid", Template::default().hex(Some(9))),
        ] {
            assert_eq!((text.parse(), template.to_string()), (Ok(template), text.to_owned()));
        }
        assert_eq!("digits=3,hex=8,uuid".parse(), Ok(Template::default()));
        for wrong in [
            "",
            "digits",
            "digits=0",
            "hex=x",
            "uuid=1",
            "digits=3,",
            "words",
            "digits=1,digits=2",
            "uuid,uuid",
        ] {
            assert!(wrong.parse::<Template>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn folds_runs_of_three_or_more_digits_anywhere() {
        check("RemoteBlockReader2#readNextPacket(1073742055)", "RemoteBlockReader2#readNextPacket(*)");
        check("sendBlock_1073741825", "sendBlock_*");
        check("x12y123z1234", "x12y*z*");
        check("123", "*");
        check("12", "12");
        check("", "");
        check("1-22-333-4444", "1-22-*-*");
        check("GET /v2/users/100234/orders/7", "GET /v2/users/*/orders/7");
    }

    #[test]
    fn folds_uuids() {
        check("job 550e8400-e29b-41d4-a716-446655440000 done", "job * done");
        check("550E8400-E29B-41D4-A716-446655440000", "*");
        check("abcdefab-abcd-abcd-abcd-abcdefabcdef", "*");
        // One digit too many at the end: not a UUID, but its runs of hexadecimal digits still
        // count.
        check("550e8400-e29b-41d4-a716-4466554400001", "*-e29b-41d4-a*-*");
        check("x550e8400-e29b-41d4-a716-446655440000", "x*e*-e29b-41d4-a*-*");
        check("abcdefab-abcd-abcd-abcd-abcdefabcde", "abcdefab-abcd-abcd-abcd-abcdefabcde");
    }

    #[test]
    fn folds_hex_that_stands_alone_and_holds_a_digit() {
        check("Object@1b6d3586", "Object@*");
        check("block_0a1b2c3d.meta", "block_*.meta");
        check("deadbeef1", "*");
        check("DEADBEEF1", "*");
        check("at 0x7ffdeadbeef", "at 0x*");
        check("at 0Xdeadbeef1", "at 0X*");
        // Seven digits; no decimal digit; inside a word on either side.
        check("a1b2c3d", "a1b2c3d");
        check("deadbeef", "deadbeef");
        check("undeadbeef1", "undeadbeef1");
        check("deadbeef1n", "deadbeef1n");
        check("x0xdeadbeef1", "x0xdeadbeef1");
        check("00xdeadbeef1", "00xdeadbeef1");
        // A decimal run inside a hexadecimal word is folded with the word, or alone if the word is
        // not hexadecimal.
        check("abc123def456", "*");
        check("abc123xyz456", "abc*xyz*");
    }

    #[test]
    fn is_safe_beside_other_scripts() {
        check("größe1234", "größe*");
        check("é1b6d3586f", "é1b6d*f");
        check("1b6d35é", "1b6d35é");
        check("deadbeef1é", "deadbeef1é");
        check("名前１２３４", "名前１２３４");
        check("🦀deadbeef1🦀12345🦀", "🦀deadbeef1🦀*🦀");
    }

    #[test]
    fn rules_can_be_set() {
        let name = "a1234 deadbeef1 550e8400-e29b-41d4-a716-446655440000";
        check_with(Template::RAW, name, name);
        check_with(Template::default().digits(None), name, "a1234 * *");
        check_with(Template::default().digits(Some(5)), name, "a1234 * *");
        check_with(Template::default().digits(Some(0)), name, "a1234 * *");
        check_with(Template::default().hex(None), name, "a* deadbeef1 *");
        check_with(Template::default().hex(Some(10)), name, "a* deadbeef1 *");
        check_with(Template::default().hex(Some(0)).digits(None), "1 a", "1 a");
        check_with(Template::RAW.uuids(true), name, "a1234 deadbeef1 *");
        check_with(Template::RAW.digits(Some(1)), "a1b22", "a*b*");
        check_with(Template::RAW.hex(Some(1)), "a 1 g", "a * g");
    }

    #[test]
    fn reuses_the_callers_memory() {
        let mut out = String::with_capacity(64);
        let memory = out.as_ptr();
        assert!(Template::default().fold("sendBlock_1073741825", &mut out));
        assert!(Template::default().fold("sendBlock_107374182", &mut out));
        assert_eq!((out.as_str(), out.as_ptr()), ("sendBlock_*", memory));
    }

    proptest! {
        #[test]
        fn a_template_of_a_template_is_itself(name in "[a-fx0-9*_-]{0,60}|\\PC{0,40}", rule in 0usize..3) {
            let template =
                [Template::default(), Template::RAW.digits(Some(1)), Template::RAW.hex(Some(4)).digits(Some(2))][rule];
            let (mut once, mut twice) = (String::new(), String::new());
            if template.fold(&name, &mut once) {
                prop_assert!(!template.fold(&once, &mut twice), "{name} -> {once} -> {twice}");
            }
        }

        /// Text between ids stays as it is: the pieces between the `*`s of a template occur in the
        /// name, in order.
        #[test]
        fn keeps_all_else(name in "[a-fx0-9_é-]{0,60}") {
            let mut out = String::new();
            if Template::default().fold(&name, &mut out) {
                let mut rest = name.as_str();
                for piece in out.split('*') {
                    let at = rest.find(piece);
                    prop_assert!(at.is_some(), "{name} -> {out}");
                    rest = &rest[at.unwrap() + piece.len()..];
                }
            }
        }
    }
}
