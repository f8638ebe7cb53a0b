//! Files on disks that fill up, fail, or lose files.

use astracer_testing::wait_until;

use super::open::tests::{Small, Unsynced};
use super::*;

/// After a torn line that could not be undone, nothing may be written.
#[test]
fn a_file_that_broke_gives_way_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).with_max_wait(Duration::ZERO).open().unwrap();
    let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
    let mut line = Vec::new();
    write_request(&mut line, &spans).unwrap();
    // Space for one line and 10 bytes of the next.
    let disk = Small(Arc::default(), line.len() + 10, true);
    {
        let mut state = files.lock();
        state.folder.create().unwrap();
        let broken = OpenFile::on(Box::new(disk.clone()), "broken".into(), Compression::None);
        state.file = Some(broken.unwrap());
    }
    files.send(&spans).unwrap();
    assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
    // The torn bytes are on disk and count.
    let torn = line.len() as u64 + 10;
    assert_eq!((disk.0.lock().unwrap().len() as u64, files.total_bytes()), (torn, torn));
    files.send(&spans).unwrap();
    let second = std::fs::read(folder.path().join("traces-00000002.jsonl")).unwrap();
    assert_eq!((&second, files.total_bytes()), (&line, torn + line.len() as u64));
    let counts = files.counter.read();
    assert_eq!((counts.sent, counts.lost.of(ErrorKind::File)), (2, 1));
}

/// Rejected lines must not be in the file, otherwise a sender that retries writes them twice.
#[test]
fn lines_that_could_not_be_synced_are_taken_back() {
    let kinds = [Compression::None, Compression::Gzip { level: 6 }, Compression::Zstd { level: 3 }];
    for (compression, ending) in kinds.into_iter().zip(["jsonl", "jsonl.gz", "jsonl.zst"]) {
        let folder = tempfile::tempdir().unwrap();
        let builder = Files::builder(folder.path()).with_fsync(Fsync::Each);
        let files = builder.with_compression(compression).open().unwrap();
        let disk = Unsynced::default();
        {
            let mut state = files.lock();
            state.folder.create().unwrap();
            let open = OpenFile::on(Box::new(disk.clone()), "unsynced".into(), compression);
            state.file = Some(open.unwrap());
        }
        files.write_lines(b"first\n", 1).unwrap();
        let before = disk.held();
        disk.fail();
        assert_eq!(files.write_lines(b"second\n", 1).unwrap_err().kind(), ErrorKind::File);
        assert_eq!((disk.held(), files.total_bytes()), (before.clone(), before.len() as u64));
        // Nothing more is written to that file.
        files.write_lines(b"third\n", 1).unwrap();
        assert_eq!(disk.held(), before);
        assert!(folder.path().join(format!("traces-00000002.{ending}")).exists());
    }
}

/// The lines go to the next file. The error concerns the file before it, so flush reports it.
#[test]
fn lines_are_not_refused_for_the_file_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).with_rotate_bytes(10).open().unwrap();
    let disk = Unsynced::default();
    {
        let mut state = files.lock();
        state.folder.create().unwrap();
        let open = OpenFile::on(Box::new(disk.clone()), "unsynced".into(), Compression::None);
        state.file = Some(open.unwrap());
    }
    files.write_lines(b"first\n", 1).unwrap();
    disk.fail();
    files.write_lines(b"second\n", 1).unwrap();
    let second = std::fs::read(folder.path().join("traces-00000002.jsonl")).unwrap();
    assert_eq!((&*second, files.counter.read().sent), (&b"second\n"[..], 2));
    assert_eq!(files.flush().map_err(|error| error.kind()), Err(ErrorKind::File));
    assert_eq!(files.flush(), Ok(()));
    assert_eq!(files.shut_down(Duration::ZERO), Ok(()));
}

#[test]
fn a_file_that_could_take_nothing_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).with_max_wait(Duration::ZERO).open().unwrap();
    {
        let mut state = files.lock();
        state.folder.create().unwrap();
        let full = OpenFile::on(Box::new(Small(Arc::default(), 0, false)), "full".into(), Compression::None);
        state.file = Some(full.unwrap());
    }
    let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
    assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_somebody_removed_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).with_max_wait(Duration::ZERO).open().unwrap();
    let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
    files.send(&spans).unwrap();
    std::fs::remove_file(folder.path().join("traces-00000001.jsonl")).unwrap();
    files.send(&spans).unwrap();
    assert!(folder.path().join("traces-00000002.jsonl").exists());
    assert_eq!(files.spans_removed(), 1);
    // Without the folder, nothing is accepted.
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(files.send(&spans).unwrap_err().kind(), ErrorKind::File);
    assert_eq!(files.spans_removed(), 2);
}

/// logrotate's default. Its spans were once reported as lost.
#[cfg(unix)]
#[test]
fn a_file_that_somebody_renamed_keeps_its_spans() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    files.write_lines(b"first\n", 1).unwrap();
    let renamed = folder.path().join("traces.1");
    std::fs::rename(folder.path().join("traces-00000001.jsonl"), &renamed).unwrap();
    files.write_lines(b"second\n", 1).unwrap();
    let second = std::fs::read(folder.path().join("traces-00000002.jsonl")).unwrap();
    assert_eq!((&*std::fs::read(renamed).unwrap(), &*second), (&b"first\n"[..], &b"second\n"[..]));
    assert_eq!(files.spans_removed(), 0);
}

/// logrotate's `copytruncate`, or an editor. The next lines once followed a hole of zeros.
#[test]
fn a_file_that_somebody_made_shorter_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    files.write_lines(b"first\n", 1).unwrap();
    let path = |number: u32| folder.path().join(format!("traces-{number:08}.jsonl"));
    let first = std::fs::OpenOptions::new().write(true).open(path(1)).unwrap();
    first.set_len(0).unwrap();
    assert_eq!(files.spans_removed(), 1);
    files.write_lines(b"second\n", 1).unwrap();
    let read = |number| std::fs::read(path(number)).unwrap();
    assert_eq!((&*read(1), &*read(2)), (&b""[..], &b"second\n"[..]));
    assert_eq!((files.spans_removed(), files.total_bytes()), (1, 7));
}

/// A disk without space is an outage. 2,163 of 5,941 spans were lost in 3.5 s of it.
#[test]
fn a_full_disk_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    let spans = [Span { span_id: astracer_model::SpanId(1), ..Span::default() }];
    let away = folder.path().with_extension("away");
    std::fs::rename(folder.path(), &away).unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| files.send(&spans).unwrap().accepted);
        wait_until("the file waits", || files.counter.read().waiting.is_some());
        // A spool keeps the spans meanwhile.
        let attempt = files.try_send(&spans, Duration::MAX);
        assert_eq!((attempt.settled, attempt.retry_in), (0, PAUSE_MAX));
        std::fs::rename(&away, folder.path()).unwrap();
        assert_eq!(sent.join().unwrap(), 1);
    });
    assert_eq!(files.counter.read().waiting, None);
    std::fs::rename(folder.path(), &away).unwrap();
    // A shutdown ends the wait.
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| files.send(&spans).unwrap_err().kind());
        wait_until("the file waits again", || files.counter.read().waiting.is_some());
        files.shut_down(Duration::ZERO).unwrap_or_default();
        assert_eq!(sent.join().unwrap(), ErrorKind::File);
    });
    let counts = files.counter.read();
    assert_eq!((counts.sent, counts.lost.of(ErrorKind::File)), (1, 1));
    std::fs::rename(&away, folder.path()).unwrap();
}
