//! `cargo xtask figures`: lists the documented figures that are older than the last change of the
//! code that they measure.
//!
//! RESULTS.md and the pages of docs/results name the commit of each figure. A figure is old if a
//! later commit touches the sources that its command runs. This shows which figures to take again,
//! and fails only where a commit or the sources of a figure are not known.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use crate::passed::git;

const SAMPLING: &[&str] = &["tuner/src", "samplers/src", "baselines/src"];
const SPANS: &[&str] = &["sdk/src", "spans/src", "samplers/src"];
const READERS: &[&str] = &["formats/src", "recording/src", "cli/src"];
const EXPORT: &[&str] = &["exporters/src", "spans/src", "spool/src", "receiver/src"];

/// The sources that a command measures, by a part of the command. The first that fits counts.
const COMMANDS: &[(&str, &[&str])] = &[
    ("example who_wins", SAMPLING),
    ("example figures", SAMPLING),
    ("evaluate --scoreboard", SAMPLING),
    ("tune --late", SAMPLING),
    ("adaptive", SAMPLING),
    ("bench decision", &["samplers/src"]),
    ("bench layer", SPANS),
    ("bench late", SPANS),
    ("bench export", EXPORT),
    ("bench loss", EXPORT),
    ("bench reading", READERS),
    ("bench convert", READERS),
    ("xtask instructions", &["sdk/src", "spans/src", "samplers/src", "baggage/src", "tower/src"]),
    ("xtask bounds", READERS),
    ("xtask soak", SPANS),
    ("astracer inspect", READERS),
    ("astracer critical-path", &["critical-path/src", "recording/src"]),
    ("compare", &["compare/src"]),
    ("`et", &["sdk/src", "spans/src", "tower/src", "exporters/src"]),
    ("examples `axum`", &["sdk/src", "spans/src", "tower/src"]),
    ("cargo build", &["Cargo.toml", "Cargo.lock"]),
];

/// The sources of the pages of docs/results, by file name.
const PAGES: &[(&str, &[&str])] = &[
    ("adaptive.md", SAMPLING),
    ("checks.md", SPANS),
    ("compare.md", &["compare/src"]),
    ("critical-paths.md", &["critical-path/src", "tuner/src"]),
    ("decisions.md", &["samplers/src"]),
    ("export.md", EXPORT),
    ("late.md", SPANS),
    ("strata.md", SAMPLING),
    ("order.md", &["order/src", "causality/src"]),
    ("queries.md", &["queries/src", "ask/src", "causality/src"]),
    ("requests.md", &["sdk/src", "spans/src", "tower/src"]),
    ("samplers.md", SAMPLING),
    ("scoreboard.md", SAMPLING),
    ("spans.md", SPANS),
    ("tool.md", READERS),
    ("tuning.md", SAMPLING),
];

/// A line with the commit of its figures.
#[derive(Debug, PartialEq)]
struct Figure<'t> {
    line: usize,
    /// The first cell of a table's row; empty for other lines.
    what: &'t str,
    commit: &'t str,
    /// The last cell of the row: in RESULTS.md the command.
    command: &'t str,
}

/// Words of 7 to 12 hexadecimal digits, of which some are letters and some are not: commits.
fn commits(line: &str) -> impl Iterator<Item = &str> + use<'_> {
    let is_commit = |word: &&str| {
        (7..=12).contains(&word.len())
            && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_lowercase())
    };
    line.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_commit)
}

fn figures(text: &str) -> Vec<Figure<'_>> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let is_row = line.trim_start().starts_with('|');
        let what = if is_row { cells[0] } else { "" };
        let command = cells.last().copied().filter(|_| is_row).unwrap_or_default();
        found.extend(commits(line).map(|commit| Figure { line: at + 1, what, commit, command }));
    }
    found
}

