//! No tracked text contains a path on one machine, because a clone must not need files outside of
//! it.

use super::Problem;
use crate::repo::Repo;

/// Folders at a file system's root. The slashes are added by the code, so that this file does not
/// break its own rule.
const FOLDERS: &[&str] = &["work", "home", "root", "Users"];

/// Files that contain such a path, each with the reason.
const ALLOWED: &[(&str, &str)] = &[];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    check_except(repo, ALLOWED)
}

fn check_except(repo: &Repo, allowed: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, _) in allowed {
        let needed = repo.file(path).and_then(|file| file.text()).is_some_and(|text| first(text).is_some());
        if !needed {
            problems.push(Problem::file(path, "no longer needs its entry in tidy/paths.rs: remove it"));
        }
    }
    for file in repo.files().filter(|file| !allowed.iter().any(|(path, _)| *path == file.path)) {
        let Some(text) = file.text() else { continue };
        if let Some((offset, folder)) = first(text) {
            problems.push(Problem::at(
                &file.path,
                text,
                offset,
                format!("a path that exists on one machine only: /{folder}/..."),
            ));
        }
    }
    problems
}

/// The first machine path in `text`: its offset and its folder.
fn first(text: &str) -> Option<(usize, &'static str)> {
    let found = FOLDERS.iter().filter_map(|&folder| {
        let pattern = format!("/{folder}/");
        let offset =
            text.match_indices(&pattern).map(|(offset, _)| offset).find(|&offset| starts_path(text, offset));
        Some((offset?, folder))
    });
    found.min()
}

/// Whether the slash at `offset` begins a path. In `a/work/b` and in `https://host/work/` it does
/// not.
fn starts_path(text: &str, offset: usize) -> bool {
    let before = text[..offset].chars().next_back();
    before.is_none_or(|before| !(before.is_alphanumeric() || "_-./~*})>".contains(before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn a_machine_path_is_found() {
        for folder in FOLDERS {
            let text = format!("one\ncd /{folder}/me/astracer\n");
            let expected = [format!("a.md:2: a path that exists on one machine only: /{folder}/...")];
            assert_eq!(printed(&check(&Repo::of(&[("a.md", &text)]))), expected);
        }
    }

    #[test]
    fn other_paths_are_fine() {
        for text in
            ["frame/work/a", "https://example.com/home/a", "../root/a", "/homes/a", "$HOME/a", "{x}/work/a"]
        {
            assert_eq!(check(&Repo::of(&[("a.md", text)])), [], "{text}");
        }
    }

    #[test]
    fn an_entry_allows_one_file_and_must_be_needed() {
        let text = format!("/{}/hadoop", "home");
        let repo = Repo::of(&[("a.log", &text), ("b.log", &text), ("c.log", "")]);
        let expected = [
            "c.log: no longer needs its entry in tidy/paths.rs: remove it",
            &format!("b.log:1: a path that exists on one machine only: {text}...").replace("hadoop", ""),
        ];
        assert_eq!(printed(&check_except(&repo, &[("a.log", "recorded"), ("c.log", "recorded")])), expected);
    }
}
