//! Reading properties from a flat map of strings.

use std::collections::{BTreeMap, BTreeSet};

use walferry_diagnosis::{Diagnosis, Kind};

use crate::finding::Findings;
use crate::nearest::{nearest_name, with_first_part};
use crate::property::{Declaration, Property, Support};
use crate::provider::Lookup;
use crate::sanitize::{Sanitizer, quoted, shown_name, shown_text, without_foreign_references};
use crate::secret::HIDDEN;
use crate::value::{Value, ValueError};

/// Properties as a user wrote them, with references to config providers already resolved.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// What stands before each name in the user's file, such as `transforms.outbox.`.
    prefix: String,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    text: String,
    /// What the user wrote, if a config provider resolved it to `text`. The resolved text is treated as a secret.
    written: Option<String>,
    /// Whether `custom.sanitize.pattern` matches the name.
    secret: bool,
}

impl From<String> for Entry {
    fn from(text: String) -> Self {
        Self {
            text,
            written: None,
            secret: false,
        }
    }
}

impl Options {
    /// Options whose names begin with `prefix` in the user's file, and here without it.
    pub fn new(prefix: impl Into<String>, entries: BTreeMap<String, String>) -> Self {
        let entries = entries.into_iter().map(|(name, text)| (name, text.into())).collect();
        Self {
            prefix: prefix.into(),
            entries,
        }
    }

    /// The options below `prefix`, which is cut from their names.
    pub fn below(&self, prefix: &str) -> Self {
        let entries = self.entries.iter();
        let below = entries.filter_map(|(name, entry)| Some((name.strip_prefix(prefix)?.to_owned(), entry.clone())));
        Self {
            prefix: format!("{}{prefix}", self.prefix),
            entries: below.collect(),
        }
    }

