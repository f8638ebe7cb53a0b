//! The guarantees of the readers of events and of an order on any input: they do not panic; each
//! event and problem lies within the input; and constraints that contradict each other can be left
//! out until an order exists.

use std::sync::Arc;

use astracer_causality::intake::Intake;
use astracer_formats::{Limits, events, logs};
use astracer_model::event::{Event, EventFormat};
use astracer_model::problem::{Place, Problem};
use astracer_model::sink::{Record, Sink, Wants};
use astracer_model::span::Span;
use astracer_order::Options;
use astracer_recording::stop::Pulse;

/// Small enough for mutated seeds to exceed them.
const LIMITS: Limits = Limits { record_bytes_max: 16 << 10, nesting_max: 40 };

pub(super) fn check_strace(data: &[u8]) {
    check(EventFormat::Strace, data);
}

pub(super) fn check_falcon(data: &[u8]) {
    check(EventFormat::FalconJson, data);
}

pub(super) fn check_clocks(data: &[u8]) {
    check(EventFormat::VectorClocks, data);
}

fn check(format: EventFormat, data: &[u8]) {
    let options = logs::Options::default();
    let _ = events::detect(data, &options);
    let file = Arc::from("input.strace");
    let mut checked = Checked { len: data.len() as u64, intake: Intake::new(3), events: 0 };
    checked.intake.file(&file, format.into());
    events::read(format, &mut &*data, &file, &LIMITS, &options, &mut checked);
    let events = checked.events;
    let options = Options { drop_cycles: true, ..Options::default() };
    let found = astracer_order::order(checked.intake.finish(), &options, &mut Pulse::never());
    let found = found.expect("not stopped");
    assert!(found.events.len() <= events, "{} events of {events}", found.events.len());
    assert!(found.exists(), "{} contradictions stay", found.cycles.len());
    let place = |event: u32| found.positions[event as usize];
    for edge in &found.edges {
        assert!(place(edge.before) < place(edge.after), "{edge:?}");
        let time = |event: u32| found.times[event as usize];
        assert!(time(edge.before) <= time(edge.after), "{edge:?}");
    }
}

struct Checked<'d> {
    len: u64,
    intake: Intake<'d>,
    events: usize,
}

impl Sink for Checked<'_> {
    fn span(&mut self, _: Span<'_>, _: Record<'_>) {}

    fn wants(&self) -> Wants {
        Wants { events: true, ..Wants::default() }
    }

    fn event(&mut self, event: Event<'_>, record: Record<'_>) {
        assert!(record.place.byte <= self.len, "an event lies behind the end: {}", record.place);
        self.events += 1;
        self.intake.event(event, record);
    }

    fn left_out(&mut self, reason: &'static str, place: &Place) {
        self.intake.left_out(reason, place);
    }

    fn problem(&mut self, problem: Problem) {
        assert!(problem.place.byte <= self.len, "a problem lies behind the end: {}", problem.place);
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}
