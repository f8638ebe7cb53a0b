//! The msrv step: our published crates build with the Rust version that they declare, and none of
//! their dependencies declares a newer one. The second check needs no toolchain, so it always runs.

use std::path::Path;

use crate::metadata::{Metadata, Package};
use crate::outcome::{Options, Outcome};
use crate::tool;

pub(crate) fn run(root: &Path, options: Options) -> Outcome {
    Outcome::of(Metadata::load(root).and_then(|metadata| check(root, &metadata, options)))
}

fn check(root: &Path, metadata: &Metadata, options: Options) -> Result<Outcome, String> {
    let ours = metadata.published().next().and_then(|package| package.rust_version.as_deref());
    let ours = ours.ok_or("the published crates declare no rust-version")?;
    let problems = too_new(&metadata.shipped(), ours);
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        return Ok(Outcome::Failed);
    }
    println!("no dependency of a published crate declares a Rust newer than {ours}");
    if !tool::toolchain(root, ours, options.install) {
        return Ok(Outcome::Skipped(format!(
            "Rust {ours}, the declared minimum, is not installed, so nothing was built with it: \
             run `rustup toolchain install {ours}`"
        )));
    }
    let mut command = tool::toolchain_cargo(root, ours);
    command.args(["check", "--locked", "--all-features"]);
    for package in metadata.published() {
        command.args(["-p", &package.name]);
    }
    // A separate folder: in a shared one, the two compilers would invalidate each other's builds.
    let target = format!("{}/msrv", metadata.target_directory);
    command.env("CARGO_TARGET_DIR", &target).env("CARGO_BUILD_BUILD_DIR", &target);
    tool::run(&mut command)?;
    Ok(Outcome::Passed)
}

fn too_new(packages: &[&Package], ours: &str) -> Vec<String> {
    let newer = packages.iter().filter_map(|package| {
        let theirs = package.rust_version.as_deref()?;
        (version(theirs) > version(ours))
            .then(|| format!("{} {} needs Rust {theirs}, we declare {ours}", package.name, package.version))
    });
    newer.collect()
}

/// Parses a version. `1.88` and `1.88.0` are equal.
fn version(text: &str) -> [u64; 3] {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
