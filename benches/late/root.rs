//! The cost of counting a dropped root's outcome. Roots without children run a thousand at a time
//! with one configuration and then with the next, in one process. On a shared machine the least
//! value and the 10th percentile show the cost of the code; the median includes disturbance by
//! other work.

use std::time::{Duration, Instant};

use astracer_sdk::{Astracer, ContextMode, DroppedSpans, Handle, ProvisionalMode, Start, Tail};
use opentelemetry_sdk::trace::SpanExporter;
use tracing::{Dispatch, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

const TURNS: usize = 4_000;
const ROOTS: u32 = 1_000;
/// Roots before the timed ones.
const WARM: u32 = 20;

struct Case {
    name: &'static str,
    dispatch: Dispatch,
    handle: Handle,
    nanos: Vec<f64>,
}

impl Case {
    fn new(name: &'static str, tail: Tail, own: bool, exporter: impl SpanExporter + 'static) -> Self {
        let astracer = Astracer::builder()
            .with_sampler("never".parse().expect("a sampler"))
            .with_dropped_spans(DroppedSpans::Disabled)
            .with_context_mode(ContextMode::Off)
            .with_start(Start::AtOnce)
            .with_tail(tail)
            .with_exporter(exporter)
            .build()
            .expect("a layer");
        let handle = astracer.handle.clone();
        let dispatch = if own {
            Dispatch::new(astracer.subscriber())
        } else {
            Dispatch::new(Registry::default().with(astracer.layer))
        };
        Case { name, dispatch, handle, nanos: Vec::with_capacity(TURNS) }
    }

    fn turn(&mut self) {
        tracing::dispatcher::with_default(&self.dispatch, || {
            roots(WARM);
            let start = Instant::now();
            roots(ROOTS);
            self.nanos.push(start.elapsed().as_nanos() as f64 / f64::from(ROOTS));
        });
    }

    /// Least value, 10th percentile and median.
    fn sorted(&self) -> [f64; 3] {
        let mut nanos = self.nanos.clone();
        nanos.sort_by(f64::total_cmp);
        [nanos[0], nanos[TURNS / 10], nanos[TURNS / 2]]
    }
}

fn roots(count: u32) {
    for _ in 0..count {
        let _root = info_span!("root").entered();
    }
}

pub(crate) fn print(exporter: &(impl SpanExporter + Clone + 'static)) {
    println!(
        "{:<40}{:>22}{:>30}",
        "ns per dropped root, no context", "min, p10, median", "added by policies"
    );
    for (world, own) in [("the subscriber", true), ("the layer, exclusive", false)] {
        let counted = |provisional| {
            let tail: Tail = "error".parse().expect("a policy");
            tail.with_provisional(provisional)
        };
        let mut cases = [
            ("without policies", Tail::default()),
            ("counted", counted(ProvisionalMode::Never)),
            ("armed and quiet", counted(ProvisionalMode::Armed)),
        ]
        .map(|(name, tail)| Case::new(name, tail, own, exporter.clone()));
        for _ in 0..TURNS {
            cases.iter_mut().for_each(Case::turn);
        }
        let without = cases[0].sorted();
        for case in &cases {
            let of = case.sorted();
            let figures = |of: [f64; 3]| format!("{:.1}, {:.1}, {:.1}", of[0], of[1], of[2]);
            let more = figures(std::array::from_fn(|at| of[at] - without[at]));
            println!("{:<40}{:>22}{more:>30}", format!("{world}, {}", case.name), figures(of));
            case.handle.shutdown(Duration::from_secs(60)).expect("all exported");
        }
    }
}
