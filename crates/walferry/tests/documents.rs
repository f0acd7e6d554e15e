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
    let output = Command::new(env!("CARGO_BIN_EXE_walferry"))
        .args(["--log", "warn", "offsets", "show", "--data-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-offsets"))
        .arg("--config")
        .arg(connector)
        .env("PGPASSWORD", "secret")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{place}: {said}");
}

/// The connectors among the JSON listings of a page.
fn connectors(page: &str) -> impl Iterator<Item = &str> {
    let listings = page.split("```json\n").skip(1);
    let listings = listings.filter_map(|rest| rest.split("```").next());
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
    let (_, rest) = text
        .split_once(&format!("\n  {key}: |\n"))
        .unwrap_or_else(|| panic!("there is no {key}"));
    let lines = rest.lines().take_while(|line| line.starts_with("    "));
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
    assert_eq!(
        block(&manifests, "worker.properties"),
        "bootstrap.servers=kafka-1:9092,kafka-2:9092\n"
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

/// The names by which links can reach the headings of a page, as GitHub and mdBook make them.
fn anchors(page: &Path) -> HashSet<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let lines = prose(page);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = times.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 {
                name
            } else {
                format!("{name}-{}", *times - 1)
            }
        })
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
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
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
