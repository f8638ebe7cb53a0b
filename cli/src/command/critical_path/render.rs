//! The text output of `astracer critical-path`.

use astracer_report::numbers::{percent, signed};

use super::*;

/// Columns for names in a drawing.
const NAME: usize = 30;
/// Columns for numbers in a drawing, including blanks.
const NUMBERS: usize = 22;
/// The least and the greatest number of columns for bars in a drawing.
const BAR: (usize, usize) = (20, 100);
/// System calls that are shown.
const WAITS_SHOWN: usize = 10;

/// The lines above the tables.
pub(super) fn head(args: &CriticalPath, profile: &Profile, path_kinds: usize) -> String {
    let mut text = output::plural(profile.traces, "trace");
    if args.weights && profile.unweighted < profile.traces {
        let _ = write!(text, ", which represent {}", output::whole(profile.weight));
    }
    if let Some(root) = &args.root {
        let _ = write!(text, " of {}", output::brief(named(root)));
    }
    let _ = write!(text, ", {}", output::plural(path_kinds as u64, "path kind"));
    let _ = writeln!(text, ", critical time {}", output::span(profile.total_ms / 1e3));
    let _ = write!(text, "a trace takes {} ms on average", measure(profile.length.mean_ms));
    for (percent, ms) in args.percentiles.iter().zip(&profile.length.percentiles_ms) {
        let _ = write!(text, ", p{percent} {}", measure(*ms));
    }
    text + "\n\n"
}

/// The table of functions, services or paths by critical time.
pub(super) fn table(args: &CriticalPath, profile: &Profile) -> String {
    let shown = args.rows(profile.rows.len());
    let percentiles: Vec<String> = args.percentiles.iter().map(|percent| format!("p{percent}")).collect();
    let first = format!("{}, times in ms", args.by().noun());
    let mut header = vec![&*first, "share", "traces", "mean"];
    header.extend(percentiles.iter().map(String::as_str));
    header.extend(["drag", "slack"]);
    let optional = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), measure);
    let rows = profile.rows[..shown].iter().map(|row| {
        let mut cells = vec![
            joined(&row.name),
            output::percent(row.share),
            if args.weights { measure(row.traces) } else { count(row.traces.round() as u64) },
            measure(row.time.mean_ms),
        ];
        cells.extend(row.time.percentiles_ms.iter().copied().map(measure));
        cells.extend([optional(row.drag_ms), optional(row.slack_ms)]);
        cells
    });
    let mut text = output::table(&header, rows);
    let rest = &profile.rows[shown..];
    if !rest.is_empty() {
        let share: f64 = rest.iter().map(|row| row.share).sum();
        let more = output::plural(rest.len() as u64, &format!("more {}", args.by().noun()));
        // Directly below the table, instead of its empty line.
        text.pop();
        let share = output::percent(share);
        let _ = writeln!(text, "... {more} with {share} of the critical time: --top 0 shows all\n");
    }
    text
}

/// The latency with the factors of `--speedup`.
pub(super) fn speedup(args: &CriticalPath, speedup: &Speedup) -> String {
    let names: Vec<_> = args
        .speedup
        .iter()
        .map(|(name, factor)| format!("{} x {factor}", output::brief(named(name))))
        .collect();
    let mut text = format!("latency if the time changes: {}\n", names.join(", "));
    let change = |before: f64, after: f64| match before {
        0.0 => "-".to_owned(),
        _ => format!("{:+.1}%", (after / before - 1.0) * 100.0),
    };
    let mut rows = vec![("mean".to_owned(), speedup.before.mean_ms, speedup.after.mean_ms)];
    let percentiles = speedup.before.percentiles_ms.iter().zip(&speedup.after.percentiles_ms);
    for (percent, (before, after)) in args.percentiles.iter().zip(percentiles) {
        rows.push((format!("p{percent}"), *before, *after));
    }
    let rows = rows
        .into_iter()
        .map(|(name, before, after)| vec![name, measure(before), measure(after), change(before, after)]);
    text.push_str(&output::table(&["latency of traces", "now ms", "then ms", "change"], rows));
    text
}

/// The comparison with another recording.
pub(super) fn comparison(args: &CriticalPath, other: &Input, comparison: &Comparison) -> String {
    let rows = &comparison.differences;
    let shown = args.rows(rows.len());
    let mut text = format!("compared with {}:\n", escaped(&other.paths().join(", ")));
    let _ = writeln!(
        text,
        "a trace takes {} ms there and {} ms here: {} ms in traces of the same roots, {} ms because the mix of roots differs",
        measure(comparison.before_ms),
        measure(comparison.after_ms),
        signed(comparison.same_roots_ms),
        signed(comparison.mix_ms),
    );
    if comparison.new_roots > 0.0 {
        let new = percent(comparison.new_roots);
        let _ =
            writeln!(text, "{new} of the traces here have roots that do not occur there; they count as mix");
    }
    text.push('\n');
    let cells = rows[..shown].iter().map(|row| {
        vec![
            joined(&row.name),
            measure(row.before_ms),
            measure(row.after_ms),
            signed(row.same_roots_ms),
            format!("±{}", measure(1.96 * row.error_ms)),
            signed(row.mix_ms),
        ]
    });
    let first = format!("{}, times in ms", args.by().noun());
    let header = [&first, "there", "here", "same\nroots", "95%\ninterval", "by\nmix"];
    text.push_str(&output::table(&header, cells));
    text
}

