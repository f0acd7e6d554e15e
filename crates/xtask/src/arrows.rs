//! `cargo xtask arrows`: who may depend on whom, checked on what Cargo says.
//!
//! Arrows point down the rows below and never along one; pure crates must not even reach a crate
//! that does input or output, nor call the parts of `std` that do. A folder may have a rule of its own.
//! Within a crate, modules form no circles but those that are listed (`circles.txt`).

mod circles;

use crate::sources::each_source;
use crate::{Outcome, shell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Crates of ours (without `walferry-`) that keep the same rule, and the ones they may see.
struct Row {
    crates: &'static str,
    pure: bool,
    may_see: &'static str,
}

const ROWS: [Row; 13] = [
    Row {
        crates: "diagnosis java",
        pure: true,
        may_see: "",
    },
    Row {
        crates: "pgoutput telemetry",
        pure: true,
        may_see: "diagnosis",
    },
    Row {
        crates: "record config",
        pure: true,
        may_see: "diagnosis java",
    },
    Row {
        crates: "keystore",
        pure: false,
        may_see: "diagnosis",
    },
    Row {
        crates: "event",
        pure: true,
        may_see: "diagnosis pgoutput record config telemetry",
    },
    Row {
        crates: "script",
        pure: true,
        may_see: "record config",
    },
    Row {
        crates: "transform",
        pure: true,
        may_see: "diagnosis record config telemetry script",
    },
    Row {
        crates: "converter",
        pure: true,
        may_see: "diagnosis record config telemetry",
    },
    Row {
        crates: "engine",
        pure: false,
        may_see: "event transform converter diagnosis pgoutput record config telemetry",
    },
    Row {
        crates: "postgres kafka offset registry admin",
        pure: false,
        may_see: "engine event transform converter diagnosis pgoutput record config telemetry keystore",
    },
    Row {
        crates: "outbox",
        pure: false,
        may_see: "postgres engine event transform diagnosis pgoutput config",
    },
    Row {
        crates: "relay",
        pure: false,
        may_see: "postgres engine event transform converter snapshot diagnosis pgoutput record config telemetry keystore",
    },
    Row {
        crates: "worker",
        pure: false,
        may_see: "outbox relay postgres kafka offset registry admin engine event transform converter diagnosis pgoutput record config telemetry keystore",
    },
];

/// These see everything: the binary, and what serves development only.
const UNRULED: &[&str] = &[
    "walferry",
    "walferry-features",
    "walferry-reference",
    "walferry-testkit",
    "walferry-tests",
    "xtask",
];

/// Development only: nobody's normal dependency but each other's.
const DEVELOPMENT: &[&str] = &[
    "walferry-features",
    "walferry-reference",
    "walferry-testkit",
    "walferry-tests",
    "xtask",
];

/// Crates that open sockets, run tasks or link a driver.
const IMPURE_CRATES: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "async-std",
    "smol",
    "hyper",
    "axum",
    "reqwest",
    "rustls",
    "openssl",
    "rdkafka",
    "tokio-postgres",
    "tempfile",
    "rustix",
];

/// Parts of `std` that read the world. Time, ids and the contents of files come in as arguments.
const IMPURE_CALLS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env::",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
];

/// A folder whose files must not name certain things.
struct Ban {
    folder: &'static str,
    words: &'static [&'static str],
    why: &'static str,
}

/// Delivery serves any source. What is Postgres' is in `account/` beside it.
const BANS: [Ban; 1] = [Ban {
    folder: "crates/walferry-engine/src/delivery",
    words: &[
        "Lsn",
        "walferry_pgoutput",
        "walferry_postgres",
        "walferry_event",
        "crate::incremental",
        "crate::snapshot",
        "crate::account",
        "crate::gap",
        "crate::history",
        "crate::message_type",
        "crate::position",
        "crate::published",
        "crate::source",
    ],
    why: "delivery knows no source",
}];

