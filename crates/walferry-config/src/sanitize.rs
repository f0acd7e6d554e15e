//! What is never shown of names and values.

use std::borrow::Cow;

use crate::choice::nearest;
use crate::finding::without;
use crate::regex::{JavaRegex, limited};
use crate::secret::{HIDDEN, Secret};
use walferry_diagnosis::without_credentials;

/// Hides the values of properties that look like secrets: by Debezium's default names and a few more, and by
/// `custom.sanitize.pattern`, which adds to them here instead of replacing them.
#[derive(Debug, Clone, Default)]
pub struct Sanitizer {
    custom: Option<JavaRegex>,
}

/// Parts of names that make a secret, in lower case. The first eight are Debezium's.
const SECRET_NAMES: &[&str] = &[
    "secret",
    "password",
    "sasl.jaas.config",
    "basic.auth.user.info",
    "registry.auth.client-secret",
    "credentials.json",
    "connectionstring",
    "connection.string",
    "token",
    "passphrase",
    "passwd",
    "private.key",
    "keystore.key",
    "apikey",
    "api.key",
    "access.key",
    "jaas",
];

/// Words behind which a text has a secret, as in `password=…` and `"apikey": "…"`, in lower case.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "access_key",
    "accesskey",
];

/// Maximum number of characters of a value that an error shows.
const MOST_SHOWN: usize = 200;

impl Sanitizer {
    /// With the pattern of `custom.sanitize.pattern`, which matches whole names without regard to case.
    pub fn new(custom: Option<JavaRegex>) -> Self {
        Self { custom }
    }

    /// The value as it may be shown.
    pub fn hide<'v>(&self, name: &str, value: &'v str) -> Cow<'v, str> {
        if self.is_secret(name) {
            Cow::Borrowed(HIDDEN)
        } else {
            shown_text(value)
        }
    }

    /// Whether the value of this property must not be shown at all.
    pub fn is_secret(&self, name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        SECRET_NAMES.iter().any(|part| lower.contains(part))
            || self.custom.as_ref().is_some_and(|pattern| {
                // What cannot be told is hidden.
                limited(|| pattern.matches(name)).unwrap_or(true)
            })
    }
}

/// A property's name as it may be shown.
///
/// A few names hold a secret: the salt of `column.mask.hash.<algorithm>.with.salt.<salt>`, also where the rest is misspelt. And
/// what a broken file has in the place of a name may be anything, such as a line of a private key.
pub fn shown_name(name: &str) -> Cow<'_, str> {
    const HASH: &str = "column.mask.hash.";
    let lower = name.to_ascii_lowercase();
    // What stands in the place of the algorithm may be the salt.
    if let Some(rest) = lower.strip_prefix(HASH) {
        let algorithm = rest.strip_prefix("v2.").unwrap_or(rest);
        if !["md", "sha", "<"].iter().any(|begin| algorithm.starts_with(begin)) {
            return Cow::Owned(format!("{HASH}{HIDDEN}"));
        }
    }
    if let Some(end) = ["salt.", ".salt", "_salt", "-salt"]
        .iter()
        .filter_map(|word| Some(lower.find(word)? + word.len()))
        .max()
        && end < name.len()
        && !lower.ends_with("salt.<salt>")
    {
        let before = shown_name(&name[..end]);
        return Cow::Owned(format!("{}{HIDDEN}", before.trim_end_matches(HIDDEN)));
    }
    // Behind `hash` whatever is no word of the pattern may be a salt without its word, also where the words before are misspelt.
    if lower.starts_with("col")
        && !lower.contains(".with.salt")
        && let Some(hash) = lower.find("hash.")
    {
        return Cow::Owned(format!("{}{HIDDEN}", &name[..hash + "hash.".len()]));
    }
    // A password that stands where a name belongs mixes letters and digits; names of properties do not, without a dot.
    let word = !name.contains(['.', '_', '-', ' ', '/', '[', '<']) && !is_word(name) && !name.is_empty();
    if looks_like_a_name(name) && !word {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("(a name of {} characters that is none)", name.chars().count()))
    }
}

