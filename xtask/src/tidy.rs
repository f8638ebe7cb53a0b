//! The tidy step: rules that neither the compiler nor clippy checks, about the crate graph of
//! ARCHITECTURE.md, documents, manifests and sizes.
//!
//! Each rule is a function from the repository (and cargo's metadata) to problems, in a file of its
//! own, with tests that break the rule. A rule about code belongs in clippy.toml or
//! `[workspace.lints]` if a lint can express it.

mod circles;
mod docs;
mod graph;
mod links;
mod manifest;
mod openers;
mod opening;
mod paths;
mod readme;
mod size;
mod text;
mod unfinished;
mod unused;
mod width;
mod words;

use std::fmt;
use std::path::Path;

use crate::metadata::Metadata;
use crate::repo::Repo;
use crate::step_result::StepResult;

/// A broken rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    /// From 1; `None` for the file as a whole.
    line: Option<usize>,
    message: String,
}

impl Problem {
    fn file(path: &str, message: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), line: None, message: message.into() }
    }

    /// A problem at the byte `offset` of `text`, the content of `path`.
    fn at(path: &str, text: &str, offset: usize, message: impl Into<String>) -> Problem {
        let line = 1 + text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count();
        Problem { path: path.to_owned(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(problems(root).map(|(files, problems)| report(files, &problems)))
}

/// The number of files, and the problems in them.
fn problems(root: &Path) -> Result<(usize, Vec<Problem>), String> {
    let (repo, metadata) = (Repo::load(root)?, Metadata::load(root)?);
    Ok((repo.files().count(), check(&repo, &metadata)))
}

fn report(files: usize, problems: &[Problem]) -> StepResult {
    for problem in problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("{files} files");
    } else {
        println!("\nproblems: {}", problems.len());
    }
    problems.is_empty().into()
}

fn check(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    let mut problems = graph::check(repo, metadata);
    problems.extend(circles::check(repo));
    problems.extend(docs::check(repo, metadata));
    problems.extend(links::check(repo));
    problems.extend(manifest::check(repo, metadata));
    problems.extend(openers::check(repo));
    problems.extend(opening::check(repo));
    problems.extend(paths::check(repo));
    problems.extend(readme::check(repo));
    problems.extend(size::check(repo));
    problems.extend(unfinished::check(repo));
    problems.extend(unused::check(repo, metadata));
    problems.extend(width::check(repo));
    problems.extend(words::check(repo));
    problems.sort();
    problems
}

/// Problems as they are printed, for the rules' tests.
#[cfg(test)]
fn printed(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