/// The sources of a figure: those of its command or, on a page of results, those of the page.
fn sources(page: &str, command: &str) -> Option<&'static [&'static str]> {
    let of_page = PAGES.iter().find(|(name, _)| page.ends_with(&format!("/{name}")));
    let of_command = || COMMANDS.iter().find(|(part, _)| command.contains(part));
    of_page.or_else(of_command).map(|(_, sources)| *sources)
}

/// Prints the list.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut pages = vec!["RESULTS.md".to_owned()];
    pages.extend(PAGES.iter().map(|(name, _)| format!("docs/results/{name}")));
    let (mut old, mut all, mut unknown) = (0, 0, 0);
    let mut known: HashMap<(String, &[&str]), Result<u64, String>> = HashMap::new();
    for page in &pages {
        let Ok(text) = std::fs::read_to_string(root.join(page)) else { continue };
        for Figure { line, what, commit, command } in figures(&text) {
            all += 1;
            let Some(sources) = sources(page, command) else {
                unknown += 1;
                println!(
                    "{page}:{line}: no sources are known for the command {command}: add them to figures.rs"
                );
                continue;
            };
            let since =
                known.entry((commit.to_owned(), sources)).or_insert_with(|| since(root, commit, sources));
            match since {
                Ok(0) => {}
                Ok(changes) => {
                    old += 1;
                    let what = if what.is_empty() { String::new() } else { format!(" {what}:") };
                    println!(
                        "{page}:{line}:{what} {commit}, {changes} changes of {} since",
                        sources.join(", ")
                    );
                }
                Err(error) => {
                    unknown += 1;
                    println!("{page}:{line}: {commit}: {error}");
                }
            }
        }
    }
    println!("{old} of {all} figures are older than the last change of what they measure");
    if unknown > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The number of commits after this one that touch these sources.
fn since(root: &Path, commit: &str, sources: &[&str]) -> Result<u64, String> {
    let range = format!("{commit}..HEAD");
    let args: Vec<&str> =
        ["rev-list", "--count", &range, "--"].into_iter().chain(sources.iter().copied()).collect();
    git(root, &args)?.trim().parse().map_err(|_| "git printed no number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_sentences_have_commits() {
        let text = "# Title\n| what | ours | date and commit | command |\n|---|---|---|---|\n\
                    | bump | 31 ns | 2026-11-21 3f5e12f | `bench decision` |\n\
                    Commit 3b8b98c, 2026-11-25; 1234567 traces, deadbeef.\n";
        let found = figures(text);
        let row = Figure { line: 4, what: "bump", commit: "3f5e12f", command: "`bench decision`" };
        let sentence = Figure { line: 5, what: "", commit: "3b8b98c", command: "" };
        assert_eq!(found, [row, sentence]);
        assert_eq!(sources("RESULTS.md", "`bench decision`"), Some(&["samplers/src"][..]));
        assert_eq!(sources("docs/results/tuning.md", ""), Some(SAMPLING));
        assert_eq!(sources("RESULTS.md", "`bench nothing`"), None);
    }

    /// Each command of RESULTS.md has sources, and all of these exist.
    #[test]
    fn every_figure_has_sources() {
        let root = crate::repo::root();
        let text = std::fs::read_to_string(root.join("RESULTS.md")).unwrap();
        let found = figures(&text);
        assert!(found.len() > 40, "{}", found.len());
        for figure in found {
            assert!(sources("RESULTS.md", figure.command).is_some(), "{figure:?}");
        }
        for (name, sources) in COMMANDS.iter().chain(PAGES) {
            assert!(sources.iter().all(|path| root.join(path).exists()), "{name}: {sources:?}");
        }
    }

    #[test]
    fn a_commit_has_no_changes_after_itself() {
        let root = crate::repo::root();
        assert_eq!(since(&root, "HEAD", &["xtask/src"]), Ok(0));
        assert!(since(&root, "0123abc0123a", &["xtask/src"]).is_err());
    }
}
