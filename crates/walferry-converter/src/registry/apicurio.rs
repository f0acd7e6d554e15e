//! The options that Apicurio's converters share.

use std::time::Duration;

use walferry_config::{Property, Reader, Secret, Support, Value, properties};

use super::naming::{ArtifactNaming, Naming};
use super::{Api, Auth, ClientTls, Framing, Id, IdLookup, OAuth, Proxy, RegistryLink, RegistrySettings, options};
use crate::ConverterType;

properties! {
    pub(super) const URL: Property<String> = Property::new("apicurio.registry.url").example("http://registry:8080/apis/registry/v3")
        .required()
        .text("URL of the registry's own API: `http://registry:8080/apis/registry/v2` or `…/v3`. The version also selects the generation \
               of Apicurio's converters, because their defaults differ.");
    pub(super) const AUTO_REGISTER: Property<bool> = Property::new("apicurio.registry.auto-register")
        .default("false")
        .text("Registers a schema if the artifact does not contain it.");
    pub(super) const AUTO_REGISTER_OF_IMAGE: Property<Option<bool>> = Property::new("apicurio.registry.auto.register")
        .text("The same as `apicurio.registry.auto-register`, in the spelling of Debezium's container image.");
    pub(super) const IF_EXISTS: Property<Option<IfExists>> = Property::new("apicurio.registry.auto-register.if-exists")
        .text("What happens to a new schema if the artifact already exists. The default adds a version unless one has the same content.");
    pub(super) const FIND_LATEST: Property<bool> = Property::new("apicurio.registry.find-latest")
        .default("false")
        .text("Uses the newest version of the artifact, if `auto-register` is false. Values must have the same bytes with this schema as \
               with the schema of the record.");
    pub(super) const STRATEGY: Property<ArtifactNaming> = Property::new("apicurio.registry.artifact-resolver-strategy")
        .default("io.apicurio.registry.serde.strategy.TopicIdStrategy")
        .text("How artifacts are named.");
    pub(super) const GROUP: Property<Option<String>> = Property::new("apicurio.registry.artifact.group-id").example("shop")
        .text("Group of all artifacts.");
    pub(super) const ARTIFACT: Property<Option<String>> = Property::new("apicurio.registry.artifact.artifact-id").example("order")
        .text("A single artifact for all schemas.");
    pub(super) const VERSION: Property<Option<String>> = Property::new("apicurio.registry.artifact.version").example("1")
        .text("Version of the artifact to use, or the name of a new version.");
    pub(super) const USE_ID: Property<Option<UseId>> = Property::new("apicurio.registry.use-id")
        .text("Which id a record contains. The default is globalId with `…/v2` and contentId with `…/v3`.");
    pub(super) const HEADERS: Property<Option<bool>> = Property::new("apicurio.registry.headers.enabled")
        .text("Writes the id into headers of the record instead of before the value. The default is true with `…/v2` and false with \
               `…/v3`, as in Apicurio's converters.");
    pub(super) const ID_HANDLER: Property<Option<IdHandler>> = Property::new("apicurio.registry.id-handler")
        .text("Whether the id before the value has eight bytes or four. The default is eight with `…/v2` and four with `…/v3`.");
    pub(super) const AS_CONFLUENT: Property<bool> = Property::new("apicurio.registry.as-confluent")
        .default("false")
        .text("Writes the id with four bytes, as Confluent's converters do.");
    pub(super) const HEADER_KEY_GLOBAL: Property<String> = Property::new("apicurio.registry.headers.key.globalId.name")
        .default("apicurio.key.globalId")
        .text("Header with the `globalId` of the key's schema.");
    pub(super) const HEADER_KEY_CONTENT: Property<String> = Property::new("apicurio.registry.headers.key.contentId.name")
        .default("apicurio.key.contentId")
        .text("Header with the `contentId` of the key's schema.");
    pub(super) const HEADER_VALUE_GLOBAL: Property<String> = Property::new("apicurio.registry.headers.value.globalId.name")
        .default("apicurio.value.globalId")
        .text("Header with the `globalId` of the value's schema.");
    pub(super) const HEADER_VALUE_CONTENT: Property<String> = Property::new("apicurio.registry.headers.value.contentId.name")
        .default("apicurio.value.contentId")
        .text("Header with the `contentId` of the value's schema.");
    pub(super) const HEADERS_HANDLER: Property<String> = Property::new("apicurio.registry.headers.handler")
        .default("io.apicurio.registry.serde.headers.DefaultHeadersHandler")
        .text("Class that writes the headers.")
        .support(Support::Refused { hint: "remove it: Walferry cannot load custom classes" });
    pub(super) const HEADER_OTHER: Property<Option<String>> = Property::new("apicurio.registry.headers.<option>")
        .text("Name of a header that is written only if there is no id.")
        .support(Support::Accepted { why: "the id is always known, and these headers are only for records without one" });
    pub(super) const ENCODING: Property<String> = Property::new("apicurio.registry.avro.encoding")
        .default("BINARY")
        .text("Encoding of Avro.")
        .support(Support::Refused { hint: "remove it; for JSON, use JsonConverter" });
    pub(super) const DEREFERENCE: Property<Option<bool>> = Property::new("apicurio.registry.dereference-schema")
        .text("Registers an Avro schema as a whole, including the types that it uses. With false, each record type and each enum within it \
               becomes an artifact of its own, named after the type, and schemas refer to it. The default is true with `…/v2` and false with \
               `…/v3`, as in Apicurio's converters.");
    pub(super) const SERIALIZER_DEREFERENCE: Property<Option<bool>> = Property::new("apicurio.registry.serializer.dereference-schema")
        .text("How a schema that is looked up is read.")
        .support(Support::Accepted { why: "schemas are registered as a whole" });
    pub(super) const DESERIALIZER_DEREFERENCE: Property<Option<bool>> = Property::new("apicurio.registry.deserializer.dereference-schema")
        .text("How a reader reads a schema.")
        .support(Support::Accepted { why: options::READING });
    pub(super) const CANONICALIZE: Property<bool> = Property::new("apicurio.registry.canonicalize")
        .default("false")
        .text("Lets the registry compare schemas in their canonical form.");
    pub(super) const USERNAME: Property<Option<String>> = Property::new("apicurio.auth.username").example("walferry")
        .text("User name for the registry.");
    pub(super) const PASSWORD: Property<Option<Secret>> = Property::new("apicurio.auth.password").example("${env:REGISTRY_PASSWORD}")
        .text("Password for the registry.");
    pub(super) const TOKEN_URL: Property<Option<String>> = Property::new("apicurio.auth.service.token.endpoint").example("https://login.example.com/token")
        .text("URL of the token endpoint (OAuth client credentials).");
    pub(super) const REALM_URL: Property<Option<String>> = Property::new("apicurio.auth.service.url").example("https://login.example.com")
        .text("URL of Keycloak. Together with `apicurio.auth.realm`, it determines the token endpoint.");
    pub(super) const REALM: Property<Option<String>> = Property::new("apicurio.auth.realm").example("registry")
        .text("Keycloak's realm.");
    pub(super) const CLIENT_ID: Property<Option<String>> = Property::new("apicurio.auth.client.id").example("walferry")
        .text("OAuth client id.");
    pub(super) const CLIENT_SECRET: Property<Option<Secret>> = options::client_secret("apicurio.auth.client.secret").example("${env:CLIENT_SECRET}");
    pub(super) const SCOPE: Property<Option<String>> = options::scope("apicurio.auth.client.scope").example("registry");
    pub(super) const NEW_USERNAME: Property<Option<String>> = Property::new("apicurio.registry.auth.username").example("walferry")
        .text("The name of `apicurio.auth.username` in Apicurio 3.");
    pub(super) const NEW_PASSWORD: Property<Option<Secret>> = Property::new("apicurio.registry.auth.password").example("${env:REGISTRY_PASSWORD}")
        .text("The name of `apicurio.auth.password` in Apicurio 3.");
    pub(super) const NEW_TOKEN_URL: Property<Option<String>> = Property::new("apicurio.registry.auth.service.token.endpoint").example("https://login.example.com/token")
        .text("The name of `apicurio.auth.service.token.endpoint` in Apicurio 3.");
    pub(super) const NEW_CLIENT_ID: Property<Option<String>> = Property::new("apicurio.registry.auth.client.id").example("walferry")
        .text("The name of `apicurio.auth.client.id` in Apicurio 3.");
    pub(super) const NEW_CLIENT_SECRET: Property<Option<Secret>> = Property::new("apicurio.registry.auth.client.secret").example("${env:CLIENT_SECRET}")
        .text("The name of `apicurio.auth.client.secret` in Apicurio 3.");
    pub(super) const NEW_SCOPE: Property<Option<String>> = Property::new("apicurio.registry.auth.client.scope").example("registry")
        .text("The name of `apicurio.auth.client.scope` in Apicurio 3.");
    pub(super) const HEADER: Property<Secret> = options::request_header("apicurio.registry.request.headers.<name>").example("apicurio.registry.request.headers.X-Team=orders");
    pub(super) const TRUSTED: Property<Option<String>> = options::trusted("apicurio.registry.request.ssl.truststore.location").example("/etc/walferry/registry-ca.pem");
    pub(super) const TRUSTED_PASSWORD: Property<Option<Secret>> = options::store_password("apicurio.registry.request.ssl.truststore.password").example("${env:STORE_PASSWORD}");
    pub(super) const IDENTITY: Property<Option<String>> = options::identity("apicurio.registry.request.ssl.keystore.location").example("/etc/walferry/client.p12");
    pub(super) const IDENTITY_PASSWORD: Property<Option<Secret>> = options::store_password("apicurio.registry.request.ssl.keystore.password").example("${env:STORE_PASSWORD}");
    pub(super) const KEY_PASSWORD: Property<Option<Secret>> = options::key_password("apicurio.registry.request.ssl.key.password").example("${env:KEY_PASSWORD}");
    pub(super) const SSL_OTHER: Property<Option<String>> = Property::new("apicurio.registry.request.ssl.<option>")
        .text("Another option of Java's TLS, such as the type of a keystore.")
        .support(Support::Accepted { why: "Walferry detects the type of a keystore from its content" });
    pub(super) const NEW_TRUSTED: Property<Option<String>> = Property::new("apicurio.registry.tls.truststore.location").example("/etc/walferry/registry-ca.pem")
        .text("The name of `apicurio.registry.request.ssl.truststore.location` in Apicurio 3.");
    pub(super) const NEW_TRUSTED_PASSWORD: Property<Option<Secret>> = Property::new("apicurio.registry.tls.truststore.password").example("${env:STORE_PASSWORD}")
        .text("The name of `apicurio.registry.request.ssl.truststore.password` in Apicurio 3.");
    pub(super) const NEW_IDENTITY: Property<Option<String>> = Property::new("apicurio.registry.tls.keystore.location").example("/etc/walferry/client.p12")
        .text("The name of `apicurio.registry.request.ssl.keystore.location` in Apicurio 3.");
    pub(super) const NEW_IDENTITY_PASSWORD: Property<Option<Secret>> = Property::new("apicurio.registry.tls.keystore.password").example("${env:STORE_PASSWORD}")
        .text("The name of `apicurio.registry.request.ssl.keystore.password` in Apicurio 3.");
    pub(super) const NEW_TRUSTED_TYPE: Property<Option<String>> = Property::new("apicurio.registry.tls.truststore.type")
        .text("Type of the truststore.")
        .support(Support::Accepted { why: "Walferry detects the type of a truststore from its content" });
    pub(super) const NEW_IDENTITY_TYPE: Property<Option<String>> = Property::new("apicurio.registry.tls.keystore.type")
        .text("Type of the keystore.")
        .support(Support::Accepted { why: "Walferry detects the type of a keystore from its content" });
    pub(super) const TRUST_ALL: Property<bool> = Property::new("apicurio.registry.tls.trust-all")
        .default("false")
        .text("Whether each certificate of the registry is trusted.")
        .support(Support::Refused { hint: "remove it, and set apicurio.registry.tls.truststore.location: Walferry always checks certificates" });
    pub(super) const VERIFY_HOST: Property<bool> = Property::new("apicurio.registry.tls.verify-host")
        .default("true")
        .text("Whether the host name in the registry's certificate is checked.")
        .support(Support::Refused { hint: "remove it, and use a name of the registry that its certificate contains: Walferry always checks it" });
    pub(super) const TLS_OTHER: Property<Option<String>> = Property::new("apicurio.registry.tls.<option>")
        .text("Other options of certificates in Apicurio 3.")
        .support(Support::Refused { hint: "set apicurio.registry.tls.truststore.location, and apicurio.registry.tls.keystore.location for a \
                                           client certificate" });
    pub(super) const SERIALIZER: Property<Option<String>> = Property::new("apicurio.registry.converter.serializer")
        .example("io.apicurio.registry.serde.avro.AvroKafkaSerializer")
        .text("Class that writes values. The converter determines it.")
        .support(Support::Except {
            values: &["io.apicurio.registry.utils.serde.AvroKafkaSerializer"],
            hint: "remove it: this is the serializer of Apicurio 1, whose API and bytes are no longer supported",
        });
    pub(super) const DESERIALIZER: Property<Option<String>> = options::reading("apicurio.registry.converter.deserializer", "Class that \
                                                                                                                            reads values.");
    pub(super) const GLOBAL_ID_STRATEGY: Property<Option<String>> = Property::new("apicurio.registry.global-id")
        .example("io.apicurio.registry.utils.serde.strategy.FindLatestIdStrategy")
        .text("How Apicurio 1 found a schema.")
        .support(Support::Except {
            values: &[
                "io.apicurio.registry.utils.serde.strategy.GetOrCreateIdStrategy",
                "io.apicurio.registry.utils.serde.strategy.AutoRegisterIdStrategy",
            ],
            hint: "set apicurio.registry.auto-register=true, its current name",
        });
    pub(super) const ARTIFACT_OTHER: Property<Option<String>> = Property::new("apicurio.registry.artifact.<option>")
        .text("Location of the text of a schema.")
        .support(Support::Accepted { why: "the schema is derived from the record" });
    pub(super) const CHECK_PERIOD: Property<Option<String>> = options::tuning("apicurio.registry.check-period-ms", "How long results are \
                                                                                                                    cached.");
    pub(super) const RETRY_COUNT: Property<Option<String>> = options::tuning("apicurio.registry.retry-count", "Number of retries of the \
                                                                                                               Java client.");
    pub(super) const RETRY_BACKOFF: Property<Option<String>> = options::tuning("apicurio.registry.retry-backoff-ms", "Pause between these \
                                                                                                                      retries.");
    pub(super) const CACHE_LATEST: Property<Option<String>> = options::tuning("apicurio.registry.cache-latest", "Whether the newest \
                                                                                                                 version is cached.");
    pub(super) const FAULT_TOLERANT: Property<Option<String>> = options::tuning("apicurio.registry.fault-tolerant-refresh", "Whether an \
                                                                                                                             old answer \
                                                                                                                             is used \
                                                                                                                             while the \
                                                                                                                             registry is \
                                                                                                                             unreachable.");
    pub(super) const BACKGROUND: Property<Option<String>> = options::tuning("apicurio.registry.background-refresh<option>", "How answers are refreshed.");
    pub(super) const SERDE: Property<Option<String>> = Property::new("apicurio.registry.serde.<option>")
        .text("Options of other serializers.")
        .support(Support::Accepted { why: "the converter always checks a value against its schema" });
    pub(super) const DATUM: Property<Option<String>> = Property::new("apicurio.registry.avro-datum-provider")
        .text("Class that creates Avro objects.")
        .support(Support::Accepted { why: "values are written without such objects" });
    pub(super) const CACHE: Property<Option<String>> = options::tuning("schemas.cache.config", "Number of converted schemas that are \
                                                                                                cached.");
    pub(super) const CACHE_SIZE: Property<Option<String>> = options::tuning("schemas.cache.size", "The same under another name.");
    pub(super) const PROXY_HOST: Property<Option<String>> = options::proxy_host("apicurio.registry.proxy.host").example("proxy.example.com");
    pub(super) const PROXY_PORT: Property<Option<u16>> = options::proxy_port("apicurio.registry.proxy.port").example("3128");
    pub(super) const PROXY_USERNAME: Property<Option<String>> = Property::new("apicurio.registry.proxy.username").example("walferry")
        .text("User name for this proxy.");
    pub(super) const PROXY_PASSWORD: Property<Option<Secret>> = Property::new("apicurio.registry.proxy.password").example("${env:PROXY_PASSWORD}")
        .text("Password for this proxy.");
    pub(super) const USE_HEADERS: Property<Option<String>> = Property::new("apicurio.registry.use.headers")
        .text("Not an option of the converter.")
        .support(Support::Elsewhere { is: "is not an option of Apicurio's converters", hint: "to choose whether ids are written into \
                                                                                              headers, set \
                                                                                              `apicurio.registry.headers.enabled`" });
}

