//! What is done to single columns, and which of them make the key.

use walferry_java::hash;

use crate::properties;
use crate::property::{Group, Property};
use crate::reader::Reader;
use crate::regex::{JavaRegex, RegexList};
use crate::secret::Secret;
use crate::value::{Value, ValueError};

/// What is done to single columns, and which of them make the key. Columns are matched as `schema.table.column`.
///
/// Debezium applies only the first rule that matches a column, in the order of these fields, and none to a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnSection {
    /// `column.truncate.to.<length>.chars`
    pub truncate: Vec<LengthRule>,
    /// `column.mask.with.<length>.chars`
    pub mask: Vec<LengthRule>,
    /// `column.propagate.source.type`
    pub propagate_source_type: RegexList,
    /// `datatype.propagate.source.type`, matched as `schema.table.TYPE`.
    pub propagate_source_type_of_datatype: RegexList,
    /// `column.mask.hash.<algorithm>.with.salt.<salt>`, then `column.mask.hash.v2.…`
    pub hash: Vec<HashRule>,
    /// `message.key.columns`: each matches key columns; the key has them in this order.
    pub message_key_columns: Vec<RegexList>,
}

/// Truncation to, or a mask of, so many characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthRule {
    /// Which columns.
    pub columns: RegexList,
    /// How many characters.
    pub length: u32,
}

/// A salted hash in place of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashRule {
    /// Which columns.
    pub columns: RegexList,
    /// Which hash.
    pub algorithm: HashAlgorithm,
    /// What is hashed before the value.
    pub salt: Secret,
    /// How the value is turned into bytes.
    pub version: HashVersion,
}

/// How a value is turned into the bytes that are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HashVersion {
    /// As Java serialises a `String`.
    V1,
    /// Its text in UTF-8.
    V2,
}

/// The hashes of the Java platform that Walferry has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// `MD5`
    Md5,
    /// `SHA-1`, also written `SHA` or `SHA1`.
    Sha1,
    /// `SHA-224`
    Sha224,
    /// `SHA-256`
    #[default]
    Sha256,
    /// `SHA-384`
    Sha384,
    /// `SHA-512`
    Sha512,
}

impl Value for HashAlgorithm {
    const TYPE: &'static str = "hash";
    const VALUES: &'static [&'static str] = &["MD5", "SHA-1", "SHA-224", "SHA-256", "SHA-384", "SHA-512"];
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text.to_ascii_uppercase().as_str() {
            "MD5" => Ok(Self::Md5),
            "SHA-1" | "SHA1" | "SHA" => Ok(Self::Sha1),
            "SHA-224" | "SHA224" => Ok(Self::Sha224),
            "SHA-256" | "SHA256" => Ok(Self::Sha256),
            "SHA-384" | "SHA384" => Ok(Self::Sha384),
            "SHA-512" | "SHA512" => Ok(Self::Sha512),
            _ => Err(ValueError::not_one_of(text, Self::VALUES)),
        }
    }
}

/// An expression that is to match columns, for `check`.
#[derive(Debug, Clone)]
pub struct ColumnPattern<'c> {
    /// The name of its property, as it may be shown.
    pub property: String,
    /// Which expression of the property it is, counted from one.
    pub number: usize,
    /// It matches `schema.table.column`.
    pub expression: &'c JavaRegex,
}

impl ColumnSection {
    /// Every expression of these properties that is to match columns.
    pub fn patterns(&self) -> impl Iterator<Item = ColumnPattern<'_>> {
        let of_length = |pattern: &str, rule: &LengthRule| pattern.replace("<length>", &rule.length.to_string());
        // The name of a hash has its salt in it, so that is told as it is declared.
        let of_hash = |rule: &HashRule| match rule.version {
            HashVersion::V1 => HASH.name().to_owned(),
            HashVersion::V2 => HASH_V2.name().to_owned(),
        };
        let truncate = self
            .truncate
            .iter()
            .map(move |rule| (of_length(TRUNCATE.name(), rule), &rule.columns));
        let mask = self
            .mask
            .iter()
            .map(move |rule| (of_length(MASK.name(), rule), &rule.columns));
        let hash = self.hash.iter().map(move |rule| (of_hash(rule), &rule.columns));
        let propagate = [(PROPAGATE_COLUMN.name().to_owned(), &self.propagate_source_type)];
        let keys = self.message_key_columns.iter().flat_map(RegexList::iter);
        (truncate.chain(mask).chain(hash).chain(propagate))
            .flat_map(|(property, list)| numbered(property, list.iter()))
            .chain(numbered(KEY_COLUMNS.name().to_owned(), keys))
    }
}

