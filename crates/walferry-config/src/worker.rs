//! A worker's configuration: what all its connectors share.

use std::path::PathBuf;
use std::time::Duration;

use walferry_diagnosis::Concealed;

use crate::connector::ConverterPlugin;
use crate::file::Submitted;
use crate::finding::Findings;
use crate::otlp::{self, OtlpSection};
use crate::property::{Declaration, Group, Property, Support};
use crate::provider::{Lookup, Providers, absolute_paths};
use crate::reader::{Options, Reader};
use crate::sanitize::quoted;
use crate::value::{ByteCount, Value, ValueError};
use crate::{choices, properties};

/// What all connectors of a process share. Its default is that of a process without a worker file.
#[derive(Debug, Clone)]
pub struct Worker {
    /// `bootstrap.servers`; may be missing, since the command line can name it.
    pub bootstrap_servers: Option<String>,
    /// `group.id`
    pub group_id: Option<String>,
    /// `key.converter` and its options.
    pub key_converter: ConverterPlugin,
    /// `value.converter` and its options.
    pub value_converter: ConverterPlugin,
    /// `header.converter` and its options.
    pub header_converter: ConverterPlugin,
    /// `offset.flush.interval.ms`
    pub offset_flush_interval: Duration,
    /// `exactly.once.source.support=enabled`
    pub exactly_once: bool,
    /// `listeners`; empty if not set.
    pub listeners: Vec<String>,
    /// `topic.creation.enable`
    pub topic_creation: bool,
    /// `connector.client.config.override.policy`
    pub override_policy: OverridePolicy,
    /// `producer.*`
    pub producer: Options,
    /// `admin.*`
    pub admin: Options,
    /// Properties of Kafka clients without a prefix: security, time limits. As in Connect they hold for the client that
    /// creates topics, and not for the producer.
    pub client: Options,
    /// `config.providers`
    pub providers: Providers,
    /// What configurations of others than the operator may do.
    pub rights_of_others: RightsOfOthers,
    /// Whether a configuration that is read with this worker comes from others than the operator.
    pub is_for_others: bool,
    /// What config providers have returned. While the worker is in use, no text that leaves the process shows it.
    pub concealed: Concealed,
    /// `config.storage.*`
    pub config_storage: Options,
    /// `offset.storage.*`
    pub offset_storage: Options,
    /// `status.storage.*`
    pub status_storage: Options,
    /// `rest.*`, `listeners.https.*` and what else the REST API has.
    pub rest_api: RestSection,
    /// `walferry.worker.in.flight.max.bytes`. `None`: connectors share what each may have in flight.
    pub in_flight_max_bytes: Option<u64>,
    /// `walferry.otlp.*`. `None`: nothing is exported.
    pub otlp: Option<OtlpSection>,
}

/// How the REST API behaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestSection {
    /// `rest.advertised.host.name`
    pub advertised_host: Option<String>,
    /// `rest.advertised.port`
    pub advertised_port: Option<u16>,
    /// `rest.advertised.listener`
    pub advertised_listener: Option<String>,
    /// `admin.listeners`, the addresses of `/admin/…`. `None`: the same as `listeners`. An empty list turns `/admin/…` off.
    pub admin_listeners: Option<Vec<String>>,
    /// TLS of `listeners`: `ssl.*`, from `listeners.https.` if anything has that prefix.
    pub tls: Options,
    /// TLS of `admin.listeners`: the same with `admin.listeners.https.`.
    pub admin_tls: Options,
    /// `access.control.allow.origin`
    pub allow_origin: Vec<String>,
    /// `access.control.allow.methods`
    pub allow_methods: Vec<String>,
    /// `response.http.headers.config`
    pub response_headers: String,
    /// `topic.tracking.enable`
    pub topic_tracking: bool,
    /// `topic.tracking.allow.reset`
    pub topic_tracking_reset: bool,
    /// Whether `rest.extension.classes` names Connect's log-in.
    pub basic_auth: bool,
    /// `walferry.rest.allowed.hosts`
    pub allowed_hosts: Vec<String>,
    /// `walferry.rest.users.file`
    pub users_file: Option<String>,
    /// `walferry.rest.tokens.file`
    pub tokens_file: Option<String>,
}

