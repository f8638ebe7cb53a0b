//! The settings of every request-based destination, and the builders' methods for them.

use std::time::Duration;

use crate::compression::Compression;
use crate::config::ConfigError;
use crate::retry::Retry;
#[cfg(feature = "tls")]
use crate::tls::Tls;

#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) compression: Compression,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) request_bytes_max: usize,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
}

impl Sending {
    /// Returns the defaults, with the protocol's limit on the size of a request.
    pub(crate) fn new(request_bytes_max: usize) -> Self {
        Sending {
            compression: Compression::None,
            timeout: Duration::from_secs(10),
            retry: Retry::default(),
            request_bytes_max,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }

    /// Reads a timeout in milliseconds from a variable; 0 means no limit.
    pub(crate) fn read_timeout(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.timeout = milliseconds(name, value)?;
        Ok(())
    }

    /// Reads `OTEL_BSP_EXPORT_TIMEOUT`, the time limit of a batch including all its retries.
    pub(crate) fn read_batch_timeout(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.retry = self.retry.with_max_age(milliseconds(name, value)?);
        Ok(())
    }
}

/// The number of concurrent requests that a service benefits from. With one, its exporter's thread
/// waits for each response.
pub(crate) const IN_FLIGHT: usize = 4;
/// The batch processor's limit on an export, which an exporter with retries must observe.
pub(crate) const BATCH_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";

/// "No limit" in milliseconds: about seven weeks, the example in OpenTelemetry's specification.
const NO_LIMIT: u64 = u32::MAX as u64;

fn milliseconds(name: &str, value: &str) -> Result<Duration, ConfigError> {
    let reason = || format!("invalid timeout `{value}`: use milliseconds, or 0 for no limit");
    let millis = value.parse().map_err(|_| ConfigError::new(name, reason()))?;
    Ok(Duration::from_millis(if millis == 0 { NO_LIMIT } else { millis }))
}

/// Methods of a builder with a field `sending`. The argument completes the documentation of the
/// limit on a request.
macro_rules! setters {
    ($request_bytes_max:literal) => {
        /// Sets the compression of requests; none by default.
        pub fn with_compression(mut self, compression: $crate::Compression) -> Self {
            self.sending.compression = compression;
            self
        }

        /// Limits the time of one attempt; 10 s by default.
        pub fn with_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.sending.timeout = timeout;
            self
        }

        /// Sets when failed requests are sent again.
        pub fn with_retry(mut self, retry: $crate::Retry) -> Self {
            self.sending.retry = retry;
            self
        }

        /// Limits the size of a request in bytes, before compression.
        #[doc = $request_bytes_max]
        /// Larger calls are split, and so are requests that the server finds too large. A single
        /// span above the limit is lost as [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
        pub fn with_max_request_bytes(mut self, bytes: usize) -> Self {
            self.sending.request_bytes_max = bytes;
            self
        }

        /// Trusts these certificate authorities, in PEM, instead of the system's. A server's own
        /// certificate, such as a self-signed one, is trusted as that server's.
        #[cfg(feature = "tls")]
        pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
            self.sending.tls.roots = Some(pem.into());
            self
        }
    };
}

pub(crate) use setters;
