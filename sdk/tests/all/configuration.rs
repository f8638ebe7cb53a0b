//! Configuration from the environment and from files: what is used, and what is refused.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use astracer_sdk::{Astracer, Builder, OnFault, Propagator};
use astracer_testing::Exporting;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, SpanKind, TraceContextExt as _, TraceFlags, TraceState};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample as _, SpanData, SpanExporter};
use tracing::Subscriber as _;
use tracing::info_span;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Identity, SubscriberExt as _};

use crate::support::{one, sampling, world};

fn with(variables: &[(&str, &str)], builder: Builder) -> Builder {
    let variables: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    builder.with_variables(|name| variables.get(name).cloned())
}

/// A builder that refuses every fault.
fn strict() -> Builder {
    Astracer::builder().with_on_fault(OnFault::Refuse)
}

/// The sampler that the code chooses.
const OF_CODE: &str = "ratio:0.75";

/// Checks the sampler that the variables choose, which override the code, or the fault that they
/// cause.
#[track_caller]
fn check(variables: &[(&str, &str)], expected: Result<&str, &str>) {
    let built = with(variables, strict().with_sampler(OF_CODE.parse().unwrap())).build();
    let sampler = built.map(|astracer| {
        astracer.handle.sampler_config().map(|config| config.to_string()).unwrap_or_default()
    });
    assert_eq!(sampler.as_deref().map_err(|error| error.to_string()), expected.map_err(str::to_owned));
}

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

#[test]
fn samplers_are_chosen_by_the_specification_s_names_and_ours() {
    let default = "bump:lambda=10,min=0.01,window=1s";
    check(&[], Ok(OF_CODE));
    check(&[(SAMPLER, "")], Ok(OF_CODE));
    check(&[(SAMPLER, "always_on")], Ok("always"));
    check(&[(SAMPLER, "parentbased_always_off")], Ok("never"));
    check(&[(SAMPLER, "traceidratio"), (ARGUMENT, "0.25")], Ok("ratio:0.25"));
    check(&[(SAMPLER, "parentbased_traceidratio"), (ARGUMENT, "0")], Ok("never"));
    check(&[(SAMPLER, "parentbased_traceidratio")], Ok("ratio:1"));
    check(&[(SAMPLER, "astracer")], Ok(default));
    check(&[(SAMPLER, "astracer"), (ARGUMENT, "bucket:capacity=5,rate=2")], Ok("bucket:capacity=5,rate=2"));
}

/// OpenTelemetry specification, "Enum": "Enum values SHOULD be interpreted in a case-insensitive
/// manner".
#[test]
fn names_are_read_in_any_case() {
    let default = "bump:lambda=10,min=0.01,window=1s";
    check(&[(SAMPLER, "Always_ON")], Ok("always"));
    check(&[(SAMPLER, "ParentBased_TraceIdRatio"), (ARGUMENT, "0.25")], Ok("ratio:0.25"));
    check(&[(SAMPLER, "Astracer")], Ok(default));
    check(&[("OTEL_TRACES_EXPORTER", "None")], Ok(OF_CODE));
    for (list, fields) in [("Baggage, B3", &["b3", "baggage"][..]), ("None", &[])] {
        let astracer = with(&[("OTEL_PROPAGATORS", list)], Astracer::builder()).build().unwrap();
        let mut known: Vec<_> = astracer.propagator().fields().map(str::to_owned).collect();
        known.sort();
        assert_eq!(known, fields, "{list}");
    }
    // The fault quotes the value as the operator wrote it.
    check(
        &[("OTEL_PROPAGATORS", "tracecontext,B4")],
        Err("OTEL_PROPAGATORS: unknown propagator `B4`: use tracecontext, baggage, b3, b3multi or none"),
    );
    let error = with(&[(SAMPLER, "XRay")], strict()).build().unwrap_err().to_string();
    assert!(error.starts_with("OTEL_TRACES_SAMPLER: unknown sampler `XRay`: "), "{error}");
}

