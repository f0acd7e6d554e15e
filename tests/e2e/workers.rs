//! Several processes with one worker file: who works, who stands by, and what each of them answers.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::{Value, json};
use walferry_config::{Options, Worker};
use walferry_kafka::connect::{
    ConnectTopics, GroupReader, Membership, Places, Standing, WORK_PARTITIONS, work_partition,
};
use walferry_testkit::certificates::{Certificate, Wish};
use walferry_testkit::servers::{
    Connect, Kafka, Surroundings, Walferry, WalferryOptions, Weather, folder, request_with, wait_for, walferry_program,
};

use crate::{
    outbox::{Outbox, assert_runs},
    takeover::{self, WORKER, wait_for_turn},
    world,
};

fn named(prefix: &str, topic: &str) -> Options {
    let entries = [("topic", topic), ("replication.factor", "1")];
    Options::new(
        prefix,
        entries.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
    )
}

/// The topics of a group on real Kafka.
pub(crate) fn topics(kafka: &Kafka, group: &str) -> ConnectTopics {
    topics_at(&kafka.bootstrap(), group)
}

fn topics_at(bootstrap: &str, group: &str) -> ConnectTopics {
    let worker = Worker {
        group_id: Some(group.into()),
        config_storage: named("config.storage.", "connect-configs"),
        offset_storage: named("offset.storage.", "connect-offsets"),
        status_storage: named("status.storage.", "connect-status"),
        ..Worker::default()
    };
    let topics = ConnectTopics::of(&worker, bootstrap).expect("they are right");
    topics.expect("they are named")
}

/// Releases what is asked back, as a worker does whose connectors have stopped.
fn release_all(members: &[&Membership]) {
    for member in members {
        let leaving = member.share().borrow().leaving.clone();
        if !leaving.is_empty() {
            member.release(leaving);
        }
    }
}

fn held(member: &Membership) -> Places {
    member.share().borrow().held.clone()
}

/// Waits until the members have everything among them, and nothing twice.
#[track_caller]
fn wait_until_shared(members: &[&Membership]) {
    wait_for("everything to be shared", || {
        release_all(members);
        let (mut partitions, mut leaders) = (Vec::new(), 0);
        for member in members {
            let share = member.share().borrow().clone();
            // One that has just joined has nothing until the others have released its part.
            if share.standing != Standing::Member || !share.leaving.is_empty() || share.held.is_empty() {
                return None;
            }
            partitions.extend(share.held.partitions);
            leaders += i32::from(share.held.leads);
        }
        let different: BTreeSet<i32> = partitions.iter().copied().collect();
        assert_eq!(
            different.len(),
            partitions.len(),
            "a partition has two owners: {partitions:?}"
        );
        (leaders == 1 && different.len() == WORK_PARTITIONS as usize).then_some(())
    });
}

#[test]
fn three_workers_of_a_group_share_everything_and_each_sees_who_has_what() {
    let kafka = Kafka::start();
    let topics = topics(&kafka, "shared");
    topics.ensure().expect("topics can be created");
    topics.ensure_work().expect("the work topic can be created");
    topics.ensure_work().expect("it is there");
    let join = |number: u16| {
        let address = format!("http://127.0.0.1:{number}");
        Membership::join(&topics, &address, true).expect("it can join")
    };
    let one = join(1);
    wait_until_shared(&[&one]);
    let before = held(&one);
    let two = join(2);
    wait_until_shared(&[&one, &two]);
    let three = join(3);
    wait_until_shared(&[&one, &two, &three]);
    for member in [&one, &two, &three] {
        let count = held(member).partitions.len();
        assert!((20..=23).contains(&count), "{count} of 64 partitions");
    }
    assert!(
        held(&one).partitions.is_subset(&before.partitions),
        "only what must move has moved"
    );

    // Each sees who has what, and so does somebody beside them.
    let expected: Vec<(Option<String>, Places)> = [(1, &one), (2, &two), (3, &three)]
        .map(|(number, member)| (Some(format!("http://127.0.0.1:{number}")), held(member)))
        .into();
    for member in [&one, &two, &three] {
        let mut view = member.view();
        wait_for("the members to be seen", || {
            let view = view.borrow_and_update().clone()?;
            let seen: Vec<_> = view
                .members
                .iter()
                .map(|member| (member.address.clone(), member.places.clone()))
                .collect();
            (view.is_settled && view.all_share() && seen == expected).then_some(())
        });
    }
    let mut reader = GroupReader::open(&topics).expect("a client");
    let view = reader.look().expect("the brokers tell it");
    assert_eq!(
        view.owner(0).map(|owner| owner.places.partitions.contains(&0)),
        Some(true)
    );
    assert!(view.of_connect.is_empty());

    // An orderly leave: the others have everything, and keep what they had.
    let (of_two, of_three) = (held(&two), held(&three));
    drop(one);
    wait_until_shared(&[&two, &three]);
    assert!(held(&two).partitions.is_superset(&of_two.partitions));
    assert!(held(&three).partitions.is_superset(&of_three.partitions));

    // A topic of another size would have workers disagree.
    kafka.grow_topic(&topics.work_topic(), 65);
    let refused = wait_for("the other size to be seen", || topics.ensure_work().err());
    assert!(refused.to_string().contains("65 partitions instead of 64"), "{refused}");
}

