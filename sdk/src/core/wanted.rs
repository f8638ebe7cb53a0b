//! A visitor that passes on only some fields, so that others are not formatted.

use tracing_core::field::{Field, Visit};

/// The field that renames a span.
pub(super) const NAME: &str = "otel.name";

/// Passes a field on to `visitor` if `wants` returns true. `wants` gets whether the value is an
/// error.
pub(super) struct Wanted<F, V> {
    pub(super) wants: F,
    pub(super) visitor: V,
}

macro_rules! pass_on {
    ($($record:ident: $value:ty, $is_error:literal),* $(,)?) => {
        $(fn $record(&mut self, field: &Field, value: $value) {
            if (self.wants)(field, $is_error) {
                self.visitor.$record(field, value);
            }
        })*
    };
}

impl<F: Fn(&Field, bool) -> bool, V: Visit> Visit for Wanted<F, V> {
    pass_on! {
        record_bool: bool, false,
        record_f64: f64, false,
        record_i64: i64, false,
        record_u64: u64, false,
        record_i128: i128, false,
        record_u128: u128, false,
        record_str: &str, false,
        record_bytes: &[u8], false,
        record_debug: &dyn std::fmt::Debug, false,
        record_error: &(dyn std::error::Error + 'static), true,
    }
}
