//! Amazon MSK with IAM, as far as it can be had without AWS: a real broker that checks the signature of each token.

use crate::outbox::{Outbox, assert_runs};
use crate::world;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use walferry_testkit::certificates::{Certificate, Wish};
use walferry_testkit::servers::{Msk, Surroundings, Walferry, WalferryOptions, folder, wait_for};

/// Seconds for which the broker takes a token, and for which credentials are given.
const AGE: u32 = 12;
const KEYS: [&str; 3] = ["ASIAPOD", "wJalr/XUtn+FEMI", "tok/en+=="];

/// A container's endpoint for credentials, as EKS Pod Identity has it. While it is `gone`, it has none.
fn pod_identity() -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}/v1/credentials", listener.local_addr().expect("it listens"));
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it listens");
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("it is open"));
            while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
            let knows_token = request.to_ascii_lowercase().contains("authorization: pod-token\r\n");
            let (status, body) = match is_gone.load(Relaxed) || !knows_token {
                true => ("503 Service Unavailable", json!({})),
                false => {
                    let ends = SystemTime::now() + Duration::from_secs(AGE.into());
                    let seconds = ends.duration_since(UNIX_EPOCH).expect("it is later").as_secs();
                    let [id, secret, token] = KEYS;
                    let ends = time(seconds);
                    let keys =
                        json!({"AccessKeyId": id, "SecretAccessKey": secret, "Token": token, "Expiration": ends});
                    ("200 OK", keys)
                }
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // Who asked may have gone.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    (url, gone)
}

/// As AWS writes it.
fn time(seconds: u64) -> String {
    let time = jiff::Timestamp::from_second(seconds.cast_signed()).expect("it is soon");
    time.to_string()
}

/// A certificate for 127.0.0.1 with its key, and the certificate alone.
fn certificate() -> (String, String) {
    let made = Certificate::make(&Wish::server(&["127.0.0.1"]), None);
    (made.key_pem() + &made.pem(), made.pem())
}

/// When the tokens were signed that the broker has accepted.
fn signed(msk: &Msk) -> BTreeSet<String> {
    let accepted = msk.decisions();
    accepted
        .iter()
        .filter_map(|line| Some(line.strip_prefix("accepted ASIAPOD ")?.to_owned()))
        .collect()
}

