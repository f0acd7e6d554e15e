//! Prints what a logical slot sends, as the engine would get it, and creates slot and publication if they are missing.
//!
//! ```text
//! PGPASSWORD=… cargo run -p walferry-postgres --example stream -- HOST PORT DATABASE USER SLOT PUBLICATION [SSLMODE] [SSLROOTCERT]
//! ```
//! Nothing is confirmed, so that the slot stays where it is. Ctrl-C ends it.

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use walferry_config::Secret;
use walferry_engine::Failure;
use walferry_engine::source::{Frame, Phase, Port, SnapshotPlan, Source, TableFilter, chunks};
use walferry_pgoutput::Lsn;
use walferry_postgres::Postgres;
use walferry_postgres::connect::{ChannelBinding, Settings, TlsSettings};
use walferry_postgres::publication::{AutoCreate, Publication};
use walferry_postgres::source::Config;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [host, port, database, user, slot, publication, rest @ ..] = &arguments[..] else {
        eprintln!("usage: stream HOST PORT DATABASE USER SLOT PUBLICATION [SSLMODE] [SSLROOTCERT]");
        std::process::exit(2);
    };
    let connection = Settings {
        host: host.clone(),
        port: port.parse().unwrap_or(5432),
        database: database.clone(),
        user: user.clone(),
        password: env::var("PGPASSWORD").ok().map(Secret::new),
        tls: TlsSettings {
            mode: rest.first().and_then(|mode| mode.parse().ok()).unwrap_or_default(),
            root_certificate: rest.get(1).map(Into::into),
            certificate: env::var_os("PGSSLCERT").map(Into::into),
            key: env::var_os("PGSSLKEY").map(Into::into),
        },
        channel_binding: ChannelBinding::Prefer,
        tcp_keepalive: true,
        connect_timeout: Duration::from_secs(10),
        options: None,
        initial_statements: Vec::new(),
        query_timeout: Duration::from_secs(600),
    };
    let config = Config {
        connection,
        slot: slot.clone(),
        failover: false,
        stream_parameters: Vec::new(),
        publication: Publication {
            name: publication.clone(),
            mode: AutoCreate::AllTables,
            via_partition_root: false,
            publish: None,
        },
        status_interval: Duration::from_secs(10),
        create_timeout: Duration::from_secs(90),
        rank: Arc::new(|_, _| 0),
    };
    if let Err(failure) = run(Postgres::new(config)).await {
        for cause in &failure.causes {
            eprintln!("error: {}", cause.what);
            if let Some(hint) = &cause.hint {
                eprintln!("  hint: {hint}");
            }
        }
        eprintln!("({}, {:?})", failure.kind, failure.disposition);
        std::process::exit(1);
    }
}

async fn run(mut source: Postgres) -> Result<(), Failure> {
    let begun = Instant::now();
    let found = source.inspect().await?;
    println!("{found:?} after {:?}", begun.elapsed());
    let everything: TableFilter = Arc::new(|_, _| true);
    source.ensure_publication(everything.clone()).await?;

    let (sender, mut receiver) = chunks(16 * 1024 * 1024);
    let (phase, phases) = watch::channel(Phase::Run);
    let (_confirm, confirmable) = watch::channel(None);
    let (server_end, _) = watch::channel(Lsn::INVALID);
    let mut port = Port {
        chunks: sender,
        confirmable,
        phase: phases,
        server_end,
    };

    let quiet = env::var_os("QUIET").is_some();
    let printer = tokio::spawn(async move {
        let (mut frames, mut bytes, mut pieces) = (0_usize, 0_usize, 0_usize);
        let mut last = Instant::now();
        while let Some(chunk) = receiver.recv().await {
            pieces += 1;
            frames += chunk.frames.len();
            bytes += chunk.bytes.len();
            if quiet {
                if last.elapsed() > Duration::from_secs(1) {
                    println!("{frames} frames, {bytes} bytes, {pieces} chunks");
                    last = Instant::now();
                }
                continue;
            }
            for frame in &chunk.frames {
                match frame {
                    Frame::Wal { lsn, payload } => println!("{lsn} {}", chunk.bytes[payload.clone()].escape_ascii()),
                    Frame::Row { tuple } => println!("row {}", chunk.bytes[tuple.clone()].escape_ascii()),
                    other => println!("{other:?}"),
                }
            }
        }
        println!("{frames} frames, {bytes} bytes, {pieces} chunks");
    });

    let from = match found.slot.and_then(|slot| slot.confirmed) {
        Some(confirmed) => confirmed,
        None => {
            let created = source.create_slot(true).await?;
            let tables = source.tables(everything).await?;
            let plan = SnapshotPlan {
                tables,
                lsn: Some(created.consistent_point),
            };
            source.snapshot(plan, &port.chunks).await?;
            created.consistent_point
        }
    };
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
        let _ = phase.send(Phase::Close);
        std::future::pending::<()>().await;
    };
    println!("streaming from {from} after {:?}", begun.elapsed());
    let streamed = tokio::select! {
        streamed = source.stream(from, &mut port) => streamed,
        () = stop => Ok(()),
    };
    drop(port);
    let _ = printer.await;
    streamed
}
