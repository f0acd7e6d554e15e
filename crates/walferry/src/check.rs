//! `walferry check`: what a start would find, in sentences, and nothing changed.

use tokio::runtime::Builder;
use walferry_engine::{Failure, Remark, Weight};
use walferry_offset::FileStore;

use crate::{
    assemble::{captured, kafka, partition, snapshot_policy},
    cli::CheckArgs,
    error::Error,
    load::{Loaded, data_dir, load},
    say::say,
};

/// Looks at both sides of every connector. An obstacle to a start is an error, after everything has been said.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Error> {
    let loaded = load(&args.connector)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::setup(format!("the runtime does not start: {error}")))?;
    let mut obstacles = 0;
    for loaded in &loaded {
        say!("connector {:?}", loaded.connector.name);
        let offset = offset(args, loaded)?;
        let first_start = offset.weight == Weight::Change;
        let postgres = runtime.block_on(postgres(loaded, first_start));
        for remark in [offset].into_iter().chain(postgres).chain(kafka_side(loaded)?) {
            say!("  {:<8} {}", word(remark.weight), remark.text);
            if let Some(remedy) = &remark.remedy {
                say!("           → {}", remedy.replace('\n', "\n             "));
            }
            obstacles += usize::from(remark.weight == Weight::Obstacle);
        }
    }
    match obstacles {
        0 => {
            say!("nothing stands in the way of a start");
            Ok(())
        }
        1 => Err(Error::setup("one thing stands in the way of a start: see above")),
        n => Err(Error::setup(format!(
            "{n} things stand in the way of a start: see above"
        ))),
    }
}

/// The word that tells how much a remark matters.
const fn word(weight: Weight) -> &'static str {
    match weight {
        Weight::Good => "ok",
        Weight::Change => "new",
        Weight::Caution => "caution",
        Weight::Obstacle => "obstacle",
    }
}

fn offset(args: &CheckArgs, loaded: &Loaded) -> Result<Remark, Error> {
    let partition = partition(&loaded.connector);
    let stored = FileStore::peek(&data_dir(&args.data), &partition);
    let stored = stored.map_err(|error| Error::failure("the stored offset cannot be read", error.for_good()))?;
    if stored
        .as_ref()
        .is_some_and(|stored| stored.connect.is_unfinished_snapshot())
    {
        let text = "a snapshot was interrupted: a start goes on with it";
        return Ok(Remark::new(Weight::Change, text));
    }
    Ok(match stored.as_ref().and_then(|stored| stored.start()) {
        Some(from) => Remark::new(Weight::Good, format!("a start goes on from the stored offset {from}")),
        None => Remark::new(Weight::Change, "no offset is stored: this is a first start"),
    })
}

async fn postgres(loaded: &Loaded, first_start: bool) -> Vec<Remark> {
    let config = &loaded.connector;
    let policy = snapshot_policy(config);
    let snapshot = policy.at_every_start || (first_start && policy.at_first_start);
    walferry_postgres::check::check(config, captured(config), snapshot)
        .await
        .unwrap_or_else(obstacles)
}

fn kafka_side(loaded: &Loaded) -> Result<Vec<Remark>, Error> {
    let settings = kafka(loaded)?;
    // Topics of rows are known only once rows come.
    let dead_letters: Vec<String> = loaded
        .connector
        .errors
        .dead_letter_topic
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(walferry_kafka::check::check(&settings, &dead_letters).unwrap_or_else(obstacles))
}

fn obstacles(failure: Failure) -> Vec<Remark> {
    failure.causes.into_iter().map(Remark::from).collect()
}
