//! For `cargo xtask bench --instructions`, which runs a benchmark under callgrind: one case, a given number of times, without Criterion.

use std::env;

/// Set to nothing, the benchmark prints the names of its cases. Set to an index and a number, it runs this case that often.
const WANTED: &str = "WALFERRY_BENCH_COUNT";

/// Does what the variable says. Returns whether it is set.
pub(crate) fn run<W: FnMut()>(cases: &[String], make: impl FnOnce(usize) -> W) -> bool {
    let Ok(wanted) = env::var(WANTED) else {
        return false;
    };
    match wanted.split_once(' ') {
        None => cases.iter().for_each(|case| println!("{case}")),
        Some((index, times)) => {
            let number = |text: &str| text.parse::<usize>().expect("a number");
            let mut work = make(number(index));
            for _ in 0..number(times) {
                work();
            }
        }
    }
    true
}
