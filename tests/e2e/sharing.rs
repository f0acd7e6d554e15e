//! Several workers share the connectors of one group: who runs what, and what happens when one ends, hangs or joins.

use std::{cell::RefCell, collections::BTreeSet, net::TcpListener, time::Instant};

use serde_json::{Value, json};
use walferry_kafka::connect::{GroupReader, GroupView, work_partition};
use walferry_testkit::servers::{Kafka, Network, Record, Walferry, Weather, wait_for};

use crate::{
    hostile_member::{CLIENT_ID, HostileMember},
    outbox::{Outbox, assert_runs},
    takeover::{self, wait_for_turn},
    workers, world,
};

/// Workers of one group, and a connector for each of them.
struct Cluster {
    kafka: Kafka,
    workers: Vec<Walferry>,
    reader: RefCell<GroupReader>,
    /// The ports at which others reach them, where it is not the one on which they listen.
    advertised: Vec<Option<u16>>,
}

/// What is special about a worker.
#[derive(Default)]
struct Special {
    lines: Vec<String>,
    env: Vec<(String, String)>,
    advertised: Option<u16>,
}

impl Cluster {
    /// Starts so many workers, and waits until each has its part.
    fn start(kafka: Kafka, name: &str, count: usize) -> Self {
        Self::start_with(kafka, name, count, |_| Special::default())
    }

    /// The same with something special about each.
    fn start_with(kafka: Kafka, name: &str, count: usize, special: impl Fn(usize) -> Special) -> Self {
        let (mut workers, mut advertised) = (Vec::new(), Vec::new());
        for number in 0..count {
            let mut special = special(number);
            advertised.push(special.advertised);
            let port = special.advertised.map(|port| format!("rest.advertised.port={port}"));
            special.lines.extend(port);
            let name = format!("{name}{number}");
            workers.push(takeover::start_with_lines(&kafka, &name, special.lines, special.env));
        }
        let topics = workers::topics(&kafka, "walferry-test");
        let reader = GroupReader::open(&topics).expect("a client");
        let mut cluster = Self {
            kafka,
            workers,
            reader: RefCell::new(reader),
            advertised,
        };
        for worker in &mut cluster.workers {
            wait_for_turn(worker);
        }
        cluster.wait_until_spread(&(0..count).collect::<Vec<_>>());
        cluster
    }

    fn view(&self) -> Option<GroupView> {
        self.reader.borrow_mut().look().ok().filter(|view| view.is_settled)
    }

    /// Waits until exactly these workers are members, and have everything among them.
    #[track_caller]
    fn wait_until_spread(&self, alive: &[usize]) -> GroupView {
        wait_for("everything to be spread", || {
            let view = self.view()?;
            let partitions: usize = view.members.iter().map(|member| member.places.partitions.len()).sum();
            // The leader has one partition of another topic, too.
            let least = 64 / alive.len() - 2;
            let is_fair = |member: &walferry_kafka::connect::Member| member.places.partitions.len() >= least;
            let are_all = alive.iter().all(|&number| view.has(&self.address(number)));
            (view.members.len() == alive.len()
                && are_all
                && partitions == 64
                && view.leader().is_some()
                && view.members.iter().all(is_fair))
            .then_some(view)
        })
    }

    fn address(&self, number: usize) -> String {
        match self.advertised[number] {
            Some(port) => format!("http://127.0.0.1:{port}"),
            None => format!("http://{}", self.workers[number].admin()),
        }
    }

    /// The number of the worker with this address.
    fn number_of(&self, address: Option<&str>) -> usize {
        (0..self.workers.len())
            .find(|&number| Some(self.address(number).as_str()) == address)
            .unwrap_or_else(|| panic!("{address:?} is no worker"))
    }

    fn leader(&self) -> usize {
        let view = wait_for("a leader", || self.view().filter(|view| view.leader().is_some()));
        self.number_of(view.leader().and_then(|leader| leader.address.as_deref()))
    }

