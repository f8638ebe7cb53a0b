//! Beside tracing-opentelemetry's layer on one registry: flows do not depend on contexts.

use astracer_baggage::{BranchExt as _, Packed, branch_fn, flow};
use astracer_sdk::ContextMode;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Dispatch, info_span};
use tracing_opentelemetry::layer;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::service::service_with;

#[test]
fn flows_work_beside_the_stock_layer() {
    for mode in [ContextMode::Off, ContextMode::Ids, ContextMode::Recording] {
        for (is_outer, sampler) in [(true, "always"), (true, "never"), (false, "always"), (false, "never")] {
            let service = service_with(
                |builder| builder.with_context_mode(mode).with_sampler(sampler.parse().unwrap()),
                |applications, _| applications,
            );
            let notes = &service.notes;
            let provider = SdkTracerProvider::builder().build();
            let tracer = provider.tracer("stock");
            let ours = service.world.astracer.layer.clone();
            let both = match is_outer {
                true => Dispatch::new(Registry::default().with(ours).with(layer().with_tracer(tracer))),
                false => Dispatch::new(Registry::default().with(layer().with_tracer(tracer)).with(ours)),
            };
            let place = format!("{mode:?}, stock outer: {is_outer}, {sampler}");
            tracing::dispatcher::with_default(&both, || {
                info_span!("root").in_scope(|| {
                    notes.add("before");
                    flow::set("tenant.id", "acme").unwrap();
                    let message = Packed::new(());
                    let branch = branch_fn(|| info_span!("branch").in_scope(|| notes.add("branch")));
                    let dispatch = both.clone();
                    let branch = move || tracing::dispatcher::with_default(&dispatch, branch);
                    std::thread::scope(|scope| scope.spawn(branch).join()).unwrap().join();
                    message.adopt_fn(|()| info_span!("handle").in_scope(|| notes.add("lost")));
                    drop(async {}.branch());
                    info_span!("child")
                        .in_scope(|| assert_eq!(notes.seen(), ["before", "branch"], "{place}"));
                });
            });
            assert_eq!(service.unmarked(), [], "{place}");
            assert_eq!(service.stats().requests, 1, "{place}");
            drop(both);
            service.check_sums();
        }
    }
}
