//! Attributes that a recording has but that a service's policies never see, because the exporter
//! adds them later.

use super::Outcomes;
use crate::known::is_added;

impl Outcomes {
    /// Attributes that policies use, that spans have, and that a service adds only on export. Its
    /// policies see them only if its own code sets them.
    pub fn added(&self) -> Vec<&str> {
        let absent = self.absent();
        let names = self.attributes.iter().map(String::as_str);
        names.filter(|name| is_added(name) && !absent.contains(name)).collect()
    }
}
