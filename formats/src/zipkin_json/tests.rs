//! Realistic spans, rendered, and spans as the writer writes them.

use super::super::drawn::{self, collect};
use super::*;

mod round_trip;

#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: &str) {
    drawn::check(read, input.as_ref(), expected);
}

/// A span with ids, a name, and these members.
#[track_caller]
fn check_span(members: &str, expected: &str) {
    let input = format!(r#"[{{"traceId":"a","id":"1","name":"n",{members}}}]"#);
    check(input, &format!("1:1 a/1 \"n\"{expected}"));
}

/// Tags and the span fields that they become.
#[track_caller]
fn check_tags(tags: &str, expected: &str) {
    check_span(&format!(r#""tags":{{{tags}}}"#), expected);
}

#[test]
fn lists_lists_of_lists_and_spans_by_themselves() {
    let [a, b] = ["1", "2"].map(|id| format!(r#"{{"traceId":"a","id":"{id}"}}"#));
    let two = |first: &str, second: &str| format!("{first} a/1 \"\"\n{second} a/2 \"\"");
    check(format!("[{a},{b}]"), &two("1:1", "1:26"));
    check(format!("[\n  {a},\n  {b}\n]\n"), &two("2:4", "3:32"));
    check(format!("[[{a}],\n[],[{b}]]"), &two("1:2", "2:33"));
    check(format!("{a}\n{b}\n"), &two("1:0", "2:25"));
    check(format!("{a}{b}"), &two("1:0", "1:24"));
    check(&a, "1:0 a/1 \"\"");
    check("[][[]]", "");
}

#[test]
fn ids_kind_and_flags() {
    check(
        r#"[{"traceId":"5AF7183FB1D4CF5F463ac35c9f6413ad","id":"352bff9a74ca9ad2","parentId":"6b221d5bc9e6496c",
        "kind":"CLIENT","name":"get","shared":true,"debug":true},
        {"traceId":"a","id":"1","parentId":null,"kind":null,"name":null,"shared":false,"debug":null}]"#,
        r#"1:1 5af7183fb1d4cf5f463ac35c9f6413ad/352bff9a74ca9ad2 <6b221d5bc9e6496c "get" Client {zipkin.debug=true} shared
           3:176 a/1 """#,
    );
    check(
        r#"{"traceId":"a","id":"1","parentId":"2","tags":{"astracer.parents":"3,04"}}
        {"traceId":"a","id":"1","tags":{"astracer.parents":"3,x"}}"#,
        r#"1:0 a/1 <2 <3 <4 ""
           2:83 a/1 "" {astracer.parents="3,x"}"#,
    );
    // A parent of zeros means no parent, as in Zipkin's own model.
    check(
        r#"{"traceId":"a","id":"1","parentId":"0000000000000000"}
        {"traceId":"a","id":"1","tags":{"astracer.parents":"3,0"}}"#,
        r#"1:0 a/1 ""
           2:63 a/1 "" {astracer.parents="3,0"}"#,
    );
}

#[test]
fn times_may_be_missing() {
    for (members, drawn) in [
        (r#""timestamp":3,"duration":2"#, " 3000..5000"),
        (r#""timestamp":3"#, " 3000..?"),
        (r#""timestamp":3,"duration":0"#, " 3000..3000"),
        (r#""timestamp":0,"duration":2"#, ""),
        (r#""timestamp":null,"duration":2"#, ""),
        (r#""timestamp":"3","duration":"2""#, " 3000..5000"),
    ] {
        check_span(members, drawn);
    }
}

#[test]
fn endpoints_are_a_resource_and_attributes() {
    for (members, drawn) in [
        (
            r#""localEndpoint":{"serviceName":"s","ipv4":"10.0.0.1","ipv6":"2001:db8::1","port":80}"#,
            r#" of {service.name="s" net.host.ip="10.0.0.1" zipkin.local.ipv6="2001:db8::1" net.host.port=80}"#,
        ),
        (r#""localEndpoint":{"ipv6":"::1"}"#, r#" of {net.host.ip="::1"}"#),
        (r#""localEndpoint":null,"remoteEndpoint":{}"#, ""),
        (
            r#""remoteEndpoint":{"serviceName":"r","ipv4":"10.0.0.2","ipv6":"::2","port":"81"}"#,
            r#" {peer.service="r" network.peer.address="10.0.0.2" zipkin.remote.ipv6="::2" network.peer.port=81}"#,
        ),
        // An explicit tag takes precedence over the endpoint.
        (
            r#""remoteEndpoint":{"serviceName":"r","port":81},"tags":{"peer.service":"t"}"#,
            r#" {peer.service="t" network.peer.port=81}"#,
        ),
        // The endpoint does not repeat the tags.
        (
            r#""kind":"CLIENT","remoteEndpoint":{"serviceName":"db"},"tags":{"db.name":"db"}"#,
            r#" Client {db.name="db"}"#,
        ),
        // On the server side, the server's address is not the peer's.
        (
            r#""kind":"SERVER","remoteEndpoint":{"serviceName":"h"},"tags":{"server.address":"h"}"#,
            r#" Server {server.address="h" peer.service="h"}"#,
        ),
        (
            r#""remoteEndpoint":{"ipv4":"10.0.0.2","port":81},"tags":{"network.peer.port":"81","network.peer.address":"10.0.0.2"}"#,
            r#" {network.peer.port=81 network.peer.address="10.0.0.2"}"#,
        ),
    ] {
        check_span(members, drawn);
    }
}

#[test]
fn tags_are_attributes_of_the_span_or_its_resource() {
    check_tags(r#""http.path":"/","x":"","host":"h""#, r#" {http.path="/" x="" host="h"}"#);
    check_tags(r#""n":1,"f":1.0,"b":true,"z":null,"l":[1]"#, " {n=1 f=1.0 b=true z=- l=[1]}");
    check_tags(
        r#""host.name":"h","a":"b","k8s.pod.name":"p","process.pid":"7","os.version":8"#,
        r#" {a="b" os.version=8} of {host.name="h" k8s.pod.name="p" process.pid="7"}"#,
    );
    check_tags(r#""otel.scope.name":"l","otel.library.name":"l","otel.library.version":"1""#, " by l@1");
    check_tags(
        r#""otel.library.name":"old","otel.scope.name":"new","otel.library.version":"1""#,
        r#" {otel.library.name="old"} by new@1"#,
    );
    check_tags(r#""w3c.tracestate":"a=b","otel.dropped_events_count":"3""#, " -3 events state=a=b");
    check_tags(r#""span.kind":"internal""#, " Internal");
    check_span(r#""kind":"CLIENT","tags":{"span.kind":"server"}"#, r#" Client {span.kind="server"}"#);
}

#[test]
fn equal_endpoints_are_one_resource() {
    let span =
        r#"{"traceId":"a","id":"1","localEndpoint":{"serviceName":"s"},"tags":{"x":"1","os.type":"linux"}}"#;
    let read = collect(read, format!("[{span},{}]", span.replace("\"x\":\"1\"", "\"x\":\"2\"")).as_bytes());
    assert!(Arc::ptr_eq(&read.spans[0].resource, &read.spans[1].resource));
    assert_eq!(read.spans[0].resource.attributes.len(), 2);
}

#[test]
fn status_comes_from_tags() {
    check_tags(r#""error":"refused""#, " Error(refused)");
    check_tags(r#""error":"""#, " Error()");
    check_tags(r#""error":"true""#, " Error()");
    check_tags(r#""error":true"#, " Error()");
    check_tags(r#""error":"false""#, r#" {error="false"}"#);
    check_tags(r#""otel.status_code":"ERROR","error":"refused""#, " Error(refused)");
    check_tags(r#""otel.status_code":"Error","otel.status_description":"d","error":"true""#, " Error(d)");
    check_tags(
        r#""otel.status_code":"ERROR","otel.status_description":"d","error":"e""#,
        r#" Error(d) {error="e"}"#,
    );
    check_tags(r#""otel.status_code":"OK","error":"e""#, r#" Ok() {error="e"}"#);
    check_tags(r#""otel.status_description":"d","error":"e""#, r#" Error(d) {error="e"}"#);
    check_tags(r#""otel.status_description":"d","error":"true""#, " Error(d)");
    check_tags(r#""otel.status_description":"d","error":"false""#, r#" Unset(d) {error="false"}"#);
}

#[test]
fn annotations_are_events() {
    let text = |value: &str| serde_json::to_string(value).unwrap();
    for (value, drawn) in [
        ("ws", r#""ws""#),
        (
            r#""cache": {"hit":true,"n":1,"f":1.0,"s":"x","l":[null,{"a":-1}]}"#,
            r#""cache" {hit=true n=1 f=1.0 s="x" l=[-  {a=-1}]}"#,
        ),
        (r#""e\"\n":{}"#, r#""e\"\n""#),
        (r#""e": {"otel.dropped_attributes_count":4}"#, r#""e" { -4}"#),
        (r#"e|{"a":"b|c"}|4"#, r#""e" {a="b|c" -4}"#),
        (r#""e": {broken}"#, r#""\"e\": {broken}""#),
        (r#""e": {"a":1} and more"#, r#""\"e\": {\"a\":1} and more""#),
        (r#""e": {"a":1} {"b":2}"#, r#""\"e\": {\"a\":1} {\"b\":2}""#),
        ("a|b|3", r#""a|b|3""#),
        ("", r#""""#),
    ] {
        check_span(
            &format!(r#""annotations":[{{"timestamp":2,"value":{}}}]"#, text(value)),
            &format!(" @2000 {drawn}"),
        );
    }
}

#[test]
fn links_are_read_as_the_collector_writes_them() {
    check_tags(
        r#""otlp.link.1":"b|3|a=b|{}|0","x":"y","otlp.link.0":"0a|02||{\"k\":\"v|w\"}|7","otlp.link.2":"b|3|{}|0""#,
        r#" {x="y" otlp.link.2="b|3|{}|0"} ->/2 {k="v|w" -7} ->b/3 state=a=b"#,
    );
}

#[test]
fn bad_spans_are_problems_at_their_byte_and_their_neighbours_come() {
    check(
        r#"[{"traceId":"a","id":"1"},
        {"traceId":"a"},{"id":"1"},{"traceId":"0","id":"1"},
        {"traceId":"x","id":"1"},
        {"traceId":"a","id":"11112222333344445"},
        {"traceId":"a","id":"1","kind":"BROKER"},
        {"traceId":"a","id":"1","timestamp":-1},
        {"traceId":"a","id":"1","timestamp":1e18},
        {"traceId":"a","id":"1","timestamp":1,"duration":9e99},
        {"traceId":"a","id":"1","localEndpoint":{"port":65536}},
        {"traceId":"a","id":"1","tags":[]},
        {"traceId":"a","id":"1","binaryAnnotations":[]},
        7,
        {"traceId":"a","id":"2"}]"#,
        r#"1:1 a/1 ""
           f:2 (byte 35): bad record: span without a traceId or an id
           f:2 (byte 51): bad record: span without a traceId or an id
           f:2 (byte 62): bad record: span without a traceId or an id
           f:3 (byte 107): bad record: invalid id
           f:4 (byte 150): bad record: invalid id
           f:5 (byte 180): a word or number without meaning, read as unset: span 0000000000000001
           5:180 a/1 ""
           f:6 (byte 266): bad record: expected microseconds since 1970
           f:7 (byte 315): bad record: expected microseconds since 1970
           f:8 (byte 379): bad record: the span's end is outside the years 1970 to 2554
           f:9 (byte 394): a word or number without meaning, read as unset: span 0000000000000001
           9:394 a/1 ""
           f:10 (byte 490): bad record: expected an object
           f:11 (byte 503): bad record: span in Zipkin's v1 format, which is not supported; Zipkin converts it: post it to /api/v1/spans, and get it from /api/v2/trace
           f:12 (byte 560): bad record: expected an object or a list
           13:571 a/2 """#,
    );
}

/// Zipkin's v1 format has the service in each annotation. Its spans without tags have no
/// `binaryAnnotations`.
#[test]
fn spans_of_the_older_format_are_told_from_others() {
    let annotations = r#""annotations":[{"timestamp":1,"value":"cs","endpoint":{"serviceName":"a"}}]"#;
    check(
        format!(r#"[{{"traceId":"a","id":"1","name":"get","timestamp":1,"duration":5,{annotations}}}]"#),
        "f:1 (byte 1): bad record: span in Zipkin's v1 format, which is not supported; Zipkin converts it: post it to /api/v1/spans, and get it from /api/v2/trace",
    );
    // Members that only the newer format has take precedence, as for Zipkin itself.
    check_span(
        &format!(r#"{annotations},"localEndpoint":{{"serviceName":"b"}}"#),
        r#" @1000 "cs" of {service.name="b"}"#,
    );
    check_span(&format!(r#"{annotations},"tags":{{"k":"v"}}"#), r#" {k="v"} @1000 "cs""#);
    check_span(r#""annotations":[{"timestamp":1,"value":"x","endpoint":null}]"#, r#" @1000 "x""#);
}

#[test]
fn a_list_with_a_span_a_line_is_read_like_any_other() {
    let lines: [&[u8]; 10] = [
        br#"[{"traceId":"a","id":"1","name":"first"},"#,
        br#"{"traceId":"a","id":"x"},"#,
        br#"{"traceId":"a","id":"2"},{"traceId":"a","id":"3"},"#,
        b"{\"traceId\":\"a\",\"id\":\"4\",\"name\":\"\xff\"},\r",
        b"{\"traceId\":\"a\",\"id\":\"5\",\"unknown\":\"\xfe\"},\r",
        br#"{"traceId":"a","#,
        br#" "id":"6"},"#,
        br#"{"traceId":"a","id":"7","timestamp":01},"#,
        br#"{"traceId":"a","id":"8","timestamp":7} "#,
        br#",{"traceId":"a","id":"9"}"#,
    ];
    let text = [&lines.join(&b'\n')[..], b"\n]\n"].concat();
    let expected = r#"1:1 a/1 "first"
        f:2 (byte 62): bad record: invalid id
        3:68 a/2 ""
        3:93 a/3 ""
        f:4 (byte 119): text that is not Unicode, U+FFFD replaces it: span 0000000000000004
        4:119 a/4 "�"
        5:157 a/5 ""
        6:198 a/6 ""
        f:8 (byte 262): bad record: invalid number
        9:267 a/8 "" 7000..?
        10:308 a/9 """#;
    check(&text, expected);
    // The records are the file's bytes, including the invalid ones.
    assert_eq!(collect(read, &text).records[4], lines[4][..lines[4].len() - 2]);
    // Without line ends the file is read as a stream, with the same spans.
    let plain = text.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect::<Vec<_>>();
    let spans = |text: &[u8]| collect(read, text).spans;
    assert_eq!(spans(&plain), spans(&text));
}

#[test]
fn of_a_file_that_is_cut_off_come_the_spans_before_the_cut() {
    let file = r#"[{"traceId":"a","id":"1"},{"traceId":"a","id":"2"}]"#;
    for end in 1..file.len() {
        let read = collect(read, &file.as_bytes()[..end]);
        assert_eq!(read.problems.len(), 1, "{end}: {}", read.drawing);
        assert!(read.problems[0].contains("ends too early"), "{end}: {}", read.drawing);
        assert_eq!(
            read.spans.len(),
            usize::from(end >= 25) + usize::from(end >= 50),
            "{end}: {}",
            read.drawing
        );
    }
}

#[test]
fn deep_values_are_a_limit_and_deep_members_that_no_one_knows_are_nothing() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let input = format!(
        r#"[{{"traceId":"a","id":"1","tags":{{"k":{deep}}}}},{{"traceId":"a","id":"2","x":{deep}}}]"#
    );
    let read = collect(read, input.as_bytes());
    // The list, the span and its tags are three levels of the hundred.
    assert_eq!(read.problems, ["f:1 (byte 134): is over a limit: nested too deeply"]);
    assert_eq!(read.spans.len(), 1);
}
