//! Tokens to an expression.

use std::collections::HashMap;

use walferry_config::{JavaRegex, Replacement};

use super::method::{Function, Method, contains, no_closures};
use super::number::Number;
use super::rewritten;
use super::token::{Piece, Placed, Token, tokens};
use super::tree::{Block, FieldName, Node, NodeKind, Operator, Rewrite, Statement, Variable};
use super::{Language, ScriptRefusal};

/// How deeply expressions may be nested.
const DEEPEST: usize = 100;

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
    locals: HashMap<String, usize>,
    /// What `def m = text =~ pattern` has named, because `m` is asked for its parts.
    matchers: HashMap<String, Node>,
    depth: usize,
}

/// The level of `&&`.
const AND: usize = 1;
/// Binary operators from the loosest level to the tightest.
const LEVELS: [&[&str]; 8] = [
    &["||", "??"],
    &["&&"],
    &["=~", "==~"],
    &["==", "!=", "===", "!==", "<=>"],
    &["<", "<=", ">", ">=", "in", "!in", "instanceof", "as"],
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
            matchers: HashMap::new(),
            depth: 0,
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
        let what = format!("has {} where {sign} is expected", self.shown());
        Err(self.hinted(ScriptRefusal::new(self.at(), what)))
    }

    fn shown(&self) -> String {
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
            statements.push(self.nested(Self::statement)?);
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
            format!("does not end before {}", self.shown()),
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

    fn statement(&mut self) -> Result<Statement, ScriptRefusal> {
        let at = self.at();
        let is_groovy = self.language == Language::Groovy;
        if is_groovy && self.take_word("return") {
            let is_bare = matches!(self.peek(), Token::End | Token::Sign(";" | "}"));
            return Ok(Statement::Return(if is_bare { None } else { Some(self.expression()?) }));
        }
        if self.take_word("if") {
            return self.conditional_statement();
        }
        let mut declares = match self.language {
            Language::Groovy => ["def", "final", "var"].iter().any(|word| self.take_word(word)),
            Language::JavaScript => ["let", "const", "var"].iter().any(|word| self.take_word(word)),
        };
        let of_type = self.declared_type();
        declares |= of_type.is_some();
        if declares {
            let Token::Word(name) = self.advance() else {
                return Err(ScriptRefusal::new(at, "declares something without a name"));
            };
            self.expect("=")?;
            let mut value = self.expression()?;
            if let Some(function) = of_type {
                value = node(at, NodeKind::Function(function, vec![value]));
            }
            if self.language == Language::Groovy && matches!(value.kind, NodeKind::Find(..)) {
                self.matchers.insert(name.clone(), value.clone());
            }
            let place = self.locals.len();
            let place = *self.locals.entry(name).or_insert(place);
            return Ok(Statement::Let(place, value));
        }
        for word in [
            "for", "while", "do", "switch", "try", "throw", "import", "class", "function", "assert",
        ] {
            if self.is_word(word) {
                let hint = match word {
                    "switch" if is_groovy => {
                        "choose with a ? b : c, or from a map: [c: 'created', u: 'updated'][value.op]"
                    }
                    "switch" => "choose with a ? b : c, or from an object: ({c: 'created', u: 'updated'})[value.op]",
                    _ => "write one expression; `a ? b : c` and if … else choose",
                };
                return Err(
                    ScriptRefusal::new(at, format!("uses {word}, which Walferry does not evaluate")).hint(hint),
                );
            }
        }
        Ok(Statement::Expression(self.expression()?))
    }

    /// The type of Groovy's `String name = …`, as what makes such a value.
    fn declared_type(&mut self) -> Option<Function> {
        let is_name = |token: &Token| matches!(token, Token::Word(_));
        let ahead = self.tokens.get(self.next + 1..self.next + 3)?;
        if self.language != Language::Groovy || !is_name(&ahead[0].token) || ahead[1].token != Token::Sign("=") {
            return None;
        }
        let Token::Word(name) = self.peek() else { return None };
        let function = match name.as_str() {
            "String" => Function::ToText,
            "boolean" => Function::Truth,
            "int" => Function::ToInteger,
            "long" => Function::ToLong,
            "double" => Function::ToDouble,
            _ => return None,
        };
        self.next += 1;
        Some(function)
    }

    fn conditional_statement(&mut self) -> Result<Statement, ScriptRefusal> {
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
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
        Ok(Statement::If {
            condition,
            then,
            otherwise,
        })
    }

    fn branch(&mut self) -> Result<Block, ScriptRefusal> {
        if !self.take_sign("{") {
            return Ok(Block(vec![self.nested(Self::statement)?]));
        }
        let block = self.nested(|parser| parser.block(&Token::Sign("}")))?;
        self.expect("}")?;
        Ok(block)
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

    /// The operator of a level that comes next, if one does.
    fn operator(&self, level: usize) -> Option<&'static str> {
        let place = &self.tokens[self.next];
        let found = LEVELS[level].iter().copied().find(|operator| match &place.token {
            Token::Sign(sign) => match *operator {
                "!in" => *sign == "!" && matches!(&self.tokens[self.next + 1].token, Token::Word(word) if word == "in"),
                operator => *sign == operator,
            },
            Token::Word(word) => word == operator,
            _ => false,
        })?;
        let is_groovy = self.language == Language::Groovy;
        let fits = match found {
            "=~" | "==~" | "<=>" | "!in" | "as" | ".." | "..<" => is_groovy,
            "??" => !is_groovy,
            // At the beginning of a line these begin another statement.
            "+" | "-" => !place.on_new_line || self.depth > 3,
            _ => true,
        };
        fits.then_some(found)
    }

    fn binary(&mut self, level: usize) -> Result<Node, ScriptRefusal> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(level) {
            let at = self.at();
            self.next += if operator == "!in" { 2 } else { 1 };
            left = self.joined(at, operator, left, level)?;
        }
        if level == AND
            && (self.is_sign("&") || self.is_sign("|"))
            && let Some(instead) = rewritten::doubled(self.text, &left, &self.tokens, self.next)
        {
            return Err(self.unexpected().hint(instead));
        }
        Ok(left)
    }

    fn joined(&mut self, at: usize, operator: &'static str, left: Node, level: usize) -> Result<Node, ScriptRefusal> {
        if matches!(operator, "as" | "instanceof") {
            return self.of_type(at, operator, left);
        }
        let right = self.binary(level + 1)?;
        let (left, right) = (Box::new(left), Box::new(right));
        let operation = |operator, left, right| NodeKind::Binary(operator, left, right);
        let kind = match operator {
            "||" => NodeKind::Or(left, right),
            "&&" => NodeKind::And(left, right),
            "??" => NodeKind::Coalesce(left, right),
            "=~" => NodeKind::Find(left, regex(*right)?),
            "==~" => NodeKind::Match(left, regex(*right)?),
            "in" if self.language == Language::JavaScript => {
                let hint = "write ['a', 'b'].includes(…) for lists";
                return Err(
                    ScriptRefusal::new(at, "uses in, which asks for names of properties in JavaScript").hint(hint),
                );
            }
            "in" | "!in" => NodeKind::In {
                of: left,
                among: right,
                negated: operator == "!in",
            },
            ".." | "..<" => NodeKind::Range {
                from: left,
                to: right,
                exclusive: operator == "..<",
            },
            "==" => operation(Operator::Equal, left, right),
            "!=" => operation(Operator::NotEqual, left, right),
            "===" => operation(Operator::Same, left, right),
            "!==" => operation(Operator::NotSame, left, right),
            "<" => operation(Operator::Less, left, right),
            "<=" => operation(Operator::LessOrEqual, left, right),
            ">" => operation(Operator::Greater, left, right),
            ">=" => operation(Operator::GreaterOrEqual, left, right),
            "<=>" => operation(Operator::Compare, left, right),
            "+" => operation(Operator::Add, left, right),
            "-" => operation(Operator::Subtract, left, right),
            "*" => operation(Operator::Multiply, left, right),
            "/" => operation(Operator::Divide, left, right),
            _ => operation(Operator::Remainder, left, right),
        };
        Ok(node(at, kind))
    }

    fn of_type(&mut self, at: usize, operator: &str, left: Node) -> Result<Node, ScriptRefusal> {
        let Token::Word(mut name) = self.advance() else {
            return Err(ScriptRefusal::new(
                at,
                format!("has {operator} without a type behind it"),
            ));
        };
        while self.take_sign(".") {
            let Token::Word(part) = self.advance() else {
                return Err(ScriptRefusal::new(
                    at,
                    format!("has {operator} without a type behind it"),
                ));
            };
            name = format!("{name}.{part}");
        }
        let function = match (operator, name.as_str()) {
            ("as", "String") => Function::ToText,
            ("as", "Integer" | "int") => Function::ToInteger,
            ("as", "Long" | "long") => Function::ToLong,
            ("as", "Double" | "double") => Function::ToDouble,
            ("as", "Boolean" | "boolean") => Function::Truth,
            ("instanceof", "String" | "CharSequence") => Function::IsText,
            ("instanceof", "Number") => Function::IsNumber,
            ("instanceof", "Boolean") => Function::IsBoolean,
            // Scripts import no classes of Kafka Connect.
            ("instanceof", "org.apache.kafka.connect.data.Struct") => Function::IsStruct,
            _ => {
                let hint = "types that are known: String, Integer, Long, Double, Boolean; for instanceof String, Number, Boolean, \
                            org.apache.kafka.connect.data.Struct";
                return Err(ScriptRefusal::new(
                    at,
                    format!("has {operator} {name}, a type that Walferry does not know here"),
                )
                .hint(hint));
            }
        };
        Ok(node(at, NodeKind::Function(function, vec![left])))
    }

    fn unary(&mut self) -> Result<Node, ScriptRefusal> {
        let at = self.at();
        for sign in ["!", "-", "+"] {
            if self.take_sign(sign) {
                let operand = Box::new(self.nested(Self::unary)?);
                return Ok(match sign {
                    "!" => node(at, NodeKind::Not(operand)),
                    "-" => node(at, NodeKind::Negate(operand)),
                    _ if self.language == Language::JavaScript => {
                        node(at, NodeKind::Function(Function::ToNumber, vec![*operand]))
                    }
                    _ => *operand,
                });
            }
        }
        if self.language == Language::JavaScript && self.take_word("typeof") {
            let operand = self.nested(Self::unary)?;
            return Ok(node(at, NodeKind::Function(Function::TypeOf, vec![operand])));
        }
        if let Some(function) = self.cast() {
            let operand = self.nested(Self::unary)?;
            return Ok(node(at, NodeKind::Function(function, vec![operand])));
        }
        self.postfix()
    }

    /// `(boolean)` and the like.
    fn cast(&mut self) -> Option<Function> {
        if self.language != Language::Groovy || !self.is_sign("(") || self.next + 2 >= self.tokens.len() {
            return None;
        }
        let function = match (&self.tokens[self.next + 1].token, &self.tokens[self.next + 2].token) {
            (Token::Word(word), Token::Sign(")")) => match word.as_str() {
                "boolean" | "Boolean" => Function::Truth,
                "int" | "Integer" => Function::ToInteger,
                "long" | "Long" => Function::ToLong,
                "double" | "Double" => Function::ToDouble,
                "String" => Function::ToText,
                _ => return None,
            },
            _ => return None,
        };
        self.next += 3;
        Some(function)
    }

    fn postfix(&mut self) -> Result<Node, ScriptRefusal> {
        let begin = self.at();
        let mut of = self.primary()?;
        loop {
            let at = self.at();
            let is_new_line = self.tokens[self.next].on_new_line;
            if self.take_sign(".") {
                of = self.member(begin, at, of, false)?;
            } else if self.take_sign("?.[") {
                of = self.index(at, of, true)?;
            } else if self.take_sign("?.") {
                of = self.member(begin, at, of, true)?;
            } else if !is_new_line && self.take_sign("[") {
                of = self.index(at, of, false)?;
            } else if self.language == Language::Groovy && self.take_sign("?[") {
                of = self.index(at, of, true)?;
            } else {
                return Ok(of);
            }
        }
    }

    fn index(&mut self, at: usize, of: Node, safe: bool) -> Result<Node, ScriptRefusal> {
        let index = Box::new(self.expression()?);
        self.expect("]")?;
        if let (NodeKind::Find(of, regex), Language::Groovy) = (&of.kind, self.language) {
            let (of, regex) = (of.clone(), regex.clone());
            return Ok(node(
                at,
                NodeKind::Found {
                    of,
                    regex,
                    number: index,
                },
            ));
        }
        let of = Box::new(of);
        Ok(node(at, NodeKind::Index { of, index, safe }))
    }

    /// What stands behind a dot. `begin` is where the text before the dot begins.
    fn member(&mut self, begin: usize, at: usize, of: Node, safe: bool) -> Result<Node, ScriptRefusal> {
        let name = match self.advance() {
            Token::Word(name) | Token::Text(name) => name,
            _ => {
                self.next -= 1;
                return Err(ScriptRefusal::new(
                    self.at(),
                    format!("has {} where a name is expected", self.shown()),
                ));
            }
        };
        let text = self.text;
        let receiver = text.get(begin..at).unwrap_or_default().trim();
        let dot = if safe { "?." } else { "." };
        if let Some(instead) = rewritten::closure(text, receiver, dot, &name, &self.tokens[self.next..]) {
            let what = format!("calls {name} with a closure, which Walferry does not evaluate");
            return Err(ScriptRefusal::new(at, what).hint(instead));
        }
        if self.is_sign("{") {
            return Err(self.unexpected());
        }
        if !self.is_sign("(") {
            self.known_property(at, &of, &name)?;
            let of = Box::new(of);
            return Ok(node(
                at,
                NodeKind::Property {
                    of,
                    name: FieldName::new(name),
                    safe,
                },
            ));
        }
        let open = self.at();
        let arguments = self.arguments()?;
        let inside = text.get(open + 1..self.tokens[self.next - 1].at).unwrap_or_default();
        let before = self.tokens[..self.next].iter().rfind(|token| token.at < begin);
        let is_apart = rewritten::is_apart(before.map(|token| &token.token), self.peek());
        let instead = rewritten::operator(receiver, &name, &arguments, inside, is_apart).filter(|_| !safe);
        self.call(at, of, &name, arguments, safe)
            .map_err(|refusal| match instead {
                Some(instead) => refusal.hint(instead),
                None => refusal,
            })
    }

    /// Refuses properties that no record has.
    fn known_property(&self, at: usize, of: &Node, name: &str) -> Result<(), ScriptRefusal> {
        let has_length = self.language == Language::JavaScript;
        let (what, hint) = match &of.kind {
            NodeKind::Variable(Variable::Topic) if has_length => ("topic", "the property of a text is length"),
            NodeKind::Variable(Variable::Topic) => ("topic", "call a method, such as topic.length()"),
            NodeKind::Rewrite {
                how: Rewrite::Groups { .. },
                ..
            } => ("a match", "ask for its text with [0], or for a group with [1]"),
            _ => return Ok(()),
        };
        match has_length && name == "length" {
            true => Ok(()),
            false => {
                Err(ScriptRefusal::new(at, format!("asks {what} for {name}, which Walferry does not know")).hint(hint))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Node>, ScriptRefusal> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            if self.is_sign("{") {
                return Err(self.unexpected());
            }
            arguments.push(self.expression()?);
            if !self.is_sign(")") {
                self.expect(",")?;
            }
        }
        Ok(arguments)
    }

    fn call(
        &self,
        at: usize,
        of: Node,
        name: &str,
        mut arguments: Vec<Node>,
        safe: bool,
    ) -> Result<Node, ScriptRefusal> {
        if let NodeKind::Regex { regex, .. } = of.kind {
            return match (name, arguments.pop(), arguments.is_empty()) {
                ("test", Some(text), true) => Ok(node(at, NodeKind::Find(text.into(), regex))),
                _ => Err(ScriptRefusal::new(
                    at,
                    "uses a regular expression for something else than .test(text)",
                )),
            };
        }
        // What `=~` makes is asked itself.
        if let (NodeKind::Find(text, regex), Language::Groovy, true) = (&of.kind, self.language, arguments.is_empty()) {
            let (text, regex) = (text.clone(), regex.clone());
            match name {
                "find" | "asBoolean" => return Ok(node(at, NodeKind::Find(text, regex))),
                "matches" => return Ok(node(at, NodeKind::Match(text, regex))),
                _ => {}
            }
        }
        let of = Box::new(of);
        if let Some((how, regex)) = self.rewrite(at, name, &mut arguments)? {
            return Ok(node(at, NodeKind::Rewrite { of, how, regex, safe }));
        }
        match Method::find(name, arguments.len(), self.language) {
            Some(method) => Ok(node(
                at,
                NodeKind::Call {
                    of,
                    method,
                    arguments,
                    safe,
                },
            )),
            None => Err(Method::refusal(at, name, arguments.len(), self.language)),
        }
    }

    /// A method that takes a regular expression.
    fn rewrite(
        &self,
        at: usize,
        name: &str,
        arguments: &mut Vec<Node>,
    ) -> Result<Option<(Rewrite, JavaRegex)>, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        let first_is_regex = matches!(arguments.first().map(|first| &first.kind), Some(NodeKind::Regex { .. }));
        let takes_one = match (name, arguments.len()) {
            ("matches" | "split", 1) | ("replaceAll" | "replaceFirst", 2) => is_groovy || first_is_regex,
            ("match" | "search", 1) | ("replace", 2) => first_is_regex,
            _ => false,
        };
        if !takes_one {
            return Ok(None);
        }
        let replacement = match arguments.len() {
            2 => arguments.pop(),
            _ => None,
        };
        let Some(first) = arguments.pop() else { return Ok(None) };
        let replaces_all = name == "replaceAll" || matches!(first.kind, NodeKind::Regex { all: true, .. });
        let regex = regex(first)?;
        let how = match (name, replacement) {
            ("split", _) => Rewrite::Split,
            ("search", _) => return Err(ScriptRefusal::new(at, "uses search").hint("write /…/.test(text)")),
            (_, None) if is_groovy => Rewrite::Matches,
            (_, None) => Rewrite::Groups { all: replaces_all },
            (
                _,
                Some(Node {
                    at,
                    kind: NodeKind::Text(text),
                }),
            ) => {
                let text = if is_groovy { text } else { java_replacement(&text) };
                let parsed = Replacement::parse(&text, &regex);
                let parsed =
                    parsed.map_err(|error| ScriptRefusal::new(at, format!("has {text:?}, which is not {error}")))?;
                match replaces_all {
                    true => Rewrite::ReplaceAll(parsed),
                    false => Rewrite::ReplaceFirst(parsed),
                }
            }
            (_, Some(other)) => return Err(ScriptRefusal::new(other.at, NOT_WRITTEN_OUT)),
        };
        Ok(Some((how, regex)))
    }

    fn primary(&mut self) -> Result<Node, ScriptRefusal> {
        let at = self.at();
        let kind = match self.advance() {
            Token::Text(text) => NodeKind::Text(text),
            Token::Template(pieces) => NodeKind::Template(self.pieces(pieces)?),
            Token::Number(digits) => {
                let number = Number::literal(&digits, self.language);
                NodeKind::Number(number.ok_or_else(|| {
                    ScriptRefusal::new(at, format!("has {digits}, which is no number that can be used"))
                })?)
            }
            Token::Regex { pattern, flags } => {
                if flags.chars().any(|flag| !matches!(flag, 'g' | 'i' | 'u')) {
                    return Err(ScriptRefusal::new(
                        at,
                        format!("has the flags {flags}; g and i are known"),
                    ));
                }
                let built = match flags.contains('i') {
                    true => JavaRegex::ignoring_case(&pattern),
                    false => JavaRegex::new(&pattern),
                };
                NodeKind::Regex {
                    regex: built
                        .map_err(|error| ScriptRefusal::new(at, format!("has a regular expression: {error}")))?,
                    all: flags.contains('g'),
                }
            }
            Token::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => self.list_or_map()?,
            Token::Sign("{") if self.language == Language::JavaScript => self.entries("}")?,
            Token::Word(word) => return self.word(at, word),
            _ => {
                self.next = self.next.saturating_sub(usize::from(self.tokens[self.next].at != at));
                let shown = self.shown();
                let refusal = ScriptRefusal::new(at, format!("has {shown} where a value is expected"));
                return Err(if self.is_sign("{") {
                    refusal.hint(no_closures(self.language))
                } else {
                    refusal
                });
            }
        };
        Ok(node(at, kind))
    }

    fn pieces(&mut self, pieces: Vec<Piece>) -> Result<Vec<Node>, ScriptRefusal> {
        let mut nodes = Vec::with_capacity(pieces.len());
        for piece in pieces {
            nodes.push(match piece {
                Piece::Text(text) => node(0, NodeKind::Text(text)),
                Piece::Source { at, text } => {
                    let mut inner = tokens(&text, self.language).map_err(|refusal| refusal.moved(at))?;
                    for token in &mut inner {
                        token.at += at;
                    }
                    let outer = std::mem::replace(&mut self.tokens, inner);
                    let next = std::mem::take(&mut self.next);
                    let parsed = self.expression();
                    let is_whole = matches!(self.peek(), Token::End);
                    let rest = self.at();
                    (self.tokens, self.next) = (outer, next);
                    let parsed = parsed?;
                    if !is_whole {
                        return Err(ScriptRefusal::new(rest, "has more than one expression to fill in"));
                    }
                    parsed
                }
            });
        }
        Ok(nodes)
    }

    fn list_or_map(&mut self) -> Result<NodeKind, ScriptRefusal> {
        if self.language == Language::Groovy {
            if self.take_sign(":") {
                self.expect("]")?;
                return Ok(NodeKind::Map(Vec::new()));
            }
            let is_name = matches!(self.peek(), Token::Word(_) | Token::Text(_) | Token::Number(_));
            if is_name && matches!(self.tokens[self.next + 1].token, Token::Sign(":")) {
                return self.entries("]");
            }
        }
        let mut elements = Vec::new();
        while !self.take_sign("]") {
            elements.push(self.expression()?);
            if !self.is_sign("]") {
                self.expect(",")?;
            }
        }
        Ok(NodeKind::List(elements))
    }

    /// Members of a map, where a bare name is a text.
    fn entries(&mut self, end: &'static str) -> Result<NodeKind, ScriptRefusal> {
        let mut entries = Vec::new();
        while !self.take_sign(end) {
            let at = self.at();
            let name = match self.peek().clone() {
                Token::Word(name) => {
                    self.next += 1;
                    node(at, NodeKind::Text(name))
                }
                Token::Sign("(") | Token::Text(_) | Token::Number(_) => self.primary()?,
                _ => {
                    return Err(ScriptRefusal::new(
                        at,
                        format!("has {} where a name is expected", self.shown()),
                    ));
                }
            };
            self.expect(":")?;
            entries.push((name, self.expression()?));
            if !self.is_sign(end) {
                self.expect(",")?;
            }
        }
        Ok(NodeKind::Map(entries))
    }

    fn word(&mut self, at: usize, word: String) -> Result<Node, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        let kind = match word.as_str() {
            "true" => NodeKind::Boolean(true),
            "false" => NodeKind::Boolean(false),
            "null" => NodeKind::Null,
            "undefined" if !is_groovy => NodeKind::Undefined,
            "NaN" if !is_groovy => NodeKind::Number(Number::Double(f64::NAN)),
            "new" => {
                let contains = contains(self.language);
                let hint = format!(
                    "fields of JSON in a column: write them into columns of their own, or filter on text with {contains}(…)"
                );
                return Err(
                    ScriptRefusal::new(at, "makes a Java object with new, which Walferry does not do").hint(hint),
                );
            }
            "it" => return Err(ScriptRefusal::new(at, "uses it").hint(no_closures(self.language))),
            _ => {
                if let Some(matcher) = self.matchers.get(&word) {
                    return Ok(matcher.clone());
                }
                if let Some(place) = self.locals.get(&word) {
                    NodeKind::Local(*place)
                } else if let Some((_, variable)) = Variable::NAMES.iter().find(|(name, _)| *name == word) {
                    NodeKind::Variable(*variable)
                } else {
                    return self.function(at, word);
                }
            }
        };
        Ok(node(at, kind))
    }

    /// A function that belongs to nothing in the record: `Integer.parseInt(…)`, `Number(…)`.
    fn function(&mut self, at: usize, mut name: String) -> Result<Node, ScriptRefusal> {
        while self.take_sign(".") {
            let Token::Word(part) = self.advance() else {
                return Err(ScriptRefusal::new(at, format!("uses {name}, which is not known here")));
            };
            name = format!("{name}.{part}");
        }
        if let Some(constant) = constant(&name, self.language) {
            return Ok(node(at, constant));
        }
        if self.is_sign("=>") || self.is_sign("->") {
            return Err(self.unexpected());
        }
        if self.is_sign("(") {
            let arguments = self.arguments()?;
            return match Function::find(&name, arguments.len(), self.language) {
                Some(function) => Ok(node(at, NodeKind::Function(function, arguments))),
                None => {
                    let hint = Function::hint(&name, self.language);
                    Err(ScriptRefusal::new(at, format!("calls {name}, which Walferry does not know")).hint(hint))
                }
            };
        }
        let hint = match name.as_str() {
            "headers" => "the headers are in `header`: header.name.value".to_owned(),
            "record" | "event" | "payload" => "the record's value is `value`".to_owned(),
            "op" | "operation" => "write value.op".to_owned(),
            "before" | "after" | "source" => format!("write value.{name}"),
            _ => "there are: value, key, topic, header, valueSchema, keySchema; text stands in quotes".to_owned(),
        };
        Err(ScriptRefusal::new(at, format!("uses {name}, which is not there")).hint(hint))
    }
}

