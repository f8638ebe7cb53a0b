//! Settings of everything that sends, and the functions that builders set them by.

use std::time::Duration;

use crate::compression::Compression;
use crate::config::ConfigError;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::wait::Retry;

/// How requests are sent, whatever is in them.
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
    /// All at their defaults, but for the size, which each protocol has its own custom of.
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

    /// Takes a timeout in milliseconds from this variable.
    pub(crate) fn read_timeout(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let millis = value.parse().ok().filter(|&millis: &u64| millis > 0);
        let reason = || format!("`{value}` is no number of milliseconds above 0");
        self.timeout = Duration::from_millis(millis.ok_or_else(|| ConfigError::new(name, reason()))?);
        Ok(())
    }
}

/// The functions of a builder with a field `sending`; told is what there is to say of `request_bytes_max`.
macro_rules! setters {
    ($request_bytes_max:literal) => {
        /// How requests are compressed.
        pub fn compression(mut self, compression: $crate::Compression) -> Self {
            self.sending.compression = compression;
            self
        }

        /// The time for a request with everything that is tried for it, 10 s if it is not set.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.sending.timeout = timeout;
            self
        }

        /// When failed requests are sent again.
        pub fn retry(mut self, retry: $crate::Retry) -> Self {
            self.sending.retry = retry;
            self
        }

        /// The bytes of a request, before compression;
        #[doc = $request_bytes_max]
        /// Calls with more are split, and requests that the server finds too large. A single span that is larger is lost as
        /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
        pub fn request_bytes_max(mut self, bytes: usize) -> Self {
            self.sending.request_bytes_max = bytes;
            self
        }

        /// The certificates, in PEM, of the authorities to trust in place of the system's.
        #[cfg(feature = "tls")]
        pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
            self.sending.tls.roots = Some(pem.into());
            self
        }
    };
}

pub(crate) use setters;
