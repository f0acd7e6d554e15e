//! The options that Confluent's converters share.

use std::time::Duration;

use walferry_config::{Jaas, Property, Reader, Secret, Support, Value, ValueError, properties};

use super::naming::{Naming, SubjectNaming};
use super::{
    Api, Auth, CertificateStore, ClientTls, Framing, Id, IdLookup, OAuth, Proxy, RegistryLink, RegistrySettings,
    options,
};
use crate::ConverterType;

const POOL_HEADER: &str = "Confluent-Identity-Pool-Id";
const CUSTOM: &str = "set it to STATIC_TOKEN or OAUTHBEARER: Walferry cannot load custom classes";
const ALWAYS_COMPARED: &str = "Walferry always compares the registered schema with the record's, and refuses the record if the registered one \
                               would read other values from its bytes";

properties! {
    pub(super) const URLS: Property<Vec<String>> = Property::new("schema.registry.url").example("http://registry:8081")
        .required()
        .text("URL of the schema registry. Several URLs are tried in order. A URL may contain a user name and a password.");
    pub(super) const AUTO_REGISTER: Property<bool> = Property::new("auto.register.schemas")
        .default("true")
        .text("Registers a schema if the subject does not contain it. With false, it must already exist.");
    pub(super) const USE_LATEST: Property<bool> = Property::new("use.latest.version")
        .default("false")
        .text("Uses the newest version of the subject, if `auto.register.schemas` is false. Values must have the same bytes with this \
               schema as with the schema of the record.");
    pub(super) const LATEST_STRICT: Property<bool> = Property::new("latest.compatibility.strict")
        .default("true")
        .text("Whether the newest version is compared with the record's schema.")
        .support(Support::Accepted { why: ALWAYS_COMPARED });
    pub(super) const USE_ID: Property<i32> = Property::new("use.schema.id")
        .default("-1")
        .text("Uses the schema with this id, if `auto.register.schemas` is false. As with `use.latest.version`, values must have the same \
               bytes.");
    pub(super) const ID_STRICT: Property<bool> = Property::new("id.compatibility.strict")
        .default("true")
        .text("Whether this schema is compared with the record's schema.")
        .support(Support::Accepted { why: ALWAYS_COMPARED });
    pub(super) const NAMING_OF_SERIALIZER: Property<Option<String>> = Property::new("subject.name.strategy")
        .text("Not an option of the converter.")
        .support(Support::Elsewhere { is: "is not an option of Confluent's converters: the Java converters ignore it, too", hint: "to choose how subjects are \
                                                                                              named, set `value.subject.name.strategy` on a \
                                                                                              value converter, or `key.subject.name.strategy` \
                                                                                              on a key converter" });
    pub(super) const NORMALIZE: Property<bool> = Property::new("normalize.schemas")
        .default("false")
        .text("Lets the registry compare schemas in their normal form.");
    pub(super) const KEY_NAMING: Property<SubjectNaming> = Property::new("key.subject.name.strategy")
        .default("io.confluent.kafka.serializers.subject.TopicNameStrategy")
        .text("How the subjects of keys are named: by topic, by record type, or by both.");
    pub(super) const VALUE_NAMING: Property<SubjectNaming> = Property::new("value.subject.name.strategy")
        .default("io.confluent.kafka.serializers.subject.TopicNameStrategy")
        .text("How the subjects of values are named.");
    pub(super) const BASIC_SOURCE: Property<BasicSource> = Property::new("basic.auth.credentials.source")
        .default("URL")
        .text("Where the user name and the password are given: in the URL, in `basic.auth.user.info`, or in `sasl.jaas.config`.");
    pub(super) const JAAS: Property<Option<Secret>> = Property::new("sasl.jaas.config").example("${env:REGISTRY_JAAS}")
        .text("Log-in module with `username` and `password`, if `basic.auth.credentials.source` is SASL_INHERIT, or with `clientId`, \
               `clientSecret` and `scope`, if `bearer.auth.credentials.source` is SASL_OAUTHBEARER_INHERIT. It is an option of the \
               converter: the worker's own is not read.");
    pub(super) const SASL_TOKEN_URL: Property<Option<String>> = Property::new("sasl.oauthbearer.token.endpoint.url").example("https://login.example.com/oauth2/token")
        .text("URL of the token endpoint, if `bearer.auth.credentials.source` is SASL_OAUTHBEARER_INHERIT. Of the converter, too.");
    pub(super) const SASL_OTHER: Property<Option<String>> = Property::new("sasl.oauthbearer.<option>")
        .text("Another option of the log-in, such as the name of a claim in the token.")
        .support(Support::Accepted { why: "Walferry sends a token as it is; the registry checks its content" });
    pub(super) const USER_INFO: Property<Option<Secret>> = Property::new("basic.auth.user.info").example("${env:REGISTRY_LOGIN}")
        .text("User name and password, separated by a colon, if `basic.auth.credentials.source` is USER_INFO.");
    pub(super) const PREFIXED_USER_INFO: Property<Option<Secret>> = prefixed("schema.registry.basic.auth.user.info").example("${env:REGISTRY_LOGIN}");
    pub(super) const PREFIXED_BASIC_SOURCE: Property<BasicSource> = prefixed("schema.registry.basic.auth.credentials.source").example("USER_INFO");
    pub(super) const PREFIXED_BEARER_SOURCE: Property<Option<BearerSource>> = prefixed("schema.registry.bearer.auth.credentials.source").example("STATIC_TOKEN")
        .support(Support::Except { values: &["CUSTOM"], hint: CUSTOM });
    pub(super) const PREFIXED_BEARER_TOKEN: Property<Option<Secret>> = prefixed("schema.registry.bearer.auth.token").example("${env:REGISTRY_TOKEN}");
    pub(super) const PREFIXED_TOKEN_URL: Property<Option<String>> = prefixed("schema.registry.bearer.auth.issuer.endpoint.url").example("https://login.example.com/oauth2/token");
    pub(super) const PREFIXED_CLIENT_ID: Property<Option<String>> = prefixed("schema.registry.bearer.auth.client.id").example("walferry");
    pub(super) const PREFIXED_CLIENT_SECRET: Property<Option<Secret>> = prefixed("schema.registry.bearer.auth.client.secret").example("${env:CLIENT_SECRET}");
    pub(super) const PREFIXED_SCOPE: Property<Option<String>> = prefixed("schema.registry.bearer.auth.scope").example("registry");
    pub(super) const PREFIXED_CLUSTER: Property<Option<String>> = prefixed("schema.registry.bearer.auth.logical.cluster").example("lsrc-12345");
    pub(super) const PREFIXED_POOL: Property<Option<String>> = prefixed("schema.registry.bearer.auth.identity.pool.id").example("pool-12345");
    pub(super) const PREFIXED_JAAS: Property<Option<Secret>> = prefixed("schema.registry.sasl.jaas.config").example("${env:REGISTRY_JAAS}");
    pub(super) const PREFIXED_SASL_TOKEN_URL: Property<Option<String>> = prefixed("schema.registry.sasl.oauthbearer.token.endpoint.url").example("https://login.example.com/oauth2/token");
    pub(super) const PREFIXED_PROXY_HOST: Property<Option<String>> = prefixed("schema.registry.proxy.host").example("proxy.example.com");
    pub(super) const PREFIXED_PROXY_PORT: Property<Option<u16>> = prefixed("schema.registry.proxy.port").example("3128");
    pub(super) const PREFIXED_CONNECT_TIMEOUT: Property<Duration> = prefixed("schema.registry.http.connect.timeout.ms").example("10000");
    pub(super) const PREFIXED_READ_TIMEOUT: Property<Duration> = prefixed("schema.registry.http.read.timeout.ms").example("10000");
    pub(super) const PREFIXED_TOKEN_MARGIN: Property<Option<String>> = prefixed("schema.registry.bearer.auth.cache.expiry.buffer.seconds")
        .support(Support::Accepted { why: "Walferry renews a token 30 seconds before it ends" });
    pub(super) const PREFIXED_TOKEN_CLASS: Property<Option<String>> = prefixed("schema.registry.bearer.auth.custom.provider.class")
        .support(Support::Refused { hint: "set bearer.auth.credentials.source to STATIC_TOKEN or OAUTHBEARER: Walferry cannot load custom \
                                           classes" });
    pub(super) const PREFIXED_HTTP_CLIENT: Property<Option<String>> = prefixed("schema.registry.use.apache.http.client")
        .support(Support::Accepted { why: "Walferry has one HTTP client" });
    pub(super) const BEARER_SOURCE: Property<Option<BearerSource>> = Property::new("bearer.auth.credentials.source")
        .text("Where a token comes from: `bearer.auth.token`, OAuth client credentials, or OAuth client credentials in `sasl.jaas.config`. If it \
               is not set, no token is sent.")
        .support(Support::Except { values: &["CUSTOM"], hint: CUSTOM });
    pub(super) const BEARER_TOKEN: Property<Option<Secret>> = Property::new("bearer.auth.token").example("${env:REGISTRY_TOKEN}")
        .text("The token, if `bearer.auth.credentials.source` is STATIC_TOKEN.");
    pub(super) const TOKEN_URL: Property<Option<String>> = Property::new("bearer.auth.issuer.endpoint.url").example("https://login.example.com/oauth2/token")
        .text("URL of the token endpoint, if `bearer.auth.credentials.source` is OAUTHBEARER.");
    pub(super) const CLIENT_ID: Property<Option<String>> = Property::new("bearer.auth.client.id").example("walferry")
        .text("OAuth client id.");
    pub(super) const CLIENT_SECRET: Property<Option<Secret>> = options::client_secret("bearer.auth.client.secret").example("${env:CLIENT_SECRET}");
    pub(super) const SCOPE: Property<Option<String>> = options::scope("bearer.auth.scope").example("registry");
    pub(super) const TOKEN_MARGIN: Property<Option<String>> = Property::new("bearer.auth.cache.expiry.buffer.seconds")
        .text("How long before its end a token is renewed.")
        .support(Support::Accepted { why: "Walferry renews a token 30 seconds before it ends" });
    pub(super) const CLAIM: Property<Option<String>> = Property::new("bearer.auth.<name>.claim.name")
        .text("Name of a claim in the token.")
        .support(Support::Accepted { why: "Walferry sends a token as it is; the registry checks its content" });
    pub(super) const TOKEN_CLASS: Property<Option<String>> = Property::new("bearer.auth.custom.provider.class")
        .text("Class that provides tokens.")
        .support(Support::Refused { hint: "set bearer.auth.credentials.source to STATIC_TOKEN or OAUTHBEARER: Walferry cannot load custom \
                                           classes" });
    pub(super) const CLUSTER: Property<Option<String>> = Property::new("bearer.auth.logical.cluster").example("lsrc-12345")
        .text("The registry's cluster, sent as the header `target-sr-cluster`.");
    pub(super) const POOL: Property<Option<String>> = Property::new("bearer.auth.identity.pool.id").example("pool-12345")
        .text("The identity pool, sent as the header `Confluent-Identity-Pool-Id`.");
    pub(super) const HEADER: Property<Secret> = options::request_header("request.header.<name>").example("request.header.X-Team=orders");
    pub(super) const TRUSTED: Property<Option<String>> = options::trusted("schema.registry.ssl.truststore.location").example("/etc/walferry/registry-ca.pem");
    pub(super) const TRUSTED_PASSWORD: Property<Option<Secret>> = options::store_password("schema.registry.ssl.truststore.password").example("${env:STORE_PASSWORD}");
    pub(super) const IDENTITY: Property<Option<String>> = options::identity("schema.registry.ssl.keystore.location").example("/etc/walferry/client.p12");
    pub(super) const IDENTITY_PASSWORD: Property<Option<Secret>> = options::store_password("schema.registry.ssl.keystore.password").example("${env:STORE_PASSWORD}");
    pub(super) const KEY_PASSWORD: Property<Option<Secret>> = options::key_password("schema.registry.ssl.key.password").example("${env:KEY_PASSWORD}");
    pub(super) const TRUSTED_PEM: Property<Option<String>> = Property::new("schema.registry.ssl.truststore.certificates").example("${file:/etc/walferry/tls.properties:ca}")
        .text("The certificates themselves, as PEM, instead of a file.");
    pub(super) const CHAIN_PEM: Property<Option<String>> = Property::new("schema.registry.ssl.keystore.certificate.chain").example("${file:/etc/walferry/tls.properties:chain}")
        .text("The client certificate with its chain, as PEM, instead of a file.");
    pub(super) const KEY_PEM: Property<Option<Secret>> = Property::new("schema.registry.ssl.keystore.key").example("${file:/etc/walferry/tls.properties:key}")
        .text("The key of the client certificate, as PEM.");
    pub(super) const NO_HOST_CHECK: Property<String> = Property::new("schema.registry.ssl.endpoint.identification.algorithm")
        .default("https")
        .text("Whether the registry's certificate must match its host name.")
        .support(Support::Refused { hint: "remove it, and give the registry a certificate for its host name" });
    pub(super) const SSL_OTHER: Property<String> = Property::new("schema.registry.ssl.<option>")
        .text("Another option of Java's TLS, such as the type of a keystore or the provider.")
        .support(Support::Accepted { why: "Walferry detects the type of a keystore from its content, and always uses TLS 1.2 or 1.3" });
    pub(super) const CONNECT_TIMEOUT: Property<Duration> = Property::new("http.connect.timeout.ms")
        .default("60000")
        .text("Time limit for connecting to the registry.");
    pub(super) const READ_TIMEOUT: Property<Duration> = Property::new("http.read.timeout.ms")
        .default("60000")
        .text("Time limit for an answer of the registry.");
    pub(super) const KEY_ID_SERIALIZER: Property<IdSerializer> = Property::new("key.schema.id.serializer")
        .default("io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer")
        .text("Where a record contains the id of the key's schema: as a number before the key, or as a GUID in the header \
               `__key_schema_id`. The registry must have GUIDs, as Confluent's has from version 8.0.");
    pub(super) const VALUE_ID_SERIALIZER: Property<IdSerializer> = Property::new("value.schema.id.serializer")
        .default("io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer")
        .text("The same for the value's schema, with the header `__value_schema_id`.");
    pub(super) const METADATA: Property<Option<String>> = Property::new("use.latest.with.metadata")
        .text("Uses the newest version with this metadata.")
        .support(Support::Refused { hint: "set use.latest.version=true or use.schema.id" });
    pub(super) const GUID: Property<Option<String>> = Property::new("use.schema.guid")
        .text("Uses the schema with this GUID.")
        .support(Support::Refused { hint: "set use.schema.id to its number" });
    pub(super) const CONTEXT: Property<String> = Property::new("context.name.strategy")
        .text("Class that determines the context of a subject.")
        .default("io.confluent.kafka.serializers.context.NullContextNameStrategy")
        .support(Support::Refused { hint: "put the context into the URL: http://registry:8081/contexts/.name" });
    pub(super) const PROXY_HOST: Property<Option<String>> = options::proxy_host("proxy.host").example("proxy.example.com");
    pub(super) const PROXY_PORT: Property<Option<u16>> = options::proxy_port("proxy.port").example("3128");
    pub(super) const MAX_SCHEMAS: Property<Option<String>> = options::tuning("max.schemas.per.subject", "Number of schemas of a subject \
                                                                                                         that the Java client caches.");
    pub(super) const CACHE: Property<Option<String>> = options::tuning("schemas.cache.config", "Number of converted schemas that are \
                                                                                                cached.");
    pub(super) const CACHE_SIZE: Property<Option<String>> = options::tuning("schemas.cache.size", "The same under another name.");
    pub(super) const RETRIES: Property<Option<String>> = options::tuning("max.retries", "Number of retries of the Java client.");
    pub(super) const RETRIES_WAIT: Property<Option<String>> = options::tuning("retries.<option>", "Pause between these retries.");
    pub(super) const LATEST_CACHE: Property<Option<String>> = options::tuning("latest.cache.<option>", "How long the newest version is \
                                                                                                        cached.");
    pub(super) const MISSING_CACHE: Property<Option<String>> = options::tuning("missing.<option>", "How long the client caches that \
                                                                                                    something does not exist.");
    pub(super) const RANDOMIZE: Property<Option<String>> = Property::new("schema.registry.url.randomize")
        .text("Starts with a random URL.")
        .support(Support::Accepted { why: "Walferry tries the URLs in turn, starting with the one that answered last" });
    pub(super) const HTTP_CLIENT: Property<Option<String>> = Property::new("use.apache.http.client")
        .text("Which of its two HTTP clients the Java client uses.")
        .support(Support::Accepted { why: "Walferry has one HTTP client" });
    pub(super) const DESERIALIZER: Property<Option<String>> = options::reading("<part>.schema.id.deserializer", "Where readers find the id.");
    pub(super) const FLATTEN: Property<Option<String>> = options::reading("flatten.singleton.unions", "How unions of one type are read.");
    pub(super) const COMPATIBILITY: Property<Option<String>> = Property::new("schema.compatibility")
        .text("Not an option of the converter: the registry decides what it accepts.")
        .support(Support::Accepted { why: "the registry's own setting determines which schemas are compatible, with the Java converter, too" });
    pub(super) const RULES: Property<Option<String>> = Property::new("rule.<option>")
        .text("Options of data contract rules.")
        .support(Support::Accepted { why: "Walferry does not execute rules of a registered schema; see the page on differences" });
    pub(super) const TAGS: Property<Option<String>> = Property::new("propagate.schema.tags")
        .default("false")
        .text("Whether a new version inherits the tags of the previous one.")
        .support(Support::Refused { hint: "remove it, or keep this connector on Kafka Connect" });
}

