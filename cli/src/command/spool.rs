//! `astracer spool`: spans that are waiting on disk for their backend.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use astracer_exporters::spool::{Damage, Disk as _, Folder, Report, SegmentReport, Settings, verify};
use astracer_exporters::{Destination as _, Spooled};
use astracer_tuner::Stop;
use clap::{Args as ClapArgs, Subcommand};
use serde::Serialize;

use self::outage::{Outage, Waiting};
use self::sums::Sums;
use crate::failure::Failure;
use crate::interrupt;
use crate::target::Target;
use crate::values::length;
use crate::{load, output};

pub(crate) mod outage;
pub(crate) mod sums;

const EXAMPLES: &str = "\
Examples:
  astracer spool inspect /var/spool/shop     what is waiting, what was refused
  astracer spool verify /var/spool/shop      every checksum; exits 1 on damage
  astracer spool audit /var/spool/shop       how each acknowledged span ended
  astracer spool drain /var/spool/shop --to otlp://localhost:4317

Stop the process that uses the spool first: it holds a lock. drain removes
what it has sent.";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Spool {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what is waiting, and which spans were refused and why.
    Inspect(Look),
    /// Check every frame; fail if one is damaged.
    Verify(Look),
    /// Prove that each acknowledged span has one end or waits; fail if one is missing or was lost.
    Audit(Look),
    /// Send what is waiting to a server, and remove it.
    Drain(Drain),
}

const LOOK_EXAMPLES: &str = "\
Examples:
  astracer spool inspect /var/spool/shop
  astracer spool inspect /var/spool/shop --json | jq .pending_spans
  astracer spool verify /var/spool/shop
  astracer spool audit /var/spool/shop";

const DRAIN_EXAMPLES: &str = "\
Examples:
  astracer spool drain /var/spool/shop --to otlp://localhost:4317
  astracer spool drain /var/spool/shop --to otlp+https://collector:4318 --wait 5m
  astracer spool drain /var/spool/shop --to otlp://localhost:4317 --dead=401";

#[derive(Debug, ClapArgs)]
#[command(after_help = LOOK_EXAMPLES)]
struct Look {
    /// The spool's folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = DRAIN_EXAMPLES)]
struct Drain {
    /// The spool's folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Server: otlp://HOST:PORT (gRPC), otlp+http://HOST:PORT or zipkin://HOST:PORT.
    #[arg(long, value_name = "URL")]
    to: Target,

    /// Also send the dead letters again: all, or those whose reason contains TEXT.
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    dead: Option<String>,

    /// Give up when the server has accepted nothing for this long, such as 90s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = length)]
    wait: Duration,
}

#[derive(Serialize)]
struct Found {
    folder: String,
    pending_records: u64,
    pending_spans: u64,
    oldest_unix_ns: Option<u64>,
    bytes: u64,
    segments: usize,
    dead_letter_spans: u64,
    reasons: Vec<Reason>,
    damage: Vec<DamagedPart>,
    ledger: Sums,
    /// Acknowledged spans that have no end and do not wait; the damage names their files.
    unaccounted: u64,
    last_failure: Option<LastFailure>,
    #[serde(skip)]
    is_proven: bool,
}

#[derive(Serialize)]
struct LastFailure {
    unix_ns: u64,
    reason: String,
}

#[derive(Serialize)]
struct Reason {
    reason: String,
    spans: u64,
}

#[derive(Serialize)]
struct DamagedPart {
    file: String,
    offset: u64,
    bytes: u64,
    /// The number of lost spans; null if it is unknown.
    spans: Option<u64>,
    description: &'static str,
}

pub(crate) fn run(args: &Spool, stop: Stop<'_>) -> Result<(), Failure> {
    match &args.action {
        Action::Inspect(look) => {
            let found = inspect(look, stop)?;
            Failure::after(found.print(look), late(&look.folder, &found.ledger, None))
        }
        Action::Verify(look) => {
            let found = inspect(look, stop)?;
            // Without its cursor a ledger begins anew, although no span is lost.
            let is_damage = |damage: &&DamagedPart| damage.spans != Some(0) || damage.file == "cursor";
            let damaged = found.damage.iter().filter(is_damage).count() as u64;
            let damaged = (damaged > 0).then(|| {
                let places = output::plural(damaged, "damaged place");
                format!("{places}; drain still sends the intact frames")
            });
            Failure::after(found.print(look), late(&look.folder, &found.ledger, damaged))
        }
        Action::Audit(look) => {
            let found = inspect(look, stop)?;
            let printed =
                if look.json { output::print_json(&found) } else { output::report(&found.render_audit()) };
            Failure::after(printed, late(&look.folder, &found.ledger, found.unproven()))
        }
        Action::Drain(args) => drain(args, stop),
    }
}

/// The failure of a look at a spool that has lost spans, or in which something is wrong.
fn late(folder: &Path, ledger: &Sums, wrong: Option<String>) -> Result<(), Failure> {
    let texts: Vec<String> = wrong.into_iter().chain(ledger.lost()).collect();
    match texts.is_empty() {
        true => Ok(()),
        false => Err(Failure::Job(format!("{}: {}", output::shown(folder), texts.join("; ")))),
    }
}

fn failed(folder: &Path, error: &io::Error) -> Failure {
    let folder = output::shown(folder);
    Failure::Job(match error.kind() {
        io::ErrorKind::WouldBlock => format!("{folder} is in use by another process; stop it first"),
        io::ErrorKind::InvalidInput => format!("cannot read {folder}: {error}; move it away"),
        _ => format!("cannot read {folder}: {error}; pass the folder of a spool"),
    })
}

/// Opens an existing spool. Other folders are refused, because opening one would create a spool in
/// it.
fn open(path: &Path) -> io::Result<Folder> {
    let is_of_spool = |name: &str| {
        let is_segment = name.starts_with("live-") || name.starts_with("dead-");
        matches!(name, "lock" | "cursor") || is_segment && name.ends_with(".seg")
    };
    let folder = Folder::open(path)?;
    match folder.list()?.iter().any(|name| is_of_spool(name)) {
        true => Ok(folder),
        false => Err(io::Error::other("it contains no spool")),
    }
}

fn inspect(look: &Look, stop: Stop<'_>) -> Result<Found, Failure> {
    // Reading a spool changes nothing, but may take long, because it can fill a disk.
    interrupt::answer_at_once(stop)?;
    let report = open(&look.folder).and_then(|folder| verify(&folder));
    Ok(Found::new(&look.folder, &report.map_err(|error| failed(&look.folder, &error))?))
}

impl Found {
    fn print(&self, look: &Look) -> Result<(), Failure> {
        if look.json { output::print_json(self) } else { output::report(&self.render()) }
    }

