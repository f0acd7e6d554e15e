//! Where repeats come from: what each kill made Walferry send again, and what was known at that moment.

use crate::world::World;
use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

/// The worst kills that are told one by one.
const TOLD: usize = 8;

/// What was known when Walferry was killed.
#[derive(Debug, Clone)]
pub(crate) struct Kill {
    /// When, milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// What happened beside it, in words.
    beside: String,
    /// How long it had run, milliseconds.
    ran_ms: i64,
    /// How old the stored offset was, milliseconds; `None` where there was none.
    stored_ms: Option<i64>,
    /// Rows that had been given to the producer and not been acknowledged, at most half a second before.
    under_way: Option<u64>,
}

/// What is asked just before a kill, as nobody answers after it.
#[derive(Debug, Default)]
pub(crate) struct Before {
    under_way: Option<u64>,
}

impl Before {
    pub(crate) fn ask(world: &World) -> Self {
        let metrics = world.walferry.get("/metrics").map(|answer| answer.body);
        let of_name = |line: &&str| line.starts_with("walferry_in_flight_records{");
        let under_way = metrics
            .as_deref()
            .and_then(|text| text.lines().find(of_name)?.rsplit(' ').next()?.parse().ok());
        Self { under_way }
    }

    /// The kill itself has just happened, and the kill before it had ended the run before.
    pub(crate) fn killed(self, world: &World, at_ms: i64, began_ms: i64, beside: String) -> Kill {
        let stored_ms = stored_at_ms(world).map(|stored| at_ms - stored);
        Kill {
            at_ms,
            beside,
            ran_ms: at_ms - began_ms,
            stored_ms,
            under_way: self.under_way,
        }
    }
}

/// When the offset was stored last.
fn stored_at_ms(world: &World) -> Option<i64> {
    let file = world.walferry.offset_file();
    let modified = fs::metadata(file).ok()?.modified().ok()?;
    let since_1970 = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_millis()).ok()
}

/// Repeats by the kill that they followed, and those that no kill explains.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    by_kill: Vec<u64>,
    /// Sent twice by one process: a new producer, or a new connection.
    pub(crate) within_runs: u64,
}

impl Repeats {
    pub(crate) fn new(kills: usize) -> Self {
        Self {
            by_kill: vec![0; kills],
            within_runs: 0,
        }
    }

    /// A record that `run` has sent had been sent before. Runs are counted from 0: kill 0 ends the first. `late` is a record of a
    /// killed process that Kafka took after the next one had begun: there the kill that ended the run is the cause.
    pub(crate) fn count(&mut self, run: usize, late: bool, same_run: bool) {
        let cause = if late { Some(run) } else { run.checked_sub(1) };
        match cause.and_then(|kill| self.by_kill.get_mut(kill)) {
            Some(count) if !same_run => *count += 1,
            _ => self.within_runs += 1,
        }
    }

    /// Tells all of it.
    pub(crate) fn tell(&self, kills: &[Kill]) {
        let told: Vec<_> = kills.iter().zip(self.by_kill.iter().copied()).collect();
        if told.is_empty() {
            return;
        }
        println!("repeats after kills, by what happened beside them (median, 95 of 100, most):");
        let mut groups: BTreeMap<&str, Vec<(&Kill, u64)>> = BTreeMap::new();
        for &(kill, repeats) in &told {
            groups.entry(&kill.beside).or_default().push((kill, repeats));
        }
        if groups.len() > 1 {
            groups.insert("all", told.clone());
        }
        for (beside, kills) in groups {
            let repeats = Spread::of(kills.iter().map(|&(_, repeats)| repeats));
            let age = Spread::of(kills.iter().filter_map(|(kill, _)| kill.stored_ms?.try_into().ok()));
            let under_way = Spread::of(kills.iter().filter_map(|(kill, _)| kill.under_way));
            println!(
                "  {beside:<22} {:>4} kills, {:>7} repeats: {repeats}; offset stored {age} ms before; {under_way} under way",
                kills.len(),
                kills.iter().map(|&(_, repeats)| repeats).sum::<u64>()
            );
        }
        println!(
            "  sent twice by one process, after a trouble without a kill: {}",
            self.within_runs
        );
        let mut worst: Vec<_> = (1..).zip(told).collect();
        worst.sort_by_key(|&(_, (_, repeats))| std::cmp::Reverse(repeats));
        for (number, (kill, repeats)) in worst.into_iter().take(TOLD) {
            println!(
                "  kill {number:>3}: {repeats:>6} repeats; {}, ran {} ms, offset stored {} ms before, {} under way",
                kill.beside,
                kill.ran_ms,
                or_none(kill.stored_ms),
                or_none(kill.under_way)
            );
        }
    }
}

fn or_none(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "?".into(), |number| number.to_string())
}

/// How some numbers are spread.
struct Spread {
    sorted: Vec<u64>,
}

impl Spread {
    fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = numbers.collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    fn at(&self, of_hundred: usize) -> u64 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get(last * of_hundred / 100).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, {}", self.at(50), self.at(95), self.at(100))
    }
}
