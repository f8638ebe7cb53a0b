//! Endpoints in the form shown in messages.

use http::Uri;

/// Returns a URL with its user info replaced.
pub(crate) fn shown(uri: &Uri) -> String {
    let text = uri.to_string();
    let Some((user, _)) = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return text;
    };
    text.replacen(user, "***", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, expected) in [
            ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
            ("https://me:secret@host/a?b", "https://***@host/a?b"),
            ("https://token@host/", "https://***@host/"),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), expected);
        }
    }
}
