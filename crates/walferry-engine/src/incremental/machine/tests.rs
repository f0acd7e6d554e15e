use walferry_pgoutput::Oid;

use super::*;

/// A snapshot, with its requests and notifications.
struct Driven {
    snapshot: Incremental,
    chunks: u32,
    asked: VecDeque<Ask>,
    messages: Vec<String>,
    /// How often a window was sent, and how often it was dropped.
    sent: u32,
    cleared: u32,
    /// How often a chunk was asked to give way to a signal.
    gives_way: u32,
    /// Tables that are to be read as a whole.
    whole: Vec<String>,
    /// Whether tables are read by their column `id`. Otherwise the test answers.
    finds_keys: bool,
    /// Whether the log says that the snapshot is complete.
    was_complete: bool,
}

impl Driven {
    fn new() -> Self {
        Self {
            snapshot: Incremental::default(),
            chunks: 0,
            asked: VecDeque::new(),
            messages: Vec::new(),
            sent: 0,
            cleared: 0,
            gives_way: 0,
            whole: Vec::new(),
            finds_keys: true,
            was_complete: false,
        }
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask(Ask::GiveWay) => self.gives_way += 1,
                Effect::Ask(Ask::Key(ask)) if self.finds_keys => {
                    let id = columns("id", "bigint", 20);
                    assert_eq!(ask.key, None);
                    let answer = ChunkAnswer::Key(Some(id));
                    let effects = self.snapshot.answer(answer, &mut next_id(&mut self.chunks));
                    self.take(effects);
                }
                Effect::Ask(ask) => self.asked.push_back(ask),
                Effect::Notify(notice) => self.messages.push(
                    [notice.kind]
                        .into_iter()
                        .chain(notice.data.iter().map(|(_, value)| value.as_str()))
                        .collect::<Vec<_>>()
                        .join(" "),
                ),
                Effect::SendWindow => self.sent += 1,
                Effect::ClearWindow => self.cleared += 1,
                Effect::ReadWhole(table) => self.whole.push(table.id),
                Effect::Warn(text) => self.messages.push(format!("! {text}")),
                Effect::Info(text) => self.was_complete |= text == "the incremental snapshot is complete",
                Effect::Block(_)
                | Effect::TableEnded(..)
                | Effect::Requested { .. }
                | Effect::BlockingRequested { .. }
                | Effect::Log(_)
                | Effect::SchemaChanges(..) => {}
            }
        }
    }

    fn signal(&mut self, kind: &str, data: &str) {
        let signal = Signal {
            id: "s".into(),
            kind: kind.into(),
            data: data.into(),
        };
        let effects = self.snapshot.signal(signal, &mut next_id(&mut self.chunks));
        self.take(effects);
    }

    /// The stream sends a window row of the last requested chunk.
    fn window(&mut self, kind: &str) {
        let id = format!("chunk{}-{kind}", self.chunks);
        let signal = Signal {
            id,
            kind: format!("snapshot-window-{kind}"),
            data: String::new(),
        };
        let effects = self.snapshot.signal(signal, &mut next_id(&mut self.chunks));
        self.take(effects);
    }

    fn answer(&mut self, answer: ChunkAnswer) {
        self.asked.pop_front();
        let effects = self.snapshot.answer(answer, &mut next_id(&mut self.chunks));
        self.take(effects);
    }

    fn rows(&mut self, rows: u64, last: i64) {
        self.answer(ChunkAnswer::Rows {
            rows,
            last: Some(key(last)),
            maximum: key(25),
            stale: false,
        });
    }

    /// The process is killed and started again with the offset.
    fn restart(&mut self) -> Self {
        let (snapshot, problem) = Incremental::from_offset(&self.snapshot.offset_members());
        assert_eq!(problem, None);
        let mut resumed = Self {
            snapshot,
            chunks: self.chunks + 100,
            ..Self::new()
        };
        let effects = resumed.snapshot.begin(true, &mut next_id(&mut resumed.chunks));
        resumed.take(effects);
        resumed
    }

    /// Starts with these tables.
    fn execute(&mut self, tables: &[&str]) {
        let list = serde_json::to_string(tables).unwrap();
        self.signal("execute-snapshot", &format!("{{\"data-collections\": {list}}}"));
        self.answer(ChunkAnswer::Tables(vec![Vec::new(); tables.len()]));
    }

    /// Closes the present chunk's window. The next chunk is requested.
    fn close(&mut self) {
        assert!(
            matches!(self.asked.pop_front(), Some(Ask::Close { .. })),
            "it is to be closed"
        );
        self.window("open");
        self.window("close");
    }

    fn whole_read(&mut self, rows: u64, failed: Option<&str>) {
        let failed = failed.map(|why| why.to_owned().into());
        let effects = self.snapshot.whole_read(rows, failed, &mut next_id(&mut self.chunks));
        self.take(effects);
    }

    fn chunk(&self) -> &ChunkAsk {
        match self.asked.front() {
            Some(Ask::Chunk(ask)) => ask,
            other => panic!("no chunk is asked for, but {other:?}"),
        }
    }
}

