//! `walferry check --fix`: the SQL that mends what was found, and, after a yes, its run.
//!
//! What needs a superuser never runs with `--yes`, and what needs a restart of the server never runs at all.

use std::{
    env,
    io::{self, BufRead, IsTerminal, Write as _},
};

use walferry_config::{Secret, connector::PostgresSection};
use walferry_diagnosis::{Diagnosis, Fix, Kind, Needs};
use walferry_engine::Failure;
use walferry_postgres::connect::{Endpoint, Purpose};

use crate::{cli::CheckArgs, error::Error, load::Loaded, process, say::say};

/// The password of the role that `--fix-as` names.
const PASSWORD: &str = "WALFERRY_FIX_PASSWORD";

/// Prints the statements and runs those that it may. Returns how many it has run.
pub(crate) fn fix(args: &CheckArgs, found: &[(&Loaded, Vec<Diagnosis>)]) -> Result<usize, Error> {
    let mut run = 0;
    for (loaded, remarks) in found {
        let section = section(args, &loaded.connector.postgres);
        let wanted = list(remarks);
        say!("");
        say!("SQL for connector {:?}", loaded.connector.name);
        if wanted.is_empty() {
            say!("  there is nothing that SQL would mend");
            continue;
        }
        wanted.iter().for_each(print);
        let chosen = choose(args, &section.user, &wanted)?;
        if !chosen.is_empty() {
            run += execute(&section, &chosen)?;
        }
    }
    Ok(run)
}

/// One reason, and the statements that mend it.
struct Wanted<'a> {
    why: String,
    fix: &'a Fix,
}

/// Each statement once, though two remarks may ask for it.
fn list(remarks: &[Diagnosis]) -> Vec<Wanted<'_>> {
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for remark in remarks {
        let Some(fix) = &remark.fix else { continue };
        if wanted.iter().all(|known| known.fix.statements != fix.statements) {
            wanted.push(Wanted {
                why: remark.sentence().into_owned(),
                fix,
            });
        }
    }
    wanted
}

fn print(wanted: &Wanted<'_>) {
    say!("  -- {}", wanted.why.replace('\n', " "));
    match wanted.fix.needs {
        Needs::Owner => {}
        Needs::Superuser => say!("  -- this needs a superuser"),
        Needs::Restart => say!("  -- this needs a superuser, and a restart of the server afterwards: run it yourself"),
    }
    for statement in &wanted.fix.statements {
        say!("  {statement};");
    }
}

/// The statements that shall run.
fn choose<'a>(args: &CheckArgs, role: &str, wanted: &[Wanted<'a>]) -> Result<Vec<&'a str>, Error> {
    let of = |needs: Needs| wanted.iter().filter(move |wanted| wanted.fix.needs == needs);
    let statements = |wanted: &Wanted<'a>| wanted.fix.statements.iter().map(String::as_str).collect::<Vec<_>>();
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
        if asked(&format!("Run {count} above that need no superuser, as role {role:?}?"))? {
            chosen.extend(owners);
        }
    }
    for wanted in of(Needs::Superuser) {
        let statements = statements(wanted);
        if asked(&format!("Run as role {role:?}: {};", statements.join("; ")))? {
            chosen.extend(statements);
        }
    }
    Ok(chosen)
}

/// Whether somebody says yes. Everything else is a no.
fn asked(question: &str) -> Result<bool, Error> {
    let unreadable = |error: io::Error| Error::new(Kind::Output, "nobody can be asked").cause(error.to_string(), None);
    print!("{question} [y/N] ");
    io::stdout().flush().map_err(unreadable)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(unreadable)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// How to reach the server as the role that runs the statements.
fn section(args: &CheckArgs, connectors: &PostgresSection) -> PostgresSection {
    let mut section = connectors.clone();
    if let Some(role) = &args.fix_as {
        section.user.clone_from(role);
        section.password = env::var(PASSWORD).ok().map(Secret::new);
        // What the connector logs in with besides its password is the connector's, too.
        (section.sslcert, section.sslkey, section.sslpassword) = (None, None, None);
        section.initial_statements.clear();
    }
    section
}

/// Runs them one by one, until one is refused.
fn execute(section: &PostgresSection, statements: &[&str]) -> Result<usize, Error> {
    let failed = |what: String, failure: Failure| Error::failure(what, failure);
    let runtime = process::runtime().map_err(|failure| failed("the SQL was not run".to_owned(), failure))?;
    runtime.block_on(async {
        let sql = Endpoint::new(section.clone()).sql(Purpose::General).await;
        let sql = sql.map_err(|error| {
            let error = failed(format!("the SQL was not run as role {:?}", section.user), error.into());
            error.cause(
                "the connection that would run it has failed",
                Some(format!("check the role of --fix-as, and its password in {PASSWORD}")),
            )
        })?;
        for statement in statements {
            let done = sql.execute("mending the database", statement).await;
            done.map_err(|error| {
                let what = format!(
                    "role {:?} could not run: {statement}; nothing after it was run",
                    section.user
                );
                let hint = "run it as another role, with --fix-as ROLE, or by hand";
                failed(what, error.into()).cause("the statement was refused", Some(hint.to_owned()))
            })?;
            say!("done: {statement};");
        }
        Ok(statements.len())
    })
}
