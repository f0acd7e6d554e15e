//! Circles between the modules of a crate: which file takes names from which, read from the sources as text.
//!
//! A module is a file. It takes from another what its paths name: `use` declarations, and paths in the code, with re-exports followed to the
//! file that defines the name. What only hands a name on (`pub use`) takes nothing, and tests take nothing either.

use crate::sources::{each_source, is_word, tokens};
use crate::{Outcome, shell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The path of a module below its crate: empty for `lib.rs`, `["snapshot", "queue"]` for `snapshot/queue.rs`.
type ModulePath = Vec<String>;

/// The circles of today, one a line: the crate, a colon, and its modules. The list may only become shorter.
const LIST: &str = "crates/xtask/src/arrows/circles.txt";

/// What is wrong with the circles of all crates: one that is not in the list, and one of the list that is not there any more.
pub(super) fn problems(crates: &BTreeMap<String, &Path>) -> Outcome<Vec<String>> {
    let mut found = BTreeMap::new();
    for (name, folder) in crates {
        let sources = sources(&folder.join("src"))?;
        for circle in circles(&sources) {
            found.insert(line(name, &circle), ties(&sources, &circle));
        }
    }
    let list = std::fs::read_to_string(shell::root().join(LIST))?;
    let listed: BTreeSet<&str> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    Ok(compared(&listed, &found))
}

fn compared(listed: &BTreeSet<&str>, found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let new = found.iter().filter(|(line, _)| !listed.contains(line.as_str()));
    let new = new.map(|(line, ties)| {
        let ties = ties.join("\n      ");
        format!("a circle of modules is not in {LIST}: open it, or if it is a part of one that is listed, list it instead\n    {line}\n      {ties}")
    });
    let gone = listed.iter().filter(|line| !found.contains_key(**line));
    let gone = gone.map(|line| format!("a circle of modules is not there any more: remove it from {LIST}\n    {line}"));
    new.chain(gone).collect()
}

fn line(name: &str, circle: &[ModulePath]) -> String {
    let modules: Vec<String> = circle.iter().map(|module| path_text(module)).collect();
    format!("{name}: {}", modules.join(" "))
}

fn path_text(module: &[String]) -> String {
    match module {
        [] => "(root)".into(),
        module => module.join("::"),
    }
}

/// Who takes from whom within a circle.
fn ties(sources: &[(ModulePath, String)], circle: &[ModulePath]) -> Vec<String> {
    let arrows = arrows(sources);
    let within = |from: &ModulePath| {
        arrows[from]
            .iter()
            .filter(|to| circle.contains(to))
            .map(|to| path_text(to))
            .collect()
    };
    let tie = |from: &ModulePath| {
        let to: Vec<String> = within(from);
        format!("{} → {}", path_text(from), to.join(", "))
    };
    circle.iter().map(tie).collect()
}

/// The files of a crate, each with the path of its module.
fn sources(folder: &Path) -> Outcome<Vec<(ModulePath, String)>> {
    let mut sources = Vec::new();
    each_source(folder, &mut |path, source| {
        let inner = shell::root().join(path);
        let inner = inner.strip_prefix(folder).unwrap_or(&inner).with_extension("");
        let mut module: ModulePath = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module
            .last()
            .is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main"))
        {
            module.pop();
        }
        sources.push((module, source.to_owned()));
    })?;
    Ok(sources)
}

/// What one file says.
#[derive(Default)]
struct Module {
    /// What the code names: each path as it is written, with the folder of modules in the file that it stands in.
    paths: Vec<Vec<String>>,
    /// Names that `use` brings, by the name that they have here.
    imports: HashMap<String, Vec<String>>,
    /// `use …::*`.
    globs: Vec<Vec<String>>,
    /// Modules of a file of their own that serve tests only.
    tests: BTreeSet<String>,
}

/// The modules of a crate that take from each other in a circle, each circle once, in order.
fn circles(sources: &[(ModulePath, String)]) -> Vec<Vec<ModulePath>> {
    let arrows = arrows(sources);
    let nodes: Vec<&ModulePath> = arrows.keys().collect();
    let reach: Vec<BTreeSet<&ModulePath>> = nodes.iter().map(|from| reached(&arrows, from)).collect();
    let mut circles = BTreeSet::new();
    for (place, from) in nodes.iter().enumerate() {
        let circle = nodes
            .iter()
            .enumerate()
            .filter(|(other, to)| reach[place].contains(**to) && reach[*other].contains(*from));
        let circle: Vec<ModulePath> = circle.map(|(_, to)| (*to).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached<'a>(arrows: &'a BTreeMap<ModulePath, BTreeSet<ModulePath>>, from: &ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&ModulePath> = arrows[from].iter().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(arrows.get(next).into_iter().flatten());
        }
    }
    reached
}

/// Which module takes from which.
fn arrows(sources: &[(ModulePath, String)]) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mut modules: BTreeMap<ModulePath, Module> = BTreeMap::new();
    for (path, source) in sources {
        modules.insert(path.clone(), Module::read(source));
    }
    let tests: Vec<ModulePath> = modules
        .iter()
        .flat_map(|(path, module)| module.tests.iter().map(|name| join(path, name)))
        .collect();
    modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    let mut arrows = BTreeMap::new();
    for (path, module) in &modules {
        let targets = module.paths.iter().chain(&module.globs);
        let targets = targets.filter_map(|named| resolve(&modules, path, named, 0));
        let targets: BTreeSet<ModulePath> = targets.filter(|target| target != path).collect();
        arrows.insert(path.clone(), targets);
    }
    arrows
}

