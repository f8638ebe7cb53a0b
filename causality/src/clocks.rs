//! The clocks of hosts: by how much each runs ahead of the others, from messages between them.
//!
//! A message from host A to host B that was sent at `a` and received at `b`, each by its host's
//! clock, shows that B is ahead of A by at most `b - a`. The least over all messages is the bound
//! of this direction. Bounds of both directions leave a range, whose middle is taken, as NTP takes
//! it; over several hosts the ranges are shortest paths (Bellman and Ford). If hosts are bounded in
//! one direction only, they are shifted by the least that keeps the bounds.
//!
//! Where no messages were recorded, calls between spans bound clocks: a server's span lies within
//! its client's. Without these, the log records of traces do. One wrong time must not move a host's
//! other spans, so the range on which most calls agree is taken.

use std::collections::BTreeMap;

use crate::graph::Graph;

/// The clock of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// By how many nanoseconds it runs ahead; negative if it is behind.
    pub ahead: i64,
    /// The number of the host that it is compared to; itself if it is the reference of others or
    /// there is none to compare it to.
    pub reference: u32,
    /// The largest error of the estimate, in nanoseconds; `None` if nothing bounds it.
    pub within: Option<u64>,
    /// Where the estimate comes from.
    pub evidence: ClockEvidence,
    /// Messages from other hosts to this one that bound its clock, and in the other direction.
    pub messages: (u64, u64),
    /// The largest error if the clock may drift by up to 500 ppm, which one offset for all messages
    /// does not exclude; `None` for a clock that messages do not bound from both sides.
    pub drifting: Option<u64>,
    /// Messages that contradict the estimate, as if they had wrong stamps.
    pub contradicted: u64,
    /// The lines that describe a clock which drifts or was set; empty for a clock with one offset.
    pub pieces: Vec<Piece>,
}

/// A stretch of time in which a clock's offset is a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The host's times of its first and last message.
    pub from: u64,
    /// See [`Self::from`].
    pub until: u64,
    /// By how many nanoseconds the clock runs ahead at the first message.
    pub ahead: i64,
    /// By how many nanoseconds it gains in a second.
    pub drift_ppb: i64,
    /// The largest error of the offset, in nanoseconds.
    pub within: u64,
    /// The points between which the clock was set; `None` for the first piece.
    pub after: Option<(u32, u32)>,
}

/// Where the estimate of a clock comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockEvidence {
    /// No other host exchanges messages with it.
    None,
    /// The others are compared to it.
    Reference,
    /// The user states it.
    Given,
    /// Messages in both directions.
    BothWays,
    /// Messages in both directions that contradict each other: the clock was set, or drifts.
    Unsteady,
    /// Messages in one direction.
    OneWay,
    /// Clients' and servers' spans, in at least one direction.
    Spans,
    /// Log records of the same traces, of which the longer stretch is taken to enclose the shorter.
    Records,
}

impl ClockEvidence {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Reference => "reference",
            Self::Given => "given",
            Self::BothWays => "both-ways",
            Self::Unsteady => "unsteady",
            Self::OneWay => "one-way",
            Self::Spans => "spans",
            Self::Records => "records",
        }
    }
}

/// The bound that one direction between two hosts has.
#[derive(Clone, Copy, Debug)]
struct Bound {
    least: i128,
    messages: u64,
    source: Source,
}

/// The source of a bound, from the best to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Messages,
    /// Calls of which the recorder says that the client waited: of a client's span to a server's.
    StatedCalls,
    /// Other calls between spans.
    Calls,
    /// Log records of one trace.
    Records,
}

/// A bound from one host to another.
type HostBound = ((u32, u32), Bound);

/// A call between two hosts: the least and the most nanoseconds that the second one's clock is
/// ahead if the server's span lies within the client's.
type CallRange = (i64, i64);

/// Evidence about the clocks of hosts, which have numbers.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    messages: BTreeMap<(u32, u32), Bound>,
    /// Calls between two hosts, the smaller number first.
    calls: BTreeMap<(u32, u32, Source), Vec<CallRange>>,
    /// The resolution of the times of calls that are not stated: 0 for whole milliseconds, 1 for
    /// microseconds, 2 for finer ones.
    finer: u32,
}

