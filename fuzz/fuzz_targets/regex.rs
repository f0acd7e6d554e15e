//! Any text as a regular expression of Java's: its first line; the second is a replacement, the rest a text that both are tried on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_config::{JavaRegex, RegexList, Replacement, Value, limited};

fuzz_target!(|input: &str| {
    let mut lines = input.splitn(3, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, replacement, text) = (next(), next(), next());
    if pattern.len() > 200 || text.len() > 200 {
        return;
    }
    for regex in [JavaRegex::new(pattern), JavaRegex::ignoring_case(pattern)] {
        let regex = match regex {
            Ok(regex) => regex,
            Err(error) => {
                assert!(error.position <= pattern.chars().count() + 1, "{error}");
                continue;
            }
        };
        let matches = limited(|| regex.matches(text));
        let captures = limited(|| regex.captures(text).is_some());
        if let (Ok(matches), Ok(captures)) = (&matches, &captures) {
            assert_eq!(matches, captures);
        }
        if let Ok(replacement) = Replacement::parse(replacement, &regex) {
            let _ = limited(|| regex.replace_first(text, &replacement));
            let _ = limited(|| regex.replace_all(text, &replacement));
        }
    }
    if let Ok(list) = RegexList::parse(pattern) {
        let _ = limited(|| list.matches(text));
    }
});
