//! The minimal step: our published crates build with the oldest direct dependencies that their
//! manifests allow, by the oldest Rust that they declare, so a manifest that promises too much is
//! found. Only nightly cargo can choose the oldest versions.
//!
//! One build answers for both. Dependencies at their newest versions are not built with the oldest
//! Rust: it is enough that none of them declares a newer one, which is checked without a toolchain.
//!
//! The check runs on a copy of the manifests and sources in the target folder, so the workspace's
//! own Cargo.lock does not change.

use std::fs;
use std::path::Path;

use crate::metadata::{Metadata, Package};
use crate::repo::Repo;
use crate::step_result::{Options, StepResult};
use crate::tool;

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    StepResult::of(check(root, options))
}

fn check(root: &Path, options: Options) -> Result<StepResult, String> {
    let metadata = Metadata::load(root)?;
    let rust = metadata.published().next().and_then(|package| package.rust_version.as_deref());
    let rust = rust.ok_or("the published crates declare no rust-version")?;
    let problems = too_new(&metadata.shipped(), rust);
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        return Ok(StepResult::Failed);
    }
    println!("no dependency of a published crate declares a Rust newer than {rust}");
    for toolchain in ["nightly", rust] {
        if !tool::toolchain(root, toolchain, options.install) {
            return Ok(StepResult::Skipped(format!(
                "Rust {toolchain} is not installed, so nothing was built; `rustup toolchain install {toolchain}` installs it"
            )));
        }
    }
    build(root, &metadata, rust)
}

fn build(root: &Path, metadata: &Metadata, rust: &str) -> Result<StepResult, String> {
    let target = Path::new(&metadata.target_directory).join("minimal");
    let copy = target.join("workspace");
    let names = metadata.published().flat_map(|package| ["-p", package.name.as_str()]);
    write_copy(&Repo::load(root)?, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let folders: Vec<String> = metadata.published().map(|package| metadata.folder(package)).collect();
    keep_members(&copy, &folders)?;
    tool::run(tool::toolchain_cargo(&copy, "nightly").args(["update", "-Z", "direct-minimal-versions"]))?;
    let mut command = tool::toolchain_cargo(&copy, rust);
    command.args(["check", "--locked", "--all-features"]).args(names);
    command.env("CARGO_TARGET_DIR", &target).env("CARGO_BUILD_BUILD_DIR", &target);
    tool::run(&mut command)?;
    Ok(StepResult::Passed)
}

fn too_new(packages: &[&Package], ours: &str) -> Vec<String> {
    let newer = packages.iter().filter_map(|package| {
        let theirs = package.rust_version.as_deref()?;
        (version(theirs) > version(ours))
            .then(|| format!("{} {} needs Rust {theirs}, we declare {ours}", package.name, package.version))
    });
    newer.collect()
}

/// `1.88` and `1.88.0` are the same version.
fn version(text: &str) -> [u64; 3] {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Copies sources and manifests, without recorded data. Unchanged files keep their times, so that a
/// second run compiles only what changed.
fn write_copy(repo: &Repo, copy: &Path) -> std::io::Result<()> {
    for file in repo.files().filter(|file| !file.is_data() && file.path != "Cargo.lock") {
        let path = copy.join(&file.path);
        if fs::read(&path).is_ok_and(|bytes| bytes == file.bytes) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, &file.bytes)?;
    }
    Ok(())
}

/// Takes the unpublished crates out of the workspace: nobody relies on the versions in their
/// manifests.
fn keep_members(copy: &Path, folders: &[String]) -> Result<(), String> {
    let path = copy.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = with_members(&text, folders).ok_or("Cargo.toml has no list `members = [...]`")?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// `manifest` with `folders` as its members; every member becomes a default one.
fn with_members(manifest: &str, folders: &[String]) -> Option<String> {
    let text: String =
        manifest.split_inclusive('\n').filter(|line| !line.starts_with("default-members")).collect();
    let start = text.find("members = [")?;
    let end = start + text[start..].find(']')? + 1;
    Some(format!("{}members = {folders:?}{}", &text[..start], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_published_crates_stay_in_the_workspace() {
        let manifest = "[workspace]\nmembers = [\n    \"a\",\n    \"b\",\n]\ndefault-members = [\"b\"]\nresolver = \"3\"\n";
        let expected = "[workspace]\nmembers = [\"a\"]\nresolver = \"3\"\n";
        assert_eq!(with_members(manifest, &["a".to_owned()]).as_deref(), Some(expected));
        assert_eq!(with_members("[workspace]", &[]), None);
    }

    #[test]
    fn a_dependency_with_a_newer_rust_is_found() {
        let package = |name: &str, rust_version: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            rust_version: rust_version.map(str::to_owned),
            ..Package::default()
        };
        let packages = [
            package("old", Some("1.56")),
            package("same", Some("1.88.0")),
            package("silent", None),
            package("new", Some("1.100")),
        ];
        let packages: Vec<&Package> = packages.iter().collect();
        assert_eq!(too_new(&packages, "1.88"), ["new 1.2.3 needs Rust 1.100, we declare 1.88"]);
    }
}
