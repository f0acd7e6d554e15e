//! `walferry.schemas.dir`: the JSON Schemas of events, read and compiled once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, Retrieve, Uri, Validator};
use serde_json::Value;
use walferry_config::{JavaRegex, Lookup, NotAllowed, Value as _};

use super::event_types::split;

/// The option that names the folder of schemas.
pub(super) const FOLDER_OPTION: &str = "walferry.schemas.dir";
/// The option that names the files of event types.
pub(super) const FILES_OPTION: &str = "walferry.schemas";

/// The schemas of a folder.
#[derive(Debug)]
pub(super) struct Schemas {
    compiled: Vec<EventSchema>,
    /// Types that have a schema of their own: by an entry of the map, or by the name of a file.
    exact: HashMap<String, usize>,
    /// Entries of the map for many types, in their order.
    patterns: Vec<(JavaRegex, usize)>,
}

/// Something that cannot be used.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The option that it belongs to.
    pub(super) option: &'static str,
    /// What is wrong, as the end of a sentence that begins with the option.
    pub(super) text: String,
    pub(super) hint: String,
}

impl Mistake {
    fn in_folder(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            option: FOLDER_OPTION,
            text: text.into(),
            hint: hint.into(),
        }
    }

    fn in_map(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            option: FILES_OPTION,
            ..Self::in_folder(text, hint)
        }
    }
}

/// A schema for events.
#[derive(Debug)]
pub(super) struct EventSchema {
    /// Its file, as a path in the folder.
    pub(super) file: String,
    pub(super) validator: Validator,
}

/// The drafts that are understood, as `$schema` names them.
const DRAFTS: [&str; 3] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
];

/// What a file is to others: `$ref` is resolved against it.
const BASE: &str = "file:///";

/// So many steps may an expression in `pattern` take for one text.
const PATTERN_STEPS: usize = 1_000_000;

/// The files of the folder, by their own address and by their `$id`.
#[derive(Clone)]
struct Files(Arc<HashMap<String, Value>>);

impl Retrieve for Files {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.0.get(uri.as_str()).cloned();
        found.ok_or_else(|| "no file in the folder has this address".into())
    }
}

impl Schemas {
    /// Reads all schemas of a folder. `map` is the value of `walferry.schemas`, and `property` its full name.
    ///
    /// # Errors
    /// Everything that cannot be used, with what to do about it.
    pub(super) fn read(
        dir: &str,
        map: Option<&str>,
        property: &str,
        lookup: &dyn Lookup,
    ) -> Result<Self, Vec<Mistake>> {
        let documents = documents(dir, lookup)?;
        let (files, mistakes) = addresses(&documents);
        let mut builder = Builder {
            documents: &documents,
            files: Files(Arc::new(files)),
            places: BTreeMap::new(),
            schemas: Self {
                compiled: Vec::new(),
                exact: HashMap::new(),
                patterns: Vec::new(),
            },
            mistakes,
        };
        builder.add_map(map.unwrap_or_default(), property);
        builder.add_files();
        if builder.schemas.compiled.is_empty() && builder.mistakes.is_empty() {
            builder.mistakes.push(Mistake::in_folder(
                "names a folder without a schema",
                "put a file TYPE.json into the folder for each type of event",
            ));
        }
        match builder.mistakes.is_empty() {
            true => Ok(builder.schemas),
            false => Err(builder.mistakes),
        }
    }

    /// The schema of a type: its own, or else that of the first expression of the map that matches all of it.
    pub(super) fn find(&self, event_type: &str) -> Option<usize> {
        let pattern = || self.patterns.iter().find(|(pattern, _)| pattern.matches(event_type));
        let own = self.exact.get(event_type).copied();
        own.or_else(|| pattern().map(|(_, place)| *place))
    }

    pub(super) fn get(&self, place: usize) -> &EventSchema {
        &self.compiled[place]
    }

    /// Each type or expression with its file: those that are named after their type first, then the entries of the map.
    pub(super) fn listed(&self) -> Vec<(String, String)> {
        let file = |place: &usize| self.compiled[*place].file.clone();
        let is_entry = |event_type: &str| self.patterns.iter().any(|(pattern, _)| pattern.as_str() == event_type);
        let named = self.exact.iter().filter(|(event_type, _)| !is_entry(event_type));
        let mut listed: Vec<_> = named
            .map(|(event_type, place)| (event_type.clone(), file(place)))
            .collect();
        listed.sort();
        let patterns = self.patterns.iter();
        listed.extend(patterns.map(|(pattern, place)| (pattern.as_str().to_owned(), file(place))));
        listed
    }
}

