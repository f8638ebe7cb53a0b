//! The `astracer` command line tool.

fn main() {}