/// What connectors may override with `producer.override.*` and the like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OverridePolicy {
    /// Everything.
    #[default]
    All,
    /// Nothing.
    None,
    /// Who the client is.
    Principal,
    /// What `connector.client.config.override.allowlist` names.
    Allowlist(Vec<String>),
}

impl OverridePolicy {
    /// Whether a connector may override this client property, given without its prefix.
    pub fn allows(&self, property: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Principal => matches!(property, "sasl.jaas.config" | "sasl.mechanism" | "security.protocol"),
            Self::Allowlist(allowed) => allowed.iter().any(|allowed| allowed == property),
        }
    }

    /// The word that stands for it in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::All => "All",
            Self::None => "None",
            Self::Principal => "Principal",
            Self::Allowlist(_) => "Allowlist",
        }
    }
}

choices! {
    enum ProvidersForOthers {
        #[default]
        Listed = "listed",
        All = "all",
    }
}

/// Folders, by their paths from the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PathList(Vec<PathBuf>);

impl Value for PathList {
    const TYPE: &'static str = "list";
    fn parse(text: &str) -> Result<Self, ValueError> {
        absolute_paths(text)
            .map(Self)
            .map_err(|_| ValueError::new("a list of absolute paths").hint("start each path with /"))
    }
}

/// What configurations may do that do not come from the operator's own files: those of the REST API and of Kafka's topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RightsOfOthers {
    /// `walferry.rest.file.paths`
    pub file_paths: Vec<PathBuf>,
    /// `walferry.rest.signal.paths`
    pub signal_paths: Vec<PathBuf>,
    /// `walferry.rest.config.providers=all`
    pub all_providers: bool,
}

choices! {
    enum ExactlyOnceSupport {
        #[default]
        Disabled = "disabled",
        Preparing = "preparing",
        Enabled = "enabled",
    }
}

choices! {
    enum Policy {
        #[default]
        All = "All" | "AllConnectorClientConfigOverridePolicy"
            | "org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy",
        None = "None" | "NoneConnectorClientConfigOverridePolicy"
            | "org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy",
        Principal = "Principal" | "PrincipalConnectorClientConfigOverridePolicy"
            | "org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy",
        Allowlist = "Allowlist" | "AllowlistConnectorClientConfigOverridePolicy"
            | "org.apache.kafka.connect.connector.policy.AllowlistConnectorClientConfigOverridePolicy",
    }
}

const ALONE: Support = Support::Accepted {
    why: "workers of Walferry share connectors over a consumer group of their own, with time limits that suit it",
};
const NO_PLUGINS: Support = Support::Accepted {
    why: "converters and transforms are part of Walferry",
};
const CLASSES: Support = Support::Elsewhere {
    is: "names Java classes, which Walferry does not load, and has no effect",
    hint: "remove it; metrics are at /metrics, and walferry.rest.users.file makes the admin endpoint ask for a login",
};
const NO_JMX: Support = Support::Accepted {
    why: "metrics are at /metrics",
};
const REMOVED: Support = Support::Accepted {
    why: "Kafka Connect removed it in 3.0",
};

