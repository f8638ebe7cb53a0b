//! Every link in a Markdown file to a file of the repository, or to a heading, has a target.

use std::collections::BTreeSet;

use super::Problem;
use crate::repo::{File, Repo};

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    // Documents in a data folder mostly come from elsewhere; only their README is ours.
    for (file, text) in
        repo.with_extension(".md").filter(|(file, _)| !file.is_data() || file.path.ends_with("README.md"))
    {
        let prose = without_code(text);
        for (offset, target) in links(&prose) {
            if let Some(message) = broken(repo, file, target) {
                problems.push(Problem::at(&file.path, text, offset, message));
            }
        }
    }
    problems
}

/// The problem with the link from `file` to `target`, if there is one.
fn broken(repo: &Repo, file: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let linked = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
    let Some(linked) = linked.filter(|linked| repo.contains(linked)) else {
        return Some(format!("the link to {target} has no target in the repository"));
    };
    let text = repo.file(&linked).filter(|file| file.path.ends_with(".md"))?.text()?;
    (!headings(text).contains(heading?)).then(|| format!("the link to {target} names no heading"))
}

/// `path` relative to the folder of `from`; `None` if it leaves the repository.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of `[text](target)`, `[text](target "title")` and `[label]: target`, with their
/// offsets.
fn links(prose: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let start = at + 2;
        if let Some(length) = prose[start..].find(')') {
            found.push((start, prose[start..start + length].split_whitespace().next().unwrap_or_default()));
        }
    }
    let mut line_start = 0;
    for line in prose.split_inclusive('\n') {
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
            && !label.starts_with("[^")
        {
            found.push((line_start, target.split_whitespace().next().unwrap_or_default()));
        }
        line_start += line.len();
    }
    found
}

/// `text` with fenced blocks and code spans replaced by blanks, at the same offsets.
fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        let mut code = fenced || fence;
        fenced ^= fence;
        for character in line.chars() {
            let tick = character == '`' && !fence;
            if tick && !fenced {
                code = !code;
            }
            if (code || tick) && character != '\n' {
                prose.extend(std::iter::repeat_n(' ', character.len_utf8()));
            } else {
                prose.push(character);
            }
        }
    }
    prose
}

/// The anchors that GitHub generates for a document's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut unique = anchor.clone();
        let mut number = 0;
        while !anchors.insert(unique.clone()) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[track_caller]
    fn check_text(text: &str, expected: &[&str]) {
        let other = "# The `one`, and only\n\n## Part\n## Part\n";
        let repo = Repo::of(&[("docs/a.md", text), ("docs/b.md", other), ("src/lib.rs", ""), ("c.md", "")]);
        assert_eq!(printed(&check(&repo)), expected);
    }

    #[test]
    fn links_that_lead_somewhere() {
        check_text("[a](b.md) [b](../src/lib.rs) [c](../src) [d](../src/) [e](./b.md \"title\")", &[]);
        check_text("[a](https://example.com/x.md) <https://example.com> [m](mailto:a@example.com)", &[]);
        check_text("[x]: ../c.md\n[^1]: note.md\n", &[]);
        check_text("# Here it is\n[a](#here-it-is) [b](b.md#the-one-and-only) [c](b.md#part-1)", &[]);
        check_text("`[a](gone.md)`\n```\n[a](gone.md)\n```\n[a](b.md)", &[]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        check_text("a\n[a](gone.md)", &["docs/a.md:2: the link to gone.md has no target in the repository"]);
        check_text(
            "[a](../../c.md)",
            &["docs/a.md:1: the link to ../../c.md has no target in the repository"],
        );
        check_text(
            "a\n\n[x]: gone.md",
            &["docs/a.md:3: the link to gone.md has no target in the repository"],
        );
        check_text("[a](#gone)", &["docs/a.md:1: the link to #gone names no heading"]);
        check_text("[a](b.md#part-2)", &["docs/a.md:1: the link to b.md#part-2 names no heading"]);
        check_text(
            "`code` [a](gone.md) `code`",
            &["docs/a.md:1: the link to gone.md has no target in the repository"],
        );
    }
}