/// OpenTelemetry specification, "Parsing": unknown and malformed values "SHOULD generate a warning
/// and gracefully ignore the setting". A file that code names is refused.
#[test]
fn unusable_variables_are_ignored_and_listed() {
    let variables = [
        (SAMPLER, "xray"),
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_PROPAGATORS", "b4"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1"),
        ("OTEL_TRACES_EXPORTER", "jaeger"),
    ];
    let builder = with(&variables, Astracer::builder());
    assert!(builder.faults().iter().any(|fault| fault.default() == "the previous setting"));
    let mut named: Vec<_> = builder.faults().iter().map(|fault| fault.variable().unwrap()).collect();
    named.sort_unstable();
    let mut expected = variables.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(named, expected);
    let astracer = builder.build().unwrap();
    assert_eq!(astracer.handle.sampler_config().unwrap().to_string(), "bump:lambda=10,min=0.01,window=1s");
    let error = Astracer::builder().with_parameters_file("no/such.toml").build().unwrap_err();
    assert!(error.faults()[0].file().is_some());
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
        Err("OTEL_TRACES_SAMPLER_ARG: `ten` is not a number; write for example 0.1"),
    );
    check(
        &[(SAMPLER, "traceidratio"), (ARGUMENT, "1.5")],
        Err("OTEL_TRACES_SAMPLER_ARG: `1.5` is not a ratio: it must be from 0 to 1"),
    );
    check(&[("OTEL_SDK_DISABLED", "yes")], Err("OTEL_SDK_DISABLED: `yes` is neither true nor false"));
    check(
        &[("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1"), ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b")],
        Err("OTEL_RESOURCE_ATTRIBUTES: `b` is not of the form key=value; \
             OTEL_SPAN_EVENT_COUNT_LIMIT: `-1` is not a whole number from 0 to 4294967295"),
    );
    let error = with(&[(SAMPLER, "astracer"), (ARGUMENT, "bump:lambda=-1")], strict()).build().unwrap_err();
    assert_eq!(error.faults()[0].variable(), Some(ARGUMENT));
    // Here the variable's value is a path.
    let missing = [(SAMPLER, "astracer_file"), (ARGUMENT, "no/such.toml")];
    let error = with(&missing, strict()).build().unwrap_err().to_string();
    assert!(error.starts_with("OTEL_TRACES_SAMPLER_ARG: cannot open `no/such.toml`: "), "{error}");
}

/// A variable without effect is a fault with its name and value. An empty variable counts as unset.
#[test]
fn variables_without_effect_are_faults() {
    let variables = [
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "OTEL_TRACES_EXPORTER",
        "OTEL_CONFIG_FILE",
        "OTEL_EXPERIMENTAL_CONFIG_FILE",
    ];
    for name in variables {
        let error = with(&[(name, "2049")], strict()).build().unwrap_err();
        assert_eq!(error.faults()[0].variable(), Some(name));
        assert!(error.to_string().starts_with(&format!("{name}: `2049` has no effect here: ")), "{error}");
        check(&[(name, "")], Ok(OF_CODE));
    }
    // Operators set the specification's own defaults, and `none` asks for no exporter.
    for (name, value) in [
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_EXPORTER", "OTLP"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "2048"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5000"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"),
    ] {
        check(&[(name, value)], Ok(OF_CODE));
    }
}

/// The kill switch: an operator uses it when nothing else may matter.
#[test]
fn a_disabled_sdk_starts_whatever_else_is_set() {
    let variables =
        [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "jaeger"), (SAMPLER, "nonsense")];
    let astracer = with(&variables, Astracer::builder()).build().unwrap();
    assert!(!astracer.handle.is_enabled());
}

/// An exporter that stores the resource.
#[derive(Clone, Debug, Default)]
struct OfResource(Arc<Mutex<Option<Resource>>>);

impl SpanExporter for OfResource {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        *self.0.lock().unwrap() = Some(resource.clone());
    }
}