properties! {
    const BOOTSTRAP: Property<Option<String>> = Property::new("bootstrap.servers").example("kafka-1:9092,kafka-2:9092")
        .text("Kafka brokers to connect to first. The flag `--bootstrap-servers` takes precedence.");
    const GROUP_ID: Property<Option<String>> = Property::new("group.id").example("connect-cluster")
        .text("Name of the worker's group.");
    const KEY_CONVERTER: Property<String> = Property::new("key.converter").example("org.apache.kafka.connect.json.JsonConverter").default("org.apache.kafka.connect.json.JsonConverter")
        .text("Class that serializes keys, for connectors that do not set one.");
    const KEY_OPTION: Property<Option<String>> = Property::new("key.converter.<option>").example("key.converter.schemas.enable=false").text("An option of that class.");
    const VALUE_CONVERTER: Property<String> = Property::new("value.converter").example("org.apache.kafka.connect.json.JsonConverter").default("org.apache.kafka.connect.json.JsonConverter")
        .text("Class that serializes values, for connectors that do not set one.");
    const VALUE_OPTION: Property<Option<String>> = Property::new("value.converter.<option>").example("value.converter.schemas.enable=false").text("An option of that class.");
    const HEADER_CONVERTER: Property<String> = Property::new("header.converter").example("org.apache.kafka.connect.storage.SimpleHeaderConverter").default("org.apache.kafka.connect.storage.SimpleHeaderConverter")
        .text("Class that serializes headers, for connectors that do not set one.");
    const HEADER_OPTION: Property<Option<String>> = Property::new("header.converter.<option>").example("header.converter.schemas.enable=false").text("An option of that class.");
    const FLUSH_INTERVAL: Property<Duration> = Property::new("offset.flush.interval.ms").default("1000")
        .text("Maximum time between two writes of the offset while there is activity. After a crash, records sent since the last write \
               are sent again. Normally the offset is written within 50 ms of delivery, as long as the disk keeps up; this property can \
               only shorten that. Kafka Connect's default is 60000.");
    const FLUSH_TIMEOUT: Property<Duration> = Property::new("offset.flush.timeout.ms").default("5000")
        .text("How long Connect waits until offsets are stored.")
        .support(Support::Accepted { why: "Walferry stores offsets in the background and does not wait for it" });
    const SHUTDOWN_TIMEOUT: Property<Duration> = Property::new("task.shutdown.graceful.timeout.ms").default("10000")
        .text("How long a stop waits for records in flight. Kafka Connect's default is 5000, and its image's is 10000.")
        .support(Support::Accepted { why: "a stop always waits up to 10 s for records in flight" });
    const LISTENERS: Property<Vec<String>> = Property::new("listeners").example("http://127.0.0.1:8083")
        .text("Addresses of the admin endpoint, such as `http://127.0.0.1:8083,https://0.0.0.0:8443`. The flag `--admin` wins over it; \
               without either it is reachable from this machine only, where Connect listens everywhere.");
    const TOPIC_CREATION: Property<bool> = Property::new("topic.creation.enable").default("true")
        .text("Whether connectors may create topics as their `topic.creation.*` says.");
    const POLICY: Property<Policy> = Property::new("connector.client.config.override.policy").default("All")
        .text("Client properties that connectors may override.");
    const ALLOWLIST: Property<Vec<String>> = Property::new("connector.client.config.override.allowlist").example("linger.ms,batch.size")
        .text("With the policy `Allowlist`: the names of the properties that connectors may override.");
    const PRODUCER: Property<Option<String>> = Property::new("producer.<property>").example("producer.linger.ms=5")
        .text("A property of the producers of all connectors. Security settings without a prefix apply here, too, unless one is set here.");
    const ADMIN_LISTENERS: Property<Vec<String>> = Property::new("admin.listeners").example("http://127.0.0.1:8084")
        .text("Separate addresses for `/admin/loggers`, written as in `listeners`. If it is not set, `/admin/loggers` is served with the \
               rest of the API. If it is empty, it is not served at all.");
    const ADMIN_LISTENERS_HTTPS: Property<Option<String>> = Property::new("admin.listeners.https.<property>").example("admin.listeners.https.ssl.keystore.location=/etc/walferry/server.p12")
        .text("TLS settings of `admin.listeners`, as in `listeners.https.<property>`.");
    const ADMIN: Property<Option<String>> = Property::new("admin.<property>").example("admin.request.timeout.ms=60000")
        .text("A property of the Kafka client that creates topics. It takes precedence over properties without the prefix.");
    const CONSUMER: Property<Option<String>> = Property::new("consumer.<property>")
        .text("A property of Kafka consumers.")
        .support(Support::Accepted { why: "Postgres connectors do not consume from Kafka" });
    const PROVIDERS: Property<Vec<String>> = Property::new("config.providers").example("secrets")
        .text("Names of config providers. For the worker and for connectors of `--config` files, `env`, `file` and `dir` exist without being listed. \
               Where they are not listed, they have the limits of the listed providers of variables and of files. For connectors of the REST API \
               and of Kafka's topics see `walferry.rest.config.providers`.");
    const PROVIDER: Property<Option<String>> = Property::new("config.providers.<name>.<option>").example("config.providers.secrets.class=io.strimzi.kafka.KubernetesSecretConfigProvider")
        .text("`class` is EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider, or one of Strimzi's \
               KubernetesSecretConfigProvider and KubernetesConfigMapConfigProvider, which ask the API server with the pod's service \
               account: `${NAME:NAMESPACE/SECRET:KEY}`. `param.allowlist.pattern` limits the \
               variables, `param.allowed.paths` the paths that it hands out.");
    const REST_PROVIDERS: Property<ProvidersForOthers> = Property::new("walferry.rest.config.providers").default("listed")
        .text("Which config providers exist for connectors of the REST API and of Kafka's topics: those that `config.providers` lists, as in \
               Kafka Connect (`listed`), or `env`, `file` and `dir` also without (`all`). With `all`, whoever may write configurations can read \
               all variables and files that the process can read. A connector of a `--config` file has all of them.");
    const REST_FILES: Property<PathList> = Property::new("walferry.rest.file.paths").example("/etc/walferry/tls,/etc/walferry/schemas")
        .text("Folders for the files that connectors of the REST API and of Kafka's topics may name. If it is set, certificates, key stores and \
               keytabs must be there. `walferry.schemas.dir` must always be there, or where a listed config provider may read.");
    const REST_SIGNALS: Property<PathList> = Property::new("walferry.rest.signal.paths").example("/var/lib/walferry-signals")
        .text("Folders in which `signal.file` of connectors of the REST API and of Kafka's topics may be. Walferry removes the signals \
               that it has read from that file. Without this property such a connector cannot have the channel `file`.");
    const SECURITY: Property<Option<String>> = Property::new("security.protocol").example("SASL_SSL")
        .text("How the client that creates topics connects to the brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.");
    const SSL_CLIENT_AUTH: Property<Option<String>> = Property::new("ssl.client.auth").example("required")
        .text("Whether clients of the REST API show a certificate: `none`, `requested` or `required`. It has to be signed by one of \
               the truststore.");
    const SSL: Property<Option<String>> = Property::new("ssl.<property>").example("ssl.truststore.location=/etc/walferry/kafka-ca.pem")
        .text("TLS settings of that client, and of the REST API if no property has the prefix `listeners.https.`.");
    const SASL: Property<Option<String>> = Property::new("sasl.<property>").example("sasl.mechanism=SCRAM-SHA-512")
        .text("Login settings of that client.");
    const CLIENT_ID: Property<Option<String>> = Property::new("client.id").example("walferry").text("Name of that client.");
    const DNS: Property<Option<String>> = Property::new("client.dns.lookup").example("use_all_dns_ips").text("How that client resolves host names.");
    const REQUEST_TIMEOUT: Property<Option<String>> = Property::new("request.timeout.ms").example("30000").text("Time limit of that client's requests.");
    const RETRY: Property<Option<String>> = Property::new("retry.<property>").example("retry.backoff.ms=100").text("Pauses between that client's retries.");
    const RECONNECT: Property<Option<String>> = Property::new("reconnect.<property>").example("reconnect.backoff.max.ms=1000").text("Pauses between that client's attempts to \
                                                                                            reconnect.");
    const CONNECTION_SETUP: Property<Option<String>> = Property::new("socket.connection.<property>").example("socket.connection.setup.timeout.ms=10000").text("Time limits of that client's connections.");
    const IDLE: Property<Option<String>> = Property::new("connections.max.idle.ms").example("540000").text("Time after which that client closes idle \
                                                                                          connections.");
    const SEND_BUFFER: Property<Option<String>> = Property::new("send.buffer.bytes").example("131072").text("Send buffer of that client's sockets.");
    const RECEIVE_BUFFER: Property<Option<String>> = Property::new("receive.buffer.bytes").example("65536").text("Receive buffer of that client's sockets.");
    const METADATA: Property<Option<String>> = Property::new("metadata.<property>").example("metadata.max.age.ms=300000").text("How that client updates its metadata about the \
                                                                                          cluster.");
    const OFFSET_STORAGE: Property<Option<String>> = Property::new("offset.storage.<property>").example("offset.storage.topic=connect-offsets")
        .text("`topic` is Connect's topic for offsets. If it does not exist, it is created with `partitions` (25), `replication.factor` \
               (3; -1 is the brokers' default) and the other settings given here. If all three topics are set, and `--data-dir` is not \
               given, configurations, offsets and states are stored in these topics; otherwise in the data directory.");
    const CONFIG_STORAGE: Property<Option<String>> = Property::new("config.storage.<property>").example("config.storage.topic=connect-configs")
        .text("`topic` is Connect's topic for configurations. The rules are those of `offset.storage`, but it has one partition.");
    const STATUS_STORAGE: Property<Option<String>> = Property::new("status.storage.<property>").example("status.storage.topic=connect-status")
        .text("`topic` is Connect's topic for states. The rules are those of `offset.storage`, but it has 5 partitions by default.");
    const EXACTLY_ONCE: Property<ExactlyOnceSupport> = Property::new("exactly.once.source.support").default("disabled").example("enabled")
        .text("`enabled`: the changes of all connectors arrive exactly once, in Kafka transactions. `preparing` is the same as `disabled`: \
               Walferry needs no preparation. A connector can also ask for it alone, with `exactly.once.support=required`.");
    const TRACKING: Property<bool> = Property::new("topic.tracking.enable").default("true")
        .text("Whether `/connectors/NAME/topics` tells which topics a connector has sent records to. They are kept in the topic of \
               `status.storage`, if the worker has one.");
    const TRACKING_RESET: Property<bool> = Property::new("topic.tracking.allow.reset").default("true")
        .text("Whether that may be forgotten, with `/connectors/NAME/topics/reset`.");
    const PLUGIN_PATH: Property<Option<String>> = Property::new("plugin.path").text("Where Connect finds Java classes.").support(NO_PLUGINS);
    const PLUGIN_DISCOVERY: Property<Option<String>> = Property::new("plugin.discovery").default("hybrid_warn").text("How Java classes are found.").support(NO_PLUGINS);
    const KEY_VERSION: Property<Option<String>> = Property::new("key.converter.plugin.version").text("Version of the class.").support(NO_PLUGINS);
    const VALUE_VERSION: Property<Option<String>> = Property::new("value.converter.plugin.version").text("Version of the class.").support(NO_PLUGINS);
    const HEADER_VERSION: Property<Option<String>> = Property::new("header.converter.plugin.version").text("Version of the class.").support(NO_PLUGINS);
    const EXTENSIONS: Property<Vec<String>> = Property::new("rest.extension.classes").example("org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension")
        .text("`org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension` asks for a user and a password: those \
               of `walferry.rest.users.file`, or of the file that the login module of JAAS names. Other classes of Java have no effect; \
               Walferry warns about them.");
    const ALLOWED_HOSTS: Property<Vec<String>> = Property::new("walferry.rest.allowed.hosts").example("connect,connect.example.com")
        .text("Further names by which clients reach the REST API. Where nobody has to log in, it answers only requests for an IP address, \
               `localhost`, the names of this machine, the hosts of `listeners`, `rest.advertised.host.name` and these names. So a web page \
               that uses DNS rebinding cannot send any. `*` is every name: then such a page can do what a writer can.");
    const USERS_FILE: Property<Option<String>> = Property::new("walferry.rest.users.file").example("/etc/walferry/users")
        .text("A file with the users of the REST API, one `NAME=PASSWORD` on a line, as Connect's PropertyFileLoginModule has it. Instead \
               of the password, write its salted hash: `htpasswd -nB -C 10 NAME` prints such a line. (`sha256:` and the 64 digits that \
               `sha256sum` prints are taken, too, but are guessed quickly by whoever sees them.) `,read` after it makes a user who may \
               only read. Without users, everybody may do everything.");
    const TOKENS_FILE: Property<Option<String>> = Property::new("walferry.rest.tokens.file").example("/etc/walferry/tokens")
        .text("A file with bearer tokens, one on a line, that open `/metrics`, `/slots` and `/ready` where users are asked for a password. \
               Instead of a token you may write `sha256:` and its 64 digits, too.");
    const IN_FLIGHT: Property<Option<ByteCount>> = Property::new("walferry.worker.in.flight.max.bytes").example("134217728")
        .text("Number of bytes that all connectors of this worker together may have in flight. Each then has the whole of its \
               `walferry.in.flight.max.bytes`, and the worker starts no more connectors than fit: one that does not fit is UNASSIGNED, says why, \
               and starts as soon as another one has left room. If it is not set, every connector starts, and the connectors share what \
               each may have. This property is Walferry's own.");
    const METRICS: Property<Option<String>> = Property::new("metrics.<property>").text("How JMX metrics are computed.").support(NO_JMX);
    const REPORTERS: Property<Option<String>> = Property::new("metric.reporters").text("Java classes that report metrics.").support(CLASSES);
    const ADVERTISED_HOST: Property<Option<String>> = Property::new("rest.advertised.host.name").example("worker-1.example.com")
        .text("Host in `worker_id`, by which other workers and tools reach this one. If it is not set: the host of the first listener as it is \
               written in `listeners`, or the address of this machine if the listener has none.");
    const ADVERTISED_PORT: Property<Option<u16>> = Property::new("rest.advertised.port").example("8083")
        .text("Port in `worker_id`. If it is not set: that of the listener.");
    const ADVERTISED: Property<Option<String>> = Property::new("rest.advertised.listener").example("http")
        .text("Which listener `worker_id` names: the first with `http`, or the first with `https`. If it is not set: the first with `http`, if \
               there is one.");
    const REST_HOST: Property<Option<String>> = Property::new("rest.host.name").text("Older form of `listeners`.").support(REMOVED);
    const REST_PORT: Property<Option<String>> = Property::new("rest.port").text("Older form of `listeners`.").support(REMOVED);
    const CORS_ORIGIN: Property<Vec<String>> = Property::new("access.control.allow.origin").example("https://shop.example")
        .text("Origins whose web pages may ask the REST API; `*` is every one. Without it only the endpoint's own page may.");
    const CORS_METHODS: Property<Vec<String>> = Property::new("access.control.allow.methods").example("GET,POST,PUT")
        .text("Methods that these pages may use; without it GET, POST and HEAD.");
    const REST_HEADERS: Property<Option<String>> = Property::new("response.http.headers.config").example("add X-Frame-Options: DENY")
        .text("Headers of every answer, such as `add X-Frame-Options: DENY, \"set Cache-Control: no-cache, no-store\"`.");
    const LISTENERS_HTTPS: Property<Option<String>> = Property::new("listeners.https.<property>").example("listeners.https.ssl.keystore.location=/etc/walferry/server.p12")
        .text("TLS of the REST API: `ssl.keystore.location` (PKCS12, JKS or PEM), `ssl.keystore.password`, `ssl.key.password`, \
               `ssl.truststore.location`, `ssl.truststore.password`, `ssl.client.auth` (`none`, `requested` or `required`) and \
               `ssl.enabled.protocols`; certificates and keys in PEM may stand here, too, as `ssl.keystore.certificate.chain`, \
               `ssl.keystore.key` and `ssl.truststore.certificates`. As in Connect, either all of them have the prefix or none.");
    const SESSION: Property<Option<String>> = Property::new("session.timeout.ms").default("10000").text("Group membership.").support(ALONE);
    const HEARTBEAT: Property<Option<String>> = Property::new("heartbeat.interval.ms").default("3000").text("Group membership.").support(ALONE);
    const REBALANCE: Property<Option<String>> = Property::new("rebalance.timeout.ms").default("60000").text("Group membership.").support(ALONE);
    const REBALANCE_DELAY: Property<Option<String>> = Property::new("scheduled.rebalance.max.delay.ms").default("300000").text("Group membership.").support(ALONE);
    const PROTOCOL: Property<Option<String>> = Property::new("connect.protocol").default("sessioned").text("Group membership.").support(ALONE);
    const INTER_WORKER: Property<Option<String>> = Property::new("inter.worker.<property>").text("How workers trust each other.").support(ALONE);
    const WORKER_SYNC: Property<Option<String>> = Property::new("worker.<property>").text("How workers wait for each other.").support(ALONE);
    const INTERNAL_KEY: Property<Option<String>> = Property::new("internal.key.converter").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_KEY_OPTION: Property<Option<String>> = Property::new("internal.key.converter.<option>").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_VALUE: Property<Option<String>> = Property::new("internal.value.converter").text("Format of Connect's own topics.").support(REMOVED);
    const INTERNAL_VALUE_OPTION: Property<Option<String>> = Property::new("internal.value.converter.<option>").text("Format of Connect's own topics.").support(REMOVED);
}