    /// The text of one option, as written.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(|entry| entry.text.as_str())
    }

    /// All options: name (without the prefix) and text as written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry.text.as_str()))
    }

    /// The name as it stands in the user's file.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Sets one option.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.entries.insert(name.into(), text.into().into());
    }

    /// Takes over those options of another set whose names are wanted.
    pub(crate) fn extend(&mut self, other: &Self, wanted: impl Fn(&str) -> bool) {
        let wanted = other.entries.iter().filter(|(name, _)| wanted(name));
        self.entries
            .extend(wanted.map(|(name, entry)| (name.clone(), entry.clone())));
    }

    /// Sets one option whose text a config provider has resolved from what the user wrote.
    pub(crate) fn set_resolved(&mut self, name: &str, text: String, written: &str) {
        self.entries.insert(
            name.to_owned(),
            Entry {
                text,
                written: Some(written.to_owned()),
                secret: false,
            },
        );
    }

    /// Hides the values of all properties that a sanitizer considers secret.
    pub(crate) fn hide(&mut self, sanitizer: &Sanitizer) {
        for (name, entry) in &mut self.entries {
            entry.secret |= sanitizer.is_secret(name);
        }
    }

    /// The text of an option as an error may show it: in quotes; or the reference that a config provider has resolved; or
    /// asterisks, where the text may be a secret.
    pub fn display_text(&self, name: &str) -> String {
        match self.entries.get(name) {
            Some(Entry {
                written: Some(written), ..
            }) => shown_text(written).into_owned(),
            Some(entry) if entry.secret || Sanitizer::default().is_secret(&self.full_name(name)) => HIDDEN.to_owned(),
            Some(entry) => quoted(entry.text.trim()),
            None => quoted(""),
        }
    }

    /// Hides what findings repeat of the values of secret properties, whole or in quotes, and of references to config providers that are not there.
    pub(crate) fn guard(&self, findings: &mut Findings) {
        let secrets = self.entries.iter().filter(|(name, _)| self.is_secret(name));
        let secrets: BTreeMap<_, _> = secrets.map(|(name, entry)| (shown_name(name), entry)).collect();
        let entries: BTreeMap<_, _> = self.iter().map(|(name, text)| (shown_name(name), text)).collect();
        let foreign = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.text.contains("${") && entry.written.is_none());
        let foreign: BTreeSet<_> = foreign.map(|(name, _)| shown_name(name)).collect();
        for finding in findings.iter_mut() {
            if foreign.contains(finding.place.as_str()) {
                for text in [&mut finding.text].into_iter().chain(finding.hint.as_mut()) {
                    *text = without_foreign_references(text).into_owned();
                    // Without its braces, such a one may be taken for the name of a group.
                    let value = entries.get(finding.place.as_str()).copied().unwrap_or_default();
                    let inside = value
                        .split("${")
                        .skip(1)
                        .filter_map(|tail| tail.split('}').next()?.split_once(':'));
                    for (_, tail) in inside.filter(|(_, tail)| tail.len() > 2) {
                        *text = text.replace(tail, "…");
                    }
                }
            }
            // A hint may be made of parts of a value of which something is hidden.
            let place = finding.place.as_str();
            let is_hidden = finding.text.contains(HIDDEN) || foreign.contains(place);
            let hidden = entries.get(place).filter(|_| is_hidden);
            if let (Some(text), Some(hint)) = (hidden, finding.hint.as_mut()) {
                let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| part.len() > 2);
                for part in parts {
                    *hint = hint.replace(part, HIDDEN);
                }
            }
            let Some(entry) = secrets.get(finding.place.as_str()) else {
                continue;
            };
            let (whole, written) = (entry.text.trim(), entry.written.as_deref().unwrap_or_default());
            let hidden = |piece: &str| piece.len() > 2 && whole.contains(piece) && !written.contains(piece);
            for text in [&mut finding.text].into_iter().chain(finding.hint.as_mut()) {
                *text = without_pieces(text, &hidden);
                if whole.len() > 3 && hidden(whole) {
                    *text = text.replace(whole, HIDDEN);
                }
            }
        }
    }

    /// Whether the text of an option must not be shown, not even in part.
    pub fn is_secret(&self, name: &str) -> bool {
        let marked = |entry: &Entry| entry.secret || entry.written.is_some();
        self.entries.get(name).is_some_and(marked) || Sanitizer::default().is_secret(&self.full_name(name))
    }

    /// Renames an option. If an option of the new name exists already, that one is kept.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(entry) = self.entries.remove(from) {
            self.entries.entry(to.to_owned()).or_insert(entry);
        }
    }

    /// Removes one option.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.entries.remove(name).map(|entry| entry.text)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The text with [`HIDDEN`] in place of each part in quotes that is to be hidden. Quotes are as `{:?}` writes them.
fn without_pieces(text: &str, hidden: &dyn Fn(&str) -> bool) -> String {
    let mut sanitized = String::new();
    let mut tail = text;
    while let Some((before, quoted)) = tail.split_once('"') {
        sanitized.push_str(before);
        let mut escaped = false;
        let end = quoted.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else {
            sanitized.push('"');
            tail = quoted;
            break;
        };
        let piece = &quoted[..end];
        match hidden(&piece.replace("\\\"", "\"").replace("\\\\", "\\")) {
            true => sanitized.push_str(HIDDEN),
            false => sanitized.push_str(&format!("\"{piece}\"")),
        }
        tail = &quoted[end + 1..];
    }
    sanitized.push_str(tail);
    sanitized
}

/// Names only: any value may be a secret.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("prefix", &self.prefix)
            .field(
                "names",
                &self.entries.keys().map(|name| shown_name(name)).collect::<Vec<_>>(),
            )
            .finish()
    }
}

/// For how many unknown names the nearest known one is looked for: for tens of thousands, that would take seconds.
const MOST_GUESSED: usize = 200;

