//! `walferry init`: reads a database's catalog, then writes a connector's file and the SQL that prepares the database. It changes
//! nothing in the database.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use walferry_config::{Secret, connector::PostgresSection};
use walferry_diagnosis::{
    Kind,
    printed::{lines, shell_word},
};
use walferry_postgres::{
    TableName,
    survey::{self, DatabaseSurvey, NewOutbox, SetupRequest, SetupStep, Table},
};
use walferry_worker::{loaded::load_own_configuration, process};

use crate::{
    cli::InitArgs,
    commands::{
        endpoint,
        outbox::{ddl::OutboxDdl, names::Name},
        script::LONGEST_TABLE,
    },
    error::Error,
    say::say,
};

/// The environment variable from which the connector's file reads its password. It is not PGPASSWORD, because psql uses that for the
/// administrator.
const PASSWORD: &str = "CDC_PASSWORD";

/// How the address of a database is written. Written out in one piece, its user would be hidden as a secret.
const ADDRESS: &str =
    "write postgres://, then the user and an @, then HOST:5432/DATABASE: `walferry init --help` has an example";

/// Writes both files.
pub(crate) fn init(args: &InitArgs) -> Result<(), Error> {
    let address = Address::parse(&args.url).map_err(|what| refused(what, ADDRESS))?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => plain(&address.database),
    };
    if plain(&name) != name || name.len() > 63 {
        let hint =
            "use at most 63 of the characters a-z, 0-9 and _: the slot, the publication and the topics are named so";
        return Err(refused(format!("{name:?} cannot be the name"), hint));
    }
    let (connector, script) = (
        args.out.join(format!("{name}.json")),
        args.out.join(format!("{name}.sql")),
    );
    for file in [&connector, &script] {
        if file.exists() {
            let what = format!("{} exists already, and is not overwritten", file.display());
            return Err(refused(what, "move it away, or choose another name with --name"));
        }
    }
    if args.role.trim().is_empty() {
        return Err(refused(
            "--role is empty".to_owned(),
            "name the role that the connector is to log in with, or leave --role out to use walferry",
        ));
    }
    let section = address.section()?;
    let runtime = process::runtime().map_err(|failure| Error::failure("the database was not looked at", failure))?;
    let survey = runtime
        .block_on(survey::survey(&section, &args.role, &name))
        .map_err(|mut failure| {
            // The hint of others names properties, which nobody has written yet.
            for cause in failure
                .causes
                .iter_mut()
                .filter(|cause| cause.kind == Some(Kind::Authentication))
            {
                cause.hint = Some("check the user of the URL, and the password there or in PGPASSWORD".to_owned());
            }
            for cause in failure
                .causes
                .iter_mut()
                .filter(|cause| cause.hint.as_deref() == Some("check `database.dbname`"))
            {
                cause.hint = Some("correct the database at the end of the URL".to_owned());
            }
            Error::failure("the database could not be looked at", failure)
        })?;
    if survey.standby {
        return Err(refused(
            "the server is a standby".to_owned(),
            "connect to the primary: publications are created there",
        ));
    }
    for (exists, what) in [
        (survey.has_publication, "publication"),
        (survey.has_slot, "replication slot"),
    ] {
        if exists {
            return Err(refused(
                format!("a {what} {name:?} exists already"),
                "choose another name with --name",
            ));
        }
    }
    let wish = wish(args, &survey, &name)?;
    let file = file(&address, args, &name, &wish);
    // Write nothing that a start would refuse.
    check(&file)?;
    write(&script, &(header(&address, &script) + &survey::sql(&survey, &wish)))?;
    write(
        &connector,
        &format!("{}\n", lines(&serde_json::to_string_pretty(&file).unwrap_or_default())),
    )?;
    explain(args, &survey, &wish, &address, &connector, &script);
    Ok(())
}

fn refused(what: String, hint: impl Into<String>) -> Error {
    Error::new(Kind::Configuration, "no files were written").cause(what, Some(hint.into()))
}

/// A name for slot, publication and topics.
fn plain(text: &str) -> String {
    let lowercase = text.to_lowercase();
    let lowercase = lowercase.chars().map(|c| match c {
        'a'..='z' | '0'..='9' | '_' => c,
        _ => '_',
    });
    lowercase.collect()
}

