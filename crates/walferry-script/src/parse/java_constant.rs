//! Constants of Java's classes.

use walferry_record::Decimal;

use super::{Language, NodeKind};
use crate::number::Number;

/// Constants of Java's classes.
pub(super) fn constant(name: &str, language: Language) -> Option<NodeKind> {
    let decimal = |number| NodeKind::Number(Number::Decimal(Decimal::small(number, 0)));
    Some(match (name, language) {
        ("Boolean.TRUE", Language::Groovy) => NodeKind::Boolean(true),
        ("Boolean.FALSE", Language::Groovy) => NodeKind::Boolean(false),
        ("Integer.MAX_VALUE", Language::Groovy) => NodeKind::Number(Number::Int(i32::MAX)),
        ("Integer.MIN_VALUE", Language::Groovy) => NodeKind::Number(Number::Int(i32::MIN)),
        ("Long.MAX_VALUE", Language::Groovy) => NodeKind::Number(Number::Long(i64::MAX)),
        ("Long.MIN_VALUE", Language::Groovy) => NodeKind::Number(Number::Long(i64::MIN)),
        ("Double.NaN", Language::Groovy) => NodeKind::Number(Number::Double(f64::NAN)),
        ("BigDecimal.ZERO", Language::Groovy) => decimal(0),
        ("BigDecimal.ONE", Language::Groovy) => decimal(1),
        ("BigDecimal.TEN", Language::Groovy) => decimal(10),
        _ => return None,
    })
}
