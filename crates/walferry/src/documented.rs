//! The commands that the documents and the help texts show are commands that the program takes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::cli::{Cli, Command, ConnectorArgs, DataArgs, OutboxCommand};

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Fragments of the changelog show old commands, too.
        if path.is_dir() && !path.ends_with("changes") {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// A command, and whether it is one to copy: in a listing, and not a name in a sentence.
struct DocumentedCommand {
    place: String,
    text: String,
    to_copy: bool,
}

/// What follows `walferry` at the begin of a line, behind a prompt or behind `sudo`.
fn command(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo ");
    line.starts_with("walferry ").then_some(line)
}

fn commands(page: &Path) -> Vec<DocumentedCommand> {
    let text = fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    // The language of a listing, inside of one.
    let mut listing: Option<&str> = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let place = format!("{}:{}", page.display(), number + 1);
        let mut show = |text: String, to_copy| {
            found.push(DocumentedCommand {
                place: place.clone(),
                text,
                to_copy,
            });
        };
        if let Some(language) = line.trim_start().strip_prefix("```") {
            listing = listing.is_none().then_some(language);
            continue;
        }
        let Some(language) = listing else {
            let code = line.split('`').skip(1).step_by(2);
            code.filter_map(command).for_each(|text| show(text.to_owned(), false));
            continue;
        };
        // Other lines are what a command has printed.
        let has_commands = language == "sh" || (language == "console" && line.trim_start().starts_with("$ "));
        if !has_commands {
            continue;
        }
        if let Some(first) = command(line) {
            let mut text = first.to_owned();
            while let Some(begin) = text.strip_suffix('\\') {
                text = begin.to_owned() + lines.next().map_or("", |(_, line)| line.trim_start());
            }
            show(text, true);
        } else if let Some((_, inner)) = line.split_once("; walferry ") {
            // In `sh -c '…'`.
            show(format!("walferry {}", inner.trim_end_matches('\'')), true);
        }
    }
    found
}

/// The words of a command as a shell reads them, up to a comment, a pipe or a redirection.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut begun, mut quote) = (String::new(), false, None);
    for c in text.chars().chain([' ']) {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => (quote, begun) = (Some(c), true),
            ('#' | '|' | '>' | ';' | '&', None) if !begun => break,
            (';', None) => {
                words.push(word);
                break;
            }
            (' ', None) => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            (c, _) => {
                word.push(c);
                begun = true;
            }
        }
    }
    words
}

/// What is wrong with a command, if anything is.
fn mistake(command: &DocumentedCommand) -> Option<String> {
    let words = words(&command.text);
    let is_left_out = command.text.contains('…');
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            use ErrorKind as Kind;
            let is_name_only = matches!(
                error.kind(),
                // `run --take` lacks the value of the flag.
                Kind::MissingRequiredArgument
                    | Kind::MissingSubcommand
                    | Kind::InvalidValue
                    | Kind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            // A command in a sentence is often only named. `walferry tail …` says that something is left out.
            let is_name = !command.to_copy && (is_name_only || is_left_out);
            let is_fine = is_name || matches!(error.kind(), Kind::DisplayHelp | Kind::DisplayVersion);
            return (!is_fine).then(|| error.to_string());
        }
    };
    let connector = |args: &ConnectorArgs| {
        let has_brokers = args.bootstrap_servers.is_some() || args.worker.is_some();
        // The file of Debezium Server names the brokers, too.
        let is_server_file = args.config.iter().any(|file| file.ends_with("application.properties"));
        !args.config.is_empty() && !has_brokers && !is_server_file
    };
    let without_folder = |args: &ConnectorArgs, data: &DataArgs| !args.config.is_empty() && data.data_dir.is_none();
    let (lacks_brokers, lacks_folder) = match &cli.command {
        Command::Run(args) => (connector(&args.connector), without_folder(&args.connector, &args.data)),
        Command::Check(args) => (connector(&args.connector), without_folder(&args.connector, &args.data)),
        Command::Outbox(args) => match &args.command {
            OutboxCommand::Replay(args) => (args.bootstrap_servers.is_none() && args.worker.is_none(), false),
            _ => (false, false),
        },
        _ => (false, false),
    };
    if lacks_brokers && !is_left_out {
        return Some("it does not say where Kafka is: add --bootstrap-servers or --worker".into());
    }
    let asks_for_root = lacks_folder && command.to_copy && !is_left_out;
    asks_for_root.then(|| "it uses /var/lib/walferry, which only root can write to: add --data-dir".into())
}

#[test]
fn the_commands_of_the_documents_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut all = ["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)).to_vec();
    pages(&root.join("docs"), &mut all);
    pages(&root.join("examples"), &mut all);
    let examples: Vec<DocumentedCommand> = all.iter().flat_map(|page| commands(page)).collect();
    let mistakes: Vec<String> = examples
        .iter()
        .filter_map(|command| Some(format!("{}: {}: {}", command.place, command.text, mistake(command)?)))
        .collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let to_copy = examples.iter().filter(|command| command.to_copy).count();
    assert!(
        to_copy > 40 && examples.len() > 100,
        "{to_copy} of {} commands",
        examples.len()
    );
}

#[test]
fn the_commands_of_the_help_texts_are_taken() {
    fn texts(command: &clap::Command, found: &mut Vec<DocumentedCommand>) {
        let help = command.clone().render_long_help().to_string();
        for line in help.lines().filter(|line| line.starts_with("  walferry ")) {
            found.push(DocumentedCommand {
                place: format!("help of {}", command.get_name()),
                text: line.trim().to_owned(),
                to_copy: true,
            });
        }
        command.get_subcommands().for_each(|inner| texts(inner, found));
    }
    let mut examples = Vec::new();
    texts(&Cli::command(), &mut examples);
    let mistakes: Vec<String> = examples.iter().filter_map(mistake).collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(examples.len() >= 3, "{} examples", examples.len());
}

#[test]
fn a_command_that_cannot_work_is_a_mistake() {
    let cases = [
        (
            "walferry check --config a.json --bootstrap-servers h:1 --data-dir d",
            true,
            None,
        ),
        (
            "walferry check --config a.json --data-dir d",
            true,
            Some("where Kafka is"),
        ),
        ("walferry check --config a.json", false, Some("where Kafka is")),
        (
            "walferry run --config a.json --worker w # why",
            true,
            Some("--data-dir"),
        ),
        ("walferry run --worker w; echo \"exit $?\"", true, None),
        ("walferry run --config application.properties --data-dir d", true, None),
        ("walferry tail --config a.json --limt 1", true, Some("--limt")),
        ("walferry tail", false, None),
        ("walferry tail", true, Some("--config")),
        ("walferry tell", false, Some("tell")),
        (
            "walferry outbox replay --config a.json --id 'a b'",
            true,
            Some("where Kafka is"),
        ),
    ];
    for (text, to_copy, expected) in cases {
        let (place, text) = (String::new(), text.to_owned());
        let mistake = mistake(&DocumentedCommand { place, text, to_copy });
        let is_right = match expected {
            None => mistake.is_none(),
            Some(part) => mistake.as_ref().is_some_and(|mistake| mistake.contains(part)),
        };
        assert!(is_right, "{expected:?}: {mistake:?}");
    }
}
