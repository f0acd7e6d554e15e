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
    /// `database.sslcrl`: path of a file with lists of revoked certificates.
    pub sslcrl: Option<String>,
    /// `database.sslcert`: path of a PEM file.
    pub sslcert: Option<String>,
    /// `database.sslkey`: path of a file in PEM or in PKCS#8 DER.
    pub sslkey: Option<String>,
    /// `walferry.sslkey.check.mode`
    pub sslkey_check_mode: bool,
    /// `database.sslpassword`
    pub sslpassword: Option<Secret>,
    /// `database.requireAuth`. `None`: as safe as the connection allows.
    pub require_auth: Option<RequiredAuth>,
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
    /// `database.sslNegotiation`
    pub ssl_negotiation: SslNegotiation,
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
    /// How TLS begins, as libpq and pgjdbc have it.
    pub enum SslNegotiation {
        /// The client asks for it first.
        #[default]
        Postgres = "postgres",
        /// At once. Since Postgres 17.
        Direct = "direct",
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

choices! {
    /// A way in which a server may ask who logs in, as libpq names it.
    pub enum AuthMethod {
        /// The password in clear text.
        Password = "password",
        /// A hash of the password.
        Md5 = "md5",
        /// GSSAPI, which Walferry does not have.
        Gss = "gss",
        /// SSPI, which Walferry does not have.
        Sspi = "sspi",
        /// A proof that both sides know the password.
        ScramSha256 = "scram-sha-256",
        /// The server asks for nothing, because it trusts the connection or has seen a certificate.
        #[default]
        None = "none",
    }
}

/// The methods that a server may ask for: those that are listed, or all but those that are listed with `!`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequiredAuth {
    /// One bit for each method.
    listed: u8,
    negated: bool,
}

impl RequiredAuth {
    const fn bit(method: AuthMethod) -> u8 {
        1 << method as u8
    }

    /// Whether a server may ask for this method.
    pub const fn allows(&self, method: AuthMethod) -> bool {
        (self.listed & Self::bit(method) != 0) != self.negated
    }

    /// Whether this method is listed as one that a server may ask for.
    pub const fn names(&self, method: AuthMethod) -> bool {
        !self.negated && self.listed & Self::bit(method) != 0
    }
}

