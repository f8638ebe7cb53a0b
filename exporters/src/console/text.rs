//! Text clipped to a width, and short durations.

use astracer_model::text::escaped;

/// Clips text to `columns` characters, with `…` in place of the rest. Characters that could control
/// a terminal are escaped.
pub(super) fn clip(text: &str, columns: usize) -> String {
    // An escape is longer than the character it replaces, so at most `columns + 1` characters are
    // needed.
    let end = text.char_indices().nth(columns + 1).map_or(text.len(), |(end, _)| end);
    let text = escaped(&text[..end]);
    if text.chars().count() <= columns {
        return text.into_owned();
    }
    let mut clipped: String = text.chars().take(columns.saturating_sub(1)).collect();
    if columns > 0 {
        clipped.push('\u{2026}');
    }
    clipped
}

/// A duration with three digits and a unit.
pub(super) fn duration(nanos: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e3, "\u{b5}s"), (1e6, "ms"), (1e9, "s")];
    if nanos < 1_000 {
        return format!("{nanos} ns");
    }
    for (nanos_per, unit) in UNITS {
        let value = nanos as f64 / nanos_per;
        // A number that rounds to 1000 belongs to the next unit.
        for (below, digits) in [(9.995, 2), (99.95, 1), (999.5, 0)] {
            if value < below {
                return format!("{value:.digits$} {unit}");
            }
        }
    }
    format!("{} s", nanos / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (nanos, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 \u{b5}s"),
            (9_994, "9.99 \u{b5}s"),
            (9_996, "10.0 \u{b5}s"),
            (99_960, "100 \u{b5}s"),
            (999_499, "999 \u{b5}s"),
            (999_600, "1.00 ms"),
            (12_340_000, "12.3 ms"),
            (1_234_000_000, "1.23 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(duration(nanos), expected);
        }
    }

    #[test]
    fn text_is_cut_by_characters_and_made_harmless() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab\u{2026}");
        assert_eq!(clip("\u{e9}\u{e9}\u{e9}\u{e9}", 2), "\u{e9}\u{2026}");
        assert_eq!(clip("a\u{1b}[31mb\n", 20), "a\\u{1b}[31mb\\n");
        // A direction override, which would reverse the rest of the line.
        assert_eq!(clip("user\u{202e}nimda", 20), "user\\u{202e}nimda");
        assert_eq!(clip("\u{202e}abc", 6), "\\u{20\u{2026}");
        assert_eq!(clip("\u{200b}", 8), "\\u{200b}");
        assert_eq!(clip("abc", 0), "");
    }
}
