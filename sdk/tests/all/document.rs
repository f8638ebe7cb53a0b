//! Keeps the tables of docs/tracing-layer.md equal to the tests: each row is a test.
//! `ASTRACER_WRITE=1` writes the rows, of which those with cells of their own are to be completed.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::support::Row;
use crate::{differences, losses, parity, span_ext, visibility};

/// The headers of the tables in the document's order, each with its rows as far as the tests have
/// them.
fn tables() -> [(&'static str, Vec<String>); 5] {
    const COMPARED: &str = "| feature | ours | tracing-opentelemetry |";
    let rows = |rows: &[Row], rest: &str| rows.iter().map(|(name, _)| format!("| {name} |{rest}")).collect();
    [
        (COMPARED, rows(parity::ROWS, " the same | the same |")),
        (COMPARED, rows(span_ext::OUR_TRAIT, " the same | the same |")),
        (COMPARED, rows(differences::ROWS, "")),
        (
            "| | `DroppedSpans::Visible` (the default) | `DroppedSpans::Disabled` |",
            rows(visibility::ROWS, ""),
        ),
        ("| reason | when | setting |", rows(losses::ROWS, "")),
    ]
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/tracing-layer.md")
}

#[test]
fn the_document_s_tables_are_the_tests() {
    let document = std::fs::read_to_string(path()).unwrap();
    let mut tables = tables().into_iter();
    let mut expected = Vec::new();
    let mut lines = document.lines().peekable();
    let mut next = tables.next();
    while let Some(line) = lines.next() {
        expected.push(line.to_owned());
        let Some((_, rows)) = next.take_if(|(header, _)| *header == line) else { continue };
        expected.push(lines.next().unwrap().to_owned());
        let known: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with('|'))).collect();
        let complete = |row: String| {
            let known = known.iter().find(|known| known.starts_with(&row));
            known.map_or(row, |known| (*known).to_owned())
        };
        expected.extend(rows.into_iter().map(complete));
        next = tables.next();
    }
    assert!(next.is_none(), "docs/tracing-layer.md has no table with the header {next:?}");
    let expected = expected.join("\n") + "\n";
    if std::env::var_os("ASTRACER_WRITE").is_some() {
        std::fs::write(path(), expected).unwrap();
        return;
    }
    let different = document.lines().zip(expected.lines()).find(|(is, shall)| is != shall);
    assert!(
        document == expected,
        "docs/tracing-layer.md differs from the tests: {different:?}; update it with ASTRACER_WRITE=1"
    );
}

/// A number with thousands separators, as the document writes it.
fn thousands(count: u64) -> String {
    if count < 1_000 { count.to_string() } else { format!("{},{:03}", count / 1_000, count % 1_000) }
}

#[test]
fn the_document_s_instructions_are_those_recorded() {
    let document = std::fs::read_to_string(path()).unwrap();
    let recorded = include_str!("../../../benches/results/instructions.txt");
    let counts = recorded.lines().filter(|line| !line.starts_with('#'));
    let counts: HashMap<&str, String> = counts
        .map(|line| {
            let (name, count) = line.rsplit_once(' ').unwrap();
            (name.trim_end(), thousands(count.parse().unwrap()))
        })
        .collect();
    for expected in [
        format!("| {} / {} |", counts["dropped, exclusive, no context"], counts["dropped, exclusive"]),
        format!("| / {} |", counts["dropped, shared"]),
        format!("| {} / {} |", counts["kept, no context"], counts["kept"]),
        format!("| {} / |", counts["kept, attributes, no context"]),
        format!("a call takes {} instructions", counts["kept, stock trait's call"]),
        format!("(ours: {})", counts["kept, own trait's call"]),
        format!("a decision by the key ({} instructions)", counts["decision"]),
    ] {
        assert!(document.contains(&expected), "docs/tracing-layer.md does not contain `{expected}`");
    }
}
