//! The rule `events` compared with Brown University's tool, event by event, on real executions of
//! Hadoop.

use std::sync::Arc;

use astracer_critical_path::{Analyser, Method, Rule, Skew};
use astracer_formats::Limits;
use astracer_model::Format;
use astracer_model::Sink as _;
use astracer_recording::recording::{Intake, Keep};
use serde_json::Value;

use crate::goldens;

#[test]
fn paths_are_those_of_the_tool() {
    let Some(expected) = goldens::json("xtrace/criticalpath_expected.json") else { return };
    let cases: Vec<_> = expected
        .as_object()
        .expect("an object")
        .iter()
        .filter_map(|(name, expected)| {
            let text = goldens::text(&format!("xtrace/{name}.json"))?;
            Some((name.clone(), check(&text, expected)))
        })
        .collect();
    goldens::all_agree("xtrace", &cases);
}

fn check(text: &str, expected: &Value) -> Result<(), String> {
    let mut intake = Intake::new(Keep::default());
    let file: Arc<str> = "golden".into();
    intake.file(&file, Format::XTraceJson.into());
    astracer_formats::read(Format::XTraceJson, &mut text.as_bytes(), &file, &Limits::default(), &mut intake);
    let recording = intake.finish();
    let trace = recording.traces().next().expect("a trace");
    let mut analyser = Analyser::new(Method { rule: Rule::Events, skew: Skew::Shift });
    let traced = analyser.trace(&recording, trace);
    let segments = &traced.path.segments;
    let id = |node: u32| {
        let span =
            trace.spans().find(|span| span.index() == traced.index(node)).expect("a span of the trace");
        span.id().to_string().to_uppercase()
    };
    let found: Vec<String> = segments.iter().rev().map(|segment| id(segment.node)).collect();
    let path: Vec<String> = serde_json::from_value(expected["path"].clone()).expect("a path");
    if found != path {
        return Err(format!("{found:?}, expected {path:?}"));
    }
    let (start, end) = (segments.first().expect("a segment").start, segments.last().expect("a segment").end);
    if !traced.path.tiles(start, end) {
        return Err("the segments do not tile the path".to_owned());
    }
    // The tool's time is in seconds or milliseconds, like the file's, with the rounding of its
    // floats.
    let (time, unit) = ((end - start) as f64, if text.contains("\"1364") { 1e9 } else { 1e6 });
    let expected = expected["spanTime"].as_f64().expect("a time");
    if (time / unit - expected).abs() < 1e-3 {
        Ok(())
    } else {
        Err(format!("{time} ns, expected {expected}"))
    }
}
