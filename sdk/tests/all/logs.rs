//! Records of the `log` crate, which tracing-log turns into events with the records' own source
//! positions. `parity` compares them with the stock layer's, in the row "events of the log crate".

use log::{Level, LevelFilter, Log as _, Record};
use opentelemetry::trace::Status;
use tracing::info_span;
use tracing_log::LogTracer;

use crate::support::{one, world};

/// Logs on consecutive lines by the crate's macros. Returns the line of the first.
pub(crate) fn by_macros() -> u32 {
    // The macros check this level before they call a logger.
    log::set_max_level(LevelFilter::Trace);
    let logger = LogTracer::new();
    let line = line!() + 1;
    log::info!(logger: logger, "a message of {}", 2);
    log::warn!(logger: logger, target: "elsewhere", "with a target");
    log::error!(logger: logger, "an error");
    log::trace!(logger: logger, "a detail");
    line
}

/// Logs a record without file, module and line, as code that builds records itself may.
pub(crate) fn from_nowhere() {
    let record =
        Record::builder().level(Level::Info).target("nowhere").args(format_args!("no place")).build();
    LogTracer::new().log(&record);
}

#[test]
fn an_event_has_the_target_and_the_place_of_its_record() {
    let mut line = 0;
    let spans = world(|builder| builder.with_location(true)).run(|| {
        info_span!("root").in_scope(|| {
            line = by_macros();
            from_nowhere();
        });
    });
    let root = one(&spans, "root");
    let events: Vec<String> = root
        .events
        .iter()
        .map(|event| {
            let pairs = event.attributes.iter().map(|pair| format!(" {}={}", pair.key, pair.value));
            format!("{}:{}", event.name, pairs.collect::<String>())
        })
        .collect();
    let here = module_path!();
    let place =
        |more| format!("code.file.path={} code.module.name={here} code.line.number={}", file!(), line + more);
    let expected = [
        format!("a message of 2: level=INFO target={here} {}", place(0)),
        format!("with a target: level=WARN target=elsewhere {}", place(1)),
        format!("an error: level=ERROR target={here} {}", place(2)),
        format!("a detail: level=TRACE target={here} {}", place(3)),
        "no place: level=INFO target=nowhere".to_owned(),
    ];
    assert_eq!(events, expected);
    // As for an error event of `tracing` itself without a field `error`.
    assert_eq!(root.status, Status::error(""));
}