/// A connection string, in its parts.
struct Address {
    user: String,
    password: Option<String>,
    host: String,
    port: u16,
    database: String,
    /// Properties of TLS.
    tls: Vec<(&'static str, String)>,
}

impl Address {
    /// Errors do not show the text, because it may contain a password.
    fn parse(text: &str) -> Result<Self, String> {
        let not = |what: &str| format!("the connection string {what}");
        let location = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let location = location.ok_or_else(|| not("does not begin with postgres://"))?;
        let (location, query) = location.split_once('?').unwrap_or((location, ""));
        let (authority, database) = location.split_once('/').ok_or_else(|| not("names no database"))?;
        let (login, host) = authority.rsplit_once('@').ok_or_else(|| not("names no user"))?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (
                user,
                Some(decoded(password).ok_or_else(|| not("has a wrong % in its password"))?),
            ),
            None => (login, None),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| not("has a port that is no number"))?)
            }
            _ => (host, 5432),
        };
        let user = decoded(user)
            .filter(|user| !user.is_empty())
            .ok_or_else(|| not("names no user"))?;
        let database = decoded(database)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| not("names no database"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', ',', '%']) {
            return Err(not("must name one host: sockets and lists of hosts cannot be used"));
        }
        let mut tls = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            let property = match option {
                "sslmode" => "database.sslmode",
                "sslrootcert" => "database.sslrootcert",
                "sslcert" => "database.sslcert",
                "sslkey" => "database.sslkey",
                _ => return Err(not("has an option other than sslmode, sslrootcert, sslcert and sslkey")),
            };
            tls.push((
                property,
                decoded(value).ok_or_else(|| not("has a wrong % in an option"))?,
            ));
        }
        Ok(Self {
            user,
            password,
            host: host.to_owned(),
            port,
            database,
            tls,
        })
    }

    /// The connection string without its password, for psql.
    fn without_password(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        format!(
            "postgres://{}@{host}:{}/{}",
            endpoint::encoded(&self.user),
            self.port,
            endpoint::encoded(&self.database)
        )
    }

    /// The properties that lead to the server.
    fn properties(&self, user: &str) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut set = |name: &str, value: &str| properties.insert(name.to_owned(), value.into());
        set("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        set("database.hostname", &self.host);
        set("database.port", &self.port.to_string());
        set("database.user", user);
        set("database.dbname", &self.database);
        for (name, value) in &self.tls {
            set(name, value);
        }
        properties
    }

    /// How this command connects to the server: as its caller.
    fn section(&self) -> Result<PostgresSection, Error> {
        let mut properties = self.properties(&self.user);
        properties.insert("topic.prefix".to_owned(), "init".into());
        properties.insert("plugin.name".to_owned(), "pgoutput".into());
        let mut section = read(&json!({ "name": "init", "config": properties }))?;
        section.password = self
            .password
            .clone()
            .or_else(|| env::var("PGPASSWORD").ok())
            .map(Secret::new);
        Ok(section)
    }
}

/// The server that a URL leads to, with the password of PGPASSWORD if the URL has none.
pub(crate) fn reached_by(url: &str) -> Result<PostgresSection, Error> {
    let address = Address::parse(url).map_err(|what| refused(what, ADDRESS))?;
    address.section()
}

/// A part of the connection string, percent-decoded.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(endpoint::decoded(text)?).ok()
}

/// Reads the configuration as a start would.
fn read(file: &Value) -> Result<PostgresSection, Error> {
    let properties = file["config"].as_object().into_iter().flatten();
    let properties: Vec<(String, String)> = properties
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let name = file["name"].as_str().unwrap_or_default();
    let (checked, findings) = load_own_configuration(name, &properties);
    checked
        .map(|checked| checked.connector.postgres)
        .ok_or_else(|| Error::new(Kind::Configuration, "no files were written").because(findings.problems().cloned()))
}

/// Checks the file that is to be written. Its password is not known here.
fn check(file: &Value) -> Result<(), Error> {
    let mut file = file.clone();
    file["config"]["database.password"] = "x".into();
    read(&file).map(drop)
}

/// What the user wants the connector to have.
fn wish(args: &InitArgs, survey: &DatabaseSurvey, name: &str) -> Result<SetupRequest, Error> {
    let named = |text: &String| survey.tables.iter().find(|table| table.dotted() == *text);
    let mut wish = SetupRequest {
        role: args.role.clone(),
        publication: name.to_owned(),
        tables: Vec::new(),
        reads_rows: args.outbox.is_none(),
        new_outbox: None,
        left_out: Vec::new(),
    };
    if let Some(outbox) = &args.outbox {
        match named(outbox) {
            Some(table) if table.lacks.is_empty() => wish.tables.push(table.clone()),
            Some(table) => {
                let what = format!("{outbox} is there, and has no column {}", table.lacks.join(" and no "));
                let hint = "add the columns, or name another table; docs/how-to/outbox.md says how to use other names of columns";
                return Err(refused(what, hint));
            }
            None => {
                let (schema, name) = outbox
                    .split_once('.')
                    .ok_or_else(|| refused(format!("--outbox is {outbox:?}"), "write SCHEMA.TABLE"))?;
                wish.new_outbox = Some(new_outbox(schema, name)?);
            }
        }
        return Ok(wish);
    }
    if args.table.is_empty() {
        (wish.tables, wish.left_out) = survey.tables.iter().cloned().partition(Table::is_identified);
        if wish.tables.is_empty() {
            let hint = "create a table, name some with --table SCHEMA.TABLE, or have an outbox created with --outbox";
            return Err(refused("the database has no table with a primary key".to_owned(), hint));
        }
        return Ok(wish);
    }
    for text in &args.table {
        let table = named(text).ok_or_else(|| {
            let known: Vec<String> = survey.tables.iter().take(10).map(Table::printable).collect();
            let hint = format!("write it in the same case as one of these: {}", known.join(", "));
            refused(format!("--table is {text:?}, and the database has no such table"), hint)
        })?;
        wish.tables.push(table.clone());
    }
    Ok(wish)
}