fn join(path: &[String], name: &str) -> ModulePath {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

/// The file that defines what a path names, if it is one of these.
fn resolve(
    modules: &BTreeMap<ModulePath, Module>,
    from: &[String],
    named: &[String],
    depth: usize,
) -> Option<ModulePath> {
    if depth > 16 {
        return None;
    }
    let mut at = from.to_vec();
    let mut tail = named;
    match tail.first()?.as_str() {
        "crate" => {
            at.clear();
            tail = &tail[1..];
        }
        "self" => tail = &tail[1..],
        "super" => {
            while tail.first().is_some_and(|segment| segment == "super") {
                at.pop();
                tail = &tail[1..];
            }
        }
        first if modules.contains_key(&join(&at, first)) => {}
        first => {
            let import = modules.get(&at)?.imports.get(first)?;
            if import.first().map(String::as_str) == Some(first) {
                return None;
            }
            let whole: Vec<String> = import.iter().chain(&tail[1..]).cloned().collect();
            return resolve(modules, from, &whole, depth + 1);
        }
    }
    while let Some(next) = tail.first() {
        let inner = join(&at, next);
        if !modules.contains_key(&inner) {
            break;
        }
        at = inner;
        tail = &tail[1..];
    }
    let module = modules.get(&at)?;
    let Some(name) = tail.first() else {
        return Some(at);
    };
    if let Some(import) = module.imports.get(name) {
        let whole: Vec<String> = import.iter().chain(&tail[1..]).cloned().collect();
        if let Some(target) = resolve(modules, &at, &whole, depth + 1) {
            return Some(target);
        }
    }
    Some(at)
}

impl Module {
    fn read(source: &str) -> Self {
        let tokens = tokens(source);
        let mut module = Self::default();
        let mut at = 0;
        // How deep in braces each module within this file begins.
        let mut inner: Vec<usize> = Vec::new();
        let mut depth = 0_usize;
        let mut is_public = false;
        while let Some(token) = tokens.get(at) {
            match *token {
                "#" => {
                    let (is_test, end) = attribute(&tokens, at);
                    at = end;
                    if is_test {
                        at = module.skip_test(&tokens, end);
                    }
                    continue;
                }
                "pub" => {
                    is_public = true;
                    at += 1;
                    if tokens.get(at) == Some(&"(") {
                        at = closing(&tokens, at);
                    }
                    continue;
                }
                "use" => {
                    let mut brought = Vec::new();
                    at = tree(&tokens, at + 1, &[], &mut brought);
                    for (path, name) in brought {
                        module.bring(path, name, is_public, inner.len());
                    }
                }
                "mod" if tokens.get(at + 2) == Some(&"{") => {
                    depth += 1;
                    inner.push(depth);
                    at += 3;
                }
                "{" => {
                    depth += 1;
                    at += 1;
                }
                "}" => {
                    if inner.last() == Some(&depth) {
                        inner.pop();
                    }
                    depth = depth.saturating_sub(1);
                    at += 1;
                }
                word if is_word(word) && tokens.get(at + 1) == Some(&"::") && (at == 0 || tokens[at - 1] != "::") => {
                    let mut path = vec![word.to_owned()];
                    while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|next| is_word(next)) {
                        path.push(tokens[at + 2].to_owned());
                        at += 2;
                    }
                    at += 1;
                    module.paths.extend(from_file(path, inner.len()));
                }
                _ => at += 1,
            }
            is_public = false;
        }
        module
    }

    fn bring(&mut self, path: Vec<String>, name: Option<String>, is_public: bool, inner: usize) {
        let Some(path) = from_file(path, inner) else {
            return;
        };
        match name {
            None => self.globs.push(path),
            Some(name) => {
                if !is_public {
                    self.paths.push(path.clone());
                }
                if name != "_" {
                    self.imports.insert(name, path);
                }
            }
        }
    }

    /// The place after the item at a place, which is for tests.
    fn skip_test(&mut self, tokens: &[&str], mut at: usize) -> usize {
        while tokens.get(at) == Some(&"#") {
            at = attribute(tokens, at).1;
        }
        let mut module = None;
        while let Some(token) = tokens.get(at) {
            match *token {
                "mod" => module = tokens.get(at + 1),
                ";" => {
                    if let Some(name) = module {
                        self.tests.insert((*name).to_owned());
                    }
                    return at + 1;
                }
                "{" => return closing(tokens, at),
                _ => {}
            }
            at += 1;
        }
        at
    }
}

