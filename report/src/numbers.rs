//! Numbers with few digits, and with separators if they are large.

/// Formats 1234567 as "1,234,567".
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Formats a number of any size with about four digits: "0.0123", "12.34", "123,456"; "-" if it
/// is not finite, as dist/entropy is where calls of only one function are kept.
pub fn measure(number: f64) -> String {
    match number.abs() {
        size if !size.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => whole(number),
        size if size >= 100.0 => format!("{number:.1}"),
        size if size >= 10.0 => format!("{number:.2}"),
        size if size >= 0.001 => format!("{number:.3}"),
        _ => format!("{number:.1e}"),
    }
}

/// Three digits: "1.2e-5", "0.0123", "6.59", "16.7", "1,235". "-" if it is not finite.
pub fn three(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() || size >= 99.95 || size == 0.0 {
        return whole(number);
    }
    if size < 0.01 {
        return format!("{number:.1e}");
    }
    // Rounding may add a digit before the point: 9.996 is "10.0".
    let digits = (2 - (size * 1.000_5).log10().floor() as i32).clamp(0, 9) as usize;
    format!("{number:.digits$}")
}

/// A label of an axis: as [`three`], with M and k for large numbers and without zeros at the end.
pub fn tick(number: f64) -> String {
    match number.abs() {
        size if size >= 1e6 => format!("{}M", tick(number / 1e6)),
        size if size >= 1e4 => format!("{}k", tick(number / 1e3)),
        size if size < 0.01 => three(number).replace(".0e", "e"),
        _ => {
            let text = three(number);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
    }
}

/// With three decimals; "-" if it is not finite.
pub fn fixed(number: f64) -> String {
    if number.is_finite() { format!("{number:.3}") } else { "-".to_owned() }
}

/// A length of time for people: "0.8 s", "41 s", "4 min 12 s", "2 h 51 min", "3 days 4 h".
pub fn span(seconds: f64) -> String {
    // Half a unit of the smaller part is what is rounded.
    let parts = |large: u64, small: u64, names: (&str, &str)| {
        let whole = (seconds / small as f64).round() as u64;
        let (large, small) = (whole / (large / small), whole % (large / small));
        let day = if large == 1 { "day" } else { "days" };
        let unit = if names.0 == "day" { day } else { names.0 };
        let large = format!("{} {unit}", count(large));
        if small == 0 { large } else { format!("{large} {small} {}", names.1) }
    };
    match seconds {
        seconds if !seconds.is_finite() => "-".to_owned(),
        0.0 => "0 s".to_owned(),
        seconds if seconds < 0.9995 => format!("{} ms", measure(seconds * 1e3)),
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 119.5 => format!("{seconds:.0} s"),
        seconds if seconds < 3_599.5 => parts(60, 1, ("min", "s")),
        seconds if seconds < 86_370.0 => parts(3_600, 60, ("h", "min")),
        _ => parts(86_400, 3_600, ("day", "h")),
    }
}

/// Formats a number without a fraction: 1234.5 as "1,235"; "-" if it is not finite.
pub fn whole(number: f64) -> String {
    // `+ 0.0` turns -0.0 into 0.0.
    let rounded = number.round() + 0.0;
    if !rounded.is_finite() {
        return "-".to_owned();
    }
    let text = rounded.to_string();
    match text.strip_prefix('-') {
        Some(digits) => format!("-{}", grouped(digits)),
        None => grouped(&text),
    }
}

/// Formats a share, 0 to 1, as a percentage: "12.3 %", or "1.23 %" below 10 %; "-" if it is not
/// finite.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        return "-".to_owned();
    }
    if percent >= 9.995 { format!("{percent:.1} %") } else { format!("{percent:.2} %") }
}

/// The percentage that a user wrote as this share: "7" for 0.07, not "7.000000000000001".
pub fn written_percent(share: f64) -> String {
    let percent = share * 100.0;
    // Multiplying and dividing by a hundred changes only digits far beyond these.
    format!("{percent:.11e}").parse().unwrap_or(percent).to_string()
}

/// Formats a number with one decimal, or with none if it is whole.
pub fn one(number: f64) -> String {
    if number.fract() == 0.0 || !number.is_finite() { whole(number) } else { format!("{number:.1}") }
}

/// As [`measure`]; "-" for `None`.
pub fn optional(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), measure)
}

/// As [`measure`], with a plus sign for numbers above 0.
pub fn signed(number: f64) -> String {
    let sign = if number > 0.0 { "+" } else { "" };
    format!("{sign}{}", measure(number))
}

