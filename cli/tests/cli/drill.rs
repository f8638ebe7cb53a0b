//! `drill` between a load and a real receiver.

use serde_json::Value;

use crate::options::{Codes, REFUSED};
use crate::wire::Receiver;
use crate::{failure, run, success};

const DRILL: &[&str] = &["drill", "--forward", "otlp://127.0.0.1:1"];

pub(crate) const OPTIONS: &[(&[&str], &str, Codes)] =
    &[(&["drill"], "--forward", REFUSED), (DRILL, "--seconds", REFUSED), (DRILL, "--rate", REFUSED)];

/// Over gRPC and HTTP, with a server that takes everything: each span arrives, whatever the bad
/// server does, and the receiver itself has as many.
#[test]
fn every_span_of_a_drill_arrives() {
    for scheme in ["otlp", "otlp+http"] {
        let receiver = Receiver::start(&format!("drilled-{scheme}"), &[]);
        let url = format!("{scheme}://{}", receiver.address);
        let drilled = success(&run(&["drill", "--forward", &url, "--seconds", "2", "--json"]));
        let drilled: Value = serde_json::from_str(&drilled).expect("JSON");
        let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
        let rows = drilled["faults"].as_array().expect("rows");
        assert_eq!(rows.len(), 7);
        for nothing in ["rejected", "lost", "waiting", "unaccounted"] {
            assert_eq!(drilled[nothing], 0, "{nothing} {drilled}");
        }
        let mut all = 0;
        for row in rows {
            assert!(number(row, "made") > 0 && row["made"] == row["arrived"], "{row}");
            assert_eq!(row["missing"], 0, "{row}");
            all += number(row, "arrived");
        }
        let of = |fault: &str| rows.iter().find(|row| row["fault"] == fault).expect(fault);
        // Requests whose answers were lost are sent again. In so short a drill, a fault lasts into
        // the next.
        let twice: u64 = rows.iter().map(|row| number(row, "twice")).sum();
        assert!(
            number(of("503"), "waited") > 0 && number(of("none"), "twice") == 0 && twice > 0,
            "{drilled}"
        );
        let (received, _folder) = receiver.stop();
        assert!(number(&received, "spans") > all, "{received}");
        assert_eq!(received["refused"], serde_json::json!([]));
    }
}

/// Nothing listens on port 1 (tcpmux), and a full receiver asks senders to come back later.
#[test]
fn a_drill_without_a_server_that_takes_spans_fails() {
    let drill = |url: &str| run(&["drill", "--forward", url, "--seconds", "2"]);
    failure(&drill("otlp://127.0.0.1:1"), 1, &["accepted nothing", "no server listens on this port"]);
    let receiver = Receiver::start("drilled-full", &["--total-max", "1"]);
    let url = format!("otlp://{}", receiver.address);
    failure(&drill(&url), 1, &["accepted nothing", "the recording is full"]);
    receiver.stop();
}