/// The table that `walferry outbox create` makes.
fn new_outbox(schema: &str, name: &str) -> Result<NewOutbox, Error> {
    let ddl = OutboxDdl {
        table: Name {
            schema: schema.to_owned(),
            table: name.to_owned(),
        },
        partition: None,
        writers: Vec::new(),
        reader: None,
        publication: String::new(),
    };
    if let Some(name) = ddl.unusable_name() {
        let what = format!("the name {name:?} has control characters or $walferry$ in it");
        return Err(refused(what, "choose another name"));
    }
    if name.len() > LONGEST_TABLE {
        let what = format!("the name of the outbox has more than {LONGEST_TABLE} bytes");
        return Err(refused(
            what,
            "choose a shorter name: that of its index begins with it, and has at most 63 bytes",
        ));
    }
    let mut steps: Vec<SetupStep> = ddl
        .table_statements()
        .into_iter()
        .map(|statement| SetupStep {
            why: statement.why.join("\n"),
            statements: vec![statement.sql.trim_end_matches(';').to_owned()],
        })
        .collect();
    steps.extend(ddl.grant_to_writers().map(|lines| SetupStep {
        why: lines.join("\n"),
        statements: Vec::new(),
    }));
    Ok(NewOutbox {
        table: TableName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        },
        steps,
    })
}

/// The connector's file.
fn file(address: &Address, args: &InitArgs, name: &str, wish: &SetupRequest) -> Value {
    let json = "org.apache.kafka.connect.json.JsonConverter";
    let text = "org.apache.kafka.connect.storage.StringConverter";
    let mut config = address.properties(&args.role);
    let mut set = |name: &str, value: &str| config.insert(name.to_owned(), value.into());
    set("database.password", &format!("${{env:{PASSWORD}}}"));
    set("plugin.name", "pgoutput");
    set("slot.name", name);
    set("publication.name", name);
    set("publication.autocreate.mode", "disabled");
    set("topic.prefix", name);
    let outbox = wish
        .new_outbox
        .iter()
        .map(|outbox| (&outbox.table.schema, &outbox.table.name));
    let tables = wish
        .tables
        .iter()
        .map(|table| (&table.schema, &table.name))
        .chain(outbox);
    let tables: Vec<String> = tables
        .map(|(schema, name)| format!("{}\\.{}", expression(schema), expression(name)))
        .collect();
    set("table.include.list", &tables.join(","));
    if args.outbox.is_some() {
        set("snapshot.mode", "no_data");
        set("key.converter", text);
        set("value.converter", text);
        set("transforms", "outbox");
        set("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter");
        // An outbox that exists may lack what the options name.
        let has = |option: &str| match (wish.tables.first(), option) {
            (Some(table), "table.field.event.timestamp") => table.has_created_at,
            (Some(table), "walferry.headers.from") => table.has_headers,
            _ => true,
        };
        for (option, value) in OutboxDdl::options().into_iter().filter(|(option, _)| has(option)) {
            set(&format!("transforms.outbox.{option}"), value);
        }
    } else {
        set("snapshot.mode", "initial");
        // Debezium's default is bytes, which nobody can read without the schema that is left out below.
        set("decimal.handling.mode", "string");
        for side in ["key", "value"] {
            set(&format!("{side}.converter"), json);
            set(&format!("{side}.converter.schemas.enable"), "false");
        }
    }
    json!({ "name": name, "config": config })
}

/// A regular expression that matches only this name. Commas are escaped, because they separate expressions.
fn expression(name: &str) -> String {
    let characters = name.chars().map(|c| match c {
        ',' => "\\x2c".to_owned(),
        c if c.is_alphanumeric() || c == '_' || c == ' ' => c.to_string(),
        c => format!("\\{c}"),
    });
    characters.collect()
}

fn header(address: &Address, script: &Path) -> String {
    format!(
        "-- Written by `walferry init`. Read it, then run it once, as a superuser or as the owner of the tables who may create roles:\n\
         --   {}\n\n",
        psql(address, script)
    )
}

