//! The file that is currently written.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

#[cfg(feature = "zstd")]
use zstd::stream::write::Encoder;

use super::Compression;
use super::folder::Folder;
use astracer_model::destination::ExportError;

/// The operations of a file. Tests implement them with a full disk.
pub(super) trait Disk: Write + Send {
    /// Truncates the file to this length, at which the next write begins.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// Syncs the content to the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// The current length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// True if the file is known to have a name, which may be another one than at its creation.
    fn has_name(&self) -> bool {
        false
    }
}

impl Disk for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)?;
        self.seek(SeekFrom::Start(bytes)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    #[cfg(unix)]
    fn has_name(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;

        self.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

/// A file with the number of bytes written to it.
struct Counted {
    disk: Box<dyn Disk>,
    bytes: u64,
}

impl Counted {
    /// Truncates the file to this length; false if that failed.
    fn cut(&mut self, bytes: u64) -> bool {
        let cut = self.disk.cut(bytes).is_ok();
        if cut {
            self.bytes = bytes;
        }
        cut
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.disk.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.flush()
    }
}

enum Body {
    Plain(Counted),
    #[cfg(feature = "gzip")]
    Gzip(Counted, flate2::Compression),
    #[cfg(feature = "zstd")]
    Zstd(Encoder<'static, Counted>),
}

/// A file that grows line by line.
pub(super) struct OpenFile {
    body: Body,
    path: String,
    /// The length up to which the file contains whole lines.
    good_bytes: u64,
    sound: bool,
    /// True after a write beyond the process's limit on the size of files (`ulimit -f`).
    is_at_limit: bool,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenFile { path, good_bytes, sound, .. } = self;
        f.debug_struct("OpenFile")
            .field("path", path)
            .field("good_bytes", good_bytes)
            .field("sound", sound)
            .finish()
    }
}

impl OpenFile {
    /// Creates the folder's next file.
    pub(super) fn create(folder: &mut Folder, compression: Compression) -> Result<Self, ExportError> {
        let (file, path) = folder.create()?;
        Self::on(Box::new(file), path.display().to_string(), compression)
    }

    pub(super) fn on(
        disk: Box<dyn Disk>,
        path: String,
        compression: Compression,
    ) -> Result<Self, ExportError> {
        let counted = Counted { disk, bytes: 0 };
        let body = match compression {
            Compression::None => Body::Plain(counted),
            #[cfg(feature = "gzip")]
            Compression::Gzip { level } => Body::Gzip(counted, flate2::Compression::new(level.clamp(1, 9))),
            #[cfg(feature = "zstd")]
            Compression::Zstd { level } => match Encoder::new(counted, level) {
                Ok(encoder) => Body::Zstd(encoder),
                Err(error) => return Err(ExportError::file(path, &error)),
            },
        };
        Ok(OpenFile { body, path, good_bytes: 0, sound: true, is_at_limit: false })
    }

    /// The number of bytes in whole lines.
    pub(super) fn bytes(&self) -> u64 {
        self.good_bytes
    }

    fn counted(&self) -> &Counted {
        match &self.body {
            Body::Plain(counted) => counted,
            #[cfg(feature = "gzip")]
            Body::Gzip(counted, _) => counted,
            #[cfg(feature = "zstd")]
            Body::Zstd(encoder) => encoder.get_ref(),
        }
    }

    /// The number of all bytes, including a torn end.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        self.counted().bytes
    }

    /// The length of the file if somebody has made it shorter.
    pub(super) fn shrunk_to(&self) -> Option<u64> {
        let Counted { disk, bytes } = self.counted();
        disk.length().ok().filter(|length| length < bytes)
    }

    /// True if the whole file is there, though somebody may have renamed it.
    pub(super) fn is_whole(&self) -> bool {
        self.counted().disk.has_name() && self.shrunk_to().is_none()
    }

    /// True if the process's limit on the size of files does not allow more.
    pub(super) fn is_at_limit(&self) -> bool {
        self.is_at_limit
    }

    /// False if nothing may be appended to the file.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Appends lines and passes them to the operating system.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), ExportError> {
        let written = match &mut self.body {
            Body::Plain(counted) => counted.write_all(lines),
            #[cfg(feature = "gzip")]
            Body::Gzip(counted, level) => member(lines, *level).and_then(|member| counted.write_all(&member)),
            #[cfg(feature = "zstd")]
            Body::Zstd(encoder) => encoder.write_all(lines).and_then(|()| encoder.flush()),
        };
        match written {
            Ok(()) => {
                self.good_bytes = self.bytes_on_disk();
                Ok(())
            }
            Err(error) => {
                self.take_back();
                self.is_at_limit = error.kind() == io::ErrorKind::FileTooLarge;
                Err(ExportError::file(&*self.path, &error))
            }
        }
    }

    /// Undoes a failed write by truncating the file.
    fn take_back(&mut self) {
        self.sound = match &mut self.body {
            Body::Plain(counted) => counted.cut(self.good_bytes),
            #[cfg(feature = "gzip")]
            Body::Gzip(counted, _) => counted.cut(self.good_bytes),
            // The encoder's state has advanced: later blocks would refer to the block that is now
            // missing.
            #[cfg(feature = "zstd")]
            Body::Zstd(encoder) => {
                encoder.get_mut().cut(self.good_bytes);
                false
            }
        };
    }

    /// Syncs the file. If that fails, truncates the file to `before` and ends it, because the
    /// operating system may have dropped the unwritten pages.
    pub(super) fn sync_or_take_back(&mut self, before: u64) -> Result<(), ExportError> {
        self.sync().inspect_err(|_| {
            self.good_bytes = before;
            self.take_back();
            self.sound = false;
        })
    }

    /// Syncs everything written so far to the disk.
    pub(super) fn sync(&mut self) -> Result<(), ExportError> {
        let synced = match &mut self.body {
            Body::Plain(counted) => counted.disk.sync(),
            #[cfg(feature = "gzip")]
            Body::Gzip(counted, _) => counted.disk.sync(),
            #[cfg(feature = "zstd")]
            Body::Zstd(encoder) => encoder.get_mut().disk.sync(),
        };
        synced.map_err(|error| ExportError::file(&*self.path, &error))
    }

    /// Completes the file and returns its size in bytes.
    pub(super) fn close(self, sync: bool) -> (u64, Result<(), ExportError>) {
        let before = self.bytes_on_disk();
        let finished = match self.body {
            Body::Plain(counted) => Ok(counted),
            #[cfg(feature = "gzip")]
            Body::Gzip(counted, _) => Ok(counted),
            #[cfg(feature = "zstd")]
            Body::Zstd(encoder) => encoder.finish(),
        };
        let (bytes, result) = match finished {
            Ok(mut counted) => (counted.bytes, if sync { counted.disk.sync() } else { Ok(()) }),
            Err(error) => (before, Err(error)),
        };
        (bytes, result.map_err(|error| ExportError::file(self.path, &error)))
    }
}