/// What decides where the id stands, for a converter that does not ask them.
pub(crate) const FRAMING: [&str; 4] = [USE_ID.name(), HEADERS.name(), ID_HANDLER.name(), AS_CONFLUENT.name()];

walferry_config::choices! {
    /// `apicurio.registry.auto-register.if-exists`, in the words of both generations.
    pub(super) enum IfExists {
        /// A version is added unless one has the same content.
        #[default]
        ReturnOrUpdate = "RETURN_OR_UPDATE" | "FIND_OR_CREATE_VERSION",
        /// A version is added.
        Update = "UPDATE" | "CREATE_VERSION",
        /// The artifact's present version is taken.
        Return = "RETURN",
        /// The registry refuses.
        Fail = "FAIL",
    }
}

walferry_config::choices! {
    /// `apicurio.registry.use-id`.
    pub(super) enum UseId {
        /// Of the version of the artifact.
        #[default]
        Global = "globalId",
        /// Of the content.
        Content = "contentId",
    }
}

walferry_config::choices! {
    /// `apicurio.registry.id-handler`.
    pub(super) enum IdHandler {
        /// Eight bytes.
        #[default]
        Wide = "io.apicurio.registry.serde.DefaultIdHandler" | "io.apicurio.registry.serde.Legacy8ByteIdHandler",
        /// Four bytes.
        Narrow = "io.apicurio.registry.serde.Legacy4ByteIdHandler" | "io.apicurio.registry.serde.Default4ByteIdHandler"
            | "io.apicurio.registry.serde.OptimisticFallbackIdHandler",
    }
}

