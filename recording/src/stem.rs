//! The stem of a file's name, which names the process that wrote it if nothing else does.

/// The name of a file without folders, and without everything after its first dot.
pub fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let stem = name.split('.').next().unwrap_or(name);
    if stem.is_empty() { name } else { stem }
}
