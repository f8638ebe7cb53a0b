//! Spans of connections begin no traces.

use tracing::{debug_span, info_span, trace_span};

use crate::support::world;

/// The targets and levels are those of h2 0.4, hyper-util 0.1 and tower 0.5.
#[test]
fn spans_of_connections_are_recorded_only_below_the_services_own() {
    for may_begin in [false, true] {
        let world = world(|builder| builder.with_transport_roots(may_begin));
        let mut spans = world.run(|| {
            let connection = debug_span!(target: "h2::client", "Connection");
            connection.in_scope(|| {
                trace_span!(target: "h2::proto::connection", "poll").in_scope(|| ());
                info_span!("of the service").in_scope(|| ());
            });
            trace_span!(target: "h2::codec::framed_read", parent: &connection, "poll_next").in_scope(|| ());
            debug_span!(target: "tower", "worker").in_scope(|| ());
            info_span!(target: "tonic::service", "important").in_scope(|| ());
            debug_span!(target: "h2_like", "another crate").in_scope(|| ());
            info_span!("call").in_scope(|| trace_span!(target: "h2::client", "send").in_scope(|| ()));
        });
        spans.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        if may_begin {
            let connection = ["Connection", "another crate", "call", "important", "of the service"];
            assert_eq!(names, [&connection[..], &["poll", "poll_next", "send", "worker"]].concat());
        } else {
            assert_eq!(names, ["another crate", "call", "important", "of the service", "send"]);
        }
    }
}
