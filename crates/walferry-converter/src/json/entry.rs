//! What is worked out of a schema once.

use walferry_record::SchemaRef;

use super::plan::Plan;
use super::{Style, schema};
use crate::error::LocatedProblem;

/// A schema, made ready, and what stands before its values.
#[derive(Debug)]
pub(crate) struct PreparedSchema {
    pub(crate) plan: Plan,
    opening: Result<Box<[u8]>, Box<LocatedProblem>>,
}

impl PreparedSchema {
    pub(crate) fn new(schema: &SchemaRef, style: Style, with_schema: bool) -> Self {
        let plan = Plan::new(schema, style);
        let mut opening = Vec::new();
        let written = match with_schema {
            true => write_opening(&plan, &mut opening),
            false => Ok(()),
        };
        Self {
            opening: written.map(|()| opening.into()),
            plan,
        }
    }

    /// What stands before the payload: `{"schema":…,"payload":`.
    pub(crate) fn opening(&self) -> Result<&[u8], Box<LocatedProblem>> {
        self.opening.as_deref().map_err(Clone::clone)
    }
}

fn write_opening(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
    out.extend_from_slice(b"{\"schema\":");
    schema::write(plan, out)?;
    out.extend_from_slice(b",\"payload\":");
    Ok(())
}

#[cfg(test)]
mod tests {
    use walferry_record::{Schema, Value};

    use super::*;
    use crate::DecimalFormat;

    #[test]
    fn a_bad_default_fails_only_where_the_schema_or_the_default_is_written() {
        let decimal = Schema::bytes()
            .named("org.apache.kafka.connect.data.Decimal")
            .parameter("scale", "3");
        let schema = decimal
            .default_value(Value::Decimal(walferry_record::Decimal::small(1, 2)))
            .build();
        let style = Style {
            decimals: DecimalFormat::Base64,
            replace_null_with_default: true,
            dialect: crate::json::Dialect::Connect,
        };
        let entry = PreparedSchema::new(&schema, style, true);
        assert!(entry.opening().is_err());
        assert!(entry.plan.write(&Value::Null, &mut Vec::new()).is_err());
        let fits = Value::Decimal(walferry_record::Decimal::small(1, 3));
        assert!(entry.plan.write(&fits, &mut Vec::new()).is_ok());
    }
}