#[test]
fn the_environment_adds_to_the_resource_of_code() {
    let in_code = Resource::builder_empty()
        .with_schema_url(
            [KeyValue::new("deployment.environment.name", "prod"), KeyValue::new("service.name", "code")],
            "https://opentelemetry.io/schemas/1.37.0",
        )
        .build();
    let variables = [("OTEL_SERVICE_NAME", "shop"), ("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b")];
    let resource = resource_of(with(&variables, Astracer::builder().with_resource(in_code)));
    let value = |name: &'static str| resource.get(&Key::new(name)).map(|value| value.to_string());
    assert_eq!(value("deployment.environment.name").as_deref(), Some("prod"));
    assert_eq!((value("service.name").as_deref(), value("team").as_deref()), (Some("shop"), Some("a b")));
    assert_eq!(resource.schema_url(), Some("https://opentelemetry.io/schemas/1.37.0"));
}

fn resource_of(builder: Builder) -> Resource {
    let exporter = OfResource::default();
    let _astracer = builder.with_exporter(exporter.clone()).build().unwrap();
    exporter.0.lock().unwrap().clone().unwrap()
}

/// Set in a process whose `OTEL_RESOURCE_ATTRIBUTES` is faulty.
const OTHER_PROCESS: &str = "ASTRACER_TEST_RESOURCE";

/// The other process's part. Does nothing in an ordinary run.
#[test]
fn process() {
    if std::env::var_os(OTHER_PROCESS).is_none() {
        return;
    }
    let texts = |resource: &Resource| {
        let mut pairs: Vec<String> = resource.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.retain(|pair| !pair.starts_with("telemetry.sdk."));
        pairs.sort();
        pairs
    };
    let builder = || Astracer::builder().with_on_fault(OnFault::UseDefault);
    let of_process = resource_of(builder().with_environment());
    assert_eq!(of_process.get(&Key::new("telemetry.sdk.language")), Some("rust".into()));
    let found = texts(&of_process);
    assert!(found.len() == 1 && found[0].starts_with("service.name=unknown_service:all"), "{found:?}");
    for (variables, expected) in [
        (&[("OTEL_SERVICE_NAME", "shop")][..], &["service.name=shop"][..]),
        (&[("OTEL_RESOURCE_ATTRIBUTES", "my%20key=1,service.name=shop")], &["my key=1", "service.name=shop"]),
    ] {
        assert_eq!(texts(&resource_of(with(variables, builder()))), expected);
    }
}

/// OpenTelemetry specification, "Specifying resource information via an environment variable": "In
/// case of any error, e.g. failure during the decoding process, the entire environment variable
/// value SHOULD be discarded". The SDK's own reader uses the valid part.
#[test]
fn the_resource_s_variables_are_read_once() {
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "configuration::process"])
        .env(OTHER_PROCESS, "1")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=a%2,oops")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

/// OpenTelemetry specification, "Attribute Limits": the general limit applies where no special
/// limit is set.
#[test]
fn the_general_limit_of_attributes_holds_for_events_and_links() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    let variables = [("OTEL_ATTRIBUTE_COUNT_LIMIT", "2"), ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "1")];
    let world = world(|builder| with(&variables, builder));
    let spans = world.run(|| {
        let root = info_span!("root", a = 1, b = 2, c = 3);
        let pairs = || (0..3).map(|n| KeyValue::new(format!("k{n}"), n)).collect::<Vec<_>>();
        root.add_event("event", pairs());
        let to = SpanContext::new(1u128.into(), 2u64.into(), TraceFlags::SAMPLED, true, TraceState::NONE);
        root.add_link_with_attributes(to, pairs());
    });
    let root = one(&spans, "root");
    let (event, link) = (&root.events.events[0], &root.links.links[0]);
    assert_eq!((root.attributes.len(), root.dropped_attributes_count), (2, 1));
    assert_eq!((event.attributes.len(), event.dropped_attributes_count), (1, 2));
    assert_eq!((link.attributes.len(), link.dropped_attributes_count), (2, 1));
}

