//! Prints what the slot of a connector sends, as the engine gets it. Creates slot and publication if they are missing; then the
//! rows of the captured tables come first.
//!
//! ```text
//! cargo run -p walferry-postgres --example stream -- connector.json
//! ```
//! Nothing is confirmed, so that the slot stays where it is. Ctrl-C ends it.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs, io};

use tokio::sync::watch;
use walferry_config::{Connector, Findings, Lookup, Submitted, Worker};
use walferry_engine::source::{
    Control as _, Frame, FrameBatch, Rows as _, SnapshotPlan, Source, Stream as _, StreamPhase, StreamPort,
    TableFilter, frame_channel,
};
use walferry_pgoutput::Lsn;
use walferry_postgres::Postgres;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: stream connector.json")?;
    let connector = read(&path)?;
    let filters = connector.filters.clone();
    let captured: TableFilter = Arc::new(move |schema, table| filters.captures_table(schema, table));

    let mut source = Postgres::new(&connector, Arc::default());
    let found = source.control().inspect().await?;
    println!("{found:?}");
    source.control().ensure_publication(captured.clone()).await?;

    let (sender, mut receiver) = frame_channel(16 * 1024 * 1024);
    tokio::spawn(async move {
        while let Some(chunk) = receiver.recv().await {
            print(&chunk);
        }
    });
    let from = match found.slot.and_then(|slot| slot.confirmed) {
        Some(confirmed) => confirmed,
        None => {
            let created = source.control().create_slot(true).await?;
            let tables = source.control().tables(captured, &[]).await?;
            source
                .parts()
                .rows
                .read(
                    SnapshotPlan {
                        tables,
                        lsn: Some(created.consistent_point),
                        ..SnapshotPlan::default()
                    },
                    &sender,
                )
                .await?;
            created.consistent_point
        }
    };

    let (phase, phases) = watch::channel(StreamPhase::Run);
    let (_stored, confirmable) = watch::channel(None);
    let (server_end, _) = watch::channel(Lsn::INVALID);
    let mut port = StreamPort {
        frames: sender,
        confirmable,
        phase: phases,
        server_end,
        until: None,
        is_news: true,
    };
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        let _ = phase.send(StreamPhase::Close);
    });
    Ok(source.parts().stream.stream(from, &mut port).await?)
}

fn print(chunk: &FrameBatch) {
    for frame in &chunk.frames {
        match frame {
            Frame::Wal { lsn, payload } => println!("{lsn} {}", chunk.bytes[payload.clone()].escape_ascii()),
            Frame::Row { tuple } => println!("row {}", chunk.bytes[tuple.clone()].escape_ascii()),
            other => println!("{other:?}"),
        }
    }
}

fn read(path: &str) -> Result<Connector, Box<dyn Error>> {
    let (submitted, _) = Submitted::read(&fs::read_to_string(path)?)?;
    let worker = Worker::read(&Submitted::default(), &Machine).0.ok_or("no worker")?;
    let (connector, findings) =
        Connector::read(&submitted, Some("stream"), &worker, &Machine, &|_| Findings::default());
    let problems: Vec<String> = findings.problems().map(|finding| format!("{finding:?}")).collect();
    connector.ok_or_else(|| problems.join("\n").into())
}

/// What references in the file may name.
struct Machine;

impl Lookup for Machine {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }
}
