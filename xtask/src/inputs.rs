//! Derives what a slow step reads, as git pathspecs: the folders of the packages that it compiles
//! and of all their path dependencies, by `cargo metadata`, and the files that the step names.

use std::collections::{BTreeMap, BTreeSet};

use crate::built::Built;
use crate::metadata::{Metadata, Package, Target};
use crate::step::Step;

/// Inputs of every slow step: versions of dependencies, and the compiler's flags.
const COMMON: [&str; 3] = ["Cargo.toml", "Cargo.lock", ".cargo"];

/// The pathspecs of a slow step; those in [`COMMON`] alone for a quick one.
pub(crate) fn pathspecs(metadata: &Metadata, step: Step) -> Vec<String> {
    let mut found: BTreeSet<String> = COMMON.map(str::to_owned).into();
    let Some(slow) = step.slow() else { return found.into_iter().collect() };
    found.extend(slow.reads.iter().map(|path| (*path).to_owned()));
    for (package, built) in compiled(metadata, slow.builds) {
        found.extend(folders(metadata, package, built));
    }
    found.into_iter().collect()
}

/// The packages that a step compiles: those it names, and their path dependencies. A package that
/// is reached in several ways counts with the most targets.
fn compiled(metadata: &Metadata, builds: fn(&Package) -> Built) -> Vec<(&Package, Built)> {
    let ours: BTreeMap<&str, &Package> =
        metadata.ours().map(|package| (package.name.as_str(), package)).collect();
    let mut found: BTreeMap<&str, Built> = BTreeMap::new();
    let named = ours.values().map(|package| (package.name.as_str(), builds(package)));
    let mut next: Vec<_> = named.filter(|(_, built)| *built != Built::Nothing).collect();
    while let Some((name, built)) = next.pop() {
        if found.get(name).is_some_and(|known| *known >= built) {
            continue;
        }
        found.insert(name, built);
        let dependencies = ours[name].dependencies.iter();
        let needed = dependencies.filter(|other| built.has_dev_dependencies() || other.is_shipped());
        let of_ours = needed.filter_map(|other| ours.get(other.name.as_str()));
        next.extend(of_ours.map(|package| (package.name.as_str(), Built::Program)));
    }
    found.into_iter().map(|(name, built)| (ours[name], built)).collect()
}

