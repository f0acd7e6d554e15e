//! What becomes of a change that no event can be made of, and of a start with too many tables.

use walferry_engine::{
    Disposition, Exit, Failure, Kind,
    batch::Batch,
    progress::Progress,
    sink::{Outgoing, Sink},
    source::Frame,
    store::StoredOffset,
};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;

use crate::{
    edges, fixture,
    script::{self, TABLE},
};

/// Topics of what was sent.
#[derive(Default)]
struct Topics(Vec<String>);

impl Sink for Topics {
    fn send(&mut self, record: &Outgoing<'_>, _: u64) -> Result<(), Failure> {
        self.0.push(record.topic.to_owned());
        Ok(())
    }
}

/// Three rows, of which the second holds a number that is none.
fn send(properties: &str) -> Result<(Vec<String>, u64), Failure> {
    let connector = fixture::connector(properties);
    let mut pipeline = fixture::pipeline_of(&connector, &StoredOffset::default());
    let (progress, mut sink, mut batch) = (
        Progress::new(StoredOffset::default(), usize::MAX),
        Topics::default(),
        Batch::default(),
    );
    let rows = [(100, "1"), (200, "not a number"), (300, "3")];
    let rows = rows.map(|(lsn, n)| script::insert_text(Lsn(lsn), TABLE, "1", n));
    pipeline.on_frame(
        Frame::Begin {
            from: Lsn(0),
            under_way: Vec::new(),
        },
        &[],
        0,
        &mut batch,
    )?;
    for sent in script::relations().iter().chain(&rows) {
        let payload = 0..sent.payload.len();
        pipeline.on_frame(Frame::Wal { lsn: sent.lsn, payload }, &sent.payload, 0, &mut batch)?;
        batch.deliver(&mut sink, &progress, &fixture::status())?;
    }
    let status = fixture::status();
    pipeline.report(&status);
    let set_aside = status.counters.set_aside.load(std::sync::atomic::Ordering::Relaxed);
    Ok((sink.0, set_aside))
}

#[test]
fn change_that_cannot_be_an_event_stops_or_is_set_aside() {
    let converting = r#""event.converting.failure.handling.mode": "fail""#;
    let stopped = send(converting).unwrap_err();
    assert_eq!(stopped.disposition, Disposition::Stop(Exit::Record));
    let cause = &stopped.causes[0];
    assert!(cause.place.contains("0/C8"), "{stopped}");
    // The hint is the one of the crate that knows what is wrong with the value.
    let hint = cause.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("`event.converting.failure.handling.mode=warn`"), "{hint}");
    assert_eq!((stopped.kind, stopped.code()), (Kind::RecordFailed, "WF0402"));

    let row = "sim.public.t";
    let cases: [(&str, &[&str]); 6] = [
        (r#""event.processing.failure.handling.mode": "warn""#, &[row, row]),
        (r#""event.processing.failure.handling.mode": "skip""#, &[row, row]),
        (r#""event.processing.failure.handling.mode": "ignore""#, &[row, row]),
        (r#""event.deserialization.failure.handling.mode": "warn""#, &[row, row]),
        (r#""errors.tolerance": "all""#, &[row, row]),
        (
            r#""event.processing.failure.handling.mode": "warn", "errors.deadletterqueue.topic.name": "letters""#,
            &[row, "letters", row],
        ),
    ];
    for (properties, topics) in cases {
        let (sent, set_aside) = send(&format!("{converting}, {properties}")).unwrap();
        assert_eq!(sent, topics, "{properties}");
        assert_eq!(set_aside, 1, "{properties}");
    }
}

#[test]
fn more_tables_than_the_guardrail_allows_are_a_warning_or_no_start() {
    let check = |properties: &str, tables: usize| {
        let connector = fixture::connector(properties);
        let pipeline = fixture::pipeline_of(&connector, &StoredOffset::default());
        let facts: Vec<TableFacts> = std::iter::repeat_with(edges::facts).take(tables).collect();
        pipeline.checks_tables().then(|| pipeline.check_tables(&facts))
    };
    let fail = r#""guardrail.collections.max": "2", "guardrail.collections.limit.action": "fail""#;
    assert_eq!(check(r#""guardrail.collections.limit.action": "fail""#, 9), None);
    assert_eq!(check(r#""guardrail.collections.max": "2""#, 3), Some(Ok(Vec::new())));
    assert_eq!(check(fail, 2), Some(Ok(Vec::new())));
    let refused = check(fail, 3).unwrap().unwrap_err();
    assert_eq!(refused.disposition, Disposition::Stop(Exit::Setup));
    assert_eq!(
        refused.causes[0].text,
        "3 tables are captured, but `guardrail.collections.max` is 2"
    );
}
