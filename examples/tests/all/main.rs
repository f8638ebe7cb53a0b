//! Runs the examples as a newcomer does, and goes once around the loop: record, tune, run with the
//! tuned parameters.

mod ending;
mod first_hour;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use astracer_model::TraceId;
use astracer_recording::recording::{Intake, Keep, Recording, SpanView, TraceView};
use astracer_recording::source;
use astracer_tuner::tune::{Options, tune};
use astracer_tuner::{Grouping, Stop, Workload};
use serde_json::Value;

#[track_caller]
fn run(program: &str, options: &[&str]) -> String {
    let output = output(program, options);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn output(program: &str, options: &[&str]) -> Output {
    let mut command = Command::new(program);
    // A developer's own settings must not affect the test.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.args(options).output().expect("the example starts")
}

#[test]
fn each_example_draws_traces_and_says_what_it_did_not_make() {
    let examples = [
        (env!("CARGO_BIN_EXE_axum"), ["--requests", "400"], "GET /products/{id}"),
        (env!("CARGO_BIN_EXE_batch"), ["--records", "400"], "import correction"),
        (env!("CARGO_BIN_EXE_tonic"), ["--calls", "400"], "quotes.Quotes/Get"),
    ];
    for (program, options, root) in examples {
        let text = run(program, &options);
        assert!(text.lines().any(|line| line.starts_with(root)), "{text}");
        assert!(text.contains(" 0 lost, ") && !text.contains(" 0 dropped;"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}

/// A ring of 2,000 bytes has no room for some traces until they are decided. The summary tells them
/// from those that strata dropped.
#[test]
fn traces_that_strata_drop_are_in_the_summary() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("strata.toml");
    let strata = "[strata]\nsize = 0.1\nrecord = \"all\"\n";
    let text = format!("version = 6\n[never]\n[tail]\npolicies = []\nring_bytes = 2000\n{strata}");
    std::fs::write(&file, text).expect("written");
    let options = ["--requests", "400", "--export", "none", "--parameters", file.to_str().expect("UTF-8")];
    let text = run(env!("CARGO_BIN_EXE_axum"), &options);
    let given_up = text.split(" given up (").nth(1).expect(&text);
    assert!(
        given_up.contains("unwanted ")
            && given_up.contains("ring_full ")
            && text.contains("; ring 0 of 2000 bytes"),
        "{text}"
    );
}

/// The stock and the bank decide nothing: they hold their parts until the shop announces what it
/// kept. A file without policies holds for as long as `--hold` says.
#[test]
fn the_hold_is_that_of_the_option_with_strata_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let strata = "[strata]\nsize = 1.0\nrecord = \"all\"\n";
    let own = format!("[tail]\npolicies = []\nhold = \"3s\"\n{strata}");
    for (name, tables) in [("strata", strata), ("own", &own), ("none", "")] {
        std::fs::write(path(name), format!("version = 6\n[always]\n{tables}")).expect("written");
    }
    let (strata, own, none) = (path("strata"), path("own"), path("none"));
    for (hold, is_found) in [("0", false), ("600", true)] {
        let options = ["--orders", "3", "--export", "none", "--parameters", &strata, "--hold", hold];
        let text = run(env!("CARGO_BIN_EXE_chain"), &options);
        let stock = text.split("--- ").find(|output| output.starts_with("stock")).expect("its output");
        assert_eq!(stock.contains("requested but not found: 0"), is_found, "{hold} s: {text}");
    }
    for (options, says) in [
        (&["--hold", "1"][..], "--hold holds traces for --tail"),
        (&["--hold", "1", "--parameters", &none], "--hold holds traces for --tail"),
        (&["--hold", "1", "--parameters", &own], "set its `hold`"),
    ] {
        let output = output(env!("CARGO_BIN_EXE_batch"), options);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(says), "{options:?}: {text}");
    }
}

/// The message names what was given, and not the sampler that would be the default.
#[test]
fn the_stock_layer_refuses_what_it_has_not_by_its_name() {
    let options = ["--tracing", "stock", "--export", "none"];
    for (more, says) in [
        (&["--parameters", "tuned.toml"][..], "cannot use --parameters tuned.toml: "),
        (&["--sampler", "every:10"], "cannot use --sampler every:10: "),
        (&[], "bump:lambda=0.5,min=0.001,window=10s (the default): "),
    ] {
        let output = output(env!("CARGO_BIN_EXE_batch"), &[&options[..], more].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(says), "{more:?}: {text}");
        assert_eq!(text.contains("bump:"), more.is_empty(), "{text}");
    }
}

/// Nothing listens on port 1 (tcpmux).
#[test]
fn an_example_without_a_server_fails_and_says_what_was_lost() {
    let options = [
        "--records",
        "400",
        "--export",
        "otlp=http://127.0.0.1:1",
        "--sampler",
        "always",
        "--shutdown-timeout",
        "1",
    ];
    let output = output(env!("CARGO_BIN_EXE_batch"), &options);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains(" 0 spans exported, ") && text.contains(" lost (") && text.contains("expired "),
        "{text}"
    );
    assert!(text.contains("last error: ") && text.contains(" spans were lost; "), "{text}");
    assert!(text.contains("no server listens on this port"), "{text}");
}

