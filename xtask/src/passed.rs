//! The tracked record of the commit at which each slow step last passed, `xtask/passed.txt`: a line
//! for each step with its name and the commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::inputs;
use crate::metadata::Metadata;
use crate::step::Step;

const FILE: &str = "xtask/passed.txt";
const HEADER: &str = "\
# The commit at which each slow step last passed; `cargo xtask affected` and `release` write it.
# Commit it with the change.
";

/// Step names with commits.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Passed(BTreeMap<String, String>);

impl Passed {
    /// Reads the record; a missing file is an empty one.
    pub(crate) fn load(root: &Path) -> Passed {
        Passed::parse(&std::fs::read_to_string(root.join(FILE)).unwrap_or_default())
    }

    fn parse(text: &str) -> Passed {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Passed(lines.filter_map(|line| line.split_once(' ')).map(owned).collect())
    }

    fn text(&self) -> String {
        let lines = self.0.iter().map(|(step, commit)| format!("{step} {commit}\n"));
        lines.fold(HEADER.to_owned(), |text, line| text + &line)
    }

    /// Records that `step` passes at the current commit. Does nothing if what the step reads has
    /// uncommitted changes, since then no commit names the state that passed.
    ///
    /// # Errors
    ///
    /// If git fails or the file cannot be written.
    pub(crate) fn record(root: &Path, metadata: &Metadata, step: Step) -> Result<(), String> {
        let status = git_over(root, &["status", "--porcelain", "--"], metadata, step)?;
        if !status.trim().is_empty() {
            println!("{}: not recorded as passed, because its inputs have uncommitted changes", step.name());
            return Ok(());
        }
        let mut passed = Passed::load(root);
        passed.0.insert(step.name().to_owned(), git(root, &["rev-parse", "HEAD"])?.trim().to_owned());
        std::fs::write(root.join(FILE), passed.text()).map_err(|error| format!("{FILE}: {error}"))
    }

    /// Whether the inputs of `step` have changed since it last passed.
    pub(crate) fn state(&self, root: &Path, metadata: &Metadata, step: Step) -> State {
        let Some(commit) = self.0.get(step.name()) else { return State::Stale { since: 0 } };
        let date = git(root, &["show", "--no-patch", "--format=%ct", commit]);
        // A commit that this clone does not have says nothing about the files here.
        let Some(since) = date.ok().and_then(|date| date.trim().parse().ok()) else {
            return State::Stale { since: 0 };
        };
        match git_over(root, &["diff", "--name-only", commit, "--"], metadata, step) {
            Ok(changed) if changed.trim().is_empty() => State::Unchanged,
            _ => State::Stale { since },
        }
    }
}

/// A slow step compared with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unchanged,
    /// Its inputs have changed since the commit of this Unix time; 0 if no known commit passed.
    Stale {
        since: u64,
    },
}

fn owned((step, commit): (&str, &str)) -> (String, String) {
    (step.to_owned(), commit.trim().to_owned())
}

/// Runs git with the pathspecs of what the step reads at the end.
fn git_over(root: &Path, args: &[&str], metadata: &Metadata, step: Step) -> Result<String, String> {
    let paths = inputs::pathspecs(metadata, step);
    let args: Vec<&str> = args.iter().copied().chain(paths.iter().map(String::as_str)).collect();
    git(root, &args)
}

pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo;

    #[test]
    fn the_record_reads_what_it_writes() {
        let text = format!("{HEADER}e2e 0123\nloom 4567\n");
        let passed = Passed::parse(&text);
        assert_eq!(passed.0["loom"], "4567");
        assert_eq!(passed.text(), text);
        assert_eq!(Passed::parse(""), Passed::default());
    }

    #[test]
    fn unknown_steps_and_commits_are_stale() {
        let root = repo::root();
        let metadata = Metadata::load(&root).unwrap();
        let state = |text: &str| Passed::parse(text).state(&root, &metadata, Step::Loom);
        assert_eq!(state(""), State::Stale { since: 0 });
        assert_eq!(state("loom 0123456789012345678901234567890123456789\n"), State::Stale { since: 0 });
    }
}
