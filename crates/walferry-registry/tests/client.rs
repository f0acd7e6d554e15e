//! The client against a registry that answers what each test wants.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use walferry_config::Secret;
use walferry_converter::registry::{
    Api, Auth, CertificateStore, ClientTls, Id, IdLookup, Ids, OAuth, Proxy, Registry, RegistryAnswer, RegistryRefusal,
    RegistrySettings, SchemaKind, SchemaReference, SchemaRequest, Subject,
};
use walferry_diagnosis::Severity;
use walferry_registry::Registries;

/// A server: `METHOD path` to status and body. Unknown paths are 404 without a body.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Mutex<HashMap<String, (u16, String)>>>,
    /// Answers that come before those, each once.
    first: Arc<Mutex<HashMap<String, (u16, String)>>>,
    /// What was asked: the first line, the authorization and the body.
    asked: Arc<Mutex<Vec<(String, String, String)>>>,
}

impl Fake {
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fake = Self::default();
        let served = fake.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                served.serve(&stream);
            }
        });
        (fake, url)
    }

    fn answer(&self, request: &str, status: u16, body: &str) {
        self.answers
            .lock()
            .unwrap()
            .insert(request.to_owned(), (status, body.to_owned()));
    }

    fn answer_once(&self, request: &str, status: u16, body: &str) {
        let answer = (status, body.to_owned());
        self.first.lock().unwrap().insert(request.to_owned(), answer);
    }

    fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }

    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut first, mut authorization, mut length) = (String::new(), String::new(), 0);
        reader.read_line(&mut first).ok()?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if let Some((name, value)) = line.trim_end().split_once(": ") {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse().ok()?,
                    "authorization" => authorization = value.to_owned(),
                    _ => {}
                }
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let first = self.first.lock().unwrap().remove(&request);
        let answer = first.or_else(|| self.answers.lock().unwrap().get(&request).cloned());
        let (status, text) = answer.unwrap_or((404, String::new()));
        let body = String::from_utf8(body).ok()?;
        self.asked.lock().unwrap().push((request, authorization, body));
        write!(
            stream,
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        )
        .ok()
    }
}

fn settings(api: Api, urls: Vec<String>) -> RegistrySettings {
    RegistrySettings {
        api,
        urls,
        auth: Auth::None,
        headers: Vec::new(),
        tls: ClientTls::default(),
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(5),
        id: Id::Content,
        proxy: None,
    }
}

fn request(lookup: IdLookup) -> SchemaRequest {
    SchemaRequest {
        subject: Subject {
            id: "shop.t-value".to_owned(),
            ..Subject::default()
        },
        kind: SchemaKind::Avro,
        schema: "\"int\"".to_owned(),
        lookup,
        references: Vec::new(),
    }
}

fn register() -> SchemaRequest {
    request(IdLookup::Register {
        normalize: false,
        if_exists: "RETURN_OR_UPDATE",
    })
}

/// What the client says in the end.
#[track_caller]
fn settled(client: &dyn Registry, request: &SchemaRequest) -> Result<Ids, RegistryRefusal> {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        match client.ids(request) {
            RegistryAnswer::Known(ids) => return Ok(ids),
            RegistryAnswer::Refused(refusal) => return Err(refusal),
            RegistryAnswer::Wait(wait) => drop(wait.wait_for(Duration::from_secs(5))),
        }
    }
    panic!("no answer");
}

const REGISTER: &str = "POST /subjects/shop.t-value/versions";

#[test]
fn a_schema_is_registered_once_and_its_id_kept() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    for _ in 0..3 {
        let ids = settled(&*client, &register()).unwrap();
        assert_eq!((ids.content, ids.global), (7, 7));
    }
    let asked = fake.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].2, r#"{"schema":"\"int\""}"#);
}

/// Confluent's registry computes the GUID from the schema.
#[test]
fn a_guid_is_what_the_registry_tells() {
    let cases = [
        (
            r#"{"id":7,"guid":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}"#,
            Some(*b"\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\x0a\x11"),
        ),
        (r#"{"id":7,"guid":"a0eebc99"}"#, None),
        (r#"{"id":7,"guid":"+0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}"#, None),
        (r#"{"id":7}"#, None),
    ];
    for (answer, expected) in cases {
        let (fake, url) = Fake::start();
        fake.answer(REGISTER, 200, answer);
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        assert_eq!(settled(&*client, &register()).unwrap().guid, expected, "{answer}");
    }
}

#[test]
fn what_may_pass_is_asked_again_and_what_is_in_the_way_is_told() {
    let (fake, url) = Fake::start();
    fake.answer(
        REGISTER,
        500,
        r#"{"error_code":50001,"message":"Error in the backend data store"}"#,
    );
    let client = Registries::default().of(&settings(Api::Confluent, vec![url.clone()]));
    let RegistryAnswer::Wait(wait) = client.ids(&register()) else {
        panic!("it cannot be known")
    };
    let until = Instant::now() + Duration::from_secs(60);
    let trouble = loop {
        match wait.trouble() {
            Some(trouble) => break trouble,
            None => assert!(Instant::now() < until && !wait.wait_for(Duration::from_millis(10))),
        }
    };
    assert_eq!(
        trouble.text,
        format!("the schema registry at {url} answers 500 Error in the backend data store")
    );
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
}

/// Its connector has been stopped, or its table dropped.
#[test]
fn what_no_record_waits_for_any_more_is_not_asked_for_ever() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 500, "");
    let client = Registries::checked_every(Duration::from_millis(300)).of(&settings(Api::Confluent, vec![url]));
    let RegistryAnswer::Wait(wait) = client.ids(&register()) else {
        panic!("nothing is known yet");
    };
    // It is asked for as long as somebody waits.
    let asked = fake.asked().len();
    wait_until("it is asked again and again", || fake.asked().len() >= asked + 2);
    drop(wait);
    wait_until("it is asked no more", || match client.ids(&register()) {
        // A new wait begins without a trouble.
        RegistryAnswer::Wait(wait) => wait.trouble().is_none(),
        _ => false,
    });
    // Who needs it asks anew.
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
}

/// Two clients register one artifact at the same moment: the registry tells one of them that it is there already.
#[test]
fn an_artifact_that_somebody_else_registers_at_the_same_moment_is_asked_for_again() {
    const REGISTER: &str = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
    let (fake, url) = Fake::start();
    let exists = r#"{"error_code":409,"message":"it already exists","name":"ArtifactAlreadyExistsException"}"#;
    fake.answer(REGISTER, 409, exists);
    let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url.clone()]));
    // It stays so: the artifact has a version of that name.
    let refusal = settled(&*client, &register()).unwrap_err();
    assert_eq!(refusal.what, "it has another schema there: it already exists");
    assert!(refusal.hint.unwrap().contains("if-exists"));
    assert_eq!(fake.asked().len(), 2, "it was asked once more");

    fake.answer_once(REGISTER, 409, exists);
    fake.answer(REGISTER, 200, r#"{"contentId":7,"globalId":8}"#);
    let other = Registries::default().of(&settings(Api::ApicurioV2, vec![url]));
    let ids = settled(&*other, &register()).unwrap();
    assert_eq!((ids.content, ids.global), (7, 8));
}