#[test]
fn client_and_server_are_one_trace() {
    let text = run(env!("CARGO_BIN_EXE_tonic"), &["--calls", "1", "--sampler", "always"]);
    assert!(text.contains("├─ quotes.Quotes/Get") || text.contains("└─ quotes.Quotes/Get"), "{text}");
}

/// The traces that a service of the chain has exported, each with its reason, sorted by reason. The
/// bank has two requests in each trace, of which one may fail: then the reason is that.
fn kept(folder: &Path, service: &str) -> Vec<(String, TraceId)> {
    let mut intake = Intake::new(Keep { full: true, ..Keep::default() });
    source::read(&folder.join(service), &source::Options::default(), &mut intake).expect("a recording");
    let recording = intake.finish();
    let reason = |trace: TraceView<'_>| {
        let reasons = trace.spans().flat_map(|span| &span.full().expect("whole spans").attributes);
        let reasons = reasons.filter(|attribute| attribute.key == "sampling.reason");
        reasons.filter_map(|reason| reason.value.as_str()).max().unwrap_or_default().to_owned()
    };
    let mut kept: Vec<_> = recording.traces().map(|trace| (reason(trace), trace.id())).collect();
    kept.sort();
    kept
}

/// Runs nine orders: the shop fails at the third, the bank declines the fifth. Each of the three
/// processes decides by itself. Returns the output and each service's kept traces.
fn chain(folder: &Path, hold: &str) -> (String, [Vec<(String, TraceId)>; 3]) {
    let export = format!("file={}", folder.display());
    let options = ["--sampler", "never", "--tail", "error", "--provisional", "always", "--hold", hold];
    let text =
        run(env!("CARGO_BIN_EXE_chain"), &[&options[..], &["--orders=9", "--export", &export]].concat());
    assert!(text.contains("9 orders, 1 failed"), "{text}");
    (text, ["shop", "stock", "bank"].map(|service| kept(folder, service)))
}

fn ids(kept: &[(String, TraceId)]) -> Vec<TraceId> {
    let mut ids: Vec<TraceId> = kept.iter().map(|(_, id)| *id).collect();
    ids.sort();
    ids
}

#[test]
fn an_error_in_one_of_three_processes_brings_the_parts_of_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, [shop, stock, bank]) = chain(folder.path(), "600");
    assert_eq!((shop.len(), stock.len(), bank.len()), (2, 2, 2), "{text}");
    assert!(ids(&shop) == ids(&stock) && ids(&shop) == ids(&bank), "{shop:?} {stock:?} {bank:?}");
    for (kept, reasons) in
        [(&shop, ["caller", "error"]), (&stock, ["caller"; 2]), (&bank, ["caller", "error"])]
    {
        assert_eq!([&*kept[0].0, &*kept[1].0], reasons);
    }
    assert!(
        shop[1].1 == bank[0].1,
        "the shop's error reached the bank, and the bank's error reached the shop"
    );
    assert!(
        text.contains("kept late for callers: 2 traces, through the handle: 0; requested but not found: 0, over the budget: 0"),
        "{text}"
    );
}

