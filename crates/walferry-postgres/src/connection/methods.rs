//! Which ways of logging in a server may ask for.
//!
//! Both drivers answer whatever the server asks for. A server that is none, or that somebody has put in between, could so ask for the password
//! itself. So the bytes of a login pass through here first: a request that is not answered never reaches the driver.

use std::fmt;

use walferry_config::connector::{AuthMethod, RequiredAuth};

/// A request for authentication that is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthRefusal {
    /// What the server asks for.
    pub method: AuthMethod,
    /// `database.requireAuth` leaves the method out. Otherwise, the connection is not safe enough for it.
    pub by_property: bool,
}

impl std::error::Error for AuthRefusal {}

impl fmt::Display for AuthRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asks = match self.method {
            AuthMethod::Password => "asks for the password in clear text",
            AuthMethod::Md5 => "asks for an MD5 hash of the password",
            AuthMethod::ScramSha256 => "asks for SCRAM-SHA-256",
            AuthMethod::None => "asks for no proof of who logs in",
            AuthMethod::Gss => "asks for GSSAPI",
            AuthMethod::Sspi => "asks for SSPI",
        };
        match self.by_property {
            true => write!(
                f,
                "Postgres {asks}, and `database.requireAuth` does not name the method {}",
                self.method
            ),
            false => write!(f, "Postgres {asks}, and no TLS with a verified certificate protects it"),
        }
    }
}

impl AuthRefusal {
    /// What to do, and what that opens.
    pub fn hint(&self) -> String {
        let method = self.method;
        if self.by_property {
            return format!(
                "change the method in `pg_hba.conf`, or add {method} to `database.requireAuth`: then whoever answers at the server's \
                 address may use this method"
            );
        }
        format!(
            "use `scram-sha-256` in `pg_hba.conf` (and set the password again with `password_encryption = 'scram-sha-256'`), or \
             `database.sslmode=verify-full`; `database.requireAuth={method}` answers nevertheless: then whoever answers at the server's \
             address, or listens on the way, {}",
            match method {
                AuthMethod::Md5 => "can find out the password by guessing",
                _ => "has the password",
            }
        )
    }
}

/// Looks at what the server sends until the login is over.
#[derive(Debug)]
pub(super) struct LoginWatch {
    required: Option<RequiredAuth>,
    /// Encrypted, and the certificate was verified.
    is_verified: bool,
    /// The beginning of a message.
    head: Vec<u8>,
    /// The bytes of a message that do not matter.
    skip: usize,
    /// The server has asked for something.
    asked: bool,
    is_over: bool,
}

/// Tag, length and code of a request for authentication.
const HEAD_BYTES: usize = 9;
const TAG_AUTHENTICATION: u8 = b'R';

impl LoginWatch {
    pub(super) fn new(required: Option<RequiredAuth>, is_verified: bool) -> Self {
        Self {
            required,
            is_verified,
            head: Vec::with_capacity(HEAD_BYTES),
            skip: 0,
            asked: false,
            is_over: false,
        }
    }

    /// Takes the next bytes of the server.
    ///
    /// # Errors
    /// They contain a request that is not answered. The driver must not see them.
    pub(super) fn look(&mut self, mut bytes: &[u8]) -> Result<(), AuthRefusal> {
        while !self.is_over && !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            let [tag, a, b, c, d, ref code @ ..] = self.head[..] else {
                continue;
            };
            // The length includes itself.
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if tag != TAG_AUTHENTICATION || length < 8 {
                self.skip = length.saturating_sub(4);
                self.head.clear();
            } else if let Ok(code) = <[u8; 4]>::try_from(code) {
                self.skip = length - 8;
                self.head.clear();
                self.request(u32::from_be_bytes(code))?;
            }
        }
        Ok(())
    }

    fn request(&mut self, code: u32) -> Result<(), AuthRefusal> {
        let method = match code {
            0 => {
                self.is_over = true;
                if self.asked {
                    return Ok(());
                }
                AuthMethod::None
            }
            3 => AuthMethod::Password,
            5 => AuthMethod::Md5,
            7 => AuthMethod::Gss,
            9 => AuthMethod::Sspi,
            10 => AuthMethod::ScramSha256,
            // What follows an earlier request. The drivers answer nothing else.
            _ => return Ok(()),
        };
        self.asked = true;
        let refused = |by_property| Err(AuthRefusal { method, by_property });
        match &self.required {
            Some(required) if !required.allows(method) => refused(true),
            Some(required) if required.names(method) => Ok(()),
            _ if is_weak(method) && !self.is_verified => refused(false),
            _ => Ok(()),
        }
    }
}

