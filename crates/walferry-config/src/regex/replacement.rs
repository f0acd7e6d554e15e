//! Replacing as Java's `Matcher` does.

use super::JavaRegex;
use crate::value::ValueError;

/// A replacement in Java's notation, checked against its pattern: `$1`, `${name}`, and `\` before a character that is
/// meant as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement(Vec<ReplacementPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplacementPart {
    Text(String),
    Group(usize),
}

impl Replacement {
    /// Parses a replacement.
    ///
    /// # Errors
    /// A group that the pattern does not have, or a `$` or `\` that stands for nothing: Java finds these only when the
    /// first text matches.
    pub fn parse(text: &str, regex: &JavaRegex) -> Result<Self, ValueError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' => literal.push(
                    chars
                        .next()
                        .ok_or_else(|| ValueError::new("a replacement: it ends with a backslash"))?,
                ),
                '$' => {
                    if !literal.is_empty() {
                        parts.push(ReplacementPart::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(ReplacementPart::Group(group(&mut chars, regex)?));
                }
                _ => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(ReplacementPart::Text(literal));
        }
        Ok(Self(parts))
    }

    /// Appends the replacement of a match. `None` where the text would become longer than that.
    fn append(&self, captures: &fancy_regex::Captures<'_, str>, out: &mut String, longest: usize) -> Option<()> {
        for part in &self.0 {
            let part = match part {
                ReplacementPart::Text(text) => text,
                ReplacementPart::Group(index) => captures.get(*index).map_or("", |group| group.as_str()),
            };
            push(out, part, longest)?;
        }
        Some(())
    }
}

fn push(out: &mut String, part: &str, longest: usize) -> Option<()> {
    (part.len() <= longest.saturating_sub(out.len())).then(|| out.push_str(part))
}

/// The group that stands behind a `$`.
fn group(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, regex: &JavaRegex) -> Result<usize, ValueError> {
    let groups = regex.part.get().captures_len();
    match chars.next() {
        Some('{') => {
            let mut name = String::new();
            loop {
                match chars.next() {
                    Some('}') => break,
                    Some(c) => name.push(c),
                    None => return Err(ValueError::new("a replacement: a ${ has no closing brace")),
                }
            }
            let index = regex
                .part
                .get()
                .capture_names()
                .position(|group| group == Some(name.as_str()));
            index.ok_or_else(|| ValueError::new(format!("a replacement: the pattern has no group {name:?}")))
        }
        Some(digit) if digit.is_ascii_digit() => {
            let mut index = digit as usize - '0' as usize;
            // Further digits belong to it only as long as there is such a group.
            while let Some(next) = chars.peek().and_then(|c| c.to_digit(10)) {
                let longer = index * 10 + next as usize;
                if longer >= groups {
                    break;
                }
                index = longer;
                chars.next();
            }
            if index < groups {
                Ok(index)
            } else {
                Err(ValueError::new(format!(
                    "a replacement: the pattern has no group {index}"
                )))
            }
        }
        _ => Err(ValueError::new(
            "a replacement: a $ must be followed by the number of a group or by {name}; write \\$ for the character",
        )),
    }
}

impl JavaRegex {
    /// Replaces the first match in `text`, as `Matcher.replaceFirst` does. It searches anew, so the match may be shorter
    /// than the one that [`matches`](Self::matches) found. A search that takes too long ends the replacing: [`limited`] tells.
    ///
    /// [`limited`]: super::limited
    pub fn replace_first(&self, text: &str, replacement: &Replacement) -> String {
        self.replace_at_most(text, replacement, 1, usize::MAX)
            .unwrap_or_default()
    }

    /// Replaces every match in `text`, as `Matcher.replaceAll` does: also an empty one right behind another.
    pub fn replace_all(&self, text: &str, replacement: &Replacement) -> String {
        self.replace_at_most(text, replacement, usize::MAX, usize::MAX)
            .unwrap_or_default()
    }

    /// Replaces the first matches, at most so many. `None` where the text would become longer than `longest` bytes.
    pub fn replace_at_most(
        &self,
        text: &str,
        replacement: &Replacement,
        most: usize,
        longest: usize,
    ) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let (mut copied, mut search) = (0, 0);
        for _ in 0..most {
            if search > text.len() {
                break;
            }
            let found = self.within_limits(text, || self.part.get().captures_from_pos(text, search));
            let Some(captures) = found.flatten() else { break };
            let Some(found) = captures.get(0) else { break };
            push(&mut out, &text[copied..found.start()], longest)?;
            replacement.append(&captures, &mut out, longest)?;
            copied = found.end();
            search = super::behind(text, &found);
        }
        push(&mut out, &text[copied..], longest)?;
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Java 25 answers to `replaceFirst` and `replaceAll`.
    #[test]
    fn replacing_follows_java() {
        let cases = [
            ("(.*)", "all_$1", "abc", "all_abc", "all_abcall_"),
            (
                "(?<routedByValue>.*)",
                "outbox.event.${routedByValue}",
                "Order",
                "outbox.event.Order",
                "outbox.event.Orderoutbox.event.",
            ),
            (
                "([^.]+)\\.([^.]+)\\.([^.]+)",
                "$3",
                "srv.public.orders",
                "orders",
                "orders",
            ),
            ("a|ab", "x", "ab", "xb", "xb"),
            ("(a)(b)?", "[$2$1]", "a", "[a]", "[a]"),
            ("(a)", "$12", "a", "a2", "a2"),
            ("a", "\\$1\\\\", "a", "$1\\", "$1\\"),
            ("x*", "-", "abc", "-abc", "-a-b-c-"),
            ("x*", "-", "äb", "-äb", "-ä-b-"),
            ("$", "-", "ab", "ab-", "ab-"),
            ("z", "-", "ab", "ab", "ab"),
        ];
        for (pattern, replacement, text, first, all) in cases {
            let regex = JavaRegex::new(pattern).unwrap();
            let replacement = Replacement::parse(replacement, &regex).unwrap();
            assert_eq!(regex.replace_first(text, &replacement), first, "first {pattern} {text}");
            assert_eq!(regex.replace_all(text, &replacement), all, "all {pattern} {text}");
        }
    }

    #[test]
    fn a_replacement_that_java_would_reject_at_the_first_match_is_rejected_at_once() {
        let regex = JavaRegex::new("(a)(?<b>b)").unwrap();
        let cases = [
            ("$3", "a replacement: the pattern has no group 3"),
            ("${c}", "a replacement: the pattern has no group \"c\""),
            ("${b", "a replacement: a ${ has no closing brace"),
            ("a\\", "a replacement: it ends with a backslash"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Replacement::parse(text, &regex).unwrap_err().expected,
                expected,
                "{text}"
            );
        }
        assert!(Replacement::parse("$", &regex).is_err());
        assert!(Replacement::parse("$x", &regex).is_err());
    }
}
