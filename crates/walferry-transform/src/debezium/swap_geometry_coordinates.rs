//! Debezium's `SwapGeometryCoordinates`: latitude before longitude, or the other way round.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Record, Value};

use super::geometry::{self, GeometryParts, Unusable};
use super::wkb;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::reshape::set_text;
use crate::{Error, Outcome, Transform};

properties! {
    const SRIDS: Property<Option<String>> = Property::new("srids").example("4326")
        .text("SRIDs of the geometries whose coordinates are swapped, separated by commas. The default is 4326, 3857 and 4269.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.SwapGeometryCoordinates",
    sides: false,
    options: Group {
        title: "Transform SwapGeometryCoordinates",
        text: "`io.debezium.transforms.SwapGeometryCoordinates`: swaps the first two coordinates of each point of \
               `io.debezium.data.geometry.Geometry`, also in arrays and maps, if the SRID is one of the configured ones. `Geography` and \
               `Point` stay unchanged. Nulls are replaced with the defaults of their fields.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

/// Debezium's default.
const USUAL: [i32; 3] = [4326, 3857, 4269];

#[derive(Clone)]
struct SwapGeometryCoordinates {
    srids: Vec<i32>,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let srids = match set_text(reader, &SRIDS) {
        None => USUAL.to_vec(),
        // As Java's split: empty parts at the end do not count, unless there is nothing else.
        Some(text) => {
            let parts = match text.trim_end_matches(',') {
                "" if !text.is_empty() => vec![],
                text => text.split(',').collect(),
            };
            let mut srids = Vec::new();
            for part in parts {
                match part.trim().parse() {
                    Ok(srid) => srids.push(srid),
                    Err(_) => {
                        reader
                            .problem(SRIDS.name(), format!("contains {part:?}, which is not an SRID"))
                            .hint("write numbers separated by commas, such as 4326,3857");
                    }
                }
            }
            srids
        }
    };
    Some(Box::new(SwapGeometryCoordinates { srids }))
}

impl Transform for SwapGeometryCoordinates {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        geometry::convert(&mut record, true, &mut |parts| convert(parts, &self.srids))?;
        Ok(Outcome::Record(record))
    }
}

fn convert(parts: &GeometryParts<'_>, srids: &[i32]) -> Result<Option<Vec<u8>>, Unusable> {
    let Some(srid) = parts.srid else {
        return Ok(None);
    };
    match parts.wkb.as_ref().map_err(|unusable| *unusable)? {
        _ if !srids.contains(&srid) => Ok(None),
        Value::Bytes(bytes) => Ok(Some(wkb::swapped(bytes)?)),
        _ => Err(Unusable::Empty),
    }
}
