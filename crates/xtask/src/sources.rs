//! The Rust sources of a folder, and a source as words and signs. No parser: what is looked for in them is plain enough.

use crate::{Outcome, shell};
use std::fs;
use std::path::Path;

/// Shows the path and the text of each Rust file in a folder.
pub(crate) fn each_source(folder: &Path, look: &mut impl FnMut(&str, &str)) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_source(&path, look)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let relative = path.strip_prefix(shell::root()).unwrap_or(&path);
            look(&relative.display().to_string(), &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Whether a token is a name or a keyword.
pub(crate) fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words and signs of a source, without comments, texts, characters and lifetimes.
pub(crate) fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut tail = source;
    while let Some(first) = tail.chars().next() {
        let length = match first {
            _ if tail.starts_with("//") => tail.find('\n').unwrap_or(tail.len()),
            _ if tail.starts_with("/*") => tail.find("*/").map_or(tail.len(), |end| end + 2),
            '"' => text_length(tail),
            'r' | 'b' | 'c' if raw_length(tail).is_some() => raw_length(tail).unwrap_or(1),
            'b' | 'c' if tail[1..].starts_with('"') => 1 + text_length(&tail[1..]),
            '\'' => quote_length(tail),
            _ if first.is_alphanumeric() || first == '_' => {
                let end = tail
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(tail.len());
                tokens.push(&tail[..end]);
                end
            }
            _ if tail.starts_with("::") => {
                tokens.push(&tail[..2]);
                2
            }
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                tokens.push(&tail[..first.len_utf8()]);
                first.len_utf8()
            }
        };
        tail = &tail[length..];
    }
    tokens
}

fn text_length(tail: &str) -> usize {
    let mut escaped = false;
    for (at, c) in tail.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    tail.len()
}

/// The length of `r"…"` or `br#"…"#` at the beginning, if that is what is there.
fn raw_length(tail: &str) -> Option<usize> {
    let after = tail.trim_start_matches(['b', 'c']);
    let prefix = tail.len() - after.len();
    let hashes = after.strip_prefix('r')?;
    let open = hashes.trim_start_matches('#');
    let count = hashes.len() - open.len();
    if prefix > 1 || !open.starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(count));
    let body = open[1..].find(&end)?;
    Some(prefix + 1 + count + 1 + body + end.len())
}

/// A character, or the quote of a lifetime with its name.
fn quote_length(tail: &str) -> usize {
    let mut chars = tail.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            tail[3..].find('\'').map_or(tail.len(), |end| 3 + end + 1)
        }
        Some((at, c)) if tail[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => {
            let name = tail[1..].find(|c: char| !c.is_alphanumeric() && c != '_');
            1 + name.unwrap_or(tail.len() - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_characters_and_lifetimes_are_no_tokens() {
        let source = "// a::b\nfn f<'a>(x: &'a str) -> char { /* c::d */ g(\"e::f \\\" \", r#\"h \"i\"\"#, b\"j\"); '\\''; 'k'; '\"' }";
        let expected = "fn f < > ( x : & str ) - > char { g ( , , ) ; ; ; }";
        assert_eq!(tokens(source), expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn names_that_begin_like_a_text_are_names() {
        assert_eq!(
            tokens("result break r::x c.d"),
            ["result", "break", "r", "::", "x", "c", ".", "d"]
        );
    }
}