/// While partitions move, Kafka's client does not notice that the brokers have forgotten it.
#[test]
fn workers_that_are_cut_off_while_partitions_move_give_up_before_others_begin() {
    let (kafka, networks) = Kafka::start_with_networks(2);
    let plain = topics(&kafka, "cut");
    plain.ensure().expect("topics can be created");
    plain.ensure_work().expect("the work topic can be created");
    let join = |number: usize| {
        let topics = networks
            .get(number)
            .map(|network| format!("127.0.0.1:{}", network.port()));
        let topics = topics.map_or_else(|| plain.clone(), |bootstrap| topics_at(&bootstrap, "cut"));
        Membership::join(&topics, &format!("http://127.0.0.1:{number}"), true).expect("it can join")
    };
    let one = join(0);
    wait_until_shared(&[&one]);
    let two = join(1);
    wait_until_shared(&[&one, &two]);
    let three = join(2);
    let leaving = |member: &Membership| member.share().borrow().leaving.clone();
    wait_for("both to be asked for a part", || {
        (!leaving(&one).is_empty() && !leaving(&two).is_empty()).then_some(())
    });
    // The first one releases it, joins again, and waits for the second one, which does not release anything.
    one.release(leaving(&one));
    wait_for("the release", || leaving(&one).is_empty().then_some(()));
    let mut reader = GroupReader::open(&plain).expect("a client");
    wait_for("the group to wait", || {
        reader.look().ok().filter(|view| !view.is_settled)
    });
    networks.iter().for_each(|network| network.set(Weather::Frozen));

    let is_lost = |member: &Membership| member.share().borrow().standing == Standing::Lost;
    wait_for("both to give up", || {
        let of_three = held(&three);
        for member in [&one, &two] {
            let share = member.share().borrow().clone();
            let mut has: BTreeSet<i32> = share.held.partitions;
            has.extend(share.leaving.partitions);
            assert!(has.is_disjoint(&of_three.partitions), "two have {has:?}, {of_three:?}");
        }
        (is_lost(&one) && is_lost(&two)).then_some(())
    });
    wait_until_shared(&[&three]);
    networks.iter().for_each(|network| network.set(Weather::Fair));
}

/// The answer of `walferry workers`, as JSON.
fn listed(walferry: &Walferry, kafka: &Kafka) -> Value {
    let bootstrap = kafka.bootstrap();
    let listed = walferry.command_at([
        "workers",
        "--worker",
        "worker.properties",
        "--bootstrap-servers",
        &bootstrap,
        "--output",
        "json",
    ]);
    assert!(listed.status.success(), "{listed:?}");
    serde_json::from_slice(&listed.stdout).expect("it is JSON")
}