/// The sections of the reference page for worker files.
pub static WORKER_GROUPS: &[Group] = &[
    Group {
        title: "Worker",
        text: "What stands in a worker file, such as Connect's `connect-distributed.properties`.",
        prefix: "",
        declarations: DECLARATIONS,
    },
    otlp::GROUP,
];

/// The declarations of all groups.
fn declarations() -> impl Iterator<Item = &'static Declaration> {
    WORKER_GROUPS.iter().flat_map(|group| group.declarations)
}

/// Beginnings of the client properties that stand without a prefix.
const CLIENT: &[&str] = &[
    "security.",
    "ssl.",
    "sasl.",
    "client.",
    "request.",
    "retry.",
    "reconnect.",
    "socket.",
    "connections.",
    "send.",
    "receive.",
    "metadata.",
];

/// `ssl.client.auth` is for those who call the REST API.
fn is_client(name: &str) -> bool {
    CLIENT.iter().any(|prefix| name.starts_with(prefix)) && name != SSL_CLIENT_AUTH.name()
}

/// What stands under `admin.` for the client that creates topics.
fn admin_client(options: &Options) -> Options {
    let mut client = options.below("admin.");
    let others: Vec<String> = client
        .iter()
        .map(|(name, _)| name.to_owned())
        .filter(|name| name == "listeners" || name.starts_with("listeners."))
        .collect();
    for name in others {
        client.remove(&name);
    }
    client
}

