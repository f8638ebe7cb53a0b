use std::fs;
use std::io::Write;
use std::path::Path;

use astracer_model::{Format, Problem, ProblemKind};
use astracer_recording::source::{self, Limits, Options, SourceError, Summary};
use flate2::{Compression, write::GzEncoder};
use liblzma::write::XzEncoder;
use tempfile::TempDir;

use crate::collected::Collected;
use crate::sample;

fn read_with(path: &Path, options: &Options) -> (Collected, Result<Summary, SourceError>) {
    let mut collected = Collected::default();
    let result = source::read(path, options, &mut collected);
    if let (Ok(summary), None) = (&result, collected.stop_after) {
        assert_eq!(collected.progress, summary.stored_bytes);
        let spans: u64 = summary.files.iter().map(|file| file.spans).sum();
        assert_eq!(spans, collected.spans.len() as u64);
    }
    (collected, result)
}

#[track_caller]
fn read(path: &Path) -> (Collected, Summary) {
    let (collected, result) = read_with(path, &Options::default());
    (collected, result.unwrap())
}

/// Reads a file with this content, named `name` in a temporary folder. Places omit the folder.
#[track_caller]
fn read_bytes(name: &str, content: &[u8]) -> (Collected, Result<Summary, SourceError>) {
    read_bytes_with(name, content, &Options::default())
}