/// Reads the way to a registry. `encoding` is the value of the header that tells how values are encoded.
pub(crate) fn link(reader: &mut Reader<'_>, role: ConverterType, encoding: Option<&'static str>) -> RegistryLink {
    let url = reader.get(&URL);
    let urls = match url.trim() {
        "" => Vec::new(),
        url => vec![url.to_owned()],
    };
    let (urls, in_urls) = plain_urls(reader, URL.name(), urls);
    let api = api(reader, &urls);
    let settings = RegistrySettings {
        api,
        urls,
        auth: auth(reader, in_urls),
        headers: options::headers(reader, &HEADER),
        tls: tls(reader),
        connect_timeout: Duration::from_secs(60),
        read_timeout: Duration::from_secs(60),
        id: Id::Content,
        proxy: proxy(reader),
    };
    let (group, id, version) = (reader.get(&GROUP), reader.get(&ARTIFACT), reader.get(&VERSION));
    let register = reader.get(&AUTO_REGISTER_OF_IMAGE).unwrap_or_default() || reader.get(&AUTO_REGISTER);
    let (find_latest, normalize) = (reader.get(&FIND_LATEST), reader.get(&CANONICALIZE));
    if register && find_latest {
        reader.note(
            FIND_LATEST.name(),
            "has no effect while apicurio.registry.auto-register is true, as with the Java converter",
        );
    }
    let lookup = match (register, find_latest || version.is_some()) {
        (true, _) => IdLookup::Register {
            normalize,
            if_exists: reader.get(&IF_EXISTS).unwrap_or_default().word(api),
        },
        (false, true) => IdLookup::Latest,
        (false, false) => IdLookup::Find { normalize },
    };
    let naming = Naming::Apicurio {
        strategy: reader.get(&STRATEGY),
        group,
        id,
        version,
    };
    let is_key = role == ConverterType::Key;
    let framing = framing(reader, api, is_key, encoding);
    let is_whole = reader.get(&DEREFERENCE).unwrap_or(api == Api::ApicurioV2);
    RegistryLink::new(settings, naming, lookup, framing, is_key).splitting(!is_whole)
}

