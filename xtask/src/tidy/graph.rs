//! The crate graph: the dependencies in Cargo.toml files match the table of ARCHITECTURE.md, and
//! heavy dependencies are confined to the crates that may have them.

use std::collections::BTreeMap;

use super::Problem;
use crate::metadata::{Metadata, Package};
use crate::repo::Repo;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Dependencies that only a few folders may have. A `*` at the end matches any ending.
const CONFINED: &[(&str, &[&str])] = &[
    ("opentelemetry*", &["model", "baggage", "spans", "sdk", "operate", "tower", "exporters", "astracer"]),
    ("tracing-opentelemetry", &["sdk"]),
    ("argmin*", &["tuner"]),
    ("tokio*", &["exporters", "receiver"]),
];

/// Folders of tests and examples, which may depend on anything.
const FREE: &[&str] = &["benches", "tests", "testing", "examples", "fuzz"];

/// A row of the table.
struct Row {
    folder: String,
    line: usize,
    /// Folders that it may depend on; `None` for anything.
    may_use: Option<Vec<String>>,
}

pub(super) fn check(repo: &Repo, metadata: &Metadata) -> Vec<Problem> {
    let mut problems = confined(metadata);
    let text = repo.file(DOCUMENT).and_then(|file| file.text()).unwrap_or_default();
    match table(text) {
        Ok(rows) => problems.extend(arrows(&rows, metadata)),
        Err(message) => problems.push(Problem::file(DOCUMENT, message)),
    }
    problems
}

/// Parses the crate table. Its columns are found by their headings: `folder`, `crate`,
/// `depends on (ours)`.
fn table(text: &str) -> Result<BTreeMap<String, Row>, String> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let heading = lines
        .by_ref()
        .map(|(_, line)| cells(line))
        .find(|cells| cells.iter().any(|cell| cell == "depends on (ours)"));
    let heading = heading.ok_or("has no table with a column `depends on (ours)`")?;
    let column = |name: &str| {
        heading
            .iter()
            .position(|cell| cell == name)
            .ok_or_else(|| format!("the crate table has no column `{name}`"))
    };
    let (folder, name, uses) = (column("folder")?, column("crate")?, column("depends on (ours)")?);
    let mut rows = BTreeMap::new();
    for (line, text) in lines.skip(1).take_while(|(_, text)| text.trim_start().starts_with('|')) {
        let cells = cells(text);
        let cell = |column: usize| cells.get(column).cloned().unwrap_or_default();
        let may_use = match cell(uses).as_str() {
            "anything" => None,
            "-" => Some(Vec::new()),
            list => Some(list.split(',').map(|used| used.trim().trim_matches('`').to_owned()).collect()),
        };
        if rows.insert(cell(name), Row { folder: cell(folder), line, may_use }).is_some() {
            return Err(format!("the crate table has two rows for {}", cell(name)));
        }
    }
    Ok(rows)
}

fn arrows(rows: &BTreeMap<String, Row>, metadata: &Metadata) -> Vec<Problem> {
    let mut problems = Vec::new();
    let packages: BTreeMap<&str, &Package> =
        metadata.ours().map(|package| (package.name.as_str(), package)).collect();
    for (name, row) in rows {
        let mut problem = |message| {
            problems.push(Problem { path: DOCUMENT.to_owned(), line: Some(row.line), message });
        };
        match packages.get(name.as_str()) {
            None => problem(format!("the crate {name} does not exist")),
            Some(package) if metadata.folder(package) != row.folder => {
                problem(format!("{name} is in {}, not in {}", metadata.folder(package), row.folder));
            }
            Some(_) => {}
        }
        for used in row.may_use.iter().flatten() {
            if !rows.values().any(|other| other.folder == *used) {
                problem(format!("{name} may depend on {used}, which is not a folder of the table"));
            }
        }
    }
    for (name, package) in &packages {
        let manifest = metadata.relative(&package.manifest_path);
        let Some(row) = rows.get(*name) else {
            problems.push(Problem::file(
                &manifest,
                format!("{name} has no row in the crate table of {DOCUMENT}"),
            ));
            continue;
        };
        let Some(may_use) = &row.may_use else { continue };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.is_shipped()) {
            let Some(other) = packages.get(dependency.name.as_str()) else { continue };
            let used = metadata.folder(other);
            if !may_use.contains(&used) {
                problems.push(Problem::file(
                    &manifest,
                    format!(
                        "{} depends on {used}, which its row in the crate table of {DOCUMENT} does not list",
                        row.folder
                    ),
                ));
            }
        }
    }
    problems
}

