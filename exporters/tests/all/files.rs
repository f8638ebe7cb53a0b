//! Files: their content, their rotation, and their state after a crash.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use astracer_exporters::{
    Clock, Destination, ErrorKind, Exporter, FileCompression, Files, FilesBuilder, WhenFilesFull, spans,
};
use astracer_model::span::Resource;
use astracer_model::{Problem, Sink, Span};
use astracer_recording::source;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::sample;

/// The content of a folder's files.
#[derive(Default)]
struct Read {
    spans: Vec<Span<'static>>,
    problems: Vec<String>,
}

impl Sink for Read {
    fn span(&mut self, span: Span<'_>, _record: astracer_model::sink::Record<'_>) {
        self.spans.push(span.into_owned());
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem.kind.slug().to_owned());
    }

    fn skipped(&mut self, file: &Arc<str>, reason: &str) {
        panic!("{file} was skipped: {reason}");
    }
}

fn read(path: &Path) -> Read {
    let mut read = Read::default();
    source::read(path, &source::Options::default(), &mut read).unwrap();
    read
}

/// The numbers of the spans in a folder, in the order of its files.
fn numbers(path: &Path) -> Vec<u64> {
    let read = read(path);
    assert_eq!(read.problems, [""; 0]);
    read.spans.iter().map(|span| span.span_id.0 - 1).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Sends plain spans with these numbers. Ids are one larger, because zero is not a valid id.
fn send(files: &Files, numbers: std::ops::Range<u64>) -> Result<(), ErrorKind> {
    let batch: Vec<SpanData> = numbers.map(|number| sample::plain(1, number + 1)).collect();
    let sent = files.send(&spans(&batch, &Arc::new(Resource::service("a"))));
    sent.map(drop).map_err(|error| error.kind())
}

/// The size in bytes of a line with this many plain spans.
fn line_bytes(count: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    send(&files, 0..count).unwrap();
    files.total_bytes()
}

#[derive(Debug)]
struct Hand(Mutex<SystemTime>);

impl Clock for Hand {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

#[test]
fn a_span_of_the_sdk_comes_back_as_the_model_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut exporter = Exporter::new(Files::builder(folder.path()).open().unwrap());
    exporter.set_resource(&sample::resource());
    futures_executor::block_on(exporter.export(vec![sample::full()])).unwrap();
    let read = read(folder.path());
    assert_eq!(read.problems, [""; 0]);
    let [span] = <[_; 1]>::try_from(read.spans).unwrap();
    assert_eq!(sample::without_nan(span), sample::full_in_the_model());
    assert_eq!(exporter.counter().read().sent, 1);
}

#[test]
fn a_line_is_one_request_however_many_resources_and_scopes() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    let batch = [sample::plain(1, 1), sample::full(), sample::plain(1, 2)];
    let resource = Arc::new(Resource::service("a"));
    files.send(&spans(&batch, &resource)).unwrap();
    let text = fs::read_to_string(folder.path().join("traces-00000001.jsonl")).unwrap();
    assert!(text.ends_with("}\n"));
    let request: serde_json::Value = serde_json::from_str(&text).unwrap();
    let scopes = request["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    let counts: Vec<_> = scopes.iter().map(|scope| scope["spans"].as_array().unwrap().len()).collect();
    assert_eq!((request["resourceSpans"].as_array().unwrap().len(), counts), (1, vec![2, 1]));
}

#[test]
fn a_file_gives_way_before_the_line_that_is_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let line = line_bytes(1);
    let files = Files::builder(folder.path()).with_rotate_bytes(2 * line).open().unwrap();
    for number in 0..5 {
        send(&files, number..number + 1).unwrap();
    }
    assert_eq!(
        names(folder.path()),
        ["traces-00000001.jsonl", "traces-00000002.jsonl", "traces-00000003.jsonl"]
    );
    for (name, bytes) in names(folder.path()).iter().zip([2 * line, 2 * line, line]) {
        assert_eq!(fs::metadata(folder.path().join(name)).unwrap().len(), bytes, "{name}");
    }
    assert_eq!(numbers(folder.path()), [0, 1, 2, 3, 4]);
    assert_eq!(files.total_bytes(), 5 * line);
}

#[test]
fn a_file_gives_way_when_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Arc::new(Hand(Mutex::new(sample::at(0))));
    let age = Duration::from_secs(60);
    let builder =
        Files::builder(folder.path()).with_rotate_age(age).with_clock(Arc::clone(&hand) as Arc<dyn Clock>);
    let files = builder.open().unwrap();
    let go = |to: SystemTime, number: u64| {
        *hand.0.lock().unwrap() = to;
        send(&files, number..number + 1).unwrap();
        names(folder.path()).len()
    };
    assert_eq!(go(sample::at(0), 0), 1);
    assert_eq!(go(sample::at(0) + age - Duration::from_nanos(1), 1), 1);
    assert_eq!(go(sample::at(0) + age, 2), 2);
    // The clock is set back by an hour: the age starts again at zero.
    let back = sample::at(0) - Duration::from_secs(3600);
    assert_eq!(go(back, 3), 2);
    assert_eq!(go(back + age, 4), 3);
}

