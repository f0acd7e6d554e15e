//! The only crate that opens Postgres: stream, slot, publication, catalog, COPY.
