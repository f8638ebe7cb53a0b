//! Random programs of messages on hosts whose clocks are off, drift and are set: what is said of
//! the clocks is true, and the order is at least as good as one by recorded times.

use std::fmt::Write as _;

use astracer_causality::clocks::{ClockEvidence, HostClock};
use astracer_causality::edge::EdgeKind;
use astracer_causality::intake::Intake;
use astracer_order::{Options, Order};
use astracer_recording::stop::Pulse;
use astracer_testing::SplitMix;

use crate::texts;

/// The longest time that a message takes, in microseconds.
const ON_ITS_WAY: u64 = 2_000;

const BEGIN: u64 = 1_778_749_200_000_000;

/// The clock of a host, in microseconds.
#[derive(Clone, Debug, Default)]
struct Clock {
    offset: i64,
    drift_ppm: i64,
    /// Set at this true time, by this much.
    set: Option<(u64, i64)>,
}

impl Clock {
    fn random(random: &mut SplitMix, length: u64) -> Self {
        let mut signed = |most: u64| random.below(2 * most + 1) as i64 - most as i64;
        let kind = signed(3);
        Self {
            offset: if kind.abs() > 0 { signed(900_000) } else { 0 },
            drift_ppm: if kind.abs() == 2 { signed(60) } else { 0 },
            // A smaller step may be drift within what messages show.
            set: (kind == 3).then(|| {
                let by = signed(600_000);
                (length / 3 + signed(length / 9).unsigned_abs(), by + by.signum() * 20_000)
            }),
        }
    }

    fn ahead(&self, us: u64) -> i64 {
        let set = self.set.filter(|&(at, _)| us >= at).map_or(0, |(_, by)| by);
        self.offset + us as i64 * self.drift_ppm / 1_000_000 + set
    }
}

/// One event of a program: true time, host, thread and the text of its call.
type Call = (u64, usize, usize, String);

struct Program {
    clocks: Vec<Clock>,
    calls: Vec<Call>,
}

impl Program {
    /// Messages between random threads, 60 to 2,000 us on the way, and other events between them.
    fn random(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let hosts = 2 + random.below(2) as usize;
        let length = 60_000_000;
        let mut clocks = vec![Clock::default()];
        clocks.extend((1..hosts).map(|_| Clock::random(&mut random, length)));
        // A line needs three messages each way, which two clocks that are set at once may not have.
        let mut sets = clocks.iter_mut().map(|clock| &mut clock.set).filter(|set| set.is_some());
        sets.next();
        sets.for_each(|set| *set = None);
        let mut calls: Vec<Call> = Vec::new();
        // The last message of each channel, which keeps the order of its bytes.
        let mut last = vec![vec![0u64; hosts]; hosts];
        let mut at = 1_000;
        while at < length {
            at += 20_000 + random.below(200_000);
            let from = random.below(hosts as u64) as usize;
            let to = (from + 1 + random.below(hosts as u64 - 1) as usize) % hosts;
            let arrival = (at + 60 + random.below(ON_ITS_WAY - 60)).max(last[from][to] + 1);
            last[from][to] = arrival;
            let port = |host: usize, other: usize| {
                1_000 + host.min(other) * 10 + host.max(other) + 100 * usize::from(host > other)
            };
            let end = |host: usize, other: usize| format!("10.0.0.{host}:{}", port(host, other));
            let (here, there) = (end(from, to), end(to, from));
            calls.push((
                at,
                from,
                to,
                format!("sendto(3<TCP:[{here}->{there}]>, \"hello\", 5, 0, 0, 0) = 5 <0.000000>"),
            ));
            calls.push((
                arrival,
                to,
                from,
                format!("recvfrom(3<TCP:[{there}->{here}]>, \"hello\", 9, 0, 0, 0) = 5 <0.000000>"),
            ));
            // Independent events of another thread, on any host.
            let host = random.below(hosts as u64) as usize;
            let other = at + 3_000 + random.below(15_000);
            calls.push((
                other,
                host,
                9,
                format!("sendto(9<TCP:[10.0.0.{host}:9->10.9.9.9:9]>, \"x\", 1, 0, 0, 0) = 1 <0.000000>"),
            ));
        }
        calls.sort();
        Self { clocks, calls }
    }

