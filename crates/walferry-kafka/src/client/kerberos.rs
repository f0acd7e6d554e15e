//! Kerberos (SASL mechanism GSSAPI): what Java's `Krb5LoginModule` says, in librdkafka's properties.
//!
//! Java logs in by itself. librdkafka runs a command that puts a ticket into the ticket cache, at the start and again before each
//! `sasl.kerberos.min.time.before.relogin` is over: `kinit` with the keytab. A configuration that uses a ticket cache needs no command.

use std::{collections::BTreeMap, env, path::Path};

use super::Translation;
use super::jaas::{JAAS, MECHANISM, jaas};

pub(super) const KINIT: &str = "sasl.kerberos.kinit.cmd";
pub(super) const RELOGIN: &str = "sasl.kerberos.min.time.before.relogin";
pub(super) const SERVICE: &str = "sasl.kerberos.service.name";
/// librdkafka's own names, which may stand in place of a log-in module.
const KEYTAB: &str = "sasl.kerberos.keytab";
const PRINCIPAL: &str = "sasl.kerberos.principal";

const MODULE: &str = "Krb5LoginModule";
const EXAMPLE: &str = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
                       keyTab=\"/etc/walferry/walferry.keytab\" principal=\"walferry@EXAMPLE.COM\";";

/// What becomes part of a command that librdkafka gives to a shell. Only the worker file may say it: whoever may change a connector
/// could otherwise run any command as Walferry's user.
pub(super) fn refuse_of_connectors(t: &mut Translation) {
    for name in [KINIT, KEYTAB, PRINCIPAL] {
        let written_as = t.written_as(name);
        if written_as.contains(".override.") || written_as.starts_with("signal.") {
            t.problem(
                name,
                "cannot be set by a connector, because it becomes part of a command of a shell",
            )
            .hint("set it in the worker file; a connector may name keyTab and principal in sasl.jaas.config");
            t.given.0.remove(name);
        }
    }
}

/// Whether this build contains Kerberos.
pub(super) const BUILT_IN: bool = cfg!(feature = "gssapi");

/// Sets what librdkafka needs. A problem is told.
pub(super) fn translate(t: &mut Translation) {
    if !BUILT_IN {
        let message = match t.get_filled(MECHANISM) {
            Some(_) => "is GSSAPI (Kerberos), which this build of Walferry does not contain",
            None => "is not set; its default is GSSAPI (Kerberos), which this build of Walferry does not contain",
        };
        t.problem(MECHANISM, message).hint(
            "use the program of the released Debian package, build Walferry with `--features gssapi`, or enable SCRAM-SHA-512 or client certificates on the brokers",
        );
        return;
    }
    let options = match t.get_filled(JAAS).is_some() {
        false => BTreeMap::new(),
        true => match jaas(t, MODULE) {
            Some(jaas) => jaas.options,
            None => return,
        },
    };
    service(t, &options);
    if t.get_filled(JAAS).is_some() {
        login(t, &options);
    } else if t.get_filled(KEYTAB).is_some() {
        if let Some(command) = t.get_filled(KINIT).map(str::to_owned) {
            t.set(KINIT, command);
        }
    } else {
        t.problem(JAAS, "is required by sasl.mechanism=GSSAPI").hint(format!(
            "{EXAMPLE} A file that java.security.auth.login.config names has the same text in its section KafkaClient"
        ));
    }
    if let Some(text) = t.get_filled(RELOGIN).map(str::to_owned) {
        // librdkafka would then never run the command, not even at the start.
        if text.trim() == "0" {
            t.problem(RELOGIN, "is 0: no ticket would ever be obtained")
                .hint("set it to the milliseconds between two runs of kinit, or remove it; the default is 60000");
        }
        t.set(RELOGIN, text);
    }
    let places = t.get_filled(KINIT).map(foreign_places).unwrap_or_default();
    if let Some(place) = places.first() {
        t.problem(
            KINIT,
            format!("contains %{{{place}}}, which a connector could set to a command of its own"),
        )
        .hint("write the value itself; only %{sasl.kerberos.keytab} and %{sasl.kerberos.principal} are filled in");
    }
}

/// The name of the brokers' service. Kafka refuses a client that says it twice and differently, or not at all.
fn service(t: &mut Translation, options: &BTreeMap<String, String>) {
    let property = t.get_filled(SERVICE).map(str::to_owned);
    match (property, options.get("serviceName").cloned()) {
        (Some(property), Some(option)) if property != option => {
            t.problem(
                SERVICE,
                format!("is {property}, but sasl.jaas.config has serviceName={option}"),
            )
            .hint("remove one of them");
        }
        (Some(name), _) | (None, Some(name)) => t.set(SERVICE, name),
        (None, None) => {
            t.problem(SERVICE, "is required by sasl.mechanism=GSSAPI")
                .hint("set it to the first part of the brokers' principal, most often kafka");
        }
    }
}

