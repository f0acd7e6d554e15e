//! Two facts of an X.509 certificate that rustls does not provide: the hash of the certificate, for channel binding,
//! and its common name, for servers whose certificate has no alternative names.

use ring::digest;

/// `tls-server-end-point` (RFC 5929): the hash of the certificate, by the hash function of its signature; SHA-256
/// instead of MD5 and SHA-1. `None` if the signature has no hash function (Ed25519), since the binding is undefined
/// then.
pub(crate) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(certificate)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// The subject's common name, but only if the certificate has no subject alternative name (RFC 6125, and libpq's rule).
pub(crate) fn common_name_without_alternatives(certificate: &[u8]) -> Option<String> {
    let mut fields = Der(tbs_certificate(certificate)?);
    let mut next = fields.next()?;
    if next.tag == VERSION {
        next = fields.next()?;
    }
    if next.tag != INTEGER {
        return None; // not a serial number: not a certificate
    }
    fields.next()?; // signature
    fields.next()?; // issuer
    fields.next()?; // validity
    let subject = fields.next()?;
    fields.next()?; // public key
    let alternatives = fields
        .find(|field| field.tag == EXTENSIONS)
        .and_then(|field| Der(field.value).next())
        .is_some_and(|list| Der(list.value).any(|extension| oid_of(extension.value) == Some(SUBJECT_ALT_NAME)));
    if alternatives {
        return None;
    }
    // RDNSequence → RelativeDistinguishedName (SET) → AttributeTypeAndValue
    let mut attributes = Der(subject.value).flat_map(|set| Der(set.value));
    let name = attributes.find_map(|attribute| {
        let mut parts = Der(attribute.value);
        let oid = parts.next()?;
        (oid.value == COMMON_NAME).then(|| parts.next())?
    })?;
    String::from_utf8(name.value.to_vec()).ok()
}

/// Whether a host name matches a common name. In the common name, `*` may stand for the whole first label.
pub(crate) fn name_matches(pattern: &str, host: &str) -> bool {
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((_, rest))) => domain.contains('.') && domain.eq_ignore_ascii_case(rest),
        _ => pattern.eq_ignore_ascii_case(host),
    }
}

fn signature_hash(certificate: &[u8]) -> Option<&'static digest::Algorithm> {
    let mut fields = Der(Der(certificate).next()?.value);
    fields.next()?; // tbsCertificate
    let algorithm = fields.next()?;
    let mut parts = Der(algorithm.value);
    let oid = parts.next()?.value;
    if oid == RSASSA_PSS {
        // RSASSA-PSS-params: [0] hashAlgorithm, SHA-1 when absent.
        let hash = parts
            .next()
            .and_then(|parameters| Der(parameters.value).find(|field| field.tag == CONTEXT_0))
            .and_then(|field| oid_of(Der(field.value).next()?.value));
        return hash_of_oid(hash.unwrap_or(SHA1));
    }
    SIGNATURES
        .iter()
        .find(|(known, _)| *known == oid)
        .and_then(|(_, hash)| hash_of_oid(hash))
}

fn hash_of_oid(oid: &[u8]) -> Option<&'static digest::Algorithm> {
    match oid {
        SHA256 | SHA1 => Some(&digest::SHA256),
        SHA384 => Some(&digest::SHA384),
        SHA512 => Some(&digest::SHA512),
        _ => None,
    }
}

fn tbs_certificate(certificate: &[u8]) -> Option<&[u8]> {
    Some(Der(Der(certificate).next()?.value).next()?.value)
}

fn oid_of(sequence: &[u8]) -> Option<&[u8]> {
    Der(sequence)
        .next()
        .filter(|element| element.tag == OID)
        .map(|element| element.value)
}

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const CONTEXT_0: u8 = 0xA0;
const VERSION: u8 = CONTEXT_0;
const EXTENSIONS: u8 = 0xA3;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1D, 0x11];
const SHA1: &[u8] = &[0x2B, 0x0E, 0x03, 0x02, 0x1A];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const SHA384: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02];
const SHA512: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03];
const RSASSA_PSS: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0A];

/// Object identifiers of signature algorithms, with their hash functions.
const SIGNATURES: &[(&[u8], &[u8])] = &[
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x04], SHA1), // md5WithRSAEncryption, hashed with SHA-256 as SHA-1 is
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x05], SHA1), // sha1WithRSAEncryption
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0B], SHA256), // sha256WithRSAEncryption
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0C], SHA384), // sha384WithRSAEncryption
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0D], SHA512), // sha512WithRSAEncryption
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x01], SHA1),             // ecdsa-with-SHA1
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x02], SHA256),     // ecdsa-with-SHA256
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x03], SHA384),     // ecdsa-with-SHA384
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x04], SHA512),     // ecdsa-with-SHA512
];

/// One element of DER.
struct Element<'a> {
    tag: u8,
    value: &'a [u8],
}

/// The elements of a DER string, one after another. Ends at the first malformed one.
struct Der<'a>(&'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let bytes = usize::from(first & 0x7F);
            if !(1..=4).contains(&bytes) || rest.len() < bytes {
                return None;
            }
            let (length, tail) = rest.split_at(bytes);
            rest = tail;
            length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte))
        };
        if rest.len() < length {
            return None;
        }
        let (value, tail) = rest.split_at(length);
        self.0 = tail;
        Some(Element { tag, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    macro_rules! certificate {
        ($name:literal) => {
            CertificateDer::from_pem_slice(include_bytes!(concat!(
                "../../testdata/certificates/",
                $name,
                ".pem"
            )))
            .unwrap()
        };
    }

    /// The first bytes are what `openssl x509 -outform DER | openssl dgst` prints.
    #[test]
    fn binding_hash_is_that_of_the_signature() {
        let cases = [
            (
                certificate!("alternative-names-sha256"),
                Some((32, [0x75, 0x67, 0x62, 0x7E])),
            ),
            (certificate!("common-name-sha384"), Some((48, [0xB1, 0xD6, 0x31, 0x11]))),
            (certificate!("rsa-pss-sha384"), Some((48, [0x3A, 0x20, 0x5A, 0x89]))),
            (certificate!("ed25519"), None),
        ];
        for (index, (certificate, expected)) in cases.iter().enumerate() {
            let hash = tls_server_end_point(certificate).map(|hash| (hash.len(), [hash[0], hash[1], hash[2], hash[3]]));
            assert_eq!(hash, *expected, "case {index}");
        }
    }

    #[test]
    fn common_name_counts_only_without_alternative_names() {
        assert_eq!(
            common_name_without_alternatives(&certificate!("alternative-names-sha256")),
            None
        );
        let name = common_name_without_alternatives(&certificate!("common-name-sha384"));
        assert_eq!(name.as_deref(), Some("localhost"));
    }

    #[test]
    fn cut_certificate_says_nothing() {
        let whole = certificate!("common-name-sha384");
        for length in 0..whole.len() {
            assert_eq!(common_name_without_alternatives(&whole[..length]), None, "{length}");
            assert_eq!(tls_server_end_point(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn star_stands_for_one_label() {
        let cases = [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.com", "example.com", false),
            ("*", "localhost", false),
            ("db.example.com", "db.example.org", false),
        ];
        for (pattern, host, expected) in cases {
            assert_eq!(name_matches(pattern, host), expected, "{pattern} {host}");
        }
    }
}
