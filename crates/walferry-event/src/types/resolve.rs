//! Decides how a column's type is written.

use walferry_config::connector::EventSection;

use super::column_type::{ColumnType, RootKind};
use super::mapping::Mapping;
use super::origin::RowOrigin;
use super::scalar::{enumeration, scalar};
use super::{array, binary};
use crate::catalog::Catalog;

/// How values of a type are written. `None` if columns of this type are left out.
pub(crate) fn resolve(
    column: &ColumnType,
    modes: &EventSection,
    stage: RowOrigin,
    catalog: Option<&Catalog>,
) -> Option<Mapping> {
    let known = match &column.kind {
        RootKind::Array { element, delimiter } => array::array(column, *element, *delimiter, modes, catalog),
        RootKind::Enum(labels) => Some(enumeration(labels, modes)),
        RootKind::Base => scalar(column, modes, stage, catalog),
        RootKind::Other => None,
    };
    let unknown =
        || (modes.include_unknown_datatypes && !array::is_unsupported(column.root)).then(|| binary::raw(column, modes));
    known.or_else(unknown)
}
