//! State of all connections.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use crate::clients::BodyMemory;
use crate::connections::Connections;
use crate::counts::Counts;
use crate::events::Events;
use crate::{Limits, Recording};
use astracer_exporters::{Files, Spooled};

/// At the end of the receiver, the time for connections without a request under way, and for the
/// next bytes of one: a sender that stands still is not waited for.
pub(crate) const STANDSTILL: Duration = Duration::from_millis(250);

/// Limits, outputs and counts, which all connections have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) files: Files,
    pub(crate) forward: Option<Spooled>,
    /// The files, and not the spool, were the last to refuse a request.
    pub(crate) are_files_first: AtomicBool,
    /// Origins of web pages that may send traces.
    pub(crate) origins: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) events: Events,
    /// The name that problems carry as their file.
    pub(crate) file: Arc<str>,
    pub(crate) body_memory: Arc<BodyMemory>,
    pub(crate) connections: Arc<Connections>,
    stopped: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(limits: Limits, recording: Recording, stopped: watch::Receiver<bool>) -> Self {
        let Recording { files, forward, origins } = recording;
        Self {
            body_memory: BodyMemory::new(&limits),
            limits,
            files,
            forward,
            are_files_first: AtomicBool::new(false),
            origins,
            counts: Counts::default(),
            events: Events::default(),
            file: "request".into(),
            connections: Arc::default(),
            stopped,
        }
    }

    /// Returns when the receiver is told to stop.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Returns when the receiver ends, and a sender that has sent nothing meanwhile is not waited
    /// for any longer.
    pub(crate) async fn standstill(&self) {
        self.stopped().await;
        tokio::time::sleep(STANDSTILL).await;
    }
}
