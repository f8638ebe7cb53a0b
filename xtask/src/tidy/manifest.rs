//! Every published crate has what its page in a registry needs: metadata, a README, both licence
//! files, and documentation of all features. Its dependencies are published too, since otherwise a
//! registry rejects it.

use super::Problem;
use crate::metadata::{Metadata, Package};
use crate::repo::Repo;

/// Files in a crate's folder. `cargo package` follows symbolic links, so the licences may be links
/// to those at the root.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

pub(super) fn check(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    metadata.published().flat_map(|package| check_package(repo, metadata, package)).collect()
}

fn check_package(repo: &Repo, metadata: &Metadata, package: &Package) -> Vec<Problem> {
    let manifest = metadata.relative(&package.manifest_path);
    let folder = metadata.folder(package);
    let all_features = package.metadata.as_ref().is_some_and(|tools| {
        tools.pointer("/docs/rs/all-features").and_then(serde_json::Value::as_bool) == Some(true)
    });
    let fields = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("documentation", package.documentation.is_some()),
        ("readme", package.readme.is_some()),
        ("rust-version", package.rust_version.is_some()),
        ("keywords (1 to 5)", (1..=5).contains(&package.keywords.len())),
        ("categories (1 to 5)", (1..=5).contains(&package.categories.len())),
        ("[package.metadata.docs.rs] all-features = true", all_features),
    ];
    let missing = fields.into_iter().filter(|(_, is_there)| !is_there);
    let mut problems: Vec<Problem> = missing
        .map(|(field, _)| Problem::file(&manifest, format!("a published crate needs {field}")))
        .collect();
    for file in FILES {
        let path = format!("{folder}/{file}");
        if repo.file(&path).is_none() {
            problems.push(Problem::file(&path, "a published crate needs this file"));
        }
    }
    let shipped = package.dependencies.iter().filter(|dependency| dependency.is_shipped());
    let unpublished = shipped.filter(|dependency| {
        metadata.ours().any(|other| other.name == dependency.name && !other.is_published())
    });
    problems.extend(unpublished.map(|dependency| {
        Problem::file(
            &manifest,
            format!("a published crate depends on {}, which is unpublished", dependency.name),
        )
    }));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Resolve};
    use crate::tidy::printed;

    fn metadata(package: Package) -> Metadata {
        workspace(vec![package])
    }

    fn workspace(packages: Vec<Package>) -> Metadata {
        Metadata {
            packages,
            workspace_root: "/root-of-test".to_owned(),
            target_directory: String::new(),
            resolve: Resolve::default(),
        }
    }

    fn complete() -> Package {
        let text = || Some("text".to_owned());
        Package {
            manifest_path: "/root-of-test/a/Cargo.toml".to_owned(),
            description: text(),
            license: text(),
            documentation: text(),
            readme: text(),
            rust_version: text(),
            keywords: vec!["word".to_owned()],
            categories: vec!["word".to_owned()],
            metadata: Some(serde_json::json!({ "docs": { "rs": { "all-features": true } } })),
            ..Package::default()
        }
    }

    #[test]
    fn a_complete_crate_passes() {
        let repo = Repo::of(&[("a/README.md", ""), ("a/LICENSE-MIT", ""), ("a/LICENSE-APACHE", "")]);
        assert_eq!(check(&repo, &metadata(complete())), []);
    }

    #[test]
    fn what_a_published_crate_lacks_is_found() {
        let repo = Repo::of(&[("a/README.md", ""), ("a/LICENSE-MIT", ""), ("b/LICENSE-APACHE", "")]);
        let package = Package { keywords: Vec::new(), metadata: None, ..complete() };
        let expected = [
            "a/Cargo.toml: a published crate needs keywords (1 to 5)",
            "a/Cargo.toml: a published crate needs [package.metadata.docs.rs] all-features = true",
            "a/LICENSE-APACHE: a published crate needs this file",
        ];
        assert_eq!(printed(&check(&repo, &metadata(package))), expected);
        let private = Package {
            manifest_path: "/root-of-test/a/Cargo.toml".to_owned(),
            publish: Some(Vec::new()),
            ..Package::default()
        };
        assert_eq!(check(&repo, &metadata(private)), []);
    }

    #[test]
    fn a_published_crate_on_an_unpublished_one_is_found() {
        let private = |name: &str| Package {
            name: name.to_owned(),
            manifest_path: format!("/root-of-test/{name}/Cargo.toml"),
            publish: Some(Vec::new()),
            ..Package::default()
        };
        let dependency = |name: &str, kind: Option<&str>| Dependency {
            name: name.to_owned(),
            rename: None,
            kind: kind.map(str::to_owned),
        };
        let dependencies =
            vec![dependency("tools", None), dependency("helpers", Some("dev")), dependency("serde", None)];
        let repo = Repo::of(&[("a/README.md", ""), ("a/LICENSE-MIT", ""), ("a/LICENSE-APACHE", "")]);
        let packages = vec![Package { dependencies, ..complete() }, private("tools"), private("helpers")];
        assert_eq!(
            printed(&check(&repo, &workspace(packages))),
            ["a/Cargo.toml: a published crate depends on tools, which is unpublished"]
        );
    }
}
