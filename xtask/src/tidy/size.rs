//! Limits on what the repository holds: the lines of code in a source file, the bytes of recorded
//! data. Comment lines do not count, so that nobody cuts comments to meet the limit.

use super::Problem;
use crate::repo::Repo;

const LINES_MAX: usize = 600;

/// Longer files, each with the reason why it is still one concept.
const LONG: &[(&str, &str)] = &[
    ("formats/src/json/tests.rs", "one suite, over one walker, with one way to draw what it reads"),
    ("formats/src/otlp_proto/tests.rs", "one suite, over one reader and one writer"),
    ("receiver/tests/all/receive.rs", "one suite, over the one server"),
    ("recording/tests/it/source.rs", "one suite, over the one entry point"),
];

const DATA_BYTES_MAX: usize = 12_000_000;

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = lines(repo, LONG);
    problems.extend(data(repo, DATA_BYTES_MAX));
    problems
}

fn lines(repo: &Repo, long: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_long = |text: &str| code_lines(text) > LINES_MAX;
    for (path, _) in long {
        if !repo.file(path).and_then(|file| file.text()).is_some_and(is_long) {
            problems.push(Problem::file(path, "no longer needs its entry in tidy/size.rs: remove it"));
        }
    }
    for (file, text) in repo.rust_files().filter(|(_, text)| is_long(text)) {
        if !long.iter().any(|(path, _)| *path == file.path) {
            let lines = code_lines(text);
            problems.push(Problem::file(
                &file.path,
                format!("{lines} lines of code, more than {LINES_MAX}: split it by concept"),
            ));
        }
    }
    problems
}

fn code_lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).count()
}

fn data(repo: &Repo, bytes_max: usize) -> Option<Problem> {
    let files = || repo.files().filter(|file| file.is_data());
    let bytes: usize = files().map(|file| file.bytes.len()).sum();
    let largest = files().max_by_key(|file| file.bytes.len())?;
    let message =
        format!("recorded data has {bytes} bytes in total, more than {bytes_max}; this file is the largest");
    (bytes > bytes_max).then(|| Problem::file(&largest.path, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn a_long_file_needs_an_entry() {
        let (fits, long) = ("x\n    // y\n".repeat(600), "x\n".repeat(601));
        let repo = Repo::of(&[("a.rs", &fits), ("b.rs", &long), ("c.rs", &long), ("d.json", &long)]);
        let expected = ["b.rs: 601 lines of code, more than 600: split it by concept"];
        assert_eq!(printed(&lines(&repo, &[("c.rs", "a test")])), expected);
    }

    #[test]
    fn an_entry_must_be_needed() {
        let repo = Repo::of(&[("a.rs", "x\n")]);
        let expected = ["a.rs", "gone.rs"]
            .map(|path| format!("{path}: no longer needs its entry in tidy/size.rs: remove it"));
        assert_eq!(printed(&lines(&repo, &[("a.rs", "a test"), ("gone.rs", "a test")])), expected);
    }

    #[test]
    fn data_has_a_budget() {
        let repo = Repo::of(&[
            ("workloads/a", "12345"),
            ("formats/tests/data/b", "123456"),
            ("model/src/c.rs", "123"),
        ]);
        assert_eq!(data(&repo, 11), None);
        let expected = "formats/tests/data/b: recorded data has 11 bytes in total, more than 10; this file is the largest";
        assert_eq!(data(&repo, 10).map(|problem| problem.to_string()), Some(expected.to_owned()));
    }
}
