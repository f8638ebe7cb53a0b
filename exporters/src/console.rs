//! Draws traces as trees for people: 80 columns, one span per line.
//!
//! ```text
//! trace 0102030405060708090a0b0c0d0e0f10  shop  3 spans, 1 failed, kept late: error
//! GET /orders/{id}                              12.3 ms  ████████████████████████
//! ├─ check token                                1.20 ms  ██
//! └─ SELECT orders                            ! 8.00 ms     ████████████████
//!       deadlock
//! ```
//!
//! The bars show when each span ran within the trace. A failed span has a `!`, and its status
//! message is on the line below it. If the spans of a trace arrive in several calls, each call is
//! drawn separately.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use astracer_model::value::Value;
use astracer_model::{Span, Status, TraceId};

use astracer_model::destination::{Counter, Delivery};
use astracer_model::destination::{DeliveryReport, Destination};
use astracer_model::destination::{ErrorKind, ExportError};

mod text;
mod tree;

use text::{clip, duration};
use tree::{Row, rows};

/// The width of a line, assuming that each character is one column wide.
const COLUMNS: usize = 80;
const BAR: usize = 24;
const DURATION: usize = 9;
/// The columns for the tree and the name. Of the other four, one is for the failure mark and three
/// are gaps.
const NAME: usize = COLUMNS - BAR - DURATION - 4;

/// The number of spans of a trace that are drawn; the rest are counted.
const SPANS_MAX: usize = 1_000;

/// Draws traces on a terminal or any other writer.
pub struct Console {
    state: Mutex<State>,
    paint: Paint,
    counter: Counter,
}

struct State {
    out: Box<dyn Write + Send>,
    ended: bool,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("paint", &self.paint).finish_non_exhaustive()
    }
}

impl Console {
    /// Creates a console without colours.
    pub fn plain(out: impl Write + Send + 'static) -> Self {
        Console {
            state: Mutex::new(State { out: Box::new(out), ended: false }),
            paint: Paint { colors: false },
            counter: Counter::default(),
        }
    }

    /// Creates a console with colours if `out` is a terminal and the environment does not set
    /// `NO_COLOR` (<https://no-color.org>).
    pub fn colored(out: impl Write + IsTerminal + Send + 'static) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let paint = Paint { colors: wanted && out.is_terminal() };
        Console { paint, ..Self::plain(out) }
    }
}

impl Destination for Console {
    fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
        let mut text = String::new();
        for trace in traces(spans) {
            draw(&mut text, &trace, self.paint);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let written = if state.ended {
            Err(ExportError::new(ErrorKind::ShutDown, "console", ""))
        } else {
            let written = state.out.write_all(text.as_bytes()).and_then(|()| state.out.flush());
            written.map_err(|error| ExportError::file("console", &error))
        };
        match written {
            Ok(()) => {
                let delivery = Delivery::all(spans);
                self.counter.deliver(&delivery);
                DeliveryReport::delivered(delivery)
            }
            Err(error) => {
                self.counter.lose(error.kind(), spans.len() as u64);
                DeliveryReport::lost(error, spans.len() as u64)
            }
        }
    }

    fn counter(&self) -> Counter {
        self.counter.clone()
    }

    fn shut_down(&self, _timeout: Duration) -> Result<(), ExportError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        Ok(())
    }
}

/// Groups spans by trace, in order of the first span of each.
fn traces<'s, 'a>(spans: &'s [Span<'a>]) -> Vec<Vec<&'s Span<'a>>> {
    let mut places = std::collections::HashMap::<TraceId, usize>::new();
    let mut traces: Vec<Vec<_>> = Vec::new();
    for span in spans {
        let place = *places.entry(span.trace_id).or_insert_with(|| {
            traces.push(Vec::new());
            traces.len() - 1
        });
        traces[place].push(span);
    }
    traces
}