fn tls(reader: &mut Reader<'_>) -> ClientTls {
    let new = options::stores(
        reader,
        (&NEW_TRUSTED, &NEW_TRUSTED_PASSWORD),
        (&NEW_IDENTITY, &NEW_IDENTITY_PASSWORD),
        &KEY_PASSWORD,
    );
    let old = options::stores(
        reader,
        (&TRUSTED, &TRUSTED_PASSWORD),
        (&IDENTITY, &IDENTITY_PASSWORD),
        &KEY_PASSWORD,
    );
    ClientTls {
        trusted: old.trusted.or(new.trusted),
        identity: old.identity.or(new.identity),
        key_password: old.key_password,
    }
}

fn proxy(reader: &mut Reader<'_>) -> Option<Proxy> {
    let (user, password) = (reader.get(&PROXY_USERNAME), reader.get(&PROXY_PASSWORD));
    let proxy = options::proxy(reader, &PROXY_HOST, &PROXY_PORT)?;
    Some(Proxy {
        // As in Java, one of the two alone is no login.
        login: user.zip(password),
        ..proxy
    })
}

/// The defaults of Apicurio's converters changed between 2 and 3.
fn framing(reader: &mut Reader<'_>, api: Api, is_key: bool, encoding: Option<&'static str>) -> Framing {
    let second = api == Api::ApicurioV2;
    let id = match reader
        .get(&USE_ID)
        .unwrap_or(if second { UseId::Global } else { UseId::Content })
    {
        UseId::Global => Id::Global,
        UseId::Content => Id::Content,
    };
    let handler = reader.get(&ID_HANDLER).unwrap_or(match second {
        true => IdHandler::Wide,
        false => IdHandler::Narrow,
    });
    let narrow = reader.get(&AS_CONFLUENT) || handler == IdHandler::Narrow;
    let names = [
        (&HEADER_KEY_GLOBAL, &HEADER_KEY_CONTENT),
        (&HEADER_VALUE_GLOBAL, &HEADER_VALUE_CONTENT),
    ]
    .map(|(global, content)| (reader.get(global), reader.get(content)));
    let [key_names, value_names] = names;
    let (global, content) = if is_key { key_names } else { value_names };
    match reader.get(&HEADERS).unwrap_or(second) {
        true => Framing::Headers {
            name: match id {
                Id::Global => global,
                Id::Content => content,
            },
            id,
            encoding: encoding.map(|encoding| match is_key {
                true => ("apicurio.key.encoding", encoding),
                false => ("apicurio.value.encoding", encoding),
            }),
            wide: !narrow,
        },
        false => Framing::Prefix { wide: !narrow, id },
    }
}

