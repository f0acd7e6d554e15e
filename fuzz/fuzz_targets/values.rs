//! Any text as the value of a column, its default or its type modifier: the first bytes choose type and settings.
#![no_main]

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use libfuzzer_sys::fuzz_target;
use walferry_event::{EventSettings, TablePlan, catalog::TypeKind, relation_bytes};
use walferry_pgoutput::{Change, Column, Oid, Operation, TupleBuf};

#[allow(dead_code)]
#[path = "../../crates/walferry-event/tests/support/mod.rs"]
mod support;

use support::{col, context, table};

/// Types of Postgres, and from 16,400 on those that the table below has besides.
const TYPES: &[u32] = &[
    16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 142, 600, 650, 700, 701, 774, 790, 829, 869, 1042, 1043, 1082, 1083, 1114,
    1184, 1186, 1266, 1560, 1562, 1700, 2950, 3614, 3802, 3904, 3906, 3908, 3910, 3912, 3926, 22, 30, 1000, 1001, 1005,
    1007, 1009, 1016, 1021, 1022, 1115, 1182, 1183, 1185, 1187, 1231, 1270, 1561, 1563, 2951, 3807, 143, 199, 791,
    1015, 1014, 16_400, 16_401, 16_402, 16_403, 16_404, 16_405, 16_406, 16_407, 16_408, 16_409, 16_410, 16_411, 16_412,
];

const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[
        ("time.precision.mode", "connect"),
        ("decimal.handling.mode", "string"),
        ("binary.handling.mode", "base64"),
        ("interval.handling.mode", "string"),
        ("hstore.handling.mode", "map"),
        ("include.unknown.datatypes", "true"),
    ],
    &[
        ("time.precision.mode", "isostring"),
        ("decimal.handling.mode", "double"),
        ("binary.handling.mode", "hex"),
        ("include.unknown.datatypes", "true"),
    ],
    &[("time.precision.mode", "nanoseconds"), ("money.fraction.digits", "4")],
];

static ALL: LazyLock<[Arc<EventSettings>; 4]> = LazyLock::new(|| SETTINGS.map(support::settings));

thread_local! {
    /// By type, settings and modifier.
    static PLANS: RefCell<HashMap<(u32, usize, i32), Option<TablePlan>>> = RefCell::default();
}

fn make(type_oid: u32, settings: usize, modifier: i32, default: Option<&str>) -> Option<TablePlan> {
    let mut column = col("v", type_oid).modifier(modifier);
    if let Some(default) = default {
        column = column.default(default).not_null();
    }
    let named = [
        (16_400, "hstore"),
        (16_401, "geometry"),
        (16_402, "geography"),
        (16_403, "vector"),
        (16_404, "halfvec"),
        (16_405, "sparsevec"),
        (16_406, "ltree"),
        (16_407, "citext"),
        (16_408, "isbn"),
    ];
    let mut table = table(&[col("id", 23), column], &["id"]);
    for (oid, name) in named {
        table = table.with_type(oid, name, TypeKind::Base);
    }
    let labels = ["a", "b c"].map(str::to_owned).to_vec();
    let table = table
        .with_type(16_409, "mood", TypeKind::Enum { labels })
        .with_type(
            16_410,
            "_mood",
            TypeKind::Array {
                element: Oid(16_409),
                delimiter: ',',
            },
        )
        .with_type(
            16_411,
            "price",
            TypeKind::Domain {
                base: Oid(1700),
                modifier: ((5 << 16) | 2) + 4,
                not_null: false,
            },
        )
        .with_type(16_412, "pair", TypeKind::Composite);
    TablePlan::new(&ALL[settings], &table.relation, Some(&table.catalog)).ok()
}

fn convert(plan: &TablePlan, value: Column<'_>) {
    let Ok(tuple) = TupleBuf::new([Column::Text(b"1"), value]) else {
        return;
    };
    let change = Change {
        relation: Oid(16_384),
        operation: Operation::Insert { new: tuple.as_tuple() },
    };
    match plan.records(&change, &context(), None) {
        Ok(outcome) => drop(outcome),
        Err(error) => drop(error.to_string()),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, type_at, settings, sharp, blunt], text)) = input.split_first_chunk() else {
        return;
    };
    if kind == b'k' {
        let _ = relation_bytes::read(text);
        return;
    }
    let type_oid = TYPES[usize::from(type_at) % TYPES.len()];
    let settings = usize::from(settings) % SETTINGS.len();
    let modifier = match kind % 4 {
        0 | 1 => -1,
        2 => i32::from(sharp),
        _ => (i32::from(sharp) << 16 | i32::from(blunt)) + 4,
    };
    if kind % 8 == 7 {
        if let Ok(default) = std::str::from_utf8(text)
            && let Some(plan) = make(type_oid, settings, modifier, Some(default))
        {
            convert(&plan, Column::Null);
        }
        return;
    }
    PLANS.with_borrow_mut(|plans| {
        if plans.len() > 2000 {
            plans.clear();
        }
        let plan = plans
            .entry((type_oid, settings, modifier))
            .or_insert_with(|| make(type_oid, settings, modifier, None));
        if let Some(plan) = plan {
            convert(plan, Column::Text(text));
        }
    });
});
