//! Each concept has one word: words that were given up do not come back. The list is a table in
//! ARCHITECTURE.md with the columns `given up` and `write`. A cell may have several words,
//! separated by commas.

use super::Problem;
use super::text::{find_word, prose};
use crate::repo::Repo;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// The changelog keeps the words of its time.
const EXEMPT: [&str; 1] = ["CHANGELOG.md"];

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let document = repo.file(DOCUMENT).and_then(|file| file.text()).unwrap_or_default();
    let Some(table) = table(document) else {
        return vec![Problem::file(DOCUMENT, "has no table with the columns `given up` and `write`")];
    };
    let mut problems = Vec::new();
    for (file, text) in
        [".rs", ".toml", ".md"].into_iter().flat_map(|extension| repo.with_extension(extension))
    {
        if file.is_data() || EXEMPT.contains(&file.path.as_str()) {
            continue;
        }
        for line in prose(file, text) {
            if file.path == DOCUMENT && line.text.starts_with('|') {
                continue;
            }
            let text = line.text.to_lowercase();
            for (word, instead) in &table {
                if [word.clone(), format!("{word}s")]
                    .iter()
                    .any(|form| find_word(&text, form).next().is_some())
                {
                    let message = format!("`{word}` is no longer used: write {instead}");
                    problems.push(Problem { path: file.path.clone(), line: Some(line.number), message });
                }
            }
        }
    }
    problems
}

/// Words in lower case, each with its replacement.
fn table(document: &str) -> Option<Vec<(String, &str)>> {
    fn cells(line: &str) -> Vec<&str> {
        line.trim().trim_matches('|').split('|').map(str::trim).collect()
    }
    let mut lines = document.lines().skip_while(|line| cells(line) != ["given up", "write"]);
    lines.next()?;
    let mut rows = Vec::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let [words, instead] = cells(line)[..] else { return None };
        rows.extend(words.split(',').map(|word| (word.trim().to_lowercase(), instead)));
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn given_up_words_are_found_in_comments_and_documents() {
        let document =
            "| given up | write |\n|---|---|\n| parcel, outbox | batch or queue |\n\nOutboxes, an outbox.\n";
        let code = "// Two Parcels.\nlet parcel = \"parcel\";\n// parcelled\n";
        let repo = Repo::of(&[(DOCUMENT, document), ("a.rs", code), ("CHANGELOG.md", "parcel")]);
        let expected = [
            "a.rs:1: `parcel` is no longer used: write batch or queue",
            "ARCHITECTURE.md:5: `outbox` is no longer used: write batch or queue",
        ];
        assert_eq!(printed(&check(&repo)), expected);
    }

    #[test]
    fn the_table_must_be_there() {
        let expected = ["ARCHITECTURE.md: has no table with the columns `given up` and `write`"];
        assert_eq!(printed(&check(&Repo::of(&[(DOCUMENT, "# Title")]))), expected);
    }
}
