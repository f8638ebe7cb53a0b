//! The hosts' clocks, as sentences.

use astracer_causality::clocks::{self, ClockEvidence, HostClock};
use astracer_order::Order;
use serde::Serialize;

use crate::output::{escaped, measure, plural};

/// One host's clock.
#[derive(Serialize)]
pub(super) struct Clock<'a> {
    host: &'a str,
    /// By how many nanoseconds it runs ahead of `reference`; negative if it is behind.
    ahead_ns: i64,
    reference: &'a str,
    /// The largest error of the estimate.
    within_ns: Option<u64>,
    /// The largest error if the clock may drift by up to 500 ppm.
    #[serde(skip_serializing_if = "Option::is_none")]
    drifting_within_ns: Option<u64>,
    evidence: &'static str,
    messages_to: u64,
    messages_from: u64,
    /// Messages that contradict the estimate, as if they had wrong stamps.
    messages_against: u64,
    /// The offset as a function of time, of a clock that drifts or was set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<Piece>,
    pub(super) says: String,
}

/// A stretch of time in which a clock's offset is a straight line.
#[derive(Serialize)]
struct Piece {
    from_ns: u64,
    until_ns: u64,
    ahead_ns: i64,
    drift_ppm: f64,
    within_ns: u64,
    /// Between these lines the clock was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_between: Option<[String; 2]>,
}

/// The clocks of all hosts, if there are several.
pub(super) fn of(order: &Order) -> Vec<Clock<'_>> {
    let hosts = order.events.hosts();
    if hosts.len() < 2 {
        return Vec::new();
    }
    let name = |host: u32| hosts.get(host as usize).map_or("", |host| host.as_str());
    let clocks = (0..).zip(&order.host_clocks);
    let clocks = clocks.map(|(host, clock)| Clock {
        host: name(host),
        ahead_ns: clock.ahead,
        reference: name(clock.reference),
        within_ns: clock.within,
        drifting_within_ns: clock.drifting,
        evidence: clock.evidence.name(),
        messages_to: clock.messages.0,
        messages_from: clock.messages.1,
        messages_against: clock.contradicted,
        says: match clock.pieces.is_empty() {
            true => sentence(name(host), clock, name(clock.reference)),
            false => pieces(order, name(host), clock, name(clock.reference)),
        },
        pieces: clock.pieces.iter().map(|piece| written(order, piece)).collect(),
    });
    clocks.collect()
}

fn written(order: &Order, piece: &clocks::Piece) -> Piece {
    let place = |point: u32| order.events.place(&order.events.rows()[point as usize]);
    Piece {
        from_ns: piece.from,
        until_ns: piece.until,
        ahead_ns: piece.ahead,
        drift_ppm: piece.drift_ppb as f64 / 1e3,
        within_ns: piece.within,
        set_between: piece.after.map(|(before, after)| [place(before), place(after)]),
    }
}

/// A clock that drifts or was set.
fn pieces(order: &Order, host: &str, clock: &HostClock, reference: &str) -> String {
    let (host, reference) = (escaped(host), escaped(reference));
    let mut says = Vec::new();
    for (at, piece) in clock.pieces.iter().enumerate() {
        if let Some([from, to]) = written(order, piece).set_between {
            let before = &clock.pieces[at - 1];
            let step = step(before, piece);
            says.push(format!("was set {step} between {} and {}", escaped(&from), escaped(&to)));
        }
        let ppm = measure(piece.drift_ppb.unsigned_abs() as f64 / 1e3);
        let drift = match piece.drift_ppb {
            0 => None,
            1.. => Some(format!("gains {ppm} us a second ({ppm} ppm) on {reference}")),
            _ => Some(format!("loses {ppm} us a second ({ppm} ppm) on {reference}")),
        };
        says.extend(drift);
    }
    format!("{host} {}{} ({})", says.join(", then "), within(clock.within), messages(clock))
}