/// Nothing is held, so the stock and the bank have discarded their parts when the shop's next
/// request names the failed trace.
#[test]
fn what_came_too_late_is_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, [shop, stock, bank]) = chain(folder.path(), "0");
    assert_eq!((shop.len(), stock.len(), bank.len()), (2, 1, 1), "{text}");
    assert_eq!(ids(&stock), ids(&bank));
    let stock = text.split("--- stock").nth(1).expect("three services");
    assert!(
        stock.contains("kept late for callers: 1 traces, through the handle: 0; requested but not found: 1, over the budget: 0"),
        "{text}"
    );
}

/// Each order is kept, and each process has its part, the last order's too: a process that stops
/// announces what it has kept before it ends. The bank has two parts of each trace.
#[test]
fn the_last_orders_are_whole_in_all_three_processes() {
    for orders in 1..=3 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("strata.toml");
        let strata = "[always]\n[strata]\nsize = 1.0\nrecord = \"all\"\n";
        std::fs::write(&file, format!("version = 6\nrandom = \"independent\"\n{strata}")).expect("written");
        let export = format!("file={}", folder.path().display());
        let options = ["--orders", &orders.to_string(), "--export", &export, "--parameters"];
        let text =
            run(env!("CARGO_BIN_EXE_chain"), &[&options[..], &[file.to_str().expect("UTF-8")]].concat());
        let [shop, stock, bank] = ["shop", "stock", "bank"].map(|service| ids(&kept(folder.path(), service)));
        assert!(shop.len() == orders && shop == stock && shop == bank, "{text}");
        let parts = recording(&folder.path().join("bank")).span_count();
        assert_eq!(parts, 2 * orders, "{text}");
        let unsent = text.lines().filter(|line| line.contains("; requests not sent to peers: "));
        assert!(unsent.into_iter().all(|line| line.ends_with(": 0")), "{text}");
    }
}

/// Order 5 is the first that the bank declines, and the shop fails at none before order 10. No
/// policy keeps anything. The head sampler alone would keep one of the 64 traces with a chance of
/// 6 %; after the bank's first error, 61 follow.
#[test]
fn after_an_error_downstream_the_traces_of_its_key_are_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let export = format!("file={}", folder.path().display());
    let options = ["--sampler", "ratio:0.001", "--boost", "on", "--first", "4", "--orders", "63"];
    let text = run(env!("CARGO_BIN_EXE_chain"), &[&options[..], &["--export", &export]].concat());
    let services = ["shop", "stock", "bank"].map(|service| kept(folder.path(), service));
    let [shop, stock, bank] = services.each_ref().map(|kept| ids(kept));
    let whole = shop.iter().filter(|id| stock.contains(id) && bank.contains(id)).count();
    assert!(whole * 100 >= 61 * 95, "{whole} of 61 are whole: {text}");
    assert!(whole <= 63 && shop == stock && shop == bank, "{text}");
    assert!(services.iter().flatten().all(|(reason, _)| reason.is_empty()), "none was kept late: {text}");
}

/// The line of JSON with which a service of the chain ends.
fn summary(text: &str, service: &str) -> Value {
    let output = text.split("--- ").find(|output| output.starts_with(service)).expect("its output");
    serde_json::from_str(output.lines().last().expect("a line")).expect("JSON")
}

