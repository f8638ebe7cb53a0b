//! The accepted licences: those that let a user of our crates ship a closed program, and require no
//! more than to keep notices.

/// SPDX identifiers, some with an exception, that are accepted for any package.
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

/// A licence that is accepted for one package only.
pub(super) struct Exception {
    pub(super) package: &'static str,
    pub(super) licence: &'static str,
    pub(super) reason: &'static str,
}

/// Exceptions, each with its reason. MPL-2.0, for example, needs one: its files must stay open, so
/// we want to know where it is used.
pub(super) const EXCEPTIONS: &[Exception] = &[Exception {
    package: "libfuzzer-sys",
    licence: "NCSA",
    reason: "built only by cargo-fuzz, never into anything we publish; NCSA is as permissive as MIT",
}];
