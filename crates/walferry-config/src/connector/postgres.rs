//! How to reach Postgres.

use std::time::Duration;

use crate::name::HostName;
use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::secret::Secret;
use crate::value::{Value, ValueError};
use crate::{choices, properties};

/// How to reach Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSection {
    /// `database.hostname`
    pub hostname: HostName,
    /// `database.port`
    pub port: u16,
    /// `database.user`
    pub user: String,
    /// `database.password`
    pub password: Option<Secret>,
    /// `database.dbname`
    pub dbname: String,
    /// `database.sslmode`
    pub sslmode: SslMode,
    /// `database.sslrootcert`: path of a PEM file.
    pub sslrootcert: Option<String>,
    /// `database.sslcert`: path of a PEM file.
    pub sslcert: Option<String>,
    /// `database.sslkey`: path of a file in PEM or in PKCS#8 DER.
    pub sslkey: Option<String>,
    /// `database.sslpassword`
    pub sslpassword: Option<Secret>,
    /// `database.channelBinding`
    pub channel_binding: ChannelBinding,
    /// `database.tcpKeepAlive`
    pub tcp_keepalive: bool,
    /// `database.connectTimeout`
    pub connect_timeout: Duration,
    /// `database.initial.statements`, run on every connection but the replication connection.
    pub initial_statements: Vec<String>,
    /// `database.query.timeout.ms`; zero means no limit.
    pub query_timeout: Duration,
    /// `database.options`: libpq's `options`, such as `-c search_path=app`.
    pub options: Option<String>,
}

choices! {
    /// `sslmode` as libpq has it.
    pub enum SslMode {
        /// Never encrypted.
        Disable = "disable",
        /// Encrypted only if the server asks for it.
        Allow = "allow",
        /// Encrypted if the server can.
        #[default]
        Prefer = "prefer",
        /// Encrypted, the certificate is checked only if a root certificate is given.
        Require = "require",
        /// Encrypted, the certificate must be signed by a known authority.
        VerifyCa = "verify-ca",
        /// As `verify-ca`, and the certificate must be the host's.
        VerifyFull = "verify-full",
    }
}

choices! {
    /// Whether SCRAM is bound to the TLS channel, as libpq has it.
    pub enum ChannelBinding {
        /// Never.
        Disable = "disable",
        /// If the server offers it.
        #[default]
        Prefer = "prefer",
        /// Always; a server without it is refused.
        Require = "require",
    }
}

/// Whole seconds, as pgjdbc counts its timeouts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seconds(Duration);

impl Seconds {
    pub(super) fn get(self) -> Duration {
        self.0
    }
}

impl Value for Seconds {
    const TYPE: &'static str = "seconds";
    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map(|seconds| Self(Duration::from_secs(seconds)))
            .map_err(|_| ValueError::new("a whole number of seconds"))
    }
}

/// SQL statements with `;` between them; `;;` stands for a semicolon in a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Statements(Vec<String>);

impl Value for Statements {
    const TYPE: &'static str = "SQL statements";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let mut statements = vec![String::new()];
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == ';' && rest.next_if_eq(&';').is_none() {
                statements.push(String::new());
            } else if let Some(statement) = statements.last_mut() {
                statement.push(c);
            }
        }
        let trimmed = statements.iter().map(|statement| statement.trim().to_owned());
        Ok(Self(trimmed.filter(|statement| !statement.is_empty()).collect()))
    }
}