fn next_id(count: &mut u32) -> impl FnMut() -> String {
    move || {
        *count += 1;
        format!("chunk{count}")
    }
}

/// One column by which a table is read.
fn columns(name: &str, type_name: &str, type_oid: u32) -> KeyColumns {
    let column = KeyColumn {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        type_oid,
        version: "1".to_owned(),
    };
    KeyColumns {
        order: vec![column],
        identity: vec![name.to_owned()],
        is_unique: true,
    }
}

fn key(id: i64) -> Key {
    Key::new([(Some(id.to_string()), Oid(20))])
}

#[test]
fn chunks_follow_each_other_up_to_the_end_of_the_last_table() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b"]);
    assert!(driven.chunk().opens && driven.chunk().after.is_none() && driven.chunk().maximum.is_none());
    driven.rows(10, 10);
    driven.close();
    assert_eq!(
        (driven.chunk().after.clone(), driven.chunk().maximum.clone()),
        (Some(key(10)), Some(key(25)))
    );
    driven.rows(0, 0);
    // The next table is read within the same window.
    assert!(!driven.chunk().opens && driven.chunk().after.is_none());
    assert_eq!(driven.chunk().table.id, "public.b");
    driven.answer(ChunkAnswer::Empty);
    driven.close();
    assert!(driven.asked.is_empty() && !driven.snapshot.is_running());
    assert_eq!(driven.sent, 2);
    assert_eq!(
        driven.messages,
        [
            "STARTED public.a,public.b",
            "IN_PROGRESS public.a,public.b public.a 25 10",
            "TABLE_SCAN_COMPLETED public.a,public.b public.a 10 SUCCEEDED",
            "TABLE_SCAN_COMPLETED public.b public.b 0 EMPTY",
            "COMPLETED",
        ]
    );
}

#[test]
fn a_table_without_a_key_is_read_as_a_whole_before_the_next_one() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b", "public.c"]);
    driven.answer(ChunkAnswer::NoKey);
    assert_eq!(driven.whole, ["public.a"]);
    // The stream ends meanwhile and comes back, and the window's rows come when they like.
    driven.close();
    let effects = driven.snapshot.read_again(&mut next_id(&mut driven.chunks));
    driven.take(effects);
    // A pause counts for what comes behind it.
    driven.signal("pause-snapshot", "");
    driven.signal("resume-snapshot", "");
    driven.signal("pause-snapshot", "");
    assert!(driven.asked.is_empty(), "nothing else is read: {:?}", driven.asked);
    driven.whole_read(40, None);
    assert!(driven.asked.is_empty() && driven.snapshot.is_running());
    driven.signal("resume-snapshot", "");
    assert_eq!(driven.chunk().table.id, "public.b");
    driven.answer(ChunkAnswer::NoKey);
    let effects = driven.snapshot.read_again(&mut next_id(&mut driven.chunks));
    driven.take(effects);
    driven.asked.clear();
    // After a crash, it is read from its beginning.
    driven = driven.restart();
    assert_eq!(driven.chunk().table.id, "public.b");
    driven.answer(ChunkAnswer::NoKey);
    driven.asked.clear();
    driven.whole_read(7, Some("it is gone"));
    assert_eq!(driven.chunk().table.id, "public.c");
    driven.answer(ChunkAnswer::NoKey);
    driven.asked.clear();
    driven.whole_read(0, None);
    assert!(!driven.snapshot.is_running() && driven.asked.is_empty());
    assert!(!driven.was_complete, "a table was not read");
    assert_eq!(
        driven.messages,
        [
            "TABLE_SCAN_COMPLETED public.b,public.c public.b 7 SQL_EXCEPTION",
            "TABLE_SCAN_COMPLETED public.c public.c 0 EMPTY",
            "COMPLETED",
            "! the incremental snapshot has ended without public.b, which could not be read",
        ]
    );
}