/// Compresses lines to a gzip member.
#[cfg(feature = "gzip")]
fn member(lines: &[u8], level: flate2::Compression) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(lines)?;
    encoder.finish()
}

/// An upper bound on the size of a gzip member for `bytes` bytes: a few more bytes per stored
/// block, header and trailer.
#[cfg(feature = "gzip")]
pub(super) fn gzip_bound(bytes: u64) -> u64 {
    bytes + (bytes >> 7) + 1024
}

/// An upper bound on the size of a zstd frame for `bytes` bytes: an eighth of a per cent more per
/// block, plus the frame's header.
#[cfg(feature = "zstd")]
pub(super) fn zstd_bound(bytes: u64) -> u64 {
    bytes + (bytes >> 7) + 1024
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use astracer_testing::SplitMix;

    use super::*;

    /// A disk of limited size. If the last field is true, truncation fails.
    #[derive(Clone, Default)]
    pub(in crate::file) struct Small(
        pub(in crate::file) Arc<Mutex<Vec<u8>>>,
        pub(in crate::file) usize,
        pub(in crate::file) bool,
    );

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut held = self.0.lock().unwrap();
            let room = self.1 - held.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(room);
            held.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk for Small {
        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            if self.2 {
                return Err(io::ErrorKind::Other.into());
            }
            self.0.lock().unwrap().truncate(bytes as usize);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.0.lock().unwrap().len() as u64)
        }
    }

    /// A disk of unlimited size whose syncs fail after a call of `fail`.
    #[derive(Clone)]
    pub(in crate::file) struct Unsynced(Small, Arc<AtomicBool>);

    impl Default for Unsynced {
        fn default() -> Self {
            Unsynced(Small(Arc::default(), usize::MAX, false), Arc::default())
        }
    }

    impl Unsynced {
        pub(in crate::file) fn fail(&self) {
            self.1.store(true, Ordering::Relaxed);
        }

        pub(in crate::file) fn held(&self) -> Vec<u8> {
            self.0.0.lock().unwrap().clone()
        }
    }

    impl Write for Unsynced {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl Disk for Unsynced {
        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.0.cut(bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            if self.1.load(Ordering::Relaxed) { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        }

        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }
    }

    #[test]
    fn a_line_that_does_not_fit_is_taken_back() {
        let disk = Small(Arc::default(), 10, false);
        let mut file = OpenFile::on(Box::new(disk.clone()), "f".into(), Compression::None).unwrap();
        file.write(b"first\n").unwrap();
        let error = file.write(b"second\n").unwrap_err();
        assert!(error.to_string().starts_with("f: the file could not be written ("), "{error}");
        assert_eq!((file.is_sound(), file.bytes()), (true, 6));
        file.write(b"3rd\n").unwrap();
        assert_eq!((file.bytes(), file.bytes_on_disk()), (10, 10));
        file.write(b"full").unwrap_err();
        assert_eq!(&*disk.0.lock().unwrap(), b"first\n3rd\n");
    }

    /// A torn member in the middle would hide the members after it.
    #[test]
    fn a_gzip_member_that_does_not_fit_is_taken_back() {
        let level = flate2::Compression::new(6);
        let whole = member(b"first\n", level).unwrap();
        let disk = Small(Arc::default(), whole.len() + 10, false);
        let compression = Compression::Gzip { level: 6 };
        let mut file = OpenFile::on(Box::new(disk.clone()), "f".into(), compression).unwrap();
        file.write(b"first\n").unwrap();
        file.write(b"second\n").unwrap_err();
        assert_eq!((file.is_sound(), file.bytes(), file.bytes_on_disk()), (true, 26, 26));
        assert_eq!(*disk.0.lock().unwrap(), whole);
    }

    #[test]
    fn what_cannot_be_taken_back_ends_the_file() {
        let disk = Small(Arc::default(), 10, true);
        let mut file = OpenFile::on(Box::new(disk.clone()), "f".into(), Compression::None).unwrap();
        file.write(b"first\n").unwrap();
        file.write(b"second\n").unwrap_err();
        assert_eq!((file.is_sound(), file.bytes(), file.bytes_on_disk()), (false, 6, 10));
    }

    #[test]
    fn compression_makes_no_more_than_its_bound() {
        // Noise, which does not compress.
        let mut random = SplitMix::new(0);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.next() as u8).take(1 << 20).collect();
        let zstd: fn(u64) -> u64 = zstd_bound;
        let kinds = [(Compression::Zstd { level: 3 }, zstd), (Compression::Gzip { level: 1 }, gzip_bound)];
        for (bytes, (compression, bound)) in
            [0, 1, 1000, 1 << 20].map(|bytes| kinds.map(|kind| (bytes, kind))).concat()
        {
            let disk = Small(Arc::default(), usize::MAX, false);
            let mut file = OpenFile::on(Box::new(disk.clone()), "f".into(), compression).unwrap();
            file.write(&noise[..bytes]).unwrap();
            let (size, closed) = file.close(false);
            closed.unwrap();
            assert_eq!(size, disk.0.lock().unwrap().len() as u64);
            assert!(size <= bound(bytes as u64), "{size} {compression:?}");
        }
    }
}
