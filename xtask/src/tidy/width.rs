//! Comments stay within 100 columns. Tables, code blocks and single long words (links) may be
//! wider.

use super::Problem;
use super::text::prose;
use crate::repo::Repo;

const COLUMNS_MAX: usize = 100;

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, text) in repo.rust_files().filter(|(file, _)| !file.is_data()) {
        let lines: Vec<&str> = text.lines().collect();
        let mut in_code = false;
        for line in prose(file, text) {
            in_code ^= line.text.starts_with("```");
            let columns = lines[line.number - 1].chars().count();
            let is_free = in_code || line.text.starts_with(['|', '[', '`']) || !has_break(line.text);
            if columns > COLUMNS_MAX && !is_free {
                let message = format!("a comment of {columns} columns, more than {COLUMNS_MAX}");
                problems.push(Problem { path: file.path.clone(), line: Some(line.number), message });
            }
        }
    }
    problems
}

/// Whether the text can be broken: it has a space outside of `code`.
fn has_break(text: &str) -> bool {
    text.split('`').step_by(2).any(|part| part.trim().contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn wide_comments_are_found() {
        let word = "x".repeat(60);
        let text = format!(
            "/// {word} {word}\n// ```text\n// {word} {word}\n// ```\n// | {word} | {word} |\n\
             let a = \"{word} {word}\";\n// {word}{word}\n// `{word} {word}`\n    // {word} {}\n",
            "y".repeat(32)
        );
        let expected = ["a.rs:1: a comment of 125 columns, more than 100"];
        assert_eq!(printed(&check(&Repo::of(&[("a.rs", &text)]))), expected);
    }
}
