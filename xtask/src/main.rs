//! `cargo xtask`: the one entry to every check.

fn main() {}