#[test]
fn what_was_read_before_a_pause_or_a_stop_is_still_sent() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b"]);
    // Both come while the chunk is being read.
    driven.signal("pause-snapshot", "");
    driven.rows(10, 10);
    driven.close();
    assert_eq!((driven.sent, driven.asked.len()), (1, 0), "it pauses");
    driven.signal("stop-snapshot", "");
    assert!(driven.snapshot.is_running(), "it is stopped when it would go on");
    driven.signal("resume-snapshot", "");
    assert!(driven.asked.is_empty() && !driven.snapshot.is_running());
    assert_eq!(
        driven.messages[2..],
        [
            "PAUSED public.a,public.b",
            "RESUMED public.a,public.b",
            "COMPLETED",
            "ABORTED public.b,public.a"
        ]
    );
}

#[test]
fn rows_and_tables_that_were_read_before_a_restart_count_for_people_only() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b", "public.c"]);
    driven.rows(10, 10);
    driven.close();
    // The table ends, and the next one begins in the same window.
    driven.rows(0, 0);
    driven.rows(10, 10);
    driven.close();
    // These are not sent yet, so they are read again.
    driven.rows(5, 15);
    assert_eq!((driven.snapshot.rows(), driven.snapshot.tables_done()), (15, 1));
    let members = driven.snapshot.offset_members();

    let mut driven = Driven::new();
    (driven.snapshot, _) = Incremental::from_offset(&members);
    assert_eq!((driven.snapshot.rows(), driven.snapshot.tables_done()), (10, 1));
    let effects = driven.snapshot.begin(true, &mut next_id(&mut driven.chunks));
    driven.take(effects);
    driven.rows(15, 25);
    driven.close();
    assert_eq!((driven.snapshot.rows(), driven.snapshot.rows_of_process()), (25, 15));
    driven.rows(0, 0);
    assert_eq!((driven.snapshot.rows(), driven.snapshot.tables_done()), (0, 2));
    assert!(
        driven
            .messages
            .contains(&"TABLE_SCAN_COMPLETED public.b,public.c public.b 15 SUCCEEDED".to_owned()),
        "as Debezium counts them: {:?}",
        driven.messages
    );
    // With the last table, the count ends, too.
    driven.rows(1, 1);
    driven.close();
    driven.rows(0, 0);
    assert_eq!(
        (driven.snapshot.tables_done(), driven.snapshot.offset_members().len()),
        (0, 0)
    );

    // What somebody else has written is no number.
    let mut members = members;
    members.insert(TALLY.into(), r#"{"tables":"many","rows":-1}"#.into());
    let (snapshot, problem) = Incremental::from_offset(&members);
    assert_eq!((snapshot.rows(), snapshot.tables_done(), problem), (0, 0, None));
}

#[test]
fn one_table_is_stopped_and_the_others_go_on() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b", "public.c"]);
    driven.rows(10, 10);
    driven.signal(
        "stop-snapshot",
        r#"{"data-collections": ["public\\.[ab]", "public.x"]}"#,
    );
    driven.close();
    assert_eq!(driven.chunk().table.id, "public.c");
    assert!(
        driven.messages[2].starts_with("! public.x cannot be stopped"),
        "{:?}",
        driven.messages
    );
    assert_eq!(driven.messages[3..], ["ABORTED public.b,public.a"]);
}

