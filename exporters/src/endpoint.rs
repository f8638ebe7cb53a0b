//! Endpoints in the form shown in messages.

use astracer_model::text::without_secrets;
use http::Uri;

/// Returns a URL with its secrets replaced.
pub(crate) fn shown(uri: &Uri) -> String {
    without_secrets(&uri.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, expected) in [
            ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
            ("https://me:secret@host/a?b=s3cret", "https://***@host/a?b=***"),
            ("https://token@host/", "https://***@host/"),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), expected);
        }
    }
}
