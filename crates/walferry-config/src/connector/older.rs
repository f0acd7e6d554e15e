//! What Debezium called things before, as tutorials still print it.

use crate::finding::Findings;
use crate::reader::Options;

/// An older name of a property.
struct Renamed {
    from: &'static str,
    to: &'static str,
}

const fn renamed(from: &'static str, to: &'static str) -> Renamed {
    Renamed { from, to }
}

static RENAMED: &[Renamed] = &[
    // Before 2.0.
    renamed("database.server.name", "topic.prefix"),
    renamed("transaction.topic.name", "topic.transaction"),
    renamed("toasted.value.placeholder", "unavailable.value.placeholder"),
    renamed("schema.whitelist", "schema.include.list"),
    renamed("schema.blacklist", "schema.exclude.list"),
    renamed("table.whitelist", "table.include.list"),
    renamed("table.blacklist", "table.exclude.list"),
    renamed("column.whitelist", "column.include.list"),
    renamed("column.blacklist", "column.exclude.list"),
    renamed("database.whitelist", "database.include.list"),
    renamed("database.blacklist", "database.exclude.list"),
    renamed(
        "event.deserialization.failure.handling.mode",
        "event.processing.failure.handling.mode",
    ),
    // Before 1.0.
    renamed("slot.drop_on_stop", "slot.drop.on.stop"),
    renamed("rows.fetch.size", "snapshot.fetch.size"),
];

/// An older value of a property.
struct Replaced {
    property: &'static str,
    from: &'static str,
    to: &'static str,
}

static REPLACED: &[Replaced] = &[
    Replaced {
        property: "snapshot.mode",
        from: "never",
        to: "no_data",
    },
    // Every snapshot reads the exported snapshot of its slot since 1.3.
    Replaced {
        property: "snapshot.mode",
        from: "exported",
        to: "initial",
    },
];

/// Brings older names and values up to date, with a warning for each.
pub(super) fn bring_up_to_date(options: &mut Options, findings: &mut Findings) {
    for Renamed { from, to } in RENAMED {
        if options.get(from).is_none() {
            continue;
        }
        match options.get(to) {
            None => findings
                .warning(*from, format!("is the older name of {to} and is read as such"))
                .hint(format!("rename it to {to}")),
            Some(_) => findings
                .warning(
                    *from,
                    format!("has no effect: it is the older name of {to}, which is also set"),
                )
                .hint("remove it"),
        };
        options.rename(from, to);
    }
    // `sanitize.field.names` was a switch before there were modes.
    if let Some(text) = options.remove("sanitize.field.names") {
        let mode = if text.trim().eq_ignore_ascii_case("true") {
            "avro"
        } else {
            "none"
        };
        let message = format!("is the older form of field.name.adjustment.mode={mode} and is read as such");
        findings
            .warning("sanitize.field.names", message)
            .hint(format!("write field.name.adjustment.mode={mode}"));
        if options.get("field.name.adjustment.mode").is_none() {
            options.set("field.name.adjustment.mode", mode);
        }
    }
    for Replaced { property, from, to } in REPLACED {
        if options
            .get(property)
            .is_some_and(|text| text.trim().eq_ignore_ascii_case(from))
        {
            let finding = findings.warning(
                *property,
                format!("is {from:?}, the older name of {to}, and is read as such"),
            );
            finding.hint(format!("write {property}={to}"));
            options.set(*property, *to);
        }
    }
    prefer_driver(options, findings);
}

/// Debezium hands `driver.*` to pgjdbc over `database.*`.
fn prefer_driver(options: &mut Options, findings: &mut Findings) {
    let names: Vec<String> = options
        .iter()
        .filter_map(|(name, _)| Some(name.strip_prefix("driver.")?.to_owned()))
        .collect();
    for name in names {
        let (from, to) = (format!("driver.{name}"), format!("database.{name}"));
        if options.get(&to).is_some() {
            findings
                .warning(
                    &to,
                    format!("has no effect: {from} is also set and takes precedence, as in Debezium"),
                )
                .hint("keep one of the two");
            options.remove(&to);
        }
        options.rename(&from, &to);
    }
}