/// As [`three`], with a plus sign for numbers above 0.
pub fn change(number: f64) -> String {
    let sign = if number > 0.0 { "+" } else { "" };
    format!("{sign}{}", three(number))
}

/// Returns true if a number is above another and also looks larger with this many decimals, so that
/// a rounding error in a sum never marks equal-looking numbers as different.
pub fn is_above(number: f64, other: f64, decimals: usize) -> bool {
    number > other && format!("{number:.decimals$}") != format!("{other:.decimals$}")
}

/// Inserts a comma before each group of three digits.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digit.is_ascii_digit() && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_equal_is_not_above() {
        assert!(is_above(0.002, 0.001, 3) && is_above(9.1, 9.0, 1));
        for (number, other) in [(4.8e-14, 0.0), (100.0, 100.0 - 1e-12), (1.0, 2.0), (f64::NAN, 0.0)] {
            assert!(!is_above(number, other, 3), "{number} {other}");
        }
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.00001, "1.0e-5"),
            (0.12345, "0.123"),
            (-0.5, "-0.500"),
            (19.123, "19.12"),
            (123.456, "123.5"),
            (42_648.25, "42,648"),
            (-1_234.5, "-1,235"),
            (f64::INFINITY, "-"),
            (f64::NEG_INFINITY, "-"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(measure(number), expected, "{number}");
        }
        assert_eq!([0.4, -0.4, 999.5, 1e6, -999.9].map(whole), ["0", "0", "1,000", "1,000,000", "-1,000"]);
        for number in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!([whole, one, three, fixed, percent, measure].map(|of| of(number)), ["-"; 6]);
        }
    }

    #[test]
    fn three_digits_are_enough_for_a_comparison() {
        for (number, expected) in [
            (0.0, "0"),
            (0.000_012_34, "1.2e-5"),
            (0.012_34, "0.0123"),
            (0.165, "0.165"),
            (6.594, "6.59"),
            (9.996, "10.0"),
            (16.72, "16.7"),
            (99.96, "100"),
            (123.4, "123"),
            (12_345.6, "12,346"),
            (-6.594, "-6.59"),
            (f64::INFINITY, "-"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(three(number), expected, "{number}");
        }
    }

    #[test]
    fn labels_of_axes_are_short() {
        let labels = [0.0, 0.5, 20.0, 100.0, 1_000.0, 30_000.0, 2e6, 1e-3, -5.0, 0.05];
        assert_eq!(labels.map(tick), ["0", "0.5", "20", "100", "1,000", "30k", "2M", "1e-3", "-5", "0.05"]);
    }

    #[test]
    fn a_change_has_a_sign() {
        assert_eq!([1.0, 0.0, -1.569, f64::NAN].map(change), ["+1.00", "0", "-1.57", "-"]);
    }

    #[test]
    fn shares_and_signs_are_for_people() {
        assert_eq!(
            [0.0, 0.0123, 0.0999, 0.099_96, 1.0].map(percent),
            ["0.00 %", "1.23 %", "9.99 %", "10.0 %", "100.0 %"]
        );
        let written = ["7", "10", "12.5", "0.1", "0.0000000001", "100", "14.285714285"];
        for percent in written {
            assert_eq!(written_percent(percent.parse::<f64>().expect("a number") / 100.0), percent);
        }
        assert_eq!([0.07, 0.14, 0.28, 0.57, 1.0].map(written_percent), ["7", "14", "28", "57", "100"]);
        assert_eq!([3.0, 3.25, 1234.0].map(one), ["3", "3.2", "1,234"]);
        assert_eq!([Some(0.5), None].map(optional), ["0.500", "-"]);
        assert_eq!([1.0, 0.0, -2000.0].map(signed), ["+1.000", "0", "-2,000"]);
    }

    #[test]
    fn lengths_of_time_are_for_people() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.000_25, "0.250 ms"),
            (0.8, "800.0 ms"),
            (0.999_9, "1.0 s"),
            (4.21, "4.2 s"),
            (26.1, "26 s"),
            (119.6, "2 min"),
            (252.0, "4 min 12 s"),
            (3_599.9, "1 h"),
            (10_260.0, "2 h 51 min"),
            (86_399.0, "1 day"),
            (273_600.0, "3 days 4 h"),
            (254_920_229.1, "2,950 days 11 h"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(span(seconds), expected, "{seconds}");
        }
    }
}
