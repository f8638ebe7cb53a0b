//! Parsers for the values of options: bounded numbers, durations, shares and sizes.
//!
//! A value that no command can use is refused here, before any work, with a message that says which
//! values are valid. Clap adds the option's name and exits with 2.

use std::ops::RangeInclusive;
use std::time::Duration;

use astracer_samplers::{Cap, ConfigError, RandomSource, Template};
use astracer_tuner::Grouping;
use astracer_tuner::key::InvalidGrouping;

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
/// 365.25 days, as messages count a year.
const YEAR: Duration = Duration::from_secs(31_557_600);

/// The length of a sampler's window.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    duration(text, MILLISECOND..=DAY)
}

/// A limit on the time that work may take.
pub(crate) fn time_limit(text: &str) -> Result<Duration, String> {
    duration(text, MILLISECOND..=YEAR)
}

/// A length of time, which may be 0.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    zero_or(text, Duration::from_nanos(1))
}

/// Parses the time for which an ended trace is held; 0 releases it at once.
pub(crate) fn hold(text: &str) -> Result<Duration, String> {
    zero_or(text, MILLISECOND)
}

/// Reads "web=1.5ms" or "web=-2s": a host, and by how many nanoseconds its clock runs ahead.
pub(crate) fn offset(text: &str) -> Result<(String, i64), String> {
    let wrong =
        || format!("invalid offset '{text}': use a host and a duration, such as web=1.5ms or db=-20us");
    let (host, time) = text.split_once('=').filter(|(host, _)| !host.is_empty()).ok_or_else(wrong)?;
    let (sign, time) = match time.strip_prefix('-') {
        Some(time) => (-1, time),
        None => (1, time.strip_prefix('+').unwrap_or(time)),
    };
    let nanos = i64::try_from(length(time)?.as_nanos()).map_err(|_| wrong())?;
    Ok((host.to_owned(), sign * nanos))
}

/// Parses 0, or a duration from `least` to a year.
fn zero_or(text: &str, least: Duration) -> Result<Duration, String> {
    let is_zero = decimal(text.trim_end_matches(char::is_alphabetic)) == Some(0.0);
    duration(text, if is_zero { Duration::ZERO } else { least }..=YEAR)
}

/// A cap that limits something.
pub(crate) fn cap(text: &str) -> Result<Cap, String> {
    let cap: Cap = text.parse().map_err(|error: ConfigError| error.to_string())?;
    if cap.is_none() {
        Err("the cap limits nothing: use for example traces=100,burst=25".to_owned())
    } else {
        Ok(cap)
    }
}

/// Reads "500ms", "2s", "5m", "1h": a number with a unit, which is seconds if there is none.
fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 10] = [
        ("ms", 1e-3),
        ("us", 1e-6),
        ("ns", 1e-9),
        ("s", 1.0),
        ("min", 60.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
        // Messages write long durations with these units.
        ("day", 86_400.0),
        ("year", 31_557_600.0),
    ];
    let wrong = || format!("invalid duration '{text}': use a number with a unit, such as 250ms, 5s or 2h");
    let unit = UNITS.iter().find_map(|&(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    let number: f64 = decimal(number).ok_or_else(wrong)?;
    let found = Duration::try_from_secs_f64(number * seconds).ok().filter(|found| range.contains(found));
    found.ok_or_else(|| {
        let (from, to) =
            (humantime::format_duration(*range.start()), humantime::format_duration(*range.end()));
        format!("'{text}' is out of range: use {from} to {to}")
    })
}

/// A rate per second: above 0, and at most what a machine can do.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    const RANGE: RangeInclusive<f64> = 1e-6..=1e12;
    let number = decimal(text).ok_or_else(|| format!("invalid rate '{text}': use a number"))?;
    Some(number)
        .filter(|number| RANGE.contains(number))
        .ok_or_else(|| format!("'{text}' is out of range: use 0.000001 to 1,000,000,000,000 per second"))
}

/// Reads "5%" or "0.05": above 0, at most 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = decimal(number.trim_end())
        .ok_or_else(|| format!("invalid share '{text}': use for example 5% or 0.05"))?
        / unit;
    // The least share is one byte in a terabyte.
    Some(share)
        .filter(|share| (1e-12..=1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is out of range: use more than 0% and at most 100%"))
}

/// Parses a share below 1.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    share(text)?;
    share(text)
        .ok()
        .filter(|&share| share < 1.0)
        .ok_or_else(|| format!("'{text}' leaves nothing: use less than 100%"))
}

/// Reads "64GB", "10 MB", "32 MiB", "4096": decimal or binary units, at least one byte.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "invalid size '{text}': use whole bytes, or a whole number with KB, MB, GB, TB, or KiB to TiB"
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match text[digits.len()..].trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        "TIB" => 1 << 40,
        _ => return Err(wrong()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|&size| size > 0)
        .ok_or_else(|| format!("'{text}' is out of range: use 1 byte to {} TB", u64::MAX / 1_000_000_000_000))
}

