//! Every crate and every module begins with its purpose.

use super::Problem;
use crate::metadata::Metadata;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    let mut problems = crate_roots(repo, metadata);
    problems.extend(modules(repo));
    problems.sort();
    problems.dedup();
    problems
}

/// Unpublished crates too: a newcomer looks for their purpose.
fn crate_roots(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    let targets = metadata.ours().flat_map(|package| &package.targets);
    let roots = targets.filter(|target| {
        target.kind.iter().any(|kind| ["lib", "bin", "proc-macro"].contains(&kind.as_str()))
    });
    roots.filter_map(|root| without_job(repo, &metadata.relative(&root.src_path))).collect()
}

fn modules(repo: &Repo) -> Vec<Problem> {
    let sources = repo
        .rust_files()
        .filter(|(file, _)| file.path.contains("/src/") && !file.path.ends_with("/tests.rs"));
    sources.filter_map(|(file, _)| without_job(repo, &file.path)).collect()
}

fn without_job(repo: &Repo, path: &str) -> Option<Problem> {
    let text = repo.file(path)?.text()?;
    // Attributes may precede the documentation, or contain it: `#![doc = include_str!(...)]`.
    let mut lines = text.lines().map(str::trim);
    let first =
        lines.find(|line| !line.is_empty() && (!line.starts_with("#!") || line.starts_with("#![doc")));
    let opens = first.is_some_and(|line| line.starts_with("//! ") || line.starts_with("#![doc"));
    (!opens).then(|| Problem::file(path, "has no module documentation: begin with its purpose (`//! ...`)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Package, Resolve, Target};
    use crate::tidy::printed;

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[&str]) {
        let package = Package {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            manifest_path: "/root-of-test/x/Cargo.toml".to_owned(),
            targets: vec![Target {
                kind: vec!["lib".to_owned()],
                src_path: "/root-of-test/x/lib.rs".to_owned(),
            }],
            ..Package::default()
        };
        let metadata = Metadata {
            packages: vec![package],
            workspace_root: "/root-of-test".to_owned(),
            target_directory: String::new(),
            resolve: Resolve::default(),
        };
        assert_eq!(printed(&check(&Repo::of(&[(path, text)]), &metadata)), expected);
    }

    #[test]
    fn a_file_opens_with_its_job() {
        check_file("x/lib.rs", "//! Decides.\n", &[]);
        check_file("x/lib.rs", "#![no_std]\n\n//! Decides.\n", &[]);
        check_file("x/lib.rs", "#![doc = include_str!(\"../README.md\")]\n", &[]);
        check_file("x/src/tests.rs", "use super::*;", &[]);
        check_file("x/build.rs", "fn main() {}", &[]);
    }

    #[test]
    fn a_file_without_a_job_is_found() {
        let message = "has no module documentation: begin with its purpose (`//! ...`)";
        check_file("x/lib.rs", "pub fn f() {}\n//! Late.", &[&format!("x/lib.rs: {message}")]);
        check_file("x/lib.rs", "", &[&format!("x/lib.rs: {message}")]);
        check_file("x/src/a.rs", "// Decides.\n", &[&format!("x/src/a.rs: {message}")]);
    }
}
