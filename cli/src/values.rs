//! Values of options: numbers, shares and sizes.

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| format!("'{text}' is no number above 0"))
}

/// Reads a share of something that leaves a rest.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    share(text)?;
    share(text).ok().filter(|&share| share < 1.0).ok_or_else(|| format!("'{text}' leaves no rest"))
}

/// Reads "5%" or "0.05".
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    let wrong = || format!("'{text}' is no share: write for example 5% or 0.05");
    share.filter(|share| (0.0..=1.0).contains(share) && *share > 0.0).ok_or_else(wrong)
}

/// Reads "64GB", "10 MB", "4096": decimal units.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write bytes, or a number with KB, MB, GB or TB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match text[digits.len()..].trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        assert_eq!(share("100 %"), Ok(1.0));
        for wrong in ["", "%", "0", "101%", "1.5", "nan", "-1%", "five"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_decimal_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("10 mb"), Ok(10_000_000));
        assert_eq!(size("64GB"), Ok(64_000_000_000));
        for wrong in ["", "GB", "1.5GB", "10 XB", "-1", "99999999999TB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
