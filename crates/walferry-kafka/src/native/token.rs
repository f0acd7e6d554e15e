//! The call that gives a client its token.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use rdkafka::{
    bindings::{rd_kafka_oauthbearer_set_token, rd_kafka_oauthbearer_set_token_failure, rd_kafka_t},
    types::RDKafkaRespErr,
};

/// A token for SASL OAUTHBEARER.
pub(crate) struct Token {
    pub(crate) value: String,
    pub(crate) principal: String,
    /// Milliseconds since 1970.
    pub(crate) expires_ms: i64,
    pub(crate) extensions: Vec<(String, String)>,
}

/// Gives any client a token, or says why there is none.
///
/// # Safety
/// The client is alive.
pub(crate) unsafe fn set_token(client: *mut rd_kafka_t, token: Result<Token, String>) {
    let mut reason = [0 as c_char; 256];
    let set = token.map_err(|why| c_string(&why)).and_then(|token| {
        let (value, principal) = (c_string(&token.value), c_string(&token.principal));
        let extensions = token
            .extensions
            .iter()
            .flat_map(|(name, value)| [c_string(name), c_string(value)]);
        let extensions: Vec<CString> = extensions.collect();
        let mut pointers: Vec<*const c_char> = extensions.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: the client is alive; all strings end in a zero byte and live during the call; the buffer has the size that is given.
        let error = unsafe {
            rd_kafka_oauthbearer_set_token(
                client,
                value.as_ptr(),
                token.expires_ms,
                principal.as_ptr(),
                pointers.as_mut_ptr(),
                pointers.len(),
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            // SAFETY: librdkafka has written a text that ends in a zero byte into the buffer.
            _ => Err(unsafe { CStr::from_ptr(reason.as_ptr()) }.to_owned()),
        }
    });
    if let Err(reason) = set {
        // SAFETY: the client is alive, and the text lives during the call.
        unsafe { rd_kafka_oauthbearer_set_token_failure(client, reason.as_ptr()) };
    }
}

fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}
