//! `sslmode` as libpq has it: which attempts are made, and what is verified.

use std::fmt;
use std::str::FromStr;

/// `sslmode`, from no encryption to a verified certificate and host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS only when the server refuses the connection without it.
    Allow,
    /// TLS when the server offers it (the default of libpq, pgjdbc and Debezium).
    #[default]
    Prefer,
    /// Always TLS. The certificate's chain is verified only when there is a root certificate file.
    Require,
    /// Always TLS, with a certificate that a known authority signed.
    VerifyCa,
    /// As `verify-ca`, and the certificate names the host.
    VerifyFull,
}

impl SslMode {
    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// The ways to try one after the other. The second is taken when the server refuses the first before it asked for a
    /// password (no `pg_hba.conf` entry for this kind of connection) or when the TLS handshake fails.
    pub(crate) fn attempts(self) -> &'static [Encryption] {
        match self {
            Self::Disable => &[Encryption::Plain],
            Self::Allow => &[Encryption::Plain, Encryption::Tls],
            Self::Prefer => &[Encryption::TlsIfOffered, Encryption::Plain],
            Self::Require | Self::VerifyCa | Self::VerifyFull => &[Encryption::Tls],
        }
    }

    /// What is verified. libpq verifies the chain in every mode in which a root certificate file exists, although only
    /// `verify-ca` and `verify-full` demand one.
    pub(crate) fn verification(self, has_root: bool) -> Verification {
        match self {
            Self::VerifyFull => Verification::ChainAndName,
            Self::VerifyCa => Verification::Chain,
            _ if has_root => Verification::Chain,
            _ => Verification::Nothing,
        }
    }

    /// Whether a root certificate must be there.
    pub(crate) fn needs_root(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyFull)
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is none of the six modes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an sslmode: disable, allow, prefer, require, verify-ca or verify-full")]
pub struct UnknownSslMode(String);

impl FromStr for SslMode {
    type Err = UnknownSslMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ALL: [SslMode; 6] = [
            SslMode::Disable,
            SslMode::Allow,
            SslMode::Prefer,
            SslMode::Require,
            SslMode::VerifyCa,
            SslMode::VerifyFull,
        ];
        let wanted = text.trim();
        ALL.into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(wanted))
            .ok_or_else(|| UnknownSslMode(wanted.to_owned()))
    }
}

/// How one attempt treats TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// TLS is not asked for.
    Plain,
    /// TLS is asked for; a server without it is used in the clear.
    TlsIfOffered,
    /// TLS is asked for; a server without it is an error.
    Tls,
}

/// What of the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    Nothing,
    Chain,
    ChainAndName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_try_and_verify_what_libpq_does() {
        use Encryption::{Plain, Tls, TlsIfOffered};
        use Verification::{Chain, ChainAndName, Nothing};
        let cases: [(&str, &[Encryption], Verification, Verification); 6] = [
            ("disable", &[Plain], Nothing, Chain),
            ("allow", &[Plain, Tls], Nothing, Chain),
            ("prefer", &[TlsIfOffered, Plain], Nothing, Chain),
            ("require", &[Tls], Nothing, Chain),
            ("verify-ca", &[Tls], Chain, Chain),
            ("Verify-Full", &[Tls], ChainAndName, ChainAndName),
        ];
        for (text, attempts, without_root, with_root) in cases {
            let mode: SslMode = text.parse().unwrap();
            assert_eq!(mode.attempts(), attempts, "{text}");
            assert_eq!(mode.verification(false), without_root, "{text} without root");
            assert_eq!(mode.verification(true), with_root, "{text} with root");
            assert_eq!(mode.name(), text.to_lowercase());
        }
        assert!("on".parse::<SslMode>().is_err());
    }
}
