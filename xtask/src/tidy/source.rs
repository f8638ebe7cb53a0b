//! A Rust file as the rules see it: comments, literals and tests blanked out.
//!
//! Not a parser. It knows just enough of the language's surface (comments, strings, characters, lifetimes, braces)
//! that a word found in the result is code. Offsets and line breaks are those of the file.

/// The code of `text`: comments and the contents of string and character literals are spaces.
pub(super) fn code(text: &str) -> String {
    let mut scanner = Scanner { input: text.as_bytes(), at: 0, output: Vec::with_capacity(text.len()) };
    scanner.run();
    // Whole characters were blanked byte by byte, the others copied.
    String::from_utf8_lossy(&scanner.output).into_owned()
}

/// The code of `text` that is built into the crate: as [`code`], without the items that are there for tests only.
pub(super) fn shipped_code(text: &str) -> String {
    let mut code = code(text).into_bytes();
    let mut at = 0;
    while let Some(start) = find(&code, b"#[cfg(", at) {
        let Some(end) = balanced_end(&code, start + 1) else { break };
        at = end;
        if is_for_tests(&code[start..end]) {
            at = item_end(&code, end);
            blank(&mut code[start..at]);
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether this file as a whole is for tests: by its place or its name.
pub(super) fn is_test_file(path: &str) -> bool {
    let mut folders: Vec<&str> = path.split('/').collect();
    let name = folders.pop().unwrap_or_default();
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || folders.iter().any(|folder| ["tests", "benches", "examples"].contains(folder))
}

/// The offsets at which `word` stands in `code` and is not a part of a longer word.
pub(super) fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(start, _)| start).filter(move |&start| {
        let before = start.checked_sub(1).and_then(|index| bytes.get(index));
        let after = bytes.get(start + word.len());
        // Where the pattern's own end is punctuation (`todo!(`), what follows does not matter.
        let ends_in_word = is_word(word.as_bytes().last());
        !(is_word(before) || ends_in_word && is_word(after))
    })
}

/// The offsets at which `path` (`std::thread`) is named, also inside of a group: `use std::{fs, thread}`.
pub(super) fn find_path(code: &str, path: &str) -> Vec<usize> {
    let mut found: Vec<usize> = find_word(code, path).collect();
    if let Some((parent, child)) = path.rsplit_once("::") {
        for start in find_word(code, &format!("{parent}::{{")) {
            let open = start + parent.len() + 2;
            let Some(end) = balanced_end(code.as_bytes(), open) else { continue };
            let mut depth = 0;
            let mut first_word = true;
            for (index, byte) in code.as_bytes()[open..end].iter().enumerate() {
                match byte {
                    b'{' => depth += 1,
                    b'}' => depth -= 1,
                    b',' => first_word = true,
                    byte if byte.is_ascii_whitespace() => {}
                    _ => {
                        let rest = &code[open + index..end];
                        if depth == 1 && first_word && find_word(rest, child).next() == Some(0) {
                            found.push(open + index);
                        }
                        first_word = false;
                    }
                }
                if *byte == b'{' {
                    first_word = true;
                }
            }
        }
    }
    found.sort_unstable();
    found
}

struct Scanner<'a> {
    input: &'a [u8],
    at: usize,
    output: Vec<u8>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(&byte) = self.input.get(self.at) {
            let rest = &self.input[self.at..];
            match byte {
                b'/' if rest.starts_with(b"//") => self.blank_to(line_end(self.input, self.at)),
                b'/' if rest.starts_with(b"/*") => self.blank_to(block_comment_end(self.input, self.at)),
                b'"' => self.literal(string_end(self.input, self.at + 1)),
                b'\'' => match char_end(rest) {
                    Some(length) => self.literal(self.at + length),
                    None => self.copy(1), // a lifetime
                },
                b'r' if !self.inside_word() || self.after_prefix() => match raw_string(rest) {
                    Some(length) => self.literal(self.at + length),
                    None => self.copy(1),
                },
                _ => self.copy(1),
            }
        }
    }

    fn inside_word(&self) -> bool {
        self.output.last().is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// At the `r` of `br"..."` or `cr"..."`.
    fn after_prefix(&self) -> bool {
        match self.output.as_slice() {
            [b'b' | b'c'] => true,
            [.., before, b'b' | b'c'] => !(before.is_ascii_alphanumeric() || *before == b'_'),
            _ => false,
        }
    }

    fn copy(&mut self, length: usize) {
        self.output.extend_from_slice(&self.input[self.at..self.at + length]);
        self.at += length;
    }

    fn blank_to(&mut self, end: usize) {
        let start = self.output.len();
        self.output.extend_from_slice(&self.input[self.at..end]);
        blank(&mut self.output[start..]);
        self.at = end;
    }

    /// Keeps one quote at each end, so that the code still reads as having a literal there.
    fn literal(&mut self, end: usize) {
        let start = self.output.len();
        self.blank_to(end);
        self.output[start] = b'"';
        if let Some(last) = self.output.last_mut() {
            *last = b'"';
        }
    }
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn line_end(input: &[u8], at: usize) -> usize {
    input[at..].iter().position(|&byte| byte == b'\n').map_or(input.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(input: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < input.len() {
        if input[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if input[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    input.len()
}

/// The end of a string whose content starts at `at`.
fn string_end(input: &[u8], mut at: usize) -> usize {
    while at < input.len() {
        match input[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    input.len()
}

/// The length of the character literal at the start of `rest`, or `None` if that is a lifetime.
fn char_end(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        // What is escaped may be a quote itself.
        return rest.iter().skip(3).position(|&byte| byte == b'\'').map(|length| length + 4);
    }
    let character = std::str::from_utf8(&rest[1..rest.len().min(5)]).map_or_else(
        |error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?.chars().next(),
        |text| text.chars().next(),
    )?;
    let end = 1 + character.len_utf8();
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

/// The length of the raw string at the start of `rest` (at its `r`), or `None` if there is none.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &rest[1..1 + hashes]].concat();
    let start = hashes + 2;
    Some(find(rest, &close, start).map_or(rest.len(), |at| at + close.len()))
}

fn find(bytes: &[u8], pattern: &[u8], from: usize) -> Option<usize> {
    bytes[from..].windows(pattern.len()).position(|window| window == pattern).map(|at| from + at)
}

/// The end of the bracketed text that opens at `open`.
fn balanced_end(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, byte) in code[open..].iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open + index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether a `#[cfg(...)]` switches its item off outside of tests.
fn is_for_tests(attribute: &[u8]) -> bool {
    let text = String::from_utf8_lossy(attribute);
    let test = |text: &str| find_word(text, "test").next().is_some();
    // `not(test)` and `any(test, feature)` leave the item in.
    test(&text) && !text.contains("not(") && !text.contains("any(")
}

/// The end of the item that starts at `at`: behind its block or its semicolon.
fn item_end(code: &[u8], at: usize) -> usize {
    let mut index = at;
    while index < code.len() {
        match code[index] {
            b';' => return index + 1,
            b'{' => return balanced_end(code, index).unwrap_or(code.len()),
            b'(' | b'[' => index = balanced_end(code, index).unwrap_or(code.len()),
            _ => index += 1,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_code(text: &str, expected: &str) {
        assert_eq!(code(text), expected);
        assert_eq!(code(text).len(), text.len());
    }

    #[test]
    fn comments_are_blanked() {
        check_code("a // b\nc", "a     \nc");
        check_code("a /* b /* c */ d */ e", "a                   e");
        check_code("a /* b", "a     ");
    }

    #[test]
    fn literals_are_blanked() {
        check_code(r#"f("a // b", c)"#, r#"f("      ", c)"#);
        check_code(r#"f("a\"b", c)"#, r#"f("    ", c)"#);
        check_code(r##"f(r#"a"b"#, c)"##, r##"f("      ", c)"##);
        check_code(r##"f(br#"a"#, c)"##, r##"f(b"    ", c)"##);
        check_code(r#"var"a""#, r#"var" ""#);
        check_code("r#type", "r#type");
        check_code("f('a', '\\'', '\"', b)", "f(\" \", \"  \", \" \", b)");
        check_code("'\\u{1F600}' x", "\"         \" x");
        check_code("'é' x", "\"  \" x");
    }

    #[test]
    fn lifetimes_are_not_literals() {
        check_code("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check_code("'outer: loop { break 'outer; }", "'outer: loop { break 'outer; }");
    }

    #[track_caller]
    fn check_shipped(text: &str, expected: &str) {
        let shipped = shipped_code(text);
        assert_eq!(shipped.split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn items_for_tests_are_not_shipped() {
        check_shipped("a; #[cfg(test)] mod tests { fn f() { g(\"}\"); } } b;", "a; b;");
        check_shipped("a; #[cfg(test)] mod tests; b;", "a; b;");
        check_shipped("#[cfg(all(test, loom))] #[x] fn f(a: [u8; 2]) -> u8 { 1 } b;", "b;");
    }

    #[test]
    fn other_items_are_shipped() {
        check_shipped("#[cfg(not(test))] fn f() {}", "#[cfg(not(test))] fn f() {}");
        check_shipped("#[cfg(any(test, x))] fn f() {}", "#[cfg(any(test, x))] fn f() {}");
        check_shipped("#[cfg(unix)] fn f() {}", "#[cfg(unix)] fn f() {}");
    }

    #[test]
    fn test_files_are_told_by_place_or_name() {
        assert!(is_test_file("model/tests/all/otlp.rs"));
        assert!(is_test_file("model/src/format/tests.rs"));
        assert!(is_test_file("samplers/src/table/loom_tests.rs"));
        assert!(is_test_file("samplers/src/tests/loom_table.rs"));
        assert!(is_test_file("benches/benches/decide.rs"));
        assert!(!is_test_file("model/src/latest.rs"));
        assert!(!is_test_file("model/src/tests_of_faith.rs"));
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            find_word("Instant InstantX xInstant _Instant (Instant)", "Instant").collect::<Vec<_>>(),
            [0, 36]
        );
        assert_eq!(find_word("eprintln!(x) println!(y)", "println!").collect::<Vec<_>>(), [13]);
    }

    const NOWHERE: [usize; 0] = [];

    #[test]
    fn paths_are_found_in_groups() {
        assert_eq!(find_path("use std::thread;", "std::thread"), [4]);
        assert_eq!(find_path("use std::{fs, thread::{self, spawn}};", "std::thread"), [14]);
        assert_eq!(find_path("use std::{thread};", "std::thread"), [10]);
        assert_eq!(find_path("use std::{fs::{thread}, cell};", "std::thread"), NOWHERE);
        assert_eq!(find_path("use std::{x::thread, threads};", "std::thread"), NOWHERE);
        assert_eq!(find_path("std::thread_local!{}", "std::thread"), NOWHERE);
    }
}
