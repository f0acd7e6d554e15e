//! What becomes of Kafka's errors.

use std::fmt;
use walferry_diagnosis::{Kind, printed::one_line};

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use walferry_config::{RegexLimit, shown_text};
use walferry_engine::{Disposition, Failure};

use crate::auth::{TokenSource, aws::options::AwsError};

/// A record as an error tells of it.
#[derive(Clone, Copy)]
pub(crate) struct FailedRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    pub(crate) table: &'a str,
    /// Position of the change, unless it is not known any more.
    pub(crate) position: Option<&'a dyn fmt::Display>,
    pub(crate) key: Option<&'a [u8]>,
    /// What names the change, if a person can have it passed over.
    pub(crate) change: Option<&'a str>,
    /// Bytes of key, value and headers.
    pub(crate) size: usize,
}

impl fmt::Display for FailedRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record of {} bytes for topic {}", self.size, self.topic)?;
        if let Some(partition) = self.partition {
            write!(f, ", partition {partition}")?;
        }
        if !self.table.is_empty() {
            write!(f, ", from table {}", self.table)?;
        }
        // A row that was not read from the stream has none.
        let position = self.position.map(ToString::to_string);
        if let Some(position) = position.filter(|position| !["", "0/0"].contains(&position.as_str())) {
            // What is no position in the log says itself what it is.
            let word = if position.contains(' ') { "" } else { "LSN " };
            write!(f, ", {word}{position}")?;
        }
        match self.key {
            Some(_) => Ok(()),
            None => f.write_str(", without a key"),
        }
    }
}

impl FailedRecord<'_> {
    fn add_to(&self, failure: Failure) -> Failure {
        let failure = failure.of_change(self.change.map(str::to_owned));
        match self.key {
            Some(key) => failure.about(key),
            None => failure,
        }
    }
}

/// The header of each record that `walferry outbox replay` sends. Its value is the id of the replay.
pub const REPLAY_HEADER: &str = "walferry.replay";

/// An id is cut to this many characters in an error.
const LONGEST_ID: usize = 100;

/// How an error names a record of a replay. It has no position in the log, but the id of its event says which row it is.
pub(crate) fn replayed_event(headers: walferry_engine::sink::Headers<'_>) -> Option<String> {
    let find = |wanted: &str| headers.iter().find(|(name, _)| *name == wanted);
    find(REPLAY_HEADER)?;
    let id = find("id").and_then(|(_, id)| *id)?;
    let text: String = String::from_utf8_lossy(id).chars().take(LONGEST_ID).collect();
    Some(format!("id {}", one_line(&text)))
}

/// Bytes of a record as errors tell of it.
pub(crate) fn size(key: Option<&[u8]>, value: Option<&[u8]>, headers: walferry_engine::sink::Headers<'_>) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    len(key)
        + len(value)
        + headers
            .iter()
            .map(|(name, value)| name.len() + len(*value))
            .sum::<usize>()
}

/// What a refused record means.
#[derive(Debug, PartialEq)]
pub(crate) enum RefusalVerdict {
    /// This record cannot be delivered, others can: by `errors.tolerance` the connector stops or sets it aside.
    Record(Failure),
    /// It is not the record's fault.
    Producer(Failure),
}

/// Judges an error that Kafka or its client has for one record.
pub(crate) fn of_record(code: Code, culprit: &FailedRecord<'_>) -> RefusalVerdict {
    let stop = |kind, why: &str, hint: String| {
        RefusalVerdict::Record(culprit.add_to(Failure::stop(kind, format!("{culprit} {why}"), hint)))
    };
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => stop(
            Kind::RecordTooLarge,
            "is larger than Kafka accepts",
            "raise the topic's `max.message.bytes` and the connector's `producer.override.max.request.size` above its size, or set \
             `errors.tolerance=all` and `errors.deadletterqueue.topic.name` to set such records aside"
                .into(),
        ),
        // If a broker refuses several records of a batch, its response gives this as the reason of each, also where it is the timestamp.
        Code::InvalidRecord if culprit.key.is_some() => stop(
            Kind::RecordRefused,
            "was rejected by the broker as invalid",
            "check the topic's `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`, and whether the brokers check records \
             against schemas"
                .into(),
        ),
        Code::InvalidRecord => stop(
            Kind::RecordRefused,
            "was rejected by the broker as invalid",
            "a compacted topic accepts no records without a key: give the table a primary key, set `message.key.columns`, or remove \
             `compact` from the topic's `cleanup.policy`"
                .into(),
        ),
        Code::InvalidTimestamp => stop(
            Kind::RecordRefused,
            "has a timestamp that the broker rejects",
            "check the topic's `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`".into(),
        ),
        Code::UnknownPartition => stop(
            Kind::PartitionMissing,
            "is assigned to a partition that the topic does not have",
            "add partitions to the topic, or correct the transform or setting that assigns the partition".into(),
        ),
        Code::TopicAuthorizationFailed => RefusalVerdict::Producer(topic_denied(culprit.topic)),
        Code::InvalidTopic => stop(
            Kind::TopicInvalid,
            "has a topic name that Kafka rejects",
            "a topic name has at most 249 characters: letters, digits, dots, underscores and hyphens; correct the transform or setting \
             that produces it".into(),
        ),
        Code::UnsupportedCompressionType | Code::UnsupportedForMessageFormat | Code::InvalidRequiredAcks => {
            RefusalVerdict::Producer(Failure::stop(
                Kind::KafkaUnsupported,
                format!("the broker does not support a setting of the producer: {code}"),
                "check `producer.override.compression.type`, `producer.override.acks` and the broker's version",
            ))
        }
        _ => RefusalVerdict::Producer(culprit.add_to(Failure::new(
            Disposition::Replay,
            Kind::KafkaDelivery,
            format!("{culprit} was not delivered: {code}"),
            None,
        ))),
    }
}

