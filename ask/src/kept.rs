//! The parts of a recording that a query needs.

use std::sync::Arc;

use astracer_queries::{Builtin, Plan};
use astracer_recording::recording::{CLASS, KeepPoints, SCOPE};

/// The attributes with a line of source code, by OpenTelemetry's names of any version: the file,
/// then the number.
pub(super) const LINE: [&str; 4] = ["code.file.path", "code.filepath", "code.line.number", "code.lineno"];

/// The attributes that a built-in variable is read from, best one first.
pub(super) fn sources(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::ProcId => &["xtrace.process", "process.pid", "service.instance.id"],
        Builtin::ThreadId => &["thread.id"],
        Builtin::Busy => &["busy_ns"],
        Builtin::Target => &["target", "code.namespace", SCOPE],
        _ => &[],
    }
}

/// The points and fields that a query asks about.
pub fn keep(plan: &Arc<Plan>) -> KeepPoints {
    let (mut fields, mut own_fields) = (vec![CLASS.to_owned()], Vec::new());
    for variable in plan.variables() {
        match variable.builtin() {
            Some(builtin) => {
                own_fields.push(variable.name().to_owned());
                fields.extend(sources(builtin).iter().map(|&key| key.to_owned()));
            }
            None => fields.push(variable.name().to_owned()),
        }
    }
    let lines = plan.names_lines();
    if lines {
        fields.extend(LINE.map(str::to_owned));
    }
    fields.sort_unstable();
    fields.dedup();
    let plan = Arc::clone(plan);
    let wants = move |name: &str, line: Option<(&str, u32)>| !plan.select(name, line).is_empty();
    KeepPoints { fields, own_fields, wants: Arc::new(wants), lines }
}
