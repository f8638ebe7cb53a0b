//! Golden sequences, which the reference implementation ran: contents, hooks and canonical bytes.
//!
//! `ASTRACER_GOLDENS=folder cargo test -p astracer-baggage --test all goldens -- --nocapture`
//! checks the sequences of that folder's `baggage.jsonl`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use astracer_baggage::{Application, Applications, Baggage, Namespace, Registry, View};
use astracer_testing::{golden, lines_agree};
use serde_json::{Value, json};

/// Where a message repeats a namespace, the reference keeps the last one; we unite them.
const UNITED: [(&str, &str); 2] = [
    ("wire-duplicate_namespace_other_keys", r#"{"58":{"6b":["76"],"6c":["77"]}}"#),
    ("wire-duplicate_namespace_same_key", r#"{"58":{"6b":["76","77"]}}"#),
];

#[test]
fn goldens() {
    let Some(text) = golden(env!("CARGO_MANIFEST_DIR"), "baggage/baggage.jsonl") else {
        let paths = crate::cpath::text();
        assert!(paths.is_some(), "the folder of ASTRACER_GOLDENS has no baggage.jsonl and no cases.jsonl");
        return;
    };
    lines_agree("baggage/baggage.jsonl", &text, |case| check(case, case["case"].as_str().unwrap()));
}

/// A line with another content, hook or byte fails.
#[test]
fn falsified_goldens_fail() {
    let text = golden(env!("CARGO_MANIFEST_DIR"), "baggage/baggage.jsonl").unwrap_or_default();
    let mut falsified = 0;
    for line in text.lines().filter(|line| line.contains("\"canonical\":\"0a")).take(20) {
        let case: Value = serde_json::from_str(line).unwrap();
        for (field, wrong) in [
            ("after", json!({ "00": { "00": ["00"] } })),
            ("hooks", json!(["preSerialize", "preSplit"])),
            ("canonical", json!("0a00")),
        ] {
            let mut case = case.clone();
            let results = case["results"].as_array_mut().unwrap();
            let serialized = results.iter_mut().find(|result| result["canonical"].is_string()).unwrap();
            serialized[field] = wrong;
            assert!(check(&case, "falsified").is_err(), "{field}: {case}");
            falsified += 1;
        }
    }
    assert!(falsified > 0 || text.is_empty());
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<&'static str>>>);

impl Recorder {
    fn note(&self, hook: &'static str) {
        self.0.lock().unwrap().push(hook);
    }
}

impl Application for Recorder {
    fn pre_split(&self, _: &mut View<'_>) {
        self.note("preSplit");
    }
    fn post_split(&self, _: &mut View<'_>, _: &mut View<'_>) {
        self.note("postSplit");
    }
    fn pre_merge(&self, _: &mut View<'_>, _: &mut View<'_>) {
        self.note("preJoin");
    }
    fn post_merge(&self, _: &mut View<'_>) {
        self.note("postJoin");
    }
    fn pre_serialize(&self, _: &mut View<'_>) {
        self.note("preSerialize");
    }
    fn post_deserialize(&self, _: &mut View<'_>) {
        self.note("postDeserialize");
    }
}

struct Run {
    registry: Registry,
    tokens: HashMap<Vec<u8>, Namespace>,
    applications: Applications,
    baggage: HashMap<String, Baggage>,
}

impl Run {
    fn token(&mut self, name: &[u8]) -> Namespace {
        let registry = &self.registry;
        self.tokens.entry(name.to_vec()).or_insert_with(|| registry.register(name, 0).unwrap()).clone()
    }

    fn dump(&mut self, name: &str) -> Value {
        let Some(baggage) = self.baggage.remove(name) else { return Value::Null };
        let mut all = BTreeMap::new();
        for namespace in baggage.namespaces() {
            let token = self.token(namespace);
            let slot = |key: &[u8]| (hex(key), baggage.get(&token, key).map(hex).collect::<Vec<_>>());
            all.insert(hex(namespace), baggage.keys(&token).map(slot).collect::<BTreeMap<_, _>>());
        }
        self.baggage.insert(name.to_owned(), baggage);
        json!(all)
    }
}

fn check(case: &Value, name: &str) -> Result<(), String> {
    let registry = Registry::default();
    let recorder = Recorder::default();
    let applications = Applications::new(&registry).with(Vec::new(), recorder.clone());
    let mut run = Run { registry, tokens: HashMap::new(), applications, baggage: HashMap::new() };
    let pairs = case["ops"].as_array().unwrap().iter().zip(case["results"].as_array().unwrap());
    for (step, (op, expected)) in pairs.enumerate() {
        let mut expected = expected.clone();
        if let Some((_, united)) = UNITED.iter().find(|(united, _)| *united == name) {
            expected["after"] = serde_json::from_str(united).unwrap();
        }
        let actual = apply(&mut run, op);
        let hooks = std::mem::take(&mut *recorder.0.lock().unwrap());
        let differ = |what: &str, actual: Value| {
            let expected = &expected[what];
            (actual != *expected).then(|| format!("step {step}, {op}: {what} is {actual}, not {expected}"))
        };
        let on = op["b"].as_str().unwrap();
        let after = run.dump(on);
        let hooks = if hooks.is_empty() { Value::Null } else { json!(hooks) };
        let mut differences = vec![differ("after", after), differ("hooks", hooks)];
        for (what, actual) in actual {
            differences.push(differ(what, actual));
        }
        if let Some(difference) = differences.into_iter().flatten().next() {
            return Err(difference);
        }
    }
    Ok(())
}

/// Runs one operation. Returns the fields of its result other than contents and hooks.
fn apply(run: &mut Run, op: &Value) -> Vec<(&'static str, Value)> {
    let text = |field: &str| op[field].as_str().unwrap_or_default();
    let on = text("b").to_owned();
    let mut baggage = run.baggage.remove(&on).unwrap_or_default();
    let namespace = run.token(&bytes(text("ns")));
    let key = bytes(text("key"));
    let mut fields = Vec::new();
    match text("op") {
        "new" => {}
        "add" => baggage.add(&namespace, &key, &bytes(text("value"))),
        "replace" => {
            let values: Vec<Vec<u8>> =
                op["values"].as_array().unwrap().iter().map(|value| bytes(value.as_str().unwrap())).collect();
            baggage.replace(&namespace, &key, values.iter().map(|value| &**value));
        }
        "remove" => baggage.remove(&namespace, &key),
        "remove_namespace" => baggage.clear(&namespace),
        "move" => {
            let to = run.token(&bytes(text("to")));
            baggage.move_to(&namespace, &to);
        }
        "get" => {
            fields.push(("result", json!(baggage.get(&namespace, &key).map(hex).collect::<Vec<_>>())));
        }
        "contains" => fields.push(("result", json!(baggage.has(&namespace, &key)))),
        "keys" => {
            fields.push(("result", json!(baggage.keys(&namespace).map(hex).collect::<Vec<_>>())));
        }
        "namespaces" => {
            fields.push(("result", json!(baggage.namespaces().map(hex).collect::<Vec<_>>())));
        }
        "split" => {
            let branch = run.applications.split(&mut baggage, 0);
            run.baggage.insert(text("into").to_owned(), branch);
            fields.push(("after_into", run.dump(text("into"))));
        }
        "merge" => {
            let branch = run.baggage.remove(text("with")).unwrap();
            run.applications.merge(&mut baggage, branch, 0);
        }
        "serialize" => {
            let message = run.applications.serialize(&mut baggage, usize::MAX, 0);
            let again = Baggage::deserialize(&message, &run.registry).unwrap();
            assert_eq!(again.serialize(usize::MAX, &run.registry), message);
            fields.push(("canonical", json!(hex(&message))));
        }
        "deserialize" => {
            let read = run.applications.deserialize(&bytes(text("bytes")), 0);
            let is_null = read.as_ref().map_or(true, Baggage::is_empty);
            fields.push(("null", json!(is_null)));
            if is_null {
                return fields;
            }
            baggage = read.unwrap();
        }
        other => panic!("unknown operation {other}"),
    }
    run.baggage.insert(on, baggage);
    fields
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap()).collect()
}
