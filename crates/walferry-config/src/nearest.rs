//! What is likely meant by a text that is not known.

/// The value that is likely meant by a text that is none of them.
pub fn near_value<'a>(text: &str, values: &[&'a str]) -> Option<&'a str> {
    nearest(text, values.iter().copied()).or_else(|| only_completion(text, values))
}

/// The only value that begins with the text: `al` is too short to be near `all`.
fn only_completion<'a>(text: &str, values: &[&'a str]) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    let begins = |value: &&&str| text.len() >= 2 && value.to_ascii_lowercase().starts_with(&text);
    let mut found = values.iter().filter(begins);
    found.next().copied().filter(|_| found.next().is_none())
}

/// The candidate that is nearest to `text`, if it is near enough to be a typing mistake.
fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::normalized_damerau_levenshtein(&text, &candidate.to_ascii_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The property name that is nearest to `name`, compared part by part. Names that share most of their parts look alike as a whole but
/// have different meanings: `max.request.size` is not a misspelt `max.queue.size`.
pub(crate) fn nearest_name<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(
        name,
        candidates.into_iter().filter(|candidate| is_slip(name, candidate)),
    )
}

/// The names that have one more part before the name: `errors.max.retries` for `max.retries`. A single word means only the name that it
/// stands in alone: `database.hostname` for `hostname`.
pub(crate) fn with_first_part<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let has_ending = |candidate: &&str| candidate.split_once('.').is_some_and(|(_, ending)| ending == name);
    let mut found: Vec<_> = candidates.into_iter().filter(has_ending).collect();
    if !name.contains('.') && found.len() > 1 {
        found.clear();
    }
    found
}

/// Whether the parts of both names are alike, in order. One of the names may have one additional part.
fn is_slip(name: &str, candidate: &str) -> bool {
    const APART: [char; 3] = ['.', '_', '-'];
    let (name, candidate) = (name.to_ascii_lowercase(), candidate.to_ascii_lowercase());
    if name.replace(APART, "") == candidate.replace(APART, "") {
        return true;
    }
    let (mut a, mut b): (Vec<_>, Vec<_>) = (name.split(APART).collect(), candidate.split(APART).collect());
    if a.len() < b.len() {
        std::mem::swap(&mut a, &mut b);
    }
    match a.len() - b.len() {
        0 => a.iter().zip(&b).all(|(a, b)| alike(a, b)),
        1 => (0..a.len()).any(|left_out| {
            let others = a
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != left_out)
                .map(|(_, part)| part);
            others.zip(&b).all(|(a, b)| alike(a, b))
        }),
        _ => false,
    }
}

fn alike(a: &str, b: &str) -> bool {
    let begins = |long: &str, short: &str| short.len() >= 3 && long.starts_with(short);
    strsim::normalized_damerau_levenshtein(a, b) >= 0.6 || begins(a, b) || begins(b, a)
}

#[cfg(test)]
mod tests {
    use super::{nearest, nearest_name, only_completion, with_first_part};

    #[test]
    fn a_name_that_means_something_else_is_not_offered() {
        let cases = [
            ("max.request.size", "max.queue.size", false),
            ("null.handling.mode", "binary.handling.mode", false),
            ("table.field.event.aggregatetype", "table.field.event.type", false),
            ("incremental.snapshot.enabled", "incremental.snapshot.chunk.size", false),
            ("offset.flush.timeout.ms", "lsn.flush.timeout.ms", false),
            ("errors.retry.delay.initial.ms", "errors.retry.delay.max.ms", false),
            ("heartbeat.topics.regex", "heartbeat.topics.prefix", false),
            ("table.field.payload", "table.field.event.payload", true),
            ("schema.include", "schema.include.list", true),
            ("database.ssl.mode", "database.sslmode", true),
            ("database.host", "database.hostname", true),
            ("database.username", "database.user", true),
            ("tables.include.list", "table.include.list", true),
            ("table.inculde.list", "table.include.list", true),
            ("slotname", "slot.name", true),
            ("slot_name", "slot.name", true),
        ];
        for (name, candidate, expected) in cases {
            assert_eq!(
                nearest_name(name, [candidate]).is_some(),
                expected,
                "{name} {candidate}"
            );
        }
    }

    #[test]
    fn the_nearest_name_is_offered_only_if_it_is_near() {
        let names = [
            "slot.name",
            "schema.include.list",
            "table.include.list",
            "publication.name",
        ];
        let cases = [
            ("slot.nmae", Some("slot.name")),
            ("schema.include", Some("schema.include.list")),
            ("table.includes.list", Some("table.include.list")),
            ("slotname", Some("slot.name")),
            ("colour", None),
        ];
        for (text, expected) in cases {
            assert_eq!(nearest(text, names), expected, "{text}");
        }
    }

    #[test]
    fn what_is_only_the_beginning_of_a_value_or_the_end_of_a_name_is_completed() {
        let names = ["errors.max.retries", "slot.max.retries", "slot.max.retries.x"];
        let both = ["errors.max.retries", "slot.max.retries"];
        assert_eq!(with_first_part("max.retries", names), both);
        assert!(with_first_part("retries", names).is_empty());
        let names = ["database.hostname", "a.mode", "b.mode"];
        assert_eq!(with_first_part("hostname", names), ["database.hostname"]);
        assert!(with_first_part("mode", names).is_empty());
        assert_eq!(only_completion("al", &["none", "all"]), Some("all"));
        assert_eq!(only_completion("a", &["none", "all"]), None);
        assert_eq!(only_completion("in", &["initial", "insert"]), None);
    }
}
