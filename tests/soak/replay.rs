//! Events are sent again, from the table and from a topic, while `walferry outbox replay` is killed: no event may be left out, and a kill
//! must not begin another replay.

use crate::random::Random;
use crate::world::{KEYS, World, object, outbox, topics};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Record, folder, walferry_program};

const HEADER: &str = "walferry.replay";
/// How long a replay runs before it is killed. It has to connect first; a replay of a topic notes its progress after a second.
const RUN_MS: RangeInclusive<u64> = 20..=2_500;
const BATCH: u64 = 10_000;

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, kills: u32, seed: u64) -> Vec<String> {
    let begun = Instant::now();
    let mut properties = outbox();
    properties.extend(object(
        json!({ "transforms.outbox.table.field.event.timestamp": "created_at" }),
    ));
    let create = "create table outbox (id bigint primary key, aggregatetype text not null, aggregateid text not null,
          type text not null, payload text, created_at timestamptz not null default clock_timestamp());
        create index on outbox (created_at)";
    let mut world = World::with(|sql| sql.run(create), properties);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows, {kills} kills each, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let written = Instant::now();
    let first = insert(&world, 0..rows / 4);
    let middle = insert(&world, rows / 4..rows - rows / 4);
    insert(&world, rows - rows / 4..rows);
    if let Err(problem) = world.drain(|_| {}) {
        return vec![problem];
    }
    println!("  all rows are in Kafka after {:.0?}", written.elapsed());
    let mut firsts = HashMap::new();
    let mut all = BTreeMap::new();
    world.kafka.each(&topics(), |record| {
        firsts.insert(id(&record), record.partition);
        all.entry((record.topic.clone(), record.partition))
            .or_insert_with(Vec::new)
            .push((record.offset, id(&record)));
    });

    let selected: BTreeSet<u64> = (rows / 4..rows - rows / 4).collect();
    let args = ["--since", &first, "--until", &middle].map(str::to_owned).to_vec();
    let mut random = Random::new(seed, 0);
    let from_table = Replay::new("rows", args, &selected);
    let mut problems = from_table.run(&world, kills, &mut random, &firsts, &mut BTreeSet::new());

    // Of one topic: all partitions but the last, each from a place in its first half.
    let topic = topics().remove(0);
    let mut args = vec!["--from-topic".to_owned(), topic.clone()];
    let mut selected = BTreeSet::new();
    for partition in 0..3 {
        let Some(records) = all.get(&(topic.clone(), partition)) else {
            continue;
        };
        let begin = random.within(0..=records.len() as u64 / 2) as usize;
        args.extend(["--from-offset".to_owned(), format!("{partition}:{}", records[begin].0)]);
        selected.extend(records[begin..].iter().map(|(_, id)| id));
    }
    let mut earlier = runs(&world);
    let from_topic = Replay::new("records", args, &selected);
    problems.extend(from_topic.run(&world, kills, &mut random, &firsts, &mut earlier));
    println!("problems                    {:>9}", problems.len());
    println!("time                        {:>9.0?}", begun.elapsed());
    problems
}

/// One replay that is killed again and again.
struct Replay<'a> {
    what: &'static str,
    args: Vec<String>,
    selected: &'a BTreeSet<u64>,
    state: PathBuf,
}

impl<'a> Replay<'a> {
    fn new(what: &'static str, args: Vec<String>, selected: &'a BTreeSet<u64>) -> Self {
        let state = folder("replay").join("state.json");
        Self {
            what,
            args,
            selected,
            state,
        }
    }

    fn command(&self, world: &World) -> Command {
        let mut command = Command::new(walferry_program());
        command.args(["outbox", "replay", "--yes", "--config"]);
        command.arg(world.walferry.config_file());
        command.args(["--bootstrap-servers", &world.kafka.bootstrap()]);
        command.arg("--state").arg(&self.state).args(&self.args);
        command.stdin(Stdio::null());
        command
    }

