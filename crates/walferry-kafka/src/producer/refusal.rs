//! What the reports of one batch mean for each of its records.
//!
//! A broker accepts a batch as a whole or not at all. Since Kafka 2.4 it names the records that are at fault: librdkafka then reports these
//! with the broker's error, and their neighbours with one of its own (`_INVALID_DIFFERENT_RECORD`). Older brokers, and some that are not Apache
//! Kafka, name none: then all records of the batch have the same error.

use rdkafka::error::RDKafkaErrorCode as Code;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Kafka has it.
    Delivered,
    /// Kafka does not have it, and nothing is wrong with it: it can be sent again.
    Unsent,
    /// Kafka has refused its batch, and nobody knows because of which record.
    Suspect(Code),
    /// It is at fault itself.
    Refused(Code),
    /// It was not delivered for a reason that lies with the producer or the brokers.
    Failed(Code),
}

/// The fates of the records of one batch, from the error of the batch and those in the reports.
pub(crate) fn fates(of_all: Option<Code>, errors: &[Option<Code>]) -> Vec<Fate> {
    // Of several records at fault, each report says only that the record is invalid.
    let why = |code| match (code, of_all) {
        (Code::InvalidRecord, Some(Code::InvalidTimestamp)) => Code::InvalidTimestamp,
        _ => code,
    };
    let are_named =
        errors.contains(&Some(Code::InvalidDifferentRecord)) && errors.iter().flatten().any(|&code| is_of_batch(code));
    let of_batch = |code| match errors.len() {
        1 => Fate::Refused(why(code)),
        _ if are_named => Fate::Refused(why(code)),
        _ => Fate::Suspect(why(code)),
    };
    let fate = |error: &Option<Code>| match *error {
        None => Fate::Delivered,
        Some(Code::PurgeQueue | Code::PurgeInflight) => Fate::Unsent,
        Some(Code::InvalidDifferentRecord) if are_named => Fate::Unsent,
        // Another record is at fault, and none is named: as if none could be named.
        Some(Code::InvalidDifferentRecord) => of_batch(Code::InvalidRecord),
        Some(code) if is_of_batch(code) => of_batch(code),
        // The client takes no record for a partition that it does not know. So this one was taken away meanwhile, with its topic.
        Some(Code::UnknownPartition) => Fate::Failed(Code::UnknownTopicOrPartition),
        // The client itself finds this out, record by record.
        Some(code @ Code::InvalidTopic) => Fate::Refused(code),
        Some(code) => Fate::Failed(code),
    };
    errors.iter().map(fate).collect()
}

/// Whether a broker refuses a whole batch with this error because of something in it.
const fn is_of_batch(code: Code) -> bool {
    is_of_size(code) || matches!(code, Code::InvalidRecord | Code::InvalidTimestamp)
}

/// Whether a batch is too large. Each of its records may be small enough.
pub(crate) const fn is_of_size(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_at_fault_is_told_from_its_neighbours() {
        use Code::{InvalidDifferentRecord as Other, InvalidRecord, InvalidTimestamp, MessageSizeTooLarge as Large};
        use Fate::{Delivered, Failed, Refused, Suspect, Unsent};
        let cases: [(&[Option<Code>], &[Fate]); 10] = [
            (&[None, None], &[Delivered, Delivered]),
            // Named: first, in the middle, last, several.
            (
                &[Some(InvalidTimestamp), Some(Other), Some(Other)],
                &[Refused(InvalidTimestamp), Unsent, Unsent],
            ),
            (&[Some(Other), Some(InvalidRecord)], &[Unsent, Refused(InvalidRecord)]),
            (
                &[Some(InvalidRecord), Some(Other), Some(InvalidRecord)],
                &[Refused(InvalidRecord), Unsent, Refused(InvalidRecord)],
            ),
            // Alone.
            (&[Some(InvalidTimestamp)], &[Refused(InvalidTimestamp)]),
            (&[Some(Other)], &[Refused(InvalidRecord)]),
            // Not named.
            (&[Some(Large), Some(Large)], &[Suspect(Large), Suspect(Large)]),
            (
                &[Some(Other), Some(Other)],
                &[Suspect(InvalidRecord), Suspect(InvalidRecord)],
            ),
            (&[Some(Code::PurgeQueue), Some(Code::PurgeInflight)], &[Unsent, Unsent]),
            (
                &[Some(Code::MessageTimedOut), Some(Code::UnknownPartition)],
                &[Failed(Code::MessageTimedOut), Failed(Code::UnknownTopicOrPartition)],
            ),
        ];
        for (errors, expected) in cases {
            assert_eq!(fates(None, errors), expected, "{errors:?}");
        }
        let errors = [Some(InvalidRecord), Some(Other), Some(InvalidRecord)];
        let fates = fates(Some(InvalidTimestamp), &errors);
        assert_eq!(fates, [Refused(InvalidTimestamp), Unsent, Refused(InvalidTimestamp)]);
    }
}
