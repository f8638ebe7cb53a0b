//! Files are opened for reading in one place, `model/src/files.rs`: elsewhere a FIFO or a device
//! that a setting names by mistake would stop the program. Tests are exempt.

use super::Problem;
use crate::repo::Repo;

const CALLS: [&str; 4] = ["File::open(", "OpenOptions::new()", "fs::read(", "fs::read_to_string("];

/// Files that open something else, or something that nobody else names.
const EXEMPT: &[&str] = &[
    // Here.
    "model/src/files.rs",
    // `/proc/self/status`.
    "cli/src/interrupt.rs",
    // Outputs, for which a pipe may be meant.
    "cli/src/outputs.rs",
    // Locks the file beside its own.
    "cli/src/command/send/resume.rs",
    // Creates files, and syncs their folder.
    "exporters/src/file/folder.rs",
    // Locks a folder.
    "receiver/src/lib.rs",
    // The spool's own files in its own folder.
    "spool/src/disk.rs",
];

/// Crates that only developers run.
const OURS: [&str; 6] = ["benches/", "examples/", "fuzz/", "testing/", "tests/", "xtask/"];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, text) in repo.with_extension(".rs") {
        let path = file.path.as_str();
        let is_test = path.ends_with("tests.rs") || path.ends_with("testing.rs") || !path.contains("/src/");
        if is_test || EXEMPT.contains(&path) || OURS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let code = text.find("\nmod tests {").map_or(text, |end| &text[..end]);
        for call in CALLS {
            for (offset, _) in code.match_indices(call) {
                let line = &code[code[..offset].rfind('\n').map_or(0, |before| before + 1)..offset];
                if !line.trim_start().starts_with("//") {
                    let message = format!("`{call}..`: open files with astracer_model::files");
                    problems.push(Problem::at(path, text, offset, message));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn files_that_are_opened_elsewhere_are_found() {
        let code = "// fs::read(path)\nlet file = File::open(path)?;\nmod tests {\n    fs::read(path);\n}\n";
        let repo = Repo::of(&[
            ("cli/src/a.rs", code),
            ("cli/src/b/tests.rs", code),
            ("cli/tests/cli/c.rs", code),
            ("model/src/files.rs", code),
            ("xtask/src/d.rs", code),
        ]);
        let expected = ["cli/src/a.rs:2: `File::open(..`: open files with astracer_model::files"];
        assert_eq!(printed(&check(&repo)), expected);
    }
}