impl Bounds {
    /// A cause and its effect, each with its host and its time by the host's clock.
    pub fn message(&mut self, (from, sent): (u32, u64), (to, received): (u32, u64)) {
        if from != to {
            let least = i128::from(received) - i128::from(sent);
            let bound = self.messages.entry((from, to));
            let bound = bound.or_insert(Bound { least, messages: 0, source: Source::Messages });
            bound.least = bound.least.min(least);
            bound.messages += 1;
        }
    }

    /// A call: the span of the caller and that of the callee, each with its host, start and end.
    /// `is_stated` is true if the recorder says that the caller waited, as between a client's and a
    /// server's span. Otherwise a callee that took longer than its caller says nothing.
    pub fn call(&mut self, caller: (u32, u64, u64), callee: (u32, u64, u64), is_stated: bool) {
        self.range(caller, callee, if is_stated { Source::StatedCalls } else { Source::Calls });
    }

    /// The first and the last log record of one trace on two hosts, the longer stretch first.
    pub fn records(&mut self, longer: (u32, u64, u64), shorter: (u32, u64, u64)) {
        self.range(longer, shorter, Source::Records);
    }

    fn range(&mut self, caller: (u32, u64, u64), callee: (u32, u64, u64), source: Source) {
        let is_stated = source == Source::StatedCalls;
        let ((one, from, to), (other, start, end)) = (caller, callee);
        if one == other || (!is_stated && end.saturating_sub(start) > to.saturating_sub(from)) {
            return;
        }
        let ahead = |there: u64, here: u64| {
            let ahead = i128::from(there) - i128::from(here);
            i64::try_from(ahead).unwrap_or(if ahead < 0 { -i64::MAX } else { i64::MAX })
        };
        let (least, most) = (ahead(end, to), ahead(start, from));
        if !is_stated {
            let is_multiple = |unit: u64| [from, to, start, end].iter().all(|time| time.is_multiple_of(unit));
            self.finer =
                self.finer.max(2 - u32::from(is_multiple(1_000)) - u32::from(is_multiple(1_000_000)));
        }
        let (hosts, range) = match one < other {
            true => ((one, other, source), (least, most)),
            false => ((other, one, source), (-most, -least)),
        };
        self.calls.entry(hosts).or_default().push(range);
    }

    /// The bounds of each direction, by clocks less what the user states: the tighter of messages
    /// and calls. Calls whose client waited count before others.
    fn directed(mut self, hosts: usize, given: impl Fn(u32) -> i128) -> BTreeMap<(u32, u32), Bound> {
        for (&(from, to), bound) in &mut self.messages {
            bound.least += given(from) - given(to);
        }
        let mut found = self.messages;
        for source in [Source::StatedCalls, Source::Calls, Source::Records] {
            let is_stated = source == Source::StatedCalls;
            let joined = match source {
                Source::Records => group_of(hosts, &groups(hosts, &found)),
                _ => vec![NO_GROUP; hosts],
            };
            for ((one, other, _), calls) in self.calls.iter_mut().filter(|(key, _)| key.2 == source) {
                let (one, other) = (*one, *other);
                let is_known =
                    |from, to| found.get(&(from, to)).is_some_and(|known| known.source > Source::Messages);
                // Records of one trace do not bound clocks that better evidence joins, if only by
                // way of a third host.
                let group = joined[one as usize];
                let is_joined = group != NO_GROUP && group == joined[other as usize];
                if is_known(one, other) || is_known(other, one) || is_joined {
                    continue;
                }
                let Some((least, most)) = agreed(calls) else { continue };
                // Without the recorder's word, a clock is off only if it cannot be right.
                let shift = given(one) - given(other);
                let (mut least, mut most) = (i128::from(least) + shift, i128::from(most) + shift);
                if !is_stated {
                    // A time was written up to one unit after what it states.
                    let unit = [1_000_000, 1_000, 0][self.finer as usize];
                    (least, most) = (least - unit, most + unit);
                    if least <= 0 && most >= 0 {
                        most = most.max(-least);
                        least = -most;
                    }
                }
                let messages = calls.len() as u64;
                let bound = |least| Bound { least, messages, source };
                for (from, to, own, back) in [(one, other, most, -least), (other, one, -least, most)] {
                    let back = found.get(&(to, from)).map_or(back, |known| known.least.min(back));
                    match found.get_mut(&(from, to)) {
                        // The tighter bound, unless messages contradict it.
                        Some(known) if own < known.least && own + back >= 0 => known.least = own,
                        Some(_) => {}
                        None => {
                            found.insert((from, to), bound(own));
                        }
                    }
                }
            }
        }
        found
    }
}

