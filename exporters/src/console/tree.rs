//! The order of spans in a drawing, and the lines that connect them.

use std::collections::HashMap;

use astracer_model::{Span, SpanId};

/// The line of a span.
#[derive(Debug)]
pub(super) struct Row {
    /// The index of the span in the trace.
    pub(super) span: usize,
    /// The text before the span's name.
    pub(super) lead: String,
    /// The text before a line below the span's name.
    pub(super) below: String,
}

/// The maximum indentation; deeper spans are drawn at this depth.
const DEPTH_MAX: usize = 8;

/// Orders spans parent before child, and siblings by start. A span whose parent is missing is a
/// root, and so is the first span of a cycle.
pub(super) fn rows(spans: &[&Span<'_>]) -> Vec<Row> {
    let places: HashMap<SpanId, usize> =
        spans.iter().enumerate().map(|(place, span)| (span.span_id, place)).collect();
    let mut children = vec![Vec::new(); spans.len()];
    let mut roots = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        match span.parents.first().and_then(|parent| places.get(parent)) {
            Some(&parent) if parent != place => children[parent].push(place),
            _ => roots.push(place),
        }
    }
    let by_start = |places: &mut Vec<usize>| places.sort_by_key(|&place| spans[place].start);
    children.iter_mut().for_each(by_start);
    by_start(&mut roots);
    let mut drawn = vec![false; spans.len()];
    let mut rows = Vec::with_capacity(spans.len());
    for root in roots.into_iter().chain(0..spans.len()) {
        walk(root, &children, &mut drawn, &mut rows);
    }
    rows
}

/// Draws everything below a root that is not drawn yet. It does not recurse, because traces may be
/// deep.
fn walk(root: usize, children: &[Vec<usize>], drawn: &mut [bool], rows: &mut Vec<Row>) {
    // Each entry is a span, the vertical lines drawn beside it, its depth, and whether it is its
    // parent's last child.
    let mut open = vec![(root, String::new(), 0, true)];
    while let Some((span, passing, depth, last)) = open.pop() {
        if std::mem::replace(&mut drawn[span], true) {
            continue;
        }
        let (lead, passing) = match depth {
            0 => (String::new(), String::new()),
            1..DEPTH_MAX if last => (format!("{passing}\u{2514}\u{2500} "), format!("{passing}   ")),
            1..DEPTH_MAX => (format!("{passing}\u{251c}\u{2500} "), format!("{passing}\u{2502}  ")),
            _ => (format!("{passing}\u{2026}  "), passing),
        };
        let own = &children[span];
        for (index, &child) in own.iter().enumerate().rev() {
            open.push((child, passing.clone(), depth + 1, index + 1 == own.len()));
        }
        let below = match own.is_empty() {
            true => format!("{passing}   "),
            false => format!("{passing}\u{2502}  "),
        };
        rows.push(Row { span, lead, below });
    }
}
