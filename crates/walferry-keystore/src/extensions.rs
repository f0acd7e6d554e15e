//! What the extensions of a certificate say that OpenSSL's crate does not read.

use openssl::x509::X509Ref;

use crate::ber::{BIT_STRING, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, elements};

/// Object identifiers of extensions (RFC 5280 4.2.1), and of the purpose "any".
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1D, 0x0F];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1D, 0x25];
const ANY_PURPOSE: &[u8] = &[0x55, 0x1D, 0x25, 0x00];
/// The first bit of `keyUsage`.
const DIGITAL_SIGNATURE: u8 = 0x80;

/// Whether the certificate says of itself that it may sign others: `basicConstraints=CA:TRUE`.
pub(crate) fn is_authority(certificate: &X509Ref) -> bool {
    let Some(constraints) = extension(certificate, BASIC_CONSTRAINTS) else {
        return false;
    };
    let first = elements(&constraints).next();
    let fields = first.map(|sequence| sequence.content).unwrap_or_default();
    elements(fields)
        .next()
        .is_some_and(|field| field.tag == 0x01 && field.content != [0])
}

/// Whether its key may sign, which it does when a connection is encrypted. A certificate that lists no usage allows all of them.
pub(crate) fn may_sign_data(certificate: &X509Ref) -> bool {
    let Some(usage) = extension(certificate, KEY_USAGE) else {
        return true;
    };
    let bits = elements(&usage).next().filter(|bits| bits.tag == BIT_STRING);
    // The first byte says how many bits of the last one do not count.
    bits.and_then(|bits| bits.content.get(1))
        .is_some_and(|bits| bits & DIGITAL_SIGNATURE != 0)
}

/// Whether `extendedKeyUsage` lists every purpose.
pub(crate) fn is_for_any_purpose(certificate: &X509Ref) -> bool {
    let Some(purposes) = extension(certificate, EXTENDED_KEY_USAGE) else {
        return false;
    };
    let first = elements(&purposes).next();
    let purposes = first.map(|sequence| sequence.content).unwrap_or_default();
    elements(purposes).any(|purpose| purpose.tag == OBJECT_IDENTIFIER && purpose.content == ANY_PURPOSE)
}

/// The content of an extension.
fn extension(certificate: &X509Ref, identifier: &[u8]) -> Option<Vec<u8>> {
    /// In the fields that are signed, the extensions have this tag.
    const EXTENSIONS: u8 = 0xA3;
    let der = certificate.to_der().ok()?;
    let whole = elements(&der).next()?;
    let signed = elements(whole.content).next()?;
    let list = elements(signed.content).find(|field| field.tag == EXTENSIONS)?;
    let list = elements(list.content).next()?;
    let mut found = elements(list.content).filter(|extension| extension.tag == SEQUENCE);
    let found = found.find(|extension| {
        let name = elements(extension.content).next();
        name.is_some_and(|name| name.tag == OBJECT_IDENTIFIER && name.content == identifier)
    })?;
    // Between them may be whether it is critical.
    let content = elements(found.content).find(|field| field.tag == OCTET_STRING)?;
    Some(content.content.to_vec())
}
