//! One connector of two is paused, stopped, restarted or fails, and the other goes on.

use crate::outbox::Outbox;
use crate::world::{self, World};
use walferry_testkit::servers::{Surroundings, Walferry, wait_for};

/// The connector that things happen to, and the one beside it.
struct Two<'a> {
    world: &'a World,
    walferry: Walferry,
    one: Outbox,
    other: Outbox,
    /// Events that were written to each.
    written: i64,
}

const ONE: &str = "life_one";
const OTHER: &str = "life_other";

impl<'a> Two<'a> {
    fn start(world: &'a World) -> Self {
        let (one, other) = (Outbox::new(world, ONE), Outbox::new(world, OTHER));
        // For a slot that is made again by hand.
        let config = one.config_with([("offset.mismatch.strategy", "trust_slot")]);
        let beside = Some((OTHER.to_owned(), other.config()));
        let surroundings = Surroundings {
            beside,
            ..Surroundings::default()
        };
        let mut walferry = Walferry::start_in(one.options(config), surroundings);
        one.wait_until_streaming(&mut walferry);
        other.wait_until_streaming(&mut walferry);
        Self {
            world,
            walferry,
            one,
            other,
            written: 0,
        }
    }

    /// Asks for something, and expects this code.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, code: u16) -> String {
        let answer = self.walferry.ask(method, path).expect("the endpoint answers");
        assert_eq!(answer.status, code, "{method} {path}: {}", answer.body);
        answer.body
    }

    #[track_caller]
    fn wait_for_state(&mut self, connector: &str, tasks: &[&str]) {
        wait_for(&format!("{ONE} to be {connector} {tasks:?}"), || {
            assert!(self.walferry.runs(), "walferry ended:\n{}", self.walferry.output());
            let status = self.walferry.get(&format!("/connectors/{ONE}/status"))?.json();
            let states = status["tasks"].as_array()?.iter().map(|task| task["state"].as_str());
            let is_so = status["connector"]["state"] == connector && states.eq(tasks.iter().map(|state| Some(*state)));
            is_so.then_some(())
        });
    }

    /// Writes an event to each, and waits until the other's has arrived.
    #[track_caller]
    fn write(&mut self) {
        self.written += 1;
        for outbox in [&self.one, &self.other] {
            outbox.insert("k", self.written, self.written);
        }
        self.arrives(&self.other);
    }

    #[track_caller]
    fn arrives(&self, outbox: &Outbox) {
        let records = self
            .world
            .kafka
            .wait_for_records(&outbox.topic("order"), self.written as usize);
        let ids: Vec<_> = records.iter().filter_map(|record| record.value_text()).collect();
        let expected: Vec<_> = (1..=self.written).map(|id| id.to_string()).collect();
        assert_eq!(ids, expected, "each once and in order");
    }

    /// How many have arrived of the one that things happen to.
    fn arrived(&self) -> i64 {
        self.world.kafka.read(&[self.one.topic("order")]).len() as i64
    }
}

#[test]
fn one_connector_is_paused_stopped_restarted_or_fails_while_the_other_goes_on() {
    let world = world::shared();
    let mut two = Two::start(&world);
    two.write();
    two.arrives(&two.one);

    // Paused: its slot is in use, and nothing comes.
    two.ask("PUT", &format!("/connectors/{ONE}/pause"), 202);
    two.wait_for_state("PAUSED", &["PAUSED"]);
    two.write();
    assert_eq!((two.one.database.streams(), two.arrived()), (1, 1));
    two.ask("PUT", &format!("/connectors/{ONE}/resume"), 202);
    two.arrives(&two.one);
    two.wait_for_state("RUNNING", &["RUNNING"]);

    // Stopped: its slot is free.
    two.ask("PUT", &format!("/connectors/{ONE}/stop"), 204);
    two.wait_for_state("STOPPED", &[]);
    two.one.database.sql().wait_for_free_slot(&two.one.slot());
    two.write();
    assert_eq!(two.arrived(), 2);
    two.ask("POST", &format!("/connectors/{ONE}/restart?includeTasks=true"), 202);
    two.wait_for_state("STOPPED", &[]);
    two.ask("PUT", &format!("/connectors/{ONE}/resume"), 202);
    two.arrives(&two.one);
    two.wait_for_state("RUNNING", &["RUNNING"]);

    // Restarted.
    two.ask("POST", &format!("/connectors/{ONE}/restart"), 204);
    two.ask(
        "POST",
        &format!("/connectors/{ONE}/restart?includeTasks=true&onlyFailed=true"),
        202,
    );
    let body = two.ask("POST", &format!("/connectors/{ONE}/restart?includeTasks=true"), 202);
    assert!(body.contains("RESTARTING"), "{body}");
    two.wait_for_state("RUNNING", &["RUNNING"]);
    two.write();
    two.arrives(&two.one);

    // Failed: its slot is gone.
    two.ask("PUT", &format!("/connectors/{ONE}/stop"), 204);
    two.wait_for_state("STOPPED", &[]);
    let (slot, sql) = (two.one.slot(), two.one.database.sql());
    sql.drop_slot(&slot);
    two.ask("PUT", &format!("/connectors/{ONE}/resume"), 202);
    two.wait_for_state("RUNNING", &["FAILED"]);
    two.other.insert("k", two.written + 1, two.written + 1);
    world
        .kafka
        .wait_for_records(&two.other.topic("order"), two.written as usize + 1);
    two.one.database.sql().run(&format!(
        "select pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    ));
    two.ask("POST", &format!("/connectors/{ONE}/tasks/0/restart"), 204);
    two.wait_for_state("RUNNING", &["RUNNING"]);
    two.one.insert("k", two.written + 1, two.written + 1);
    two.written += 1;
    two.arrives(&two.one);

    two.ask("PUT", "/connectors/nobody/pause", 404);
    two.ask("POST", &format!("/connectors/{ONE}/tasks/1/restart"), 404);
    // A line of the log tells which connector it is of.
    let output = two.walferry.output();
    let lines: Vec<_> = output.lines().filter(|line| line.contains("lsn.from=")).collect();
    for name in [ONE, OTHER] {
        let named = format!("connector=\"{name}\"");
        assert!(lines.iter().any(|line| line.contains(&named)), "{output}");
    }
    assert!(lines.iter().all(|line| line.contains("connector=\"")), "{lines:?}");
    assert_eq!(two.walferry.terminate(), Some(0), "{output}");
}
