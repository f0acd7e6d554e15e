//! What all sides of TLS have in common: which ciphers are used, and how certificates get into OpenSSL.

use std::io;
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContextBuilder, SslFiletype};
use openssl::x509::store::{X509Lookup, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{X509, X509Crl};

use crate::regular;

/// What is used: nothing without encryption or without a certificate of the server, and nothing that Java has given up.
pub const CIPHERS: &str = "DEFAULT:!aNULL:!eNULL:!PSK:!SRP:!3DES:!RC4";
/// Keys and hashes that cost at least 2^80 steps to break, as Java demands.
pub const STRICT: u32 = 1;
/// Whatever encrypts. Where nothing is verified, plain text would be the alternative.
pub const LENIENT: u32 = 0;

/// Trusts these certificates alone, and each of them whoever has signed it, as in Java.
///
/// # Errors
/// OpenSSL cannot use one of them.
pub fn trust_only(builder: &mut SslContextBuilder, trusted: &[X509]) -> Result<(), ErrorStack> {
    trust_unless_revoked(builder, trusted, None)
}

/// The same, and demands of every certificate below a trusted one that its authority has a list in this file, and that it is not on it.
///
/// # Errors
/// OpenSSL cannot use one of them, or the file.
pub fn trust_unless_revoked(
    builder: &mut SslContextBuilder,
    trusted: &[X509],
    lists: Option<&RevocationLists>,
) -> Result<(), ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for certificate in trusted {
        store.add_cert(certificate.clone())?;
    }
    let mut flags = X509VerifyFlags::PARTIAL_CHAIN;
    if let Some(RevocationLists { path, format }) = lists {
        store.add_lookup(X509Lookup::file())?.load_crl_file(path, *format)?;
        flags |= X509VerifyFlags::CRL_CHECK | X509VerifyFlags::CRL_CHECK_ALL;
    }
    store.set_flags(flags)?;
    builder.set_cert_store(store.build());
    Ok(())
}

/// A file with lists of revoked certificates.
#[allow(missing_debug_implementations, reason = "OpenSSL's type of a file has none")]
pub struct RevocationLists {
    path: String,
    format: SslFiletype,
}

impl RevocationLists {
    /// Looks whether OpenSSL can read every list in a file: what it skips would revoke nothing.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong in it.
    pub fn of(path: &Path) -> Result<Self, NoLists> {
        const DER_SEQUENCE: u8 = 0x30;
        const BEGIN: &str = "-----BEGIN ";
        let bytes = regular::read(path)?;
        let path = path
            .to_str()
            .ok_or(NoLists::Problem("its path is not UTF-8"))?
            .to_owned();
        if bytes.first() == Some(&DER_SEQUENCE) {
            X509Crl::from_der(&bytes)
                .map_err(|_| NoLists::Problem("it is DER, but no list of revoked certificates"))?;
            let format = SslFiletype::ASN1;
            return Ok(Self { path, format });
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut sections = text.match_indices(BEGIN).map(|(place, _)| &text[place..]).peekable();
        if sections.peek().is_none() {
            return Err(NoLists::Problem("it contains no list of revoked certificates"));
        }
        for section in sections {
            if !section[BEGIN.len()..].starts_with("X509 CRL-----") {
                return Err(NoLists::Problem(
                    "it contains something else than lists of revoked certificates",
                ));
            }
            let malformed = |_| NoLists::Problem("a list in it is malformed");
            X509Crl::from_pem(section.as_bytes()).map_err(malformed)?;
        }
        let format = SslFiletype::PEM;
        Ok(Self { path, format })
    }
}

/// Why a file has no lists of revoked certificates that can be used.
#[derive(Debug, thiserror::Error)]
pub enum NoLists {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What is wrong in it.
    #[error("{0}")]
    Problem(&'static str),
}

/// Shows a certificate with its chain as they are: only the other side judges them.
///
/// # Errors
/// The key does not belong to the certificate.
pub fn identify(builder: &mut SslContextBuilder, chain: &[X509], key: &PKey<Private>) -> Result<(), ErrorStack> {
    let Some((own, others)) = chain.split_first() else {
        return Ok(());
    };
    if builder.set_certificate(own).is_err() {
        builder.set_security_level(LENIENT);
        builder.set_certificate(own)?;
    }
    for other in others {
        builder.add_extra_chain_cert(other.clone())?;
    }
    builder.set_private_key(key)?;
    builder.check_private_key()
}

/// What OpenSSL says, without the places in its code.
pub fn reasons(stack: &ErrorStack) -> String {
    let reasons: Vec<&str> = stack.errors().iter().filter_map(|error| error.reason()).collect();
    reasons.join(", ")
}

/// What the other side has said before it ended the connection: the number of an alert (RFC 8446 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert(i32);

impl Alert {
    /// Whether the other side does not accept our certificate, or that there is none.
    pub const fn is_about_the_certificate(self) -> bool {
        matches!(self.0, 41..=46 | 48 | 49 | 116)
    }
}

/// The alert in an error of OpenSSL.
pub fn alert(stack: &ErrorStack) -> Option<Alert> {
    /// OpenSSL's reasons for alerts are their numbers and this one.
    const FIRST: i32 = 1000;
    let reasons = stack.errors().iter().map(|error| error.reason_code() - FIRST);
    reasons.into_iter().find(|number| (0..=255).contains(number)).map(Alert)
}
