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

        // A constant would be there once for each part of the program that looks something up.
        pub(crate) static PAGES: &[Page] = &[$(Page {
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
        "A property has an invalid value",
        "The property exists, but it cannot have this value: the value is not a number, is out of range, or names \
         something that does not exist. One report lists all problems of all files.",
        "Correct the value as the hint says. The configuration reference lists the values that each property allows.";
    "WF0102" PropertyMissing "property_missing" SETUP,
        "A required property is missing",
        "The connector cannot work without this property, and it has no default.",
        "Add the property. The hint has an example.";
    "WF0103" PropertyUnknown "property_unknown" None,
        "Unknown property",
        "Neither Debezium, Kafka Connect nor Walferry has a property with this name, so it has no effect. Often it is a \
         typing mistake.",
        "Use the name that the hint suggests, or remove the property.";
    "WF0104" PropertyRefused "property_refused" SETUP,
        "Walferry does not support this property or value",
        "Debezium or Kafka Connect has this property, and it would change what is sent. Walferry does not support it, so \
         it refuses the property instead of sending something else.",
        "Follow the hint, which names an alternative. If there is none, keep this connector on Kafka Connect.";
    "WF0105" PropertyWithoutEffect "property_without_effect" None,
        "A property has no effect",
        "The property is accepted, but nothing depends on it: either Walferry does not need the setting, or another \
         property or flag disables it.",
        "You need not do anything. You can remove the property, or set the property that the hint names.";
    "WF0106" PropertyDoubtful "property_doubtful" None,
        "A property probably has a value that you did not intend",
        "The connector starts with this value, but the result may surprise you.",
        "Read the message and decide. The hint says how to write what you probably intended.";
    "WF0107" PropertiesClash "properties_clash" SETUP,
        "Two properties contradict each other",
        "Each of the properties is valid alone, but they cannot be combined.",
        "Keep one of them and remove the other.";
    "WF0108" ClassUnknown "class_unknown" SETUP,
        "Walferry does not have this class",
        "Transforms, predicates, converters and naming strategies are compiled into Walferry; it cannot load Java classes. \
         Walferry has no class with this name.",
        "Use the class that the hint names, or keep this connector on Kafka Connect. For a transform of your own, `docs/how-to/custom-transforms.md` \
         says what takes its place here.";
    "WF0109" FileUnusable "file_unusable" SETUP,
        "A configuration file cannot be read or parsed",
        "The file does not exist, cannot be read, is neither JSON nor .properties, or is not the kind of file that the \
         flag expects.",
        "Correct the path, the permissions or the content of the file, as the hint says.";
    "WF0110" ConfigProvider "config_provider" SETUP,
        "A reference to a config provider cannot be resolved",
        "A value such as `${env:PASSWORD}` refers to a variable, file or key that does not exist, or to a provider that \
         Walferry does not have. Walferry never uses the unresolved text, because it would be taken for the password.",
        "Set the variable or key, or correct the reference or `config.providers`.";
    "WF0111" ConnectorsClash "connectors_clash" SETUP,
        "Two connectors cannot run in the same process",
        "Two of the connectors have the same name, or use the same replication slot on the same server. Offsets are stored \
         by connector name, and a slot can be read by only one connector. A connector of a file also must not have the name of \
         a connector in Connect's topics that Walferry does not run.",
        "Give each connector its own `name` and `slot.name`.";
    "WF0112" ServersMissing "servers_missing" SETUP,
        "The address of Kafka is not set",
        "Neither `--bootstrap-servers` nor the worker file names the Kafka brokers.",
        "Set `--bootstrap-servers host:port`, or use a worker file with `bootstrap.servers`.";
    "WF0113" Configuration "configuration" SETUP,
        "The configuration has errors",
        "The connector cannot be built from its configuration. Each problem is listed on its own line with its own code.",
        "Correct the problems. `walferry check`, with the arguments of `run`, lists them without starting the connector.";
    "WF0114" RegexLimit "regex_limit" SETUP,
        "A regular expression takes too many steps",
        "The expression tries very many ways to match one text. Java would compute for a very long time; Walferry stops \
         instead.",
        "Rewrite the expression so that its parts cannot match the same text in several ways. The message shows the \
         expression.";
    "WF0115" NoOutbox "no_outbox" SETUP,
        "An EventRouter finds no valid outbox table",
        "No captured table that the EventRouter sees has the configured columns, or an outbox table lacks one of them.",
        "Correct the column names (`transforms.NAME.table.field.…`), or capture the outbox table.";
    "WF0116" TooManyTables "too_many_tables" SETUP,
        "Too many tables are captured",
        "`guardrail.collections.max` limits how many tables the connector may capture, and more tables match the filters.",
        "Capture fewer tables, raise the limit, or set `guardrail.collections.limit.action=warn`.";
    "WF0117" SchemaRefused "schema_refused" SETUP,
        "A table cannot be given a valid schema",
        "The columns of the table cannot become fields of a record, for example because two columns would get the same \
         field name.",
        "Rename a column, exclude it with `column.exclude.list`, or change `field.name.adjustment.mode`.";
    "WF0118" WeakerGuarantee "weaker_guarantee" None,
        "A setting weakens Walferry's guarantees",
        "Walferry honours the setting. Because of it, records may be lost or repeated that otherwise would not be, for \
         example with `acks=1`.",
        "Remove the setting, unless you want this behaviour.";
    "WF0119" OverrideDenied "override_denied" SETUP,
        "The worker does not allow this override",
        "The worker's `connector.client.config.override.policy` does not allow connectors to set this property of the \
         Kafka client.",
        "Remove the property from the connector, or change the worker's policy.";
    "WF0120" FileNotAllowed "file_not_allowed" SETUP,
        "A configuration names a file that it may not name",
        "A configuration from the REST API or from Kafka's topics names a file to read, to write or to run. Whoever wrote it may not have \
         the rights of the user that Walferry runs as. So the worker decides which files such a configuration may name, and they must be \
         regular files.",
        "Use a file in a folder that the worker allows (`walferry.rest.file.paths`, `walferry.rest.signal.paths`), or let the operator add \
         the folder. A connector of a `--config` file may name any file.";
    "WF0201" Unreachable "unreachable" GAVE_UP,
        "Postgres cannot be reached",
        "The host name cannot be resolved, nothing answers at the address, or the answer is not from a Postgres server. \
         Walferry retries until the server answers.",
        "Check that the server is running and listening, that no firewall blocks the connection, and that \
         `database.hostname` and `database.port` are correct.";
    "WF0202" Tls "tls" SETUP,
        "The TLS connection to Postgres fails",
        "The certificates, keys or TLS versions do not match, the server does not offer TLS, or a file cannot be read. If \
         the network interrupts the handshake, Walferry retries.",
        "Compare the server's certificate with `database.sslrootcert` and `database.sslmode`, and check the files that the \
         `database.ssl…` properties name.";
    "WF0203" Authentication "authentication" SETUP,
        "Postgres rejects the user or the password",
        "The password is wrong or missing, or the server requires an authentication method that cannot be used here.",
        "Check `database.user`, `database.password` and the server's `pg_hba.conf`.";
    "WF0204" AccessRefused "access_refused" SETUP,
        "Postgres does not allow this login",
        "No line in the server's `pg_hba.conf` allows this combination of user, database, client address and connection \
         type, or the role is not allowed to log in.",
        "Add a line to `pg_hba.conf` and run `SELECT pg_reload_conf()`, or give the role the attribute LOGIN.";
    "WF0205" DatabaseMissing "database_missing" SETUP,
        "The database does not exist",
        "The server has no database with the name in `database.dbname`.",
        "Correct `database.dbname`.";
    "WF0206" PrivilegeMissing "privilege_missing" SETUP,
        "A privilege is missing in Postgres",
        "The role lacks a privilege that the connector needs: to use replication, to read a table, or to create the \
         publication.",
        "Ask a superuser or the owner to run the statement in the hint.";
    "WF0207" TooManyConnections "too_many_connections" GAVE_UP,
        "The server accepts no more connections",
        "All connections that `max_connections` or `max_wal_senders` allows are in use. Walferry retries.",
        "Close connections that are not needed, or raise the limit.";
    "WF0208" ServerNotReady "server_not_ready" GAVE_UP,
        "The server is starting or shutting down",
        "Postgres accepts no connections at the moment. Walferry retries.",
        "Wait. If this does not end, read the server's log.";
    "WF0209" Timeout "timeout" GAVE_UP,
        "Postgres took too long",
        "A statement was cancelled by a time limit, or the server waited too long for something, such as a lock. Walferry \
         retries.",
        "End long transactions and sessions that hold locks, as the hint says, or raise the limit.";
    "WF0210" ConnectionLost "connection_lost" GAVE_UP,
        "The connection to Postgres was lost",
        "The server or something between Walferry and the server has closed the connection. Walferry reconnects and \
         continues from the stored offset. Nothing is lost.",
        "If this happens rarely, you need not do anything. Otherwise check the server's log and the network.";
    "WF0211" Silent "silent" GAVE_UP,
        "Postgres does not respond",
        "The connection is open, but nothing has arrived on it for a long time. Walferry reconnects.",
        "Check whether the server is stopped or overloaded, and whether a firewall drops idle connections.";
    "WF0212" Protocol "protocol" GAVE_UP,
        "Unexpected answer from the server",
        "An answer does not follow the Postgres protocol. Something between Walferry and the server may not be Postgres, \
         such as a connection pooler. Walferry retries.",
        "Connect directly to the server, not through a pooler. If you already do, please report this.";
    "WF0213" ServerError "server_error" SETUP,
        "Postgres rejected a statement",
        "The server answered a statement with an error. The message contains the server's error message and its SQLSTATE. \
         Walferry retries if the error may be temporary.",
        "Look up the SQLSTATE in the Postgres documentation, and read the server's log.";
    "WF0214" ServerVersion "server_version" SETUP,
        "The server is too old",
        "Walferry needs Postgres 12 or later.",
        "Upgrade the server to Postgres 12 or later.";
    "WF0215" WalLevel "wal_level" SETUP,
        "The server's WAL level is too low for logical replication",
        "The server's `wal_level` is not `logical`, so its WAL does not contain the rows.",
        "Run `ALTER SYSTEM SET wal_level = 'logical'` and restart the server. Managed services have their own setting for \
         this.";
    "WF0216" Standby "standby" GAVE_UP,
        "This standby cannot decode WAL",
        "A standby can decode WAL only since Postgres 16. Walferry waits, because the standby may be promoted.",
        "Connect to the primary, or upgrade both servers to Postgres 16.";
    "WF0217" StandbyBehind "standby_behind" GAVE_UP,
        "The standby has not received what was already read",
        "The server is a standby, and its WAL ends before the position that was already read. Walferry waits until the \
         standby has caught up.",
        "Wait, or connect to the primary.";
    "WF0218" TimescaleMissing "timescaledb_missing" SETUP,
        "The database does not have TimescaleDB",
        "The transform TimescaleDb reads TimescaleDB's catalog, but the extension is not installed in this database.",
        "Create the extension in this database, correct `database.dbname`, or remove the transform.";
    "WF0219" HeartbeatQuery "heartbeat_query" None,
        "The heartbeat query failed",
        "The server rejected the statement in `heartbeat.action.query`, or could not be reached. The statement runs again \
         with the next heartbeat. Until it works, the page and `/ready` show the connector with a note. `walferry check` runs \
         the statement once in a transaction that it rolls back.",
        "Correct the statement, or grant the role the privileges that the statement needs.";
    "WF0220" SelectOverride "select_override" SETUP,
        "The server rejects a SELECT statement of the snapshot",
        "The server rejects a statement in `snapshot.select.statement.overrides`.",
        "Correct the statement for the table named in the message.";
    "WF0221" TableChanged "table_changed" GAVE_UP,
        "A table changed after the snapshot was planned",
        "The table was dropped or altered after the snapshot had listed it and before it was read. Walferry starts again \
         with a new plan.",
        "You need not do anything. Avoid altering tables repeatedly while a snapshot is running.";
    "WF0222" SnapshotGone "snapshot_gone" GAVE_UP,
        "The exported snapshot no longer exists",
        "The connection that held the snapshot was lost while tables were being read. Walferry continues with a new \
         snapshot.",
        "You need not do anything, unless it happens repeatedly. Then check the network and the server's time limits for \
         transactions.";
    "WF0223" ServerSetup "setup" SETUP,
        "The server is not set up for the connector",
        "The state of the server prevents the connector from working.",
        "Follow the hints. Each one names a statement or a setting.";
    "WF0224" WalKept "wal_kept" None,
        "Nothing limits the WAL that a slot retains",
        "While the connector is stopped, the server keeps all new WAL for it, so its disk may fill up.",
        "Set `max_slot_wal_keep_size`, and monitor the lag of the slot.";
    "WF0225" ReplicaIdentity "replica_identity" None,
        "The replica identity of a table does not match the configuration",
        "Updates and deletes of the table do not contain the columns that the configuration needs, or \
         `replica.identity.autoset.values` could not be applied.",
        "Run the statement `ALTER TABLE … REPLICA IDENTITY …` from the message, or give the table a primary key.";
    "WF0226" NoCapturedTables "no_captured_tables" None,
        "No table is captured",
        "No table in the database matches the filters. The connector runs, but has nothing to send until such a table is \
         created.",
        "Compare `table.include.list` and `schema.include.list` with the tables in the database. Patterns match \
         SCHEMA.TABLE.";
    "WF0227" NoSuchColumn "no_such_column" None,
        "A column expression matches no column",
        "A property that masks, truncates, includes or excludes columns has an expression that matches no column of the \
         captured tables. It has no effect.",
        "Compare the expression with the column names. An expression must match the whole of SCHEMA.TABLE.COLUMN.";
    "WF0260" TablesNeverRead "tables_never_read" None,
        "A captured table was never read by a snapshot",
        "Walferry sends the changes of the table, but no snapshot has read its rows: because of `snapshot.mode`, or because the table \
         was added later. Rows that existed before, and have not been changed since, are not in the topic. This is not said of outbox \
         tables: to read one again would send all its events once more.",
        "If the tables had rows before, run the command of the hint once the connector runs: `walferry snapshot NAME --table SCHEMA.TABLE`. \
         `--table` can be given several times. If the process listens elsewhere than at 127.0.0.1:8083, add `--admin` or `--url`.";
    "WF0301" SlotInUse "slot_in_use" GAVE_UP,
        "The replication slot is in use by another process",
        "Only one process can read a slot at a time. Often the slot is still held by the walsender of a connection that \
         was just lost, which ends soon, or by another connector with the same `slot.name`. Walferry retries.",
        "If this does not end, stop the process that the message names, or give this connector its own `slot.name`.";
    "WF0302" SlotLost "slot_lost" SETUP,
        "The replication slot has lost changes that were not read yet",
        "The slot no longer exists, or the server has removed WAL that the slot needs. Changes after the stored offset \
         cannot be read.",
        "Read all rows again: `snapshot.mode=when_needed` does this automatically. To prevent this in future, raise \
         `max_slot_wal_keep_size`.";
    "WF0303" SlotMismatch "slot_mismatch" SETUP,
        "The replication slot cannot be used by this connector",
        "The slot belongs to another database, uses another plugin than pgoutput, is a physical slot, or is a synchronized \
         copy on a standby that cannot be read.",
        "Set `slot.name` to another name, or drop the slot if it is no longer needed.";
    "WF0304" NoFreeSlot "no_free_slot" SETUP,
        "All replication slots of the server are in use",
        "The connector must create its slot, but the server already has as many slots as `max_replication_slots` allows.",
        "Drop a slot that is no longer needed, or raise `max_replication_slots` and restart the server.";
    "WF0305" SlotWaits "slot_waits" GAVE_UP,
        "Creating the slot waits for older transactions",
        "Postgres can create a slot only after all transactions that were already running have ended. Walferry waits.",
        "End the transactions that the message lists.";
    "WF0306" SlotNotThereYet "slot_not_there_yet" GAVE_UP,
        "The slot does not exist on the new primary yet",
        "The server was promoted, but the connector's slot does not exist on it. Walferry waits. It never creates a new \
         slot by itself here, because changes would be missing.",
        "Let your failover tool create the slot on the new primary, or start again with a snapshot, as the hint says.";
    "WF0307" StreamOption "stream_option" SETUP,
        "The server does not support an option of the stream",
        "`slot.stream.params` contains an option that the server's version of pgoutput does not support.",
        "Remove the option from `slot.stream.params`, or correct it.";
    "WF0308" Publication "publication" SETUP,
        "The publication does not match the configuration",
        "The publication covers all tables although only the captured tables are wanted, or no table matches the filters.",
        "Change `publication.autocreate.mode` or `table.include.list`, or drop the publication so that it is created \
         again.";
    "WF0309" PublicationGap "publication_gap" GAVE_UP,
        "The server cannot send changes that were written without the publication",
        "Postgres decodes WAL with the catalog as it was when the WAL was written. So it can never send changes that were \
         written while the publication did not exist. Walferry waits for your decision, and confirms nothing beyond the \
         gap.",
        "Create the publication, and use `walferry offsets skip-gap` to decide what happens to the missing changes.";
    "WF0310" PublicationMissing "publication_missing" SETUP,
        "The publication does not exist",
        "The connector reads through a publication, but the server has no publication with this name. At the first start, \
         this is a setup error. Later it is a gap, and Walferry waits there.",
        "Create the publication with the statement in the hint, or set `publication.autocreate.mode`.";
    "WF0311" PublicationChanged "publication_changed" GAVE_UP,
        "The publication was changed, so captured rows may be missing",
        "For a while the publication did not send all captured rows, because somebody had changed it. Walferry waits for \
         your decision.",
        "Correct the publication, and use `walferry offsets skip-gap` to decide what happens to the rows that may be \
         missing.";
    "WF0312" OtherServer "other_server" SETUP,
        "The stored offset belongs to another server",
        "WAL positions of one server mean nothing on another. The system identifier of this server differs from that of \
         the server that was read before.",
        "Set `database.hostname` to the correct server. To read a new server, use another `--data-dir`, or remove the \
         offset with `walferry offsets reset` (in Connect's topics: DELETE /connectors/NAME/offsets).";
    "WF0313" AnotherHistory "another_history" SETUP,
        "The server's history differs from the one that was read",
        "The server was restored or promoted, and does not have some of the transactions that were delivered.",
        "If this is the wrong server, connect to the right one; nothing else is needed. Otherwise read all rows again, or \
         accept this server with `walferry offsets accept-history`. `docs/how-to/failover.md` says how if the offset is in \
         Connect's topics.";
    "WF0314" OffsetBeyondServer "offset_beyond_server" SETUP,
        "The stored offset is beyond the end of the server's WAL",
        "The server was restored from a backup, or is a different server. It does not have everything that was delivered.",
        "If this is the wrong server, connect to the right one; nothing else is needed. Otherwise read all rows again, or \
         accept this server with `walferry offsets accept-history`. `docs/how-to/failover.md` says how if the offset is in \
         Connect's topics.";
    "WF0315" SlotAheadOfOffset "slot_ahead_of_offset" SETUP,
        "The slot is ahead of the stored offset",
        "Something other than this connector has advanced the slot. Changes between the offset and the slot may be missing \
         from the topics.",
        "Take a new snapshot, or accept the gap with `offset.mismatch.strategy=trust_slot`. If it is logged as a retry, another worker has \
         delivered meanwhile, exactly once: nothing need be done.";
    "WF0316" TimelineChanged "timeline_changed" GAVE_UP,
        "The server was promoted",
        "The server is on a different timeline than before. Walferry starts a new session and compares the stored offset \
         with the new timeline.",
        "You need not do anything.";
    "WF0317" SlotMode "slot_mode" None,
        "A setting of the slot has side effects",
        "A setting such as `slot.drop.on.stop`, or a flush mode that does not move the slot, changes how much WAL the \
         server keeps.",
        "Read the message. Change the setting, unless you want this behaviour.";
    "WF0318" SlotStillRead "slot_still_read" SETUP,
        "The replication slot cannot be dropped, because it is in use",
        "The slot must be dropped and created again, but another process is reading it.",
        "Stop the process that reads the slot, then drop the slot with the statement in the hint.";
    "WF0319" SlotStillThere "slot_still_there" None,
        "The slot created by a failed start could not be dropped",
        "The first start of the connector created the slot and then failed. Until the slot is read or dropped, the server \
         keeps WAL for it.",
        "Start the connector again, or drop the slot with the statement in the hint.";
    "WF0320" PublicationIncomplete "publication_incomplete" None,
        "The publication does not send all that is captured",
        "Some tables match the filters but are not in the publication, or the publication does not publish an operation that the connector \
         captures, so these changes are not sent. A note with this code names the row filter or column list of a table.",
        "Run the statement in the hint, or narrow the connector: `table.include.list`, `skipped.operations`.";
    "WF0321" SignalTableNotPublished "signal_table_not_published" SETUP,
        "The stream does not bring the rows of the signal table",
        "Signals and the windows of incremental snapshots arrive through the replication stream. The table of `signal.data.collection` does not \
         exist, or the publication does not include it, or the publication leaves out inserted rows, some rows or some columns of it.",
        "Run the statement in the hint, or remove `source` from `signal.enabled.channels`. Streaming continues meanwhile.";
    "WF0322" PublicationUncertain "publication_uncertain" None,
        "Nobody can tell whether the publication has left out changes",
        "The publication differs from the last look in a way that may or may not have left out changes of captured tables. The message shows it \
         before and now. Streaming continues. The how-to page \"When the publication was gone\" lists these differences.",
        "Nothing, if whoever altered the publication left nothing out. Otherwise read the rows again: `walferry snapshot NAME --table \
         SCHEMA.TABLE`. To stop at such a difference, set `walferry.publication.uncertain=gap`.";
    "WF0323" TwoServers "two_servers" GAVE_UP,
        "The address leads to two servers",
        "Walferry opens several connections to the server. Two of them have reached servers that were started at different times: \
         a proxy has moved from one server to another, or spreads connections over several, or the server was restarted in between. What one \
         server says of its slot does not hold for the other. Walferry retries.",
        "If this does not end, let `database.hostname` and `database.port` lead to one server, the primary.";
    "WF0324" SlotWithoutOffset "slot_without_offset" None,
        "The slot exists, but no offset is stored for it",
        "Somebody has created the slot before the first start, or the connector has run before and its offset is elsewhere: in another data \
         directory, or in the topics of another worker. A start takes the slot as it is: it reads all rows again, if `snapshot.mode` asks for \
         rows at a first start, and then the changes that the slot has.",
        "If the connector has run before, give the `--data-dir` or the worker's configuration that it had. If this is its first start, nothing \
         has to be done.";
    "WF0325" ConnectorRunsElsewhere "connector_runs_elsewhere" STATE,
        "Another Walferry process runs this connector",
        "Another Walferry process reads the slot, and it is alive: the server hears from it. Offsets are in files, so nothing would tell this \
         process when the other one has ended, and what it has stored. Before that, this process has retried for `slot.max.retries` times \
         `slot.retry.delay.ms`, a minute by default.",
        "If the connector is meant to run once, stop one of the two processes. If a second process is to take over when the first one ends, keep \
         offsets in Connect's topics: start both with the same worker file, `walferry run --worker FILE`, which names `group.id`, \
         `config.storage.topic`, `offset.storage.topic` and `status.storage.topic`.";
    "WF0401" RecordFailed "record_failed" RECORD,
        "A record cannot be sent",
        "A change could not be turned into a record. The message names the table and the position. Walferry sends nothing \
         after this record until you decide.",
        "Correct what the message names. Or set `errors.tolerance=all` to set such records aside, and \
         `errors.deadletterqueue.topic.name` to keep them. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0402" ChangeNotConverted "change_not_converted" RECORD,
        "A change cannot be turned into a record",
        "Debezium's schema cannot represent a column's value or the row: a value is out of range, or it does not match the \
         catalog.",
        "Follow the hint, which names the property that controls how such values are handled. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0403" TransformFailed "transform_failed" RECORD,
        "A transform cannot process a record",
        "The record does not have the structure that the transform expects. The message names the transform and the topic.",
        "Correct the options of the transform, or add a predicate so that the transform is not applied to such records. To go on without them, set \
         `errors.tolerance=all` and `errors.deadletterqueue.topic.name`: each is set aside with its reason, and the others are sent. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0404" NotWritten "not_written" RECORD,
        "A converter cannot serialize a record",
        "The converter of the key, the value or a header cannot serialize it.",
        "Use a converter that supports this kind of data, or change the record with a transform, as the hint says. To go on without such records, set \
         `errors.tolerance=all` and `errors.deadletterqueue.topic.name`: each is set aside with its reason, and the others are sent. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0405" MalformedMessage "malformed_message" RECORD,
        "A message of the stream cannot be decoded",
        "The bytes that arrived are not valid pgoutput. Nothing was skipped.",
        "Check whether something between Walferry and the server alters the data. Otherwise please report this.";
    "WF0406" MalformedSnapshot "malformed_snapshot" RECORD,
        "A row of the snapshot cannot be decoded",
        "The bytes of a row, or the order of the messages, are not valid for a snapshot. Nothing was skipped.",
        "This is a bug. Please report it with the last lines of the log.";
    "WF0407" UnknownRelation "unknown_relation" GAVE_UP,
        "The stream has not described a table",
        "The server sent a change for a table without describing the table first. Walferry reconnects, and the server \
         describes all tables again.",
        "You need not do anything, unless it happens repeatedly. Then please report it.";
    "WF0408" DescriptionLost "description_lost" GAVE_UP,
        "The description of a table cannot be read from disk",
        "When there are very many tables, Walferry keeps their descriptions on disk. One of them could not be read. \
         Walferry reconnects.",
        "Check the disk of the data directory.";
    "WF0409" SchemaRegistry "schema_registry" GAVE_UP,
        "A record is waiting for the schema registry",
        "A converter needs the id of a schema, and the registry has not returned it yet. This record and all records after \
         it wait. Nothing is lost.",
        "Check the registry, its URL and the credentials, as the hint says.";
    "WF0410" Awaited "awaited" GAVE_UP,
        "A record is waiting for external data",
        "A record needs external data, such as a row of the database. This record and all records after it wait. Nothing \
         is lost.",
        "Check what the message names.";
    "WF0411" RegistryRefused "registry_refused" RECORD,
        "The schema registry rejects a schema",
        "The schema of the table is not compatible with the versions in the registry, or the registry does not have it and \
         Walferry is not allowed to register it.",
        "Change the table, relax the compatibility mode of the subject, or register the schema yourself.";
    "WF0412" ColumnLeftOut "column_left_out" None,
        "A column is missing from the records",
        "Debezium has no schema for the type of this column, so the records do not contain it.",
        "Set `include.unknown.datatypes=true` to get the column as bytes.";
    "WF0413" UnconvertedValue "unconverted_value" None,
        "A value could not be converted, so its field is empty",
        "`event.converting.failure.handling.mode` says that the field of such a value is left empty. The record is sent \
         without the value.",
        "Correct the value, or set the property to `fail` if no record may be sent without it.";
    "WF0414" ReselectFailed "reselect_failed" RECORD,
        "Columns of a row could not be read again",
        "A post-processor reads values that the stream left out. The server rejected the query, or the row no longer \
         exists.",
        "Follow the hint, or set `reselect.error.handling.mode=warn` to send such events unchanged.";
    "WF0415" RowNotReselected "row_not_reselected" None,
        "An event was sent without reading its columns again",
        "A post-processor could not read values that the stream left out. Because of `reselect.error.handling.mode=warn`, \
         the event was sent unchanged.",
        "The warning in the log says why. With `fail`, such an event stops the connector instead.";
    "WF0416" IncrementalSnapshotWaits "incremental_snapshot" None,
        "An incremental snapshot is waiting",
        "A chunk of a table could not be read. Walferry retries it, and streaming continues meanwhile.",
        "Follow the hint, or stop the snapshot with the signal `stop-snapshot`.";
    "WF0417" TableShape "table_shape" RECORD,
        "The columns of a captured table have changed",
        "`walferry.table.changes=stop` says that the connector stops before it sends the first record with the new columns. Everything \
         before that record was delivered.",
        "Check that the consumers can read records with the new columns, then restart the connector. It continues with them.";
    "WF0418" TableNotRead "table_not_read" SETUP,
        "A snapshot that was asked for could not read a table",
        "A signal or `walferry snapshot` asked for the rows of a table, and the table does not exist, is not captured, may not be read by the \
         connector's role, or is read with a condition that Postgres refuses. The other tables of the snapshot were read, and streaming goes \
         on, but existing rows of this table are missing from its topic. The page, `/ready`, `walferry_snapshot_tables_unread` and \
         `GET /connectors/NAME/snapshots` name the table until a later snapshot has read it or the connector is restarted.",
        "Follow the hint, then ask for the table again: `walferry snapshot NAME --table SCHEMA.TABLE --wait`.";
    "WF0501" KafkaUnreachable "kafka_unreachable" GAVE_UP,
        "No Kafka broker answers",
        "Walferry cannot reach any broker. Records wait and nothing is lost; Postgres keeps the WAL that has not been \
         read.",
        "Check that Kafka is running, that `bootstrap.servers` and the brokers' advertised listeners are reachable, and \
         that `security.protocol` matches the listener.";
    "WF0502" KafkaAuthentication "kafka_authentication" GAVE_UP,
        "Kafka rejects the login",
        "The brokers do not accept the user, the password or the token. Walferry retries.",
        "Correct `sasl.jaas.config` and `sasl.mechanism`, or the token endpoint.";
    "WF0503" KafkaTls "kafka_tls" GAVE_UP,
        "The TLS connection to Kafka fails",
        "The broker's certificate is not trusted or is for another host name, or the listener does not use TLS. Walferry \
         retries.",
        "Check `ssl.truststore.location`, the host name in `bootstrap.servers`, and `security.protocol`.";
    "WF0504" KafkaDenied "kafka_denied" SETUP,
        "The Kafka user lacks a permission",
        "The ACLs of the brokers do not allow the user to write to the topic, to use an idempotent producer, or to join the consumer \
         group of the Walferry processes that use the same topics of Connect.",
        "Grant the permission that the hint names, with `kafka-acls`.";
    "WF0505" KafkaUnsupported "kafka_unsupported" SETUP,
        "The broker does not support a setting of the producer",
        "The broker is too old for the compression type, for the idempotent producer, or for another setting.",
        "Change the `producer.override.…` property that the hint names, or upgrade the brokers.";
    "WF0506" KafkaSettings "kafka_settings" SETUP,
        "The Kafka client rejects its settings",
        "The Kafka client cannot use a property of the producer.",
        "Correct the `producer.override.…` properties of the connector and the `producer.…` properties of the worker.";
    "WF0507" KafkaProducer "kafka_producer" GAVE_UP,
        "The producer has lost its sequence",
        "The broker no longer knows the producer, or has fenced it. Walferry continues from the stored offset with a new \
         producer. Nothing is lost; some records may be sent twice.",
        "You need not do anything, unless it happens repeatedly. Then read the logs of the brokers.";
    "WF0508" KafkaDelivery "kafka_delivery" GAVE_UP,
        "A record was not delivered",
        "The broker or the client gave up on a record. Walferry continues from the stored offset with a new producer. \
         Nothing is lost; some records may be sent twice.",
        "If this happens repeatedly, read the logs of the brokers.";
    "WF0509" BatchTooLarge "batch_too_large" GAVE_UP,
        "A batch is larger than the topic accepts",
        "Each record is small enough, but the batch that contained them is not. From now on, Walferry sends smaller \
         batches.",
        "Set `producer.override.batch.size` below the smallest `max.message.bytes` of the topics.";
    "WF0510" RecordTooLarge "record_too_large" RECORD,
        "A record is larger than Kafka accepts",
        "The record is larger than the topic's `max.message.bytes`, or than the producer's `max.request.size`.",
        "Raise both limits above the size of the record, or set such records aside with `errors.tolerance=all`. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0511" RecordRefused "record_refused" RECORD,
        "The broker rejects a record",
        "The record is not valid for its topic: a compacted topic does not accept records without a key, or the timestamp \
         is outside the allowed range. The other records of its batch are not at fault, and are sent again.",
        "Give the table a key, or change the settings of the topic, as the hint says. To pass over this one change alone, run \
         the `walferry offsets skip-record` command that the hint prints.";
    "WF0512" PartitionMissing "partition_missing" RECORD,
        "A record is assigned to a partition that does not exist",
        "A transform or a setting assigned the record to a partition that the topic does not have.",
        "Add partitions to the topic, or correct the transform or setting that assigns the partition.";
    "WF0513" TopicMissing "topic_missing" GAVE_UP,
        "A topic does not exist",
        "Nothing creates the topic: the brokers do not create it automatically, and the connector has no \
         `topic.creation.…` rule for it. Records wait.",
        "Create the topic, set `topic.creation.default.partitions` and `topic.creation.default.replication.factor`, or \
         enable automatic creation on the brokers.";
    "WF0514" TopicNotCreated "topic_not_created" SETUP,
        "A topic could not be created",
        "The brokers refuse to create the topic with the settings of `topic.creation.…`.",
        "Correct `topic.creation.…`, grant the permission Create, or create the topic yourself.";
    "WF0515" TopicInvalid "topic_invalid" RECORD,
        "Invalid topic name",
        "A transform or the naming strategy produced a topic name that Kafka does not allow.",
        "Correct the transform or strategy. A topic name has at most 249 characters: letters, digits, dots, underscores \
         and hyphens.";
    "WF0516" DeadLetter "dead_letter" RECORD,
        "A record could not be sent to the dead-letter topic",
        "A record was to be set aside, but the dead-letter topic does not accept it.",
        "Check the dead-letter topic and its limits.";
    "WF0517" KafkaDoubtful "kafka_doubtful" None,
        "A setting of Kafka or of a topic may cause trouble",
        "`walferry check` examined the brokers and the topics. It found something that works now but may cause trouble \
         later.",
        "Read the message. If you agree, run the command in the hint.";
    "WF0518" SignalsUnread "signals" None,
        "Signals cannot be read from Kafka",
        "The topic of `signal.kafka.topic` cannot be read. Signals from other channels and streaming continue, and \
         Walferry retries the topic.",
        "Check that the topic exists, and that `signal.kafka.bootstrap.servers` and `signal.consumer.*` are correct.";
    "WF0519" ConnectTopic "connect_topic" SETUP,
        "One of Connect's topics cannot be used",
        "A worker keeps its connectors, offsets and states in the topics that `config.storage.topic`, \
         `offset.storage.topic` and `status.storage.topic` name. One of them cannot be created, read or written, or its \
         settings would lose data.",
        "Correct the topic as the hint says. Each of these topics must be compacted, and the configuration topic must have \
         one partition.";
    "WF0520" ConnectRuns "connect_runs" SETUP,
        "Kafka Connect is still using the topics",
        "Workers of Kafka Connect are members of the group that uses these topics. If both ran, two processes would write \
         offsets for the same connector.",
        "Stop the Kafka Connect workers first, or take single connectors with `walferry run --take NAME`. To run beside them \
         with connectors of your own, keep the state in files with `--data-dir`.";
    "WF0521" AwsCredentials "aws_credentials" GAVE_UP,
        "There are no AWS credentials for Amazon MSK",
        "The log-in to MSK with IAM needs a token, which is signed with AWS credentials. None were found, they have expired, or STS refuses the \
         role. Walferry retries; records wait, and Postgres keeps the WAL. While an older token is valid, records are still sent.",
        "Follow the hint. The credentials come from the environment, a web identity (IRSA), the profile, the container (ECS, EKS Pod Identity) or the EC2 \
         machine, in this order.";
    "WF0550" NotTaken "not_taken" SETUP,
        "A connector could not be taken over from Kafka Connect",
        "`walferry run --take` asks the REST API of a Kafka Connect cluster for a connector, stops it there and reads its \
         offset. One of these steps failed. If the connector was already stopped for this, Walferry resumed it there, unless \
         the message says otherwise.",
        "Do what the hint says, and start again.";
    "WF0601" DataDirLocked "data_dir_locked" STATE,
        "Another process uses the data directory",
        "Another process that runs this connector holds the lock of its folder. Two processes would overwrite each other's \
         offsets.",
        "Stop the other process, or use another `--data-dir` for this one.";
    "WF0602" OffsetDamaged "offset_damaged" STATE,
        "The offset file is damaged or from a newer version",
        "The file does not contain what was written to it, or has a format that this version cannot read. Walferry never \
         starts from the beginning because of this.",
        "Restore the file from a copy, run the newer version, or write a known position with `walferry offsets import`.";
    "WF0603" OffsetForeign "offset_foreign" STATE,
        "The offset file belongs to another connector",
        "The file was written for a connector with another `name` or `topic.prefix`.",
        "Change the names back, or use another `--data-dir`.";
    "WF0604" DiskFull "disk_full" STATE,
        "The disk of the data directory is full",
        "The offset cannot be written. A running connector continues and retries; the slot does not move meanwhile.",
        "Free some space on the file system that the message names.";
    "WF0605" NoDescriptors "no_descriptors" STATE,
        "The process cannot open more files",
        "The process uses all the file descriptors that it is allowed to have.",
        "Raise the limit of open files (`LimitNOFILE=` of a systemd unit, `ulimit -n` in a shell).";
    "WF0606" DataDirIo "data_dir_io" STATE,
        "The data directory cannot be read or written",
        "The operating system reports an error when Walferry reads or writes a file in the data directory.",
        "Correct the permissions, check the disk, or use another `--data-dir`.";
    "WF0607" OffsetImport "offset_import" SETUP,
        "The input is not an offset of this connector",
        "The input of `walferry offsets import` is not JSON as Kafka Connect writes it, or belongs to another connector.",
        "Use the answer of `GET /connectors/NAME/offsets`, or a line of Connect's offset topic.";
    "WF0608" OffsetUnchanged "offset_unchanged" SETUP,
        "The offset was not changed",
        "A command about offsets was refused, and nothing was changed: an offset already exists, no offset exists, or \
         there is no gap to skip.",
        "Follow the hint. `walferry offsets show` prints the stored offset.";
    "WF0609" BookDamaged "book_damaged" STATE,
        "The file of connectors is damaged",
        "This file in the data directory keeps the connectors that were created through the REST API. It does not contain \
         what was written to it.",
        "Restore it from a copy. To start without these connectors, move the file away.";
    "WF0610" TwoOffsets "two_offsets" STATE,
        "A connector has an offset in a file and an older one in a topic",
        "The worker keeps offsets in Connect's topic, but the data directory has a newer offset for the same connector.",
        "Decide which offset to use, as the hint says.";
    "WF0701" NoThread "no_thread" GAVE_UP,
        "A thread could not be started",
        "The operating system does not allow the process more threads or memory.",
        "Raise the limit of threads (`ulimit -u`, or the container's limit of processes).";
    "WF0702" NoRuntime "no_runtime" SETUP,
        "The runtime could not be started",
        "The process could not create the file descriptors that it needs to wait for sockets and timers.",
        "Raise the limit of open files (`ulimit -n`).";
    "WF0703" Panic "panic" GAVE_UP,
        "Walferry has failed in an unexpected way",
        "A thread ended in the middle of its work. Everything that was not stored is read again.",
        "This is a bug. Please report it with the last lines of the log.";
    "WF0704" PipelineEnded "pipeline_ended" GAVE_UP,
        "The pipeline has ended",
        "The thread that makes records has ended, so nothing more can be read. Another line of the log says why.",
        "Find the error that was logged before this one.";
    "WF0705" AdminAddress "admin_address" SETUP,
        "The admin endpoint cannot listen on its address",
        "The port is in use, the address does not belong to this machine, or the address is invalid.",
        "Choose another address with `--admin` or `listeners`, or stop the process that uses the port.";
    "WF0706" Output "output" SETUP,
        "The output cannot be written",
        "Standard output was closed, or the disk it is written to is full.",
        "Check the program or file that receives the output.";
    "WF0707" CodeUnknown "code_unknown" SETUP,
        "Unknown code",
        "`walferry explain` accepts codes such as WF0301 and words such as slot_in_use.",
        "Run `walferry explain` without a code to list all codes.";
    "WF0708" ShowRecords "show_records" RECORD,
        "Records could not be shown",
        "`walferry check --show-records` could not make a record from a row of the table.",
        "Follow the hint. If a row could not be converted, a start of the connector would fail in the same way.";
    "WF0709" Demo "demo" SETUP,
        "The demo cannot start or continue",
        "The demo starts its own Postgres and Kafka, and one of its parts failed.",
        "Follow the hint. The demo needs the programs of a Postgres server on this machine, and a user other than root.";
    "WF0710" CheckRefused "check_refused" SETUP,
        "The connector would not start",
        "`walferry check` found problems that would prevent a start. Each one is listed on its own line with its own code.",
        "Correct the problems, and run `walferry check` again.";
    "WF0711" SignalNotGiven "signal_not_given" SETUP,
        "The signal was not accepted",
        "The running connector did not accept the signal, or its admin endpoint does not answer.",
        "Follow the hint. `GET /connectors` lists the running connectors.";
    "WF0712" TurnLost "turn_lost" STATE,
        "Another Walferry may be using Connect's topics now",
        "This process and the brokers have not heard from each other for more than 6 seconds, so another Walferry may have taken \
         over. The connectors of this process ended at once: it sends, stores and confirms nothing more for them. A process that is \
         being stopped at this moment ends with exit code 4, because it cannot store its last offset; the next one sends again what \
         was under way. Otherwise this does not end the process.",
        "You need not do anything: the process joins the other workers again. Find out what held it up: Kafka, the network, or a \
         machine without free processor time.";
    "WF0713" NothingToRun "nothing_to_run" SETUP,
        "There is nothing to run or to check",
        "Neither a connector nor a worker was given.",
        "Specify a connector with `--config FILE`, or a worker with `--worker FILE`.";
    "WF0714" NotOperated "not_operated" SETUP,
        "A command for a running process was not carried out",
        "A command such as `walferry pause` or `walferry apply` asked a running Walferry, or a worker of Kafka Connect, and it did not answer or refused \
         the request.",
        "Follow the hint. `walferry status` says whether the process answers, and `--url`, WALFERRY_URL or the file of contexts which process is asked.";
    "WF0718" WorkerFull "worker_full" None,
        "A worker has no room for a connector",
        "`walferry.worker.in.flight.max.bytes` limits what all connectors of the worker together may have in flight. With this connector, it would be more. The message has the limit and \
         the sum. The connector is UNASSIGNED, and the others are not touched.",
        "The connector starts by itself as soon as another one has ended or has moved to another worker. Start one more worker, set the limit in the worker file to more, or \
         `walferry.in.flight.max.bytes` of connectors to less.";
    "WF0775" OutboxWatch "outbox_watch" None,
        "Rows of an outbox cannot be counted",
        "`walferry.watch`, `walferry.partitions` or `walferry.retention.ms` is set, but the rows of the outbox that are not confirmed could not be counted. Events are delivered as \
         before. Until the rows can be counted, the metrics lack the number and age of these rows, or show the sizes of an earlier look.",
        "Follow the message. The connector's role needs the privilege SELECT on the table. Without an index that begins with the column in \
         `table.field.event.timestamp`, counting takes too long in a large table: create one. If a lock was not available, look in `pg_locks` for \
         a transaction that keeps one.";
    "WF0776" OutboxPartitions "outbox_partitions" None,
        "Partitions of an outbox cannot be created",
        "`walferry.partitions` is set, but the server refuses to create a partition, or cannot be asked while the stream goes on. Events are delivered as before. Rows for which there \
         is no partition go to the default partition, or their insert fails if there is none. Walferry tries again: after a refusal, each time after a longer pause; \
         if the server could not be asked, every 10 seconds. Each of these tries is counted; the same message is logged once.",
        "Follow the message. Only the owner of a table may create its partitions: make the connector's role a member of the owner's role, from Postgres 16 on \
         with `WITH SET TRUE`, and grant the owner CREATE on the schema. If a table already has the name of the partition, attach, rename or drop it. \
         If the default partition has rows of the time of a new partition, move them away first, and also if it is large: Postgres reads all of it \
         while inserts into it wait. If the table is in use, look for a long transaction. If the server could not be asked, it must accept one more connection of the \
         connector's role: look at `max_connections` and the role's connection limit.";
    "WF0780" NotHealthy "not_healthy" GAVE_UP,
        "The process that runs is not healthy",
        "`walferry health` has asked the admin endpoint. It does not answer, or, with `--ready`, a connector does not do its work.",
        "Follow the hint. If the endpoint does not answer, look whether the process runs and at its log. If a connector is not ready, the reason says what blocks it.";
    "WF0781" EventMismatch "event_mismatch" RECORD,
        "An event of an outbox does not match its schema",
        "`walferry.schemas.dir` is set, and the payload of an event does not match the JSON Schema of its type, is not JSON, cannot be checked, or has no schema. The message names \
         the event, the place in it as a JSON Pointer, and what the schema says there. It shows no values of the payload.",
        "Correct the schema and start again: the connector continues with this event. Or set `walferry.schemas.mismatch` (`walferry.schemas.missing` for a type \
         without a schema) to `dead-letter` or `warn`. Then correct the program that writes such events.";
    "WF0782" EventSchemas "event_schemas" SETUP,
        "The schemas of events cannot be used",
        "`walferry.schemas.dir` is set, but the folder or a file in it cannot be read, a file is no valid JSON Schema of draft 7, 2019-09 or 2020-12, or it refers to \
         a schema that is not in the folder.",
        "Follow the hint. `walferry check` tells all such problems without starting the connector.";
    "WF0786" Outbox "outbox" SETUP,
        "A command for outbox tables could not do its work",
        "`walferry outbox` could not create the table or find options for one: a name cannot be read, the table does not exist, or it does \
         not look like an outbox. Nothing was changed.",
        "Follow the hint. `walferry outbox create` without `--run` prints the SQL, so that you can run it yourself.";
    "WF0787" OutboxCleanup "outbox_cleanup" None,
        "Delivered rows cannot be removed from an outbox",
        "`walferry.retention.ms` is set, but the server refuses to remove rows, or cannot be asked. Events are delivered as before, and the table \
         grows. Other tables are cleaned as before. Walferry tries again.",
        "Follow the message. The connector's role needs the privileges SELECT and DELETE on the table, and the table needs a primary key or \
         another replica identity.";
    "WF0788" Replay "replay" SETUP,
        "Events cannot be sent again",
        "`walferry outbox replay` needs a connector with an EventRouter, a table with a primary key, and a selection of rows or of records. \
         One of these is missing or wrong, or the state file belongs to another replay.",
        "Follow the hint. Nothing was sent by this call, unless the message says how far it came.";
    "WF0789" Inbox "inbox" SETUP,
        "A command for inbox tables could not do its work",
        "`walferry inbox` could not create the table: a name cannot be read, the table exists, or the role may not create it. Nothing was changed.",
        "Follow the hint. `walferry inbox create` without `--run` prints the SQL, so that you can run it yourself.";
    "WF0790" PollerTable "poller_table" None,
        "A captured table looks like one that a poller reads",
        "The table has columns such as `status`, `published_at` or `attempts`, with which a program marks the rows that it has sent. If that \
         program goes on, each event is sent twice. A snapshot would send again what the program has sent.",
        "Follow docs/how-to/from-a-poller.md: it tells what will change, and how to switch without a gap.";
    "WF0795" RelayTable "relay_table" SETUP,
        "An outbox cannot be relayed",
        "The connector is in relay mode (`connector.class=walferry.OutboxRelay`), and the table lacks a column that is needed, or its columns cannot be told apart: the status has \
         other words, there is no order, or several tables match `table.include.list`.",
        "Follow the hint: it has the SQL that adds a column, or the property that names one. `walferry check` says what was recognised.";
    "WF0796" RelayLost "relay_lost" GAVE_UP,
        "Rows of an outbox were sent but could not be marked",
        "In relay mode, the transaction that holds the rows had ended before they were marked, or fewer rows were changed than were sent: a trigger, a rule or row-level security keeps them \
         from being changed. The rows are sent again.",
        "If it happens again and again, look at triggers, rules and row-level security of the table: the connector's role must be able to update or delete each row that it reads. If it \
         happens now and then, look for what ends transactions of the connector's role.";
    "WF0797" RelayLanes "relay_lanes" GAVE_UP,
        "Processes that relay the same outbox have different numbers of lanes",
        "In relay mode, a message key belongs to a lane by its hash, and a lane to one process at a time. With different numbers of lanes, two processes could send rows of one key at \
         the same time. So the process with more lanes waits until the other one has ended.",
        "Set `relay.lanes` to the same number in all processes that relay the table. While they are restarted one after another with a new number, this passes by itself.";
}