struct Builder<'d> {
    documents: &'d BTreeMap<String, Value>,
    files: Files,
    /// The files that were compiled, or could not be.
    places: BTreeMap<String, Option<usize>>,
    schemas: Schemas,
    mistakes: Vec<Mistake>,
}

impl Builder<'_> {
    /// Adds the entries of `walferry.schemas`.
    fn add_map(&mut self, map: &str, property: &str) {
        for entry in split(map) {
            let Some((event_type, file)) = entry.rsplit_once(':').map(|(a, b)| (a.trim(), b.trim())) else {
                self.mistakes.push(Mistake::in_map(
                    format!("contains {entry:?}, which names no file"),
                    "write it as type:file, such as OrderPlaced:order-placed.json",
                ));
                continue;
            };
            if event_type.is_empty() || !self.documents.contains_key(file) {
                self.mistakes.push(Mistake::in_map(
                    format!("contains {entry:?}, which is not type:file with a file in the folder"),
                    "write the file as its path in walferry.schemas.dir, such as OrderPlaced:orders/placed.json",
                ));
                continue;
            }
            let pattern = match JavaRegex::new(event_type) {
                Ok(pattern) => pattern.named(property),
                Err(error) => {
                    self.mistakes.push(Mistake::in_map(
                        format!("contains {event_type:?}, which is not a regular expression: {error}"),
                        "write a backslash before a character such as ( [ { * that is part of a type",
                    ));
                    continue;
                }
            };
            if self.schemas.exact.contains_key(event_type) {
                let text = format!("contains the type {event_type:?} twice");
                self.mistakes.push(Mistake::in_map(text, "keep one of the two entries"));
                continue;
            }
            if let Some(place) = self.compile(file) {
                self.schemas.exact.insert(event_type.to_owned(), place);
                self.schemas.patterns.push((pattern, place));
            }
        }
    }

    /// Adds the files directly in the folder, each for the type that it is named after. An entry of the map goes first.
    fn add_files(&mut self) {
        let mut named = BTreeMap::<String, &String>::new();
        for file in self.documents.keys().filter(|file| !file.contains('/')) {
            let Some(event_type) = decoded(file.strip_suffix(".json").unwrap_or(file)) else {
                self.mistakes.push(Mistake::in_folder(
                    format!("has the file {file}, whose name is no event type"),
                    "write a percent sign in a type as %25, and other characters as they are or as % and two digits for each byte of UTF-8",
                ));
                continue;
            };
            if let Some(other) = named.get(&event_type) {
                let text = format!("has two files for the event type {event_type:?}: {other} and {file}");
                self.mistakes
                    .push(Mistake::in_folder(text, "remove one of the two files"));
                continue;
            }
            named.insert(event_type, file);
        }
        for (event_type, file) in named {
            if let Some(place) = self.compile(file) {
                self.schemas.exact.entry(event_type).or_insert(place);
            }
        }
    }

    /// Where the compiled schema is; `None` if it cannot be used, which is told once.
    fn compile(&mut self, file: &str) -> Option<usize> {
        if let Some(place) = self.places.get(file) {
            return *place;
        }
        let place = match compiled(file, &self.documents[file], &self.files) {
            Ok(validator) => {
                self.schemas.compiled.push(EventSchema {
                    file: file.to_owned(),
                    validator,
                });
                Some(self.schemas.compiled.len() - 1)
            }
            Err(mistake) => {
                self.mistakes.push(mistake);
                None
            }
        };
        self.places.insert(file.to_owned(), place);
        place
    }
}

