//! The rule `jaeger` compared with the cases of Jaeger's user interface.

use astracer_critical_path::{Analyser, Method, Rule, Skew};
use astracer_recording::recording::Keep;
use serde_json::Value;

use crate::goldens;

#[test]
fn sections_are_those_of_jaeger() {
    let Some(cases) = goldens::json("critical_path/jaeger_ui_cases.json") else { return };
    let cases: Vec<_> = cases.as_array().expect("a list").iter().map(check).collect();
    goldens::all_agree("jaeger", &cases);
}

fn check(case: &Value) -> (String, Result<(), String>) {
    let (recording, ids) = goldens::jaeger(case["trace"].clone(), Keep::default());
    let trace = recording.traces().next().expect("a trace");
    let mut analyser = Analyser::new(Method { rule: Rule::Jaeger, skew: Skew::Clip });
    let traced = analyser.trace(&recording, trace);
    let found: Vec<(String, u64, u64)> = traced
        .path
        .segments
        .iter()
        .rev()
        .map(|segment| {
            let index = traced.index(segment.node) as usize;
            (ids[index].clone(), segment.start / 1000, segment.end / 1000)
        })
        .collect();
    let expected: Vec<(String, u64, u64)> = case["criticalPathSections"]
        .as_array()
        .expect("sections")
        .iter()
        .map(|section| {
            let time = |key: &str| section[key].as_u64().expect("a time");
            (section["spanID"].as_str().expect("an id").to_owned(), time("sectionStart"), time("sectionEnd"))
        })
        .collect();
    let result = if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) };
    (case["case"].as_str().unwrap_or("?").to_owned(), result)
}