/// An option of Java's client by its other name.
const fn prefixed<T>(name: &'static str) -> Property<T> {
    Property::new(name)
        .text("Another name of the property without `schema.registry.`. If both are set, this one is ignored.")
}

/// A property by its name, or by the one with the prefix, which Java's client takes off.
fn either<T: Value>(reader: &mut Reader<'_>, plain: &Property<T>, prefixed: &Property<T>) -> T {
    let (own, other) = (reader.get(plain), reader.get(prefixed));
    match reader.is_set(prefixed) && !reader.is_set(plain) {
        true => other,
        false => own,
    }
}

walferry_config::choices! {
    /// `key.schema.id.serializer` and `value.schema.id.serializer`.
    pub(super) enum IdSerializer {
        /// A number before the key or value.
        #[default]
        Prefix = "io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer",
        /// A GUID in a header.
        Header = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer",
    }
}

/// `basic.auth.credentials.source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum BasicSource {
    /// The URL holds them.
    #[default]
    Url,
    /// `basic.auth.user.info`.
    UserInfo,
    /// `sasl.jaas.config`.
    Sasl,
    /// The Java client has no source of this name, and sends requests without log-in.
    Unknown,
}

impl Value for BasicSource {
    const TYPE: &'static str = "enum";
    const VALUES: &'static [&'static str] = &["URL", "USER_INFO", "SASL_INHERIT"];

    fn parse(text: &str) -> Result<Self, ValueError> {
        let known = [Self::Url, Self::UserInfo, Self::Sasl];
        let named = Self::VALUES.iter().zip(known);
        let found = named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        Ok(found.map_or(Self::Unknown, |(_, source)| source))
    }
}