/// Where the ticket comes from: a keytab, or a cache that somebody else fills.
fn login(t: &mut Translation, options: &BTreeMap<String, String>) {
    let is_true = |name: &str| options.get(name).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    if is_true("useKeyTab") {
        keytab(t, options);
    } else if is_true("useTicketCache") {
        cache(t, options);
    } else {
        t.problem(
            JAAS,
            "has neither useKeyTab=true nor useTicketCache=true; Walferry cannot ask for a password",
        )
        .hint(EXAMPLE);
    }
}

fn keytab(t: &mut Translation, options: &BTreeMap<String, String>) {
    let (Some(file), Some(principal)) = (options.get("keyTab"), options.get("principal")) else {
        t.problem(JAAS, "has useKeyTab=true, which needs keyTab and principal")
            .hint(EXAMPLE);
        return;
    };
    let file = file.strip_prefix("FILE:").unwrap_or(file);
    if let Err(error) = walferry_keystore::regular::open(Path::new(file)) {
        t.problem(JAAS, format!("names the keytab {file}, which cannot be read: {error}"))
            .hint("correct the path, or let the user that Walferry runs as read the file");
        return;
    }
    let program = t.get_filled(KINIT).unwrap_or("kinit").to_owned();
    // A whole command in librdkafka's manner, whose places librdkafka fills without quotes.
    let command = match program.contains(' ') {
        true => [file, principal].iter().all(|word| is_plain(word)).then_some(program),
        false => command(&[&program, "-k", "-t", file, principal]),
    };
    let Some(command) = command else {
        t.problem(JAAS, "has a keyTab or principal with characters that a shell would read")
            .hint("rename the file; Walferry gives both names to `kinit` through a shell. If sasl.kerberos.kinit.cmd is a whole command, they may have letters, digits and `/@._-` only");
        return;
    };
    let (file, principal) = (file.to_owned(), principal.clone());
    t.set(KEYTAB, file);
    t.set(PRINCIPAL, principal);
    t.set(KINIT, command);
}

fn cache(t: &mut Translation, options: &BTreeMap<String, String>) {
    if let Some(wanted) = options.get("ticketCache") {
        let now = env::var("KRB5CCNAME").unwrap_or_default();
        if now.strip_prefix("FILE:").unwrap_or(&now) != wanted.strip_prefix("FILE:").unwrap_or(wanted) {
            t.problem(
                JAAS,
                format!("has ticketCache={wanted}, but Walferry uses the cache that the environment variable KRB5CCNAME names"),
            )
            .hint(format!("start Walferry with KRB5CCNAME={wanted}, and remove ticketCache"));
            return;
        }
    }
    // Nothing is to be done. An empty command would be librdkafka's default, which needs a keytab.
    t.set(KINIT, "true");
}

/// Whether a word is the same to a shell without quotes and with any.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "/@._-".contains(c))
}

/// The other properties that a whole command would have librdkafka fill in. A connector may set some of them.
fn foreign_places(command: &str) -> Vec<String> {
    let places = command.split("%{").skip(1).filter_map(|tail| tail.split_once('}'));
    let places = places.map(|(name, _)| name.to_owned());
    places.filter(|name| ![KEYTAB, PRINCIPAL].contains(&&**name)).collect()
}

/// A command for a shell, each word quoted. `None` if a word cannot be.
fn command(words: &[&str]) -> Option<String> {
    let safe = |word: &&str| !word.contains('\'') && !word.contains("%{") && !word.chars().any(char::is_control);
    words.iter().all(safe).then(|| {
        words
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_command_takes_only_plain_words_and_no_other_properties() {
        assert!(is_plain("/etc/walferry/walferry.keytab") && is_plain("walferry/db-1.example@EXAMPLE.COM"));
        for word in ["", "x; true", "$(x)", "a b", "a\"b", "%{x}"] {
            assert!(!is_plain(word), "{word}");
        }
        let command = "kinit -R -t \"%{sasl.kerberos.keytab}\" %{sasl.kerberos.principal} # %{client.id}";
        assert_eq!(foreign_places(command), ["client.id"]);
    }

    #[test]
    fn a_word_that_would_end_its_quotes_makes_no_command() {
        assert_eq!(
            command(&["kinit", "-k", "-t", "/a b", "x/y@Z"]).unwrap(),
            "'kinit' '-k' '-t' '/a b' 'x/y@Z'"
        );
        for word in ["a'b", "a\nb", "%{bootstrap.servers}"] {
            assert_eq!(command(&["kinit", word]), None, "{word}");
        }
    }
}