/// The expressions of a property with their numbers.
pub(super) fn numbered<'c>(
    property: String,
    expressions: impl Iterator<Item = &'c JavaRegex>,
) -> impl Iterator<Item = ColumnPattern<'c>> {
    expressions.zip(1..).map(move |(expression, number)| ColumnPattern {
        property: property.clone(),
        number,
        expression,
    })
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyColumns {
    columns: Vec<RegexList>,
    /// Entries that match no table, because there is a blank after the table's expression. Debezium treats the blank as a part of the expression.
    blank: Vec<String>,
}

impl Value for KeyColumns {
    const TYPE: &'static str = "table:columns;…";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let mut found = Self::default();
        // Debezium glues table and column together and matches the whole.
        for entry in text.split(';').filter(|entry| !entry.trim().is_empty()) {
            let malformed = || {
                ValueError::new(format!(
                    "a list of table:column,column entries separated by ; ({:?})",
                    entry.trim()
                ))
                .hint("such as public.orders:customer_id,id;public.items:id")
            };
            // A blank before the colon belongs to the table's name, which then matches no table.
            let (table, names) = entry.split_once(':').ok_or_else(malformed)?;
            for name in names.split(',').map(str::trim) {
                if table.trim().is_empty() || name.is_empty() || name.contains(':') {
                    return Err(malformed());
                }
                found.columns.push(RegexList::parse(&format!("{table}.{name}"))?);
            }
            if table.ends_with(char::is_whitespace) {
                found.blank.push(entry.trim().to_owned());
            }
        }
        Ok(found)
    }
    fn named(self, property: &str) -> Self {
        Self {
            columns: self.columns.named(property),
            ..self
        }
    }
}

properties! {
    const TRUNCATE: Property<RegexList> = Property::new("column.truncate.to.<length>.chars").example("column.truncate.to.20.chars=public\\.orders\\.note")
        .text("Truncates the text of these columns to this number of characters.");
    const MASK: Property<RegexList> = Property::new("column.mask.with.<length>.chars").example("column.mask.with.4.chars=public\\.customers\\.tax_id")
        .text("Replaces the text of these columns with this number of asterisks, even if it is NULL; 0 means an empty text. Only \
               character types are masked; types such as `uuid` and `json` are not.");
    const HASH: Property<RegexList> = Property::new("column.mask.hash.<algorithm>.with.salt.<salt>").example("column.mask.hash.SHA-256.with.salt.CzQMA0cB5K=public\\.customers\\.email")
        .text("Replaces these columns with a salted hash, computed as in Debezium's first version: over Java's serialized form of the text.");
    const HASH_V2: Property<RegexList> = Property::new("column.mask.hash.v2.<algorithm>.with.salt.<salt>").example("column.mask.hash.v2.SHA-256.with.salt.CzQMA0cB5K=public\\.customers\\.email")
        .text("The same, but computed over the text itself, so that other systems can compute the same hash.");
    const PROPAGATE_COLUMN: Property<RegexList> = Property::new("column.propagate.source.type").example("public\\.orders\\..*")
        .text("Adds the Postgres type, length and scale of these columns to their schemas.");
    const PROPAGATE_DATATYPE: Property<RegexList> = Property::new("datatype.propagate.source.type").example("public\\..*\\.NUMERIC")
        .text("The same for all columns of these types: regular expressions that match `schema.table.TYPE`.");
    const KEY_COLUMNS: Property<KeyColumns> = Property::new("message.key.columns").example("public.orders:customer,number")
        .text("Columns that form the key of a table: entries `table:column,column`, separated by `;`. All parts are regular expressions; \
               the first part matches `schema.table`. Tables that match no entry keep their primary key.");
}

pub(super) const GROUP: Group = Group {
    title: "Columns and keys",
    text: "Columns are regular expressions that match `schema.table.column`, separated by commas. Of the first four kinds of rules, only \
           the first rule that matches a column is applied, and none is applied to key columns. Rules of one kind are applied in \
           Debezium's order, which depends on hashes of their names, so avoid rules that overlap.",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>) -> ColumnSection {
    ColumnSection {
        truncate: length_rules(reader, &TRUNCATE),
        mask: length_rules(reader, &MASK),
        propagate_source_type: reader.get(&PROPAGATE_COLUMN),
        propagate_source_type_of_datatype: reader.get(&PROPAGATE_DATATYPE),
        hash: hash_rules(reader),
        message_key_columns: message_keys(reader),
    }
}