impl IfExists {
    /// The word of one of the interfaces.
    const fn word(self, api: Api) -> &'static str {
        match (self, api) {
            (Self::ReturnOrUpdate, Api::ApicurioV3) => "FIND_OR_CREATE_VERSION",
            (Self::ReturnOrUpdate, _) => "RETURN_OR_UPDATE",
            (Self::Update, Api::ApicurioV3) => "CREATE_VERSION",
            (Self::Update, _) => "UPDATE",
            (Self::Return, Api::ApicurioV3) => "FIND_OR_CREATE_VERSION",
            (Self::Return, _) => "RETURN",
            (Self::Fail, _) => "FAIL",
        }
    }
}

/// The URL tells the generation of the interface.
fn api(reader: &mut Reader<'_>, urls: &[String]) -> Api {
    let Some(url) = urls.first() else {
        return Api::ApicurioV2;
    };
    let has = |part: &str| url.ends_with(part) || url.contains(&format!("{part}/"));
    if has("/apis/registry/v3") {
        return Api::ApicurioV3;
    }
    if !has("/apis/registry/v2") {
        let finding = reader.problem(URL.name(), "does not end with /apis/registry/v2 or /apis/registry/v3");
        finding.hint = Some(
            "use the URL of the registry's own API; for the Confluent-compatible API (`/apis/ccompat/v7`), use \
             io.confluent.connect.avro.AvroConverter"
                .to_owned(),
        );
    }
    Api::ApicurioV2
}

