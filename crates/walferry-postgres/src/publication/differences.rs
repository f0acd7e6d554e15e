//! Which differences between two looks at the publication prove that changes of captured tables were not published, which cannot be
//! decided, and which are harmless. `docs/how-to/publication-gaps.md` has the same as a table.
//!
//! A row of the catalog says which transaction wrote it (`xmin`), and which command of that transaction (`cmin`). Each command that writes
//! to the catalog raises the number for the next one. So a row with the number 0 was written by a transaction that had removed nothing before: if a
//! membership has another oid and this number, the one before was removed by an earlier transaction, and the table was not published in between.
//! `ALTER PUBLICATION … SET TABLE` removes the old membership before it adds the new one, so its rows have higher numbers. So have those
//! of `BEGIN; … DROP TABLE t; … ADD TABLE t; COMMIT`, of which nobody can tell whether rows were written in between.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use walferry_engine::published::Published;
use walferry_engine::source::TableFilter;

use super::inspect::Found;

/// What has changed between two looks. Differences that are harmless are in neither list.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Changes of captured tables may be missing.
    pub(super) gaps: Vec<String>,
    /// Nobody can tell whether they are.
    pub(super) doubts: Vec<String>,
}

/// A table whose membership has changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Suspect {
    oid: u32,
    schema: String,
    name: String,
    /// The table and its partitions, whose rows are sent under their own names.
    #[serde(default)]
    parts: Vec<(String, String)>,
    /// Memberships through which its rows are sent now: its own, its schema's, and those of tables that it is a
    /// partition of.
    #[serde(default)]
    memberships: Vec<Membership>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Membership {
    oid: u32,
    /// The command that wrote it.
    command: u32,
}

/// The keys that `now` lacks, or has with another membership.
pub(super) fn lost(before: &BTreeMap<u32, u32>, now: &BTreeMap<u32, u32>) -> Vec<u32> {
    let is_lost = |of: &u32, membership: &u32| now.get(of) != Some(membership);
    before
        .iter()
        .filter(|(of, membership)| is_lost(of, membership))
        .map(|(of, _)| *of)
        .collect()
}

/// What has changed such that captured rows may be missing. Additions cannot cause that, nor can dropped tables, nor
/// tables that other memberships have covered all the time.
pub(super) fn differences(
    publication: &str,
    known: &Published,
    now: &Found,
    suspects: &[Suspect],
    wanted: &TableFilter,
) -> Differences {
    let look = TwoLooks {
        publication,
        known,
        now,
    };
    let mut differences = Differences::default();
    if known.oid != now.published.oid {
        look.made_again(&mut differences);
        return differences;
    }
    look.memberships(suspects, wanted, &mut differences);
    look.options(&mut differences);
    look.places(&mut differences);
    look.storage(&mut differences);
    differences
}

/// The last look, and this one.
struct TwoLooks<'a> {
    publication: &'a str,
    known: &'a Published,
    now: &'a Found,
}