/// Appends the drawing of a trace.
fn draw(out: &mut String, spans: &[&Span<'_>], paint: Paint) {
    let Some(first) = spans.first() else { return };
    let failed = spans.iter().filter(|span| span.status == Status::Error).count();
    let mut heading = format!("trace {}", first.trace_id);
    let service = first.resource.service_name();
    if !service.is_empty() {
        heading.push_str(&format!("  {}", clip(service, 20)));
    }
    heading.push_str(&format!("  {} span{}", spans.len(), if spans.len() == 1 { "" } else { "s" }));
    if failed > 0 {
        heading.push_str(&format!(", {failed} failed"));
    }
    if let Some(reason) = kept_late(spans) {
        heading.push_str(&format!(", kept late: {}", clip(reason, 20)));
    }
    line(out, &paint.bold(&heading));
    let start = spans.iter().filter_map(|span| span.start).min().unwrap_or_default().0;
    // After a clock was set back, an end may be before its start.
    let end = spans.iter().filter_map(|span| span.end.max(span.start)).max().unwrap_or_default().0;
    let time = Range { start, end };
    let rows = rows(spans);
    for row in rows.iter().take(SPANS_MAX) {
        draw_span(out, spans[row.span], row, &time, paint);
    }
    if let Some(more) = rows.len().checked_sub(SPANS_MAX).filter(|&more| more > 0) {
        line(out, &format!("... and {more} more"));
    }
    out.push('\n');
}

/// The reason why a trace was kept late, that is, after the head sampler had dropped it. Only spans
/// with an adjusted count of 0 are considered, because the service may set an attribute of the same
/// name on others.
fn kept_late<'s>(spans: &'s [&Span<'_>]) -> Option<&'s str> {
    let stands_for_none = |span: &Span<'_>| {
        let mut counts = span.attributes.iter().filter(|attribute| attribute.key == "sampler.adjusted_count");
        counts.any(|count| count.value == Value::Double(0.0))
    };
    let late = spans.iter().filter(|span| stands_for_none(span));
    let attributes = late.flat_map(|span| &span.attributes);
    attributes.rev().find(|attribute| attribute.key == "sampling.reason")?.value.as_str()
}

fn draw_span(out: &mut String, span: &Span<'_>, row: &Row, time: &Range, paint: Paint) {
    let failed = span.status == Status::Error;
    let name = clip(&span.name, NAME - row.lead.chars().count());
    let gap = " ".repeat(NAME - row.lead.chars().count() - name.chars().count());
    let (mark, name) = if failed { (paint.red("!"), paint.red(&name)) } else { (" ".to_owned(), name) };
    let took = match (span.start, span.end) {
        (Some(start), Some(end)) => duration(end.0.saturating_sub(start.0)),
        _ => "?".to_owned(),
    };
    let bar = paint.cyan(&time.bar(span));
    line(out, &format!("{}{name}{gap} {mark}{took:>DURATION$}  {bar}", paint.dim(&row.lead)));
    if failed && !span.status_message.is_empty() {
        let below = clip(&span.status_message, COLUMNS - row.below.chars().count());
        line(out, &format!("{}{}", paint.dim(&row.below), paint.red(&below)));
    }
}

/// Appends a line without trailing blanks.
fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// The time from the first start to the last end, in nanoseconds.
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The bar of a span: at least one block, so that every span is visible.
    fn bar(&self, span: &Span<'_>) -> String {
        let (Some(start), Some(end)) = (span.start, span.end) else { return String::new() };
        let length = u128::from((self.end - self.start).max(1));
        let column = |nanos: u64| (u128::from(nanos - self.start) * BAR as u128 / length) as usize;
        let from = column(start.0).min(BAR - 1);
        let to = column(end.0.clamp(start.0, self.end)).max(from + 1);
        format!("{}{}", " ".repeat(from), "\u{2588}".repeat(to - from))
    }
}

/// Adds colours, if they are enabled.
#[derive(Clone, Copy, Debug)]
struct Paint {
    colors: bool,
}

impl Paint {
    /// Wraps text in the codes of ECMA-48, "select graphic rendition".
    fn with(self, code: &str, text: &str) -> String {
        if self.colors && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }
}

#[cfg(test)]
mod tests;
