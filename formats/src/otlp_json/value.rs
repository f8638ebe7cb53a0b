//! Reads attributes and their values, resources and scopes.

use std::borrow::Cow;

use crate::json::{Cursor, Fault};
use astracer_model::span::{Resource, Scope};
use astracer_model::value::{Attribute, Value};

/// Reads a list of attributes.
pub(super) fn attributes<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Attribute<'a>>, Fault> {
    let mut attributes = Vec::new();
    cursor.list(|cursor| {
        let mut attribute = Attribute { key: Cow::Borrowed(""), value: Value::Empty };
        cursor.object(|cursor, key| {
            match &*key {
                "key" => attribute.key = cursor.text_or_null()?,
                "value" => attribute.value = any_value(cursor)?,
                _ => drop(cursor.skip()?),
            }
            Ok(())
        })?;
        attributes.push(attribute);
        Ok(())
    })?;
    Ok(attributes)
}

/// Reads a value: an object with one member whose key is the type. An object without members is an
/// empty value.
pub(super) fn any_value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Fault> {
    let mut value = Value::Empty;
    cursor.object(|cursor, key| {
        if cursor.null()? {
            return Ok(());
        }
        match &*key {
            "stringValue" | "string_value" => value = Value::String(cursor.string()?),
            "intValue" | "int_value" => value = cursor.int_value()?,
            "boolValue" | "bool_value" => value = Value::Bool(cursor.bool()?),
            "doubleValue" | "double_value" => value = Value::Double(cursor.f64()?),
            "bytesValue" | "bytes_value" => value = Value::Bytes(Cow::Owned(cursor.bytes()?)),
            "arrayValue" | "array_value" => {
                let mut items = Vec::new();
                values(cursor, |cursor| {
                    cursor.list(|cursor| {
                        items.push(any_value(cursor)?);
                        Ok(())
                    })
                })?;
                value = Value::Array(items);
            }
            "kvlistValue" | "kvlist_value" => {
                let mut items = Vec::new();
                values(cursor, |cursor| {
                    items = attributes(cursor)?;
                    Ok(())
                })?;
                value = Value::Map(items);
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(value)
}

/// Reads the `values` of a list or map.
fn values<'a>(
    cursor: &mut Cursor<'a>,
    mut read: impl FnMut(&mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    cursor.object(|cursor, key| match &*key {
        "values" => read(cursor),
        _ => cursor.skip().map(drop),
    })
}

/// Reads a resource.
pub(super) fn resource(cursor: &mut Cursor<'_>, schema_url: &str) -> Result<Resource, Fault> {
    let mut resource = Resource { schema_url: schema_url.to_owned(), ..Resource::default() };
    cursor.object(|cursor, key| {
        match &*key {
            "attributes" => resource.attributes = owned(attributes(cursor)?),
            "droppedAttributesCount" | "dropped_attributes_count" => {
                resource.dropped_attributes = cursor.count()?
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(resource)
}

/// Reads a scope.
pub(super) fn scope(cursor: &mut Cursor<'_>, schema_url: &str) -> Result<Scope, Fault> {
    let mut scope = Scope { schema_url: schema_url.to_owned(), ..Scope::default() };
    cursor.object(|cursor, key| {
        match &*key {
            "name" => scope.name = cursor.text_or_null()?.into_owned(),
            "version" => scope.version = cursor.text_or_null()?.into_owned(),
            "attributes" => scope.attributes = owned(attributes(cursor)?),
            "droppedAttributesCount" | "dropped_attributes_count" => {
                scope.dropped_attributes = cursor.count()?
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(scope)
}

fn owned(attributes: Vec<Attribute<'_>>) -> Vec<Attribute<'static>> {
    attributes.into_iter().map(Attribute::into_owned).collect()
}