/// A broker accepted a later record of the same partition, and never said that it has this one.
pub(crate) fn of_unproven(culprit: &FailedRecord<'_>) -> Failure {
    culprit.add_to(Failure::new(
        Disposition::Replay,
        Kind::KafkaDelivery,
        format!(
            "{culprit} may be missing: the broker accepted a later record of the partition without confirming this one"
        ),
        None,
    ))
}

/// Judges an error after which a producer is of no more use.
pub(crate) fn of_producer(code: Code, reason: &str) -> Failure {
    match code {
        Code::ClusterAuthorizationFailed => Failure::stop(
            Kind::KafkaDenied,
            format!("the Kafka user is not allowed to use an idempotent producer: {reason}"),
            "grant the user IdempotentWrite on the cluster (`kafka-acls --add --operation IdempotentWrite --cluster …`), or set \
             `producer.override.enable.idempotence=false`",
        ),
        Code::TransactionalIdAuthorizationFailed => Failure::stop(
            Kind::KafkaDenied,
            format!("the Kafka user is not allowed to use the connector's transactional.id: {reason}"),
            "grant the user Write and Describe on it (`kafka-acls --add --operation Write --operation Describe --transactional-id …`); the \
             id is `<group.id>-<connector>-0`",
        ),
        Code::TopicAuthorizationFailed => Failure::stop(
            Kind::KafkaDenied,
            format!("the Kafka user is not allowed to write to a topic: {reason}"),
            "grant the user Write and Describe on the topics (`kafka-acls --add --operation Write --operation Describe --topic …`)",
        ),
        Code::InvalidTransactionTimeout => Failure::stop(
            Kind::KafkaSettings,
            format!("the broker does not allow such long transactions: {reason}"),
            "set `producer.override.transaction.timeout.ms` to at most the broker's `transaction.max.timeout.ms`",
        ),
        Code::UnsupportedVersion | Code::UnsupportedFeature => Failure::stop(
            Kind::KafkaUnsupported,
            format!("the broker does not support an idempotent producer: {reason}"),
            "use Kafka 0.11 or later, or set `producer.override.enable.idempotence=false`",
        ),
        _ => Failure::new(
            Disposition::Replay,
            Kind::KafkaProducer,
            format!("the Kafka producer has lost its sequence: {reason}"),
            None,
        ),
    }
}

/// No broker answers.
pub(crate) fn unreachable(servers: &str, reason: &str) -> Failure {
    // librdkafka takes the first bytes of another protocol for a length.
    if reason.contains("Invalid response size") {
        return Failure::new(
            Disposition::Retry,
            Kind::KafkaUnreachable,
            format!("what listens at {} does not answer as a Kafka broker", shown_text(servers)),
            Some("check `bootstrap.servers`: the port may belong to another service; if the listener speaks TLS, set `security.protocol` to SSL \
                  or SASL_SSL".into()),
        );
    }
    Failure::new(
        Disposition::Retry,
        Kind::KafkaUnreachable,
        format!(
            "no Kafka broker of {} answers: {}",
            shown_text(servers),
            shown_text(gist(reason))
        ),
        Some("check that Kafka is running, that `bootstrap.servers` and the brokers' advertised listeners are reachable, and that \
              `security.protocol` matches the listener".into()),
    )
}

