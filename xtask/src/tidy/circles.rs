//! The modules of a crate do not depend on each other in a cycle.
//!
//! Cargo prevents cycles of crates, but nothing prevents cycles of modules. The rule compares
//! siblings: `a` depends on `b` if a file of `a`, or of a module below it, names `b` or a path into
//! it. A child may name its parent. Paths are recognised by their spelling (`crate::`, `super::`),
//! so a path built by a macro is missed. Tests are ignored, since they may use anything.

use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::text::find_word;
use crate::repo::Repo;

/// By parent module: its children, each with the siblings that it names.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

pub(super) fn check(repo: &Repo) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (parent, siblings) in arrows(repo) {
        for circle in circles(&siblings) {
            let names: Vec<&str> = circle.iter().map(String::as_str).collect();
            let message = format!("modules depend on each other in a cycle: {}", names.join(", "));
            problems.push(Problem::file(&parent, message));
        }
    }
    problems
}

fn arrows(repo: &Repo) -> Arrows {
    let mut arrows = Arrows::new();
    for (file, text) in repo.rust_files() {
        let Some((folder, path)) = file.path.split_once("/src/") else { continue };
        let mut module: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if matches!(module.last(), Some(&"lib" | &"main")) {
            module.pop();
        }
        if path.starts_with("bin/") || module.iter().any(|name| *name == "tests" || name.ends_with("_tests"))
        {
            continue;
        }
        for target in targets(text, &module) {
            // The first component in which the two paths differ names the two siblings.
            let Some(depth) =
                (0..module.len().min(target.len())).find(|&depth| module[depth] != target[depth])
            else {
                continue;
            };
            let parent = [&[folder, "src"], &module[..depth]].concat().join("/");
            let siblings = arrows.entry(parent).or_default();
            siblings.entry(module[depth].to_owned()).or_default().insert(target[depth].clone());
        }
    }
    arrows
}

/// The paths that a file of `module` names, from the crate's root.
fn targets(text: &str, module: &[&str]) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut found = Vec::new();
    for at in find_word(&code, "crate") {
        if let Some(rest) = code[at..].strip_prefix("crate::") {
            found.extend(heads(rest).into_iter().map(|head| vec![head]));
        }
    }
    for at in find_word(&code, "super") {
        // `super::super::` is handled at its first word.
        if code[..at].ends_with("super::") {
            continue;
        }
        let (mut rest, mut up) = (&code[at..], 0);
        while let Some(next) = rest.strip_prefix("super::") {
            (rest, up) = (next, up + 1);
        }
        if up == 0 || up > module.len() {
            continue;
        }
        let base: Vec<String> = module[..module.len() - up].iter().map(|&name| name.to_owned()).collect();
        found.extend(heads(rest).into_iter().map(|head| [base.clone(), vec![head]].concat()));
    }
    found
}

/// The first names of a path or of a group of paths: `a` of `a::b`, `a` and `c` of `{a::b, c}`.
/// Names that are not modules depend on nothing, so they are in no cycle.
fn heads(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![rest.chars().take_while(|&c| is_of_word(c)).collect()];
    };
    let (mut heads, mut depth, mut word) = (Vec::new(), 1, String::new());
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match character {
            c if depth == 1 && is_of_word(c) => word.push(c),
            _ if !word.is_empty() => heads.push(std::mem::take(&mut word)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    // For `a::b::c` in a group this includes the later names. They do no harm, since only names of
    // siblings matter.
    heads
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The sets of modules that reach each other.
fn circles(siblings: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = vec![from];
        while let Some(module) = next.pop() {
            for target in siblings.get(module).into_iter().flatten() {
                if seen.insert(target.clone()) {
                    next.push(target);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        siblings.keys().map(|name| (name, reach(name))).collect();
    let circle = |name: &String| -> BTreeSet<String> {
        let others =
            reached[name].iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(name)));
        others.cloned().collect()
    };
    reached.keys().map(|name| circle(name)).filter(|circle| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    #[test]
    fn a_circle_of_siblings_is_found() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b/deep.rs", "fn f() { super::super::c::g() }"),
            ("x/src/c.rs", "use super::{b, a::{A, Other}};"),
            ("x/src/d.rs", "use crate::a::A;"),
            ("x/src/e.rs", "use super::{F, f};"),
            ("x/src/f.rs", "use crate::e;"),
        ];
        let expected = [
            "x/src: modules depend on each other in a cycle: a, b, c",
            "x/src: modules depend on each other in a cycle: e, f",
        ];
        assert_eq!(printed(&check(&Repo::of(&files))), expected);
    }

    #[test]
    fn parents_tests_and_comments_make_no_circle() {
        let files = [
            (
                "x/src/a.rs",
                "mod b;\nuse b::B;\n// use crate::c::C;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}",
            ),
            ("x/src/a/b.rs", "use super::A; use crate::a::other::O;"),
            ("x/src/a/other.rs", "use super::A;"),
            ("x/src/c.rs", "use crate::a::A;"),
            ("x/src/a/tests.rs", "use crate::c::C;"),
        ];
        assert_eq!(check(&Repo::of(&files)), []);
    }
}