#[test]
fn the_oldest_make_room_and_the_total_is_never_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let line = line_bytes(1);
    let builder =
        Files::builder(folder.path()).with_rotate_bytes(2 * line).with_total_bytes_max(5 * line + line / 2);
    let files = builder.open().unwrap();
    for number in 0..20 {
        send(&files, number..number + 1).unwrap();
        let stored: u64 = names(folder.path())
            .iter()
            .map(|name| fs::metadata(folder.path().join(name)).unwrap().len())
            .sum();
        assert_eq!(stored, files.total_bytes());
        assert!(stored <= 5 * line + line / 2, "{stored} at {number}");
    }
    assert_eq!(numbers(folder.path()), [16, 17, 18, 19]);
    assert_eq!(files.files_deleted(), 8);
    // All of them were written at some time.
    assert_eq!(files.counter().read().sent, 20);
}

#[test]
fn one_file_may_be_all_there_is_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let line = line_bytes(1);
    let files = Files::builder(folder.path())
        .with_rotate_bytes(10 * line)
        .with_total_bytes_max(2 * line)
        .open()
        .unwrap();
    for number in 0..5 {
        send(&files, number..number + 1).unwrap();
    }
    assert_eq!(numbers(folder.path()), [4]);
    // A line larger than the limit cannot be written whatever is deleted, so nothing is deleted.
    assert_eq!(send(&files, 10..20), Err(ErrorKind::Full));
    assert_eq!(numbers(folder.path()), [4]);
    assert_eq!(files.counter().read().lost.of(ErrorKind::Full), 10);
}

#[test]
fn what_is_there_is_kept_if_so_asked() {
    let folder = tempfile::tempdir().unwrap();
    let line = line_bytes(1);
    let builder = || -> FilesBuilder {
        Files::builder(folder.path())
            .with_rotate_bytes(line)
            .with_total_bytes_max(2 * line)
            .with_when_full(WhenFilesFull::Refuse)
    };
    let files = builder().open().unwrap();
    assert_eq!(send(&files, 0..1), Ok(()));
    assert_eq!(send(&files, 1..2), Ok(()));
    assert_eq!(send(&files, 2..3), Err(ErrorKind::Full));
    drop(files);
    // Files of an earlier process count too.
    let files = builder().open().unwrap();
    assert_eq!(send(&files, 3..4), Err(ErrorKind::Full));
    assert_eq!(numbers(folder.path()), [0, 1]);
    // Applies the remedy that the error suggests.
    fs::remove_file(folder.path().join("traces-00000001.jsonl")).unwrap();
    assert_eq!(send(&files, 4..5), Ok(()));
    assert_eq!(send(&files, 5..6), Err(ErrorKind::Full));
}

#[test]
fn a_new_process_goes_on_behind_a_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    send(&files, 0..2).unwrap();
    send(&files, 2..3).unwrap();
    drop(files);
    let first = folder.path().join("traces-00000001.jsonl");
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 40]).unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    send(&files, 3..4).unwrap();
    assert_eq!(names(folder.path()), ["traces-00000001.jsonl", "traces-00000002.jsonl"]);
    let read = read(folder.path());
    let numbers: Vec<_> = read.spans.iter().map(|span| span.span_id.0 - 1).collect();
    assert_eq!((numbers, read.problems), (vec![0, 1, 3], vec!["truncated".to_owned()]));
}

#[test]
fn zstd_files_can_be_read_complete_growing_and_torn() {
    let folder = tempfile::tempdir().unwrap();
    let compression = FileCompression::Zstd { level: 3 };
    let files = Files::builder(folder.path()).with_compression(compression).open().unwrap();
    send(&files, 0..100).unwrap();
    send(&files, 100..200).unwrap();
    // While the file grows, its frame has no end, but everything that was sent can be read.
    let growing = read(folder.path());
    assert_eq!((growing.spans.len(), growing.problems), (200, vec!["truncated".to_owned()]));
    assert!(files.total_bytes() < line_bytes(200) / 4);
    drop(files);
    let file = folder.path().join("traces-00000001.jsonl.zst");
    assert_eq!(numbers(&file), Vec::from_iter(0..200));
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 30]).unwrap();
    let torn = read(folder.path());
    assert_eq!(torn.spans.len(), 100);
    assert_ne!(torn.problems, [""; 0]);
}

