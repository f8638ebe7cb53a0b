//! Connections whose two ends know them by different addresses: behind a service's address, a
//! published port, or NAT.
//!
//! A half of a connection is what one of its ends recorded. Two halves without their other sides
//! are one connection if the bytes that each sent are those that the other received, and if no
//! other half fits either: first among halves that name the same client, or the same server, then
//! among all. Without recorded bytes nothing is joined.

use std::collections::HashMap;

use astracer_model::event::{Channel, EventKind};
use rapidhash::fast::RandomState;

use crate::points::{NONE, Points};
use crate::streams::{self, Stream};
use crate::written::Joins;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Bytes that must be equal where no address is.
const BYTES_LEAST: u64 = 8;
/// The first bytes by which halves are found that may fit.
const HEAD: usize = 8;
/// Halves that begin with the same bytes and are compared with each other.
const ALIKE_MAX: usize = 256;

/// The part of a connection that one end recorded.
#[derive(Debug)]
struct Half {
    /// From this end to the other.
    channel: Channel<'static>,
    sends: Vec<u32>,
    receives: Vec<u32>,
    has_connect: bool,
    has_accept: bool,
    is_joined: bool,
    fits_several: bool,
}

/// Gives the ends of translated connections one channel each way in [`Points::same_channel`].
pub(crate) fn join(events: &mut Points, joins: &mut Joins) {
    events.same_channel = (0..events.channels.len() as u32).collect();
    let mut halves = halves(events);
    if halves.len() < 2 {
        return;
    }
    let numbers: Map<Channel<'static>, u32> = events.channels.iter().cloned().zip(0..).collect();
    for known in [Known::Client, Known::Server, Known::Neither] {
        for (client, server) in unique(events, &mut halves, known) {
            let [one, other] = [client, server].map(|at| halves[at].channel.clone());
            for (own, same) in [(other.reversed(), &one), (other.clone(), &one.reversed())] {
                if let (Some(&own), Some(&same)) = (numbers.get(&own), numbers.get(same)) {
                    events.same_channel[own as usize] = same;
                }
            }
            let name = format!("{} is {}", one.to, other.from);
            *joins.translated.entry(name).or_insert(0) += 1;
            halves[client].is_joined = true;
            halves[server].is_joined = true;
        }
    }
    let ambiguous = halves.iter().filter(|half| half.fits_several && !half.is_joined).count() as u64;
    if ambiguous > 0 {
        let reason = "ends of connections whose bytes fit several others (addresses may be translated)";
        joins.unjoined.insert(reason, ambiguous);
    }
}

/// The halves whose other side was not recorded, in the order of their first events.
fn halves(events: &Points) -> Vec<Half> {
    // For each channel: its sender's side, its receiver's side.
    let mut sides = vec![[false; 2]; events.channels.len()];
    let is_sender = |kind| match kind {
        EventKind::Connect | EventKind::Send => Some(true),
        EventKind::Accept | EventKind::Receive => Some(false),
        _ => None,
    };
    for row in events.rows.iter().filter(|row| row.channel != NONE) {
        if let Some(is_sender) = is_sender(row.kind) {
            sides[row.channel as usize][usize::from(is_sender)] = true;
        }
    }
    let is_whole = |channel: usize| sides[channel] == [true; 2] || events.channels[channel].is_datagram;
    if (0..sides.len()).all(is_whole) {
        return Vec::new();
    }
    let mut found: Vec<Half> = Vec::new();
    let mut numbers: Map<Channel<'static>, usize> = Map::default();
    for (index, row) in (0..).zip(&events.rows).filter(|(_, row)| row.channel != NONE) {
        let Some(is_sender) = is_sender(row.kind).filter(|_| !is_whole(row.channel as usize)) else {
            continue;
        };
        let channel = &events.channels[row.channel as usize];
        let channel = if is_sender { channel.clone() } else { channel.reversed() };
        let at = *numbers.entry(channel).or_insert_with_key(|channel| {
            found.push(Half {
                channel: channel.clone(),
                sends: Vec::new(),
                receives: Vec::new(),
                has_connect: false,
                has_accept: false,
                is_joined: false,
                fits_several: false,
            });
            found.len() - 1
        });
        let half = &mut found[at];
        match row.kind {
            EventKind::Connect => half.has_connect = true,
            EventKind::Accept => half.has_accept = true,
            EventKind::Send => half.sends.push(index),
            _ => half.receives.push(index),
        }
    }
    // One direction may have been whole.
    let is_other_known = |half: &Half| numbers.contains_key(&half.channel.reversed());
    let known: Vec<bool> = found.iter().map(is_other_known).collect();
    let mut known = known.into_iter();
    found.retain(|_| known.next() == Some(false));
    let key = |&index: &u32| (events.rows[index as usize].rank, index);
    for half in &mut found {
        half.sends.sort_unstable_by_key(key);
        half.receives.sort_unstable_by_key(key);
    }
    found
}