#[test]
fn rows_that_may_be_older_than_the_stream_are_read_again() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.close();
    driven.rows(10, 20);
    driven.snapshot.spoil().expect("there is a chunk");
    driven.close();
    assert_eq!((driven.sent, driven.cleared), (1, 1));
    assert_eq!(driven.chunk().after, Some(key(10)));
    driven.answer(ChunkAnswer::Rows {
        rows: 10,
        last: Some(key(20)),
        maximum: key(25),
        stale: true,
    });
    driven.close();
    assert_eq!((driven.sent, driven.cleared), (1, 2));
    assert_eq!(driven.chunk().after, Some(key(10)));
    driven.rows(10, 20);
    driven.close();
    driven.rows(0, 0);
    assert_eq!(
        driven.messages,
        [
            "STARTED public.a",
            "IN_PROGRESS public.a public.a 25 10",
            "IN_PROGRESS public.a public.a 25 20",
            "TABLE_SCAN_COMPLETED public.a public.a 20 SUCCEEDED",
            "COMPLETED",
        ],
        "rows are counted and told once, however often they are read"
    );
}

#[test]
fn a_window_of_another_chunk_is_passed_over() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.signal("snapshot-window-open", "");
    driven.signal("snapshot-window-close", "");
    assert!(!driven.snapshot.is_open() && driven.sent == 0);
    driven.close();
    assert_eq!(driven.sent, 1);
}

#[test]
fn what_an_offset_keeps_goes_on_where_it_was() {
    let mut driven = Driven::new();
    driven.signal(
        "execute-snapshot",
        r#"{"data-collections": ["public.a", "b"], "additional-conditions": [{"data-collection": "public.a", "filter": "v > 0"}]}"#,
    );
    driven.answer(ChunkAnswer::Tables(vec![
        Vec::new(),
        vec!["public.b".to_owned(), "public.a".to_owned()],
    ]));
    driven.rows(10, 10);
    let members = driven.snapshot.offset_members();
    assert_eq!(
        members[COLLECTIONS].as_str().unwrap(),
        r#"[{"incremental_snapshot_collections_id":"public.a","incremental_snapshot_collections_additional_condition":"(v > 0)","incremental_snapshot_collections_surrogate_key":null},{"incremental_snapshot_collections_id":"public.b","incremental_snapshot_collections_additional_condition":null,"incremental_snapshot_collections_surrogate_key":null}]"#
    );
    assert_eq!(members[PRIMARY_KEY], "aced000570", "none of it was sent");
    assert_eq!(members[CORRELATION_ID], "s");
    driven.close();
    assert!(driven.snapshot.has_changed());
    let members = driven.snapshot.offset_members();

    let (snapshot, problem) = Incremental::from_offset(&members);
    assert_eq!(problem, None);
    let mut resumed = Driven {
        snapshot,
        ..Driven::new()
    };
    let effects = resumed.snapshot.begin(true, &mut || "again".to_owned());
    resumed.take(effects);
    assert_eq!(
        (resumed.chunk().after.clone(), resumed.chunk().maximum.clone()),
        (Some(key(10)), Some(key(25)))
    );
    assert_eq!(resumed.snapshot.offset_members(), members);
}

/// The offset behind a signal is stored as soon as the signal was read.
#[test]
fn a_crash_forgets_no_signal_that_is_not_carried_out_yet() {
    let mut driven = Driven::new();
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.a"]}"#);
    driven.signal("stop-snapshot", r#"{"data-collections": ["public.b"]}"#);
    let mut resumed = driven.restart();
    assert_eq!(resumed.asked, [Ask::Tables(vec!["public.a".to_owned()])]);
    resumed.answer(ChunkAnswer::Tables(vec![vec![
        "public.a".to_owned(),
        "public.b".to_owned(),
    ]]));
    resumed.signal("execute-snapshot", r#"{"data-collections": ["public.c"]}"#);
    let mut resumed = resumed.restart();
    resumed.rows(10, 10);
    resumed.answer(ChunkAnswer::Tables(vec![vec!["public.c".to_owned()]]));
    assert_eq!(
        resumed.snapshot.tables().collect::<Vec<_>>(),
        ["public.a", "public.b", "public.c"]
    );
    // It was told to stop, and would have done so at the end of the chunk.
    let mut resumed = resumed.restart();
    assert_eq!(resumed.snapshot.tables().collect::<Vec<_>>(), ["public.a", "public.c"]);
    resumed.rows(10, 10);
    resumed.close();
    assert_eq!(resumed.sent, 1);
}

/// A signal's tables are looked up while a chunk is read and sent, and the next one is requested.
#[test]
fn a_signal_for_more_tables_does_not_disturb_the_chunk_that_is_read() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.b"]}"#);
    driven.rows(10, 10);
    // The window closes, and the next chunk is requested, before the tables are known.
    let tables = driven.asked.pop_back();
    assert_eq!(tables, Some(Ask::Tables(vec!["public.b".to_owned()])));
    driven.close();
    let chunk = driven.asked.pop_front();
    driven.asked.extend(tables);
    driven.answer(ChunkAnswer::Tables(vec![Vec::new()]));
    assert_eq!(driven.snapshot.tables().collect::<Vec<_>>(), ["public.a", "public.b"]);
    driven.asked.extend(chunk);
    driven.rows(5, 15);
    driven.close();
    assert_eq!((driven.sent, driven.chunk().table.id.as_str()), (2, "public.a"));
}

/// Debezium adds the tables of all these signals before it reads the next chunk.
#[test]
fn signals_that_have_waited_are_looked_up_together() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.b"]}"#);
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.c"]}"#);
    driven.signal("pause-snapshot", "");
    driven.rows(10, 10);
    let tables = |name: &str| Ask::Tables(vec![name.to_owned()]);
    assert_eq!(driven.asked.split_off(1), [tables("public.b"), tables("public.c")]);
    for _ in 0..2 {
        let effects = driven
            .snapshot
            .answer(ChunkAnswer::Tables(vec![Vec::new()]), &mut next_id(&mut 0));
        driven.take(effects);
    }
    assert_eq!(
        driven.snapshot.tables().collect::<Vec<_>>(),
        ["public.a", "public.b", "public.c"]
    );
    assert!(driven.snapshot.is_paused(), "what came after them waits for them");
}