/// Letters, digits and the characters that names of properties, topics, groups and transforms have.
fn looks_like_a_name(name: &str) -> bool {
    const MOST: usize = 48;
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '$' | '<' | '>' | '*' | '(' | ')' | ' ');
    name.chars().all(fits) && name.split(['.', '_', '-', ' ']).all(|part| part.len() <= MOST)
}

/// A text without what may be a secret in it: the credentials of URLs such as `http://user:password@host`, what stands behind
/// `password=` and the like, keys in PEM and log-in modules of JAAS.
pub fn shown_text(text: &str) -> Cow<'_, str> {
    if text.contains("PRIVATE KEY-----") || text.contains("LoginModule ") {
        return Cow::Borrowed(HIDDEN);
    }
    let mut shown = Cow::Borrowed(text);
    if text.contains('%') && decoded(text) != text {
        shown = Cow::Owned(without_encoded_credentials(text));
    }
    if text.contains(":-") && text.contains("${") {
        shown = Cow::Owned(without_defaults(&shown));
    }
    if text.contains('@') || text.contains("://") {
        shown = Cow::Owned(without_credentials(&shown));
    }
    let lower = shown.to_ascii_lowercase();
    if lower.contains("basic ") || lower.contains("bearer ") {
        shown = Cow::Owned(without_authorization(&shown));
    }
    let lower = shown.to_ascii_lowercase();
    if SECRET_WORDS.iter().any(|word| lower.contains(word)) {
        shown = Cow::Owned(without_assignments(&shown, &lower));
    }
    shown
}

/// What a server has answered, without the secrets that were `sent` to it: some servers and proxies repeat them.
pub fn shown_answer(text: &str, sent: &[Secret]) -> String {
    let mut sent: Vec<&str> = sent
        .iter()
        .map(Secret::expose)
        .filter(|secret| !secret.is_empty())
        .collect();
    // A longer one may have a shorter one in it.
    sent.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    let without_sent = sent
        .into_iter()
        .fold(text.to_owned(), |text, secret| match secret.len() {
            // So short a one may be a part of other words.
            ..4 => without(&text, secret),
            _ => text.replace(secret, HIDDEN),
        });
    shown_text(&without_sent).into_owned()
}

/// Hides what stands behind `Basic` and `Bearer`, as in the header of a request.
fn without_authorization(text: &str) -> String {
    let mut shown = String::new();
    let mut scheme = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let plain = word.trim_end();
        let token = plain.trim_matches(|c: char| !c.is_alphanumeric() && c != '=');
        let looks_like_one = token.len() >= 4 && (!is_word(token) || token.chars().skip(1).any(char::is_uppercase));
        match scheme && looks_like_one {
            true => shown.push_str(&word.replacen(token, HIDDEN, 1)),
            false => shown.push_str(word),
        }
        let name = plain
            .rsplit(|c: char| !c.is_ascii_alphanumeric())
            .next()
            .unwrap_or_default();
        scheme = name.eq_ignore_ascii_case("basic") || name.eq_ignore_ascii_case("bearer");
    }
    shown
}

/// The signs of a URL that a percent sign and two digits stand for, also where the percent sign itself is written so.
fn decoded(text: &str) -> String {
    let mut plain = text.to_owned();
    while plain.contains("%25") {
        plain = plain.replace("%25", "%");
    }
    for (code, sign) in [
        ("%40", "@"),
        ("%3a", ":"),
        ("%3A", ":"),
        ("%2f", "/"),
        ("%2F", "/"),
        ("%3d", "="),
        ("%3D", "="),
    ] {
        plain = plain.replace(code, sign);
    }
    plain
}

/// Hides whole words that would show credentials to somebody who decodes them.
fn without_encoded_credentials(text: &str) -> String {
    let words =
        text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')'));
    let hide = |word: &str| {
        let plain = decoded(word);
        match plain != word && shown_text(&plain) != plain {
            true => {
                let end = word.trim_end_matches(|c: char| {
                    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')')
                });
                format!("{HIDDEN}{}", &word[end.len()..])
            }
            false => word.to_owned(),
        }
    };
    words.map(hide).collect()
}

