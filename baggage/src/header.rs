//! The text of baggage in headers: the member `astracer` of W3C Baggage, beside everybody else's
//! members, which leave as they came.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The header of W3C Baggage.
pub const BAGGAGE_HEADER: &str = "baggage";
/// The header by which a caller asks for baggage in the response: the bytes that it may have.
pub const RETURN_HEADER: &str = "astracer-return";
/// The header of a response with its baggage, in the encoding of the member `astracer`.
pub const ANSWER_HEADER: &str = "astracer-baggage";
/// The member of W3C Baggage.
const MEMBER: &str = "astracer";

/// Members and bytes that every party has to pass on ("Limits" of W3C Baggage). More do not leave.
const MEMBERS_MAX: usize = 64;
const BYTES_MAX: usize = 8192;

pub(crate) fn encoded(message: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(message)
}

/// The bytes of a member or of an answer, which are untrusted; `None` if they are not base64url, or
/// more than a list may have.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    if text.len() > BYTES_MAX { None } else { URL_SAFE_NO_PAD.decode(text).ok() }
}

/// The values of the member `astracer` in lists, separated by commas if there are several.
pub(crate) fn ours<'a>(lists: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut found: Option<String> = None;
    for text in lists.filter(|list| list.len() <= BYTES_MAX).flat_map(|list| list.split(',')) {
        if key_of(text.as_bytes()) == MEMBER.as_bytes() {
            let value =
                text.split(';').next().and_then(|pair| pair.split_once('=')).map_or("", |(_, value)| value);
            let before = found.map_or_else(String::new, |first| first + ",");
            found = Some(before + value.trim());
        }
    }
    found
}

/// Whether lists have the member `astracer`.
pub(crate) fn has_ours(lists: &[&[u8]]) -> bool {
    let mut members = lists.iter().flat_map(|list| list.split(|byte| *byte == b','));
    members.any(|member| key_of(member) == MEMBER.as_bytes())
}

fn key_of(member: &[u8]) -> &[u8] {
    let end = member.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(member.len());
    member[..end].trim_ascii()
}

/// A list of members that leaves this process.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) text: Vec<u8>,
    count: usize,
    /// Members that did not fit.
    pub(crate) cut: u64,
}

impl List {
    /// The members of these lists, as they came, without ours and without those that `set` names.
    pub(crate) fn of<'a>(lists: impl Iterator<Item = &'a [u8]>, set: &[(String, String)]) -> List {
        let mut list = List { text: Vec::new(), count: 0, cut: 0 };
        for member in lists.flat_map(|list| list.split(|byte| *byte == b',')) {
            let key = key_of(member);
            let is_replaced = key == MEMBER.as_bytes() || set.iter().any(|(name, _)| name.as_bytes() == key);
            if !member.trim_ascii().is_empty() && !is_replaced {
                list.push(member);
            }
        }
        for (_, member) in set {
            list.push(member.as_bytes());
        }
        list
    }

    fn push(&mut self, member: &[u8]) {
        let separator = usize::from(self.count > 0);
        if self.count == MEMBERS_MAX || self.text.len() + separator + member.len() > BYTES_MAX {
            self.cut += 1;
            return;
        }
        if separator > 0 {
            self.text.push(b',');
        }
        self.text.extend_from_slice(member);
        self.count += 1;
    }

    /// The bytes of a message that still fit.
    pub(crate) fn room(&self) -> usize {
        let used = self.text.len() + usize::from(self.count > 0) + MEMBER.len() + 1;
        if self.count == MEMBERS_MAX { 0 } else { BYTES_MAX.saturating_sub(used) / 4 * 3 }
    }

    /// Adds our member.
    pub(crate) fn push_ours(&mut self, message: &[u8]) {
        self.push(format!("{MEMBER}={}", encoded(message)).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lists: &[&str], set: &[(&str, &str)]) -> List {
        let set: Vec<_> = set.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        List::of(lists.iter().map(|list| list.as_bytes()), &set)
    }

    #[test]
    fn others_leave_as_they_came() {
        let mut list = list(&["k=a==, p=50%25;x", "astracer=old,t=1"], &[("t", "t=2")]);
        list.push_ours(b"\x0a\x00\xff");
        assert_eq!(String::from_utf8(list.text).unwrap(), "k=a==, p=50%25;x,t=2,astracer=CgD_");
    }

    /// The limits of W3C Baggage: 64 members, 8,192 bytes, all together.
    #[test]
    fn ours_takes_what_others_leave() {
        let many = vec!["k=v"; 64].join(",");
        assert_eq!(list(&[&many], &[]).room(), 0);
        let long = format!("k={}", "x".repeat(8192 - 2 - 1 - "astracer=".len() - 7));
        let mut list = list(&[&long], &[]);
        // Seven characters of base64 are five bytes; whole groups of four are promised.
        assert_eq!(list.room(), 3);
        list.push_ours(&[7; 3]);
        assert!(list.text.len() <= 8192 && list.cut == 0);
        list.push(b"a=1");
        assert_eq!((list.cut, list.text.len() <= 8192), (1, true));
    }

    #[test]
    fn our_member_is_found_among_others() {
        let ours = |lists: &[&str]| super::ours(lists.iter().copied());
        assert_eq!(ours(&["a=1", "k=2; p, astracer = CgEy ;x"]).as_deref(), Some("CgEy"));
        assert_eq!(ours(&["astracer=a,astracer=b"]).as_deref(), Some("a,b"));
        assert_eq!(ours(&["astracers=a,k=astracer"]), None);
        assert_eq!(decoded("a,b"), None);
        assert_eq!(decoded("CgEy=").is_none(), decoded("C").is_none());
        assert_eq!(decoded("-_8").as_deref(), Some(&[0xfb, 0xff][..]));
    }
}
