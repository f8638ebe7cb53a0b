//! Files that a command writes: checked before the work, complete when they appear.
//!
//! A command names all its outputs before it reads anything. It is wrong usage if an output is also
//! an input, another output or standard output. An output that cannot be written fails at once, not
//! after minutes of work.
//!
//! The content goes to a temporary file beside the target and is renamed when it is complete, so an
//! existing file stays intact until then. Devices and pipes are written directly. A name that ends
//! in `.gz` or `.zst` asks for that compression; names of other compressions and archives are
//! refused.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::identity::{
    Identity, entries, holds, identity, input_identity, is_standard, standard_error, standard_output,
};
use crate::interrupt;
use crate::output::shown;
use crate::packed::{self, Packed, Packing};
use crate::partial::Partial;
use crate::stdout;

/// The inputs of a command, and its outputs so far.
pub(crate) struct Outputs {
    inputs: Vec<PathBuf>,
    /// Option, resolved path and identity of each output.
    taken: Vec<(&'static str, PathBuf, Option<Identity>)>,
}

/// An output that passed all checks that are possible before writing.
#[derive(Debug)]
pub(crate) struct Output {
    /// The option or argument that names it, for messages.
    option: &'static str,
    /// As the user wrote it.
    given: PathBuf,
    kind: OutputKind,
}

#[derive(Debug)]
enum OutputKind {
    StandardOutput,
    /// A device or a pipe.
    Special,
    /// The file behind all symbolic links, which may not exist yet.
    File(PathBuf),
}

impl Outputs {
    /// `inputs` are files, folders, or `-` for the standard input.
    pub(crate) fn new<'p>(inputs: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        Self { inputs: inputs.into_iter().cloned().collect(), taken: Vec::new() }
    }

    /// An output that is a file. `option` names it in messages: `--out`.
    ///
    /// # Errors
    ///
    /// Wrong usage if it is an input, another output or `-`; a failed job if it cannot be written.
    pub(crate) fn file(&mut self, option: &'static str, path: &Path) -> Result<Output, Failure> {
        if is_standard(path) {
            return Err(Failure::Usage(format!(
                "{option} needs a file, not '-'; use ./- for a file of that name, /dev/stdout for standard output"
            )));
        }
        self.check(option, path)
    }

    /// An uncompressed output, for files that other commands or services read as they are.
    ///
    /// # Errors
    ///
    /// As for [`file`](Self::file), and wrong usage if its name asks for a compression.
    pub(crate) fn plain_file(&mut self, option: &'static str, path: &Path) -> Result<Output, Failure> {
        if Packing::of(path).is_some() {
            return Err(Failure::Usage(format!(
                "{option} {}: this file cannot be compressed, because it is read back as plain text; choose a name without .gz or \
                 .zst",
                shown(path)
            )));
        }
        self.file(option, path)
    }

    /// An output that will be a recording, possibly standard output. It must not be inside an input
    /// folder, where the next run would read it.
    ///
    /// # Errors
    ///
    /// As for [`file`](Self::file), except for `-`.
    pub(crate) fn recording(&mut self, option: &'static str, path: &Path) -> Result<Output, Failure> {
        if is_standard(path) || names_standard_file(path) {
            let here = standard_output();
            if here.is_some() && self.inputs.iter().any(|input| input_identity(input) == here) {
                return Err(Failure::Usage(
                    "standard output is the input file, which would grow forever; choose another file"
                        .to_owned(),
                ));
            }
            return Ok(Output { option, given: path.to_owned(), kind: OutputKind::StandardOutput });
        }
        let output = self.check(option, path)?;
        let OutputKind::File(target) = &output.kind else { return Ok(output) };
        for input in self.inputs.iter().filter(|input| !is_standard(input) && input.is_dir()) {
            let is_read = fs::canonicalize(input).is_ok_and(|folder| target.starts_with(folder))
                || entries(input).any(|entry| leads_to(&entry, target));
            if is_read {
                return Err(Failure::Usage(format!(
                    "{option} {} is inside the input folder {}: the next run would count its spans twice; choose a file \
                     outside",
                    shown(path),
                    shown(input)
                )));
            }
        }
        Ok(output)
    }

