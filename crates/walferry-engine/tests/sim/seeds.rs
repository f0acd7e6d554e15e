//! Runs by seed. A run that fails tells its seed; `WALFERRY_SIM_SEED=<seed>` runs that one alone, and tells what happened.
//! Each call runs a twentieth of the seeds, so that whoever changes a line does not wait for minutes. `WALFERRY_SIM_PART=<number>` chooses
//! which: `cargo xtask test` takes another one for each commit. `WALFERRY_SIM_TIMES=1` runs all, `WALFERRY_SIM_TIMES=10` ten times as many.

use std::{cell::Cell, ops::Range, time::Duration};

use walferry_engine::store::StoredOffset;

use crate::{
    random::Random,
    world::{
        World, on_a_clock,
        plan::{Fault, Plan},
    },
};

/// Names the seed that is to be run alone.
const SEED: &str = "WALFERRY_SIM_SEED";
/// Which part of the seeds is run; the remainder counts.
const PART: &str = "WALFERRY_SIM_PART";
const PARTS: u64 = 20;
/// Has all parts run, with so many times as many seeds: a search that is wider than what each change needs.
const TIMES: &str = "WALFERRY_SIM_TIMES";
/// How much of what happened is told of a run that fails.
const TOLD: usize = 60;

/// A kind of run.
struct Runs {
    /// What a seed chooses at the beginning.
    plan: Box<dyn Fn(&mut Random) -> Plan>,
    /// How many seeds have the same choices, each for a moment of its own.
    moments: u64,
}

impl Runs {
    /// Runs these seeds, and tells of the first that fails. `run` is told the moment.
    fn each(self, seeds: Range<u64>, run: impl AsyncFn(&mut World, u64)) {
        let number = |name| {
            std::env::var(name)
                .ok()
                .map(|number| number.parse::<u64>().expect("a number"))
        };
        let only = number(SEED);
        let part = number(PART).unwrap_or(0);
        let all = seeds.start..seeds.end * number(TIMES).unwrap_or(1);
        let (seeds, step) = match (only, number(TIMES)) {
            (Some(seed), _) => (seed..seed + 1, 1),
            (None, Some(_)) => (all, 1),
            // Of few seeds, each part has one.
            (None, None) => (all.start + part % PARTS.min(all.end - all.start)..all.end, PARTS),
        };
        for seed in seeds.step_by(step as usize) {
            let faults = self.one(seed, &run, false).0;
            if !faults.is_empty() || only.is_some() {
                let (again, trace) = self.one(seed, &run, true);
                let from = if only.is_some() {
                    0
                } else {
                    trace.len().saturating_sub(TOLD)
                };
                println!("{}", trace[from..].join("\n"));
                assert_eq!(again, faults, "seed {seed} does not go the same way twice");
                assert!(
                    faults.is_empty(),
                    "seed {seed}: {faults:#?}\nrun it alone with {SEED}={seed}"
                );
            }
        }
    }

    /// Returns what went wrong, and what happened.
    fn one(&self, seed: u64, run: &impl AsyncFn(&mut World, u64), traced: bool) -> (Vec<String>, Vec<String>) {
        on_a_clock(async {
            let mut world = World::new(seed / self.moments, &self.plan, traced);
            run(&mut world, seed % self.moments).await;
            let mut faults = world.faults();
            if faults.is_empty() {
                faults = world.rest().await;
                faults.extend(world.faults());
            }
            (faults, world.trace())
        })
    }
}

fn any() -> Runs {
    Runs {
        plan: Box::new(Plan::of),
        moments: 1,
    }
}

#[test]
fn crash_before_any_step_loses_no_committed_row() {
    const STEPS: u64 = 200;
    let runs = Runs {
        plan: Box::new(|_| Plan::quiet("t", "", true)),
        moments: STEPS,
    };
    runs.each(0..2 * STEPS, async |world, step| {
        world.steps(step).await;
        world.kill();
    });
}

#[test]
fn many_crashes_in_a_row_lose_nothing_and_keep_the_order_of_each_key() {
    any().each(0..200, async |world, _| world.steps(600).await);
}

/// Kafka aborts what is not committed together with its offset. Consumers see each change of the stream once.
#[test]
fn with_transactions_crashes_neither_lose_nor_repeat_a_change() {
    let runs = Runs {
        plan: Box::new(|random| Plan::of(random).exactly_once()),
        moments: 1,
    };
    runs.each(0..80, async |world, _| world.steps(600).await);
    const STEPS: u64 = 200;
    let runs = Runs {
        plan: Box::new(|_| Plan::quiet("t", "", true).exactly_once()),
        moments: STEPS,
    };
    runs.each(0..STEPS, async |world, step| {
        world.steps(step).await;
        world.kill();
    });
}