/// Both of Java's forms, in the worker file, for the producer, and for the consumer of signals.
#[test]
fn tokens_are_renewed_while_rows_flow_and_credentials_that_vanish_may_come_back() {
    let name = "msk";
    let world = world::shared();
    let (pem, authority) = certificate();
    let msk = Msk::start(&pem, &[&KEYS.join(" ")], AGE);
    let (url, gone) = pod_identity();
    let home = folder("home");
    let (trusted, token) = (home.join("authority.pem"), home.join("token"));
    fs::write(&trusted, authority).expect("the scratch folder can be written");
    fs::write(&token, "pod-token\n").expect("the scratch folder can be written");
    let trusted = trusted.to_string_lossy().into_owned();
    let outbox = Outbox::on(&world.postgres, &msk.kafka, name);
    let topic = outbox.topic("order");

    let amazon = "software.amazon.msk.auth.iam";
    let oauth = format!("{amazon}.IAMOAuthBearerLoginCallbackHandler");
    let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;";
    let mut config = outbox.config_with([
        ("topic.creation.default.partitions", "1"),
        ("topic.creation.default.replication.factor", "1"),
        ("signal.enabled.channels", "kafka"),
        ("signal.kafka.topic", "msk-signal"),
        ("signal.kafka.bootstrap.servers", &msk.login),
    ]);
    for prefix in ["producer.override.", "signal.consumer."] {
        for (property, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.jaas.config", module),
            ("sasl.login.callback.handler.class", &*oauth),
            ("sasl.client.callback.handler.class", &*oauth),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", &*trusted),
        ] {
            config.insert(format!("{prefix}{property}"), value.into());
        }
    }
    let mut worker = vec![
        "offset.flush.interval.ms=200".to_owned(),
        "security.protocol=SASL_SSL".into(),
        "sasl.mechanism=AWS_MSK_IAM".into(),
        format!("sasl.jaas.config={amazon}.IAMLoginModule required;"),
        format!("sasl.client.callback.handler.class={amazon}.IAMClientCallbackHandler"),
        "ssl.truststore.type=PEM".into(),
        format!("ssl.truststore.location={trusted}"),
        "group.id=msk".into(),
    ];
    for storage in ["config", "offset", "status"] {
        worker.push(format!("{storage}.storage.topic=msk-{storage}"));
        worker.push(format!("{storage}.storage.replication.factor=1"));
    }
    let env = |changes: &[(&str, &str)]| {
        let variables = [
            ("HOME", &*home.to_string_lossy()),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        let variables = variables.iter().chain(changes);
        variables
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    let options = WalferryOptions {
        name: name.to_owned(),
        config: config.clone(),
        worker,
        bootstrap: msk.login.clone(),
        env: env(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token.to_string_lossy()),
        ]),
    };
    msk.kafka.create_topic("msk-signal", 1);
    let mut walferry = Walferry::start_in(
        options.clone(),
        Surroundings {
            without_data_dir: true,
            ..Surroundings::default()
        },
    );
    outbox.wait_until_streaming(&mut walferry);

    // Rows flow for longer than a token is taken.
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        outbox.insert("k", sent, sent);
        sent
    };
    wait_for("several tokens", || {
        send();
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (signed(&msk).len() >= 3).then_some(())
    });
    let last = send();
    assert_runs(&msk.kafka.wait_for_records(&topic, last as usize), &["k"], last);
    assert!(!walferry.output().contains("WF0521"), "{}", walferry.output());

    // No credentials any more: old tokens are refused in the end, and rows wait.
    gone.store(true, Relaxed);
    wait_for("the broker to refuse an old token", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        msk.decisions().contains(&"refused expired".to_owned()).then_some(())
    });
    for part in [
        "WF0521",
        "no token for Amazon MSK: no credentials from the endpoint of the container: it answers with status 503",
    ] {
        wait_for(part, || walferry.output().contains(part).then_some(()));
    }
    let waiting = send();
    gone.store(false, Relaxed);
    assert_runs(&msk.kafka.wait_for_records(&topic, waiting as usize), &["k"], waiting);
    let signal = json!({"id": "s", "type": "log", "data": {"message": "a signal behind the log-in"}});
    msk.kafka.produce("msk-signal", &[(name, &signal.to_string())]);
    wait_for("the signal", || {
        walferry.output().contains("a signal behind the log-in").then_some(())
    });
    // Without a log-in, the process may have lost its turn on Connect's topics. Once it has stored an offset there, it has it again.
    send();
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let output = walferry.output();
    for secret in [KEYS[1], KEYS[2], "pod-token", "X-Amz-"] {
        assert!(!output.contains(secret), "{secret:?} is in:\n{output}");
    }

    // Wrong keys.
    let wrong = env(&[
        ("AWS_ACCESS_KEY_ID", KEYS[0]),
        ("AWS_SECRET_ACCESS_KEY", "barley"),
        ("AWS_SESSION_TOKEN", KEYS[2]),
    ]);
    let mut walferry = Walferry::start(WalferryOptions {
        worker: options.worker[..7].to_vec(),
        env: wrong,
        ..options
    });
    let code = walferry.wait();
    let output = walferry.output();
    assert_eq!(code, Some(2), "{output}");
    for part in ["WF0502", "Amazon MSK rejects the login", "kafka-cluster:Connect"] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    assert!(!output.contains("barley"), "{output}");
    assert!(msk.decisions().contains(&"refused wrong signature".to_owned()));
}