/// Whether the answer is worth something to whoever gets it.
const fn is_weak(method: AuthMethod) -> bool {
    matches!(method, AuthMethod::Password | AuthMethod::Md5)
}

#[cfg(test)]
mod tests {
    use walferry_config::Value as _;

    use super::*;

    fn request(code: u32, content: &[u8]) -> Vec<u8> {
        let length = 8 + content.len() as u32;
        [&[b'R'][..], &length.to_be_bytes(), &code.to_be_bytes(), content].concat()
    }

    fn notice() -> Vec<u8> {
        // Its text looks like a request.
        let text = request(3, b"");
        let length = 4 + text.len() as u32;
        [&[b'N'][..], &length.to_be_bytes(), &text].concat()
    }

    /// The method that is refused, and whether by the property.
    type Refused = Option<(AuthMethod, bool)>;

    /// The refusal, whatever the pieces in which the bytes arrive.
    fn look(required: &str, is_verified: bool, bytes: &[u8]) -> Refused {
        let required = (!required.is_empty()).then(|| RequiredAuth::parse(required).unwrap());
        let found = [1, 2, 7, 9, bytes.len()].map(|size| {
            let mut watch = LoginWatch::new(required, is_verified);
            let refused = bytes.chunks(size).find_map(|piece| watch.look(piece).err());
            refused.map(|refused| (refused.method, refused.by_property))
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        found[0]
    }

    #[test]
    fn a_password_goes_only_where_it_is_safe_or_allowed() {
        use AuthMethod::{Md5, None as Nothing, Password, ScramSha256};
        let (clear, md5, scram) = (request(3, b""), request(5, b"salt"), request(10, b"SCRAM-SHA-256\0\0"));
        let done = request(0, b"");
        let cases: &[(&str, bool, &[u8], Refused)] = &[
            ("", false, &clear, Some((Password, false))),
            ("", false, &md5, Some((Md5, false))),
            ("", false, &scram, None),
            ("", false, &done, None),
            ("", true, &clear, None),
            ("", true, &md5, None),
            ("password", false, &clear, None),
            ("password", false, &md5, Some((Md5, true))),
            ("password,md5,scram-sha-256", false, &md5, None),
            ("scram-sha-256", true, &clear, Some((Password, true))),
            ("scram-sha-256", true, &done, Some((Nothing, true))),
            ("scram-sha-256,none", false, &done, None),
            ("!none", false, &done, Some((Nothing, true))),
            // What is not forbidden is not thereby safe.
            ("!none", false, &clear, Some((Password, false))),
            ("!none", true, &clear, None),
            ("!scram-sha-256", true, &scram, Some((ScramSha256, true))),
        ];
        for (required, is_verified, bytes, expected) in cases {
            let found = look(required, *is_verified, bytes);
            assert_eq!(found, *expected, "{required:?} {is_verified} {bytes:?}");
            // A message before it changes nothing.
            assert_eq!(
                look(required, *is_verified, &[&notice()[..], bytes].concat()),
                *expected
            );
        }
        let answered = [&scram[..], &request(11, b"r=1"), &request(12, b"v=1"), &done].concat();
        assert_eq!(look("scram-sha-256", false, &answered), None);
        // SCRAM first does not make the next request harmless.
        assert_eq!(look("", false, &[&scram[..], &clear].concat()), Some((Password, false)));
        // After the login, the same bytes are something else.
        assert_eq!(look("", false, &[&done[..], &clear].concat()), None);
    }
}
