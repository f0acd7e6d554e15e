//! The thread that hears what became of records.

use std::{
    fmt,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use rdkafka::{error::RDKafkaErrorCode as Code, producer::Producer as _};
use tracing::{debug, warn};
use walferry_diagnosis::outages::REPEATED;
use walferry_engine::{
    Disposition, Exit, Failure, Kind,
    sink::{Acks, Headers},
};
use walferry_telemetry::otlp::{self, DeliverySpan, TRACEPARENT, TraceParent};

use crate::{
    client::settings::ClientSettings,
    failure::{self, FailedRecord},
    health::{Health, News},
    native::{Client, Event, Polled, Report},
    producer::{
        batching::{Batching, Step},
        line::Line,
        origin::{DeliveryTag, TableNames},
        refusal::{Fate, fates, is_of_size},
        set_aside::{DeadLetters, RefusedRecord},
        thick::Thick,
        transactions::Transactions,
    },
    topics::Topics,
};

pub(crate) struct Reporter {
    /// The client that has the line.
    pub(crate) client: Arc<Client>,
    pub(crate) line: Arc<Line>,
    pub(crate) topics: Topics,
    pub(crate) acks: Acks,
    pub(crate) tables: TableNames,
    pub(crate) health: Health,
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) batching: Batching,
    /// What this producer was opened with.
    pub(crate) step: Step,
    /// Whether the client sends each record alone and goes on behind one that is refused (`mend.rs`).
    pub(crate) is_alone: bool,
    pub(crate) thick: Thick,
    /// Whether the producer is idempotent.
    pub(crate) idempotent: bool,
    /// If it sends in transactions.
    pub(crate) transactions: Option<Transactions>,
    pub(crate) refusals: Refusals,
    /// The transaction cannot be committed. The report of the record that it failed of is still to come.
    pub(crate) lost_transaction: Option<(Instant, Failure)>,
    /// The topic that was last refused for a transaction because of a missing permission. The error of the transaction does not name it.
    pub(crate) denied_topic: Option<String>,
}

/// How long a wait for events lasts at most: how late a change from outside is noticed.
const WAIT: Duration = Duration::from_millis(200);
/// How often a troubled connection is tried while there is nothing to send.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// How long Kafka may refuse the log-in or the TLS connection, before any broker ever answered, until that is taken to be
/// for good. A broker that has just started may refuse good credentials until it has read its own log.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// How long the report of the record that a transaction failed of is waited for. It is in the queue a moment later.
const CAUSE_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of connections that do not come about.
#[derive(Default)]
pub(crate) struct Refusals {
    /// Since when, and what Kafka said. librdkafka tells the same error only every half minute.
    refused: Option<(Instant, Failure)>,
    /// What the last connection broke of.
    last_reason: Option<String>,
}

