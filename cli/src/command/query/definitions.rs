//! Definitions files: people's own names for tracepoints.

use std::path::Path;

use astracer_queries::Definitions;
use toml::{Table, Value};

use super::read_text;
use crate::failure::Failure;
use crate::output;

/// Reads a definitions file; none is an empty one.
pub(super) fn read(path: Option<&Path>) -> Result<Definitions, Failure> {
    let mut definitions = Definitions::default();
    let Some(path) = path else { return Ok(definitions) };
    let shown = output::shown(path);
    let text = read_text(path)?;
    let table: Table =
        toml::from_str(&text).map_err(|error| Failure::Job(format!("{shown} is not valid: {error}")))?;
    define(&table, "", &mut definitions).map_err(|error| Failure::Job(format!("{shown}: {error}")))?;
    Ok(definitions)
}

/// Defines the names of a table. A name with dots may be written without quotes, which TOML reads
/// as a table in a table.
fn define(table: &Table, prefix: &str, definitions: &mut Definitions) -> Result<(), String> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let wrong = || format!("'{name}' needs a pattern or a list of patterns, such as [\"disk.*@end\"]");
        match value {
            Value::Table(table) => define(table, &name, definitions)?,
            Value::String(pattern) => definitions.define(&name, [&**pattern])?,
            Value::Array(patterns) => {
                let patterns: Option<Vec<&str>> = patterns.iter().map(Value::as_str).collect();
                definitions.define(&name, patterns.ok_or_else(wrong)?)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(())
}
