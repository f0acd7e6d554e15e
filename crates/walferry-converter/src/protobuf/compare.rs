//! Whether values of two Protobuf schemas are the same bytes.

/// Looks up each field of ours in theirs: who reads with theirs then reads what was written. Fields that only theirs has do no harm,
/// as a reader takes them for absent.
///
/// # Errors
/// Says where they differ.
pub(crate) fn same_bytes(ours: &str, theirs: &str) -> Result<(), String> {
    let not_read = || "it is no Protobuf schema".to_owned();
    let ours = File::read(ours).ok_or_else(not_read)?;
    let theirs = File::read(theirs).ok_or_else(not_read)?;
    // A record tells its message by the place in the file, and ours is the first.
    if ours.first != theirs.first {
        return Err(format!(
            "the record is a {}, the first message of the registered schema a {}",
            ours.first, theirs.first
        ));
    }
    for field in &ours.fields {
        let same = |other: &&Field| other.message == field.message && other.name == field.name;
        let Some(other) = theirs.fields.iter().find(same) else {
            return Err(format!(
                "field {} of {} is not in the registered schema",
                field.name, field.message
            ));
        };
        if other.number != field.number {
            return Err(format!(
                "field {} of {}: the record has the number {}, the registered schema {}",
                field.name, field.message, field.number, other.number
            ));
        }
        let is_map = field.repeated && other.kind.starts_with("map<");
        if !is_map && (&other.kind, other.repeated) != (&field.kind, field.repeated) {
            return Err(format!(
                "field {} of {}: the record has {}, the registered schema {}",
                field.name,
                field.message,
                field.type_text(),
                other.type_text()
            ));
        }
    }
    Ok(())
}

/// Whether two texts are of one schema, however they are laid out.
pub(crate) fn is_same(ours: &str, theirs: &str) -> bool {
    let tight = |text: &str| text.split_whitespace().collect::<String>();
    tight(ours) == tight(theirs) || (same_bytes(ours, theirs).is_ok() && same_bytes(theirs, ours).is_ok())
}

struct File {
    first: String,
    fields: Vec<Field>,
}

struct Field {
    /// The message, from the outside in.
    message: String,
    name: String,
    /// The type without its package.
    kind: String,
    number: i64,
    repeated: bool,
}

impl Field {
    fn type_text(&self) -> String {
        match self.repeated {
            true => format!("repeated {}", self.kind),
            false => self.kind.clone(),
        }
    }
}

impl File {
    fn read(text: &str) -> Option<Self> {
        let tokens = tokens(text);
        let mut reader = Reader {
            tokens: &tokens,
            depth: 0,
            fields: Vec::new(),
            first: None,
        };
        while let Some(token) = reader.next() {
            match token {
                ";" => {}
                "message" => reader.message("")?,
                "enum" | "service" | "extend" => {
                    reader.next()?;
                    reader.block()?;
                }
                "syntax" | "edition" | "package" | "import" | "option" => reader.statement()?,
                _ => return None,
            }
        }
        Some(Self {
            first: reader.first?,
            fields: reader.fields,
        })
    }
}

/// Maximum depth of messages in messages. Each takes some of the stack.
const DEEPEST: usize = 100;

struct Reader<'a> {
    tokens: &'a [&'a str],
    depth: usize,
    fields: Vec<Field>,
    first: Option<String>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (token, tail) = self.tokens.split_first()?;
        self.tokens = tail;
        Some(token)
    }

    /// Goes behind the next semicolon that stands in no brackets.
    fn statement(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            match self.next()? {
                "{" | "[" => depth += 1,
                "}" | "]" => depth -= 1,
                ";" if depth == 0 => return Some(()),
                _ => {}
            }
        }
    }

    /// Goes behind a block.
    fn block(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            match self.next()? {
                "{" => depth += 1,
                "}" if depth == 1 => return Some(()),
                "}" => depth -= 1,
                _ => {}
            }
        }
    }

    fn message(&mut self, around: &str) -> Option<()> {
        let name = self.next()?;
        let path = match around {
            "" => name.to_owned(),
            around => format!("{around}.{name}"),
        };
        self.first.get_or_insert_with(|| path.clone());
        (self.next()? == "{").then_some(())?;
        self.body(&path)
    }

    fn body(&mut self, path: &str) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEEPEST).then_some(())?;
        let read = self.fields_of(path);
        self.depth -= 1;
        read
    }

    fn fields_of(&mut self, path: &str) -> Option<()> {
        loop {
            match self.next()? {
                "}" => return Some(()),
                ";" => {}
                "message" => self.message(path)?,
                "enum" | "extend" => {
                    self.next()?;
                    self.block()?;
                }
                "oneof" => {
                    self.next()?;
                    (self.next()? == "{").then_some(())?;
                    self.body(path)?;
                }
                "option" | "reserved" | "extensions" => self.statement()?,
                "optional" | "required" => {
                    let kind = self.next()?;
                    self.field(path, kind, false)?;
                }
                "repeated" => {
                    let kind = self.next()?;
                    self.field(path, kind, true)?;
                }
                "map" if self.tokens.first() == Some(&"<") => {
                    let mut kind = String::from("map");
                    while !kind.ends_with('>') {
                        kind.push_str(self.next()?);
                    }
                    self.field(path, &kind, true)?;
                }
                kind => self.field(path, kind, false)?,
            }
        }
    }

    fn field(&mut self, path: &str, kind: &str, repeated: bool) -> Option<()> {
        let name = self.next()?.to_owned();
        (self.next()? == "=").then_some(())?;
        let number = self.next()?.parse().ok()?;
        let kind = match kind.starts_with("map<") {
            true => kind,
            false => kind.rsplit('.').next().unwrap_or(kind),
        };
        self.fields.push(Field {
            message: path.to_owned(),
            name,
            kind: kind.to_owned(),
            number,
            repeated,
        });
        self.statement()
    }
}