#[track_caller]
fn read_bytes_with(
    name: &str,
    content: &[u8],
    options: &Options,
) -> (Collected, Result<Summary, SourceError>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    let (mut collected, mut result) = read_with(&path, options);
    let prefix = format!("{}/", folder.path().display());
    let short = |name: &str| name.replacen(&prefix, "", 1);
    for (place, _) in &mut collected.records {
        place.file = short(&place.file).into();
    }
    for problem in &mut collected.problems {
        problem.place.file = short(&problem.place.file).into();
    }
    for (file, _) in &mut collected.skipped {
        *file = short(file);
    }
    if let Ok(summary) = &mut result {
        for file in &mut summary.files {
            file.name = short(&file.name).into();
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written");
    (collected, result)
}

fn gz(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn xz(content: &[u8]) -> Vec<u8> {
    let mut encoder = XzEncoder::new(Vec::new(), 1);
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zst(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

type Packer = fn(&[u8]) -> Vec<u8>;
const PACKERS: [(&str, Packer); 3] = [("gz", gz), ("xz", xz), ("zst", zst)];

fn header(name: &[u8], size: u64, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_entry_type(kind);
    header.set_cksum();
    header
}

/// A member of an archive, with any name, padded to whole blocks.
fn member(name: &[u8], kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, content.len() as u64, kind).as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(name.as_bytes(), tar::EntryType::Regular, content)
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    [&members.concat()[..], &[0; 1024]].concat()
}

/// A span of HTrace 4 on one line.
fn line(name: &str) -> String {
    format!("{{\"a\":\"00000000000000aa00000000000000bb\",\"b\":1,\"e\":2,\"d\":\"{name}\"}}\n")
}

#[test]
fn a_folder_is_read_in_sorted_order_and_what_holds_no_traces_is_named() {
    let (collected, summary) = read(&sample(""));
    let root = sample("");
    let inside = |name: &str| Path::new(name).strip_prefix(&root).unwrap().display().to_string();
    let files: Vec<_> = summary
        .files
        .iter()
        .map(|file| (inside(&file.name), file.format, file.spans))
        .filter(|(name, ..)| name.starts_with("h") || name.starts_with("trainticket"))
        .collect();
    assert_eq!(
        files,
        [
            ("hdfs273/spans/client.json".to_owned(), Format::HTrace, 152),
            ("hdfs273/spans/dn1.json".to_owned(), Format::HTrace, 40),
            ("hdfs283/spans/client-3.json".to_owned(), Format::HTrace, 165),
            ("htrace4_sample_spans.jsonl".to_owned(), Format::HTrace, 4),
            ("trainticket/trace/08_50_trace.csv".to_owned(), Format::NezhaCsv, 138),
        ]
    );
    let skipped: Vec<_> = collected
        .skipped
        .iter()
        .map(|(name, reason)| (inside(name), &reason[..]))
        .filter(|(name, _)| ["README", "hdfs", "trainticket"].iter().any(|start| name.starts_with(start)))
        .collect();
    assert_eq!(
        skipped,
        [
            ("README.md".to_owned(), "text, not traces"),
            ("hdfs273/logs/nn.log".to_owned(), "text, not traces"),
            ("hdfs273/ops.tsv".to_owned(), "a table without span columns"),
            ("hdfs283/meta.json".to_owned(), "JSON without traces (first keys: name, what, traps)"),
            ("trainticket/LICENSE".to_owned(), "text, not traces"),
            ("trainticket/log/08_50_log.csv".to_owned(), "a table without span columns"),
        ]
    );
    assert_eq!(source::stored_size(&root), Some(summary.stored_bytes));
    assert_eq!(source::stored_size(Path::new("-")), None);
}

#[test]
fn archives_and_streams_are_opened_however_they_are_nested() {
    let spans = fs::read(sample("hdfs283/spans/client-3.json")).unwrap();
    let inner = tar(&[file("./logs/nn.log", b"not a span\n"), file("./spans/nn.json", &spans)]);
    let mut cases = vec![
        ("plain", spans.clone(), "plain"),
        ("a.tar", inner.clone(), "a.tar/spans/nn.json"),
        ("a", gz(&xz(&zst(&spans))), "a"),
        ("a", xz(&tar(&[file("x/logs.tar", &inner)])), "a/x/logs.tar/spans/nn.json"),
        ("a", tar(&[file("nn.json.gz", &gz(&spans))]), "a/nn.json.gz"),
    ];
    for (_, pack) in PACKERS {
        cases.push(("a", pack(&spans), "a"));
        cases.push(("named.txt", pack(&inner), "named.txt/spans/nn.json"));
        // Concatenated streams are one stream.
        let (start, end) = spans.split_at(10_000);
        cases.push(("a", [pack(start), pack(end)].concat(), "a"));
    }
    let plain = Collected::from_text(Format::HTrace, &spans);
    for (name, content, place) in cases {
        let (collected, result) = read_bytes(name, &content);
        assert_eq!(collected.problems, [], "{place}");
        assert_eq!(collected.spans, plain.spans, "{place}");
        assert!(collected.records.iter().all(|(found, _)| *found.file == *place), "{place}");
        let summary = result.unwrap();
        assert_eq!(summary.stored_bytes, content.len() as u64, "{place}");
        let [found] = &summary.files[..] else { panic!("{place}: {summary:?}") };
        assert_eq!((&*found.name, found.format), (place, Format::HTrace));
        assert_eq!(found.expanded_bytes, spans.len() as u64);
    }
}

#[test]
fn archives_deeper_than_the_limit_are_left_closed() {
    let open = |levels: usize, nesting_max: usize| {
        let content = (0..levels).fold(line("x").into_bytes(), |content, _| gz(&content));
        let records = astracer_formats::Limits { nesting_max, ..Default::default() };
        let limits = Limits { records, ..Limits::default() };
        let (collected, result) = read_bytes_with("a", &content, &Options { limits, ..Options::default() });
        (collected.spans.len(), collected.kinds(), result.is_ok())
    };
    assert_eq!(open(3, 3), (1, vec![], true));
    assert_eq!(open(4, 3), (0, vec![ProblemKind::Limit], false));
    assert_eq!(open(8, 100), (1, vec![], true));
    assert_eq!(open(9, 100), (0, vec![ProblemKind::Limit], false));
}

#[test]
fn a_cut_stream_gives_the_spans_before_the_cut() {
    // Names that compress badly, so that spans appear long before the end.
    let text: String =
        (0..2000u64).map(|n| line(&format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect();
    for (suffix, pack) in PACKERS {
        for content in [text.clone().into_bytes(), tar(&[file("a.json", text.as_bytes())])] {
            let packed = pack(&content);
            for cut in [packed.len() / 2, packed.len() - 1000, packed.len() - 1] {
                let (collected, result) = read_bytes("cut", &packed[..cut]);
                // The end of the stream, in some cases preceded by the end of a span.
                let last = collected.problems.last().expect("a problem");
                assert_eq!(last.kind, ProblemKind::Truncated, "{suffix} cut to {cut}: {last}");
                assert!(collected.problems.len() <= 2, "{suffix}: {:?}", collected.problems);
                // xz and zst yield complete blocks only, possibly none.
                let whole = Collected::from_text(Format::HTrace, &text);
                assert_eq!(collected.spans, whole.spans[..collected.spans.len()], "{suffix}");
                if suffix == "gz" {
                    assert!(collected.spans.len() > 500, "{suffix} cut to {cut}: {}", collected.spans.len());
                    assert_eq!(result.unwrap().files.len(), 1);
                }
            }
        }
    }
}

#[test]
fn a_cut_archive_gives_the_spans_before_the_cut() {
    let first = file("a.json", line("a").repeat(100).as_bytes());
    let archive = tar(&[first.clone(), file("b.json", line("b").repeat(100).as_bytes())]);
    for (cut, spans, problems) in [
        // Inside the second file: its last span, and the archive.
        (first.len() + 512 + line("b").len() * 50 + 10, 100 + 50, 2),
        // Inside the second header.
        (first.len() + 100, 100, 1),
        // After the last file: only the end mark is missing.
        (archive.len() - 1024, 200, 0),
    ] {
        let (collected, _) = read_bytes("a.tar", &archive[..cut]);
        assert_eq!(collected.kinds(), vec![ProblemKind::Truncated; problems], "cut to {cut}");
        assert_eq!(collected.spans.len(), spans, "cut to {cut}");
    }
    // Inside a compressed file: the early end is reported once.
    let packed = gz(&(0..2000u32)
        .map(|n| line(&format!("{:x}", n.wrapping_mul(0x9e37_79b9))))
        .collect::<String>()
        .into_bytes());
    let archive = [first.clone(), file("b.gz", &packed)].concat();
    let (collected, _) = read_bytes("a.tar", &archive[..archive.len() - 1024]);
    let ends: Vec<_> = collected.problems.iter().filter(|problem| problem.place.line == 0).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0].detail, "the archive ends inside this file");
    assert_eq!(*ends[0].place.file, *"a.tar/b.gz");
    // Inside a file that is not read.
    let archive = [first, file("a.log", &[b'x'; 200_000])].concat();
    let (collected, _) = read_bytes("a.tar", &archive[..archive.len() - 1000]);
    assert_eq!(collected.kinds(), [ProblemKind::Truncated]);
    assert_eq!(collected.spans.len(), 100);
}

#[test]
fn a_damaged_stream_is_named_once() {
    let text = line("a").repeat(20_000);
    for (suffix, pack) in PACKERS {
        let mut packed = pack(text.as_bytes());
        let len = packed.len();
        packed[len / 2] ^= 0x55;
        let (collected, _) = read_bytes("a", &packed);
        // Damage within the bounds of a file can at first look like lines; then the checksums
        // differ.
        let of_stream = |problem: &&Problem| problem.place.line == 0;
        let found: Vec<_> = collected.problems.iter().filter(of_stream).collect();
        let [Problem { kind: ProblemKind::Unreadable | ProblemKind::Truncated, .. }] = found[..] else {
            panic!("{suffix}: {found:?}");
        };
    }
    let (collected, result) =
        read_bytes("a.gz", &[&gz(line("a").as_bytes())[..], b"trailing garbage"].concat());
    assert_eq!(collected.names(), ["a"]);
    assert_eq!(collected.kinds(), [ProblemKind::Unreadable]);
    assert!(result.is_ok());
}

/// gzip(1) ignores zeros after a member: tapes and block devices pad with them.
#[test]
fn zeros_after_a_gzip_member_are_padding() {
    let (first, second) = (gz(line("a").as_bytes()), gz(line("b").as_bytes()));
    for padding in [1, 512, 300_000] {
        let zeros = vec![0; padding];
        for content in [[&first[..], &zeros, b""].concat(), [&first[..], &zeros, &second].concat()] {
            let (collected, result) = read_bytes("a.gz", &content);
            assert_eq!(collected.kinds(), [], "{padding}");
            assert!(collected.names() == ["a"] || collected.names() == ["a", "b"], "{:?}", collected.names());
            assert!(result.is_ok());
        }
    }
}

#[test]
fn a_damaged_header_loses_one_file_of_an_archive() {
    let mut archive = tar(&[
        file("a.json", line("a").as_bytes()),
        file("b.json", line("b").as_bytes()),
        file("c.json", line("c").as_bytes()),
    ]);
    archive[1024] ^= 1;
    let (collected, _) = read_bytes("a.tar", &archive);
    assert_eq!(collected.names(), ["a", "c"]);
    assert_eq!(collected.places(), [(ProblemKind::Unreadable, 0, 1024)]);
}

#[test]
fn archives_one_behind_the_other_are_all_read() {
    let archive = [tar(&[file("a", line("a").as_bytes())]), tar(&[file("b", line("b").as_bytes())])].concat();
    let (collected, _) = read_bytes("a.tar", &archive);
    assert_eq!(collected.names(), ["a", "b"]);
    assert_eq!(collected.problems, []);
}

#[test]
fn a_bomb_is_cut_off_at_the_limit() {
    const LIMIT: u64 = 256 << 10;
    let limits = Limits { expanded_bytes_max: LIMIT, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let bomb = line("x").repeat(20_000);
    let zeros = vec![0; 4 << 20];
    for (suffix, pack) in PACKERS {
        let in_tar = pack(&tar(&[file("b.json", bomb.as_bytes()), file("c.json", line("c").as_bytes())]));
        // The zeros are not read, but the archive continues after them.
        let skipped =
            pack(&tar(&[file("a.json", line("a").as_bytes()), file("zeros", &zeros), file("c", b"")]));
        for (content, spans_min) in [(pack(bomb.as_bytes()), 3000), (in_tar, 3000), (skipped, 1)] {
            let folder = TempDir::new().unwrap();
            fs::write(folder.path().join("a"), &content).unwrap();
            fs::write(folder.path().join("b"), line("never read")).unwrap();
            let (collected, result) = read_with(folder.path(), &options);
            let over: Vec<_> =
                collected.kinds().into_iter().filter(|&kind| kind == ProblemKind::Limit).collect();
            assert_eq!(over, [ProblemKind::Limit], "{suffix}: {:?}", collected.problems);
            assert!(collected.spans.len() >= spans_min, "{suffix}: {}", collected.spans.len());
            assert!(collected.names().iter().all(|&name| name != "never read"), "{suffix}");
            let expanded: u64 = result.unwrap().files.iter().map(|file| file.expanded_bytes).sum();
            assert!(expanded <= LIMIT, "{suffix}: {expanded}");
        }
        // In nested archives each level counts.
        let (collected, _) = read_bytes_with("a", &pack(&pack(bomb.as_bytes())), &options);
        assert!(collected.kinds().contains(&ProblemKind::Limit), "{suffix}");
    }
}

#[test]
fn the_limit_itself_is_allowed_and_plain_files_do_not_count() {
    let text = line("x").repeat(100);
    let read = |content: &[u8], expanded_bytes_max: usize| {
        let limits = Limits { expanded_bytes_max: expanded_bytes_max as u64, ..Limits::default() };
        let (collected, _) = read_bytes_with("a", content, &Options { limits, ..Options::default() });
        (collected.spans.len(), collected.kinds())
    };
    assert_eq!(read(&gz(text.as_bytes()), text.len()), (100, vec![]));
    assert_eq!(read(&gz(text.as_bytes()), text.len() - 1), (99 + 1, vec![ProblemKind::Limit]));
    assert_eq!(read(text.as_bytes(), 1), (100, vec![]));
}

#[test]
fn an_xz_stream_that_wants_gigabytes_for_its_window_is_refused() {
    let mut packed = xz(line("x").as_bytes());
    // The block header follows the 12 bytes of the stream header: its size, flags, filter LZMA2
    // (0x21) with one byte of properties, the dictionary's size, and its checksum (xz file format
    // 1.2.1, section 3.1).
    let header_len = (usize::from(packed[12]) + 1) * 4;
    let (filter, sum) = (12 + 2, 12 + header_len - 4);
    assert_eq!(packed[filter..filter + 2], [0x21, 1]);
    packed[filter + 2] = 40; // 4 GiB - 1
    let mut crc = flate2::Crc::new();
    crc.update(&packed[12..sum]);
    packed[sum..sum + 4].copy_from_slice(&crc.sum().to_le_bytes());
    let (collected, result) = read_bytes("a.xz", &packed);
    assert_eq!(collected.kinds(), [ProblemKind::Limit], "{:?}", collected.problems);
    assert!(result.unwrap_err().is_unrecognised());
}

#[test]
fn hostile_names_in_an_archive_are_only_labels() {
    let archive = tar(&[
        file("../../climbed.json", line("a").as_bytes()),
        file("/absolute.json", line("b").as_bytes()),
        file("line\nbreak\u{1b}[2J", line("c").as_bytes()),
        file("nosj\u{202e}.json", line("e").as_bytes()),
        member(b"\xff\xfe.json", tar::EntryType::Regular, line("d").as_bytes()),
        member(b"link", tar::EntryType::Symlink, b""),
        member(b"device", tar::EntryType::Block, b""),
    ]);
    let (collected, result) = read_bytes("a.tar", &archive);
    let files: Vec<_> = result.unwrap().files.iter().map(|file| file.name.to_string()).collect();
    let expected = [
        "a.tar/../../climbed.json",
        "a.tar//absolute.json",
        "a.tar/line\\nbreak\\u{1b}[2J",
        "a.tar/nosj\\u{202e}.json",
        "a.tar/\u{fffd}\u{fffd}.json",
    ];
    assert_eq!(files, expected);
    assert_eq!(collected.problems, []);
    assert_eq!(collected.skipped, []);
}

#[test]
fn hidden_files_are_left_out_unless_asked_for() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join(".git")).unwrap();
    for name in ["a.json", ".hidden.json", ".git/b.json"] {
        fs::write(folder.path().join(name), line(name)).unwrap();
    }
    let (collected, _) = read(folder.path());
    assert_eq!(collected.names(), ["a.json"]);
    let reasons: Vec<_> = collected.skipped.iter().map(|(_, reason)| &reason[..]).collect();
    assert_eq!(reasons, ["hidden", "hidden"]);
    let (collected, _) = read(&folder.path().join(".hidden.json"));
    assert_eq!(collected.names(), [".hidden.json"]);

    let archive = tar(&[
        file("./.hidden", line("a").as_bytes()),
        file("x/.git/b", line("b").as_bytes()),
        file("./c", line("c").as_bytes()),
    ]);
    let (collected, _) = read_bytes("a.tar", &archive);
    assert_eq!(collected.names(), ["c"]);
    assert_eq!(collected.skipped.len(), 2);
}

#[test]
fn long_names_and_extended_headers_of_tar() {
    let long = "x/".repeat(200) + "spans.json";
    let content = line("a");
    let mut gnu = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    gnu.append_data(&mut header, &long, content.as_bytes()).unwrap();
    let mut pax = tar::Builder::new(Vec::new());
    pax.append_pax_extensions([("path", long.as_bytes()), ("comment", b"none")]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_path("short").unwrap();
    header.set_size(content.len() as u64);
    header.set_cksum();
    pax.append(&header, content.as_bytes()).unwrap();
    for builder in [gnu, pax] {
        let (collected, result) = read_bytes("a.tar", &builder.into_inner().unwrap());
        assert_eq!(collected.problems, []);
        assert_eq!(*result.unwrap().files[0].name, *format!("a.tar/{long}"));
    }
    // The size in an extended header takes precedence: here the header itself says 0.
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("size", line("a").len().to_string().as_bytes())]).unwrap();
    let mut archive = builder.into_inner().unwrap();
    archive.truncate(1024);
    let mut content = file("a.json", line("a").as_bytes());
    content[..512].copy_from_slice(self::header(b"a.json", 0, tar::EntryType::Regular).as_bytes());
    archive.extend(content);
    archive.extend(tar(&[file("b.json", line("b").as_bytes())]));
    let (collected, _) = read_bytes("a.tar", &archive);
    assert_eq!((collected.names(), collected.kinds()), (vec!["a", "b"], vec![]));
}

#[test]
fn sizes_that_lie_take_no_memory() {
    for kind in [
        tar::EntryType::Regular,
        tar::EntryType::GNULongName,
        tar::EntryType::XHeader,
        tar::EntryType::Directory,
    ] {
        for size in [1 << 40, u64::MAX / 2, u64::MAX] {
            let huge = header(b"huge", size, kind);
            let archive =
                [&file("a.json", line("a").as_bytes())[..], huge.as_bytes(), line("b").as_bytes()].concat();
            let (collected, _) = read_bytes("a.tar", &archive);
            assert_eq!(collected.names()[0], "a", "{kind:?} {size}");
            assert!(
                collected.problems.len() == 1 || collected.kinds().contains(&ProblemKind::Limit),
                "{kind:?} {size}: {:?}",
                collected.problems
            );
        }
    }
    // Old tar's sparse files: a small archive that represents a large file.
    let archive =
        tar(&[member(b"s", tar::EntryType::GNUSparse, b"xx"), file("a.json", line("a").as_bytes())]);
    let (collected, _) = read_bytes("a.tar", &archive);
    assert_eq!(collected.names(), ["a"]);
    assert_eq!(collected.skipped.len(), 1);
}

#[test]
fn empty_things() {
    for (content, reason) in [
        (Vec::new(), "empty"),
        (gz(b""), "empty"),
        (xz(b""), "empty"),
        (zst(b""), "empty"),
        (vec![0; 1024], "binary data in an unknown format"),
    ] {
        let (collected, result) = read_bytes("a", &content);
        assert_eq!(collected.problems, []);
        assert_eq!(collected.skipped, [("a".to_owned(), reason.to_owned())]);
        assert!(result.unwrap_err().is_unrecognised());
    }
    let folder = TempDir::new().unwrap();
    let (collected, result) = read_with(folder.path(), &Options::default());
    assert!(collected.skipped.is_empty());
    assert!(result.unwrap_err().is_unrecognised());
}

#[test]
fn errors_name_what_to_do() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing.json");
    let (_, result) = read_with(&missing, &Options::default());
    let error = result.unwrap_err();
    assert!(error.is_not_found() && !error.is_unrecognised());
    let expected =
        format!("'{}' does not exist; check the path, or use '-' for the standard input", missing.display());
    assert_eq!(error.to_string(), expected);

    let log = folder.path().join("a.log");
    fs::write(&log, "started\n").unwrap();
    const NAMES: &str = "if it does contain traces, name their format with --format: otlp-json, otlp-proto, jaeger-json, zipkin-json, htrace, nezha-csv, xtrace-json";
    let (_, result) = read_with(&log, &Options::default());
    let error = result.unwrap_err();
    assert!(error.is_unrecognised() && !error.is_not_found());
    assert_eq!(error.to_string(), format!("no traces in '{}': text, not traces; {NAMES}", log.display()));
    // Naming a format does not help if there is nothing to read, or nothing that can be opened.
    for (content, reason) in [
        (&b""[..], "empty"),
        (b" \n", "blank"),
        (b"PK\x03\x04", "a zip archive; unpack it, or pack it as tar"),
        (&gz(b"")[..10], "ends too early: "),
    ] {
        let file = folder.path().join("refused");
        fs::write(&file, content).unwrap();
        let error = read_with(&file, &Options::default()).1.unwrap_err().to_string();
        assert!(error.starts_with(&format!("no traces in '{}': {reason}", file.display())), "{error}");
        assert!(!error.contains("if it does contain traces"), "{error}");
        fs::remove_file(&file).unwrap();
    }
    let (_, result) = read_with(folder.path(), &Options::default());
    let expected = format!(
        "no traces in '{}'; the first skipped file is '{}': text, not traces; {NAMES}",
        folder.path().display(),
        log.display()
    );
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn a_format_that_is_named_is_not_looked_for() {
    let options = Options { format: Some(Format::HTrace), ..Options::default() };
    let (collected, result) =
        read_bytes_with("a.tar", &tar(&[file("meta.json", br#"{"what":1}"#)]), &options);
    assert_eq!(collected.kinds(), [ProblemKind::BadRecord]);
    assert_eq!(result.unwrap().files[0].format, Format::HTrace);
}

#[test]
fn a_stop_ends_it_without_an_error() {
    let folder = TempDir::new().unwrap();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), line(name).repeat(3)).unwrap();
    }
    for stop_after in [0, 2, 3] {
        let mut collected = Collected { stop_after: Some(stop_after), ..Collected::default() };
        source::read(folder.path(), &Options::default(), &mut collected).unwrap();
        assert_eq!(collected.spans.len(), stop_after);
    }
}

/// After a stop, the rest of a file in an archive is not read just to be skipped, whether it
/// contains traces or not.
#[test]
fn reading_stops_inside_large_files_of_archives() {
    struct Patient {
        asked: std::cell::Cell<u32>,
        spans: bool,
    }
    impl astracer_model::Sink for Patient {
        fn span(&mut self, _: astracer_model::Span<'_>, _: astracer_model::sink::Record<'_>) {
            self.spans = true;
        }
        fn problem(&mut self, _: astracer_model::Problem) {}
        fn skipped(&mut self, _: &std::sync::Arc<str>, _: &str) {}
        fn stopped(&self) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.spans || self.asked.get() > 10
        }
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.tar");
    let zeros = vec![0; 8 << 20];
    for content in [line("a").repeat(80_000).into_bytes(), zeros] {
        fs::write(&path, tar(&[file("b", &content)])).unwrap();
        let mut sink = Patient { asked: std::cell::Cell::new(0), spans: false };
        let summary = source::read(&path, &Options::default(), &mut sink).unwrap();
        // Detection looks at 1 MiB.
        assert!(summary.stored_bytes < 3 << 20, "{} of {}", summary.stored_bytes, content.len());
    }
}

#[test]
fn progress_grows_while_a_large_file_is_read() {
    #[derive(Default)]
    struct Steps(Vec<u64>);
    impl astracer_model::Sink for Steps {
        fn span(&mut self, _: astracer_model::Span<'_>, _: astracer_model::sink::Record<'_>) {}
        fn problem(&mut self, _: astracer_model::Problem) {}
        fn skipped(&mut self, _: &std::sync::Arc<str>, _: &str) {}
        fn progress(&mut self, bytes: u64) {
            self.0.push(bytes);
        }
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a");
    let text = line("x").repeat(20_000);
    fs::write(&path, &text).unwrap();
    let mut steps = Steps::default();
    source::read(&path, &Options::default(), &mut steps).unwrap();
    assert!(steps.0.len() >= 5, "{:?}", steps.0);
    assert_eq!(steps.0.iter().sum::<u64>(), text.len() as u64);
}

#[cfg(unix)]
#[test]
fn links_are_followed_once() {
    use std::os::unix::fs::symlink;
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let root = folder.path();
    fs::create_dir(root.join("b")).unwrap();
    fs::write(root.join("b/spans.json"), line("b")).unwrap();
    fs::write(elsewhere.path().join("spans.json"), line("elsewhere")).unwrap();
    symlink(root, root.join("b/up")).unwrap();
    symlink(root.join("b"), root.join("latest")).unwrap();
    symlink(root.join("b/spans.json"), root.join("c.json")).unwrap();
    symlink(elsewhere.path(), root.join("d")).unwrap();
    symlink(root, elsewhere.path().join("back")).unwrap();
    symlink("nowhere", root.join("e")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let (collected, summary) = read(root);
    assert_eq!(collected.names(), ["b", "elsewhere"]);
    assert_eq!(collected.skipped.len(), 4, "{:?}", collected.skipped);
    assert_eq!(collected.kinds(), [ProblemKind::Unreadable, ProblemKind::Unreadable]);
    assert_eq!(source::stored_size(root), Some(summary.stored_bytes));
}

#[cfg(unix)]
#[test]
fn a_pipe_in_a_folder_is_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::write(folder.path().join("spans.json"), line("a")).unwrap();
    let (collected, _) = read(folder.path());
    assert_eq!(collected.names(), ["a"]);
    assert_eq!(collected.skipped[0].1, "neither a file nor a folder");
    drop(socket);
}
