//! Hides credentials in a text, such as those of a URL.

/// The text that is shown instead of a secret.
pub const HIDDEN: &str = "********";

/// Hides the text before an `@`, back to the scheme or the beginning of the word. A user name before a colon stays visible.
pub fn without_credentials(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')');
    let mut sanitized = String::new();
    let mut tail = text;
    while !tail.is_empty() {
        let end = tail.find(ends).unwrap_or(tail.len());
        let (word, behind) = tail.split_at(end);
        sanitized.push_str(&word_without_credentials(word));
        let separator = behind.chars().next().map_or(0, char::len_utf8);
        sanitized.push_str(&behind[..separator]);
        tail = &behind[separator..];
    }
    sanitized
}

fn word_without_credentials(word: &str) -> String {
    let Some((before, behind)) = word.split_once("://") else {
        return match word.rsplit_once('@') {
            Some((credentials, host)) if !credentials.is_empty() => format!("{}@{host}", user_of(credentials)),
            _ => word.to_owned(),
        };
    };
    // Several URLs stand in one word where commas part them.
    let (url, more) = match behind.find("://") {
        Some(next) => {
            let scheme = behind[..next].rfind(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '+' | '-'));
            behind.split_at(scheme.map_or(next, |at| at + 1))
        }
        None => (behind, ""),
    };
    let authority = &url[..url.find('/').unwrap_or(url.len())];
    // A password may hold a slash: what stands behind the colon then is no port.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let whole = port.is_none_or(|port| port.chars().all(|c| c.is_ascii_digit() || c == ','));
    let region = if authority.contains('@') || whole {
        authority
    } else {
        url
    };
    let hidden = match region.rfind('@') {
        Some(at) => format!("{}{}", user_of(&region[..at]), &url[at..]),
        None => url.to_owned(),
    };
    let before = match before.rsplit_once('@') {
        Some((credentials, host)) => format!("{}@{host}", user_of(credentials)),
        None => before.to_owned(),
    };
    let more = if more.is_empty() {
        String::new()
    } else {
        word_without_credentials(more)
    };
    format!("{before}://{hidden}{more}")
}

/// A user name may be shown, unless there is no password: then the name may be a token.
fn user_of(credentials: &str) -> String {
    match credentials.split_once(':') {
        Some((user, _)) => format!("{user}:{HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}
