//! The outputs of a receiver, and who may use it.

use std::net::SocketAddr;

use astracer_exporters::{Files, Spooled};

use crate::tls::Tls;
use crate::token::Token;

/// The outputs for the spans and log records of requests, and the origins of web pages that may
/// send requests.
#[derive(Debug)]
#[must_use]
pub struct Recording {
    pub(crate) files: Files,
    pub(crate) logs: Option<Files>,
    pub(crate) forward: Option<Spooled>,
    pub(crate) origins: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics: Option<SocketAddr>,
}

impl From<Files> for Recording {
    fn from(files: Files) -> Self {
        Recording {
            files,
            logs: None,
            forward: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            token: None,
            tls: None,
            metrics: None,
        }
    }
}

impl Recording {
    /// Also records log records, to these files: usually those [beside](Files::beside) the spans'.
    /// Requests with logs are refused otherwise.
    pub fn with_logs(mut self, files: Files) -> Self {
        self.logs = Some(files);
        self
    }

    /// Also forwards the spans, through a spool. A request is acknowledged when it is in the spool
    /// and in the files. Log records are not forwarded; they are only in their files.
    pub fn with_forward(mut self, spool: Spooled) -> Self {
        self.forward = Some(spool);
        self
    }

    /// Accepts requests for these hosts, without a port, where the receiver listens on loopback.
    /// Others than `localhost` and loopback addresses are refused there, since a web page can let
    /// its own name resolve to loopback.
    pub fn with_hosts(mut self, hosts: impl Into<Vec<String>>) -> Self {
        self.hosts = hosts.into();
        self
    }

    /// Accepts only requests with this token.
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Accepts connections over TLS only.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Also listens here for `GET /metrics`, the counts as Prometheus reads them, and `GET
    /// /health`: 200, or 503 with the reason for which requests are refused.
    pub fn with_metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Allows web pages of these origins, such as `https://shop.example`, to send traces; `*`
    /// allows any origin.
    pub fn with_origins(mut self, origins: impl Into<Vec<String>>) -> Self {
        self.origins = origins.into();
        self
    }
}