/// Draws one trace with a line per span: `=` is its time, `#` its time on the path.
pub(super) fn lanes(lanes: &Lanes) -> String {
    let length = (lanes.end_ns - lanes.start_ns).max(1);
    let columns = output::width().saturating_sub(NAME + NUMBERS).clamp(BAR.0, BAR.1);
    let column = |ns: u64| {
        let offset = u128::from(ns.clamp(lanes.start_ns, lanes.end_ns) - lanes.start_ns);
        ((offset * columns as u128) / u128::from(length)) as usize
    };
    let mut text = format!(
        "{:NAME$} {:>9} {:>9}  one column is {} ms\n",
        "span",
        "ms",
        "on path",
        measure(length as f64 / columns as f64 / 1e6)
    );
    for lane in &lanes.lanes {
        let mut bar = vec![b' '; columns];
        let mut fill = |from: u64, to: u64, mark: u8| {
            let from = column(from).min(columns - 1);
            bar[from..column(to).max(from + 1)].fill(mark);
        };
        fill(lane.start_ns, lane.end_ns, b'=');
        lane.critical.iter().for_each(|&(from, to)| fill(from, to, b'#'));
        // Limit the indentation, so that deep spans have columns left for their names.
        let indent = (lane.depth as usize).min(NAME / 2);
        let name = escaped(named(&lane.name));
        let name = output::shortened(&name, NAME - indent);
        let name = format!("{:indent$}{name}", "");
        let blanks = " ".repeat(NAME.saturating_sub(console::measure_text_width(&name)));
        let _ = writeln!(
            text,
            "{name}{blanks} {:>9} {:>9}  {}",
            measure((lane.end_ns - lane.start_ns) as f64 / 1e6),
            if lane.critical.is_empty() { "-".to_owned() } else { measure(lane.critical_ns as f64 / 1e6) },
            String::from_utf8_lossy(&bar).trim_end(),
        );
    }
    if lanes.left_out > 0 {
        let _ = writeln!(
            text,
            "... {}, shorter and not on the path; --json has more",
            output::plural(lanes.left_out, "more span")
        );
    }
    text + "\n"
}

/// Notes below the tables: corrected clocks and oddities of the recording.
pub(super) fn notes(profile: &Profile) -> String {
    let fitting = &profile.fitting;
    let mut text = String::new();
    let part = |ms: f64| if profile.total_ms > 0.0 { ms / profile.total_ms * 100.0 } else { 0.0 };
    if fitting.traces > 0 {
        let _ = writeln!(
            text,
            "in {} of {} traces a span lies outside its parent:",
            count(fitting.traces),
            count(profile.traces)
        );
    }
    if fitting.shifted_spans > 0 {
        let _ = writeln!(
            text,
            "  {} of other services shifted into their parents; their subtrees hold {:.2}% of the critical time",
            output::plural(fitting.shifted_spans, "span"),
            part(fitting.shifted_ms)
        );
    }
    if fitting.clipped_spans > 0 {
        let clipped = output::plural(fitting.clipped_spans, "span");
        let _ = writeln!(text, "  {clipped} clipped, by {} in all", output::span(fitting.clipped_ms / 1e3));
    }
    if fitting.dropped_spans > 0 {
        let dropped = output::plural(fitting.dropped_spans, "span");
        let _ = writeln!(text, "  {dropped} left out, {} in all", output::span(fitting.dropped_ms / 1e3));
    }
    if fitting.unreached_spans > 0 {
        let unreached = output::plural(fitting.unreached_spans, "span");
        let _ = writeln!(text, "ignored: {unreached} that are not below their trace's root");
    }
    if fitting.missing_edges > 0 {
        let missing = output::plural(fitting.missing_edges, "edge");
        let _ = writeln!(
            text,
            "ignored: {missing} that close a cycle or start at an event that was not recorded"
        );
    }
    text
}

/// A warning about traces without a weight, which `--weights` counts once. `of` names their
/// recording, if it is not the first.
pub(super) fn unweighted(args: &CriticalPath, profile: &Profile, of: &str) -> String {
    let Profile { traces, unweighted, .. } = *profile;
    let all = output::plural(traces, "trace");
    match unweighted {
        0 => String::new(),
        _ if !args.weights => String::new(),
        _ if unweighted == traces => format!(
            "warning: {all}{of} without a weight (ot=th): each counts once, so the figures are of the traces kept, not of \
             all\n"
        ),
        _ => format!(
            "warning: {} of {all}{of} without a weight (ot=th): each counts once, so others like them may be missing\n",
            count(unweighted)
        ),
    }
}

/// The name of a row; the names of a path are joined by `>`.
fn joined(name: &[String]) -> String {
    name.iter().map(|name| named(name)).collect::<Vec<_>>().join(" > ")
}

/// The system calls that a path waited in, longest first.
pub(super) fn waits(waits: &[Wait]) -> String {
    if waits.is_empty() {
        return String::new();
    }
    let rows = waits.iter().take(WAITS_SHOWN).map(|wait| {
        let bytes = if wait.bytes > 0 { format!("{} B ", count(wait.bytes)) } else { String::new() };
        vec![
            named(&wait.span).to_string(),
            measure(wait.ns as f64 / 1e6),
            escaped(&wait.call).into_owned(),
            format!("{bytes}{}", escaped(&wait.channel)),
            escaped(&wait.place).into_owned(),
        ]
    });
    let header = ["waited in a call", "ms", "call", "for", "line"];
    let mut text = format!("\n{}", output::table(&header, rows));
    if let Some(more) = waits.len().checked_sub(WAITS_SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "... and {more} more: --json lists all");
    }
    text
}
