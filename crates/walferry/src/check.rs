//! `walferry check`: what a start would find, in sentences, and nothing changed.

use tokio::runtime::Builder;
use walferry_engine::{Cause, Failure};
use walferry_offset::FileStore;
use walferry_postgres::check::{Remark, Weight};

use crate::{
    assemble::{captured, kafka, partition, snapshot_policy},
    cli::CheckArgs,
    error::Error,
    load::{Loaded, data_dir, load},
};

/// Looks at both sides of every connector. An obstacle to a start is an error, after everything has been said.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Error> {
    let loaded = load(&args.connector)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::setup(format!("the runtime does not start: {error}")))?;
    let mut obstacles = 0;
    for loaded in &loaded {
        println!("connector {:?}", loaded.connector.name);
        let mut findings = vec![offset_finding(args, loaded)?];
        let first_start = findings[0].word == "new";
        findings.extend(runtime.block_on(postgres_findings(loaded, first_start)));
        findings.extend(kafka_findings(loaded));
        for finding in &findings {
            println!("  {:<8} {}", finding.word, finding.text);
            if let Some(remedy) = &finding.remedy {
                println!("           → {}", remedy.replace('\n', "\n             "));
            }
        }
        obstacles += findings.iter().filter(|finding| finding.word == OBSTACLE).count();
    }
    match obstacles {
        0 => {
            println!("nothing stands in the way of a start");
            Ok(())
        }
        1 => Err(Error::setup("one thing stands in the way of a start: see above")),
        n => Err(Error::setup(format!(
            "{n} things stand in the way of a start: see above"
        ))),
    }
}

/// A sentence, with the word that tells how much it matters.
struct Finding {
    word: &'static str,
    text: String,
    remedy: Option<String>,
}

const OBSTACLE: &str = "obstacle";

impl From<Remark> for Finding {
    fn from(remark: Remark) -> Self {
        let word = match remark.weight {
            Weight::Good => "ok",
            Weight::Change => "new",
            Weight::Caution => "caution",
            Weight::Obstacle => OBSTACLE,
        };
        Self {
            word,
            text: remark.text,
            remedy: remark.remedy,
        }
    }
}

impl From<walferry_kafka::check::Remark> for Finding {
    fn from(remark: walferry_kafka::check::Remark) -> Self {
        use walferry_kafka::check::Weight;
        let word = match remark.weight {
            Weight::Good => "ok",
            Weight::Change => "new",
            Weight::Caution => "caution",
            Weight::Obstacle => OBSTACLE,
        };
        Self {
            word,
            text: remark.text,
            remedy: remark.remedy,
        }
    }
}

impl From<Cause> for Finding {
    fn from(cause: Cause) -> Self {
        Self {
            word: OBSTACLE,
            text: cause.what,
            remedy: cause.hint,
        }
    }
}

fn offset_finding(args: &CheckArgs, loaded: &Loaded) -> Result<Finding, Error> {
    let partition = partition(&loaded.connector);
    let stored = FileStore::peek(&data_dir(&args.data), &partition);
    let stored = stored.map_err(|error| Error::failure("the stored offset cannot be read", error.into()))?;
    Ok(match stored.as_ref().and_then(|stored| stored.start()) {
        Some(from) => Finding {
            word: "ok",
            text: format!("a start goes on from the stored offset {from}"),
            remedy: None,
        },
        None => Finding {
            word: "new",
            text: "no offset is stored: this is a first start".into(),
            remedy: None,
        },
    })
}

async fn postgres_findings(loaded: &Loaded, first_start: bool) -> Vec<Finding> {
    let config = &loaded.connector;
    let policy = snapshot_policy(config);
    let snapshot = policy.at_every_start || (first_start && policy.at_first_start);
    match walferry_postgres::check::check(config, captured(config), snapshot).await {
        Ok(remarks) => remarks.into_iter().map(Finding::from).collect(),
        Err(failure) => obstacles(failure),
    }
}

fn kafka_findings(loaded: &Loaded) -> Vec<Finding> {
    let settings = match kafka(loaded) {
        Ok(settings) => settings,
        Err(error) => {
            return vec![Finding {
                word: OBSTACLE,
                text: error.to_string(),
                remedy: None,
            }];
        }
    };
    // Topics of rows are known only once rows come.
    let dead_letters: Vec<String> = loaded
        .connector
        .errors
        .dead_letter_topic
        .iter()
        .map(ToString::to_string)
        .collect();
    match walferry_kafka::check::check(&settings, &dead_letters) {
        Ok(remarks) => remarks.into_iter().map(Finding::from).collect(),
        Err(failure) => obstacles(failure),
    }
}

fn obstacles(failure: Failure) -> Vec<Finding> {
    failure.causes.into_iter().map(Finding::from).collect()
}