/// Kafka refuses the credentials, or there are none to show it.
pub(crate) fn not_authenticated(reason: &str, login: Option<&TokenSource>) -> Failure {
    let (what, hint) = if is_without_token(reason) {
        (
            "Kafka login failed",
            "check `sasl.oauthbearer.token.endpoint.url`, the client id and the client secret",
        )
    } else if matches!(login, Some(TokenSource::Msk(_))) {
        (
            "Amazon MSK rejects the login",
            "check that the keys are right, that the policy of the IAM identity allows kafka-cluster:Connect on the cluster, that the region is the \
             cluster's, and the machine's clock",
        )
    } else if reason.contains("GSSAPI") {
        (
            "Kafka login with Kerberos failed",
            "check `principal` and `keyTab` in `sasl.jaas.config`, `sasl.kerberos.service.name`, /etc/krb5.conf, and that `kinit` (Debian: \
             package krb5-user) obtains a ticket",
        )
    } else {
        (
            "Kafka rejects the login",
            "check the user and the password in `sasl.jaas.config`, and `sasl.mechanism`",
        )
    };
    Failure::new(
        Disposition::Retry,
        Kind::KafkaAuthentication,
        format!("{what}: {}", gist(reason)),
        Some(hint.into()),
    )
}

/// No token for the log-in comes from its endpoint.
pub(crate) fn no_token(why: &str) -> Failure {
    not_authenticated(&format!("Failed to acquire SASL OAUTHBEARER token: {why}"), None)
}

/// No token for MSK can be signed. Credentials come back as a rule: a role is given, an endpoint answers again.
pub(crate) fn no_aws_token(error: &AwsError) -> Failure {
    Failure::new(
        Disposition::Retry,
        Kind::AwsCredentials,
        format!("no token for Amazon MSK: {error}"),
        Some(error.hint.into()),
    )
}

/// Whether the token endpoint did not answer, which may pass, or refused, which is as good as a wrong password.
fn is_without_token(reason: &str) -> bool {
    reason.contains("OAUTHBEARER token")
}

/// Whether a log-in fails for a reason that passes by itself.
pub(crate) fn may_pass(reason: &str) -> bool {
    is_without_token(reason) && !reason.contains("it answers 4")
}

/// No TLS connection comes about.
pub(crate) fn no_tls(reason: &str) -> Failure {
    Failure::new(
        Disposition::Retry,
        Kind::KafkaTls,
        format!("the TLS connection to Kafka fails: {}", gist(reason)),
        Some(
            "check `ssl.truststore.location` (the authority that signed the broker's certificate), the host name in `bootstrap.servers`, \
             and `security.protocol`. If `ssl.crl.location` is set, the broker's certificate may be revoked, or the list of an authority is \
             missing or has expired"
                .into(),
        ),
    )
}

/// Whether a TLS connection fails for a reason that lies in a certificate, not in a connection that broke.
pub(crate) fn is_certificate_fault(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["certificate", "unknown ca", "hostname", "wrong version number"]
        .iter()
        .any(|word| reason.contains(word))
}

/// What librdkafka says, without its advice (which names its own settings) and without how long it took.
fn gist(reason: &str) -> &str {
    // The words of the Rust client before those of librdkafka.
    let reason = reason
        .strip_prefix("Meta data fetch error: ")
        .and_then(|reason| reason.split_once(" ("))
        .map_or(reason, |(_, reason)| reason.trim_end_matches(')'));
    let end = [" (after ", ", verify that ", ": broker certificate could not"]
        .iter()
        .filter_map(|tail| reason.find(tail))
        .min();
    end.map_or(reason, |end| &reason[..end])
}

/// A topic that the client cannot even ask for.
pub(crate) fn of_topic(topic: &str, code: Code) -> Failure {
    Failure::stop(
        Kind::TopicInvalid,
        format!("{topic:?} is not a valid topic name: {code}"),
        "a topic name has at most 249 characters: letters, digits, dots, underscores and hyphens; correct the transform or setting that \
         produces it",
    )
}

/// An expression of `topic.creation.*` takes too long on the name of a topic.
pub(crate) fn of_expression(limit: &RegexLimit) -> Failure {
    Failure::stop(Kind::RegexLimit, limit.to_string(), limit.hint())
}

/// The user may not write to a topic.
pub(crate) fn topic_denied(topic: &str) -> Failure {
    Failure::stop(
        Kind::KafkaDenied,
        format!("the Kafka user is not allowed to write to topic {topic}"),
        format!(
            "grant the user Write and Describe (`kafka-acls --add --operation Write --operation Describe --topic {topic} …`)"
        ),
    )
}

/// A producer could not even be made.
pub(crate) fn of_settings(error: &KafkaError) -> Failure {
    Failure::stop(
        Kind::KafkaSettings,
        format!("the Kafka producer could not be created: {error}"),
        "check the `producer.override.*` properties of the connector and the `producer.*` properties of the worker",
    )
}