    /// The order, and for each of its events the true time.
    fn order(&self) -> (Order, Vec<u64>) {
        let mut texts = vec![(String::new(), Vec::new()); self.clocks.len()];
        for (us, host, thread, call) in &self.calls {
            let stamp = (BEGIN + us).saturating_add_signed(self.clocks[*host].ahead(*us));
            let (text, truth) = &mut texts[*host];
            let _ = writeln!(text, "{} {}.{:06} {call}", 10 + thread, stamp / 1_000_000, stamp % 1_000_000);
            truth.push(*us);
        }
        let mut intake = Intake::new(3);
        for (host, (text, _)) in texts.iter().enumerate() {
            texts::read(&mut intake, &format!("h{host}"), &format!("h{host}.strace"), text);
        }
        let order = astracer_order::order(intake.finish(), &Options::default(), &mut Pulse::never());
        let order = order.expect("not stopped");
        let truth = |row: &astracer_causality::points::Point| {
            let file = &order.events.files()[row.file as usize];
            let host = texts.iter().enumerate().position(|(host, _)| **file == *format!("h{host}.strace"));
            texts[host.expect("a file")].1[row.line as usize - 1]
        };
        let truth = order.events.rows().iter().map(truth).collect();
        (order, truth)
    }
}

/// True if a point lies between the two lines between which its clock is said to have been set.
fn is_open(clock: &HostClock, event: u32) -> bool {
    clock.pieces.iter().filter_map(|piece| piece.after).any(|(before, after)| before < event && event < after)
}

fn inverted(order: impl Iterator<Item = u32>, truth: &[u64]) -> usize {
    let times: Vec<u64> = order.map(|event| truth[event as usize]).collect();
    times.windows(2).filter(|pair| pair[0] > pair[1]).count()
}

#[test]
fn what_is_said_of_clocks_holds_and_the_order_is_no_worse_than_by_times() {
    let (mut ours, mut raw, mut described) = (0, 0, 0);
    for seed in 0..60 {
        let program = Program::random(seed);
        let (order, truth) = program.order();
        let rows = order.events.rows();
        let place = |event: u32| order.positions[event as usize];
        for edge in &order.edges {
            assert!(place(edge.before) < place(edge.after), "seed {seed}");
            // Messages are joined to their own sends.
            let [sent, received] = [edge.before, edge.after].map(|event| truth[event as usize]);
            assert!(edge.kind != EdgeKind::SendReceive || sent < received, "seed {seed}");
        }
        for (event, row) in (0u32..).zip(rows) {
            let host = order.events.process(row).host;
            let clock = &order.host_clocks[host as usize];
            let reference = clock.reference as usize;
            let name = |host: usize| order.events.hosts()[host][1..].parse::<usize>().expect("a number");
            let other = name(reference);
            let is_bounded = !matches!(clock.evidence, ClockEvidence::Unsteady | ClockEvidence::OneWay);
            let us = truth[event as usize];
            // A message that was on its way while the other clock was set belongs to either line.
            let set = program.clocks[other].set.map(|(at, _)| at);
            let is_on_its_way = set.is_some_and(|at| at <= us && us < at + ON_ITS_WAY);
            if !is_bounded || is_open(clock, event) || is_on_its_way {
                continue;
            }
            described += 1;
            // In nanoseconds; the clock's microseconds are cut.
            let truly = (BEGIN + us).saturating_add_signed(program.clocks[other].ahead(us)) as i64 * 1_000;
            let off = order.aligned_times[event as usize] as i64 - truly;
            let said = |clock: &HostClock| clock.within.max(clock.drifting).unwrap_or(0);
            let within = said(clock) + said(&order.host_clocks[reference]);
            assert!(
                off.unsigned_abs() <= within + 20_000,
                "seed {seed}: {off} of {within}, {us} {clock:?} {:?}",
                program.clocks
            );
        }
        let mut by_time: Vec<u32> = (0..rows.len() as u32).collect();
        by_time.sort_by_key(|&event| rows[event as usize].time);
        let own = (inverted(order.sequence.iter().copied(), &truth), inverted(by_time.into_iter(), &truth));
        assert!(own.0 <= own.1, "seed {seed}: {own:?} {:?} {:?}", program.clocks, order.host_clocks);
        (ours, raw) = (ours + own.0, raw + own.1);
    }
    assert!(described > 40_000 && ours * 20 < raw, "{ours} inverted, {raw} by time, {described} events");
}