/// Where rows change and move while nobody reads, those of chunks that are left may come to lie in chunks that are done.
#[test]
fn a_snapshot_that_is_interrupted_again_and_again_misses_no_row() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            chunk_blocks: 1,
            actions: 10 + random.below(50),
            faults: Vec::new(),
            ..Plan::of(random).with_snapshot()
        }),
        moments: 1,
    };
    runs.each(0..200, async |world, _| {
        world.steps(80).await;
        for _ in 0..5 {
            world.some_steps(120).await;
            world.interrupt();
            world.act_meanwhile(20);
        }
    });
}

/// Existing rows come beside the stream, chunk by chunk, while everything may go wrong. No row is older than what was sent before it.
#[test]
fn an_incremental_snapshot_misses_no_row_and_sends_none_behind_a_newer_one() {
    let runs = Runs {
        plan: Box::new(|random| {
            let chunk_rows = 1 + random.below(4) as usize;
            Plan::of(random).beside_the_stream(chunk_rows, 1 + random.below(3) as usize)
        }),
        moments: 1,
    };
    runs.each(0..60, async |world, _| world.steps(800).await);
}

/// While the stream is busy, rows of a chunk leave in slices, and transactions of the stream between them. Until the last of them has left, changes of the
/// stream replace rows, and a process that is killed reads the chunk again.
#[test]
fn rows_of_a_chunk_leave_between_transactions_and_none_is_lost_or_old() {
    let runs = Runs {
        plan: Box::new(|random| {
            let (chunk_rows, slice_rows) = (4 + random.below(8) as usize, 2 + random.below(3) as usize);
            Plan {
                actions: 800,
                in_flight_bytes: 1 << 20,
                queue: usize::MAX,
                ..Plan::of(random).beside_the_stream(chunk_rows, slice_rows)
            }
        }),
        moments: 1,
    };
    let times = Cell::new(0);
    runs.each(0..25, async |world, _| {
        world.rush(100).await;
        times.set(times.get() + world.slices());
    });
    // A part alone may have none.
    let is_whole = std::env::var(TIMES).is_ok() && std::env::var(SEED).is_err();
    assert!(
        !is_whole || times.get() >= 5,
        "chunks hardly leave in slices: {}",
        times.get()
    );
}

/// What the stream does not tell, a snapshot that goes on has to read: a row whose new version came to lie where it was done.
#[test]
fn rows_whose_changes_are_withheld_arrive_though_a_snapshot_is_interrupted() {
    // Operations that are skipped, and such as the publication leaves out.
    const WITHHELD: [(&str, &str); 4] = [("t,u", ""), ("t,u,d", ""), ("t", "u"), ("t", "ut")];
    for (skipped, unpublished) in WITHHELD {
        let runs = Runs {
            plan: Box::new(move |random| Plan {
                chunk_blocks: 1,
                actions: 10 + random.below(30),
                ..Plan::quiet(skipped, unpublished, true)
            }),
            moments: 1,
        };
        runs.each(0..30, async |world, _| {
            world.steps_until(400, |offset| json(offset).contains("blocks")).await;
            world.some_steps(40).await;
            world.interrupt();
            world.move_rows();
            world.some_steps(400).await;
            world.interrupt();
        });
    }
}

/// Which rows are to be read again is known to the process alone; that there are some is stored.
#[test]
fn a_process_that_is_killed_before_it_has_read_rows_again_misses_none() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            chunk_blocks: 1,
            in_flight_bytes: 1 << 20,
            faults: Vec::new(),
            ..Plan::of(random).with_snapshot()
        }),
        moments: 1,
    };
    runs.each(0..150, async |world, _| {
        world.steps_until(400, |offset| json(offset).contains("blocks")).await;
        world.some_steps(40).await;
        world.interrupt();
        world.move_rows();
        world.steps_until(600, |offset| json(offset).contains("again")).await;
        world.some_steps(600).await;
        world.kill();
    });
}

/// What is done of a snapshot.
fn json(offset: &StoredOffset) -> String {
    serde_json::to_string(&offset.snapshot).expect("it is JSON")
}

/// A copy of the data directory that is started without recovery is on the same timeline. What tells it apart is the last commit,
/// which has to come again. A message proves nothing, and rows that were read prove nothing.
#[test]
fn nothing_that_a_copy_on_the_same_timeline_commits_is_missed() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            accepts_history: true,
            messages: false,
            ..Plan::of(random)
        }),
        moments: 1,
    };
    runs.each(0..250, async |world, _| {
        let is_provable = |offset: &StoredOffset| {
            let history = offset.history.as_ref();
            history.is_some_and(|history| {
                history
                    .commit
                    .is_some_and(|commit| commit.mark.lsn >= history.rows_read)
            })
        };
        world.steps_until(800, is_provable).await;
        world.some_steps(200).await;
        if world.offset().is_some_and(|offset| is_provable(&offset)) {
            world.fail_over(false);
            world.act_meanwhile(40);
        }
        world.some_steps(200).await;
    });
}

