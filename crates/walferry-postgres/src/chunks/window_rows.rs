//! The rows of the signal table that open and close a window.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use walferry_config::connector::{SignalTable, Watermarking};
use walferry_engine::incremental::WindowEnd;
use walferry_record::java::date::{calendar_date, time_of_day};

use crate::chunks::reader::Chunks;
use crate::chunks::signal_table::{Written, is_in, obstacle};
use crate::error::Error;
use crate::quote::{literal, qualified};

/// How often everything about the signal table is looked at. Chunks in between only need to know that it is published.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
const MARKING: &str = "writing to the signal table";

impl Chunks {
    /// Writes the row that opens a window. After a failure, the row may have been written already.
    pub(super) async fn open(&mut self, chunk: &str, again: bool) -> Result<(), Error> {
        self.demand_published().await?;
        self.opened = now();
        let data = format!("{{\"openWindowTimestamp\": \"{}\"}}", self.opened);
        if self.watermarking == Watermarking::InsertDelete && !self.open.iter().any(|open| open == chunk) {
            self.remove_left_over().await?;
            self.open.push(chunk.to_owned());
        }
        self.write(chunk, WindowEnd::Open, &data, again).await
    }

    pub(super) async fn close(&mut self, chunk: &str, again: bool) -> Result<(), Error> {
        if self.watermarking == Watermarking::InsertDelete {
            let table = self.signals()?;
            let table = qualified(&table.schema, &table.name);
            // Triggers of the table run with the role's own path.
            let delete = format!(
                "WITH gone AS (DELETE FROM {table} WHERE id = {} AND (SELECT {} IS NOT NULL) RETURNING 1) SELECT pg_catalog.count(*) FROM gone",
                literal(&WindowEnd::Open.id(chunk)),
                self.sql().await?.own_path()
            );
            let deleted: i64 = self.sql().await?.value(MARKING, &delete, &[]).await?;
            if deleted == 0 {
                // Somebody has emptied the table. The stream may contain nothing of that which closes the window.
                self.write(chunk, WindowEnd::Open, "{}", false).await?;
                let _: i64 = self.sql().await?.value(MARKING, &delete, &[]).await?;
            }
            self.open.retain(|open| open != chunk);
            return Ok(());
        }
        let data = format!(
            "{{\"openWindowTimestamp\": \"{}\", \"closeWindowTimestamp\": \"{}\"}}",
            self.opened,
            now()
        );
        self.write(chunk, WindowEnd::Close, &data, again).await
    }

    /// Removes the opening rows of chunks that were given up: nothing else removes them. Their deletion appears in the stream, where no window
    /// waits for it.
    async fn remove_left_over(&mut self) -> Result<(), Error> {
        if self.open.is_empty() {
            return Ok(());
        }
        let table = self.signals()?;
        let ids: Vec<String> = self
            .open
            .iter()
            .map(|chunk| literal(&WindowEnd::Open.id(chunk)))
            .collect();
        let from = qualified(&table.schema, &table.name);
        let sql = self.sql().await?;
        let delete = format!(
            "DELETE FROM {from} WHERE id IN ({}) AND (SELECT {} IS NOT NULL)",
            ids.join(", "),
            sql.own_path()
        );
        sql.execute(MARKING, &delete).await?;
        self.open.clear();
        Ok(())
    }

    async fn write(&mut self, chunk: &str, end: WindowEnd, data: &str, again: bool) -> Result<(), Error> {
        let table = self.signals()?;
        let insert = format!(
            "INSERT INTO {} VALUES ({}, {}, {}){}",
            qualified(&table.schema, &table.name),
            literal(&end.id(chunk)),
            literal(end.kind()),
            literal(data),
            if again { " ON CONFLICT DO NOTHING" } else { "" }
        );
        self.sql().await?.execute_as_user(MARKING, &insert).await
    }

    /// Fails if the stream does not bring the rows of the signal table. Without them, no window would ever open.
    async fn demand_published(&mut self) -> Result<(), Error> {
        let table = self.signals()?.clone();
        let publication = self.publication.clone();
        let written = Written::Windows(self.watermarking);
        let is_recent = self.looked.is_some_and(|at| at.elapsed() < LOOK_INTERVAL);
        let sql = self.sql().await?;
        if is_recent && is_in(sql, &table, &publication).await? {
            return Ok(());
        }
        match obstacle(sql, &table, &publication, written).await? {
            Some(error) => Err(error),
            None => {
                self.looked = Some(Instant::now());
                Ok(())
            }
        }
    }

    fn signals(&self) -> Result<&SignalTable, Error> {
        self.table.as_ref().ok_or_else(|| Error::Protocol {
            doing: MARKING,
            problem: "no signal table is configured".to_owned(),
        })
    }
}

/// The present time in the format of Java's `Instant.toString`.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(now.as_millis()).unwrap_or_default();
    let (year, month, day) = calendar_date(millis.div_euclid(86_400_000));
    let (hour, minute, second, _) = time_of_day(millis);
    let micros = now.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}
