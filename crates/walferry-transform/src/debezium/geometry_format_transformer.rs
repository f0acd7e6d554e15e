//! Debezium's `GeometryFormatTransformer`: geometries as WKB or as EWKB.

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, Value};

use super::geometry::{self, GeometryParts, Unusable};
use super::wkb;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::{Error, Outcome, Transform};

choices! {
    /// What the geometries are now, whatever Debezium's documentation says of the option.
    enum Format {
        /// They get an SRID.
        #[default]
        Wkb = "wkb",
        /// They lose their SRID.
        Ewkb = "ewkb",
    }
}

properties! {
    const FORMAT: Property<Format> = Property::new("format").default("wkb")
        .text("The format of the geometries before the transform, although Debezium's documentation calls it the target format: with \
               `wkb`, the SRID is added (EWKB); with `ewkb`, it is removed (WKB). At the first geometry that contains an SRID, the \
               transform switches to `ewkb` until it is restarted. PostGIS sends all geometries with an SRID in this form.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.GeometryFormatTransformer",
    sides: false,
    options: Group {
        title: "Transform GeometryFormatTransformer",
        text: "`io.debezium.transforms.GeometryFormatTransformer`: writes the bytes of `io.debezium.data.geometry.Geometry` with their \
               SRID (EWKB) or without it (WKB). `Geography` and `Point` stay unchanged. Nulls are replaced with the defaults of their \
               fields.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct GeometryFormatTransformer {
    /// Changes with what comes.
    format: Format,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let format = reader.get(&FORMAT);
    Some(Box::new(GeometryFormatTransformer { format }))
}

impl Transform for GeometryFormatTransformer {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        geometry::convert(&mut record, false, &mut |parts| convert(parts, &mut self.format))?;
        Ok(Outcome::Record(record))
    }
}

fn convert(parts: &GeometryParts<'_>, format: &mut Format) -> Result<Option<Vec<u8>>, Unusable> {
    let bytes = match parts.wkb.as_ref().map_err(|unusable| *unusable)? {
        Value::Bytes(bytes) => Some(&**bytes),
        _ => None,
    };
    if bytes.is_some_and(wkb::is_extended) {
        *format = Format::Ewkb;
    }
    match (*format, bytes) {
        (Format::Wkb, bytes) => {
            let srid = parts.srid.ok_or(Unusable::NoSrid)?;
            Ok(Some(wkb::with_srid(bytes.ok_or(Unusable::Empty)?, srid)?))
        }
        (Format::Ewkb, Some(bytes)) if wkb::is_extended(bytes) => Ok(Some(wkb::without_srid(bytes)?)),
        (Format::Ewkb, _) => Ok(None),
    }
}