impl Reporter {
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let mut probe_at = Instant::now();
        while !stop.load(Relaxed) {
            let heard = self.client.poll(WAIT).map(Rc::new);
            let was_heard = heard.is_some();
            let has_delivered = heard.is_some_and(|polled| self.on_event(&polled));
            if !was_heard {
                self.look_for_fatal_error();
            }
            if !has_delivered && !was_heard && self.health.is_troubled() && Instant::now() >= probe_at {
                // Nothing may be under way that would tell that the trouble is over.
                if self.client.producer().client().fetch_metadata(None, WAIT).is_ok() {
                    self.connected();
                }
                probe_at = Instant::now() + PROBE_INTERVAL;
            }
            self.end_alone();
            self.give_up_lost_transaction();
            self.give_up_if_refused();
        }
    }

    /// Deals with an event. Returns whether records were delivered.
    fn on_event(&mut self, polled: &Rc<Polled>) -> bool {
        match polled.event() {
            Some(Event::Reports(reports)) => {
                let (of_all, reports): (_, Vec<_>) = (reports.batch_error(), reports.collect());
                let (delivered, undelivered) = self.sort_out(of_all, &reports);
                self.thick.delivered(delivered.len());
                if !undelivered.is_empty() {
                    match self.transactions {
                        Some(_) => self.lose_transaction(&undelivered),
                        None => self.mend(polled, &reports, &undelivered),
                    }
                }
                !delivered.is_empty()
            }
            Some(other) => {
                self.on_other(&other);
                false
            }
            None => false,
        }
    }

    /// Deals with an event that is not about records.
    pub(crate) fn on_other(&mut self, event: &Event<'_>) {
        match *event {
            Event::Reports(_) => {}
            Event::Error { code, reason } => self.on_error(code, reason),
            Event::Log {
                level,
                facility,
                message,
            } => {
                debug!(level, facility, text = message, "librdkafka");
                self.on_log(facility, message);
            }
        }
    }

    /// Settles the records of a batch that were delivered. Returns their sequences, and what became of the others.
    pub(crate) fn sort_out<'a>(
        &self,
        of_all: Option<Code>,
        reports: &[Report<'a>],
    ) -> (Vec<u64>, Vec<(Fate, Report<'a>)>) {
        let errors: Vec<_> = reports.iter().map(|report| report.error()).collect();
        let (mut delivered, mut undelivered, mut spans) = (Vec::new(), Vec::new(), Vec::new());
        let export = otlp::export();
        for (fate, &report) in fates(of_all, &errors).into_iter().zip(reports) {
            let tag = DeliveryTag::from(report.opaque());
            match fate {
                Fate::Delivered if tag == DeliveryTag::OFFSET => self.offset_written(report),
                Fate::Delivered if self.idempotent && report.offset().is_none() => self.unproven(report),
                Fate::Delivered => {
                    delivered.push(tag.sequence());
                    if export.is_some() {
                        spans.extend(span(report));
                    }
                }
                fate => undelivered.push((fate, report)),
            }
        }
        if !delivered.is_empty() {
            self.acks.delivered_all(&delivered);
            self.connected();
        }
        if let Some(export) = export
            && !spans.is_empty()
        {
            export.push_all(spans);
        }
        (delivered, undelivered)
    }

    /// The offset of a transaction is in its topic. If that was deleted and created again, the session ends after this transaction.
    fn offset_written(&self, report: Report<'_>) {
        if let (Some(transactions), Some(offset)) = (&self.transactions, report.offset())
            && let Err(failure) = transactions.offset_written(report.partition(), offset)
        {
            self.acks.failed(failure);
        }
    }

    /// Ends the session if the client has ended, unless a refused record is the cause: its report is still to come, or was heard already.
    pub(crate) fn look_for_fatal_error(&self) {
        match self.client.producer().client().fatal_error() {
            None | Some((Code::GaplessGuarantee, _)) => {}
            Some((code, reason)) => self.acks.failed(match &self.transactions {
                Some(transactions) => transactions.failure(code, &reason),
                None => failure::of_producer(code, &reason),
            }),
        }
    }

    /// Some failures are only in librdkafka's log.
    fn on_log(&mut self, facility: &str, message: &str) {
        if facility == "TXNERR" {
            self.transaction_failed(message);
        }
        if facility == "ADDPARTS" && message.contains("authorization failed") {
            self.denied_topic = message.split('"').nth(1).map(str::to_owned);
        }
        // The broker has closed a connection.
        if facility == "FAIL" {
            let reason = message.split_once("]: ").map_or(message, |(_thread, reason)| reason);
            self.refusals.last_reason = Some(reason.to_owned());
        }
    }

    /// If no broker has ever answered, and they have refused for long enough, the credentials are wrong.
    fn give_up_if_refused(&mut self) {
        let Some((since, failure)) = &self.refusals.refused else {
            return;
        };
        if self.health.was_connected() {
            self.refusals.refused = None;
        } else if since.elapsed() > REFUSAL_PATIENCE {
            self.acks.failed(Failure {
                disposition: Disposition::Stop(Exit::Setup),
                ..failure.clone()
            });
        }
    }

    fn connected(&self) {
        if let Some(recovery) = self.health.connected() {
            recovery.log();
        }
    }

    /// librdkafka reports a record as delivered, but no broker has said where it is.
    ///
    /// If a broker accepts a later batch of a partition, librdkafka takes the earlier ones for delivered: a broker accepts no batch
    /// whose predecessor is missing. But a broker that has never seen this producer on the partition accepts any batch. So if it
    /// rejects the first batch, because it is just becoming the leader of a new partition, and accepts the second, the first is in no
    /// log. A new producer sends both again. <https://github.com/confluentinc/confluent-kafka-go/issues/921>
    fn unproven(&self, report: Report<'_>) {
        let table = self.tables.name(DeliveryTag::from(report.opaque()).table());
        let position = self.position(report);
        let culprit = culprit(report, &table, (position.as_ref(), None), &report.headers());
        self.acks.failed(failure::of_unproven(&culprit));
    }

    /// Position of the change that the record of a report comes from.
    fn position(&self, report: Report<'_>) -> Option<String> {
        let position = self.acks.position(DeliveryTag::from(report.opaque()).sequence());
        // Postgres has no position zero: the row was not read from the stream.
        position.filter(|position| position != "0/0")
    }

    /// Records of a transaction that were not delivered. It can only be aborted. If one of them is at fault itself, the connector cannot go on
    /// without it.
    fn lose_transaction(&mut self, undelivered: &[(Fate, Report<'_>)]) {
        let of_record = |&&(fate, _): &&(Fate, Report<'_>)| matches!(fate, Fate::Refused(_));
        let of_other = |&&(fate, _): &&(Fate, Report<'_>)| fate != Fate::Unsent;
        // Records are purged because the transaction is lost, or because the producer is closed.
        let mut causes = undelivered.iter();
        let cause = causes.clone().find(of_record).or_else(|| causes.find(of_other));
        let Some(&(fate, report)) = cause else { return };
        let pending = self.lost_transaction.take().map(|(_, failure)| failure);
        let failure = match fate {
            // The offset itself.
            _ if DeliveryTag::from(report.opaque()) == DeliveryTag::OFFSET => match pending {
                Some(failure) => failure,
                None => return,
            },
            Fate::Suspect(code) => {
                let (topic, records, now) = (report.topic(), undelivered.len(), Instant::now());
                let smaller = match is_of_size(code) {
                    true => self.batching.refused(self.step, topic, records, now),
                    false => self.batching.isolate(self.step, topic, records, code, now),
                };
                smaller.unwrap_or_else(|| self.verdict(code, report))
            }
            Fate::Refused(code) | Fate::Failed(code) => self.verdict(code, report),
            Fate::Unsent | Fate::Delivered => return,
        };
        self.acks.failed(failure);
    }

    /// Why a record was not delivered.
    pub(crate) fn verdict(&self, code: Code, report: Report<'_>) -> Failure {
        let fatal = self.client.producer().client().fatal_error();
        self.with_refused(report, |refused| DeadLetters::verdict(code, refused, fatal))
    }

    /// Hands the record of a report to `look`.
    pub(crate) fn with_refused<T>(&self, report: Report<'_>, look: impl FnOnce(&RefusedRecord<'_>) -> T) -> T {
        let headers = report.headers();
        let table = self.tables.name(DeliveryTag::from(report.opaque()).table());
        let position = failure::replayed_event(&headers).or_else(|| self.position(report));
        let change = self.acks.change(DeliveryTag::from(report.opaque()).sequence());
        look(&RefusedRecord {
            culprit: culprit(report, &table, (position.as_ref(), change.as_deref()), &headers),
            value: report.value(),
            timestamp_ms: report.timestamp_ms(),
            headers: &headers,
        })
    }

    /// The transaction cannot be committed any more. This is told nowhere else until the commit, which may wait for records that are not
    /// sent any more. If it failed of a record, the client reports the record next, and only that report says whether to try again.
    fn transaction_failed(&mut self, message: &str) {
        if let Some(transactions) = &self.transactions {
            let message = message.split_once("]: ").map_or(message, |(_thread, message)| message);
            let fatal = self.client.producer().client().fatal_error();
            let is_of_record = fatal.is_none() && message.contains("ProduceRequest for ");
            let (code, text) = fatal.unwrap_or_else(|| (code_in(message), message.to_owned()));
            let failure = match (&self.denied_topic, code) {
                (Some(topic), Code::TopicAuthorizationFailed) => failure::topic_denied(topic),
                _ => transactions.failure(code, &text),
            };
            match is_of_record {
                true => self.lost_transaction = Some((Instant::now(), failure)),
                false => self.acks.failed(failure),
            }
        }
    }

    /// Ends the session if no report has told of the record that a transaction failed of.
    fn give_up_lost_transaction(&mut self) {
        let is_late =
            |(since, _): &mut (Instant, Failure)| since.elapsed() > CAUSE_PATIENCE || self.client.outstanding() == 0;
        if let Some((_, failure)) = self.lost_transaction.take_if(is_late) {
            self.acks.failed(failure);
        }
    }

    /// The client as a whole, or one of its connections, is in trouble. What is under way waits in the client's queue.
    fn on_error(&mut self, code: Code, reason: &str) {
        // The code of a fatal error may be that of its cause.
        self.look_for_fatal_error();
        // With an old token, the brokers say what it is not about.
        if code == Code::Authentication
            && let Some(failure) = self.aws_trouble()
        {
            self.trouble(failure);
            return;
        }
        match code {
            // See above.
            Code::Fatal => {}
            Code::AllBrokersDown => {
                let reason = self.refusals.last_reason.as_deref().unwrap_or(reason);
                self.trouble(failure::unreachable(self.settings.bootstrap_servers(), reason));
            }
            Code::Authentication if failure::may_pass(reason) => self.trouble(failure::not_authenticated(
                reason,
                self.settings.producer.token.as_ref(),
            )),
            Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
                self.refused(failure::not_authenticated(
                    reason,
                    self.settings.producer.token.as_ref(),
                ));
            }
            Code::SSL if failure::is_certificate_fault(reason) => self.refused(failure::no_tls(reason)),
            Code::SSL => self.trouble(failure::no_tls(reason)),
            // One connection of several, perhaps only an idle one: news only if the others fail too.
            _ => {
                debug!(%code, reason, "kafka connection");
                self.refusals.last_reason = Some(reason.to_owned());
            }
        }
    }

    fn refused(&mut self, failure: Failure) {
        self.trouble(failure.clone());
        let since = self
            .refusals
            .refused
            .take()
            .map_or_else(Instant::now, |(since, _)| since);
        self.refusals.refused = Some((since, failure));
    }

    /// Why no token for MSK can be signed at the moment.
    fn aws_trouble(&self) -> Option<Failure> {
        let trouble = self.client.token_trouble();
        trouble.filter(|failure| failure.kind == Kind::AwsCredentials)
    }

    fn trouble(&self, failure: Failure) {
        let news = self
            .health
            .report(self.settings.bootstrap_servers(), failure.clone(), SystemTime::now());
        let (code, kind, hint) = (failure.code(), failure.kind.as_str(), failure.hint());
        match news {
            News::Known => {}
            News::New => warn!(code, kind, hint, "{failure}"),
            News::OfOther => warn!(target: REPEATED, code, kind, hint, "{failure}"),
        }
    }
}

/// The error that a transaction has failed of. librdkafka gives only its name, in brackets at the end of the line.
fn code_in(message: &str) -> Code {
    const NAMES: [(&str, Code); 5] = [
        ("TOPIC_AUTHORIZATION_FAILED", Code::TopicAuthorizationFailed),
        ("CLUSTER_AUTHORIZATION_FAILED", Code::ClusterAuthorizationFailed),
        (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            Code::TransactionalIdAuthorizationFailed,
        ),
        ("INVALID_PRODUCER_EPOCH", Code::InvalidProducerEpoch),
        ("PRODUCER_FENCED", Code::ProducerFenced),
    ];
    let name = message.rsplit_once('(').map_or("", |(_, name)| name);
    let name = name.split([',', ')']).next().unwrap_or_default();
    let known = NAMES.iter().find(|(known, _)| *known == name);
    known.map_or(Code::Fail, |(_, code)| *code)
}

/// The record of a report, as an error tells of it.
fn culprit<'a>(
    report: Report<'a>,
    table: &'a str,
    (position, change): (Option<&'a String>, Option<&'a str>),
    headers: Headers<'_>,
) -> FailedRecord<'a> {
    FailedRecord {
        topic: report.topic(),
        partition: (report.partition() >= 0).then(|| report.partition()),
        table,
        position: position.map(|position| position as &dyn fmt::Display),
        change,
        key: report.key(),
        size: failure::size(report.key(), report.value(), headers),
    }
}

