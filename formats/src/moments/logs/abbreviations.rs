//! Abbreviations of zones that logs state instead of an offset.
//!
//! A few have several meanings. They stand for the one with the most speakers of the language that
//! loggers write: `CST` is US Central, `IST` is India, `BST` is British Summer Time.

/// The offset from UTC in seconds of an abbreviation such as `CEST`.
pub(super) fn offset(word: &[u8]) -> Option<i32> {
    let quarters = match word {
        b"UTC" | b"GMT" | b"UCT" | b"WET" => 0,
        b"CET" | b"WEST" | b"BST" | b"WAT" => 4,
        b"CEST" | b"EET" | b"CAT" | b"SAST" => 8,
        b"EEST" | b"MSK" | b"EAT" | b"TRT" => 12,
        b"IRST" => 14,
        b"GST" => 16,
        b"PKT" => 20,
        b"IST" => 22,
        b"ICT" | b"WIB" => 28,
        b"HKT" | b"SGT" | b"AWST" | b"PHT" => 32,
        b"JST" | b"KST" => 36,
        b"ACST" => 38,
        b"AEST" => 40,
        b"ACDT" => 42,
        b"AEDT" => 44,
        b"NZST" => 48,
        b"NZDT" => 52,
        b"NST" => -14,
        b"NDT" => -10,
        b"BRT" | b"ART" | b"ADT" => -12,
        b"AST" | b"EDT" => -16,
        b"EST" | b"CDT" => -20,
        b"CST" | b"MDT" => -24,
        b"MST" | b"PDT" => -28,
        b"PST" | b"AKDT" => -32,
        b"AKST" => -36,
        b"HST" => -40,
        _ => return None,
    };
    Some(quarters * 900)
}
