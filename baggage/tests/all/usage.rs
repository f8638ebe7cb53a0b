//! Sums by tenant, and X-Trace's events of kept traces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use astracer_baggage::{
    Applications, BranchExt as _, Flow, Flows, Packed, Registry, TenantRow, branch_fn, flow,
};
use astracer_sdk::{Builder, DroppedSpans, SpanLimits, Start};
use astracer_testing::{World, world};
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::{Array, Context, KeyValue, Value};
use opentelemetry_sdk::trace::SpanData;
use tracing::field::Empty;
use tracing::{Instrument as _, error, info, info_span, warn};

struct Service {
    world: World,
    flows: Flows,
}

fn service(change: impl FnOnce(Builder) -> Builder) -> Service {
    let applications = Applications::new(&Registry::default()).with_tenants("tenant.id").with_x_trace();
    let flows = Flows::new(applications);
    let world = world(|builder| change(builder.with_observer(Arc::new(flows.clone()))));
    Service { world, flows }
}

fn sampling(sampler: &'static str) -> Service {
    service(|builder| {
        builder
            .with_sampler(sampler.parse().unwrap())
            .with_start(Start::AtOnce)
            .with_dropped_spans(DroppedSpans::Disabled)
    })
}

impl Service {
    fn row(&self, tenant: &str, resource: &str) -> TenantRow {
        let rows = self.flows.tenants().rows;
        let row = rows.iter().find(|row| row.tenant == tenant && row.resource == resource);
        row.unwrap_or_else(|| panic!("{tenant} {resource}: {rows:?}")).clone()
    }

    fn work(&self, millis: u64) {
        self.world.clock.advance(Duration::from_millis(millis));
    }
}

fn millis(row: &TenantRow) -> [u64; 3] {
    [row.wall_ns, row.on_thread_ns, row.waiting_ns].map(|nanos| nanos / 1_000_000)
}

/// A request of a caller's tenant, whose branch works for 3 ms while the root waits, and whose root
/// works for 2 + 4 ms. Whatever is kept.
#[test]
fn times_are_of_all_branches_whatever_is_kept() {
    for sampler in ["always", "never"] {
        let service = sampling(sampler);
        service.world.inside(|| {
            let caller = Context::new().with_baggage([KeyValue::new("tenant.id", "acme")]);
            let _caller = caller.attach();
            let root = info_span!("request", otel.name = "GET /");
            let branch = root.in_scope(|| {
                service.work(2);
                info_span!("child").in_scope(|| branch_fn(|| service.work(3)))
            });
            let done = branch();
            service.work(10);
            root.in_scope(|| {
                service.work(4);
                done.join();
            });
        });
        let row = service.row("acme", "GET /");
        assert_eq!((row.calls, row.errors, millis(&row)), (1, 0, [19, 9, 13]), "{sampler}");
        assert_eq!(service.flows.tenants().rows.len(), 1);
    }
}

/// A branch that runs in its parent's place: its time is not its parent's too, which waits.
#[test]
fn times_of_a_branch_on_the_same_thread_count_once() {
    let service = sampling("never");
    service.world.inside(|| {
        info_span!("request").in_scope(|| {
            service.work(1);
            branch_fn(|| service.work(3))().join();
            service.work(1);
        });
    });
    assert_eq!(millis(&service.row("(none)", "request")), [5, 5, 3]);
}

/// A client's span is a local root below a dropped one, so that its context can be sent. In a kept
/// trace it is none, and sums must not depend on that.
#[test]
fn spans_below_a_dropped_root_are_no_rows() {
    for sampler in ["always", "never"] {
        let service = sampling(sampler);
        service.world.inside(|| {
            info_span!("request").in_scope(|| {
                let call = || info_span!("call", otel.kind = "client").in_scope(|| ());
                call();
                branch_fn(call)().join();
            });
        });
        let rows = service.flows.tenants().rows;
        assert_eq!((rows.len(), &*rows[0].resource, rows[0].calls), (1, "request", 1), "{sampler}");
    }
}

/// A request runs in a caller's flow, on a thread that stays in that flow after its root's end.
#[test]
fn times_are_those_of_the_flow_also_in_a_wrapper() {
    let service = sampling("never");
    let headers = HashMap::from([("astracer-return".to_owned(), "64".to_owned())]);
    service.world.inside(|| {
        let flow = Flow::extract(&service.flows, &headers).unwrap();
        flow.run(|| {
            let root = info_span!("request");
            root.in_scope(|| service.work(2));
            service.work(1);
            drop(root);
            service.work(4);
        });
    });
    // The flow has used the thread for longer than the root was open.
    let row = service.row("(none)", "request");
    assert_eq!((row.calls, millis(&row)), (1, [3, 7, 0]));
}

