//! Frames recorded from a real server (`testdata/README.md`) and what they say.

use std::collections::HashMap;
use std::fmt::Write as _;

use walferry_pgoutput::{
    Begin, Change, Column, DecodeError, Lsn, Message, Oid, OldTuple, Operation, Relation, Tuple, Xid, decode, encode,
};

/// Name of the recording, its frames, and what they say.
const RECORDINGS: [(&str, &str, &str); 9] = [
    (
        "rows",
        include_str!("../testdata/rows.frames"),
        "begin
         relation public.orders Default: id* 23 -1, note 25 -1, total 1700 655366
         insert orders: 1|first|12.50
         insert orders: 2|NULL|NULL
         insert orders: 3||0.00
         commit
         begin
         update orders: 1|größer|12.50
         commit
         begin
         update orders: key 2|NULL|NULL to 20|NULL|NULL
         commit
         begin
         delete orders: key 3|NULL|NULL
         commit
         begin
         insert orders: 4|before the savepoint|4.00
         insert orders: 6|after the savepoint|6.00
         commit
         begin
         relation public.nothing Default:
         insert nothing:
         commit",
    ),
    (
        "identities",
        include_str!("../testdata/identities.frames"),
        "begin
         relation public.full_row Full: id* 23 -1, a* 25 -1, b* 25 -1
         insert full_row: 1|a|NULL
         commit
         begin
         update full_row: full 1|a|NULL to 1|b|NULL
         commit
         begin
         delete full_row: full 1|b|NULL
         commit
         begin
         relation public.by_index Index: id 23 -1, code* 25 -1, a 25 -1
         insert by_index: 1|x|a
         commit
         begin
         update by_index: 1|x|b
         commit
         begin
         update by_index: key NULL|x|NULL to 1|y|b
         commit
         begin
         delete by_index: key NULL|y|NULL
         commit
         begin
         relation public.no_identity Nothing: id 23 -1, a 25 -1
         insert no_identity: 1|a
         commit
         begin
         relation public.keyless Default: a 25 -1
         insert keyless: a
         commit",
    ),
    (
        "toast",
        include_str!("../testdata/toast.frames"),
        "begin
         relation public.documents Default: id* 23 -1, title 25 -1, body 25 -1
         insert documents: 1|one|xxx… (2100)
         insert documents: 2|two|NULL
         commit
         begin
         update documents: 1|ONE|UNCHANGED
         commit
         begin
         update documents: 2|TWO|NULL
         commit
         begin
         update documents: key 1|NULL|NULL to 10|ONE|UNCHANGED
         commit
         begin
         relation public.documents Full: id* 23 -1, title* 25 -1, body* 25 -1
         update documents: full 10|ONE|xxx… (2100) to 10|one|UNCHANGED
         commit",
    ),
    (
        "types",
        include_str!("../testdata/types.frames"),
        "begin
         type Lager.Größe of column Größe
         type pg_catalog.text of column contact
         type Lager.Größe of column nested
         type public._email of column tags
         type public.point3 of column p
         relation Lager.Artikel \"A\" Default: id* 20 -1, Größe own -1, contact own -1, nested own -1, tags own -1, \
         p own -1, name 1043 24, price 1700 655366, at 1184 3, on_day 1082 -1, raw 17 -1, doc 3802 -1, ok 16 -1
         insert Artikel \"A\": 1|groß|a@b|klein|{c@d,NULL}|(1,2.5,-3)|n|12.50|2024-07-22 21:46:40.123+00|2024-02-29|\
         \\xdeadbeef|{\"k\": [1, null]}|t
         commit",
    ),
    (
        "truncates",
        include_str!("../testdata/truncates.frames"),
        "begin
         relation public.others Default: id* 23 -1
         truncate others
         commit
         begin
         relation public.parents Default: id* 23 -1
         relation public.children Default: id* 23 -1, parent 23 -1
         truncate parents, children cascade
         commit
         begin
         relation public.others Default: id* 23 -1
         relation public.parents Default: id* 23 -1
         relation public.children Default: id* 23 -1, parent 23 -1
         truncate others, parents, children restart identity
         commit
         begin
         relation public.parents Default: id* 23 -1
         relation public.children Default: id* 23 -1, parent 23 -1
         truncate parents, children cascade restart identity
         commit",
    ),
    (
        "messages",
        include_str!("../testdata/messages.frames"),
        r#"begin
         message "outbox" "transactional" transactional
         commit
         message "outbox" "immediate"
         message "p" "stays"
         message "" "\x00\xff"
         begin
         relation public.t Default: id* 23 -1
         insert t: 1
         message "größer" "" transactional
         commit"#,
    ),
    (
        "origins",
        include_str!("../testdata/origins.frames"),
        "begin
         origin walferry_upstream 16/B374D848
         relation public.t Default: id* 23 -1
         insert t: 1
         commit
         begin
         insert t: 2
         commit
         begin
         origin walferry_upstream 16/B374D900
         insert t: 3
         commit",
    ),
    (
        "changing_tables",
        include_str!("../testdata/changing_tables.frames"),
        "begin
         relation public.t Default: id* 23 -1, a 25 -1
         insert t: 1|a
         commit
         begin
         relation public.t Default: id* 23 -1, a 25 -1, b 23 -1
         insert t: 2|b|8
         commit
         begin
         relation public.t Default: id* 23 -1, b 23 -1
         insert t: 3|9
         commit
         begin
         relation public.t Default: id* 23 -1, c 23 -1
         insert t: 4|10
         relation public.t Default: id* 23 -1, c 25 -1
         insert t: 5|eleven
         commit",
    ),
    (
        "binary",
        include_str!("../testdata/binary.frames"),
        r#"begin
         relation public.t Default: id* 23 -1, a 25 -1, n 1700 -1
         insert t: b"\x00\x00\x01\x02"|b"text"|b"\x00\x02\x00\x00\x00\x00\x00\x01\x00\x01\x13\x88"
         insert t: b"\xff\xff\xff\xff"|NULL|NULL
         commit"#,
    ),
];

