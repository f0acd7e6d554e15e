//! Configurations that the documents and the image show are ones that the program takes.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use walferry_config::{Lookup, Submitted, Worker};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// What the program says to a connector. Looking for its offset reads all of the file, with transforms and converters, and
/// connects to nothing.
#[track_caller]
fn assert_taken(connector: &Path, place: &str) {
    // A folder that does not exist is a mistake of its own.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-offsets");
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(["--log", "warn", "offsets", "show", "--data-dir"])
        .arg(folder)
        .arg("--config")
        .arg(connector)
        .env("PGPASSWORD", "secret")
        .env("CDC_PASSWORD", "secret")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if fs::read_to_string(connector).unwrap().contains("walferry.OutboxRelay") {
        // It is taken, and has no offset that could be shown.
        assert!(
            said.contains("WF0608") && said.matches("error: ").count() == 1,
            "{place}: {said}"
        );
        return;
    }
    assert!(output.status.success() && said.is_empty(), "{place}: {said}");
}

/// The connectors among the JSON listings of a page.
fn connectors(page: &str) -> impl Iterator<Item = &str> {
    let listings = page.split("```json\n").skip(1);
    let listings = listings.filter_map(|tail| tail.split("```").next());
    listings.filter(|listing| listing.contains("connector.class"))
}

#[test]
fn connectors_in_the_documents_are_taken() {
    let mut pages = vec![root().join("README.md"), root().join("docs/tutorial.md")];
    let how_to = fs::read_dir(root().join("docs/how-to")).unwrap();
    pages.extend(how_to.map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for connector in connectors(&text) {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("document-{count}.json"));
            fs::write(&file, connector).unwrap();
            assert_taken(&file, &page.display().to_string());
            count += 1;
        }
    }
    assert!(count > 0, "the tutorial shows a connector");
}

#[test]
fn the_connectors_of_image_and_package_are_taken() {
    for file in ["docker/connector.json", "deploy/debian/connector.json"] {
        assert_taken(&root().join(file), file);
    }
}

/// The lines below a key of a YAML file, without their indent.
fn block(text: &str, key: &str) -> String {
    let (_, tail) = text
        .split_once(&format!("\n  {key}: |\n"))
        .unwrap_or_else(|| panic!("there is no {key}"));
    let lines = tail.lines().take_while(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", &line[4..])).collect()
}

#[test]
fn the_manifests_connector_is_taken() {
    let manifests = fs::read_to_string(root().join("deploy/kubernetes/walferry.yaml")).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifests");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("password"), "secret").unwrap();
    let connector = block(&manifests, "orders.json").replace("/run/secrets/database", &folder.to_string_lossy());
    let file = folder.join("orders.json");
    fs::write(&file, connector).unwrap();
    assert_taken(&file, "deploy/kubernetes/walferry.yaml");
    let worker = block(&manifests, "worker.properties");
    let properties: Vec<&str> = worker.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        properties,
        [
            "bootstrap.servers=kafka-1:9092,kafka-2:9092",
            "walferry.rest.allowed.hosts=orders-walferry,orders-walferry.cdc,orders-walferry.cdc.svc,orders-walferry.cdc.svc.cluster.local"
        ]
    );
}

#[test]
fn the_image_s_worker_says_where_kafka_is_and_nothing_needs_telling() {
    struct Nothing;
    impl Lookup for Nothing {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
        fn file(&self, path: &Path) -> io::Result<String> {
            Err(io::Error::other(path.display().to_string()))
        }
    }
    let text = fs::read_to_string(root().join("docker/worker.properties")).unwrap();
    let (submitted, _) = Submitted::read(&text).unwrap();
    let (worker, findings) = Worker::read(&submitted, &Nothing);
    let findings: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings, Vec::<String>::new());
    assert_eq!(worker.unwrap().bootstrap_servers.as_deref(), Some("kafka:9092"));
}

/// All Markdown files of the project, also those of folders in folders.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            pages(&path, found);
        } else if name.ends_with(".md") && name != "SUMMARY.md" {
            found.push(path);
        }
    }
}

