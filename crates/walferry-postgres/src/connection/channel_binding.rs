//! The hash of a server's certificate, for channel binding.

use openssl::hash::{MessageDigest, hash};

/// `tls-server-end-point` (RFC 5929): the hash of the certificate, by the hash function of its signature; SHA-256
/// instead of MD5 and SHA-1. `None` if the signature has no hash function (Ed25519), since the binding is undefined
/// then.
pub(crate) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let digest = hash(signature_hash(certificate)?, certificate).ok()?;
    Some(digest.to_vec())
}

fn signature_hash(certificate: &[u8]) -> Option<MessageDigest> {
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

fn hash_of_oid(oid: &[u8]) -> Option<MessageDigest> {
    match oid {
        SHA256 | SHA1 => Some(MessageDigest::sha256()),
        SHA384 => Some(MessageDigest::sha384()),
        SHA512 => Some(MessageDigest::sha512()),
        _ => None,
    }
}

fn oid_of(sequence: &[u8]) -> Option<&[u8]> {
    Der(sequence)
        .next()
        .filter(|element| element.tag == OID)
        .map(|element| element.value)
}

const OID: u8 = 0x06;
const CONTEXT_0: u8 = 0xA0;
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
        let (&tag, content) = self.0.split_first()?;
        let (&first, mut content) = content.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let bytes = usize::from(first & 0x7F);
            if !(1..=4).contains(&bytes) || content.len() < bytes {
                return None;
            }
            let (length, tail) = content.split_at(bytes);
            content = tail;
            length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte))
        };
        if content.len() < length {
            return None;
        }
        let (value, tail) = content.split_at(length);
        self.0 = tail;
        Some(Element { tag, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::x509::X509;

    macro_rules! certificate {
        ($name:literal) => {
            X509::from_pem(include_bytes!(concat!(
                "../../testdata/certificates/",
                $name,
                ".pem"
            )))
            .and_then(|certificate| certificate.to_der())
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
    fn cut_certificate_says_nothing() {
        let whole = certificate!("common-name-sha384");
        for length in 0..whole.len() {
            assert_eq!(tls_server_end_point(&whole[..length]), None, "{length}");
        }
    }
}
