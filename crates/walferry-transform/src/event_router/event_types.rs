//! `walferry.topics`: which type of event goes to which topic.

use std::collections::HashMap;

use walferry_config::{JavaRegex, RegexLimit, Replacement, Value as _, limited};

/// Types whose topic is remembered. A system has a few hundred; a column that is unique for each row must not fill the memory.
const REMEMBERED: usize = 4096;

/// The map from event types to topics, with the topic of each type worked out once.
#[derive(Debug, Clone, Default)]
pub(super) struct EventTypes {
    entries: Vec<Entry>,
    places: HashMap<Box<str>, usize>,
    learned: Vec<Learned>,
    last: usize,
}

/// One entry of the map.
#[derive(Debug, Clone)]
struct Entry {
    pattern: JavaRegex,
    topic: Box<str>,
    replacement: Replacement,
}

/// What is known of a type that was met.
#[derive(Debug, Clone)]
struct Learned {
    event_type: Box<str>,
    /// `None` for a type that the map does not have. An expression that was given up is not tried again for the same type.
    topic: Result<Option<Box<str>>, RegexLimit>,
}

/// An entry of the map that cannot be used: what is wrong, and what to do.
pub(super) type Mistake = (String, String);

impl EventTypes {
    /// Parses `type:topic,type:topic`. The last colon of an entry separates the topic, because types such as
    /// `urn:message:OrderPlaced` have colons of their own, and topics have none.
    ///
    /// # Errors
    /// Every entry that cannot be used.
    pub(super) fn parse(text: &str, property: &str) -> Result<Self, Vec<Mistake>> {
        let mut entries = Vec::<Entry>::new();
        let mut mistakes = Vec::new();
        for entry in split(text) {
            match one(&entry, property) {
                Ok(new) if entries.iter().any(|old| old.pattern.as_str() == new.pattern.as_str()) => mistakes.push((
                    format!("contains the type {:?} twice", new.pattern.as_str()),
                    "keep one of the two entries".to_owned(),
                )),
                Ok(new) => entries.push(new),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if mistakes.is_empty() {
            Ok(Self {
                entries,
                ..Self::default()
            })
        } else {
            Err(mistakes)
        }
    }

    /// The topic of a type: of the entry that is the type itself, or else of the first entry whose expression matches all of it.
    /// `None` for a type that the map does not have.
    ///
    /// # Errors
    /// An expression takes too long to find whether it matches.
    pub(super) fn topic(&mut self, event_type: &str) -> Result<Option<&str>, RegexLimit> {
        let is_last = |learned: &Learned| *learned.event_type == *event_type;
        if !self.learned.get(self.last).is_some_and(is_last) {
            self.last = match self.places.get(event_type) {
                Some(&place) => place,
                None => self.learn(event_type),
            };
        }
        match &self.learned[self.last].topic {
            Ok(topic) => Ok(topic.as_deref()),
            Err(limit) => Err(limit.clone()),
        }
    }

    /// A type that has a topic: that of the first entry that is a type, or whose expression is one but for "any characters".
    pub(super) fn sample(&self) -> Option<String> {
        const ANY: [&str; 4] = ["(.*)", ".*", "(.+)", ".+"];
        const SIGNS: [char; 12] = ['\\', '^', '$', '|', '?', '*', '+', '(', ')', '[', '{', '}'];
        self.entries.iter().find_map(|entry| {
            let text = entry.pattern.as_str();
            let filled = ANY
                .iter()
                .fold(text.to_owned(), |text, any| text.replace(any, "made-up"));
            let candidates = [filled.replace('\\', ""), filled];
            let is_type = |text: &String| !text.contains(SIGNS) && entry.pattern.matches(text);
            candidates.into_iter().find(is_type)
        })
    }

    fn learn(&mut self, event_type: &str) -> usize {
        let topic = limited(|| self.find(event_type));
        if self.learned.len() == REMEMBERED {
            self.learned.clear();
            self.places.clear();
        }
        let place = self.learned.len();
        self.learned.push(Learned {
            event_type: event_type.into(),
            topic,
        });
        self.places.insert(event_type.into(), place);
        place
    }

    fn find(&self, event_type: &str) -> Option<Box<str>> {
        let exact = self.entries.iter().find(|entry| entry.pattern.as_str() == event_type);
        let entry = exact.or_else(|| self.entries.iter().find(|entry| entry.pattern.matches(event_type)))?;
        // The text of an entry may be a type without being an expression that matches it, such as `Order+Placed`.
        Some(match entry.pattern.matches(event_type) {
            true => entry.pattern.replace_first(event_type, &entry.replacement).into(),
            false => entry.topic.clone(),
        })
    }
}

fn one(entry: &str, property: &str) -> Result<Entry, Mistake> {
    let write = || "write it as type:topic, such as OrderPlaced:order.placed.v1".to_owned();
    let Some((pattern, topic)) = entry.rsplit_once(':') else {
        return Err((format!("contains {entry:?}, which names no topic"), write()));
    };
    let (pattern, topic) = (pattern.trim(), topic.trim());
    if pattern.is_empty() || topic.is_empty() {
        return Err((format!("contains {entry:?}, which is not type:topic"), write()));
    }
    // Named, so that an error about an expression that takes too long says where it stands.
    let pattern = JavaRegex::new(pattern).map(|regex| regex.named(property)).map_err(|error| {
        (
            format!("contains {pattern:?}, which is not a regular expression: {error}"),
            "a type is a Java regular expression; write a backslash before a character such as ( [ { * that is part of the name"
                .to_owned(),
        )
    })?;
    let replacement = Replacement::parse(topic, &pattern).map_err(|error| {
        (
            format!("contains the topic {topic:?}, which {error}"),
            "write $1 or ${name} for a group of the expression before the colon".to_owned(),
        )
    })?;
    let is_literal = !topic.contains(['$', '\\']);
    if is_literal && !is_topic_name(topic) {
        return Err((
            format!("contains {topic:?}, which cannot be the name of a topic"),
            TOPIC_NAMES.to_owned(),
        ));
    }
    Ok(Entry {
        pattern,
        topic: topic.into(),
        replacement,
    })
}

/// What Kafka says of names.
pub(super) const TOPIC_NAMES: &str =
    "the name of a topic has at most 249 characters: letters, digits, dots, underscores and hyphens";

/// Whether Kafka accepts it as the name of a topic.
pub(super) fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(legal)
}

/// Splits at commas. A comma that belongs to an expression is written `\,`, as in Debezium's lists.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let entry = entries.last_mut().expect("it begins with one");
        match c {
            '\\' if chars.peek() == Some(&',') => entry.extend(chars.next()),
            '\\' => {
                entry.push(c);
                entry.extend(chars.next());
            }
            ',' => entries.push(String::new()),
            _ => entry.push(c),
        }
    }
    let entries = entries.iter().map(|entry| entry.trim().to_owned());
    entries.filter(|entry| !entry.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(text: &str) -> EventTypes {
        EventTypes::parse(text, "walferry.topics").unwrap()
    }

    #[test]
    fn a_sample_is_a_type_that_has_a_topic() {
        for (text, expected) in [
            ("OrderPlaced:order.placed.v1,.*:events", Some("OrderPlaced")),
            ("order\\.placed:a", Some("order.placed")),
            ("Order(.*):order.$1", Some("Ordermade-up")),
            ("(?:.*[.$])?([^.$]+):$1,Paid:paid", Some("Paid")),
            ("[A-Z]{3}:a", None),
            ("", None),
        ] {
            let mut types = types(text);
            let sample = types.sample();
            assert_eq!(sample.as_deref(), expected, "{text}");
            if let Some(sample) = sample {
                assert!(types.topic(&sample).unwrap().is_some(), "{text}");
            }
        }
    }

    #[test]
    fn a_type_goes_to_the_topic_of_its_own_entry_or_of_the_first_expression() {
        let mut types = types(
            "Order(.*):order.$1.v1, OrderPlaced:order.placed.v1,urn:message:Acme:.*:acme, Order+Paid:paid, x{1\\,2}:xs,.*Failed:failed",
        );
        let cases = [
            ("OrderPlaced", Some("order.placed.v1")),
            ("OrderShipped", Some("order.Shipped.v1")),
            ("OrderFailed", Some("order.Failed.v1")),
            ("PaymentFailed", Some("failed")),
            ("urn:message:Acme:Moved", Some("acme")),
            ("Order+Paid", Some("paid")),
            ("xx", Some("xs")),
            ("xxx", None),
            ("orderplaced", None),
            ("Payment", None),
            ("", None),
        ];
        for (event_type, topic) in cases {
            // The second time it is remembered.
            for _ in 0..2 {
                assert_eq!(types.topic(event_type).unwrap(), topic, "{event_type}");
            }
        }
    }

    #[test]
    fn more_types_than_are_remembered_still_have_their_topics() {
        let mut types = types("(a.*):t.$1");
        for i in (0..2 * REMEMBERED).chain([0, 1, 0]) {
            assert_eq!(types.topic(&format!("a{i}")).unwrap(), Some(format!("t.a{i}").as_str()));
            assert_eq!(types.topic(&format!("b{i}")).unwrap(), None);
            assert!(types.learned.len() <= REMEMBERED && types.places.len() == types.learned.len());
        }
    }

    #[test]
    fn an_expression_that_takes_too_long_is_tried_once_for_each_type() {
        let mut types = types("(?:a|a(?!x))*(?=z)b:t,b:u");
        let long = "a".repeat(40);
        let limit = types.topic(&long).unwrap_err();
        assert_eq!(types.topic("b").unwrap(), Some("u"));
        // What would be found if it were tried again.
        types.entries.clear();
        assert_eq!(types.topic(&long).unwrap_err(), limit);
    }

    #[test]
    fn each_entry_that_cannot_be_used_is_told() {
        let cases = [
            ("OrderPlaced", "contains \"OrderPlaced\", which names no topic"),
            (":t", "contains \":t\", which is not type:topic"),
            ("a:", "contains \"a:\", which is not type:topic"),
            ("a:b c", "contains \"b c\", which cannot be the name of a topic"),
            ("a:..", "contains \"..\", which cannot be the name of a topic"),
            ("a:t,a:u", "contains the type \"a\" twice"),
        ];
        for (text, expected) in cases {
            let mistakes = EventTypes::parse(text, "walferry.topics").unwrap_err();
            assert_eq!(mistakes.len(), 1, "{text}: {mistakes:?}");
            assert_eq!(mistakes[0].0, expected, "{text}");
        }
        let mistakes = EventTypes::parse("(a:t, b:$2, c", "walferry.topics").unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    }
}