    /// A name of a connector that belongs to this worker now.
    fn name_for(&self, number: usize, prefix: &str) -> String {
        let view = self.wait_until_spread(&(0..self.workers.len()).collect::<Vec<_>>());
        let address = self.address(number);
        let owns = |name: &String| {
            let owner = view.owner(work_partition(name)).and_then(|owner| owner.address.clone());
            owner.as_deref() == Some(address.as_str())
        };
        (0..)
            .map(|n| format!("{prefix}{n}"))
            .find(owns)
            .expect("one of them does")
    }

    fn ask(&self, number: usize, method: &str, path: &str) -> u16 {
        // Workers may be rebalancing, as in Connect.
        wait_for(&format!("an answer to {method} {path}"), || {
            let answer = self.workers[number].ask(method, path)?;
            (![409, 500].contains(&answer.status)).then_some(answer.status)
        })
    }

    /// The `worker_id` of the worker that has the connector now.
    fn owner(&self, name: &str) -> Option<String> {
        let view = self.view()?;
        let address = view.owner(work_partition(name))?.address.clone()?;
        address.strip_prefix("http://").map(str::to_owned)
    }

    /// Waits until this worker says that the connector is in this state, at the worker that has it.
    #[track_caller]
    fn wait_for_state(&self, asked: usize, name: &str, state: &str) {
        wait_for(&format!("{name} to be {state} where it belongs"), || {
            let status = self.workers[asked].get(&format!("/connectors/{name}/status"))?;
            let status = (status.status == 200).then(|| status.json())?;
            let is_there = status["connector"]["worker_id"] == self.owner(name)?;
            (status["connector"]["state"] == state && is_there).then_some(())
        });
    }

    /// Creates a connector by a request to this worker.
    #[track_caller]
    fn create(&self, asked: usize, name: &str, config: serde_json::Map<String, Value>) {
        let body = json!({ "name": name, "config": config });
        let created = wait_for("the leader to be known", || {
            let answer = self.workers[asked].send("POST", "/connectors", &body)?;
            (answer.status != 409).then_some(answer)
        });
        assert_eq!(created.status, 201, "{}", created.body);
    }

    /// Whether the brokers have forgotten a worker so far, because the machine was too slow for it. Then records may come twice.
    fn has_lost_a_member(&self) -> bool {
        self.workers.iter().any(|worker| worker.output().contains("WF0712"))
    }
}

/// Waits until somebody streams the slot.
#[track_caller]
fn wait_for_stream(outbox: &Outbox) {
    wait_for("the slot to be streamed", || {
        (outbox.database.streams() > 0).then_some(())
    });
}

