//! Which licences we accept: those that let a user of our crates ship a closed program, with no
//! duty but to keep notices.

/// SPDX identifiers, and pairs of one with an exception, that are fine for any package.
pub(super) const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// A licence that is fine for one package only.
pub(super) struct Exception {
    pub(super) package: &'static str,
    pub(super) licence: &'static str,
    pub(super) reason: &'static str,
}

/// Each one with its reason. MPL-2.0, for example, would need one: its files stay open, so we want
/// to know of them.
pub(super) const EXCEPTIONS: &[Exception] = &[Exception {
    package: "libfuzzer-sys",
    licence: "NCSA",
    reason: "built only where cargo-fuzz runs, never into anything we publish; NCSA is as permissive as MIT",
}];
