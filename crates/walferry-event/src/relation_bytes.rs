//! The inputs of a plan as bytes. A table whose plan is not in use needs little memory until its next row arrives.

use walferry_pgoutput::{self as pgoutput, Message, Oid, Relation};

use crate::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};

/// Writes a relation and its facts from the catalog. `None` for a relation that no server can have sent.
pub fn write(relation: Relation, catalog: Option<&Catalog>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put_catalog(&mut out, catalog);
    pgoutput::encode(&Message::Relation(relation), &mut out).ok()?;
    Some(out)
}

/// Reads what [`write`] has written. `None` for any other input.
pub fn read(bytes: &[u8]) -> Option<(Relation, Option<Catalog>)> {
    let mut input = StoredRow(bytes);
    let catalog = catalog(&mut input)?;
    match pgoutput::decode(input.0).ok()? {
        Message::Relation(relation) => Some((relation, catalog)),
        _ => None,
    }
}

fn put_catalog(out: &mut Vec<u8>, catalog: Option<&Catalog>) {
    option(out, catalog, |out, catalog| {
        option(out, catalog.table.as_ref(), put_table);
        list(out, &catalog.types, put_type);
    });
}

fn put_table(out: &mut Vec<u8>, table: &TableFacts) {
    number(out, table.oid.0);
    text(out, &table.schema);
    text(out, &table.name);
    list(out, &table.columns, put_column);
    list(out, &table.primary_key, |out, name| text(out, name));
    list(out, &table.unique_indexes, |out, index| {
        list(out, index, |out, name| text(out, name));
    });
    option(out, table.comment.as_ref(), |out, comment| text(out, comment));
    out.push(u8::from(table.partition));
}

fn put_column(out: &mut Vec<u8>, column: &ColumnFacts) {
    text(out, &column.name);
    number(out, u32::from(column.number.cast_unsigned()));
    number(out, column.type_oid.0);
    number(out, column.type_modifier.cast_unsigned());
    out.push(u8::from(column.not_null) | u8::from(column.generated) << 1 | u8::from(column.identity) << 2);
    option(out, column.default.as_ref(), |out, default| text(out, default));
    option(out, column.comment.as_ref(), |out, comment| text(out, comment));
}

fn put_type(out: &mut Vec<u8>, facts: &TypeFacts) {
    number(out, facts.oid.0);
    text(out, &facts.schema);
    text(out, &facts.name);
    out.push(u8::from(facts.on_path));
    match &facts.kind {
        TypeKind::Base => out.push(0),
        TypeKind::Array { element, delimiter } => {
            out.push(1);
            number(out, element.0);
            number(out, u32::from(*delimiter));
        }
        TypeKind::Domain {
            base,
            modifier,
            not_null,
        } => {
            out.push(2);
            number(out, base.0);
            number(out, modifier.cast_unsigned());
            out.push(u8::from(*not_null));
        }
        TypeKind::Enum { labels } => {
            out.push(3);
            list(out, labels, |out, label| text(out, label));
        }
        TypeKind::Composite => out.push(4),
        TypeKind::Range { subtype } => {
            out.push(5);
            number(out, subtype.0);
        }
        TypeKind::Multirange => out.push(6),
        TypeKind::Pseudo => out.push(7),
        TypeKind::Money { fraction_digits } => {
            out.push(8);
            number(out, u32::from(*fraction_digits));
        }
    }
}

fn number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(
        out,
        u32::try_from(text.len()).expect("texts of a catalog are shorter than 1 GiB"),
    );
    out.extend_from_slice(text.as_bytes());
}

fn list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    number(out, u32::try_from(items.len()).expect("lists of a catalog are short"));
    items.iter().for_each(|item| put(out, item));
}

fn option<T>(out: &mut Vec<u8>, item: Option<&T>, put: impl Fn(&mut Vec<u8>, &T)) {
    out.push(u8::from(item.is_some()));
    if let Some(item) = item {
        put(out, item);
    }
}

struct StoredRow<'a>(&'a [u8]);

impl<'a> StoredRow<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, tail) = self.0.split_first()?;
        self.0 = tail;
        Some(byte)
    }

    fn number(&mut self) -> Option<u32> {
        let (bytes, tail) = self.0.split_first_chunk::<4>()?;
        self.0 = tail;
        Some(u32::from_be_bytes(*bytes))
    }

    fn oid(&mut self) -> Option<Oid> {
        self.number().map(Oid)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn option<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            _ => item(self).map(Some),
        }
    }
}

