//! Realistic files: the spans and problems read from each.
//!
//! Each file is read in pieces of several sizes, line by line where possible, and as a stream. A
//! span is rendered as `line:byte name`, and a problem as it is displayed.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use proptest::prelude::*;

use super::documents::{Pieces, read_pieces};
use super::*;
use crate::Limits;
use crate::otlp::testing::cases;
use astracer_model::problem::Problem;
use astracer_model::sink::{Record, Sink};
use astracer_model::span::Span;
use astracer_model::{SpanId, TraceId};

#[derive(Default)]
struct Lines {
    text: String,
    spans: usize,
    stop_after: Option<usize>,
}

impl Sink for Lines {
    fn span(&mut self, span: Span<'_>, record: Record<'_>) {
        let place = record.place;
        assert!(record.bytes.starts_with(b"{") && record.bytes.ends_with(b"}"), "{record:?}");
        self.text.push_str(&format!("{}:{} {}\n", place.line, place.byte, span.name));
        self.spans += 1;
    }

    fn problem(&mut self, problem: Problem) {
        self.text.push_str(&format!("{problem}\n"));
    }

    fn skipped(&mut self, _file: &Arc<str>, _reason: &str) {}

    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|count| self.spans >= count)
    }
}

const LISTS: Layout = Layout {
    lists: &["units", "unit_list"],
    wrappers: &["wrap"],
    unit_keys: &[],
    bare_list: false,
    unit_is_record: false,
    behind_text: false,
    others: &["logs"],
};
const OBJECTS: Layout = Layout {
    lists: &[],
    wrappers: &[],
    unit_keys: &[],
    bare_list: true,
    unit_is_record: false,
    behind_text: false,
    others: &[],
};

/// Reads a unit: a span `{"n": name}`, or an object with a list of `spans`.
fn read_unit(cursor: &mut Cursor<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
    let start = cursor.at();
    let (mut span, mut is_span) = (Span::default(), false);
    cursor.object(|cursor, key| match &*key {
        "n" => {
            is_span = true;
            span.name = cursor.string()?;
            Ok(())
        }
        "deep" => deep(cursor),
        "spans" => out.records(cursor, read_unit),
        _ => cursor.skip().map(drop),
    })?;
    if is_span {
        out.span(cursor, start, span);
    }
    Ok(())
}

/// Reads lists of lists.
fn deep(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    cursor.list(deep)
}

fn read(
    input: &mut dyn BufRead,
    layout: Layout,
    limits: &Limits,
    sink: &mut Lines,
    pieces: Pieces,
) -> Counts {
    read_pieces(input, &"f".into(), limits, sink, layout, &mut read_unit, pieces)
}

#[track_caller]
fn check_as(layout: Layout, limits: &Limits, input: &[u8], expected: &str, line_bytes_max: &[usize]) {
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for &line_bytes_max in line_bytes_max {
        for step_bytes in [1, 2, 3, 7, 16, 1000] {
            let mut sink = Lines::default();
            // A slice would return all its bytes at once.
            let mut input = BufReader::with_capacity(step_bytes, input);
            read(&mut input, layout, limits, &mut sink, Pieces { step_bytes, line_bytes_max });
            let lines: Vec<_> = sink.text.lines().collect();
            assert_eq!(lines, expected, "in steps of {step_bytes}, lines up to {line_bytes_max}");
        }
    }
}

/// Checks a file that yields the same when read as lines and as a stream.
#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: &str) {
    check_as(LISTS, &Limits::default(), input.as_ref(), expected, &[0, 1000]);
}

#[test]
fn a_document_a_line() {
    check(
        "{\"units\":[{\"n\":\"a\"},{\"n\":\"b\"}]}\n\
         {\"units\":[{\"spans\":[{\"n\":\"c\"},{\"n\":\"d\"}]}]}\n",
        r#"1:10 a
           1:20 b
           2:52 c
           2:62 d"#,
    );
}

#[test]
fn the_last_line_may_have_no_end_and_lines_may_end_as_on_windows_and_be_empty() {
    check(
        "\r\n{\"units\":[{\"n\":\"a\"}]}\r\n\r\n  {\"units\":[{\"n\":\"b\"}]}",
        "2:12 a
         4:39 b",
    );
}

