//! Expected results: the files beside this one, or those in a folder of your own.
//!
//! `ASTRACER_GOLDENS=folder cargo test -p astracer-critical-path --test all -- --nocapture` checks cases
//! of your own, in files with the same names: `cpath/cases.jsonl`,
//! `critical_path/jaeger_ui_cases.json`, `critical_path/crisp_test_cases/1.json` and so on with
//! `critical_path/crisp_fixture_out.json`, and `xtrace/criticalpath_expected.json` with the traces
//! that it names. Each file may be compressed (`.xz`, `.gz`), and may be in a subfolder `oracles`.
//! Files that the folder does not contain are skipped; one test fails if it contains none.

use std::sync::Arc;

use astracer_formats::Limits;
use astracer_model::{Format, SpanId};
use astracer_recording::recording::{Intake, Keep, Recording};
pub(crate) use astracer_testing::all_agree;
use serde_json::{Value, json};

/// A file's text; `None`, with a note, if the user's folder does not contain it.
pub(crate) fn text(name: &str) -> Option<String> {
    astracer_testing::golden(env!("CARGO_MANIFEST_DIR"), name)
}

/// A file's JSON.
pub(crate) fn json(name: &str) -> Option<Value> {
    Some(serde_json::from_str(&text(name)?).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// A folder without any golden file would make a run that checks nothing.
#[test]
fn there_is_something_to_check() {
    let names = [
        "cpath/cases.jsonl",
        "critical_path/jaeger_ui_cases.json",
        "critical_path/crisp_fixture_out.json",
        "xtrace/criticalpath_expected.json",
    ];
    let (folder, _) = astracer_testing::golden_folder(env!("CARGO_MANIFEST_DIR"));
    assert!(names.iter().any(|name| text(name).is_some()), "no goldens in {}", folder.display());
}

/// Reads one Jaeger trace whose ids may be any text. Span `n` of the list gets the id `n + 1`.
pub(crate) fn jaeger(mut trace: Value, keep: Keep) -> (Recording, Vec<String>) {
    let spans = trace["spans"].as_array_mut().expect("spans");
    let ids: Vec<String> = spans.iter().map(|span| text_of(&span["spanID"])).collect();
    let number = |id: &Value| {
        let place = ids.iter().position(|own| *own == text_of(id));
        json!(SpanId(place.map_or(0xdead, |place| place as u64 + 1)).to_string())
    };
    for span in spans.iter_mut() {
        span["spanID"] = number(&span["spanID"]);
        span["traceID"] = json!("1");
        for reference in span["references"].as_array_mut().into_iter().flatten() {
            reference["spanID"] = number(&reference["spanID"]);
            reference["traceID"] = json!("1");
        }
    }
    trace["traceID"] = json!("1");
    let text = json!({ "data": [trace] }).to_string();
    let mut intake = Intake::new(keep);
    let file: Arc<str> = "golden".into();
    astracer_formats::read(Format::JaegerJson, &mut text.as_bytes(), &file, &Limits::default(), &mut intake);
    (intake.finish(), ids)
}

fn text_of(value: &Value) -> String {
    value.as_str().expect("an id is text").to_owned()
}