#[test]
fn a_process_that_waits_answers_connects_rest_api_through_the_one_that_works() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let (one, of_file) = (
        Outbox::on(&world.postgres, &kafka, "passed_on"),
        Outbox::on(&world.postgres, &kafka, "passed_on_file"),
    );
    // One that has connectors of files does not share: others need not have these files.
    let mut first = Walferry::start_in(
        WalferryOptions {
            worker: WORKER.iter().map(ToString::to_string).collect(),
            ..of_file.options(of_file.config())
        },
        Surroundings {
            without_data_dir: true,
            ..Surroundings::default()
        },
    );
    wait_for_turn(&mut first);
    let mut second = takeover::start(&kafka, "passed_on_second");
    wait_for("the second one to wait", || {
        second.get("/connectors").filter(|answer| answer.status == 200)
    });

    // A connector is created, looked at, changed and stopped by requests to the one that waits.
    let body = json!({ "name": "one", "config": one.config() });
    let created = second.send("POST", "/connectors", &body).expect("an answer");
    assert_eq!(created.status, 201, "{}", created.body);
    let again = second.send("POST", "/connectors", &body).expect("an answer");
    assert_eq!(
        (again.status, again.json()["message"].clone()),
        (409, "Connector one already exists".into())
    );
    one.wait_until_streaming(&mut first);
    one.insert("k", 1, 5);
    kafka.wait_for_records(&one.topic("order"), 5);
    for path in [
        "/connectors",
        "/connectors?expand=info",
        "/connectors/one/config",
        "/connectors/none/status",
        "/connector-plugins",
    ] {
        let (here, there) = (
            second.get(path).expect("an answer"),
            first.get(path).expect("an answer"),
        );
        assert_eq!((here.status, here.body), (there.status, there.body), "{path}");
    }
    let status = second.get("/connectors/one/status").expect("an answer").json();
    assert_eq!(status["connector"]["worker_id"], first.admin(), "it says who runs it");
    let malformed = second
        .send("PUT", "/connectors/one/config", &json!(["x"]))
        .expect("an answer");
    assert_eq!(malformed.status, 500, "as the other one answers: {}", malformed.body);
    for (method, path, code) in [
        ("PUT", "/connectors/one/pause", 202),
        ("PUT", "/connectors/one/resume", 202),
        ("POST", "/connectors/one/restart?includeTasks=true", 202),
        ("PUT", "/connectors/one/stop", 204),
    ] {
        assert_eq!(second.ask(method, path).expect("an answer").status, code, "{path}");
    }
    wait_for("the connector to be stopped", || {
        (takeover::state(first.port(), "one")? == "STOPPED").then_some(())
    });
    let offsets = second.get("/connectors/one/offsets").expect("an answer").json();
    assert_eq!(offsets["offsets"][0]["partition"]["server"], "passed_on", "{offsets}");
    assert_eq!(
        second.ask("PUT", "/connectors/one/resume").expect("an answer").status,
        202
    );

    // What is about the process itself, it answers itself.
    for path in ["/ready", "/slots"] {
        assert_eq!(second.get(path).expect("an answer").status, 503, "{path}");
    }
    let once = second.get("/connectors?forward=false").expect("an answer");
    assert!(
        once.status == 409 && once.body.contains("conflicting operation"),
        "{}",
        once.body
    );

    let of = |walferry: &Walferry| {
        let workers = listed(&second, &kafka);
        let address = format!("http://{}", walferry.admin());
        let all = workers["workers"].as_array().expect("a list");
        let found = all.iter().find(|worker| worker["address"] == address);
        found.unwrap_or_else(|| panic!("{address}: {workers}")).clone()
    };
    // Who runs a connector is in the status topic, a moment after the connector runs again.
    wait_for("the connector to be listed where it runs", || {
        (of(&first)["connectors"] == json!(["one", "passed_on_file"])).then_some(())
    });
    assert_eq!(of(&first)["role"], "active");
    assert_eq!(
        (&of(&second)["role"], &of(&second)["connectors"]),
        (&json!("standby"), &json!([]))
    );

    // Nobody works until the first one's membership has ended.
    first.kill();
    let between = second.get("/connectors").expect("an answer");
    assert!([200, 409, 500].contains(&between.status), "{}", between.body);
    wait_for_turn(&mut second);
    one.wait_until_streaming(&mut second);
    one.insert("k", 6, 9);
    assert_runs(&one.wait_for_event(&kafka, 9), &["k"], 9);
    // One that does not share gets the lead, because the other has the rest. It works for all then.
    first.start_again();
    wait_for("the first one to work again", || {
        let status = second
            .get("/connectors/one/status")
            .filter(|answer| answer.status == 200)?
            .json();
        (status["connector"]["worker_id"] == first.admin()).then_some(())
    });
    one.insert("k", 10, 12);
    assert_runs(&one.wait_for_event(&kafka, 12), &["k"], 12);
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
    let nobody = listed(&first, &kafka);
    assert_eq!(nobody["workers"], json!([]), "{nobody}");
}

