//! Against what Apicurio's copy of `AvroData` (2.6.13, Avro 1.12.0) made of the same schemas and values.

use serde_json::Value as Json;

use super::{Avro, Style};
use crate::recorded::{self, schema, value};

/// One case a line: `connect` is the JSON of JsonConverter, `avro` and `bytes` are what the converter made of it.
const RECORDED: &str = include_str!("../../tests/vectors/avro.jsonl");

/// Cases in which we differ, because Avro for Java writes a schema that nobody can read the record with.
const REFUSED: [&str; 2] = ["same name other struct", "same name other struct, optional"];

#[test]
fn schemas_and_bytes_are_those_of_the_java_converter() {
    recorded::compare(RECORDED, 60, difference);
}

fn difference(case: &Json) -> Option<String> {
    let name = case["name"].as_str().unwrap();
    let schema = schema(&case["connect"]["schema"]);
    let value = value(&schema, &case["connect"]["payload"]);
    let avro = Avro::new(&schema, style(&case["options"]), false);
    if REFUSED.contains(&name) {
        return avro.is_ok().then(|| "is not refused".to_owned());
    }
    match (&avro, case["avro"].as_str()) {
        (Ok(avro), Some(expected)) if avro.text != expected => {
            return Some(format!("schema\n  {}\n  {expected}", avro.text));
        }
        (Ok(_), Some(_)) => {}
        (Err(_), None) => return None,
        (Err(failure), Some(_)) => return Some(format!("{failure:?}")),
        (Ok(_), None) if case["bytes"].is_null() && case["connect"]["payload"].is_null() => {}
        (Ok(_), None) => return Some(format!("there is a schema; expected {}", case["error"])),
    }
    let mut out = Vec::new();
    let written = avro.ok()?.write(&value, &mut out);
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    match (written, case["bytes"].as_str()) {
        (Ok(()), Some(expected)) if hex != expected => Some(format!("bytes\n  {hex}\n  {expected}")),
        // The converter makes Kafka's null of it before it comes to Avro.
        (Ok(()), None) if value.is_null() && hex == "00" => None,
        (Ok(()), None) => Some(format!("bytes {hex}, expected {}", case["error"])),
        (Err(failure), Some(_)) => Some(format!("{failure:?}")),
        _ => None,
    }
}

fn style(options: &Json) -> Style {
    let mut style = Style::default();
    for (name, value) in options.as_object().into_iter().flatten() {
        let value = value == "true";
        match name.as_str() {
            "connect.meta.data" => style.meta_data = value,
            "enhanced.avro.schema.support" => style.enhanced = value,
            "scrub.invalid.names" => style.scrub = value,
            "allow.optional.map.keys" => style.optional_map_keys = value,
            "ignore.default.for.nullables" => style.keep_nulls = value,
            "discard.type.doc.default" => style.discard_type_doc = value,
            "generalized.sum.type.support" => style.generalized = value,
            other => panic!("{other}"),
        }
    }
    style
}

