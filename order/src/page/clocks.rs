//! A lane for each host's clock: its offset over time, within its bounds.

use astracer_causality::clocks::{ClockEvidence, HostClock};
use astracer_report::names::short;
use astracer_report::numbers::{change, three};
use maud::{Markup, html};

use crate::Order;

/// Hosts with a lane.
const LANES_MAX: usize = 60;
/// The height of a lane, in pixels.
const HIGH: f64 = 44.0;

/// A point of a lane: the time, the offset and its largest error, ns.
type Point = (f64, f64, f64);

pub(super) fn lanes(order: &Order) -> Markup {
    let clocks: Vec<(&String, &HostClock)> = order
        .events
        .hosts()
        .iter()
        .zip(&order.host_clocks)
        .filter(|(_, clock)| !matches!(clock.evidence, ClockEvidence::None | ClockEvidence::Reference))
        .collect();
    let times = || order.events.rows().iter().map(|row| row.time as f64);
    let (start, end) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    html! { @if !clocks.is_empty() && start.is_finite() {
        h2 { "Clocks" }
        p.note { "How far each host's clock runs ahead, over the time of the recording. The band is where messages allow it to be." }
        @for (host, clock) in clocks.iter().take(LANES_MAX) { (lane(order, host, clock, start, end)) }
        (astracer_report::page::more(clocks.len(), LANES_MAX))
    } }
}

fn lane(order: &Order, host: &str, clock: &HostClock, start: f64, end: f64) -> Markup {
    let points = points(clock, start, end);
    let bounds = points.iter().flat_map(|&(_, ahead, within)| [ahead - within, ahead + within]).chain([0.0]);
    let (low, high) = bounds.fold((0.0f64, 0.0f64), |(low, high), at| (low.min(at), high.max(at)));
    let x = |time: f64| (time - start) / (end - start).max(1.0) * 100.0;
    let y = |ahead: f64| 95.0 - (ahead - low) / (high - low).max(1.0) * 90.0;
    let place = |(time, ahead): (f64, f64)| format!("{:.2},{:.2}", x(time), y(ahead));
    let edge = |sign: f64| points.iter().map(move |&(time, ahead, within)| (time, ahead + sign * within));
    let band: Vec<String> =
        edge(1.0).chain(edge(-1.0).collect::<Vec<_>>().into_iter().rev()).map(place).collect();
    let line: Vec<String> = points.iter().map(|&(time, ahead, _)| place((time, ahead))).collect();
    let reference = order.events.hosts().get(clock.reference as usize);
    let ms = |ns: f64| ns / 1e6;
    html! {
        div.row {
            div.name {
                b { (short(host)) }
                span { (evidence(clock.evidence)) @if let Some(other) = reference.filter(|other| *other != host) { ", against " (short(other)) } }
            }
            svg height=(HIGH) role="img" aria-label="Offset of this clock over time" {
                rect.fill-track width="100%" height=(HIGH) rx="3" {}
                svg height=(HIGH) viewBox="0 0 100 100" preserveAspectRatio="none" {
                    @if clock.within.is_some() || !clock.pieces.is_empty() { polygon.fill-good.faint points=(band.join(" ")) {} }
                    polyline.line-soft.dashed points=(format!("0,{0:.2} 100,{0:.2}", y(0.0))) {}
                    polyline.thick.line-good points=(line.join(" ")) {}
                }
            }
            div.say {
                b { (change(ms(clock.ahead as f64))) " ms" }
                span {
                    @match clock.within { Some(within) => { "± " (three(ms(within as f64))) " ms" } None => { "without a bound" } }
                    @if clock.pieces.len() > 1 { "; it was set " (clock.pieces.len() - 1) @if clock.pieces.len() == 2 { " time" } @else { " times" } }
                }
            }
        }
    }
}

/// The evidence in words.
fn evidence(of: ClockEvidence) -> &'static str {
    match of {
        ClockEvidence::None | ClockEvidence::Reference => "",
        ClockEvidence::Given => "as stated",
        ClockEvidence::BothWays => "from messages in both directions",
        ClockEvidence::Unsteady => "from messages that contradict each other",
        ClockEvidence::OneWay => "from messages in one direction",
        ClockEvidence::Spans => "from calls between spans",
        ClockEvidence::Records => "from log records of the same traces",
    }
}

/// The offset at the ends of each piece; of a clock with one offset, at both ends of the recording.
fn points(clock: &HostClock, start: f64, end: f64) -> Vec<Point> {
    if clock.pieces.is_empty() {
        let (ahead, within) = (clock.ahead as f64, clock.within.unwrap_or(0) as f64);
        return vec![(start, ahead, within), (end, ahead, within)];
    }
    let of = |piece: &astracer_causality::clocks::Piece| {
        let (from, until) = (piece.from as f64, piece.until as f64);
        let gained = (until - from) / 1e9 * piece.drift_ppb as f64;
        let (ahead, within) = (piece.ahead as f64, piece.within as f64);
        [(from.max(start), ahead, within), (until.min(end), ahead + gained, within)]
    };
    clock.pieces.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use astracer_causality::clocks::Piece;

    use super::*;

    /// A clock that is 5,000 ns ahead at 1 s, gains 1,000 ns a second until 3 s, and was set back
    /// then.
    #[test]
    fn a_lane_follows_the_pieces_of_a_clock() {
        let piece = |from: u64, until: u64, ahead: i64, drift_ppb: i64| Piece {
            from: from * 1_000_000_000,
            until: until * 1_000_000_000,
            ahead,
            drift_ppb,
            within: 100,
            after: None,
        };
        let mut clock = HostClock {
            ahead: 5_000,
            reference: 0,
            within: Some(200),
            evidence: ClockEvidence::BothWays,
            messages: (3, 3),
            drifting: None,
            contradicted: 0,
            pieces: vec![piece(1, 3, 5_000, 1_000), piece(3, 4, 0, 0)],
        };
        let found = points(&clock, 0.0, 5e9);
        let expected = [(1e9, 5e3, 100.0), (3e9, 7e3, 100.0), (3e9, 0.0, 100.0), (4e9, 0.0, 100.0)];
        assert_eq!(found, expected);
        clock.pieces.clear();
        assert_eq!(points(&clock, 0.0, 5e9), [(0.0, 5e3, 200.0), (5e9, 5e3, 200.0)]);
    }
}
