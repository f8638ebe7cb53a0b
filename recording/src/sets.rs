//! Sets of files that are one log: `app.log`, `app.log.1`, `app.log.2.gz`, `app-2026-05-14.log`.
//!
//! A file's name is the set's with an age: a number behind it or before its ending, where a larger
//! one is older, or a date, where a later one is newer. A file with neither is the newest.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::stem::stem;

/// The age of a file in its set. Older files come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// Year, month and day (and hours), and the number of a file of that day.
    Dated(u64, u64),
    /// Renamed this often, or `old`.
    Numbered(Reverse<u64>),
    /// Written now.
    Newest,
}

/// The digits of the largest number of a rotated file.
const NUMBER_DIGITS: usize = 4;

const PACKED: [&str; 3] = [".gz", ".xz", ".zst"];

/// True for the name of a compressed file, which nobody writes to any more.
pub fn is_packed(name: &str) -> bool {
    PACKED.into_iter().any(|end| name.ends_with(end))
}

/// The name of a file's set, and the file's age.
pub fn of(name: &str) -> (String, Age) {
    let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
    let plain = PACKED.into_iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
    let (set, age) = aged(plain).unwrap_or_else(|| (plain.to_owned(), Age::Newest));
    (if folder.is_empty() && !name.starts_with('/') { set } else { format!("{folder}/{set}") }, age)
}