pub(crate) fn run() -> Outcome {
    let metadata = shell::output(&mut shell::cargo([
        "metadata",
        "--format-version",
        "1",
        "--all-features",
    ]))?;
    let graph = Graph::read(&serde_json::from_str(&metadata)?)?;
    let mut problems = problems(&graph);
    for name in ROWS.iter().filter(|row| row.pure).flat_map(|row| row.crates.split(' ')) {
        if let Some(ours) = graph.ours.get(&format!("walferry-{name}")) {
            problems.extend(impure_calls(&ours.folder.join("src"))?);
        }
    }
    for ban in &BANS {
        problems.extend(banned_words(ban)?);
    }
    let crates = graph.ours.iter().filter(|(name, _)| *name != "walferry-tests");
    let crates = crates.map(|(name, ours)| (name.clone(), ours.folder.as_path()));
    problems.extend(circles::problems(&crates.collect())?);
    if problems.is_empty() {
        println!("arrows: {} crates keep the rules", graph.ours.len());
        return Ok(());
    }
    Err(format!("the crate graph breaks its rules\n  {}", problems.join("\n  ")).into())
}

/// What `cargo metadata` says, reduced to names.
#[derive(Default)]
struct Graph {
    ours: BTreeMap<String, Ours>,
    /// Every package's normal dependencies, build scripts' and tests' left out.
    normal: HashMap<String, BTreeSet<String>>,
}

struct Ours {
    folder: PathBuf,
    /// Dependencies on other crates of ours: name, and whether for tests only.
    arrows: Vec<(String, bool)>,
}

impl Graph {
    fn read(metadata: &Value) -> Outcome<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let members: BTreeSet<String> = list(&metadata["workspace_members"]).iter().map(text).collect();
        let mut graph = Self::default();
        let mut names = HashMap::new();
        for package in list(&metadata["packages"]) {
            let (id, name) = (text(&package["id"]), text(&package["name"]));
            if members.contains(&id) {
                let manifest = PathBuf::from(text(&package["manifest_path"]));
                let dependencies = list(&package["dependencies"]);
                let arrows = dependencies.iter().filter(|to| !to["path"].is_null());
                let arrows = arrows.map(|to| (text(&to["name"]), to["kind"] == "dev")).collect();
                let folder = manifest.parent().ok_or("a manifest lies in a folder")?.into();
                graph.ours.insert(name.clone(), Ours { folder, arrows });
            }
            names.insert(id, name);
        }
        for node in list(&metadata["resolve"]["nodes"]) {
            let normal = list(&node["deps"])
                .into_iter()
                .filter(|to| list(&to["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
            let normal = normal.filter_map(|to| names.get(&text(&to["pkg"])).cloned());
            graph
                .normal
                .entry(names[&text(&node["id"])].clone())
                .or_default()
                .extend(normal);
        }
        Ok(graph)
    }

    /// The way from one package to the first impure one, if there is one.
    fn way_to_impure(&self, from: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([from.to_owned()]);
        let mut ways = vec![vec![from.to_owned()]];
        while let Some(way) = ways.pop() {
            let last = way.last().expect("a way has a start");
            if IMPURE_CRATES.contains(&last.as_str()) {
                return Some(way);
            }
            for next in self.normal.get(last).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    ways.push(way.iter().chain([next]).cloned().collect());
                }
            }
        }
        None
    }
}

/// Arrows that the rules forbid.
fn problems(graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, ours) in &graph.ours {
        for (to, for_tests) in &ours.arrows {
            if DEVELOPMENT.contains(&to.as_str()) && !for_tests && !DEVELOPMENT.contains(&name.as_str()) {
                problems.push(format!("{name} needs {to}, which is for development only"));
            }
        }
        if UNRULED.contains(&name.as_str()) {
            continue;
        }
        let lists = |list: &str, name: &str| {
            list.split(' ')
                .any(|known| name.strip_prefix("walferry-") == Some(known))
        };
        let Some(row) = ROWS.iter().find(|row| lists(row.crates, name)) else {
            problems.push(format!("{name} has no row in crates/xtask/src/arrows.rs"));
            continue;
        };
        for (to, _) in &ours.arrows {
            if !lists(row.may_see, to) && !DEVELOPMENT.contains(&to.as_str()) {
                problems.push(format!("{name} must not see {to}"));
            }
        }
        if let Some(way) = graph.way_to_impure(name).filter(|_| row.pure) {
            problems.push(format!("{name} is pure but reaches {}", way[1..].join(" → ")));
        }
    }
    problems
}

