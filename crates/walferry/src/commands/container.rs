//! `walferry run --in-container`: how the images start.

use std::{env, path::Path};

use tracing::warn;

use crate::{cli::RunArgs, surrounded};

/// The files that an image reads if they are there.
const CONNECTOR: &str = "/etc/walferry/connector.json";
const WORKER: &str = "/etc/walferry/worker.properties";
/// The volume of the images.
const DATA: &str = "/var/lib/walferry";

/// The arguments with what the images add to them. Files that somebody has mounted come before variables of the environment.
pub(crate) fn completed(args: RunArgs) -> RunArgs {
    if !args.in_container || !args.connector.config.is_empty() || args.connector.worker.is_some() {
        return args;
    }
    let args = with_files(args, |path| Path::new(path).exists());
    if (args.connector.worker.is_some() || !args.connector.config.is_empty())
        && surrounded::worker(surrounded::variables(env::vars_os())).is_some()
    {
        warn!(
            hint = "remove the files to run the worker that the variables define, or remove the variables",
            "the files in /etc/walferry are used, so the variables of Kafka Connect's images have no effect"
        );
    }
    args
}

fn with_files(mut args: RunArgs, is_there: impl Fn(&str) -> bool) -> RunArgs {
    if is_there(WORKER) {
        args.connector.worker = Some(WORKER.into());
    }
    if is_there(CONNECTOR) {
        args.connector.config.push(CONNECTOR.into());
        // Without a connector from a file, the worker may name Connect's topics for its state.
        args.data.data_dir.get_or_insert_with(|| DATA.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(line: &[&str]) -> RunArgs {
        let cli = Cli::parse_from([&["walferry", "run"], line].concat());
        match cli.command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// What an image runs with these files.
    fn settings(files: &[&str]) -> (Vec<String>, Option<String>, Option<String>) {
        let args = with_files(arguments(&["--in-container"]), |path| files.contains(&path));
        let text = |path: &std::path::PathBuf| path.display().to_string();
        (
            args.connector.config.iter().map(text).collect(),
            args.connector.worker.as_ref().map(text),
            args.data.data_dir.as_ref().map(text),
        )
    }

    #[test]
    fn an_image_runs_the_files_that_are_there() {
        let (connector, worker, data) = (CONNECTOR.to_owned(), WORKER.to_owned(), DATA.to_owned());
        assert_eq!(
            settings(&[CONNECTOR, WORKER]),
            (vec![connector], Some(worker.clone()), Some(data))
        );
        // Its state may be in Connect's topics.
        assert_eq!(settings(&[WORKER]), (vec![], Some(worker), None));
        assert_eq!(settings(&[]), (vec![], None, None));
    }
}
