//! The JSON of a schema.

use walferry_record::Shape;

use super::plan::Plan;
use super::text::{push_bool, push_integer, push_string};
use crate::error::Failure;

/// Appends the JSON of a plan's schema. The order of the members is part of the bytes; what is absent is left out.
///
/// # Errors
/// When a default does not fit its schema.
pub(super) fn write(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<Failure>> {
    write_members(plan, out)?;
    out.push(b'}');
    Ok(())
}

fn write_members(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<Failure>> {
    let schema = &*plan.schema;
    out.extend_from_slice(b"{\"type\":");
    push_string(out, schema.type_name());
    if let Some(items) = plan.items() {
        out.extend_from_slice(b",\"items\":");
        write(items, out).map_err(Failure::in_element)?;
    }
    if let Some((keys, values)) = plan.pairs() {
        out.extend_from_slice(b",\"keys\":");
        write(keys, out).map_err(Failure::in_element)?;
        out.extend_from_slice(b",\"values\":");
        write(values, out).map_err(Failure::in_element)?;
    }
    if let Shape::Struct(_) = schema.shape {
        write_fields(plan, out)?;
    }
    out.extend_from_slice(b",\"optional\":");
    push_bool(out, schema.optional);
    if let Some(name) = &schema.name {
        out.extend_from_slice(b",\"name\":");
        push_string(out, name);
    }
    if let Some(version) = schema.version {
        out.extend_from_slice(b",\"version\":");
        push_integer(out, version);
    }
    if let Some(doc) = &schema.doc {
        out.extend_from_slice(b",\"doc\":");
        push_string(out, doc);
    }
    if !schema.parameters.is_empty() {
        out.extend_from_slice(b",\"parameters\":");
        for (index, (name, value)) in schema.parameters.iter().enumerate() {
            out.push(if index == 0 { b'{' } else { b',' });
            push_string(out, name);
            out.push(b':');
            push_string(out, value);
        }
        out.push(b'}');
    }
    if let Some(default) = &schema.default {
        out.extend_from_slice(b",\"default\":");
        plan.write(default, out)?;
    }
    Ok(())
}

/// Each field is the JSON of its schema with the name as one more member at the end.
fn write_fields(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<Failure>> {
    out.extend_from_slice(b",\"fields\":[");
    for (index, (field, part)) in plan.schema.fields().iter().zip(plan.fields()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_members(part, out).map_err(|failure| failure.in_field(&field.name))?;
        out.extend_from_slice(b",\"field\":");
        push_string(out, &field.name);
        out.push(b'}');
    }
    out.push(b']');
    Ok(())
}
