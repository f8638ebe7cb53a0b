//! Reads one trace: its spans and the processes they refer to, which may follow them. A span that
//! stands where a trace could is read too.

use super::super::json::{Cursor, Fault, Out};
use super::process::{Context, Shared, process};
use super::{id, span};

/// Reads the trace at the cursor. Spans are read last, when the processes are known.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    let mut context = Context::default();
    let (start, mut spans, mut is_span) = (cursor.clone(), None, false);
    let outline = cursor.object(|cursor, key| {
        match &*key {
            "traceID" | "traceId" => context.trace_id = id::trace_id(cursor)?,
            "spans" => {
                spans = Some(cursor.clone());
                cursor.skip()?;
            }
            "spanID" | "spanId" => {
                is_span = true;
                cursor.skip()?;
            }
            "processes" => processes(cursor, out, shared, &mut context)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    });
    context.whole = outline.is_ok();
    out.notes(cursor, "a process");
    match spans {
        Some(mut spans) => {
            out.records(&mut spans, |cursor, out| span::read(cursor, out, &context, shared))?
        }
        None if is_span => {
            // A span by itself has its process inside.
            *cursor = start;
            return span::read(cursor, out, &Context::default(), shared);
        }
        None => {}
    }
    outline
}

fn processes<'a>(
    cursor: &mut Cursor<'a>,
    out: &mut Out<'_>,
    shared: &mut Shared,
    context: &mut Context<'a>,
) -> Result<(), Fault> {
    cursor.object(|cursor, name| {
        let start = cursor.clone();
        match process(cursor, &mut shared.resources) {
            Ok(resource) => drop(context.processes.insert(name, resource)),
            Err(fault) => {
                *cursor = start;
                cursor.skip()?;
                out.fault(cursor, fault);
            }
        }
        Ok(())
    })
}