walferry_config::choices! {
    /// `bearer.auth.credentials.source`.
    pub(super) enum BearerSource {
        /// `bearer.auth.token`.
        #[default]
        Token = "STATIC_TOKEN",
        /// OAuth's client credentials.
        OAuth = "OAUTHBEARER",
        /// The same, from the options of a log-in module.
        Sasl = "SASL_OAUTHBEARER_INHERIT",
    }
}

/// Reads the way to a registry.
pub(crate) fn link(reader: &mut Reader<'_>, role: ConverterType) -> RegistryLink {
    let urls = reader.get(&URLS);
    let (urls, in_urls) = super::apicurio::plain_urls(reader, URLS.name(), urls);
    let auth = auth(reader, in_urls);
    let mut headers = options::headers(reader, &HEADER);
    for (property, prefixed, header) in [
        (&CLUSTER, &PREFIXED_CLUSTER, "target-sr-cluster"),
        (&POOL, &PREFIXED_POOL, POOL_HEADER),
    ] {
        if let Some(value) = either(reader, property, prefixed) {
            headers.push((header.to_owned(), Secret::new(value)));
        }
    }
    headers.extend(pool_of_module(reader, &headers));
    let settings = RegistrySettings {
        api: Api::Confluent,
        urls,
        auth,
        headers,
        tls: tls(reader),
        connect_timeout: either(reader, &CONNECT_TIMEOUT, &PREFIXED_CONNECT_TIMEOUT),
        read_timeout: either(reader, &READ_TIMEOUT, &PREFIXED_READ_TIMEOUT),
        id: Id::Content,
        proxy: proxy(reader),
    };
    let normalize = reader.get(&NORMALIZE);
    let id = reader.get(&USE_ID);
    let (register, latest) = (reader.get(&AUTO_REGISTER), reader.get(&USE_LATEST));
    let lookup = match (register, id, latest) {
        (true, _, _) => IdLookup::Register {
            normalize,
            if_exists: "",
        },
        (false, 0.., _) => IdLookup::Id(id.into()),
        (false, _, true) => IdLookup::Latest,
        (false, _, false) => IdLookup::Find { normalize },
    };
    if register {
        let pinned = [(latest, USE_LATEST.name()), (id >= 0, USE_ID.name())];
        for (_, name) in pinned.into_iter().filter(|(is_chosen, _)| *is_chosen) {
            reader.note(
                name,
                "has no effect while auto.register.schemas is true, which is its default, as with the Java converter",
            );
        }
    }
    let (key, value) = (reader.get(&KEY_NAMING), reader.get(&VALUE_NAMING));
    let is_key = role == ConverterType::Key;
    let naming = Naming::Confluent(if is_key { key } else { value });
    let (key, value) = (reader.get(&KEY_ID_SERIALIZER), reader.get(&VALUE_ID_SERIALIZER));
    let framing = match if is_key { key } else { value } {
        IdSerializer::Prefix => Framing::Prefix {
            wide: false,
            id: Id::Content,
        },
        IdSerializer::Header => Framing::Guid {
            name: if is_key { "__key_schema_id" } else { "__value_schema_id" },
        },
    };
    RegistryLink::new(settings, naming, lookup, framing, is_key)
}