    fn check(&mut self, option: &'static str, path: &Path) -> Result<Output, Failure> {
        let output = |kind| Output { option, given: path.to_owned(), kind };
        let unwritable = |error: &io::Error| output(OutputKind::Special).failure(error);
        let (target, metadata) = resolve(path).map_err(|error| unwritable(&error))?;
        let is_special = metadata.as_ref().is_some_and(is_special);
        // Several outputs may go to one device, where nothing is overwritten.
        if is_special && !metadata.as_ref().is_some_and(is_pipe) {
            return Ok(output(OutputKind::Special));
        }
        if !is_special && packed::promises_more(path) {
            return Err(Failure::Usage(format!(
                "{option} {}: only .gz and .zst can be written; choose a name with one of these, or with no such suffix",
                shown(path)
            )));
        }
        let identity = metadata.as_ref().and_then(|metadata| identity(metadata, &target));
        let clash = |other: &str| {
            let why = if is_special {
                "and a pipe can take only one of them"
            } else {
                "which would be overwritten"
            };
            Err(Failure::Usage(format!("{option} {} is {other}, {why}; choose another file", shown(path))))
        };
        if let Some(identity) = &identity {
            if let Some(input) = self.inputs.iter().find(|input| holds(input, identity)) {
                return clash(&format!("the input {}", shown(input)));
            }
            if standard_output().as_ref() == Some(identity) {
                return clash("also standard output");
            }
            if standard_error().as_ref() == Some(identity) {
                return clash("also standard error");
            }
        }
        let same = |(_, other, its): &&(&str, PathBuf, Option<Identity>)| {
            *other == target || (its.is_some() && *its == identity)
        };
        if let Some((other, ..)) = self.taken.iter().find(same) {
            return clash(&format!("also the file of {other}"));
        }
        let kind = if is_special {
            OutputKind::Special
        } else {
            writable(&target, metadata.as_ref()).map_err(|error| unwritable(&error))?;
            OutputKind::File(target.clone())
        };
        self.taken.push((option, target, identity));
        Ok(output(kind))
    }
}

impl Output {
    /// The path as the user wrote it.
    pub(crate) fn path(&self) -> &Path {
        &self.given
    }

    /// True for `-`.
    pub(crate) fn is_standard(&self) -> bool {
        matches!(self.kind, OutputKind::StandardOutput)
    }

    /// The file behind all symbolic links; `None` for devices, pipes and `-`.
    pub(crate) fn target(&self) -> Option<&Path> {
        match &self.kind {
            OutputKind::File(target) => Some(target),
            OutputKind::StandardOutput | OutputKind::Special => None,
        }
    }

    /// Writes the whole content.
    pub(crate) fn write(&self, content: &str) -> Result<(), Failure> {
        let open = self.open()?;
        open.writer()?.write_all(content.as_bytes()).map_err(|error| self.failure(&error))?;
        open.complete()
    }

    /// Begins to write. Without [`complete`](Open::complete) nothing is left behind.
    pub(crate) fn open(&self) -> Result<Open<'_>, Failure> {
        let temporary = match &self.kind {
            OutputKind::File(target) => Some(Partial::beside(target).map_err(|error| self.failure(&error))?),
            OutputKind::Special | OutputKind::StandardOutput => None,
        };
        let packed = match (&temporary, Packing::of(&self.given)) {
            (Some(temporary), Some(packing)) => {
                let file = temporary.file().try_clone();
                let packed = file.and_then(|file| Packed::new(file, packing));
                Some(packed.map_err(|error| self.failure(&error))?)
            }
            _ => None,
        };
        Ok(Open { output: self, temporary, packed })
    }

    /// An error while writing.
    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        if self.is_standard() {
            return Failure::output(error);
        }
        Failure::Job(format!(
            "cannot write {}: {error}; choose another file for {}",
            shown(&self.given),
            self.option
        ))
    }
}

