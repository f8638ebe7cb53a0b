//! Golden executions, whose answers another program computed by brute force.

use std::collections::BTreeMap;

use astracer_queries::{OutputOptions, Plan, Program, Rewrite, Value};
use astracer_testing::size;
use serde_json::Value as Json;

use crate::run::{CARRIES, Event, multiset, run};

fn executions() -> Vec<Json> {
    let text = astracer_testing::golden(env!("CARGO_MANIFEST_DIR"), "join.jsonl");
    let text = text.expect("the folder of ASTRACER_GOLDENS has a join.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn value(json: &Json) -> Value {
    match json {
        Json::String(text) => Value::from(&**text),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::from(number),
            None => Value::from(number.as_f64().unwrap()),
        },
        other => panic!("{other}"),
    }
}

fn events(execution: &Json) -> Vec<Event> {
    let mut requests = Vec::new();
    let events = execution["events"].as_array().unwrap().iter().map(|event| {
        let request = event["request"].as_str().unwrap().to_owned();
        let known = requests.iter().position(|known| *known == request);
        Event {
            tracepoint: event["tp"].as_str().unwrap_or_default().to_owned(),
            request: known.unwrap_or_else(|| {
                requests.push(request);
                requests.len() - 1
            }),
            parents: event["parents"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap() as usize)
                .collect(),
            fields: event["vars"]
                .as_object()
                .map(|fields| fields.iter().map(|(name, json)| (name.clone(), value(json))).collect())
                .unwrap_or_default(),
            ..Event::default()
        }
    });
    events.collect()
}

/// The plans of each query, plain and rewritten, also those that travelled as bytes.
fn plans() -> BTreeMap<String, Vec<Plan>> {
    let mut texts: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../data/queries.json")).unwrap();
    let sub = texts.remove("SUB").unwrap();
    if let Some(text) = texts.get_mut("E10") {
        *text = format!("SUB: {sub}\n\n{text}");
    }
    assert_eq!(texts.len(), 19);
    let rewrites = ["none", "all", "columns", "filters", "groups", "columns,groups"];
    let compile = |text: &str| {
        let program = Program::parse(text).unwrap_or_else(|faults| panic!("{text}\n{}", faults[0]));
        let plans = rewrites.map(|rewrite| {
            let plan = program.plan(rewrite.parse().unwrap()).unwrap();
            Plan::decode(&plan.encode()).unwrap()
        });
        let mut plans = Vec::from(plans);
        plans.push(program.plan(Rewrite::ALL).unwrap());
        plans
    };
    texts.iter().map(|(name, text)| (name.clone(), compile(text))).collect()
}

#[test]
fn every_answer_is_the_causal_one() {
    let plans = plans();
    let executions = executions();
    let mut compared = 0;
    for (number, execution) in executions.iter().enumerate() {
        let events = events(execution);
        for (query, plans) in &plans {
            let expected: Vec<Vec<Value>> = execution["expected"][query]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row.as_array().unwrap().iter().map(value).collect())
                .collect();
            let expected = multiset(&expected);
            let all = plans.iter().flat_map(|plan| CARRIES.map(|carry| (plan, carry)));
            for (index, (plan, carry)) in all.enumerate() {
                // Each query meets each plan and carry; each pair of them in the full size.
                if (index + number) % size(7, 1) as usize != 0 {
                    continue;
                }
                let table = run(plan, &events, carry, OutputOptions::default()).finish();
                let case = &execution["case"];
                assert_eq!(multiset(&table.rows), expected, "{case} {query} {carry:?}\n{plan}");
                assert_eq!((table.incomplete_rows, table.lost.len()), (0, 0), "{case} {query}");
                compared += 1;
            }
        }
    }
    println!("{compared} answers");
    assert!(compared >= executions.len() * 19 * 3);
}