#[test]
fn three_workers_share_connectors_and_any_of_them_answers_for_all() {
    let world = world::shared();
    let cluster = Cluster::start(Kafka::start(), "shares", 3);
    let kafka = &cluster.kafka;
    // One connector for each worker, created through another one.
    let names: Vec<String> = (0..3).map(|number| cluster.name_for(number, "s")).collect();
    let outboxes: Vec<Outbox> = (0..3)
        .map(|number| Outbox::on(&world.postgres, kafka, &format!("shares{number}")))
        .collect();
    for (number, (name, outbox)) in names.iter().zip(&outboxes).enumerate() {
        let asked = (number + 1) % 3;
        cluster.create(asked, name, outbox.config());
        // The worker that was asked knows of it at once.
        let known = cluster.workers[asked].get(&format!("/connectors/{name}/config"));
        assert_eq!(known.map(|answer| answer.status), Some(200));
    }
    for (name, outbox) in names.iter().zip(&outboxes) {
        for asked in 0..3 {
            cluster.wait_for_state(asked, name, "RUNNING");
        }
        outbox.insert("k", 1, 5);
        kafka.wait_for_records(&outbox.topic("order"), 5);
        wait_for_stream(outbox);
    }
    let mut sorted = names.clone();
    sorted.sort();
    for worker in &cluster.workers {
        assert_eq!(worker.get("/connectors").expect("an answer").json(), json!(sorted));
        wait_for("each worker to be ready", || {
            worker.get("/ready").filter(|answer| answer.status == 200)
        });
        let states = worker.get("/connectors?expand=status").expect("an answer").json();
        let ids: BTreeSet<String> = names
            .iter()
            .map(|name| states[name]["status"]["tasks"][0]["worker_id"].to_string())
            .collect();
        assert!(ids.len() == 3 || cluster.has_lost_a_member(), "each runs one: {states}");
    }

    // Whatever is asked of a worker that neither leads nor runs it.
    let (name, outbox) = (&names[0], &outboxes[0]);
    let beside = (1..3).find(|&number| number != cluster.leader()).expect("one of them");
    assert_eq!(cluster.ask(beside, "PUT", &format!("/connectors/{name}/pause")), 202);
    cluster.wait_for_state(beside, name, "PAUSED");
    assert_eq!(cluster.ask(beside, "PUT", &format!("/connectors/{name}/resume")), 202);
    cluster.wait_for_state(beside, name, "RUNNING");
    assert_eq!(
        cluster.ask(beside, "POST", &format!("/connectors/{name}/restart?includeTasks=true")),
        202
    );
    assert_eq!(cluster.ask(beside, "GET", &format!("/connectors/{name}/logs")), 200);
    assert_eq!(cluster.ask(beside, "PUT", &format!("/connectors/{name}/stop")), 204);
    let path = format!("/connectors/{name}/offsets");
    let offsets = wait_for("the offset", || {
        let offsets = cluster.workers[beside].get(&path)?.json();
        offsets["offsets"][0]["partition"].is_object().then_some(offsets)
    });
    let patched = wait_for("the connector to have stopped", || {
        let answer = cluster.workers[beside].send("PATCH", &path, &offsets)?;
        (![409, 500].contains(&answer.status)).then_some(answer)
    });
    assert_eq!(patched.status, 200, "{}", patched.body);
    assert_eq!(outbox.database.streams(), 0);
    assert_eq!(cluster.ask(beside, "PUT", &format!("/connectors/{name}/resume")), 202);
    outbox.insert("k", 6, 9);
    assert_runs(&kafka.wait_for_records(&outbox.topic("order"), 9), &["k"], 9);
    let topics = wait_for("its topics", || {
        let topics = cluster.workers[beside]
            .get(&format!("/connectors/{name}/topics"))?
            .json();
        (topics[name]["topics"] == json!([outbox.topic("order")])).then_some(topics)
    });
    assert_eq!(topics[name]["topics"].as_array().map(Vec::len), Some(1));
    assert_eq!(cluster.ask(beside, "DELETE", &format!("/connectors/{name}")), 204);
    wait_for("the slot to be free", || (outbox.database.streams() == 0).then_some(()));
    for worker in &cluster.workers {
        wait_for("all to know that it is gone", || {
            (worker.get(&format!("/connectors/{name}/status"))?.status == 404).then_some(())
        });
    }
    let once = cluster.workers[beside].ask("PUT", &format!("/connectors/{}/pause?forward=false", names[1]));
    let once = once.expect("an answer");
    assert!(
        beside == cluster.leader() || once.status == 409 && once.body.contains("conflicting operation"),
        "{}",
        once.body
    );
}