#[test]
fn a_refusal_has_the_registrys_words() {
    let (fake, url) = Fake::start();
    fake.answer(
        REGISTER,
        409,
        r#"{"error_code":409,"message":"field 'x' at path '/fields/1' has no default"}"#,
    );
    let find = "POST /subjects/shop.t-value";
    fake.answer(find, 404, r#"{"error_code":40403,"message":"Schema not found"}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    let refusal = settled(&*client, &register()).unwrap_err();
    assert_eq!(
        refusal.what,
        "the schema is incompatible with an earlier one: field 'x' at path '/fields/1' has no default"
    );
    let refusal = settled(&*client, &request(IdLookup::Find { normalize: false })).unwrap_err();
    assert_eq!(refusal.what, "it has no such schema: Schema not found");
    assert!(refusal.hint.unwrap().contains("auto.register.schemas=true"));
}

/// Answers of Apicurio Registry 3.3.3 under its rules for compatibility and for validity.
#[test]
fn a_rule_of_the_registry_that_forbids_a_schema_is_named() {
    const REGISTER: &str = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
    let (fake, url) = Fake::start();
    let refusal = |answer: &str| {
        fake.answer_once(REGISTER, 400, answer);
        let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url.clone()]));
        settled(&*client, &register()).unwrap_err()
    };
    let invalid = refusal(
        r#"{"causes":[],"message":"Syntax violation for Avro artifact.","error_code":400,
            "detail":"SchemaParseException: Illegal character in: x y","name":"RuleViolationException"}"#,
    );
    assert_eq!(
        invalid.what,
        "a rule of the registry forbids the schema: Syntax violation for Avro artifact. SchemaParseException: Illegal character in: x y"
    );
    assert!(invalid.hint.unwrap().contains("rules for validity"));
    let incompatible = refusal(
        r#"{"causes":[{"description":"f","context":"/fields/0"}],"error_code":400,"name":"RuleViolationException",
            "message":"Incompatible artifact: g [AVRO], num of incompatible diffs: {1}, list of diff types: [f at /fields/0]",
            "detail":"RuleViolationException: Incompatible artifact: g [AVRO], num of incompatible diffs: {1}, list of diff types: [f at /fields/0]"}"#,
    );
    assert_eq!(
        incompatible.what,
        "the schema is incompatible with an earlier one: Incompatible artifact: g [AVRO], num of incompatible diffs: {1}, list of diff \
         types: [f at /fields/0]; f at /fields/0"
    );
}

#[test]
fn a_404_that_is_not_the_registrys_is_no_refusal() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 404, "default backend - 404");
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    let RegistryAnswer::Wait(wait) = client.ids(&register()) else {
        panic!("it cannot be known")
    };
    assert!(!wait.wait_for(Duration::from_millis(500)));
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
}

#[test]
fn another_url_is_asked_where_one_does_not_answer() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    let (ill, ill_url) = Fake::start();
    ill.answer(REGISTER, 503, "");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = vec![format!("http://{nobody}"), ill_url, url];
    let client = Registries::default().of(&settings(Api::Confluent, urls));
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
}

