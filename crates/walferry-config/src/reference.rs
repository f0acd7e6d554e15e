//! The reference page, made of the declarations.

use std::{collections::HashSet, fmt::Write};

use crate::property::{Declaration, Group, Support};

/// A page of tables: for each group, one of the properties that are used and one of those without effect. Each row has an
/// anchor. It is the property's name; the title of the group stands before it if an earlier group has the name too.
pub fn reference_markdown<'g>(title: &str, introduction: &str, groups: impl IntoIterator<Item = &'g Group>) -> String {
    let mut page = format!("# {title}\n\n{introduction}\n");
    let mut anchors = HashSet::new();
    for group in groups {
        write_group(&mut page, group, &mut anchors);
    }
    page
}

fn write_group(page: &mut String, group: &Group, anchors: &mut HashSet<String>) {
    let mut lines = vec![String::new(), format!("## {}", group.title), String::new()];
    if !group.text.is_empty() {
        lines.extend([group.text.to_owned(), String::new()]);
    }
    if !group.prefix.is_empty() {
        lines.extend([format!("All names have the prefix `{}`.", group.prefix), String::new()]);
    }
    let mut anchored = |declaration: &Declaration| {
        let name = anchor(declaration.name);
        let anchor = match anchors.insert(name.clone()) {
            true => name,
            false => format!("{}-{name}", slug(group.title)),
        };
        anchored_row(&anchor, declaration)
    };
    let (used, unused): (Vec<_>, Vec<_>) = group
        .declarations
        .iter()
        .partition(|declaration| has_effect(declaration));
    if !used.is_empty() {
        lines.push(table(used, &mut anchored));
    }
    if !unused.is_empty() {
        lines.extend([
            String::new(),
            "Accepted without effect:".to_owned(),
            String::new(),
            table(unused, &mut anchored),
        ]);
    }
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{line}");
    }
}

const fn has_effect(declaration: &Declaration) -> bool {
    !matches!(
        declaration.support,
        Support::Accepted { .. } | Support::Elsewhere { .. }
    )
}

const fn is_refused(declaration: &Declaration) -> bool {
    matches!(declaration.support, Support::Refused { .. })
}

fn slug(title: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let words = title.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// The table of a group's properties, without its last line break. Each row has the property's name as its anchor.
pub fn options_markdown(group: &Group) -> String {
    table(group.declarations, |declaration| {
        anchored_row(&anchor(declaration.name), declaration)
    })
}

/// The anchor of a property. A variable part `<option>` becomes `OPTION`, because angle brackets do not work in a link.
fn anchor(name: &str) -> String {
    let mut in_variable = false;
    let letters = name.chars().filter_map(|c| match c {
        '<' | '>' => {
            in_variable = c == '<';
            None
        }
        c if in_variable => Some(c.to_ascii_uppercase()),
        c => Some(c),
    });
    letters.collect()
}

fn anchored_row(anchor: &str, declaration: &Declaration) -> String {
    format!("<a id=\"{anchor}\"></a>{}", row(declaration))
}

fn table<'d>(
    declarations: impl IntoIterator<Item = &'d Declaration>,
    row: impl FnMut(&Declaration) -> String,
) -> String {
    let head = [
        "| property | type | default | what it does |".to_owned(),
        "| --- | --- | --- | --- |".to_owned(),
    ];
    let lines = declarations.into_iter().map(row).map(|row| format!("| {row}"));
    head.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// A row without the bar at its beginning.
fn row(declaration: &Declaration) -> String {
    let kind = match declaration.values {
        [] => declaration.type_word.to_owned(),
        ["true", "false"] => "boolean".to_owned(),
        values => values
            .iter()
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let default = match (declaration.default, declaration.required) {
        (Some(default), _) => format!("`{default}`"),
        (None, true) => "required".to_owned(),
        (None, false) => "–".to_owned(),
    };
    let text = match declaration.support {
        Support::Honoured => declaration.text.to_owned(),
        Support::Except { values, hint } => {
            let values = values
                .iter()
                .map(|value| format!("`{value}`"))
                .collect::<Vec<_>>()
                .join(", ");
            format!("{} **Refused:** {values} ({hint}).", declaration.text)
        }
        Support::Refused { hint } => format!("{} **Refused** ({hint}).", declaration.text),
        Support::Accepted { why } => format!("{} **No effect:** {why}.", declaration.text),
        Support::Elsewhere { is, hint } => {
            format!("{} **No effect**, with a warning: it {is} ({hint}).", declaration.text)
        }
    };
    let example = match declaration.shown_example() {
        Some((name, value)) if has_effect(declaration) && !is_refused(declaration) => {
            format!(" Example: `{name}={value}`.")
        }
        _ => String::new(),
    };
    format!(
        "`{}` | {} | {} | {} |",
        declaration.name,
        cell(&kind),
        cell(&default),
        cell(&(text + &example))
    )
}

/// A pipe would end the cell, also within code.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Property;

    crate::properties! {
        const NAME: Property<String> = Property::new("slot.name").default("a|b").example("c").text("The slot.");
        const DROP: Property<bool> = Property::new("drop").required().text("Drops it.").support(Support::Refused { hint: "leave it out" });
        const PATH: Property<Option<String>> = Property::new("path").text("A path.").support(Support::Accepted { why: "there is none" });
        const CUT: Property<String> = Property::new("cut.to.<length>.chars").example("cut.to.2.chars=a").text("Cuts.");
    }

    #[test]
    fn a_page_holds_every_property_with_its_support() {
        let group = Group {
            title: "Slot",
            text: "About slots.",
            prefix: "x.",
            declarations: DECLARATIONS,
        };
        let expected = "# T\n\nI.\n\n## Slot\n\nAbout slots.\n\nAll names have the prefix `x.`.\n\n\
            | property | type | default | what it does |\n| --- | --- | --- | --- |\n\
            | <a id=\"slot.name\"></a>`slot.name` | string | `a\\|b` | The slot. Example: `slot.name=c`. |\n\
            | <a id=\"drop\"></a>`drop` | boolean | required | Drops it. **Refused** (leave it out). |\n\
            | <a id=\"cut.to.LENGTH.chars\"></a>`cut.to.<length>.chars` | string | – | Cuts. Example: `cut.to.2.chars=a`. |\n\n\
            Accepted without effect:\n\n\
            | property | type | default | what it does |\n| --- | --- | --- | --- |\n\
            | <a id=\"path\"></a>`path` | string | – | A path. **No effect:** there is none. |\n";
        assert_eq!(reference_markdown("T", "I.", [&group]), expected);
        // Anchors are unique.
        let twice = reference_markdown("T", "I.", [&group, &group]);
        assert!(twice.contains("<a id=\"slot-slot.name\"></a>"), "{twice}");
        let options = options_markdown(&group);
        assert!(options.contains("| <a id=\"slot.name\"></a>`slot.name` |"), "{options}");
    }
}