/// The command that runs the SQL.
fn psql(address: &Address, script: &Path) -> String {
    format!(
        "psql {} -v ON_ERROR_STOP=1 -v password=\"${PASSWORD}\" -f {}",
        quoted(&address.without_password()),
        path(script)
    )
}

/// In quotes even where the shell needs none, as people write connection strings.
fn quoted(url: &str) -> String {
    match shell_word(url) {
        word if word == url => format!("'{word}'"),
        word => word,
    }
}

/// A path as a word of a command.
fn path(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// Writes a new file, in a folder that is made if it does not exist.
fn write(path: &PathBuf, text: &str) -> Result<(), Error> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let file = folder.and_then(|()| fs::File::options().write(true).create_new(true).open(path));
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            Error::new(Kind::FileUnusable, format!("{} cannot be written", path.display()))
                .cause(error.to_string(), Some("choose another folder with --out".to_owned()))
        })
}

fn explain(
    args: &InitArgs,
    survey: &DatabaseSurvey,
    wish: &SetupRequest,
    address: &Address,
    connector: &Path,
    script: &Path,
) {
    say!(
        "looked at database {:?}, Postgres {}; nothing was changed there",
        address.database,
        survey.version / 10_000
    );
    match &wish.new_outbox {
        Some(outbox) => say!(
            "  new      table {}.{}, an outbox for events",
            outbox.table.schema,
            outbox.table.name
        ),
        None => {
            for table in wish.tables.iter().take(10) {
                match table.rows {
                    Some(rows) => say!("  table    {}, about {rows} rows", table.dotted()),
                    None => say!("  table    {}", table.dotted()),
                }
            }
            if let Some(more @ 1..) = wish.tables.len().checked_sub(10) {
                say!("  table    … and {more} more");
            }
        }
    }
    for table in &wish.left_out {
        say!("  left out {}: it has no primary key", table.dotted());
    }
    if survey.wal_level != "logical" {
        say!(
            "  caution  wal_level is {:?}: the server needs a restart after the SQL",
            survey.wal_level
        );
        if args.outbox.is_some() {
            say!("           relay mode needs neither that nor a slot: see `walferry outbox create --relay`");
        }
    }
    let outboxes = survey
        .tables
        .iter()
        .filter(|table| table.lacks.is_empty() && args.outbox.is_none());
    for table in outboxes {
        say!(
            "  note     {} looks like an outbox: with `--outbox={}`, its events are sent instead of its rows",
            table.printable(),
            shell_word(&table.dotted())
        );
    }
    say!(
        "written  {}: the role, the privileges and the publication, explained",
        script.display()
    );
    say!("written  {}: the connector", connector.display());
    say!("next");
    say!(
        "  export {PASSWORD}=…          # a password of your choice, for role {:?}",
        args.role
    );
    say!("  {}", psql(address, script));
    say!(
        "  walferry tail  --config {}     # shows changes, without Kafka",
        path(connector)
    );
    say!(
        "  walferry check --config {} --bootstrap-servers HOST:9092 --data-dir ./state",
        path(connector)
    );
    say!(
        "  walferry run   --config {} --bootstrap-servers HOST:9092 --data-dir ./state",
        path(connector)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_is_taken_apart_and_shown_without_its_password() {
        let address = Address::parse(
            "postgres://app%40x:s3%3Acret@[::1]:5433/My%20shop?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        )
        .unwrap();
        assert_eq!(
            (address.user.as_str(), address.password.as_deref()),
            ("app@x", Some("s3:cret"))
        );
        assert_eq!(
            (address.host.as_str(), address.port, address.database.as_str()),
            ("::1", 5433, "My shop")
        );
        assert_eq!(address.tls[0], ("database.sslmode", "verify-full".to_owned()));
        assert_eq!(address.without_password(), "postgres://app%40x@[::1]:5433/My%20shop");
        assert_eq!(
            Address::parse("postgresql://u@h/d").map(|address| address.port).ok(),
            Some(5432)
        );
        for text in [
            "host=h password=hunter2",
            "postgres://u:hunter2@h",
            "postgres://u:hunter2@h:x/d",
            "postgres://u:hunter2%4@h/d",
            "postgres://u:hunter2@h1,h2/d",
            "postgres://u:hunter2@h/d?options=hunter2",
            "postgres://hunter2/d",
        ] {
            let what = Address::parse(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(!what.contains("hunter2"), "{what}");
        }
    }

    #[test]
    fn names_become_expressions_that_match_them_alone() {
        assert_eq!(expression("orders_2"), "orders_2");
        assert_eq!(expression("a.b,c$"), "a\\.b\\x2cc\\$");
        assert_eq!(plain("My-Shop"), "my_shop");
    }
}