#[test]
fn connectors_of_a_worker_that_is_killed_ends_or_hangs_go_on_elsewhere() {
    let world = world::shared();
    let mut cluster = Cluster::start(Kafka::start(), "moves", 3);
    let names: Vec<String> = (0..3).map(|number| cluster.name_for(number, "m")).collect();
    let outboxes: Vec<Outbox> = (0..3)
        .map(|number| Outbox::on(&world.postgres, &cluster.kafka, &format!("moves{number}")))
        .collect();
    for (name, outbox) in names.iter().zip(&outboxes) {
        let config = outbox.config_with([("snapshot.mode", "initial")]);
        outbox.insert("k", 1, 5);
        cluster.create(0, name, config);
    }
    for (name, outbox) in names.iter().zip(&outboxes) {
        cluster.wait_for_state(0, name, "RUNNING");
        cluster.kafka.wait_for_records(&outbox.topic("order"), 5);
        wait_for_stream(outbox);
    }
    // Offsets are stored at most once a second: a kill before that would begin the snapshot again.
    for outbox in &outboxes {
        outbox.wait_until_confirmed();
    }
    // The leader is killed.
    let first = cluster.leader();
    let (second, third) = ((first + 1) % 3, (first + 2) % 3);
    let begun = Instant::now();
    cluster.workers[first].kill();
    for outbox in &outboxes {
        outbox.insert("k", 6, 10);
    }
    for outbox in &outboxes {
        assert_runs(&outbox.wait_for_event(&cluster.kafka, 10), &["k"], 10);
    }
    println!("after a kill, all deliver again within {:?}", begun.elapsed());
    cluster.wait_until_spread(&[second, third]);

    // It comes back, and only what has to move to it moves.
    cluster.workers[first].start_again();
    wait_for_turn(&mut cluster.workers[first]);
    cluster.wait_until_spread(&[first, second, third]);
    for outbox in &outboxes {
        outbox.insert("k", 11, 15);
        assert_runs(&outbox.wait_for_event(&cluster.kafka, 15), &["k"], 15);
    }

    // Another one ends in order: the others have its connectors at once, and nothing is sent again.
    for outbox in &outboxes {
        outbox.wait_until_confirmed();
    }
    let before: Vec<usize> = outboxes
        .iter()
        .map(|outbox| cluster.kafka.read(&[outbox.topic("order")]).len())
        .collect();
    let begun = Instant::now();
    assert_eq!(
        cluster.workers[second].terminate(),
        Some(0),
        "{}",
        cluster.workers[second].output()
    );
    for outbox in &outboxes {
        outbox.insert("k", 16, 20);
    }
    for (outbox, before) in outboxes.iter().zip(before) {
        let records = outbox.wait_for_event(&cluster.kafka, 20);
        assert_runs(&records, &["k"], 20);
        assert!(
            records.len() == before + 5 || cluster.has_lost_a_member(),
            "an orderly end repeats nothing"
        );
    }
    println!("after an orderly end, all deliver again within {:?}", begun.elapsed());
    cluster.wait_until_spread(&[first, third]);

    // One hangs, and so do its sockets. Whatever it has read, it sends and stores nothing more when it goes on.
    let hung = first;
    cluster.workers[hung].hang();
    wait_for("the others to have everything", || {
        let view = cluster.view()?;
        (view.members.len() == 1).then_some(())
    });
    for (name, outbox) in names.iter().zip(&outboxes) {
        outbox.insert("k", 21, 25);
        // The server gives up its walsenders after a while: here at once.
        let walsender = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name";
        let its = cluster.workers[third]
            .get(&format!("/connectors/{name}/status"))
            .expect("an answer");
        if its.status != 200 || its.json()["connector"]["worker_id"] != cluster.workers[third].admin() {
            outbox.database.sql().run(&format!("{walsender} = '{}'", outbox.slot()));
        }
    }
    for outbox in &outboxes {
        assert_runs(&outbox.wait_for_event(&cluster.kafka, 25), &["k"], 25);
        outbox.wait_until_confirmed();
    }
    let before: Vec<usize> = outboxes
        .iter()
        .map(|outbox| cluster.kafka.read(&[outbox.topic("order")]).len())
        .collect();
    cluster.workers[hung].resume();
    wait_for("it to notice that it was left out", || {
        cluster.workers[hung].output().contains("WF0712").then_some(())
    });
    cluster.wait_until_spread(&[first, third]);
    for (outbox, before) in outboxes.iter().zip(before) {
        outbox.insert("k", 26, 30);
        let records = outbox.wait_for_event(&cluster.kafka, 30);
        assert_runs(&records, &["k"], 30);
        assert_eq!(records.len(), before + 5, "it sent no more of what it had read");
    }
    let snapshots = cluster.workers.iter();
    let snapshots: usize = snapshots
        .map(|worker| worker.output().matches("reading existing rows").count())
        .sum();
    assert!(snapshots <= names.len(), "{snapshots} snapshots: rows are read again");
}

