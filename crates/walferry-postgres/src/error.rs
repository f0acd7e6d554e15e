//! Errors of a Postgres server, what the engine does about them, and how to correct them.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use walferry_diagnosis::{Diagnosis, Kind};

use walferry_config::connector::SslMode;
use walferry_engine::failure::{Disposition, Failure};
use walferry_engine::gap;
use walferry_keystore::trust::Refusal;

use crate::chunks::not_published::NotPublished;
use crate::connection::AuthRefusal;
use crate::connection::server_error::ServerError;
use crate::quote::identifier;
use crate::setup::problem::SetupProblem;

/// A failure of a connection, a statement or the stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host name has no address.
    #[error("cannot resolve host {host:?}")]
    Resolve {
        /// `database.hostname`.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// Nothing answers at the address.
    #[error("cannot reach Postgres at {address}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The socket's error.
        source: io::Error,
    },
    /// The server was reached, but the login did not complete in time.
    #[error("Postgres at {address} accepted the connection but then sent nothing for {seconds} s")]
    LoginTimeout {
        /// Host and port.
        address: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The server has no TLS.
    #[error("Postgres at {address} does not support TLS, which sslmode={mode} requires")]
    TlsNotOffered {
        /// Host and port.
        address: String,
        /// The mode.
        mode: SslMode,
    },
    /// The server does not begin with TLS.
    #[error("Postgres at {address} does not begin with TLS, which `database.sslNegotiation=direct` requires")]
    NoDirectTls {
        /// Host and port.
        address: String,
    },
    /// The server could not even start a process for the connection.
    #[error("Postgres at {address} answered the TLS request with an error")]
    TlsRequestFailed {
        /// Host and port.
        address: String,
    },
    /// The certificates or protocol versions are not compatible.
    #[error("TLS handshake with {address} failed")]
    TlsHandshake {
        /// Host and port.
        address: String,
        /// The error of OpenSSL or the socket.
        source: io::Error,
    },
    /// The server's certificate is not trusted.
    #[error("{refusal} (TLS with {address})")]
    CertificateRefused {
        /// Host and port.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// Certificate and key do not belong together, or are of an unsupported kind.
    #[error("TLS cannot be set up with the configured certificates")]
    TlsSetup {
        /// The error of OpenSSL.
        source: openssl::error::ErrorStack,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({property})", path.display())]
    TlsFileUnreadable {
        /// The property that names the file.
        property: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file was read but cannot be used.
    #[error("{} ({property}): {problem}", path.display())]
    TlsFile {
        /// The property that names the file.
        property: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// Other users of the machine can read or change the private key.
    #[error("{} (database.sslkey) has the mode {mode:04o}: other users of this machine can use the private key", path.display())]
    KeyOpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There is no root certificate to verify the server's certificate with.
    #[error("sslmode={mode} needs the certificate of the authority that signed the server's certificate")]
    RootCertificateMissing {
        /// The mode.
        mode: SslMode,
    },
    /// Public authorities verify nothing unless the name is verified too.
    #[error("with sslmode={mode}, the system's certificates would accept any public certificate")]
    SystemRootsNeedVerifyFull {
        /// The mode.
        mode: SslMode,
    },
    /// There is a client certificate without its key.
    #[error("the client certificate {} has no key", certificate.display())]
    ClientKeyMissing {
        /// The certificate.
        certificate: PathBuf,
    },
    /// The server asks for a password.
    #[error("Postgres requires a password for user {user:?}, but none is configured")]
    PasswordMissing {
        /// `database.user`.
        user: String,
    },
    /// An authentication method that is not implemented.
    #[error("Postgres requires {method} authentication, which is not supported")]
    AuthenticationMethod {
        /// The method.
        method: &'static str,
    },
    /// The server asks for a way of logging in that is not answered on this connection.
    #[error("{refusal}")]
    AuthenticationRefused {
        /// What it asks for.
        refusal: AuthRefusal,
    },
    /// SCRAM failed on our side: the server did not prove that it knows the password.
    #[error("the server did not prove that it knows the password")]
    Scram {
        /// The error of the exchange.
        source: io::Error,
    },
    /// Authentication failed on our side, on a SQL connection.
    #[error("authentication failed: {problem}")]
    Authentication {
        /// What was missing.
        problem: String,
    },
    /// Channel binding is required but not available.
    #[error("channel binding is required, but the server does not offer it on this connection")]
    ChannelBinding,
    /// The database has no TimescaleDB catalog.
    #[error("the transform TimescaleDb needs TimescaleDB's catalog, which does not exist in this database")]
    NoTimescale {
        /// The server's error.
        #[source]
        source: Box<ServerError>,
    },
    /// A table has a column of type `money`, and nobody can say how many decimal places its values have.
    #[error("the number of decimal places of money in database {database:?} is unknown: {problem}")]
    MoneyDigits {
        /// The database.
        database: String,
        /// Why.
        problem: String,
    },
    /// The server refused a statement or command.
    #[error("{doing} failed")]
    Server {
        /// What was being done.
        doing: &'static str,
        /// The server's error.
        #[source]
        source: Box<ServerError>,
    },
    /// The connection ended.
    #[error("the connection to Postgres was lost while {doing}")]
    Lost {
        /// What was being done.
        doing: &'static str,
        /// The socket's error.
        source: io::Error,
    },
    /// The connection is open, but nothing arrives over it.
    #[error("Postgres sent nothing for {seconds} s while {doing}")]
    Silent {
        /// What was being done.
        doing: &'static str,
        /// How long we waited.
        seconds: u64,
    },
    /// A slot cannot be created while older transactions are still running.
    #[error(
        "replication slot {slot:?} could not be created within {seconds} s, because older transactions are still running{}",
        if blockers.is_empty() { String::new() } else { format!(": {blockers}") }
    )]
    SlotTimeout {
        /// The slot.
        slot: String,
        /// The limit.
        seconds: u64,
        /// These transactions, as far as they were seen.
        blockers: String,
    },
    /// `snapshot.select.statement.overrides` has a statement that cannot be run.
    #[error("the SELECT statement for table {table} cannot be run: {problem}")]
    SelectOverride {
        /// `schema.table`.
        table: String,
        /// The server's message.
        problem: String,
    },
    /// COPY answered something else than rows, so the statement was not the one that Walferry meant.
    #[error("{doing} brought no rows: the server ran another statement than COPY … TO STDOUT")]
    NoCopy {
        /// What was being done.
        doing: &'static str,
    },
    /// Rows are read in the order of a column, and a value of it cannot be sent to the server.
    #[error("column {column} of the key of {table} has a value with bytes without a form in UTF-8: {bytes}")]
    KeyWithoutUtf8 {
        /// The table, quoted.
        table: String,
        /// The column, quoted.
        column: String,
        /// The bytes.
        bytes: String,
    },
    /// A table was dropped or altered after it was listed and before it was read.
    #[error("table {table} was changed after the snapshot was planned")]
    TableChanged {
        /// Quoted name.
        table: String,
    },
    /// The stream would not contain the watermarks of chunks.
    #[error("{}", why.text(table, publication))]
    SignalTableNotPublished {
        /// Quoted name.
        table: String,
        /// Quoted name.
        publication: String,
        /// What is missing.
        why: NotPublished,
    },
    /// The snapshot that a slot exported no longer exists.
    #[error("the exported snapshot no longer exists, because the connection that held it was lost")]
    SnapshotGone,
    /// The server's answer is not what the protocol defines.
    #[error("unexpected answer while {doing}: {problem}")]
    Protocol {
        /// What was being done.
        doing: &'static str,
        /// What arrived.
        problem: String,
    },
    /// The connector cannot work with the present state of the server, the slot or the publication.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Problems(Vec<SetupProblem>),
    /// The catalog has no publication of this name.
    #[error("publication {publication:?} does not exist{}", now(renamed))]
    PublicationMissing {
        /// The publication.
        publication: String,
        /// Its present name, if it was renamed.
        renamed: Option<String>,
        /// The statement that corrects this.
        mend: String,
    },
    /// The catalog shows that changes of captured tables may be missing since the last look.
    #[error("{what}")]
    PublicationChanged {
        /// What has changed.
        what: String,
    },
    /// Connections to one address have reached different servers.
    #[error(
        "connections to {address} have reached two servers: one was started at {first} UTC, the other at {second} UTC"
    )]
    TwoServers {
        /// Host and port.
        address: String,
        /// When the server of the first connection was started.
        first: String,
        /// When that of a later one was.
        second: String,
    },
    /// The pipeline has ended.
    #[error("the pipeline has ended")]
    PipelineEnded,
    /// A regular expression backtracks too much on the name of a table.
    #[error(transparent)]
    Expression(walferry_config::RegexLimit),
}

