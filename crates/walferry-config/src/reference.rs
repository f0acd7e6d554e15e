//! The reference page, made of the declarations.

use std::fmt::Write;

use crate::property::{Declaration, Group, Support};

/// A page of tables: one for each group, a row for each property.
pub fn reference_markdown<'g>(title: &str, introduction: &str, groups: impl IntoIterator<Item = &'g Group>) -> String {
    let mut page = format!("# {title}\n\n{introduction}\n");
    for group in groups {
        write_group(&mut page, group);
    }
    page
}

fn write_group(page: &mut String, group: &Group) {
    let mut lines = vec![String::new(), format!("## {}", group.title), String::new()];
    if !group.text.is_empty() {
        lines.extend([group.text.to_owned(), String::new()]);
    }
    if !group.prefix.is_empty() {
        lines.extend([format!("All names have the prefix `{}`.", group.prefix), String::new()]);
    }
    lines.push(options_markdown(group));
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{line}");
    }
}

/// The table of a group's properties, without its last line break.
pub fn options_markdown(group: &Group) -> String {
    let head = [
        "| property | type | default | what it does |".to_owned(),
        "| --- | --- | --- | --- |".to_owned(),
    ];
    let lines: Vec<String> = head.into_iter().chain(group.declarations.iter().map(row)).collect();
    lines.join("\n")
}

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
    format!(
        "| `{}` | {} | {} | {} |",
        declaration.name,
        cell(&kind),
        cell(&default),
        cell(&text)
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
        const NAME: Property<String> = Property::new("slot.name").default("a|b").text("The slot.");
        const DROP: Property<bool> = Property::new("drop").required().text("Drops it.").support(Support::Refused { hint: "leave it out" });
        const PATH: Property<Option<String>> = Property::new("path").text("A path.").support(Support::Accepted { why: "there is none" });
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
            | `slot.name` | string | `a\\|b` | The slot. |\n\
            | `drop` | boolean | required | Drops it. **Refused** (leave it out). |\n\
            | `path` | string | – | A path. **No effect:** there is none. |\n";
        assert_eq!(reference_markdown("T", "I.", [&group]), expected);
    }
}
