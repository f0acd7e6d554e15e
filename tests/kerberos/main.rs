//! Kerberos: a real key distribution centre, a Kafka that takes nothing but its tickets, and a Walferry that is built with it. Run by
//! `cargo xtask test kerberos`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Database, Kafka, Postgres, Walferry, WalferryOptions, folder, free_port, wait_for};

const REALM: &str = "WALFERRY.TEST";
const PASSWORD: &str = "hunter2";
/// What tickets last in a test that waits for the end of one.
const SHORT_SECONDS: u64 = 15;
/// What they last in the others, in which none may end.
const LONG_SECONDS: u64 = 600;

/// A key distribution centre with its folder. It ends with this value.
struct Centre {
    folder: PathBuf,
    /// What a ticket lasts.
    lifetime_seconds: u64,
    process: Child,
}

impl Drop for Centre {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Centre {
    #[track_caller]
    fn start(lifetime_seconds: u64) -> Self {
        let (folder, port) = (folder("kerberos"), free_port());
        let at = |name: &str| folder.join(name).display().to_string();
        let client = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
             dns_canonicalize_hostname = false\n udp_preference_limit = 1\n\
             [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        );
        let centre = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  acl_file = {}\n  max_life = {lifetime_seconds}s\n }}\n",
            at("principal"),
            at("stash"),
            at("acl"),
        );
        fs::write(folder.join("krb5.conf"), client).expect("the scratch folder can be written");
        fs::write(folder.join("kdc.conf"), centre).expect("the scratch folder can be written");
        run(&folder, "kdb5_util", &["create", "-s", "-r", REALM, "-P", PASSWORD]);
        let process = command(&folder, "krb5kdc")
            .args(["-n", "-r", REALM])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("krb5kdc can be run");
        let centre = Self {
            folder,
            lifetime_seconds,
            process,
        };
        centre.add("probe", &format!("-pw {PASSWORD}"));
        wait_for("the key distribution centre", || {
            let probe = format!("echo {PASSWORD} | kinit -c {}/probe probe", centre.folder.display());
            let status = command(&centre.folder, "sh")
                .args(["-c", &probe])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success()).then_some(())
        });
        centre
    }

    fn ask(&self, query: &str) {
        run(&self.folder, "kadmin.local", &["-r", REALM, "-q", query]);
    }

    /// Makes a principal with a password or with a key of its own.
    fn add(&self, principal: &str, secret: &str) {
        self.ask(&format!(
            "addprinc -maxlife {}s {secret} {principal}",
            self.lifetime_seconds
        ));
    }

    /// Makes a principal, and the file with its key.
    fn keytab(&self, principal: &str, file: &str) -> String {
        let path = self.folder.join(file).display().to_string();
        self.add(principal, "-randkey");
        self.ask(&format!("ktadd -k {path} {principal}"));
        path
    }

    fn client_config(&self) -> String {
        self.folder.join("krb5.conf").display().to_string()
    }
}

fn command(folder: &Path, program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("KRB5_CONFIG", folder.join("krb5.conf"))
        .env("KRB5_KDC_PROFILE", folder.join("kdc.conf"))
        .current_dir(folder);
    command
}