/// Connect regards an offset as damaged if it has anything but texts, numbers and booleans.
#[test]
fn members_of_an_offset_are_plain_values() {
    let mut driven = Driven::new();
    driven.signal(
        "execute-snapshot",
        r#"{"data-collections": ["public.a"], "type": "blocking"}"#,
    );
    driven.execute(&["public.a"]);
    driven.answer(ChunkAnswer::Rows {
        rows: 1,
        last: Some(Key::new([(Some("10.0.0.1".to_owned()), Oid(869))])),
        maximum: Key::new([(Some("10.0.0.9".to_owned()), Oid(869))]),
        stale: false,
    });
    driven.signal("stop-snapshot", "");
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.b"]}"#);
    driven.snapshot.tally.tables = 1;
    let members = driven.snapshot.offset_members();
    assert_eq!(members.len(), MEMBERS.len(), "{members:?}");
    assert!(members.values().all(Json::is_string), "{members:?}");
}

#[test]
fn a_new_connection_begins_the_chunk_again_and_passes_over_rows_of_the_old_one() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.close();
    driven.rows(10, 20);
    let old = driven.snapshot.chunk().unwrap().to_owned();
    driven.asked.clear();
    let effects = driven.snapshot.read_again(&mut next_id(&mut driven.chunks));
    driven.take(effects);
    assert_eq!(driven.cleared, 1);
    assert!(driven.chunk().opens && driven.chunk().after == Some(key(10)) && driven.chunk().chunk != old);
    driven.rows(10, 20);
    driven.close();
    driven.rows(0, 0);
    assert_eq!(
        driven.messages[1..],
        [
            "IN_PROGRESS public.a public.a 25 10",
            "IN_PROGRESS public.a public.a 25 20",
            "TABLE_SCAN_COMPLETED public.a public.a 20 SUCCEEDED",
            "COMPLETED",
        ]
    );
}

#[test]
fn a_chunk_that_cannot_be_read_makes_way_for_a_signal_that_stops_it() {
    let mut driven = Driven::new();
    driven.execute(&["public.a", "public.b"]);
    driven.signal("stop-snapshot", r#"{"data-collections": ["public.a"]}"#);
    assert_eq!(driven.gives_way, 1);
    driven.answer(ChunkAnswer::Waits);
    assert_eq!(driven.chunk().table.id, "public.b");
    driven.signal("pause-snapshot", "");
    driven.answer(ChunkAnswer::Waits);
    assert!(driven.asked.is_empty() && driven.snapshot.is_paused());
    driven.signal("resume-snapshot", "");
    driven.signal("stop-snapshot", "");
    driven.answer(ChunkAnswer::Waits);
    assert!(driven.asked.is_empty() && !driven.snapshot.is_running());
}

/// Somebody has deleted the row that opened the window. With `insert_delete`, that closes the window.
#[test]
fn a_window_that_closes_before_its_rows_are_here_is_opened_again() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.window("open");
    driven.window("close");
    assert_eq!(
        (driven.sent, driven.asked.len()),
        (0, 2),
        "the chunk is asked for again"
    );
    driven.asked.pop_front();
    driven.rows(10, 10);
    driven.close();
    assert_eq!(driven.sent, 1);
}

