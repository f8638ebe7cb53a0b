//! Runs the commands of the README and of docs, and compares what they print with the text beside
//! them.
//!
//! Commands are the lines of `sh` blocks, the lines after `$` in `text` blocks, and code with a
//! path in sentences and tables. Recordings that only a reader has are listed below; a command that
//! reads one has to fail for that reason, so its options are checked too. A command that is neither
//! run nor listed fails the test, and so does an entry of a list that no document needs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::outputs::Folder;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Files that stand for the reader's own.
const PLACEHOLDERS: &[&str] = &[
    "*.log",
    "*.tar.xz",
    "/var/spool/shop",
    "RECORDING",
    "a/",
    "boutique.tar.xz",
    "day/",
    "good-1/",
    "good/",
    "logs/",
    "monday/",
    "run.tar.xz",
    "spans.json",
    "traces/",
    "web/",
    "zk.log",
];

/// Beginnings of commands that are not run here, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("./load-test", "the reader's program"),
    ("ASTRACER_SPANMETRICS_OTLP", "needs a Collector"),
    ("astracer critical-path recorded", "reads what the command before it records"),
    ("astracer evaluate everything", "reads what the command before it exports"),
    ("astracer drill", "sends to the reader's server for a minute; cli tests it"),
    ("astracer receive", "waits for services; receiver and cli test it"),
    ("cargo run --release -p astracer-examples", "the tests of examples run these"),
    ("cargo run --release -p astracer-tuner", "measurements of minutes to hours"),
    ("cargo xtask", "runs this test, or starts servers"),
    ("do ./load-test", "the reader's program"),
    ("done", "ends a loop around the reader's program"),
    ("for n", "begins a loop around the reader's program"),
    ("jq", "reads what the command before it prints"),
    ("less", "shows what the command before it prints"),
    ("strace", "traces the reader's services"),
];

/// Commands that take minutes in a debug build: the command, what it is replaced by, and the
/// reason. Their output is not compared.
const REDUCED: &[(&str, &str, &str)] = &[
    (
        "astracer tune workloads/hdfs_raw_roots.tar.xz --report report.html",
        "astracer tune workloads/hdfs_client_ops.tar.xz --report report.html --starts 1 --iterations 12 --replays 24 \
         --per-key never --one-key",
        "searches for four minutes in a debug build",
    ),
    (
        "astracer evaluate workloads/dfsioe_write.tar.xz --sampler ratio:0.05 --baselines all",
        "astracer evaluate workloads/dfsioe_write.tar.xz --sampler ratio:0.05 --baselines all --seeds 1",
        "ten replays of twelve samplers",
    ),
];

/// A command of a document.
struct Documented {
    /// The document and the line.
    place: String,
    words: Vec<String>,
    /// Lines that its output has to contain, one after the other; a line `...` stands for any
    /// number of lines.
    output: Option<String>,
}

/// A fenced block: its language, its first line's number, and its text.
struct Block<'t> {
    language: &'t str,
    line: usize,
    text: String,
}

/// The README and all documents, by their paths from the root.
fn documents() -> Vec<String> {
    fn below(folder: &str, names: &mut Vec<String>) {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().expect("a type").is_dir() {
                below(&name, names);
            } else if name.ends_with(".md") {
                names.push(name);
            }
        }
    }
    let mut names = vec!["README.md".to_owned()];
    below("docs", &mut names);
    names.sort();
    names
}

/// The fenced blocks of a document, and its other lines with their numbers.
fn parts(text: &str) -> (Vec<Block<'_>>, Vec<(usize, &str)>) {
    let (mut blocks, mut rest) = (Vec::<Block<'_>>::new(), Vec::new());
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), blocks.last_mut().filter(|_| is_open)) {
            (Some(_), Some(_)) => is_open = false,
            (Some(language), None) => {
                is_open = true;
                blocks.push(Block { language, line: index + 2, text: String::new() });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => rest.push((index + 1, line)),
        }
    }
    (blocks, rest)
}

/// The words of each command in a text, by a shell's rules for quotes, comments, continued lines,
/// `;` and `|`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '\\') if letters.next_if_eq(&'\n').is_some() => words.extend(word.take()),
            (None, '#') if word.is_none() => while letters.next_if(|&letter| letter != '\n').is_some() {},
            (None, '\n' | ';' | '|') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain(|words| !words.is_empty());
    // The README runs the tool from a clone.
    for words in &mut all {
        if words.starts_with(&["cargo", "run", "--release", "--"].map(str::to_owned)) {
            words.splice(..4, ["astracer".to_owned()]);
        }
    }
    all
}

