//! Crashes at every step of received → delivered → stored → confirmed, and the life of a connector.
//!
//! Postgres, Kafka and the offset store are in memory; the engine is the real one: in `world` its pipeline and progress, step
//! by step as a seed decides, in `life` as a whole. It stands here and not with the end-to-end tests so that it runs in seconds,
//! without a Kafka client to build.

mod broker;
mod edges;
mod fixture;
mod life;
mod random;
mod resume;
mod script;
mod set_aside;
mod source;
mod withheld;
mod world;

use random::Random;
use script::Script;
use world::World;

#[test]
fn crash_before_any_step_loses_no_committed_row() {
    for seed in 0..10 {
        let script = Script::random(seed);
        for step in 0..250 {
            let mut world = World::new(&script, seed);
            world.run(step);
            world.crash_and_restart();
            check(&world, seed, step);
            world.run_until_idle();
            assert_eq!(
                world.missing_before(script.end()),
                [0_i64; 0],
                "seed {seed}, step {step}"
            );
            check(&world, seed, step);
        }
    }
}

#[test]
fn many_crashes_in_a_row_lose_nothing_and_keep_the_order_of_each_key() {
    for seed in 1_000..1_100 {
        let script = Script::random(seed);
        let mut random = Random::new(seed ^ 0xC0FFEE);
        let mut world = World::new(&script, seed);
        for crash in 0..12 {
            world.run(random.below(120));
            check(&world, seed, crash);
            world.crash_and_restart();
        }
        world.run_until_idle();
        assert_eq!(world.missing_before(script.end()), [0_i64; 0], "seed {seed}");
        check(&world, seed, 12);
        assert_eq!(
            world.confirmed(),
            script.end(),
            "an idle stream moves the slot to the server's end, seed {seed}"
        );
    }
}

/// What holds at every moment: nothing confirmed that Kafka does not have, nothing out of order, nothing rolled back.
fn check(world: &World<'_>, seed: u64, step: u64) {
    assert_eq!(
        world.missing_before(world.confirmed()),
        [0_i64; 0],
        "confirmed too early, seed {seed}, step {step}"
    );
    assert_eq!(world.misplaced(), [""; 0], "seed {seed}, step {step}");
}
