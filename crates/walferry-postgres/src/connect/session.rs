//! Settings of every session, whatever role, database or server configure. They determine the text of every value, and
//! whether a long snapshot is cut off.

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

/// Parameters of the startup message of a replication connection.
pub(super) fn startup_parameters<'a>(
    settings: &'a PostgresSection,
    application_name: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let mut parameters = vec![
        ("user", settings.user.as_str()),
        ("database", settings.dbname.as_str()),
        ("replication", "database"),
        ("client_encoding", "UTF8"),
        ("application_name", application_name),
    ];
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
pub(super) fn options(settings: &PostgresSection) -> String {
    let mut text = settings.options.clone().unwrap_or_default();
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
        let Endpoint(mut settings, ..) = Endpoint::nowhere();
        settings.options = Some("-c DateStyle=German -c work_mem=64MB".to_owned());
        settings.query_timeout = Duration::from_secs(2);
        let expected = "-c DateStyle=German -c work_mem=64MB -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3 \
                        -c bytea_output=hex -c TimeZone=UTC -c idle_in_transaction_session_timeout=0 -c statement_timeout=2000";
        assert_eq!(options(&settings), expected);

        let parameters = startup_parameters(&settings, "a name");
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
}
