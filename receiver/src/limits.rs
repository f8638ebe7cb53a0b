//! Limits on the memory and time that senders can use.

use std::time::Duration;

/// The limits of a receiver.
#[derive(Clone, Debug)]
#[must_use]
pub struct Limits {
    pub(crate) message_bytes: usize,
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    pub(crate) client_share: f64,
    pub(crate) arrival_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message_bytes: 16 << 20,
            connections: 1_024,
            body_bytes: 256 << 20,
            client_share: 0.5,
            arrival_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// Limits the size of a request in bytes, before and after decompression; 16 MiB by default.
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Limits the number of connections; 1,024 by default. At the limit, a new connection replaces
    /// the one that has been idle for longest. If all are busy, it replaces the longest request of
    /// an address that has more than its share.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Limits the total size of the bodies that are being read; 256 MiB by default. A body uses
    /// memory only as it arrives, so slow senders do not block others.
    pub fn with_body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Limits the share of this memory that one address may use, from 0 to 1; half by default. A
    /// request of the maximum size is always read. The same share applies to busy connections, but
    /// only when the limit on connections is reached.
    pub fn with_client_share(mut self, share: f64) -> Self {
        self.client_share = share.clamp(0.0, 1.0);
        self
    }

    /// Limits the time for the head of a request, and separately for its body; 30 s by default. A
    /// new connection has the same time for its first request.
    pub fn with_arrival_timeout(mut self, timeout: Duration) -> Self {
        self.arrival_timeout = timeout;
        self
    }

    /// Limits the time between two requests on a connection; 5 minutes by default.
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }
}
