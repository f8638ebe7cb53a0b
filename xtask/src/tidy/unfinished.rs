//! No unfinished work is left behind a marker. Clippy finds `todo!()` and `unimplemented!()`; this
//! rule finds markers in comments.

use super::Problem;
use super::text::find_word;
use crate::repo::Repo;

// Written in two parts, so that this file does not contain them.
const MARKERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

const EXTENSIONS: [&str; 5] = [".rs", ".toml", ".sh", ".yml", ".yaml"];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, text) in EXTENSIONS.iter().flat_map(|extension| repo.with_extension(extension)) {
        if file.is_data() {
            continue;
        }
        for marker in MARKERS {
            for offset in find_word(text, marker) {
                let message = format!("`{marker}`: finish it, or open an issue");
                problems.push(Problem::at(&file.path, text, offset, message));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found() {
        for (path, text) in [
            ("cli/tests/all/a.rs", concat!("// FIX", "ME: a")),
            ("Cargo.toml", concat!("# XX", "X a")),
            ("a.yml", concat!("(FIX", "ME)")),
        ] {
            assert_eq!(check(&Repo::of(&[(path, text)])).len(), 1, "{text}");
        }
        for (path, text) in [
            ("a.rs", concat!("// XX", "XX a_FIX", "ME")),
            ("a.md", concat!("FIX", "ME")),
            ("workloads/a.sh", concat!("FIX", "ME")),
        ] {
            assert_eq!(check(&Repo::of(&[(path, text)])), [], "{text}");
        }
    }
}
