//! `cargo xtask book`: the documents as a site with search, by mdBook.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::{Outcome, provide, shell};

const MDBOOK: &str = "0.5.4";
const SOURCE: &str = "target/book-source";
const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn run() -> Outcome {
    let repository = repository()?;
    let source = shell::root().join(SOURCE);
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    for page in pages("docs")? {
        let mut text = fs::read_to_string(shell::root().join(&page))?;
        if page == SUMMARY {
            text = summary(&text)?;
        }
        write(
            &page,
            &escaped(&with_links(
                &with_marks(&text),
                Path::new(&page),
                &repository,
                MAIN,
                is_on_site,
            )),
        )?;
    }
    write(
        "docs/CHANGELOG.md",
        &with_links(
            &changelog("")?,
            Path::new("docs/CHANGELOG.md"),
            &repository,
            MAIN,
            is_on_site,
        ),
    )?;
    let images = source.join("images");
    fs::create_dir_all(&images)?;
    for image in fs::read_dir(shell::root().join("docs/images"))? {
        let image = image?;
        fs::copy(image.path(), images.join(image.file_name()))?;
    }
    let mdbook = match shell::find("mdbook") {
        Some(found) => found,
        None => provide::tool("mdbook", MDBOOK)?,
    };
    shell::run(Command::new(mdbook).arg("build").current_dir(shell::root()))?;
    println!("the site is target/book/index.html");
    Ok(())
}

/// The summary with the pages of transforms, predicates and converters, which `cargo xtask docs` writes: one for each class. The
/// changelog, which is only on the site, is its last page.
fn summary(summary: &str) -> Outcome<String> {
    let mut out = String::new();
    for line in summary.lines() {
        out.push_str(&format!("{line}\n"));
        if line.ends_with("(reference/transforms/README.md)") {
            for page in pages("docs/reference")?.iter().filter(|page| is_of_class(page)) {
                let link = page.trim_start_matches("docs/");
                let name = link.rsplit('/').next().unwrap_or_default().trim_end_matches(".md");
                out.push_str(&format!("  - [{name}]({link})\n"));
            }
        }
    }
    out.push_str("- [Changelog](CHANGELOG.md)\n");
    Ok(out)
}

/// Whether a page is one of those that stand below the list of all transforms.
fn is_of_class(page: &str) -> bool {
    ["transforms", "predicates", "converters"]
        .iter()
        .any(|folder| page.starts_with(&format!("docs/reference/{folder}/")))
        && !page.ends_with("README.md")
}

fn write(page: &str, text: &str) -> Outcome {
    let file = shell::root().join(SOURCE).join(page.trim_start_matches("docs/"));
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(file, text)?)
}

fn repository() -> Outcome<String> {
    let manifest: toml::Value = toml::from_str(&fs::read_to_string(shell::root().join("Cargo.toml"))?)?;
    let repository = manifest["workspace"]["package"]["repository"].as_str();
    Ok(repository.ok_or("Cargo.toml names no repository")?.to_owned())
}

/// The pages below a folder, from the top of the tree. Fragments of the changelog are no pages.
fn pages(folder: &str) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(shell::root().join(folder))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if shell::root().join(&path).is_dir() {
            if path != "docs/changes" && path != "docs/examples" {
                found.extend(pages(&path)?);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The links of a page, without those in code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut in_code = false;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            for (start, _) in line.match_indices("](") {
                if let Some(end) = line[start + 2..].find(')') {
                    found.push((at + start + 2, &line[start + 2..start + 2 + end]));
                }
            }
        }
        at += line.len();
    }
    found
}

/// Where a link of a page leads, from the top of the tree; `None` for another site.
fn target(page: &Path, link: &str) -> Option<PathBuf> {
    let file = link.split('#').next().unwrap_or_default();
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    if file.is_empty() {
        return Some(page.to_owned());
    }
    let mut path = PathBuf::new();
    for part in page.parent()?.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    Some(path)
}

/// Whether a file is on the site: a page or an image, not one outside of docs/, and not a fragment.
fn is_on_site(path: &Path) -> bool {
    if path.starts_with("docs/images") {
        return true;
    }
    let is_page = path.starts_with("docs") && path.extension().is_some_and(|extension| extension == "md");
    is_page && !path.starts_with("docs/changes") && !path.starts_with("docs/examples")
}

