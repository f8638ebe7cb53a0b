//! Warnings about policies, as a service's own subscriber receives them. They come from a thread of
//! the SDK, so the subscriber must be the global one, in a separate process.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_sdk::{Astracer, Builder};
use astracer_testing::OnEvent;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample as _};
use tracing::field::Field;
use tracing::{Event, Level, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::late::{requests, tail};
use crate::support::{Collector, TIMEOUT};

/// Set in the other process to the name of its task.
const VARIABLE: &str = "ASTRACER_TEST_WARNINGS";

/// The other process's part. Does nothing in an ordinary run.
#[test]
fn process() {
    let received = match std::env::var(VARIABLE).as_deref() {
        Ok("warnings") => warn(),
        Ok("panics") => panic_at_warnings(),
        _ => return,
    };
    println!("HEARD {received:?}");
}

type Warnings = Arc<Mutex<Vec<String>>>;

/// The texts of warnings so far, and the layer that collects them.
fn warnings() -> (Warnings, OnEvent<impl Fn(&Event<'_>) + Send + Sync + 'static>) {
    let warnings = Warnings::default();
    let own = warnings.clone();
    let collects = move |event: &Event<'_>| {
        if *event.metadata().level() == Level::WARN {
            let mut text = String::new();
            event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
                text.push_str(&format!("{field}={value:?} "));
            });
            own.lock().unwrap().push(text);
        }
    };
    (warnings, OnEvent(collects))
}

fn builder() -> Builder {
    Astracer::builder()
        .with_sampler("never".parse().unwrap())
        .with_tail(tail("own:panics,error"))
        .with_own_policy("panics", |_| std::panic::resume_unwind(Box::new("refused")))
        .with_exporter(Collector::default())
}

/// Provokes three warnings: a policy is switched off, another SDK uses the `ShouldSample`, and the
/// parameters file is not valid.
fn panic_at_warnings() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("astracer.toml");
    std::fs::write(&path, "version = 3\n[never]\n").unwrap();
    let astracer = builder().with_watched_parameters_file(&path).build().unwrap();
    let (warnings, collects) = warnings();
    let own = std::thread::current().id();
    // A layer that works only on the service's own threads, and panics on others.
    let at_home = OnEvent(move |_: &Event<'_>| {
        if std::thread::current().id() != own {
            std::panic::resume_unwind(Box::new("there is no reactor running"));
        }
    });
    let registry = Registry::default().with(astracer.layer.clone()).with(collects);
    tracing::subscriber::set_global_default(registry.with(at_home)).unwrap();
    requests(16, false);
    let is_kept =
        astracer.sampler.should_sample(None, 1u128.into(), "elsewhere", &SpanKind::Server, &[], &[]);
    assert_eq!(is_kept.decision, SamplingDecision::Drop);
    std::fs::write(&path, "version = 3\n[ratio]\nprobability = 2.0\n").unwrap();
    for received in 1.. {
        // The warnings come from the exporter's thread and from the thread that watches the file,
        // at different times.
        requests(1, true);
        astracer.handle.flush(TIMEOUT).unwrap();
        if warnings.lock().unwrap().len() == 3 {
            break;
        }
        assert!(received < 10_000, "{warnings:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(&path, "version = 3\n[always]\n").unwrap();
    for _ in 0..10_000 {
        if astracer.handle.parameters_fault().is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(astracer.handle.sampler_config().unwrap().to_string(), "always");
    astracer.handle.shutdown(TIMEOUT).unwrap();
    let stats = astracer.handle.stats();
    assert_eq!((stats.spans_waiting, stats.spans_lost.total()), (0, 0));
    warnings.lock().unwrap().clone()
}

fn warn() -> Vec<String> {
    let (warnings, collects) = warnings();
    let astracer = builder().build().unwrap();
    let registry = Registry::default().with(astracer.layer.clone()).with(collects);
    tracing::subscriber::set_global_default(registry).unwrap();
    requests(15, false);
    let look = || {
        for _ in 0..40 {
            // The exporter's thread warns only when it has work.
            requests(1, true);
            astracer.handle.flush(TIMEOUT).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        warnings.lock().unwrap().clone()
    };
    info_span!("last of sixteen").in_scope(|| ());
    look()
}

fn received(what: &str) -> String {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "late_warnings::process", "--nocapture"])
        .env(VARIABLE, what)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    text.lines().find_map(|line| line.split_once("HEARD ")).expect("what was heard").1.to_owned()
}

#[test]
fn a_service_is_warned_once_that_a_policy_was_switched_off() {
    let received = received("warnings");
    assert_eq!(received.matches("switched off a policy").count(), 1, "{received}");
    assert!(received.contains("policy=\\\"panics\\\" panics=16 slow=0"), "{received}");
}

/// If a subscriber panics on the SDK's threads, the warnings are lost, but the threads continue.
#[test]
fn a_service_that_panics_at_warnings_is_traced_all_the_same() {
    let received = received("panics");
    for expected in ["switched off a policy", "that another SDK records", "astracer.toml"] {
        assert_eq!(received.matches(expected).count(), 1, "{expected}: {received}");
    }
}
