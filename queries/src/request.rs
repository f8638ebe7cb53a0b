//! The bags of several queries that travel with one request, within one bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bag::{Bag, BagError};
use crate::entry::Limits;
use crate::plan::Plan;
use crate::wire::{Reader, Writer};

/// The version of the bytes.
const VERSION: u8 = 1;
/// The bytes of a request's message, whatever the number of its queries.
pub const REQUEST_BYTES: usize = 2560;

/// The bags of a request, by the numbers of their queries.
///
/// A process may not know a query that another one asks: it passes the bag on as bytes.
#[derive(Debug, Default)]
pub struct Request {
    bags: BTreeMap<u64, Bag>,
    /// Bags of unknown queries. Two that met are both kept, for a process that can merge them.
    unknown: BTreeMap<u64, Vec<Arc<[u8]>>>,
}

impl Request {
    /// Adds the bag of a query, or replaces it.
    pub fn insert(&mut self, query: u64, bag: Bag) {
        self.bags.insert(query, bag);
    }

    /// The bag of a query; `None` if the request began without it, or lost it.
    pub fn bag(&mut self, query: u64) -> Option<&mut Bag> {
        self.bags.get_mut(&query)
    }

    /// The bags of a flow that forks from this one.
    pub fn split(&self) -> Request {
        let bags = self.bags.iter().map(|(&query, bag)| (query, bag.split()));
        Request { bags: bags.collect(), unknown: self.unknown.clone() }
    }

    /// Joins a flow that ends here.
    pub fn merge(&mut self, other: Request) {
        for (query, bag) in other.bags {
            match self.bags.get_mut(&query) {
                Some(known) => known.merge(bag),
                None => drop(self.bags.insert(query, bag)),
            }
        }
        for (query, messages) in other.unknown {
            let known = self.unknown.entry(query).or_default();
            known.extend(messages);
            known.sort_unstable();
            known.dedup();
        }
    }

    /// The bags as a message of up to [`REQUEST_BYTES`]. While they are larger, the largest becomes
    /// an empty bag that is not complete. Bags that still have no room, of the queries with the
    /// highest numbers, are left out: their points count as lost flows.
    pub fn encode(&self) -> Vec<u8> {
        let known = self.bags.iter().map(|(&query, bag)| (query, bag.encode(bag.limits().bytes).into()));
        let unknown =
            self.unknown.iter().flat_map(|(&query, all)| all.iter().map(move |one| (query, Arc::clone(one))));
        let mut messages: Vec<(u64, Arc<[u8]>)> = known.chain(unknown).collect();
        messages.sort_unstable();
        let size = |(query, message): &(u64, Arc<[u8]>)| {
            let mut out = Writer::default();
            out.number(*query);
            out.bytes(message);
            out.into_bytes().len()
        };
        // The version and the number of bags.
        let room = REQUEST_BYTES - 3;
        let mut used: usize = messages.iter().map(size).sum();
        while used > room {
            let largest = (0..messages.len()).max_by_key(|&at| messages[at].1.len());
            let Some(at) = largest.filter(|&at| messages[at].1.len() > Bag::EMPTY_BYTES) else { break };
            used -= size(&messages[at]);
            messages[at].1 = Bag::emptied(&messages[at].1).into();
            used += size(&messages[at]);
        }
        while used > room {
            used -= messages.pop().as_ref().map_or(used, size);
        }
        let mut out = Writer::default();
        out.byte(VERSION);
        out.number(messages.len() as u64);
        for (query, message) in &messages {
            out.number(*query);
            out.bytes(message);
        }
        out.into_bytes()
    }

    /// Reads a message of [`Request::encode`]. `plan` finds the plan of a query that this process
    /// knows.
    pub fn decode<'p>(
        bytes: &[u8],
        plan: impl Fn(u64) -> Option<&'p Plan>,
        limits: Limits,
    ) -> Result<Request, BagError> {
        match bytes.first() {
            Some(&VERSION) if bytes.len() <= REQUEST_BYTES => {}
            Some(&version) if version != VERSION => return Err(BagError::Version(version)),
            _ => return Err(BagError::Malformed),
        }
        let mut from = Reader::new(&bytes[1..]);
        let mut request = Request::default();
        for _ in 0..from.count(u64::MAX).ok_or(BagError::Malformed)? {
            let query = from.number().ok_or(BagError::Malformed)?;
            let message = from.bytes().ok_or(BagError::Malformed)?;
            match plan(query) {
                None => request.unknown.entry(query).or_default().push(message.into()),
                Some(plan) => {
                    let bag = Bag::decode(message, plan, limits)?;
                    match request.bags.get_mut(&query) {
                        Some(known) => known.merge(bag),
                        None => drop(request.bags.insert(query, bag)),
                    }
                }
            }
        }
        if from.is_empty() { Ok(request) } else { Err(BagError::Malformed) }
    }
}
