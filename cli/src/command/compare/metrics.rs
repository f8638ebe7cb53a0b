//! The file of `--metrics`: time, entity, name and value of each sample.

use std::path::Path;

use astracer_compare::metrics::Metrics;
use csv::{ReaderBuilder, StringRecord, Trim};

use super::when;
use crate::bounded::read_input;
use crate::failure::Failure;
use crate::output::{count, escaped, plural, shown};

/// The largest file of metrics: some four million rows.
const BYTES_MAX: u64 = 256 << 20;
/// The columns of a file without a heading, and the names that a heading may have for each.
const COLUMNS: [&[&str]; 4] = [
    &["time", "timestamp"],
    &["entity", "pod", "service", "host", "node", "instance"],
    &["name", "metric"],
    &["value"],
];

/// Metrics, and a line of text about rows that were left out.
#[derive(Default)]
pub(super) struct Read {
    pub(super) metrics: Metrics,
    pub(super) note: String,
}

/// Reads a file of metrics.
pub(super) fn read(path: Option<&Path>) -> Result<Read, Failure> {
    let Some(path) = path else { return Ok(Read::default()) };
    let failed = |error: String| Failure::Job(format!("{}: {error}", shown(path)));
    let bytes = read_input(path, BYTES_MAX);
    let bytes = bytes.map_err(|error| failed(error.to_string()))?;
    let bytes =
        bytes.ok_or_else(|| failed("larger than 256 MiB; give the metrics of a shorter time".to_owned()))?;
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(&*bytes);
    let mut metrics = Metrics::default();
    let mut places = [0, 1, 2, 3];
    let (mut skipped, mut example) = (0u64, String::new());
    for (number, row) in (1u64..).zip(reader.records()) {
        let found = match &row {
            Ok(row) if number == 1 && heading(row).is_some() => {
                places = heading(row).unwrap_or(places);
                continue;
            }
            Ok(row) => sample(row, places),
            Err(error) => Err(error.to_string()),
        };
        match found {
            Ok((time, entity, name, value)) => metrics.add(time, entity, name, value),
            Err(reason) => {
                skipped += 1;
                if example.is_empty() {
                    example = format!("row {number}: {reason}");
                }
            }
        }
    }
    if metrics.is_empty() {
        let reason = if example.is_empty() { String::new() } else { format!("; {}", escaped(&example)) };
        return Err(failed(format!("no metrics; rows are time,entity,name,value{reason}")));
    }
    metrics.sort();
    let mut note = format!(
        "{} series of --metrics; values at one time are the same for all traces, so their chances are too small: trust \
         placebos and several runs\n",
        count(metrics.len() as u64),
    );
    if skipped > 0 {
        note += &format!("skipped: {} of {}: {}\n", plural(skipped, "row"), shown(path), escaped(&example));
    }
    Ok(Read { metrics, note })
}

/// The places of the columns, if this is a heading.
fn heading(row: &StringRecord) -> Option<[usize; 4]> {
    let place = |names: &[&str]| row.iter().position(|cell| names.contains(&&*cell.to_ascii_lowercase()));
    let found = COLUMNS.map(place);
    let [time, entity, name, value] = found;
    Some([time?, entity.unwrap_or(usize::MAX), name?, value?])
}

fn sample(
    row: &StringRecord,
    [time, entity, name, value]: [usize; 4],
) -> Result<(u64, &str, &str, f64), String> {
    let cell = |at: usize| row.get(at).unwrap_or_default();
    let at = self::time(cell(time)).ok_or_else(|| format!("'{}' is not a time", cell(time)))?;
    let number: Option<f64> = cell(value).parse().ok().filter(|value: &f64| value.is_finite());
    let number = number.ok_or_else(|| format!("'{}' is not a number", cell(value)))?;
    match cell(name) {
        "" => Err("no name".to_owned()),
        name => Ok((at, cell(entity), name, number)),
    }
}

/// A time as RFC 3339 has it, or a number since 1970 whose unit follows from its size: seconds, ms,
/// us or ns. In nanoseconds.
fn time(text: &str) -> Option<u64> {
    if let Some(time) = when::unix_ns(text) {
        return Some(time);
    }
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    // Whole numbers of nanoseconds have more digits than a double.
    if let (Ok(whole), true) = (text.parse::<u64>(), number >= 1e17) {
        return Some(whole);
    }
    let unit = match number {
        ..1e11 => 1e9,
        ..1e14 => 1e6,
        ..1e17 => 1e3,
        _ => 1.0,
    };
    Some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_of_their_size() {
        let want = 1_674_984_938_000_000_000;
        for text in [
            "2023-01-29T09:35:38Z",
            "2023-01-29 09:35:38",
            "1674984938",
            "1674984938000",
            "1674984938000000",
            "1674984938000000000",
        ] {
            assert_eq!(time(text), Some(want), "{text}");
        }
        for wrong in ["", "x", "-1", "0", "NaN"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_heading_names_the_columns() {
        let row = |cells: &[&str]| StringRecord::from(cells.to_vec());
        assert_eq!(heading(&row(&["Metric", "value", "pod", "Timestamp"])), Some([3, 2, 0, 1]));
        assert_eq!(heading(&row(&["time", "name", "value"])), Some([0, usize::MAX, 1, 2]));
        assert_eq!(heading(&row(&["1674984938", "dn1", "cpu", "3"])), None);
        assert_eq!(
            sample(&row(&["1674984938", "dn1", "cpu", "3"]), [0, 1, 2, 3]),
            Ok((1_674_984_938_000_000_000, "dn1", "cpu", 3.0))
        );
        assert!(sample(&row(&["1674984938", "dn1", "cpu", "NaN"]), [0, 1, 2, 3]).is_err());
    }
}