/// Kills the worker that owns a connector, and inserts rows after `before` others. The group does not notice the kill before they have come, so a
/// deputy has delivered them. Returns all records once the next owner has stored them, and how many rows there are.
///
/// A deputy ends by itself after 9 s beside a member that seems to live. If the machine stood still for so long, there is another kill.
#[track_caller]
fn kill_and_await_the_deputy(cluster: &mut Cluster, name: &str, outbox: &Outbox, before: i64) -> (Vec<Record>, i64) {
    let ends = |cluster: &Cluster| -> usize {
        let outputs = cluster.workers.iter().map(Walferry::output);
        outputs.map(|output| output.matches("ends its run").count()).sum()
    };
    let topic = outbox.topic("order");
    let mut rows = before;
    for _ in 0..KILLS {
        let view = cluster.wait_until_spread(&[0, 1, 2]);
        let owner = view.owner(work_partition(name)).expect("somebody owns it").clone();
        let number = cluster.number_of(owner.address.as_deref());
        let (held, ends_before) = (
            cluster.kafka.hold_member("walferry-walferry-test", &owner.id),
            ends(cluster),
        );
        cluster.workers[number].kill();
        outbox.insert("k", rows + 1, rows + 5);
        rows += 5;
        let has_come = wait_for("the rows to come or the deputy to end", || {
            let last = rows.to_string();
            let records = cluster.kafka.read(std::slice::from_ref(&topic));
            let has_come = records.iter().any(|record| record.value_text() == Some(&last));
            (has_come || ends(cluster) > ends_before).then_some(has_come)
        });
        let view = wait_for("the members", || cluster.view());
        let still = view.owner(work_partition(name)).map(|now| now.id.as_str());
        assert_eq!(still, Some(owner.id.as_str()), "the group has given it away");
        drop(held);
        outbox.wait_for_event(&cluster.kafka, rows);
        outbox.wait_until_confirmed();
        if has_come {
            return (cluster.kafka.read(&[topic]), rows);
        }
        cluster.workers[number].start_again();
        wait_for_turn(&mut cluster.workers[number]);
    }
    panic!("no deputy has delivered");
}

/// One kill is enough, unless the machine stands still.
const KILLS: u32 = 3;

#[test]
fn a_killed_workers_connector_delivers_before_the_group_has_noticed() {
    let world = world::shared();
    let mut cluster = Cluster::start(Kafka::start(), "deputy", 3);
    let name = cluster.name_for(0, "d");
    let outbox = Outbox::on(&world.postgres, &cluster.kafka, "deputy");
    outbox.insert("k", 1, 5);
    cluster.create(0, &name, outbox.config_with([("snapshot.mode", "initial")]));
    wait_for_stream(&outbox);
    outbox.insert("k", 6, 10);
    outbox.wait_for_event(&cluster.kafka, 10);
    outbox.wait_until_confirmed();
    let (records, rows) = kill_and_await_the_deputy(&mut cluster, &name, &outbox, 10);
    assert_runs(&records, &["k"], rows);
    let snapshots = cluster.workers.iter();
    let snapshots: usize = snapshots
        .map(|worker| worker.output().matches("reading existing rows").count())
        .sum();
    assert!(snapshots <= 1, "{snapshots} snapshots: rows are read again");
}

#[test]
fn a_killed_workers_exactly_once_connector_goes_on_early_and_repeats_nothing() {
    let world = world::shared();
    let special = |_| Special {
        lines: vec!["exactly.once.source.support=enabled".to_owned()],
        ..Special::default()
    };
    let mut cluster = Cluster::start_with(Kafka::start(), "deputyonce", 3, special);
    let name = cluster.name_for(0, "d");
    let outbox = Outbox::on(&world.postgres, &cluster.kafka, "deputyonce");
    cluster.create(0, &name, outbox.config_with([("exactly.once.support", "required")]));
    wait_for_stream(&outbox);
    outbox.insert("k", 1, 5);
    outbox.wait_for_event(&cluster.kafka, 5);
    outbox.wait_until_confirmed();
    let (records, rows) = kill_and_await_the_deputy(&mut cluster, &name, &outbox, 5);
    let values: Vec<i64> = records
        .iter()
        .filter_map(|record| record.value_text()?.parse().ok())
        .collect();
    assert_eq!(values, (1..=rows).collect::<Vec<_>>());
}