/// All JSON files of the folder, by their paths in it.
fn documents(dir: &str, lookup: &dyn Lookup) -> Result<BTreeMap<String, Value>, Vec<Mistake>> {
    let folder = Path::new(dir);
    let names = lookup.folder(folder).map_err(|error| {
        let not_allowed = error.get_ref().and_then(|inner| inner.downcast_ref::<NotAllowed>());
        let hint = not_allowed.map_or_else(
            || "correct the path, or let the user of the process read the folder".to_owned(),
            NotAllowed::hint,
        );
        vec![Mistake::in_folder(
            format!("names a folder that cannot be read: {error}"),
            hint,
        )]
    })?;
    let mut documents = BTreeMap::new();
    let mut mistakes = Vec::new();
    for name in names.into_iter().filter(|name| name.ends_with(".json")) {
        let read = lookup.file(&folder.join(&name));
        match read.map(|text| serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(&text))) {
            Ok(Ok(document)) => {
                documents.insert(name, document);
            }
            Ok(Err(error)) => mistakes.push(Mistake::in_folder(
                format!("has the file {name}, which is not JSON: {error}"),
                "correct the file, or move it out of the folder",
            )),
            Err(error) => mistakes.push(Mistake::in_folder(
                format!("has the file {name}, which cannot be read: {error}"),
                "let the user of the process read the file, and write it in UTF-8",
            )),
        }
    }
    match mistakes.is_empty() {
        true => Ok(documents),
        false => Err(mistakes),
    }
}

/// Each document by the address of its file, and by its `$id`.
fn addresses(documents: &BTreeMap<String, Value>) -> (HashMap<String, Value>, Vec<Mistake>) {
    let of_files = documents
        .iter()
        .map(|(file, document)| (address(file), document.clone()));
    let mut found: HashMap<_, _> = of_files.collect();
    let mut mistakes = Vec::new();
    for (file, document) in documents {
        let Some(id) = id(document).filter(|id| *id != address(file)) else {
            continue;
        };
        if found.insert(id.to_owned(), document.clone()).is_some() {
            mistakes.push(Mistake::in_folder(
                format!("has a second schema with the address {id}: {file}"),
                "give each file its own $id, which is not the path of another file, or remove it",
            ));
        }
    }
    (found, mistakes)
}

fn compiled(file: &str, document: &Value, files: &Files) -> Result<Validator, Mistake> {
    let draft = document.get("$schema");
    let is_known = |draft: &Value| {
        draft
            .as_str()
            .is_some_and(|draft| DRAFTS.contains(&draft.trim_end_matches('#')))
    };
    if draft.is_some_and(|draft| !is_known(draft)) {
        return Err(Mistake::in_folder(
            format!("has the file {file}, whose $schema is not a draft that Walferry knows"),
            format!("write $schema as one of {}", DRAFTS.join(", ")),
        ));
    }
    jsonschema::options()
        .with_retriever(files.clone())
        .with_base_uri(address(file))
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(PATTERN_STEPS))
        .build(document)
        .map_err(|error| {
            if let ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) = error.kind() {
                let name = uri.strip_prefix(BASE).unwrap_or(uri);
                return Mistake::in_folder(
                    format!("has the file {file}, which refers to {name}, and no file in the folder has this path or this $id"),
                    "put the file into the folder, or its schema under $defs; Walferry reads no schemas from the network",
                );
            }
            let at = match error.instance_path().as_str() {
                "" => String::new(),
                pointer => format!(" at {pointer}"),
            };
            Mistake::in_folder(
                // Without what the file has there: whoever may set the folder need not be allowed to read it.
                format!(
                    "has the file {file}, which is not a valid schema{at}: it breaks the rule {:?} of JSON Schema",
                    error.kind().keyword()
                ),
                "correct the file, or move it out of the folder",
            )
        })
}

/// The `$id` of a file, if it is a whole address.
fn id(document: &Value) -> Option<&str> {
    let id = document.get("$id")?.as_str()?.trim_end_matches('#');
    id.contains(':').then_some(id)
}

/// The address of a file, against which its references are resolved.
fn address(file: &str) -> String {
    let mut address = BASE.to_owned();
    for byte in file.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                address.push(char::from(byte))
            }
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

/// Where an address that [`address`] has made leads.
pub(super) fn shown_address(address: &str) -> String {
    let local = address.strip_prefix(BASE).unwrap_or(address);
    decoded(local).unwrap_or_else(|| local.to_owned())
}

/// The text with bytes in place of `%` and two digits; `None` where that is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut unread = text.as_bytes();
    while let Some((&first, behind)) = unread.split_first() {
        unread = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(unread.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        unread = &unread[2..];
    }
    String::from_utf8(bytes).ok()
}

/// At most so many characters of a text.
pub(super) fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