fn folders(metadata: &Metadata, package: &Package, built: Built) -> Vec<String> {
    let folder = metadata.folder(package);
    if built == Built::Tests {
        return vec![folder];
    }
    let is_compiled = |target: &&Target| {
        let is = |kind: &str| target.kind.iter().any(|other| other == kind);
        !["test", "bench", "example"].into_iter().any(is) || (is("bench") && built == Built::Benches)
    };
    // Modules are beside the root of a target, or in folders there.
    let sources = package.targets.iter().filter(is_compiled).map(|target| {
        let path = metadata.relative(&target.src_path);
        let inside = path.strip_prefix(&format!("{folder}/")).unwrap_or(&path);
        format!("{folder}/{}", inside.split('/').next().unwrap_or_default())
    });
    // A README is part of the package, and of the documentation where a library includes it.
    let readme = package.readme.iter().map(|name| format!("{folder}/{name}"));
    sources.chain(readme).chain([format!("{folder}/Cargo.toml")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Resolve};
    use crate::repo;

    /// A package `name` in the folder `name`, with a library, a test and a benchmark.
    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let target = |kind: &str, path: &str| Target {
            kind: vec![kind.to_owned()],
            src_path: format!("/root-of-test/{name}/{path}"),
        };
        let dependencies = dependencies.iter().map(|(name, kind)| Dependency {
            name: (*name).to_owned(),
            rename: None,
            kind: kind.map(str::to_owned),
        });
        Package {
            name: name.to_owned(),
            manifest_path: format!("/root-of-test/{name}/Cargo.toml"),
            dependencies: dependencies.collect(),
            targets: vec![
                target("lib", "src/lib.rs"),
                target("test", "tests/all/main.rs"),
                target("bench", "speed/main.rs"),
            ],
            ..Package::default()
        }
    }

    /// `top` needs `middle`, which needs `low`. The tests of both use `helpers`.
    fn metadata() -> Metadata {
        Metadata {
            packages: vec![
                package("top", &[("middle", None), ("helpers", Some("dev")), ("serde", None)]),
                package("middle", &[("low", Some("build")), ("helpers", Some("dev"))]),
                package("low", &[]),
                package("helpers", &[]),
                package("unrelated", &[("top", None)]),
            ],
            workspace_root: "/root-of-test".to_owned(),
            target_directory: String::new(),
            resolve: Resolve::default(),
        }
    }

    #[track_caller]
    fn check(builds: fn(&Package) -> Built, expected: &[&str]) {
        let metadata = metadata();
        let found = compiled(&metadata, builds).into_iter();
        let folders: BTreeSet<String> =
            found.flat_map(|(package, built)| folders(&metadata, package, built)).collect();
        assert_eq!(folders.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_program_is_built_from_its_path_dependencies() {
        check(
            |package| if package.name == "top" { Built::Program } else { Built::Nothing },
            &["low/Cargo.toml", "low/src", "middle/Cargo.toml", "middle/src", "top/Cargo.toml", "top/src"],
        );
    }

    #[test]
    fn dev_dependencies_count_for_the_package_whose_tests_are_built() {
        check(
            |package| if package.name == "middle" { Built::Tests } else { Built::Nothing },
            &["helpers/Cargo.toml", "helpers/src", "low/Cargo.toml", "low/src", "middle"],
        );
        check(
            |package| if package.name == "middle" { Built::Benches } else { Built::Nothing },
            &[
                "helpers/Cargo.toml",
                "helpers/src",
                "low/Cargo.toml",
                "low/src",
                "middle/Cargo.toml",
                "middle/speed",
                "middle/src",
            ],
        );
    }

    #[test]
    fn a_package_reached_twice_counts_with_the_most_targets() {
        fn builds(package: &Package) -> Built {
            match package.name.as_str() {
                "top" => Built::Program,
                "low" => Built::Tests,
                _ => Built::Nothing,
            }
        }
        check(builds, &["low", "middle/Cargo.toml", "middle/src", "top/Cargo.toml", "top/src"]);
    }

    fn workspace() -> Metadata {
        Metadata::load(&repo::root()).unwrap()
    }

    /// Each of these once passed as unchanged while a crate below the step's own had changed.
    #[test]
    fn steps_read_the_crates_below_those_they_name() {
        let metadata = workspace();
        for (step, path) in [
            (Step::E2e, "formats/src"),
            (Step::E2e, "model/src"),
            (Step::E2e, "spans/src"),
            (Step::E2e, "sdk/src"),
            (Step::E2e, "cli/src"),
            (Step::E2e, "tests"),
            (Step::Bounds, "report/src"),
            (Step::Features, "formats/src"),
            (Step::FuzzCheck, "queries/src"),
            (Step::Instructions, "model/src"),
            (Step::Instructions, "sdk/benches"),
            (Step::Loom, "model/src"),
            (Step::Platforms, "exporters/src"),
            (Step::Programs, "testing/src"),
        ] {
            assert!(pathspecs(&metadata, step).contains(&path.to_owned()), "{}: {path}", step.name());
        }
        assert!(!pathspecs(&metadata, Step::Loom).contains(&"cli/src".to_owned()));
        assert!(!pathspecs(&metadata, Step::Bounds).iter().any(|path| path.starts_with("cli/tests")));
    }

    /// A pathspec that matches no file would make its step look unchanged for ever.
    #[test]
    fn every_input_exists() {
        let (root, metadata) = (repo::root(), workspace());
        for step in Step::ALL.into_iter().filter(|step| step.slow().is_some()) {
            for path in pathspecs(&metadata, step) {
                let found = crate::passed::git(&root, &["ls-files", "--", &path]).unwrap();
                assert!(!found.is_empty(), "{}: no file matches {path}", step.name());
            }
        }
    }
}
