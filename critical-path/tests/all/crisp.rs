//! The rule `crisp` compared with CRISP's fixtures and its own output for them.

use std::collections::BTreeMap;

use astracer_critical_path::{Analyser, Method, Rule, Skew};
use astracer_recording::recording::Keep;
use serde_json::Value;

use crate::goldens;

#[test]
fn exclusive_times_are_those_of_crisp() {
    let Some(expected) = goldens::json("critical_path/crisp_fixture_out.json") else { return };
    let cases: Vec<_> = expected
        .as_object()
        .expect("an object")
        .iter()
        .filter_map(|(name, expected)| {
            let trace = goldens::json(&format!("critical_path/crisp_test_cases/{name}"))?;
            Some((name.clone(), check(trace["data"][0].clone(), expected)))
        })
        .collect();
    goldens::all_agree("crisp", &cases);
}

fn check(trace: Value, expected: &Value) -> Result<(), String> {
    let (recording, ids) = goldens::jaeger(trace, Keep::default());
    let trace = recording.traces().next().expect("a trace");
    let root = trace.root();
    let (start, end) = (root.start().0, root.end().map_or(0, |end| end.0));
    let mut analyser = Analyser::new(Method { rule: Rule::Crisp, skew: Skew::Clip });
    let traced = analyser.trace(&recording, trace);
    if !traced.path.tiles(start, end) {
        return Err(format!("the segments do not tile the root: {:?}", traced.path.segments));
    }
    let found: BTreeMap<String, u64> = traced
        .path
        .exclusive
        .iter()
        .map(|amount| (ids[traced.index(amount.node) as usize].clone(), amount.ns / 1000))
        .collect();
    let expected: BTreeMap<String, u64> = expected["spanExclusive"]
        .as_object()
        .expect("times by span")
        .iter()
        .map(|(id, time)| (id.clone(), time.as_u64().expect("a time")))
        .collect();
    if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) }
}
