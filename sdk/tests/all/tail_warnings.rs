//! The warnings about policies, which a service's own subscriber hears. They come from a thread of ours, so the subscriber is the
//! process's, and the process one of its own.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_sdk::Astracer;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::support::{Collector, TIMEOUT};
use crate::tail::{requests, tail};

/// Set in the other process.
const VARIABLE: &str = "ASTRACER_TEST_WARNINGS";

#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            let mut text = String::new();
            event.record(&mut Message(&mut text));
            self.0.lock().unwrap().push(text);
        }
    }
}

/// The other process. Returns at once in this one.
#[test]
fn process() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let warnings = Warnings::default();
    let astracer = Astracer::builder()
        .with_sampler("never".parse().unwrap())
        .with_tail(tail("own:panics,error"))
        .with_own_policy("panics", |_| std::panic::resume_unwind(Box::new("refused")))
        .with_exporter(Collector::default())
        .build()
        .unwrap();
    let registry = Registry::default().with(astracer.layer.clone()).with(warnings.clone());
    tracing::subscriber::set_global_default(registry).unwrap();
    requests(15, false);
    let look = || {
        for _ in 0..40 {
            // The exporter's thread warns when there is something to do.
            requests(1, true);
            astracer.handle.flush(TIMEOUT).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        warnings.0.lock().unwrap().clone()
    };
    info_span!("last of sixteen").in_scope(|| ());
    println!("HEARD {:?}", look());
}

fn heard() -> String {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tail_warnings::process", "--nocapture"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    text.lines().find_map(|line| line.split_once("HEARD ")).expect("what was heard").1.to_owned()
}

#[test]
fn a_service_is_warned_once_that_a_policy_was_switched_off() {
    let heard = heard();
    assert_eq!(heard.matches("has switched a policy off").count(), 1, "{heard}");
    assert!(heard.contains("policy=\\\"panics\\\" panics=16 slow=0"), "{heard}");
}