/// TLS of listeners. As in Connect, either everything has the prefix or nothing.
fn tls(options: &Options, prefix: &str) -> Options {
    let with_prefix = options.below(prefix);
    if !with_prefix.is_empty() {
        return with_prefix;
    }
    let mut without = Options::default();
    without.extend(options, |name| name.starts_with("ssl."));
    without
}

/// Refuses a wish for certificates that would have no effect: as in Connect, nothing without the prefix counts where something has it.
fn demand_certificates(reader: &mut Reader<'_>, options: &Options) {
    let name = SSL_CLIENT_AUTH.name();
    let is_wanted = |text: &str| !text.trim().eq_ignore_ascii_case("none");
    if !options.get(name).is_some_and(is_wanted) {
        return;
    }
    for prefix in LISTENER_PREFIXES {
        let own = options.below(prefix);
        if own.is_empty() || own.get(name).is_some() {
            continue;
        }
        let message = format!(
            "has no effect on the listeners of {prefix}*, which have settings of their own: nobody would have to show a certificate there"
        );
        reader.problem(name, message).hint(format!(
            "write {prefix}{name} instead; {prefix}{name}=none asks for no certificate, as Kafka Connect would"
        ));
    }
}

/// What TLS settings of listeners begin with.
const LISTENER_PREFIXES: [&str; 2] = ["listeners.https.", "admin.listeners.https."];

