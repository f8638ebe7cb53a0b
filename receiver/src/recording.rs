//! The places where requests go.

use astracer_exporters::{Files, Spooled};

/// Places for the spans of requests, and the web pages that may send some.
#[derive(Debug)]
#[must_use]
pub struct Recording {
    pub(crate) files: Files,
    pub(crate) forward: Option<Spooled>,
    pub(crate) origins: Vec<String>,
}

impl From<Files> for Recording {
    fn from(files: Files) -> Self {
        Recording { files, forward: None, origins: Vec::new() }
    }
}

impl Recording {
    /// Also passes the spans on, through a spool. A request is answered when it is in the spool and
    /// in the files.
    pub fn with_forward(mut self, spool: Spooled) -> Self {
        self.forward = Some(spool);
        self
    }

    /// Lets web pages of these origins send traces, such as `https://shop.example`; `*` stands for
    /// any.
    pub fn with_origins(mut self, origins: impl Into<Vec<String>>) -> Self {
        self.origins = origins.into();
        self
    }
}
