//! The memory for request bodies: a total, and a share for each client.
//!
//! A client is an IPv4 address, or an IPv6 network of 64 bits, because a host may have any number
//! of addresses in it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Limits;
use crate::answer::Refused;
use crate::counts::Refusal;

/// Body bytes are counted in units of this size.
const UNIT: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// The memory that is left for bodies.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    of_all: Arc<Semaphore>,
    of_each: usize,
    /// The time to wait for memory that other bodies hold.
    patience: Duration,
    clients: Mutex<HashMap<IpAddr, Arc<Share>>>,
}

/// The parts of one client.
#[derive(Debug)]
struct Share {
    bytes: Arc<Semaphore>,
    /// The right to have a request decoded; there is one.
    turn: Arc<Semaphore>,
}

/// A client with an open connection.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<ClientShare>);

#[derive(Debug)]
struct ClientShare {
    memory: Arc<BodyMemory>,
    address: IpAddr,
    share: Option<Arc<Share>>,
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut clients = self.memory.clients();
        self.share = None;
        // This was the client's last connection: only the map still holds its share.
        if clients.get(&self.address).is_some_and(|share| Arc::strong_count(share) == 1) {
            clients.remove(&self.address);
        }
    }
}

impl BodyMemory {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Self::with_patience(limits, PATIENCE)
    }

    fn with_patience(limits: &Limits, patience: Duration) -> Arc<Self> {
        // One whole request always fits.
        let units = |bytes: usize| (bytes.max(limits.message_bytes) / UNIT + 2).min(Semaphore::MAX_PERMITS);
        let of_each = (limits.body_bytes as f64 * limits.client_share) as usize;
        Arc::new(BodyMemory {
            of_all: Arc::new(Semaphore::new(units(limits.body_bytes))),
            of_each: units(of_each),
            patience,
            clients: Mutex::default(),
        })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Share>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client of a new connection.
    pub(crate) fn client(self: &Arc<Self>, address: IpAddr) -> Client {
        let address = network(address);
        let new = || {
            let bytes = Arc::new(Semaphore::new(self.of_each));
            Arc::new(Share { bytes, turn: Arc::new(Semaphore::new(1)) })
        };
        let share = Arc::clone(self.clients().entry(address).or_insert_with(new));
        Client(Arc::new(ClientShare { memory: Arc::clone(self), address, share: Some(share) }))
    }
}

impl Client {
    /// The one right of the client to have a request decoded; `None` while it is being dropped.
    pub(crate) fn turn(&self) -> Option<&Arc<Semaphore>> {
        self.0.share.as_ref().map(|share| &share.turn)
    }
}

/// The client that an address belongs to.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

/// The memory that one body holds.
#[derive(Debug, Default)]
pub(crate) struct BodyPermit {
    of_client: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl BodyPermit {
    /// Acquires more memory, so that all of `bytes` are covered. A body acquires memory for the
    /// bytes that have arrived, not for its announced length, so a slow sender holds little.
    pub(crate) async fn grow(&mut self, client: &Client, bytes: usize) -> Result<(), Refused> {
        let Some(share) = &client.0.share else { return Ok(()) };
        let (memory, units) = (&client.0.memory, bytes.div_ceil(UNIT));
        if !take(&mut self.of_client, &share.bytes, units, memory.patience).await {
            let message = "too many request bytes from this address are being read; retry later";
            return Err(Refused::new(Refusal::Overloaded, message));
        }
        if !take(&mut self.of_all, &memory.of_all, units, memory.patience).await {
            return Err(Refused::new(Refusal::Overloaded, "too many requests are being read; retry later"));
        }
        Ok(())
    }
}

async fn take(
    held: &mut Option<OwnedSemaphorePermit>,
    from: &Arc<Semaphore>,
    units: usize,
    patience: Duration,
) -> bool {
    let more = units.saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    if more == 0 {
        return true;
    }
    let more = Arc::clone(from).acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
    match tokio::time::timeout(patience, more).await {
        Ok(Ok(permit)) => {
            match held {
                Some(held) => held.merge(permit),
                None => *held = Some(permit),
            }
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(outcome: Result<(), Refused>) -> Option<String> {
        outcome.err().map(|refused| refused.message)
    }

    #[tokio::test]
    async fn a_client_takes_its_share_and_no_more() {
        let limits = Limits::default().with_message_bytes(1 << 20).with_body_bytes(8 << 20);
        let memory = BodyMemory::with_patience(&limits.with_client_share(0.5), Duration::from_millis(1));
        let greedy = memory.client("192.0.2.1".parse().unwrap());
        let other = memory.client("192.0.2.2".parse().unwrap());
        // The same host with another of its addresses.
        let again = memory.client("::ffff:192.0.2.1".parse().unwrap());
        let (mut first, mut second, mut third) =
            (BodyPermit::default(), BodyPermit::default(), BodyPermit::default());
        assert_eq!(refused(first.grow(&greedy, 3 << 20).await), None);
        let says = refused(second.grow(&again, 2 << 20).await).unwrap();
        assert!(says.contains("this address"), "{says}");
        drop(second);
        assert_eq!(refused(third.grow(&other, 4 << 20).await), None);
        // The total is used up, although this client's share is not.
        let third_client = memory.client("2001:db8::1".parse().unwrap());
        let mut fourth = BodyPermit::default();
        let says = refused(fourth.grow(&third_client, 2 << 20).await).unwrap();
        assert!(says.contains("too many requests"), "{says}");
        drop((first, fourth));
        let mut fifth = BodyPermit::default();
        assert_eq!(refused(fifth.grow(&third_client, 4 << 20).await), None);
        drop((third, fifth));
        drop((greedy, other, third_client));
        assert_eq!(memory.clients().len(), 1, "only the one that is connected");
        drop(again);
        assert!(memory.clients().is_empty());
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(of("10.0.0.1"), "10.0.0.1");
    }
}