/// Groups the files of each set, oldest first, in the order of the first file of each. The index of
/// a file is its place among `names`.
pub fn grouped(names: &[impl AsRef<str>]) -> Vec<Vec<usize>> {
    let found: Vec<(String, Age)> = names.iter().map(|name| of(name.as_ref())).collect();
    let newest: HashSet<&str> =
        found.iter().filter(|(_, age)| *age == Age::Newest).map(|(set, _)| &**set).collect();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut by_set: HashMap<&str, usize> = HashMap::new();
    for (at, (set, age)) in found.iter().enumerate() {
        let name = names[at].as_ref();
        // `node.1` and `node.2`, or `zk.1.log` and `zk.2.log`, may be two nodes.
        let is_rotated = match age {
            Age::Numbered(_) => newest.contains(&**set) || stem(set) != set && !name.ends_with(".log"),
            _ => true,
        };
        let group = if is_rotated { *by_set.entry(set).or_insert(groups.len()) } else { groups.len() };
        match groups.get_mut(group) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    for group in &mut groups {
        group.sort_by(|&one, &other| found[one].1.cmp(&found[other].1));
    }
    groups
}

fn aged(name: &str) -> Option<(String, Age)> {
    if let Some(set) = name.strip_suffix(".old").or_else(|| name.strip_suffix(".prev")) {
        return Some((set.to_owned(), Age::Numbered(Reverse(0))));
    }
    if let Some((start, end, date)) = date(name) {
        let (before, behind) = (name[..start].trim_end_matches(['-', '.', '_']), &name[end..]);
        let rest = behind.trim_start_matches(['-', '.', '_']);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let is_number =
            digits > 0 && !matches!(rest.as_bytes().get(digits), Some(byte) if byte.is_ascii_alphanumeric());
        let (number, rest) = match is_number {
            true => (rest[..digits].parse().unwrap_or(u64::MAX), &rest[digits..]),
            false => (0, if rest.is_empty() { "" } else { &behind[behind.len() - rest.len() - 1..] }),
        };
        return (!before.is_empty()).then(|| (format!("{before}{rest}"), Age::Dated(date, number)));
    }
    let number = |part: &str| -> Option<u64> {
        let is_number =
            (1..=NUMBER_DIGITS).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    let (front, last) = name.rsplit_once('.')?;
    if let Some(number) = number(last).filter(|_| !front.is_empty()) {
        return Some((front.to_owned(), Age::Numbered(Reverse(number))));
    }
    // logback's `app.1.log`.
    let (front, number) = front.rsplit_once('.').and_then(|(front, part)| Some((front, number(part)?)))?;
    (!front.is_empty() && last == "log").then(|| (format!("{front}.{last}"), Age::Numbered(Reverse(number))))
}

/// The place of a date in a name, and its digits with those of an hour.
fn date(name: &str) -> Option<(usize, usize, u64)> {
    let bytes = name.as_bytes();
    for start in 1..bytes.len() {
        if bytes[start - 1].is_ascii_digit() || !bytes[start].is_ascii_digit() {
            continue;
        }
        let digits = |from: usize, len: usize| {
            let part = name.get(from..from + len)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok()).flatten()
        };
        let separated = matches!(bytes.get(start + 4), Some(b'-' | b'_' | b'.'));
        let gap = usize::from(separated);
        let Some((year, month, day)) = (|| {
            if separated && bytes.get(start + 7) != bytes.get(start + 4) {
                return None;
            }
            Some((digits(start, 4)?, digits(start + 4 + gap, 2)?, digits(start + 6 + 2 * gap, 2)?))
        })() else {
            continue;
        };
        let mut end = start + 8 + 2 * gap;
        let is_date = (1990..2200).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !is_date || bytes.get(end).is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let mut number = (year * 100 + month) * 100 + day;
        number *= 1_000_000;
        // An hour, or a time: `-2026-05-14-09`, `-20260514T090000`.
        if let (Some(b'-' | b'T' | b'_'), Some(len)) = (
            bytes.get(end),
            [6, 4, 2].into_iter().find(|&len| {
                digits(end + 1, len).is_some() && !bytes.get(end + 1 + len).is_some_and(u8::is_ascii_digit)
            }),
        ) {
            number += digits(end + 1, len).unwrap_or(0) * 10u64.pow(6 - len as u32);
            end += 1 + len;
        }
        return Some((start, end, number));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is a set, oldest first, as the tools of its form write it.
    #[test]
    fn the_files_of_a_set_have_one_name_and_an_age() {
        for (set, files) in [
            (
                "/var/log/app.log",
                &[
                    "/var/log/app.log.10.gz",
                    "/var/log/app.log.2.gz",
                    "/var/log/app.log.1",
                    "/var/log/app.log",
                ][..],
            ),
            ("app.log", &["app.log-20260513.gz", "app.log-20260514", "app.log"]),
            ("app.log", &["app-2026-05-13.log.gz", "app-2026-05-14.log", "app.log"]),
            (
                "app.log",
                &["app.2026-05-14.0.log", "app.2026-05-14.1.log", "app.2026-05-14.10.log", "app.log"],
            ),
            ("app.log", &["app.log.2026-05-14-08", "app.log.2026-05-14-09", "app.log"]),
            ("app.log", &["app.2.log", "app.1.log", "app.log"]),
            ("syslog", &["syslog.2.gz", "syslog.1", "syslog"]),
            ("a/b.log", &["a/b.log.old", "a/b.log"]),
        ] {
            let found: Vec<(String, Age)> = files.iter().map(|file| of(file)).collect();
            assert!(found.iter().all(|(name, _)| name == set), "{set}: {found:?}");
            assert!(found.is_sorted_by_key(|(_, age)| age.clone()), "{set}: {found:?}");
        }
    }

    #[test]
    fn numbers_that_name_nodes_make_no_set() {
        let groups = |names: &[&str]| grouped(names);
        assert_eq!(groups(&["app.log", "b.log", "app.log.1", "app.log.2.gz"]), [vec![3, 2, 0], vec![1]]);
        assert_eq!(
            groups(&["zk.1.log", "zk.2.log", "node.1", "node.2"]),
            [vec![0], vec![1], vec![2], vec![3]]
        );
        assert_eq!(groups(&["zk.1.log", "zk.log", "a/app.log.2", "a/app.log.1"]), [vec![0, 1], vec![2, 3]]);
        assert_eq!(groups(&["x-10.0.0.1.log", "x-10.0.0.2.log", "a", "b", ".log", "7"]).len(), 6);
    }
}
