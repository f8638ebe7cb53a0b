//! Keeps docs/variables.md equal to the code: each row is checked with the specification's default
//! and with a value that cannot be used. `ASTRACER_WRITE=1` writes the tables.

use std::path::PathBuf;

use astracer::exporters::{Destination as _, Otlp, Zipkin};
use astracer::{Astracer, OnFault};

/// The reaction to a value that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Ignored(&'static str),
    Refused(&'static str),
    /// Every value can be used.
    None,
}

/// The variable, what it does, a usable value (the specification's default if it has one), and an
/// unusable one.
type Row = (&'static str, &'static str, &'static str, Bad);

/// A parameters file.
const PARAMETERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/tests/data/parameters.toml");
const FILE: &str = "no/such/file.pem";

const SDK: &[Row] = &[
    (
        "OTEL_SDK_DISABLED",
        "`true` records and sends nothing, whatever else is set",
        "false",
        Bad::Ignored("yes"),
    ),
    ("OTEL_SERVICE_NAME", "`service.name`", "shop", Bad::None),
    ("OTEL_RESOURCE_ATTRIBUTES", "attributes of the resource", "team=a%20b", Bad::Ignored("team=a,b")),
    (
        "OTEL_TRACES_SAMPLER",
        "the specification's samplers, `astracer` and `astracer_file`",
        "parentbased_always_on",
        Bad::Ignored("xray"),
    ),
    (
        "OTEL_TRACES_SAMPLER_ARG",
        "the ratio; after `astracer` a sampler, after `astracer_file` a parameters file",
        "0.1",
        Bad::Ignored("ten"),
    ),
    (
        "ASTRACER_PARAMETERS_WATCH",
        "`false`: the file of `astracer_file` is read once; otherwise its changes take effect",
        "true",
        Bad::Ignored("off"),
    ),
    (
        "OTEL_PROPAGATORS",
        "`tracecontext`, `baggage`, `b3`, `b3multi`, `none`",
        "tracecontext,baggage",
        Bad::Ignored("xray"),
    ),
    (
        "OTEL_BSP_SCHEDULE_DELAY",
        "the longest wait of an ended trace for its batch, in ms",
        "5000",
        Bad::Ignored("5s"),
    ),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "the spans of a batch", "512", Bad::Ignored("0")),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", "attributes of a span, an event and a link", "128", Bad::Ignored("-1")),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "characters of a text", "4096", Bad::Ignored("many")),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "attributes of a span", "128", Bad::Ignored("-1")),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "characters of a text", "4096", Bad::Ignored("many")),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", "events of a span", "128", Bad::Ignored("-1")),
    ("OTEL_SPAN_LINK_COUNT_LIMIT", "links of a span", "128", Bad::Ignored("-1")),
    ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "attributes of an event", "128", Bad::Ignored("-1")),
    ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "attributes of a link", "128", Bad::Ignored("-1")),
];

const EXPORTERS: &[Row] = &[
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "the server; HTTP appends `/v1/traces`, but not to the form with `TRACES_`",
        "http://localhost:4318",
        Bad::Refused("localhost 4318"),
    ),
    (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "`http/protobuf`, `http/json`, `grpc`",
        "http/protobuf",
        Bad::Ignored("http"),
    ),
    ("OTEL_EXPORTER_OTLP_HEADERS", "headers of each request", "api-key=a%20b", Bad::Refused("api-key")),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "the time of one attempt, in ms; 0: no limit",
        "10000",
        Bad::Ignored("10s"),
    ),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "`gzip`, `zstd`, `none`", "none", Bad::Ignored("lz4")),
    (
        "OTEL_EXPORTER_OTLP_INSECURE",
        "`true`: a gRPC endpoint without a scheme does not use TLS",
        "false",
        Bad::Ignored("1"),
    ),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "the file of the CAs to trust", "", Bad::Refused(FILE)),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "the file of the client's certificate", "", Bad::Refused(FILE)),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "the file of the client's key", "", Bad::Refused(FILE)),
    (
        "OTEL_BSP_EXPORT_TIMEOUT",
        "the age at which a batch is given up, in ms, with all attempts",
        "30000",
        Bad::Ignored("soon"),
    ),
    (
        "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
        "the URL of a Zipkin server",
        "http://localhost:9411/api/v2/spans",
        Bad::Refused("localhost"),
    ),
    ("OTEL_EXPORTER_ZIPKIN_TIMEOUT", "the time of one attempt, in ms", "10000", Bad::Ignored("10s")),
];

/// Without effect: the variable, its substitute, a value that is accepted, and one that is not.
const WITHOUT_EFFECT: &[Row] = &[
    (
        "OTEL_TRACES_EXPORTER",
        "the exporter is chosen in code; `none` switches that of `astracer::init` off",
        "otlp",
        Bad::Ignored("jaeger"),
    ),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "`with_queue_bytes_max`", "2048", Bad::Ignored("4096")),
    ("OTEL_CONFIG_FILE", "variables, the builder or a parameters file", "", Bad::Ignored("otel.yaml")),
    (
        "OTEL_EXPERIMENTAL_CONFIG_FILE",
        "variables, the builder or a parameters file",
        "",
        Bad::Ignored("otel.yaml"),
    ),
];

const HEADERS: [(&str, &[Row]); 3] =
    [("## The SDK", SDK), ("## The exporters", EXPORTERS), ("## Without effect", WITHOUT_EFFECT)];

