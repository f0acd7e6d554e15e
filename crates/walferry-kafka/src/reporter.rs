//! The thread that hears what became of records.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use rdkafka::{error::RDKafkaErrorCode as Code, producer::Producer as _};
use tracing::{debug, info, warn};
use walferry_engine::{
    Disposition, Exit, Failure, Kind,
    sink::{Acks, Headers},
};
use walferry_telemetry::otlp::{self, DeliverySpan, TRACEPARENT, TraceParent};

use crate::{
    batching::{Batching, Step},
    failure::{self, FailedRecord},
    health::Health,
    native::{Client, Event, Report},
    origin::{DeliveryTag, TableNames},
    producer::size,
    set_aside::{DeadLetters, RefusedRecord},
    settings::ClientSettings,
    transactions::Transactions,
};

pub(crate) struct Reporter {
    pub(crate) client: Arc<Client>,
    pub(crate) acks: Acks,
    pub(crate) tables: TableNames,
    pub(crate) health: Health,
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) batching: Batching,
    /// What this producer was opened with.
    pub(crate) step: Step,
    /// Whether the producer is idempotent.
    pub(crate) idempotent: bool,
    /// If it sends in transactions.
    pub(crate) transactions: Option<Transactions>,
}

/// How long a wait for events lasts at most: how late a change from outside is noticed.
const WAIT: Duration = Duration::from_millis(200);
/// How often a troubled connection is tried while there is nothing to send.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// How long Kafka may refuse the log-in or the TLS connection, before any broker ever answered, until that is taken to be
/// for good. A broker that has just started may refuse good credentials until it has read its own log.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of connections that do not come about.
#[derive(Default)]
struct Refusals {
    /// Since when, and what Kafka said. librdkafka tells the same error only every half minute.
    refused: Option<(Instant, Failure)>,
    /// What the last connection broke of.
    last_reason: Option<String>,
}

impl Reporter {
    pub(crate) fn run(self, stop: &AtomicBool) {
        let mut delivered = Vec::new();
        let mut spans = Vec::new();
        let mut refusals = Refusals::default();
        let mut probe_at = Instant::now();
        while !stop.load(Relaxed) {
            let mut heard = false;
            let export = otlp::export();
            self.client.poll(WAIT, |event| {
                heard = true;
                match event {
                    Event::Reports(reports) => {
                        self.on_reports(reports, &mut delivered, export.is_some().then_some(&mut spans));
                    }
                    Event::Error { code, reason } => self.on_error(code, reason, &mut refusals),
                    Event::Log {
                        level,
                        facility,
                        message,
                    } => {
                        debug!(level, facility, text = message, "librdkafka");
                        self.on_log(facility, message, &mut refusals);
                    }
                }
            });
            if let Some(export) = export
                && !spans.is_empty()
            {
                export.push_all(spans.drain(..));
            }
            if !delivered.is_empty() {
                self.acks.delivered_all(&delivered);
                delivered.clear();
                self.connected();
            } else if !heard && self.health.is_troubled() && Instant::now() >= probe_at {
                // Nothing may be under way that would tell that the trouble is over.
                if self.client.producer().client().fetch_metadata(None, WAIT).is_ok() {
                    self.connected();
                }
                probe_at = Instant::now() + PROBE_INTERVAL;
            }
            self.give_up_if_refused(&mut refusals);
        }
    }