/// Hides the default of `${NAME:-default}`, as a shell has it: it may be the password.
fn without_defaults(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        shown.push_str(before);
        shown.push_str("${");
        let (inside, behind) = reference.split_at(reference.find('}').unwrap_or(reference.len()));
        match inside.split_once(":-") {
            Some((name, default)) if !default.is_empty() => shown.push_str(&format!("{name}:-{HIDDEN}")),
            _ => shown.push_str(inside),
        }
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Whether an error may repeat a value, or a part of one, that does not fit the type of its property.
///
/// A password may have been written into any property. So what is shown has to look like a value of that type: a number, a word
/// that is near to one of the `allowed` ones, or else a name made of whole words.
pub(crate) fn may_be_shown(kind: &str, allowed: &[&str], text: &str) -> bool {
    match kind {
        // A sign or two, such as a bracket that is not closed.
        _ if text.len() <= 2 => true,
        "int" | "long" | "milliseconds" | "seconds" | "bytes" => looks_like_a_number(text),
        "boolean" | "enum" => {
            const WORDS: &[&str] = &[
                "true",
                "false",
                "yes",
                "no",
                "on",
                "off",
                "1",
                "0",
                "y",
                "n",
                "enabled",
                "disabled",
                "enable",
                "disable",
                "none",
                "all",
                "null",
                "default",
                "auto",
                "string",
                "wal2json",
                "decoderbufs",
            ];
            WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) || nearest(text, allowed.iter().copied()).is_some()
        }
        "class" => {
            let words = text.split(['.', '$']);
            (text.contains('.') || text.starts_with(char::is_uppercase)) && words.clone().all(is_word)
        }
        _ => {
            text.len() <= MOST_SHOWN
                && text
                    .split(['.', '_', '-', '$'])
                    .all(|part| part.is_empty() || is_word(part))
        }
    }
}

/// A host with a port, or a list of them, in quotes; asterisks where the text does not look like one. A host alone may be a password.
pub fn shown_address(text: &str) -> String {
    let is_address = |entry: &str| {
        let rest = entry.split_once("://").map_or(entry, |(_, rest)| rest);
        let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']' | '/');
        let port = rest
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        (port || rest.parse::<core::net::IpAddr>().is_ok()) && rest.chars().all(host)
    };
    match text.len() <= MOST_SHOWN && text.split(',').all(|entry| is_address(entry.trim())) {
        true => format!("{text:?}"),
        false => HIDDEN.to_owned(),
    }
}

/// A regular expression for names, in quotes; `None` where it may be a secret.
pub fn shown_expression(text: &str) -> Option<String> {
    let names = text.replace("\\.", ".").replace("\\d", "");
    let parts = names.split(|c: char| {
        matches!(
            c,
            '.' | '_' | '-' | '*' | '+' | '?' | '(' | ')' | '|' | '[' | ']' | '^' | '$' | ':'
        )
    });
    let shown = text.contains('.')
        && text.len() <= MOST_SHOWN
        && parts.into_iter().all(|part| part.is_empty() || is_word(part));
    shown.then(|| format!("{text:?}"))
}

/// The name of a class that is not there, in quotes; asterisks where it does not look like one.
pub fn shown_class(text: &str) -> String {
    match may_be_shown("class", &[], text) {
        true => quoted(text),
        false => HIDDEN.to_owned(),
    }
}

/// A number, also with signs between its digits and a unit behind it: `10,000`, `3.0`, `10 s`, `512MB`.
fn looks_like_a_number(text: &str) -> bool {
    const LONGEST: usize = 12;
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let fits = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '_' | '\'' | ' ' | '-' | '+');
    text.len() <= LONGEST
        && text.len() - number.len() <= 2
        && number.contains(|c: char| c.is_ascii_digit())
        && number.chars().all(fits)
}

/// Letters alone, or digits alone: a password mixes them.
fn is_word(part: &str) -> bool {
    const LONGEST: usize = 40;
    let letters = part.chars().all(|c| c.is_ascii_alphabetic());
    (letters || part.chars().all(|c| c.is_ascii_digit())) && (1..=LONGEST).contains(&part.len())
}

/// A value in quotes, as an error shows it: without secrets, and not longer than a person reads.
pub(crate) fn quoted(text: &str) -> String {
    let shown = shown_text(text);
    match shown.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{:?}… ({} characters)", &shown[..end], text.chars().count()),
        None => format!("{shown:?}"),
    }
}