/// The range on which most calls agree (Marzullo's algorithm, as NTP selects clocks): a call whose
/// server outlived its client, or one wrong time among many, does not count. `None` without a call
/// whose server's span is at most as long as its client's.
fn agreed(calls: &mut Vec<CallRange>) -> Option<CallRange> {
    calls.retain(|&(least, most)| least <= most);
    // At equal values a range begins before another ends.
    let mut ends: Vec<(i64, bool)> =
        calls.iter().flat_map(|&(least, most)| [(least, false), (most, true)]).collect();
    ends.sort_unstable();
    let (mut open, mut best, mut found) = (0u64, 0, None);
    for (at, &(value, is_end)) in ends.iter().enumerate() {
        if is_end {
            open -= 1;
            continue;
        }
        open += 1;
        if open > best {
            let next = ends.get(at + 1).map_or(value, |&(next, _)| next);
            (best, found) = (open, Some((value, next)));
        }
    }
    found
}

/// Estimates the clock of each host. `names` decide between hosts with equal evidence; `given` are
/// the clocks that the user states.
pub fn estimate(names: &[String], bounds: Bounds, given: &[Option<i64>]) -> Vec<HostClock> {
    let given = |host: u32| given.get(host as usize).copied().flatten();
    let mut clocks: Vec<HostClock> = (0..names.len() as u32)
        .map(|host| HostClock {
            ahead: given(host).unwrap_or(0),
            reference: host,
            within: None,
            evidence: if given(host).is_some() { ClockEvidence::Given } else { ClockEvidence::None },
            messages: (0, 0),
            contradicted: 0,
            drifting: None,
            pieces: Vec::new(),
        })
        .collect();
    if clocks.len() < 2 {
        return clocks;
    }
    let bounds = bounds.directed(clocks.len(), |host| i128::from(given(host).unwrap_or(0)));
    for (&(from, to), bound) in &bounds {
        clocks[to as usize].messages.0 += bound.messages;
        clocks[from as usize].messages.1 += bound.messages;
    }
    let groups = groups(clocks.len(), &bounds);
    let of_groups = by_group(clocks.len(), &groups, bounds);
    for (group, bounds) in groups.iter().zip(of_groups) {
        let weight = |&host: &u32| {
            let (to, from) = clocks[host as usize].messages;
            (given(host).is_none(), to + from, std::cmp::Reverse(&names[host as usize]))
        };
        let Some(&reference) = group.iter().max_by_key(|&host| weight(host)) else { continue };
        compare(&mut clocks, group, reference, &bounds);
    }
    clocks
}

/// Hosts that are connected by messages, in groups of at least two.
fn groups(hosts: usize, bounds: &BTreeMap<(u32, u32), Bound>) -> Vec<Vec<u32>> {
    let both = bounds.keys().flat_map(|&(from, to)| [(from, to), (to, from)]);
    Graph::new(hosts, both).knots()
}

/// Marks a host without a group.
const NO_GROUP: usize = usize::MAX;

/// The number of each host's group.
fn group_of(hosts: usize, groups: &[Vec<u32>]) -> Vec<usize> {
    let mut group_of = vec![NO_GROUP; hosts];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|&host| group_of[host as usize] = number);
    }
    group_of
}

/// The bounds within each group.
fn by_group(hosts: usize, groups: &[Vec<u32>], bounds: BTreeMap<(u32, u32), Bound>) -> Vec<Vec<HostBound>> {
    let group_of = group_of(hosts, groups);
    let mut all = vec![Vec::new(); groups.len()];
    for (hosts, bound) in bounds {
        if let Some(own) = all.get_mut(group_of[hosts.0 as usize]) {
            own.push((hosts, bound));
        }
    }
    all
}

