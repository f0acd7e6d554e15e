//! Statements: `def`, `if` and `return`.

use super::{Language, Node, NodeKind, Parser, ScriptRefusal, Token, constant, node};
use crate::cast;
use crate::number::Number;
use crate::tree::{Block, Statement};

/// Words with which a statement begins that is not evaluated.
const REFUSED: [&str; 10] = [
    "for", "while", "do", "switch", "try", "throw", "import", "class", "function", "assert",
];

impl Parser<'_> {
    /// One statement, which may give several names.
    pub(super) fn statement(&mut self, statements: &mut Vec<Statement>) -> Result<(), ScriptRefusal> {
        let at = self.at();
        let is_groovy = self.language == Language::Groovy;
        if is_groovy && self.take_word("return") {
            let is_bare =
                matches!(self.peek(), Token::End | Token::Sign(";" | "}")) || self.tokens[self.next].on_new_line;
            let value = if is_bare { None } else { Some(self.expression()?) };
            statements.push(Statement::Return(value));
            return Ok(());
        }
        if self.take_word("if") {
            statements.push(self.conditional_statement()?);
            return Ok(());
        }
        let mut declares = match self.language {
            Language::Groovy => ["def", "final", "var"].iter().any(|word| self.take_word(word)),
            Language::JavaScript => ["let", "const", "var"].iter().any(|word| self.take_word(word)),
        };
        let of_type = self.declared_type();
        declares |= of_type.is_some();
        if declares {
            return self.declarations(at, of_type.as_deref(), statements);
        }
        if let Some(word) = REFUSED.into_iter().find(|word| self.is_word(word)) {
            return Err(self.refused_statement(at, word));
        }
        statements.push(Statement::Expression(self.expression()?));
        Ok(())
    }

    fn refused_statement(&self, at: usize, word: &str) -> ScriptRefusal {
        let hint = match (word, self.language) {
            ("switch", Language::Groovy) => {
                "choose with a ? b : c, or from a map: [c: 'created', u: 'updated'][value.op]"
            }
            ("switch", Language::JavaScript) => {
                "choose with a ? b : c, or from an object: ({c: 'created', u: 'updated'})[value.op]"
            }
            _ => "write one expression; `a ? b : c` and if … else choose",
        };
        ScriptRefusal::new(at, format!("uses {word}, which Walferry does not evaluate")).hint(hint)
    }

    /// `a = 1, b = 2`
    fn declarations(
        &mut self,
        at: usize,
        of_type: Option<&str>,
        statements: &mut Vec<Statement>,
    ) -> Result<(), ScriptRefusal> {
        loop {
            let Token::Word(name) = self.advance() else {
                return Err(ScriptRefusal::new(at, "declares something without a name"));
            };
            let value = match self.is_sign(",") || self.ends_statement() {
                true => node(at, self.unset(of_type)),
                false => {
                    self.expect("=")?;
                    let value = self.expression()?;
                    match of_type.and_then(cast::to_type) {
                        // A text stays what it is.
                        Some(_) if of_type == Some("String") && matches!(value.kind, NodeKind::Text(_)) => value,
                        Some(function) => node(at, NodeKind::Function(function, vec![value])),
                        None => value,
                    }
                }
            };
            statements.push(Statement::Let(self.local(name, &value), value));
            if !self.take_sign(",") {
                return Ok(());
            }
        }
    }

    fn ends_statement(&self) -> bool {
        matches!(self.peek(), Token::End | Token::Sign(";" | "}")) || self.tokens[self.next].on_new_line
    }

    /// What a name stands for that is given no value.
    fn unset(&self, of_type: Option<&str>) -> NodeKind {
        match (of_type, self.language) {
            (Some("boolean"), _) => NodeKind::Boolean(false),
            (Some("int"), _) => NodeKind::Number(Number::Int(0)),
            (Some("long"), _) => NodeKind::Number(Number::Long(0)),
            (Some("double"), _) => NodeKind::Number(Number::Double(0.0)),
            (_, Language::Groovy) => NodeKind::Null,
            (_, Language::JavaScript) => NodeKind::Undefined,
        }
    }

    /// The place of a name, and what is known of it.
    fn local(&mut self, name: String, value: &Node) -> usize {
        let receiver = self.receiver(value);
        let constant = constant::of(value, &self.constants);
        if let Some((place, known)) = self.locals.get_mut(&name) {
            // It may be one or the other.
            *known = None;
            self.constants.remove(place);
            return *place;
        }
        let place = self.locals.len();
        self.locals.insert(name, (place, receiver));
        if let Some(constant) = constant.filter(|_| self.branches == 0) {
            self.constants.insert(place, constant);
        }
        place
    }

    /// The type of Groovy's `String name`.
    fn declared_type(&mut self) -> Option<String> {
        let ahead = self.tokens.get(self.next + 1..self.next + 3)?;
        let is_name = matches!(ahead[0].token, Token::Word(_)) && !ahead[0].on_new_line;
        let is_declared =
            matches!(ahead[1].token, Token::Sign("=" | "," | ";" | "}") | Token::End) || ahead[1].on_new_line;
        if self.language != Language::Groovy || !is_name || !is_declared {
            return None;
        }
        let Token::Word(name) = self.peek() else { return None };
        let name = name.clone();
        cast::to_type(&name)?;
        self.next += 1;
        Some(name)
    }

    fn conditional_statement(&mut self) -> Result<Statement, ScriptRefusal> {
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        self.branches += 1;
        let then = self.branch()?;
        let before = self.next;
        while self.take_sign(";") {}
        let otherwise = match self.take_word("else") {
            true => self.branch()?,
            false => {
                self.next = before;
                Block::default()
            }
        };
        self.branches -= 1;
        Ok(Statement::If {
            condition,
            then,
            otherwise,
        })
    }

    fn branch(&mut self) -> Result<Block, ScriptRefusal> {
        if !self.take_sign("{") {
            let mut statements = Vec::new();
            self.nested(|parser| parser.statement(&mut statements))?;
            return Ok(Block(statements));
        }
        let block = self.nested(|parser| parser.block(&Token::Sign("}")))?;
        self.expect("}")?;
        Ok(block)
    }
}