/// The address that both ends know by the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Client,
    Server,
    Neither,
}

/// The keys of a half as the client's and as the server's, which are equal for two halves of one
/// connection; `None` without recorded bytes.
fn keys(events: &Points, half: &Half, known: Known) -> Option<[String; 2]> {
    let (from, to) = (&half.channel.from, &half.channel.to);
    let head = |list: &[u32]| {
        let (bytes, len) = events.rows[*list.first()? as usize].head;
        Some(bytes[..HEAD.min(usize::from(len))].to_vec()).filter(|bytes| !bytes.is_empty())
    };
    Some(match known {
        Known::Client => [from.to_string(), to.to_string()],
        Known::Server => [to.to_string(), from.to_string()],
        Known::Neither => {
            let (sent, received) = (head(&half.sends)?, head(&half.receives)?);
            [format!("{sent:?} {received:?}"), format!("{received:?} {sent:?}")]
        }
    })
}

/// Pairs of a client's and a server's half of which each fits no other. Marks the clients' halves
/// that fit several.
fn unique(events: &Points, halves: &mut [Half], known: Known) -> Vec<(usize, usize)> {
    let mut servers: Map<String, Vec<usize>> = Map::default();
    let open = || halves.iter().enumerate().filter(|(_, half)| !half.is_joined);
    for (at, half) in open().filter(|(_, half)| !half.has_connect) {
        if let Some([_, key]) = keys(events, half, known) {
            servers.entry(key).or_default().push(at);
        }
    }
    let mut fitting: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut uses = vec![0u32; halves.len()];
    let mut several = Vec::new();
    for (at, half) in open().filter(|(_, half)| !half.has_accept) {
        let Some([key, _]) = keys(events, half, known) else { continue };
        let Some(alike) = servers.get(&key) else { continue };
        if alike.len() > ALIKE_MAX {
            several.push(at);
            continue;
        }
        // Without a connect or an accept, each half is both.
        let fits = |&&other: &&usize| at != other && fits(events, half, &halves[other], known);
        let found: Vec<usize> = alike.iter().filter(fits).copied().collect();
        found.iter().for_each(|&other| uses[other] += 1);
        if !found.is_empty() {
            fitting.push((at, found));
        }
    }
    let mut pairs = Vec::new();
    let mut is_taken = vec![false; halves.len()];
    for (at, found) in fitting {
        match found[..] {
            [other] if uses[other] == 1 => {
                if !is_taken[at] && !is_taken[other] {
                    (is_taken[at], is_taken[other]) = (true, true);
                    pairs.push((at, other));
                }
            }
            _ => several.push(at),
        }
    }
    several.into_iter().for_each(|at| halves[at].fits_several = true);
    pairs
}

/// True if the bytes that each end sent are those that the other received.
fn fits(events: &Points, client: &Half, server: &Half, known: Known) -> bool {
    let needs_bytes = known == Known::Neither;
    let total = |list: &[u32]| {
        list.iter().fold(0u64, |sum, &index| sum.saturating_add(events.rows[index as usize].bytes))
    };
    let mut compared = 0;
    for (sends, receives) in [(&client.sends, &server.receives), (&server.sends, &client.receives)] {
        let (sent, received) = (total(sends), total(receives));
        if received > sent || needs_bytes && received != sent {
            return false;
        }
        let (Some(&send), Some(&receive)) = (sends.first(), receives.first()) else { continue };
        let process = |index: u32| events.threads[events.rows[index as usize].thread as usize].process;
        // A process that passes bytes on has two connections.
        if process(send) == process(receive) {
            return false;
        }
        let (send, receive) = (&events.rows[send as usize], &events.rows[receive as usize]);
        // By one clock, bytes are not received before they are sent.
        let is_early = receive.time.saturating_add(receive.resolution) < send.time;
        if events.clock(send) == events.clock(receive) && is_early {
            return false;
        }
        let stream = Stream { sends: sends.clone(), receives: receives.clone() };
        if streams::break_of(events, &stream).is_some() {
            return false;
        }
        compared += u64::from(send.head.1.min(receive.head.1));
    }
    compared >= if needs_bytes { BYTES_LEAST } else { 1 }
}
