//! `astracer receive`: a recording of what services send.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use astracer_exporters::receive::{Limits, Received, Receiver, Refusal};
use astracer_exporters::{FileCompression, Files, WhenFull};
use serde::Serialize;

use crate::args::Receive;
use crate::failure::Failure;
use crate::{load, output};

/// How often the display and the wish to stop are looked at.
const TICK: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Report {
    folder: String,
    requests: u64,
    spans: u64,
    rejected: u64,
    refused: Vec<Refused>,
    bytes: u64,
}

#[derive(Serialize)]
struct Refused {
    reason: &'static str,
    requests: u64,
}

pub(crate) fn run(args: &Receive, stop: &AtomicBool) -> Result<(), Failure> {
    let compression = if args.zstd { FileCompression::Zstd { level: 3 } } else { FileCompression::None };
    let files = Files::builder(&args.out)
        .rotate_bytes(args.rotate)
        .total_bytes_max(args.total_max)
        .when_full(WhenFull::Refuse)
        .compression(compression)
        .open()
        .map_err(|error| Failure::Job(error.to_string()))?;
    let message_max = usize::try_from(args.message_max).unwrap_or(usize::MAX);
    let receiver = Receiver::start(&args.otlp, Limits::default().message_bytes_max(message_max), files)
        .map_err(|error| Failure::Job(format!("{error}; choose another address with --otlp")))?;
    for address in receiver.addresses() {
        eprintln!("listening on {address} for OTLP (gRPC and HTTP)");
    }
    eprintln!("writing to {}; Ctrl-C ends", args.out.display());
    let display = load::spinner();
    while !stop.load(Ordering::Relaxed) {
        let received = receiver.received();
        let bytes = output::bytes(receiver.total_bytes());
        display.set_message(format!("{}, {bytes}", output::plural(received.spans, "span")));
        std::thread::sleep(TICK);
    }
    display.finish_and_clear();
    let bytes = receiver.total_bytes();
    let received = receiver.stop().map_err(|error| Failure::Job(error.to_string()))?;
    let report = Report::new(args, &received, bytes);
    if args.json { output::print_json(&report) } else { output::print(&report.render()) }
}

impl Report {
    fn new(args: &Receive, received: &Received, bytes: u64) -> Self {
        let refused = Refusal::ALL
            .iter()
            .map(|&reason| Refused { reason: reason.slug(), requests: received.refused(reason) });
        Self {
            folder: args.out.display().to_string(),
            requests: received.requests,
            spans: received.spans,
            rejected: received.rejected,
            refused: refused.filter(|refused| refused.requests > 0).collect(),
            bytes,
        }
    }

    fn render(&self) -> String {
        let mut text = String::new();
        let (spans, requests) =
            (output::plural(self.spans, "span"), output::plural(self.requests, "request"));
        let _ = writeln!(text, "{spans} in {requests}; {} holds {}", self.folder, output::bytes(self.bytes));
        if self.rejected > 0 {
            let _ = writeln!(text, "could not be read: {}", output::plural(self.rejected, "span"));
        }
        for Refused { reason, requests } in &self.refused {
            let _ = writeln!(text, "refused ({reason}): {}", output::plural(*requests, "request"));
        }
        text
    }
}
