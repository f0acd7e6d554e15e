//! Casts, `as` and `instanceof`.

use super::{Language, Node, NodeKind, Parser, ScriptRefusal, Token, node};
use crate::cast::{JavaType, as_type, to_type};
use crate::function::Function;

impl Parser<'_> {
    /// The name of a type, with dots.
    fn type_name(&mut self, at: usize, operator: &str) -> Result<String, ScriptRefusal> {
        let missing = || ScriptRefusal::new(at, format!("has {operator} without a type behind it"));
        let Token::Word(mut name) = self.advance() else {
            return Err(missing());
        };
        while self.take_sign(".") {
            let Token::Word(part) = self.advance() else {
                return Err(missing());
            };
            name = format!("{name}.{part}");
        }
        Ok(name)
    }

    /// `value as type`
    pub(super) fn as_type(&mut self, at: usize, left: Node) -> Result<Node, ScriptRefusal> {
        let name = self.type_name(at, "as")?;
        match as_type(&name) {
            Some(function) => Ok(node(at, NodeKind::Function(function, vec![left]))),
            None => {
                let what = format!("has as {name}, a type that Walferry does not know");
                let hint = "types that are known behind as: String, Integer, Long, Double, Boolean, int, long, double, boolean, List, Set";
                Err(ScriptRefusal::new(at, what).hint(hint))
            }
        }
    }

    /// `value instanceof type`, or `value !instanceof type`.
    pub(super) fn instance_of(&mut self, at: usize, left: Node, negated: bool) -> Result<Node, ScriptRefusal> {
        if self.language == Language::JavaScript {
            let refusal = ScriptRefusal::new(
                at,
                "uses instanceof, which is false for values of the record in JavaScript",
            );
            return Err(refusal.hint("write typeof … === 'string'"));
        }
        let name = self.type_name(at, "instanceof")?;
        match JavaType::of(&name) {
            Some(kind) => {
                let of = Box::new(left);
                Ok(node(at, NodeKind::InstanceOf { of, kind, negated }))
            }
            None => {
                let what = format!("has instanceof {name}, a type that Walferry does not know");
                let hint = "types that are known behind instanceof: String, CharSequence, Number, Byte, Short, Integer, Long, Float, Double, \
                            BigDecimal, Boolean, List, Set, Map, Date, org.apache.kafka.connect.data.Struct";
                Err(ScriptRefusal::new(at, what).hint(hint))
            }
        }
    }

    /// `(boolean)` and the like.
    pub(super) fn cast(&mut self) -> Option<Function> {
        if self.language != Language::Groovy || !self.is_sign("(") {
            return None;
        }
        let [word, bracket] = self.tokens.get(self.next + 1..self.next + 3)? else {
            return None;
        };
        let (Token::Word(name), Token::Sign(")")) = (&word.token, &bracket.token) else {
            return None;
        };
        let function = to_type(name)?;
        self.next += 3;
        Some(function)
    }
}