fn auth(reader: &mut Reader<'_>, in_urls: Auth) -> Auth {
    let realm = reader.get(&REALM);
    let by_realm = reader.get(&REALM_URL).map(|url| {
        let realm = realm.unwrap_or_default();
        format!(
            "{}/realms/{realm}/protocol/openid-connect/token",
            url.trim_end_matches('/')
        )
    });
    let token_url = by_realm.or_else(|| either(reader, &TOKEN_URL, &NEW_TOKEN_URL));
    let client_id = either(reader, &CLIENT_ID, &NEW_CLIENT_ID);
    let client_secret = either(reader, &CLIENT_SECRET, &NEW_CLIENT_SECRET);
    let scope = either(reader, &SCOPE, &NEW_SCOPE);
    let user = either(reader, &USERNAME, &NEW_USERNAME);
    let password = either(reader, &PASSWORD, &NEW_PASSWORD);
    match (token_url, user) {
        (Some(token_url), _) => {
            if client_id.is_none() {
                reader.problem(CLIENT_ID.name(), "is required to obtain tokens");
            }
            if client_secret.is_none() {
                reader.problem(CLIENT_SECRET.name(), "is required to obtain tokens");
            }
            Auth::OAuth(OAuth {
                token_url,
                client_id: client_id.unwrap_or_default(),
                client_secret: client_secret.unwrap_or_default(),
                scope,
            })
        }
        (None, Some(user)) => {
            if password.is_none() {
                reader.problem(PASSWORD.name(), "is required together with apicurio.auth.username");
            }
            Auth::Basic {
                user,
                password: password.unwrap_or_default(),
            }
        }
        (None, None) => in_urls,
    }
}