/// Sets the clocks of hosts that are connected by messages.
fn compare(clocks: &mut [HostClock], group: &[u32], reference: u32, bounds: &[HostBound]) {
    // Clocks that the user states are one with the reference.
    let is_given = |host: u32| clocks[host as usize].evidence == ClockEvidence::Given;
    let free: Vec<u32> = group.iter().copied().filter(|&host| host == reference || !is_given(host)).collect();
    let node = |host: u32| free.binary_search(&host).or_else(|_| free.binary_search(&reference)).unwrap_or(0);
    let mut least: BTreeMap<(usize, usize), (i128, Source)> = BTreeMap::new();
    for &((from, to), bound) in bounds {
        let (from, to) = (node(from), node(to));
        if from != to {
            let own = least.entry((from, to)).or_insert((bound.least, bound.source));
            *own = (own.0.min(bound.least), own.1.min(bound.source));
        }
    }
    let edges: Vec<Link> = least.iter().map(|(&(from, to), &(least, _))| Link { from, to, least }).collect();
    let graph = Graph::new(free.len(), edges.iter().map(|link| (link.from as u32, link.to as u32)));
    let (cluster, count) = graph.components();
    let clusters = Clusters::new(&cluster, count, &edges);
    let mut ahead = vec![0i128; free.len()];
    let mut within = vec![None; free.len()];
    let mut compared = vec![reference; free.len()];
    let mut is_unsteady = vec![false; free.len()];
    let root = node(reference);
    // An edge between clusters leads to a smaller number.
    for own in (0..count).rev() {
        let members = &clusters.members[own];
        let busiest = |&&at: &&usize| {
            let (to, from) = clocks[free[at] as usize].messages;
            (at == root, to + from, std::cmp::Reverse(at))
        };
        let Some(&first) = members.iter().max_by_key(busiest) else { continue };
        let (most, fewest, slack) = ranges(members.len(), &clusters.inside[own], clusters.place[first]);
        // No message shows a difference: recorded times stay as they are.
        let is_inside =
            |hosts: &(usize, usize)| [hosts.0, hosts.1].iter().all(|&at| cluster[at] as usize == own);
        let mut of_own = least.iter().filter(|(hosts, _)| is_inside(hosts));
        let agrees = of_own.all(|(_, &(least, source))| least >= 0 && source == Source::Messages);
        for (place, &at) in members.iter().enumerate() {
            if agrees && members.len() > 1 {
                compared[at] = free[first];
                within[at] = u64::try_from(most[place].max(-fewest[place])).ok();
                continue;
            }
            ahead[at] = (most[place] + fewest[place]).div_euclid(2);
            compared[at] = free[first];
            if members.len() > 1 {
                within[at] = u64::try_from(((most[place] - fewest[place]) / 2).max(slack)).ok();
                is_unsteady[at] = slack > 0;
            }
        }
        // The least shift of all members that keeps the bounds from other clusters.
        let mut shift = 0;
        for link in &clusters.entering[own] {
            let most = ahead[link.from] + link.least - ahead[link.to];
            if most < shift {
                shift = most;
                members.iter().for_each(|&at| compared[at] = free[link.from]);
            }
        }
        members.iter().for_each(|&at| ahead[at] += shift);
    }
    let is_alone = |at: usize| clusters.members[cluster[at] as usize].len() == 1;
    let mut weakest = vec![Source::Messages; free.len()];
    for (&(from, to), &(_, source)) in &least {
        for at in [from, to] {
            if is_alone(at) || cluster[from] == cluster[to] {
                weakest[at] = weakest[at].max(source);
            }
        }
    }
    for (at, &host) in free.iter().enumerate() {
        let evidence = if host == reference {
            ClockEvidence::Reference
        } else if is_unsteady[at] {
            ClockEvidence::Unsteady
        } else if weakest[at] == Source::Records {
            ClockEvidence::Records
        } else if weakest[at] > Source::Messages {
            ClockEvidence::Spans
        } else if is_alone(at) {
            ClockEvidence::OneWay
        } else {
            ClockEvidence::BothWays
        };
        let clock = &mut clocks[host as usize];
        (clock.evidence, clock.within, clock.reference) = (evidence, within[at], compared[at]);
        // An estimate beyond 292 years is a broken clock; what fits is applied.
        clock.ahead = i64::try_from(ahead[at]).unwrap_or(if ahead[at] < 0 { i64::MIN } else { i64::MAX });
    }
    for &host in group {
        let clock = &mut clocks[host as usize];
        if clock.evidence == ClockEvidence::Given {
            let shift = ahead[root];
            clock.ahead = clock.ahead.saturating_add(i64::try_from(shift).unwrap_or(0));
            clock.reference = reference;
        }
    }
}

