//! Turns at decoding requests, so that processor time is shared by address, as memory and
//! connections are.
//!
//! A body of a few bytes can cost seconds: compressed, and full of empty members. So requests are
//! decoded on threads of their own, one at a time for each address and [`DECODERS`] in all.
//! Addresses that wait get their turns in the order in which they began to wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Refused;
use crate::clients::Client;
use crate::counts::Refusal;

/// The number of requests that are decoded at once. Each may hold a body of the maximum size, and
/// the lines made of it.
const DECODERS: usize = 4;

/// The turns of all addresses.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Turns(Arc::new(Semaphore::new(DECODERS)))
    }
}

async fn turn(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    // The semaphores are never closed.
    Arc::clone(of).acquire_owned().await.ok()
}

impl Turns {
    /// Does the work when it is the client's turn. Work that has begun continues to its end even if
    /// the client disconnects, and ends its turn only then.
    pub(crate) async fn take<R: Send + 'static>(
        &self,
        client: &Client,
        work: impl FnOnce() -> Result<R, Refused> + Send + 'static,
    ) -> Result<R, Refused> {
        let own = match client.turn() {
            Some(own) => turn(own).await,
            None => None,
        };
        let turns = (own, turn(&self.0).await);
        let client = client.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _held = (turns, client);
            work()
        });
        let failed = |_| Refused::new(Refusal::Overloaded, "the request could not be decoded");
        done.await.unwrap_or_else(|error| Err(failed(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::Limits;
    use crate::clients::BodyMemory;

    /// A client with many requests delays another by one request at most, and one that disconnects
    /// does not get a second turn before its work is done.
    #[tokio::test]
    async fn another_client_is_next() {
        let memory = BodyMemory::new(&Limits::default());
        let turns = Arc::new(Turns(Arc::new(Semaphore::new(1))));
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut all = Vec::new();
        // The first body is decoded until the others wait.
        let (others_wait, until_others_wait) = mpsc::channel::<()>();
        let mut until_others_wait = Some(until_others_wait);
        for (number, address) in [1, 1, 1, 1, 2].into_iter().enumerate() {
            let client = memory.client(format!("192.0.2.{address}").parse().unwrap());
            let (own, done) = (Arc::clone(&turns), Arc::clone(&done));
            let until = until_others_wait.take();
            all.push(tokio::spawn(async move {
                let work = move || {
                    until.map(|until| until.recv());
                    done.lock().unwrap().push(address);
                    Ok(())
                };
                own.take(&client, work).await.unwrap();
            }));
            if number == 0 {
                while turns.0.available_permits() > 0 {
                    tokio::task::yield_now().await;
                }
                all[0].abort();
            }
            tokio::task::yield_now().await;
        }
        drop(others_wait);
        for task in all {
            let _ = task.await;
        }
        assert_eq!(*done.lock().unwrap(), [1, 2, 1, 1, 1]);
    }
}