/// Lines above a file's tests that name an impure part of `std`.
fn impure_calls(folder: &Path) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    each_source(folder, &mut |path, source| {
        let lines = impure_lines(source);
        problems.extend(lines.map(|(line, call)| format!("{path}:{line} is in a pure crate but uses {call}")));
    })?;
    Ok(problems)
}

/// Lines of a folder, tests and comments included, with a word that it must not name.
fn banned_words(ban: &Ban) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    each_source(&shell::root().join(ban.folder), &mut |path, source| {
        let lines = banned_lines(source, ban.words);
        problems.extend(lines.map(|(line, word)| format!("{path}:{line} names {word}, but {}", ban.why)));
    })?;
    Ok(problems)
}

fn banned_lines<'a>(source: &'a str, words: &'a [&str]) -> impl Iterator<Item = (usize, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = move |line: &str, word: &str| {
        line.match_indices(word)
            .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
    };
    // A list such as `use crate::{position::Position}` names a module without the crate.
    let inner = move |line: &str, word: &str| {
        let module = word.strip_prefix("crate::");
        module.is_some_and(|module| {
            line.trim_start()
                .strip_prefix(module)
                .is_some_and(|tail| tail.starts_with("::"))
        })
    };
    source.lines().enumerate().filter_map(move |(index, line)| {
        let word = words.iter().find(|word| names(line, word) || inner(line, word))?;
        Some((index + 1, *word))
    })
}

fn impure_lines(source: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let code = source
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .enumerate();
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter_map(|(index, line)| {
        let call = IMPURE_CALLS.iter().find(|call| line.contains(**call))?;
        Some((index + 1, *call))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)], others: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            for name in [from, to] {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).into();
                graph.ours.entry((*name).into()).or_insert(Ours {
                    folder,
                    arrows: Vec::new(),
                });
            }
            graph
                .ours
                .get_mut(*from)
                .expect("just added")
                .arrows
                .push(((*to).into(), false));
        }
        for (from, to) in others {
            graph.normal.entry((*from).into()).or_default().insert((*to).into());
        }
        graph
    }

    #[test]
    fn arrows_that_point_along_or_up_a_row_are_named() {
        let cases: [(&str, &str, Option<&str>); 5] = [
            ("walferry-kafka", "walferry-engine", None),
            ("walferry", "walferry-kafka", None),
            (
                "walferry-kafka",
                "walferry-postgres",
                Some("walferry-kafka must not see walferry-postgres"),
            ),
            (
                "walferry-engine",
                "walferry-offset",
                Some("walferry-engine must not see walferry-offset"),
            ),
            (
                "walferry",
                "walferry-testkit",
                Some("walferry needs walferry-testkit, which is for development only"),
            ),
        ];
        for (from, to, problem) in cases {
            assert_eq!(
                problems(&graph(&[(from, to)], &[])),
                Vec::from_iter(problem),
                "{from} → {to}"
            );
        }
    }

    #[test]
    fn a_pure_crate_that_reaches_a_socket_is_told_the_way() {
        let graph = graph(
            &[("walferry-event", "walferry-record")],
            &[("walferry-record", "x"), ("x", "tokio")],
        );
        assert_eq!(problems(&graph), ["walferry-record is pure but reaches x → tokio"]);
    }

    #[test]
    fn a_banned_word_is_found_as_a_whole_word_wherever_it_is() {
        let words = ["Lsn", "crate::position", "crate::account"];
        let source = "\
            use walferry_pgoutput::Lsn;\n\
            struct LsnText;\n\
            // an Lsn\n\
            use crate::{\n    position::Position,\n    delivery::account::Account,\n};\n\
            use crate::position::Position;\n";
        let found: Vec<_> = banned_lines(source, &words).collect();
        assert_eq!(
            found,
            [(1, "Lsn"), (3, "Lsn"), (5, "crate::position"), (8, "crate::position")]
        );
    }

    #[test]
    fn only_code_above_the_tests_is_searched_for_impure_calls() {
        let source = "// std::fs is spoken of\nuse std::fs;\n#[cfg(test)]\nuse std::net;\n";
        assert_eq!(impure_lines(source).collect::<Vec<_>>(), [(2, "std::fs")]);
    }
}