/// A proxy that answers each request for a connection with this status, and then connects to one server, whatever is asked for. It notes
/// what was asked.
fn start_proxy(status: &'static str, server: &str) -> (Proxy, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, server) = (Arc::<Mutex<Vec<String>>>::default(), server.to_owned());
    let noted = asked.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            noted.lock().unwrap().push(String::from_utf8(head).unwrap());
            write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
            let mut upstream = TcpStream::connect(server.trim_start_matches("http://")).unwrap();
            let (mut from_client, mut to_server) = (stream.try_clone().unwrap(), upstream.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            thread::spawn(move || {
                let _ = std::io::copy(&mut upstream, &mut stream);
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let proxy = Proxy {
        host: "127.0.0.1".to_owned(),
        port,
        login: Some(("me".to_owned(), Secret::new("pw"))),
    };
    (proxy, asked)
}

/// Only the proxy knows the registry's host. Tokens come from elsewhere.
#[test]
fn a_registry_is_reached_through_a_proxy() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    fake.answer("POST /token", 200, r#"{"access_token":"abc","expires_in":300}"#);
    let (proxy, asked) = start_proxy("200 OK", &url);
    let settings = RegistrySettings {
        auth: Auth::OAuth(OAuth {
            token_url: format!("{url}/token"),
            client_id: "id".to_owned(),
            client_secret: Secret::new("secret"),
            scope: None,
        }),
        proxy: Some(proxy),
        ..settings(Api::Confluent, vec!["http://registry.invalid:8081".to_owned()])
    };
    let client = Registries::default().of(&settings);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(
        asked[0].starts_with("CONNECT registry.invalid:8081 HTTP/1.1\r\n"),
        "{asked:?}"
    );
    assert!(
        asked[0].contains("Proxy-Authorization: Basic bWU6cHc=\r\n"),
        "{asked:?}"
    );
}

#[test]
fn a_proxy_that_refuses_is_told_of() {
    let (_, url) = Fake::start();
    let (proxy, _) = start_proxy("403 Forbidden", &url);
    let settings = RegistrySettings {
        proxy: Some(proxy),
        ..settings(Api::Confluent, vec!["http://registry.invalid:8081".to_owned()])
    };
    let client = Registries::default().of(&settings);
    let refusal = refusal_of(&*client, &register());
    assert!(
        refusal.contains("registry.invalid:8081") && refusal.contains("proxy server responded 403"),
        "{refusal}"
    );
}

#[test]
fn the_latest_version_must_give_the_same_bytes() {
    let (fake, url) = Fake::start();
    let latest = "GET /subjects/shop.t-value/versions/latest";
    fake.answer(
        latest,
        200,
        r#"{"id":9,"version":3,"schema":"{\"type\":\"int\",\"doc\":\"by hand\"}"}"#,
    );
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    assert_eq!(settled(&*client, &request(IdLookup::Latest)).unwrap().content, 9);

    let (fake, url) = Fake::start();
    fake.answer(latest, 200, r#"{"id":9,"version":3,"schema":"\"long\""}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    assert_eq!(
        settled(&*client, &request(IdLookup::Latest)).unwrap_err().what,
        "its version does not match the record: the record has int, the registered schema long"
    );
}

#[test]
fn a_token_that_claims_to_live_for_ever_is_used() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    let token = format!(r#"{{"access_token":"abc","expires_in":{}}}"#, u64::MAX);
    fake.answer("POST /token", 200, &token);
    let settings = RegistrySettings {
        auth: Auth::OAuth(OAuth {
            token_url: format!("{url}/token"),
            client_id: "id".to_owned(),
            client_secret: Secret::new("secret"),
            scope: None,
        }),
        ..settings(Api::Confluent, vec![url])
    };
    settled(&*Registries::default().of(&settings), &register()).unwrap();
    assert_eq!(fake.asked().last().unwrap().1, "Bearer abc");
}

#[test]
fn name_and_password_and_tokens_are_sent() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    fake.answer("POST /token", 200, r#"{"access_token":"abc","expires_in":300}"#);
    let cases = [
        (
            Auth::Basic {
                user: "me".to_owned(),
                password: Secret::new("pw"),
            },
            "Basic bWU6cHc=",
        ),
        (Auth::Bearer(Secret::new("fixed")), "Bearer fixed"),
        (
            Auth::OAuth(OAuth {
                token_url: format!("{url}/token"),
                client_id: "id".to_owned(),
                client_secret: Secret::new("secret"),
                scope: Some("registry".to_owned()),
            }),
            "Bearer abc",
        ),
    ];
    for (auth, expected) in cases {
        let settings = RegistrySettings {
            auth,
            ..settings(Api::Confluent, vec![url.clone()])
        };
        settled(&*Registries::default().of(&settings), &register()).unwrap();
        let asked = fake.asked();
        assert_eq!(asked.last().unwrap().1, expected);
    }
    let token = fake.asked().into_iter().find(|(request, ..)| request == "POST /token");
    let (_, authorization, body) = token.unwrap();
    assert_eq!(authorization, "Basic aWQ6c2VjcmV0");
    assert_eq!(body, "grant_type=client_credentials&scope=registry");
}

/// Proxies repeat the header of a request, and registries the URL that they were given.
#[test]
fn no_answer_shows_what_was_sent_in_secret() {
    let pair = "bWU6aHVudGVyMg==";
    let answers = [
        (
            409,
            format!(r#"{{"error_code":409,"message":"Authorization: Basic {pair} may not"}}"#),
        ),
        (
            422,
            format!(
                r#"{{"name":"RuleViolationException","message":"{pair}","causes":[{{"description":"hunter2 is wrong","context":"x-key=k-hunter2"}}]}}"#
            ),
        ),
        (
            422,
            "<html>the header is basic bWU6aHVudGVyMg== and x-key k-hunter2</html>".to_owned(),
        ),
        (
            422,
            r#"{"error_code":50003,"message":"not reached: http:\/\/me:hunter2@registry:8081\/subjects"}"#.to_owned(),
        ),
        (422, format!("{}hunter2", "x".repeat(1_490))),
        (
            401,
            format!(r#"{{"error_code":401,"message":"unknown user me:hunter2, {pair}"}}"#),
        ),
        (500, format!("Bearer hunter2 or Basic {pair}")),
    ];
    for (status, text) in answers {
        let (fake, url) = Fake::start();
        fake.answer(REGISTER, status, &text);
        let settings = RegistrySettings {
            auth: Auth::Basic {
                user: "me".to_owned(),
                password: Secret::new("hunter2"),
            },
            headers: vec![("x-key".to_owned(), Secret::new("k-hunter2"))],
            ..settings(Api::Confluent, vec![url])
        };
        let refusal = refusal_of(&*Registries::default().of(&settings), &register());
        assert!(
            !refusal.contains("hunter") && !refusal.contains("bWU6"),
            "{text}: {refusal}"
        );
        assert!(
            refusal.contains("********") || refusal.contains("is not shown"),
            "{text}: {refusal}"
        );
    }
    // And where tokens are handed out.
    let (fake, url) = Fake::start();
    let answer = r#"{"error":"invalid_client","error_description":"id:hunter2 (aWQ6aHVudGVyMg==) is unknown"}"#;
    fake.answer("POST /token", 401, answer);
    let settings = RegistrySettings {
        auth: Auth::OAuth(OAuth {
            token_url: format!("{url}/token"),
            client_id: "id".to_owned(),
            client_secret: Secret::new("hunter2"),
            scope: None,
        }),
        ..settings(Api::Confluent, vec![url])
    };
    let refusal = refusal_of(&*Registries::default().of(&settings), &register());
    assert!(
        !refusal.contains("hunter2") && !refusal.contains("aWQ6") && refusal.contains("invalid_client"),
        "{refusal}"
    );
}

#[test]
fn a_registry_that_never_answers_is_told_of_when_the_limit_is_over() {
    // Connections are accepted by the system; nobody reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = RegistrySettings {
        read_timeout: Duration::from_secs(3600),
        ..settings(Api::Confluent, vec![url])
    };
    let registries = Registries::default().answering_within(Some(Duration::from_millis(200)));
    let refusal = refusal_of(&*registries.of(&settings), &register());
    assert!(refusal.contains("does not answer"), "{refusal}");
}

#[test]
fn a_silent_url_is_given_up_after_the_time_for_an_answer_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    let settings = RegistrySettings {
        connect_timeout: Duration::from_secs(3600),
        read_timeout: Duration::from_millis(200),
        ..settings(Api::Confluent, vec![silent, url])
    };
    let client = Registries::default().of(&settings);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
}

/// What the client tells of a request that does not succeed.
#[track_caller]
fn refusal_of(client: &dyn Registry, request: &SchemaRequest) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        match client.ids(request) {
            RegistryAnswer::Known(ids) => panic!("{ids:?}"),
            RegistryAnswer::Refused(refusal) => return format!("{refusal:?}"),
            RegistryAnswer::Wait(wait) => match wait.trouble() {
                Some(trouble) => return format!("{trouble:?}"),
                None => drop(wait.wait_for(Duration::from_millis(10))),
            },
        }
    }
    panic!("no answer");
}

#[test]
fn apicurios_interfaces_are_spoken() {
    let (fake, url) = Fake::start();
    let two = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
    fake.answer(two, 200, r#"{"id":"shop.t-value","globalId":5,"contentId":4}"#);
    let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url.clone()]));
    let ids = settled(&*client, &register()).unwrap();
    assert_eq!((ids.content, ids.global), (4, 5));
    assert_eq!(fake.asked()[0].2, "\"int\"");

    fake.answer(two, 200, r#"{"artifact":{},"version":{"globalId":15,"contentId":14}}"#);
    let client = Registries::default().of(&settings(Api::ApicurioV3, vec![url]));
    let ids = settled(&*client, &register()).unwrap();
    assert_eq!((ids.content, ids.global), (14, 15));
}

