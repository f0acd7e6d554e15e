//! Names of tables in lists of regular expressions.

/// A name as a regular expression that matches it alone, with the dot between schema and table as people write it.
pub(crate) fn escaped(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if matches!(
            c,
            '\\' | '^' | '$' | '|' | '?' | '*' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | ','
        ) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
