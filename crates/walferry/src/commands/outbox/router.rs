//! What the configuration says of its EventRouters.

use walferry_config::{Options, RegexList, Value as _};
use walferry_worker::loaded::Loaded;

/// Whether the connector has an EventRouter.
pub(super) fn has_router(loaded: &Loaded) -> bool {
    options(loaded).next().is_some()
}

fn options(loaded: &Loaded) -> impl Iterator<Item = &Options> {
    let transforms = loaded.connector.plugins.transforms.iter();
    let routers = transforms.filter(|transform| transform.class.ends_with(".EventRouter"));
    routers.map(|transform| &transform.options)
}

/// The options of the EventRouter that works on a table, as `schema.table`.
pub(super) fn router<'a>(loaded: &'a Loaded, table: &str) -> Option<&'a Options> {
    let of_table = |options: &&Options| match options.get("walferry.tables") {
        Some(tables) => RegexList::parse(tables).is_ok_and(|tables| tables.matches(table)),
        None => true,
    };
    options(loaded).find(of_table)
}

/// The columns of an event's id and key.
pub(super) fn columns(options: &Options) -> (String, Vec<String>) {
    let id = options.get("table.field.event.id").unwrap_or("id").to_owned();
    let key = match options.get("walferry.key.columns") {
        Some(list) => list.split(',').map(|column| column.trim().to_owned()).collect(),
        None => vec![options.get("table.field.event.key").unwrap_or("aggregateid").to_owned()],
    };
    (id, key)
}