#[test]
fn one_document_over_many_lines() {
    check(
        "{\n  \"units\": [\n    {\n      \"n\": \"a\"\n    },\n    {\n      \"spans\": [\n{\"n\":\n\"b\"}]\n    }\n  ]\n}\n",
        "3:19 a
         8:66 b",
    );
}

#[test]
fn a_line_may_end_with_a_brace_and_not_be_a_document() {
    check("{\"a\":{}\n,\"units\":[{\"n\":\"a\"}\n,{\"n\":\"b\"}\n]}\n", "2:18 a\n3:29 b");
    check("{\"wrap\":{\"units\":[{\"n\":\"a\"}]}\n\n}{\"units\":[{\"n\":\"b\"}]}", "1:18 a\n3:42 b");
}

#[test]
fn documents_with_nothing_in_between() {
    check(
        "{\"units\":[{\"n\":\"a\"}]}{\"units\":[{\"n\":\"b\"}]} {\"units\":[{\"n\":\"c\"}]}",
        "1:10 a
         1:31 b
         1:53 c",
    );
}

#[test]
fn documents_in_lists_and_wrappers() {
    check(
        r#"[{"wrap":{"x":1,"units":[{"n":"a"}]}},[{"unit_list":[{"n":"b"}],"y":{}}],{"units":null},{"units":[]},{}]"#,
        "1:25 a
         1:53 b",
    );
}