/// The lines of a page that are not part of a listing.
fn prose(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut in_listing = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_listing = !in_listing;
        } else if !in_listing {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The names by which links can reach the headings of a page, as GitHub and mdBook make them, and its anchors `<a id="…">`.
fn anchors(page: &Path) -> HashSet<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let lines = prose(page);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    let ids = lines.iter().flat_map(|line| line.split("<a id=\"").skip(1));
    let ids = ids.filter_map(|tail| Some(tail.split_once('"')?.0.to_owned()));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let anchor_characters = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let name: String = anchor_characters.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = times.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 {
                name
            } else {
                format!("{name}-{}", *times - 1)
            }
        })
        .chain(ids)
        .collect()
}

/// A link that leads nowhere is noticed here, not by a reader.
#[test]
fn links_between_the_documents_lead_to_a_file_and_to_a_heading() {
    let mut all = Vec::new();
    pages(root(), &mut all);
    let (mut links, mut headings) = (0, 0);
    let mut broken = Vec::new();
    for page in all {
        for line in prose(&page) {
            for link in line.split("](").skip(1).filter_map(|tail| tail.split(')').next()) {
                if link.contains("://") {
                    continue;
                }
                links += 1;
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => page.clone(),
                    file => page.parent().unwrap().join(file),
                };
                let is_page = target.extension().is_some_and(|extension| extension == "md");
                let leads_nowhere = !target.exists();
                if leads_nowhere || (is_page && !heading.is_empty() && !anchors(&target).contains(heading)) {
                    broken.push(format!("{} links to {link}", page.display()));
                }
                headings += usize::from(!heading.is_empty());
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    assert!(
        links > 200 && headings > 30,
        "{links} links, {headings} of them to headings"
    );
}

/// A listing that does not begin with a command shows what something printed.
fn is_of_commands(language: &str, lines: &[&str]) -> bool {
    language == "sh" || (language == "console" && lines.iter().any(|line| line.trim_start().starts_with("$ ")))
}

/// A reader has to know which commands nobody has run. The site shows it beside the listing.
#[test]
fn each_listing_of_commands_says_which_test_runs_it_or_why_none_does() {
    let mut all = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|page| root().join(page))
        .to_vec();
    pages(&root().join("docs"), &mut all);
    let mut sources = String::new();
    for folder in ["tests", "crates"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let (mut problems, mut count) = (Vec::new(), 0);
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut number = 0;
        while number < lines.len() {
            let Some(language) = lines[number].trim_start().strip_prefix("```") else {
                number += 1;
                continue;
            };
            let begin = number + 1;
            let length = lines[begin..].iter().position(|line| line.trim() == "```").unwrap();
            if is_of_commands(language, &lines[begin..begin + length]) {
                count += 1;
                let before = number.checked_sub(1).map_or("", |before| lines[before].trim());
                let said = before.strip_prefix("<!-- ").and_then(|tail| tail.strip_suffix(" -->"));
                let problem = match said.and_then(|said| said.split_once(": ")) {
                    Some(("not run", _)) => None,
                    Some(("run by", test)) if sources.contains(&format!("fn {test}()")) => None,
                    Some(("run by", test)) => Some(format!("there is no test {test}")),
                    _ => {
                        Some("write `<!-- run by: TEST -->` or `<!-- not run: why -->` into the line before it".into())
                    }
                };
                let place = format!("{}:{}", page.display(), number + 1);
                problems.extend(problem.map(|problem| format!("{place}: {problem}")));
            }
            number = begin + length + 1;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 60, "{count} listings of commands");
}

/// The sentences of the statements that a section makes: of its list items, each with what it continues on the next lines.
fn statements(section: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in section.lines() {
        match (line.trim_start().strip_prefix("- "), line.is_empty()) {
            (Some(text), _) => items.push(text.to_owned()),
            (None, false) if is_open => {
                let item = items.last_mut().expect("it is open");
                item.push(' ');
                item.push_str(line.trim());
            }
            _ => {}
        }
        is_open = !line.is_empty() && !line.starts_with('#') && (is_open || line.trim_start().starts_with("- "));
    }
    // A full stop in code is followed by no blank.
    let ends = |item: &str| item.split(". ").map(str::to_owned).collect::<Vec<_>>();
    items.iter().flat_map(|item| ends(item)).collect()
}

/// The tests that a text names. Names of properties and settings have fewer words.
fn named_tests(text: &str) -> Vec<&str> {
    let is_test = |code: &&str| {
        let mut bytes = code.bytes();
        bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && code.matches('_').count() > 3
    };
    text.split('`').skip(1).step_by(2).filter(is_test).collect()
}

/// What keeps a page from saying only what a test holds: names of tests that do not exist, and sentences about parties without one.
fn unheld(page: &str, sources: &str) -> Vec<String> {
    let is_there = |name: &str| {
        let function = format!("fn {name}()");
        let mut places = sources.match_indices(&function).map(|(place, _)| place);
        // A function that only helps a test is none.
        places.any(|place| {
            let before = sources[..place].lines().rev().take(4);
            before
                .take_while(|line| *line != "}")
                .any(|line| line.trim_start().starts_with("#[test]") || line.contains("#[tokio::test"))
        })
    };
    let names = named_tests(page).into_iter();
    let mut problems: Vec<String> = names
        .filter(|name| !is_there(name))
        .map(|name| format!("there is no test {name}"))
        .collect();
    let parties = page.split("\n## Who can do what\n").nth(1).unwrap_or_default();
    let parties = parties.split("\n## ").next().unwrap_or_default();
    for party in parties.split("\n### ").skip(1) {
        let (title, said) = party.split_once('\n').unwrap_or((party, ""));
        let sentences = statements(said);
        if sentences.is_empty() {
            problems.push(format!("nothing is said of {title:?}"));
        }
        let bare = sentences.iter().filter(|sentence| named_tests(sentence).is_empty());
        problems.extend(bare.map(|sentence| format!("{title}: no test holds {sentence:?}")));
        // What stands outside of the list says who the party is, or gives advice.
        let claims = said.lines().filter(|line| !line.starts_with(['-', ' ']));
        let claims = claims.filter(|line| [" can ", " cannot ", " may do "].iter().any(|word| line.contains(word)));
        problems.extend(
            claims
                .filter(|line| !line.starts_with("Advice: "))
                .map(|line| format!("{title}: not in the list: {line:?}")),
        );
    }
    problems
}

/// What SECURITY.md says of a party is only worth what holds it.
#[test]
fn each_sentence_about_a_party_in_the_security_page_has_a_test_that_exists() {
    let mut sources = String::new();
    for folder in ["tests", "crates"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut problems = unheld(&text, &sources);
    for party in [
        "without a login",
        "A reader",
        "A writer",
        "A signaller",
        "The owner of a captured table",
        "A hostile Postgres",
        "A hostile Kafka",
        "A hostile schema registry",
        "Other users of the machine",
    ] {
        let is_title = |line: &str| line.starts_with("### ") && line.contains(party);
        if !text.lines().any(is_title) {
            problems.push(format!("nothing is said of {party:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let count = named_tests(&text).len();
    assert!(count > 60, "{count} tests");
}

#[test]
fn a_sentence_without_a_test_is_found_and_so_is_a_test_that_is_none() {
    let sources = "#[test]\nfn one_that_really_is_there() {\n}\n\nfn what_only_helps_a_test() {\n}\n";
    let page =
        |list: &str| format!("# S\n\n## Who can do what\n\n### A reader\n\n{list}\n\n## Other\n\n- They can sing.\n");
    let found = |list: &str| unheld(&page(list), sources).len();
    let held = "- They read `a.b`\n  (`one_that_really_is_there`).";
    assert_eq!(found(held), 0);
    assert_eq!(found(&format!("{held}\n\nAdvice: nobody can sing.")), 0);
    assert_eq!(found(&format!("{held} They can sing.")), 1);
    assert_eq!(found(&format!("{held}\n- They can sing.")), 1);
    assert_eq!(found(&format!("{held}\n\nThey can sing.")), 1);
    assert_eq!(found("They sing."), 1, "no list");
    assert_eq!(found(&held.replace("one_that", "another_one_that")), 1);
    assert_eq!(
        found(&held.replace("one_that_really_is_there", "what_only_helps_a_test")),
        1
    );
}

fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