/// Each call writes a complete gzip member: nothing is torn while the file grows, and a torn end
/// costs part of one call.
#[test]
fn gzip_files_can_be_read_while_they_grow() {
    let folder = tempfile::tempdir().unwrap();
    let compression = FileCompression::Gzip { level: 6 };
    let files = Files::builder(folder.path()).with_compression(compression).open().unwrap();
    send(&files, 0..100).unwrap();
    send(&files, 100..200).unwrap();
    let growing = read(folder.path());
    assert_eq!((growing.spans.len(), growing.problems), (200, vec![]));
    assert!(files.total_bytes() < line_bytes(200) / 4);
    drop(files);
    let file = folder.path().join("traces-00000001.jsonl.gz");
    assert_eq!(numbers(&file), Vec::from_iter(0..200));
    // Files of every extension count towards the total, and the numbers continue across extensions.
    let files = Files::builder(folder.path()).open().unwrap();
    assert_eq!(files.total_bytes(), fs::metadata(&file).unwrap().len());
    send(&files, 200..201).unwrap();
    assert!(folder.path().join("traces-00000002.jsonl").exists());
    drop(files);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 30]).unwrap();
    let torn = read(&file);
    let numbers: Vec<_> = torn.spans.iter().map(|span| span.span_id.0 - 1).collect();
    assert!((100..200).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(numbers, Vec::from_iter(0..numbers.len() as u64));
    assert_ne!(torn.problems, [""; 0]);
}

#[test]
fn another_writer_in_the_folder_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) =
        (Files::builder(folder.path()).open().unwrap(), Files::builder(folder.path()).open().unwrap());
    send(&one, 0..1).unwrap();
    send(&two, 1..2).unwrap();
    send(&one, 2..3).unwrap();
    assert_eq!(numbers(folder.path()), [0, 2, 1]);
}

#[test]
fn long_calls_take_several_lines() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    send(&files, 0..5000).unwrap();
    let text = fs::read_to_string(folder.path().join("traces-00000001.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert_eq!(numbers(folder.path()), Vec::from_iter(0..5000));
}

#[test]
fn nothing_is_written_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::builder(folder.path()).open().unwrap();
    send(&files, 0..1).unwrap();
    files.flush().unwrap();
    files.shut_down(Duration::from_secs(5)).unwrap();
    assert_eq!(send(&files, 1..3), Err(ErrorKind::ShutDown));
    assert_eq!(numbers(folder.path()), [0]);
    assert_eq!(files.counter().read().lost.of(ErrorKind::ShutDown), 2);
}

#[test]
fn what_is_in_the_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-a-folder");
    fs::write(&file, "").unwrap();
    let error = Files::builder(&file).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(error.to_string().contains("not-a-folder"), "{error}");
    let error = Files::builder(folder.path()).with_prefix("a/b").open().unwrap_err();
    assert!(error.to_string().contains("invalid file name prefix `a/b`"), "{error}");
    // The folder is removed while spans are sent.
    let gone = folder.path().join("gone");
    let files = Files::builder(&gone).with_max_wait(Duration::ZERO).open().unwrap();
    fs::remove_dir(&gone).unwrap();
    assert_eq!(send(&files, 0..1), Err(ErrorKind::File));
    assert_eq!(files.counter().read().lost.of(ErrorKind::File), 1);
}

/// Two sets of files share one limit. A set frees space by deleting its own files only.
#[test]
fn files_beside_others_share_their_limit() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Files::builder(folder.path()).with_total_bytes_max(100).with_rotate_bytes(30);
    let traces = builder.open().unwrap();
    let logs = traces.beside("logs").unwrap();
    let line = [&[b'x'; 29][..], b"\n"].concat();
    (0..2).for_each(|_| traces.write_lines(&line, 1).unwrap());
    logs.write_lines(&line, 1).unwrap();
    // The oldest of the logs gives way, although files of traces are older.
    logs.write_lines(&line, 1).unwrap();
    let left = || names(folder.path());
    assert_eq!(left(), ["logs-00000002.jsonl", "traces-00000001.jsonl", "traces-00000002.jsonl"]);
    traces.write_lines(&line, 1).unwrap();
    assert_eq!(left(), ["logs-00000002.jsonl", "traces-00000002.jsonl", "traces-00000003.jsonl"]);
    // A set that has no files of its own cannot make room, and does not wait for any either.
    let more = logs.beside("more").unwrap();
    assert_eq!(more.write_lines(&line, 1).unwrap_err().kind(), ErrorKind::Full);
    fs::remove_file(folder.path().join("traces-00000002.jsonl")).unwrap();
    more.write_lines(&line, 1).unwrap();
    assert_eq!([&traces, &logs, &more].map(|files| files.total_bytes()), [30, 30, 30]);
}
