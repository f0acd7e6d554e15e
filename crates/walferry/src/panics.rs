//! What a panic ends, so that nothing is left that looks alive and does no more work.
//!
//! | where | what it ends |
//! | --- | --- |
//! | a connector's thread, its pipeline, or what reads its configuration | that connector ([`walferry_worker::supervisor`]) |
//! | work on a thread of tokio's pool | what waits for it, which is told |
//! | an HTTP connection of the admin endpoint | that connection |
//! | the main thread, and every other thread or task | the process |

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    thread,
};

use walferry_diagnosis::{Kind, concealed};
use walferry_worker::vital::{self, POOL};

use crate::{logging, output};

/// Threads whose end is noticed by others, who say what follows from it.
const NOTICED: [&str; 5] = ["main", "connector", "pipeline", "configuration", POOL];

/// Reports each panic as a line of the log, and ends the process if nobody would notice it.
pub(crate) fn report() {
    vital::end_process_with(|| output::exit(exit_code()));
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        let message = logging::panicked(name, &place(info), text(info), backtrace().as_deref());
        output::stderr().log(concealed(&message).into_owned().into_bytes());
        if !NOTICED.contains(&name) {
            output::exit(exit_code());
        }
    }));
}

/// What a process ends with that has ended because of a panic.
pub(crate) fn exit_code() -> u8 {
    Kind::Panic.exit() as u8
}

fn place(info: &PanicHookInfo<'_>) -> String {
    info.location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string)
}

fn text<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

/// The calls that have led to it, if the environment asks for them.
fn backtrace() -> Option<String> {
    let backtrace = Backtrace::capture();
    (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string())
}

#[cfg(test)]
mod tests {
    use std::{env, future::pending, process::Command};

    use tokio::task::LocalSet;
    use walferry_worker::{
        process::runtime,
        vital::{spawn_vital, vital},
    };

    use super::*;

    const CASE: &str = "WALFERRY_TEST_PANIC";

    /// What a process does that panics somewhere and goes on forever otherwise. It runs as a process of its own, below.
    #[test]
    fn child() {
        let Ok(case) = env::var(CASE) else { return };
        report();
        // A test has a thread of another name.
        let main = thread::Builder::new().name("main".into());
        main.spawn(move || go_on_but_for(&case)).unwrap().join().unwrap();
    }

    fn go_on_but_for(case: &str) {
        let runtime = runtime().unwrap();
        LocalSet::new().block_on(&runtime, async {
            match case {
                "task" => drop(spawn_vital(async { panic!("of a task") })),
                "main" => vital(async { panic!("of the main thread") }).await,
                "thread" => drop(thread::spawn(|| panic!("of a thread"))),
                "client" => drop(
                    thread::Builder::new()
                        .name("registry".into())
                        .spawn(|| panic!("of a client")),
                ),
                "noticed" => {
                    let connector = thread::Builder::new().name("connector".into());
                    let connector = connector.spawn(|| panic!("of a connector")).unwrap();
                    connector.join().unwrap_err();
                    tokio::task::spawn_blocking(|| panic!("of work")).await.unwrap_err();
                    tokio::spawn(async { panic!("of a request") }).await.unwrap_err();
                    output::exit(77);
                }
                other => unreachable!("{other}"),
            }
            pending().await
        })
    }

    #[test]
    fn what_nobody_would_notice_ends_the_process_and_is_reported() {
        for (case, code, message) in [
            ("task", 1, "thread 'main' panicked at "),
            ("main", 1, ": of the main thread"),
            ("thread", 1, "thread 'without a name' panicked at "),
            ("client", 1, "thread 'registry' panicked at "),
            ("noticed", 77, "thread 'connector' panicked at "),
        ] {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "panics::tests::child", "--nocapture", "--test-threads=1"])
                .env(CASE, case)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            assert_eq!(child.status.code(), Some(code), "{case}: {said}");
            assert!(said.contains(message) && said.contains("WF0703"), "{case}: {said}");
        }
    }
}