/// If a snapshot is paused and resumed within a window, the window's rows are sent with those of the next chunk.
#[test]
fn a_table_is_done_with_only_when_its_last_rows_have_been_sent() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(25, 25);
    driven.asked.clear();
    driven.window("open");
    driven.signal("pause-snapshot", "");
    driven.signal("resume-snapshot", "");
    driven.rows(0, 0);
    assert!(
        driven.snapshot.is_running(),
        "a crash must not forget the rows in the window"
    );
    driven.close();
    assert_eq!(driven.sent, 1);
    driven.rows(0, 0);
    assert!(!driven.snapshot.is_running());
}

#[test]
fn keys_of_other_types_go_on_here_and_begin_again_in_debezium() {
    let inet = |text: &str| Key::new([(Some(text.to_owned()), Oid(869))]);
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.answer(ChunkAnswer::Rows {
        rows: 1,
        last: Some(inet("10.0.0.1")),
        maximum: inet("10.0.0.9"),
        stale: false,
    });
    driven.close();
    let members = driven.snapshot.offset_members();
    assert_eq!(members[PRIMARY_KEY], "aced000570");
    let (snapshot, _) = Incremental::from_offset(&members);
    assert_eq!(snapshot.sent.unwrap().texts().collect::<Vec<_>>(), [Some("10.0.0.1")]);
}

#[test]
fn an_offset_that_cannot_be_read_says_what_becomes_of_the_snapshot() {
    let members = |key: &str| {
        let collections = r#"[{"incremental_snapshot_collections_id":"public.a"}]"#;
        let json = serde_json::json!({COLLECTIONS: collections, PRIMARY_KEY: key});
        json.as_object().cloned().unwrap()
    };
    let (snapshot, problem) = Incremental::from_offset(&members("zz"));
    assert!(snapshot.is_running() && problem.unwrap().contains("not hexadecimal text"));
    let (_, problem) = Incremental::from_offset(&members("aced0005"));
    assert!(problem.unwrap().contains("the table is read from the beginning"));
    assert!(!Incremental::from_offset(&Map::new()).0.is_running());
}

#[test]
fn names_lose_their_quotes() {
    for (name, expected) in [("a.b", "a.b"), ("\"A\".\"b.c\"", "A.b.c"), ("\"a\"\"b\"", "a\"b")] {
        assert_eq!(unquoted(name), expected);
    }
}

