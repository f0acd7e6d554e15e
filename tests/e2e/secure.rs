//! A server that asks for TLS and a password.

use crate::outbox::{Outbox, assert_runs};
use crate::reselect;
use crate::start;
use crate::world;
use std::fs;
use walferry_testkit::certificates::{Certificate, Wish};
use walferry_testkit::servers::{Checked, Kafka, Postgres, PostgresOptions, Walferry, folder, wait_for};

/// A server with a certificate for 127.0.0.1, and the certificate of the authority that signed it.
fn secure() -> (Postgres, String) {
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let own = Certificate::make(&Wish::server(&["127.0.0.1"]), Some(&authority));
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec!["ssl = on".into(), "password_encryption = 'scram-sha-256'".into()],
        hba: vec![
            "hostnossl all shop 127.0.0.1/32 reject".into(),
            "hostssl all shop 127.0.0.1/32 scram-sha-256".into(),
            "hostssl replication shop 127.0.0.1/32 scram-sha-256".into(),
        ],
        files: vec![("server.crt".into(), own.pem()), ("server.key".into(), own.key_pem())],
        ..PostgresOptions::default()
    });
    postgres
        .sql()
        .run("create role shop login replication superuser password 'open sesame'");
    (postgres, authority.pem())
}

#[test]
fn tls_and_scram_work_with_full_verification_and_fail_with_a_hint() {
    let world = world::shared();
    let (postgres, authority) = secure();
    let outbox = Outbox::on(&postgres, &world.kafka, "secure");
    let root = folder("authority").join("root.crt");
    fs::write(&root, authority).expect("the scratch folder can be written");
    let root = root.to_string_lossy().into_owned();
    let good = [
        ("database.user", "shop"),
        ("database.password", "open sesame"),
        ("database.sslmode", "verify-full"),
        ("database.sslrootcert", &root),
    ];
    let mut walferry = outbox.start_with(outbox.config_with(good));
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
    let tls = "select bool_and(ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) where a.usename = 'shop'";
    assert_eq!(outbox.database.sql().value(tls).as_deref(), Some("t"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let stranger = folder("stranger").join("root.crt");
    let of_stranger = Certificate::make(&Wish::authority("stranger"), None).pem();
    fs::write(&stranger, of_stranger).expect("the scratch folder can be written");
    let cases: [(&str, &str, &[&str]); 5] = [
        ("database.password", "open barley", &["password", "shop"]),
        ("database.sslmode", "disable", &["pg_hba.conf", "sslmode"]),
        ("database.sslrootcert", &stranger.to_string_lossy(), &["certificate"]),
        ("database.sslrootcert", "/nowhere/root.crt", &["/nowhere/root.crt"]),
        // The certificate is for 127.0.0.1.
        ("database.hostname", "localhost", &["localhost", "certificate"]),
    ];
    for (name, value, parts) in cases {
        let mut config = outbox.config_with(good);
        config.insert(name.into(), value.into());
        start::refused(&outbox, config.clone(), parts);
        let mut walferry = Walferry::start(outbox.options(config));
        let code = walferry.wait();
        let output = walferry.output();
        assert_eq!(code, Some(2), "{output}");
        for part in [&["hint:"], parts].concat() {
            assert!(
                output.contains(part),
                "{name}={value}: {part:?} is missing in:\n{output}"
            );
        }
        assert!(!output.contains("open "), "{output}");
    }
}

/// librdkafka's `ssl.crl.location`, as `database.sslcrl` for Postgres.
#[test]
fn a_revoked_broker_gets_no_record_and_a_list_is_never_passed_over() {
    let world = world::shared();
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let make = || Certificate::make(&Wish::server(&["127.0.0.1"]), Some(&authority));
    let (broker, other) = (make(), make());
    let stranger = Certificate::make(&Wish::authority("stranger"), None);
    let (kafka, tls) = Kafka::start_with_tls(&(broker.key_pem() + &broker.pem()), &[]);
    let outbox = Outbox::on(&world.postgres, &kafka, "revoked_broker");
    let home = folder("lists");
    let write = |name: &str, text: &str| {
        let file = home.join(name);
        fs::write(&file, text).expect("the scratch folder can be written");
        file.to_string_lossy().into_owned()
    };
    let trusted = write("trusted.pem", &authority.pem());
    let options = |list: &str| {
        let mut options = outbox.options(outbox.config_with([
            ("producer.override.security.protocol", "SSL"),
            ("producer.override.ssl.truststore.type", "PEM"),
            ("producer.override.ssl.truststore.location", &trusted),
            ("producer.override.ssl.crl.location", list),
        ]));
        options.bootstrap = tls.clone();
        options
    };
    let good = write("good.crl", &authority.revokes(&[&other], (-1, 1)));
    let checked = Checked::of(&options(&good), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let mut walferry = Walferry::start(options(&good));
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 3);
    assert_runs(&kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let revoked = write("revoked.crl", &authority.revokes(&[&broker], (-1, 1)));
    for list in [
        &revoked,
        &write("old.crl", &authority.revokes(&[&other], (-3, -1))),
        &write("of-another.crl", &stranger.revokes(&[&other], (-1, 1))),
        &write(
            "garbage.crl",
            "-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n",
        ),
        &write("certificate.crl", &authority.pem()),
        &write("empty.crl", ""),
    ] {
        let checked = Checked::of(&options(list), &[]);
        assert_eq!(checked.code, Some(2), "{list}: {}{}", checked.stdout, checked.stderr);
        assert!(
            checked.stdout.contains("ssl.crl.location"),
            "{list}: {}{}",
            checked.stdout,
            checked.stderr
        );
    }
    // What runs sends nothing, and says why.
    walferry.options().config = options(&revoked).config;
    walferry.start_again();
    outbox.insert("k", 4, 6);
    wait_for("the broker to be refused", || {
        walferry.output().contains("ssl.crl.location").then_some(())
    });
    walferry.terminate();
    assert_runs(&kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
    walferry.options().config = options(&good).config;
    walferry.start_again();
    assert_runs(&outbox.wait_for_event(&kafka, 6), &["k"], 6);
}

/// As the manual of Postgres makes certificates: of X.509 version 1. This one has a P-521 key, too.
#[test]
fn any_certificate_of_the_server_encrypts_and_plain_text_is_told() {
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec!["ssl = on".into()],
        hba: vec![
            "hostnossl all open 127.0.0.1/32 reject".into(),
            "hostssl all closed 127.0.0.1/32 reject".into(),
        ],
        files: vec![
            ("server.crt".into(), include_str!("secure/version-1.crt").into()),
            ("server.key".into(), include_str!("secure/version-1.key").into()),
        ],
        ..PostgresOptions::default()
    });
    postgres
        .sql()
        .run("create role open login replication superuser; create role closed login replication superuser");
    let outbox = Outbox::on(&postgres, &world.kafka, "secure_v1");
    let config = |user: &str, mode: Option<&str>| {
        let mut config = outbox.config_with([("database.user", user), ("database.hostname", "localhost")]);
        config.extend(mode.map(|mode| ("database.sslmode".to_owned(), mode.into())));
        config
    };
    let root = folder("version_1").join("root.crt");
    fs::write(&root, include_str!("secure/version-1.crt")).expect("the scratch folder can be written");
    // The default is `prefer`.
    for mode in [None, Some("require"), Some("verify-full")] {
        let mut config = config("open", mode);
        if mode == Some("verify-full") {
            config.insert("database.sslrootcert".into(), root.to_string_lossy().into());
        }
        let checked = Checked::of(&outbox.options(config), &[]);
        assert_eq!(checked.code, Some(0), "{mode:?}: {}{}", checked.stdout, checked.stderr);
        assert!(
            !checked.stdout.contains("not encrypted"),
            "{mode:?}: {}",
            checked.stdout
        );
    }
    let warnings = |walferry: &Walferry| {
        let metrics = walferry.get("/metrics").expect("the admin endpoint answers").body;
        let line = metrics.lines().find(|line| line.starts_with("walferry_warnings{"));
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
        count.expect("the metric has a number")
    };
    let mut walferry = outbox.start_with(config("open", None));
    let others = warnings(&walferry);
    let tls = "select bool_and(ssl) and count(*) > 1 from pg_stat_ssl s join pg_stat_activity a using (pid) where a.usename = 'open'";
    assert_eq!(outbox.database.sql().value(tls).as_deref(), Some("t"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    // The server does not want this role's connections to be encrypted.
    let told = "is not encrypted, although the server offers TLS";
    let checked = Checked::of(&outbox.options(config("closed", None)), &[]);
    assert!(checked.stdout.contains(told), "{}{}", checked.stdout, checked.stderr);
    assert!(
        checked.stdout.contains("set `database.sslmode` to `require`"),
        "{}",
        checked.stdout
    );
    let mut walferry = outbox.start_with(config("closed", None));
    assert_eq!(
        warnings(&walferry),
        others + 1,
        "the page shows it: {}",
        walferry.output()
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(walferry.output().matches(told).count(), 1, "{}", walferry.output());
}

/// As short-lived passwords are changed: on the server first, and a little later where the connector finds it.
#[test]
fn a_password_that_changes_is_asked_of_its_provider_again_until_it_works() {
    let world = world::shared();
    let (postgres, _) = secure();
    let outbox = Outbox::on(&postgres, &world.kafka, "secure_rotated");
    let file = folder("rotated").join("secret.properties");
    let write =
        |password: &str| fs::write(&file, format!("pw={password}\n")).expect("the scratch folder can be written");
    write("open sesame");
    let reference = format!("${{file:{}:pw}}", file.display());
    let config = outbox.config_with([("database.user", "shop"), ("database.password", &reference)]);
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 1);
    outbox.wait_for_event(&world.kafka, 1);
    postgres.sql().run(
        "alter role shop password 'open barley';
         select pg_terminate_backend(pid) from pg_stat_activity where usename = 'shop'",
    );
    let asked = "the config providers are asked again after a pause";
    wait_for("further tries", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (walferry.output().matches(asked).count() > 1).then_some(())
    });
    write("open barley");
    outbox.insert("k", 2, 2);
    outbox.wait_for_event(&world.kafka, 2);
    assert!(walferry.runs(), "{}", walferry.output());
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("open "), "{}", walferry.output());

    // A password that has never worked is no reason to wait.
    write("open wheat");
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
}

/// The replication session stays logged in with the old password. Only the connection that reads rows again has to log in, and is refused.
#[test]
fn a_password_that_changes_is_asked_again_when_only_reading_rows_is_refused() {
    let world = world::shared();
    let (postgres, _) = secure();
    let outbox = Outbox::on(&postgres, &world.kafka, "secure_rotated_rows");
    let sql = outbox.database.sql();
    sql.run(reselect::TABLE);
    let file = folder("rotated_rows").join("secret.properties");
    let write =
        |password: &str| fs::write(&file, format!("pw={password}\n")).expect("the scratch folder can be written");
    write("open sesame");
    let mut config = reselect::config(&outbox, "fail");
    config.insert("database.user".into(), "shop".into());
    config.insert(
        "database.password".into(),
        format!("${{file:{}:pw}}", file.display()).into(),
    );
    let mut walferry = outbox.start_with(config);
    let topic = outbox.topic("public.t");
    sql.run("update t set n = 2 where id = 1");
    world.kafka.wait_for_records(&topic, 1);
    sql.run(
        "alter role shop password 'open barley';
         select pg_terminate_backend(pid) from pg_stat_activity where usename = 'shop' and backend_type = 'client backend'",
    );
    sql.run("update t set n = 3 where id = 1");
    let asked = "the config providers are asked again after a pause";
    wait_for("further tries", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (walferry.output().matches(asked).count() > 1).then_some(())
    });
    write("open barley");
    let records = world.kafka.wait_for_records(&topic, 2);
    let value = records[1].value_text().expect("it is no tombstone");
    assert!(value.contains(&"a".repeat(3000)), "the column was read: {value}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("open "), "{}", walferry.output());
}

/// The stream goes on in its session, and everything else has to log in again: none of it may keep the old password.
#[test]
fn a_password_that_changes_is_asked_again_by_what_works_beside_the_stream() {
    let world = world::shared();
    let (postgres, _) = secure();
    let outbox = Outbox::on(&postgres, &world.kafka, "secure_rotated_beside");
    let sql = outbox.database.sql();
    sql.run(
        "create table beat (at timestamptz default now());
         alter table outbox add created_at timestamptz not null default now()",
    );
    let file = folder("rotated_beside").join("secret.properties");
    let write =
        |password: &str| fs::write(&file, format!("pw={password}\n")).expect("the scratch folder can be written");
    write("open sesame");
    let reference = format!("${{file:{}:pw}}", file.display());
    let mut walferry = outbox.start_with(outbox.config_with([
        ("database.user", "shop"),
        ("database.password", &reference),
        ("heartbeat.interval.ms", "200"),
        ("heartbeat.action.query", "insert into beat default values"),
        ("xmin.fetch.interval.ms", "100"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
    ]));
    let sessions = |walferry: &mut Walferry| {
        let known = "select string_agg(distinct application_name, ',' order by application_name) from pg_stat_activity
                     where usename = 'shop' and application_name not in ('Walferry Streaming', 'Walferry General')";
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let slots =
            "select count(*) from pg_stat_activity where usename = 'shop' and application_name = 'Walferry Slot Info'";
        let (names, slots) = (
            sql.value(known).unwrap_or_default(),
            sql.value(slots).unwrap_or_default(),
        );
        (names, slots)
    };
    let all = (
        "Walferry Cleanup,Walferry Heartbeat,Walferry Outbox Watch,Walferry Slot Info".to_owned(),
        "2".to_owned(),
    );
    wait_for("heartbeat, xmin, slots and outbox", || {
        (sessions(&mut walferry) == all).then_some(())
    });
    // From now on, the stream knows the table, and looks nothing up over a connection that has to log in.
    outbox.insert("k", 1, 1);
    outbox.wait_for_event(&world.kafka, 1);
    let stream = "select pid from pg_stat_activity where usename = 'shop' and backend_type = 'walsender'";
    let streamed = sql.value(stream);
    sql.run(
        "alter role shop password 'open barley';
         select pg_terminate_backend(pid) from pg_stat_activity where usename = 'shop' and backend_type = 'client backend'",
    );
    wait_for("a heartbeat that is refused", || {
        walferry
            .output()
            .contains("`heartbeat.action.query` failed")
            .then_some(())
    });
    write("open barley");
    wait_for("heartbeat, xmin, slots and outbox again", || {
        (sessions(&mut walferry) == all).then_some(())
    });
    let beats = || sql.value("select count(*) from beat");
    let before = beats();
    wait_for("another heartbeat", || (beats() != before).then_some(()));
    outbox.insert("k", 2, 2);
    outbox.wait_for_event(&world.kafka, 2);
    assert_eq!(sql.value(stream), streamed, "the stream has its first session");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("open "), "{}", walferry.output());
}
