//! A system call: its name, arguments and result.

use std::borrow::Cow;

use super::line::{self, Time};
use astracer_model::event::Endpoint;

/// One call with its result.
#[derive(Debug)]
pub(super) struct Call<'t> {
    pub(super) name: &'t str,
    /// The arguments as written. Commas within brackets and strings do not separate them.
    pub(super) arguments: Vec<&'t str>,
    /// The number that was returned; `None` for errors and unknown results.
    pub(super) result: Option<u64>,
    /// Everything behind the equals sign.
    pub(super) answer: &'t str,
}

/// The label of a descriptor (`-yy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Label<'t> {
    /// A TCP connection: the local and the remote end.
    Connected(Endpoint<'t>, Endpoint<'t>),
    /// A file.
    Path(&'t str),
    /// A pipe or a UNIX socket, as it is named: `pipe:[4242]`.
    Pipe(&'t str),
    /// Something else.
    Other,
}

/// More arguments are not looked at.
const ARGUMENTS_MAX: usize = 8;

impl<'t> Call<'t> {
    /// Splits a call; `None` if it has no result.
    pub(super) fn of(text: &'t str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let bytes = rest.as_bytes();
        let (mut arguments, mut depth, mut from, mut at) = (Vec::new(), 0usize, 0, 0);
        loop {
            match bytes.get(at)? {
                b'"' => at = string_end(bytes, at)?,
                b'<' if at > 0 && bytes[at - 1].is_ascii_digit() => at = label_end(bytes, at)?,
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => break,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    if arguments.len() < ARGUMENTS_MAX {
                        arguments.push(rest.get(from..at)?.trim());
                    }
                    from = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        if arguments.len() < ARGUMENTS_MAX {
            arguments.push(rest.get(from..at)?.trim());
        }
        let answer = rest.get(at + 1..)?.trim_start().strip_prefix('=')?.trim_start();
        let result = answer.as_bytes().first().is_some_and(u8::is_ascii_digit).then(|| digits(answer));
        Some(Self { name, arguments, result, answer })
    }

    /// The time that the call took, in nanoseconds, if it was recorded (`-T`).
    pub(super) fn duration(&self) -> Option<u64> {
        let (_, written) = self.answer.strip_suffix('>')?.rsplit_once('<')?;
        match line::time(written)? {
            Time::Since(nanos) => Some(nanos),
            Time::Absolute(_) | Time::OfDay(_) => None,
        }
    }

    /// The descriptor that is the n-th argument, and its label.
    pub(super) fn descriptor(&self, argument: usize) -> Option<(u64, Option<Label<'t>>)> {
        let text = self.arguments.get(argument)?;
        text.as_bytes().first()?.is_ascii_digit().then(|| (digits(text), label(text)))
    }

    /// The file that a call writes to; for standard output and error also the pipe, which may lead
    /// to a log.
    pub(super) fn written(&self) -> Option<&'t str> {
        match self.descriptor(0)? {
            (_, Some(Label::Path(path))) | (1 | 2, Some(Label::Pipe(path))) => Some(path),
            _ => None,
        }
    }

    /// True if the descriptor is a TCP socket.
    pub(super) fn is_tcp(&self, argument: usize) -> bool {
        let text = self.arguments.get(argument).and_then(|text| text.split_once('<'));
        text.is_some_and(|(_, label)| label.starts_with("TCP"))
    }

    /// True if an argument has this flag.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.arguments.iter().any(|text| !text.starts_with('"') && text.contains(flag))
    }

    /// The text that is the n-th argument, as far as it was recorded.
    pub(super) fn text(&self, argument: usize) -> String {
        let argument = self.arguments.get(argument).copied().unwrap_or_default();
        let begin = argument.find('"').map_or(argument.len(), |at| at + 1);
        unescaped(&argument[begin..])
    }

    /// The text of a message on the n-th argument's descriptor, with escapes, as far as it was
    /// recorded: of several buffers the first.
    pub(super) fn message(&self, argument: usize) -> &'t str {
        let text = match self.name {
            "sendfile" | "sendfile64" | "splice" => "",
            _ => self.arguments.get(argument + 1).copied().unwrap_or_default(),
        };
        let begin = match text.strip_prefix('"') {
            Some(text) => Some(text),
            None => text.split_once("iov_base=\"").map(|(_, text)| text),
        };
        begin.unwrap_or_default()
    }

    /// The reason why a socket has no addresses.
    pub(super) fn without_label(&self) -> &'static str {
        "a socket without its addresses: record with strace -f -ttt -T -yy -s 512 -o FILE"
    }
}

/// The number at the start of a text; 0 if there is none.
pub(super) fn digits(text: &str) -> u64 {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..len].parse().unwrap_or(0)
}

/// The label behind a descriptor.
pub(super) fn label(text: &str) -> Option<Label<'_>> {
    let (number, _) = text.split_once('<')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let end = label_end(text.as_bytes(), number.len())?;
    let inside = text.get(number.len() + 1..end)?;
    if inside.starts_with('/') {
        return Some(Label::Path(inside));
    }
    if inside.starts_with("pipe:[") || inside.starts_with("UNIX") {
        return Some(Label::Pipe(inside));
    }
    let ends = inside.strip_prefix("TCP:[").or_else(|| inside.strip_prefix("TCPv6:["));
    let ends = ends.and_then(|ends| ends.strip_suffix(']')?.split_once("->"));
    let ends = ends.and_then(|(local, remote)| Some((endpoint(local)?, endpoint(remote)?)));
    Some(ends.map_or(Label::Other, |(local, remote)| Label::Connected(local, remote)))
}