/// With `auto-register.if-exists=RETURN`, the second interface answers with the version that is there, whatever is registered.
#[test]
fn a_version_that_apicurio_returns_instead_of_ours_must_have_the_same_bytes() {
    const REGISTER: &str = "POST /groups/default/artifacts?ifExists=RETURN&canonical=false";
    let request = request(IdLookup::Register {
        normalize: false,
        if_exists: "RETURN",
    });
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"globalId":5,"contentId":4}"#);
    fake.answer("GET /ids/globalIds/5?dereference=true", 200, "\"string\"");
    let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url.clone()]));
    let refusal = settled(&*client, &request).unwrap_err();
    assert!(
        refusal.what.starts_with("its version does not match the record"),
        "{refusal:?}"
    );
    assert!(refusal.hint.unwrap().contains("if-exists"));

    fake.answer(
        "GET /ids/globalIds/5?dereference=true",
        200,
        r#"{"type":"int","doc":"by hand"}"#,
    );
    let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url]));
    assert_eq!(settled(&*client, &request).unwrap().global, 5);
}

/// Waiting would help nothing: the log-in may register and not read.
#[test]
fn a_version_that_apicurio_returns_and_hides_is_a_refusal_that_names_the_right() {
    let request = request(IdLookup::Register {
        normalize: false,
        if_exists: "RETURN",
    });
    for status in [401, 403] {
        let (fake, url) = Fake::start();
        let path = "POST /groups/default/artifacts?ifExists=RETURN&canonical=false";
        fake.answer(path, 200, r#"{"globalId":5,"contentId":4}"#);
        fake.answer("GET /ids/globalIds/5?dereference=true", status, "");
        let client = Registries::default().of(&settings(Api::ApicurioV2, vec![url]));
        let refusal = refusal_of(&*client, &request);
        assert!(
            refusal.starts_with("RegistryRefusal") && refusal.contains("the right to read schemas"),
            "{refusal}"
        );
        assert!(refusal.contains(&format!("answers {status}")), "{refusal}");
    }
}

/// The content is there, and the version that records name is another.
#[test]
fn the_id_that_records_carry_is_the_one_that_is_checked() {
    let (fake, url) = Fake::start();
    let path = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
    fake.answer(path, 200, r#"{"globalId":5,"contentId":4}"#);
    fake.answer("GET /ids/contentIds/4", 200, "\"int\"");
    fake.answer("GET /ids/globalIds/5", 200, "\"string\"");
    for (id, is_lost) in [(Id::Content, false), (Id::Global, true)] {
        let settings = RegistrySettings {
            id,
            ..settings(Api::ApicurioV2, vec![url.clone()])
        };
        let client = Registries::checked_every(Duration::from_millis(100)).of(&settings);
        settled(&*client, &register()).unwrap();
        let asked = if is_lost {
            "GET /ids/globalIds/5"
        } else {
            "GET /ids/contentIds/4"
        };
        let checks = || fake.asked().iter().filter(|(request, ..)| request == asked).count();
        wait_until("it is checked", || checks() > 1 || client.generation() > 0);
        assert_eq!(client.generation() > 0, is_lost, "{id:?}");
    }
}

/// Confluent's registry answers `PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL` and a path of its own.
#[test]
fn an_incompatible_json_schema_is_refused_with_the_first_property_that_differs() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 409, r#"{"error_code":409,"message":"incompatible"}"#);
    let theirs = r#"{"id":7,"schema":"{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"}}}"}"#;
    fake.answer("GET /subjects/shop.t-value/versions/latest", 200, theirs);
    fake.answer("GET /schemas/ids/7?subject=shop.t-value", 200, theirs);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    let request = SchemaRequest {
        kind: SchemaKind::Json,
        schema: r#"{"type":"object","properties":{"id":{"type":"integer"}}}"#.to_owned(),
        ..register()
    };
    let refusal = settled(&*client, &request).unwrap_err();
    assert_eq!(
        refusal.what,
        "the schema is incompatible with an earlier one: incompatible; beside the newest version, field id: the record has integer, \
         the registered schema string"
    );
}

#[test]
fn each_url_gets_the_login_that_stands_in_it() {
    let (first, ill) = Fake::start();
    let (second, url) = Fake::start();
    let (third, other) = Fake::start();
    for fake in [&first, &second] {
        fake.answer(REGISTER, 500, "");
    }
    third.answer(REGISTER, 200, r#"{"id":7}"#);
    let login = |user: &str, password: &str| Some((user.to_owned(), Secret::new(password)));
    let settings = RegistrySettings {
        auth: Auth::Urls(vec![login("a", "one"), None, login("c", "three")]),
        ..settings(Api::Confluent, vec![ill, url, other])
    };
    settled(&*Registries::default().of(&settings), &register()).unwrap();
    let sent = [first, second, third].map(|fake| fake.asked()[0].1.clone());
    assert_eq!(sent, ["Basic YTpvbmU=", "", "Basic Yzp0aHJlZQ=="]);
}

/// The second URL has no log-in, and the first one is away for a moment.
#[test]
fn a_url_that_forbids_a_request_is_not_the_only_one_asked_from_then_on() {
    for status in [401, 403] {
        let (first, url) = Fake::start();
        let (second, other) = Fake::start();
        first.answer(REGISTER, 503, "");
        second.answer(REGISTER, status, "");
        let client = Registries::default().of(&settings(Api::Confluent, vec![url, other]));
        let trouble = refusal_of(&*client, &register());
        assert!(trouble.contains(&format!("answers {status}")), "{trouble}");
        first.answer(REGISTER, 200, r#"{"id":7}"#);
        assert_eq!(settled(&*client, &register()).unwrap().content, 7);
    }
}

/// With `apicurio.registry.auto-register=false`.
#[test]
fn an_empty_search_is_no_such_schema_and_no_other_answer_ends_the_thread() {
    let find = request(IdLookup::Find { normalize: false });
    let search = "POST /search/versions?groupId=default&artifactId=shop.t-value&artifactType=AVRO&canonical=false&orderby=globalId\
                  &order=desc&limit=1";
    let register_path = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
    let (fake, url) = Fake::start();
    let client = Registries::default().of(&settings(Api::ApicurioV3, vec![url]));
    fake.answer(search, 200, r#"{"count":0,"versions":[]}"#);
    assert_eq!(settled(&*client, &find).unwrap_err().what, "it has no such schema");

    // Answers of something that is no registry. The same thread goes on asking.
    for answer in ["[]", "{}", r#"{"version":[],"versions":{}}"#, "<html>"] {
        for (path, request) in [(search, &find), (register_path, &register())] {
            let (fake, url) = Fake::start();
            fake.answer(path, 200, answer);
            let client = Registries::default().of(&settings(Api::ApicurioV3, vec![url]));
            let refusal = refusal_of(&*client, request);
            assert!(refusal.contains("has no id for shop.t-value"), "{answer}: {refusal}");
            fake.answer(
                search,
                200,
                r#"{"count":1,"versions":[{"globalId":15,"contentId":14}]}"#,
            );
            fake.answer(register_path, 200, r#"{"version":{"globalId":15,"contentId":14}}"#);
            assert_eq!(settled(&*client, request).unwrap().global, 15, "{answer}");
        }
    }
}

#[test]
fn types_that_a_schema_only_names_are_registered_before_it() {
    let reference = |name: &str, schema: &str, references| SchemaReference {
        name: name.to_owned(),
        subject: Subject {
            id: name.to_owned(),
            ..Subject::default()
        },
        schema: schema.to_owned(),
        references,
    };
    let point = reference("geo.Point", "POINT", Vec::new());
    let row = reference("a.t.Value", "ROW", vec![point]);
    let request = SchemaRequest {
        references: vec![row],
        ..register()
    };
    let version_fields = r#""groupId":"default","version":"3","contentId":5,"globalId":6"#;
    let cases = [
        (Api::ApicurioV2, format!("{{{version_fields}}}"), "POINT"),
        (
            Api::ApicurioV3,
            format!(r#"{{"version":{{{version_fields}}}}}"#),
            r#""content":"POINT""#,
        ),
    ];
    for (api, answer, first) in cases {
        let (fake, url) = Fake::start();
        let path = "POST /groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false";
        fake.answer(path, 200, &answer);
        let client = Registries::default().of(&settings(api, vec![url]));
        assert_eq!(settled(&*client, &request).unwrap().global, 6);
        let bodies: Vec<String> = fake.asked().into_iter().map(|(.., body)| body).collect();
        assert_eq!(bodies.len(), 3, "{bodies:?}");
        assert!(bodies[0].contains(first), "{bodies:?}");
        for (body, schema, name) in [(&bodies[1], "ROW", "geo.Point"), (&bodies[2], "\"int\"", "a.t.Value")] {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let body = match api {
                Api::ApicurioV3 => &body["firstVersion"]["content"],
                _ => &body,
            };
            let expected =
                serde_json::json!([{ "groupId": "default", "artifactId": name, "version": "3", "name": name }]);
            assert_eq!(body["content"], schema);
            assert_eq!(body["references"], expected);
        }
    }
}

#[test]
fn ids_are_looked_at_again_after_a_failure_and_all_are_lost_where_one_is() {
    let (fake, url) = Fake::start();
    fake.answer(REGISTER, 200, r#"{"id":7}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    settled(&*client, &register()).unwrap();
    assert_eq!(client.generation(), 0);

    // Away, and back with nothing: another schema is the first to notice.
    let other = SchemaRequest {
        subject: Subject {
            id: "other".to_owned(),
            ..Subject::default()
        },
        ..register()
    };
    fake.answer("POST /subjects/other/versions", 503, "");
    let RegistryAnswer::Wait(wait) = client.ids(&other) else {
        panic!("it cannot be known")
    };
    assert!(!wait.wait_for(Duration::from_millis(500)));
    fake.answer(
        "GET /schemas/ids/7?subject=shop.t-value",
        404,
        r#"{"error_code":40403,"message":"Schema not found"}"#,
    );
    fake.answer("POST /subjects/other/versions", 200, r#"{"id":1}"#);
    fake.answer(REGISTER, 200, r#"{"id":2}"#);
    assert_eq!(settled(&*client, &other).unwrap().content, 1);
    assert_eq!(client.generation(), 1);
    assert_eq!(settled(&*client, &register()).unwrap().content, 2);
}

fn of(subject: &str) -> SchemaRequest {
    SchemaRequest {
        subject: Subject {
            id: subject.to_owned(),
            ..Subject::default()
        },
        ..register()
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

const NOT_FOUND: &str = r#"{"error_code":40403,"message":"Schema not found"}"#;

/// It was emptied between two requests, so no request failed, and the newest schema is there: the client registered it afterwards.
#[test]
fn a_registry_emptied_unnoticed_is_found_out_though_the_newest_schema_is_there() {
    let (fake, url) = Fake::start();
    fake.answer("POST /subjects/first/versions", 200, r#"{"id":7}"#);
    let client = Registries::checked_every(Duration::from_millis(300)).of(&settings(Api::Confluent, vec![url]));
    fake.answer("GET /schemas/ids/7?subject=first", 200, r#"{"schema":"\"int\""}"#);
    settled(&*client, &of("first")).unwrap();

    fake.answer("GET /schemas/ids/7?subject=first", 404, NOT_FOUND);
    fake.answer("POST /subjects/second/versions", 200, r#"{"id":8}"#);
    fake.answer("GET /schemas/ids/8?subject=second", 200, r#"{"schema":"\"int\""}"#);
    settled(&*client, &of("second")).unwrap();
    wait_until("the loss is noticed", || client.generation() == 1);
    fake.answer("POST /subjects/first/versions", 200, r#"{"id":1}"#);
    assert_eq!(settled(&*client, &of("first")).unwrap().content, 1);
}

/// It comes back empty, answers one request, and is away again before the client could check what it still has.
#[test]
fn a_new_schema_waits_until_it_is_known_whether_the_registry_still_has_the_others() {
    let (fake, url) = Fake::start();
    fake.answer("POST /subjects/first/versions", 200, r#"{"id":7}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    settled(&*client, &of("first")).unwrap();

    fake.answer("POST /subjects/second/versions", 503, "");
    fake.answer("GET /schemas/ids/7?subject=first", 503, "");
    let RegistryAnswer::Wait(wait) = client.ids(&of("second")) else {
        panic!("it cannot be known")
    };
    wait_until("the trouble is told", || wait.trouble().is_some());
    fake.answer("POST /subjects/second/versions", 200, r#"{"id":1}"#);
    let asked = |request: &str| fake.asked().iter().any(|(asked, ..)| asked == request);
    wait_until("the check is tried", || asked("GET /schemas/ids/7?subject=first"));
    assert!(!wait.wait_for(Duration::from_millis(500)), "the check got no answer");
    fake.answer("GET /schemas/ids/7?subject=first", 404, NOT_FOUND);
    assert_eq!(settled(&*client, &of("second")).unwrap().content, 1);
    assert_eq!(client.generation(), 1);
}

/// It answers 500 to whatever names one subject, and the client has noticed that.
#[test]
fn one_known_schema_that_the_registry_cannot_show_holds_up_no_new_one() {
    let (fake, url) = Fake::start();
    for (subject, id) in [("first", 7), ("second", 8)] {
        let answer = format!(r#"{{"id":{id}}}"#);
        fake.answer(&format!("POST /subjects/{subject}/versions"), 200, &answer);
    }
    fake.answer("GET /schemas/ids/7?subject=first", 200, r#"{"schema":"\"int\""}"#);
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    settled(&*client, &of("first")).unwrap();
    settled(&*client, &of("second")).unwrap();

    fake.answer("GET /schemas/ids/8?subject=second", 500, "");
    fake.answer("POST /subjects/third/versions", 500, "");
    let RegistryAnswer::Wait(wait) = client.ids(&of("third")) else {
        panic!("it cannot be known")
    };
    wait_until("the trouble is told", || wait.trouble().is_some());
    fake.answer("POST /subjects/third/versions", 200, r#"{"id":9}"#);
    assert_eq!(settled(&*client, &of("third")).unwrap().content, 9);
    assert_eq!(client.generation(), 0);
}

/// The only known one cannot be shown, so nothing tells whether the registry lost its schemas.
#[test]
fn a_registry_that_registers_and_shows_nothing_is_waited_for_until_the_next_check() {
    let (fake, url) = Fake::start();
    fake.answer("POST /subjects/first/versions", 200, r#"{"id":7}"#);
    let client = Registries::checked_every(Duration::from_millis(300)).of(&settings(Api::Confluent, vec![url]));
    settled(&*client, &of("first")).unwrap();
    fake.answer("GET /schemas/ids/7?subject=first", 500, "");
    fake.answer("POST /subjects/second/versions", 500, "");
    let RegistryAnswer::Wait(wait) = client.ids(&of("second")) else {
        panic!("it cannot be known")
    };
    wait_until("the trouble is told", || wait.trouble().is_some());
    fake.answer("POST /subjects/second/versions", 200, r#"{"id":8}"#);
    assert_eq!(settled(&*client, &of("second")).unwrap().content, 8);
}

/// The log-in may register and not read. Java's client never reads an id, so it works there.
#[test]
fn a_login_that_may_not_read_schemas_registers_new_ones() {
    for status in [401, 403] {
        let (fake, url) = Fake::start();
        fake.answer("POST /subjects/first/versions", 200, r#"{"id":7}"#);
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        settled(&*client, &of("first")).unwrap();
        fake.answer("GET /schemas/ids/7?subject=first", status, "");
        fake.answer("POST /subjects/second/versions", 503, "");
        let RegistryAnswer::Wait(wait) = client.ids(&of("second")) else {
            panic!("it cannot be known")
        };
        wait_until("the trouble is told", || wait.trouble().is_some());
        fake.answer("POST /subjects/second/versions", 200, r#"{"id":8}"#);
        assert_eq!(settled(&*client, &of("second")).unwrap().content, 8, "{status}");
    }
}

/// Nobody may register, so an operator has to restore the registry. A refusal could set the record aside.
#[test]
fn a_schema_that_the_registry_has_lost_and_may_not_be_given_is_waited_for() {
    let (fake, url) = Fake::start();
    let find = "POST /subjects/shop.t-value";
    fake.answer(find, 200, r#"{"id":7}"#);
    let client = Registries::checked_every(Duration::from_millis(100)).of(&settings(Api::Confluent, vec![url]));
    let request = request(IdLookup::Find { normalize: false });
    settled(&*client, &request).unwrap();
    fake.answer(find, 404, NOT_FOUND);
    fake.answer("GET /schemas/ids/7?subject=shop.t-value", 404, NOT_FOUND);
    wait_until("the loss is noticed", || client.generation() == 1);
    let refusal = refusal_of(&*client, &request);
    assert!(
        refusal.contains("has lost the schema of shop.t-value") && refusal.contains("restore"),
        "{refusal}"
    );
    fake.answer(find, 200, r#"{"id":9}"#);
    assert_eq!(settled(&*client, &request).unwrap().content, 9);
}

/// The id of the newest version belongs to another schema in a registry that was filled anew.
#[test]
fn an_id_that_came_to_mean_another_schema_is_noticed_with_the_latest_version_too() {
    let (fake, url) = Fake::start();
    let latest = "GET /subjects/shop.t-value/versions/latest";
    fake.answer(
        latest,
        200,
        r#"{"id":9,"schema":"{\"type\":\"int\",\"doc\":\"by hand\"}"}"#,
    );
    let by_id = "GET /schemas/ids/9?subject=shop.t-value";
    fake.answer(by_id, 200, r#"{"schema":"{\"type\":\"int\",\"doc\":\"by hand\"}"}"#);
    let client = Registries::checked_every(Duration::from_millis(100)).of(&settings(Api::Confluent, vec![url]));
    settled(&*client, &request(IdLookup::Latest)).unwrap();
    let asked = || fake.asked().iter().filter(|(asked, ..)| asked == by_id).count();
    wait_until("it is checked", || asked() > 1);
    assert_eq!(client.generation(), 0, "it has more to say, and is the same bytes");
    fake.answer(by_id, 200, r#"{"schema":"\"string\""}"#);
    wait_until("the change is noticed", || client.generation() == 1);
}

#[test]
fn the_body_of_a_refusal_is_shown_only_where_a_registry_wrote_it() {
    let long = format!(
        r#"{{"error_code":403,"message":"no\r\n\u001b[31m{}"}}"#,
        "x".repeat(5_000)
    );
    for (body, visible, hidden) in [
        ("METADATA-SECRET <b>keys</b>", "not shown", "METADATA-SECRET"),
        (
            r#"{"AccessKeyId":"METADATA-SECRET","message":"METADATA-SECRET"}"#,
            "not shown",
            "METADATA-SECRET",
        ),
        (r#"["METADATA-SECRET"]"#, "not shown", "METADATA-SECRET"),
        (
            r#"{"error_code":40301,"message":"User is denied"}"#,
            "answers 403 User is denied",
            "not shown",
        ),
        (
            r#"{"name":"ForbiddenException","title":"User is denied"}"#,
            "answers 403 User is denied",
            "not shown",
        ),
        (&long, "u{1b}[31mxxx", "\u{1b}"),
    ] {
        let (fake, url) = Fake::start();
        fake.answer(REGISTER, 403, body);
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        let refusal = refusal_of(&*client, &register());
        assert!(
            refusal.contains(visible) && !refusal.contains(hidden),
            "{body}: {refusal}"
        );
        assert!(refusal.chars().count() < 2_000, "{refusal}");
    }
}

/// Many proxies answer JSON with a status, and a registry answers so where the URL lacks a part of the path.
#[test]
fn a_404_of_something_else_is_no_refusal_though_it_is_json() {
    for text in [
        r#"{"timestamp":"2024-02-29","status":404,"error":"Not Found","path":"/subjects"}"#,
        r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#,
        r#"{"title":"Could not find resource for full path","status":404,"name":"NotFoundException"}"#,
    ] {
        let (fake, url) = Fake::start();
        fake.answer(REGISTER, 404, text);
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        let refusal = refusal_of(&*client, &register());
        assert!(
            refusal.contains("answers 404") && refusal.contains("check its URL"),
            "{text}: {refusal}"
        );
    }
}

#[test]
fn types_of_other_subjects_are_followed_in_the_latest_version() {
    let (fake, url) = Fake::start();
    let of_type = |kind: &str| r#"{"type":"array","items":"a.Item"}"#.replace("\"a.Item\"", kind);
    let answer = |schema: &str, references: &str| {
        format!(
            r#"{{"id":9,"version":3,"schema":{},"references":[{references}]}}"#,
            serde_json::Value::from(schema)
        )
    };
    let item = r#"{"name":"a.Item","subject":"items","version":4}"#;
    let latest = answer(&of_type("\"a.Item\""), item);
    fake.answer("GET /subjects/shop.t-value/versions/latest", 200, &latest);
    fake.answer("GET /schemas/ids/9?subject=shop.t-value", 200, &latest);
    let declared = r#"{"type":"fixed","name":"Item","namespace":"a","size":4}"#;
    fake.answer("GET /subjects/items/versions/4", 200, &answer(declared, ""));
    let client = Registries::checked_every(Duration::from_millis(100)).of(&settings(Api::Confluent, vec![url]));
    let request = SchemaRequest {
        schema: of_type(declared),
        ..request(IdLookup::Latest)
    };
    assert_eq!(settled(&*client, &request).unwrap().content, 9);
    let checked = || {
        fake.asked()
            .iter()
            .filter(|(asked, ..)| asked.starts_with("GET /schemas/ids/9"))
            .count()
    };
    wait_until("it is checked", || checked() > 1);
    assert_eq!(client.generation(), 0, "it is still the same");
}

/// What a check tells: how much it matters, and the text with its hint.
fn checked(settings: &RegistrySettings) -> Vec<(Severity, String)> {
    let found = walferry_registry::check(settings).into_iter();
    found
        .map(|found| {
            (
                found.severity,
                format!("{} ({})", found.text, found.hint.unwrap_or_default()),
            )
        })
        .collect()
}

#[test]
fn a_check_asks_with_the_login_and_tells_what_is_in_the_way() {
    use Severity::{Error, Good, Warning};
    let cases = [
        (200, "[]", Good, "answers ("),
        (
            401,
            r#"{"error_code":401,"message":"Unauthorized"}"#,
            Error,
            "check the user name, password or token",
        ),
        (
            403,
            r#"{"error_code":40301,"message":"no"}"#,
            Warning,
            "the log-in may not list subjects",
        ),
        (404, "not here", Error, "check its URL"),
        (500, "", Error, "check the registry's log"),
        (
            200,
            "<html>Please log in</html>",
            Error,
            "is not a schema registry (check the URL",
        ),
    ];
    for (status, body, severity, expected) in cases {
        let (fake, url) = Fake::start();
        fake.answer("GET /subjects?limit=1", status, body);
        let settings = RegistrySettings {
            auth: Auth::Basic {
                user: "me".to_owned(),
                password: Secret::new("pw"),
            },
            ..settings(Api::Confluent, vec![url.clone()])
        };
        let findings = checked(&settings);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].0, severity, "{status}: {findings:?}");
        assert!(
            findings[0].1.contains(expected) && findings[0].1.contains(&url),
            "{status}: {findings:?}"
        );
        // Nothing is registered.
        let asked = fake.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].1, "Basic bWU6cHc=", "{status}");
    }
    for api in [Api::ApicurioV2, Api::ApicurioV3] {
        let (fake, url) = Fake::start();
        fake.answer("GET /search/artifacts?limit=1", 200, r#"{"artifacts":[],"count":0}"#);
        assert_eq!(checked(&settings(api, vec![url]))[0].0, Good, "{api:?}");
    }
}

#[test]
fn a_check_asks_each_url_and_one_that_answers_is_enough() {
    let (fake, url) = Fake::start();
    fake.answer("GET /subjects?limit=1", 200, "[]");
    let nobody = "http://127.0.0.1:1".to_owned();
    let findings = checked(&settings(Api::Confluent, vec![nobody.clone(), url]));
    let severities: Vec<Severity> = findings.iter().map(|(severity, _)| *severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Good], "{findings:?}");
    assert!(
        findings[0].1.contains("http://127.0.0.1:1 does not answer"),
        "{findings:?}"
    );
    let findings = checked(&settings(Api::Confluent, vec![nobody.clone(), nobody]));
    assert!(
        findings.len() == 2 && findings.iter().all(|finding| finding.0 == Severity::Error),
        "{findings:?}"
    );
}

#[test]
fn a_check_tells_of_a_login_or_a_keystore_that_cannot_be_used() {
    let (fake, url) = Fake::start();
    fake.answer("GET /subjects?limit=1", 200, "[]");
    fake.answer("POST /token", 401, r#"{"error":"invalid_client"}"#);
    let login = RegistrySettings {
        auth: Auth::OAuth(OAuth {
            token_url: format!("{url}/token"),
            client_id: "id".to_owned(),
            client_secret: Secret::new("hunter2"),
            scope: None,
        }),
        ..settings(Api::Confluent, vec![url.clone()])
    };
    let missing = || {
        Some(CertificateStore::File {
            path: "/nowhere/client.p12".to_owned(),
            password: Some(Secret::new("hunter2")),
        })
    };
    let keystore = |tls| RegistrySettings {
        tls,
        ..settings(Api::Confluent, vec![url.clone()])
    };
    let identity = ClientTls {
        identity: missing(),
        ..ClientTls::default()
    };
    let trusted = ClientTls {
        trusted: missing(),
        ..ClientTls::default()
    };
    for (settings, expected) in [
        (login, "invalid_client"),
        (keystore(identity), "/nowhere/client.p12 cannot be read"),
        (keystore(trusted), "/nowhere/client.p12 cannot be read"),
    ] {
        let findings = checked(&settings);
        assert!(findings.len() == 1 && findings[0].0 == Severity::Error, "{findings:?}");
        assert!(
            findings[0].1.contains(expected) && findings[0].1.contains("check the"),
            "{findings:?}"
        );
        assert!(!findings[0].1.contains("hunter2"), "{findings:?}");
    }
}

/// A server that answers one redirect after another. Returns what was asked of it, with all headers.
fn redirecting(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while reader.read_line(&mut head).unwrap_or(0) > 2 {}
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            reader.read_exact(&mut body).unwrap();
            seen.lock().unwrap().push(head.clone());
            let _ = stream.write_all(answer(&head).as_bytes());
        }
    });
    (url, asked)
}

#[test]
fn a_redirect_is_followed_only_to_the_same_server() {
    let (other, asked_there) =
        redirecting(|_| "HTTP/1.1 200 X\r\ncontent-length: 8\r\nconnection: close\r\n\r\n{\"id\":7}".to_owned());
    for (status, target) in [(301, "/x"), (302, "/x"), (303, "/x"), (307, "/x"), (308, "/x")] {
        let to = format!("{other}{target}");
        let leading = to.clone();
        let (url, _) = redirecting(move |_| {
            format!("HTTP/1.1 {status} X\r\nlocation: {leading}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        });
        for lookup in [register(), request(IdLookup::Latest)] {
            let with_secrets = RegistrySettings {
                auth: Auth::Basic {
                    user: "u".to_owned(),
                    password: Secret::new("BASIC-SECRET"),
                },
                headers: vec![("x-api-key".to_owned(), Secret::new("KEY-SECRET"))],
                ..settings(Api::Confluent, vec![url.clone()])
            };
            let client = Registries::default().of(&with_secrets);
            let refusal = refusal_of(&*client, &lookup);
            assert!(
                refusal.contains(&format!("answers {status} and redirects to {to}")),
                "{refusal}"
            );
        }
    }
    for odd in [
        "file:///etc/passwd",
        "//127.0.0.1:1/x",
        "http://u:p@127.0.0.1:1/x",
        "",
        "\u{9b}2J",
    ] {
        let (url, _) = redirecting(move |_| {
            format!("HTTP/1.1 302 X\r\nlocation: {odd}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        });
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        let refusal = refusal_of(&*client, &request(IdLookup::Latest));
        assert!(
            refusal.contains("answers 302") && !refusal.contains(|c: char| c.is_control()),
            "{odd}: {refusal}"
        );
    }
    assert_eq!(*asked_there.lock().unwrap(), Vec::<String>::new());

    let (url, asked) = redirecting(|head| match head.contains("/moved/") {
        true => "HTTP/1.1 200 X\r\ncontent-length: 8\r\nconnection: close\r\n\r\n{\"id\":7}".to_owned(),
        false => {
            "HTTP/1.1 307 X\r\nlocation: /moved/versions\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
        }
    });
    let with_key = RegistrySettings {
        headers: vec![("x-api-key".to_owned(), Secret::new("KEY-SECRET"))],
        ..settings(Api::Confluent, vec![url])
    };
    let client = Registries::default().of(&with_key);
    assert_eq!(settled(&*client, &register()).unwrap().content, 7);
    let asked = asked.lock().unwrap();
    assert!(
        asked.len() == 2
            && asked
                .iter()
                .all(|head| head.starts_with("POST ") && head.contains("KEY-SECRET")),
        "{asked:?}"
    );

    // A circle ends.
    let (url, asked) = redirecting(|_| {
        "HTTP/1.1 308 X\r\nlocation: /again\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
    });
    let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
    let refusal = refusal_of(&*client, &register());
    assert!(refusal.contains("redirects to /again"), "{refusal}");
    assert!(!asked.lock().unwrap().is_empty());
}

#[test]
fn an_id_that_no_registry_gives_is_no_id() {
    for id in [
        "-1",
        "2147483648",
        "9223372036854775808",
        "1e300",
        "\"5\"",
        "1.5",
        "null",
        "[1]",
        "{}",
    ] {
        let (fake, url) = Fake::start();
        fake.answer(REGISTER, 200, &format!("{{\"id\":{id}}}"));
        let client = Registries::default().of(&settings(Api::Confluent, vec![url]));
        let refusal = refusal_of(&*client, &register());
        assert!(refusal.contains("has no id for"), "{id}: {refusal}");
    }
}
