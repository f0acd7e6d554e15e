//! What is never shown of names and values.

use std::borrow::Cow;

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
    if let Some(hash) = lower.strip_prefix(HASH) {
        let algorithm = hash.strip_prefix("v2.").unwrap_or(hash);
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

/// A text without the credentials that it says to have: those of URLs such as `http://user:password@host` and of connection strings
/// (`password=…`), keys in PEM and log-in modules of JAAS. Nothing is hidden because it looks like a password.
pub fn shown_text(text: &str) -> Cow<'_, str> {
    if text.contains("PRIVATE KEY-----") || text.contains("LoginModule ") {
        return Cow::Borrowed(HIDDEN);
    }
    let mut sanitized = Cow::Borrowed(text);
    if text.contains('%') && decoded(text) != text {
        sanitized = Cow::Owned(without_encoded_credentials(text));
    }
    if text.contains(":-") && text.contains("${") {
        sanitized = Cow::Owned(without_defaults(&sanitized));
    }
    if text.contains('@') || text.contains("://") {
        sanitized = Cow::Owned(without_credentials(&sanitized));
    }
    let lower = sanitized.to_ascii_lowercase();
    if SECRET_WORDS.iter().any(|word| lower.contains(word)) {
        sanitized = Cow::Owned(without_assignments(&sanitized, &lower));
    }
    sanitized
}

