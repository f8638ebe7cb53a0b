//! The README's test command is the one that CI runs.

use super::Problem;
use crate::repo::Repo;

const COMMAND: &str = "cargo xtask ci";

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let names_it = |path: &str| {
        let text = repo.file(path).and_then(|file| file.text()).unwrap_or_default();
        text.lines().any(|line| line.trim_start_matches("exec ").trim() == COMMAND)
    };
    ["README.md", ".ci/run"]
        .into_iter()
        .filter(|path| !names_it(path))
        .map(|path| Problem::file(path, format!("has no line `{COMMAND}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn both_name_the_command() {
        let readme = ("README.md", "```sh\ncargo xtask ci\n```\n");
        assert_eq!(check(&Repo::of(&[readme, (".ci/run", "set -e\nexec cargo xtask ci\n")])), []);
        let other = Repo::of(&[readme, (".ci/run", "set -e\n# cargo xtask ci\ncargo test\n")]);
        assert_eq!(printed(&check(&other)), [".ci/run: has no line `cargo xtask ci`"]);
    }
}
