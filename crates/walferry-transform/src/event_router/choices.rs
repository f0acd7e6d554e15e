//! The values of options that are one of a few words.

use walferry_config::choices;

choices! {
    /// What happens when a row of the outbox table is updated.
    pub(crate) enum InvalidOperation {
        /// The update is dropped with a warning.
        #[default]
        Warn = "warn",
        /// The update is dropped with an error in the log.
        Error = "error",
        /// The connector stops.
        Fatal = "fatal",
    }
}

choices! {
    /// What happens when the outbox table lacks a column that is to be placed.
    pub(crate) enum MissingColumn {
        /// The connector does not start.
        #[default]
        Error = "error",
        /// The placement is left out.
        Ignore = "ignore",
    }
}

choices! {
    /// What becomes of a JSON null in an expanded payload.
    pub(crate) enum NullMember {
        /// The member is left out.
        #[default]
        Ignore = "ignore",
        /// The member is a null of type bytes.
        OptionalBytes = "optional_bytes",
    }
}

choices! {
    /// What becomes of an empty JSON array in an expanded payload.
    pub(crate) enum EmptyArray {
        /// The member is left out.
        #[default]
        Ignore = "ignore",
        /// The member is an empty array of strings.
        OptionalString = "optional_string",
    }
}

choices! {
    /// How the names of expanded fields are made fit for Avro.
    pub(crate) enum NameAdjustment {
        /// They are left as they are.
        #[default]
        None = "none",
        /// Characters that Avro does not take become underscores.
        Avro = "avro",
        /// Characters that Avro does not take become `_uXXXX`; underscores, too.
        AvroUnicode = "avro_unicode",
    }
}

choices! {
    /// What happens to an event whose type is not in `walferry.topics`.
    pub(crate) enum UnknownType {
        /// The connector stops.
        #[default]
        Fail = "fail",
        /// The event goes to the dead-letter topic.
        DeadLetter = "dead-letter",
        /// The event goes to the topic in `walferry.topics.default`.
        Default = "default",
        /// The event is routed by `route.by.field`, as Debezium routes it.
        Route = "route",
    }
}

choices! {
    /// What happens to an event that does not match its schema.
    pub(crate) enum Mismatch {
        /// The connector stops.
        #[default]
        Fail = "fail",
        /// The event goes to the dead-letter topic.
        DeadLetter = "dead-letter",
        /// The event is sent, with a warning.
        Warn = "warn",
    }
}

choices! {
    /// What happens to an event whose type has no schema.
    pub(crate) enum MissingSchema {
        /// The event is sent.
        #[default]
        Allow = "allow",
        /// The connector stops.
        Fail = "fail",
        /// The event goes to the dead-letter topic.
        DeadLetter = "dead-letter",
        /// The event is sent, with a warning.
        Warn = "warn",
    }
}

choices! {
    /// What is known of the transaction of an event, as a header.
    pub(crate) enum TransactionHeader {
        /// The LSN of the commit, and which change of the transaction it is.
        #[default]
        Position = "position",
        /// When the transaction was committed.
        CommitTime = "commit_time",
        /// The id of the transaction.
        TransactionId = "transaction_id",
    }
}
