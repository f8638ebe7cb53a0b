//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    // Cargo sets this variable at run time. The folder at compile time could be that of another
    // clone.
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    ours.parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// The files that git tracks or would track: neither ignored nor deleted.
#[derive(Debug, Default)]
pub(crate) struct Repo {
    files: Vec<File>,
}

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/` as the separator.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl Repo {
    /// Reads all files into memory. The data in the repository is limited to a few megabytes.
    ///
    /// # Errors
    ///
    /// If git cannot list the files, or one of them cannot be read.
    pub(crate) fn load(root: &Path) -> Result<Repo, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot start git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let mut files = Vec::new();
        for path in output.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let path = String::from_utf8_lossy(path).into_owned();
            let full = root.join(&path);
            if !full.is_file() {
                continue; // deleted, not yet committed
            }
            let bytes = std::fs::read(&full).map_err(|error| format!("{path}: {error}"))?;
            files.push(File { path, bytes });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Repo { files })
    }

    /// A repository for tests, from paths and their texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repo {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), bytes: text.as_bytes().to_vec() });
        Repo { files: files.collect() }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&File, &str)> {
        self.with_extension(".rs")
    }

    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&File, &str)> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(extension))
            .filter_map(|file| Some((file, file.text()?)))
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether this is a file of the repository, or a folder that contains one.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|file| {
            file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl File {
    /// The file's text, or `None` for a binary file.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok().filter(|text| !text.contains('\0'))
    }

    /// Whether it is a recording, a sample or a seed: test data from elsewhere.
    pub(crate) fn is_data(&self) -> bool {
        self.path.starts_with("workloads/")
            || self.path.starts_with("fuzz/seeds/")
            || self.path.contains("tests/data/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_can_be_read() {
        let repo = Repo::load(&root()).unwrap();
        assert!(repo.contains("xtask/src/repo.rs"));
        assert!(repo.contains("xtask/src"));
        assert!(repo.contains("xtask/src/"));
        assert!(!repo.contains("xtask/src/rep"));
        assert!(!repo.contains("target"));
    }

    #[test]
    fn data_is_told_from_sources() {
        let repo = Repo::of(&[
            ("workloads/hdfs/a.json", ""),
            ("formats/tests/data/a.json", ""),
            ("tests/data/a.json", ""),
            ("fuzz/seeds/htrace/a", ""),
            ("model/src/data.rs", ""),
        ]);
        let data: Vec<bool> = repo.files().map(File::is_data).collect();
        assert_eq!(data, [true, true, true, true, false]);
    }
}
