//! The sizes of long tests. `cargo xtask test` runs them in minutes; `cargo xtask release` sets
//! `ASTRACER_FULL` and takes its time.

/// The number of rounds of a long test: `quick`, or `full` if the environment variable
/// `ASTRACER_FULL` is set.
pub fn size(quick: u64, full: u64) -> u64 {
    if std::env::var_os("ASTRACER_FULL").is_some() { full } else { quick }
}

/// The number in an environment variable; `None` if it is not set.
///
/// # Panics
///
/// If the variable holds anything but a number.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: not a number: {text}")))
}
