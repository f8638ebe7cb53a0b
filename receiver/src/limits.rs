//! Limits on the memory and time that senders can take.

use std::time::Duration;

/// Limits of a receiver.
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
    /// Limits the bytes of a request, before and after decompression; 16 MiB by default.
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Limits the connections at a time; 1,024 by default. At the limit, a new one takes the place
    /// of the connection that has been idle for longest; if all are busy, that of the longest
    /// request of an address with more than its share.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Limits the bytes of all bodies that are being read; 256 MiB by default. A body takes its
    /// share as it arrives, so slow senders do not keep others out.
    pub fn with_body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Limits the part of these bytes that one address may take, from 0 to 1; half by default. A
    /// request of the largest size is read in any case. Connections that are busy are shared
    /// likewise, but only where there are too few.
    pub fn with_client_share(mut self, share: f64) -> Self {
        self.client_share = share.clamp(0.0, 1.0);
        self
    }

    /// Limits the time for the head of a request, and again for its body; 30 s by default. A new
    /// connection has as long for its first request.
    pub fn with_arrival_timeout(mut self, timeout: Duration) -> Self {
        self.arrival_timeout = timeout;
        self
    }

    /// Limits the time between two requests of a connection; 5 minutes by default.
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }
}
