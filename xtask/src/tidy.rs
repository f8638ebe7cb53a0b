//! What the compiler does not check: the crate graph of ARCHITECTURE.md, and the invariants that say what is absent.
//!
//! Each rule is a function from the repository (and cargo's metadata) to problems, in a file of its own, with tests
//! in which the rule is broken.

mod absences;
mod docs;
mod graph;
mod links;
mod manifest;
mod paths;
mod readme;
mod size;
mod source;

use std::fmt;
use std::path::Path;

use crate::metadata::Metadata;
use crate::repo::Repo;
use crate::step::Outcome;

/// Something that breaks a rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    /// From 1; `None` if it is about the file as a whole.
    line: Option<usize>,
    message: String,
}

impl Problem {
    fn file(path: &str, message: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), line: None, message: message.into() }
    }

    /// At the byte `offset` of `text`, the content of `path`.
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

pub(crate) fn run(root: &Path) -> Outcome {
    Outcome::of(problems(root).map(|(files, problems)| tell(files, &problems)))
}

/// How many files there are, and what is wrong with them.
fn problems(root: &Path) -> Result<(usize, Vec<Problem>), String> {
    let (repo, metadata) = (Repo::load(root)?, Metadata::load(root)?);
    Ok((repo.files().count(), check(&repo, &metadata)))
}

fn tell(files: usize, problems: &[Problem]) -> Outcome {
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
    problems.extend(absences::check(repo));
    problems.extend(docs::check(repo, metadata));
    problems.extend(links::check(repo));
    problems.extend(manifest::check(repo, metadata));
    problems.extend(paths::check(repo));
    problems.extend(readme::check(repo));
    problems.extend(size::check(repo));
    problems.sort();
    problems
}

/// For the rules' tests: what they found, as it is printed.
#[cfg(test)]
fn printed(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
