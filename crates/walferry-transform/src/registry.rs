//! The tables of transforms and predicates. A new one is a file and a row here.

use walferry_config::Group;

use crate::contract::{PluginRow, Predicate, Side, Transform};
use crate::{confluent, debezium, event_router, kafka, predicates};

pub(crate) static TRANSFORMS: &[PluginRow<dyn Transform>] = &[
    event_router::ROW,
    confluent::drop::ROW,
    confluent::extract_topic::ROW,
    confluent::extract_topic::HEADER_ROW,
    confluent::filter::ROW,
    confluent::tombstone_handler::ROW,
    debezium::by_logical_table_router::ROW,
    debezium::content_based_router::ROW,
    debezium::decode_logical_decoding_message_content::ROW,
    debezium::enforce_record_size::ROW,
    debezium::extract_changed_record_state::ROW,
    debezium::extract_new_record_state::ROW,
    debezium::extract_schema_to_new_record::ROW,
    debezium::geometry_format_transformer::ROW,
    debezium::header_to_value::ROW,
    debezium::no_effect::OPEN_LINEAGE,
    debezium::no_effect::TRACING,
    debezium::partition_routing::ROW,
    debezium::schema_change_event_filter::ROW,
    debezium::swap_geometry_coordinates::ROW,
    debezium::timescale_db::ROW,
    debezium::timezone_converter::ROW,
    debezium::vector_to_json_converter::ROW,
    kafka::cast::ROW,
    kafka::drop_headers::ROW,
    kafka::extract_field::ROW,
    kafka::filter::ROW,
    kafka::flatten::ROW,
    kafka::header_from::ROW,
    kafka::hoist_field::ROW,
    kafka::insert_field::ROW,
    kafka::insert_header::ROW,
    kafka::mask_field::ROW,
    kafka::regex_router::ROW,
    kafka::replace_field::ROW,
    kafka::set_schema_metadata::ROW,
    kafka::timestamp_converter::ROW,
    kafka::timestamp_router::ROW,
    kafka::value_to_key::ROW,
    // Behind Kafka's, whose is the short name `Filter`.
    debezium::filter::ROW,
];

pub(crate) static PREDICATES: &[PluginRow<dyn Predicate>] = &[
    predicates::topic_name_matches::ROW,
    predicates::has_header_key::ROW,
    predicates::record_is_tombstone::ROW,
];

/// A transform that people look for and that Debezium 3.6 does not have for Postgres.
pub(crate) struct Absent {
    pub(crate) class: &'static str,
    /// Continues the sentence "is …, which".
    pub(crate) why: &'static str,
    pub(crate) instead: &'static str,
}

/// What to answer for transforms that are not Debezium's, or not of this version of it.
pub(crate) const ABSENT: &[Absent] = &[
    Absent {
        class: "io.debezium.transforms.CollectionNameTransformation",
        why: "Debezium does not have; a class with this name belongs to its JDBC sink connector",
        instead: "rename topics with org.apache.kafka.connect.transforms.RegexRouter",
    },
    Absent {
        class: "io.debezium.connector.jdbc.transforms.CollectionNameTransformation",
        why: "belongs to Debezium's JDBC sink connector",
        instead: "rename topics with org.apache.kafka.connect.transforms.RegexRouter",
    },
    Absent {
        class: "io.debezium.transforms.ToLogicalTopicRouter",
        why: "is new in Debezium 3.7; Walferry has the transforms of 3.6",
        instead: "use io.debezium.transforms.ByLogicalTableRouter, which has the same options but adds another field to keys",
    },
];

/// The options of every transform and predicate, for the reference page.
pub static GROUPS: &[Group] = &groups();

const fn groups() -> [Group; TRANSFORMS.len() + PREDICATES.len()] {
    let mut groups = [TRANSFORMS[0].options; TRANSFORMS.len() + PREDICATES.len()];
    let mut at = 0;
    while at < groups.len() {
        groups[at] = if at < TRANSFORMS.len() {
            TRANSFORMS[at].options
        } else {
            PREDICATES[at - TRANSFORMS.len()].options
        };
        at += 1;
    }
    groups
}

/// A transform or a predicate, for its documentation.
#[derive(Debug, Clone, Copy)]
pub struct Documented {
    /// The full name of the class, without the side.
    pub class: &'static str,
    /// Whether there are two classes of that name, `$Key` and `$Value`.
    pub sides: bool,
    /// Its options.
    pub options: Group,
}

/// Every transform.
pub fn all_transforms() -> impl Iterator<Item = Documented> {
    TRANSFORMS.iter().map(documented)
}

