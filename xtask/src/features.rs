//! The features step: checks our crates without features, with each feature alone, and with each
//! pair, since users choose them. The step `clippy` checks only the combination that the workspace
//! uses.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cargo;
use crate::metadata::Metadata;
use crate::outcome::Outcome;

/// Crates that only re-export. Their features are checked alone; the pairs are checked in the
/// crates that they enable.
const RE_EXPORTING: [&str; 1] = ["astracer"];

pub(crate) fn run(root: &Path) -> Outcome {
    Outcome::of(Metadata::load(root).map(|metadata| check(root, &metadata)))
}

fn check(root: &Path, metadata: &Metadata) -> Outcome {
    let mut passed = true;
    for package in metadata.ours().filter(|package| !package.features.is_empty()) {
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

/// No feature, each one, and each pair. Features with a leading underscore are left out, and those
/// that only name others.
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
    for (place, first) in own.iter().enumerate().filter(|_| pairs) {
        all.extend(own[place + 1..].iter().map(|second| format!("{first},{second}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_that_a_user_names_is_checked_alone_and_beside_the_others() {
        let features = [
            ("default", "b"),
            ("a", "_shared"),
            ("b", "dep:x"),
            ("c", ""),
            ("full", "a b c"),
            ("_shared", "dep:y"),
        ];
        let parts = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let features = features.map(|(name, text)| (name.to_owned(), parts(text))).into();
        assert_eq!(combinations(&features, true), ["", "a", "b", "c", "a,b", "a,c", "b,c"]);
        assert_eq!(combinations(&features, false), ["", "a", "b", "c"]);
        let alone = [("c".to_owned(), Vec::new())].into();
        assert_eq!(combinations(&alone, true), ["", "c"]);
    }
}