/// Something in between refuses connections to it, and it has lost Postgres: to the others it looks as if it were gone.
#[test]
fn a_deputy_beside_an_owner_that_lives_stores_nothing_and_nothing_is_lost() {
    let world = world::shared();
    let door = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = door.local_addr().expect("an address").port();
    let postgres: Vec<Network> = (0..3).map(|_| Network::to(world.postgres.port())).collect();
    let special = |number: usize| Special {
        lines: vec!["walferry.rest.config.providers=all".to_owned()],
        env: vec![("DEPUTY_POSTGRES".to_owned(), postgres[number].port().to_string())],
        advertised: (number == 0).then_some(port),
    };
    let cluster = Cluster::start_with(Kafka::start(), "beside", 3, special);
    let name = cluster.name_for(0, "b");
    let outbox = Outbox::on(&world.postgres, &cluster.kafka, "beside");
    cluster.create(
        0,
        &name,
        outbox.config_with([("database.port", "${env:DEPUTY_POSTGRES}")]),
    );
    wait_for_stream(&outbox);
    outbox.insert("k", 1, 5);
    outbox.wait_for_event(&cluster.kafka, 5);
    outbox.wait_until_confirmed();
    let owner = |cluster: &Cluster| {
        cluster
            .view()?
            .owner(work_partition(&name))
            .map(|owner| owner.id.clone())
    };
    let path = format!("/connectors/{name}/offsets");
    let stored = || {
        let answer = cluster.workers[1].get(&path)?.json();
        answer["offsets"][0]["offset"]["lsn_proc"].as_u64()
    };
    let member = wait_for("its owner", || owner(&cluster));
    postgres[0].set(Weather::Closed);
    postgres[0].reset();
    // From then on, it confirms nothing more. It may still store what it has read.
    wait_for("the owner to have lost Postgres", || {
        let is_free = outbox.database.streams() == 0;
        (is_free && cluster.workers[0].output().contains("retrying after a pause")).then_some(())
    });
    let (before, confirmed) = (wait_for("its offset", stored), outbox.confirmed());
    let end = outbox.wal_end();
    drop(door);
    outbox.insert("k", 6, 10);
    let logs = |text: &str| cluster.workers[1..].iter().any(|worker| worker.output().contains(text));
    // The deputy ends after a while, because the member is still there. On a slow machine, it may have done nothing yet.
    let topic = outbox.topic("order");
    wait_for("the deputy to deliver or to end", || {
        let has_come = cluster.kafka.read(std::slice::from_ref(&topic)).len() >= 10;
        (has_come || logs("ends its run")).then_some(())
    });
    assert!(logs("runs it as a deputy"), "nobody was its deputy");
    assert_eq!(owner(&cluster), Some(member.clone()), "nothing was taken from it");
    assert_eq!(outbox.confirmed(), confirmed, "the deputy has confirmed");
    let by_owner = wait_for("its offset", stored);
    assert!(
        (before..=end).contains(&by_owner),
        "the deputy has stored {by_owner}, behind {end}"
    );

    wait_for("the deputy to end", || logs("ends its run").then_some(()));
    postgres[0].set(Weather::Fair);
    outbox.insert("k", 11, 15);
    assert_runs(&outbox.wait_for_event(&cluster.kafka, 15), &["k"], 15);
    outbox.wait_until_confirmed();
    assert_eq!((owner(&cluster), outbox.database.streams()), (Some(member), 1));
    assert!(wait_for("its offset", stored) > by_owner);
}

