//! A profile by call path as folded stacks, the format that flame graph tools read: the names from
//! the root down separated by `;`, a space, and the critical time in nanoseconds.

use std::fmt::Write as _;

use astracer_model::text::escaped;

use crate::profile::Profile;

/// One line for each call path with critical time. A `;` in a name becomes `:`, and unsafe
/// characters become escapes, so that each path is one line.
pub fn folded(by_path: &Profile) -> String {
    let mut text = String::new();
    for row in &by_path.rows {
        let ns = (row.total_ms * 1e6).round();
        if ns < 1.0 {
            continue;
        }
        for (place, name) in row.name.iter().enumerate() {
            if place > 0 {
                text.push(';');
            }
            // Flame graph tools ignore a frame whose name is empty.
            let name = if name.is_empty() { "(unnamed)" } else { name };
            text.push_str(&escaped(name).replace(';', ":"));
        }
        let _ = writeln!(text, " {ns:.0}");
    }
    text
}
