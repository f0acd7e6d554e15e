//! `table.fields.additional.placement`.

use crate::outbox::nearest;

/// A column and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) column: String,
    pub(super) target: ColumnTarget,
}

/// Where a column goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnTarget {
    /// Into a header of this name.
    Header(String),
    /// Into the value, beside the payload, as a field of this name.
    Envelope(String),
    /// The partition.
    Partition,
}

const WORDS: [&str; 3] = ["header", "envelope", "partition"];

/// Parses the list. Debezium checks only the number of parts here, and stops at the first row for the rest.
///
/// # Errors
/// Every malformed entry: what is wrong with it, and what was probably meant.
pub(super) fn parse(text: &str) -> Result<Vec<Placement>, Vec<(String, String)>> {
    let mut placements = Vec::<Placement>::new();
    let mut problems = Vec::new();
    if text.trim().is_empty() {
        return Ok(placements);
    }
    // As Java's split: empty entries and empty parts at the end do not count.
    for entry in text.trim_end_matches([',', ' ']).split(',').map(str::trim) {
        let parts: Vec<&str> = entry.trim_end_matches(':').split(':').map(str::trim).collect();
        match one(&parts) {
            Ok(placement) if is_repeated(&placement, &placements) => problems.push((
                format!("contains {entry:?}, but the envelope already has a field with this name"),
                "give it another alias: column:envelope:alias".to_owned(),
            )),
            Ok(placement) => placements.push(placement),
            Err(hint) => problems.push((
                format!("contains {entry:?}, which is neither column:placement nor column:placement:alias"),
                hint,
            )),
        }
    }
    if problems.is_empty() {
        Ok(placements)
    } else {
        Err(problems)
    }
}

fn one(parts: &[&str]) -> Result<Placement, String> {
    let (column, word, alias) = match *parts {
        [column, word] => (column, word, column),
        [column, word, alias] => (column, word, alias),
        _ => return Err(meant(parts)),
    };
    if column.is_empty() || alias.is_empty() {
        return Err(meant(parts));
    }
    let target = match WORDS.iter().position(|known| known.eq_ignore_ascii_case(word)) {
        Some(0) => ColumnTarget::Header(alias.to_owned()),
        Some(1) => ColumnTarget::Envelope(alias.to_owned()),
        Some(_) => ColumnTarget::Partition,
        None => return Err(meant(parts)),
    };
    Ok(Placement {
        column: column.to_owned(),
        target,
    })
}

/// The payload is the first field of the envelope.
fn is_repeated(placement: &Placement, before: &[Placement]) -> bool {
    let ColumnTarget::Envelope(alias) = &placement.target else {
        return false;
    };
    alias == "payload"
        || before
            .iter()
            .any(|other| matches!(&other.target, ColumnTarget::Envelope(a) if a == alias))
}

/// What a malformed entry was probably meant to be: a placement in the wrong place or misspelt, or none at all.
fn meant(parts: &[&str]) -> String {
    let known = |part: &str| {
        WORDS
            .iter()
            .copied()
            .find(|word| word.eq_ignore_ascii_case(part))
            .or_else(|| nearest(part, WORDS))
    };
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    // A second part that looks like a placement is one; only then the others.
    let order = [1, 0, 2, 3].into_iter().filter(|&i| i < parts.len());
    let word = order.filter_map(|i| Some((i, known(parts[i])?))).next();
    let (at, word) = word.unwrap_or((parts.len(), "header"));
    let mut others = parts
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != at)
        .map(|(_, part)| *part);
    match (others.next(), others.next()) {
        (None, _) => format!("write a column before the placement: column:{word}"),
        (Some(column), Some(alias)) if alias != column => format!("did you mean {column}:{word}:{alias}?"),
        (Some(column), _) => format!("did you mean {column}:{word}?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_pairs_and_trios_is_read_as_debezium_reads_it() {
        let header = |column: &str, alias: &str| Placement {
            column: column.into(),
            target: ColumnTarget::Header(alias.into()),
        };
        let envelope = |column: &str, alias: &str| Placement {
            column: column.into(),
            target: ColumnTarget::Envelope(alias.into()),
        };
        let partition = |column: &str| Placement {
            column: column.into(),
            target: ColumnTarget::Partition,
        };
        let cases = [
            ("", vec![]),
            ("type:header", vec![header("type", "type")]),
            (
                " type : HEADER : eventType , shard:partition:ignored",
                vec![header("type", "eventType"), partition("shard")],
            ),
            ("a:envelope,b:envelope:c,", vec![envelope("a", "a"), envelope("b", "c")]),
            ("type:header:", vec![header("type", "type")]),
            ("id:header:id,x:header:id", vec![header("id", "id"), header("x", "id")]),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn a_malformed_entry_is_quoted_with_its_likely_meaning() {
        let cases = [
            (
                "headers:aggregate_type:aggregate_type",
                "did you mean aggregate_type:header?",
            ),
            ("header:type:eventType", "did you mean type:header:eventType?"),
            ("header:type", "did you mean type:header?"),
            ("type:headers:eventType", "did you mean type:header:eventType?"),
            ("type:headr", "did you mean type:header?"),
            ("tenant:envelop:tenantId", "did you mean tenant:envelope:tenantId?"),
            ("type", "did you mean type:header?"),
            ("type:eventType", "did you mean type:header:eventType?"),
            ("type:header:a:b", "did you mean type:header:a?"),
            (":header", "write a column before the placement: column:header"),
            ("a::b", "did you mean a:header:b?"),
            ("a:header: :b", "did you mean a:header:b?"),
        ];
        for (text, hint) in cases {
            let message = format!("contains {text:?}, which is neither column:placement nor column:placement:alias");
            assert_eq!(parse(text), Err(vec![(message, hint.to_owned())]), "{text:?}");
        }
        let problems = parse("a:header,,b:x:y,c:z:w").unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn the_envelope_has_each_field_once() {
        for text in ["a:envelope,b:envelope:a", "a:envelope:payload"] {
            let problems = parse(text).unwrap_err();
            assert!(
                problems[0]
                    .0
                    .ends_with("but the envelope already has a field with this name"),
                "{problems:?}"
            );
        }
    }
}