#[test]
fn workers_that_share_begin_when_an_earlier_version_has_ended_and_not_beside_it() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let one = Outbox::on(&world.postgres, &kafka, "rolling");
    let mut first = takeover::start(&kafka, "rolling0");
    wait_for_turn(&mut first);
    let answer = first.send("PUT", "/connectors/one/config", &Value::Object(one.config()));
    assert_eq!(answer.expect("an answer").status, 201);
    one.wait_until_streaming(&mut first);
    one.insert("k", 1, 5);
    kafka.wait_for_records(&one.topic("order"), 5);
    one.wait_until_confirmed();
    assert_eq!(first.terminate(), Some(0), "{}", first.output());

    // The version before knows the configuration topic alone. It works for all connectors, so nobody else does.
    let earlier = kafka.join_group("walferry-walferry-test", "connect-configs");
    let mut second = takeover::start(&kafka, "rolling1");
    first.start_again();
    for worker in [&first, &second] {
        wait_for("the new version to stand by", || {
            let answer = worker.get("/ready").filter(|answer| answer.status == 503)?;
            answer.body.contains("does not share its connectors").then_some(())
        });
        assert_eq!(worker.get("/health").map(|answer| answer.status), Some(200));
    }
    one.insert("k", 6, 9);
    assert_eq!(one.database.streams(), 0, "nobody runs it beside the earlier version");

    // Its orderly end is what they wait for.
    drop(earlier);
    for worker in [&mut first, &mut second] {
        wait_for_turn(worker);
    }
    let records = kafka.wait_for_records(&one.topic("order"), 9);
    assert_runs(&records, &["k"], 9);
    assert_eq!(records.len(), 9, "nothing comes twice");
    for worker in [&first, &second] {
        wait_for("both to know who runs it", || {
            let status = worker.get("/connectors/one/status")?;
            let ids = [first.admin(), second.admin()].map(Value::from);
            (status.status == 200 && ids.contains(&status.json()["connector"]["worker_id"])).then_some(())
        });
    }
}

/// Whoever may join the group can keep its workers from agreeing. They say who it is, go on with what they have, and end in order.
#[test]
fn workers_say_which_member_keeps_them_from_agreeing_and_go_on_with_what_they_have() {
    let world = world::shared();
    let mut cluster = Cluster::start(Kafka::start(), "kept", 2);
    let names: Vec<String> = (0..2).map(|number| cluster.name_for(number, "k")).collect();
    let outboxes: Vec<Outbox> = (0..2)
        .map(|number| Outbox::on(&world.postgres, &cluster.kafka, &format!("kept{number}")))
        .collect();
    for (name, outbox) in names.iter().zip(&outboxes) {
        cluster.create(0, name, outbox.config());
        cluster.wait_for_state(0, name, "RUNNING");
        wait_for_stream(outbox);
    }
    let member = HostileMember::join(&cluster.kafka.bootstrap(), "walferry-walferry-test");
    // The broker fails when the last member has answered. The other worker keeps waiting for its answer.
    let (refused, group) = wait_for("the broker to refuse a worker", || {
        (0..2).find_map(|number| {
            let ready = cluster.workers[number].get("/ready")?;
            let group = ready.json()["group"].clone();
            let is_named = group["hints"][0].as_str().is_some_and(|hint| hint.contains(CLIENT_ID));
            (ready.status == 200 && is_named).then_some((number, group))
        })
    });
    let (reason, hint) = (group["reason"].to_string(), group["hints"][0].to_string());
    assert!(
        reason.contains("The coordinator of consumer group walferry-walferry-test returns an internal error"),
        "{group}"
    );
    assert!(
        hint.contains("client.id \\\"intruder\\\" at 127.0.0.1")
            && hint.contains("not a Walferry worker of this version"),
        "{group}"
    );
    let log = cluster.workers[refused].output();
    assert!(
        log.contains("returns an internal error") && log.contains("intruder"),
        "{log}"
    );

    // A worker that stood still is looked up over another connection than the one on which it waits for the others. The pause is long enough for
    // the lease to be in doubt (5 s).
    let waiting = 1 - refused;
    let stood = Instant::now();
    cluster.workers[waiting].hang();
    wait_for("the worker to have stood still", || {
        (stood.elapsed().as_secs() > 6).then_some(())
    });
    cluster.workers[waiting].resume();
    for outbox in &outboxes {
        outbox.insert("k", 1, 5);
        outbox.wait_for_event(&cluster.kafka, 5);
        outbox.wait_until_confirmed();
    }
    let output = cluster.workers[waiting].output();
    assert!(
        output.contains("this process has stood still") && !output.contains("joins again"),
        "{output}"
    );
    for number in [waiting, refused] {
        let ended = cluster.workers[number].terminate();
        assert_eq!(ended, Some(0), "{}", cluster.workers[number].output());
    }
    drop(member);
}
