//! Settings of every session, whatever role, database or server configure. They determine the text of every value, and
//! whether a long snapshot is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use walferry_config::connector::PostgresSection;

use super::pinned::PATH;

/// Name and value of each setting. They are sent in the startup message, where they override `ALTER ROLE … SET` and
/// `ALTER DATABASE … SET`.
const TEXT_OF_VALUES: [(&str, &str); 5] = [
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    // Debezium's session has the time zone of its JVM. Only the text of tstzrange depends on it.
    ("TimeZone", "UTC"),
];

/// Limits that must not end one of our sessions. Limits of newer servers (`transaction_timeout`) are removed after the
/// login.
const NO_LIMITS: [(&str, &str); 1] = [("idle_in_transaction_session_timeout", "0")];

/// Warnings of the stream are needed: since Postgres 18, only a warning shows that a publication is missing. A role may
/// be configured to hide warnings. Less important messages would only cost time.
const NOTICES: (&str, &str) = ("client_min_messages", "warning");

/// What a login says of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Startup {
    /// All settings.
    Full,
    /// Only what every pooler understands. PgBouncer refuses a login with any setting that it does not know. They follow after the login.
    Bare,
}

/// Whether a pooler has refused a login because of its settings. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct StartupRefused(Arc<AtomicBool>);

impl StartupRefused {
    pub(super) fn startup(&self) -> Startup {
        match self.0.load(Relaxed) {
            true => Startup::Bare,
            false => Startup::Full,
        }
    }

    pub(super) fn refuse(&self) {
        self.0.store(true, Relaxed);
    }
}

/// The settings that a replication connection has not had in its startup message.
pub(super) fn after_bare_startup() -> String {
    let settings = TEXT_OF_VALUES.into_iter().chain(NO_LIMITS);
    let settings = settings.chain([("statement_timeout", "0"), NOTICES]);
    let mut text: Vec<String> = settings
        .map(|(name, value)| format!("SET {name} = '{value}'"))
        .collect();
    // A list of names, so it is not quoted.
    text.push(format!("SET search_path = {PATH}"));
    text.join("; ")
}

/// Parameters of the startup message of a replication connection.
pub(super) fn startup_parameters<'a>(
    settings: &'a PostgresSection,
    application_name: &'a str,
    startup: Startup,
) -> Vec<(&'a str, &'a str)> {
    let mut parameters = vec![
        ("user", settings.user.as_str()),
        ("database", settings.dbname.as_str()),
        ("replication", "database"),
        ("client_encoding", "UTF8"),
        ("application_name", application_name),
    ];
    if startup == Startup::Bare {
        parameters.extend(settings.options.as_deref().map(|options| ("options", options)));
        return parameters;
    }
    parameters.extend(TEXT_OF_VALUES);
    parameters.extend(NO_LIMITS);
    // Creating a slot waits for running transactions. Our own limit applies to that.
    parameters.push(("statement_timeout", "0"));
    // No statement of this connection is the user's.
    parameters.push(("search_path", PATH));
    // The server applies `options` first, whatever the order.
    parameters.push(NOTICES);
    if let Some(options) = &settings.options {
        parameters.push(("options", options));
    }
    parameters
}

/// The same for `tokio-postgres`, which accepts settings only in the `options` parameter. The user's options come
/// first: if a setting appears twice, the last one counts.
pub(super) fn options(settings: &PostgresSection, startup: Startup) -> String {
    let mut text = settings.options.clone().unwrap_or_default();
    if startup == Startup::Bare {
        return text;
    }
    let mut add = |name: &str, value: &str| {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("-c {name}={value}"));
    };
    for (name, value) in TEXT_OF_VALUES.into_iter().chain(NO_LIMITS) {
        add(name, value);
    }
    if settings.query_timeout > Duration::ZERO {
        add("statement_timeout", &settings.query_timeout.as_millis().to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Endpoint;
    use super::*;

    #[test]
    fn own_settings_come_after_those_of_the_user() {
        let Endpoint { mut settings, .. } = Endpoint::nowhere();
        settings.options = Some("-c DateStyle=German -c work_mem=64MB".to_owned());
        settings.query_timeout = Duration::from_secs(2);
        let expected = "-c DateStyle=German -c work_mem=64MB -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3 \
                        -c bytea_output=hex -c TimeZone=UTC -c idle_in_transaction_session_timeout=0 -c statement_timeout=2000";
        assert_eq!(options(&settings, Startup::Full), expected);

        let parameters = startup_parameters(&settings, "a name", Startup::Full);
        for expected in [
            ("user", "u"),
            ("database", "d"),
            ("replication", "database"),
            ("application_name", "a name"),
        ] {
            assert!(parameters.contains(&expected), "{expected:?}");
        }
        assert!(parameters.contains(&("client_min_messages", "warning")));
        assert!(parameters.contains(&("DateStyle", "ISO")) && parameters.contains(&("statement_timeout", "0")));
    }

    #[test]
    fn behind_a_pooler_every_setting_comes_after_the_login() {
        let Endpoint { settings, .. } = Endpoint::nowhere();
        let bare = startup_parameters(&settings, "a name", Startup::Bare);
        let names: Vec<&str> = bare.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["user", "database", "replication", "client_encoding", "application_name"]
        );
        assert_eq!(options(&settings, Startup::Bare), "");
        let full = startup_parameters(&settings, "a name", Startup::Full);
        for (name, _) in full.iter().filter(|(name, _)| !names.contains(name)) {
            assert!(after_bare_startup().contains(&format!("SET {name} = ")), "{name}");
        }
        for (name, value) in TEXT_OF_VALUES {
            let set = format!("SET LOCAL {name} = '{value}'");
            assert!(super::super::pinned::BEGIN.contains(&set), "{set}");
        }
    }
}
