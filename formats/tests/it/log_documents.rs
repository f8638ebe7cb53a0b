//! Logs in JSON documents, as the clients of services write them. The times are those of `date`.

use astracer_formats::logs;
use astracer_model::LogFormat;

use crate::collected::Collected;

const START: u64 = 1_778_749_200_000_000_000; // date --date=2026-05-14T09:00:00Z +%s

fn read(text: &str) -> Vec<(u64, String)> {
    let format = logs::detect(text.as_bytes(), &logs::Options::default());
    assert_eq!(format, Some(LogFormat::JsonDocuments), "{text}");
    let collected = Collected::from_logs(LogFormat::JsonDocuments, text);
    assert_eq!(collected.problems, [], "{text}");
    collected.assert_places(text.as_bytes());
    let times = collected.logs.iter().map(|log| log.time.map_or(0, |time| time.0 - START));
    let severities = collected.logs.iter().map(|log| format!("{} {}", log.severity.word(), log.text()));
    times.zip(severities).collect()
}

fn expected(records: &[(u64, &str)]) -> Vec<(u64, String)> {
    records.iter().map(|&(time, text)| (time, text.to_owned())).collect()
}

#[test]
fn lists_of_records_are_read() {
    for text in [
        // gcloud logging read --format json
        r#"[
  {"insertId": "1", "timestamp": "2026-05-14T09:00:00.5Z", "severity": "ERROR", "textPayload": "full"},
  {
    "timestamp": "2026-05-14T09:00:01Z",
    "severity": "INFO",
    "jsonPayload": {"message": "ok"}
  }
]
"#,
        // aws logs filter-log-events, and Azure's export
        r#"{
    "events": [
        {"timestamp": 1778749200500, "level": "ERROR", "message": "full"},
        {"timestamp": 1778749201000, "level": "INFO", "message": "ok"}
    ],
    "searchedLogStreams": []
}"#,
        r#"{"records":[{"time":"2026-05-14T09:00:00.5Z","level":"ERROR","message":"full"}]}
{"records":[{"time":"2026-05-14T09:00:01Z","level":"INFO","message":"ok"}]}"#,
        // journalctl -o json-pretty
        "{\n\t\"__REALTIME_TIMESTAMP\" : \"1778749200500000\",\n\t\"MESSAGE\" : \"full\",\n\t\"PRIORITY\" : \"3\"\n}\n\
         {\n\t\"__REALTIME_TIMESTAMP\" : \"1778749201000000\",\n\t\"MESSAGE\" : \"ok\",\n\t\"PRIORITY\" : \"6\"\n}\n",
    ] {
        let records = [(500_000_000, "error full"), (1_000_000_000, "info ok")];
        assert_eq!(read(text), expected(&records), "{text}");
    }
}

#[test]
fn streams_of_loki_are_read() {
    let streams = r#"[{"stream":{"app":"shop","pod":"web-1"},"values":[["1778749200000000007","a"],["1778749200000000009","b",{"level":"warn"}]]},
{"values":[["1778749200000000008","c"]],"stream":{"level":"error"}}]"#;
    let push = format!(r#"{{"streams":{streams}}}"#);
    let answer = format!(r#"{{"status":"success","data":{{"resultType":"streams","result":{streams}}}}}"#);
    for text in [push, answer] {
        assert_eq!(read(&text), expected(&[(7, " a"), (9, "warn b"), (8, "error c")]));
    }
    let text =
        r#"{"streams":[{"stream":{"app":"shop","pod":"web-1"},"values":[["1778749200000000007","a"]]}]}"#;
    let collected = Collected::from_logs(LogFormat::JsonDocuments, text);
    let resource = &collected.logs[0].resource;
    assert_eq!(resource.service_name(), "shop");
    assert!(resource.attributes.iter().any(|own| own.key == "k8s.pod.name"), "{resource:?}");
}

/// Lines of JSON stay lines, and documents without times are no logs.
#[test]
fn other_documents_are_none() {
    for (text, format) in [
        ("{\"time\":5,\"msg\":\"a\",\"records\":[{\"time\":5,\"msg\":\"b\"}]}\n", Some(LogFormat::JsonLines)),
        ("[{\"name\":\"x\",\"n\":1}]", None),
        ("{\n  \"name\": \"x\",\n  \"version\": \"1.0\"\n}\n", None),
        ("{\"events\":[]}", None),
        ("[", None),
    ] {
        assert_eq!(logs::detect(text.as_bytes(), &logs::Options::default()), format, "{text}");
    }
}