/// The way in which a clock was set between two pieces, and by how much.
pub(super) fn step(before: &clocks::Piece, piece: &clocks::Piece) -> String {
    let step = i128::from(piece.ahead) - i128::from(before.ahead_at(before.until));
    let size = length(u64::try_from(step.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{} {size}", if step < 0 { "back" } else { "forward" })
}

/// The offset of a clock, with its error and evidence.
pub(super) fn sentence(host: &str, clock: &HostClock, reference: &str) -> String {
    let (host, reference) = (escaped(host), escaped(reference));
    let size = length(clock.ahead.unsigned_abs());
    // An offset that may be none is not claimed. Messages that contradict each other show one.
    let is_steady = clock.evidence != ClockEvidence::Unsteady;
    let may_agree = is_steady && clock.within.is_some_and(|within| clock.ahead.unsigned_abs() <= within);
    let runs = match clock.ahead {
        ahead if may_agree || ahead == 0 => format!("{host} agrees with {reference}"),
        1.. => format!("{host} runs {size} ahead of {reference}"),
        _ => format!("{host} runs {size} behind {reference}"),
    };
    let error = clock.within.map(|error| if may_agree { error + clock.ahead.unsigned_abs() } else { error });
    let (within, messages) = (within(error), messages(clock));
    match clock.evidence {
        ClockEvidence::None => format!("{host}: unknown, no message joins it with another host"),
        ClockEvidence::Reference => format!("{host}: the others are compared to it"),
        ClockEvidence::Given if clock.ahead == 0 => format!("{host}: taken as right, as given"),
        ClockEvidence::Given => {
            let ahead = if clock.ahead < 0 { "behind" } else { "ahead" };
            format!("{host} runs {size} {ahead}, as given")
        }
        ClockEvidence::BothWays => {
            let drifting = clock.drifting.filter(|&drifting| drifting > 2 * error.unwrap_or(0));
            let drifting = drifting.map_or_else(String::new, |drifting| {
                format!(", or within {} if it drifts by at most 500 ppm", length(drifting))
            });
            format!("{runs}{within}{drifting} ({messages})")
        }
        ClockEvidence::Unsteady => format!(
            "{runs}{within}, but its messages contradict one offset: a clock was set or drifts ({messages})"
        ),
        ClockEvidence::OneWay if clock.ahead == 0 => {
            format!("{host}: no message contradicts {reference}'s clock, but none bounds it from both sides")
        }
        ClockEvidence::OneWay => {
            format!("{runs} or more: messages bound it from one side only ({messages})")
        }
        ClockEvidence::Spans => format!("{runs}{within} (by spans of clients and servers)"),
        ClockEvidence::Records => format!(
            "{runs}{within} (an estimate from log records of {}: the longer part of a trace is taken to \
             enclose the shorter)",
            plural(clock.messages.0.max(clock.messages.1), "trace")
        ),
    }
}

/// The largest error of an estimate, behind it.
fn within(within: Option<u64>) -> String {
    within.map_or_else(String::new, |within| format!(", to within {}", length(within)))
}

fn messages(clock: &HostClock) -> String {
    let (to, from) = clock.messages;
    let but = match clock.contradicted {
        0 => String::new(),
        1 => "; 1 contradicts it".to_owned(),
        some => format!("; {some} contradict it"),
    };
    format!("{} to it, {from} from it{but}", plural(to, "message"))
}

/// A length of time with a unit: "1.300 ms".
pub(super) fn length(nanos: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|&(size, _)| nanos >= size);
    unit.map_or_else(
        || format!("{nanos} ns"),
        |(size, unit)| format!("{} {unit}", measure(nanos as f64 / size as f64)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_told_as_sentences() {
        let clock = HostClock {
            ahead: 1_300_000,
            reference: 0,
            within: Some(210_000),
            evidence: ClockEvidence::BothWays,
            messages: (31, 12),
            contradicted: 0,
            drifting: None,
            pieces: Vec::new(),
        };
        assert_eq!(
            sentence("dn1", &clock, "nn"),
            "dn1 runs 1.300 ms ahead of nn, to within 210.0 us (31 messages to it, 12 from it)"
        );
        let behind =
            HostClock { ahead: -50_000_000, within: None, evidence: ClockEvidence::OneWay, ..clock.clone() };
        assert!(sentence("b", &behind, "a").starts_with("b runs 50.00 ms behind a or more"));
        let may_agree = HostClock { ahead: -100_000, ..clock.clone() };
        assert!(sentence("b", &may_agree, "a").starts_with("b agrees with a, to within 310.0 us"));
        let unsteady = HostClock { evidence: ClockEvidence::Unsteady, ..may_agree };
        assert!(
            sentence("b", &unsteady, "a").starts_with("b runs 100.0 us behind a, to within 210.0 us, but")
        );
    }
}
