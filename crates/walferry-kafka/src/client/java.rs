//! Every property of Java's producer, and what becomes of it.

use walferry_config::{Value as _, ValueError};

use super::kerberos;

/// What becomes of a property.
pub(super) enum Rule {
    /// librdkafka means the same by this name.
    As(&'static str),
    /// The value is converted.
    Converted(Convert),
    /// Read together with others: TLS, log-in, acknowledgement.
    Together,
    /// Nothing comes of it, and nothing is lost by that.
    Accepted(&'static str),
    /// It would change the outcome.
    Refused(&'static str),
}

/// librdkafka's properties for a value, and what its author should know.
type Convert = fn(&str) -> Result<Converted, ValueError>;

#[derive(Default)]
pub(super) struct Converted {
    pub(super) properties: Vec<(&'static str, String)>,
    /// As the end of a sentence that begins with the property's name.
    pub(super) warning: Option<String>,
}

pub(super) struct KnownProperty {
    /// Java's name.
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    /// For the reference page: librdkafka's names, or a remark.
    pub(super) text: &'static str,
}

/// The entry of a property.
pub(super) fn find(name: &str) -> Option<&'static KnownProperty> {
    TABLE.iter().find(|entry| entry.name == name)
}

const fn entry(name: &'static str, rule: Rule, text: &'static str) -> KnownProperty {
    KnownProperty { name, rule, text }
}

const fn same(name: &'static str) -> KnownProperty {
    entry(name, Rule::As(name), "")
}

const JAVA_CLASS: &str = "Walferry cannot load Java classes; remove it";
const OPENSSL: Rule = Rule::Accepted("Walferry uses OpenSSL, with TLS 1.2 or later as configured");
const WAITS: Rule = Rule::Accepted("records wait until Kafka accepts them, without a time limit");
const JMX: Rule = Rule::Accepted("metrics are at /metrics");
const NULL_KEYS: Rule = Rule::Accepted("it applies only to records without a key, which go to any partition");
const LOGIN: Rule = Rule::Accepted("tokens are renewed when three quarters of their time are over");
const KERBEROS: Rule = Rule::Accepted("`kinit` runs as often as `sasl.kerberos.min.time.before.relogin` says");
const BROKER_CHECKS: Rule = Rule::Accepted("the broker checks the token");
const ASSERTION: Rule = Rule::Refused("only a client id with a secret can ask for a token");
const ONE_PHASE: Rule = Rule::Accepted("no other system takes part in the transactions");

/// In alphabetical order.
pub(super) static TABLE: &[KnownProperty] = &[
    entry(
        "acks",
        Rule::Together,
        "`acks`; less than `all` is honoured with a warning",
    ),
    entry(
        "batch.size",
        Rule::Converted(batch_size),
        "`batch.size`; 0 sends each record alone",
    ),
    same("bootstrap.servers"),
    entry(
        "buffer.memory",
        Rule::Converted(buffer_memory),
        "`queue.buffering.max.kbytes`; what is under way is bounded before that by `walferry.in.flight.max.bytes`",
    ),
    entry("client.dns.lookup", Rule::Converted(dns_lookup), "`client.dns.lookup`"),
    same("client.id"),
    entry(
        "compression.gzip.level",
        Rule::Together,
        "`compression.level`, if `compression.type` is gzip",
    ),
    entry(
        "compression.lz4.level",
        Rule::Together,
        "`compression.level` to 12, if `compression.type` is lz4",
    ),
    entry(
        "compression.type",
        Rule::Converted(lower_compression),
        "`compression.type`",
    ),
    entry(
        "compression.zstd.level",
        Rule::Together,
        "`compression.level` to 12, if `compression.type` is zstd",
    ),
    entry(
        "config.providers",
        Rule::Accepted("those of the worker have resolved everything already"),
        "",
    ),
    same("connections.max.idle.ms"),
    entry("delivery.timeout.ms", WAITS, ""),
    entry(
        "enable.idempotence",
        Rule::Together,
        "`enable.idempotence`; true here, where Connect says false",
    ),
    same("enable.metrics.push"),
    entry(
        "interceptor.classes",
        Rule::Accepted("Java classes cannot be loaded"),
        "",
    ),
    entry("key.serializer", Rule::Accepted("the converter makes the bytes"), ""),
    same("linger.ms"),
    entry("max.block.ms", WAITS, ""),
    entry(
        "max.in.flight.requests.per.connection",
        Rule::Together,
        "`max.in.flight.requests.per.connection`; 5 with idempotence, else 1",
    ),
    entry(
        "max.request.size",
        Rule::Converted(max_request_size),
        "`message.max.bytes`",
    ),
    entry(
        "metadata.max.age.ms",
        Rule::Converted(metadata_max_age),
        "`topic.metadata.refresh.interval.ms`, an hour at most",
    ),
    entry(
        "metadata.max.idle.ms",
        Rule::Accepted("topics are kept while the producer lives"),
        "",
    ),
    same("metadata.recovery.rebootstrap.trigger.ms"),
    entry(
        "metadata.recovery.strategy",
        Rule::Converted(recovery_strategy),
        "`metadata.recovery.strategy`",
    ),
    entry("metric.reporters", JMX, ""),
    entry("metrics.num.samples", JMX, ""),
    entry("metrics.recording.level", JMX, ""),
    entry("metrics.sample.window.ms", JMX, ""),
    entry("partitioner.adaptive.partitioning.enable", NULL_KEYS, ""),
    entry("partitioner.availability.timeout.ms", NULL_KEYS, ""),
    entry(
        "partitioner.class",
        Rule::Converted(partitioner_class),
        "`partitioner`; Java's default and DefaultPartitioner only",
    ),
    entry("partitioner.ignore.keys", Rule::Converted(ignore_keys), "`partitioner`"),
    entry(
        "receive.buffer.bytes",
        Rule::Converted(receive_buffer),
        "`socket.receive.buffer.bytes`",
    ),
    same("reconnect.backoff.max.ms"),
    same("reconnect.backoff.ms"),
    entry(
        "request.timeout.ms",
        Rule::Converted(request_timeout),
        "`request.timeout.ms` and `socket.timeout.ms`, 5 minutes at most",
    ),
    entry("retries", WAITS, ""),
    same("retry.backoff.max.ms"),
    same("retry.backoff.ms"),
    entry(
        "sasl.client.callback.handler.class",
        Rule::Together,
        "Amazon's for MSK with IAM; others are refused",
    ),
    entry(
        "sasl.jaas.config",
        Rule::Together,
        "`sasl.username` and `sasl.password`, or what OAUTHBEARER, AWS_MSK_IAM or GSSAPI needs",
    ),
    entry(
        kerberos::KINIT,
        Rule::Together,
        "with GSSAPI: the program `kinit`; it runs with the keytab and the principal of `sasl.jaas.config`",
    ),
    entry(kerberos::RELOGIN, Rule::Together, "with GSSAPI: how often `kinit` runs"),
    entry(kerberos::SERVICE, Rule::Together, "with GSSAPI: the same name"),
    entry("sasl.kerberos.ticket.renew.jitter", KERBEROS, ""),
    entry("sasl.kerberos.ticket.renew.window.factor", KERBEROS, ""),
    entry(
        "sasl.login.callback.handler.class",
        Rule::Together,
        "Kafka's own for OAUTHBEARER, Strimzi's, and Amazon's for MSK with IAM; others are refused",
    ),
    entry("sasl.login.class", Rule::Refused(JAVA_CLASS), ""),
    entry("sasl.login.connect.timeout.ms", LOGIN, ""),
    entry("sasl.login.read.timeout.ms", LOGIN, ""),
    entry("sasl.login.refresh.buffer.seconds", LOGIN, ""),
    entry("sasl.login.refresh.min.period.seconds", LOGIN, ""),
    entry("sasl.login.refresh.window.factor", LOGIN, ""),
    entry("sasl.login.refresh.window.jitter", LOGIN, ""),
    entry("sasl.login.retry.backoff.max.ms", LOGIN, ""),
    entry("sasl.login.retry.backoff.ms", LOGIN, ""),
    entry(
        "sasl.mechanism",
        Rule::Together,
        "`sasl.mechanism`: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or GSSAPI in a build that contains Kerberos",
    ),
    entry(
        "sasl.oauthbearer.assertion.algorithm",
        Rule::Accepted("it belongs to assertions"),
        "",
    ),
    entry("sasl.oauthbearer.assertion.claim.aud", ASSERTION, ""),
    entry(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Rule::Accepted("it belongs to assertions"),
        "",
    ),
    entry("sasl.oauthbearer.assertion.claim.iss", ASSERTION, ""),
    entry(
        "sasl.oauthbearer.assertion.claim.jti.include",
        Rule::Accepted("it belongs to assertions"),
        "",
    ),
    entry(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Rule::Accepted("it belongs to assertions"),
        "",
    ),
    entry("sasl.oauthbearer.assertion.claim.sub", ASSERTION, ""),
    entry("sasl.oauthbearer.assertion.file", ASSERTION, ""),
    entry("sasl.oauthbearer.assertion.private.key.file", ASSERTION, ""),
    entry("sasl.oauthbearer.assertion.private.key.passphrase", ASSERTION, ""),
    entry("sasl.oauthbearer.assertion.template.file", ASSERTION, ""),
    entry(
        "sasl.oauthbearer.client.credentials.client.id",
        Rule::Together,
        "asks `sasl.oauthbearer.token.endpoint.url` for tokens",
    ),
    entry(
        "sasl.oauthbearer.client.credentials.client.secret",
        Rule::Together,
        "as above",
    ),
    entry("sasl.oauthbearer.clock.skew.seconds", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.expected.audience", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.expected.issuer", BROKER_CHECKS, ""),
    entry(
        "sasl.oauthbearer.header.urlencode",
        Rule::Together,
        "whether client id and secret are escaped before they are sent",
    ),
    entry("sasl.oauthbearer.jwks.endpoint.refresh.ms", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.jwks.endpoint.url", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.jwt.retriever.class", Rule::Refused(JAVA_CLASS), ""),
    entry("sasl.oauthbearer.jwt.validator.class", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.scope", Rule::Together, "the scope that is asked for"),
    entry("sasl.oauthbearer.scope.claim.name", BROKER_CHECKS, ""),
    entry("sasl.oauthbearer.sub.claim.name", BROKER_CHECKS, ""),
    entry(
        "sasl.oauthbearer.token.endpoint.url",
        Rule::Together,
        "where tokens come from",
    ),
    entry("security.protocol", Rule::Together, "`security.protocol`"),
    entry("security.providers", OPENSSL, ""),
    entry(
        "send.buffer.bytes",
        Rule::Converted(send_buffer),
        "`socket.send.buffer.bytes`",
    ),
    entry(
        "socket.connection.setup.timeout.max.ms",
        Rule::Accepted("every attempt has the same limit, socket.connection.setup.timeout.ms"),
        "",
    ),
    entry(
        "socket.connection.setup.timeout.ms",
        Rule::Converted(setup_timeout),
        "`socket.connection.setup.timeout.ms`, a second at least",
    ),
    entry(
        "ssl.cipher.suites",
        Rule::Together,
        "`ssl.cipher.suites` with OpenSSL's names; those of TLS 1.3 are always there",
    ),
    entry("ssl.enabled.protocols", OPENSSL, ""),
    entry(
        "ssl.endpoint.identification.algorithm",
        Rule::Together,
        "`ssl.endpoint.identification.algorithm`; empty is `none`",
    ),
    entry("ssl.engine.factory.class", Rule::Refused(JAVA_CLASS), ""),
    entry("ssl.key.password", Rule::Together, "the key's own password"),
    entry("ssl.keymanager.algorithm", OPENSSL, ""),
    entry(
        "ssl.keystore.certificate.chain",
        Rule::Together,
        "`ssl.certificate.pem`",
    ),
    entry("ssl.keystore.key", Rule::Together, "`ssl.key.pem`"),
    entry(
        "ssl.keystore.location",
        Rule::Together,
        "`ssl.certificate.pem` and `ssl.key.pem`; PEM, PKCS#12 and JKS files are read",
    ),
    entry("ssl.keystore.password", Rule::Together, "the file's password"),
    entry(
        "ssl.keystore.type",
        Rule::Together,
        "the file tells by itself what it is",
    ),
    entry("ssl.protocol", OPENSSL, ""),
    entry("ssl.provider", OPENSSL, ""),
    entry("ssl.secure.random.implementation", OPENSSL, ""),
    entry("ssl.trustmanager.algorithm", OPENSSL, ""),
    entry("ssl.truststore.certificates", Rule::Together, "`ssl.ca.pem`"),
    entry(
        "ssl.truststore.location",
        Rule::Together,
        "`ssl.ca.pem`; PEM, PKCS#12 and JKS files are read. Without it OpenSSL's own authorities count, where Java has its own",
    ),
    entry("ssl.truststore.password", Rule::Together, "the file's password"),
    entry(
        "ssl.truststore.type",
        Rule::Together,
        "the file tells by itself what it is",
    ),
    same("transaction.timeout.ms"),
    entry("transaction.two.phase.commit.enable", ONE_PHASE, ""),
    entry(
        "transactional.id",
        Rule::Refused(
            "remove the property: with exactly-once delivery (`exactly.once.support=required`), Walferry sets it as Connect does",
        ),
        "",
    ),
    entry("value.serializer", Rule::Accepted("the converter makes the bytes"), ""),
];

fn set(name: &'static str, value: impl ToString) -> Result<Converted, ValueError> {
    Ok(Converted {
        properties: vec![(name, value.to_string())],
        warning: None,
    })
}

fn batch_size(text: &str) -> Result<Converted, ValueError> {
    match u32::parse(text)? {
        0 => set("batch.num.messages", 1),
        bytes => set("batch.size", bytes),
    }
}

fn buffer_memory(text: &str) -> Result<Converted, ValueError> {
    // Kafka's producer counts all memory, librdkafka keys and values only: rounded up, never to nothing.
    set(
        "queue.buffering.max.kbytes",
        u64::parse(text)?.div_ceil(1024).clamp(1, i32::MAX as u64),
    )
}

fn dns_lookup(text: &str) -> Result<Converted, ValueError> {
    match text.trim() {
        "default" | "use_all_dns_ips" => set("client.dns.lookup", "use_all_dns_ips"),
        other => set("client.dns.lookup", other),
    }
}

fn lower_compression(text: &str) -> Result<Converted, ValueError> {
    set("compression.type", text.trim().to_ascii_lowercase())
}

fn max_request_size(text: &str) -> Result<Converted, ValueError> {
    set("message.max.bytes", u32::parse(text)?.clamp(1_000, 1_000_000_000))
}

fn metadata_max_age(text: &str) -> Result<Converted, ValueError> {
    set("topic.metadata.refresh.interval.ms", u64::parse(text)?.min(3_600_000))
}

fn recovery_strategy(text: &str) -> Result<Converted, ValueError> {
    set("metadata.recovery.strategy", text.trim().to_ascii_lowercase())
}

fn partitioner_class(text: &str) -> Result<Converted, ValueError> {
    match text.trim() {
        "" | "org.apache.kafka.clients.producer.internals.DefaultPartitioner" => Ok(Converted::default()),
        _ => Err(ValueError::new("Kafka's own partitioner").hint("Walferry cannot load Java classes; remove it")),
    }
}

fn ignore_keys(text: &str) -> Result<Converted, ValueError> {
    if !bool::parse(text)? {
        return Ok(Converted::default());
    }
    Ok(Converted {
        properties: vec![("partitioner", "random".into())],
        warning: Some("sends records with the same key to any partition, so their order is lost".into()),
    })
}

/// -1 leaves it to the system, as librdkafka's 0 does.
fn buffer(text: &str) -> Result<i32, ValueError> {
    Ok(i32::parse(text)?.clamp(0, 100_000_000))
}

fn receive_buffer(text: &str) -> Result<Converted, ValueError> {
    set("socket.receive.buffer.bytes", buffer(text)?)
}

fn send_buffer(text: &str) -> Result<Converted, ValueError> {
    set("socket.send.buffer.bytes", buffer(text)?)
}

fn request_timeout(text: &str) -> Result<Converted, ValueError> {
    let timeout = u64::parse(text)?.clamp(10, 300_000);
    Ok(Converted {
        properties: vec![
            ("request.timeout.ms", timeout.to_string()),
            ("socket.timeout.ms", timeout.to_string()),
        ],
        warning: None,
    })
}

fn setup_timeout(text: &str) -> Result<Converted, ValueError> {
    set(
        "socket.connection.setup.timeout.ms",
        u64::parse(text)?.clamp(1_000, i32::MAX as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn values_are_converted() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(&str, &str, Pairs<'_>)] = &[
            ("batch.size", "0", &[("batch.num.messages", "1")]),
            ("buffer.memory", "33554432", &[("queue.buffering.max.kbytes", "32768")]),
            ("buffer.memory", "1", &[("queue.buffering.max.kbytes", "1")]),
            (
                "client.dns.lookup",
                "default",
                &[("client.dns.lookup", "use_all_dns_ips")],
            ),
            ("compression.type", "ZSTD", &[("compression.type", "zstd")]),
            ("max.request.size", "5242880", &[("message.max.bytes", "5242880")]),
            (
                "metadata.max.age.ms",
                "86400000",
                &[("topic.metadata.refresh.interval.ms", "3600000")],
            ),
            ("partitioner.ignore.keys", "false", &[]),
            ("partitioner.ignore.keys", "true", &[("partitioner", "random")]),
            ("receive.buffer.bytes", "-1", &[("socket.receive.buffer.bytes", "0")]),
            (
                "request.timeout.ms",
                "60000",
                &[("request.timeout.ms", "60000"), ("socket.timeout.ms", "60000")],
            ),
            (
                "socket.connection.setup.timeout.ms",
                "10",
                &[("socket.connection.setup.timeout.ms", "1000")],
            ),
        ];
        for (name, text, expected) in cases {
            let Rule::Converted(convert) = find(name).unwrap().rule else {
                panic!("{name} is not converted");
            };
            let converted = convert(text).unwrap();
            let converted: Vec<_> = converted.properties.iter().map(|(k, v)| (*k, v.as_str())).collect();
            assert_eq!(converted, *expected, "{name}={text}");
        }
    }
}
