//! Templates on the names of real recordings: HDFS 2.7.3 and 2.8.3 traced with HTrace.
//!
//! Each file of tests/data/names holds the distinct span names of one recording, one a line.

use std::collections::BTreeSet;

use astracer_samplers::Template;

/// The numbers of distinct names and of distinct templates.
#[track_caller]
fn check(names: &str, raw: usize, functions: usize) {
    let names: BTreeSet<&str> = names.lines().collect();
    let mut buffer = String::new();
    let templates: BTreeSet<String> =
        names
            .iter()
            .map(|name| {
                if Template::default().fold(name, &mut buffer) { buffer.clone() } else { (*name).to_owned() }
            })
            .collect();
    assert_eq!((names.len(), templates.len()), (raw, functions));
}

#[test]
fn ids_in_the_names_of_real_recordings_fold() {
    check(include_str!("data/names/hdfs_raw_roots.txt"), 1_099, 75);
    check(include_str!("data/names/hdfs_client_ops.txt"), 1_117, 93);
    check(include_str!("data/names/hdfs_client_ops_seed2.txt"), 1_168, 100);
    check(include_str!("data/names/dfsioe_write.txt"), 107, 43);
    check(include_str!("data/names/wordcount.txt"), 47, 47);
}