/// The nodes and links of strongly connected components.
struct Clusters {
    /// The nodes of each cluster, in ascending order.
    members: Vec<Vec<usize>>,
    /// The place of each node among the members of its cluster.
    place: Vec<usize>,
    /// The links within each cluster, between places.
    inside: Vec<Vec<Link>>,
    /// The links into each cluster from others, between nodes.
    entering: Vec<Vec<Link>>,
}

impl Clusters {
    fn new(cluster: &[u32], count: usize, links: &[Link]) -> Self {
        let mut members = vec![Vec::new(); count];
        let mut place = Vec::with_capacity(cluster.len());
        for (node, &own) in cluster.iter().enumerate() {
            place.push(members[own as usize].len());
            members[own as usize].push(node);
        }
        let (mut inside, mut entering) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for link in links {
            let own = cluster[link.to] as usize;
            if cluster[link.from] as usize == own {
                inside[own].push(Link { from: place[link.from], to: place[link.to], ..*link });
            } else {
                entering[own].push(*link);
            }
        }
        Self { members, place, inside, entering }
    }
}

/// `to` is ahead of `from` by at most `least`.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: usize,
    to: usize,
    least: i128,
}

/// The most and the fewest nanoseconds that each host is ahead of the first, and the slack that the
/// bounds need because they contradict each other.
fn ranges(hosts: usize, links: &[Link], first: usize) -> (Vec<i128>, Vec<i128>, i128) {
    let turned: Vec<Link> =
        links.iter().map(|link| Link { from: link.to, to: link.from, least: link.least }).collect();
    let mut slack = 0;
    loop {
        match (shortest(hosts, links, first, slack), shortest(hosts, &turned, first, slack)) {
            (Ok(most), Ok(back)) => {
                return (most, back.into_iter().map(|least| -least).collect(), slack);
            }
            // Half of what the shortest round trip contradicts, and so on.
            (Err(needed), _) | (_, Err(needed)) => slack = needed,
        }
    }
}

/// Shortest paths from the first host with the slack added to each link; an error is the larger
/// slack that a negative cycle needs.
fn shortest(hosts: usize, links: &[Link], first: usize, slack: i128) -> Result<Vec<i128>, i128> {
    let mut length: Vec<Option<i128>> = vec![None; hosts];
    let mut last: Vec<Option<Link>> = vec![None; hosts];
    length[first] = Some(0);
    loop {
        let mut is_changed = false;
        for &link in links {
            let Some(begin) = length[link.from] else { continue };
            let end = begin + link.least + slack;
            if length[link.to].is_none_or(|known| end < known) {
                (length[link.to], last[link.to], is_changed) = (Some(end), Some(link), true);
            }
        }
        if !is_changed {
            return Ok(length.into_iter().map(Option::unwrap_or_default).collect());
        }
        if let Some((sum, len)) = cycle(&last) {
            return Err(-sum.div_euclid(len));
        }
    }
}