#[test]
fn recorded_frames_say_what_was_done() {
    for (name, recording, expected) in RECORDINGS {
        let mut transcript = Transcript::default();
        for frame in frames(recording) {
            transcript.add(&frame);
        }
        let expected: Vec<_> = expected.lines().map(str::trim).collect();
        assert_eq!(transcript.lines, expected, "{name}");
    }
}

#[test]
fn encoding_gives_the_servers_bytes_back() {
    for (name, recording, _) in RECORDINGS {
        for frame in frames(recording) {
            let mut encoded = Vec::new();
            encode(&decode(&frame.bytes).unwrap(), &mut encoded).unwrap();
            assert_eq!(encoded, frame.bytes, "{name} at {}", frame.lsn);
        }
    }
}

#[test]
fn recorded_frames_are_neither_shorter_nor_longer() {
    for (name, recording, _) in RECORDINGS {
        for Frame { lsn, mut bytes, .. } in frames(recording) {
            for end in 0..bytes.len() {
                let error = decode(&bytes[..end]).err();
                assert!(
                    matches!(
                        error,
                        Some(DecodeError::Empty | DecodeError::Truncated { .. } | DecodeError::UnterminatedName { .. })
                    ),
                    "{name} at {lsn}, first {end} bytes: {error:?}"
                );
            }
            let end = bytes.len();
            bytes.push(0);
            let error = decode(&bytes).err();
            assert!(
                matches!(error, Some(DecodeError::TrailingBytes { end: e, have, .. }) if e == end && have == end + 1),
                "{name} at {lsn}, one byte more: {error:?}"
            );
        }
    }
}

/// A line of a recording.
struct Frame {
    lsn: Lsn,
    xid: Xid,
    bytes: Vec<u8>,
}

