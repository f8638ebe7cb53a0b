//! The state shared by all connections.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use crate::answer::Refused;
use crate::clients::BodyMemory;
use crate::connections::Connections;
use crate::counts::{Counts, Refusal};
use crate::events::Events;
use crate::signal::Signal;
use crate::tls::Tls;
use crate::token::Token;
use crate::turns::Turns;
use crate::{Limits, Recording};
use astracer_exporters::{Files, Spooled};

/// At shutdown, the wait for connections without a request in progress, and for the next bytes of a
/// request. A sender that stalls for longer is not waited for.
pub(crate) const STANDSTILL: Duration = Duration::from_millis(250);

/// The limits, outputs and counts that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) files: Files,
    /// The files of log records; `None` if the receiver records none.
    pub(crate) logs: Option<Files>,
    pub(crate) forward: Option<Spooled>,
    /// True if the last request was rejected by the files, false if by the spool.
    pub(crate) are_files_first: AtomicBool,
    /// The origins of web pages that may send traces.
    pub(crate) origins: Vec<String>,
    /// The hosts that requests may name where the receiver listens on loopback.
    pub(crate) hosts: Vec<String>,
    /// The token that requests must have.
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
    pub(crate) counts: Counts,
    pub(crate) events: Events,
    /// The file name in problems.
    pub(crate) file: Arc<str>,
    pub(crate) body_memory: Arc<BodyMemory>,
    pub(crate) turns: Turns,
    pub(crate) connections: Arc<Connections>,
    stopped: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(limits: Limits, recording: Recording, stopped: watch::Receiver<bool>) -> Self {
        let Recording { files, logs, forward, origins, hosts, token, tls, metrics: _ } = recording;
        Self {
            body_memory: BodyMemory::new(&limits),
            limits,
            files,
            logs,
            forward,
            are_files_first: AtomicBool::new(false),
            origins,
            hosts,
            token,
            tls,
            counts: Counts::default(),
            events: Events::default(),
            file: "request".into(),
            turns: Turns::default(),
            connections: Arc::default(),
            stopped,
        }
    }

    /// Refuses a signal for which there are no files.
    pub(crate) fn accepts(&self, signal: Signal) -> Result<(), Refused> {
        if signal == Signal::Logs && self.logs.is_none() {
            let message = "this receiver records no logs: it was started without files for them";
            return Err(Refused::new(Refusal::WrongPath, message));
        }
        Ok(())
    }

    /// Waits until the receiver is asked to stop.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Waits until the receiver is asked to stop, and then for the time that a stalled sender is
    /// waited for.
    pub(crate) async fn standstill(&self) {
        self.stopped().await;
        tokio::time::sleep(STANDSTILL).await;
    }
}
