//! The part of `cargo metadata` that the checks read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;

use crate::cargo;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: String,
    pub(crate) target_directory: String,
    pub(crate) resolve: Resolve,
}

/// The dependency graph, for all platforms and features.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Edge {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DependencyKind {
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, as the author wrote it.
    pub(crate) license: Option<String>,
    pub(crate) rust_version: Option<String>,
    /// The registries that may have it: any if `None`, none if empty (`publish = false`).
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) description: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The manifest's table `[package.metadata]`.
    pub(crate) metadata: Option<serde_json::Value>,
    /// Where it was fetched from; `None` for our own.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    /// Names, and what each turns on.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The name that the crate's code uses, if another.
    pub(crate) rename: Option<String>,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: String,
}

impl Metadata {
    /// Asks cargo about the whole dependency tree, for every platform and feature.
    ///
    /// # Errors
    ///
    /// If cargo fails (for example because `Cargo.lock` is not up to date), or its answer is not
    /// understood.
    pub(crate) fn load(root: &Path) -> Result<Metadata, String> {
        let output = cargo::command(root, "metadata --format-version 1 --locked --all-features")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            return Err("cargo metadata failed".to_owned());
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata's answer is not understood: {error}"))
    }

    /// The workspace's own packages.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    /// Those of the workspace's own packages that go to a registry.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.ours().filter(|package| package.is_published())
    }

    /// The packages that users of our published crates may compile: no dependencies of tests alone.
    pub(crate) fn shipped(&self) -> Vec<&Package> {
        let nodes: BTreeMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = self.published().map(|package| package.id.as_str()).collect();
        while let Some(id) = next.pop() {
            if seen.insert(id) {
                let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
                next.extend(deps.filter(|edge| edge.is_shipped()).map(|edge| edge.pkg.as_str()));
            }
        }
        self.packages.iter().filter(|package| seen.contains(package.id.as_str())).collect()
    }

    /// `path`, an absolute one of this metadata, as seen from the root and with `/` between its
    /// parts.
    pub(crate) fn relative(&self, path: &str) -> String {
        path.strip_prefix(&self.workspace_root)
            .unwrap_or(path)
            .replace('\\', "/")
            .trim_start_matches('/')
            .to_owned()
    }

    /// The folder of one of our packages, as seen from the root.
    pub(crate) fn folder(&self, package: &Package) -> String {
        let manifest = self.relative(&package.manifest_path);
        manifest.strip_suffix("/Cargo.toml").unwrap_or(&manifest).to_owned()
    }
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    pub(crate) fn has_library(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }
}

impl Edge {
    fn is_shipped(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}

impl Dependency {
    /// Whether users of the crate build it too; tests and benches do not count.
    pub(crate) fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}