/// Connect's log-in for its REST API.
const BASIC_AUTH: &str = "BasicAuthSecurityRestExtension";

/// Whether the log-in is asked for. Other classes are told of.
fn extensions(reader: &mut Reader<'_>) -> bool {
    let classes = reader.get(&EXTENSIONS);
    let is_basic = |class: &&String| class.rsplit('.').next() == Some(BASIC_AUTH);
    for class in classes.iter().filter(|class| !is_basic(class)) {
        let value = match reader.options().is_secret(EXTENSIONS.name()) {
            true => "a class".to_owned(),
            false => quoted(class),
        };
        let message = format!("names {value}, which is Java code that Walferry does not load; it has no effect");
        reader
            .warning(EXTENSIONS.name(), message)
            .hint(format!("remove it; {BASIC_AUTH} is there"));
    }
    classes.iter().any(|class| is_basic(&class))
}

impl Worker {
    /// Reads a worker file. There is a worker unless something is a problem; an unknown property is a warning, as in Connect.
    pub fn read(submitted: &Submitted, lookup: &dyn Lookup) -> (Option<Self>, Findings) {
        let mut findings = Findings::default();
        let written = Options::new("", submitted.properties.iter().cloned().collect());
        let providers = Providers::from_worker(&written, &mut findings);
        let mut options = Options::default();
        let mut values = Vec::new();
        for (name, text) in &submitted.properties {
            // Connect reads these before there are providers.
            let early = name.starts_with("config.providers") || name == "plugin.path";
            match (!early)
                .then(|| providers.resolve(name, text, lookup, &mut findings, &mut values))
                .flatten()
            {
                Some(resolved) => options.set_resolved(name, resolved, text),
                None => options.set(name, text),
            }
        }
        let mut reader = Reader::new(&options, declarations());
        let mut worker = Self::from_reader(&mut reader, providers);
        worker.concealed = Concealed::new(&values, &[]);
        let concealed = worker.concealed.clone();
        let (worker, mut more) = reader.finish(worker);
        options.guard(&mut more);
        findings.extend(more);
        findings.conceal(&concealed);
        (worker.filter(|_| !findings.has_problems()), findings)
    }