#[track_caller]
fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let output = command(folder, program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The servers, and what a connector needs to use them.
struct World {
    centre: Centre,
    kafka: Kafka,
    secured: String,
    database: Database,
    _postgres: Postgres,
}

impl World {
    #[track_caller]
    fn start(lifetime_seconds: u64) -> Self {
        let centre = Centre::start(lifetime_seconds);
        let broker = centre.keytab("kafka/localhost", "kafka.keytab");
        let (plain, controller, secured) = (free_port(), free_port(), free_port());
        let login = format!(
            "listener.name.kerberos.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true \
             storeKey=true serviceName=\"kafka\" keyTab=\"{broker}\" principal=\"kafka/localhost@{REALM}\";"
        );
        let kafka = Kafka::start_on(
            plain,
            controller,
            &[
                &format!(
                    "listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},KERBEROS://localhost:{secured}"
                ),
                &format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},KERBEROS://localhost:{secured}"),
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
                "inter.broker.listener.name=PLAINTEXT",
                "listener.name.kerberos.sasl.enabled.mechanisms=GSSAPI",
                &login,
            ],
            &[&format!("-Djava.security.krb5.conf={}", centre.client_config())],
        );
        let postgres = Postgres::start();
        let database = postgres.database("kerberos");
        database.sql().run("create table orders (id int primary key)");
        Self {
            centre,
            kafka,
            secured: format!("localhost:{secured}"),
            database,
            _postgres: postgres,
        }
    }

    fn config(&self, name: &str) -> Map<String, Value> {
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": self.database.port().to_string(),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self.database.name(),
            "topic.prefix": name,
            "slot.name": name,
            "publication.name": name,
            "table.include.list": "public.orders",
            "snapshot.mode": "no_data",
        });
        config.as_object().expect("it is an object").clone()
    }

    fn walferry(&self, name: &str, login: &str, env: &[(&str, &str)]) -> Walferry {
        let worker = [
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=GSSAPI",
            "sasl.kerberos.service.name=kafka",
            "sasl.kerberos.min.time.before.relogin=2000",
            &format!("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required {login};"),
        ];
        let mut env: Vec<_> = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        env.push(("KRB5_CONFIG".to_owned(), self.centre.client_config()));
        Walferry::start(WalferryOptions {
            name: name.into(),
            config: self.config(name),
            worker: worker.iter().map(|&line| line.to_owned()).collect(),
            bootstrap: self.secured.clone(),
            env,
        })
    }

    /// Inserts a row, and waits until it is the topic's last of `count` records.
    fn ship(&self, name: &str, id: usize, count: usize) {
        self.database.sql().run(&format!("insert into orders values ({id})"));
        self.kafka.wait_for_records(&format!("{name}.public.orders"), count);
    }
}

#[test]
fn a_keytab_logs_in_and_goes_on_when_its_ticket_has_expired() {
    let mut world = World::start(SHORT_SECONDS);
    let keytab = world.centre.keytab("walferry/shop", "walferry.keytab");
    let cache = world.centre.folder.join("cache of walferry").display().to_string();
    let login = format!("useKeyTab=true storeKey=true keyTab=\"{keytab}\" principal=\"walferry/shop@{REALM}\"");
    let mut walferry = world.walferry("keytab", &login, &[("KRB5CCNAME", &cache)]);
    walferry.wait_until_ready();
    world.ship("keytab", 1, 1);

    let first = fs::metadata(&cache)
        .expect("the cache is there")
        .modified()
        .expect("it has a time");
    world.kafka.stop(false);
    wait_for("the first ticket's end", || {
        (first.elapsed().ok()?.as_secs() > SHORT_SECONDS).then_some(())
    });
    world.kafka.start_again();
    world.ship("keytab", 2, 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_ticket_cache_logs_in_and_another_cache_than_the_named_one_is_refused() {
    let world = World::start(LONG_SECONDS);
    world.centre.add("shop", &format!("-pw {PASSWORD}"));
    let cache = world.centre.folder.join("shop").display().to_string();
    run(
        &world.centre.folder,
        "sh",
        &["-c", &format!("echo {PASSWORD} | kinit -c '{cache}' shop")],
    );
    let login = format!("useTicketCache=true ticketCache=\"{cache}\"");
    let mut walferry = world.walferry("cache", &login, &[("KRB5CCNAME", &cache)]);
    walferry.wait_until_ready();
    world.ship("cache", 1, 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let mut walferry = world.walferry("elsewhere", &login, &[("KRB5CCNAME", "/nowhere")]);
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert!(
        walferry
            .output()
            .contains(&format!("start Walferry with KRB5CCNAME={cache}")),
        "{}",
        walferry.output()
    );
}

#[test]
fn a_principal_that_the_keytab_lacks_is_told_with_a_hint() {
    let world = World::start(LONG_SECONDS);
    let keytab = world.centre.keytab("walferry/shop", "walferry.keytab");
    let cache = world.centre.folder.join("empty").display().to_string();
    let login = format!("useKeyTab=true keyTab=\"{keytab}\" principal=\"walferry/wrong@{REALM}\"");
    let walferry = world.walferry("wrong", &login, &[("KRB5CCNAME", &cache)]);
    wait_for("the hint", || {
        walferry
            .output()
            .contains("check `principal` and `keyTab`")
            .then_some(())
    });
}