/// A path as it is seen from the file: `super` in a module within the file leads to that file. `None` for a path that does not leave it.
fn from_file(path: Vec<String>, inner: usize) -> Option<Vec<String>> {
    if inner == 0 {
        return Some(path);
    }
    let up = path.iter().take_while(|segment| *segment == "super").count();
    match path[0].as_str() {
        "super" if up > inner => Some(path[inner..].to_vec()),
        "super" if up == inner => Some([&["self".to_owned()], &path[up..]].concat()),
        "super" | "self" => None,
        _ => Some(path),
    }
}

/// Whether the attribute at a `#` is `cfg(test)`, and the place after it.
fn attribute(tokens: &[&str], at: usize) -> (bool, usize) {
    let open = at + 1 + usize::from(tokens.get(at + 1) == Some(&"!"));
    if tokens.get(open) != Some(&"[") {
        return (false, at + 1);
    }
    let end = closing(tokens, open);
    (tokens[open..end].starts_with(&["[", "cfg", "(", "test", ")"]), end)
}

/// The place after the bracket that closes the one at a place.
fn closing(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Reads one tree of a `use`: the paths, each with the name that it brings (none for `*`). Gives the place after it.
fn tree(tokens: &[&str], mut at: usize, above: &[String], brought: &mut Vec<(Vec<String>, Option<String>)>) -> usize {
    let mut path = above.to_vec();
    if tokens.get(at) == Some(&"::") {
        at += 1;
    }
    while let Some(token) = tokens.get(at) {
        match *token {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = tree(tokens, at, &path, brought);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            "*" => {
                brought.push((path, None));
                return at + 1;
            }
            "as" => {
                brought.push((path, tokens.get(at + 1).map(|name| (*name).to_owned())));
                return at + 2;
            }
            word if is_word(word) => {
                if word != "self" || path.is_empty() {
                    path.push(word.to_owned());
                }
                at += 1;
            }
            _ => break,
        }
    }
    let name = path.last().cloned();
    brought.push((path, name));
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<(ModulePath, String)> {
        let path = |path: &str| {
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        files
            .iter()
            .map(|(module, source)| (path(module), (*source).to_owned()))
            .collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles(&sources(files))
            .iter()
            .map(|circle| line("x", circle))
            .collect()
    }

    #[test]
    fn modules_that_take_from_each_other_are_a_circle_however_they_name_each_other() {
        let cases = [
            (
                "mod a; mod b;",
                "use crate::b::B; pub struct A;",
                "use super::a::A; pub struct B;",
            ),
            (
                "mod a; mod b;",
                "fn f() { crate::b::g() }",
                "pub fn g() { crate::a::f() }",
            ),
            (
                "mod a; mod b;",
                "use crate::{b, x}; fn f() { b::g() }",
                "use crate::a::{self, F as G};",
            ),
            (
                "mod a; mod b; pub use b::B; pub(crate) use a::*;",
                "use crate::B; pub struct A;",
                "use crate::a::A; pub struct B;",
            ),
            (
                "mod a; mod b;",
                "use super::b::*;",
                "mod inner { use super::super::a::A; }",
            ),
        ];
        for (root, a, b) in cases {
            assert_eq!(found(&[("", root), ("a", a), ("b", b)]), ["x: a b"], "{a} {b}");
        }
    }

    #[test]
    fn tests_comments_texts_and_names_that_are_handed_on_tie_nothing() {
        let a = "use crate::b::B;";
        for b in [
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] use crate::a::A;",
            "// crate::a::A\nconst A: &str = \"crate::a::A\";",
            "mod inner { use super::B; }",
            "pub use crate::a::A;",
        ] {
            assert_eq!(
                found(&[("", "mod a; mod b;"), ("a", a), ("b", b)]),
                Vec::<String>::new(),
                "{b}"
            );
        }
        let tests = [
            ("", "mod a; #[cfg(test)] mod tests;"),
            ("a", "use crate::tests::T;"),
            ("tests", "use super::a::A;"),
        ];
        assert_eq!(found(&tests), Vec::<String>::new());
    }

    #[test]
    fn a_folder_and_its_root_are_a_circle_if_each_takes_from_the_other() {
        let files = [
            ("", "mod a;"),
            ("a", "mod b; use b::B; pub struct A;"),
            ("a::b", "use super::A; pub struct B;"),
        ];
        assert_eq!(found(&files), ["x: a a::b"]);
    }

    #[test]
    fn a_new_circle_and_one_that_is_gone_are_problems() {
        let listed = BTreeSet::from(["x: a b", "x: c d"]);
        let found = BTreeMap::from([
            ("x: a b".to_owned(), Vec::new()),
            ("x: e f".to_owned(), vec!["e → f".to_owned()]),
        ]);
        let problems = compared(&listed, &found);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].contains("x: e f") && problems[0].contains("e → f"),
            "{problems:?}"
        );
        assert!(
            problems[1].contains("not there any more") && problems[1].contains("x: c d"),
            "{problems:?}"
        );
    }
}