properties! {
    pub(super) const HOSTNAME: Property<HostName> = Property::new("database.hostname").required()
        .text("Host name or address of the Postgres server. It must be the primary, or a standby of Postgres 16 and later. \
               Unlike in Debezium an IPv6 address works, too.");
    const PORT: Property<u16> = Property::new("database.port").default("5432")
        .text("Port of the server.");
    const USER: Property<String> = Property::new("database.user").required()
        .text("Role to connect as. It needs LOGIN and REPLICATION, SELECT on the captured tables for snapshots, and what \
               `publication.autocreate.mode` needs.");
    const PASSWORD: Property<Option<Secret>> = Property::new("database.password")
        .text("Password of the role. Better a reference such as `${env:PGPASSWORD}` or `${file:/secrets/pg.properties:password}` \
               than the password itself.");
    const DBNAME: Property<String> = Property::new("database.dbname").required()
        .text("Database to read. A slot belongs to one database, so each database has a connector of its own.");
    const SSLMODE: Property<SslMode> = Property::new("database.sslmode").default("prefer")
        .text("Whether the connection is encrypted and what is checked, as in libpq. Only `verify-full` protects against somebody \
               who pretends to be the server.");
    const SSLROOTCERT: Property<Option<String>> = Property::new("database.sslrootcert")
        .text("PEM file with the certificates of the authorities that are trusted, by default `~/.postgresql/root.crt` if that is \
               there. `verify-ca` and `verify-full` need one; `system`, which `verify-full` alone may have, trusts the system's. As \
               in libpq, the certificate is verified in every mode that encrypts and has such a file.");
    const SSLCERT: Property<Option<String>> = Property::new("database.sslcert")
        .text("PEM file with the client's certificate, for servers that ask for one.");
    const SSLKEY: Property<Option<String>> = Property::new("database.sslkey")
        .text("File with the key of the client's certificate: PEM, or PKCS#8 in DER as Debezium needs it.");
    const SSLPASSWORD: Property<Option<Secret>> = Property::new("database.sslpassword")
        .text("Password of the key, if it is encrypted.");
    const SSLFACTORY: Property<Option<String>> = Property::new("database.sslfactory")
        .text("Java class that opens sockets.")
        .support(Support::Refused { hint: "Walferry runs no Java classes; use database.sslmode and database.sslrootcert" });
    const CHANNEL_BINDING: Property<ChannelBinding> = Property::new("database.channelBinding").default("prefer")
        .text("Whether SCRAM authentication is bound to the TLS connection.");
    const TCP_KEEPALIVE: Property<bool> = Property::new("database.tcpKeepAlive").default("true")
        .text("Sends TCP keep-alive probes, so that a connection that a firewall has dropped is noticed: after a minute and a half in \
               which nothing was answered or acknowledged.");
    const CONNECT_TIMEOUT: Property<Seconds> = Property::new("database.connectTimeout").default("10")
        .text("How long to wait for a connection, in seconds.");
    const INITIAL_STATEMENTS: Property<Statements> = Property::new("database.initial.statements")
        .text("SQL statements to run on each connection when it is opened, with `;` between them; write `;;` for a semicolon \
               in a statement. Not run on the replication connection.");
    const QUERY_TIMEOUT: Property<Duration> = Property::new("database.query.timeout.ms").default("600000")
        .text("How long a query may take; 0 means as long as it likes. A server that has said nothing 10 s after that counts as dead. \
               Reading a table for a snapshot may take longer, as long as rows come.");
    const OPTIONS: Property<Option<String>> = Property::new("database.options")
        .text("Settings of the session in the notation of libpq, such as `-c lock_timeout=5s`.");
    const FACTORY: Property<Option<String>> = Property::new("database.connection.factory.class")
        .text("Java class that opens connections, such as the one for tokens of AWS.")
        .support(Support::Refused { hint: "Walferry runs no Java classes; use database.password with a config provider" });
    const SOCKET_TIMEOUT: Property<Option<String>> = Property::new("database.socketTimeout")
        .text("pgjdbc's limit for reading from a socket.")
        .support(Support::Accepted { why: "a server that says nothing is noticed: see `database.query.timeout.ms` and `status.update.interval.ms`" });
    const LOGIN_TIMEOUT: Property<Option<String>> = Property::new("database.loginTimeout")
        .text("pgjdbc's limit for logging in.")
        .support(Support::Accepted { why: "database.connectTimeout covers it" });
    const AUTOSAVE: Property<Option<String>> = Property::new("database.autosave")
        .text("pgjdbc's savepoints.")
        .support(Support::Accepted { why: "no statement here depends on a savepoint" });
    const PREPARE_THRESHOLD: Property<Option<String>> = Property::new("database.prepareThreshold")
        .text("pgjdbc's use of prepared statements.")
        .support(Support::Accepted { why: "it changes nothing that is sent" });
    const APPLICATION_NAME: Property<Option<String>> = Property::new("database.ApplicationName")
        .text("Name of the session in `pg_stat_activity`.")
        .support(Support::Accepted { why: "Debezium sets its own names whatever stands here, and so does Walferry" });
    const TARGET_SERVER_TYPE: Property<Option<String>> = Property::new("database.targetServerType")
        .text("pgjdbc's choice among several hosts.")
        .support(Support::Accepted { why: "there is one host" });
    const DRIVER: Property<Option<String>> = Property::new("driver.<parameter>")
        .text("A parameter of pgjdbc; the same as `database.<parameter>`, over which it wins.");
}

pub(super) const GROUP: Group = Group {
    title: "Connection to Postgres",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

/// A name that is a URL or a connection string has a password in it, which every error about that name would show.
fn no_url(reader: &mut Reader<'_>, property: &Property<String>) -> String {
    let name = reader.get(property);
    let lower = name.to_ascii_lowercase().replace("%3a", ":").replace("%40", "@");
    // A role of Azure's may be `app@server`; with a colon before the sign, a password stands between the two.
    let credentials = lower.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'));
    if lower.contains("://") || lower.contains("password=") || credentials {
        let shown = reader.options().shown(property.name());
        reader
            .problem(property.name(), format!("is {shown}, a whole address and no name"))
            .hint("write the name alone; host, port, user and password have properties of their own");
    }
    name
}

pub(super) fn read(reader: &mut Reader<'_>) -> PostgresSection {
    let section = PostgresSection {
        hostname: reader.get(&HOSTNAME),
        port: reader.get(&PORT),
        user: no_url(reader, &USER),
        password: reader.get(&PASSWORD),
        dbname: no_url(reader, &DBNAME),
        sslmode: reader.get(&SSLMODE),
        sslrootcert: reader.get(&SSLROOTCERT),
        sslcert: reader.get(&SSLCERT),
        sslkey: reader.get(&SSLKEY),
        sslpassword: reader.get(&SSLPASSWORD),
        channel_binding: reader.get(&CHANNEL_BINDING),
        tcp_keepalive: reader.get(&TCP_KEEPALIVE),
        connect_timeout: reader.get(&CONNECT_TIMEOUT).get(),
        initial_statements: reader.get(&INITIAL_STATEMENTS).0,
        query_timeout: reader.get(&QUERY_TIMEOUT),
        options: reader.get(&OPTIONS),
    };
    if section.sslcert.is_some() != section.sslkey.is_some() {
        let finding = reader.problem(SSLCERT.name(), "and database.sslkey must be set together");
        finding.hint("a client certificate is of use only with its key");
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_split_at_single_semicolons() {
        let cases: &[(&str, &[&str])] = &[
            ("select 1; select 2 ;", &["select 1", "select 2"]),
            ("select ';;'", &["select ';'"]),
            (" ; ", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(Statements::parse(text).unwrap().0, *expected, "{text}");
        }
    }
}