/// Calls by tenant and resource.
fn calls(summary: &Value) -> Vec<(String, String, u64)> {
    assert_eq!(summary["unmarked_forks"], serde_json::json!([]));
    let rows = summary["tenants"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    rows.map(|row| (text(&row["tenant"]), text(&row["resource"]), row["calls"].as_u64().expect("a number")))
        .collect()
}

/// Each process has counted each of its requests for its tenant, whatever is kept, by subscriber
/// and layer.
#[test]
fn tenants_are_counted_in_each_service_of_the_chain() {
    // The orders with an even id are tenant 1's: 7 of 14.
    let of = |resource: &str| {
        [("t1", 7), ("t2", 4), ("t3", 3)]
            .map(|(tenant, calls)| (tenant.to_owned(), resource.to_owned(), calls))
    };
    let both = |resources: [&str; 2]| {
        let mut rows = resources.map(of).concat();
        rows.sort();
        rows
    };
    for options in [["--sampler", "never"], ["--sampler", "ratio:0.5"], ["--tracing", "layer"]] {
        let all = ["--orders", "14", "--applications", "all", "--export", "none"];
        let text = run(env!("CARGO_BIN_EXE_chain"), &[&options[..], &all].concat());
        assert_eq!(calls(&summary(&text, "shop")), of("GET /orders/{id}"), "{options:?}");
        assert_eq!(calls(&summary(&text, "stock")), of("stock.Stock/Reserve"), "{options:?}");
        assert_eq!(calls(&summary(&text, "bank")), both(["GET /limits/{id}", "GET /payments/{id}"]));
        // Their critical paths are those of all requests, and as long as these.
        for (service, key, requests) in [
            ("shop", "GET /orders/{id}", 14),
            ("stock", "stock.Stock/Reserve", 14),
            ("bank", "GET /limits/{id}", 14),
        ] {
            let summary = summary(&text, service);
            let rows = summary["critical_paths"].as_array().expect("a list");
            let row = rows.iter().find(|row| row["key"] == key).expect("a row");
            assert_eq!(row["requests"], requests, "{options:?} {service}");
            let functions = row["functions_ns"].as_object().expect("functions");
            let sum: u64 = functions.values().map(|nanos| nanos.as_u64().expect("a number")).sum();
            assert_eq!(row["total_ns"], sum, "{options:?} {service}");
            // The shop's requests wait for the stock, and for the bank behind it. Below dropped
            // roots no span says so.
            let is_behind = ["GET /payments/{id}", "GET /limits/{id}", "(not recorded)"]
                .iter()
                .any(|name| functions.contains_key(*name));
            assert!(is_behind, "{options:?} {service}: {row}");
        }
        // The shop fails at orders 3 and 10, the bank declines orders 5 and 10.
        let errors = ["shop", "stock", "bank"].map(|service| {
            let rows = summary(&text, service)["tenants"].as_array().expect("a list").clone();
            rows.iter().map(|row| row["errors"].as_u64().expect("a number")).sum::<u64>()
        });
        assert_eq!(errors, [2, 0, 2], "{options:?}");
    }
}

/// Each kept trace is one graph over three processes, in which the stock's calls join.
#[test]
fn kept_traces_of_the_chain_are_event_graphs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let export = format!("file={}", folder.path().display());
    let options = ["--orders", "3", "--sampler", "always", "--applications", "all", "--export", &export];
    run(env!("CARGO_BIN_EXE_chain"), &options);
    let mut intake = Intake::new(Keep { x_trace: true, ..Keep::default() });
    source::read(folder.path(), &source::Options::default(), &mut intake).expect("a recording");
    let recording = intake.finish();
    assert_eq!(recording.traces().len(), 3);
    for trace in recording.traces() {
        let events: Vec<SpanView<'_>> = trace.spans().collect();
        let services: BTreeSet<&str> = events.iter().map(|event| event.service()).collect();
        assert_eq!(services, BTreeSet::from(["bank", "shop", "stock"]));
        // All are reached from the last event, which is the shop's, against the edges.
        let last = events.iter().max_by_key(|event| event.start()).expect("an event");
        assert_eq!(last.name(), "GET /orders/{id} end");
        let (mut reached, mut next) = (BTreeSet::new(), vec![last.id()]);
        while let Some(id) = next.pop() {
            if reached.insert(id) {
                let event = events.iter().find(|event| event.id() == id).expect("an event of the trace");
                next.extend(event.parent_ids());
            }
        }
        assert_eq!(reached.len(), events.len());
        let joins = events.iter().filter(|event| event.parent_ids().count() == 2);
        // Two branches and their calls join, and so does the shop's call.
        assert_eq!(joins.count(), 5);
    }
}

fn recording(folder: &Path) -> Recording {
    let mut intake = Intake::new(Keep::default());
    source::read(folder, &source::Options::default(), &mut intake).expect("a recording");
    intake.finish()
}

fn bytes(recording: &Recording) -> u64 {
    recording.traces().flat_map(|trace| trace.spans()).map(|span| span.record_bytes()).sum()
}

