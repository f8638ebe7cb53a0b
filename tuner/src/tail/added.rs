//! Attributes that a recording has and a service's policies never see: its exporter adds them to
//! what was recorded.

use super::Outcomes;

/// Where a span comes from, where it ran and for how long, and how its trace was kept.
const ADDED: [&str; 15] = [
    "busy_ns",
    "code.file.path",
    "code.line.number",
    "code.module.name",
    "idle_ns",
    "level",
    "sampler.adjusted_count",
    "sampler.key",
    "sampler.param",
    "sampler.type",
    "sampling.reason",
    "sampling.spans_cut",
    "target",
    "thread.id",
    "thread.name",
];

impl Outcomes {
    /// The attributes that policies ask for, that spans have, and that a service adds at the
    /// export: its policies see them only where its own code gave them.
    pub fn added(&self) -> Vec<&str> {
        let absent = self.absent();
        let names = self.attributes.iter().map(String::as_str);
        names.filter(|name| ADDED.contains(name) && !absent.contains(name)).collect()
    }
}