#[test]
fn a_signal_that_came_before_the_chunk_was_asked_for_does_not_wait_for_it() {
    let mut driven = Driven::new();
    driven.signal("execute-snapshot", r#"{"data-collections": ["public.a"]}"#);
    // While its tables are looked up.
    driven.signal("stop-snapshot", "");
    assert_eq!(driven.gives_way, 0);
    driven.answer(ChunkAnswer::Tables(vec![Vec::new()]));
    assert_eq!(driven.gives_way, 2, "also while its key is looked up");
    let effects = driven.snapshot.read_again(&mut next_id(&mut driven.chunks));
    driven.take(effects);
    assert_eq!(driven.gives_way, 3);
    let mut driven = driven.restart();
    assert_eq!(driven.gives_way, 1);
    driven.answer(ChunkAnswer::Waits);
    assert!(!driven.snapshot.is_running());
}

/// A window whose closing row has come may stay open while its rows leave. Signals that come meanwhile count as in any open window.
#[test]
fn a_window_that_is_closed_later_is_open_until_then() {
    let closing = |driven: &Driven| WindowEnd::Close.signal(&format!("chunk{}", driven.chunks));
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    assert!(!driven.snapshot.closes(&closing(&driven)), "its rows have not come");
    driven.rows(10, 10);
    assert!(!driven.snapshot.closes(&closing(&driven)), "it is not open");
    driven.window("open");
    let close = closing(&driven);
    assert!(driven.snapshot.closes(&close));
    assert!(!driven.snapshot.closes(&WindowEnd::Open.signal("chunk1")));
    assert!(!driven.snapshot.closes(&WindowEnd::Close.signal("chunk0")));

    driven.signal("stop-snapshot", "");
    assert!(driven.snapshot.closes(&close) && driven.snapshot.is_open());
    driven.window("close");
    assert_eq!(driven.sent, 1, "what was read before the stop is sent");
    assert!(!driven.snapshot.is_running());

    driven.asked.clear();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.window("open");
    let close = closing(&driven);
    driven.snapshot.spoil().expect("there is a chunk");
    assert!(!driven.snapshot.closes(&close), "the rows are useless");
    driven.window("close");
    assert_eq!((driven.sent, driven.cleared), (1, 1));
}

#[test]
fn no_other_chunk_takes_the_place_of_one_whose_window_closes() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.window("open");
    driven.snapshot.begin_closing().expect("its rows are here");
    driven.asked.clear();
    driven.signal("pause-snapshot", "");
    driven.signal("resume-snapshot", "");
    assert!(
        driven.asked.is_empty(),
        "rows of the window are left: {:?}",
        driven.asked
    );
    driven.window("close");
    assert_eq!((driven.sent, driven.chunk().after.clone()), (1, Some(key(10))));

    // A chunk that is given up does not close any more.
    driven.rows(10, 20);
    driven.window("open");
    driven.snapshot.begin_closing().expect("its rows are here");
    driven.signal("pause-snapshot", "");
    let effects = driven.snapshot.read_again(&mut next_id(&mut driven.chunks));
    driven.take(effects);
    driven.asked.clear();
    driven.signal("resume-snapshot", "");
    assert_eq!(driven.chunk().after, Some(key(10)));
}

/// The key is replaced while the table is read. Its old values say nothing of what is left.
#[test]
fn a_table_that_is_read_by_other_columns_begins_again() {
    for other in [columns("code", "bigint", 20), columns("id", "text", 25)] {
        let mut driven = Driven::new();
        driven.execute(&["public.a"]);
        driven.rows(10, 10);
        driven.close();
        driven.answer(ChunkAnswer::OtherKey(other.clone()));
        let chunk = driven.chunk();
        assert_eq!(
            (&chunk.after, &chunk.maximum, chunk.key.as_ref()),
            (&None, &None, Some(&other))
        );
        assert!(!chunk.opens, "its window is open");
        driven.rows(20, 20);
        driven.close();
        driven.rows(0, 0);
        assert_eq!(driven.messages.last().map(String::as_str), Some("COMPLETED"));
        let read = "TABLE_SCAN_COMPLETED public.a public.a 20 SUCCEEDED".to_owned();
        assert!(driven.messages.contains(&read), "{:?}", driven.messages);
    }
}

/// Only the columns that tell rows apart in the stream have changed.
#[test]
fn a_table_whose_rows_are_told_apart_by_other_columns_goes_on() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.close();
    let other = KeyColumns {
        identity: vec!["code".to_owned()],
        ..columns("id", "bigint", 20)
    };
    driven.answer(ChunkAnswer::OtherKey(other.clone()));
    let chunk = driven.chunk();
    assert_eq!((&chunk.after, chunk.key.as_ref()), (&Some(key(10)), Some(&other)));
}

/// Across a restart, the offset says by which columns the table was read. Debezium's does not, but its keys have classes.
#[test]
fn a_key_that_an_offset_has_is_used_for_its_own_columns_only() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.close();
    let members = driven.snapshot.offset_members();
    let (snapshot, _) = Incremental::from_offset(&members);
    assert_eq!(snapshot.key, Some(columns("id", "bigint", 20)));

    let mut of_debezium = members;
    of_debezium.remove(KEY_COLUMNS);
    let pair = KeyColumns {
        order: [columns("a", "bigint", 20).order, columns("b", "bigint", 20).order].concat(),
        ..columns("a", "bigint", 20)
    };
    let cases = [
        (columns("id", "bigint", 20), true),
        (columns("id", "text", 25), false),
        (columns("id", "integer", 23), false),
        (pair, false),
    ];
    for (found, goes_on) in cases {
        let (snapshot, problem) = Incremental::from_offset(&of_debezium);
        assert_eq!(problem, None);
        let mut resumed = Driven {
            snapshot,
            finds_keys: false,
            ..Driven::new()
        };
        let effects = resumed.snapshot.begin(true, &mut || "again".to_owned());
        resumed.take(effects);
        assert!(
            matches!(resumed.asked.front(), Some(Ask::Key(_))),
            "{:?}",
            resumed.asked
        );
        resumed.answer(ChunkAnswer::Key(Some(found)));
        assert!(resumed.chunk().opens);
        assert_eq!(resumed.chunk().after.is_some(), goes_on);
    }
}

