//! Several workers of one group run connectors under load; the busiest of them is killed again and again, or suffers something else.
//!
//! Each start of a worker is a *run* with a name, which a header of every record carries: the connectors' configurations, which all workers
//! share, ask the worker's environment for it. So the records themselves say who runs what, and whether a connector has moved.

mod arrivals;
mod ways;

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Side, Sql, Surroundings, Walferry, WalferryOptions, request_at, wait_for};

use crate::{options::Cluster, random::Random, world::object};
use arrivals::{Arrivals, END, Sought};
use ways::{Servers, Ways};

/// Rows that are in each table before its connector is created.
const EXISTING: u64 = 20;
/// How long a worker stands still.
const STOPPED: Duration = Duration::from_secs(8);
/// How long connectors may take to deliver again before that is a fault of its own.
const PATIENCE: Duration = Duration::from_secs(120);
/// A connector that has delivered within this time is at work.
const AT_WORK: Duration = Duration::from_secs(1);

/// What happens to the busiest worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Killed,
    Ended,
    Stopped,
    Joined,
    Cut {
        kafka: bool,
        postgres: bool,
    },
    /// Its machine loses its power: no connection is closed.
    Lost,
}

impl Trouble {
    fn label(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Ended => "ended in order",
            Self::Stopped => "stopped for 8 s",
            Self::Joined => "one more joins",
            Self::Cut {
                kafka: true,
                postgres: false,
            } => "cut off from Kafka",
            Self::Cut { kafka: false, .. } => "cut off from Postgres",
            Self::Cut { .. } => "cut off from both",
            Self::Lost => "gone with its machine",
        }
    }
}

/// A worker, and its ways to the servers.
struct Node {
    number: usize,
    walferry: Walferry,
    runs: u32,
    is_expected_to_run: bool,
    ways: Ways,
}

impl Node {
    fn run(&self) -> String {
        run_name(self.number, self.runs)
    }

    fn start_again(&mut self) {
        self.runs += 1;
        let name = self.run();
        let variable = self
            .walferry
            .options()
            .env
            .iter_mut()
            .find(|(name, _)| name == "SOAK_RUN");
        variable.expect("it has a name").1 = name;
        self.walferry.start_again();
        self.is_expected_to_run = true;
    }

    fn kill(&mut self) {
        self.is_expected_to_run = false;
        self.walferry.kill();
    }
}

fn run_name(number: usize, runs: u32) -> String {
    format!("w{number}.{runs}")
}