impl Value for RequiredAuth {
    const TYPE: &'static str = "methods of authentication";
    fn parse(text: &str) -> Result<Self, ValueError> {
        const EXPECTED: &str = "methods with commas between them, such as `scram-sha-256,none`, each of them or none of them after a `!`; \
                                the methods are password, md5, gss, sspi, scram-sha-256 and none";
        let mut required: Option<Self> = None;
        for method in text.split(',').map(str::trim) {
            let (name, negated) = match method.strip_prefix('!') {
                Some(name) => (name.trim(), true),
                None => (method, false),
            };
            let method = AuthMethod::parse(name).map_err(|_| ValueError::new(EXPECTED))?;
            let all = required.get_or_insert(Self { listed: 0, negated });
            if all.negated != negated {
                return Err(ValueError::new(EXPECTED));
            }
            all.listed |= Self::bit(method);
        }
        required.ok_or_else(|| ValueError::new(EXPECTED))
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
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ';' && chars.next_if_eq(&';').is_none() {
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
    pub(super) const HOSTNAME: Property<HostName> = Property::new("database.hostname").example("db.example.com").required()
        .text("Host name or address of the Postgres server. It must be the primary, or a standby with Postgres 16 or later. Unlike in \
               Debezium, it may also be an IPv6 address.");
    const PORT: Property<u16> = Property::new("database.port").default("5432")
        .text("Port of the Postgres server.");
    const USER: Property<String> = Property::new("database.user").example("orders_cdc").required()
        .text("Role to connect as. It needs LOGIN and REPLICATION, SELECT on the captured tables for snapshots, and the privileges that \
               `publication.autocreate.mode` requires.");
    const PASSWORD: Property<Option<Secret>> = Property::new("database.password").example("${env:PGPASSWORD}")
        .text("Password of the role. We recommend a reference such as `${env:PGPASSWORD}` or `${file:/secrets/pg.properties:password}` \
               instead of the password itself.");
    const DBNAME: Property<String> = Property::new("database.dbname").example("orders").required()
        .text("Database to read. A slot belongs to one database, so each database needs its own connector.");
    const SSLMODE: Property<SslMode> = Property::new("database.sslmode").default("prefer")
        .text("Whether the connection is encrypted, and how the server is verified, as in libpq. Only `verify-full` protects against an \
               attacker who impersonates the server.");
    const SSLROOTCERT: Property<Option<String>> = Property::new("database.sslrootcert").example("/etc/walferry/db-ca.pem")
        .text("PEM file with the trusted certificate authorities. The default is `~/.postgresql/root.crt`, if that file exists. \
               `verify-ca` and `verify-full` need such a file. With `verify-full`, the value `system` selects the operating system's \
               certificates. As in libpq, the certificate is verified in every mode that encrypts, if there is such a file.");
    const SSLCRL: Property<Option<String>> = Property::new("database.sslcrl").example("/etc/walferry/db-ca.crl")
        .text("File with lists of revoked certificates (CRL): PEM, one after another, or one in DER. The default is `~/.postgresql/root.crl`, if \
               that file exists and the server's certificate is verified. As in libpq, each authority between the server's certificate and \
               the trusted one needs a list that is still valid. It needs `database.sslmode=verify-full`, `verify-ca`, or `require` with a \
               root certificate. pgjdbc has no such parameter.");
    const SSLCRLDIR: Property<Option<String>> = Property::new("database.sslcrldir")
        .text("libpq's folder of lists of revoked certificates.")
        .support(Support::Refused { hint: "write the lists into one file, one after another as PEM, and set database.sslcrl to it" });
    const SSLCERT: Property<Option<String>> = Property::new("database.sslcert").example("/etc/walferry/client.pem")
        .text("PEM file with the client certificate, for servers that require one.");
    const SSLKEY: Property<Option<String>> = Property::new("database.sslkey").example("/etc/walferry/client.key")
        .text("File with the private key of the client certificate: PEM, or PKCS#8 in DER as Debezium requires it. As in libpq, it must be for \
               its owner alone (0600), or be root's and at most readable by its group (0640).");
    const SSLKEY_CHECK_MODE: Property<bool> = Property::new("walferry.sslkey.check.mode").default("true")
        .text("Whether the file of `database.sslkey` is refused if other users of the machine can read or change it. `false` takes it, for \
               secrets that are mounted with a mode that nobody can change: then whoever reads the file can log in as this client.");
    const SSLPASSWORD: Property<Option<Secret>> = Property::new("database.sslpassword").example("${env:KEY_PASSWORD}")
        .text("Password of the key, if it is encrypted.");
    const SSLFACTORY: Property<Option<String>> = Property::new("database.sslfactory")
        .text("Java class that opens sockets.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; use database.sslmode and database.sslrootcert" });
    const REQUIRE_AUTH: Property<Option<RequiredAuth>> = Property::new("database.requireAuth").example("scram-sha-256")
        .text("Ways of logging in that the server may ask for, as in libpq's `require_auth`: `password`, `md5`, `scram-sha-256` and `none`, \
               with commas between them, or all but those after a `!`. If it is not set: `scram-sha-256` and `none`; `password` (clear text) \
               and `md5` only over TLS with a verified certificate (`verify-full`, `verify-ca`, or another mode with a root certificate). \
               That holds on the loopback address, too: any user of a machine may listen on a port that Postgres has left. A method that is \
               named here is answered on every connection; with `password`, whoever answers at the server's address or listens on the \
               way gets the password.");
    const SSL_NEGOTIATION: Property<SslNegotiation> = Property::new("database.sslNegotiation").default("postgres")
        .text("How TLS begins: `postgres` asks the server for it first; `direct` begins with TLS at once, which saves a round trip and lets \
               proxies route by name. It needs Postgres 17 and `database.sslmode=require` or stricter.");
    const CHANNEL_BINDING: Property<ChannelBinding> = Property::new("database.channelBinding").default("prefer")
        .text("Whether SCRAM authentication is bound to the TLS connection.");
    const TCP_KEEPALIVE: Property<bool> = Property::new("database.tcpKeepAlive").default("true")
        .text("Sends TCP keep-alive probes, so that Walferry notices when a firewall has dropped the connection: after a minute and a \
               half without an answer or acknowledgement.");
    const CONNECT_TIMEOUT: Property<Seconds> = Property::new("database.connectTimeout").default("10")
        .text("Time limit for connecting, in seconds.");
    const INITIAL_STATEMENTS: Property<Statements> = Property::new("database.initial.statements").example("SET lock_timeout = '5s'")
        .text("SQL statements that run on each new connection, separated by `;`. Write `;;` for a semicolon within a statement. They do \
               not run on the replication connection.");
    const QUERY_TIMEOUT: Property<Duration> = Property::new("database.query.timeout.ms").default("600000")
        .text("Time limit for queries; 0 means no limit. If the server has not answered 10 s after the limit, Walferry treats it as dead. \
               Reading a table for a snapshot may take longer, as long as rows arrive.");
    const OPTIONS: Property<Option<String>> = Property::new("database.options").example("-c lock_timeout=5s")
        .text("Session settings in libpq's notation, such as `-c lock_timeout=5s`.");
    const FACTORY: Property<Option<String>> = Property::new("database.connection.factory.class")
        .text("Java class that opens connections, such as the one for AWS authentication tokens.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; use database.password with a config provider" });
    const SOCKET_TIMEOUT: Property<Option<String>> = Property::new("database.socketTimeout")
        .text("pgjdbc's time limit for reading from a socket.")
        .support(Support::Accepted { why: "Walferry detects a server that does not respond in another way: see \
                                           `database.query.timeout.ms` and `status.update.interval.ms`" });
    const LOGIN_TIMEOUT: Property<Option<String>> = Property::new("database.loginTimeout")
        .text("pgjdbc's time limit for logging in.")
        .support(Support::Accepted { why: "database.connectTimeout includes the login" });
    const AUTOSAVE: Property<Option<String>> = Property::new("database.autosave")
        .text("pgjdbc's savepoints.")
        .support(Support::Accepted { why: "Walferry uses no savepoints" });
    const PREPARE_THRESHOLD: Property<Option<String>> = Property::new("database.prepareThreshold")
        .text("pgjdbc's use of prepared statements.")
        .support(Support::Accepted { why: "it does not affect what is sent" });
    const APPLICATION_NAME: Property<Option<String>> = Property::new("database.ApplicationName")
        .text("Name of the session in `pg_stat_activity`.")
        .support(Support::Accepted { why: "Debezium always sets its own session names, and so does Walferry" });
    const TARGET_SERVER_TYPE: Property<Option<String>> = Property::new("database.targetServerType")
        .text("How pgjdbc chooses among several hosts.")
        .support(Support::Accepted { why: "there is only one host" });
    const DRIVER: Property<Option<String>> = Property::new("driver.<parameter>").example("driver.connectTimeout=10")
        .text("A parameter of pgjdbc. It is the same as `database.<parameter>`, and takes precedence over it.");
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
        let display_text = reader.options().display_text(property.name());
        reader
            .problem(
                property.name(),
                format!("is {display_text}, which is a full address instead of a name"),
            )
            .hint("write only the name; host, port, user and password have their own properties");
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
        sslcrl: reader.get(&SSLCRL),
        sslcert: reader.get(&SSLCERT),
        sslkey: reader.get(&SSLKEY),
        sslkey_check_mode: reader.get(&SSLKEY_CHECK_MODE),
        sslpassword: reader.get(&SSLPASSWORD),
        require_auth: reader.get(&REQUIRE_AUTH),
        channel_binding: reader.get(&CHANNEL_BINDING),
        tcp_keepalive: reader.get(&TCP_KEEPALIVE),
        connect_timeout: reader.get(&CONNECT_TIMEOUT).get(),
        initial_statements: reader.get(&INITIAL_STATEMENTS).0,
        query_timeout: reader.get(&QUERY_TIMEOUT),
        options: reader.get(&OPTIONS),
        ssl_negotiation: reader.get(&SSL_NEGOTIATION),
    };
    let has_blank = |password: &Secret| password.expose().trim() != password.expose();
    if section.password.as_ref().is_some_and(has_blank) {
        let finding = reader.warning(
            PASSWORD.name(),
            "begins or ends with a blank, which is sent as a part of the password",
        );
        finding.hint("remove it, if it is not meant: in a .properties file, blanks at the end of a line count");
    }
    let is_weak = matches!(section.sslmode, SslMode::Disable | SslMode::Allow | SslMode::Prefer);
    if section.sslcrl.is_some() && is_weak {
        let finding = reader.problem(
            SSLCRL.name(),
            format!(
                "has no effect while `database.sslmode` is `{}`, which connects to a server whose certificate is revoked, too",
                section.sslmode
            ),
        );
        finding.hint("set `database.sslmode` to `verify-full`, or remove it");
    }
    if section.ssl_negotiation == SslNegotiation::Direct && is_weak {
        let finding = reader.problem(
            SSL_NEGOTIATION.name(),
            "is `direct`, but `database.sslmode` allows connections without TLS",
        );
        finding.hint("set `database.sslmode` to `require`, `verify-ca` or `verify-full`");
    }
    if section.sslcert.is_some() != section.sslkey.is_some() {
        let finding = reader.problem(SSLCERT.name(), "and database.sslkey must be set together");
        finding.hint("a client certificate cannot be used without its key");
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_authentication_are_listed_as_in_libpq() {
        use AuthMethod::{Md5, None as Nothing, Password, ScramSha256};
        let allowed = |text: &str| {
            let required = RequiredAuth::parse(text).unwrap();
            [Password, Md5, ScramSha256, Nothing].map(|method| required.allows(method))
        };
        assert_eq!(allowed("scram-sha-256"), [false, false, true, false]);
        assert_eq!(allowed(" password , none"), [true, false, false, true]);
        assert_eq!(allowed("!password,! md5"), [false, false, true, true]);
        let named = RequiredAuth::parse("!none").unwrap();
        assert!(named.allows(Password) && !named.names(Password));
        for wrong in ["", "scram", "password,!md5", "password,", "!"] {
            assert!(RequiredAuth::parse(wrong).is_err(), "{wrong:?}");
        }
    }

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
