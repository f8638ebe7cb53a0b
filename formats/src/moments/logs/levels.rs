//! Words and letters of severities beyond those of OpenTelemetry.

use astracer_model::log::Severity;

/// The severity of a word, such as `INFO`, `WRN` or PostgreSQL's `LOG`.
pub(super) fn of_word(word: &str) -> Option<Severity> {
    if let Some(known) = Severity::from_word(word) {
        return Some(known);
    }
    const WORDS: &[(&str, Severity)] = &[
        ("inf", Severity::INFO),
        ("wrn", Severity::WARN),
        ("dbg", Severity::DEBUG),
        ("trc", Severity::TRACE),
        ("ftl", Severity::FATAL),
        ("fail", Severity::ERROR),
        ("vrb", Severity::TRACE),
        ("warn/err", Severity::WARN),
        ("log", Severity::INFO),
        ("note", Severity::INFO),
        ("system", Severity::INFO),
        ("detail", Severity::INFO),
        ("hint", Severity::INFO),
        ("context", Severity::INFO),
        ("statement", Severity::INFO),
        ("debug1", Severity::DEBUG),
        ("debug2", Severity::DEBUG),
    ];
    let is_short = word.len() <= 9 && word.is_ascii();
    WORDS.iter().find(|(known, _)| is_short && known.eq_ignore_ascii_case(word)).map(|&(_, level)| level)
}

/// The severity of a capital letter, as klog, logcat and MongoDB write it.
pub(super) fn of_letter(letter: &str) -> Option<Severity> {
    Some(match letter {
        "T" | "V" => Severity::TRACE,
        "D" => Severity::DEBUG,
        "I" => Severity::INFO,
        "N" => Severity::from_otlp(10),
        "W" => Severity::WARN,
        "E" => Severity::ERROR,
        "C" => Severity::from_otlp(18),
        "F" | "A" => Severity::FATAL,
        _ => return None,
    })
}

/// The severity of a number of syslog: 0 is an emergency, 7 is for debugging.
pub(super) fn of_syslog(number: u8) -> Severity {
    Severity::from_otlp([21, 19, 18, 17, 13, 10, 9, 5][usize::from(number & 7)])
}
