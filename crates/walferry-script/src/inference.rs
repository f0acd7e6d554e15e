//! What parts of an expression give, as far as that is known before a record is there.

use super::Language;
use super::operator::Operator;
use super::receiver::Receiver;
use super::tree::{Block, Node, NodeKind, Rewrite, Statement, Variable};

/// What a part of an expression gives beside null, where that is known before a record is there.
pub(super) fn of_node(node: &Node, language: Language) -> Option<Receiver> {
    let is_groovy = language == Language::Groovy;
    let of = |node: &Node| of_node(node, language);
    Some(match &node.kind {
        NodeKind::Null | NodeKind::Undefined => Receiver::Null,
        NodeKind::Boolean(_)
        | NodeKind::Not(_)
        | NodeKind::Find(..)
        | NodeKind::Match(..)
        | NodeKind::In { .. }
        | NodeKind::InstanceOf { .. } => Receiver::Boolean,
        NodeKind::Number(_) => Receiver::Number,
        NodeKind::Text(_) => Receiver::Text,
        NodeKind::Template(_) if is_groovy => Receiver::Template,
        NodeKind::Template(_) => Receiver::Text,
        NodeKind::Variable(variable) => return of_variable(*variable, language),
        NodeKind::Local(_, receiver) => return *receiver,
        NodeKind::Property {
            of: whole, property, ..
        } => {
            return match of(whole)? {
                Receiver::Headers => Some(Receiver::Header),
                receiver => property.as_ref()?.gives(Some(receiver)),
            };
        }
        NodeKind::Index { of: whole, .. } => return of(whole).filter(|whole| *whole == Receiver::Text),
        NodeKind::Call { of: whole, method, .. } => return method.gives(of(whole)),
        NodeKind::Rewrite { how, .. } => of_rewrite(how, language),
        NodeKind::Function(function, _) => return function.gives,
        NodeKind::Negate(_) if !is_groovy => Receiver::Number,
        NodeKind::Negate(operand) => return of(operand).filter(|operand| *operand == Receiver::Number),
        NodeKind::Plus(_) if !is_groovy => Receiver::Number,
        NodeKind::Plus(operand) => return of(operand),
        NodeKind::Binary(operator, a, b) => return of_binary(*operator, of(a), of(b), language),
        NodeKind::And(..) | NodeKind::Or(..) if is_groovy => Receiver::Boolean,
        NodeKind::And(operands) | NodeKind::Or(operands) => {
            return operands.iter().map(of).reduce(either).flatten();
        }
        NodeKind::Elvis(a, b) | NodeKind::Coalesce(a, b) => return either(of(a), of(b)),
        NodeKind::Conditional(_, a, b) => return either(of(a), of(b)),
        NodeKind::List(_) if is_groovy => Receiver::List,
        NodeKind::List(_) => Receiver::Array,
        NodeKind::Map(_) if is_groovy => Receiver::Map,
        NodeKind::Map(_) => Receiver::Literal,
        NodeKind::Range { .. } => Receiver::Range,
        NodeKind::Regex { .. } => Receiver::Pattern,
        NodeKind::Search(..) => Receiver::Matcher,
    })
}

const fn of_variable(variable: Variable, language: Language) -> Option<Receiver> {
    match (variable, language) {
        (Variable::Topic, _) => Some(Receiver::Text),
        (Variable::Header, _) => Some(Receiver::Headers),
        (Variable::KeySchema | Variable::ValueSchema, _) => Some(Receiver::Schema),
        // Groovy takes any key and value.
        (Variable::Key | Variable::Value, Language::Groovy) => None,
        (Variable::Key | Variable::Value, Language::JavaScript) => Some(Receiver::Struct),
    }
}

const fn of_rewrite(how: &Rewrite, language: Language) -> Receiver {
    match (how, language) {
        (Rewrite::Matches, _) => Receiver::Boolean,
        (Rewrite::ReplaceFirst(_) | Rewrite::ReplaceAll(_) | Rewrite::Find, _) => Receiver::Text,
        (Rewrite::FindAll, _) => Receiver::List,
        (Rewrite::Groups { .. } | Rewrite::Split(_), _) => Receiver::Array,
        (Rewrite::Place, _) => Receiver::Number,
    }
}

fn of_binary(operator: Operator, a: Option<Receiver>, b: Option<Receiver>, language: Language) -> Option<Receiver> {
    use Operator as O;
    match operator {
        O::Compare => return Some(Receiver::Number),
        O::Add | O::Subtract | O::Multiply | O::Divide | O::Remainder => {}
        _ => return Some(Receiver::Boolean),
    }
    let both = (a, b);
    if both == (Some(Receiver::Number), Some(Receiver::Number)) {
        return Some(Receiver::Number);
    }
    match (language, operator) {
        (Language::JavaScript, O::Add) if a == Some(Receiver::Text) || b == Some(Receiver::Text) => {
            Some(Receiver::Text)
        }
        (Language::JavaScript, O::Add) => None,
        (Language::JavaScript, _) => Some(Receiver::Number),
        (Language::Groovy, O::Add) => match both {
            (Some(Receiver::Text), _) | (Some(Receiver::Number), Some(Receiver::Text)) => Some(Receiver::Text),
            (Some(Receiver::List | Receiver::Range), _) => Some(Receiver::List),
            _ => None,
        },
        (Language::Groovy, O::Subtract | O::Multiply) => match a {
            Some(Receiver::Text | Receiver::Template) => Some(Receiver::Text),
            Some(Receiver::List | Receiver::Range) => Some(Receiver::List),
            _ => None,
        },
        (Language::Groovy, _) => None,
    }
}

/// What one of two gives.
fn either(a: Option<Receiver>, b: Option<Receiver>) -> Option<Receiver> {
    match (a?, b?) {
        (Receiver::Null, other) | (other, Receiver::Null) => Some(other),
        (a, b) => (a == b).then_some(a),
    }
}

/// What an expression gives beside null, and where that stands. `None` where it depends on the record.
pub(super) fn of_block(block: &Block, language: Language) -> Option<(usize, Receiver)> {
    let mut results = Vec::new();
    // Something that is not known may give anything.
    if !results_of(block, language, true, &mut results) {
        return None;
    }
    let mut results = results.into_iter().filter(|(_, receiver)| *receiver != Receiver::Null);
    let (at, first) = results.next()?;
    results.all(|(_, other)| other == first).then_some((at, first))
}

/// Collects what the ends of a block give. `false` where one is not known.
fn results_of(block: &Block, language: Language, is_last: bool, results: &mut Vec<(usize, Receiver)>) -> bool {
    let mut add = |node: &Node| match of_node(node, language) {
        Some(receiver) => {
            results.push((node.at, receiver));
            true
        }
        None => false,
    };
    let count = block.0.len();
    for (place, statement) in block.0.iter().enumerate() {
        let is_result = is_last && place + 1 == count;
        let is_known = match statement {
            Statement::Return(Some(node)) => add(node),
            Statement::Expression(node) if is_result => add(node),
            _ => true,
        };
        if !is_known {
            return false;
        }
    }
    for (place, statement) in block.0.iter().enumerate() {
        if let Statement::If { then, otherwise, .. } = statement {
            let is_result = is_last && place + 1 == count;
            if !results_of(then, language, is_result, results) || !results_of(otherwise, language, is_result, results) {
                return false;
            }
        }
    }
    true
}