fn catalog(input: &mut StoredRow<'_>) -> Option<Option<Catalog>> {
    input.option(|input| {
        Some(Catalog {
            table: input.option(table)?,
            types: input.list(type_facts)?,
        })
    })
}

fn table(input: &mut StoredRow<'_>) -> Option<TableFacts> {
    Some(TableFacts {
        oid: input.oid()?,
        schema: input.text()?,
        name: input.text()?,
        columns: input.list(column)?,
        primary_key: input.list(StoredRow::text)?,
        unique_indexes: input.list(|input| input.list(StoredRow::text))?,
        comment: input.option(StoredRow::text)?,
        partition: input.byte()? != 0,
    })
}

fn column(input: &mut StoredRow<'_>) -> Option<ColumnFacts> {
    let name = input.text()?;
    let number = u16::try_from(input.number()?).ok()?.cast_signed();
    let (type_oid, type_modifier) = (input.oid()?, input.number()?.cast_signed());
    let flags = input.byte()?;
    Some(ColumnFacts {
        name,
        number,
        type_oid,
        type_modifier,
        not_null: flags & 1 != 0,
        generated: flags & 2 != 0,
        identity: flags & 4 != 0,
        default: input.option(StoredRow::text)?,
        comment: input.option(StoredRow::text)?,
    })
}

fn type_facts(input: &mut StoredRow<'_>) -> Option<TypeFacts> {
    Some(TypeFacts {
        oid: input.oid()?,
        schema: input.text()?,
        name: input.text()?,
        on_path: input.byte()? != 0,
        kind: match input.byte()? {
            0 => TypeKind::Base,
            1 => TypeKind::Array {
                element: input.oid()?,
                delimiter: char::from_u32(input.number()?)?,
            },
            2 => TypeKind::Domain {
                base: input.oid()?,
                modifier: input.number()?.cast_signed(),
                not_null: input.byte()? != 0,
            },
            3 => TypeKind::Enum {
                labels: input.list(StoredRow::text)?,
            },
            4 => TypeKind::Composite,
            5 => TypeKind::Range { subtype: input.oid()? },
            6 => TypeKind::Multirange,
            7 => TypeKind::Pseudo,
            8 => TypeKind::Money {
                fraction_digits: u16::try_from(input.number()?).ok()?,
            },
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use walferry_pgoutput::{RelationColumn, ReplicaIdentity};

    use super::*;

    fn relation() -> Relation {
        let column = |name: &str, part_of_key| RelationColumn {
            name: name.into(),
            part_of_key,
            type_oid: Oid(1700),
            type_modifier: -1,
        };
        Relation {
            oid: Oid(4_000_000_000),
            namespace: "schéma".into(),
            name: "table".into(),
            replica_identity: ReplicaIdentity::Index,
            columns: vec![column("id", true), column("", false)],
        }
    }

    fn everything() -> Catalog {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let column = |number, flag| ColumnFacts {
            name: "id".into(),
            number,
            type_oid: Oid(20_000),
            type_modifier: -1,
            not_null: flag == 0,
            default: (flag == 1).then(|| "nextval('x'::regclass)".to_owned()),
            generated: flag == 2,
            identity: flag == 3,
            comment: (flag == 4).then(|| "why".to_owned()),
        };
        let kinds = [
            TypeKind::Base,
            TypeKind::Money { fraction_digits: 3 },
            TypeKind::Array {
                element: Oid(1),
                delimiter: ';',
            },
            TypeKind::Domain {
                base: Oid(2),
                modifier: -5,
                not_null: true,
            },
            TypeKind::Enum {
                labels: names(&["a", ""]),
            },
            TypeKind::Composite,
            TypeKind::Range { subtype: Oid(3) },
            TypeKind::Multirange,
            TypeKind::Pseudo,
        ];
        let facts = |(place, kind)| TypeFacts {
            oid: Oid(place),
            schema: "s".into(),
            name: "t".into(),
            on_path: place % 2 == 0,
            kind,
        };
        Catalog {
            table: Some(TableFacts {
                oid: Oid(7),
                schema: "s".into(),
                name: "t".into(),
                columns: (0..5).map(|flag| column(flag - 1, flag)).collect(),
                primary_key: names(&["id"]),
                unique_indexes: vec![names(&["a", "b"]), Vec::new()],
                comment: Some(String::new()),
                partition: true,
            }),
            types: (0..).zip(kinds).map(facts).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let gone = Catalog::default();
        for catalog in [None, Some(&gone), Some(&everything())] {
            let bytes = write(relation(), catalog).unwrap();
            assert_eq!(read(&bytes), Some((relation(), catalog.cloned())));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), None, "cut off after {end} bytes");
            }
        }
    }
}