/// The end of the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// The end of the label that begins here. A path's angle brackets are escaped, and an arrow joins
/// the ends of a connection.
fn label_end(bytes: &[u8], start: usize) -> Option<usize> {
    let is_path = bytes.get(start + 1) == Some(&b'/');
    let ends = memchr::memchr_iter(b'>', bytes.get(start..)?).map(|at| start + at);
    ends.into_iter().find(|&at| is_path || bytes[at - 1] != b'-')
}

/// The endpoint of a text such as `10.0.0.1:80` or `[::1]:80`.
fn endpoint(text: &str) -> Option<Endpoint<'_>> {
    let (address, port) = text.rsplit_once(':')?;
    let address = address.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(address);
    // A socket of both families names IPv4's addresses so.
    let address = address.strip_prefix("::ffff:").filter(|rest| rest.contains('.')).unwrap_or(address);
    Some(Endpoint { address: Cow::Borrowed(address), port: port.parse().ok()? })
}

/// The text of C's string up to its end. Bytes that are not UTF-8 become U+FFFD.
fn unescaped(text: &str) -> String {
    String::from_utf8_lossy(&unescaped_bytes(text, usize::MAX)).into_owned()
}

/// Up to `most` bytes of C's string up to its end.
pub(super) fn unescaped_bytes(text: &str, most: usize) -> Vec<u8> {
    let mut bytes = text.bytes().peekable();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next()
        && out.len() < most
    {
        match byte {
            b'"' => break,
            b'\\' => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(b't') => out.push(b'\t'),
                Some(b'r') => out.push(b'\r'),
                Some(b'v') => out.push(0x0b),
                Some(b'f') => out.push(0x0c),
                Some(b'x') => {
                    let hex: Vec<u8> = (0..2).filter_map(|_| bytes.next_if(u8::is_ascii_hexdigit)).collect();
                    let hex = std::str::from_utf8(&hex).ok();
                    out.extend(hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()));
                }
                Some(first @ b'0'..=b'7') => {
                    let mut code = u32::from(first - b'0');
                    for _ in 0..2 {
                        if let Some(next) = bytes.next_if(|next| (b'0'..=b'7').contains(next)) {
                            code = code * 8 + u32::from(next - b'0');
                        }
                    }
                    out.push(code as u8);
                }
                Some(other) => out.push(other),
                None => break,
            },
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_split_whatever_their_strings_contain() {
        let call = Call::of(
            r#"write(5<TCP:[10.0.0.1:5->10.0.0.2:80]>, "a, \") = -> ]> b\n"..., 40) = 40 <0.000012>"#,
        )
        .unwrap();
        assert_eq!((call.name, call.arguments.len(), call.result), ("write", 3, Some(40)));
        assert_eq!(call.text(1), "a, \") = -> ]> b\n");
        let Some((5, Some(Label::Connected(local, remote)))) = call.descriptor(0) else { panic!("{call:?}") };
        assert_eq!((local.to_string(), remote.to_string()), ("10.0.0.1:5".into(), "10.0.0.2:80".into()));
        let call = Call::of("connect(9<TCPv6:[77]>, {sa_family=AF_INET6, x}, 28) = -1 EINPROGRESS (Operation now in progress)").unwrap();
        assert_eq!(
            (call.result, call.is_tcp(0), call.descriptor(0)),
            (None, true, Some((9, Some(Label::Other))))
        );
        assert_eq!(
            label("7<TCPv6:[[::1]:5->[::ffff:10.0.0.2]:80]>")
                .map(|label| format!("{label:?}").contains("\"10.0.0.2\"")),
            Some(true)
        );
        assert_eq!(label("7</tmp/a->"), Some(Label::Path("/tmp/a-")));
        for (call, written) in [
            (r#"write(1<pipe:[4242]>, "a\n", 2) = 2"#, Some("pipe:[4242]")),
            (r#"write(2<UNIX-STREAM:[7->8]>, "a\n", 2) = 2"#, Some("UNIX-STREAM:[7->8]")),
            (r#"write(3<pipe:[4242]>, "a\n", 2) = 2"#, None),
            (r#"write(3</var/log/a.log>, "a\n", 2) = 2"#, Some("/var/log/a.log")),
            (r#"write(1<TCP:[10.0.0.1:5->10.0.0.2:80]>, "a\n", 2) = 2"#, None),
        ] {
            assert_eq!(Call::of(call).unwrap().written(), written, "{call}");
        }
        for torn in ["write(5, \"abc", "read(3, ", "x", "exit_group(0) ", "é(<"] {
            assert!(Call::of(torn).is_none(), "{torn}");
        }
        assert_eq!(Call::of("exit(0) = ?").unwrap().result, None);
        assert_eq!(unescaped(r"\303\244\x41\0\q"), "äA\0q");
    }
}
