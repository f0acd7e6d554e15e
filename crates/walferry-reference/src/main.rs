//! Writes the pages under `docs/reference` from the declarations in the code. `cargo xtask docs` runs it; it is a program of its own so that
//! `cargo xtask` itself is built without the product.

mod examples;
#[cfg(test)]
mod read;
mod records;

use std::borrow::Cow;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The top of the working tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two levels down")
}

/// A page: where it stands, and what it says.
struct Page {
    path: Cow<'static, str>,
    text: String,
}

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the declarations in the code; a test fails when it is stale. -->

Names, defaults and allowed values are those of Debezium's connector and of Kafka Connect; see
[compatibility](../compatibility.md) for the differences. A property that is not listed here causes a warning with the most similar
known name, never an error. **Refused** means that the property would change what is sent, and that Walferry does not support it.
**No effect** means that Walferry behaves the same with and without the property. Each property has an anchor of its name: `configuration.md#slot.name`. Examples are shown as in a `.properties` file, \
but a backslash is not doubled.";

/// The groups of the reference of properties, in its order.
fn groups() -> impl Iterator<Item = &'static walferry_config::Group> {
    let groups: [&'static [walferry_config::Group]; 5] = [
        walferry_config::CONNECTOR_GROUPS,
        &[walferry_config::connector::post_processors::reselect::GROUP],
        walferry_transform::GROUPS,
        walferry_converter::GROUPS,
        walferry_config::WORKER_GROUPS,
    ];
    groups.into_iter().flatten()
}

fn pages() -> Result<Vec<Page>, String> {
    let configuration = walferry_config::reference_markdown("Configuration", INTRODUCTION, groups());
    let mut pages = vec![
        Page {
            path: "docs/reference/configuration.md".into(),
            text: configuration,
        },
        Page {
            path: "docs/reference/metrics.md".into(),
            text: walferry_telemetry::reference(),
        },
    ];
    pages.push(Page {
        path: "docs/reference/errors.md".into(),
        text: walferry_diagnosis::reference(),
    });
    pages.push(records::page()?);
    pages.extend(examples::pages()?);
    Ok(pages)
}

impl Page {
    fn file(&self) -> PathBuf {
        root().join(&*self.path)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for page in pages()? {
        if let Some(folder) = page.file().parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", page.path))?;
        }
        fs::write(page.file(), &page.text).map_err(|e| format!("{}: {e}", page.path))?;
        println!("wrote {}", page.path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Fails also where a transform, a predicate or a converter has no example.
    #[test]
    fn pages_are_what_the_declarations_and_the_examples_say() {
        for page in pages().unwrap_or_else(|problem| panic!("{problem}")) {
            let text = fs::read_to_string(page.file()).unwrap_or_default();
            assert!(text == page.text, "{} is stale: run `cargo xtask docs`", page.path);
        }
    }

    /// Readers copy examples.
    #[test]
    fn each_honoured_property_has_an_example_that_its_own_parser_takes() {
        use walferry_config::Support;
        let honoured = |declaration: &&walferry_config::Declaration| {
            matches!(declaration.support, Support::Honoured | Support::Except { .. })
        };
        let problem = |declaration: &walferry_config::Declaration| {
            let Some((name, value)) = declaration.shown_example() else {
                let example = match declaration.is_pattern() {
                    true => "a name with values in the place of <…>=a value",
                    false => "a value",
                };
                return Some(format!("write `.example(\"{example}\")` behind its `Property::new(…)`"));
            };
            if declaration.captures(&name).is_none() {
                return Some(format!("its example has the name {name}, which is another property's"));
            }
            let refused = declaration.check(&value).err();
            refused.map(|error| format!("its example {value:?} {error}"))
        };
        let problems: Vec<String> = groups()
            .flat_map(|group| group.declarations)
            .filter(honoured)
            .filter_map(|declaration| Some(format!("{}: {}", declaration.name, problem(declaration)?)))
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// A kind that nothing tells would be a page about nothing. That each kind has a page, its type sees to.
    #[test]
    fn each_code_is_told_by_some_crate() {
        let sources = crate::read::sources(&root().join("crates"), &["walferry-diagnosis"]);
        let untold: Vec<String> = walferry_diagnosis::Kind::all()
            .filter(|kind| {
                let name = format!("Kind::{kind:?}");
                !sources.iter().any(|text| {
                    text.match_indices(&name)
                        .any(|(at, _)| !text[at + name.len()..].starts_with(char::is_alphanumeric))
                })
            })
            .map(|kind| format!("{} {kind:?}", kind.code()))
            .collect();
        assert_eq!(untold, [""; 0], "take these out of the table, or tell them");
    }

    #[test]
    fn no_page_is_left_of_what_is_gone() {
        let pages = pages().unwrap_or_else(|problem| panic!("{problem}"));
        let files: Vec<PathBuf> = pages.iter().map(Page::file).collect();
        for folder in examples::folders() {
            for entry in fs::read_dir(root().join(folder)).expect("the folder is there") {
                let path = entry.expect("it can be listed").path();
                assert!(files.contains(&path), "{} is about nothing: remove it", path.display());
            }
        }
    }
}
