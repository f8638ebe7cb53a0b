//! Folds ids in the names of a recording, and reports what was folded.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use astracer_samplers::Template;
use serde::Serialize;

/// At most this many different raw names are counted.
const RAW_NAMES_MAX: usize = 1 << 20;

/// Applies a [`Template`] to names, and counts how many raw names became each folded name.
#[derive(Debug)]
pub struct NameFolding {
    template: Template,
    /// Hashes of the raw names that were folded.
    seen: HashSet<u64>,
    raw_names: BTreeMap<String, u64>,
}

/// Statistics of folded names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Folded {
    /// Different recorded names that contained ids.
    pub raw_names: u64,
    /// Different folded names.
    pub names: u64,
    /// The folded name with the most raw names.
    pub largest: Option<String>,
    /// The number of raw names folded into that name.
    pub largest_raw_names: u64,
}

impl NameFolding {
    /// Folds names by this template.
    pub fn new(template: Template) -> Self {
        Self { template, seen: HashSet::new(), raw_names: BTreeMap::new() }
    }

    /// Writes the folded form of a name to `out`, which must be empty.
    pub fn fold(&mut self, raw: &str, out: &mut String) {
        if !self.template.fold(raw, out) {
            out.push_str(raw);
            return;
        }
        // A hasher without a random seed: the report must not change from run to run.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(raw);
        if self.seen.len() < RAW_NAMES_MAX && self.seen.insert(hash) {
            *self.raw_names.entry(out.clone()).or_default() += 1;
        }
    }

    /// The statistics so far.
    pub fn folded(&self) -> Folded {
        let largest = self.raw_names.iter().max_by_key(|&(name, count)| (count, std::cmp::Reverse(name)));
        Folded {
            raw_names: self.seen.len() as u64,
            names: self.raw_names.len() as u64,
            largest: largest.map(|(name, _)| name.clone()),
            largest_raw_names: largest.map_or(0, |(_, &count)| count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_what_is_counted_once_a_name() {
        let mut folding = NameFolding::new(Template::default());
        let mut names = Vec::new();
        for raw in ["read(1001)", "read(1002)", "read(1001)", "sendBlock_1073741825", "close"] {
            let mut out = String::new();
            folding.fold(raw, &mut out);
            names.push(out);
        }
        assert_eq!(names, ["read(*)", "read(*)", "read(*)", "sendBlock_*", "close"]);
        let expected =
            Folded { raw_names: 3, names: 2, largest: Some("read(*)".to_owned()), largest_raw_names: 2 };
        assert_eq!(folding.folded(), expected);
    }
}
