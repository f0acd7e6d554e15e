//! `walferry explain`: what a code means, and what to do about it.

use walferry_engine::Kind;

use crate::{error::Error, say};

/// Prints the page of a code, or the list of all.
pub(crate) fn explain(code: Option<&str>) -> Result<(), Error> {
    let Some(text) = code else {
        say::lines(walferry_diagnosis::list().trim_end());
        return Ok(());
    };
    let Some(kind) = Kind::find(text) else {
        let hint = match Kind::nearest(text) {
            Some(near) => format!("did you mean {} ({})?", near.code(), near),
            None => "`walferry explain` lists all codes".to_owned(),
        };
        return Err(Error::new(Kind::CodeUnknown, format!("there is no code {text:?}"))
            .cause("codes are WF and four digits, such as WF0301", Some(hint)));
    };
    say::lines(walferry_diagnosis::explain(kind).trim_end());
    Ok(())
}
