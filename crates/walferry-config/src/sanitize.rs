//! Which values are never shown.

use std::borrow::Cow;

use crate::regex::{JavaRegex, limited};
use crate::secret::HIDDEN;

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
    "private.key",
    "keystore.key",
    "apikey",
    "api.key",
];

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
            without_password(value)
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

/// The value without the passwords of URLs such as `http://user:password@host`.
fn without_password(value: &str) -> Cow<'_, str> {
    if !value.contains("://") {
        return Cow::Borrowed(value);
    }
    let mut shown = String::new();
    let mut rest = value;
    while let Some((scheme, behind)) = rest.split_once("://") {
        shown.push_str(scheme);
        shown.push_str("://");
        rest = behind;
        let authority = rest.split(['/', ',', ' ']).next().unwrap_or_default();
        if let Some((credentials, _)) = authority.rsplit_once('@')
            && let Some((user, _)) = credentials.split_once(':')
        {
            shown.push_str(&format!("{user}:{HIDDEN}"));
            rest = &rest[credentials.len()..];
        }
    }
    shown.push_str(rest);
    Cow::Owned(shown)
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
}