    fn new(folder: &Path, report: &Report) -> Self {
        let sum = |segments: &[SegmentReport], of: fn(&SegmentReport) -> u64| segments.iter().map(of).sum();
        Found {
            folder: folder.to_string_lossy().into_owned(),
            pending_records: report.pending_records,
            pending_spans: report.pending_spans,
            oldest_unix_ns: report.oldest_ns,
            bytes: sum(&report.live, |segment| segment.bytes),
            segments: report.live.len(),
            dead_letter_spans: sum(&report.dead, |segment| segment.spans),
            reasons: report
                .reasons
                .iter()
                .map(|(reason, spans)| Reason { reason: reason.clone(), spans: *spans })
                .collect(),
            damage: report.damage.iter().map(DamagedPart::from).collect(),
            ledger: Sums::from(report.ledger),
            unaccounted: report.unaccounted(),
            last_failure: report
                .failure
                .as_ref()
                .map(|failure| LastFailure { unix_ns: failure.time_ns, reason: failure.text.clone() }),
            is_proven: report.is_proven(),
        }
    }

    /// Returns why the sum cannot be proven.
    fn unproven(&self) -> Option<String> {
        match (self.is_proven, self.unaccounted) {
            (true, _) => None,
            (false, 0) => {
                Some("the ledger is damaged, so what happened before it began anew is unknown".to_owned())
            }
            (false, spans) => Some(format!(
                "{} without an end; see the damage above",
                output::plural(spans, "acknowledged span")
            )),
        }
    }

    fn render_audit(&self) -> String {
        let mut text = self.ledger.table();
        let _ = match self.is_proven {
            true => writeln!(text, "each acknowledged span has one end, or waits"),
            false => writeln!(text, "{:>14}  without an end", output::count(self.unaccounted)),
        };
        self.damage.iter().for_each(|damage| damage.render(&mut text));
        text
    }

    fn render(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}: {} waiting in {}; {} in {}",
            output::escaped(&self.folder),
            output::plural(self.pending_spans, "span"),
            output::plural(self.pending_records, "record"),
            output::bytes(self.bytes),
            output::plural(self.segments as u64, "segment"),
        );
        if let Some(oldest) = self.oldest_unix_ns {
            let _ = writeln!(text, "oldest: {}", load::utc(oldest));
        }
        if let Some(LastFailure { unix_ns, reason }) = &self.last_failure {
            let _ = writeln!(text, "last failure: {}: {}", load::utc(*unix_ns), output::escaped(reason));
        }
        if self.dead_letter_spans > 0 {
            let _ = writeln!(text, "dead letters: {}", output::plural(self.dead_letter_spans, "span"));
        }
        for Reason { reason, spans } in &self.reasons {
            let _ = writeln!(text, "  {}: {}", output::plural(*spans, "span"), output::escaped(reason));
        }
        let _ = writeln!(text, "{}", self.ledger.line());
        self.damage.iter().for_each(|damage| damage.render(&mut text));
        text
    }
}

