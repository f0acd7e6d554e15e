//! Manual pages of all commands, made of their help texts. Packages contain them.

use std::{fs, path::Path};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use walferry_engine::Kind;

use crate::{cli::Cli, error::Error};

/// Writes a page for the program and for each of its commands.
pub(crate) fn write(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| {
        let what = format!("the folder {} cannot be made: {error}", folder.display());
        Error::new(Kind::Output, what)
    })?;
    for (name, page) in pages() {
        let file = folder.join(format!("{name}.1"));
        fs::write(&file, page).map_err(|error| {
            let what = format!("{} cannot be written: {error}", file.display());
            Error::new(Kind::Output, what)
        })?;
    }
    Ok(())
}

/// Name and text of each page.
fn pages() -> Vec<(String, String)> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    collect(&root, "walferry", &mut pages);
    pages
}

fn collect(command: &Command, name: &str, pages: &mut Vec<(String, String)>) {
    pages.push((name.to_owned(), page(command, name)));
    for sub in command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
    {
        collect(sub, &format!("{name}-{}", sub.get_name()), pages);
    }
}

fn page(command: &Command, name: &str) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".TH {} 1 \"\" \"Walferry {version}\" \"Walferry\"\n.SH NAME\n{} \\- {}\n",
        name.to_uppercase().replace('-', "\\-"),
        roff(name),
        roff(about.lines().next().unwrap_or_default())
    );
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    page.push_str(&format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", roff(usage)));
    page.push_str(&format!(".SH DESCRIPTION\n{}\n", roff(&about)));
    let is_listed = |arg: &&Arg| !arg.is_hide_set();
    let (given, named): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(is_listed)
        .partition(|arg| arg.is_positional());
    for (title, args) in [("ARGUMENTS", given), ("OPTIONS", named)] {
        if args.is_empty() {
            continue;
        }
        page.push_str(&format!(".SH {title}\n"));
        for arg in args {
            page.push_str(&format!(".TP\n.B {}\n{}\n", roff(&head(arg)), roff(&help(arg))));
        }
    }
    let subs: Vec<&Command> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        .collect();
    if !subs.is_empty() {
        page.push_str(".SH COMMANDS\n");
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let sub = format!("{name}-{}(1)", sub.get_name());
            page.push_str(&format!(".TP\n.B {}\n{}\n", roff(&sub), roff(&about)));
        }
    }
    if let Some(more) = command.get_after_help() {
        page.push_str(&format!(".SH MORE\n.nf\n{}\n.fi\n", roff(&more.to_string())));
    }
    page
}

/// An argument as it is written.
fn head(arg: &Arg) -> String {
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values: Vec<String> = match (takes_value, arg.get_value_names()) {
        (false, _) => Vec::new(),
        (true, Some(names)) => names.iter().map(ToString::to_string).collect(),
        (true, None) => vec![arg.get_id().to_string().to_uppercase()],
    };
    let value = values.join(" ");
    if arg.is_positional() {
        return value;
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("{} {value}", names.join(", ")).trim_end().to_owned()
}

fn help(arg: &Arg) -> String {
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    let values: Vec<&str> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name())
        .collect();
    if !values.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue) {
        help.push_str(&format!(" [values: {}]", values.join(", ")));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if !defaults.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue) {
        help.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    help
}

/// A text in which roff finds no requests.
fn roff(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_all_of_its_options() {
        let pages = pages();
        let page = |name: &str| &pages.iter().find(|(known, _)| known == name).expect(name).1;
        assert!(page("walferry").contains("walferry\\-run(1)"));
        assert!(page("walferry-snapshot").contains(".B \\-\\-wait\n"));
        assert!(page("walferry-apply").contains(".B \\-f, \\-\\-file FILE\n"));
        assert!(page("walferry-outbox-replay").contains(".SH MORE"));
        assert!(page("walferry-list").contains("[values: table, json, yaml, name]"));
        assert!(pages.len() > 25, "{}", pages.len());
        for (name, page) in &pages {
            let requests = page.lines().filter(|line| line.starts_with('.'));
            for request in requests {
                let known = [".TH ", ".SH ", ".TP", ".B ", ".nf", ".fi"];
                assert!(
                    known.iter().any(|known| request.starts_with(known)),
                    "{name}: {request}"
                );
            }
        }
        assert_eq!(roff(".x -a\\b\n'y"), "\\&.x \\-a\\eb\n\\&'y");
    }
}