#[test]
fn unknown_members_of_any_kind_and_size_come_in_between() {
    let long = "x".repeat(5000);
    let input = format!(
        r#"{{"a":{{"units":[1,"}}",{{"n":"no"}}]}},"b":[[],[[]],{{}}],"c":"\"]}}\\","{long}":"{long}","\u0075nits":[{{"q":-1.5e3,"n":"a"}}],"d":null,"e":true,"f":12}}"#
    );
    let start = input.find(r#"{"q""#).unwrap();
    check(&input, &format!("1:{start} a"));
}

#[test]
fn a_skipped_member_may_be_larger_than_any_record() {
    let limits = Limits { record_bytes_max: 20, ..Limits::default() };
    let long = "x".repeat(5000);
    check_as(
        LISTS,
        &limits,
        format!(r#"{{"a":"{long}","units":[{{"n":"a"}},{{"n":"b","x":"{long}"}},{{"n":"c"}}]}}"#).as_bytes(),
        "1:5017 a
         f:1 (byte 5027): is over a limit: record longer than 20 bytes
         1:10044 c",
        &[0],
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    check(b"\xef\xbb\xbf{\"units\":[{\"n\":\"a\"}]}", "1:13 a");
}

#[test]
fn objects_that_are_units_themselves() {
    let expected = "1:0 a
                    1:9 b
                    2:19 c
                    3:30 d
                    3:41 e";
    let input = "{\"n\":\"a\"}{\"n\":\"b\"}\n{\"n\":\"c\"}\n[{\"n\":\"d\"},[{\"n\":\"e\"}],[]]";
    check_as(OBJECTS, &Limits::default(), input.as_bytes(), expected, &[0, 1000]);
}

#[test]
fn units_by_themselves_are_told_from_documents_by_the_first_member_that_is_known() {
    let layout = Layout { unit_keys: &["n", "spans"], bare_list: true, ..LISTS };
    let unknown = "0".repeat(100);
    let input = format!(
        "{{\"x\":[{unknown}],\"n\":\"a\",\"units\":[]}}\n{{\"x\":[{unknown}],\"units\":[{{\"n\":\"b\"}}],\"n\":1}}\n\
         [{{\"n\":\"c\"}}]\n{{\"spans\":[{{\"n\":\"d\"}}]}}{{\"units\":[{{\"n\":\"e\"}}]}}"
    );
    let expected = "1:0 a
                    2:245 b
                    3:264 c
                    4:285 d
                    4:306 e";
    check_as(layout, &Limits::default(), input.as_bytes(), expected, &[0, 1000]);
}

#[test]
fn what_is_no_document_in_a_list_is_stepped_over() {
    let input = r#"[7,{"n":"a"},"b",null,[{"n":"c"}],true]"#;
    let problem = |byte: u64| format!("f:1 (byte {byte}): bad record: expected an object or a list\n");
    let expected = problem(1) + "1:3 a\n" + &problem(13) + &problem(17) + "1:23 c\n" + &problem(34);
    check_as(OBJECTS, &Limits::default(), input.as_bytes(), &expected, &[0, 1000]);
}

#[test]
fn documents_of_another_kind_are_counted_and_unknown_ones_are_problems() {
    let input = b"{\"logs\":[]}\n{\"units\":[]}\n{\"else\":[]}\n{}\n{\"wrap\":{\"logs\":1}}\n";
    for line_bytes_max in [0, 1000] {
        let mut sink = Lines::default();
        let pieces = Pieces { step_bytes: 1000, line_bytes_max };
        let counts = read(&mut &input[..], LISTS, &Limits::default(), &mut sink, pieces);
        assert_eq!(counts, Counts { documents: 1, others: 2 });
        assert_eq!(sink.text, "f:3 (byte 25): bad record: expected a member 'units'\n");
    }
}

#[test]
fn a_bad_record_is_stepped_over() {
    check(
        "{\"units\":[{\"n\":\"a\"},{\"n\":7},7,{\"spans\":[{\"n\":null},{\"n\":\"b\"},{\"n\":\"\\x\"}]},{\"n\":\"c\"}]}\n\
         {\"units\":{\"n\":\"d\"}}\n",
        "1:10 a
         f:1 (byte 25): bad record: expected a string
         f:1 (byte 28): bad record: expected an object
         f:1 (byte 45): bad record: expected a string
         1:51 b
         f:1 (byte 67): bad record: unknown escape in a string
         1:74 c
         f:2 (byte 95): bad record: expected a list",
    );
}

#[test]
fn invalid_utf8_costs_no_record() {
    check(
        b"{\"units\":[{\"n\":\"a\"},{\"n\":\"\xc3\xa9\xff\"},{\"n\":\"b\"},{\"x\":\"\xff\",\"n\":\"c\"}]}",
        "1:10 a
         f:1 (byte 20): text that is not Unicode, U+FFFD replaces it: span 0000000000000000
         1:20 é�
         1:32 b
         1:42 c",
    );
}

#[test]
fn lines_that_are_no_documents_are_counted_one_by_one() {
    check(
        "{\"units\":[{\"n\":\"a\"}]}\nfoo\n  bar {\n{\"units\":[{\"n\":\"b\"}]}\n17\n",
        "1:10 a
         f:2 (byte 22): bad record: expected an object or a list
         f:3 (byte 28): bad record: expected an object or a list
         4:44 b
         f:5 (byte 56): bad record: expected an object or a list",
    );
}

#[test]
fn of_a_cut_line_what_comes_before_the_cut_is_read() {
    for cut in [r#"{"n":"#, r#"{"n":""#, r#"{"n":"b"#, r#"{"n":"b""#, r#"{"n":"b","#, r#"{"#, ""] {
        let before = "{\"units\":[{\"n\":\"a\"}]}\n";
        let input = format!("{before}{{\"units\":[{{\"n\":\"c\"}},{cut}\n{{\"units\":[{{\"n\":\"d\"}}]}}\n");
        let newline = 22 + 20 + cut.len();
        let expected = format!(
            "1:10 a\n2:32 c\nf:2 (byte {newline}): bad record: incomplete JSON value\n3:{} d",
            newline + 11
        );
        check_as(LISTS, &Limits::default(), input.as_bytes(), &expected, &[1000]);
    }
}

#[test]
fn after_a_document_over_many_lines_broke_off_reading_resumes_at_an_opening_bracket() {
    check(
        "{\"units\": [\n  {\"n\": \"a\"},\n  {\"n\": \"b\"],\n  {\"n\": \"c\"}\n]}\n{\"units\":\n[{\"n\":\"d\"}]}\n",
        "2:14 a
         f:3 (byte 37): bad record: expected ',' or '}'
         7:67 d",
    );
    // The missing brackets are detected at the start of the next document.
    check(
        "{\"units\":\n[{\"n\":\"a\"}\n{\"units\":\n[{\"n\":\"b\"}]}\n",
        "2:11 a
         f:3 (byte 21): bad record: expected ',' or ']'
         4:32 b",
    );
    check(
        "{\"units\":[{\"n\":\"a\"}]]}{\"units\":[{\"n\":\"b\"}]}",
        "1:10 a
         f:1 (byte 20): bad record: expected ',' or '}'
         1:32 b",
    );
}

#[test]
fn a_file_that_ends_too_early_gives_what_came_before() {
    let whole = "{\n\"units\":[{\"n\":\"a\"},\n{\"spans\":[{\"n\":\"b\"},{\"n\":\"c\"}]}]}";
    for end in 1..whole.len() {
        let spans = [(20, "2:11 a\n"), (41, "3:32 b\n"), (51, "3:42 c\n")];
        let spans: String = spans.iter().filter(|(at, _)| *at <= end).map(|(_, span)| *span).collect();
        let line = 1 + whole[..end].matches('\n').count();
        let expected = format!("{spans}f:{line} (byte {end}): ends too early: incomplete JSON value");
        check_as(LISTS, &Limits::default(), &whole.as_bytes()[..end], &expected, &[0, 1000]);
    }
}

#[test]
fn deep_nesting_is_a_limit_where_it_is_read_and_nothing_where_it_is_not() {
    let limits = Limits { nesting_max: 10, ..Limits::default() };
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    // Document, list and unit are three levels.
    let input = format!(
        r#"{{"units":[{{"deep":{},"n":"a"}},{{"deep":{},"n":"b"}},{{"x":{},"n":"c"}}]}}"#,
        deep(7),
        deep(8),
        deep(100_000)
    );
    let (bad, good) = (input.find(&deep(8)).unwrap() + 7, input.find("{\"x\"").unwrap());
    let expected = format!("1:10 a\nf:1 (byte {bad}): is over a limit: nested too deeply\n1:{good} c");
    check_as(LISTS, &limits, input.as_bytes(), &expected, &[0, 1_000_000]);
}

#[test]
fn deep_nesting_of_documents_is_a_limit() {
    let hostile = "[".repeat(1_000_000);
    let limits = Limits { nesting_max: usize::MAX, ..Limits::default() };
    let input = format!("{hostile}\n{{\"units\":[{{\"n\":\"a\"}}]}}");
    let mut sink = Lines::default();
    read(&mut input.as_bytes(), LISTS, &limits, &mut sink, Pieces::default());
    assert_eq!(sink.text, "f:1 (byte 256): is over a limit: nested too deeply\n2:1000011 a\n");
    // With a limit of 0, no document may be opened.
    let limits = Limits { nesting_max: 0, ..Limits::default() };
    check_as(
        LISTS,
        &limits,
        b"{}\n{}",
        "f:1 (byte 0): is over a limit: nested too deeply\nf:2 (byte 3): is over a limit: nested too deeply",
        &[0, 1000],
    );
}

#[test]
fn reading_ends_when_the_sink_wants_no_more() {
    let unit = r#"{"units":[{"n":"a"},{"n":"b"},{"spans":[{"n":"c"},{"n":"d"}]}]}"#;
    let input = [unit; 3].join("\n");
    for line_bytes_max in [0, 1000] {
        for count in 1..12 {
            let mut sink = Lines { stop_after: Some(count), ..Lines::default() };
            let pieces = Pieces { step_bytes: 16, line_bytes_max };
            read(&mut input.as_bytes(), LISTS, &Limits::default(), &mut sink, pieces);
            assert_eq!((sink.spans, sink.text.lines().count()), (count, count));
        }
    }
}

#[test]
fn an_input_that_fails_says_so_once() {
    struct Failing(io::ErrorKind);
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
    }
    for (error, expected) in [
        (io::ErrorKind::PermissionDenied, "can't be read further: permission denied"),
        (io::ErrorKind::UnexpectedEof, "ends too early: unexpected end of file"),
    ] {
        let mut input = BufReader::new(r#"{"units":[{"n":"a"},{"n":"#.as_bytes().chain(Failing(error)));
        let mut sink = Lines::default();
        read(&mut input, LISTS, &Limits::default(), &mut sink, Pieces::default());
        assert_eq!(sink.text, format!("1:10 a\nf:1 (byte 25): {expected}\n"));
    }
}

#[track_caller]
fn value<T>(text: &str, read: impl FnOnce(&mut Cursor<'static>) -> Result<T, Fault>) -> Result<T, usize> {
    // Leaked so that the result may borrow from it.
    let text = format!(" {text} ").leak();
    let mut cursor = Cursor::new(text, 0, 100);
    let value = read(&mut cursor).map_err(|fault| fault.at)?;
    assert_eq!(cursor.peek(), None, "{text} was not read to its end");
    Ok(value)
}

#[test]
fn whole_numbers_in_all_their_forms() {
    for (text, expected) in [
        ("0", Ok(0)),
        ("17", Ok(17)),
        ("\"17\"", Ok(17)),
        ("null", Ok(0)),
        ("18446744073709551615", Ok(u64::MAX)),
        ("\"18446744073709551615\"", Ok(u64::MAX)),
        ("9999999999999999999", Ok(9_999_999_999_999_999_999)),
        ("1544712660000000000", Ok(1_544_712_660_000_000_000)),
        ("1.5447e18", Ok(1_544_700_000_000_000_000)),
        ("2.0", Ok(2)),
        ("\"2e2\"", Ok(200)),
        ("-0", Ok(0)),
        ("18446744073709551616", Err(1)),
        ("1e400", Err(1)),
        ("-1", Err(1)),
        ("1.5", Err(1)),
        ("007", Err(1)),
        ("\"007\"", Err(1)),
        ("\"\"", Err(1)),
        ("\"1 \"", Err(1)),
        ("true", Err(1)),
        ("[]", Err(1)),
        ("\"1", Err(4)),
        ("-", Err(2)),
        ("1.", Err(3)),
        ("1e+", Err(4)),
    ] {
        assert_eq!(value(text, Cursor::u64), expected, "{text}");
    }
    for (text, expected) in [
        ("-9223372036854775808", Ok(i64::MIN)),
        ("\"9223372036854775807\"", Ok(i64::MAX)),
        ("9223372036854775808", Err(1)),
        ("-9223372036854775809", Err(1)),
    ] {
        assert_eq!(value(text, Cursor::i64), expected, "{text}");
    }
    assert_eq!(value("4294967295", Cursor::u32), Ok(u32::MAX));
    assert_eq!(value("4294967296", Cursor::u32), Err(1));
}

#[test]
fn fractions_words_and_enums() {
    assert_eq!(value("1.25e1", Cursor::f64), Ok(12.5));
    assert_eq!(value("\"-0.5\"", Cursor::f64), Ok(-0.5));
    assert_eq!(value("\"-Infinity\"", Cursor::f64), Ok(f64::NEG_INFINITY));
    assert!(value("\"NaN\"", Cursor::f64).unwrap().is_nan());
    assert_eq!(value("1e999", Cursor::f64), Err(1));
    assert!(value("NaN", Cursor::f64).unwrap().is_nan());
    assert_eq!(value("-Infinity", Cursor::f64), Ok(f64::NEG_INFINITY));
    assert_eq!(value("\"true\"", Cursor::bool), Ok(true));
    assert_eq!(value("false", Cursor::bool), Ok(false));
    assert_eq!(value("1", Cursor::bool), Err(1));
    let color = |cursor: &mut Cursor<'_>| cursor.number_or_name(Some, |name| (name == "RED").then_some(7));
    for (text, expected) in [
        ("3", Ok(3)),
        ("\"3\"", Ok(3)),
        ("\"RED\"", Ok(7)),
        ("null", Ok(0)),
        ("\"BLUE\"", Ok(0)),
        ("1.5", Ok(0)),
        ("{}", Ok(0)),
    ] {
        assert_eq!(value(text, color), expected, "{text}");
    }
}

#[test]
fn ids_in_hex_and_base64() {
    let id = TraceId(0x5b8efff798038103d269b633813fc60c);
    for text in
        ["5B8EFFF798038103D269B633813FC60C", "5b8efff798038103d269b633813fc60c", "W47/95gDgQPSabYzgT/GDA=="]
    {
        assert_eq!(value(&format!("\"{text}\""), Cursor::trace_id), Ok(id));
    }
    assert_eq!(value("\"7uGbfsPBsXQ=\"", Cursor::span_id), Ok(SpanId(0xeee19b7ec3c1b174)));
    assert_eq!(value("\"\"", Cursor::span_id), Ok(SpanId::ZERO));
    assert_eq!(value("null", Cursor::trace_id), Ok(TraceId::ZERO));
    for bad in ["\"xyz\"", "7", "\"00000000000000001\"", "\"7uGbfsPBsQ==\"", "\"====\""] {
        assert_eq!(value(bad, Cursor::span_id), Err(1), "{bad}");
    }
    assert_eq!(value("\"-_-_\"", Cursor::bytes), Ok(vec![0xfb, 0xff, 0xbf]));
    assert_eq!(value("\"AQI\"", Cursor::bytes), Ok(vec![1, 2]));
}

#[test]
fn strings_with_escapes() {
    assert_eq!(
        value(r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é""#, Cursor::string).as_deref(),
        Ok("\"\\/\x08\x0c\n\r\té😀é")
    );
    for (half, text) in [
        (r#""\ud800""#, "\u{fffd}"),
        (r#""\ud83d\u0041""#, "\u{fffd}A"),
        (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
        (r#""\ude00x""#, "\u{fffd}x"),
    ] {
        assert_eq!(value(half, Cursor::string).as_deref(), Ok(text), "{half}");
    }
    for (bad, at) in
        [(r#""\u12g4""#, 6), (r#""\a""#, 2), ("\"a\tb\"", 3), ("\"a\nb\"", 3), ("\"abc", 6), ("\"\\", 2)]
    {
        assert_eq!(value(bad, Cursor::string), Err(at), "{bad}");
    }
}

/// Reads any value with each of the cursor's methods for it.
fn tree(cursor: &mut Cursor<'_>) -> Result<serde_json::Value, Fault> {
    let start = cursor.clone();
    Ok(match cursor.peek() {
        Some(b'{') => {
            let mut members = serde_json::Map::new();
            cursor.object(|cursor, key| {
                members.insert(key.into_owned(), tree(cursor)?);
                Ok(())
            })?;
            members.into()
        }
        Some(b'[') => {
            let mut items = Vec::new();
            cursor.list(|cursor| {
                items.push(tree(cursor)?);
                Ok(())
            })?;
            items.into()
        }
        _ => match cursor.scalar()? {
            Scalar::Null => serde_json::Value::Null,
            Scalar::Bool(value) => value.into(),
            Scalar::String(text) => text.into(),
            // Integers equal serde_json's; fractions and large numbers are floats.
            Scalar::Number(digits) if digits.contains(['.', 'e', 'E']) => start.clone().f64()?.into(),
            Scalar::Number(digits) if digits.starts_with('-') && digits != "-0" => start
                .clone()
                .i64()
                .map_or_else(|_| start.clone().f64().map(Into::into), |value| Ok(value.into()))?,
            Scalar::Number("-0") => (-0.0).into(),
            Scalar::Number(_) => start
                .clone()
                .u64()
                .map_or_else(|_| start.clone().f64().map(Into::into), |value| Ok(value.into()))?,
        },
    })
}

/// The value with rounded floats: serde_json's fast float parsing is not exact to the last bit.
fn rounded(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Number(number) if number.is_f64() => {
            format!("{:.12e}", number.as_f64().unwrap_or_default()).into()
        }
        serde_json::Value::Array(items) => items.into_iter().map(rounded).collect(),
        serde_json::Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, rounded(value))).collect()
        }
        other => other,
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<Vec<char>>().prop_map(|chars| String::from_iter(chars).into()),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((any::<Vec<char>>(), inner), 0..5).prop_map(|members| {
                members.into_iter().map(|(key, value)| (String::from_iter(key), value)).collect()
            }),
        ]
    })
}

proptest! {
    #![proptest_config(cases(300))]

    /// serde_json is the reference for valid JSON and its meaning, including text with a few bytes
    /// changed.
    #[test]
    fn what_is_json_is_decided_as_by_serde_json(
        value in json(),
        pretty in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"{}[]\",:0-.eEtnu\\ \n\x01x"[..])), 0..3),
    ) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let mut bytes = text.expect("values can be written").into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        let mut cursor = Cursor::new(&text, 0, 100);
        let ours = tree(&mut cursor).ok().filter(|_| cursor.peek().is_none());
        prop_assert_eq!(ours.clone().map(rounded), serde_json::from_str(&text).ok().map(rounded));
        // Skipping a value ends at the same position as reading it.
        if ours.is_some() {
            let mut over = Cursor::new(&text, 0, 100);
            prop_assert_eq!(over.skip().map(str::trim), Ok(text.trim()));
        }
    }
}