/// What a server has answered, without the secrets that were `sent` to it: some servers and proxies repeat them. Control characters are written as
/// escapes, and the text is not longer than a person reads: whoever may name the server decides what it answers.
pub fn shown_answer(text: &str, sent: &[Secret]) -> String {
    const MOST: usize = 1_500;
    let mut sent: Vec<&str> = sent
        .iter()
        .map(Secret::expose)
        .filter(|secret| !secret.is_empty())
        .collect();
    // A longer one may have a shorter one in it.
    sent.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    // Before the text is cut: half of a secret is a secret, too.
    let without_sent = sent
        .into_iter()
        .fold(text.to_owned(), |text, secret| match secret.len() {
            // So short a one may be a part of other words.
            ..4 => without(&text, secret),
            _ => text.replace(secret, HIDDEN),
        });
    let sanitized = shown_text(&without_sent);
    let mut plain = String::new();
    for c in sanitized.trim().chars().take(MOST) {
        match c {
            c if c.is_whitespace() => plain.push(' '),
            c if c.is_control() || is_invisible(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    if sanitized.trim().chars().nth(MOST).is_some() {
        plain.push('…');
    }
    plain
}

/// Characters that change how others are shown, such as those that turn the direction of text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with [`HIDDEN`] in place of each occurrence of a word.
fn without(text: &str, word: &str) -> String {
    let mut sanitized = String::new();
    let mut tail = text;
    while let Some(at) = tail.find(word) {
        let (before, behind) = (&tail[..at], &tail[at + word.len()..]);
        let inside = before.ends_with(char::is_alphanumeric) || behind.starts_with(char::is_alphanumeric);
        sanitized.push_str(before);
        sanitized.push_str(if inside { word } else { HIDDEN });
        tail = behind;
    }
    sanitized.push_str(tail);
    sanitized
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
    let mut sanitized = String::new();
    let mut tail = text;
    while let Some((before, reference)) = tail.split_once("${") {
        sanitized.push_str(before);
        sanitized.push_str("${");
        let (inside, behind) = reference.split_at(reference.find('}').unwrap_or(reference.len()));
        match inside.split_once(":-") {
            Some((name, default)) if !default.is_empty() => sanitized.push_str(&format!("{name}:-{HIDDEN}")),
            _ => sanitized.push_str(inside),
        }
        tail = behind;
    }
    sanitized.push_str(tail);
    sanitized
}

/// Whether a text is made of whole words, as names of properties and of config providers are.
pub(crate) fn is_of_words(text: &str) -> bool {
    text.len() <= MOST_SHOWN
        && text
            .split(['.', '_', '-', '$'])
            .all(|part| part.is_empty() || is_word(part))
}

/// Letters alone, or digits alone: a password mixes them.
fn is_word(part: &str) -> bool {
    const LONGEST: usize = 40;
    let letters = part.chars().all(|c| c.is_ascii_alphabetic());
    (letters || part.chars().all(|c| c.is_ascii_digit())) && (1..=LONGEST).contains(&part.len())
}

/// A value in quotes, as an error shows it: without credentials of URLs, and not longer than a person reads. Values of properties that are
/// secret, and of properties that nobody knows, are never shown: see `Options::shown`.
pub fn quoted(text: &str) -> String {
    let sanitized = shown_text(text);
    let sanitized = without_foreign_references(&sanitized);
    match sanitized.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{:?}… ({} characters)", &sanitized[..end], text.chars().count()),
        None => format!("{sanitized:?}"),
    }
}

/// Hides what stands behind a config provider that is not there, such as `${vault:path:key}`: nobody knows what it means. A reference that was
/// resolved is shown by another way.
pub(crate) fn without_foreign_references(text: &str) -> Cow<'_, str> {
    if !text.contains("${") {
        return Cow::Borrowed(text);
    }
    let mut sanitized = String::new();
    let mut tail = text;
    while let Some((before, reference)) = tail.split_once("${") {
        sanitized.push_str(before);
        sanitized.push_str("${");
        let (inside, behind) = reference.split_at(reference.find('}').unwrap_or(reference.len()));
        match inside.split_once(':') {
            Some((provider, _)) => sanitized.push_str(&format!("{provider}:…")),
            None => sanitized.push_str(inside),
        }
        tail = behind;
    }
    sanitized.push_str(tail);
    Cow::Owned(sanitized)
}

/// Hides what stands behind `password=`, `"password": ` and the like.
fn without_assignments(text: &str, lower: &str) -> String {
    let mut sanitized = String::new();
    let mut at = 0;
    while let Some((found, word)) = SECRET_WORDS
        .iter()
        .filter_map(|word| Some((at + lower[at..].find(word)?, *word)))
        .min()
    {
        let mut end = found + word.len();
        sanitized.push_str(&text[at..end]);
        // The path and the key of a reference to a config provider are no secrets.
        let in_reference = text[..found]
            .rfind("${")
            .is_some_and(|open| !text[open..found].contains('}'));
        if let Some((value, length)) = assigned(&text[end..]).filter(|_| !in_reference) {
            sanitized.push_str(&text[end..end + value]);
            sanitized.push_str(HIDDEN);
            end += value + length;
        }
        at = end;
    }
    sanitized.push_str(&text[at..]);
    sanitized
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
    let tail = &text[at..];
    match tail.chars().next() {
        Some(quote @ ('"' | '\'')) if sign || (!closing && at > 0) => {
            let length = tail[1..].find(quote).unwrap_or(tail.len() - 1);
            (length > 0).then_some((at + 1, length))
        }
        Some(_) if sign => {
            let ends = |c: char| c.is_whitespace() || matches!(c, '&' | ';' | ',' | '"' | '\'' | ')' | '}');
            let length = tail.find(ends).unwrap_or(tail.len());
            // A reference to a config provider is no secret.
            (length > 0 && !tail.starts_with("${")).then_some((at, length))
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
            let sanitized = shown_text(text);
            assert!(
                !sanitized.contains("hunter2") && !sanitized.contains("ter2"),
                "{text}: {sanitized}"
            );
            if !text.contains('\\') {
                assert_eq!(sanitized, expected, "{text}");
            }
        }
        assert_eq!(
            quoted(&"x".repeat(300)),
            format!("{:?}… (300 characters)", "x".repeat(200))
        );
    }

    #[test]
    fn an_answer_is_cut_and_its_signs_are_escaped() {
        let sent = [Secret::new("hunter2"), Secret::new("pw")];
        let cases = [
            (
                "Basic hunter2 is wrong, and pw, not pwd",
                "Basic ******** is wrong, and ********, not pwd",
            ),
            ("a\r\nb\tc", "a  b c"),
            ("\u{1b}[31mred\u{202e}", "\\u{1b}[31mred\\u{202e}"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown_answer(text, &sent), expected);
        }
        let long = shown_answer(&"x".repeat(10_000), &sent);
        assert_eq!(long, format!("{}…", "x".repeat(1_500)));
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
