//! A batch job without async code. It imports records, nearly all of the same kind, and traces
//! each.
//!
//! ```text
//! cargo run --release -p astracer-examples --bin batch
//! ```
//!
//! Look at which traces are printed. The sampler keeps about one in a thousand of the frequent
//! `import record` traces, but also the first `import correction`, a rare kind with its own steps
//! below `undo`. The last line counts the roots that were kept and dropped. With
//! `--tail error --provisional always` broken records are kept too, within the budget of that
//! policy.

use std::error::Error;
use std::io::Write as _;
use std::sync::atomic::Ordering;

use astracer_examples::output::Output;
use astracer_examples::{ending, telemetry};
use clap::Parser;
use tracing::{error, info_span, instrument};

/// Import made-up records, with a trace of each. One in 1,000 is broken, and one in 200 is a
/// correction.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    tracing: telemetry::Options,

    /// Number of records.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let running = args.tracing.start("import")?;
    let is_asked = ending::flag()?;
    let (mut sum, mut broken, mut records) = (0u64, 0u64, 0);
    for number in (0..args.records).take_while(|_| !is_asked.load(Ordering::Relaxed)) {
        records += 1;
        match import(number) {
            Ok(value) => sum = sum.wrapping_add(value),
            Err(_) => broken += 1,
        }
    }
    writeln!(Output, "{records} records, {broken} broken, sum {sum}")?;
    writeln!(Output, "{}", running.stop()?)?;
    Ok(())
}

fn import(number: u64) -> Result<u64, &'static str> {
    // The sampler counts calls by the root's name. With a name of their own, the rare corrections
    // are not counted among the frequent records.
    let root = if number % 200 == 7 {
        info_span!("import correction", number)
    } else {
        info_span!("import record", number)
    };
    root.in_scope(|| {
        let value = parse(number).inspect_err(|reason| error!(reason, "record skipped"))?;
        store(value);
        if number % 200 == 7 {
            info_span!("undo").in_scope(|| (0..5).for_each(store));
        }
        Ok(value)
    })
}

#[instrument(err(Debug))]
fn parse(number: u64) -> Result<u64, &'static str> {
    if number % 1000 == 999 { Err("no number in the third column") } else { Ok(number * 3) }
}

#[instrument]
fn store(value: u64) {
    std::hint::black_box(value);
}