/// Runs it all; returns what was broken.
pub(crate) fn run(options: &Cluster) -> Vec<String> {
    let begun = Instant::now();
    // One more, which joins now and then.
    let Servers { postgres, kafka, ways } = Servers::start(options.workers + 1, options.namespaces);
    let topics: Vec<String> = (0..options.connectors).map(topic).collect();
    topics.iter().for_each(|topic| kafka.create_topic(topic, 1));
    let sql = postgres.sql();
    sql.run(&tables(options.connectors));
    let mut nodes: Vec<Node> = (0..)
        .zip(ways)
        .map(|(number, ways)| Node {
            number,
            walferry: start(options, number, &ways),
            runs: 1,
            is_expected_to_run: true,
            ways,
        })
        .collect();
    let mut spare = nodes.pop().expect("there is one more");
    spare.kill();
    for node in &mut nodes {
        wait_until_it_answers(&mut node.walferry);
    }
    for connector in 0..options.connectors {
        let address = nodes[connector % nodes.len()].walferry.address();
        create(address, connector, options.exactly_once);
    }
    println!(
        "soak: {} workers, {} connectors, {} rows a second, {} kills, seed {}; servers are up after {:.0?}",
        options.workers,
        options.connectors,
        options.rate,
        options.kills,
        options.seed,
        begun.elapsed()
    );
    let arrivals = Arrivals::new(options.connectors, EXISTING);
    let follower = kafka.follow(&topics);
    let stop = AtomicBool::new(false);
    let mut driver = Driver {
        random: Random::new(options.seed, 0),
        arrivals: &arrivals,
        times: BTreeMap::new(),
        counts: BTreeMap::new(),
        problems: Vec::new(),
        nodes,
        spare,
    };
    let connection = postgres.sql();
    let begun = Instant::now();
    let written = thread::scope(|scope| {
        let follow = scope.spawn(|| arrivals.follow(&follower, &stop));
        let end_follower = StopOnDrop(&stop);
        // A snapshot that is late would read rows that are yet to be written.
        wait_for("the rows that were there before", || {
            arrivals.furthest().iter().all(|row| *row >= EXISTING).then_some(())
        });
        let stop_writing = AtomicBool::new(false);
        let written = thread::scope(|scope| {
            let writer = scope.spawn(|| write(&connection, options, &stop_writing));
            let end_writer = StopOnDrop(&stop_writing);
            driver.wait_until_all_work();
            println!("  all connectors deliver after {:.0?}", begun.elapsed());
            for kill in 1..=options.kills {
                driver.trouble(options);
                if kill % 10 == 0 || kill == options.kills {
                    println!("  {kill} kills after {:.0?}", begun.elapsed());
                }
                if driver.problems.len() > 5 {
                    break;
                }
            }
            driver.wait_until_all_work();
            drop(end_writer);
            writer.join().expect("the writer does not panic")
        });
        driver.wait_until_all_arrived(&written);
        driver.end_all();
        // What a dead run had left in the broker's queue is before this.
        topics.iter().for_each(|topic| kafka.produce(topic, &[(END, "")]));
        wait_for("the end of each topic", || arrivals.have_ended().then_some(()));
        drop(end_follower);
        follow.join().expect("the follower does not panic");
        written
    });
    if let Some(folder) = &options.logs {
        for node in driver.nodes.iter().chain([&driver.spare]) {
            let file = folder.join(format!("w{}.log", node.number));
            std::fs::write(&file, node.walferry.output()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
    let Driver {
        times,
        counts,
        mut problems,
        ..
    } = driver;
    report(&counts, &times);
    problems.extend(arrivals.report(&written, options.exactly_once));
    println!("problems                    {:>9}", problems.len());
    println!("time                        {:>9.0?}", begun.elapsed());
    problems
}

/// Times from a trouble to the next record of each connector that it hit, and the pauses of those that moved in order.
fn report(counts: &BTreeMap<Trouble, u32>, times: &BTreeMap<Trouble, Vec<Duration>>) {
    println!(
        "{:<24} {:>6} {:>11} {:>9} {:>9} {:>9}",
        "the busiest worker was", "times", "connectors", "median", "p99", "at most"
    );
    for (trouble, count) in counts {
        let mut times = times.get(trouble).cloned().unwrap_or_default();
        times.sort_unstable();
        let of_hundred = |percent: usize| {
            let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times
                .get(place)
                .map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()))
        };
        println!(
            "{:<24} {count:>6} {:>11} {:>9} {:>9} {:>9}",
            trouble.label(),
            times.len(),
            of_hundred(50),
            of_hundred(99),
            of_hundred(100)
        );
    }
}

/// A panic must not leave a thread at work.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct Driver<'a> {
    random: Random,
    arrivals: &'a Arrivals,
    times: BTreeMap<Trouble, Vec<Duration>>,
    counts: BTreeMap<Trouble, u32>,
    problems: Vec<String>,
    nodes: Vec<Node>,
    /// Joins now and then.
    spare: Node,
}