fn message_keys(reader: &mut Reader<'_>) -> Vec<RegexList> {
    let keys = reader.get(&KEY_COLUMNS);
    for entry in keys.blank {
        reader
            .warning(
                KEY_COLUMNS.name(),
                format!(
                    "contains {entry:?}, which matches no table, because in Debezium the space before : is part of the expression"
                ),
            )
            .hint("remove the space if these columns should form the key");
    }
    keys.columns
}

/// The properties of a pattern, in the order in which Debezium reads them: that of a `java.util.HashMap` of all properties of the task. For
/// each column, the first property that matches is used.
fn in_order_of_debezium<'a>(reader: &mut Reader<'a>, pattern: &Property<RegexList>) -> Vec<(Vec<&'a str>, RegexList)> {
    let mut found = reader.matching(pattern);
    // Connect adds `name` where it is missing, and `task.class`.
    let written = reader.options().iter().filter(|(name, _)| *name != "name");
    let count = written.count() + 2;
    let buckets = hash::capacity(count, hash::CAPACITY);
    hash::sort_into_buckets(&mut found, buckets, |(parts, _)| {
        hash::of_text(&filled_in(pattern.name(), parts))
    });
    found
}

/// The name of a property: its pattern with the parts in place of what stands between `<` and `>`.
fn filled_in(pattern: &str, parts: &[&str]) -> String {
    let mut parts = parts.iter();
    let mut name = String::new();
    for piece in pattern.split_inclusive('>') {
        let (fixed, variable) = piece.split_once('<').unwrap_or((piece, ""));
        name.push_str(fixed);
        if !variable.is_empty() {
            name.push_str(parts.next().copied().unwrap_or_default());
        }
    }
    name
}

fn length_rules(reader: &mut Reader<'_>, pattern: &Property<RegexList>) -> Vec<LengthRule> {
    let found = in_order_of_debezium(reader, pattern);
    let rules = found.into_iter().filter_map(|(parts, columns)| {
        let length = parts.first().copied().unwrap_or_default();
        match u32::parse(length) {
            Ok(length) => Some(LengthRule { columns, length }),
            Err(error) => {
                let name = pattern.name().replace("<length>", length);
                reader
                    .problem(&name, format!("has the length {length:?}, which {error}"))
                    .hint("write a number between the dots, such as column.truncate.to.20.chars");
                None
            }
        }
    });
    rules.collect()
}