/// What the new server commits takes the positions of what it does not have.
#[test]
fn nothing_that_a_promoted_standby_commits_is_missed() {
    any().each(0..200, async |world, _| {
        for _ in 0..2 {
            world.some_steps(400).await;
            world.fail_over(true);
            world.act_meanwhile(40);
        }
        world.some_steps(200).await;
    });
}

/// Under load, on a disk that takes 10 ms for a write: only what was delivered less than 50 ms before a crash comes again.
#[test]
fn after_a_crash_under_load_no_more_comes_again_than_was_delivered_within_50_ms() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            flush_interval: Duration::from_secs(60),
            actions: 4_000,
            heartbeats: random.once_in(4),
            ..Plan::quiet("t", "", true)
        }),
        moments: 1,
    };
    runs.each(0..4, async |world, _| {
        world.work(200, 10).await;
        for _ in 0..2 {
            let before = world.acknowledged();
            let ms = 150 + world.below(60);
            world.work(ms, 10).await;
            world.expect(world.acknowledged() > before + 50, "there is no load");
            world.forbid_repeats(Duration::from_millis(50));
            world.kill();
        }
    });
}

/// While the disk is full records are delivered, and the slot stays. The offset is stored once the disk takes it.
#[test]
fn while_the_disk_is_full_changes_arrive_and_the_slot_stays() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            faults: Vec::new(),
            ..Plan::of(random)
        }),
        moments: 1,
    };
    runs.each(0..20, async |world, _| {
        world
            .steps_until(800, |offset| !offset.connect.is_unfinished_snapshot())
            .await;
        world.some_steps(200).await;
        world.fill_disk(true);
        world.work(20, 1).await;
        let (slot, writes) = (world.slot(), world.writes());
        world.act_meanwhile(60);
        world.end_transactions();
        world.work(3_000, 1).await;
        if world
            .offset()
            .is_some_and(|offset| !offset.connect.is_unfinished_snapshot())
        {
            world.expect(world.is_all_delivered(), "delivery waits for the disk");
        }
        world.expect(world.writes() == writes, "the disk was not full");
        world.expect(world.slot() == slot, "the slot moves though nothing is stored");
        world.fill_disk(false);
    });
}

/// Silent connections are made again, and those that say nothing while the server decodes are left alone in the end.
#[test]
fn a_server_that_says_nothing_is_asked_again_and_nothing_is_missed() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            faults: vec![Fault::Silence],
            ..Plan::of(random)
        }),
        moments: 1,
    };
    runs.each(0..30, async |world, _| {
        world.some_steps(600).await;
        if world.once_in(2) {
            let seconds = 30 + world.below(300);
            world.decode_for(Duration::from_secs(seconds));
            world.act_meanwhile(40);
        }
        world.some_steps(400).await;
    });
}

/// What was written without the publication cannot be sent. Nothing behind it is stored or confirmed until a person has said so.
#[test]
fn what_the_publication_left_out_is_told_and_nothing_else_is_missed() {
    let runs = Runs {
        plan: Box::new(|random| Plan {
            // What is under way when the gap is met is delivered within the time that the end of a session has.
            in_flight_bytes: 1 << 20,
            queue: usize::MAX,
            heartbeats: false,
            ..Plan::of(random).without_snapshot()
        }),
        moments: 1,
    };
    runs.each(0..200, async |world, _| {
        world.steps_until(800, |offset| offset.publication.is_some()).await;
        for _ in 0..6 {
            world.some_steps(120).await;
            // At a first start a missing publication is a mistake.
            if world.offset().is_some_and(|offset| offset.publication.is_some()) {
                world.change_publication();
            }
            world.some_steps(60).await;
            if world.once_in(3) {
                world.attend();
            }
        }
    });
}

/// A choice holds for the gap that a person has seen. It may lie there until a process is started that takes it up, and the
/// publication may lose another table before that.
#[test]
fn what_the_publication_loses_after_a_person_has_chosen_is_told() {
    let runs = Runs {
        plan: Box::new(|_| Plan::quiet("t", "", true).without_snapshot()),
        moments: 1,
    };
    runs.each(0..20, async |world, _| {
        world.steps_until(800, |offset| offset.publication.is_some()).await;
        world.lose_table(0);
        world.steps_until_gap(2_000).await;
        world.expect(world.has_gap(), "the gap is not told");
        world.kill();
        world.attend();
        world.lose_table(1);
    });
}

#[test]
fn a_seed_goes_the_same_way_each_time() {
    for seed in 0..10 {
        let run = async |world: &mut World, _| world.steps(600).await;
        let [first, second] = [(); 2].map(|()| any().one(seed, &run, true));
        assert_eq!(first, second, "seed {seed}");
    }
}