fn frames(recording: &str) -> impl Iterator<Item = Frame> {
    recording.lines().map(|line| {
        let [lsn, xid, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        Frame {
            lsn: lsn.parse().unwrap(),
            xid: Xid(xid.parse().unwrap()),
            bytes: hex.as_bytes().chunks_exact(2).map(byte).collect(),
        }
    })
}

/// What the frames say, in words; checks on the way what has no place in words.
#[derive(Default)]
struct Transcript {
    lines: Vec<String>,
    begun: Option<Begin>,
    types: Vec<(Oid, String)>,
    relations: HashMap<Oid, Relation>,
}

impl Transcript {
    fn add(&mut self, frame: &Frame) {
        match decode(&frame.bytes).unwrap() {
            Message::Begin(begin) => {
                assert_eq!(begin.xid, frame.xid);
                assert_eq!(self.begun.replace(begin), None);
                self.lines.push("begin".to_owned());
            }
            Message::Commit(commit) => {
                let begin = self.begun.take().unwrap();
                assert_eq!(commit.commit_lsn, begin.final_lsn);
                assert_eq!(commit.commit_time, begin.commit_time);
                assert_eq!(commit.end_lsn, frame.lsn);
                self.lines.push("commit".to_owned());
            }
            Message::Origin(origin) => self.lines.push(format!("origin {} {}", origin.name, origin.commit_lsn)),
            Message::Type(named) => self
                .types
                .push((named.oid, format!("type {}.{}", named.namespace, named.name))),
            Message::Relation(relation) => self.add_relation(relation),
            Message::Change(change) => self.lines.push(self.change(change)),
            Message::Truncate(truncate) => {
                let names: Vec<_> = truncate
                    .relations
                    .iter()
                    .map(|oid| &*self.relations[oid].name)
                    .collect();
                let cascade = if truncate.cascade { " cascade" } else { "" };
                let restart = if truncate.restart_identity {
                    " restart identity"
                } else {
                    ""
                };
                self.lines
                    .push(format!("truncate {}{cascade}{restart}", names.join(", ")));
            }
            Message::Logical(message) => {
                let transactional = if message.transactional { " transactional" } else { "" };
                let content = message.content.escape_ascii();
                self.lines
                    .push(format!("message {:?} \"{content}\"{transactional}", message.prefix));
            }
        }
    }

    fn add_relation(&mut self, relation: Relation) {
        for (oid, named) in self.types.drain(..) {
            let column = relation.columns.iter().find(|column| column.type_oid == oid).unwrap();
            self.lines.push(format!("{named} of column {}", column.name));
        }
        let columns = relation.columns.iter().map(|column| {
            let key = if column.part_of_key { "*" } else { "" };
            // The ids of types that the recording made itself differ from one recording to the next.
            let type_oid = if column.type_oid < Oid(16384) {
                column.type_oid.to_string()
            } else {
                "own".to_owned()
            };
            format!("{}{key} {type_oid} {}", column.name, column.type_modifier)
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let line = format!(
            "relation {}.{} {:?}: {columns}",
            relation.namespace, relation.name, relation.replica_identity
        );
        self.lines.push(line.trim_end().to_owned());
        self.relations.insert(relation.oid, relation);
    }

    fn change(&self, change: Change<'_>) -> String {
        let relation = &self.relations[&change.relation];
        let row = |tuple: Tuple<'_>| {
            assert_eq!(tuple.column_count(), relation.columns.len());
            row(tuple)
        };
        let old = |old: OldTuple<'_>| match old {
            OldTuple::Key(tuple) => format!("key {}", row(tuple)),
            OldTuple::Full(tuple) => format!("full {}", row(tuple)),
        };
        let name = &relation.name;
        let line = match change.operation {
            Operation::Insert { new } => format!("insert {name}: {}", row(new)),
            Operation::Update { old: None, new } => format!("update {name}: {}", row(new)),
            Operation::Update { old: Some(tuple), new } => format!("update {name}: {} to {}", old(tuple), row(new)),
            Operation::Delete { old: tuple } => format!("delete {name}: {}", old(tuple)),
        };
        line.trim_end().to_owned()
    }
}

fn row(tuple: Tuple<'_>) -> String {
    let mut line = String::new();
    for (index, column) in tuple.columns().enumerate() {
        if index > 0 {
            line.push('|');
        }
        match column {
            Column::Null => line.push_str("NULL"),
            Column::Unchanged => line.push_str("UNCHANGED"),
            Column::Text([b'x', b'x', b'x', tail @ ..]) if tail.iter().all(|&byte| byte == b'x') => {
                write!(line, "xxx… ({})", tail.len() + 3).unwrap();
            }
            Column::Text(text) => line.push_str(std::str::from_utf8(text).unwrap()),
            Column::Binary(bytes) => write!(line, "b\"{}\"", bytes.escape_ascii()).unwrap(),
        }
    }
    line
}
