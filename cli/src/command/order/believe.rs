//! The top of the first screen: contradictions, the evidence for clocks and causes, and errors by
//! host.

use std::fmt::Write as _;

use astracer_causality::clocks::{ClockEvidence, HostClock};
use astracer_model::log::Severity;
use astracer_order::Order;

use super::clocks::{length, step};
use crate::output::{count, escaped, plural};

/// Hosts that a line names.
const HOSTS_SHOWN: usize = 6;

/// The lines at the top, before anything else is described.
pub(super) fn lines(order: &Order) -> String {
    let mut text = String::new();
    if !order.exists() {
        let contradictions = plural(order.cycles.len() as u64, "contradiction");
        let _ = writeln!(text, "no order exists: {contradictions}");
    }
    let _ = writeln!(text, "{}", clocks(order));
    let events = &order.events;
    let process = |event: u32| events.thread(&events.rows()[order.shown(event) as usize]).process;
    let joins = order.edges.iter().any(|edge| process(edge.before) != process(edge.after));
    if events.processes().len() > 1 && !joins {
        text.push_str("no cause between processes is known: this is an order by clocks\n");
    }
    text.push_str(&errors(order));
    text
}

/// Each host's clock in a few words; those of which nothing is known together.
fn clocks(order: &Order) -> String {
    let hosts = order.events.hosts();
    let mut text = plural(hosts.len() as u64, "host");
    if hosts.len() < 2 {
        return text + ", one clock";
    }
    if order.host_clocks.is_empty() {
        return text + "; their clocks are taken as recorded (--raw-times)";
    }
    let is_compared =
        |clock: &&HostClock| !matches!(clock.evidence, ClockEvidence::None | ClockEvidence::Reference);
    let all = || hosts.iter().zip(&order.host_clocks);
    let compared: Vec<_> = all().filter(|(_, clock)| is_compared(clock)).collect();
    for (host, clock) in compared.iter().take(HOSTS_SHOWN) {
        let reference = escaped(&hosts[clock.reference as usize]);
        let _ = write!(text, "; {} {}", escaped(host), brief(clock, &reference));
    }
    if let Some(more) = compared.len().checked_sub(HOSTS_SHOWN).filter(|&more| more > 0) {
        let _ = write!(text, "; {} more under clocks", count(more as u64));
    }
    let unknown: Vec<_> = all().filter(|(_, clock)| clock.evidence == ClockEvidence::None).collect();
    let named: Vec<_> = unknown.iter().take(HOSTS_SHOWN).map(|(host, _)| escaped(host)).collect();
    if !named.is_empty() {
        let more = if unknown.len() > named.len() { " and others" } else { "" };
        let _ = write!(text, "; {}{more} unknown: taken as recorded", named.join(", "));
    }
    text
}

/// The offset of a clock with its error and its evidence.
fn brief(clock: &HostClock, reference: &str) -> String {
    let (to, from) = clock.messages;
    let evidence = match clock.evidence {
        ClockEvidence::Spans => format!("from {}", plural(to.max(from), "call")),
        ClockEvidence::Records => format!("an estimate from {}", plural(to.max(from), "trace")),
        _ if clock.contradicted > 0 => format!(
            "from all but {} of {}",
            count(clock.contradicted),
            plural(to.saturating_add(from), "message")
        ),
        _ => format!("from {}", plural(to.saturating_add(from), "message")),
    };
    if let [first, others @ ..] = clock.pieces.as_slice() {
        let drift = match first.drift_ppb {
            0 => None,
            ppb => Some(format!("drifts by {:.1} ppm", ppb as f64 / 1e3)),
        };
        let set = match others {
            [] => None,
            [second] => Some(format!("was set {}", step(first, second))),
            more => Some(format!("was set {} times", count(more.len() as u64))),
        };
        let both: Vec<String> = drift.into_iter().chain(set).collect();
        if !both.is_empty() {
            return format!("{}, {evidence}", both.join(" and "));
        }
    }
    let way = if clock.ahead < 0 { "behind" } else { "ahead of" };
    let size = clock.ahead.unsigned_abs();
    match (clock.evidence, clock.within) {
        (ClockEvidence::Given, _) if clock.ahead == 0 => "is taken as right, as given".to_owned(),
        (ClockEvidence::Given, _) => {
            let way = if clock.ahead < 0 { "behind" } else { "ahead" };
            format!("is {} {way}, as given", length(size))
        }
        (ClockEvidence::Unsteady, _) => format!("was set or drifts ({evidence}): its times are doubtful"),
        (ClockEvidence::OneWay, _) if clock.ahead == 0 => {
            "is bounded from one side only: taken as recorded".to_owned()
        }
        (ClockEvidence::OneWay, _) => format!("is {} or more {way} {reference}, {evidence}", length(size)),
        (_, Some(within)) if size <= within => {
            format!("agrees with {reference} within {}, {evidence}", length(size.saturating_add(within)))
        }
        (_, within) => format!("is {} {way} {reference}, {evidence}", plus_minus(size, within.unwrap_or(0))),
    }
}

/// A size with its error in the same unit. The error covers the rounding of both.
fn plus_minus(size: u64, within: u64) -> String {
    if within == 0 {
        return length(size);
    }
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (unit, name) = units.into_iter().find(|&(unit, _)| size >= unit).unwrap_or((1, "ns"));
    // Digits down to the first of the error.
    let (mut digits, mut step) = (0, unit);
    while step > within && step >= 10 {
        (digits, step) = (digits + 1, step / 10);
    }
    let rounded = (size + step / 2) / step * step;
    let error = (within + rounded.abs_diff(size)).div_ceil(step) * step;
    let show = |nanos: u64| format!("{:.digits$}", nanos as f64 / unit as f64);
    format!("{} \u{b1} {} {name}", show(rounded), show(error))
}

/// Errors and warnings of log records, by host.
fn errors(order: &Order) -> String {
    let events = &order.events;
    let mut counts = vec![[0u64; 2]; events.hosts().len()];
    for row in events.rows() {
        let severity = order.severity(row);
        let at = match severity {
            severity if severity >= Severity::ERROR => 0,
            severity if severity >= Severity::WARN => 1,
            _ => continue,
        };
        counts[events.process(row).host as usize][at] += 1;
    }
    let mut text = String::new();
    for (at, what) in ["errors", "warnings"].into_iter().enumerate() {
        let mut own: Vec<_> =
            events.hosts().iter().zip(&counts).filter(|(_, counts)| counts[at] > 0).collect();
        own.sort_by_key(|(_, counts)| std::cmp::Reverse(counts[at]));
        let named = own.iter().take(HOSTS_SHOWN);
        let named: Vec<_> =
            named.map(|(host, counts)| format!("{} {}", escaped(host), count(counts[at]))).collect();
        let more = own.len() - named.len();
        let more = if more > 0 { format!(" and {more} more hosts") } else { String::new() };
        if !named.is_empty() {
            let _ = writeln!(text, "{what}: {}{more}", named.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: the shown range holds the true one.
    #[test]
    fn an_offset_has_the_digits_of_its_error() {
        for (size, within, expected) in [
            (49_983_000, 91_760, "49.98 \u{b1} 0.10 ms"),
            (50_000_000, 100_000, "50.0 \u{b1} 0.1 ms"),
            (500_000_000, 0, "500.0 ms"),
            (1_234_567_890, 2_000_000_000, "1 \u{b1} 3 s"),
            (730, 40, "730 \u{b1} 40 ns"),
        ] {
            assert_eq!(plus_minus(size, within), expected);
        }
    }
}