/// The pages below a folder that has a part of the tree: links to what is not in this folder lead to the repository.
pub(crate) fn link_to_repository(top: &Path) -> Outcome {
    let repository = repository()?;
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let file = entry?.path();
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&file)?;
                let linked = with_links(&text, file.strip_prefix(top)?, &repository, MAIN, |path| {
                    top.join(path).exists()
                });
                fs::write(&file, linked)?;
            }
        }
    }
    Ok(())
}

const MAIN: &str = "main";

/// Links to what is not there lead to the repository, to this branch or tag.
fn with_links(text: &str, page: &Path, repository: &str, at_ref: &str, is_there: impl Fn(&Path) -> bool) -> String {
    let mut out = String::new();
    let mut from = 0;
    for (at, link) in links(text) {
        let Some(path) = target(page, link) else { continue };
        if !is_there(&path) {
            let kind = if shell::root().join(&path).is_dir() {
                "tree"
            } else {
                "blob"
            };
            out.push_str(&text[from..at]);
            out.push_str(&format!("{repository}/{kind}/{at_ref}/{}", path.display()));
            out.push_str(link.find('#').map_or("", |anchor| &link[anchor..]));
            from = at + link.len();
        }
    }
    out.push_str(&text[from..]);
    out
}

/// Opens what [`with_marks`] says. docs/site.css makes it small.
const MARK: &str = "<span class=\"told\">";

/// Comments such as `<!-- not run: why -->` become text, so that readers of the site know which commands no test runs.
fn with_marks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let said = line.trim().strip_prefix("<!-- not run: ");
        match said.and_then(|tail| tail.strip_suffix(" -->")) {
            Some(why) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                out.push_str(&format!("{indent}{MARK}Not run by a test: {why}.</span>\n\n"));
            }
            None => out.push_str(line),
        }
    }
    out
}

/// Placeholders such as `<name>` outside of code are text, not HTML. An anchor is HTML, and so is [`MARK`].
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_code = false;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        // Between backticks is code, too.
        for (number, part) in line.split('`').enumerate() {
            if number > 0 {
                out.push('`');
            }
            let is_text = !in_code && number % 2 == 0;
            let mut tail = part;
            while let (true, Some(at)) = (is_text, tail.find('<')) {
                let word: &str = tail[at + 1..].split('>').next().unwrap_or_default();
                let is_html = word.starts_with("a id=\"") || tail[at..].starts_with(MARK);
                let is_placeholder = word.starts_with(char::is_alphabetic) && !word.contains(':') && !is_html;
                out.push_str(&tail[..at]);
                out.push_str(if is_placeholder { "&lt;" } else { "<" });
                tail = &tail[at + 1..];
            }
            out.push_str(tail);
        }
    }
    out
}

const CHANGES: &str = "docs/changes";

/// The kinds of fragments, and their headings.
const KINDS: [(&str, &str); 4] = [
    ("added", "Added"),
    ("changed", "Changed"),
    ("fixed", "Fixed"),
    ("removed", "Removed"),
];

/// All of docs/changes, as one page: the fragments, if there are any, then the releases. `docs` leads from this page to docs/: `""` or
/// `"docs/"`.
pub(crate) fn changelog(docs: &str) -> Outcome<String> {
    let mut text = String::from("# Changelog\n");
    let fragments = fragments()?;
    if !fragments.is_empty() {
        text.push_str(&format!("\n## Not released yet\n{fragments}"));
    }
    for (_, file) in releases()? {
        // Its heading is `# VERSION (date)`.
        text.push_str(&format!("\n#{}", fs::read_to_string(file)?));
    }
    // Fragments and releases stand in a folder of docs/.
    Ok(text.replace("](../", &format!("]({docs}")))
}

/// What a release tells, without its heading and with links to its tag in the repository: for the page of the release on the forge.
pub(crate) fn notes(version: &str) -> Outcome<String> {
    let name = format!("{CHANGES}/{version}.md");
    let text = fs::read_to_string(shell::root().join(&name)).map_err(|e| format!("{name}: {e}"))?;
    let body = text.split_once('\n').map_or("", |(_, body)| body).trim_start();
    let tag = format!("v{version}");
    Ok(with_links(body, Path::new(&name), &repository()?, &tag, |_| false))
}

fn fragments() -> Outcome<String> {
    let mut text = String::new();
    for (kind, title) in KINDS {
        let mut files: Vec<PathBuf> = fs::read_dir(shell::root().join(CHANGES))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().ends_with(&format!(".{kind}.md")))
            .collect();
        files.sort();
        if files.is_empty() {
            continue;
        }
        text.push_str(&format!("\n### {title}\n\n"));
        for file in files {
            let fragment = fs::read_to_string(&file)?;
            let mut lines = fragment.trim().lines();
            text.push_str(&format!("- {}\n", lines.next().unwrap_or_default()));
            for line in lines {
                let indent = if line.is_empty() { "" } else { "  " };
                text.push_str(&format!("{indent}{line}\n"));
            }
        }
    }
    Ok(text)
}