/// Three tenants send half, a quarter and a quarter of the requests. Each span has the tenant of
/// its request, also in a task of its own, and the tuner's file counts by tenant.
#[test]
fn requests_are_counted_and_tuned_by_tenant() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let load = ["--tenants", "3", "--requests", "2000", "--connections", "4", "--export"];
    let recorded = folder.path().join("recorded");
    let export = format!("file={}", recorded.display());
    let sampler = ["--sampler", "bump:lambda=100000,min=1,window=10s"];
    let text = run(env!("CARGO_BIN_EXE_axum"), &[&load[..], &[&export], &sampler].concat());
    for (tenant, requests) in [("t1", 1000), ("t2", 500), ("t3", 500)] {
        let of_tenant = |line: &&str| line.ends_with(&format!(";tenant.id={tenant}"));
        let kept = |line: &str| line.split(' ').next().and_then(|kept| kept.parse::<u32>().ok());
        let kept: u32 = text.lines().filter(of_tenant).filter_map(kept).sum();
        assert_eq!(kept, requests, "{text}");
    }

    let mut intake = Intake::new(Keep { full: true, ..Keep::default() });
    source::read(&recorded, &source::Options::default(), &mut intake).expect("a recording");
    let all = intake.finish();
    let mut in_tasks = 0;
    for trace in all.traces() {
        let tenants: Vec<_> = trace.spans().map(|span| tenant(&span)).collect();
        assert!(tenants[0].is_some() && tenants.iter().all(|tenant| *tenant == tenants[0]), "{tenants:?}");
        in_tasks += trace.spans().filter(|span| span.name() == "send receipt").count();
    }
    assert!(in_tasks > 0);

    let grouping: Grouping = "name+tenant.id".parse().expect("a grouping");
    let workload = Workload::new(&all, &grouping);
    let options = Options { starts: 1, iterations: 100, ..Options::default() };
    let file = tune(&workload, &options, Stop::never(), &|_| ()).file("the shop", &grouping);
    let file = file.expect("feasible").to_string();
    assert!(file.contains("tenant.id"), "{file}");
    let parameters = folder.path().join("astracer.toml");
    std::fs::write(&parameters, file).expect("a writable folder");
    let tuned = ["none", "--parameters", &parameters.display().to_string()].map(str::to_owned);
    let tuned: Vec<&str> = load.into_iter().chain(tuned.iter().map(String::as_str)).collect();
    let text = run(env!("CARGO_BIN_EXE_axum"), &tuned);
    assert!(text.contains("/products/{id};tenant.id=t1"), "{text}");
}

fn tenant(span: &SpanView<'_>) -> Option<String> {
    let attributes = &span.full().expect("whole spans").attributes;
    let tenant = attributes.iter().find(|attribute| attribute.key == "tenant.id")?;
    tenant.value.as_str().map(str::to_owned)
}

/// Records, tunes to a tenth of the bytes, and runs again with the tuned file. Every route is still
/// there, in about a tenth of the bytes.
#[test]
fn what_was_recorded_is_tuned_and_obeyed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let load = ["--requests", "10000", "--connections", "4", "--export"];
    let export = |folder: &Path| format!("file={}", folder.display());
    run(env!("CARGO_BIN_EXE_axum"), &[&load[..], &[&export(&first), "--sampler", "always"]].concat());
    let all = recording(&first);
    assert_eq!(all.trace_count(), 10_000);

    let workload = Workload::new(&all, &Grouping::default());
    let options = Options { starts: 2, iterations: 300, ..Options::default() };
    let tuning = tune(&workload, &options, Stop::never(), &|_| ());
    let file = tuning.file("the shop", &Grouping::default()).expect("feasible");
    let parameters = folder.path().join("astracer.toml");
    std::fs::write(&parameters, file.to_string()).expect("a writable folder");
    let parameters = parameters.display().to_string();
    run(env!("CARGO_BIN_EXE_axum"), &[&load[..], &[&export(&second), "--parameters", &parameters]].concat());

    let kept = recording(&second);
    let names = |recording: &Recording| {
        let mut names: Vec<String> = recording.traces().map(|trace| trace.root().name().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names(&kept), names(&all));
    assert_eq!(names(&all).len(), 5);
    // A faster or slower machine has more or fewer calls in a window than the recording had.
    let share = bytes(&kept) as f64 / bytes(&all) as f64;
    assert!(share > 0.005 && share < 0.3, "{share}");
}
