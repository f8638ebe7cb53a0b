//! The targets by name.

mod baggage;
mod critical_path;
mod events;
mod instances;
mod logs;
mod queries;
mod reader;
mod recording;
mod samplers;
mod source;

use astracer_model::Format;

/// A named function that takes any bytes and panics if a guarantee is broken.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target, of its program and of its folder of seeds.
    pub name: &'static str,
    /// Runs the target on one input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const ALL: &[Target] = &[
    Target { name: "otlp_json", run: |data| reader::check(Format::OtlpJson, data) },
    Target { name: "otlp_proto", run: |data| reader::check(Format::OtlpProto, data) },
    Target { name: "jaeger_json", run: |data| reader::check(Format::JaegerJson, data) },
    Target { name: "zipkin_json", run: |data| reader::check(Format::ZipkinJson, data) },
    Target { name: "htrace", run: |data| reader::check(Format::HTrace, data) },
    Target { name: "nezha_csv", run: |data| reader::check(Format::NezhaCsv, data) },
    Target { name: "xtrace_json", run: |data| reader::check(Format::XTraceJson, data) },
    Target { name: "log_lines", run: logs::check_lines },
    Target { name: "otlp_logs", run: logs::check_otlp },
    Target { name: "log_csv", run: logs::check_csv },
    Target { name: "strace", run: events::check_strace },
    Target { name: "falcon_json", run: events::check_falcon },
    Target { name: "vector_clocks", run: events::check_clocks },
    Target { name: "source", run: source::check },
    Target { name: "joining", run: recording::check },
    Target { name: "parameters", run: samplers::check_parameters },
    Target { name: "baseline", run: samplers::check_baseline },
    Target { name: "sampler_config", run: samplers::check_config },
    Target { name: "tracestate", run: samplers::check_tracestate },
    Target { name: "name_template", run: samplers::check_name },
    Target { name: "instances", run: instances::check },
    Target { name: "query_language", run: queries::check_language },
    Target { name: "query_advice", run: queries::check_advice },
    Target { name: "query_bag", run: queries::check_bag },
    Target { name: "baggage_message", run: baggage::check_message },
    Target { name: "cpath_note", run: critical_path::check_note },
    Target { name: "baggage_header", run: baggage::check_header },
    Target { name: "w3c_baggage", run: baggage::check_w3c },
];

/// The seeds of advice and bags: their paths among all seeds, and their bytes.
pub fn query_seeds() -> Vec<(&'static str, Vec<u8>)> {
    queries::seeds()
}

/// The target of this name.
///
/// # Panics
///
/// If there is no such target. Names come from programs and tests, not from users.
pub fn named(name: &str) -> Target {
    *ALL.iter().find(|target| target.name == name).expect("a target of this name is in the list")
}