/// B3, "Sampling State": ids without a decision leave the decision to the callee.
#[test]
fn a_b3_parent_without_a_decision_is_put_to_the_sampler() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    for (sampler, kept) in [("always", 1), ("never", 0)] {
        let world = sampling(sampler, |builder| builder.with_propagators([Propagator::B3]));
        let header = "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1";
        let headers: HashMap<String, String> = [("b3".to_owned(), header.to_owned())].into();
        let parent = world.astracer.propagator().extract(&headers);
        let mut sent = HashMap::new();
        let spans = world.run(|| {
            let server = info_span!("server", otel.kind = "server");
            server.set_parent(parent.clone()).unwrap();
            server.in_scope(|| world.astracer.propagator().inject_context(&Context::current(), &mut sent));
        });
        assert_eq!(spans.len(), kept, "{sampler}");
        // The decision has been made, and is sent to callees.
        let sent = &sent["b3"];
        assert!(sent.starts_with("80f198ee56343ba864fe8b2a57d3eff7-"), "{sent}");
        assert!(sent.ends_with(if kept == 1 { "-1" } else { "-0" }), "{sent}");
        // The sampler for the OpenTelemetry API handles the same parent in the same way.
        let result = world.astracer.sampler.should_sample(
            Some(&parent),
            parent.span().span_context().trace_id(),
            "server",
            &SpanKind::Server,
            &[],
            &[],
        );
        let expected = if kept == 1 { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        assert_eq!(result.decision, expected);
    }
}

/// OpenTelemetry, "B3 Requirements", "Extract": "MUST preserve a debug trace flag, if received, and
/// propagate it with subsequent requests".
#[test]
fn the_debug_flag_of_b3_is_passed_on_from_any_thread() {
    use astracer_sdk::OpenTelemetrySpanExt as _;
    let world = world(|builder| builder.with_propagators([Propagator::B3]));
    let propagator = world.astracer.propagator();
    let header = "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-d";
    let headers: HashMap<String, String> = [("b3".to_owned(), header.to_owned())].into();
    let parent = propagator.extract(&headers);
    let sent = |context: &Context| {
        let mut sent = HashMap::new();
        propagator.inject_context(context, &mut sent);
        sent.remove("b3").unwrap()
    };
    let inside = |span: &tracing::Span| span.in_scope(|| sent(&Context::current()));
    let inside_elsewhere = |span: &tracing::Span| {
        let work = || world.inside(|| inside(span));
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    };
    world.run(|| {
        let server = info_span!("server", otel.kind = "server");
        server.set_parent(parent).unwrap();
        let child = || server.in_scope(|| info_span!("child"));
        let asked = child();
        let below = inside_elsewhere(&server);
        let parent = child();
        let grandchild = parent.in_scope(|| info_span!("grandchild"));
        let explicit = info_span!(parent: &parent, "explicit");
        for sent in [
            below,
            inside(&child()),
            inside_elsewhere(&child()),
            inside_elsewhere(&grandchild),
            inside_elsewhere(&explicit),
            sent(&asked.context()),
        ] {
            assert!(sent.starts_with("80f198ee56343ba864fe8b2a57d3eff7-"), "{sent}");
            assert!(sent.ends_with("-d"), "{sent}");
        }
    });
}

#[test]
fn disabled_means_that_nothing_happens() {
    let world = world(|builder| with(&[("OTEL_SDK_DISABLED", "TRUE")], builder));
    assert!(!world.handle.is_enabled());
    assert!(world.run(|| info_span!("root").in_scope(|| ())).is_empty());
    // A disabled layer asks for no spans, and hides none from other layers.
    let layer = || world.astracer.layer.clone();
    let off = Some(LevelFilter::OFF);
    assert_eq!(Registry::default().with(layer()).max_level_hint(), off);
    assert_eq!(Registry::default().with(Identity::new()).with(layer()).max_level_hint(), None);
    assert_eq!(Registry::default().with(layer()).with(Identity::new()).max_level_hint(), None);
    // "This setting has no effect on propagators configured through the OTEL_PROPAGATORS variable"
    // (OpenTelemetry specification, OTEL_SDK_DISABLED).
    assert_eq!(world.astracer.propagator().fields().count(), 3);
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
    // One token per key, and names are keys without folding.
    assert_eq!(spans.len(), 3);
    let keys: Vec<String> = world.handle.snapshot().unwrap().keys.into_iter().map(|key| key.key).collect();
    assert_eq!(keys, ["a;http.route=/x", "b;http.route=/x", "c;http.route=/y"]);
}

