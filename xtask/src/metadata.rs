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

/// The dependency graph for all platforms and features.
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
    /// `None` for a normal dependency; otherwise `dev` or `build`.
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
    /// The registries that it may be published to: any if `None`, none if empty
    /// (`publish = false`).
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) description: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The manifest's table `[package.metadata]`.
    pub(crate) metadata: Option<serde_json::Value>,
    /// The source of the package; `None` for our own.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    /// Features, each with those that it enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The name in the crate's code, if it differs.
    pub(crate) rename: Option<String>,
    /// `None` for a normal dependency; otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: String,
}

impl Metadata {
    /// Loads the whole dependency tree, for every platform and feature.
    ///
    /// # Errors
    ///
    /// If cargo fails (for example because `Cargo.lock` is not up to date), or its output cannot be
    /// parsed.
    pub(crate) fn load(root: &Path) -> Result<Metadata, String> {
        let output = cargo::command(root, "metadata --format-version 1 --locked --all-features")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            return Err("cargo metadata failed".to_owned());
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cannot parse the output of cargo metadata: {error}"))
    }

    /// The workspace's own packages.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    /// The workspace's own packages that are published to a registry.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.ours().filter(|package| package.is_published())
    }

    /// The packages that users of our published crates may compile, without dev-dependencies.
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

    /// An absolute path from this metadata, relative to the root and with `/` as the separator.
    pub(crate) fn relative(&self, path: &str) -> String {
        path.strip_prefix(&self.workspace_root)
            .unwrap_or(path)
            .replace('\\', "/")
            .trim_start_matches('/')
            .to_owned()
    }

    /// The folder of one of our packages, relative to the root.
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
    /// Whether users of the crate build it too. Dev-dependencies do not count.
    pub(crate) fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}