/// A property by its name of Apicurio 2 or by that of Apicurio 3.
fn either<T: Value>(reader: &mut Reader<'_>, old: &Property<Option<T>>, new: &Property<Option<T>>) -> Option<T> {
    reader.get(old).or_else(|| reader.get(new))
}

/// URLs without a slash at the end, and the names and passwords that stood in them.
pub(super) fn plain_urls(reader: &mut Reader<'_>, property: &str, urls: Vec<String>) -> (Vec<String>, Auth) {
    let (mut plain, mut logins) = (Vec::new(), Vec::new());
    for url in urls {
        let url = url.trim().trim_end_matches('/');
        let Some((scheme, address)) = url
            .split_once("://")
            .filter(|(scheme, address)| matches!(*scheme, "http" | "https") && !address.is_empty())
        else {
            let quoted_url = walferry_config::quoted(url);
            let finding = reader.problem(
                property,
                format!("has the URL {quoted_url}, which does not start with http:// or https://"),
            );
            finding.hint = Some("write it like http://registry:8081".to_owned());
            continue;
        };
        let end = address.find('/').unwrap_or(address.len());
        match address[..end].rsplit_once('@') {
            Some((info, _)) => {
                let (user, password) = info.split_once(':').unwrap_or((info, ""));
                logins.push(Some((decoded(user), Secret::new(decoded(password)))));
                plain.push(format!("{scheme}://{}", &address[info.len() + 1..]));
            }
            None => {
                logins.push(None);
                plain.push(url.to_owned());
            }
        }
    }
    let auth = match logins.iter().any(Option::is_some) {
        true => Auth::Urls(logins),
        false => Auth::None,
    };
    (plain, auth)
}

/// A part of a URL, without its escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut unread = text.bytes();
    while let Some(byte) = unread.next() {
        let mut ahead = unread.clone();
        let digits = (ahead.next(), ahead.next());
        let hex = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
        match (byte, hex(digits.0), hex(digits.1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                unread = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