/// The end of a chunk is read again if the stream has changed rows of it that cannot be told apart.
#[test]
fn the_end_of_a_chunk_that_is_cut_off_is_read_again_and_counted_once() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    driven.rows(10, 10);
    driven.snapshot.shorten(key(7), 3);
    driven.close();
    assert_eq!((driven.sent, driven.chunk().after.clone()), (1, Some(key(7))));
    driven.rows(18, 25);
    driven.close();
    driven.rows(0, 0);
    let read = "TABLE_SCAN_COMPLETED public.a public.a 25 SUCCEEDED".to_owned();
    assert!(driven.messages.contains(&read), "{:?}", driven.messages);
}

/// What is wrong with the old rows is wrong with what is sent together with them.
#[test]
fn a_pause_within_an_open_window_keeps_the_window_and_its_stale_rows() {
    for is_stale in [false, true] {
        let mut driven = Driven::new();
        driven.execute(&["public.a"]);
        driven.rows(10, 10);
        driven.window("open");
        if is_stale {
            driven.snapshot.spoil().expect("there is a chunk");
        }
        driven.asked.clear();
        driven.signal("pause-snapshot", "");
        driven.signal("resume-snapshot", "");
        assert!(driven.snapshot.is_open(), "it was open");
        assert!(driven.chunk().opens && driven.chunk().after == Some(key(10)));
        driven.rows(10, 20);
        driven.asked.clear();
        driven.window("close");
        let (sent, cleared, after) = if is_stale { (0, 1, None) } else { (1, 0, Some(key(20))) };
        assert_eq!((driven.sent, driven.cleared), (sent, cleared));
        assert_eq!(driven.chunk().after, after);
    }
}

/// A blocking snapshot begins while rows of a closed window are left.
#[test]
fn a_window_that_is_kept_open_closes_with_its_row_or_gives_way() {
    let mut driven = Driven::new();
    driven.execute(&["public.a"]);
    assert_eq!(driven.snapshot.keep_open(), Ok(()), "nothing closes");
    driven.rows(10, 10);
    driven.window("open");
    driven.snapshot.begin_closing().expect("its rows are here");
    driven.snapshot.begin_closing().expect("another slice has left");
    driven.snapshot.keep_open().expect("it closes");
    driven.asked.clear();
    driven.signal("pause-snapshot", "");
    driven.signal("resume-snapshot", "");
    assert_eq!(
        driven.chunk().after,
        Some(key(10)),
        "the next chunk is asked for at once"
    );
}

#[test]
fn what_does_not_fit_the_state_is_ignored_and_logged() {
    let answer = |driven: &mut Driven, answer: ChunkAnswer| {
        let effects = driven.snapshot.answer(answer, &mut next_id(&mut driven.chunks));
        assert!(
            matches!(&effects[..], [Effect::Warn(warning)] if warning.contains("please report it")),
            "{effects:?}"
        );
    };
    let mut driven = Driven::new();
    assert!(driven.snapshot.spoil().is_err() && driven.snapshot.begin_closing().is_err());
    answer(&mut driven, ChunkAnswer::Empty);
    driven.execute(&["public.a"]);
    assert!(driven.snapshot.begin_closing().is_err(), "its rows are not here");
    answer(&mut driven, ChunkAnswer::Key(None));
    driven.rows(10, 10);
    assert!(driven.snapshot.begin_closing().is_err(), "its window is not open");
    answer(&mut driven, ChunkAnswer::NoKey);
    driven.close();
    assert_eq!((driven.sent, driven.snapshot.rows()), (1, 10), "the snapshot goes on");
}