fn confined(metadata: &Metadata) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in metadata.ours() {
        let folder = metadata.folder(package);
        if FREE.contains(&folder.split('/').next().unwrap_or_default()) {
            continue;
        }
        for dependency in package.dependencies.iter().filter(|dependency| dependency.is_shipped()) {
            for (pattern, allowed) in CONFINED {
                if matches(pattern, &dependency.name) && !allowed.contains(&folder.as_str()) {
                    let manifest = metadata.relative(&package.manifest_path);
                    let message =
                        format!("only these may depend on `{}`: {}", dependency.name, allowed.join(", "));
                    problems.push(Problem::file(&manifest, message));
                }
            }
        }
    }
    problems
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Resolve};
    use crate::tidy::printed;

    const TABLE: &str = "\
# Title

| folder | crate | its job | depends on (ours) |
|---|---|---|---|
| `low` | `x-low` | decide | - |
| high | x-high | call | low |
| tests | x-tests | test | anything |
";

    /// Metadata for crates given as (name, folder, dependencies), with `dev:` before a
    /// dev-dependency.
    fn metadata(crates: &[(&str, &str, &[&str])]) -> Metadata {
        let packages = crates.iter().map(|(name, folder, dependencies)| {
            let dependencies = dependencies.iter().map(|dependency| match dependency.split_once(':') {
                Some((kind, name)) => {
                    Dependency { name: name.to_owned(), rename: None, kind: Some(kind.to_owned()) }
                }
                None => Dependency { name: (*dependency).to_owned(), rename: None, kind: None },
            });
            Package {
                name: (*name).to_owned(),
                version: "1.0.0".to_owned(),
                manifest_path: format!("/root-of-test/{folder}/Cargo.toml"),
                dependencies: dependencies.collect(),
                ..Package::default()
            }
        });
        Metadata {
            packages: packages.collect(),
            workspace_root: "/root-of-test".to_owned(),
            target_directory: String::new(),
            resolve: Resolve::default(),
        }
    }

    #[track_caller]
    fn check_graph(table: &str, crates: &[(&str, &str, &[&str])], expected: &[&str]) {
        assert_eq!(printed(&check(&Repo::of(&[(DOCUMENT, table)]), &metadata(crates))), expected);
    }

    #[test]
    fn a_graph_like_the_table_passes() {
        let crates: &[(&str, &str, &[&str])] = &[
            ("x-low", "low", &["serde", "dev:x-high"]),
            ("x-high", "high", &["x-low"]),
            ("x-tests", "tests", &["x-low", "x-high"]),
        ];
        check_graph(TABLE, crates, &[]);
    }

    #[test]
    fn an_arrow_too_many_is_found() {
        let crates: &[(&str, &str, &[&str])] = &[
            ("x-low", "low", &["build:x-tests"]),
            ("x-high", "high", &["x-tests"]),
            ("x-tests", "tests", &[]),
        ];
        let expected = [
            "high/Cargo.toml: high depends on tests, which its row in the crate table of ARCHITECTURE.md does not list",
            "low/Cargo.toml: low depends on tests, which its row in the crate table of ARCHITECTURE.md does not list",
        ];
        check_graph(TABLE, crates, &expected);
    }

    #[test]
    fn crates_and_rows_match_one_to_one() {
        let crates: &[(&str, &str, &[&str])] =
            &[("x-low", "lower", &[]), ("x-high", "high", &[]), ("x-new", "new", &[])];
        let expected = [
            "ARCHITECTURE.md:5: x-low is in lower, not in low",
            "ARCHITECTURE.md:7: the crate x-tests does not exist",
            "new/Cargo.toml: x-new has no row in the crate table of ARCHITECTURE.md",
        ];
        check_graph(TABLE, crates, &expected);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_a_problem() {
        check_graph("# Title", &[], &["ARCHITECTURE.md: has no table with a column `depends on (ours)`"]);
        let table = "| folder | depends on (ours) |\n|---|---|\n";
        check_graph(table, &[], &["ARCHITECTURE.md: the crate table has no column `crate`"]);
        let table = "| folder | crate | depends on (ours) |\n|---|---|---|\n| a | x | - |\n| b | x | - |\n";
        check_graph(table, &[], &["ARCHITECTURE.md: the crate table has two rows for x"]);
        let table = "| folder | crate | depends on (ours) |\n|---|---|---|\n| a | x | lwo |\n";
        let expected = ["ARCHITECTURE.md:3: x may depend on lwo, which is not a folder of the table"];
        check_graph(table, &[("x", "a", &[])], &expected);
    }

    #[test]
    fn heavy_dependencies_are_confined() {
        let crates: &[(&str, &str, &[&str])] = &[
            ("x-low", "low", &["opentelemetry_sdk", "dev:argmin"]),
            ("x-high", "high", &["x-low", "argmin", "tokio"]),
            ("x-tests", "tests", &["opentelemetry-proto"]),
        ];
        let expected = [
            "low/Cargo.toml: only these may depend on `opentelemetry_sdk`: model, baggage, spans, sdk, operate, tower, exporters, astracer",
            "high/Cargo.toml: only these may depend on `argmin`: tuner",
            "high/Cargo.toml: only these may depend on `tokio`: exporters, receiver",
        ];
        check_graph(TABLE, crates, &expected);
    }
}
