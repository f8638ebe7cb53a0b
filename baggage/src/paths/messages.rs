//! Notes of flows that leave the process, and of those that come back.

use std::sync::atomic::Ordering;

use super::CriticalPath;
use super::experiments::EXPERIMENTS_MAX;
use super::note::{Begun, Note, Outer};
use super::path::Path;
use super::way::TimeKind;
use super::wire::{Request, Response};

impl Note {
    /// The bytes to send with a request that leaves now: the length of the way to it.
    pub fn request(&self, of: &CriticalPath, now: u64) -> Vec<u8> {
        let length = self.length(of, now).saturating_add(self.before());
        Request { length }.write(of.0.measure)
    }

    /// The way to a request that has begun here: what [`request`](Self::request) of its caller has
    /// written. The bytes may be anybody's; broken ones are counted.
    pub fn come_from(&mut self, of: &CriticalPath, request: &[u8]) {
        match Request::read(request, of.0.measure) {
            Some(request) => {
                let mut path = Path::default();
                path.tail.total = request.length;
                self.outer = Some(Box::new(Outer { frame: 0, path }));
            }
            None => _ = of.0.counts.refused.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The bytes to send with a response that leaves now, at most `limit`: the longest ways through
    /// this process, as many as fit. Empty if none does.
    pub fn response(&mut self, of: &CriticalPath, now: u64, limit: usize) -> Vec<u8> {
        let mut sent = Note::default();
        if !self.is_closed() {
            self.split_into(of, now, Begun::NEVER, &mut sent);
        } else {
            sent.path.clone_from(&self.path);
        }
        sent.path.settle();
        Response::write(of, &sent.path, self.set.as_deref(), limit)
    }

    /// Ends a call, for which this branch was forked: with what [`response`](Self::response) of the
    /// callee has written, or nothing. Join the branch then. The bytes may be anybody's; broken
    /// ones are counted, and a callee takes no longer than the call.
    pub fn end_call(&mut self, of: &CriticalPath, now: u64, responses: &[Vec<u8>]) {
        let took = now.saturating_sub(self.last);
        let callee = self.callee(of, responses);
        if !self.is_daemon() {
            match callee {
                Some(callee) => {
                    let network = took.saturating_sub(callee.length());
                    self.add_callee(of, callee, took);
                    self.spend(of, self.spot(), TimeKind::Network, network);
                }
                None => self.spend(of, self.spot(), TimeKind::Opaque, took),
            }
        }
        self.last = now.max(self.last);
    }

    /// The flow itself begins a call, and makes no other one meanwhile.
    pub(crate) fn begin_call(&mut self, of: &CriticalPath, now: u64, is_only: bool) {
        self.go_on(of, now);
        self.settle(of);
        self.call_since = is_only.then_some(now);
    }

    /// A call was given up.
    pub(crate) fn give_up_call(&mut self) {
        self.call_since = None;
    }

    /// Ends the call of this flow: the callee took a part of the time in which the flow has waited.
    /// Returns false if the callee took longer than that, so that it and the flow's own work were
    /// beside each other: the call is a branch then.
    pub(crate) fn end_own_call(&mut self, of: &CriticalPath, now: u64, responses: &[Vec<u8>]) -> bool {
        let Some(since) = self.call_since.take() else { return false };
        if self.is_daemon() {
            return true;
        }
        let callee = self.callee(of, responses);
        let length = callee.as_ref().map_or(0, Response::length);
        let is_long = length > now.saturating_sub(since);
        let waited = self.waited_since(since);
        // A thread that blocked looks as if it worked.
        self.go_on_or_wait(of, now, waited < length || callee.is_none() && waited == 0);
        let waited = self.waited_since(since);
        if length > waited && !is_long {
            self.call_since = None;
            return false;
        }
        let kind = if callee.is_some() { TimeKind::Network } else { TimeKind::Opaque };
        self.take_waits(of, since, length, kind);
        if let Some(callee) = callee {
            self.add_callee(of, callee, waited);
        }
        true
    }

    /// The longest of the callee's responses, which may have been united on their way.
    fn callee(&self, of: &CriticalPath, responses: &[Vec<u8>]) -> Option<Response> {
        let mut callee: Option<Response> = None;
        for response in responses {
            match Response::read(response, of, self.spot().place) {
                Some(read) if callee.as_ref().is_none_or(|known| known.length() < read.length()) => {
                    callee = Some(read);
                }
                Some(_) => {}
                None => _ = of.0.counts.refused.fetch_add(1, Ordering::Relaxed),
            }
        }
        callee
    }

    /// Goes on with the ways of a callee, which has taken at most this time.
    fn add_callee(&mut self, of: &CriticalPath, mut callee: Response, most: u64) {
        if callee.length() > most {
            of.0.counts.too_long.fetch_add(1, Ordering::Relaxed);
            callee.ways.iter_mut().for_each(|way| way.cut_to(most));
        }
        let changed = self.experiments_of(&callee, self.spot().inside, callee.length());
        let mut path = Path::of(callee.ways);
        (path.is_cut, path.changed) = (callee.is_cut, changed);
        self.path.append(&mut path, of.0.top);
    }

    /// The lengths of the callee in the experiments of this request.
    fn experiments_of(&self, callee: &Response, inside: u8, length: u64) -> [f64; EXPERIMENTS_MAX] {
        let mut lengths = [0.0; EXPERIMENTS_MAX];
        let set = self.set.as_deref().map(|set| &set.0[..]).unwrap_or_default();
        for (at, (changed, experiment)) in lengths.iter_mut().zip(set).enumerate() {
            let same = callee.changed.iter().find(|(id, _)| *id == experiment.id).map(|(_, length)| *length);
            *changed = match same {
                // The callee is within the zone.
                _ if inside >> at & 1 == 1 => length as f64 * experiment.factor,
                // It cannot take longer by its own reckoning than by the clock.
                Some(theirs) if experiment.factor <= 1.0 => theirs.min(length as f64),
                Some(theirs) => theirs,
                None => length as f64,
            };
        }
        lengths
    }

    /// The length from the beginning of the request to that of the local root.
    pub(super) fn before(&self) -> u64 {
        self.outer.as_ref().map_or(0, |outer| outer.path.total())
    }
}

impl Response {
    fn length(&self) -> u64 {
        self.ways.first().map_or(0, |way| way.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Measure;

    /// A call of 100, of which the callee took 60, and one that claims 1,000.
    #[test]
    fn network_is_what_the_callee_did_not_take() {
        for (claimed, network, too_long) in [(60, 40, 0), (1_000, 0, 1)] {
            let (client, server) = (CriticalPath::new(Measure::Wall), CriticalPath::new(Measure::Wall));
            let mut callee = Note::start(&server, 7, "serve");
            let response = callee.response(&server, 7 + claimed, 1_024);
            let mut caller = Note::start(&client, 1_000_000, "request");
            let mut call = caller.fork(&client, 1_000_010);
            call.end_call(&client, 1_000_110, &[response]);
            caller.join(&client, 1_000_115, call, true);
            let way = &caller.longest(&client)[0];
            let of = |name: &str, kind: TimeKind| {
                way.functions
                    .iter()
                    .find(|part| &*part.name == name && part.kind == kind)
                    .map_or(0, |p| p.nanos)
            };
            assert_eq!(way.total_ns, 115);
            assert_eq!(of("serve", TimeKind::Work), 100 - network);
            assert_eq!(of("request", TimeKind::Network), network);
            assert_eq!((of("request", TimeKind::Work), client.stats().too_long), (15, too_long));
        }
    }

    /// The flow has waited exactly as long as the callee took: what followed was its own work.
    #[test]
    fn a_flow_works_on_after_its_call() {
        let (client, server) = (CriticalPath::new(Measure::Wall), CriticalPath::new(Measure::Wall));
        let response = Note::start(&server, 0, "serve").response(&server, 60, 1_024);
        let mut caller = Note::start(&client, 0, "request");
        caller.begin_call(&client, 10, true);
        caller.suspended(&client, 10, false);
        caller.resumed(&client, 70);
        assert!(caller.end_own_call(&client, 80, &[response]));
        let way = &caller.longest(&client)[0];
        let found: Vec<(&str, TimeKind, u64)> =
            way.functions.iter().map(|part| (&*part.name, part.kind, part.nanos)).collect();
        assert_eq!(found, [("serve", TimeKind::Work, 60), ("request", TimeKind::Work, 20)]);
    }

    /// Callees have the lengths of their experiments in responses. One that makes its zone faster
    /// cannot be longer than the callee took, whatever that claims.
    #[test]
    fn experiments_go_on_through_calls() {
        for (claimed, expected) in [(None, 115.0 - 30.0), (Some(1e9), 115.0)] {
            let (client, server) = (CriticalPath::new(Measure::Wall), CriticalPath::new(Measure::Wall));
            for of in [&client, &server] {
                of.experiment("faster", super::super::zone("serve"), 0.5).unwrap();
            }
            let mut callee = Note::start(&server, 0, "serve");
            callee.end(&server, 60);
            callee.path.changed[0] = claimed.unwrap_or(callee.path.changed[0]);
            let response = callee.response(&server, 60, 1_024);
            let mut caller = Note::start(&client, 0, "request");
            let mut call = caller.fork(&client, 10);
            call.end_call(&client, 110, &[response]);
            caller.wait_for_branch(&client, 10);
            caller.join(&client, 115, call, true);
            let found = caller.experiments(&client, 115);
            assert_eq!((found.len(), found[0].nanos), (1, expected));
        }
    }

    #[test]
    fn a_call_without_a_note_keeps_its_time() {
        for measure in [Measure::Wall, Measure::Productive] {
            let client = CriticalPath::new(measure);
            let mut caller = Note::start(&client, 0, "request");
            let mut call = caller.fork(&client, 10);
            call.end_call(&client, 110, &[vec![9, 9, 9]]);
            caller.wait_for_branch(&client, 10);
            caller.join(&client, 110, call, true);
            assert_eq!(caller.longest(&client)[0].total_ns, 110);
            assert_eq!(client.stats().refused, 1);
        }
    }
}