fn auth(reader: &mut Reader<'_>, in_urls: Auth) -> Auth {
    if let Some(source) = either(reader, &BEARER_SOURCE, &PREFIXED_BEARER_SOURCE) {
        return bearer(reader, source);
    }
    let info = either(reader, &USER_INFO, &PREFIXED_USER_INFO);
    let jaas = either(reader, &JAAS, &PREFIXED_JAAS);
    match either(reader, &BASIC_SOURCE, &PREFIXED_BASIC_SOURCE) {
        BasicSource::UserInfo => match info.as_ref().and_then(|info| info.expose().split_once(':')) {
            Some((user, password)) => Auth::Basic {
                user: user.to_owned(),
                password: Secret::new(password),
            },
            None => {
                let finding = reader.problem(
                    USER_INFO.name(),
                    "must be a user name and a password, separated by a colon",
                );
                finding.hint = Some("write it as name:password, or remove basic.auth.credentials.source".to_owned());
                Auth::None
            }
        },
        BasicSource::Sasl => match sasl(jaas) {
            Ok(auth) => auth,
            Err(what) => {
                reader.problem(JAAS.name(), what);
                Auth::None
            }
        },
        BasicSource::Url => in_urls,
        BasicSource::Unknown => {
            // The value may be what should stand elsewhere: a name and a password.
            let finding = reader.warning(
                BASIC_SOURCE.name(),
                "is none of URL, USER_INFO and SASL_INHERIT: as with the Java converter, requests to the registry have no log-in",
            );
            finding.hint = Some(format!(
                "set it to USER_INFO, and {} to NAME:PASSWORD, or remove it if the registry needs no log-in",
                USER_INFO.name()
            ));
            Auth::None
        }
    }
}