    /// What became of records: adds the sequences of those that were delivered, and their spans if they are exported.
    fn on_reports<'a>(
        &self,
        reports: impl IntoIterator<Item = Report<'a>>,
        delivered: &mut Vec<u64>,
        mut spans: Option<&mut Vec<DeliverySpan>>,
    ) {
        let mut refused = Vec::new();
        for report in reports {
            if DeliveryTag::from(report.opaque()) == DeliveryTag::OFFSET {
                continue;
            }
            match report.error() {
                None if self.idempotent && report.offset().is_none() => self.unproven(report),
                None => {
                    delivered.push(DeliveryTag::from(report.opaque()).sequence());
                    if let Some(spans) = &mut spans {
                        spans.extend(span(report));
                    }
                }
                Some(code) => refused.push((code, report)),
            }
        }
        self.undelivered(&refused);
    }

    /// Some failures are only in librdkafka's log.
    fn on_log(&self, facility: &str, message: &str, refusals: &mut Refusals) {
        if facility == "TXNERR" {
            self.transaction_failed(message);
        }
        // The broker has closed a connection.
        if facility == "FAIL" {
            let reason = message.split_once("]: ").map_or(message, |(_thread, reason)| reason);
            refusals.last_reason = Some(reason.to_owned());
        }
    }

    /// If no broker has ever answered, and they have refused for long enough, the credentials are wrong.
    fn give_up_if_refused(&self, refusals: &mut Refusals) {
        let Some((since, failure)) = &refusals.refused else {
            return;
        };
        if self.health.was_connected() {
            refusals.refused = None;
        } else if since.elapsed() > REFUSAL_PATIENCE {
            self.acks.failed(Failure {
                disposition: Disposition::Stop(Exit::Setup),
                ..failure.clone()
            });
        }
    }

    fn connected(&self) {
        if let Some(trouble) = self.health.connected() {
            info!(kind = trouble.failure.kind.as_str(), "kafka answers again");
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
        let culprit = culprit(report, &table, position.as_ref(), &report.headers());
        self.acks.failed(failure::of_unproven(&culprit));
    }

    /// Position of the change that the record of a report comes from.
    fn position(&self, report: Report<'_>) -> Option<String> {
        self.acks.position(DeliveryTag::from(report.opaque()).sequence())
    }

    /// Records of one batch that were not delivered.
    fn undelivered(&self, refused: &[(Code, Report<'_>)]) {
        let too_large =
            |&&(code, _): &&(Code, Report<'_>)| matches!(code, Code::MessageSizeTooLarge | Code::MessageBatchTooLarge);
        if let Some((_, report)) = refused.iter().find(too_large) {
            let records = refused.iter().filter(too_large).count();
            if let Some(failure) = self
                .batching
                .refused(self.step, report.topic(), records, Instant::now())
            {
                self.acks.failed(failure);
                return;
            }
        }
        for &(code, report) in refused {
            // Purged records are those of a producer that is being closed, or that gives up because its turn may be over.
            if !matches!(code, Code::PurgeQueue | Code::PurgeInflight)
                && let Err(failure) = self.undelivered_record(code, report)
            {
                self.acks.failed(failure);
                return;
            }
        }
    }

    fn undelivered_record(&self, code: Code, report: Report<'_>) -> Result<(), Failure> {
        let opaque = DeliveryTag::from(report.opaque());
        let headers = report.headers();
        let table = self.tables.name(opaque.table());
        let position = self.position(report);
        let refused = RefusedRecord {
            culprit: culprit(report, &table, position.as_ref(), &headers),
            value: report.value(),
            timestamp_ms: report.timestamp_ms(),
            headers: &headers,
        };
        match self.transactions {
            // The transaction can only be aborted, so the connector cannot go on without the record.
            Some(_) => Err(self.dead_letters.verdict(code, &refused)),
            None => self.dead_letters.judge(code, &refused, opaque),
        }
    }

    /// The transaction cannot be committed any more. This is told nowhere else until the commit, which may wait for records that are not
    /// sent any more.
    fn transaction_failed(&self, message: &str) {
        if let Some(transactions) = &self.transactions {
            let message = message.split_once("]: ").map_or(message, |(_thread, message)| message);
            let fatal = self.client.producer().client().fatal_error();
            let (code, text) = fatal.unwrap_or((Code::Fail, message.to_owned()));
            self.acks.failed(transactions.failure(code, &text));
        }
    }

    /// The client as a whole, or one of its connections, is in trouble. What is under way waits in the client's queue.
    fn on_error(&self, code: Code, reason: &str, refusals: &mut Refusals) {
        // With an old token, the brokers say what it is not about.
        if code == Code::Authentication
            && let Some(failure) = self.aws_trouble()
        {
            self.trouble(failure);
            return;
        }
        match code {
            Code::Fatal => {
                let (code, reason) = self
                    .client
                    .producer()
                    .client()
                    .fatal_error()
                    .unwrap_or((code, reason.to_owned()));
                self.acks.failed(failure::of_producer(code, &reason));
            }
            Code::AllBrokersDown => {
                let reason = refusals.last_reason.as_deref().unwrap_or(reason);
                self.trouble(failure::unreachable(self.settings.bootstrap_servers(), reason));
            }
            Code::Authentication if failure::may_pass(reason) => self.trouble(failure::not_authenticated(
                reason,
                self.settings.producer.token.as_ref(),
            )),
            Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
                self.refused(
                    failure::not_authenticated(reason, self.settings.producer.token.as_ref()),
                    refusals,
                );
            }
            Code::SSL if failure::is_certificate_fault(reason) => self.refused(failure::no_tls(reason), refusals),
            Code::SSL => self.trouble(failure::no_tls(reason)),
            // One connection of several, perhaps only an idle one: news only if the others fail too.
            _ => {
                debug!(%code, reason, "kafka connection");
                refusals.last_reason = Some(reason.to_owned());
            }
        }
    }

    fn refused(&self, failure: Failure, refusals: &mut Refusals) {
        self.trouble(failure.clone());
        let since = refusals.refused.take().map_or_else(Instant::now, |(since, _)| since);
        refusals.refused = Some((since, failure));
    }

    /// Why no token for MSK can be signed at the moment.
    fn aws_trouble(&self) -> Option<Failure> {
        let trouble = self.client.token_trouble();
        trouble.filter(|failure| failure.kind == Kind::AwsCredentials)
    }

    fn trouble(&self, failure: Failure) {
        if self.health.report(failure.clone(), SystemTime::now()) {
            warn!(
                code = failure.code(),
                kind = failure.kind.as_str(),
                hint = failure.hint(),
                "{failure}"
            );
        }
    }
}

/// The record of a report, as an error tells of it.
fn culprit<'a>(
    report: Report<'a>,
    table: &'a str,
    position: Option<&'a String>,
    headers: Headers<'_>,
) -> FailedRecord<'a> {
    FailedRecord {
        topic: report.topic(),
        partition: (report.partition() >= 0).then(|| report.partition()),
        table,
        position: position.map(|position| position as &dyn fmt::Display),
        key: report.key(),
        size: size(report.key(), report.value(), headers),
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