#[test]
fn a_login_goes_along_with_a_request_that_is_passed_on() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let one = Outbox::on(&world.postgres, &kafka, "logged_in_on");
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    fs::write(&users, "ops=s3cret\nviewer=l00k,read\n").expect("a file");
    let start = |name: &str| {
        let users = format!("walferry.rest.users.file={}", users.display());
        let options = WalferryOptions {
            name: name.into(),
            config: serde_json::Map::new(),
            worker: WORKER.iter().map(ToString::to_string).chain([users]).collect(),
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        };
        Walferry::start_in(
            options,
            Surroundings {
                is_worker: true,
                without_data_dir: true,
                ..Surroundings::default()
            },
        )
    };
    // Base64 of `ops:s3cret`, of `viewer:l00k` and of `ops:wrong`.
    let (ops, viewer, wrong) = ("b3BzOnMzY3JldA==", "dmlld2VyOmwwMGs=", "b3BzOndyb25n");
    let ask = |walferry: &Walferry, method: &str, path: &str, login: &str, body: Option<&Value>| {
        let header = format!("Authorization: Basic {login}");
        request_with(walferry.port(), method, path, &[&header], body)
    };
    let first = start("logged_in_first");
    wait_for("the first one to work", || {
        ask(&first, "GET", "/slots", ops, None).filter(|answer| answer.status == 200)
    });
    let second = start("logged_in_second");
    wait_for("the second one to pass requests on", || {
        ask(&second, "GET", "/connectors", ops, None).filter(|answer| answer.status == 200)
    });
    let config = Value::Object(one.config());
    // As in Connect, nobody knows the leader while workers rebalance.
    let put = |login: &str| {
        wait_for("an answer", || {
            let answer = ask(&second, "PUT", "/connectors/one/config", login, Some(&config))?;
            (answer.status != 409).then_some(answer.status)
        })
    };
    assert_eq!((put(wrong), put(viewer), put(ops)), (401, 403, 201));
    let seen = ask(&second, "GET", "/connectors", viewer, None).map(|answer| answer.body);
    assert_eq!(seen.as_deref(), Some(r#"["one"]"#));
    assert_eq!(second.get("/connectors").map(|answer| answer.status), Some(401));
}

/// A broker is down for a while in each rolling restart of a cluster.
#[test]
fn workers_are_seen_while_a_broker_that_does_not_coordinate_them_is_down() {
    let kafka = Kafka::start();
    let topics = topics(&kafka, "brokers");
    topics.ensure().expect("the topics can be created");
    topics.ensure_work().expect("the work topic can be created");
    let member = Membership::join(&topics, "http://a:8083", true).expect("it can join");
    wait_until_shared(&[&member]);
    let mut other = kafka.start_beside();
    let mut reader = GroupReader::open(&topics).expect("a client");
    reader.look().expect("both brokers answer");
    other.stop(true);
    let view = reader.look().expect("the broker that coordinates the group answers");
    let leader = view.leader().and_then(|leader| leader.address.as_deref());
    assert_eq!((leader, view.is_settled), (Some("http://a:8083"), true), "{view:?}");
}

/// Workers whose REST API speaks TLS. The port comes from the environment, as in a container.
#[test]
fn requests_are_passed_on_over_tls_to_workers_whose_authority_is_trusted() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let outbox = Outbox::on(&world.postgres, &kafka, "passed_on_over_tls");
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let own = Certificate::make(&Wish::server(&["127.0.0.1"]), Some(&authority));
    let stranger = Certificate::make(&Wish::authority("stranger"), None);
    let home = folder("tls_workers");
    let write = |name: &str, text: &str| {
        let file = home.join(name);
        fs::write(&file, text).expect("the scratch folder can be written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        file.display().to_string()
    };
    let store = write("own.pem", &(own.key_pem() + &own.pem()));
    let (trusted, untrusted) = (
        write("ca.pem", &authority.pem()),
        write("stranger.pem", &stranger.pem()),
    );
    let (users, password) = (write("users", "ops=s3cret\n"), write("password", "s3cret\n"));
    let start = |name: &str, truststore: &str| {
        let lines = [
            "config.providers=env".to_owned(),
            "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider".to_owned(),
            "listeners=https://127.0.0.1:${env:REST_PORT}".to_owned(),
            "rest.advertised.listener=https".to_owned(),
            "listeners.https.ssl.keystore.type=PEM".to_owned(),
            format!("listeners.https.ssl.keystore.location={store}"),
            "listeners.https.ssl.truststore.type=PEM".to_owned(),
            format!("listeners.https.ssl.truststore.location={truststore}"),
            format!("walferry.rest.users.file={users}"),
        ];
        let options = WalferryOptions {
            name: name.into(),
            config: serde_json::Map::new(),
            worker: WORKER.iter().map(ToString::to_string).chain(lines).collect(),
            bootstrap: kafka.bootstrap(),
            env: vec![("REST_PORT".into(), "@PORT@".into())],
        };
        let bootstrap = kafka.bootstrap();
        let line = [
            "run",
            "--worker",
            "worker.properties",
            "--bootstrap-servers",
            &bootstrap,
        ];
        Walferry::start_in(
            options,
            Surroundings {
                command_line: Some(line.map(str::to_owned).into()),
                ..Surroundings::default()
            },
        )
    };
    // Exit code and all output of a command that an operator gives to one of them.
    let operate = |walferry: &Walferry, arguments: &[&str]| {
        let url = format!("https://127.0.0.1:{}", walferry.port());
        let mut command = Command::new(walferry_program());
        command.args(arguments).args(["--url", &url, "--ca", &trusted]);
        command.args(["--user", "ops", "--password-file", &password]);
        let output = command.output().expect("the program can be run");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), text.concat())
    };
    let wait_until_done = |walferry: &Walferry, arguments: &[&str]| {
        wait_for(&format!("{arguments:?} to be done"), || {
            let (code, output) = operate(walferry, arguments);
            // A certificate that is not trusted stays so. Whatever else is in the way goes by.
            let is_refused = |line: &str| line.trim_start().starts_with("cause:") && line.contains("certificate");
            assert!(code == Some(0) || !output.lines().any(is_refused), "{output}");
            (code == Some(0)).then_some(())
        });
    };
    let first = start("tls_first", &trusted);
    wait_until_done(&first, &["list"]);
    let second = start("tls_second", &trusted);
    wait_until_done(&second, &["list"]);
    let file = write(
        "one.json",
        &json!({ "name": "one", "config": Value::Object(outbox.config()) }).to_string(),
    );
    // One of both is the leader, and one of both owns the connector.
    wait_until_done(&second, &["apply", "-f", &file]);
    for walferry in [&first, &second] {
        wait_until_done(walferry, &["pause", "one", "--wait"]);
        wait_until_done(walferry, &["resume", "one", "--wait"]);
        wait_until_done(walferry, &["restart", "one"]);
    }

    // It is a member, too, but does not trust the others' certificates.
    let third = start("tls_third", &untrusted);
    wait_until_done(&third, &["list"]);
    let mut reader = GroupReader::open(&topics(&kafka, "walferry-test")).expect("a client");
    let view = wait_for("three members", || {
        reader
            .look()
            .ok()
            .filter(|view| view.is_settled && view.members.len() == 3)
    });
    let of_third = format!("https://127.0.0.1:{}", third.port());
    let is_of_others = |name: &String| {
        let owner = view.owner(work_partition(name));
        owner.is_some_and(|owner| owner.address.as_ref() != Some(&of_third))
    };
    let other = (0..)
        .map(|number| format!("c{number}"))
        .find(is_of_others)
        .expect("the third one has a part");
    let its_outbox = Outbox::on(&world.postgres, &kafka, "passed_on_to_a_stranger");
    let file = write(
        "other.json",
        &json!({ "name": other, "config": Value::Object(its_outbox.config()) }).to_string(),
    );
    wait_until_done(&first, &["apply", "-f", &file]);
    let refused = wait_for("the third one to ask the owner", || {
        let (code, output) = operate(&third, &["restart", &other]);
        (code != Some(0) && output.contains("forward")).then_some(output)
    });
    assert!(
        refused.contains("certificate") && refused.contains("ssl.truststore.location of the listeners"),
        "{refused}"
    );
}