impl Driver<'_> {
    /// Something happens to the busiest worker; afterwards, all workers run and all connectors deliver.
    fn trouble(&mut self, options: &Cluster) {
        let trouble = self.choose(options);
        *self.counts.entry(trouble).or_default() += 1;
        self.pause(300..=3_000);
        let (busiest, its) = self.busiest();
        match trouble {
            Trouble::Killed => {
                let run = self.nodes[busiest].run();
                self.nodes[busiest].kill();
                let sought = self.arrivals.seek(&its, Sought::OfOthers(run));
                let at_once = self.random.percent(50);
                if at_once {
                    self.nodes[busiest].start_again();
                }
                self.await_all(trouble, sought, &its);
                if !at_once {
                    self.nodes[busiest].start_again();
                }
            }
            Trouble::Ended => {
                let run = self.nodes[busiest].run();
                let since = self.arrivals.seek(&its, Sought::OfOthers(run));
                self.end(busiest);
                self.await_pauses(trouble, since, &its);
                self.nodes[busiest].start_again();
            }
            Trouble::Stopped => {
                let run = self.nodes[busiest].run();
                self.nodes[busiest].walferry.hang();
                let since = self.arrivals.seek(&its, Sought::OfOthers(run));
                thread::sleep(STOPPED);
                self.nodes[busiest].walferry.resume();
                self.arrivals.accept_all(&its);
                self.await_all(trouble, since, &its);
            }
            Trouble::Joined => {
                let all: Vec<usize> = (0..self.arrivals.len()).collect();
                let since = self.arrivals.seek(&all, Sought::Any);
                self.spare.start_again();
                wait_until_it_answers(&mut self.spare.walferry);
                // A worker that shares has its part by then. One that stands by never has any.
                self.pause(4_000..=6_000);
                let moved = self.arrivals.pauses_since(since, &all);
                self.times.entry(trouble).or_default().extend(moved);
                self.wait_until_all_work();
                let ended = self.spare.walferry.terminate();
                self.judge_end("the worker that joined", ended);
            }
            Trouble::Cut { kafka, postgres } => {
                let run = self.nodes[busiest].run();
                let lasting = Duration::from_millis(self.random.within(9_000..=15_000));
                let sides = [(kafka, Side::Kafka), (postgres, Side::Postgres)];
                let sides: Vec<Side> = sides
                    .into_iter()
                    .filter_map(|(is_cut, side)| is_cut.then_some(side))
                    .collect();
                let ways = &self.nodes[busiest].ways;
                sides.iter().for_each(|side| ways.cut(*side));
                let mut since = self.arrivals.seek(&its, Sought::OfOthers(run));
                thread::sleep(lasting);
                sides.iter().for_each(|side| ways.mend(*side));
                if !kafka {
                    // Nothing moves: it is the end of the cut that counts.
                    since = self.arrivals.seek(&its, Sought::Any);
                }
                self.arrivals.accept_all(&its);
                self.await_all(trouble, since, &its);
            }
            Trouble::Lost => {
                let run = self.nodes[busiest].run();
                let node = &mut self.nodes[busiest];
                [Side::Kafka, Side::Postgres]
                    .iter()
                    .for_each(|side| node.ways.cut(*side));
                node.kill();
                let since = self.arrivals.seek(&its, Sought::OfOthers(run));
                let at_once = self.random.percent(50);
                if at_once {
                    self.start_on_new_machine(busiest);
                }
                self.await_all(trouble, since, &its);
                if !at_once {
                    self.start_on_new_machine(busiest);
                }
            }
        }
        self.wait_until_all_work();
    }

    fn choose(&mut self, options: &Cluster) -> Trouble {
        let cuts = match (options.cuts, options.namespaces) {
            (false, _) => 0,
            (true, false) => 3,
            (true, true) => 4,
        };
        let others = if options.mixed { 3 } else { 0 } + cuts;
        // Half of them are kills.
        if others == 0 || self.random.percent(50) {
            return Trouble::Killed;
        }
        let first = if options.mixed { 0 } else { 3 };
        match first + self.random.within(0..=others - 1) {
            0 => Trouble::Ended,
            1 => Trouble::Stopped,
            2 => Trouble::Joined,
            3 => Trouble::Cut {
                kafka: true,
                postgres: false,
            },
            4 => Trouble::Cut {
                kafka: false,
                postgres: true,
            },
            5 => Trouble::Cut {
                kafka: true,
                postgres: true,
            },
            _ => Trouble::Lost,
        }
    }

    /// As after a machine has lost its power: the new one has the same addresses and knows none of the connections.
    fn start_on_new_machine(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let host = node.ways.renew();
        node.walferry.move_to(host);
        node.start_again();
    }

    /// The worker that runs most connectors, and which.
    fn busiest(&self) -> (usize, Vec<usize>) {
        let runs = self.arrivals.runs();
        let of = |node: &Node| -> Vec<usize> {
            let name = node.run();
            (0..)
                .zip(&runs)
                .filter(|(_, run)| **run == name)
                .map(|(connector, _)| connector)
                .collect()
        };
        let busiest = self.nodes.iter().enumerate().map(|(place, node)| (place, of(node)));
        busiest.max_by_key(|(_, its)| its.len()).expect("there are workers")
    }

    fn end(&mut self, node: usize) {
        self.nodes[node].is_expected_to_run = false;
        let ended = self.nodes[node].walferry.terminate();
        let name = self.nodes[node].run();
        self.judge_end(&name, ended);
    }

    fn judge_end(&mut self, who: &str, ended: Option<i32>) {
        if ended != Some(0) {
            self.problems.push(format!("SIGTERM ended {who} with {ended:?}"));
        }
    }

    /// Waits until what is sought has come for these connectors.
    fn await_all(&mut self, trouble: Trouble, since: Instant, its: &[usize]) {
        self.await_answers(trouble, its);
        let times = its
            .iter()
            .filter_map(|connector| Some(self.arrivals.found(*connector)?.duration_since(since)));
        self.times.entry(trouble).or_default().extend(times);
    }

    /// The same where what counts is how long nothing came.
    fn await_pauses(&mut self, trouble: Trouble, since: Instant, its: &[usize]) {
        self.await_answers(trouble, its);
        let pauses = self.arrivals.pauses_since(since, its);
        self.times.entry(trouble).or_default().extend(pauses);
    }

    fn await_answers(&mut self, trouble: Trouble, its: &[usize]) {
        let end = Instant::now() + PATIENCE;
        let silent = |driver: &Self| -> Vec<usize> {
            its.iter()
                .copied()
                .filter(|connector| driver.arrivals.found(*connector).is_none())
                .collect()
        };
        while !silent(self).is_empty() {
            self.look_at_workers();
            if Instant::now() > end {
                let silent = silent(self);
                self.problems.push(format!(
                    "{}: connectors {silent:?} do not deliver again after {PATIENCE:?}",
                    trouble.label()
                ));
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_all_work(&mut self) {
        let end = Instant::now() + PATIENCE;
        for place in 0..self.nodes.len() {
            wait_until_it_answers(&mut self.nodes[place].walferry);
        }
        loop {
            let idle = self.arrivals.idle(AT_WORK);
            if idle.is_empty() {
                return;
            }
            self.look_at_workers();
            if Instant::now() > end {
                self.problems.push(format!("connectors {idle:?} do not deliver"));
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// No worker ends by itself; one that was killed or ended is looked at when it runs again.
    fn look_at_workers(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.is_expected_to_run) {
            if !node.walferry.runs() {
                let output = node.walferry.output();
                let last: Vec<&str> = output.lines().rev().take(30).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                panic!("worker {} ended by itself:\n{}", node.number, last.join("\n"));
            }
        }
    }

    /// Waits until the last row of each table has arrived, as long as more come.
    fn wait_until_all_arrived(&mut self, written: &[u64]) {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let furthest = self.arrivals.furthest();
            if furthest == written {
                return;
            }
            let sum: u64 = furthest.iter().sum();
            if sum > most {
                (most, since) = (sum, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                // What is missing is told with the connectors.
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn end_all(&mut self) {
        for place in 0..self.nodes.len() {
            self.end(place);
        }
    }

    fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.random.within(ms)));
    }
}

fn topic(connector: usize) -> String {
    format!("soak{connector}.public.t{connector}")
}

fn tables(connectors: usize) -> String {
    let tables = (0..connectors).map(|connector| {
        format!(
            "create table t{connector} (id bigint primary key, note text);
             insert into t{connector} select id, 'there before' from generate_series(1, {EXISTING}) id;"
        )
    });
    tables.collect()
}

/// Numbers the rows of each table, in transactions of one connection: so their order is that of the commits. Returns the last numbers.
fn write(sql: &Sql, options: &Cluster, stop: &AtomicBool) -> Vec<u64> {
    let mut random = Random::new(options.seed, 1);
    let mut last = vec![EXISTING; options.connectors];
    let (begun, mut rows) = (Instant::now(), 0);
    while !stop.load(Relaxed) {
        let due = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX) * options.rate / 1_000;
        if rows >= due {
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        let table = usize::try_from(random.within(0..=options.connectors as u64 - 1)).expect("there are not so many");
        let (first, count) = (last[table] + 1, random.within(1..=6));
        let end = if random.percent(3) { "rollback" } else { "commit" };
        sql.run(&format!(
            "begin; insert into t{table} select id, repeat('x', 200) from generate_series({first}, {}) id; {end}",
            first + count - 1
        ));
        if end == "commit" {
            last[table] += count;
            rows += count;
        }
    }
    last
}

/// Starts a worker on its own ways to the servers.
fn start(options: &Cluster, number: usize, ways: &Ways) -> Walferry {
    let lines = [
        "group.id=soak",
        "key.converter=org.apache.kafka.connect.json.JsonConverter",
        "value.converter=org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.topic=connect-offsets",
        "offset.storage.replication.factor=1",
        "offset.storage.partitions=5",
        "config.storage.topic=connect-configs",
        "config.storage.replication.factor=1",
        "status.storage.topic=connect-status",
        "status.storage.replication.factor=1",
        "status.storage.partitions=5",
    ];
    // What differs between workers is in their environment.
    let providers = "walferry.rest.config.providers=all";
    let exactly_once = options.exactly_once.then_some("exactly.once.source.support=enabled");
    let lines = lines
        .into_iter()
        .chain([providers])
        .chain(exactly_once)
        .map(ToOwned::to_owned);
    let walferry = WalferryOptions {
        name: format!("w{number}"),
        config: Map::new(),
        worker: lines.chain(options.worker_lines.iter().cloned()).collect(),
        bootstrap: ways.bootstrap(),
        env: vec![
            ("SOAK_RUN".into(), run_name(number, 1)),
            ("SOAK_POSTGRES_HOST".into(), ways.postgres().ip().to_string()),
            ("SOAK_POSTGRES_PORT".into(), ways.postgres().port().to_string()),
        ],
    };
    let surroundings = Surroundings {
        is_worker: true,
        without_data_dir: true,
        host: ways.host(),
        ..Surroundings::default()
    };
    Walferry::start_in(walferry, surroundings)
}

fn wait_until_it_answers(walferry: &mut Walferry) {
    wait_for("a worker to answer", || {
        assert!(walferry.runs(), "a worker ended:\n{}", walferry.output());
        walferry.get("/live").filter(|answer| answer.status == 200)
    });
}

/// Creates a connector over the REST API of any worker.
fn create(address: SocketAddr, connector: usize, exactly_once: bool) {
    let body = json!({ "name": format!("soak{connector}"), "config": config(connector, exactly_once) });
    let retried = HashSet::from([409, 500, 503]);
    wait_for(&format!("connector {connector} to be created"), || {
        let answer = request_at(address, "POST", "/connectors", Some(&body))?;
        // It may have been created by a request whose answer was lost.
        let is_there = answer.status == 409 && answer.body.contains("already exists");
        assert!(
            answer.status == 201 || retried.contains(&answer.status),
            "{}: {}",
            answer.status,
            answer.body
        );
        (answer.status == 201 || is_there).then_some(())
    });
}

/// As a user writes it, but for what differs between workers, which each of them takes from its environment.
fn config(connector: usize, exactly_once: bool) -> Map<String, Value> {
    let mut config = object(json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "${env:SOAK_POSTGRES_HOST}",
        "database.port": "${env:SOAK_POSTGRES_PORT}",
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": format!("soak{connector}"),
        "plugin.name": "pgoutput",
        "slot.name": format!("soak{connector}"),
        "publication.name": format!("soak{connector}"),
        "publication.autocreate.mode": "filtered",
        "table.include.list": format!("public.t{connector}"),
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "transforms": "run",
        "transforms.run.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.run.header": "run",
        "transforms.run.value.literal": "${env:SOAK_RUN}",
    }));
    if exactly_once {
        config.insert("exactly.once.support".into(), json!("required"));
    }
    config
}