/// Every predicate.
pub fn all_predicates() -> impl Iterator<Item = Documented> {
    PREDICATES.iter().map(documented)
}

fn documented<T: ?Sized>(row: &PluginRow<T>) -> Documented {
    Documented {
        class: row.class,
        sides: row.sides,
        options: row.options,
    }
}

/// What a class name means.
pub(crate) enum Class<T: ?Sized + 'static> {
    /// One that is there.
    Known(&'static PluginRow<T>, Side),
    /// One that is there as `$Key` and as `$Value`, without saying which.
    NoSide(&'static str),
    /// One that Debezium does not have.
    Absent(&'static Absent),
    /// None, with the nearest one that is there.
    Unknown(Option<String>),
}

/// What a class name means. Connect takes the full name of a class and the name without its package.
pub(crate) fn find<T: ?Sized>(class: &str, known: &'static [PluginRow<T>]) -> Class<T> {
    let means = |full: &str, class: &str| full == class || simple(full) == class;
    for row in known {
        let named = |suffix: &str| class.strip_suffix(suffix).is_some_and(|class| means(row.class, class));
        match row.sides {
            false if means(row.class, class) => return Class::Known(row, Side::Value),
            true if named("$Key") => return Class::Known(row, Side::Key),
            true if named("$Value") => return Class::Known(row, Side::Value),
            _ => {}
        }
    }
    if let Some(row) = known.iter().find(|row| row.sides && means(row.class, class)) {
        return Class::NoSide(row.class);
    }
    if let Some(absent) = ABSENT.iter().find(|absent| means(absent.class, class)) {
        return Class::Absent(absent);
    }
    let (name, side) = match class.split_once('$') {
        Some((name, side)) => (name, Some(side)),
        None => (class, None),
    };
    let likeness = |full: &str| strsim::jaro_winkler(&simple(name).to_lowercase(), &simple(full).to_lowercase());
    let nearest = known.iter().map(|row| (likeness(row.class), row));
    let nearest = nearest.filter(|(likeness, _)| *likeness > 0.8);
    let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row);
    Class::Unknown(nearest.map(|row| match (row.sides, side) {
        (false, _) => row.class.to_owned(),
        (true, Some("Key")) => format!("{}$Key", row.class),
        (true, _) => format!("{}$Value", row.class),
    }))
}

fn simple(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(class: &str) -> String {
        match find(class, TRANSFORMS) {
            Class::Known(row, side) if row.sides => format!("{side:?} {}", row.class),
            Class::Known(row, _) => row.class.to_owned(),
            Class::NoSide(class) => format!("no side {class}"),
            Class::Absent(absent) => format!("absent {}", absent.class),
            Class::Unknown(near) => format!("unknown {}", near.unwrap_or_default()),
        }
    }

    #[test]
    fn full_and_simple_names_are_understood() {
        let router = "io.debezium.transforms.outbox.EventRouter";
        let replace = "org.apache.kafka.connect.transforms.ReplaceField";
        let cases = [
            (router, router.to_owned()),
            ("EventRouter", router.to_owned()),
            ("Filter", "org.apache.kafka.connect.transforms.Filter".into()),
            ("io.debezium.transforms.Filter", "io.debezium.transforms.Filter".into()),
            ("ReplaceField$Value", format!("Value {replace}")),
            (
                "org.apache.kafka.connect.transforms.ReplaceField$Key",
                format!("Key {replace}"),
            ),
            ("ReplaceField", format!("no side {replace}")),
            ("ReplaceFeild$Key", format!("unknown {replace}$Key")),
            (
                "InsertHeader$Value",
                "unknown org.apache.kafka.connect.transforms.InsertHeader".into(),
            ),
            ("io.debezium.transforms.outbox.EventRooter", format!("unknown {router}")),
            ("io.debezium.outbox.EventRouter", format!("unknown {router}")),
            ("com.example.Upper", "unknown ".into()),
            (
                "ToLogicalTopicRouter",
                "absent io.debezium.transforms.ToLogicalTopicRouter".into(),
            ),
        ];
        for (name, expected) in cases {
            assert_eq!(meaning(name), expected, "{name}");
        }
    }

    #[test]
    fn each_class_and_each_title_is_there_once() {
        let mut names: Vec<&str> = TRANSFORMS.iter().map(|row| row.class).collect();
        names.extend(PREDICATES.iter().map(|row| row.class));
        names.extend(ABSENT.iter().map(|absent| absent.class));
        names.extend(GROUPS.iter().map(|group| group.title));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