impl TwoLooks<'_> {
    /// Whether something was removed before by the transaction that wrote a row. On a standby nobody can tell.
    const fn may_be_one_transaction(&self, command: u32) -> bool {
        self.now.standby || command > 0
    }

    fn made_again(&self, differences: &mut Differences) {
        let (publication, known, now) = (self.publication, self.known, &self.now.published);
        let what = format!(
            "publication {publication:?} was dropped and created again (oid {}, before {})",
            now.oid, known.oid
        );
        // Whatever it includes must be as old as itself. Else it may have been empty for a while.
        let is_as_it_was_made = self.now.writers.iter().all(|&xmin| xmin == now.xmin);
        let has = |now: &BTreeMap<u32, u32>, before: &BTreeMap<u32, u32>| before.keys().all(|of| now.contains_key(of));
        let covers = now.all_tables
            || (!known.all_tables && has(&now.tables, &known.tables) && has(&now.schemas, &known.schemas));
        if self.may_be_one_transaction(self.now.command) && is_as_it_was_made && covers && self.unpublished().is_empty()
        {
            let (before, after) = self.definitions();
            differences.doubts.push(format!(
                "{what}, perhaps in one transaction: {before} before, {after} now"
            ));
        } else {
            differences.gaps.push(what);
        }
    }

    fn memberships(&self, suspects: &[Suspect], wanted: &TableFilter, differences: &mut Differences) {
        let (publication, known) = (self.publication, self.known);
        let all_the_time: BTreeSet<u32> = known.tables.values().chain(known.schemas.values()).copied().collect();
        let is_captured = |suspect: &Suspect| {
            let parts = suspect.parts.iter().map(|(schema, name)| (schema, name));
            let mut names = parts.chain([(&suspect.schema, &suspect.name)]);
            names.any(|(schema, name)| wanted(schema, name))
        };
        let left = suspects.iter().filter(|suspect| {
            let mut memberships = suspect.memberships.iter();
            is_captured(suspect) && !memberships.any(|membership| all_the_time.contains(&membership.oid))
        });
        let (back, away): (Vec<&Suspect>, Vec<&Suspect>) = left.partition(|suspect| !suspect.memberships.is_empty());
        let is_replaced = |suspect: &&Suspect| {
            let mut memberships = suspect.memberships.iter();
            memberships.any(|membership| self.may_be_one_transaction(membership.command))
        };
        let (replaced, back): (Vec<&Suspect>, Vec<&Suspect>) = back.into_iter().partition(is_replaced);
        if !away.is_empty() {
            let tables = listed(away.iter().map(|table| table.dotted()));
            differences
                .gaps
                .push(format!("{tables} left publication {publication:?}"));
        }
        if !back.is_empty() {
            let tables = listed(back.iter().map(|table| table.dotted()));
            differences.gaps.push(format!(
                "{tables} left publication {publication:?} and was added again, perhaps with another row filter or column list"
            ));
        }
        if !replaced.is_empty() {
            let tables = listed(replaced.iter().map(|table| {
                let definition = |look: &Published| {
                    let definition = look.definitions.get(&table.oid);
                    definition.map_or_else(|| "all of it".to_owned(), |text| clipped(text))
                };
                let (before, after) = (definition(known), definition(&self.now.published));
                format!("{} ({before} before, {after} now)", table.dotted())
            }));
            differences.doubts.push(format!(
                "publication {publication:?} was set to include {tables} in another way"
            ));
        }
    }

    /// Captured operations that it no longer publishes.
    fn unpublished(&self) -> Vec<&'static str> {
        let lost = |letter: &char| !self.now.published.operations.contains(*letter);
        let letters = self.known.operations.chars().filter(lost);
        letters
            .map(|letter| match letter {
                'i' => "inserts",
                'u' => "updates",
                'd' => "deletes",
                _ => "truncates",
            })
            .collect()
    }

    /// The publication's own row in the catalog.
    fn options(&self, differences: &mut Differences) {
        let (publication, known, now) = (self.publication, self.known, &self.now.published);
        let lost = self.unpublished();
        if !lost.is_empty() {
            differences.gaps.push(format!(
                "publication {publication:?} no longer publishes {}",
                lost.join(", ")
            ));
        }
        if known.all_tables && !now.all_tables {
            differences
                .gaps
                .push(format!("publication {publication:?} is no longer for all tables"));
        }
        if known.xmin == 0 || known.xmin == now.xmin || !lost.is_empty() {
            return;
        }
        let is_explained = (&known.options, &known.owner) != (&now.options, &now.owner);
        if is_explained {
            let (before, after) = self.definitions();
            differences.doubts.push(format!(
                "publication {publication:?} was altered: {before} before, {after} now"
            ));
        } else if known.name == now.name {
            // Under another name, the stream itself shows whether a change was left out.
            differences.gaps.push(format!(
                "publication {publication:?} was altered, and is now as it was before: {}. In between it may have published fewer operations",
                self.definitions().1
            ));
        }
    }

    /// Where tables are that it includes because of their place: partitions, and tables of schemas.
    fn places(&self, differences: &mut Differences) {
        let (known, now) = (self.known, &self.now.published);
        let kinds = [
            (
                &known.partitions,
                &now.partitions,
                &self.now.attached,
                "was detached and attached again as a partition",
            ),
            (
                &known.homes,
                &now.homes,
                &self.now.moved,
                "was moved to another schema and back",
            ),
        ];
        for (before, after, commands, what) in kinds {
            let is_other = |oid: &&u32| after.get(oid).is_some_and(|xmin| *xmin != before[oid]);
            let moved = before.keys().filter(is_other);
            let command = |oid: &&u32| self.may_be_one_transaction(commands.get(oid).copied().unwrap_or_default());
            let (doubts, gaps): (Vec<&u32>, Vec<&u32>) = moved.partition(command);
            for (oids, list) in [(doubts, &mut differences.doubts), (gaps, &mut differences.gaps)] {
                if !oids.is_empty() {
                    let tables = listed(oids.into_iter().map(|oid| self.name(*oid)));
                    list.push(format!(
                        "{tables} {what}: what was written to it meanwhile is not published"
                    ));
                }
            }
        }
    }

    /// Tables that may have been unlogged. Nothing that is written to them then is in the WAL.
    fn storage(&self, differences: &mut Differences) {
        let (known, now) = (self.known, &self.now.published);
        let unlogged = known.storage.keys().filter(|oid| self.now.unlogged.contains(oid));
        let unlogged: Vec<String> = unlogged.map(|oid| self.name(*oid)).collect();
        if !unlogged.is_empty() {
            differences.gaps.push(format!(
                "{} became UNLOGGED, so Postgres does not publish what is written to it",
                listed(unlogged.into_iter())
            ));
        }
        let is_other = |(oid, before): &(&u32, &u32)| {
            let after = now.storage.get(oid);
            // A table that gets its first TOAST table keeps its file.
            after.is_some_and(|after| after != *before) && self.now.files.get(oid) != Some(before)
        };
        let rewritten = known.storage.iter().filter(is_other);
        let rewritten: Vec<String> = rewritten.map(|(oid, _)| self.name(*oid)).collect();
        if !rewritten.is_empty() {
            differences.doubts.push(format!(
                "{} was rewritten, as by ALTER TABLE: what was written to it while it was UNLOGGED, if it was, is not published",
                listed(rewritten.into_iter())
            ));
        }
    }

    fn name(&self, oid: u32) -> String {
        self.now
            .names
            .get(&oid)
            .cloned()
            .unwrap_or_else(|| format!("with oid {oid}"))
    }

    /// How it was defined at the last look, and how it is now.
    fn definitions(&self) -> (String, String) {
        let define = |look: &Published| format!("owner {:?}, {}", look.owner, look.options);
        (define(self.known), define(&self.now.published))
    }
}

