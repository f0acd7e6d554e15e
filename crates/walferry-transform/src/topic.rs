//! Topics by regular expression.

use std::collections::HashMap;

use walferry_config::{JavaRegex, Property, Reader, RegexLimit, Replacement, limited};

/// Values whose topic is remembered. An outbox has a handful of event types; a column that is unique for each row must
/// not fill the memory.
const REMEMBERED: usize = 4096;

/// Kafka's `RegexRouter`, with the topic of each value worked out once.
#[derive(Debug, Clone)]
pub(crate) struct TopicRouter {
    regex: JavaRegex,
    replacement: Replacement,
    places: HashMap<Box<str>, usize>,
    topics: Vec<Topic>,
    last: usize,
}

#[derive(Debug, Clone)]
struct Topic {
    value: Box<str>,
    name: Box<str>,
}

impl TopicRouter {
    /// Reads the two properties. A replacement that Java would reject at the first record is a problem at once.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        regex: &Property<JavaRegex>,
        replacement: &Property<String>,
    ) -> Option<Self> {
        let (regex, text) = (reader.get(regex), reader.get(replacement));
        match Replacement::parse(&text, &regex) {
            Ok(replacement) => Some(Self {
                regex,
                replacement,
                places: HashMap::new(),
                topics: Vec::new(),
                last: 0,
            }),
            Err(error) => {
                let display_text = match reader.options().get(replacement.name()) {
                    Some(_) => reader.options().display_text(replacement.name()),
                    None => format!("{text:?}"),
                };
                let finding = reader.problem(replacement.name(), format!("is {display_text}, which {error}"));
                finding.hint = error.hint.or_else(|| {
                    Some(
                        "write $1 or ${name} for a group of the regular expression, and a backslash before any other $"
                            .to_owned(),
                    )
                });
                None
            }
        }
    }

    /// The topic for a value. One that does not match as a whole is the topic itself.
    ///
    /// # Errors
    /// The expression takes too long to find whether it matches.
    pub(crate) fn route(&mut self, value: &str) -> Result<&str, RegexLimit> {
        if self.topics.get(self.last).is_none_or(|topic| *topic.value != *value) {
            self.last = match self.places.get(value) {
                Some(&place) => place,
                None => self.learn(value)?,
            };
        }
        Ok(&self.topics[self.last].name)
    }

    fn learn(&mut self, value: &str) -> Result<usize, RegexLimit> {
        let name = limited(|| {
            if self.regex.matches(value) {
                self.regex.replace_first(value, &self.replacement).into()
            } else {
                value.into()
            }
        })?;
        if self.topics.len() == REMEMBERED {
            self.topics.clear();
            self.places.clear();
        }
        let place = self.topics.len();
        self.topics.push(Topic {
            value: value.into(),
            name,
        });
        self.places.insert(value.into(), place);
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use walferry_config::{Options, properties};

    use super::*;

    properties! {
        const REGEX: Property<JavaRegex> = Property::new("regex").example("shop\\.public\\.(.*)").required();
        const REPLACEMENT: Property<String> = Property::new("replacement").example("-").required();
    }

    fn router(regex: &str, replacement: &str) -> (Option<TopicRouter>, Vec<String>) {
        let entries = [("regex", regex), ("replacement", replacement)];
        let entries: BTreeMap<_, _> = entries
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        let options = Options::new("", entries);
        let mut reader = Reader::new(&options, DECLARATIONS);
        let router = TopicRouter::read(&mut reader, &REGEX, &REPLACEMENT);
        let (_, findings) = reader.finish(());
        (router, findings.problems().map(ToString::to_string).collect())
    }

    #[test]
    fn a_value_that_does_not_match_as_a_whole_is_the_topic() {
        let (router, _) = router("([a-z]+)_events", "$1");
        let mut router = router.unwrap();
        for (value, topic) in [
            ("order_events", "order"),
            ("Order_events", "Order_events"),
            ("order_events2", "order_events2"),
        ] {
            assert_eq!(router.route(value).unwrap(), topic);
        }
    }

    #[test]
    fn an_expression_that_would_hang_is_an_error_each_time() {
        let mut router = router("(?:a|a(?!x))*(?=z)b", "t").0.unwrap();
        for _ in 0..2 {
            let limit = router.route(&"a".repeat(40)).unwrap_err();
            assert!(
                limit.to_string().starts_with("`regex`: the regular expression"),
                "{limit}"
            );
        }
        assert_eq!(router.route("other").unwrap(), "other");
    }

    #[test]
    fn more_values_than_are_remembered_still_have_their_topics() {
        let mut router = router("(.*)", "t.$1").0.unwrap();
        for i in (0..2 * REMEMBERED).chain([0, 1, 0]) {
            assert_eq!(router.route(&i.to_string()).unwrap(), format!("t.{i}"));
            assert!(router.topics.len() <= REMEMBERED && router.places.len() == router.topics.len());
        }
    }

    #[test]
    fn a_wrong_regex_or_replacement_is_a_problem() {
        for (regex, replacement, property) in [("(.*", "x", "regex"), ("(.*)", "$2", "replacement")] {
            let (_, problems) = router(regex, replacement);
            assert!(problems[0].starts_with(&format!("{property} is ")), "{problems:?}");
        }
    }
}
