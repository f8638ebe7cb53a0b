//! The licences step: every package that could be compiled in, for any platform or feature, has a
//! licence that [`policy`] accepts, and comes from a registry.

mod policy;
mod spdx;

use std::collections::BTreeSet;
use std::path::Path;

use crate::metadata::{Metadata, Package};
use crate::outcome::Outcome;
use policy::{ALLOWED, EXCEPTIONS, Exception};

pub(crate) fn run(root: &Path) -> Outcome {
    Outcome::of(Metadata::load(root).map(|metadata| report(&metadata)))
}

fn report(metadata: &Metadata) -> Outcome {
    let problems = check(&metadata.packages, ALLOWED, EXCEPTIONS);
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        let foreign = metadata.packages.iter().filter(|package| package.source.is_some()).count();
        println!("{foreign} external packages, all under accepted licences");
        for Exception { package, licence, reason } in EXCEPTIONS {
            println!("exception: {package} is under {licence}: {reason}");
        }
    }
    problems.is_empty().into()
}

fn check(packages: &[Package], allowed: &[&str], exceptions: &[Exception]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for package in packages {
        let Some(source) = &package.source else { continue };
        let name = format!("{} {}", package.name, package.version);
        if !source.starts_with("registry+") && !source.starts_with("sparse+") {
            problems.push(format!(
                "{name}: comes from {source}; a published crate can only depend on a registry"
            ));
        }
        let Some(licence) = &package.license else {
            problems.push(format!("{name}: declares no licence"));
            continue;
        };
        match spdx::satisfied(licence, |term| is_listed(allowed, term)) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => {
                problems.push(format!("{name}: {licence}: {error}"));
                continue;
            }
        }
        let with_exceptions = spdx::satisfied(licence, |term| {
            let excepted = exceptions.iter().position(|exception| exception.covers(&package.name, term));
            used.extend(excepted);
            excepted.is_some() || is_listed(allowed, term)
        });
        if with_exceptions != Ok(true) {
            problems.push(format!("{name}: {licence} is not accepted"));
        }
    }
    for (index, exception) in exceptions.iter().enumerate() {
        if !used.contains(&index) {
            let Exception { package, licence, .. } = exception;
            problems.push(format!("the exception {licence} for {package} is no longer needed: remove it"));
        }
    }
    problems
}

fn is_listed(allowed: &[&str], term: &str) -> bool {
    allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(term))
}

impl Exception {
    fn covers(&self, package: &str, term: &str) -> bool {
        self.package == package && self.licence.eq_ignore_ascii_case(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry+https://example.com/index";

    fn package(name: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        }
    }

    #[test]
    fn an_unknown_licence_is_refused() {
        let packages = [
            package("ours", Some("AGPL-3.0"), None),
            package("good", Some("MIT"), Some(REGISTRY)),
            package("bad", Some("GPL-3.0-only"), Some(REGISTRY)),
            package("silent", None, Some(REGISTRY)),
            package("odd", Some("MIT OR"), Some(REGISTRY)),
        ];
        let expected = [
            "bad 1.0.0: GPL-3.0-only is not accepted",
            "silent 1.0.0: declares no licence",
            "odd 1.0.0: MIT OR: a licence is missing at the end",
        ];
        assert_eq!(check(&packages, &["MIT"], &[]), expected);
    }

    #[test]
    fn an_exception_is_for_one_package_and_one_licence() {
        let exceptions = [Exception { package: "a", licence: "MPL-2.0", reason: "a test" }];
        let packages = [
            package("a", Some("MPL-2.0"), Some(REGISTRY)),
            package("a", Some("NCSA"), Some(REGISTRY)),
            package("b", Some("MPL-2.0"), Some(REGISTRY)),
        ];
        let expected = ["a 1.0.0: NCSA is not accepted", "b 1.0.0: MPL-2.0 is not accepted"];
        assert_eq!(check(&packages, &["MIT"], &exceptions), expected);
    }

    #[test]
    fn an_exception_that_nobody_needs_is_refused() {
        let exceptions = [Exception { package: "a", licence: "MPL-2.0", reason: "a test" }];
        let packages = [package("a", Some("MIT OR MPL-2.0"), Some(REGISTRY))];
        let expected = ["the exception MPL-2.0 for a is no longer needed: remove it"];
        assert_eq!(check(&packages, &["MIT"], &exceptions), expected);
    }

    #[test]
    fn a_package_from_git_is_refused() {
        let packages = [package("a", Some("MIT"), Some("git+https://example.com/a"))];
        let expected = [
            "a 1.0.0: comes from git+https://example.com/a; a published crate can only depend on a registry",
        ];
        assert_eq!(check(&packages, &["MIT"], &[]), expected);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(EXCEPTIONS.iter().all(|exception| exception.reason.split_whitespace().count() >= 3));
    }
}
