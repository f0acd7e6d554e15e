//! Texts and regular expressions that are known before a record is there.

use std::collections::HashMap;

use walferry_config::JavaRegex;

use super::ScriptRefusal;
use super::operator::Operator;
use super::tree::{Node, NodeKind};

/// What `def` or `let` has named and is the same for every record, by the place of the name.
pub(super) type Constants = HashMap<usize, NodeKind>;

pub(super) const NOT_WRITTEN_OUT: &str = "has a regular expression or a replacement that depends on the record";

/// Texts are put together up to this length. A name that stands for twice another could make them as long as it likes.
const LONGEST: usize = 16 * 1024;

/// The text that a part of an expression is for every record.
pub(super) fn text(node: &Node, constants: &Constants) -> Option<String> {
    let text = match &node.kind {
        NodeKind::Text(text) => Some(text.clone()),
        NodeKind::Local(place, _) => match constants.get(place)? {
            NodeKind::Text(text) => Some(text.clone()),
            _ => None,
        },
        NodeKind::Binary(Operator::Add, a, b) => Some(text(a, constants)? + &text(b, constants)?),
        NodeKind::Template(pieces) => pieces.iter().map(|piece| text(piece, constants)).collect(),
        _ => None,
    };
    text.filter(|text| text.len() <= LONGEST)
}

/// A text or a regular expression, if a part of an expression is one for every record.
pub(super) fn of(node: &Node, constants: &Constants) -> Option<NodeKind> {
    match &node.kind {
        NodeKind::Regex { .. } => Some(node.kind.clone()),
        NodeKind::Local(place, _) => constants.get(place).cloned(),
        _ => text(node, constants).map(NodeKind::Text),
    }
}

/// The regular expression that a part of an expression is for every record, and whether all matches are meant.
pub(super) fn regex(node: &Node, constants: &Constants) -> Result<(Box<JavaRegex>, bool), ScriptRefusal> {
    match of(node, constants) {
        Some(NodeKind::Text(pattern)) => Ok((compiled(node.at, &pattern)?.into(), false)),
        Some(NodeKind::Regex { regex, all }) => Ok((regex, all)),
        _ => Err(ScriptRefusal::new(node.at, NOT_WRITTEN_OUT).hint("write it out as a text")),
    }
}

pub(super) fn compiled(at: usize, pattern: &str) -> Result<JavaRegex, ScriptRefusal> {
    JavaRegex::new(pattern).map_err(|error| ScriptRefusal::new(at, format!("has a regular expression: {error}")))
}
