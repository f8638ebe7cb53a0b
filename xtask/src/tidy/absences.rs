//! What must not be found in the sources. The invariants of ARCHITECTURE.md, as a table.

use super::Problem;
use super::source::{code, find_path, find_word, is_test_file, shipped_code};
use crate::repo::{File, Repo};

/// What a crate's shipped code may not name.
struct Absence {
    /// The crates' folders.
    folders: &'static [&'static str],
    /// Paths and words.
    names: &'static [&'static str],
    reason: &'static str,
}

const ABSENCES: &[Absence] = &[
    Absence {
        folders: &["samplers"],
        names: &["Instant", "SystemTime"],
        reason: "`now` is an argument of samplers",
    },
    Absence {
        folders: &["samplers"],
        names: &["std::thread", "std::fs", "std::net", "std::io", "std::env", "std::process"],
        reason: "samplers only decides: no thread, no I/O",
    },
];

/// These print; what the others have to say, they return.
const PRINTING: &[&str] = &["cli", "xtask", "benches", "tests", "examples", "fuzz"];

const PRINTS: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!", "io::stdout", "io::stderr"];

// Written in two parts, so that this file does not hold them.
const UNFINISHED_CODE: &[&str] = &[concat!("todo", "!("), concat!("unimplemented", "!(")];
const UNFINISHED_TEXT: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, text) in repo.rust_files().filter(|(file, _)| !file.is_data()) {
        module_files(file, &mut problems);
        unfinished(file, text, &code(text), &mut problems);
        if !is_test_file(&file.path) {
            shipped(file, text, &mut problems);
        }
    }
    for extension in [".toml", ".sh", ".yml", ".yaml"] {
        for (file, text) in repo.with_extension(extension).filter(|(file, _)| !file.is_data()) {
            unfinished(file, text, "", &mut problems);
        }
    }
    problems
}

fn shipped(file: &File, text: &str, problems: &mut Vec<Problem>) {
    let code = shipped_code(text);
    for Absence { folders, names, reason } in ABSENCES {
        if !folders.contains(&file.top()) {
            continue;
        }
        for name in *names {
            for offset in find_path(&code, name) {
                problems.push(Problem::at(&file.path, text, offset, format!("`{name}`: {reason}")));
            }
        }
    }
    if PRINTING.contains(&file.top()) {
        return;
    }
    let mut offsets: Vec<usize> = PRINTS.iter().flat_map(|name| find_path(&code, name)).collect();
    offsets.sort_unstable();
    offsets.dedup();
    for offset in offsets {
        problems.push(Problem::at(&file.path, text, offset, "only cli prints"));
    }
}

fn module_files(file: &File, problems: &mut Vec<Problem>) {
    if file.path.ends_with("/mod.rs") {
        problems.push(Problem::file(&file.path, "a module `foo` lies in `foo.rs`, beside its folder"));
    }
}

fn unfinished(file: &File, text: &str, code: &str, problems: &mut Vec<Problem>) {
    let in_code = UNFINISHED_CODE.iter().flat_map(|word| find_word(code, word).map(move |at| (at, word)));
    let in_text = UNFINISHED_TEXT.iter().flat_map(|word| find_word(text, word).map(move |at| (at, word)));
    for (offset, word) in in_code.chain(in_text) {
        problems.push(Problem::at(
            &file.path,
            text,
            offset,
            format!("`{word}`: finish it, or open an issue"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(printed(&check(&Repo::of(&[(path, text)]))), expected);
    }

    #[test]
    fn samplers_have_no_clock_thread_or_io() {
        let now = "`now` is an argument of samplers";
        let only = "samplers only decides: no thread, no I/O";
        check_file(
            "samplers/src/a.rs",
            "\nuse std::time::Instant;",
            &[&format!("samplers/src/a.rs:2: `Instant`: {now}")],
        );
        check_file(
            "samplers/src/a.rs",
            "fn f(t: SystemTime) {}",
            &[&format!("samplers/src/a.rs:1: `SystemTime`: {now}")],
        );
        check_file(
            "samplers/src/a.rs",
            "use std::{fs,\nnet::TcpStream};\nfn f() { std::thread::yield_now() }",
            &[
                &format!("samplers/src/a.rs:3: `std::thread`: {only}"),
                &format!("samplers/src/a.rs:1: `std::fs`: {only}"),
                &format!("samplers/src/a.rs:2: `std::net`: {only}"),
            ],
        );
    }

    #[test]
    fn tests_of_samplers_and_other_crates_may_have_them() {
        check_file("samplers/src/a.rs", "//! No Instant.\n#[cfg(test)]\nmod tests { use std::thread; }", &[]);
        check_file("samplers/src/table/tests.rs", "use std::thread;", &[]);
        check_file("samplers/tests/all/main.rs", "use std::time::Instant;", &[]);
        check_file("sdk/src/clock.rs", "use std::time::Instant;", &[]);
    }

    #[test]
    fn only_cli_prints() {
        for call in
            ["println!(\"a\")", "eprint!(\"a\")", "dbg!(1)", "std::io::stdout().lock()", "io::stderr()"]
        {
            let text = format!("fn f() {{ {call}; }}");
            check_file("model/src/a.rs", &text, &["model/src/a.rs:1: only cli prints"]);
            check_file("cli/src/a.rs", &text, &[]);
            check_file("tests/src/a.rs", &text, &[]);
        }
        check_file("model/src/a.rs", "/// println!(\"a\")\nfn f() { writeln!(out, \"println!\"); }", &[]);
        check_file("model/src/a.rs", "use std::io::{self, stdout};", &["model/src/a.rs:1: only cli prints"]);
    }

    #[test]
    fn modules_lie_beside_their_folder() {
        check_file(
            "model/src/format/mod.rs",
            "",
            &["model/src/format/mod.rs: a module `foo` lies in `foo.rs`, beside its folder"],
        );
        check_file("model/src/mod_rs.rs", "", &[]);
    }

    #[test]
    fn nothing_is_unfinished() {
        for (path, text) in [
            ("cli/src/a.rs", "fn f() { todo", "!() }"),
            ("cli/src/a.rs", "fn f() { unimplemented", "!(\"a\") }"),
            ("cli/tests/all/a.rs", "// FIX", "ME: a"),
            ("Cargo.toml", "# XX", "X a"),
        ]
        .map(|(path, start, end)| (path, format!("{start}{end}")))
        {
            assert_eq!(check(&Repo::of(&[(path, &text)])).len(), 1, "{text}");
        }
        check_file("cli/src/a.rs", "// a todo list\nconst X: &str = \"unimplemented!()\";", &[]);
    }
}
