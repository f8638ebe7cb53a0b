//! No comment opens with a word such as What, Who or How. It names its subject or begins with a
//! verb.

use std::collections::BTreeMap;

use super::Problem;
use super::text::prose;
use crate::repo::Repo;

const OPENERS: [&str; 8] =
    ["What ", "Who ", "How ", "So many ", "Whether what ", "Of ", "That of ", "Those of "];

/// Crates that still have such comments, with the largest accepted number for each. The numbers may
/// only fall.
const ALLOWED: &[(&str, usize)] = &[];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    check_except(repo, ALLOWED)
}

fn check_except(repo: &Repo, allowed: &[(&str, usize)]) -> Vec<Problem> {
    let mut found: BTreeMap<&str, Vec<Problem>> = BTreeMap::new();
    for (file, text) in [".rs", ".toml"].into_iter().flat_map(|extension| repo.with_extension(extension)) {
        if file.is_data() {
            continue;
        }
        for line in prose(file, text).into_iter().filter(|line| line.opens) {
            if OPENERS.iter().any(|opener| line.text.starts_with(opener)) {
                let folder = file.path.split('/').next().unwrap_or_default();
                let message =
                    format!("open with the thing's name or a verb, not with \"{:.30}...\"", line.text);
                let path = file.path.clone();
                found.entry(folder).or_default().push(Problem { path, line: Some(line.number), message });
            }
        }
    }
    let most = |folder: &str| allowed.iter().find(|(name, _)| *name == folder).map_or(0, |(_, most)| *most);
    found
        .into_iter()
        .filter(|(folder, found)| found.len() > most(folder))
        .flat_map(|(_, found)| found)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn openers_are_found_up_to_the_allowance() {
        let text = "//! Reads.\n\n/// What is read\n/// How it is read.\nfn f() {}\n\n// Who knows.\n";
        let repo = Repo::of(&[("a/src/b.rs", text)]);
        let expected = [
            "a/src/b.rs:3: open with the thing's name or a verb, not with \"What is read...\"",
            "a/src/b.rs:7: open with the thing's name or a verb, not with \"Who knows....\"",
        ];
        assert_eq!(printed(&check_except(&repo, &[])), expected);
        assert_eq!(printed(&check_except(&repo, &[("a", 1)])), expected);
        assert_eq!(check_except(&repo, &[("a", 2)]), []);
        assert_eq!(check_except(&Repo::of(&[("a.rs", "// Whatever.\nlet a = \"// What \";")]), &[]), []);
    }
}
