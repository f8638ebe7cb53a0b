//! Joins receives to the sends of their bytes.
//!
//! Each direction of a connection is a stream of bytes. Sends write it and receives read it, both
//! in order of time, so positions in the stream tell which bytes a receive has. Datagrams with a
//! number are joined by it.

use std::collections::HashMap;

use astracer_model::event::EventKind;
use rapidhash::fast::RandomState;

use crate::edge::{Edge, EdgeKind, Found, Unmatched, Why};
use crate::points::{NONE, Points};

/// One direction of a connection, since it was opened for the n-th time; or one datagram of it.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) sends: Vec<u32>,
    pub(crate) receives: Vec<u32>,
}

pub(crate) fn find(events: &Points, found: &mut Found) {
    let rows = events.rows();
    let mut streams: HashMap<(u32, u32, &str), Stream, RandomState> = HashMap::default();
    let reopened = Reopened::new(events);
    for (index, row) in (0..).zip(rows) {
        let is_send = match row.kind {
            EventKind::Send => true,
            EventKind::Receive => false,
            _ => continue,
        };
        if row.channel == NONE {
            let why = if is_send { Why::NoReceive } else { Why::NoSend };
            found.unmatched.push(Unmatched { event: index, why });
            continue;
        }
        let is_datagram = events.channels()[row.channel as usize].is_datagram;
        let datagram = if is_datagram { events.text(row) } else { "" };
        let channel = events.same_channel(row.channel);
        let opened = reopened.number(channel, is_send, row.rank);
        let stream = streams.entry((channel, opened, datagram)).or_default();
        if is_send { &mut stream.sends } else { &mut stream.receives }.push(index);
    }
    let key = |&index: &u32| (rows[index as usize].rank, index);
    for stream in streams.values_mut() {
        stream.sends.sort_unstable_by_key(key);
        stream.receives.sort_unstable_by_key(key);
        if let Some(at) = break_of(events, stream) {
            cut(events, stream, at, found);
            if stream.receives.is_empty() {
                continue;
            }
        }
        join(events, stream, found);
    }
}

/// The byte of a stream from which receives have other bytes than were sent, because a line was
/// lost: the first receive that begins where a send begins, and differs from it.
pub(crate) fn break_of(events: &Points, stream: &Stream) -> Option<u64> {
    let row = |index: u32| &events.rows()[index as usize];
    let mut sends = stream.sends.iter();
    let (mut send, mut send_begin, mut begin) = (sends.next(), 0u64, 0u64);
    for &receive in &stream.receives {
        while let Some(&own) = send
            && send_begin < begin
        {
            send_begin = send_begin.saturating_add(row(own).bytes);
            send = sends.next();
        }
        let &own = send?;
        if send_begin == begin {
            let ((sent, sent_len), (got, got_len)) = (row(own).head, row(receive).head);
            let len = usize::from(sent_len.min(got_len));
            if sent.get(..len) != got.get(..len) {
                return Some(begin);
            }
        }
        begin = begin.saturating_add(row(receive).bytes);
    }
    None
}

/// Leaves out what comes behind the break of a stream.
fn cut(events: &Points, stream: &mut Stream, at: u64, found: &mut Found) {
    let bytes = |index: u32| events.rows()[index as usize].bytes;
    let keep = |list: &[u32]| {
        let mut begin = 0u64;
        list.iter()
            .take_while(|&&index| {
                let is_before = begin < at;
                begin = begin.saturating_add(bytes(index));
                is_before
            })
            .count()
    };
    let receives = stream.receives.split_off(keep(&stream.receives));
    let sends = stream.sends.split_off(keep(&stream.sends));
    for (number, event) in receives.into_iter().enumerate() {
        let why = if number == 0 { Why::NotAsSent } else { Why::BehindBreak };
        found.unmatched.push(Unmatched { event, why });
    }
    found.unmatched.extend(sends.into_iter().map(|event| Unmatched { event, why: Why::BehindBreak }));
}

/// Two cursors over the bytes of a stream.
fn join(events: &Points, stream: &Stream, found: &mut Found) {
    let bytes = |index: u32| events.rows()[index as usize].bytes;
    let received = stream.receives.iter().fold(0u64, |sum, &index| sum.saturating_add(bytes(index)));
    let mut begin = 0u64;
    for &send in &stream.sends {
        if begin >= received {
            let why = if stream.receives.is_empty() { Why::NoReceive } else { Why::AfterReceived };
            found.unmatched.push(Unmatched { event: send, why });
        }
        begin = begin.saturating_add(bytes(send));
    }
    let sent = begin;
    // The send with the next byte, and where it begins.
    let (mut at, mut send_begin, mut begin) = (0, 0u64, 0u64);
    for &receive in &stream.receives {
        let end = begin.saturating_add(bytes(receive));
        while let Some(&send) = stream.sends.get(at) {
            let send_end = send_begin.saturating_add(bytes(send));
            if send_begin >= end {
                break;
            }
            if send_end > begin {
                found.edges.push(Edge { kind: EdgeKind::SendReceive, before: send, after: receive });
            }
            if send_end > end {
                break;
            }
            (at, send_begin) = (at + 1, send_end);
        }
        if end > sent {
            let why = if stream.sends.is_empty() { Why::NoSend } else { Why::BeyondSent };
            found.unmatched.push(Unmatched { event: receive, why });
        }
        begin = end;
    }
}

/// Connections whose four-tuple was used again: connects and accepts by time. Bytes after the n-th
/// belong to the n-th connection.
struct Reopened {
    connects: HashMap<u32, Vec<u64>, RandomState>,
    accepts: HashMap<u32, Vec<u64>, RandomState>,
    /// The other direction of each channel.
    other: Vec<u32>,
}

impl Reopened {
    fn new(events: &Points) -> Self {
        let mut found = Self {
            connects: HashMap::default(),
            accepts: HashMap::default(),
            other: vec![NONE; events.channels().len()],
        };
        for row in events.rows().iter().filter(|row| row.channel != NONE) {
            let channel = events.same_channel(row.channel);
            match row.kind {
                EventKind::Connect => found.connects.entry(channel).or_default().push(row.rank),
                EventKind::Accept => found.accepts.entry(channel).or_default().push(row.rank),
                _ => {}
            }
        }
        // Only where both sides saw each connection is it known which is which.
        let accepts = &mut found.accepts;
        found.connects.retain(|channel, connects| {
            connects.len() > 1 && accepts.get(channel).is_some_and(|accepts| accepts.len() == connects.len())
        });
        found.accepts.retain(|channel, _| found.connects.contains_key(channel));
        found.connects.values_mut().chain(found.accepts.values_mut()).for_each(|times| times.sort_unstable());
        let numbers: HashMap<_, u32, RandomState> = events.channels().iter().zip(0..).collect();
        for &channel in found.connects.keys() {
            if let Some(&other) = numbers.get(&events.channels()[channel as usize].reversed()) {
                found.other[other as usize] = channel;
            }
        }
        found
    }

    /// The number of the connection that a message belongs to.
    fn number(&self, channel: u32, is_send: bool, rank: u64) -> u32 {
        // The client sends on the channel of its connect, and receives on the other.
        let (opened, is_client) = match self.other.get(channel as usize) {
            Some(&other) if other != NONE => (other, !is_send),
            _ => (channel, is_send),
        };
        let times = if is_client { self.connects.get(&opened) } else { self.accepts.get(&opened) };
        times.map_or(0, |times| times.partition_point(|&time| time <= rank).max(1) as u32)
    }
}