/// Hides what stands behind `password=`, `"password": ` and the like.
fn without_assignments(text: &str, lower: &str) -> String {
    let mut shown = String::new();
    let mut at = 0;
    while let Some((found, word)) = SECRET_WORDS
        .iter()
        .filter_map(|word| Some((at + lower[at..].find(word)?, *word)))
        .min()
    {
        let mut end = found + word.len();
        shown.push_str(&text[at..end]);
        // The path and the key of a reference to a config provider are no secrets.
        let in_reference = text[..found]
            .rfind("${")
            .is_some_and(|open| !text[open..found].contains('}'));
        if let Some((value, length)) = assigned(&text[end..]).filter(|_| !in_reference) {
            shown.push_str(&text[end..end + value]);
            shown.push_str(HIDDEN);
            end += value + length;
        }
        at = end;
    }
    shown.push_str(&text[at..]);
    shown
}

/// Where the value begins that is assigned at the beginning of the text, and how long it is.
fn assigned(text: &str) -> Option<(usize, usize)> {
    let blank = |text: &str| text.len() - text.trim_start().len();
    // Quotes within quotes stand behind a backslash.
    let escape = |text: &str| usize::from(text.starts_with('\\'));
    let mut at = escape(text);
    let closing = text[at..].starts_with(['"', '\'']);
    at += usize::from(closing);
    at += blank(&text[at..]);
    let sign = text[at..].starts_with(['=', ':']);
    if sign {
        at += 1;
        at += blank(&text[at..]);
    }
    at += escape(&text[at..]);
    let rest = &text[at..];
    match rest.chars().next() {
        Some(quote @ ('"' | '\'')) if sign || (!closing && at > 0) => {
            let length = rest[1..].find(quote).unwrap_or(rest.len() - 1);
            (length > 0).then_some((at + 1, length))
        }
        Some(_) if sign => {
            let ends = |c: char| c.is_whitespace() || matches!(c, '&' | ';' | ',' | '"' | '\'' | ')' | '}');
            let length = rest.find(ends).unwrap_or(rest.len());
            // A reference to a config provider is no secret.
            (length > 0 && !rest.starts_with("${")).then_some((at, length))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_by_the_name_of_their_property() {
        let sanitizer = Sanitizer::new(Some(JavaRegex::ignoring_case(".*\\.pepper").unwrap()));
        let cases = [
            ("database.password", "x", HIDDEN),
            ("database.sslpassword", "x", HIDDEN),
            ("producer.override.sasl.jaas.config", "x", HIDDEN),
            ("value.converter.basic.auth.user.info", "u:p", HIDDEN),
            ("SSL.KEYSTORE.KEY", "x", HIDDEN),
            ("my.Pepper", "x", HIDDEN),
            ("database.user", "app", "app"),
            ("topic.key.field.name", "id", "id"),
            (
                "value.converter.schema.registry.url",
                "http://u:p@host:8081/x",
                "http://u:********@host:8081/x",
            ),
            (
                "value.converter.schema.registry.url",
                "http://host:8081/a@b",
                "http://host:8081/a@b",
            ),
        ];
        for (name, value, expected) in cases {
            assert_eq!(sanitizer.hide(name, value), expected, "{name}");
        }
    }

    #[test]
    fn no_text_shows_credentials() {
        let cases = [
            ("postgres://app:hunter2@db/shop", "postgres://app:********@db/shop"),
            (
                "is \"postgres://app:hunter2@db\", which",
                "is \"postgres://app:********@db\", which",
            ),
            ("postgres://app:hun/ter2@db/shop", "postgres://app:********@db/shop"),
            ("postgres://app:hun,ter2@db/shop", "postgres://app:********@db/shop"),
            ("postgres://app:hun@ter2@db/shop", "postgres://app:********@db/shop"),
            ("https://hunter2@host", "https://********@host"),
            ("app:hunter2@db", "app:********@db"),
            ("app:hunter2@db:5432,x", "app:********@db:5432,x"),
            (
                "SSL://h1:9092,SSL://u:hunter2@h2:9092",
                "SSL://h1:9092,SSL://u:********@h2:9092",
            ),
            ("http://a:8081,http://b:8081", "http://a:8081,http://b:8081"),
            (
                "jdbc:postgresql://db/x?user=u&password=hunter2&ssl=true",
                "jdbc:postgresql://db/x?user=u&password=********&ssl=true",
            ),
            (
                "host=db password='hunter 2' user=u",
                "host=db password='********' user=u",
            ),
            ("host=db PASSWORD = hunter2", "host=db PASSWORD = ********"),
            ("ALTER ROLE u PASSWORD 'hunter2'", "ALTER ROLE u PASSWORD '********'"),
            ("{\"password\": \"hunter2\"}", "{\"password\": \"********\"}"),
            (
                "{\\\"client_secret\\\":\\\"hunter2\\\"}",
                "{\\\"client_secret\\\":\\\"********\"}",
            ),
            ("a.PlainLoginModule required username=\"u\" pass=\"hunter2\";", HIDDEN),
            ("-----BEGIN PRIVATE KEY-----\nhunter2", HIDDEN),
            (
                "Authorization: Basic dTpodW50ZXIy, x",
                "Authorization: Basic ********, x",
            ),
            (
                "{\"authorization\":\"Bearer hunter2\"}",
                "{\"authorization\":\"Bearer ********\"}",
            ),
            ("HTTP Basic authentication failed", "HTTP Basic authentication failed"),
            ("app%3Ahunter2%40db", HIDDEN),
            ("is \"http://app%253ahunter2%2540db\".", "is \"********\"."),
            ("100%25 of public.a%2Fb", "100%25 of public.a%2Fb"),
            ("password=${env:PGPASSWORD}", "password=${env:PGPASSWORD}"),
            ("${PGPASSWORD:-hunter2} x", "${PGPASSWORD:-********} x"),
            ("${file:/secrets/password:key}", "${file:/secrets/password:key}"),
            ("is the user's password", "is the user's password"),
            ("public.users:id,token", "public.users:id,token"),
            ("plain text", "plain text"),
        ];
        for (text, expected) in cases {
            let shown = shown_text(text);
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{text}: {shown}");
            if !text.contains('\\') {
                assert_eq!(shown, expected, "{text}");
            }
        }
        assert_eq!(
            quoted(&"x".repeat(300)),
            format!("{:?}… (300 characters)", "x".repeat(200))
        );
    }

    #[test]
    fn no_name_shows_a_salt_or_what_is_no_name() {
        let cases = [
            ("slot.name", "slot.name"),
            (
                "topic.creation.my_group.cleanup.policy",
                "topic.creation.my_group.cleanup.policy",
            ),
            ("transforms.Reroute$1.type", "transforms.Reroute$1.type"),
            (
                "column.mask.hash.SHA-256.with.salt.hunter2",
                "column.mask.hash.SHA-256.with.salt.********",
            ),
            (
                "column.mask.hash.v2.MD5.with.salt.hunter2.x",
                "column.mask.hash.v2.MD5.with.salt.********",
            ),
            (
                "colum.mask.hash.MD5.with.SALT.hunter2",
                "colum.mask.hash.MD5.with.SALT.********",
            ),
            (
                "column.mask.hash.MD5.with.salthunter2",
                "column.mask.hash.MD5.with.salt********",
            ),
            (
                "column.mask.MD5.with.salts.hunter2",
                "column.mask.MD5.with.salt********",
            ),
            ("column.masking.hash.MD5.hunter2", "column.masking.hash.********"),
            ("column.hash.MD5.with.hunter2", "column.hash.********"),
            ("column.mask.hash.MD5.hunter2", "column.mask.hash.********"),
            ("column.mask.hash.MD5.salt.hunter2", "column.mask.hash.********"),
            (
                "column.mask.hash.<algorithm>.with.salt.<salt>",
                "column.mask.hash.<algorithm>.with.salt.<salt>",
            ),
            ("password=hunter2", "(a name of 16 characters that is none)"),
            ("postgres://u:hunter2@h", "(a name of 22 characters that is none)"),
        ];
        for (name, expected) in cases {
            assert_eq!(shown_name(name), expected, "{name}");
        }
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDhunter2hunter";
        assert!(!shown_name(line).contains("hunter2"));
    }
}