/// An error on the root, below it, in a branch, or by a panic fails the request once. Warnings, and
/// spans below with an error in their fields, which may not exist, do not.
#[test]
fn errors_are_counted_whatever_is_kept() {
    for sampler in ["always", "never"] {
        let service = sampling(sampler);
        let request = |name: &'static str, work: &dyn Fn()| {
            let root = info_span!("request", otel.name = name, otel.status_code = Empty);
            root.in_scope(|| {
                info_span!("child").in_scope(work);
            });
            (name == "status").then(|| root.record("otel.status_code", "ERROR"));
        };
        service.world.inside(|| {
            request("fine", &|| warn!("not yet"));
            request("event", &|| error!("at last"));
            request("two events", &|| {
                error!("one");
                error!("two");
            });
            request("branch", &|| branch_fn(|| error!("elsewhere"))().join());
            request("status", &|| ());
            request("fields below", &|| drop(info_span!("call", error = true)));
            // The state of the failed roots before is not taken over.
            request("fine", &|| info!("all is well"));
            let panics = || std::panic::catch_unwind(|| request("panic", &|| panic!("on purpose")));
            assert!(panics().is_err());
        });
        let errors: BTreeMap<String, u64> =
            service.flows.tenants().rows.into_iter().map(|row| (row.resource, row.errors)).collect();
        let expected = [
            ("branch", 1),
            ("event", 1),
            ("fields below", 0),
            ("fine", 0),
            ("panic", 1),
            ("status", 1),
            ("two events", 1),
        ];
        assert!(
            errors.iter().map(|(name, count)| (name.as_str(), *count)).eq(expected),
            "{sampler} {errors:?}"
        );
        assert_eq!(service.row("(none)", "fine").calls, 2);
    }
}

/// A batch that unites messages of two tenants is neither's.
#[test]
fn several_tenants_in_a_flow_are_mixed() {
    let service = sampling("never");
    let of = |tenant: &'static str| {
        info_span!(parent: None, "send").in_scope(|| {
            flow::set("tenant.id", tenant).unwrap();
            Packed::new(())
        })
    };
    service.world.inside(|| {
        let (a, b, again) = (of("a"), of("b"), of("a"));
        info_span!("batch of one").in_scope(|| {
            a.clone().merge();
            again.merge();
        });
        info_span!("batch of two").in_scope(|| {
            a.merge();
            b.merge();
        });
    });
    assert_eq!(service.row("a", "batch of one").calls, 1);
    assert_eq!(service.row("(mixed)", "batch of two").calls, 1);
    let mixed = service.flows.tenants().mixed;
    assert_eq!((mixed.len(), mixed[0].name, mixed[0].count), (1, "batch of two", 1));
    assert!(mixed[0].file.unwrap().ends_with("usage.rs") && mixed[0].line.is_some());
}

#[test]
fn resources_of_the_services_own_are_the_tenants() {
    let service = sampling("never");
    service.world.inside(|| {
        assert!(flow::consume("disk.read", 1).is_err());
        info_span!("request").in_scope(|| {
            flow::consume("disk.read", 10).unwrap();
            flow::set("tenant.id", "a").unwrap();
            branch_fn(|| flow::consume("disk.read", u64::MAX).unwrap())().join();
            flow::consume("disk.read", 2).unwrap();
        });
    });
    assert_eq!(service.row("(none)", "disk.read").consumed, 10);
    let row = service.row("a", "disk.read");
    // Sums end at the greatest number.
    assert_eq!((row.calls, row.consumed), (2, u64::MAX));
}

/// An event of a span: its span, its name, its id and the ids before it.
fn events(spans: &[SpanData]) -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.as_str().into_owned();
    let mut events = Vec::new();
    for span in spans {
        for event in &span.events.events {
            let value = |key: &str| {
                event.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| &pair.value)
            };
            let Some(id) = value("xtrace.event").map(text) else { continue };
            let Some(Value::Array(Array::String(parents))) = value("xtrace.parents") else {
                panic!("a list of ids: {event:?}");
            };
            assert!(value("thread.id").is_some() && value("code.line.number").is_some(), "{event:?}");
            let parents = parents.iter().map(|parent| parent.as_str().to_owned()).collect();
            events.push((event.timestamp, format!("{} {}", span.name, event.name), id, parents));
        }
    }
    events.sort();
    events.into_iter().map(|(_, name, id, parents)| (name, id, parents)).collect()
}

