//! `astracer convert`: a recording in another format.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use astracer_recording::convert::{Converted, Converter};
use astracer_recording::source;
use serde::Serialize;

use crate::args::Convert;
use crate::failure::Failure;
use crate::load::{self, Input};
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    input: &'a Input,
    output: String,
    format: &'static str,
    spans: u64,
    losses: Vec<LossCount>,
}

#[derive(Serialize)]
struct LossCount {
    kind: &'static str,
    describe: &'static str,
    spans: u64,
}

pub(crate) fn run(args: &Convert, stop: &AtomicBool) -> Result<(), Failure> {
    if is_same_file(&args.input, &args.output) {
        let path = args.output.display();
        return Err(Failure::Job(format!(
            "{path} would be overwritten while it is read; choose another OUT"
        )));
    }
    let to_stdout = args.output.as_os_str() == "-";
    let target = Target::new(&args.output);
    let progress = load::reading_progress(std::slice::from_ref(&args.input));
    let converter = Converter::new(args.to, target.writer()?)
        .ok_or_else(|| Failure::Job(format!("{} is not written", args.to)))?;
    let mut converter = converter
        .examples(load::EXAMPLES)
        .stop_when(|| stop.load(Ordering::Relaxed))
        .progress_to(|bytes| progress.inc(bytes));
    let summary = source::read(&args.input, &args.reading.options(), &mut converter)
        .map_err(|error| Failure::Job(error.to_string()))?;
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let converted = converter.finish().map_err(|error| target.failure(&error))?;
    progress.finish_and_clear();
    let input = Input::of_conversion(std::slice::from_ref(&args.input), &summary.files, &converted);
    input.check(args.reading.strict, converted.spans == 0)?;
    target.complete()?;
    let text = if args.json { json(args, &input, &converted)? } else { render(args, &input, &converted) };
    match args.json && !to_stdout {
        true => output::print(&text),
        false => {
            eprint!("{text}");
            Ok(())
        }
    }
}

fn json(args: &Convert, input: &Input, converted: &Converted) -> Result<String, Failure> {
    let losses = converted.losses.counts().map(|(loss, spans)| LossCount {
        kind: loss.slug(),
        describe: loss.describe(),
        spans,
    });
    output::json(&Report {
        input,
        output: args.output.display().to_string(),
        format: args.to.name(),
        spans: converted.spans,
        losses: losses.collect(),
    })
}

fn render(args: &Convert, input: &Input, converted: &Converted) -> String {
    let mut text = input.heading();
    let output = args.output.display();
    let _ = writeln!(text, "wrote {} as {} to {output}", output::plural(converted.spans, "span"), args.to);
    for (loss, spans) in converted.losses.counts() {
        let _ = writeln!(
            text,
            "not held by {}: {} ({})",
            args.to,
            loss.describe(),
            output::plural(spans, "span")
        );
    }
    text + &input.footing()
}

fn is_same_file(input: &Path, output: &Path) -> bool {
    match (fs::canonicalize(input), fs::canonicalize(output)) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    }
}

/// Where the traces go. A file gets its name when it is complete, so that a conversion that fails leaves an older file
/// of this name alone and no half of a new one.
struct Target {
    path: PathBuf,
    /// The name until then. None for what is no ordinary file: standard output, a pipe, a device.
    partial: Option<PathBuf>,
}

impl Target {
    fn new(path: &Path) -> Self {
        let special = path.as_os_str() == "-" || path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let name = path.file_name().filter(|_| !special);
        // A hidden file is not taken for input if it lies in the folder that is read.
        let partial = name.map(|name| {
            path.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()))
        });
        Self { path: path.to_owned(), partial }
    }

    fn writer(&self) -> Result<Box<dyn Write>, Failure> {
        if self.path.as_os_str() == "-" {
            return Ok(Box::new(io::stdout().lock()));
        }
        let path = self.partial.as_ref().unwrap_or(&self.path);
        match File::create(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(self.failure(&error)),
        }
    }

    fn complete(mut self) -> Result<(), Failure> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        fs::rename(&partial, &self.path).map_err(|error| {
            let _ = fs::remove_file(&partial);
            self.failure(&error)
        })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        if self.path.as_os_str() == "-" {
            return Failure::output(error);
        }
        Failure::Job(format!("can't write {}: {error}; choose another OUT", self.path.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}