/// An output that is being written.
pub(crate) struct Open<'o> {
    output: &'o Output,
    /// Removes itself unless it is renamed; `None` for devices, pipes and standard output.
    temporary: Option<Partial>,
    /// The compressor in front of the temporary file, if any.
    packed: Option<Packed>,
}

impl Open<'_> {
    /// A writer of the content.
    pub(crate) fn writer(&self) -> Result<Box<dyn Write>, Failure> {
        if let Some(packed) = &self.packed {
            return Ok(Box::new(packed.clone()));
        }
        let opened = match (&self.temporary, &self.output.kind) {
            (Some(temporary), _) => temporary.file().try_clone(),
            (None, OutputKind::StandardOutput) => stdout::open(),
            (None, _) if names_standard(&self.output.given) && stdout::was_closed() => stdout::open(),
            // A pipe waits for its reader.
            (None, _) => {
                interrupt::answer_at_once_while(|| OpenOptions::new().write(true).open(&self.output.given))
            }
        };
        opened.map(|file| Box::new(file) as Box<dyn Write>).map_err(|error| self.output.failure(&error))
    }

    /// Renames the file to its target. The writers must have been flushed.
    pub(crate) fn complete(self) -> Result<(), Failure> {
        let (Some(temporary), OutputKind::File(target)) = (self.temporary, &self.output.kind) else {
            return Ok(());
        };
        let complete = || {
            if let Ok(before) = fs::metadata(target) {
                // Keep the permissions of the replaced file, as if it had been overwritten. Some
                // file systems have no permissions.
                let _ = temporary.file().set_permissions(before.permissions());
            }
            if let Some(packed) = &self.packed {
                packed.finish()?;
            }
            // Some file systems report only here that they are full.
            temporary.file().sync_all()?;
            temporary.persist(target)
        };
        complete().map_err(|error| self.output.failure(&error))
    }
}

/// Follows symbolic links to the file to be written, which may not exist yet. Its folder must.
fn resolve(path: &Path) -> io::Result<(PathBuf, Option<Metadata>)> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::Error::other("it is a folder")),
        // The pipe behind /dev/stdout or a shell's >(...) has no other path.
        Ok(metadata) if is_special(&metadata) => Ok((path.to_owned(), Some(metadata))),
        Ok(metadata) => Ok((fs::canonicalize(path)?, Some(metadata))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) if path.is_symlink() => Err(io::Error::other("it is a dangling symbolic link")),
        Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Err(io::Error::other("it names a folder"))
        }
        Err(error) => {
            let name = path.file_name().ok_or(error)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new("."));
            Ok((fs::canonicalize(folder)?.join(name), None))
        }
    }
}

/// True for the names that systems give to standard output.
fn names_standard(path: &Path) -> bool {
    ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// True for a name of standard output, if that is a file: opening the name would begin the file
/// anew.
fn names_standard_file(path: &Path) -> bool {
    names_standard(path) && standard_output().is_some()
}

/// True for outputs that are written directly: devices, pipes and sockets.
fn is_special(metadata: &Metadata) -> bool {
    !metadata.is_file() && !metadata.is_dir()
}

#[cfg(unix)]
fn is_pipe(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_metadata: &Metadata) -> bool {
    false
}

/// Fails if the file cannot be created or replaced.
fn writable(target: &Path, metadata: Option<&Metadata>) -> io::Result<()> {
    if metadata.is_some() {
        // A write-protected file must not be replaced either.
        OpenOptions::new().append(true).open(target)?;
    }
    Partial::beside(target)?.close()
}

/// True for a link to this file, which may not exist yet, or to a folder that contains it.
fn leads_to(link: &Path, target: &Path) -> bool {
    if !link.is_symlink() {
        return false;
    }
    if let Ok(end) = fs::canonicalize(link) {
        return end.is_dir() && target.starts_with(end);
    }
    resolve_link(link).is_some_and(|end| end == target)
}

/// Where a dangling link points, if the folder there exists.
fn resolve_link(link: &Path) -> Option<PathBuf> {
    let end = link.parent()?.join(fs::read_link(link).ok()?);
    Some(fs::canonicalize(end.parent()?).ok()?.join(end.file_name()?))
}