    /// Kills it so often, then runs it to its end. `earlier` are the ids of replays before it.
    fn run(
        &self,
        world: &World,
        kills: u32,
        random: &mut Random,
        firsts: &HashMap<u64, i32>,
        earlier: &mut BTreeSet<String>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        // Too slow to come to an end before the last kill.
        let longest_s = RUN_MS.end() * u64::from(kills.max(1)) / 1_000 + 1;
        let rate = (self.selected.len() as u64 / longest_s).max(1).to_string();
        for _ in 0..kills {
            let mut command = self.command(world);
            command
                .args(["--rate", &rate])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = command.spawn().expect("the program can be run");
            thread::sleep(Duration::from_millis(random.within(RUN_MS)));
            if let Some(status) = child.try_wait().expect("it is ours") {
                problems.push(format!("replay of {}: it ended by itself: {status}", self.what));
            }
            child.kill().expect("it is ours");
            child.wait().expect("it was killed");
        }
        let progress = self.progress();
        if kills > 0 && progress == 0 {
            problems.push(format!(
                "replay of {}: nothing was noted before the end: this run shows nothing",
                self.what
            ));
        }
        let output = self.command(world).output().expect("the program can be run");
        if !output.status.success() {
            problems.push(format!(
                "replay of {}: {}: {}",
                self.what,
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        if self.state.exists() {
            problems.push(format!("replay of {}: the state is still there", self.what));
        }
        let records = self.check(world, firsts, earlier, &mut problems);
        println!("replay of {}:", self.what);
        println!("  selected                  {:>9}", self.selected.len());
        println!("  kills                     {kills:>9}");
        println!("  noted at the last kill    {progress:>9}");
        println!("  records sent              {records:>9}");
        problems
    }

    /// How many rows or records the state has.
    fn progress(&self) -> u64 {
        let text = fs::read_to_string(&self.state).unwrap_or_default();
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let source = &state["source"];
        let rows = source["rows"]["place"]["rows"].as_u64();
        rows.or_else(|| source["records"]["sent"].as_u64()).unwrap_or_default()
    }

    /// What has arrived against what was selected. Returns how many records were sent.
    fn check(
        &self,
        world: &World,
        firsts: &HashMap<u64, i32>,
        earlier: &mut BTreeSet<String>,
        problems: &mut Vec<String>,
    ) -> u64 {
        let (mut own, mut arrived) = (BTreeSet::new(), BTreeSet::new());
        let (mut sent, mut unselected, mut misplaced, mut gaps) = (0, 0_u64, 0_u64, 0_u64);
        // The last number of each key, and the furthest.
        let mut furthest: HashMap<u64, (u64, u64)> = HashMap::new();
        world.kafka.each(&topics(), |record| {
            let Some(run) = record.header_text(HEADER).filter(|run| !earlier.contains(*run)) else {
                return;
            };
            own.insert(run.to_owned());
            let id = id(&record);
            sent += 1;
            arrived.insert(id);
            unselected += u64::from(!self.selected.contains(&id));
            misplaced += u64::from(firsts.get(&id) != Some(&record.partition));
            let (key, number) = (id % KEYS, id / KEYS);
            let (last, most) = furthest.entry(key).or_insert_with(|| {
                let begin = self.first_of(key).unwrap_or(number);
                (begin.wrapping_sub(1), begin.wrapping_sub(1))
            });
            gaps += u64::from(number > last.wrapping_add(1) || number > most.wrapping_add(1));
            *last = number;
            if most.wrapping_add(1) == number {
                *most = number;
            }
        });
        let missing = self.selected.difference(&arrived).count();
        for (count, what) in [
            (missing as u64, "selected events never arrived"),
            (unselected, "records were not selected"),
            (misplaced, "records are in another partition than the first time"),
            (gaps, "records follow a gap in their key"),
        ] {
            if count > 0 {
                problems.push(format!("replay of {}: {count} {what}", self.what));
            }
        }
        if own.len() != 1 {
            problems.push(format!("replay of {}: its records have {} ids", self.what, own.len()));
        }
        earlier.extend(own);
        sent
    }

    /// The number of the first selected event of a key.
    fn first_of(&self, key: u64) -> Option<u64> {
        let numbers = (0..).map(|number| number * KEYS + key);
        let last = *self.selected.last()?;
        let mut numbers = numbers.take_while(|id| *id <= last);
        numbers.find(|id| self.selected.contains(id)).map(|id| id / KEYS)
    }
}

/// The ids of the replays so far.
fn runs(world: &World) -> BTreeSet<String> {
    let mut runs = BTreeSet::new();
    world.kafka.each(&topics(), |record| {
        runs.extend(record.header_text(HEADER).map(str::to_owned));
    });
    runs
}

fn id(record: &Record) -> u64 {
    let id = record.header_text("id").and_then(|id| id.parse().ok());
    id.expect("each event has a number as its id")
}

/// Inserts events: key and topic follow from the id. Returns the time after the last one.
fn insert(world: &World, ids: std::ops::Range<u64>) -> String {
    let mut from = ids.start;
    while from < ids.end {
        let to = (from + BATCH).min(ids.end);
        world.sql.run(&format!(
            "insert into outbox select n, 't' || n % 4, 'k' || n % {KEYS}, 'T', repeat(md5(n::text), 4)
             from generate_series({from}, {}) n",
            to - 1
        ));
        from = to;
    }
    world.sql.value("select clock_timestamp()").expect("a time")
}
