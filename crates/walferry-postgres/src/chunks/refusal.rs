//! Errors that a retry would meet again.

use crate::error::Error;

/// Whether the server would refuse the same again: the table no longer exists, a condition is not valid SQL, a
/// privilege is missing.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NoCopy { .. } | Error::KeyWithoutUtf8 { .. })
        || error.server_error().is_some_and(|error| refuses(&error.code))
}

/// Whether a SQLSTATE says so. P0 is what a function raises, 21 a subquery with too many rows, 23 a domain that does not take a value, and 54 a statement
/// that is too complex. All of it is about a SELECT in a transaction that only reads: there, 25006 is a SELECT that would write or lock rows. Other
/// codes of class 25 tell of time limits.
pub(crate) fn refuses(code: &str) -> bool {
    const CLASSES: [&str; 18] = [
        "0A", "0B", "0F", "0L", "0P", "21", "22", "23", "24", "2D", "2F", "34", "38", "39", "3F", "42", "54", "P0",
    ];
    const CODES: [&str; 3] = ["25001", "25006", "55000"];
    CODES.contains(&code) || CLASSES.iter().any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_refuse_again_cancels_the_table() {
        for code in [
            "42P01", "42501", "22012", "P0001", "54001", "21000", "38000", "25006", "23514", "55000",
        ] {
            assert!(refuses(code), "{code}");
        }
        for code in [
            "08006", "57P01", "57014", "53300", "40001", "58030", "XX001", "55P03", "25P03", "25P04",
        ] {
            assert!(!refuses(code), "{code}");
        }
    }
}
