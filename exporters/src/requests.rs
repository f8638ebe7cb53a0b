//! Spans in requests: encoded once, split if too large, sent until answered or given up, counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use astracer_model::Span;

use crate::counts::Counter;
use crate::destination::Delivery;
use crate::error::{ErrorKind, ExportError};
use crate::sending::Sending;
use crate::wait::{Gate, Retry, with_retries};

/// How requests look, and how they are sent.
pub(crate) trait Wire {
    /// A body that can be sent more than once.
    type Packed;

    /// The endpoint, as errors name it.
    fn target(&self) -> String;

    /// Appends a request with these spans.
    fn encode(&self, spans: &[Span<'_>], out: &mut Vec<u8>);

    /// Makes what was encoded ready to be sent.
    fn pack(&self, body: Vec<u8>) -> Self::Packed;

    /// Sends a request of `spans` spans once.
    fn post(&self, body: &Self::Packed, spans: usize, timeout: Duration) -> Result<Delivery, ExportError>;
}

/// What a destination that sends requests keeps.
#[derive(Debug)]
pub(crate) struct Requests {
    timeout: Duration,
    retry: Retry,
    bytes_max: usize,
    /// The size of the last request: how much memory the next one may take.
    last_bytes: AtomicUsize,
    pub(crate) counter: Counter,
    pub(crate) gate: Gate,
}

impl Requests {
    /// Requests of at most so many bytes before compression, each with its retries within the timeout.
    pub(crate) fn new(sending: &Sending) -> Self {
        Requests {
            timeout: sending.timeout,
            retry: sending.retry,
            bytes_max: sending.request_bytes_max,
            last_bytes: AtomicUsize::new(0),
            counter: Counter::default(),
            gate: Gate::default(),
        }
    }

    /// Sends spans in as many requests as it takes. The first error is told; it keeps no other request from being sent.
    pub(crate) fn send<W: Wire>(&self, wire: &W, spans: &[Span<'_>]) -> Result<Delivery, ExportError> {
        let mut total = Delivery::default();
        if !spans.is_empty() {
            let mut bytes_max = self.bytes_max;
            self.send_some(wire, spans, &mut bytes_max, &mut total)?;
        }
        Ok(total)
    }

    /// `bytes_max`: our own limit, or what is below the smallest request of this call that the server found too large.
    fn send_some<W: Wire>(
        &self,
        wire: &W,
        spans: &[Span<'_>],
        bytes_max: &mut usize,
        total: &mut Delivery,
    ) -> Result<(), ExportError> {
        let last = self.last_bytes.load(Ordering::Relaxed);
        let mut body = Vec::with_capacity(last + last / 4);
        wire.encode(spans, &mut body);
        self.last_bytes.store(body.len(), Ordering::Relaxed);
        let bytes = body.len();
        let sent = if bytes > *bytes_max {
            drop(body);
            let detail = format!("one span takes {bytes} of at most {bytes_max} bytes");
            Err(ExportError::new(ErrorKind::TooLarge, wire.target(), detail))
        } else {
            self.send_body(wire, body, spans.len())
        };
        let delivery = match sent {
            Ok(delivery) => delivery,
            Err(error) => {
                if error.kind() == ErrorKind::TooLarge {
                    // So a server that takes nothing gets few requests, and not one for each span.
                    *bytes_max = (*bytes_max).min(bytes.saturating_sub(1));
                    if spans.len() > 1 {
                        let (first, second) = spans.split_at(spans.len() / 2);
                        let sent = self.send_some(wire, first, bytes_max, total);
                        return sent.and(self.send_some(wire, second, bytes_max, total));
                    }
                }
                self.counter.lose(error.kind(), spans.len());
                return Err(error);
            }
        };
        self.counter.deliver(&delivery);
        total.accepted += delivery.accepted;
        total.rejected += delivery.rejected;
        if !delivery.message.is_empty() {
            total.message = delivery.message;
        }
        Ok(())
    }

    fn send_body<W: Wire>(&self, wire: &W, body: Vec<u8>, spans: usize) -> Result<Delivery, ExportError> {
        if self.gate.is_closed() {
            return Err(ExportError::new(ErrorKind::ShutDown, wire.target(), ""));
        }
        let body = wire.pack(body);
        with_retries(&self.retry, self.timeout, &self.gate, &self.counter, |left| {
            wire.post(&body, spans, left)
        })
    }
}
