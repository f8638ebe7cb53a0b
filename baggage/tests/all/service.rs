//! A traced service with flows, and notes in its baggage by which tests see what a flow knows.

use std::future::Future;

use astracer_baggage::{Applications, FlowStats, Flows, Namespace, Registry, flow};
use astracer_sdk::Builder;
use astracer_testing::{World, world};
use tracing::dispatcher::set_default;

pub(crate) struct Service {
    pub(crate) world: World,
    pub(crate) flows: Flows,
    pub(crate) notes: Notes,
}

/// A slot of the current flow's baggage.
#[derive(Clone)]
pub(crate) struct Notes(pub(crate) Namespace);

impl Notes {
    /// Adds a note to the current flow.
    #[track_caller]
    pub(crate) fn add(&self, note: &str) {
        flow::with(|baggage| baggage.add(&self.0, b"", note.as_bytes())).unwrap();
    }

    /// The notes that the current flow has seen.
    #[track_caller]
    pub(crate) fn seen(&self) -> Vec<String> {
        let text = |note: &[u8]| String::from_utf8(note.to_vec()).unwrap();
        flow::with(|baggage| baggage.get(&self.0, b"").map(text).collect()).unwrap()
    }
}

pub(crate) fn service() -> Service {
    service_with(|builder| builder, |applications, _| applications)
}

pub(crate) fn service_with(
    change: impl FnOnce(Builder) -> Builder,
    applications: impl FnOnce(Applications, &Registry) -> Applications,
) -> Service {
    let registry = Registry::default();
    let notes = Notes(registry.register("notes", 0).unwrap());
    let flows = Flows::new(applications(Applications::new(&registry), &registry));
    let world = world(|builder| change(builder.with_observer(std::sync::Arc::new(flows.clone()))));
    Service { world, flows, notes }
}

impl Service {
    pub(crate) fn stats(&self) -> FlowStats {
        self.flows.stats()
    }

    /// The callsites of unmarked forks, with their counts.
    pub(crate) fn unmarked(&self) -> Vec<(&'static str, u64)> {
        self.stats().unmarked.iter().map(|fork| (fork.name, fork.count)).collect()
    }

    /// Makes the service's subscriber that of this thread, for ever.
    pub(crate) fn stay(&self) -> impl Fn() + Send + Sync + Clone + 'static {
        let dispatch = self.world.dispatch.clone();
        move || std::mem::forget(set_default(&dispatch))
    }

    /// Runs a future with tokio: on this thread, or on several.
    pub(crate) fn block_on<T>(&self, threads: usize, work: impl Future<Output = T>) -> T {
        let mut builder = match threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        if threads > 1 {
            builder.worker_threads(threads);
        }
        let runtime = builder.enable_time().on_thread_start(self.stay()).build().unwrap();
        self.world.inside(|| runtime.block_on(work))
    }

    /// Every flow has ended, and each branch is counted once.
    #[track_caller]
    pub(crate) fn check_sums(&self) {
        let stats = self.stats();
        assert_eq!(stats.open, 0, "{stats:?}");
        let ended = stats.joined + stats.detached + stats.adopted + stats.dropped + stats.joins_outside;
        assert_eq!(stats.branches, ended, "{stats:?}");
    }
}