fn documented(name: &str) -> Vec<Documented> {
    let text = fs::read_to_string(Path::new(ROOT).join(name)).expect("a document");
    let (blocks, rest) = parts(&text);
    let place = |line: usize| format!("{name}:{line}");
    let mut found = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if let Some((command, output)) = block.text.strip_prefix("$ ").and_then(|text| text.split_once('\n'))
        {
            let words = commands(command).swap_remove(0);
            found.push(Documented { place: place(block.line), words, output: Some(output.to_owned()) });
        }
        if block.language == "sh" {
            let commands = commands(&block.text);
            // The output of a single command follows, in the same section.
            let next = blocks.get(at + 1).filter(|next| {
                let between = |line: &usize| (block.line..next.line).contains(line);
                let is_section = rest.iter().any(|(line, text)| between(line) && text.starts_with('#'));
                commands.len() == 1 && next.language == "text" && !is_section && !next.text.starts_with("$ ")
            });
            found.extend(commands.into_iter().map(|words| Documented {
                place: place(block.line),
                words,
                output: next.map(|next| next.text.clone()),
            }));
        }
    }
    for (line, text) in rest {
        for code in text.split('`').skip(1).step_by(2) {
            // Without a path, it is a command and an option of which the sentence speaks.
            let is_whole = code.contains('/');
            for words in commands(code).into_iter().filter(|words| words[0] == "astracer" && is_whole) {
                found.push(Documented { place: place(line), words, output: None });
            }
        }
    }
    found
}

/// Whether `output` has these lines, one after the other; a line `...` stands for any number.
fn has_lines(output: &str, expected: &str) -> bool {
    let output: Vec<&str> = output.lines().map(str::trim_end).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim_end).collect();
    let mut from = 0;
    expected.split(|line| line.trim() == "...").all(|part| {
        let found = (from..=output.len()).find(|&at| output[at..].starts_with(part));
        from = found.unwrap_or_default() + part.len();
        found.is_some()
    })
}

/// Runs a command in a folder with the repository's recordings.
fn run_in(folder: &Folder, words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_astracer"))
        .args(&words[1..])
        .current_dir(folder.join(""))
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

#[test]
fn every_documented_command_does_what_the_document_says() {
    let folder = Folder::new("documents");
    for name in ["docs", "workloads"] {
        symlink(fs::canonicalize(Path::new(ROOT).join(name)).expect("a folder"), folder.join(name))
            .expect("a link");
    }
    let (mut wrong, mut used, mut compared) = (Vec::new(), BTreeSet::new(), 0);
    for Documented { place, words, output: expected } in documents().iter().flat_map(|name| documented(name))
    {
        let text = words.join(" ");
        if let Some((start, _)) = NOT_RUN.iter().find(|(start, _)| text.starts_with(start)) {
            used.insert(*start);
            continue;
        }
        let reduced = REDUCED.iter().find(|(command, ..)| text == *command);
        let (words, expected) = match reduced {
            Some((command, instead, _)) => {
                used.insert(*command);
                (commands(instead).swap_remove(0), None)
            }
            None => (words, expected),
        };
        if words[0] != "astracer" {
            wrong.push(format!("{place}: '{text}' is not the tool: list it in NOT_RUN with a reason"));
            continue;
        }
        let ran = run_in(&folder, &words);
        let (printed, error) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let named = |name: &&&str| words.iter().any(|word| word.rsplit('=').next() == Some(**name));
        match PLACEHOLDERS.iter().find(named) {
            Some(name) => {
                used.insert(*name);
                if ran.status.code() != Some(1) {
                    wrong.push(format!("{place}: '{text}' ended with {}, not 1: {error}", ran.status));
                }
            }
            None if !ran.status.success() => wrong.push(format!("{place}: '{text}' failed: {error}")),
            None => {
                if let Some(expected) = expected {
                    compared += 1;
                    if !has_lines(&printed, &expected) {
                        wrong.push(format!("{place}: '{text}' printed\n{printed}\ninstead of\n{expected}"));
                    }
                }
            }
        }
    }
    let listed = NOT_RUN.iter().map(|(start, _)| *start).chain(REDUCED.iter().map(|(command, ..)| *command));
    let unused = listed.chain(PLACEHOLDERS.iter().copied()).filter(|entry| !used.contains(entry));
    wrong.extend(unused.map(|entry| format!("no document needs the entry '{entry}'")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 6, "only {compared} outputs were compared");
}

#[test]
fn commands_are_split_as_a_shell_does() {
    let text = "astracer a 'b c' --d=\"e f\" \\\n  g  # h 'i'\n\ncargo run --release -- j | less; k ''";
    let expected = [&["astracer", "a", "b c", "--d=e f", "g"][..], &["astracer", "j"], &["less"], &["k", ""]];
    assert_eq!(commands(text), expected);
}

#[test]
fn lines_may_be_left_out() {
    let output = "a\nb  \nc\nd\n";
    for expected in ["a\nb\nc\nd\n", "b\nc\n", "a\n...\nd\n", "...\nd\n", "a\n ...\n"] {
        assert!(has_lines(output, expected), "{expected:?}");
    }
    for expected in ["b\na\n", "a\nc\n", "d\n...\na\n", "a\nb\nc\nd\ne\n"] {
        assert!(!has_lines(output, expected), "{expected:?}");
    }
}