#[test]
fn a_second_process_with_one_connector_ends_with_4_and_is_told_of_the_worker_file() {
    let world = world::shared();
    let kafka = Kafka::start();
    let outbox = Outbox::on(&world.postgres, &kafka, "run_twice");
    // So soon it is clear that the first process is alive, and that it stays.
    let quick = [
        ("status.update.interval.ms", "100"),
        ("slot.max.retries", "1"),
        ("slot.retry.delay.ms", "500"),
    ];
    let mut walferry = Walferry::start(WalferryOptions {
        name: "run_twice".into(),
        config: outbox.config_with(quick),
        worker: WORKER[..3].iter().map(ToString::to_string).collect(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    });
    outbox.wait_until_streaming(&mut walferry);
    let bootstrap = kafka.bootstrap();
    for (folder, code, what) in [
        ("data", "WF0601", "in use by another process"),
        (
            "data-of-its-own",
            "WF0325",
            "is read by another Walferry process, which is alive",
        ),
    ] {
        let second = walferry.command_at([
            "run",
            "--config",
            "connector.json",
            "--worker",
            "worker.properties",
            "--data-dir",
            folder,
            "--admin",
            "127.0.0.1:0",
            "--bootstrap-servers",
            &bootstrap,
        ]);
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(4), "{folder}: {said}");
        for text in [code, what, "walferry run --worker FILE"] {
            assert!(said.contains(text), "{folder}: {text}: {said}");
        }
    }
    outbox.insert("k", 1, 3);
    assert_runs(&kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
}

#[test]
fn check_warns_of_an_address_that_other_workers_cannot_reach() {
    let kafka = Kafka::start();
    let mut first = takeover::start(&kafka, "reached_first");
    wait_for_turn(&mut first);
    let bootstrap = kafka.bootstrap();
    let check = |worker: &str| {
        let checked = first.command_at(["check", "--worker", worker, "--bootstrap-servers", &bootstrap]);
        String::from_utf8_lossy(&checked.stdout).into_owned()
    };
    let checked = check("worker.properties");
    assert!(
        checked.contains("could be reached only from its own machine, at 127.0.0.1"),
        "{checked}"
    );
    assert!(checked.contains("set rest.advertised.host.name"), "{checked}");
    let known = first.config_file().with_file_name("known.properties");
    let lines = WORKER.join("\n") + "\nrest.advertised.host.name=worker-1.example.com\n";
    fs::write(known, lines).expect("the scratch folder can be written");
    let checked = check("known.properties");
    assert!(!checked.contains("could be reached only"), "{checked}");
}

/// It would run the same connectors. Whoever looks for workers sees it.
#[test]
fn a_worker_of_kafka_connect_in_the_group_is_listed_as_one() {
    let kafka = Kafka::start();
    let connect = Connect::start(&kafka);
    let folder = walferry_testkit::servers::folder("beside_connect");
    fs::write(folder.join("worker.properties"), WORKER.join("\n")).expect("the scratch folder can be written");
    let list = |format: &str| {
        let listed = Command::new(walferry_program())
            .args(["workers", "--worker", "worker.properties", "--output", format])
            .args(["--bootstrap-servers", &kafka.bootstrap()])
            .current_dir(&folder)
            .output()
            .expect("the program can be run");
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    let listed: Value = serde_json::from_str(&list("json")).expect("it is JSON");
    let of_connect = listed["kafka_connect"].as_array().expect("a list");
    assert_eq!((of_connect.len(), &listed["workers"]), (1, &json!([])), "{listed}");
    assert!(
        of_connect[0]
            .as_str()
            .is_some_and(|worker| worker.ends_with("/127.0.0.1")),
        "{listed}"
    );
    let table = list("table");
    assert!(table.contains("(Kafka Connect)"), "{table}");
    connect.discard();
}