/// A number as people write one: not "inf", "NaN" or a hexadecimal.
fn decimal(text: &str) -> Option<f64> {
    let starts = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
    text.parse::<f64>().ok().filter(|number| starts && number.is_finite())
}

/// The randomness of traces that begin in a service.
pub(crate) fn random(text: &str) -> Result<RandomSource, String> {
    RandomSource::from_name(text)
        .ok_or_else(|| format!("invalid randomness '{text}': use stratified or independent"))
}

/// Parses a key. Folding of ids is a separate option for all names, so a key with its own rule is
/// refused.
pub(crate) fn key(text: &str) -> Result<Grouping, String> {
    let key: Grouping = text.parse().map_err(|error: InvalidGrouping| error.to_string())?;
    if key.clone().with_template(Template::default()) == key {
        return Ok(key);
    }
    Err(format!(
        "key '{text}' has its own rule for folding ids: omit the rule, and use --names raw or --fold, which apply to all names"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_no_template_of_their_own() {
        for text in ["name", "name+http.route", "name:template+a", "tree"] {
            assert_eq!(key(text).as_ref(), Ok(&text.parse().expect(text)), "{text}");
        }
        for text in ["name:raw", "name:raw+http.route", "name:digits=4"] {
            assert!(key(text).is_err_and(|error| error.contains("--names raw")), "{text}");
        }
        assert!(key("names").is_err_and(|error| error.contains("name+ATTRIBUTE")));
    }

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        for (text, millis) in
            [("1", 1_000), ("0.5", 500), ("500ms", 500), ("2s", 2_000), ("5m", 300_000), ("1h", 3_600_000)]
        {
            assert_eq!(window(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(window("1000us"), Ok(MILLISECOND));
        for wrong in ["", "s", "ten", "nan", "inf", "1x", "1 2", "1e", "infs", "NaNms"] {
            assert!(window(wrong).is_err_and(|error| error.contains("invalid duration")), "{wrong}");
        }
        // 18446744074 s once wrapped around to 290,448,384 ns.
        for wrong in ["0", "-1", "999us", "1e-10", "1e-300", "1e19", "1e300", "18446744074", "86401", "25h"] {
            let error = window(wrong).expect_err(wrong);
            assert_eq!(error, format!("'{wrong}' is out of range: use 1ms to 1day"));
        }
        for (text, millis) in [("0", 0), ("0s", 0), ("0ms", 0), ("0.0", 0), ("2", 2_000), ("1ms", 1)] {
            assert_eq!(hold(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["-0.1", "1us", "0x", "", "ms", "two"] {
            assert!(hold(wrong).is_err(), "{wrong}");
        }
        // Values as messages write them.
        assert_eq!((window("1day"), time_limit("1year"), window("2day").is_ok()), (Ok(DAY), Ok(YEAR), false));
        assert!(time_limit("25h").is_ok() && time_limit("1e19").is_err() && time_limit("0").is_err());
    }

    #[test]
    fn rates_are_finite_and_above_0() {
        assert_eq!((rate("20"), rate("0.5"), rate("1e6")), (Ok(20.0), Ok(0.5), Ok(1e6)));
        for wrong in ["", "0", "-0", "-1", "nan", "inf", "1e300", "1e-300", "x"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        assert_eq!(share("100 %"), Ok(1.0));
        for wrong in ["", "%", "0", "101%", "1.5", "nan", "-1%", "five", "1e-300", "1e300", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(part("100%").is_err_and(|error| error.contains("leaves nothing")));
    }

    #[test]
    fn sizes_have_decimal_or_binary_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("10 mb"), Ok(10_000_000));
        assert_eq!(size("64GB"), Ok(64_000_000_000));
        // The default of `--ring`, as the help writes it.
        assert_eq!(size("32 MiB"), Ok(32 << 20));
        assert_eq!(["1KiB", "1GiB", "1TiB"].map(size), [Ok(1 << 10), Ok(1 << 30), Ok(1 << 40)]);
        for wrong in ["", "GB", "1.5GB", "10 XB", "-1", "+1", "0", "0GB", "99999999999TB", "1e300", "nan"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
