//! Default values of columns in schemas.
//!
//! Debezium does not evaluate expressions. A literal becomes the schema's default. A function call (`now()`,
//! `nextval(…)`) becomes a placeholder such as zero. With any other expression, the schema has no default.

use std::borrow::Cow;

use walferry_record::{Decimal, Value};

use crate::types::{ColumnType, Decoder, Mapping, RootKind, infinite_default, oid, plain_default};

/// The default of a column, from the text of `pg_get_expr`. `None` if the schema gets no default.
pub(crate) fn default_value(expression: &str, column: &ColumnType, mapping: &Mapping) -> Option<Value<'static>> {
    // For a column of a domain, the driver reports the domain's name as the type, and Debezium cannot read defaults of
    // that type.
    if column.name != column.root_name {
        return None;
    }
    if let RootKind::Enum(_) = column.kind {
        return enum_default(expression, &column.name).map(Value::string);
    }
    let text = match column.root {
        oid::BIT => extract(expression, "00"),
        oid::VARBIT | oid::INT2 | oid::INT4 | oid::INT8 => extract(expression, "0"),
        oid::BOOL => extract(expression, "false"),
        oid::BPCHAR | oid::VARCHAR | oid::TEXT | oid::XML => extract(expression, ""),
        oid::NUMERIC | oid::FLOAT4 | oid::FLOAT8 => extract(expression, "0.0"),
        oid::JSON | oid::JSONB => extract(expression, "{}"),
        oid::UUID => extract(expression, "00000000-0000-0000-0000-000000000000"),
        oid::DATE => extract(expression, "1970-01-01"),
        oid::TIME => extract(expression, "00:00:00"),
        oid::TIMESTAMP => extract(expression, "1970-01-01 00:00:00"),
        oid::TIMESTAMPTZ => extract(expression, "1970-01-01 00:00:00+00"),
        oid::INTERVAL => extract(expression, "00:00:00"),
        _ => None,
    }?;
    convert(&text, column, mapping)
}

fn convert(text: &str, column: &ColumnType, mapping: &Mapping) -> Option<Value<'static>> {
    match (column.root, &mapping.decoder) {
        (oid::BOOL, _) => Some(Value::Boolean(text.eq_ignore_ascii_case("true"))),
        (oid::UUID, _) => Some(Value::string(text.to_ascii_lowercase())),
        // Connect cannot have structs as defaults (KAFKA-12694).
        (_, Decoder::VariableDecimal) => None,
        (oid::NUMERIC, Decoder::DecimalText { .. }) => Some(Value::string(
            of_scale(Decimal::parse(text)?, column)?.to_plain_string(),
        )),
        (oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ, decoder) if text.ends_with("infinity") => {
            infinite_default(decoder, text == "infinity")
        }
        (oid::DATE, decoder) => plain_default(decoder, &coerced(text, column)),
        (oid::TIME, decoder) => plain_default(decoder, text),
        (oid::TIMESTAMP | oid::TIMESTAMPTZ, _) => decoded(&coerced(text, column), mapping),
        (oid::NUMERIC, Decoder::DecimalFloat) => {
            let number = of_scale(Decimal::parse(text)?, column)?;
            number.to_plain_string().parse().ok().map(Value::Float64)
        }
        (oid::BIT | oid::VARBIT, Decoder::Bit) if text.contains(|c| !matches!(c, '0' | '1')) => None,
        (oid::BIT | oid::VARBIT, Decoder::Bits) => decoded(&ones(text), mapping),
        (_, _) => decoded(text, mapping),
    }
}

fn decoded(text: &str, mapping: &Mapping) -> Option<Value<'static>> {
    let schema = mapping.schema.clone().build();
    let value = mapping.decoder.decode(text.as_bytes(), &schema).ok()?.into_owned();
    (!value.is_null()).then_some(value)
}

/// Converts the literal of a date or a timestamp to the column's type. Postgres keeps the type of the literal, so a
/// `date` can have the default `'2020-01-01 00:00:00'::timestamp without time zone`.
fn coerced(text: &str, column: &ColumnType) -> String {
    let (text, era) = match text.strip_suffix(" BC") {
        Some(text) => (text, " BC"),
        None => (text, ""),
    };
    let (date, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let time = time.strip_suffix("+00").unwrap_or(time);
    match column.root {
        oid::DATE => format!("{date}{era}"),
        oid::TIMESTAMP => format!("{date} {time}{era}"),
        _ => format!("{date} {time}+00{era}"),
    }
}

/// The bits of a text: `1` for each `1`, `0` for every other character. Debezium does the same even with an expression
/// such as `(5)::bit(5)`.
fn ones(text: &str) -> String {
    text.chars().map(|c| if c == '1' { '1' } else { '0' }).collect()
}

/// The number with the scale of its column. `None` if digits would be lost.
fn of_scale(number: Decimal, column: &ColumnType) -> Option<Decimal> {
    if column.is_variable_numeric() {
        Some(number)
    } else {
        number.rescale(column.digits())
    }
}

/// The literal of an expression, or the placeholder if the expression calls a function.
fn extract<'e>(expression: &'e str, placeholder: &'static str) -> Option<Cow<'e, str>> {
    const CURRENT: [&str; 5] = [
        "current_timestamp",
        "current_time",
        "current_date",
        "localtime",
        "localtimestamp",
    ];
    if calls_function(expression) || CURRENT.iter().any(|word| expression.eq_ignore_ascii_case(word)) {
        return Some(placeholder.into());
    }
    match expression.split_once('\'') {
        None if expression.starts_with("NULL::") => None,
        None => Some(expression.into()),
        Some((_, quoted)) => literal(quoted).map(Cow::Owned),
    }
}

/// Whether the expression starts with a name and parentheses.
fn calls_function(expression: &str) -> bool {
    let expression = expression.strip_prefix('(').unwrap_or(expression);
    let name = expression
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
        .unwrap_or(expression.len());
    let arguments = &expression[name..];
    name > 0 && arguments.starts_with('(') && arguments.lines().next().is_some_and(|line| line.contains(')'))
}

/// The text before the closing quote, with doubled quotes as single ones.
fn literal(quoted: &str) -> Option<String> {
    let mut out = String::new();
    let mut tail = quoted;
    loop {
        let (part, behind) = tail.split_once('\'')?;
        out.push_str(part);
        match behind.strip_prefix('\'') {
            Some(behind) => {
                out.push('\'');
                tail = behind;
            }
            None => return Some(out),
        }
    }
}

/// The label of `'label'::type`, if the type is the column's.
fn enum_default(expression: &str, type_name: &str) -> Option<String> {
    let (value, cast) = expression.rsplit_once("::")?;
    let cast = cast.rsplit('.').next()?.trim_matches('"');
    if cast != type_name {
        return None;
    }
    let label = value.strip_prefix('\'')?.strip_suffix('\'')?;
    Some(label.to_owned())
}
