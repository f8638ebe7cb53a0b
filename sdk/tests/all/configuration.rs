//! Configuration: what is taken from the environment and from files, and what is refused.

use std::collections::HashMap;
use std::path::PathBuf;

use astracer_sdk::{Astracer, Builder, OnFault};
use opentelemetry::propagation::TextMapPropagator as _;
use tracing::info_span;

use crate::support::{one, world};

fn with(variables: &[(&str, &str)], builder: Builder) -> Builder {
    let variables: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    builder.variables(|name| variables.get(name).cloned())
}

/// The sampler that the variables choose; or what is wrong with them.
#[track_caller]
fn check(variables: &[(&str, &str)], expected: Result<&str, &str>) {
    let built = with(variables, Astracer::builder()).build();
    let sampler =
        built.map(|astracer| astracer.handle.sampler_config().map(ToString::to_string).unwrap_or_default());
    assert_eq!(sampler.as_deref().map_err(|error| error.to_string()), expected.map_err(str::to_owned));
}

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

#[test]
fn samplers_are_chosen_by_the_specification_s_names_and_ours() {
    let default = "bump:lambda=10,min=0.01,window=1s";
    check(&[], Ok(default));
    check(&[(SAMPLER, "")], Ok(default));
    check(&[(SAMPLER, "always_on")], Ok("always"));
    check(&[(SAMPLER, "parentbased_always_off")], Ok("never"));
    check(&[(SAMPLER, "traceidratio"), (ARGUMENT, "0.25")], Ok("ratio:0.25"));
    check(&[(SAMPLER, "parentbased_traceidratio"), (ARGUMENT, "0")], Ok("never"));
    check(&[(SAMPLER, "parentbased_traceidratio")], Ok("ratio:1"));
    check(&[(SAMPLER, "astracer")], Ok(default));
    check(&[(SAMPLER, "astracer"), (ARGUMENT, "bucket:capacity=5,rate=2")], Ok("bucket:capacity=5,rate=2"));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_variable() {
    check(
        &[(SAMPLER, "xray")],
        Err("OTEL_TRACES_SAMPLER: unknown sampler `xray`: use one of always_on, always_off, traceidratio, \
             parentbased_always_on, parentbased_always_off, parentbased_traceidratio, astracer, astracer_file"),
    );
    check(
        &[(SAMPLER, "traceidratio"), (ARGUMENT, "ten")],
        Err("OTEL_TRACES_SAMPLER_ARG: `ten` is no number; write for example 0.1"),
    );
    check(
        &[(SAMPLER, "traceidratio"), (ARGUMENT, "1.5")],
        Err("OTEL_TRACES_SAMPLER_ARG: `1.5` is no ratio: it must be from 0 to 1"),
    );
    check(&[("OTEL_SDK_DISABLED", "yes")], Err("OTEL_SDK_DISABLED: `yes` is neither true nor false"));
    check(
        &[("OTEL_PROPAGATORS", "tracecontext,b4")],
        Err("OTEL_PROPAGATORS: unknown propagator `b4`: use tracecontext, baggage, b3, b3multi or none"),
    );
    check(
        &[("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1"), ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b")],
        Err("OTEL_RESOURCE_ATTRIBUTES: `b` is not of the form key=value; \
             OTEL_SPAN_EVENT_COUNT_LIMIT: `-1` is no whole number from 0 to 4294967295"),
    );
    let error = with(&[(SAMPLER, "astracer"), (ARGUMENT, "bump:lambda=-1")], Astracer::builder())
        .build()
        .unwrap_err();
    assert_eq!(error.faults()[0].variable(), Some(ARGUMENT));
}

#[test]
fn faults_are_passed_over_if_asked_and_told() {
    let builder = with(&[(SAMPLER, "xray"), ("OTEL_SPAN_LINK_COUNT_LIMIT", "3")], Astracer::builder());
    let builder = builder.on_fault(OnFault::UseDefault);
    assert_eq!(builder.faults().len(), 1);
    assert_eq!(builder.faults()[0].default(), "what was set before it");
    let config = builder.build().unwrap().handle.sampler_config().unwrap().to_string();
    assert_eq!(config, "bump:lambda=10,min=0.01,window=1s");
}

#[test]
fn disabled_means_that_nothing_happens() {
    let world = world(|builder| with(&[("OTEL_SDK_DISABLED", "TRUE")], builder));
    assert!(!world.handle.is_enabled());
    let spans =
        world.run(|| info_span!("root").in_scope(|| assert!(!tracing::Span::current().is_disabled())));
    assert!(spans.is_empty());
    assert_eq!(world.astracer.propagator().fields().count(), 0);
}

#[test]
fn limits_and_propagators_are_taken() {
    let variables = [
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "5"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3"),
        ("OTEL_PROPAGATORS", "baggage, baggage"),
    ];
    let world = world(|builder| with(&variables, builder));
    let spans = world.run(|| info_span!("root", a = "größer", b = 2).in_scope(|| ()));
    let root = one(&spans, "root");
    assert_eq!((root.attributes.len(), root.dropped_attributes_count), (1, 1));
    assert_eq!(root.attributes[0].value.as_str(), "grö");
    assert_eq!(world.astracer.propagator().fields().collect::<Vec<_>>(), ["baggage"]);
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn a_parameters_file_sets_sampler_and_key() {
    let path = file("parameters.toml");
    let world =
        world(|builder| with(&[(SAMPLER, "astracer_file"), (ARGUMENT, path.to_str().unwrap())], builder));
    assert_eq!(world.handle.sampler_config().unwrap().to_string(), "bucket:capacity=1,rate=0.5");
    let spans = world.run(|| {
        for (name, route) in [("a", "/x"), ("b", "/x"), ("c", "/y")] {
            info_span!("request", otel.name = name, http.route = route).in_scope(|| ());
        }
    });
    // One token for each key, and names are keys as they are.
    assert_eq!(spans.len(), 3);
    let keys: Vec<String> = world.handle.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect();
    assert_eq!(keys, ["a;http.route=/x", "b;http.route=/x", "c;http.route=/y"]);
}

#[test]
fn a_file_s_fault_names_file_and_line() {
    let path = file("wrong.toml");
    let error = Astracer::builder().parameters_file(&path).build().unwrap_err();
    let fault = &error.faults()[0];
    assert_eq!((fault.file(), fault.line()), (Some(path.as_path()), Some(4)));
    assert!(error.to_string().starts_with(&format!("{}:4: ", path.display())), "{error}");
    let missing = Astracer::builder().parameters_file(file("missing.toml")).build().unwrap_err();
    assert_eq!(
        (missing.faults()[0].file(), missing.faults()[0].line()),
        (Some(file("missing.toml").as_path()), None)
    );
}
