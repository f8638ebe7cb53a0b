//! Zipkin's JSON compared with serde_json writing the same JSON from structs that hold only its
//! text and numbers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use astracer_formats::zipkin_json::write_span;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::{BATCH, ROUNDS, median, spans};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<String>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    timestamp: u64,
    duration: u64,
    local_endpoint: Endpoint,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<Annotation>,
    tags: Tags,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    service_name: String,
}

#[derive(Deserialize, Serialize)]
struct Annotation {
    timestamp: u64,
    value: String,
}

/// A map as a list, the cheapest form to write.
#[derive(Deserialize)]
#[serde(from = "std::collections::BTreeMap<String, String>")]
struct Tags(Vec<(String, String)>);

impl From<std::collections::BTreeMap<String, String>> for Tags {
    fn from(tags: std::collections::BTreeMap<String, String>) -> Self {
        Tags(tags.into_iter().collect())
    }
}

impl Serialize for Tags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const TURNS: usize = 200;

/// The time to write a batch, in ns per span.
fn timed(mut write: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut out = Vec::with_capacity(1 << 20);
    let start = thread_time();
    for _ in 0..TURNS {
        out.clear();
        write(&mut out);
        black_box(&out);
    }
    (thread_time() - start).as_nanos() as f64 / (TURNS * BATCH) as f64
}

pub(crate) fn compare() {
    let batch = spans::batches(BATCH, 1).remove(0);
    let resource = Arc::new(astracer_exporters::resource(&spans::resource()));
    let model = astracer_exporters::spans(&batch, &resource);
    let write_all = |out: &mut Vec<u8>| {
        for (index, span) in model.iter().enumerate() {
            out.push(if index == 0 { b'[' } else { b',' });
            write_span(out, span);
        }
        out.push(b']');
    };
    let mut ours = Vec::new();
    write_all(&mut ours);
    let bare: Vec<Span> = serde_json::from_slice(&ours).expect("our JSON");
    let same = serde_json::to_vec(&bare).expect("JSON");
    assert_eq!(same.len(), ours.len(), "the two write the same");
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(timed(|out| serde_json::to_writer(out, &bare).expect("JSON")));
        times[1].push(timed(write_all));
        times[2].push(timed(|out| {
            for span in &astracer_exporters::spans(&batch, &resource) {
                write_span(out, span);
            }
        }));
    }
    println!("{:<36} {:>10} {:>12} {:>8}", "zipkin JSON", "ns/span", "bytes/span", "ratio");
    let names = ["serde_json, from ready structs", "ours, from the model's spans", "ours, from SpanData"];
    for (name, own) in names.iter().zip(&times) {
        let ratio = median(own.iter().zip(&times[0]).map(|(own, bare)| bare / own).collect());
        println!("{name:<36} {:>10.0} {:>12} {ratio:>7.2}x", median(own.clone()), ours.len() / BATCH);
    }
}
