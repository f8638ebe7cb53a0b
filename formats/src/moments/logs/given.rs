//! Layouts that the user states, for all files or for those with certain names.

use std::str::FromStr;
use std::sync::Arc;

use regex::Regex;

use super::layout::Layout;

/// A layout that the user states: `[GLOB=]PATTERN`.
#[derive(Clone, Debug)]
pub struct Given {
    /// The name for reports.
    name: Arc<str>,
    /// The names of files; all, if there is none.
    files: Option<Regex>,
    pub(super) layout: Layout,
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        let files = |given: &Self| given.files.as_ref().map(|files| files.as_str().to_owned());
        (&self.name, files(self), &self.layout) == (&other.name, files(other), &other.layout)
    }
}

impl Eq for Given {}

impl FromStr for Given {
    type Err = String;

    /// The text before the first `=` is the names of files if it contains `*`, `?` or `.`, and no
    /// `%`: `*.shop.log=%d %p %m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_glob = |part: &str| part.contains(['*', '?', '.']) && !part.contains(['%', ' ']);
        let (glob, pattern) = match text.split_once('=') {
            Some((glob, pattern)) if is_glob(glob) => (Some(glob), pattern),
            _ => (None, text),
        };
        let files = glob.map(|glob| {
            let end = regex::escape(glob).replace(r"\*", ".*").replace(r"\?", ".");
            Regex::new(&format!("(?s)(^|/){end}$"))
                .map_err(|error| format!("invalid names '{glob}': {error}"))
        });
        Ok(Self { name: "given".into(), files: files.transpose()?, layout: pattern.parse()? })
    }
}

impl Given {
    /// Reads a file of named layouts: lines of `NAME = [GLOB=]PATTERN`; `#` begins a comment.
    ///
    /// # Errors
    /// The number of the first wrong line, and what is wrong with it.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let mut layouts = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let (name, layout) = line
                .split_once('=')
                .ok_or_else(|| format!("line {number} is not NAME = PATTERN: '{line}'"))?;
            let layout: Self = layout.trim().parse().map_err(|error| format!("line {number}: {error}"))?;
            layouts.push(Self { name: name.trim().into(), ..layout });
        }
        Ok(layouts)
    }

    /// The name for reports.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// True if the layout is for files of this name. Before a file's name is known, it may be.
    pub(super) fn is_for(&self, file: Option<&str>) -> bool {
        match (&self.files, file) {
            (Some(files), Some(file)) => files.is_match(file),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_for_files_by_their_names() {
        let given: Given = "*.shop.log=%d a=%m".parse().unwrap();
        assert!(given.is_for(Some("x.shop.log")) && given.is_for(Some("b/.shop.log")) && given.is_for(None));
        assert!(!given.is_for(Some("shop.log")) && !given.is_for(Some("x.shop.log.1")));
        let all: Given = "time=%d %m".parse().unwrap();
        assert!(all.is_for(Some("x")) && all.layout == "time=%d %m".parse().unwrap());
        assert!("*.log=%m".parse::<Given>().unwrap_err().contains("%d"));
    }

    #[test]
    fn a_file_of_layouts_is_read() {
        let list = Given::list("# ours\n\nshop = *.log=%d %m\nbank = %s|%m\n").unwrap();
        assert_eq!(list.iter().map(|given| &**given.name()).collect::<Vec<_>>(), ["shop", "bank"]);
        assert!(!list[0].is_for(Some("x")) && list[1].is_for(Some("x")));
        for (text, reason) in [("a", "line 1 is not"), ("a = %d %m\nb = %d", "line 2: ")] {
            assert!(Given::list(text).unwrap_err().starts_with(reason), "{text}");
        }
    }
}
