//! Commands for a shell to run next.

use std::path::Path;

use crate::output::{is_safe, shown};

/// This command with further options, without the given ones and their values.
pub(crate) fn again(without: &[&str], more: &str) -> String {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    repeated(args, without, more)
}

fn repeated(args: impl Iterator<Item = String>, without: &[&str], more: &str) -> String {
    let mut words = vec!["astracer".to_owned()];
    let mut args = args;
    while let Some(arg) = args.next() {
        match without.iter().find_map(|name| arg.strip_prefix(name)) {
            // The value is the next word.
            Some("") => drop(args.next()),
            Some(rest) if rest.starts_with('=') => {}
            _ => words.push(quoted(&arg)),
        }
    }
    words.push(more.to_owned());
    words.join(" ")
}

/// The paths as words of a shell.
pub(crate) fn paths<'p>(paths: impl IntoIterator<Item = &'p (impl AsRef<Path> + 'p + ?Sized)>) -> String {
    paths.into_iter().map(|path| quoted(&path.as_ref().to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word as a POSIX shell reads it. One with invisible characters is shown with escapes, which no
/// shell reads.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "_-./=:@%+,".contains(char);
    match word {
        _ if !is_safe(word) || word.contains('\n') => shown(word.as_ref()),
        _ if !word.is_empty() && word.chars().all(is_plain) => word.to_owned(),
        _ => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of POSIX's shell: within single quotes, only these need care.
    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("web=logs/a.log", "web=logs/a.log"),
            ("my logs/", "'my logs/'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_command_is_repeated_without_its_page() {
        let repeated =
            |args: &[&str]| repeated(args.iter().map(|&arg| arg.to_owned()), &["--html"], "--json");
        assert_eq!(repeated(&["order", "a b", "--html", "x", "c"]), "astracer order 'a b' c --json");
        assert_eq!(repeated(&["order", "--html=x", "--htmlx"]), "astracer order --htmlx --json");
    }
}