/// The releases with the numbers of their versions, newest first.
fn releases() -> Outcome<Vec<(Vec<u32>, PathBuf)>> {
    let mut releases = Vec::new();
    for entry in fs::read_dir(shell::root().join(CHANGES))? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let numbers = name.strip_suffix(".md").and_then(numbers);
        releases.extend(numbers.map(|numbers| (numbers, file.clone())));
    }
    releases.sort_by(|one, other| other.cmp(one));
    Ok(releases)
}

/// The numbers of a version such as `0.1.0`.
fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(shell::root().join(path)).unwrap_or_else(|problem| panic!("{path}: {problem}"))
    }

    /// As mdBook and public forges make it from a heading.
    fn anchor(heading: &str) -> String {
        let letters = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        letters.collect()
    }

    fn anchors(text: &str) -> Vec<String> {
        let mut in_code = false;
        let mut found = Vec::new();
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if !in_code {
                if line.starts_with('#') {
                    found.push(anchor(line.trim_start_matches('#').trim()));
                }
                let ids = line.split("<a id=\"").skip(1);
                found.extend(ids.filter_map(|tail| Some(tail.split_once('"')?.0.to_owned())));
            }
        }
        found
    }

    #[test]
    fn each_page_is_in_the_summary_once() {
        let summary = summary(&read(SUMMARY)).expect("the pages can be listed");
        let listed: Vec<&str> = links(&summary).into_iter().map(|(_, link)| link).collect();
        for page in pages("docs").expect("the pages can be listed") {
            let link = page.trim_start_matches("docs/");
            if link != "SUMMARY.md" {
                let times = listed.iter().filter(|listed| **listed == link).count();
                assert_eq!(times, 1, "docs/SUMMARY.md lists {link} {times} times");
            }
        }
        for link in listed {
            let exists = link == "CHANGELOG.md" || shell::root().join("docs").join(link).is_file();
            assert!(exists, "docs/SUMMARY.md lists {link}, which does not exist");
        }
    }

    #[test]
    fn each_link_leads_to_a_page_and_to_a_heading_of_it() {
        let mut files = pages("docs").expect("the pages can be listed");
        files.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned));
        let (mut count, mut broken) = (0, Vec::new());
        for file in files.iter().filter(|file| *file != SUMMARY) {
            let text = read(file);
            for (_, link) in links(&text) {
                let Some(path) = target(Path::new(file), link) else {
                    continue;
                };
                let there = shell::root().join(&path);
                count += 1;
                if !there.exists() {
                    broken.push(format!("{file} links to {link}, which does not exist"));
                    continue;
                }
                if let Some((_, wanted)) = link.split_once('#')
                    && path.extension().is_some_and(|extension| extension == "md")
                {
                    let text = fs::read_to_string(there).expect("a page is text");
                    if !anchors(&text).iter().any(|anchor| anchor == wanted) {
                        broken.push(format!("{file} links to {link}, and there is no such heading"));
                    }
                }
            }
        }
        assert_eq!(broken, [""; 0]);
        assert!(count > 100, "only {count} links were found");
    }

    #[test]
    fn links_out_of_the_documents_lead_to_the_repository() {
        let text =
            "[a](../../config/x.json#y) [b](b.md#c) [d](https://d) ![i](../images/i.png)\n```\n[e](../../f)\n```\n";
        assert_eq!(
            with_links(text, Path::new("docs/how-to/p.md"), "https://r", MAIN, is_on_site),
            "[a](https://r/blob/main/config/x.json#y) [b](b.md#c) [d](https://d) ![i](../images/i.png)\n```\n[e](../../f)\n```\n"
        );
    }

    #[test]
    fn pages_of_an_archive_link_to_the_repository_for_what_is_not_in_it() {
        let folder = shell::root().join(format!("target/archive-links-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().expect("it is in a folder")).expect("the folder can be written");
            fs::write(file, text).expect("the file can be written");
        };
        write("config/x.json", "{}");
        write(
            "docs/ARCHITECTURE.md",
            "[a](../crates/x.rs) [b](../config/x.json) [c](how-to/p.md#d) [e](#f)\n",
        );
        write(
            "docs/how-to/p.md",
            "[g](../../docker/compose.yaml) [h](../ARCHITECTURE.md)\n",
        );
        link_to_repository(&folder).expect("the pages can be written");
        let repository = repository().expect("Cargo.toml names it");
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("the page is there");
        assert_eq!(
            read("docs/ARCHITECTURE.md"),
            format!("[a]({repository}/blob/main/crates/x.rs) [b](../config/x.json) [c](how-to/p.md#d) [e](#f)\n")
        );
        assert_eq!(
            read("docs/how-to/p.md"),
            format!("[g]({repository}/blob/main/docker/compose.yaml) [h](../ARCHITECTURE.md)\n")
        );
        fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn commands_that_no_test_runs_are_marked_on_the_site() {
        let text = "a\n\n  <!-- not run: no `x` is here -->\n  ```sh\n<!-- run by: b -->\n";
        assert_eq!(
            with_marks(text),
            "a\n\n  <span class=\"told\">Not run by a test: no `x` is here.</span>\n\n  ```sh\n<!-- run by: b -->\n"
        );
    }

    #[test]
    fn placeholders_are_no_html() {
        let text = "a <name> `<b>` <http://x> <!-- c -->\n```\n<d>\n```\n";
        assert_eq!(
            escaped(text),
            "a &lt;name> `<b>` <http://x> <!-- c -->\n```\n<d>\n```\n"
        );
        let mark = with_marks("<!-- not run: it changes <that> -->\n");
        assert_eq!(
            escaped(&mark),
            "<span class=\"told\">Not run by a test: it changes &lt;that>.</span>\n\n"
        );
    }

    /// The site would show an anchor that is taken for a placeholder as text.
    #[test]
    fn the_anchor_of_a_property_stays_an_anchor() {
        let page = read("docs/reference/configuration.md");
        let row = page
            .lines()
            .find(|line| line.contains("`slot.name`") && line.starts_with("| <a id=\"slot.name\"></a>"))
            .expect("the row of slot.name has an anchor");
        assert!(
            escaped(row).starts_with("| <a id=\"slot.name\"></a>`slot.name` |"),
            "{}",
            escaped(row)
        );
        assert!(anchors(&page).contains(&"column.truncate.to.LENGTH.chars".to_owned()));
    }

    /// The names in docs/changes.
    fn changes() -> Vec<String> {
        let entries = fs::read_dir(shell::root().join(CHANGES)).expect("the folder is there");
        entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn the_changelog_has_each_fragment_and_each_release() {
        let changelog = changelog("").expect("the fragments can be read");
        let mut fragments = 0;
        for name in changes() {
            let text = read(&format!("{CHANGES}/{name}"));
            let first = text.lines().next().unwrap_or_default();
            if KINDS.iter().any(|(kind, _)| name.ends_with(&format!(".{kind}.md"))) {
                fragments += 1;
                assert!(
                    !first.is_empty() && !first.starts_with('#'),
                    "{name} starts with {first:?}"
                );
                let first = first.replace("](../", "](");
                // A fragment may be a list itself.
                assert!(changelog.contains(&format!("- {first}\n")), "{name} is missing");
            } else {
                let version = name.strip_suffix(".md").filter(|version| numbers(version).is_some());
                let version = version.unwrap_or_else(|| panic!("{name} is neither a fragment nor a release"));
                assert!(
                    first.starts_with(&format!("# {version} (")) && first.ends_with(')'),
                    "{name} starts with {first:?}, and not with `# {version} (date)`"
                );
                assert!(changelog.contains(&format!("\n#{first}\n")), "{name} is missing");
            }
        }
        assert_eq!(changelog.contains("## Not released yet"), fragments > 0);
    }

    #[test]
    fn this_version_has_notes_whose_links_lead_to_pages() {
        let manifest: toml::Value = toml::from_str(&read("Cargo.toml")).expect("it is TOML");
        let version = manifest["workspace"]["package"]["version"].as_str();
        let version = version.expect("there is a version");
        let notes = notes(version).expect("there are notes");
        assert!(!notes.starts_with('#'), "{notes}");
        let start = format!("{}/blob/v{version}/", repository().expect("Cargo.toml names it"));
        for (_, link) in links(&notes) {
            let path = link.strip_prefix(&start);
            let path = path.unwrap_or_else(|| panic!("{link} does not lead to the repository"));
            let path = path.split('#').next().unwrap_or_default();
            assert!(shell::root().join(path).is_file(), "{link}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.1"));
        assert_eq!(numbers("avro.added"), None);
    }
}