impl From<&Damage> for DamagedPart {
    fn from(damage: &Damage) -> Self {
        DamagedPart {
            file: damage.file.clone(),
            offset: damage.offset,
            bytes: damage.bytes,
            spans: damage.spans,
            description: damage.description,
        }
    }
}

impl DamagedPart {
    fn render(&self, text: &mut String) {
        let DamagedPart { file, offset, bytes, spans, description } = self;
        let file = output::escaped(file);
        let _ = match spans {
            Some(0) => writeln!(text, "note: {file} byte {offset}, {bytes} bytes: {description}"),
            Some(spans) => {
                let spans = output::plural(*spans, "span");
                writeln!(text, "damage: {file} byte {offset}, {bytes} bytes, {spans}: {description}")
            }
            None => writeln!(text, "damage: {file} byte {offset}, {bytes} bytes: {description}"),
        };
    }
}

/// The interval of checks for signals.
const TICK: Duration = Duration::from_millis(100);

fn drain(args: &Drain, stop: Stop<'_>) -> Result<(), Failure> {
    open(&args.folder).map_err(|error| failed(&args.folder, &error))?;
    let destination = args.to.connect()?;
    let counter = destination.counter();
    // Send everything whatever its age, and evict no dead letters: limits are for the service to
    // apply.
    let settings = Settings::default().with_max_age(Duration::MAX).with_dead_letter_bytes(u64::MAX);
    let settings = settings.with_max_bytes(u64::MAX);
    // A destination that refuses ends the command after --wait, and the spans stay.
    let builder = Spooled::builder(&args.folder).with_settings(settings).with_max_refusal(Duration::MAX);
    let spooled = builder.open(destination);
    let spooled = spooled.map_err(|error| Failure::Job(output::escaped(&error.to_string()).into_owned()))?;
    let revived = args.dead.as_deref().map(|reason| spooled.revive(Some(reason)));
    let revived = revived.transpose().map_err(|error| {
        Failure::Job(format!("dead letters cannot be queued again: {}", output::escaped(&error.to_string())))
    })?;
    let (mut pending, mut last_progress) = (spooled.pending(), Instant::now());
    let (begun, mut outage) = (Instant::now(), Outage::default());
    let gave_up = loop {
        let left = spooled.drain(TICK);
        if let Some(line) = outage.tick(begun.elapsed(), &Waiting::from(&spooled)) {
            output::note(&line);
        }
        if left == 0 || stop.is_asked() {
            break None;
        }
        if left < pending {
            (pending, last_progress) = (left, Instant::now());
        } else if last_progress.elapsed() >= args.wait {
            break Some(counter.read().waiting.map(|error| spooled.diagnose(error).to_string()));
        }
    };
    let left = spooled.pending();
    let counts = counter.read();
    let mut text = format!("{} accepted by {}\n", output::plural(counts.sent, "span"), args.to);
    if let Some(revived) = revived {
        let (spans, queued) = (output::plural(revived.spans, "dead span"), revived.queued);
        let _ = writeln!(text, "sent again: {spans}, in requests of {}", output::plural(queued, "span"));
    }
    let dead = spooled.spool_counts().dead_letters;
    if dead > 0 {
        let dead = output::plural(dead, "span");
        let _ = writeln!(text, "dead letters: {dead}; `inspect` shows why, --dead sends them again");
    }
    let damage: Vec<_> = spooled.damage().iter().map(DamagedPart::from).collect();
    damage.iter().for_each(|damage| damage.render(&mut text));
    let is_damaged = damage.iter().any(|damage| damage.spans != Some(0));
    let ledger = Sums::from(spooled.ledger());
    let _ = writeln!(text, "{}", ledger.line());
    if counts.rejected > 0 {
        let _ = writeln!(text, "rejected: {}", output::plural(counts.rejected, "span"));
    }
    if !counts.message.is_empty() {
        let _ = writeln!(text, "the server says: {}", output::escaped(&counts.message));
    }
    for (reason, spans) in counts.lost.iter() {
        let _ = writeln!(text, "lost ({reason}): {}", output::plural(spans, "span"));
    }
    if left > 0 && gave_up.is_none() {
        let left = output::plural(left, "span");
        let _ = writeln!(text, "still waiting in the spool: {left}; the same command sends them");
    }
    let late = match gave_up {
        Some(why) => {
            let why = why.unwrap_or_else(|| "the server accepts no spans".to_owned());
            Err(Failure::Job(format!("{why}\n{} still waiting in the spool", output::plural(left, "span"))))
        }
        None if left > 0 => Err(Failure::Interrupted),
        None if counts.rejected + counts.lost.total() + dead > 0 => {
            Err(Failure::Job("some spans were not accepted; see `astracer spool inspect`".to_owned()))
        }
        None if is_damaged => {
            Err(Failure::Job("the spool is damaged, so spans may be missing; see the lines above".to_owned()))
        }
        None => late(&args.folder, &ledger, None),
    };
    Failure::after(output::report(&text), late)
}
