//! The README's test command is the one that CI runs. CI adds the affected slow steps, and may
//! install what they need.

use super::Problem;
use crate::repo::Repo;

const COMMANDS: [(&str, &str); 3] = [
    ("README.md", "cargo xtask test"),
    (".ci/run", "cargo xtask test affected --install"),
    (".github/workflows/ci.yml", "run: cargo xtask test affected --install"),
];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let has_line = |path: &str, command: &str| {
        let text = repo.file(path).and_then(|file| file.text()).unwrap_or_default();
        text.lines().any(|line| line.trim().trim_start_matches(['-', ' ']) == command)
    };
    COMMANDS
        .into_iter()
        .filter(|(path, command)| !has_line(path, command))
        .map(|(path, command)| Problem::file(path, format!("has no line `{command}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn each_file_has_its_command() {
        let readme = ("README.md", "```sh\ncargo xtask test\n```\n");
        let workflow =
            (".github/workflows/ci.yml", "steps:\n      - run: cargo xtask test affected --install\n");
        let run = (".ci/run", "set -e\ncargo xtask test affected --install\n");
        assert_eq!(check(&Repo::of(&[readme, run, workflow])), []);
        let other = (".ci/run", "set -e\n# cargo xtask test affected --install\ncargo test\n");
        let expected = [".ci/run: has no line `cargo xtask test affected --install`"];
        assert_eq!(printed(&check(&Repo::of(&[readme, other, workflow]))), expected);
    }
}
