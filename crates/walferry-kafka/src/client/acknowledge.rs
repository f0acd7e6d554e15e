//! When a record counts as delivered, and how its place in the order is kept; levels of compression.

use walferry_config::{Value as _, ValueError};

use super::Translation;

/// Above this the broker may forget a batch that is still under way.
const MOST_IN_FLIGHT: u32 = 5;

pub(super) fn translate(translation: &mut Translation) {
    acknowledgement(translation);
    compression(translation);
}

fn acknowledgement(t: &mut Translation) {
    let acks = match t.get("acks") {
        None | Some("all" | "-1") => "all",
        Some("1") => "1",
        Some("0") => "0",
        Some(_) => return t.wrong_value("acks", ValueError::new("all, 1 or 0")),
    };
    let wanted = match t.get("enable.idempotence").map(bool::parse).transpose() {
        Ok(wanted) => wanted,
        Err(error) => return t.wrong_value("enable.idempotence", error),
    };
    let in_flight = match t
        .get("max.in.flight.requests.per.connection")
        .map(u32::parse)
        .transpose()
    {
        Ok(in_flight) => in_flight,
        Err(error) => return t.wrong_value("max.in.flight.requests.per.connection", error),
    };
    // As in Connect, less than idempotence asks for is obeyed unless idempotence is asked for by name.
    let idempotent = wanted.unwrap_or(acks == "all" && in_flight.is_none_or(|n| n <= MOST_IN_FLIGHT));
    if idempotent && acks != "all" {
        t.problem(
            "acks",
            format!("is {acks}, which enable.idempotence=true does not allow"),
        )
        .hint("set it to all");
    }
    if idempotent && in_flight.is_some_and(|n| n > MOST_IN_FLIGHT) {
        t.problem(
            "max.in.flight.requests.per.connection",
            format!("is above {MOST_IN_FLIGHT}, which enable.idempotence=true does not allow"),
        )
        .hint("remove it");
    }
    match acks {
        "1" => t.weakens(
            "acks",
            "is 1: a record is lost if the leader of its partition fails before the replicas have it",
        ),
        "0" => t.weakens(
            "acks",
            "is 0: records count as delivered before any broker has them, and are lost if a broker restarts",
        ),
        _ => {}
    }
    let in_flight = in_flight.unwrap_or(if idempotent { MOST_IN_FLIGHT } else { 1 });
    if !idempotent && in_flight > 1 {
        t.weakens(
            "max.in.flight.requests.per.connection",
            "is above 1 without enable.idempotence: a retry may change the order of records with the same key",
        );
    }
    if wanted == Some(false) {
        t.weakens(
            "enable.idempotence",
            "is false: records may be duplicated when a connection breaks",
        );
    }
    t.set("acks", acks);
    t.set("enable.idempotence", idempotent.to_string());
    t.set("max.in.flight.requests.per.connection", in_flight.to_string());
}

fn compression(t: &mut Translation) {
    const LZ4: &str = "compression.lz4.level";
    const ZSTD: &str = "compression.zstd.level";
    const GZIP: &str = "compression.gzip.level";
    const MOST: i32 = 12;
    let kind = t.out.values.get("compression.type").cloned().unwrap_or_default();
    for (name, of, range) in [
        (GZIP, "gzip", -1..=9),
        (LZ4, "lz4", 1..=17),
        (ZSTD, "zstd", -131_072..=22),
    ] {
        let level = match t.get(name).map(i32::parse).transpose() {
            Ok(Some(level)) if range.contains(&level) => level,
            Ok(None) => continue,
            Ok(Some(_)) => {
                t.wrong_value(
                    name,
                    ValueError::new(format!("a level from {} to {}", range.start(), range.end())),
                );
                continue;
            }
            Err(error) => {
                t.wrong_value(name, error);
                continue;
            }
        };
        if kind != of {
            t.note(name, format!("has no effect: compression.type is not {of}"));
            continue;
        }
        if level != level.clamp(-1, MOST) {
            t.note(
                name,
                format!(
                    "is treated as {}: librdkafka has no other levels",
                    level.clamp(-1, MOST)
                ),
            );
        }
        t.set("compression.level", level.clamp(-1, MOST).to_string());
    }
}
