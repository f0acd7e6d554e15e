//! Tokens to an expression.

mod java_constant;
mod literal;
mod postfix;
mod statement;
mod types;

use std::collections::HashMap;

use super::constant::{self, Constants};
use super::function::Function;
use super::inference;
use super::method::no_closures;
use super::number::Number;
use super::operator::Operator;
use super::receiver::Receiver;
use super::rewritten;
use super::token::{Placed, Token, tokens};
use super::tree::{Block, Node, NodeKind};
use super::{Language, ScriptRefusal};

/// How deeply expressions may be nested.
const DEEPEST: usize = 100;
/// How deep a tree of operators and calls in a row may be. Those of `&&` and `||` count as one.
const LONGEST_ROW: usize = 250;

pub(super) struct Parsed {
    pub(super) block: Block,
    /// How many names `def` or `let` gives.
    pub(super) locals: usize,
}

pub(super) fn parse(text: &str, language: Language) -> Result<Parsed, ScriptRefusal> {
    let mut parser = Parser::new(text, tokens(text, language)?, language);
    let block = parser.block(&Token::End)?;
    match block.0.is_empty() {
        true => Err(ScriptRefusal::new(0, "is empty")),
        false => Ok(Parsed {
            block,
            locals: parser.locals.len(),
        }),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Placed>,
    next: usize,
    language: Language,
    /// What `def` or `let` has named, and what it gives, where that is known.
    locals: HashMap<String, (usize, Option<Receiver>)>,
    constants: Constants,
    depth: usize,
    /// How many branches of `if` are open. What is named in one may not be there behind it.
    branches: usize,
}

/// The level of `&&`.
const AND: usize = 1;
/// Binary operators from the loosest level to the tightest.
const LEVELS: [&[&str]; 8] = [
    &["||", "??"],
    &["&&"],
    &["=~", "==~"],
    &["==", "!=", "===", "!==", "<=>"],
    &["<", "<=", ">", ">=", "in", "!in", "instanceof", "!instanceof", "as"],
    &["..", "..<"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'t> Parser<'t> {
    fn new(text: &'t str, tokens: Vec<Placed>, language: Language) -> Self {
        Self {
            text,
            tokens,
            next: 0,
            language,
            locals: HashMap::new(),
            constants: Constants::new(),
            depth: 0,
            branches: 0,
        }
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    /// The last token is the end, which is never passed.
    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_there = self.is_sign(sign);
        self.next += usize::from(is_there);
        is_there
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.is_word(word);
        self.next += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ScriptRefusal> {
        if self.take_sign(sign) {
            return Ok(());
        }
        let what = format!("has {} where {sign} is expected", self.token_text());
        Err(self.hinted(ScriptRefusal::new(self.at(), what)))
    }

    fn token_text(&self) -> String {
        match self.peek() {
            Token::Word(word) => word.clone(),
            Token::Number(number) => number.clone(),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::Text(_) | Token::Template(_) => "a text".to_owned(),
            Token::Regex { .. } => "a regular expression".to_owned(),
            Token::End => "its end".to_owned(),
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ScriptRefusal>) -> Result<T, ScriptRefusal> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ScriptRefusal::new(
                self.at(),
                format!("is nested more than {DEEPEST} deep"),
            ));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn block(&mut self, end: &Token) -> Result<Block, ScriptRefusal> {
        let mut statements = Vec::new();
        loop {
            while self.take_sign(";") {}
            if self.peek() == end {
                return Ok(Block(statements));
            }
            let before = self.next;
            self.nested(|parser| parser.statement(&mut statements))?;
            let ended = self.is_sign(";") || self.peek() == end || self.tokens[self.next].on_new_line;
            let was_block = matches!(self.tokens[self.next - 1].token, Token::Sign("}"));
            if !(ended || was_block) || self.next == before {
                return Err(self.unexpected());
            }
        }
    }

    fn unexpected(&self) -> ScriptRefusal {
        self.hinted(ScriptRefusal::new(
            self.at(),
            format!("does not end before {}", self.token_text()),
        ))
    }

    /// With what to write instead of what comes next.
    fn hinted(&self, refusal: ScriptRefusal) -> ScriptRefusal {
        match self.peek() {
            Token::Sign("=" | "+=" | "-=" | "*=" | "/=") => refusal.hint("compare with ==; nothing can be assigned to"),
            Token::Sign("++" | "--") => refusal.hint("add 1 instead; nothing can be changed"),
            Token::Sign("{" | "->" | "=>") => refusal.hint(no_closures(self.language)),
            Token::Sign("&" | "|" | "^" | "<<" | ">>" | ">>>") => {
                refusal.hint("write && for and, || for or; there is no arithmetic of bits")
            }
            Token::Sign("*.") => refusal.hint("ask for one element, such as list[0], or use list.contains(…)"),
            Token::Word(word) if word == "and" => refusal.hint("write &&"),
            Token::Word(word) if word == "or" => refusal.hint("write ||"),
            _ => refusal,
        }
    }

    fn expression(&mut self) -> Result<Node, ScriptRefusal> {
        self.nested(Self::conditional)
    }

    fn conditional(&mut self) -> Result<Node, ScriptRefusal> {
        let condition = self.binary(0)?;
        let at = self.at();
        if self.language == Language::Groovy && self.take_sign("?:") {
            let otherwise = self.expression()?;
            return Ok(node(at, NodeKind::Elvis(condition.into(), otherwise.into())));
        }
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        Ok(node(
            at,
            NodeKind::Conditional(condition.into(), then.into(), otherwise.into()),
        ))
    }

    /// The operator that comes next, if it binds at least as tightly as this level, and its level.
    fn operator(&self, least: usize) -> Option<(usize, &'static str)> {
        let place = &self.tokens[self.next];
        let is_next = |operator: &&'static str| match &place.token {
            Token::Sign(sign) => match *operator {
                "!in" | "!instanceof" => {
                    let next = &self.tokens[self.next + 1].token;
                    *sign == "!" && matches!(next, Token::Word(word) if **word == operator[1..])
                }
                operator => *sign == operator,
            },
            Token::Word(word) => word == operator,
            _ => false,
        };
        let levels = LEVELS.iter().enumerate().skip(least);
        let mut found = levels
            .filter_map(|(level, operators)| Some((level, *operators.iter().find(|operator| is_next(operator))?)));
        let (level, found) = found.next()?;
        let is_groovy = self.language == Language::Groovy;
        let fits = match found {
            "=~" | "==~" | "<=>" | "!in" | "!instanceof" | "as" | ".." | "..<" => is_groovy,
            "??" => !is_groovy,
            // At the beginning of a line these begin another statement in Groovy.
            "+" | "-" => !place.on_new_line || !is_groovy,
            _ => true,
        };
        fits.then_some((level, found))
    }

    /// Operands and the operators between them that bind at least as tightly as this level.
    fn binary(&mut self, least: usize) -> Result<Node, ScriptRefusal> {
        let mut left = self.unary()?;
        while let Some((level, operator)) = self.operator(least) {
            let at = self.at();
            let words = if matches!(operator, "!in" | "!instanceof") {
                2
            } else {
                1
            };
            self.next += words;
            left = self.joined(at, operator, left, level)?;
            self.is_shallow(&left)?;
        }
        if least <= AND
            && (self.is_sign("&") || self.is_sign("|"))
            && let Some(instead) = rewritten::doubled(self.text, &left, &self.tokens, self.next)
        {
            return Err(self.unexpected().hint(instead));
        }
        Ok(left)
    }

    fn joined(&mut self, at: usize, operator: &'static str, left: Node, level: usize) -> Result<Node, ScriptRefusal> {
        if operator == "as" {
            return self.as_type(at, left);
        }
        if matches!(operator, "instanceof" | "!instanceof") {
            return self.instance_of(at, left, operator == "!instanceof");
        }
        let mut right = self.binary(level + 1)?;
        let mut left = left;
        if let Some(operator) = comparison(operator) {
            if operator != Operator::Compare && self.language == Language::Groovy {
                same_zeros(&mut left, &mut right);
            }
            return Ok(node(at, NodeKind::Binary(operator, left.into(), right.into())));
        }
        let kind = match operator {
            "=~" => NodeKind::Search(left.into(), constant::regex(&right, &self.constants)?.0),
            "==~" => NodeKind::Match(left.into(), constant::regex(&right, &self.constants)?.0),
            "in" | "!in" => self.membership(at, left, right, operator == "!in")?,
            "||" => match left.kind {
                NodeKind::Or(operands) => NodeKind::Or(with(operands, right)),
                _ => NodeKind::Or(vec![left, right]),
            },
            "&&" => match left.kind {
                NodeKind::And(operands) => NodeKind::And(with(operands, right)),
                _ => NodeKind::And(vec![left, right]),
            },
            "??" => NodeKind::Coalesce(left.into(), right.into()),
            ".." | "..<" => NodeKind::Range {
                from: left.into(),
                to: right.into(),
                exclusive: operator == "..<",
            },
            "+" => NodeKind::Binary(Operator::Add, left.into(), right.into()),
            "-" => NodeKind::Binary(Operator::Subtract, left.into(), right.into()),
            "*" => NodeKind::Binary(Operator::Multiply, left.into(), right.into()),
            "/" => NodeKind::Binary(Operator::Divide, left.into(), right.into()),
            _ => NodeKind::Binary(Operator::Remainder, left.into(), right.into()),
        };
        let joined = node(at, kind);
        self.has_operator(&joined)?;
        Ok(joined)
    }

    /// Refuses a row of operators or calls that is as long as to need too much of the stack.
    fn is_shallow(&self, row: &Node) -> Result<(), ScriptRefusal> {
        match row.depth > LONGEST_ROW {
            true => Err(ScriptRefusal::new(
                row.at,
                format!("has more than {LONGEST_ROW} operators or calls in a row"),
            )),
            false => Ok(()),
        }
    }

    /// Refuses sums and the like of values of which it is known that they have none.
    fn has_operator(&self, joined: &Node) -> Result<(), ScriptRefusal> {
        use Receiver as R;
        let NodeKind::Binary(operator, a, b) = &joined.kind else {
            return Ok(());
        };
        if self.language == Language::JavaScript {
            return Ok(());
        }
        let (Some(first), second) = (self.receiver(a), self.receiver(b)) else {
            return Ok(());
        };
        let is_refused = match (operator, first) {
            (_, R::Boolean | R::Schema | R::Struct | R::Date | R::Bytes | R::Field | R::Type | R::Header) => true,
            (_, R::Matcher | R::Pattern | R::Set | R::Fixed) => true,
            (_, R::Character) => matches!(second, Some(R::Text | R::Template)),
            (Operator::Divide | Operator::Remainder, R::Text | R::Template | R::List | R::Array | R::Map) => true,
            (_, R::Number) => matches!(second, Some(R::Boolean | R::List | R::Map | R::Null)),
            _ => false,
        };
        if !is_refused {
            return Ok(());
        }
        let what = format!(
            "has an operator between {} and something else, which Groovy does not know",
            first.kind()
        );
        let hint = match (operator, first) {
            (Operator::Add, _) => "begin with a text: '' + …",
            _ => "the operators + - * / % are for numbers; + also joins texts and lists",
        };
        Err(ScriptRefusal::new(joined.at, what).hint(hint))
    }

    /// `in`, which asks for an element in Groovy, and for the name of a property in JavaScript.
    fn membership(&self, at: usize, of: Node, among: Node, negated: bool) -> Result<NodeKind, ScriptRefusal> {
        if self.language == Language::JavaScript
            && matches!(
                self.receiver(&among),
                Some(Receiver::Array | Receiver::List | Receiver::Text)
            )
        {
            let hint = "write ['a', 'b'].includes(…) for lists";
            return Err(ScriptRefusal::new(at, "uses in, which asks for names of properties in JavaScript").hint(hint));
        }
        Ok(NodeKind::In {
            of: of.into(),
            among: among.into(),
            negated,
        })
    }

    /// What a part of the expression gives beside null, where that is known.
    fn receiver(&self, node: &Node) -> Option<Receiver> {
        inference::of_node(node, self.language)
    }

    fn unary(&mut self) -> Result<Node, ScriptRefusal> {
        let at = self.at();
        let is_groovy = self.language == Language::Groovy;
        for sign in ["!", "-", "+"] {
            if self.take_sign(sign) {
                if is_groovy && sign != "!" && self.tokens[self.next].on_new_line {
                    return Err(ScriptRefusal::new(at, format!("has {sign} at the end of a line")));
                }
                let operand = self.nested(Self::unary)?;
                return self.signed(at, sign, operand);
            }
        }
        if is_groovy && self.take_sign("~") {
            let operand = self.nested(Self::unary)?;
            let (regex, all) = constant::regex(&operand, &self.constants)?;
            return Ok(node(at, NodeKind::Regex { regex, all }));
        }
        if !is_groovy && self.take_word("typeof") {
            let operand = self.nested(Self::unary)?;
            return Ok(node(at, NodeKind::Function(Function::TYPE, vec![operand])));
        }
        if let Some(function) = self.cast() {
            let operand = self.nested(Self::unary)?;
            return Ok(node(at, NodeKind::Function(function, vec![operand])));
        }
        self.postfix()
    }

    /// Whether a number without the letter of a type has just been read.
    fn ends_with_digits(&self) -> bool {
        let last = self.next.checked_sub(1).map(|last| &self.tokens[last].token);
        matches!(last, Some(Token::Number(digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()))
    }

    fn ends_with_word(&self) -> bool {
        let last = self.next.checked_sub(1).map(|last| &self.tokens[last].token);
        matches!(last, Some(Token::Word(_)))
    }

    fn signed(&self, at: usize, sign: &str, operand: Node) -> Result<Node, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        let kind = match (sign, operand.kind) {
            ("!", kind) => NodeKind::Not(node(operand.at, kind).into()),
            // The least Integer has no positive.
            ("-", NodeKind::Number(Number::Long(2_147_483_648))) if is_groovy && self.ends_with_digits() => {
                NodeKind::Number(Number::Int(i32::MIN))
            }
            ("-", NodeKind::Number(number)) if is_groovy => NodeKind::Number(number.negated()),
            ("+", kind @ NodeKind::Number(_)) if is_groovy => kind,
            // Groovy leaves the sign away before these words, and fails before the same in brackets.
            ("+", kind @ (NodeKind::Null | NodeKind::Boolean(_))) if is_groovy && self.ends_with_word() => kind,
            (sign, kind) => {
                let operand = Box::new(node(operand.at, kind));
                let receiver = self.receiver(&operand);
                let has_sign = matches!(
                    receiver,
                    None | Some(Receiver::Number | Receiver::List | Receiver::Matcher)
                );
                if is_groovy && !has_sign {
                    let what = format!(
                        "has {sign} before {}",
                        receiver.map_or("something else", Receiver::kind)
                    );
                    return Err(ScriptRefusal::new(at, what).hint("a sign stands before a number"));
                }
                if sign == "-" {
                    NodeKind::Negate(operand)
                } else {
                    NodeKind::Plus(operand)
                }
            }
        };
        Ok(node(at, kind))
    }
}

/// The operator of a comparison.
fn comparison(operator: &str) -> Option<Operator> {
    Some(match operator {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "===" => Operator::Same,
        "!==" => Operator::NotSame,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "<=>" => Operator::Compare,
        _ => return None,
    })
}

/// Groovy compares two numbers that are written out as the processor does it, to which both zeros are the same.
fn same_zeros(left: &mut Node, right: &mut Node) {
    let zero = |node: &Node| match &node.kind {
        NodeKind::Number(Number::Double(number)) if *number == 0.0 => Some(Number::Double(0.0)),
        NodeKind::Number(Number::Float(number)) if *number == 0.0 => Some(Number::Float(0.0)),
        _ => None,
    };
    let is_written_out = |node: &Node| matches!(&node.kind, NodeKind::Number(_));
    if is_written_out(left) && is_written_out(right) {
        for side in [left, right] {
            if let Some(zero) = zero(side) {
                side.kind = NodeKind::Number(zero);
            }
        }
    }
}

/// A row with one more operand.
fn with(mut operands: Vec<Node>, operand: Node) -> Vec<Node> {
    operands.push(operand);
    operands
}

fn node(at: usize, kind: NodeKind) -> Node {
    Node::new(at, kind)
}
