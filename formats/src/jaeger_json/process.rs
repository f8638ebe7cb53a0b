//! Processes that spans refer to, and the other context that a span needs from its trace and file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use super::super::json::{Cursor, Fault};
use super::super::reuse::Reuse;
use super::id::Id;
use super::{NO_SERVICE_NAME, tag};
use astracer_model::ids::TraceId;
use astracer_model::span::{Resource, Scope};
use astracer_model::value::{Attribute, Value};

/// State shared by the traces of a file.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) resources: Reuse<Resource>,
    pub(super) scopes: Reuse<Scope>,
    /// The resource of a span until its own is known.
    pub(super) no_resource: Arc<Resource>,
    pub(super) no_scope: Arc<Scope>,
}

/// The parts of a trace that its spans depend on.
#[derive(Debug, Default)]
pub(super) struct Context<'a> {
    pub(super) trace_id: Option<Id<TraceId>>,
    pub(super) processes: HashMap<Cow<'a, str>, Arc<Resource>, RandomState>,
    /// False if the trace is truncated. A missing process was then probably cut off.
    pub(super) whole: bool,
}

/// Reads a process: a service name and tags. Equal text yields the same resource.
pub(super) fn process(
    cursor: &mut Cursor<'_>,
    resources: &mut Reuse<Resource>,
) -> Result<Arc<Resource>, Fault> {
    let mut start = cursor.clone();
    let text = cursor.skip()?;
    let made = resources.try_get_or_make(&[text], || {
        let mut name = Cow::Borrowed("");
        let mut attributes = Vec::new();
        start.object(|cursor, key| match &*key {
            "serviceName" => {
                name = cursor.text_or_null()?;
                Ok(())
            }
            "tags" => tag::tags(cursor, &mut attributes),
            _ => cursor.skip().map(drop),
        })?;
        if !name.is_empty() && name != NO_SERVICE_NAME {
            attributes.insert(0, Attribute { key: "service.name".into(), value: Value::String(name) });
        }
        let attributes = attributes.into_iter().map(Attribute::into_owned).collect();
        Ok(Resource { attributes, ..Resource::default() })
    });
    cursor.note(start.take_notes());
    made
}
