//! The minimal step: our published crates build with the oldest direct dependencies that their
//! manifests allow, so that too low a minimum in a manifest is found. Only nightly cargo can select
//! the oldest versions.
//!
//! The check runs on a copy of the manifests and sources in the target folder, so the workspace's
//! own Cargo.lock does not change.

use std::fs;
use std::path::Path;

use crate::metadata::Metadata;
use crate::outcome::{Options, Outcome};
use crate::repo::Repo;
use crate::tool;

pub(crate) fn run(root: &Path, options: Options) -> Outcome {
    if !tool::toolchain(root, "nightly", options.install) {
        return Outcome::Skipped(
            "the nightly toolchain, which selects the oldest versions, is not installed".to_owned(),
        );
    }
    Outcome::of(check(root))
}

fn check(root: &Path) -> Result<Outcome, String> {
    let metadata = Metadata::load(root)?;
    let target = Path::new(&metadata.target_directory).join("minimal");
    let copy = target.join("workspace");
    let names: Vec<&str> = metadata.published().map(|package| package.name.as_str()).collect();
    write_copy(&Repo::load(root)?, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let folders: Vec<String> = metadata.published().map(|package| metadata.folder(package)).collect();
    keep_members(&copy, &folders)?;
    tool::run(tool::toolchain_cargo(&copy, "nightly").args(["update", "-Z", "direct-minimal-versions"]))?;
    // The ordinary compiler builds, since the check is about versions of dependencies.
    let mut command = std::process::Command::new("cargo");
    command.current_dir(&copy).args(["check", "--locked", "--all-features"]);
    command.args(names.iter().flat_map(|name| ["-p", name]));
    command.env("CARGO_TARGET_DIR", &target).env("CARGO_BUILD_BUILD_DIR", &target);
    tool::run(&mut command)?;
    Ok(Outcome::Passed)
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

/// Removes the unpublished crates from the workspace: no user depends on their minimum versions.
fn keep_members(copy: &Path, folders: &[String]) -> Result<(), String> {
    let path = copy.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = with_members(&text, folders).ok_or("Cargo.toml has no list `members = [...]`")?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn with_members(manifest: &str, folders: &[String]) -> Option<String> {
    let start = manifest.find("members = [")?;
    let end = start + manifest[start..].find(']')? + 1;
    Some(format!("{}members = {folders:?}{}", &manifest[..start], &manifest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_published_crates_stay_in_the_workspace() {
        let manifest = "[workspace]\nmembers = [\n    \"a\",\n    \"b\",\n]\nresolver = \"3\"\n";
        let expected = "[workspace]\nmembers = [\"a\"]\nresolver = \"3\"\n";
        assert_eq!(with_members(manifest, &["a".to_owned()]).as_deref(), Some(expected));
        assert_eq!(with_members("[workspace]", &[]), None);
    }
}
