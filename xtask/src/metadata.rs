//! The part of `cargo metadata` that the checks read.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;

use crate::cargo;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: String,
    pub(crate) target_directory: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression, as the author wrote it.
    pub(crate) license: Option<String>,
    /// Where it was fetched from; `None` for our own.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    /// Each with what it turns on.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
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
    /// If cargo fails (for example because `Cargo.lock` is not up to date), or its answer is not understood.
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

    /// `path`, an absolute one of this metadata, as seen from the root and with `/` between its parts.
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

impl Dependency {
    /// Whether users of the crate build it too; tests and benches do not count.
    pub(crate) fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}