#[cfg(test)]
mod tests {
    use walferry_engine::Exit;

    use super::*;

    const CULPRIT: FailedRecord<'_> = FailedRecord {
        change: None,
        topic: "t",
        partition: Some(3),
        table: "public.orders",
        position: Some(&"16/B374D848"),
        key: Some(b"{\"id\":1}\xff"),
        size: 42,
    };

    #[test]
    fn what_is_no_broker_is_not_told_in_librdkafkas_words() {
        let failure = unreachable(
            "db:5432",
            "db:5432/bootstrap: Receive failed: Invalid response size 1157627904 (0..100000000): increase receive.message.max.bytes",
        );
        let message = format!("{failure} {}", failure.hint().unwrap_or_default());
        assert!(
            message.contains("what listens at db:5432 does not answer as a Kafka broker"),
            "{message}"
        );
        assert!(
            message.contains("another service") && !message.contains("receive.message"),
            "{message}"
        );
    }

    #[test]
    fn what_the_rust_client_says_is_left_out() {
        let failure = unreachable(
            "k:9092",
            "Meta data fetch error: BrokerTransportFailure (Local: Broker transport failure)",
        );
        assert_eq!(
            failure.to_string(),
            "no Kafka broker of k:9092 answers: Local: Broker transport failure"
        );
    }

    #[test]
    fn an_error_names_table_lsn_and_size_and_keeps_the_key_for_the_log() {
        let text = CULPRIT.to_string();
        assert_eq!(
            text,
            "the record of 42 bytes for topic t, partition 3, from table public.orders, LSN 16/B374D848"
        );
        let RefusalVerdict::Record(failure) = of_record(Code::MessageSizeTooLarge, &CULPRIT) else {
            panic!("it is the record's fault");
        };
        assert!(!failure.to_string().contains("{\"id\":1}"), "{failure}");
        assert!(
            failure.for_log().ends_with("the record's key is {\"id\":1}\\xff"),
            "{}",
            failure.for_log()
        );
    }

    #[test]
    fn a_token_endpoint_that_is_down_is_not_a_wrong_password() {
        let token = "Failed to acquire SASL OAUTHBEARER token: no token from http://idp: ";
        let cases = [
            (format!("{token}io: Connection refused"), true),
            (format!("{token}it answers 503 Service Unavailable"), true),
            (format!("{token}it answers 401 Unauthorized invalid_client"), false),
            ("SASL authentication error: Invalid username or password".into(), false),
        ];
        for (reason, passes) in cases {
            assert_eq!(may_pass(&reason), passes, "{reason}");
        }
    }

    #[test]
    fn the_gist_of_a_reason_is_told() {
        let cases = [
            (
                "ssl://b:1/bootstrap: SSL handshake failed: certificate verify failed: broker certificate could not be verified, verify that ssl.ca.location is (after 3ms in state X)",
                "ssl://b:1/bootstrap: SSL handshake failed: certificate verify failed",
            ),
            (
                "b:1: Invalid username or password (after 3ms in state AUTH_REQ, 25 identical error(s) suppressed)",
                "b:1: Invalid username or password",
            ),
            ("1/1 brokers are down", "1/1 brokers are down"),
        ];
        for (reason, expected) in cases {
            assert_eq!(gist(reason), expected);
        }
    }

    #[test]
    fn what_is_the_records_fault_is_told_from_what_is_not() {
        use Disposition::{Replay, Stop};
        let cases = [
            (
                Code::MessageSizeTooLarge,
                true,
                Kind::RecordTooLarge,
                Stop(Exit::Record),
            ),
            (Code::InvalidRecord, true, Kind::RecordRefused, Stop(Exit::Record)),
            (Code::UnknownPartition, true, Kind::PartitionMissing, Stop(Exit::Record)),
            (
                Code::TopicAuthorizationFailed,
                false,
                Kind::KafkaDenied,
                Stop(Exit::Setup),
            ),
            (Code::MessageTimedOut, false, Kind::KafkaDelivery, Replay),
            (Code::OutOfOrderSequenceNumber, false, Kind::KafkaDelivery, Replay),
        ];
        for (code, of_record_fault, kind, disposition) in cases {
            let (fault, failure) = match of_record(code, &CULPRIT) {
                RefusalVerdict::Record(failure) => (true, failure),
                RefusalVerdict::Producer(failure) => (false, failure),
            };
            assert_eq!(
                (fault, failure.kind, failure.disposition),
                (of_record_fault, kind, disposition),
                "{code}"
            );
        }
    }
}
