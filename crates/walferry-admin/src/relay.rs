//! What is to be said and shown of a connector in relay mode.

use serde::Serialize;
use walferry_engine::status::{LaneOwner, OutboxFigures, RelayFigures, RelayRows};

use crate::{
    history::quantile_us,
    human,
    observation::{Observation, load},
};

/// A row that waits for longer is worth a word.
const OLD_SECONDS: f64 = 60.0;

/// Something to be said, and whether it is worth a look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    pub(crate) text: String,
    pub(crate) is_note: bool,
    pub(crate) hint: Option<&'static str>,
}

impl Remark {
    fn good(text: String) -> Self {
        Self {
            text,
            is_note: false,
            hint: None,
        }
    }

    fn note(text: String, hint: Option<&'static str>) -> Self {
        Self {
            text,
            is_note: true,
            hint,
        }
    }
}

/// The rows that wait, and who has the lanes, while the connector works.
pub(crate) fn remarks(figures: &RelayFigures, rows: Option<&RelayRows>) -> Vec<Remark> {
    let mut remarks = vec![waiting(rows)];
    let (own, all) = (load(&figures.own_lanes), load(&figures.lanes));
    if own == 0 && all > 0 {
        remarks.push(Remark::good(
            "Its last look got no lane, because other processes had all of them.".to_owned(),
        ));
    }
    remarks
}

fn waiting(rows: Option<&RelayRows>) -> Remark {
    let Some(rows) = rows else {
        return Remark::good("Rows that wait have not been counted yet.".to_owned());
    };
    let oldest = match rows.oldest_seconds {
        Some(seconds) => format!(", the first for {}", human::duration(seconds)),
        None => String::new(),
    };
    let is_old = rows.oldest_seconds.is_some_and(|seconds| seconds > OLD_SECONDS);
    match rows.waiting {
        None => {
            let why = rows.problem.as_deref().unwrap_or("the server gives no number");
            Remark::note(
                format!("Rows that wait could not be counted: {}", human::sentence(why)),
                Some("see what `walferry check` says of the table, its indexes and its privileges"),
            )
        }
        Some(0) => Remark::good("No row waits.".to_owned()),
        Some(RelayRows::MOST..) => Remark::note(
            format!("{} rows or more wait{oldest}.", human::count(RelayRows::MOST)),
            None,
        ),
        Some(count) => {
            let verb = if count == 1 { "row waits" } else { "rows wait" };
            let text = format!("{} {verb}{oldest}.", human::count(count));
            match is_old {
                true => Remark::note(text, None),
                false => Remark::good(text),
            }
        }
    }
}

/// Rows that have failed for good, whatever the connector does.
pub(crate) fn failed(rows: Option<&RelayRows>) -> Option<Remark> {
    let count = rows?.failed.filter(|failed| *failed > 0)?;
    let more = if count >= RelayRows::MOST { " or more" } else { "" };
    let verb = if count == 1 { "row has" } else { "rows have" };
    Some(Remark::note(
        format!("{}{more} {verb} failed for good.", human::count(count)),
        Some(
            "the column for the last error says why; correct the cause, and put the rows back with `walferry outbox retry --config FILE`",
        ),
    ))
}

/// What the page shows.
#[derive(Debug, Serialize)]
pub(crate) struct RelayView {
    #[serde(flatten)]
    rows: RelayRows,
    /// When rows were counted. `None` before.
    counted: Option<String>,
    /// How many rows are counted at most.
    most: u64,
    lanes: u64,
    own_lanes: u64,
    /// Other processes that had lanes during the last look with rows.
    owners: Vec<LaneOwner>,
    looks: u64,
    empty_looks: u64,
    statements: u64,
    sent_rows: u64,
    failed_attempts: u64,
    late_rows: u64,
    transaction_p50_ms: Option<f64>,
    transaction_p99_ms: Option<f64>,
    size: Option<OutboxFigures>,
}

impl RelayView {
    pub(crate) fn of(observed: &Observation<'_>) -> Option<Self> {
        let figures = observed.status.relay.as_ref()?;
        let rows = observed.relay_rows.clone();
        let (transactions, _) = figures.transactions.snapshot();
        let ms = |q| quantile_us(&transactions, q).map(|us| (us / 10.0).round() / 100.0);
        Some(Self {
            counted: rows.as_ref().and_then(|rows| human::instant(rows.at_us)),
            rows: rows.unwrap_or_default(),
            most: RelayRows::MOST,
            lanes: load(&figures.lanes),
            own_lanes: load(&figures.own_lanes),
            owners: figures.owners(),
            looks: load(&figures.looks),
            empty_looks: load(&figures.empty_looks),
            statements: load(&figures.statements),
            sent_rows: load(&figures.sent_rows),
            failed_attempts: load(&figures.failed_attempts),
            late_rows: load(&figures.late_rows),
            transaction_p50_ms: ms(0.5),
            transaction_p99_ms: ms(0.99),
            size: observed.outboxes.first().cloned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_wait_are_told_as_they_were_counted() {
        let rows = |waiting, oldest_seconds, problem: Option<&str>| RelayRows {
            waiting,
            oldest_seconds,
            problem: problem.map(str::to_owned),
            ..RelayRows::default()
        };
        let cases = [
            (rows(Some(0), Some(0.0), None), "No row waits.", false),
            (rows(Some(1), Some(3.0), None), "1 row waits, the first for 3 s.", false),
            (rows(Some(1200), None, None), "1,200 rows wait.", false),
            (
                rows(Some(1200), Some(300.0), None),
                "1,200 rows wait, the first for 5 min.",
                true,
            ),
            (
                rows(Some(RelayRows::MOST), None, None),
                "10,000 rows or more wait.",
                true,
            ),
            (
                rows(None, None, Some("canceling statement due to statement timeout")),
                "Rows that wait could not be counted: Canceling statement due to statement timeout.",
                true,
            ),
        ];
        for (rows, text, is_note) in cases {
            let remark = waiting(Some(&rows));
            assert_eq!((remark.text.as_str(), remark.is_note), (text, is_note));
        }
        assert_eq!(waiting(None).text, "Rows that wait have not been counted yet.");
    }

    #[test]
    fn failed_rows_are_told_if_the_table_tells_them() {
        let sentence = |failed| {
            let rows = RelayRows {
                failed,
                ..RelayRows::default()
            };
            super::failed(Some(&rows)).map(|remark| remark.text)
        };
        assert_eq!([sentence(None), sentence(Some(0))], [None, None]);
        assert_eq!(sentence(Some(1)).as_deref(), Some("1 row has failed for good."));
        assert_eq!(sentence(Some(2)).as_deref(), Some("2 rows have failed for good."));
        assert_eq!(
            sentence(Some(10_000)).as_deref(),
            Some("10,000 or more rows have failed for good.")
        );
    }
}