/// The name and password of a log-in module. An error is what is wrong, without the text, which is a secret.
fn sasl(jaas: Option<Secret>) -> Result<Auth, String> {
    let jaas = module(jaas)?.ok_or("is required by basic.auth.credentials.source=SASL_INHERIT")?;
    Ok(Auth::Basic {
        user: jaas.required("username")?.to_owned(),
        password: Secret::new(jaas.required("password")?),
    })
}

fn proxy(reader: &mut Reader<'_>) -> Option<Proxy> {
    let is_prefixed = reader.is_set(&PREFIXED_PROXY_HOST) && !reader.is_set(&PROXY_HOST);
    let host = if is_prefixed { &PREFIXED_PROXY_HOST } else { &PROXY_HOST };
    let is_prefixed = reader.is_set(&PREFIXED_PROXY_PORT) && !reader.is_set(&PROXY_PORT);
    let port = if is_prefixed { &PREFIXED_PROXY_PORT } else { &PROXY_PORT };
    options::proxy(reader, host, port)
}

fn bearer(reader: &mut Reader<'_>, source: BearerSource) -> Auth {
    match source {
        BearerSource::Token => match either(reader, &BEARER_TOKEN, &PREFIXED_BEARER_TOKEN) {
            Some(token) => Auth::Bearer(token),
            None => {
                reader.problem(BEARER_TOKEN.name(), "is required by bearer.auth.credentials.source");
                Auth::None
            }
        },
        BearerSource::OAuth | BearerSource::Sasl => oauth(reader, source),
    }
}