/// Words, texts and signs, without comments.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut tail = text;
    loop {
        tail = tail.trim_start();
        let Some(first) = tail.chars().next() else { return found };
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
        let length = match first {
            '/' if tail.starts_with("//") => {
                tail = tail.split_once('\n').map_or("", |(_, tail)| tail);
                continue;
            }
            '/' if tail.starts_with("/*") => {
                tail = tail.split_once("*/").map_or("", |(_, tail)| tail);
                continue;
            }
            '"' | '\'' => {
                let mut escaped = false;
                let end = tail[1..].find(|c| {
                    let ends = c == first && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                end.map_or(tail.len(), |end| end + 2)
            }
            c if is_word(c) => tail.find(|c| !is_word(c)).unwrap_or(tail.len()),
            c => c.len_utf8(),
        };
        found.push(&tail[..length]);
        tail = &tail[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "syntax = \"proto3\";\npackage a;\n\nmessage V {\n  int32 id = 1;\n  P p = 2;\n  repeated hEntry m = 3;\n  \
                        confluent.type.Decimal n = 4 [(confluent.field_meta) = {\n    params: [\n      {\n        value: \"2;}\",\n        key: \
                        \"scale\"\n      }\n    ]\n  }];\n\n  message P {\n    string x = 1;\n  }\n  message hEntry {\n    string key = 1;\n  }\n}\n";

    #[test]
    fn layout_comments_options_and_more_fields_do_not_count() {
        let theirs = "syntax = 'proto3'; // by hand\nimport \"x.proto\";\npackage a; option java_package = \"x\";\nmessage V { /* first */ \
                      optional int32 id = 1 [deprecated = true]; .a.V.P p = 2; map<string, string> m = 3; reserved 9 to max; Decimal n = 4;\n\
                      oneof o { string more = 10; } enum E { A = 0; } message P { string x = 1; } message hEntry { string key = 1; } }\n\
                      message Other { int32 id = 7; }";
        assert_eq!(same_bytes(OURS, theirs), Ok(()));
        assert!(!is_same(OURS, theirs));
        assert!(is_same(OURS, &OURS.replace('\n', "  \n")));
    }

    #[test]
    fn a_difference_is_told_with_its_field() {
        let cases = [
            (
                OURS.replace("int32 id", "int64 id"),
                "field id of V: the record has int32, the registered schema int64",
            ),
            (
                OURS.replace("P p = 2", "P p = 5"),
                "field p of V: the record has the number 2, the registered schema 5",
            ),
            (
                OURS.replace("string x", "string y"),
                "field x of V.P is not in the registered schema",
            ),
            (
                OURS.replace("P p", "repeated P p"),
                "field p of V: the record has P, the registered schema repeated P",
            ),
            (
                OURS.replace("message V", "message W"),
                "the record is a V, the first message of the registered schema a W",
            ),
            ("{}".to_owned(), "it is no Protobuf schema"),
        ];
        for (theirs, expected) in cases {
            assert_eq!(same_bytes(OURS, &theirs).unwrap_err(), expected);
            assert!(!is_same(OURS, &theirs));
        }
    }

    #[test]
    fn messages_in_messages_do_not_take_the_stack() {
        for (open, close) in [("message a {", "}"), ("oneof a {", "}")] {
            let deep = |depth| format!("message a {{ {} {} }}", open.repeat(depth), close.repeat(depth));
            assert!(same_bytes(OURS, &deep(50)).is_err_and(|why| why.contains("first message")));
            assert_eq!(
                same_bytes(OURS, &deep(300_000)).unwrap_err(),
                "it is no Protobuf schema"
            );
        }
    }
}
