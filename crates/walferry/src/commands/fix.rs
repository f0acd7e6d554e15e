//! `walferry check --fix`: prints the SQL that mends what was found, and runs it after confirmation.
//!
//! Statements that need a superuser never run with `--yes`. Statements that need a restart of the server never run at all.

use std::{
    env,
    io::{self, BufRead, IsTerminal},
};

use walferry_config::{Secret, connector::PostgresSection};
use walferry_diagnosis::{Diagnosis, Fix, Kind, Needs};
use walferry_engine::Failure;
use walferry_postgres::connection::{Endpoint, Purpose};
use walferry_worker::{loaded::Loaded, process};

use crate::{cli::CheckArgs, commands::check::fixable, error::Error, output, say::say};

/// The password of the role that `--fix-as` names.
const PASSWORD: &str = "WALFERRY_FIX_PASSWORD";

/// Prints the statements, and runs those that it is allowed to run. Returns their number.
pub(crate) fn fix(args: &CheckArgs, connectors: &[Loaded]) -> Result<usize, Error> {
    let runtime = process::runtime().map_err(|failure| Error::failure("the SQL was not run", failure))?;
    let mut run = 0;
    for loaded in connectors {
        // Check each connector only now: the statements that ran for the previous one may have mended this one, or may conflict with it.
        let remarks = runtime.block_on(fixable(args, loaded));
        let section = section(args, &loaded.connector.postgres);
        let wanted = list(&remarks);
        say!("");
        say!("SQL for connector {:?}", loaded.connector.name);
        if wanted.is_empty() {
            say!("  there is nothing that SQL would mend");
            continue;
        }
        wanted.iter().for_each(print);
        let chosen = choose(args, &section.user, &wanted)?;
        if !chosen.is_empty() {
            run += runtime.block_on(execute(args, &section, &chosen))?;
        }
    }
    Ok(run)
}

/// A problem, and the statements that mend it.
struct PlannedFix<'a> {
    why: String,
    statements: Vec<&'a str>,
    needs: Needs,
}

/// Each statement once, even if two problems need it.
fn list(remarks: &[Diagnosis]) -> Vec<PlannedFix<'_>> {
    let mut wanted: Vec<PlannedFix<'_>> = Vec::new();
    for remark in remarks {
        let Some(fix) = &remark.fix else { continue };
        let Fix { statements, needs } = &**fix;
        let is_new = |statement: &&str| wanted.iter().all(|known| !known.statements.contains(statement));
        let statements: Vec<&str> = statements.iter().map(String::as_str).filter(is_new).collect();
        if !statements.is_empty() {
            wanted.push(PlannedFix {
                why: remark.sentence().into_owned(),
                statements,
                needs: *needs,
            });
        }
    }
    wanted
}

fn print(wanted: &PlannedFix<'_>) {
    say!("  -- {}", wanted.why);
    match wanted.needs {
        Needs::Owner => {}
        Needs::Superuser => say!("  -- this needs a superuser"),
        Needs::Restart => say!("  -- this needs a superuser, and a restart of the server afterwards: run it yourself"),
    }
    if wanted
        .statements
        .iter()
        .any(|statement| statement.ends_with("REPLICA IDENTITY FULL"))
    {
        say!("  -- with REPLICA IDENTITY FULL, each UPDATE and DELETE writes the whole old row into the WAL");
    }
    for statement in &wanted.statements {
        say!("  {statement};");
    }
}

/// The statements to run.
fn choose<'a>(args: &CheckArgs, role: &str, wanted: &[PlannedFix<'a>]) -> Result<Vec<&'a str>, Error> {
    let of = |needs: Needs| wanted.iter().filter(move |wanted| wanted.needs == needs);
    let statements = |wanted: &PlannedFix<'a>| wanted.statements.clone();
    let owners: Vec<&str> = of(Needs::Owner).flat_map(statements).collect();
    if args.yes {
        return Ok(owners);
    }
    if !io::stdin().is_terminal() {
        say!("nothing was run: standard input is no terminal to ask at. `--yes` runs what needs no superuser");
        return Ok(Vec::new());
    }
    let mut chosen = Vec::new();
    if !owners.is_empty() {
        let count = match owners.len() {
            1 => "the statement".to_owned(),
            count => format!("the {count} statements"),
        };
        if confirm(&format!("Run {count} above that need no superuser, as role {role:?}?"))? {
            chosen.extend(owners);
        }
    }
    for wanted in of(Needs::Superuser) {
        let statements = statements(wanted);
        if confirm(&format!("Run as role {role:?}: {};", statements.join("; ")))? {
            chosen.extend(statements);
        }
    }
    Ok(chosen)
}

/// Asks a question. Returns whether the answer is yes; any other answer means no.
pub(crate) fn confirm(question: &str) -> Result<bool, Error> {
    let unreadable = |error: io::Error| Error::new(Kind::Output, "nobody can be asked").cause(error.to_string(), None);
    let question = format!("{question} [y/N] ").into_bytes();
    output::stdout().show(question).map_err(unreadable)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(unreadable)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// How to connect to the server as the role that runs the statements.
fn section(args: &CheckArgs, connectors: &PostgresSection) -> PostgresSection {
    let mut section = connectors.clone();
    if let Some(role) = &args.fix_as {
        section.user.clone_from(role);
        section.password = env::var(PASSWORD).ok().map(Secret::new);
        // The client certificate and the initial statements belong to the connector's role, too.
        (section.sslcert, section.sslkey, section.sslpassword) = (None, None, None);
        section.initial_statements.clear();
    }
    section
}

/// A statement that waits for a lock makes everybody wait who comes after it.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '5s'";

/// Runs the statements one by one, until one is refused.
async fn execute(args: &CheckArgs, section: &PostgresSection, statements: &[&str]) -> Result<usize, Error> {
    const DOING: &str = "mending the database";
    let role = &section.user;
    let sql = Endpoint::new(section.clone())
        .sql(Purpose::General)
        .await
        .map_err(|error| {
            let error = Error::failure(format!("the SQL was not run as role {role:?}"), error.into());
            let hint = match (&args.fix_as, &section.password) {
                (None, _) => return error,
                (Some(_), None) => format!("set {PASSWORD}, if the role has a password"),
                (Some(_), Some(_)) => format!("check the role of --fix-as, and its password in {PASSWORD}"),
            };
            error.cause("the connection that would run it has failed", Some(hint))
        })?;
    let prepared = sql.execute(DOING, LOCK_TIMEOUT).await;
    prepared.map_err(|error| Error::failure("the SQL was not run", error.into()))?;
    for statement in statements {
        let run = sql.execute(DOING, statement).await;
        run.map_err(|error| {
            let what = format!("role {role:?} could not run: {statement}; nothing after it was run");
            let failure = Failure::from(error);
            let hint = match (failure.kind, &args.fix_as) {
                (Kind::Timeout, _) => {
                    "another transaction has locked the table for more than 5 seconds: try again when it has ended"
                }
                (_, None) => {
                    "run it as another role, such as the owner of the tables, with --fix-as ROLE; or run it by hand"
                }
                (_, Some(_)) => "name the owner of the tables with --fix-as, or run it by hand",
            };
            Error::failure(what, failure).cause("the statement was refused", Some(hint.to_owned()))
        })?;
        // Do not say "done": if a role may not grant, the server answers GRANT with a warning only.
        say!("ran: {statement};");
    }
    say!("what is still missing is told below");
    Ok(statements.len())
}