/// The identity pool that stands in the log-in module, unless there is an option for it.
fn pool_of_module(reader: &mut Reader<'_>, headers: &[(String, Secret)]) -> Option<(String, Secret)> {
    let source = either(reader, &BEARER_SOURCE, &PREFIXED_BEARER_SOURCE);
    let jaas = either(reader, &JAAS, &PREFIXED_JAAS);
    if source != Some(BearerSource::Sasl) || headers.iter().any(|(name, _)| name == POOL_HEADER) {
        return None;
    }
    // What is wrong with the module is told with the log-in.
    let pool = module(jaas).ok()??.options.remove("extension_identityPoolId")?;
    Some((POOL_HEADER.to_owned(), Secret::new(pool)))
}

/// OAuth's client credentials. With `SASL_OAUTHBEARER_INHERIT`, what has no option of its own stands in the log-in module.
fn oauth(reader: &mut Reader<'_>, source: BearerSource) -> Auth {
    let mut url = either(reader, &TOKEN_URL, &PREFIXED_TOKEN_URL);
    let mut id = either(reader, &CLIENT_ID, &PREFIXED_CLIENT_ID);
    let mut secret = either(reader, &CLIENT_SECRET, &PREFIXED_CLIENT_SECRET);
    let mut scope = either(reader, &SCOPE, &PREFIXED_SCOPE);
    let (sasl_url, jaas) = (
        either(reader, &SASL_TOKEN_URL, &PREFIXED_SASL_TOKEN_URL),
        either(reader, &JAAS, &PREFIXED_JAAS),
    );
    let mut names = [TOKEN_URL.name(), CLIENT_ID.name(), CLIENT_SECRET.name()];
    if source == BearerSource::Sasl {
        let module = match module(jaas) {
            Ok(module) => module,
            Err(what) => {
                reader.problem(JAAS.name(), what);
                return Auth::None;
            }
        };
        let option = |name: &str| module.as_ref().and_then(|module| module.options.get(name).cloned());
        url = url.or(sasl_url);
        id = id.or_else(|| option("clientId"));
        secret = secret.or_else(|| option("clientSecret").map(Secret::new));
        scope = scope.or_else(|| option("scope"));
        names = [SASL_TOKEN_URL.name(), JAAS.name(), JAAS.name()];
    }
    let missing = match (url, id, secret) {
        (Some(token_url), Some(client_id), Some(client_secret)) => {
            return Auth::OAuth(OAuth {
                token_url,
                client_id,
                client_secret,
                scope,
            });
        }
        (None, _, _) => (names[0], ""),
        (_, None, _) => (names[1], " with the option clientId"),
        (_, _, None) => (names[2], " with the option clientSecret"),
    };
    let of_module = if missing.0 == JAAS.name() { missing.1 } else { "" };
    let what = format!(
        "is required{of_module} by bearer.auth.credentials.source={}",
        source.as_str()
    );
    reader.problem(missing.0, what);
    Auth::None
}

/// The log-in module, if there is one. An error is what is wrong, without the text, which is a secret.
fn module(jaas: Option<Secret>) -> Result<Option<Jaas>, String> {
    jaas.map(|jaas| Jaas::parse(jaas.expose()).map_err(|error| error.to_string()))
        .transpose()
}

fn tls(reader: &mut Reader<'_>) -> ClientTls {
    let files = options::stores(
        reader,
        (&TRUSTED, &TRUSTED_PASSWORD),
        (&IDENTITY, &IDENTITY_PASSWORD),
        &KEY_PASSWORD,
    );
    let (trusted, chain, key) = (reader.get(&TRUSTED_PEM), reader.get(&CHAIN_PEM), reader.get(&KEY_PEM));
    let pem = |certificates: Option<String>, key| {
        certificates.map(|certificates| CertificateStore::Pem { certificates, key })
    };
    ClientTls {
        trusted: files.trusted.or_else(|| pem(trusted, None)),
        identity: files.identity.or_else(|| pem(chain, key)),
        ..files
    }
}
