//! `sslmode` with libpq's meaning: which attempts are made, and what is verified.

use walferry_config::connector::SslMode;

/// How an attempt uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// Does not request TLS.
    Plain,
    /// Requests TLS. If the server has none, continues unencrypted.
    TlsIfOffered,
    /// Requests TLS. If the server has none, fails.
    Tls,
}

/// What is verified of the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    Nothing,
    Chain,
    ChainAndName,
}

/// The attempts, in order. The second is made if the server refuses the first before it asks for a password
/// (`pg_hba.conf` has no entry for this kind of connection), or if the TLS handshake fails.
pub(crate) fn attempts(mode: SslMode) -> &'static [Encryption] {
    match mode {
        SslMode::Disable => &[Encryption::Plain],
        SslMode::Allow => &[Encryption::Plain, Encryption::Tls],
        SslMode::Prefer => &[Encryption::TlsIfOffered, Encryption::Plain],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Encryption::Tls],
    }
}

/// What is verified. As in libpq, the chain is verified in every mode if a root certificate file exists, although only
/// `verify-ca` and `verify-full` require one.
pub(crate) fn verification(mode: SslMode, has_root: bool) -> Verification {
    match mode {
        SslMode::VerifyFull => Verification::ChainAndName,
        SslMode::VerifyCa => Verification::Chain,
        _ if has_root => Verification::Chain,
        _ => Verification::Nothing,
    }
}

/// Whether this mode connects in plain text rather than not at all. If so, a certificate that is not trusted is noted, and the connection
/// stays encrypted: to refuse it would end in plain text.
pub(crate) const fn is_optional(mode: SslMode) -> bool {
    matches!(mode, SslMode::Disable | SslMode::Allow | SslMode::Prefer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_try_and_verify_what_libpq_does() {
        use Encryption::{Plain, Tls, TlsIfOffered};
        use Verification::{Chain, ChainAndName, Nothing};
        let cases: [(SslMode, &[Encryption], Verification, Verification); 6] = [
            (SslMode::Disable, &[Plain], Nothing, Chain),
            (SslMode::Allow, &[Plain, Tls], Nothing, Chain),
            (SslMode::Prefer, &[TlsIfOffered, Plain], Nothing, Chain),
            (SslMode::Require, &[Tls], Nothing, Chain),
            (SslMode::VerifyCa, &[Tls], Chain, Chain),
            (SslMode::VerifyFull, &[Tls], ChainAndName, ChainAndName),
        ];
        for (mode, expected, without_root, with_root) in cases {
            assert_eq!(attempts(mode), expected, "{mode}");
            assert_eq!(verification(mode, false), without_root, "{mode} without root");
            assert_eq!(verification(mode, true), with_root, "{mode} with root");
        }
    }
}
