//! The callsite of the spans that unit tests and loom models make.

use tracing_core::callsite::DefaultCallsite;
use tracing_core::metadata::Kind;
use tracing_core::{Level, Metadata};

pub(crate) static METADATA: Metadata<'static> = tracing_core::metadata! {
    name: "test",
    target: module_path!(),
    level: Level::INFO,
    fields: &[],
    callsite: &CALLSITE,
    kind: Kind::SPAN
};

static CALLSITE: DefaultCallsite = DefaultCallsite::new(&METADATA);

/// The callsite of a span that makes the converter panic.
#[cfg(not(loom))]
pub(crate) static BAD: Metadata<'static> = tracing_core::metadata! {
    name: "the converter panics",
    target: module_path!(),
    level: Level::INFO,
    fields: &[],
    callsite: &CALLSITE,
    kind: Kind::SPAN
};