/// Reads typed properties and collects everything that is wrong with them instead of stopping at the first.
///
/// ```
/// use std::collections::{BTreeMap, BTreeSet};
/// use walferry_config::{Options, Property, Reader, properties};
///
/// properties! {
///     const ROUTE_BY_FIELD: Property<String> = Property::new("route.by.field").example("topic").default("aggregatetype").text("…");
///     const NEGATE: Property<bool> = Property::new("negate").default("false").text("…");
/// }
/// let entries = BTreeMap::from([("negate".to_owned(), "yes".to_owned())]);
/// let options = Options::new("transforms.outbox.", entries);
///
/// let mut reader = Reader::new(&options, DECLARATIONS);
/// let read = (reader.get(&ROUTE_BY_FIELD), reader.get(&NEGATE));
/// let (read, findings) = reader.finish(read);
/// assert!(read.is_none());
/// let problem = findings.problems().next().unwrap();
/// assert_eq!(problem.place, "transforms.outbox.negate");
/// assert_eq!(problem.text, "is \"yes\", which is not true or false");
/// ```
pub struct Reader<'a> {
    options: &'a Options,
    findings: Findings,
    lookup: Option<&'a dyn Lookup>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("options", self.options)
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// Checks the names first: one that is not declared is a warning with the nearest one that is, and one whose value
    /// is not supported is a problem.
    pub fn new<'d>(options: &'a Options, declarations: impl IntoIterator<Item = &'d Declaration>) -> Self {
        let declarations: Vec<&Declaration> = declarations.into_iter().collect();
        let mut reader = Self {
            options,
            findings: Findings::default(),
            lookup: None,
        };
        let mut guesses_left = MOST_GUESSED;
        for (name, text) in options.iter() {
            let plain = declarations.iter().find(|declaration| declaration.name == name);
            match plain.or_else(|| {
                declarations
                    .iter()
                    .find(|declaration| declaration.captures(name).is_some())
            }) {
                Some(declaration) => reader.check_support(name, text, declaration),
                None => reader.report_unknown(name, &declarations, &mut guesses_left),
            }
        }
        reader
    }

    /// The same reader, for options that name files.
    pub const fn with_lookup(mut self, lookup: Option<&'a dyn Lookup>) -> Self {
        self.lookup = lookup;
        self
    }

    /// What reads the files that options name. `None` where none may be read.
    pub const fn lookup(&self) -> Option<&'a dyn Lookup> {
        self.lookup
    }

    /// The value of a property, or its default where it is left out.
    ///
    /// A value that cannot be read is reported, and a default is returned in its place. [`finish`](Self::finish) makes sure
    /// that nobody uses this default.
    pub fn get<T: Value>(&mut self, property: &Property<T>) -> T {
        let remedy = property.remedy(&self.options.full_name(property.name()));
        match self.options.get(property.name()) {
            Some(text) if property.is_required() && text.trim().is_empty() => {
                self.missing(property.name(), "is required and must not be empty", remedy);
                T::default()
            }
            Some(text) => self.parse(property.name(), text, property.default_text()),
            None if property.is_required() => {
                self.missing(property.name(), "is required", remedy);
                T::default()
            }
            None => property
                .default_text()
                .map_or_else(T::default, |text| self.parse(property.name(), text, None)),
        }
    }

    /// Every property that a pattern such as `column.truncate.to.<length>.chars` means, with the variable parts of its
    /// name, in alphabetical order.
    pub fn matching<T: Value>(&mut self, pattern: &Property<T>) -> Vec<(Vec<&'a str>, T)> {
        let declaration = pattern.declare();
        let options = self.options;
        let found = options
            .iter()
            .filter_map(|(name, text)| Some((declaration.captures(name)?, name, text)));
        found
            .map(|(parts, name, text)| {
                let value: T = self.parse(name, text, None);
                // A part of the name may be a secret, such as the salt of a hash.
                (parts, value.named(&self.options.full_name(pattern.name())))
            })
            .collect()
    }

    /// Whether the user has set the property.
    pub fn is_set<T>(&self, property: &Property<T>) -> bool {
        self.options.get(property.name()).is_some()
    }

    /// The options that are being read.
    pub fn options(&self) -> &'a Options {
        self.options
    }

    /// Reports a problem; `name` is without the prefix of the options.
    pub fn problem(&mut self, name: &str, message: impl Into<String>) -> &mut Diagnosis {
        self.findings.problem(self.options.full_name(name), message)
    }

    fn missing(&mut self, name: &str, message: &str, remedy: String) {
        self.problem(name, message).kind(Kind::PropertyMissing).hint(remedy);
    }

    /// Reports a warning; `name` is without the prefix of the options.
    pub fn warning(&mut self, name: &str, message: impl Into<String>) -> &mut Diagnosis {
        self.findings.warning(self.options.full_name(name), message)
    }

    /// Reports a note; `name` is without the prefix of the options.
    pub fn note(&mut self, name: &str, message: impl Into<String>) -> &mut Diagnosis {
        self.findings.note(self.options.full_name(name), message)
    }

    /// Takes over the findings of another part.
    pub fn extend(&mut self, findings: Findings) {
        self.findings.extend(findings);
    }

    /// Hands out what was read, unless there was a problem.
    pub fn finish<T>(self, read: T) -> (Option<T>, Findings) {
        ((!self.findings.has_problems()).then_some(read), self.findings)
    }

    fn parse<T: Value>(&mut self, name: &str, text: &str, default: Option<&str>) -> T {
        let text = if T::TRIMMED { text.trim() } else { text };
        let parsed = T::parse(text).map(|value| value.named(&shown_name(&self.options.full_name(name))));
        parsed.unwrap_or_else(|error| {
            // A value that is refused by name has been told of already.
            let full_name = shown_name(&self.options.full_name(name)).into_owned();
            if !self.findings.problems().any(|problem| problem.place == full_name) {
                let message = self.complaint::<T>(name, text, &error);
                // A guess is near to what was written.
                let is_whole = shown_text(text) == text && !text.contains("${");
                let secret = T::SECRET || self.options.is_secret(name) || !is_whole;
                let guess = (!secret).then(|| error.hint.or_else(|| T::remedy(text))).flatten();
                let plain = matches!(
                    T::TYPE,
                    "boolean" | "int" | "long" | "milliseconds" | "seconds" | "bytes" | "enum"
                );
                let resolved = self
                    .options
                    .entries
                    .get(name)
                    .is_some_and(|entry| entry.written.is_some());
                let hint = guess
                    .or_else(|| resolved.then(|| "check the value that the config provider returns for it".to_owned()))
                    .or_else(|| default.filter(|_| plain).map(leave_out));
                self.problem(name, message).hint = hint;
            }
            T::default()
        })
    }

    /// What is wrong with a text, without showing it where it may be a secret.
    fn complaint<T: Value>(&self, name: &str, text: &str, error: &ValueError) -> String {
        let entry = self.options.entries.get(name);
        let written = entry.and_then(|entry| entry.written.as_deref());
        match written {
            Some(written) => format!("is {}, whose value cannot be read as {}", shown_text(written), T::TYPE),
            None if T::SECRET || self.options.is_secret(name) => format!("cannot be read as {}", T::TYPE),
            None if text.is_empty() => format!("is empty, which {error}"),
            // An error may name the entry of a list.
            None => format!(
                "is {}, which {}",
                quoted(text),
                without_foreign_references(&error.to_string())
            ),
        }
    }

    fn check_support(&mut self, name: &str, text: &str, declaration: &Declaration) {
        let text = text.trim();
        let same = |other: &&str| text.eq_ignore_ascii_case(other);
        let is_default = declaration.default.as_ref().is_some_and(same);
        match declaration.support {
            Support::Honoured => {}
            Support::Except { values, hint } => {
                if values.iter().any(same) {
                    let display_text = self.options.display_text(name);
                    self.problem(name, format!("is {display_text}, which Walferry does not support"))
                        .kind(Kind::PropertyRefused)
                        .hint(hint);
                }
            }
            Support::Refused { .. } | Support::Accepted { .. } if text.is_empty() || is_default => {}
            Support::Refused { hint } => {
                self.problem(name, "is not supported by Walferry")
                    .kind(Kind::PropertyRefused)
                    .hint(hint);
            }
            Support::Accepted { why } => {
                self.note(name, format!("has no effect: {why}"));
            }
            Support::Elsewhere { is, hint } => {
                let hint = declaration
                    .filled_in(hint, name)
                    .replace("<prefix>", &self.options.prefix);
                self.warning(name, is).kind(Kind::PropertyWithoutEffect).hint(hint);
            }
        }
    }

    fn report_unknown(&mut self, name: &str, declarations: &[&Declaration], guesses_left: &mut usize) {
        if name.starts_with('_') {
            self.note(
                name,
                "is treated as a comment, because its name starts with an underscore",
            );
            return;
        }
        // In .properties a blank before = is cut, in JSON it belongs to the name.
        let meant = name.trim();
        if meant != name && declarations.iter().any(|declaration| declaration.name == meant) {
            self.warning(
                name,
                "starts or ends with a space, so it is not a property that Walferry knows; it has no effect",
            )
            .kind(Kind::PropertyUnknown)
            .hint = Some(format!("write {} without the space", self.options.full_name(meant)));
            return;
        }
        let guess = guesses_left.checked_sub(1).and_then(|left| {
            *guesses_left = left;
            self.guess(name, declarations)
        });
        self.warning(name, "is not a property that Walferry knows; it has no effect")
            .kind(Kind::PropertyUnknown)
            .hint = guess;
    }

    /// What an unknown name may mean.
    fn guess(&self, name: &str, declarations: &[&Declaration]) -> Option<String> {
        let known = declarations
            .iter()
            .filter(|declaration| !declaration.is_pattern())
            .filter(|declaration| !matches!(declaration.support, Support::Elsewhere { .. }))
            .map(|declaration| declaration.name);
        let guesses = match nearest_name(name, known.clone()) {
            Some(near) => vec![near],
            None => with_first_part(name, known),
        };
        let guesses: Vec<String> = guesses.into_iter().map(|known| self.options.full_name(known)).collect();
        (!guesses.is_empty()).then(|| format!("did you mean {}?", guesses.join(" or ")))
    }
}