/// The same with names in place of ids.
fn graph(spans: &[SpanData]) -> Vec<(String, Vec<String>)> {
    let events = events(spans);
    let names: BTreeMap<&str, &str> =
        events.iter().map(|(name, id, _)| (id.as_str(), name.as_str())).collect();
    let named = |id: &String| names.get(id.as_str()).map_or("?", |name| name).to_owned();
    let mut graph: Vec<(String, Vec<String>)> = Vec::new();
    for (name, _, parents) in &events {
        let mut parents: Vec<String> = parents.iter().map(named).collect();
        parents.sort();
        graph.push((name.clone(), parents));
    }
    graph
}

#[test]
fn a_kept_trace_is_a_graph_of_events() {
    let service = service(|builder| builder);
    service.world.inside(|| {
        let root = info_span!("root");
        let done = root.in_scope(|| {
            service.work(1);
            info!("first");
            service.work(1);
            let done = info_span!("child").in_scope(|| {
                branch_fn(|| {
                    service.work(1);
                    info!("in the branch");
                })()
            });
            service.work(1);
            info!("beside it");
            service.work(1);
            done
        });
        root.in_scope(|| done.join());
        service.work(1);
    });
    let expected: [(&str, &[&str]); 7] = [
        ("root begin", &[]),
        ("root first", &["root begin"]),
        ("child fork", &["root first"]),
        ("child in the branch", &["child fork"]),
        ("root beside it", &["child fork"]),
        ("root join", &["child in the branch", "root beside it"]),
        ("root end", &["root join"]),
    ];
    let found = graph(&service.world.exported());
    let found: Vec<(&str, Vec<&str>)> =
        found.iter().map(|(name, of)| (name.as_str(), of.iter().map(String::as_str).collect())).collect();
    assert!(found.iter().map(|(name, of)| (*name, &of[..])).eq(expected), "{found:#?}");
    assert_eq!(service.flows.stats().x_trace.events, 7);
}

/// A branch of a dropped trace has neither task nor events.
#[test]
fn a_dropped_trace_has_no_task() {
    let service = sampling("never");
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            info!("event");
            branch_fn(|| ())().join();
            assert!(flow::with(|baggage| baggage.is_empty()).unwrap());
        });
    });
    assert_eq!(service.flows.stats().x_trace, Default::default());
}

/// Events that the limit cuts are counted, and those after them follow the ones before.
#[test]
fn what_span_limits_cut_is_counted() {
    let mut limits = SpanLimits::default();
    limits.events = 2;
    let service = service(|builder| builder.with_span_limits(limits));
    service.world.inside(|| {
        info_span!("root").in_scope(|| {
            info!("kept");
            info!("cut");
            info_span!("child").in_scope(|| info!("below"));
        });
    });
    let found = graph(&service.world.exported());
    let expected = [("child below", "root kept"), ("root begin", ""), ("root kept", "root begin")];
    let mut found: Vec<(&str, String)> =
        found.iter().map(|(name, of)| (name.as_str(), of.join(","))).collect();
    found.sort_unstable();
    assert!(found.iter().map(|(name, of)| (*name, of.as_str())).eq(expected), "{found:?}");
    let stats = service.flows.stats().x_trace;
    assert_eq!((stats.events, stats.cut), (3, 2));
}

/// A reply from another trace's flow brings a second task.
#[test]
fn two_tasks_in_one_flow_are_counted() {
    let service = service(|builder| builder);
    service.world.inside(|| {
        let message = info_span!(parent: None, "other").in_scope(|| Packed::new(()));
        info_span!("root").in_scope(|| {
            message.merge();
            info!("still the root's");
        });
    });
    let stats = service.flows.stats().x_trace;
    assert_eq!(stats.mixed, 1, "{stats:?}");
    let (name, _, parents) =
        events(&service.world.exported()).into_iter().find(|(name, ..)| name == "root join").unwrap();
    assert_eq!((name.as_str(), parents.len()), ("root join", 2));
}

/// Work that is awaited beside others, with tokio.
#[test]
fn branches_of_tasks_wait_for_each_other() {
    let service = service(|builder| builder);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    service.world.inside(|| {
        runtime.block_on(
            async {
                let work = |name: &'static str| async move { info!("{name}") }.branch();
                let (one, two) = tokio::join!(work("one"), work("two"));
                one.join();
                two.join();
            }
            .instrument(info_span!("root")),
        );
    });
    let joins: Vec<usize> = graph(&service.world.exported())
        .iter()
        .filter(|(name, _)| name == "root join")
        .map(|(_, of)| of.len())
        .collect();
    assert_eq!(joins, [2, 2]);
    assert!(service.flows.stats().unmarked.is_empty());
}
