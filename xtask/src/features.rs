//! The features step builds our crates without features and with each feature alone, and the
//! exporters' transports with each of their options, because users may choose any of these. The
//! step `clippy` sees only the combination that the workspace itself asks for.

use std::collections::BTreeMap;
use std::path::Path;

use crate::built::Built;
use crate::cargo;
use crate::metadata::{Metadata, Package};
use crate::step_result::StepResult;

/// Features that change each other: a transport, and an option of transports. Other pairs share no
/// code that either of them selects.
const TRANSPORTS: [&str; 3] = ["otlp-http", "otlp-grpc", "zipkin"];
const OPTIONS: [&str; 3] = ["tls", "gzip", "zstd"];
/// Crates that only pass features on to others.
const RE_EXPORTING: [&str; 1] = ["astracer"];

pub(crate) fn run(root: &Path) -> StepResult {
    StepResult::of(Metadata::load(root).map(|metadata| check(root, &metadata)))
}

/// Only packages with features, without their tests.
pub(crate) fn builds(package: &Package) -> Built {
    Built::program_if(!package.features.is_empty())
}

fn check(root: &Path, metadata: &Metadata) -> StepResult {
    let mut passed = true;
    for package in metadata.ours().filter(|package| builds(package) != Built::Nothing) {
        let pairs = !RE_EXPORTING.contains(&package.name.as_str());
        for features in combinations(&package.features, pairs) {
            let features =
                if features.is_empty() { String::new() } else { format!(" --features {features}") };
            let line =
                format!("clippy -p {} --locked --no-default-features{features} -- -D warnings", package.name);
            passed &= cargo::run(root, &line);
        }
    }
    passed.into()
}

/// No feature, each one, and with `pairs` each transport with each option. Left out: features with
/// a leading underscore, and those that only name others.
fn combinations(features: &BTreeMap<String, Vec<String>>, pairs: bool) -> Vec<String> {
    let is_public = |name: &str| features.contains_key(name) && !name.starts_with('_');
    let is_bundle = |parts: &[String]| !parts.is_empty() && parts.iter().all(|part| is_public(part));
    let own: Vec<&str> = features
        .iter()
        .filter(|(name, parts)| is_public(name) && *name != "default" && !is_bundle(parts))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut all = vec![String::new()];
    all.extend(own.iter().map(|&name| name.to_owned()));
    let own = |name: &&str| own.contains(name);
    for transport in TRANSPORTS.into_iter().filter(own).filter(|_| pairs) {
        all.extend(OPTIONS.into_iter().filter(own).map(|option| format!("{transport},{option}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_checked_alone_and_each_transport_with_its_options() {
        let features = [
            ("default", "zipkin"),
            ("otlp-http", "_shared"),
            ("zipkin", "dep:x"),
            ("tls", ""),
            ("other", ""),
            ("full", "otlp-http zipkin tls other"),
            ("_shared", "dep:y"),
        ];
        let parts = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let features = features.map(|(name, text)| (name.to_owned(), parts(text))).into();
        let alone = ["", "other", "otlp-http", "tls", "zipkin"];
        assert_eq!(combinations(&features, false), alone);
        assert_eq!(combinations(&features, true), [&alone[..], &["otlp-http,tls", "zipkin,tls"]].concat());
    }
}
