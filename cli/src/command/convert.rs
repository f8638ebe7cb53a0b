//! `astracer convert`: writes a recording in another format.

use std::fmt::Write as _;
use std::path::PathBuf;

use astracer_model::Format;
use astracer_recording::convert::{Converted, Converter};
use astracer_recording::source;
use astracer_tuner::Stop;
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::json_text::Harmless;
use crate::load::{self, Input};
use crate::losses::{self, LossCount};
use crate::output;
use crate::outputs::Outputs;
use crate::progress::Progress;
use crate::source::{Reading, check_inputs};
use crate::stdout;

const EXAMPLES: &str = "\
Examples:
  astracer convert run.tar.xz run.jsonl          OTLP JSON lines
  astracer convert spans.json upload.json --to jaeger-json
  astracer convert traces/ all.jsonl.zst         compressed, because of the name
  curl -s 'http://localhost:9411/api/v2/traces' | astracer convert - - > t.jsonl

Data that the new format cannot hold is counted on standard error. Memory use
does not grow with the input, except for Jaeger JSON as the output (all spans
are held) and HTrace as the input (span ids are held).";

#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Convert {
    /// Recording to read: a file, folder or archive (tar, gz, xz, zst); - reads standard input.
    #[arg(value_name = "RECORDING")]
    pub(crate) input: PathBuf,

    /// File to write; - is standard output. An existing file is replaced once everything is
    /// written. A name that ends in .gz or .zst is compressed.
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// Format to write: otlp-json (lines), otlp-proto, jaeger-json, zipkin-json or htrace.
    #[arg(long, value_name = "FORMAT", default_value_t = Format::OtlpJson, value_parser = written)]
    pub(crate) to: Format,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Print a summary as one JSON object to standard output, or to standard error if the traces go
    /// to standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the name of a format that can be written.
fn written(text: &str) -> Result<Format, String> {
    let format: Format =
        text.parse().map_err(|error: astracer_model::format::UnknownFormat| error.to_string())?;
    let can = |format: &Format| astracer_formats::writer(*format, Box::new(std::io::sink())).is_some();
    if can(&format) {
        return Ok(format);
    }
    let names: Vec<_> = Format::ALL.iter().filter(|format| can(format)).map(|format| format.name()).collect();
    Err(format!("{text} can be read but not written: use {}", names.join(", ")))
}

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    output: String,
    format: &'static str,
    spans: u64,
    losses: Vec<LossCount>,
}

pub(crate) fn run(args: &Convert, stop: Stop<'_>) -> Result<(), Failure> {
    let output = Outputs::new([&args.input]).recording("OUT", &args.output)?;
    // If the traces go to standard output, `Outputs` has checked it.
    if !output.is_standard() {
        check_inputs([&args.input])?;
    }
    let is_shown = output.is_standard() && stdout::is_terminal();
    if is_shown && args.to == Format::OtlpProto {
        return Err(Failure::Usage(
            "otlp-proto is binary and cannot go to a terminal; name a file, or use a pipe".to_owned(),
        ));
    }
    let target = output.open()?;
    let progress = Progress::reading(std::slice::from_ref(&args.input));
    let writer = target.writer()?;
    let writer = if is_shown { Box::new(Harmless::new(writer)) } else { writer };
    let converter = Converter::new(args.to, writer)
        .ok_or_else(|| Failure::Job(format!("{} cannot be written", args.to)))?;
    let mut converter = converter
        .examples(load::EXAMPLES)
        .stop_when(|| stop.is_asked())
        .progress_to(|bytes| progress.inc(bytes));
    let summary = interrupt::answer_at_once_while_reading(stop, || {
        source::read(&args.input, &args.reading.options(), &mut converter)
            .map_err(|error| Failure::Job(error.to_string()))
    })?;
    // Formats that hold whole traces write everything here.
    interrupt::answer_at_once(stop)?;
    let converted = converter.finish().map_err(|error| output.failure(&error))?;
    progress.finish();
    let input = Input::of_conversion(std::slice::from_ref(&args.input), &summary.files, &converted);
    input.check(args.reading.bounds.strict, converted.spans == 0)?;
    target.complete()?;
    let text = if args.json { json(args, &input, &converted)? } else { render(args, &input, &converted) };
    match args.json && !output.is_standard() {
        true => output::print(&text),
        false => {
            output::note(&text);
            Ok(())
        }
    }
}

fn json(args: &Convert, input: &Input, converted: &Converted) -> Result<String, Failure> {
    output::json(&Report {
        input,
        output: args.output.to_string_lossy().into_owned(),
        format: args.to.name(),
        spans: converted.spans,
        losses: losses::counts(&converted.losses),
    })
}

fn render(args: &Convert, input: &Input, converted: &Converted) -> String {
    let mut text = input.heading();
    let output = output::shown(&args.output);
    let _ = writeln!(text, "wrote {} as {} to {output}", output::plural(converted.spans, "span"), args.to);
    for (loss, spans) in converted.losses.counts() {
        let _ =
            writeln!(text, "lost in {}: {} ({})", args.to, loss.describe(), output::plural(spans, "span"));
    }
    text + &input.footing()
}