/// Constants of Java's classes.
fn constant(name: &str, language: Language) -> Option<NodeKind> {
    Some(match (name, language) {
        ("Boolean.TRUE", Language::Groovy) => NodeKind::Boolean(true),
        ("Boolean.FALSE", Language::Groovy) => NodeKind::Boolean(false),
        ("Integer.MAX_VALUE", Language::Groovy) => NodeKind::Number(Number::Int(i32::MAX)),
        ("Integer.MIN_VALUE", Language::Groovy) => NodeKind::Number(Number::Int(i32::MIN)),
        ("Long.MAX_VALUE", Language::Groovy) => NodeKind::Number(Number::Long(i64::MAX)),
        ("Long.MIN_VALUE", Language::Groovy) => NodeKind::Number(Number::Long(i64::MIN)),
        _ => return None,
    })
}

const NOT_WRITTEN_OUT: &str = "has a regular expression or a replacement that is not written out as a text";

fn node(at: usize, kind: NodeKind) -> Node {
    Node { at, kind }
}

/// The regular expression that a text is.
fn regex(node: Node) -> Result<JavaRegex, ScriptRefusal> {
    match node.kind {
        NodeKind::Text(pattern) => JavaRegex::new(&pattern)
            .map_err(|error| ScriptRefusal::new(node.at, format!("has a regular expression: {error}"))),
        NodeKind::Regex { regex, .. } => Ok(regex),
        _ => Err(ScriptRefusal::new(node.at, NOT_WRITTEN_OUT)),
    }
}

/// JavaScript's replacement in Java's notation.
fn java_replacement(text: &str) -> String {
    text.replace('\\', "\\\\").replace("$$", "\\$").replace("$&", "$0")
}