fn leave_out(default: &str) -> String {
    match default {
        "" => "remove it to use the default, which is empty".to_owned(),
        default => format!("remove it to use the default, {default}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    crate::properties! {
        const HOST: Property<String> = Property::new("host").required();
        const PORT: Property<u16> = Property::new("port").default("5432");
        const PASSWORD: Property<Option<Secret>> = Property::new("password");
        const MODE: Property<String> = Property::new("mode").default("a").support(Support::Except { values: &["b"], hint: "use a" });
        const NOTIFY: Property<String> = Property::new("notify").support(Support::Refused { hint: "leave it out" });
        const SIGNAL: Property<String> = Property::new("signal").default("source").support(Support::Refused { hint: "leave it out" });
        const HISTORY: Property<String> = Property::new("history").default("none").support(Support::Accepted { why: "only the MySQL connector has it" });
        const TRUNCATE: Property<Vec<String>> = Property::new("truncate.<length>.chars");
    }

    fn options(entries: &[(&str, &str)]) -> Options {
        Options::new(
            "x.",
            entries
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        )
    }

    fn read(entries: &[(&str, &str)]) -> (Option<(String, u16)>, Vec<String>) {
        let options = options(entries);
        let mut reader = Reader::new(&options, DECLARATIONS);
        let read = (reader.get(&HOST), reader.get(&PORT));
        reader.get(&PASSWORD);
        let (read, findings) = reader.finish(read);
        (
            read,
            findings
                .iter()
                .map(|finding| format!("{:?}: {finding}", finding.severity))
                .collect(),
        )
    }

    #[test]
    fn what_is_left_out_has_its_default_and_blanks_do_not_count() {
        assert_eq!(read(&[("host", " db ")]), (Some(("db".to_owned(), 5432)), vec![]));
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let (read, findings) = read(&[("port", "99999"), ("mode", "B")]);
        assert_eq!(read, None);
        let expected = [
            "Error: x.mode is \"B\", which Walferry does not support (use a)",
            "Error: x.host is required (set x.host)",
            "Error: x.port is \"99999\", which is not a whole number from 0 to 65535 (remove it to use the default, 5432)",
        ];
        assert_eq!(findings, expected);
    }

    #[test]
    fn a_blank_around_a_name_is_told_of() {
        let (read, findings) = read(&[("host", "db"), (" port", "1")]);
        assert_eq!(read, Some(("db".to_owned(), 5432)));
        assert!(
            findings.len() == 1 && findings[0].ends_with("it has no effect (write x.port without the space)"),
            "{findings:?}"
        );
    }

    #[test]
    fn names_and_support_are_checked_before_values() {
        let cases: &[(&str, &str, &[&str])] = &[
            (
                "prot",
                "1",
                &["Warning: x.prot is not a property that Walferry knows; it has no effect (did you mean x.port?)"],
            ),
            (
                "zzz",
                "1",
                &["Warning: x.zzz is not a property that Walferry knows; it has no effect"],
            ),
            (
                "notify",
                "sink",
                &["Error: x.notify is not supported by Walferry (leave it out)"],
            ),
            ("notify", "", &[]),
            ("signal", "SOURCE", &[]),
            (
                "signal",
                "kafka",
                &["Error: x.signal is not supported by Walferry (leave it out)"],
            ),
            (
                "history",
                "1",
                &["Note: x.history has no effect: only the MySQL connector has it"],
            ),
            ("history", "none", &[]),
            ("mode", "a", &[]),
            ("truncate.5.chars", "a", &[]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(read(&[("host", "db"), (name, text)]).1, *expected, "{name}={text}");
        }
    }

    #[test]
    fn each_of_many_unknown_names_is_reported_and_the_first_of_them_with_a_guess() {
        let names: Vec<String> = (0..2_000).map(|number| format!("_comment{number}")).collect();
        let unknown: Vec<String> = (0..40_000).map(|number| format!("prot.{number:05}")).collect();
        let all = names.iter().chain(&unknown).map(|name| (name.as_str(), "1"));
        let entries: Vec<(&str, &str)> = all.chain([("host", "db"), ("prt", "1"), ("moed", "a")]).collect();
        let (read, findings) = read(&entries);
        assert_eq!((read.is_some(), findings.len()), (true, 2_000 + 40_000 + 2));
        let of = |name: &str| {
            let found = findings.iter().find(|text| text.contains(&format!("x.{name} ")));
            found.expect("it is reported")
        };
        let what = "is not a property that Walferry knows; it has no effect";
        assert!(
            of("moed").contains(what) && of("moed").contains("did you mean x.mode?"),
            "{}",
            of("moed")
        );
        // Behind 40,000 names, in the order of the names.
        assert!(
            of("prt").contains(what) && !of("prt").contains("did you mean"),
            "{}",
            of("prt")
        );
    }

    #[test]
    fn a_pattern_finds_every_name_it_means() {
        let options = options(&[("truncate.5.chars", "a,b"), ("truncate.10.chars", "c"), ("host", "db")]);
        let mut reader = Reader::new(&options, DECLARATIONS);
        let found = reader.matching(&TRUNCATE);
        let expected = [
            (vec!["10"], vec!["c".to_owned()]),
            (vec!["5"], vec!["a".to_owned(), "b".to_owned()]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_value_that_may_be_a_secret_is_not_repeated() {
        let mut options = options(&[("host", "db"), ("basic.auth.user.info", "s3cret")]);
        options.set_resolved("port", "s3cret".to_owned(), "${env:PORT}");
        let mut reader = Reader::new(&options, []);
        reader.get(&PORT);
        reader.get(&Property::<u16>::new("basic.auth.user.info"));
        let (_, findings) = reader.finish(());
        let problems: Vec<String> = findings.problems().map(ToString::to_string).collect();
        let expected = [
            "x.port is ${env:PORT}, whose value cannot be read as int (check the value that the config provider returns for it)",
            "x.basic.auth.user.info cannot be read as int",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn options_never_show_their_values() {
        let text = format!("{:?}", options(&[("password", "hunter2")]));
        assert!(text.contains("password") && !text.contains("hunter2"), "{text}");
    }
}