/// The refusal that the stream has returned instead of the server's bytes.
fn refusal_in(error: &io::Error) -> Option<AuthRefusal> {
    error.get_ref()?.downcast_ref().copied()
}

fn now(renamed: &Option<String>) -> String {
    match renamed {
        Some(name) => format!(": it was renamed to {name:?}"),
        None => String::new(),
    }
}

impl Error {
    /// The server has refused what was being done.
    pub fn server(doing: &'static str, source: ServerError) -> Self {
        Self::Server {
            doing,
            source: Box::new(source),
        }
    }

    /// The connection ended. TLS and sockets have many messages for a server that closed it; this uses one.
    pub(crate) fn lost(doing: &'static str, source: io::Error) -> Self {
        if let Some(refusal) = refusal_in(&source) {
            return Self::AuthenticationRefused { refusal };
        }
        let source = match source.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(source.kind(), "the server closed it"),
            _ => source,
        };
        Self::Lost { doing, source }
    }

    /// The server closed the connection.
    pub(crate) fn closed(doing: &'static str) -> Self {
        Self::lost(doing, io::ErrorKind::UnexpectedEof.into())
    }

    /// An error of an ordinary SQL connection.
    pub fn sql(doing: &'static str, error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => Self::server(doing, ServerError::from(db)),
            None if error.is_closed() => Self::closed(doing),
            None => {
                let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
                match source {
                    Some(source) => match refusal_in(source) {
                        Some(refusal) => Self::AuthenticationRefused { refusal },
                        None => Self::lost(doing, io::Error::new(source.kind(), source.to_string())),
                    },
                    None => Self::Protocol {
                        doing,
                        problem: Failure::chain(&error),
                    },
                }
            }
        }
    }

    /// An error of a COPY. The same statement would get the same answer again.
    pub(crate) fn copy(doing: &'static str, error: tokio_postgres::Error) -> Self {
        match Self::sql(doing, error) {
            Self::Protocol { problem, .. } if problem == "unexpected message from server" => Self::NoCopy { doing },
            other => other,
        }
    }

    /// A statement that always returns a row has returned none.
    pub(crate) fn no_row(doing: &'static str) -> Self {
        let problem = "no row".to_owned();
        Self::Protocol { doing, problem }
    }

    /// The server's error, if it sent one.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Server { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether the server refused this kind of connection, not the user or the password: `pg_hba.conf` has no entry for
    /// it with, or without, encryption.
    pub(crate) fn is_refused_by_hba(&self) -> bool {
        self.server_error().is_some_and(|error| error.code == "28000")
    }

    /// Whether the server does not accept the user with this password. A user may be replaced with its password.
    pub(crate) fn is_password_refused(&self) -> bool {
        match self.kind() {
            Kind::Authentication => true,
            // The server's settings name this file in every language.
            Kind::AccessRefused => !self.to_string().contains("pg_hba.conf"),
            _ => false,
        }
    }

    /// Whether a pooler refuses the settings of a login.
    pub(crate) fn is_startup_refused(&self) -> bool {
        self.server_error().is_some_and(ServerError::is_startup_refused)
    }

    /// Whether the server accepts nobody at the moment, because it is starting or shutting down.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.server_error()
            .is_some_and(|error| error.kind() == Kind::ServerNotReady)
    }

    /// The same as a warning: nothing has failed yet.
    pub(crate) fn warning(&self) -> Diagnosis {
        Diagnosis::warning(self.kind(), self.to_string()).with_any_hint(self.hint())
    }

    /// The kind, for metrics.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Resolve { .. } | Self::Unreachable { .. } | Self::LoginTimeout { .. } => Kind::Unreachable,
            Self::TlsNotOffered { .. }
            | Self::TlsHandshake { .. }
            | Self::CertificateRefused { .. }
            | Self::NoDirectTls { .. }
            | Self::TlsSetup { .. }
            | Self::TlsFileUnreadable { .. }
            | Self::TlsFile { .. }
            | Self::KeyOpenToOthers { .. }
            | Self::RootCertificateMissing { .. }
            | Self::SystemRootsNeedVerifyFull { .. }
            | Self::ClientKeyMissing { .. } => Kind::Tls,
            Self::PasswordMissing { .. }
            | Self::AuthenticationMethod { .. }
            | Self::AuthenticationRefused { .. }
            | Self::Scram { .. }
            | Self::Authentication { .. }
            | Self::ChannelBinding => Kind::Authentication,
            Self::Server { source, .. } => source.kind(),
            Self::TlsRequestFailed { .. } | Self::Lost { .. } => Kind::ConnectionLost,
            Self::Silent { .. } => Kind::Silent,
            Self::TwoServers { .. } => Kind::TwoServers,
            Self::SlotTimeout { .. } => Kind::Timeout,
            Self::SelectOverride { .. } | Self::NoCopy { .. } => Kind::SelectOverride,
            Self::KeyWithoutUtf8 { .. } => Kind::ChangeNotConverted,
            Self::TableChanged { .. } => Kind::TableChanged,
            Self::SignalTableNotPublished { .. } => Kind::SignalTableNotPublished,
            Self::SnapshotGone => Kind::SnapshotGone,
            Self::Protocol { .. } => Kind::Protocol,
            Self::NoTimescale { .. } => Kind::TimescaleMissing,
            Self::MoneyDigits { .. } => Kind::ServerSetup,
            // A problem that does not resolve itself counts first, since it determines the exit code.
            Self::Problems(problems) => {
                let lasting = problems.iter().find(|problem| !problem.passes());
                lasting
                    .or(problems.first())
                    .map_or(Kind::ServerSetup, SetupProblem::kind)
            }
            Self::PublicationMissing { .. } => gap::MISSING,
            Self::PublicationChanged { .. } => gap::CHANGED,
            Self::PipelineEnded => Kind::PipelineEnded,
            Self::Expression(_) => Kind::RegexLimit,
        }
    }

    /// Whether the same may succeed a little later.
    pub fn disposition(&self) -> Disposition {
        let stop = Disposition::stop(self.kind());
        match self {
            Self::Resolve { .. }
            | Self::Unreachable { .. }
            | Self::LoginTimeout { .. }
            | Self::TlsRequestFailed { .. }
            | Self::Lost { .. }
            | Self::Silent { .. }
            | Self::TwoServers { .. }
            | Self::SlotTimeout { .. }
            | Self::TableChanged { .. }
            | Self::SignalTableNotPublished { .. }
            | Self::SnapshotGone
            | Self::Protocol { .. }
            | Self::PublicationMissing { .. }
            | Self::PublicationChanged { .. }
            | Self::PipelineEnded => Disposition::Retry,
            // If a handshake was interrupted, the network is the cause. If it was refused, it is not.
            Self::TlsHandshake { source, .. } if source.kind() != io::ErrorKind::InvalidData => Disposition::Retry,
            Self::TlsHandshake { .. }
            | Self::TlsNotOffered { .. }
            | Self::CertificateRefused { .. }
            | Self::NoDirectTls { .. }
            | Self::TlsSetup { .. }
            | Self::TlsFileUnreadable { .. }
            | Self::TlsFile { .. }
            | Self::KeyOpenToOthers { .. }
            | Self::RootCertificateMissing { .. }
            | Self::SystemRootsNeedVerifyFull { .. }
            | Self::ClientKeyMissing { .. }
            | Self::PasswordMissing { .. }
            | Self::AuthenticationMethod { .. }
            | Self::AuthenticationRefused { .. }
            | Self::Scram { .. }
            | Self::Authentication { .. }
            | Self::ChannelBinding
            | Self::NoTimescale { .. }
            | Self::MoneyDigits { .. }
            | Self::SelectOverride { .. }
            | Self::NoCopy { .. }
            | Self::KeyWithoutUtf8 { .. } => stop,
            Self::Server { source, .. } => source.disposition(),
            Self::Problems(problems) if problems.iter().all(SetupProblem::passes) => Disposition::Retry,
            Self::Problems(_) | Self::Expression(_) => stop,
        }
    }

    /// The setting, statement or command that corrects the problem.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Expression(limit) => limit.hint(),
            Self::Resolve { host, .. } if host.contains(':') => {
                let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
                format!("a port belongs into `database.port`: write {name:?} in `database.hostname`, and {port:?} in `database.port`")
            }
            Self::Resolve { .. } => "check `database.hostname`, and check that this machine can resolve it".to_owned(),
            Self::Unreachable { address, .. } => format!(
                "check that the server is running and listening (`listen_addresses`, `port`), that no firewall blocks the connection, and \
                 that `database.hostname` and `database.port` are correct: `pg_isready -h {}`",
                address.replacen(':', " -p ", usize::from(!address.contains('[')))
            ),
            Self::LoginTimeout { .. } => {
                "the address may belong to a service other than Postgres, the server may be overloaded, or a pooler in front of it may have \
                 no connection left (PgBouncer: `default_pool_size`; a connector needs 3)"
                    .to_owned()
            }
            Self::Silent { .. } => {
                "check the server and the network: a server process may be stopped or very busy (`SELECT pid, state, wait_event_type, \
                 query FROM pg_stat_activity WHERE application_name LIKE 'Walferry%'`), or a firewall may silently drop the connection"
                    .to_owned()
            }
            Self::TlsNotOffered { .. }
            | Self::TlsHandshake { .. }
            | Self::CertificateRefused { .. }
            | Self::NoDirectTls { .. }
            | Self::TlsSetup { .. }
            | Self::TlsFileUnreadable { .. }
            | Self::TlsFile { .. }
            | Self::KeyOpenToOthers { .. }
            | Self::RootCertificateMissing { .. }
            | Self::SystemRootsNeedVerifyFull { .. }
            | Self::ClientKeyMissing { .. } => return self.tls_hint(),
            Self::PasswordMissing { .. } => "set `database.password`".to_owned(),
            Self::AuthenticationRefused { refusal } => refusal.hint(),
            Self::AuthenticationMethod { .. } => {
                "change `pg_hba.conf` so that this user authenticates with `scram-sha-256` or a client certificate".to_owned()
            }
            Self::Scram { .. } => {
                "check `database.password`; if it is correct, somebody may be intercepting the connection".to_owned()
            }
            Self::Authentication { .. } => "check `database.password` and `database.channelBinding`".to_owned(),
            Self::ChannelBinding => {
                "use TLS and a password stored as SCRAM (`SET password_encryption = 'scram-sha-256'`, then set the password \
                 again), or set `database.channelBinding` to `prefer`"
                    .to_owned()
            }
            Self::SlotTimeout { .. } => {
                "end them: SELECT pid, xact_start, application_name, state, query FROM pg_stat_activity WHERE xact_start < now() - \
                 interval '1 minute' ORDER BY xact_start; SELECT pg_terminate_backend(PID);"
                    .to_owned()
            }
            Self::SignalTableNotPublished {
                table,
                publication,
                why,
            } => why.hint(table, publication),
            Self::SelectOverride { table, .. } => format!("correct `snapshot.select.statement.overrides.{table}`, or the filter of the signal"),
            Self::KeyWithoutUtf8 { table, column, .. } => {
                format!("correct the value: UPDATE {table} SET {column} = … WHERE …; or ask for a blocking snapshot, which needs no key")
            }
            Self::NoCopy { .. } => "correct the SELECT or the condition that the table is read with".to_owned(),
            Self::NoTimescale { .. } => {
                "check that `database.dbname` is the database with the extension (`CREATE EXTENSION timescaledb`), or remove the transform"
                    .to_owned()
            }
            Self::MoneyDigits { database, .. } => format!(
                "set the locale by which applications write amounts, in which one unit has as many decimal places as the stored values: ALTER \
                 DATABASE {} SET lc_monetary = 'en_US.UTF-8'",
                identifier(database)
            ),
            Self::TwoServers { .. } => {
                "if the server was restarted a moment ago, nothing has to be done; else let `database.hostname` and `database.port` lead to one \
                 server: a load balancer over several servers must not stand there"
                    .to_owned()
            }
            Self::PublicationMissing { mend, .. } => mend.clone(),
            Self::PublicationChanged { .. } => {
                "use `walferry offsets skip-gap` to decide what happens to the changes that may be missing".to_owned()
            }
            Self::Server { source, .. } => return source.remedy(),
            Self::Problems(problems) => return problems.first().map(SetupProblem::hint),
            Self::TlsRequestFailed { .. }
            | Self::Lost { .. }
            | Self::SnapshotGone
            | Self::TableChanged { .. }
            | Self::Protocol { .. }
            | Self::PipelineEnded => return None,
        })
    }

    /// The hint of an error of TLS or its files.
    fn tls_hint(&self) -> Option<String> {
        Some(match self {
            Self::TlsNotOffered { .. } => {
                "enable TLS on the server (`ALTER SYSTEM SET ssl = on`, with `ssl_cert_file` and `ssl_key_file`), or set \
                 `database.sslmode` to `prefer` or `disable`"
                    .to_owned()
            }
            Self::TlsHandshake { .. } => {
                "server and client have no protocol, cipher or curve in common, or the server refuses the client's certificate; Walferry \
                 takes TLS 1.2 and 1.3: compare with `ssl_min_protocol_version`, `ssl_max_protocol_version`, `ssl_ciphers` and \
                 `ssl_ecdh_curve` of the server, and with what `openssl s_client -starttls postgres -connect HOST:PORT` shows"
                    .to_owned()
            }
            Self::CertificateRefused { refusal, .. } => refusal.hint(),
            Self::NoDirectTls { .. } => {
                "Postgres can do it since version 17, with `ssl = on`; set `database.sslNegotiation` to `postgres` for an older server or a \
                 pooler"
                    .to_owned()
            }
            Self::TlsSetup { .. } => "check that `database.sslcert` and `database.sslkey` belong together".to_owned(),
            Self::TlsFileUnreadable { property, .. } => {
                format!("set `{property}` to a file that this process may read")
            }
            Self::TlsFile { property: "database.sslkey", .. } => {
                "set `database.sslpassword` to the password of the key, or provide the key unencrypted, as PEM or as PKCS#8 DER: `openssl \
                 pkcs8 -topk8 -nocrypt -in KEY -out client.key` (from PKCS#12: `openssl pkcs12 -in FILE -nodes -nocerts -out client.key`)"
                    .to_owned()
            }
            Self::TlsFile { property: "database.sslcrl", .. } => {
                "set `database.sslrootcert` to the trusted authorities, and `database.sslcrl` to a file with nothing but their lists of revoked \
                 certificates, as PEM (`-----BEGIN X509 CRL-----`) or one of them as DER: `openssl crl -inform DER -in LIST` makes PEM of it"
                    .to_owned()
            }
            Self::KeyOpenToOthers { path, .. } => format!(
                "`chmod 0600 {}`, or let it belong to root with the mode 0640 and a group of which Walferry is a member (in Kubernetes: \
                 `defaultMode: 0440` and `fsGroup`); `walferry.sslkey.check.mode=false` takes it as it is: then whoever reads it can log in \
                 as this client",
                path.display()
            ),
            Self::TlsFile { .. } => "provide certificates as PEM: `-----BEGIN CERTIFICATE-----`".to_owned(),
            Self::RootCertificateMissing { .. } => {
                "set `database.sslrootcert` to this certificate as PEM, or, with `verify-full`, to `system` to trust the system's \
                 certificates"
                    .to_owned()
            }
            Self::SystemRootsNeedVerifyFull { .. } => "set `database.sslmode` to `verify-full`".to_owned(),
            Self::ClientKeyMissing { .. } => "set `database.sslkey`".to_owned(),
            _ => return None,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (disposition, kind) = (error.disposition(), error.kind());
        match error {
            Error::Problems(problems) => {
                Self::of(disposition, kind, problems.iter().map(SetupProblem::cause).collect())
            }
            other => Self::new(disposition, kind, Self::chain(&other), other.hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::Exit;

    use super::*;

    #[test]
    fn network_trouble_is_retried_and_setup_is_not() {
        const STOP: Disposition = Disposition::Stop(Exit::Setup);
        let io = |kind: io::ErrorKind| io::Error::from(kind);
        let address = || "db:5432".to_owned();
        let cases = [
            (
                Error::Resolve {
                    host: "db".into(),
                    source: io(io::ErrorKind::NotFound),
                },
                Disposition::Retry,
            ),
            (
                Error::Unreachable {
                    address: address(),
                    source: io(io::ErrorKind::ConnectionRefused),
                },
                Disposition::Retry,
            ),
            (
                Error::LoginTimeout {
                    address: address(),
                    seconds: 10,
                },
                Disposition::Retry,
            ),
            (Error::closed("streaming"), Disposition::Retry),
            (
                Error::TlsHandshake {
                    address: address(),
                    source: io(io::ErrorKind::ConnectionReset),
                },
                Disposition::Retry,
            ),
            (
                Error::TlsHandshake {
                    address: address(),
                    source: io(io::ErrorKind::InvalidData),
                },
                STOP,
            ),
            (
                Error::TlsNotOffered {
                    address: address(),
                    mode: SslMode::Require,
                },
                STOP,
            ),
            (Error::PasswordMissing { user: "u".into() }, STOP),
            (Error::ChannelBinding, STOP),
            (
                Error::Problems(vec![SetupProblem::WalLevel {
                    found: "replica".into(),
                }]),
                STOP,
            ),
            (
                Error::Problems(vec![SetupProblem::StandbyTooOld { version: 150_018 }]),
                Disposition::Retry,
            ),
            (
                Error::Problems(vec![
                    SetupProblem::StandbyTooOld { version: 150_018 },
                    SetupProblem::WalLevel {
                        found: "replica".into(),
                    },
                ]),
                STOP,
            ),
        ];
        for (error, disposition) in cases {
            assert_eq!(error.disposition(), disposition, "{error}");
            let needs_hint = disposition == STOP;
            assert!(!needs_hint || error.hint().is_some(), "{error} has no hint");
        }
    }

    #[test]
    fn failure_lists_every_problem_with_its_remedy() {
        let failure = Failure::from(Error::Problems(vec![
            SetupProblem::WalLevel {
                found: "replica".into(),
            },
            SetupProblem::NoReplication {
                role: "app \"x\"".into(),
                replicators: None,
            },
        ]));
        assert_eq!(failure.kind, Kind::WalLevel);
        let hints: Vec<_> = failure
            .causes
            .iter()
            .filter_map(|cause| cause.hint.as_deref())
            .collect();
        assert!(
            hints[0].starts_with("ALTER SYSTEM SET wal_level = 'logical'"),
            "{}",
            hints[0]
        );
        assert_eq!(hints[1], "ALTER ROLE \"app \"\"x\"\"\" REPLICATION;");
    }

    #[test]
    fn source_of_an_error_is_told_once() {
        let failure = Failure::from(Error::closed("streaming"));
        assert_eq!(
            failure.causes[0].text,
            "the connection to Postgres was lost while streaming: the server closed it"
        );
    }
}