/// The last call wins: the file's cap if it has one, and the code's cap otherwise.
#[test]
fn a_parameters_file_replaces_the_cap_only_if_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let (with_cap, without) = (folder.path().join("cap.toml"), folder.path().join("none.toml"));
    std::fs::write(&with_cap, "version = 3\n[always]\n[cap]\ntraces = 8.0\n").unwrap();
    std::fs::write(&without, "version = 3\n[always]\n").unwrap();
    let check = |change: &dyn Fn(Builder) -> Builder, expected: &str| {
        let built = change(Astracer::builder()).build().unwrap();
        assert_eq!(built.handle.cap().unwrap().to_string(), expected);
    };
    let cap = || "traces=4".parse().unwrap();
    check(&|builder| builder.with_cap(cap()).with_parameters_file(&without), "traces=4,burst=1");
    check(&|builder| builder.with_cap(cap()).with_parameters_file(&with_cap), "traces=8,burst=2");
    check(&|builder| builder.with_parameters_file(&with_cap).with_cap(cap()), "traces=4,burst=1");
    check(&|builder| builder.with_parameters_file(&with_cap).with_parameters_file(&without), "");
    let path = without.to_str().unwrap().to_owned();
    let variables = [(SAMPLER, "astracer_file"), (ARGUMENT, path.as_str())];
    check(&|builder| with(&variables, builder.with_cap(cap())), "traces=4,burst=1");
}

/// A file that was tuned with stratified randomness makes the service's randomness stratified too,
/// although that is not the default, because its figures were found that way. One thread's traces
/// of one key are then kept evenly, a quarter of 400 within 3 (see `Stratified`); independent ones
/// have a standard deviation of 9. Each span carries its randomness, which differs from the id's.
#[test]
fn a_parameters_file_sets_the_randomness_that_it_was_tuned_with() {
    let path = file("stratified.toml");
    let world = world(|builder| builder.with_parameters_file(&path));
    let spans = world.run(|| (0..400).for_each(|_| info_span!("request").in_scope(|| ())));
    assert!(spans.len().abs_diff(100) <= 3, "{}", spans.len());
    for span in &spans {
        let state = span.span_context.trace_state().header();
        assert!(state.starts_with("ot=") && state.contains("rv:"), "{state}");
    }
}

#[test]
fn a_file_s_fault_names_file_and_line() {
    let path = file("wrong.toml");
    let error = Astracer::builder().with_parameters_file(&path).build().unwrap_err();
    let fault = &error.faults()[0];
    assert_eq!((fault.file(), fault.line()), (Some(path.as_path()), Some(4)));
    assert!(error.to_string().starts_with(&format!("{}:4: ", path.display())), "{error}");
    let missing = Astracer::builder().with_parameters_file(file("missing.toml")).build().unwrap_err();
    assert_eq!(
        (missing.faults()[0].file(), missing.faults()[0].line()),
        (Some(file("missing.toml").as_path()), None)
    );
}

/// A `main` that returns an error prints it with `Debug`.
#[test]
fn errors_read_the_same_from_main() {
    fn read<E: std::error::Error>(result: Result<impl Sized, E>) -> String {
        let error = result.err().expect("an error");
        assert_eq!(format!("{error:?}"), error.to_string());
        error.to_string()
    }
    read("bump:lamda=2".parse::<astracer_samplers::Config>());
    read("error(trace=2)".parse::<astracer_sdk::Tail>());
    read(Astracer::builder().with_watched_parameters_file("no/such/file.toml").build());
    let sampler = "always".parse().unwrap();
    // Its HTTP client needs a runtime that the exporter's thread does not have.
    let runtimeless = Exporting(|_: Vec<SpanData>| -> OTelSdkResult {
        std::panic::resume_unwind(Box::new("there is no reactor running"))
    });
    let astracer = Astracer::builder().with_sampler(sampler).with_exporter(runtimeless).build().unwrap();
    tracing::subscriber::with_default(Registry::default().with(astracer.layer.clone()), || {
        drop(info_span!("lost"));
    });
    let lost = read(astracer.handle.shutdown(std::time::Duration::from_secs(5)));
    assert!(lost.contains("reqwest-blocking-client"), "{lost}");
}
