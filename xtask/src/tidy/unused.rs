//! Every dependency is used: its name occurs in a source file of the crate, or in the crate's
//! README, which is compiled as doc tests.

use super::Problem;
use super::text::find_word;
use crate::metadata::Metadata;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in metadata.ours() {
        let folder = format!("{}/", metadata.folder(package));
        let is_source = |path: &str| path.ends_with(".rs") || path.ends_with("README.md");
        let texts: Vec<&str> = repo
            .files()
            .filter(|file| file.path.starts_with(&folder) && is_source(&file.path))
            .filter_map(|file| file.text())
            .collect();
        for dependency in &package.dependencies {
            let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
            let identifier = name.replace('-', "_");
            // A crate depends on itself to enable features in its tests.
            let is_used = *name == package.name
                || texts.iter().any(|text| find_word(text, &identifier).next().is_some());
            if !is_used {
                let manifest = metadata.relative(&package.manifest_path);
                problems.push(Problem::file(&manifest, format!("the dependency {name} is not used")));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Package, Resolve};
    use crate::tidy::printed;

    #[test]
    fn an_unused_dependency_is_found() {
        let dependency = |name: &str, rename: Option<&str>| Dependency {
            name: name.to_owned(),
            rename: rename.map(str::to_owned),
            kind: None,
        };
        let package = Package {
            name: "a".to_owned(),
            manifest_path: "/root-of-test/a/Cargo.toml".to_owned(),
            dependencies: vec![
                dependency("a", None),
                dependency("serde-json", None),
                dependency("rand_core", Some("rand_old")),
                dependency("unused", None),
            ],
            ..Package::default()
        };
        let metadata = Metadata {
            packages: vec![package],
            workspace_root: "/root-of-test".to_owned(),
            target_directory: String::new(),
            resolve: Resolve::default(),
        };
        let repo = Repo::of(&[
            ("a/src/lib.rs", "use serde_json::Value;"),
            ("a/README.md", "rand_old::RngCore"),
            ("b/src/lib.rs", "use unused::X;"),
        ]);
        assert_eq!(printed(&check(&repo, &metadata)), ["a/Cargo.toml: the dependency unused is not used"]);
    }
}