impl Suspect {
    fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// At most `MOST` tables.
fn listed(tables: impl Iterator<Item = String>) -> String {
    const MOST: usize = 10;
    let mut tables: Vec<String> = tables.collect();
    let word = if tables.len() == 1 { "table" } else { "tables" };
    if tables.len() > MOST {
        let more = tables.len() - MOST;
        tables.truncate(MOST);
        tables.push(format!("{more} more"));
    }
    format!("{word} {}", tables.join(", "))
}

/// A row filter may be long.
fn clipped(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn known() -> Published {
        Published {
            oid: 1,
            operations: "iud".into(),
            tables: BTreeMap::from([(10, 100), (11, 101)]),
            schemas: BTreeMap::from([(20, 200)]),
            xmin: 7,
            name: "p".into(),
            owner: "me".into(),
            options: "publish = 'insert'".into(),
            definitions: BTreeMap::from([(10, "(id, v)".into())]),
            partitions: BTreeMap::from([(30, 5)]),
            storage: BTreeMap::from([(10, 6)]),
            ..Published::default()
        }
    }

    fn suspect(name: &str, memberships: &[u32]) -> Suspect {
        let membership = |oid: &u32| Membership { oid: *oid, command: 0 };
        Suspect {
            oid: 10,
            schema: "public".into(),
            name: name.into(),
            parts: Vec::new(),
            memberships: memberships.iter().map(membership).collect(),
        }
    }

    /// The same, whose memberships were not written by the first command of their transaction.
    fn replaced(name: &str, memberships: &[u32]) -> Suspect {
        let mut suspect = suspect(name, memberships);
        suspect
            .memberships
            .iter_mut()
            .for_each(|membership| membership.command = 1);
        suspect
    }

    /// The differences after `change` to what was found, and these tables. The tables `a` to `z` are captured.
    fn found(change: impl FnOnce(&mut Found), suspects: &[Suspect]) -> Differences {
        let mut now = Found {
            published: known(),
            names: [(10, "public.a".to_owned()), (30, "public.p".to_owned())].into(),
            ..Found::default()
        };
        change(&mut now);
        let wanted: TableFilter = Arc::new(|_, name| name.len() == 1);
        differences("p", &known(), &now, suspects, &wanted)
    }

    /// The gap after `change` to the publication and these tables.
    fn difference(change: impl FnOnce(&mut Published), suspects: &[Suspect]) -> Option<String> {
        let differences = found(|found| change(&mut found.published), suspects);
        assert_eq!(differences.doubts, Vec::<String>::new());
        (!differences.gaps.is_empty()).then(|| differences.gaps.join("; "))
    }

    #[test]
    fn what_cannot_be_decided_is_told_with_both_definitions() {
        let set_table = |found: &mut Found| {
            found.published.tables.insert(10, 102);
            found.published.definitions.insert(10, "(id, v, w)".into());
        };
        let cases = [
            (
                found(set_table, &[replaced("a", &[102])]),
                "public.a ((id, v) before, (id, v, w) now)",
            ),
            (
                found(
                    |found| (found.published.xmin, found.published.owner) = (8, "other".into()),
                    &[],
                ),
                "owner \"me\", publish = 'insert' before, owner \"other\", publish = 'insert' now",
            ),
            (
                found(
                    |found| {
                        (found.published.oid, found.published.xmin, found.command, found.writers) =
                            (2, 9, 3, [9].into())
                    },
                    &[],
                ),
                "dropped and created again (oid 2, before 1), perhaps in one transaction",
            ),
            (
                found(
                    |found| {
                        let _ = (found.published.partitions.insert(30, 9), found.attached.insert(30, 3));
                    },
                    &[],
                ),
                "public.p was detached and attached again",
            ),
            (
                found(
                    |found| {
                        let _ = found.published.storage.insert(10, 9);
                    },
                    &[],
                ),
                "public.a was rewritten",
            ),
            // Nobody can tell on a standby.
            (
                found(
                    |found| {
                        found.published.tables.insert(10, 102);
                        found.standby = true;
                    },
                    &[suspect("a", &[102])],
                ),
                "was set to include table public.a",
            ),
        ];
        for (Differences { gaps, doubts }, expected) in cases {
            assert_eq!(gaps, Vec::<String>::new(), "{expected}");
            assert!(doubts.join("; ").contains(expected), "{expected}: {doubts:?}");
        }
    }

    #[test]
    fn a_gap_is_certain_if_nothing_else_explains_what_the_catalog_shows() {
        let cases = [
            (found(|found| found.published.xmin = 8, &[]), "is now as it was before"),
            // It may have been empty for a while.
            (
                found(
                    |found| {
                        (found.published.oid, found.published.xmin, found.command, found.writers) =
                            (2, 9, 3, [9, 10].into())
                    },
                    &[],
                ),
                "was dropped and created again",
            ),
            (
                found(
                    |found| {
                        let _ = (found.published.partitions.insert(30, 9), found.attached.insert(30, 0));
                    },
                    &[],
                ),
                "public.p was detached and attached again",
            ),
            (
                found(
                    |found| {
                        let _ = (found.published.storage.remove(&10), found.unlogged.insert(10));
                    },
                    &[],
                ),
                "public.a became UNLOGGED",
            ),
        ];
        for (Differences { gaps, doubts }, expected) in cases {
            assert_eq!(doubts, Vec::<String>::new(), "{expected}");
            assert!(gaps.join("; ").contains(expected), "{expected}: {gaps:?}");
        }
    }

    #[test]
    fn what_may_have_left_rows_out_is_told() {
        let partition = Suspect {
            parts: vec![("public".into(), "a".into())],
            ..suspect("parted", &[])
        };
        let cases = [
            (
                difference(|now| now.oid = 2, &[]),
                "dropped and created again (oid 2, before 1)",
            ),
            (
                difference(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[])],
                ),
                "table public.a left",
            ),
            (
                difference(
                    |now| {
                        now.tables.insert(10, 102);
                    },
                    &[suspect("a", &[102])],
                ),
                "table public.a left publication \"p\" and was added again",
            ),
            // A new membership says nothing about the time before it.
            (
                difference(
                    |now| {
                        now.schemas.insert(21, 201);
                    },
                    &[suspect("a", &[201])],
                ),
                "was added again",
            ),
            (
                difference(
                    |now| {
                        now.schemas.clear();
                    },
                    &[suspect("a", &[]), suspect("b", &[])],
                ),
                "tables public.a, public.b left",
            ),
            (difference(|_| {}, &[partition]), "table public.parted left"),
            (
                difference(|now| now.operations = "iu".into(), &[]),
                "no longer publishes deletes",
            ),
            (
                difference(|now| now.operations = String::new(), &[]),
                "no longer publishes inserts, updates, deletes",
            ),
        ];
        for (difference, expected) in cases {
            assert!(
                difference
                    .as_deref()
                    .is_some_and(|difference| difference.contains(expected)),
                "{expected}: {difference:?}"
            );
        }
    }

    #[test]
    fn ordinary_changes_are_no_gap() {
        let cases = [
            ("nothing", difference(|_| {}, &[])),
            (
                "a table is added",
                difference(
                    |now| {
                        now.tables.insert(12, 102);
                    },
                    &[],
                ),
            ),
            (
                "a schema is added",
                difference(
                    |now| {
                        now.schemas.insert(21, 201);
                    },
                    &[],
                ),
            ),
            (
                "it is known by another name now",
                difference(|now| (now.xmin, now.name) = (8, "q".into()), &[]),
            ),
            (
                "a partition is attached, and one is detached",
                difference(|now| now.partitions = BTreeMap::from([(31, 9)]), &[]),
            ),
            ("a table gets its first TOAST table", {
                let found = found(
                    |found| {
                        let _ = (found.published.storage.insert(10, 9), found.files.insert(10, 6));
                    },
                    &[],
                );
                found.gaps.into_iter().chain(found.doubts).next()
            }),
            (
                "an operation is added",
                difference(|now| now.operations = "iudt".into(), &[]),
            ),
            // The table is not in the catalog, so it is not a suspect.
            (
                "a table is dropped",
                difference(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[],
                ),
            ),
            (
                "a table leaves that is not captured",
                difference(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("other", &[])],
                ),
            ),
            (
                "a table leaves whose schema stays",
                difference(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[200])],
                ),
            ),
            (
                "a partition leaves whose parent stays",
                difference(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[101])],
                ),
            ),
        ];
        for (name, difference) in cases {
            assert_eq!(difference, None, "{name}");
        }
    }

    #[test]
    fn memberships_that_are_other_ones_are_looked_at() {
        let before = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        let now = BTreeMap::from([(1, 10), (2, 21), (4, 40)]);
        assert_eq!(lost(&before, &now), [2, 3]);
    }
}
