//! What all sides of TLS have in common: which ciphers are used, and how certificates get into OpenSSL.

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::SslContextBuilder;
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyFlags;

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
    let mut store = X509StoreBuilder::new()?;
    for certificate in trusted {
        store.add_cert(certificate.clone())?;
    }
    store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    builder.set_cert_store(store.build());
    Ok(())
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
