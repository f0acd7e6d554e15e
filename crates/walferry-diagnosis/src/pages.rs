//! Every kind of diagnosis, once: the table that codes, pages and exit codes come from.
//!
//! To add a kind, add an entry behind the last one of its area, then run `cargo xtask docs`. Never change or reuse a code.

use crate::exit::Exit;
use crate::kind::Page;

macro_rules! kinds {
    ($($code:literal $name:ident $word:literal $exit:expr, $title:literal, $meaning:literal, $remedy:literal;)*) => {
        /// A kind of diagnosis. Its page says what it means and what to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $(#[doc = $title] $name,)*
        }

        pub(crate) const PAGES: &[Page] = &[$(Page {
            kind: Kind::$name,
            code: $code,
            word: $word,
            exit: $exit,
            title: $title,
            meaning: $meaning,
            remedy: $remedy,
        },)*];
    };
}

const GAVE_UP: Option<Exit> = Some(Exit::GaveUp);
const SETUP: Option<Exit> = Some(Exit::Setup);
const RECORD: Option<Exit> = Some(Exit::Record);
const STATE: Option<Exit> = Some(Exit::State);

kinds! {
    "WF0101" PropertyValue "property_value" SETUP,
        "A property has a value that cannot be used",
        "The property is known, and its value is not one that it can have: it is no number, is out of range, or names something \
         that does not exist. All problems of all files are told in one report.",
        "Correct the value as the hint says. The reference page of the configuration lists what each property allows.";
    "WF0102" PropertyMissing "property_missing" SETUP,
        "A required property is missing",
        "The connector cannot work without this property, and it has no default.",
        "Add the property. The hint has an example.";
    "WF0103" PropertyUnknown "property_unknown" None,
        "A property is not known",
        "Neither Debezium, nor Kafka Connect, nor Walferry has a property of this name. It has no effect. Often it is a slip of \
         the pen.",
        "Use the name that the hint offers, or remove the property.";
    "WF0104" PropertyRefused "property_refused" SETUP,
        "Walferry does not support this property or value",
        "Debezium or Kafka Connect knows the property, and it would change what is sent. Walferry does not support it, and \
         refuses it rather than sending something else.",
        "Follow the hint, which names what to use instead. If nothing fits, keep this connector on Kafka Connect.";
    "WF0105" PropertyWithoutEffect "property_without_effect" None,
        "A property has no effect",
        "The property is accepted, and nothing depends on it: Walferry needs no such setting, or another property switches it \
         off.",
        "Nothing has to be done. Remove the property to keep the configuration short, or set what the hint names.";
    "WF0106" PropertyDoubtful "property_doubtful" None,
        "A property is probably not meant as it is written",
        "The connector starts with the value as it is, and the result may surprise you.",
        "Read the message and decide. The hint says how to write what was probably meant.";
    "WF0107" PropertiesClash "properties_clash" SETUP,
        "Two properties contradict each other",
        "Each of the properties is valid, but they cannot be set together.",
        "Keep the one that you mean, and remove the other.";
    "WF0108" ClassUnknown "class_unknown" SETUP,
        "Walferry does not have this class",
        "The class of a transform, predicate, converter or naming strategy is compiled into Walferry; Java classes cannot be \
         loaded. This one is not among those that Walferry has.",
        "Use the class that the hint names, or keep this connector on Kafka Connect.";
    "WF0109" FileUnusable "file_unusable" SETUP,
        "A configuration file cannot be read or understood",
        "The file does not exist, cannot be read, is neither JSON nor .properties, or is a file of another kind than the flag \
         asks for.",
        "Correct the path, the permissions or the file as the hint says.";
    "WF0110" ConfigProvider "config_provider" SETUP,
        "A reference to a config provider cannot be resolved",
        "A value such as `${env:PASSWORD}` refers to a variable, file or key that is not there, or to a provider that Walferry \
         does not have. The value is never used as it is written, because it would be taken for the password itself.",
        "Provide the variable or key, or correct the reference or `config.providers`.";
    "WF0111" ConnectorsClash "connectors_clash" SETUP,
        "Two connectors cannot run side by side",
        "Two of the given connectors have the same name, or the same replication slot on the same server. Offsets are kept by \
         name, and a slot feeds one connector.",
        "Give each connector a `name` and a `slot.name` of its own.";
    "WF0112" ServersMissing "servers_missing" SETUP,
        "Nothing says where Kafka is",
        "Neither `--bootstrap-servers` nor the worker file names the Kafka brokers.",
        "Give `--bootstrap-servers host:port`, or a worker file with `bootstrap.servers`.";
    "WF0113" Configuration "configuration" SETUP,
        "The configuration has problems",
        "The connector cannot be put together from its configuration. Each problem has a line and a code of its own.",
        "Correct the problems. `walferry check --config FILE` shows them without starting anything.";
    "WF0114" RegexLimit "regex_limit" SETUP,
        "A regular expression takes too many steps",
        "The expression tries very many ways to match one text. Java would be busy with it for a long time; Walferry stops \
         instead.",
        "Write the expression so that its parts cannot match the same text in several ways. The message names the expression.";
    "WF0115" NoOutbox "no_outbox" SETUP,
        "An EventRouter has no outbox table to work on",
        "None of the captured tables that the EventRouter sees has the configured columns, or an outbox table misses one of \
         them.",
        "Correct the names of the columns (`transforms.NAME.table.field.…`), or capture the outbox table.";
    "WF0116" TooManyTables "too_many_tables" SETUP,
        "More tables are captured than allowed",
        "`guardrail.collections.max` limits how many tables the connector may capture, and the filters let more pass.",
        "Capture fewer tables, raise the limit, or set `guardrail.collections.limit.action=warn`.";
    "WF0117" SchemaRefused "schema_refused" SETUP,
        "A table has no valid schema",
        "The columns of the table cannot become the fields of a record, for example because two of them get the same name.",
        "Rename a column, leave it out with `column.exclude.list`, or change `field.name.adjustment.mode`.";
    "WF0118" WeakerGuarantee "weaker_guarantee" None,
        "A setting weakens what Walferry guarantees",
        "The setting is honoured, and with it records may be lost or repeated that would not be otherwise, for example with \
         `acks=1`.",
        "Remove the setting unless you mean it.";
    "WF0119" OverrideDenied "override_denied" SETUP,
        "The worker does not allow this override",
        "`connector.client.config.override.policy` of the worker does not let a connector set this property of the Kafka \
         client.",
        "Remove the property from the connector, or change the worker's policy.";
    "WF0201" Unreachable "unreachable" GAVE_UP,
        "Postgres cannot be reached",
        "The host name has no address, nothing answers at the address, or what answers does not speak like Postgres. Walferry \
         tries again until the server answers.",
        "Check that the server runs and listens, that no firewall is between, and `database.hostname` and `database.port`.";
    "WF0202" Tls "tls" SETUP,
        "No TLS connection to Postgres comes about",
        "Certificates, keys or versions do not fit, the server has no TLS, or a file cannot be read. A handshake that breaks \
         off because of the network is tried again.",
        "Compare the server's certificate with `database.sslrootcert` and `database.sslmode`, and check the files that \
         `database.ssl…` names.";
    "WF0203" Authentication "authentication" SETUP,
        "Postgres does not accept user and password",
        "The password is wrong or missing, or the server asks for a way to authenticate that does not work here.",
        "Check `database.user`, `database.password` and the server's `pg_hba.conf`.";
    "WF0204" AccessRefused "access_refused" SETUP,
        "The server lets this user not in from here",
        "No line of the server's `pg_hba.conf` allows this user, database, machine and kind of connection, or the role may not \
         log in.",
        "Add a line to `pg_hba.conf` and run `SELECT pg_reload_conf()`, or allow the role to log in.";
    "WF0205" DatabaseMissing "database_missing" SETUP,
        "The database does not exist",
        "The server has no database of the name that `database.dbname` says.",
        "Correct `database.dbname`.";
    "WF0206" PrivilegeMissing "privilege_missing" SETUP,
        "A privilege is missing in Postgres",
        "The role may not do what the connector needs: use replication, read a table, or create the publication.",
        "Have a superuser or the owner run the statement that the hint shows.";
    "WF0207" TooManyConnections "too_many_connections" GAVE_UP,
        "The server takes no more connections",
        "`max_connections` or `max_wal_senders` of the server is used up. Walferry tries again.",
        "End connections that are not needed, or raise the limit.";
    "WF0208" ServerNotReady "server_not_ready" GAVE_UP,
        "The server starts or shuts down",
        "Postgres lets nobody in at the moment. Walferry tries again.",
        "Wait. If it lasts, look at the server's log.";
    "WF0209" Timeout "timeout" GAVE_UP,
        "Postgres took too long",
        "A statement was ended by a time limit, or something that the server waits for did not come. Walferry tries again.",
        "End long transactions and what holds locks, as the hint shows, or raise the limit.";
    "WF0210" ConnectionLost "connection_lost" GAVE_UP,
        "The connection to Postgres was lost",
        "The server or something between has closed the connection. Walferry connects again and goes on from the stored offset; \
         nothing is lost.",
        "Nothing has to be done if it happens now and then. Otherwise look at the server's log and at the network.";
    "WF0211" Silent "silent" GAVE_UP,
        "Postgres says nothing",
        "The connection is open, and nothing has come over it for a long time. Walferry connects again.",
        "Look whether the server is stopped or very busy, and whether a firewall drops idle connections.";
    "WF0212" Protocol "protocol" GAVE_UP,
        "The server said something unexpected",
        "An answer does not fit the protocol of Postgres. Something between may not be Postgres, such as a connection pooler. \
         Walferry tries again.",
        "Connect to the server itself and not through a pooler. If you do, please report it.";
    "WF0213" ServerError "server_error" SETUP,
        "Postgres refused something",
        "The server answered a statement with an error. The message has the server's words and its SQLSTATE. Errors that may \
         pass are tried again.",
        "Look the SQLSTATE up in the documentation of Postgres, and look at the server's log.";
    "WF0214" ServerVersion "server_version" SETUP,
        "The server is too old",
        "Walferry needs Postgres 12 or later.",
        "Upgrade the server to Postgres 12 or later.";
    "WF0215" WalLevel "wal_level" SETUP,
        "The server does not log enough for logical replication",
        "`wal_level` of the server is not `logical`, so that its log does not hold the rows.",
        "Run `ALTER SYSTEM SET wal_level = 'logical'` and restart the server. Managed services have a setting of their own for \
         this.";
    "WF0216" Standby "standby" GAVE_UP,
        "The server is a standby that cannot decode",
        "Postgres before 16 cannot decode the log on a standby. Walferry waits, because the standby may be promoted.",
        "Connect to the primary, or upgrade both servers to Postgres 16.";
    "WF0217" StandbyBehind "standby_behind" GAVE_UP,
        "The standby has not received what was read before",
        "The server is a standby, and its log ends before the position that was read already. Walferry waits until it catches \
         up.",
        "Wait, or connect to the primary.";
    "WF0218" TimescaleMissing "timescaledb_missing" SETUP,
        "The database does not have TimescaleDB",
        "The transform TimescaleDb reads the catalog of TimescaleDB, and the database has none.",
        "Create the extension in this database, correct `database.dbname`, or leave the transform out.";
    "WF0219" HeartbeatQuery "heartbeat_query" None,
        "The heartbeat query failed",
        "The statement of `heartbeat.action.query` was refused by the server, or the server could not be reached. It runs again \
         with the next heartbeat.",
        "Correct the statement, or grant the role what it needs.";
    "WF0220" SelectOverride "select_override" SETUP,
        "The SELECT of a snapshot is refused",
        "A statement of `snapshot.select.statement.overrides` is refused by the server.",
        "Correct the statement for the table that the message names.";
    "WF0221" TableChanged "table_changed" GAVE_UP,
        "A table has changed since the snapshot was planned",
        "The table was dropped or altered between being listed and being read. Walferry begins again and plans it anew.",
        "Nothing has to be done. Do not alter tables all the time while a snapshot runs.";
    "WF0222" SnapshotGone "snapshot_gone" GAVE_UP,
        "The exported snapshot is gone",
        "The connection that kept the snapshot was lost while tables were read. Walferry goes on from a new one.",
        "Nothing has to be done, unless it happens again and again: then look at the network and at the server's time limits \
         for transactions.";
    "WF0223" ServerSetup "setup" SETUP,
        "The server is not set up for the connector",
        "The state of the server does not let the connector work.",
        "Follow the hints: each names a statement or a setting.";
    "WF0224" WalKept "wal_kept" None,
        "Nothing limits the log that a slot keeps",
        "While the connector is stopped, the server keeps all log for it, and its disk may fill.",
        "Set `max_slot_wal_keep_size`, and watch the lag of the slot.";
    "WF0225" ReplicaIdentity "replica_identity" None,
        "The replica identity of a table does not fit",
        "Updates and deletes of the table do not carry what the configuration expects of them, or \
         `replica.identity.autoset.values` could not be applied.",
        "Run the `ALTER TABLE … REPLICA IDENTITY …` that the message shows, or give the table a primary key.";
    "WF0226" NoCapturedTables "no_captured_tables" None,
        "No table is captured",
        "No table of the database passes the filters. The connector runs, and has nothing to send until such a table is \
         created.",
        "Compare `table.include.list` and `schema.include.list` with the tables of the database; patterns are SCHEMA.TABLE.";
    "WF0227" NoSuchColumn "no_such_column" None,
        "An expression for columns matches none",
        "A property that masks, truncates, includes or excludes columns has an expression that matches no column of the captured \
         tables, so that it has no effect.",
        "Compare the expression with the columns; expressions match SCHEMA.TABLE.COLUMN as a whole.";
    "WF0301" SlotInUse "slot_in_use" GAVE_UP,
        "The replication slot is in use by another process",
        "A slot feeds one process at a time. Often it is the walsender of a connection that was just lost and ends soon, or \
         another connector with the same `slot.name`. Walferry tries again.",
        "If it lasts, stop the process that the message names, or set `slot.name` to a name of its own.";
    "WF0302" SlotLost "slot_lost" SETUP,
        "The replication slot has lost what was not read yet",
        "The slot does not exist any more, or the server has removed the log that it needs. The changes since the stored offset \
         cannot be read.",
        "Read all rows again: `snapshot.mode=when_needed` does so by itself. A larger `max_slot_wal_keep_size` keeps it from \
         happening again.";
    "WF0303" SlotMismatch "slot_mismatch" SETUP,
        "The replication slot does not fit the connector",
        "The slot belongs to another database, uses another plugin than pgoutput, is a physical slot, or is a standby's copy \
         that cannot be read.",
        "Set `slot.name` to another name, or drop the slot if nobody needs it.";
    "WF0304" NoFreeSlot "no_free_slot" SETUP,
        "All replication slots of the server are in use",
        "The connector has to create its slot, and `max_replication_slots` is used up.",
        "Drop a slot that nobody needs, or raise `max_replication_slots` and restart the server.";
    "WF0305" SlotWaits "slot_waits" GAVE_UP,
        "A new slot waits for older transactions",
        "Postgres can create a slot only when all transactions that were running have ended. Walferry waits.",
        "End the transactions that the message names.";
    "WF0306" SlotNotThereYet "slot_not_there_yet" GAVE_UP,
        "The slot is not on the new primary yet",
        "The server was promoted, and the slot of the connector has not come with it. Walferry waits, and never starts a new \
         slot by itself, because changes would be missing.",
        "Bring the slot there as your failover does it, or start again with a snapshot, as the hint says.";
    "WF0307" StreamOption "stream_option" SETUP,
        "The server does not know an option of the stream",
        "`slot.stream.params` has an option that this version of pgoutput does not have.",
        "Take the option out of `slot.stream.params`, or correct it.";
    "WF0308" Publication "publication" SETUP,
        "The publication does not fit the configuration",
        "The publication is for all tables where only the captured ones are wanted, or no table passes the filters.",
        "Change `publication.autocreate.mode` or `table.include.list`, or drop the publication so that it is created again.";
    "WF0309" PublicationGap "publication_gap" GAVE_UP,
        "The server cannot send changes that were written without the publication",
        "The log is decoded with the catalog of its time. What was written while the publication did not exist cannot be sent, \
         ever. Walferry waits for a person, and confirms nothing behind the gap.",
        "Create the publication, and decide with `walferry offsets skip-gap` what becomes of the missing changes.";
    "WF0310" PublicationMissing "publication_missing" SETUP,
        "The publication does not exist",
        "The connector reads through a publication, and the server has none of this name. At the first start it is a mistake of \
         the setup; later it is a gap, at which Walferry waits.",
        "Create the publication with the statement of the hint, or set `publication.autocreate.mode`.";
    "WF0311" PublicationChanged "publication_changed" GAVE_UP,
        "Captured rows may be missing, because the publication was changed",
        "Somebody changed the publication so that it did not send all captured rows for a while. Walferry waits for a person.",
        "Put the publication right, and decide with `walferry offsets skip-gap` what becomes of the rows that may be missing.";
    "WF0312" OtherServer "other_server" SETUP,
        "The stored offset belongs to another server",
        "Positions in the log mean nothing on another server. The system identifier of this one is not the one that was read \
         before.",
        "Point `database.hostname` at the right server. For a new server use another `--data-dir`, or remove the offset with \
         `walferry offsets reset`.";
    "WF0313" AnotherHistory "another_history" SETUP,
        "The server has another history than the one that was read",
        "The server was restored or promoted, and transactions that were delivered do not exist there.",
        "With the right server nothing has to be done. Otherwise read all rows again, or accept this server with `walferry \
         offsets accept-history`.";
    "WF0314" OffsetBeyondServer "offset_beyond_server" SETUP,
        "The stored offset lies beyond the end of the server's log",
        "The server was restored from a backup, or is another one: it does not have what was delivered.",
        "With the right server nothing has to be done. Otherwise read all rows again, or accept this server with `walferry \
         offsets accept-history`.";
    "WF0315" SlotAheadOfOffset "slot_ahead_of_offset" SETUP,
        "The slot stands ahead of the stored offset",
        "Something else has moved the slot. Changes between the offset and the slot may be missing from the topics.",
        "Take a snapshot again, or accept the gap with `offset.mismatch.strategy=trust_slot`.";
    "WF0316" TimelineChanged "timeline_changed" GAVE_UP,
        "The server was promoted",
        "The server is on another timeline than before. Walferry begins a new session and compares the stored offset with the \
         new timeline.",
        "Nothing has to be done.";
    "WF0317" SlotMode "slot_mode" None,
        "What the slot is set up for has a consequence",
        "A setting about the slot, such as `slot.drop.on.stop` or a flush mode that leaves the slot where it is, changes what \
         the server keeps.",
        "Read the message, and change the setting unless you mean it.";
    "WF0318" SlotStillRead "slot_still_read" SETUP,
        "The replication slot cannot be dropped, because it is in use",
        "The slot has to be dropped and created again, and another process still reads it.",
        "Stop the process that reads the slot, then drop the slot with the statement of the hint.";
    "WF0319" SlotStillThere "slot_still_there" None,
        "A slot that a failed start has made could not be dropped",
        "The first start of the connector failed after it had created its slot. Until the slot is read or dropped, the server \
         keeps log for it.",
        "Start the connector again, or drop the slot with the statement of the hint.";
    "WF0320" PublicationIncomplete "publication_incomplete" None,
        "The publication does not have all captured tables",
        "Tables that pass the filters are not in the publication, so that nothing is sent of them.",
        "Add the tables with the statement of the hint, or leave them out of `table.include.list`.";
    "WF0321" SignalTableNotPublished "signal_table_not_published" SETUP,
        "The signal table is not in the publication",
        "Signals come through the replication stream, and the publication does not have the table of `signal.data.collection`.",
        "Add the table with the statement of the hint, or take `source` out of `signal.enabled.channels`.";
    "WF0401" RecordFailed "record_failed" RECORD,
        "A record cannot be sent",
        "A change could not become a record. The message names the table and the position. Nothing behind it is sent before \
         somebody decides.",
        "Correct what the message names, or set `errors.tolerance=all` to set such records aside, and \
         `errors.deadletterqueue.topic.name` to keep them.";
    "WF0402" ChangeNotConverted "change_not_converted" RECORD,
        "A change cannot become a record",
        "A value of a column, or the row itself, has no form in Debezium's schema: it is out of range, or it is not what the \
         catalog says.",
        "Follow the hint, which names the property that decides about such values.";
    "WF0403" TransformFailed "transform_failed" RECORD,
        "A transform cannot handle a record",
        "The message names the transform and the topic. The record is not of the form that the transform expects.",
        "Correct the transform's options, or give it a predicate that keeps such records away from it.";
    "WF0404" NotWritten "not_written" RECORD,
        "A converter cannot write a record",
        "The key, the value or a header of the record does not fit its converter.",
        "Choose a converter for this kind of data, or change the record with a transform, as the hint says.";
    "WF0405" MalformedMessage "malformed_message" RECORD,
        "A message of the stream cannot be read",
        "The bytes that came are not what pgoutput sends. Nothing was skipped.",
        "Look whether something between here and the server changes bytes. Otherwise please report it.";
    "WF0406" MalformedSnapshot "malformed_snapshot" RECORD,
        "A row of the snapshot cannot be read",
        "The bytes of a row, or the order of what came, are not what the snapshot has to have. Nothing was skipped.",
        "This is a defect: please report it with the log's last lines.";
    "WF0407" UnknownRelation "unknown_relation" GAVE_UP,
        "The stream has not described a table",
        "A change came for a table that no message has described. Walferry connects again, and the server describes all tables \
         anew.",
        "Nothing has to be done, unless it happens again and again: then please report it.";
    "WF0408" DescriptionLost "description_lost" GAVE_UP,
        "The description of a table cannot be read back",
        "With very many tables, descriptions are kept on the disk, and one of them could not be read. Walferry connects again.",
        "Look at the disk of the data directory.";
    "WF0409" SchemaRegistry "schema_registry" GAVE_UP,
        "A record waits for the schema registry",
        "A converter needs the id of a schema, and the registry has not given it yet. The record waits, and with it everything \
         behind it; nothing is lost.",
        "Look at the registry, its URL, and the log-in, as the hint says.";
    "WF0410" Awaited "awaited" GAVE_UP,
        "A record waits for something",
        "A record needs something from elsewhere, such as a row of the database. It waits, and with it everything behind it; \
         nothing is lost.",
        "Look at what the message names.";
    "WF0411" RegistryRefused "registry_refused" RECORD,
        "The schema registry refuses a schema",
        "The schema of the table does not fit the versions that the registry has, or the registry does not have it and may not \
         take it.",
        "Change the table, lower the compatibility of the subject, or register the schema.";
    "WF0412" ColumnLeftOut "column_left_out" None,
        "A column is left out of records",
        "Debezium has no schema for the type of the column, so that records do not have it.",
        "Set `include.unknown.datatypes=true` to have it as bytes.";
    "WF0413" UnconvertedValue "unconverted_value" None,
        "A value could not be converted, and its field is empty",
        "`event.converting.failure.handling.mode` says that the field of such a value stays empty. The record is sent without it.",
        "Correct the value, or set the property to `fail` if no record may be sent without it.";
    "WF0414" ReselectFailed "reselect_failed" RECORD,
        "Columns of a row could not be read again",
        "A post-processor reads values that the stream left out, and the server refused that or the row is gone.",
        "Follow the hint, or set `reselect.error.handling.mode=warn` to send such events as they come.";
    "WF0415" RowNotReselected "row_not_reselected" None,
        "An event was sent without reading its columns again",
        "A post-processor could not read values that the stream left out, and `reselect.error.handling.mode=warn` lets the event go \
         on as it came.",
        "Look at the warning in the log, which says why. With `fail` such an event stops the connector instead.";
    "WF0416" IncrementalSnapshotWaits "incremental_snapshot" None,
        "An incremental snapshot waits",
        "A chunk of a table could not be read. The chunk is tried again, and the stream goes on meanwhile.",
        "Follow the hint, or end the snapshot with the signal `stop-snapshot`.";
    "WF0501" KafkaUnreachable "kafka_unreachable" GAVE_UP,
        "No Kafka broker answers",
        "None of the brokers can be reached. Records wait, nothing is lost, and Postgres keeps what has not been read.",
        "Look whether Kafka runs, whether `bootstrap.servers` and the brokers' advertised listeners can be reached, and whether \
         `security.protocol` is that of the listener.";
    "WF0502" KafkaAuthentication "kafka_authentication" GAVE_UP,
        "Kafka refuses the log-in",
        "The brokers do not accept the user, the password or the token. Walferry tries again.",
        "Correct `sasl.jaas.config` and `sasl.mechanism`, or the token's endpoint.";
    "WF0503" KafkaTls "kafka_tls" GAVE_UP,
        "No TLS connection to Kafka comes about",
        "The broker's certificate is not trusted or is for another name, or the listener speaks no TLS. Walferry tries again.",
        "Check `ssl.truststore.location`, the host name in `bootstrap.servers`, and `security.protocol`.";
    "WF0504" KafkaDenied "kafka_denied" SETUP,
        "The Kafka user may not do this",
        "The brokers' access lists do not let the user write to the topic, or use an idempotent producer.",
        "Grant what the hint names with `kafka-acls`.";
    "WF0505" KafkaUnsupported "kafka_unsupported" SETUP,
        "The broker does not support what the producer is set to",
        "The broker is too old for the compression, for the idempotent producer, or for another setting.",
        "Change the `producer.override.…` property that the hint names, or upgrade the broker.";
    "WF0506" KafkaSettings "kafka_settings" SETUP,
        "The Kafka client does not take its settings",
        "A property of the producer cannot be used by the client.",
        "Correct the `producer.override.…` properties of the connector and the `producer.…` properties of the worker.";
    "WF0507" KafkaProducer "kafka_producer" GAVE_UP,
        "The producer has lost its sequence",
        "The broker does not know the producer any more, or has fenced it. Walferry goes on from the stored offset with a new \
         producer; nothing is lost, and some records may come twice.",
        "Nothing has to be done, unless it happens again and again: then look at the brokers' logs.";
    "WF0508" KafkaDelivery "kafka_delivery" GAVE_UP,
        "A record was not delivered",
        "The broker or the client gave up on a record. Walferry goes on from the stored offset with a new producer; nothing is \
         lost, and some records may come twice.",
        "If it happens again and again, look at the brokers' logs.";
    "WF0509" BatchTooLarge "batch_too_large" GAVE_UP,
        "A batch is larger than the topic takes",
        "The records fit, and the batch that they were in does not. Walferry sends smaller batches from now on.",
        "Set `producer.override.batch.size` below the smallest `max.message.bytes` of the topics.";
    "WF0510" RecordTooLarge "record_too_large" RECORD,
        "A record is larger than Kafka takes",
        "The record is larger than `max.message.bytes` of its topic, or than `max.request.size` of the producer.",
        "Raise both limits above the size of the record, or set such records aside with `errors.tolerance=all`.";
    "WF0511" RecordRefused "record_refused" RECORD,
        "The broker refuses a record",
        "The record is not valid for its topic: a compacted topic takes no record without a key, or the timestamp is out of the \
         allowed range.",
        "Give the table a key, or change the settings of the topic, as the hint says.";
    "WF0512" PartitionMissing "partition_missing" RECORD,
        "A record is meant for a partition that does not exist",
        "Something has chosen a partition that the topic does not have.",
        "Add partitions to the topic, or correct what chooses the partition.";
    "WF0513" TopicMissing "topic_missing" GAVE_UP,
        "A topic does not exist",
        "Nobody creates the topic: the brokers do not, and the connector has no `topic.creation.…` rule for it. Records wait.",
        "Create the topic, set `topic.creation.default.partitions` and `topic.creation.default.replication.factor`, or let the \
         brokers create topics.";
    "WF0514" TopicNotCreated "topic_not_created" SETUP,
        "A topic could not be created",
        "The brokers refuse to create the topic as `topic.creation.…` asks for it.",
        "Correct `topic.creation.…`, grant Create, or create the topic yourself.";
    "WF0515" TopicInvalid "topic_invalid" RECORD,
        "A topic name is not valid",
        "A transform or the naming strategy has made a name that Kafka does not allow.",
        "A name has at most 249 letters, digits, dots, underscores and hyphens: correct what makes it.";
    "WF0516" DeadLetter "dead_letter" RECORD,
        "A record cannot go to the dead-letter topic either",
        "A record was to be set aside, and the dead-letter topic does not take it.",
        "Look at the dead-letter topic and its limits.";
    "WF0517" KafkaDoubtful "kafka_doubtful" None,
        "A setting of Kafka or of a topic may cause trouble",
        "`walferry check` has looked at the brokers and the topics and has found something that works today and may not always.",
        "Read the message, and run the command that the hint shows if you agree.";
    "WF0518" SignalsUnread "signals" None,
        "Signals cannot be read from Kafka",
        "The topic of `signal.kafka.topic` cannot be read. Signals of other channels and the stream go on, and the topic is tried again.",
        "Look whether the topic exists, and whether `signal.kafka.bootstrap.servers` and `signal.consumer.*` are right.";
    "WF0519" ConnectTopic "connect_topic" SETUP,
        "One of Connect's topics cannot be used",
        "A worker keeps its connectors, offsets and states in the topics that `config.storage.topic`, `offset.storage.topic` and \
         `status.storage.topic` name. One of them cannot be created, read or written, or would lose what is written to it.",
        "Correct the topic as the hint says. Each has to be compacted, and the one for configurations has one partition.";
    "WF0520" ConnectRuns "connect_runs" SETUP,
        "Kafka Connect still works on the topics",
        "Workers of Kafka Connect are members of the group that the topics belong to. Two would write offsets for one connector.",
        "Stop the workers of Connect first, or move single connectors with `walferry offsets import`.";
    "WF0601" DataDirLocked "data_dir_locked" STATE,
        "Another process uses the data directory",
        "A process that works for this connector holds the lock of its folder. Two of them would overwrite each other's \
         offsets.",
        "Stop the other process, or give this one another `--data-dir`.";
    "WF0602" OffsetDamaged "offset_damaged" STATE,
        "The offset file is damaged or from a later version",
        "The file does not hold what was written to it, or has a format that this version cannot read. Walferry never starts \
         afresh because of it.",
        "Restore the file from a copy, run the later version, or write a known position with `walferry offsets import`.";
    "WF0603" OffsetForeign "offset_foreign" STATE,
        "The offset file belongs to another connector",
        "The file was written for a connector with another `name` or `topic.prefix`.",
        "Put the names back, or use another `--data-dir`.";
    "WF0604" DiskFull "disk_full" STATE,
        "The disk of the data directory is full",
        "The offset cannot be written. While the connector runs it goes on and tries again, and the slot stays where it is.",
        "Free space on the file system that the message names.";
    "WF0605" NoDescriptors "no_descriptors" STATE,
        "The process may not open more files",
        "All file descriptors that the process may have are in use.",
        "Raise the limit of open files (`LimitNOFILE=` of a systemd unit, `ulimit -n` in a shell).";
    "WF0606" DataDirIo "data_dir_io" STATE,
        "The data directory cannot be read or written",
        "The system refuses to read or write a file of the data directory.",
        "Correct the permissions, look at the disk, or use another `--data-dir`.";
    "WF0607" OffsetImport "offset_import" SETUP,
        "The text is no offset for this connector",
        "What was given to `walferry offsets import` is not JSON of a form that Kafka Connect writes, or belongs to another \
         connector.",
        "Take what `GET /connectors/NAME/offsets` answers, or a line of Connect's offset topic.";
    "WF0608" OffsetUnchanged "offset_unchanged" SETUP,
        "The offset was left as it was",
        "A command about offsets was refused, and nothing was changed: there is an offset already, or none, or no gap to skip.",
        "Follow the hint. `walferry offsets show` tells what is stored.";
    "WF0609" BookDamaged "book_damaged" STATE,
        "The file of connectors is damaged",
        "The file in the data directory that keeps the connectors which came by the REST API does not hold what was written to it.",
        "Restore it from a copy. To begin without these connectors, move it away.";
    "WF0610" TwoOffsets "two_offsets" STATE,
        "A connector has an offset in a file and an older one in a topic",
        "The worker keeps offsets in Connect's topic, and the data directory has one that is ahead of it.",
        "Decide which one counts, as the hint says.";
    "WF0701" NoThread "no_thread" GAVE_UP,
        "A thread could not be started",
        "The system does not let the process have more threads or more memory.",
        "Raise the limit of threads (`ulimit -u`, or the container's limit of processes).";
    "WF0702" NoRuntime "no_runtime" SETUP,
        "The runtime does not start",
        "The process could not open what it needs to wait for sockets and timers.",
        "Raise the limit of open files (`ulimit -n`).";
    "WF0703" Panic "panic" GAVE_UP,
        "A part of Walferry has failed in a way that was not foreseen",
        "A thread has ended in the middle of its work. What was not stored is read again.",
        "This is a defect: please report it with the log's last lines.";
    "WF0704" PipelineEnded "pipeline_ended" GAVE_UP,
        "The pipeline has ended",
        "The thread that makes records has ended, so that nothing more can be read. The reason stands in another line of the \
         log.",
        "Look at the error that was told before.";
    "WF0705" AdminAddress "admin_address" SETUP,
        "The admin endpoint cannot listen at its address",
        "The port is in use, the address does not belong to this machine, or the address cannot be understood.",
        "Choose another address with `--admin` or `listeners`, or stop what listens there.";
    "WF0706" Output "output" SETUP,
        "The output cannot be written",
        "Standard output was closed or its disk is full.",
        "Look at what reads the output.";
    "WF0707" CodeUnknown "code_unknown" SETUP,
        "There is no such code",
        "`walferry explain` knows codes such as WF0301 and words such as slot_in_use.",
        "Run `walferry explain` without a code: it lists all.";
    "WF0708" ShowRecords "show_records" RECORD,
        "Records could not be shown",
        "`walferry check --show-records` could not make a record of a row of the table.",
        "Follow the hint. A start would meet the same.";
    "WF0709" Demo "demo" SETUP,
        "The demo did not start or cannot go on",
        "The demo starts a Postgres and a Kafka of its own, and one of its parts did not start.",
        "Follow the hint. The demo needs the programs of a Postgres server on this machine, and a user other than root.";
    "WF0710" CheckRefused "check_refused" SETUP,
        "Something stands in the way of a start",
        "`walferry check` has found what would stop a start. Each obstacle has a line and a code of its own.",
        "Remove the obstacles, and run `walferry check` again.";
    "WF0711" SignalNotGiven "signal_not_given" SETUP,
        "The signal was not given",
        "The connector that runs did not take the signal, or its admin endpoint does not answer.",
        "Follow the hint. `GET /connectors` lists the connectors that run.";
    "WF0712" TurnLost "turn_lost" GAVE_UP,
        "Another Walferry works on Connect's topics now",
        "The brokers have not heard of this process for longer than 10 seconds, and have given its turn to another one.",
        "Start it again: it waits until it is its turn. Look at what held it up: the network, or a machine without time for it.";
    "WF0713" NothingToRun "nothing_to_run" SETUP,
        "Nothing is given to run or to check",
        "Neither a connector nor a worker is given.",
        "Give a connector with `--config FILE`, or a worker with `--worker FILE`.";
}