/// The outcome of one variable: the warnings, or the error.
fn outcome(variable: &str, value: &str) -> Result<Vec<String>, String> {
    let get = |name: &str| match name {
        "OTEL_TRACES_SAMPLER" if variable == "OTEL_TRACES_SAMPLER_ARG" => Some("traceidratio".to_owned()),
        "OTEL_TRACES_SAMPLER" if variable.starts_with("ASTRACER_") => Some("astracer_file".to_owned()),
        "OTEL_TRACES_SAMPLER_ARG" if variable.starts_with("ASTRACER_") => Some(PARAMETERS.to_owned()),
        name => (name == variable).then(|| value.to_owned()),
    };
    let builder = Astracer::builder().with_variables(get);
    let mut warnings: Vec<String> = builder.faults().iter().map(ToString::to_string).collect();
    let _astracer =
        builder.with_sampler("never".parse().unwrap()).build().map_err(|error| error.to_string())?;
    let otlp = Otlp::builder().with_variables(get).build().map_err(|error| error.to_string())?;
    let zipkin = Zipkin::builder().with_variables(get).build().map_err(|error| error.to_string())?;
    warnings.extend(otlp.warnings());
    // Both exporters read the batch processor's timeout.
    warnings.extend(zipkin.warnings().into_iter().filter(|_| !variable.starts_with("OTEL_BSP_")));
    Ok(warnings)
}

fn check(variable: &str, good: &str, bad: Bad) {
    assert_eq!(outcome(variable, good), Ok(Vec::new()), "{variable}={good}");
    assert_eq!(outcome(variable, " "), Ok(Vec::new()), "{variable}, empty");
    match bad {
        Bad::None => {}
        Bad::Ignored(value) => {
            let warnings = outcome(variable, value).unwrap();
            assert!(warnings.len() == 1 && warnings[0].starts_with(&format!("{variable}: ")), "{warnings:?}");
        }
        Bad::Refused(value) => {
            let error = outcome(variable, value).unwrap_err();
            assert!(error.starts_with(&format!("{variable}: ")), "{error}");
        }
    }
}

#[test]
fn each_variable_does_as_its_row_says() {
    for (variable, _, good, bad) in HEADERS.into_iter().flat_map(|(_, rows)| rows.iter().copied()) {
        check(variable, good, bad);
        if let Some(rest) = variable.strip_prefix("OTEL_EXPORTER_OTLP_") {
            check(&format!("OTEL_EXPORTER_OTLP_TRACES_{rest}"), good, bad);
        }
    }
}

/// A strict service does not start.
#[test]
fn strict_services_refuse_what_others_ignore() {
    for (variable, _, _, bad) in SDK.iter().chain(WITHOUT_EFFECT) {
        let Bad::Ignored(value) = bad else { continue };
        let get = |name: &str| match name {
            "OTEL_TRACES_SAMPLER" if *variable == "OTEL_TRACES_SAMPLER_ARG" => {
                Some("traceidratio".to_owned())
            }
            "OTEL_TRACES_SAMPLER" if variable.starts_with("ASTRACER_") => Some("astracer_file".to_owned()),
            "OTEL_TRACES_SAMPLER_ARG" if variable.starts_with("ASTRACER_") => Some(PARAMETERS.to_owned()),
            name => (name == *variable).then(|| (*value).to_owned()),
        };
        let builder = Astracer::builder().with_on_fault(OnFault::Refuse).with_variables(get);
        let error = builder.build().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{variable}: ")), "{error}");
    }
    for (variable, _, _, bad) in EXPORTERS {
        let (Bad::Ignored(value) | Bad::Refused(value)) = bad else { continue };
        let get = |name: &str| (name == *variable).then(|| (*value).to_owned());
        let otlp = Otlp::builder().with_strict_variables().with_variables(get).build().map(drop);
        let zipkin = Zipkin::builder().with_strict_variables().with_variables(get).build().map(drop);
        let error = otlp.and(zipkin).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{variable}: ")), "{error}");
    }
}

#[test]
fn the_document_s_rows_are_those_of_the_test() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/variables.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut expected = String::new();
    let mut lines = document.lines();
    let mut tables = HEADERS.into_iter().peekable();
    while let Some(line) = lines.next() {
        expected.push_str(&format!("{line}\n"));
        let Some((_, rows)) = tables.next_if(|(header, _)| *header == line) else { continue };
        for line in lines.by_ref() {
            expected.push_str(&format!("{line}\n"));
            if line.starts_with("|---") {
                break;
            }
        }
        for (variable, does, good, bad) in rows {
            let last = match bad {
                Bad::Ignored(_) if rows == WITHOUT_EFFECT && good.is_empty() => "-".to_owned(),
                Bad::Ignored(_) if rows == WITHOUT_EFFECT => format!("`{good}`"),
                Bad::Ignored(value) => format!("ignored (`{value}`)"),
                Bad::Refused(value) => format!("refused (`{value}`)"),
                Bad::None => "-".to_owned(),
            };
            expected.push_str(&format!("| `{variable}` | {does} | {last} |\n"));
        }
        let after = lines.by_ref().find(|line| !line.starts_with('|'));
        expected.push_str(&format!("{}\n", after.unwrap_or_default()));
    }
    assert!(tables.next().is_none(), "docs/variables.md lacks a heading");
    if std::env::var_os("ASTRACER_WRITE").is_some() {
        std::fs::write(path, expected).unwrap();
        return;
    }
    assert!(document == expected, "docs/variables.md differs from the test: update it with ASTRACER_WRITE=1");
}