    /// The same worker, for configurations that do not come from the operator's own files.
    #[must_use]
    pub fn for_others(&self) -> Self {
        let mut worker = self.clone();
        worker.is_for_others = true;
        if !self.rights_of_others.all_providers {
            worker.providers = self.providers.for_others();
        }
        worker
    }

    fn from_reader(reader: &mut Reader<'_>, providers: Providers) -> Self {
        let options = reader.options();
        let converter = |reader: &mut Reader<'_>, property: &Property<String>| ConverterPlugin {
            class: reader.get(property),
            options: options.below(&format!("{}.", property.name())),
        };
        let mut client = Options::default();
        client.extend(options, is_client);
        demand_certificates(reader, options);
        let [listeners_tls, admin_tls] = LISTENER_PREFIXES.map(|prefix| tls(options, prefix));
        Self {
            bootstrap_servers: reader.get(&BOOTSTRAP),
            group_id: reader.get(&GROUP_ID),
            key_converter: converter(reader, &KEY_CONVERTER),
            value_converter: converter(reader, &VALUE_CONVERTER),
            header_converter: converter(reader, &HEADER_CONVERTER),
            offset_flush_interval: reader.get(&FLUSH_INTERVAL),
            exactly_once: reader.get(&EXACTLY_ONCE) == ExactlyOnceSupport::Enabled,
            listeners: reader.get(&LISTENERS),
            topic_creation: reader.get(&TOPIC_CREATION),
            override_policy: match reader.get(&POLICY) {
                Policy::All => OverridePolicy::All,
                Policy::None => OverridePolicy::None,
                Policy::Principal => OverridePolicy::Principal,
                Policy::Allowlist => OverridePolicy::Allowlist(reader.get(&ALLOWLIST)),
            },
            producer: options.below("producer."),
            admin: admin_client(options),
            client,
            providers,
            rights_of_others: RightsOfOthers {
                file_paths: reader.get(&REST_FILES).0,
                signal_paths: reader.get(&REST_SIGNALS).0,
                all_providers: reader.get(&REST_PROVIDERS) == ProvidersForOthers::All,
            },
            is_for_others: false,
            concealed: Concealed::default(),
            config_storage: options.below("config.storage."),
            offset_storage: options.below("offset.storage."),
            status_storage: options.below("status.storage."),
            in_flight_max_bytes: reader.get(&IN_FLIGHT).map(ByteCount::get),
            otlp: OtlpSection::read(reader),
            rest_api: RestSection {
                advertised_host: reader.get(&ADVERTISED_HOST),
                advertised_port: reader.get(&ADVERTISED_PORT),
                advertised_listener: reader.get(&ADVERTISED),
                admin_listeners: {
                    let listeners = reader.get(&ADMIN_LISTENERS);
                    options.get(ADMIN_LISTENERS.name()).map(|_| listeners)
                },
                tls: listeners_tls,
                admin_tls,
                allow_origin: reader.get(&CORS_ORIGIN),
                allow_methods: reader.get(&CORS_METHODS),
                response_headers: reader.get(&REST_HEADERS).unwrap_or_default(),
                topic_tracking: reader.get(&TRACKING),
                topic_tracking_reset: reader.get(&TRACKING_RESET),
                basic_auth: extensions(reader),
                allowed_hosts: reader.get(&ALLOWED_HOSTS),
                users_file: reader.get(&USERS_FILE),
                tokens_file: reader.get(&TOKENS_FILE),
            },
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        let options = Options::default();
        Self::from_reader(&mut Reader::new(&options, declarations()), Providers::default())
    }
}