mod with_a_registry {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use walferry_config::Options;
    use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Struct, Value, Wait, WaitNeed};

    use super::super::Family;
    use crate::registry::{Ids, Registry, RegistryAnswer, RegistryRefusal, SchemaRequest};
    use crate::{AvroConverter, Converter, ConverterType, Encoded, RecordPart};

    /// Knows the ids that the test gives it.
    #[derive(Debug, Default)]
    struct Fake {
        ids: Mutex<HashMap<String, i64>>,
        refuses: Mutex<bool>,
        asked: Mutex<Vec<String>>,
        generation: AtomicU64,
    }

    impl Registry for Fake {
        fn ids(&self, request: &SchemaRequest) -> RegistryAnswer {
            let subject = request.subject.to_string();
            self.asked.lock().unwrap().push(subject.clone());
            if *self.refuses.lock().unwrap() {
                return RegistryAnswer::Refused(RegistryRefusal {
                    what: "Schema being registered is incompatible: field x".to_owned(),
                    hint: None,
                });
            }
            match self.ids.lock().unwrap().get(&subject) {
                Some(&id) => RegistryAnswer::Known(Ids {
                    content: id,
                    global: id + 1000,
                    guid: None,
                }),
                None => RegistryAnswer::Wait(Wait::new(WaitNeed::SchemaId { subject })),
            }
        }
        fn generation(&self) -> u64 {
            self.generation.load(Relaxed)
        }
    }

    fn converter(family: Family, role: ConverterType, entries: &[(&str, &str)]) -> (AvroConverter, Arc<Fake>) {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let options = Options::new("value.converter.", entries.collect());
        let (converter, findings) = AvroConverter::from_options(family, role, &options);
        let mut converter = converter.unwrap_or_else(|| panic!("{findings:?}"));
        let fake = Arc::new(Fake::default());
        converter.attach(&mut |_| fake.clone());
        (converter, fake)
    }

    fn confluent() -> (AvroConverter, Arc<Fake>) {
        converter(
            Family::Confluent,
            ConverterType::Value,
            &[("schema.registry.url", "http://r:8081")],
        )
    }

    fn row() -> (SchemaRef, SchemaAndValue<'static>) {
        let fields = vec![Field::new("id", Schema::int32().build())];
        let schema = Schema::structure(fields).named("shop.orders.Value").build();
        let value = Value::Struct(Struct::new(schema.clone(), vec![Value::Int32(3)]));
        (schema.clone(), SchemaAndValue::new(schema, value))
    }

    #[test]
    fn a_record_waits_for_its_id_and_then_carries_it() {
        let (mut avro, fake) = confluent();
        let (_, row) = row();
        let mut out = b"before".to_vec();
        let error = avro.encode("orders", RecordPart::Value, &row, &mut out).unwrap_err();
        assert_eq!(
            error.wait().unwrap().need(),
            &WaitNeed::SchemaId {
                subject: "orders-value".to_owned()
            }
        );
        assert_eq!(out, b"before");

        fake.ids.lock().unwrap().insert("orders-value".to_owned(), 7);
        for _ in 0..3 {
            out.clear();
            assert_eq!(
                avro.encode("orders", RecordPart::Value, &row, &mut out).unwrap(),
                Encoded::Bytes
            );
            assert_eq!(out, [0, 0, 0, 0, 7, 6]);
        }
        assert_eq!(fake.asked.lock().unwrap().len(), 2, "the id is kept");
    }

    #[test]
    fn ids_are_asked_for_anew_when_the_registry_has_lost_them() {
        let (mut avro, fake) = confluent();
        let (_, row) = row();
        fake.ids.lock().unwrap().insert("orders-value".to_owned(), 7);
        avro.encode("orders", RecordPart::Value, &row, &mut Vec::new()).unwrap();
        fake.ids.lock().unwrap().insert("orders-value".to_owned(), 8);
        fake.generation.store(1, Relaxed);
        let mut out = Vec::new();
        avro.encode("orders", RecordPart::Value, &row, &mut out).unwrap();
        assert_eq!(out, [0, 0, 0, 0, 8, 6]);
    }

    #[test]
    fn one_schema_on_two_topics_has_two_subjects() {
        let (mut avro, fake) = confluent();
        let (_, row) = row();
        for (topic, id) in [("a", 1), ("b", 2), ("a", 1)] {
            fake.ids.lock().unwrap().insert(format!("{topic}-value"), id);
            let mut out = Vec::new();
            avro.encode(topic, RecordPart::Value, &row, &mut out).unwrap();
            assert_eq!(out[4], id as u8, "{topic}");
        }
    }

    #[test]
    fn nulls_are_not_registered() {
        let (mut avro, fake) = confluent();
        let optional = Schema::structure(Vec::new()).named("x.Y").optional().build();
        for null in [SchemaAndValue::NULL, SchemaAndValue::new(optional, Value::Null)] {
            assert_eq!(
                avro.encode("t", RecordPart::Value, &null, &mut Vec::new()).unwrap(),
                Encoded::Null
            );
        }
        assert!(fake.asked.lock().unwrap().is_empty());
    }

    #[test]
    fn a_refusal_tells_the_subject_and_the_registrys_words() {
        let (mut avro, fake) = confluent();
        *fake.refuses.lock().unwrap() = true;
        let error = avro
            .encode("orders", RecordPart::Value, &row().1, &mut Vec::new())
            .unwrap_err();
        assert!(error.wait().is_none());
        assert_eq!(
            error.to_string(),
            "io.confluent.connect.avro.AvroConverter cannot write the value of a record for topic orders: the schema registry rejects the \
             schema of orders-value: Schema being registered is incompatible: field x"
        );
    }

    #[test]
    fn apicurio_puts_ids_where_its_options_say() {
        let v2 = ("apicurio.registry.url", "http://r:8080/apis/registry/v2");
        let v3 = ("apicurio.registry.url", "http://r:8080/apis/registry/v3");
        let in_front = ("apicurio.registry.headers.enabled", "false");
        let narrow = ("apicurio.registry.as-confluent", "true");
        let wide = (
            "apicurio.registry.id-handler",
            "io.apicurio.registry.serde.Legacy8ByteIdHandler",
        );
        let content = ("apicurio.registry.use-id", "contentId");
        type Setting = (&'static str, &'static str);
        let cases: [(&[Setting], &[u8]); 6] = [
            (&[v2, in_front], &[0, 0, 0, 0, 0, 0, 0, 3, 0xEF, 6]),
            (&[v2, in_front, content], &[0, 0, 0, 0, 0, 0, 0, 0, 7, 6]),
            (&[v2, in_front, narrow], &[0, 0, 0, 3, 0xEF, 6]),
            (&[v3], &[0, 0, 0, 0, 7, 6]),
            (&[v3, wide], &[0, 0, 0, 0, 0, 0, 0, 0, 7, 6]),
            (&[v2], &[6]),
        ];
        for (options, expected) in cases {
            let (mut avro, fake) = converter(Family::Apicurio, ConverterType::Value, options);
            fake.ids.lock().unwrap().insert("orders-value".to_owned(), 7);
            let mut out = Vec::new();
            let encoded = avro.encode("orders", RecordPart::Value, &row().1, &mut out).unwrap();
            assert_eq!(out, expected, "{options:?}");
            let headers: Vec<_> = avro.added_headers().iter().collect();
            match encoded {
                Encoded::BytesWithHeaders => assert_eq!(
                    headers,
                    [
                        ("apicurio.value.globalId", &[0, 0, 0, 0, 0, 0, 3, 0xEF][..]),
                        ("apicurio.value.encoding", b"BINARY"),
                    ]
                ),
                _ => assert!(headers.is_empty()),
            }
        }
    }

    #[test]
    fn confluents_bytes_alone_have_no_length_and_apicurios_do() {
        let bytes = SchemaAndValue::new(Schema::bytes().build(), Value::slice(b"abc"));
        let v3 = ("apicurio.registry.url", "http://r:8080/apis/registry/v3");
        let cases = [
            (confluent(), &b"abc"[..]),
            (converter(Family::Apicurio, ConverterType::Value, &[v3]), b"\x06abc"),
        ];
        for ((mut avro, fake), expected) in cases {
            fake.ids.lock().unwrap().insert("t-value".to_owned(), 7);
            let mut out = Vec::new();
            avro.encode("t", RecordPart::Value, &bytes, &mut out).unwrap();
            assert_eq!(&out[5..], expected);
        }
    }

    #[test]
    fn an_optional_record_alone_is_a_union_for_confluent_and_a_record_for_apicurio() {
        let fields = vec![Field::new("id", Schema::int32().build())];
        let schema = Schema::structure(fields).named("shop.Created").optional().build();
        let value = Value::Struct(Struct::new(schema.clone(), vec![Value::Int32(3)]));
        let created = SchemaAndValue::new(schema, value);
        let v3 = ("apicurio.registry.url", "http://r:8080/apis/registry/v3");
        let by_record = (
            "apicurio.registry.artifact-resolver-strategy",
            "io.apicurio.registry.serde.avro.strategy.RecordIdStrategy",
        );
        let cases = [
            (confluent(), "t-value", &[2, 6][..]),
            (
                converter(Family::Apicurio, ConverterType::Value, &[v3]),
                "t-value",
                &[6],
            ),
            (
                converter(Family::Apicurio, ConverterType::Value, &[v3, by_record]),
                "shop/Created",
                &[6],
            ),
        ];
        for ((mut avro, fake), subject, expected) in cases {
            fake.ids.lock().unwrap().insert(subject.to_owned(), 7);
            let mut out = Vec::new();
            avro.encode("t", RecordPart::Value, &created, &mut out).unwrap();
            assert_eq!(&out[5..], expected, "{subject}");
        }
    }

    #[test]
    fn options_that_cannot_be_used_are_refused_with_their_names() {
        let refused = |family, entries: &[(&str, &str)]| {
            let entries = entries
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            let options = Options::new("value.converter.", entries.collect());
            let (converter, findings) = AvroConverter::from_options(family, ConverterType::Value, &options);
            assert!(converter.is_none());
            findings
                .problems()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let url = ("schema.registry.url", "http://me:secret@r:8081/");
        let cases = [
            (
                refused(Family::Confluent, &[]),
                "value.converter.schema.registry.url is required (set value.converter.schema.registry.url: URL of the schema registry)",
            ),
            (
                refused(Family::Confluent, &[("schema.registry.url", "registry:8081")]),
                "does not start with http:// or https://",
            ),
            (
                refused(
                    Family::Confluent,
                    &[url, ("basic.auth.credentials.source", "USER_INFO")],
                ),
                "value.converter.basic.auth.user.info must be a user name and a password",
            ),
            (
                refused(
                    Family::Confluent,
                    &[url, ("value.subject.name.strategy", "com.example.Mine")],
                ),
                "value.converter.value.subject.name.strategy",
            ),
            (
                refused(
                    Family::Confluent,
                    &[url, ("basic.auth.credentials.source", "SASL_INHERIT")],
                ),
                "value.converter.sasl.jaas.config is required by basic.auth.credentials.source=SASL_INHERIT",
            ),
            (
                refused(
                    Family::Confluent,
                    &[
                        url,
                        ("basic.auth.credentials.source", "SASL_INHERIT"),
                        ("sasl.jaas.config", "a.B required username=\"secret\";"),
                    ],
                ),
                "value.converter.sasl.jaas.config has no password in the options of B",
            ),
            (
                refused(
                    Family::Confluent,
                    &[
                        url,
                        ("bearer.auth.credentials.source", "SASL_OAUTHBEARER_INHERIT"),
                        ("sasl.oauthbearer.token.endpoint.url", "http://l"),
                        ("sasl.jaas.config", "a.B required clientId=\"secret\";"),
                    ],
                ),
                "value.converter.sasl.jaas.config is required with the option clientSecret by \
                 bearer.auth.credentials.source=SASL_OAUTHBEARER_INHERIT",
            ),
            (
                refused(Family::Confluent, &[url, ("bearer.auth.credentials.source", "CUSTOM")]),
                "set it to STATIC_TOKEN or OAUTHBEARER: Walferry cannot load custom classes",
            ),
            (
                refused(
                    Family::Apicurio,
                    &[
                        ("apicurio.registry.url", "http://r:8080/apis/registry/v3"),
                        ("apicurio.registry.auth.username", "secret"),
                    ],
                ),
                "value.converter.apicurio.auth.password is required together with apicurio.auth.username",
            ),
            (
                refused(
                    Family::Apicurio,
                    &[
                        ("apicurio.registry.url", "http://r:8080/apis/registry/v3"),
                        ("apicurio.auth.service.token.endpoint", "http://l"),
                        ("apicurio.auth.client.secret", "secret"),
                    ],
                ),
                "value.converter.apicurio.auth.client.id is required to obtain tokens",
            ),
            (
                refused(Family::Apicurio, &[("apicurio.registry.url", "http://r:8080/api")]),
                "does not end with /apis/registry/v2",
            ),
        ];
        for (problems, expected) in cases {
            assert!(problems.contains(expected), "{problems:?} lacks {expected:?}");
            assert!(!problems.contains("secret"), "{problems}");
        }
    }

    #[test]
    fn options_that_do_less_than_they_seem_to_are_told_of() {
        let texts = |entries: &[(&str, &str)]| {
            let url = ("schema.registry.url", "http://r:8081");
            let entries = entries.iter().chain([&url]);
            let entries = entries.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            let options = Options::new("value.converter.", entries.collect());
            let (_, findings) = AvroConverter::from_options(Family::Confluent, ConverterType::Value, &options);
            let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
            texts.join("\n")
        };
        let never = "has no effect while auto.register.schemas is true";
        let (latest, register) = (("use.latest.version", "true"), ("auto.register.schemas", "true"));
        assert!(texts(&[latest]).contains(never), "{}", texts(&[latest]));
        assert!(texts(&[latest, register]).contains(never));
        assert!(texts(&[("use.schema.id", "7")]).contains("use.schema.id has no effect while"));
        assert_eq!(texts(&[latest, ("auto.register.schemas", "false")]), "");
        assert_eq!(texts(&[("use.latest.version", "false")]), "");
        let strict = texts(&[("latest.compatibility.strict", "false")]);
        assert!(
            strict.contains("Walferry always compares the registered schema"),
            "{strict}"
        );
        let naming = texts(&[("subject.name.strategy", "x.RecordNameStrategy")]);
        assert!(
            naming.contains("is not an option of Confluent's converters"),
            "{naming}"
        );
        assert!(
            naming.contains("set `value.subject.name.strategy` on a value converter"),
            "{naming}"
        );
    }

    /// What the options of a converter say of its registry. Nothing in them may be unknown or wrong.
    fn settings(family: Family, entries: &[(&str, &str)]) -> crate::registry::RegistrySettings {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let options = Options::new("value.converter.", entries.collect());
        let (converter, findings) = AvroConverter::from_options(family, ConverterType::Value, &options);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        // What is accepted without effect is told, too.
        assert!(
            texts.iter().all(|texts| texts.contains("detects the type")),
            "{texts:?}"
        );
        converter.expect("nothing is wrong").link.settings
    }

    fn oauth(url: &str, id: &str, secret: &str, scope: Option<&str>) -> crate::registry::Auth {
        crate::registry::Auth::OAuth(crate::registry::OAuth {
            token_url: url.to_owned(),
            client_id: id.to_owned(),
            client_secret: walferry_config::Secret::new(secret),
            scope: scope.map(str::to_owned),
        })
    }

    /// In the names of Apicurio 2 and of Apicurio 3.
    #[test]
    fn the_login_of_apicurio_may_be_a_password_or_oauth_by_either_name() {
        use crate::registry::Auth;
        use walferry_config::Secret;
        let basic = || Auth::Basic {
            user: "me".to_owned(),
            password: Secret::new("p:1"),
        };
        let endpoint = "http://login/realms/shop/protocol/openid-connect/token";
        let client = [
            ("client.id", "c"),
            ("client.secret", "s"),
            ("client.scope", "r"),
            ("service.token.endpoint", endpoint),
        ];
        for prefix in ["apicurio.auth.", "apicurio.registry.auth."] {
            let of = |entries: &[(&str, &str)]| {
                let mut all = vec![("apicurio.registry.url".to_owned(), "http://u:w@r:8080/apis/registry/v2")];
                all.extend(entries.iter().map(|(name, text)| (format!("{prefix}{name}"), *text)));
                let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), *text)).collect();
                settings(Family::Apicurio, &all).auth
            };
            let login = [("username", "me"), ("password", "p:1")];
            // Each wins over the one that stands in the URL, and tokens over a password.
            assert_eq!(of(&login), basic(), "{prefix}");
            assert_eq!(of(&client), oauth(endpoint, "c", "s", Some("r")), "{prefix}");
            let both: Vec<_> = login.into_iter().chain(client).collect();
            assert_eq!(of(&both), oauth(endpoint, "c", "s", Some("r")), "{prefix}");
            let Auth::Urls(logins) = of(&[]) else {
                panic!("the URL has a log-in")
            };
            assert_eq!(logins, [Some(("u".to_owned(), Secret::new("w")))], "{prefix}");
        }
        let realm = [
            ("apicurio.registry.url", "http://r:8080/apis/registry/v2"),
            ("apicurio.auth.service.url", "http://login/"),
            ("apicurio.auth.realm", "shop"),
            ("apicurio.auth.client.id", "c"),
            ("apicurio.auth.client.secret", "s"),
        ];
        assert_eq!(settings(Family::Apicurio, &realm).auth, oauth(endpoint, "c", "s", None));
    }

    /// Confluent's client takes its options with a prefix, too.
    #[test]
    fn each_login_may_be_written_with_the_clients_prefix() {
        use crate::registry::Auth;
        use walferry_config::Secret;
        let basic = || Auth::Basic {
            user: "me".to_owned(),
            password: Secret::new("s:1"),
        };
        let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"me\" password=\"s:1\";";
        let cases: [(&[(&str, &str)], Auth); 6] = [
            (
                &[
                    ("basic.auth.credentials.source", "USER_INFO"),
                    ("basic.auth.user.info", "me:s:1"),
                ],
                basic(),
            ),
            (
                &[
                    ("basic.auth.credentials.source", "SASL_INHERIT"),
                    ("sasl.jaas.config", jaas),
                ],
                basic(),
            ),
            (
                &[
                    ("bearer.auth.credentials.source", "STATIC_TOKEN"),
                    ("bearer.auth.token", "t"),
                ],
                Auth::Bearer(Secret::new("t")),
            ),
            (
                &[
                    ("bearer.auth.credentials.source", "OAUTHBEARER"),
                    ("bearer.auth.issuer.endpoint.url", "http://l"),
                    ("bearer.auth.client.id", "c"),
                    ("bearer.auth.client.secret", "s"),
                    ("bearer.auth.scope", "r"),
                ],
                oauth("http://l", "c", "s", Some("r")),
            ),
            (
                &[
                    ("bearer.auth.credentials.source", "SASL_OAUTHBEARER_INHERIT"),
                    ("sasl.oauthbearer.token.endpoint.url", "http://l"),
                    (
                        "sasl.jaas.config",
                        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=\"c\" \
                         clientSecret=\"s\" scope=\"r\";",
                    ),
                ],
                oauth("http://l", "c", "s", Some("r")),
            ),
            // What has an option of its own is not taken from the module.
            (
                &[
                    ("bearer.auth.credentials.source", "SASL_OAUTHBEARER_INHERIT"),
                    ("sasl.oauthbearer.token.endpoint.url", "http://other"),
                    ("bearer.auth.issuer.endpoint.url", "http://l"),
                    ("bearer.auth.client.secret", "s"),
                    ("sasl.jaas.config", "a.B required clientId=c clientSecret=other;"),
                ],
                oauth("http://l", "c", "s", None),
            ),
        ];
        for (entries, expected) in cases {
            for prefix in ["", "schema.registry."] {
                let mut all = vec![("schema.registry.url".to_owned(), "http://r:8081")];
                all.extend(entries.iter().map(|(name, text)| (format!("{prefix}{name}"), *text)));
                for name in ["http.connect.timeout.ms", "http.read.timeout.ms", "proxy.port"] {
                    all.push((format!("{prefix}{name}"), "70"));
                }
                all.push((format!("{prefix}proxy.host"), "p"));
                let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), *text)).collect();
                let settings = settings(Family::Confluent, &all);
                assert_eq!(settings.auth, expected, "{prefix}");
                let millis = [settings.connect_timeout, settings.read_timeout].map(|limit| limit.as_millis());
                assert_eq!(millis, [70, 70], "{prefix}");
                assert!(
                    settings
                        .proxy
                        .as_ref()
                        .is_some_and(|proxy| proxy.host == "p" && proxy.port == 70)
                );
            }
        }
        // The name without the prefix has precedence.
        let entries = [
            ("schema.registry.url", "http://r:8081"),
            ("basic.auth.credentials.source", "USER_INFO"),
            ("schema.registry.basic.auth.credentials.source", "URL"),
            ("basic.auth.user.info", "me:s:1"),
            ("schema.registry.basic.auth.user.info", "you:other"),
        ];
        assert_eq!(settings(Family::Confluent, &entries).auth, basic());
    }

    /// The text is not told: somebody wrote a name and a password there.
    #[test]
    fn a_source_of_logins_that_the_java_client_does_not_know_means_no_login() {
        use crate::registry::Auth;
        let entries = [
            ("schema.registry.url", "http://me:s3cret@r:8081"),
            ("basic.auth.credentials.source", "me:s3cret"),
            ("schema.registry.basic.auth.user.info", "me:s3cret"),
        ];
        let entries = entries.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let options = Options::new("value.converter.", entries.into());
        let (converter, findings) = AvroConverter::from_options(Family::Confluent, ConverterType::Value, &options);
        assert_eq!(converter.expect("it is taken").link.settings.auth, Auth::None);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].contains("have no log-in"), "{texts:?}");
        assert!(!texts[0].contains("s3cret"), "{texts:?}");
    }

    #[test]
    fn certificates_may_have_the_names_of_apicurio_3() {
        use crate::registry::CertificateStore;
        let settings = settings(
            Family::Apicurio,
            &[
                ("apicurio.registry.url", "https://r:8080/apis/registry/v3"),
                ("apicurio.registry.tls.truststore.location", "/ca.pem"),
                ("apicurio.registry.tls.truststore.type", "PEM"),
                ("apicurio.registry.tls.keystore.location", "/me.p12"),
                ("apicurio.registry.tls.keystore.password", "s"),
            ],
        );
        let tls = &settings.tls;
        assert!(matches!(&tls.trusted, Some(CertificateStore::File { path, password: None }) if path == "/ca.pem"));
        assert!(matches!(&tls.identity, Some(CertificateStore::File { path, password: Some(_) }) if path == "/me.p12"));
    }

    #[test]
    fn only_what_would_trust_a_wrong_certificate_is_refused() {
        let url = ("apicurio.registry.url", "https://r:8080/apis/registry/v3");
        let safe = [
            ("apicurio.registry.tls.trust-all", "false"),
            ("apicurio.registry.tls.verify-host", "True"),
        ];
        settings(Family::Apicurio, &[url, safe[0], safe[1]]);
        for (name, value) in [("trust-all", "true"), ("verify-host", "false"), ("certificates", "x")] {
            let name = format!("apicurio.registry.tls.{name}");
            let entries = [(url.0, url.1), (&*name, value)];
            let entries = entries.map(|(name, text)| (name.to_owned(), text.to_owned()));
            let options = Options::new("value.converter.", entries.into());
            let (_, findings) = AvroConverter::from_options(Family::Apicurio, ConverterType::Value, &options);
            let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert!(
                matches!(&texts[..], [only] if only.contains(&name) && only.contains("not supported")),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn a_url_may_hold_name_and_password() {
        use crate::registry::Auth;
        let (avro, _) = converter(
            Family::Confluent,
            ConverterType::Value,
            &[("schema.registry.url", "https://me:s%40@r:8081/x/, http://other")],
        );
        let settings = &avro.link.settings;
        assert_eq!(settings.urls, ["https://r:8081/x", "http://other"]);
        assert!(matches!(&settings.auth, Auth::Urls(logins)
            if matches!(&logins[..], [Some((user, password)), None] if user == "me" && password.expose() == "s@")));
    }
}
