//! Attributes that a recording has but that a service's policies never see, because the exporter
//! adds them later.

use super::Outcomes;

/// Attributes about a span's source code and thread, its busy and idle time, and how its trace was
/// kept.
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

/// Whether a service adds this attribute only on export, so that its keys and policies do not have
/// it unless its own code sets it.
pub fn is_added(name: &str) -> bool {
    ADDED.contains(&name)
}

impl Outcomes {
    /// Attributes that policies use, that spans have, and that a service adds only on export. Its
    /// policies see them only if its own code sets them.
    pub fn added(&self) -> Vec<&str> {
        let absent = self.absent();
        let names = self.attributes.iter().map(String::as_str);
        names.filter(|name| is_added(name) && !absent.contains(name)).collect()
    }
}