/// The delivery of a record that belongs to a sampled trace is a span of that trace.
fn span(report: Report<'_>) -> Option<DeliverySpan> {
    let parent = report.header(TRACEPARENT).and_then(TraceParent::parse)?;
    let mut id = [0; 8];
    if !parent.is_sampled || openssl::rand::rand_bytes(&mut id).is_err() {
        return None;
    }
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ended_ns = since_1970.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let begun_ns = report
        .timestamp_ms()
        .and_then(|ms| u64::try_from(ms).ok())
        .map(|ms| ms.saturating_mul(1_000_000));
    let message = report.header(c"id");
    Some(DeliverySpan {
        parent,
        id,
        topic: report.topic().to_owned(),
        partition: report.partition(),
        offset: report.offset(),
        message: message.map(|id| String::from_utf8_lossy(id).trim_matches('"').to_owned()),
        // A span cannot end before it begins, whatever the clocks say.
        begun_ns: begun_ns.unwrap_or(ended_ns).min(ended_ns),
        ended_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_lost_transaction_is_in_librdkafkas_line() {
        let cases = [
            (
                "Current transaction failed in state InTransaction: Failed to add partition(s) to transaction on broker b:1/1: Broker: Topic \
                 authorization failed (after 3 ms) (TOPIC_AUTHORIZATION_FAILED)",
                Code::TopicAuthorizationFailed,
            ),
            (
                "Current transaction failed in state InTransaction: unknown producer id (INVALID_PRODUCER_EPOCH, requires epoch bump)",
                Code::InvalidProducerEpoch,
            ),
            ("Current transaction failed (UNKNOWN)", Code::Fail),
            ("", Code::Fail),
        ];
        for (message, code) in cases {
            assert_eq!(code_in(message), code, "{message}");
        }
    }
}
