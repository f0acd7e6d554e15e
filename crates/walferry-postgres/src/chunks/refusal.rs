//! Errors that a retry would meet again.

use crate::error::Error;

/// Whether the server would refuse the same again: the table no longer exists, a condition is not valid SQL, a
/// privilege is missing.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NoCopy { .. } | Error::KeyWithoutUtf8 { .. })
        || error.server_error().is_some_and(|error| refuses(&error.code))
}

/// Whether a SQLSTATE says so. P0 is what a function raises, 21 a subquery with too many rows, and 54 a statement that is too complex.
pub(crate) fn refuses(code: &str) -> bool {
    const CLASSES: [&str; 10] = ["0A", "21", "22", "2F", "38", "39", "3F", "42", "54", "P0"];
    CLASSES.iter().any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_refuse_again_cancels_the_table() {
        for code in ["42P01", "42501", "22012", "P0001", "54001", "21000", "38000"] {
            assert!(refuses(code), "{code}");
        }
        for code in ["08006", "57P01", "57014", "53300", "40001", "58030", "XX001", "55P03"] {
            assert!(!refuses(code), "{code}");
        }
    }
}