/// The pattern of version 1 also matches names of version 2: their algorithm then begins with `v2.`.
fn hash_rules(reader: &mut Reader<'_>) -> Vec<HashRule> {
    let found = in_order_of_debezium(reader, &HASH);
    let rules = found.into_iter().filter_map(|(parts, columns)| {
        let [written, salt] = parts.as_slice() else { return None };
        let (version, algorithm) = match written.strip_prefix("v2.") {
            Some(algorithm) => (HashVersion::V2, algorithm),
            None => (HashVersion::V1, *written),
        };
        match HashAlgorithm::parse(algorithm) {
            Ok(algorithm) => Some(HashRule {
                columns,
                algorithm,
                salt: Secret::new(*salt),
                version,
            }),
            Err(error) => {
                // Salt and algorithm may have changed places: only what is nearly an algorithm is shown.
                let (name, message) = match &error.hint {
                    Some(_) => (
                        HASH.name().replace("<algorithm>", written),
                        format!("names {algorithm:?}, which {error}"),
                    ),
                    None => (HASH.name().to_owned(), format!("names an algorithm that {error}")),
                };
                reader.problem(&name, message).hint = error.hint.or_else(|| {
                    Some("write it as column.mask.hash.SHA-256.with.salt.<salt>, or with v2.SHA-256".to_owned())
                });
                None
            }
        }
    });
    let mut rules: Vec<HashRule> = rules.collect();
    rules.sort_by_key(|rule| rule.version);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Options;

    fn section(entries: &[(&str, &str)]) -> (Option<ColumnSection>, Vec<String>) {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let options = Options::new("", entries);
        let mut reader = Reader::new(&options, DECLARATIONS);
        let section = read(&mut reader);
        let (section, findings) = reader.finish(section);
        (section, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rules_are_read_from_the_names_of_properties() {
        let (section, findings) = section(&[
            ("column.truncate.to.5.chars", "public.u.name"),
            ("column.mask.with.0.chars", "public.u.ssn"),
            ("column.mask.hash.SHA-256.with.salt.a.b", "public.u.email"),
            ("column.mask.hash.v2.md5.with.salt.pepper", "public.u.phone"),
        ]);
        assert_eq!(findings, Vec::<String>::new());
        let section = section.unwrap();
        assert_eq!(section.truncate.iter().map(|rule| rule.length).collect::<Vec<_>>(), [5]);
        assert_eq!(section.mask.iter().map(|rule| rule.length).collect::<Vec<_>>(), [0]);
        let hashes: Vec<_> = section
            .hash
            .iter()
            .map(|rule| (rule.algorithm, rule.version, rule.salt.expose()))
            .collect();
        assert_eq!(
            hashes,
            [
                (HashAlgorithm::Sha256, HashVersion::V1, "a.b"),
                (HashAlgorithm::Md5, HashVersion::V2, "pepper")
            ]
        );
        assert!(section.hash[1].columns.matches("public.u.phone"));
    }

    /// As Debezium chose among rules that matched one column, with 16 other properties beside them.
    #[test]
    fn rules_stand_in_the_order_of_javas_hash_map() {
        let cases: [&[u32]; 2] = [&[20, 33, 3, 10, 7], &[20, 100, 33, 50, 10, 7, 128, 3, 64]];
        for expected in cases {
            let names = expected
                .iter()
                .map(|length| format!("column.truncate.to.{length}.chars"));
            let others = (0..16).map(|n| format!("other.{n}"));
            let entries = names.chain(others).map(|name| (name, "a".to_owned())).collect();
            let options = Options::new("", entries);
            let rules = length_rules(&mut Reader::new(&options, DECLARATIONS), &TRUNCATE);
            assert_eq!(rules.iter().map(|rule| rule.length).collect::<Vec<_>>(), expected);
        }
        let found = section(&[
            ("column.mask.hash.SHA-224.with.salt.S", "a"),
            ("column.mask.hash.SHA1.with.salt.S", "a"),
        ]);
        let algorithms: Vec<_> = found.0.unwrap().hash.iter().map(|rule| rule.algorithm).collect();
        assert_eq!(algorithms, [HashAlgorithm::Sha1, HashAlgorithm::Sha224]);
    }

    #[test]
    fn malformed_rules_are_named() {
        let cases = [
            (
                "column.mask.with.x.chars",
                "a",
                "column.mask.with.x.chars has the length \"x\", which is not a whole number from 0 to 4294967295 (write a number between the dots, such as column.truncate.to.20.chars)",
            ),
            (
                "column.mask.hash.SHA-255.with.salt.s",
                "a",
                "column.mask.hash.SHA-255.with.salt.<salt> names \"SHA-255\", which is not one of MD5, SHA-1, SHA-224, SHA-256, SHA-384, SHA-512 (did you mean SHA-256?)",
            ),
            (
                "message.key.columns",
                "orders",
                "message.key.columns is \"orders\", which is not a list of table:column,column entries separated by ; (\"orders\") (such as public.orders:customer_id,id;public.items:id)",
            ),
        ];
        for (name, text, expected) in cases {
            assert_eq!(section(&[(name, text)]).1, [expected], "{name}");
        }
    }

    #[test]
    fn key_columns_keep_their_order() {
        let columns = KeyColumns::parse("public.u:region , id; (.*).orders: pk;public.u :id")
            .unwrap()
            .columns;
        let matched: Vec<bool> = ["public.u.region", "public.u.id", "shop.orders.pk", "public.u.id"]
            .iter()
            .enumerate()
            .map(|(i, name)| columns[i].matches(name))
            .collect();
        assert_eq!((columns.len(), matched), (4, vec![true, true, true, false]));
    }

    #[test]
    fn a_blank_behind_a_table_is_part_of_its_expression() {
        let (section, findings) = section(&[("message.key.columns", "public.u : region , id")]);
        let columns = section.unwrap().message_key_columns;
        assert!(!columns.iter().any(|columns| columns.matches("public.u.region")));
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}