/// The sum and the number of links of a cycle among the last links of paths: it is negative.
fn cycle(last: &[Option<Link>]) -> Option<(i128, i128)> {
    let mut seen = vec![usize::MAX; last.len()];
    for start in 0..last.len() {
        let mut at = start;
        while seen[at] == usize::MAX {
            seen[at] = start;
            let Some(link) = last[at] else { break };
            at = link.from;
        }
        if seen[at] == start && last[at].is_some() {
            let (mut sum, mut len, mut node) = (0, 0, at);
            loop {
                let link = last[node]?;
                (sum, len, node) = (sum + link.least, len + 1, link.from);
                if node == at {
                    return Some((sum, len));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use astracer_testing::SplitMix;

    fn links(all: &[(usize, usize, i128)]) -> Vec<Link> {
        all.iter().map(|&(from, to, least)| Link { from, to, least }).collect()
    }

    /// A and B agree. By hand: a message to C that arrived 5 ns before it was sent shows C at least
    /// 5 behind, one that took time shows nothing, and of two bounds the wider shift keeps both.
    #[test]
    fn a_host_bounded_from_one_side_is_shifted_by_the_least_that_keeps_all_bounds() {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
        let shifted = |from_a: u64, from_b: u64| {
            let mut bounds = Bounds::default();
            for (from, to, received) in [(0, 1, 100), (1, 0, 100), (0, 2, from_a), (1, 2, from_b)] {
                bounds.message((from, 100), (to, received));
            }
            let clock = &estimate(&names, bounds, &[None; 3])[2];
            assert_eq!((clock.evidence, clock.within), (ClockEvidence::OneWay, None));
            (clock.ahead, clock.reference)
        };
        assert_eq!(shifted(95, 91), (-9, 1));
        assert_eq!(shifted(91, 95), (-9, 0));
        assert_eq!(shifted(95, 130), (-5, 0));
        // Equal bounds: the first host is named. Without a shift, C is compared to none.
        assert_eq!(shifted(95, 95), (-5, 0));
        assert_eq!(shifted(100, 130), (0, 2));
        assert_eq!(shifted(120, 130), (0, 2));
    }

    /// By hand: B is ahead by 10 at most, and by 4 at least.
    #[test]
    fn the_middle_of_both_bounds_is_taken() {
        let (most, fewest, slack) = ranges(2, &links(&[(0, 1, 10), (1, 0, -4)]), 0);
        assert_eq!((most[1], fewest[1], slack), (10, 4, 0));
        // At most 2 and at least 8: 5 contradicts each by 3.
        let (most, fewest, slack) = ranges(2, &links(&[(0, 1, 2), (1, 0, -8)]), 0);
        assert_eq!((most[1], fewest[1], slack), (5, 5, 3));
        // By way of a third host.
        let (most, fewest, _) = ranges(3, &links(&[(0, 1, 3), (1, 0, 1), (1, 2, 4), (2, 1, -2)]), 0);
        assert_eq!((most[2], fewest[2]), (7, 1));
    }

    /// Random clocks and delays: the true offset lies within the range, and the middles keep all
    /// bounds. With clocks that contradict, no smaller slack does.
    #[test]
    fn ranges_hold_the_true_offsets() {
        for seed in 0..60 {
            let mut random = SplitMix::new(seed);
            let hosts = 2 + random.below(5) as usize;
            let truth: Vec<i128> =
                (0..hosts).map(|at| if at == 0 { 0 } else { random.below(1000) as i128 - 500 }).collect();
            let mut all = Vec::new();
            for from in 0..hosts {
                for to in 0..hosts {
                    if from != to && (to == from + 1 || from == to + 1 || random.below(3) == 0) {
                        all.push((from, to, truth[to] - truth[from] + random.below(100) as i128));
                    }
                }
            }
            let (most, fewest, slack) = ranges(hosts, &links(&all), 0);
            assert_eq!(slack, 0, "seed {seed}");
            let middle: Vec<i128> =
                most.iter().zip(&fewest).map(|(most, fewest)| (most + fewest).div_euclid(2)).collect();
            for at in 0..hosts {
                assert!((fewest[at]..=most[at]).contains(&truth[at]), "seed {seed}");
            }
            for &(from, to, least) in &all {
                assert!(middle[to] - middle[from] <= least + 1, "seed {seed}");
            }
            let wrong: Vec<_> = all.iter().map(|&(from, to, least)| (from, to, least - 80)).collect();
            let wrong = links(&wrong);
            let (.., slack) = ranges(hosts, &wrong, 0);
            if slack > 0 {
                assert!(
                    shortest(hosts, &wrong, 0, slack - 1).is_err()
                        && shortest(hosts, &wrong, 0, slack).is_ok(),
                    "seed {seed}"
                );
            }
        }
    }
}
