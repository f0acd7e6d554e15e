//! What to write instead of a form that is refused, with the words of the expression.

use super::javascript;
use super::object::Object;
use super::token::{Placed, Token};
use super::tree::{Node, NodeKind};

/// A closure that asks whether a list has an element, as the call that asks the same: `tags.any { it == 'a' }` and
/// `tags.some(t => t == 'a')`. `dot` is the sign before the name of the method, and `tokens` begin behind the name.
///
/// `contains` and `includes` may find fewer elements than `==`. Groovy's `==` also says of two numbers of different types that they are
/// equal, so there it is only for a text. JavaScript's also says so of a number and its text: the hint names that difference.
pub(super) fn closure(
    text: &str,
    receiver: &str,
    of: &Node,
    dot: &str,
    name: &str,
    tokens: &[Placed],
) -> Option<String> {
    let word = |place: usize| match &tokens.get(place)?.token {
        Token::Word(word) => Some(word.as_str()),
        _ => None,
    };
    let is_sign = |place: usize, signs: &[&str]| {
        let token = tokens.get(place).map(|placed| &placed.token);
        matches!(token, Some(Token::Sign(sign)) if signs.contains(sign))
    };
    let (method, element, end) = match name {
        "any" if is_sign(0, &["{"]) && word(1) == Some("it") => ("contains", 2, "}"),
        "some" if is_sign(0, &["("]) && is_sign(2, &["=>"]) && word(1).is_some() && word(1) == word(3) => {
            ("includes", 4, ")")
        }
        _ => return None,
    };
    let is_strict = name == "some" && is_sign(element, &["==="]);
    // Texts that are written out equal nothing that is no text.
    let has_texts = matches!(&of.kind, NodeKind::List(elements)
        if name == "any" && elements.iter().all(|element| matches!(element.kind, NodeKind::Text(_))));
    // A single value: a text, or names and dots.
    let first = tokens.get(element + 1)?;
    let is_plain_text = match &first.token {
        Token::Text(text) if name == "some" => javascript::number(&Object::text(text.clone())).is_nan(),
        Token::Text(_) => true,
        _ => false,
    };
    let is_plain = is_sign(element, &["=="]) && is_plain_text && is_sign(element + 2, &[end]);
    let difference = match is_strict || is_plain || has_texts && is_sign(element, &["=="]) {
        true => "",
        false if name == "some" && is_sign(element, &["=="]) => ", which does not convert numbers and texts",
        false => return None,
    };
    let first = first.at;
    let mut place = element + 1;
    while matches!(
        tokens.get(place)?.token,
        Token::Word(_) | Token::Text(_) | Token::Sign("." | "?.")
    ) {
        place += 1;
    }
    let value = text.get(first..tokens.get(place)?.at)?.trim();
    (is_sign(place, &[end]) && !value.is_empty()).then(|| format!("write {receiver}{dot}{method}({value}){difference}"))
}

/// A method that an operator stands for, as the operator: `a.minus(b)`. In brackets unless it `is_apart`.
pub(super) fn operator(
    receiver: &str,
    name: &str,
    arguments: &[Node],
    argument: &str,
    is_apart: bool,
) -> Option<String> {
    let operator = match name {
        "plus" => "+",
        "minus" => "-",
        "after" => ">",
        "before" => "<",
        _ => return None,
    };
    let [only] = arguments else { return None };
    let is_joined = matches!(
        only.kind,
        NodeKind::Binary(..)
            | NodeKind::And(..)
            | NodeKind::Or(..)
            | NodeKind::Elvis(..)
            | NodeKind::Coalesce(..)
            | NodeKind::Conditional(..)
            | NodeKind::In { .. }
    );
    let argument = argument.trim();
    let argument = match is_joined {
        true => format!("({argument})"),
        false => argument.to_owned(),
    };
    Some(match is_apart {
        true => format!("write {receiver} {operator} {argument}"),
        false => format!("write ({receiver} {operator} {argument})"),
    })
}

/// Whether nothing beside a call binds as closely as an operator in its place would.
pub(super) fn is_apart(before: Option<&Token>, behind: &Token) -> bool {
    const EITHER: [&str; 6] = ["&&", "||", "?", ":", ",", ";"];
    let before = before.is_none_or(
        |token| matches!(token, Token::Sign(sign) if EITHER.contains(sign) || ["(", "[", "{"].contains(sign)),
    );
    let behind = match behind {
        Token::End => true,
        Token::Sign(sign) => EITHER.contains(sign) || [")", "]", "}", "==", "!=", "===", "!=="].contains(sign),
        _ => false,
    };
    before && behind
}

/// An operator of bits between booleans, doubled: `a == 1 & b`. `place` is that of the operator in `tokens`.
///
/// Only where the doubled one joins the same operands: `&` binds more tightly than `|`, and both more tightly than `&&`.
pub(super) fn doubled(text: &str, left: &Node, tokens: &[Placed], place: usize) -> Option<String> {
    use crate::operator::Operator as O;
    let is_boolean = match &left.kind {
        NodeKind::Boolean(_) | NodeKind::Not(_) | NodeKind::And(..) | NodeKind::Or(..) | NodeKind::In { .. } => true,
        NodeKind::Find(..) | NodeKind::Search(..) | NodeKind::Match(..) | NodeKind::InstanceOf { .. } => true,
        NodeKind::Binary(operator, ..) => !matches!(
            operator,
            O::Compare | O::Add | O::Subtract | O::Multiply | O::Divide | O::Remainder
        ),
        _ => false,
    };
    let operator = tokens.get(place)?;
    let Token::Sign(sign) = operator.token else { return None };
    let others: &[&str] = match sign {
        "&" => &["|", "^", "??"],
        _ => &["&&", "??"],
    };
    if beside(tokens, place).any(|token| matches!(token, Token::Sign(sign) if others.contains(sign))) {
        return None;
    }
    let (before, behind) = (text.get(..operator.at)?, text.get(operator.at..)?);
    is_boolean.then(|| format!("write {before}{sign}{behind}"))
}

/// The tokens around one, between the same brackets.
fn beside(tokens: &[Placed], place: usize) -> impl Iterator<Item = &Token> {
    const OPEN: [&str; 5] = ["(", "[", "{", "?[", "?.["];
    const CLOSE: [&str; 3] = [")", "]", "}"];
    let (before, behind) = tokens.split_at(place);
    let before = same_level(before.iter().rev(), &CLOSE, &OPEN);
    before.chain(same_level(behind.iter(), &OPEN, &CLOSE))
}

/// The tokens until a bracket ends that was opened before them.
fn same_level<'t>(
    tokens: impl Iterator<Item = &'t Placed>,
    open: &'static [&'static str],
    close: &'static [&'static str],
) -> impl Iterator<Item = &'t Token> {
    let mut depth = 0_i64;
    let levels = tokens.map_while(move |placed| {
        let is_any = |signs: &[&str]| matches!(placed.token, Token::Sign(sign) if signs.contains(&sign));
        depth += i64::from(is_any(open));
        let level = depth;
        depth -= i64::from(is_any(close));
        (depth >= 0).then_some((level, &placed.token))
    });
    levels.filter(|(level, _)| *level == 0).map(|(_, token)| token)
}
