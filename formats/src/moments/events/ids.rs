//! The ids of spans in the text of messages: W3C's `traceparent`, and B3 in one header or in two.

use astracer_model::ids::{SpanId, TraceId};

/// Ids that are kept of one message.
const IDS_MAX: usize = 8;

/// The trace and span ids in a text, as it was recorded.
pub(super) fn contexts(text: &[u8]) -> Vec<(TraceId, SpanId)> {
    let mut found = Vec::new();
    let mut add = |ids: Option<(TraceId, SpanId)>| {
        if let Some(ids) = ids
            && found.len() < IDS_MAX
            && !found.contains(&ids)
        {
            found.push(ids);
        }
    };
    for at in memchr::memmem::find_iter(text, b"00-") {
        add(w3c(&text[at + 3..]));
    }
    let mut trace = None;
    for at in memchr::memchr2_iter(b'b', b'B', text) {
        let Some(rest) = text.get(at + 1..).and_then(|rest| rest.strip_prefix(b"3")) else { continue };
        if let Some(value) = header(rest, b"") {
            add(joined(value));
        } else if let Some(value) = header(rest, b"-traceid") {
            trace = hex(value, 32).or_else(|| hex(value, 16)).map(TraceId);
        } else if let Some(value) = header(rest, b"-spanid") {
            add(trace.take().zip(hex(value, 16).and_then(span)));
        }
    }
    found
}

/// The value of a header whose name ends here, in either case.
fn header<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    let (own, rest) = text.split_at_checked(name.len())?;
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let value = rest.strip_prefix(b":").filter(|_| own.eq_ignore_ascii_case(name))?.trim_ascii_start();
    Some(value.strip_prefix(b"\"").unwrap_or(value))
}

/// `TRACE-SPAN-FLAGS` without what is before.
fn w3c(text: &[u8]) -> Option<(TraceId, SpanId)> {
    let trace = hex(text, 32)?;
    let rest = text[32..].strip_prefix(b"-")?;
    let id = hex(rest, 16)?;
    rest[16..].strip_prefix(b"-").and_then(|rest| hex(rest, 2))?;
    (trace != 0).then_some(TraceId(trace)).zip(span(id))
}

/// `TRACE-SPAN`, as in the header `b3`.
fn joined(text: &[u8]) -> Option<(TraceId, SpanId)> {
    [32, 16].into_iter().find_map(|len| {
        let trace = hex(text, len).filter(|&trace| trace != 0)?;
        let rest = text.get(len..)?.strip_prefix(b"-")?;
        Some((TraceId(trace), span(hex(rest, 16)?)?))
    })
}

fn span(id: u128) -> Option<SpanId> {
    u64::try_from(id).ok().filter(|&id| id != 0).map(SpanId)
}

/// The number of exactly this many hexadecimal digits at the start of a text.
fn hex(text: &[u8], len: usize) -> Option<u128> {
    let digits = text.get(..len).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    if text.get(len).is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are the examples of W3C's and B3's specifications.
    #[test]
    fn ids_are_found_in_headers() {
        let w3c = (TraceId(0x0af7651916cd43dd8448eb211c80319c), SpanId(0xb7ad6b7169203331));
        let b3 = (TraceId(0x80f198ee56343ba864fe8b2a57d3eff7), SpanId(0xe457b5a2e4d86bd1));
        let short = (TraceId(0x64fe8b2a57d3eff7), SpanId(0xe457b5a2e4d86bd1));
        for (text, expected) in [
            (
                r"GET / HTTP/1.1\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
                Some(w3c),
            ),
            ("\\v00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-00", Some(w3c)),
            (
                r"X-B3-TraceId: 80f198ee56343ba864fe8b2a57d3eff7\r\nX-B3-ParentSpanId: 05e3ac9a4f6e3b90\r\nX-B3-SpanId: e457b5a2e4d86bd1\r\n",
                Some(b3),
            ),
            (r"b3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90\r\n", Some(b3)),
            (r#"{"b3":"64fe8b2a57d3eff7-e457b5a2e4d86bd1"}"#, Some(short)),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333", None),
            ("x-b3-traceid: 64fe8b2a57d3eff7", None),
            ("b3: 1", None),
            ("", None),
        ] {
            assert_eq!(contexts(text.as_bytes()).first(), expected.as_ref(), "{text}");
        }
    }
}
