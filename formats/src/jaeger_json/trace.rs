//! Reads one trace: its spans and the processes they refer to, which may follow them.

use super::super::json::{Cursor, Fault, Out};
use super::process::{Context, Shared, process};
use super::{id, span};

/// Reads the trace at the cursor. Spans are read last, when the processes are known.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, out: &mut Out<'_>, shared: &mut Shared) -> Result<(), Fault> {
    let mut context = Context::default();
    let mut spans = None;
    let outline = cursor.object(|cursor, key| {
        match &*key {
            "traceID" => context.trace_id = id::trace_id(cursor)?,
            "spans" => {
                spans = Some(cursor.clone());
                cursor.skip()?;
            }
            "processes" => processes(cursor, out, shared, &mut context)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    });
    context.whole = outline.is_ok();
    out.notes(cursor, "a process");
    if let Some(mut spans) = spans {
        out.records(&mut spans, |cursor, out| span::read(cursor, out, &context, shared))?;
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
