//! Requests to Kafka Connect's REST API, and what a worker answered.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use walferry_testkit::servers::wait_for;

/// One of the requests of `tests/rest/requests.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Method and path.
    pub ask: String,
    /// What to wait for before: a path, and a text of its answer.
    pub until: Option<(String, String)>,
    /// Headers beside Host.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body, sent as it stands.
    pub body: Option<String>,
    /// How much of the answer has to be the same.
    #[serde(default)]
    pub compare: Compare,
    /// The status that Walferry answers instead; docs/compatibility.md says why.
    pub differs: Option<u16>,
}

/// How much of an answer is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// Everything but ids, versions and times.
    #[default]
    All,
    /// The status alone.
    Status,
    /// The status, and that there is an error with a text.
    Shape,
    /// The same, with the first line of the text.
    #[serde(rename = "first line")]
    FirstLine,
    /// Of a validation: the status, the members of its parts, and which properties have errors.
    Fields,
    /// Of a validation or of a class: the definitions, in order.
    Definitions,
}

/// What a worker answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Method and path of the request.
    pub ask: String,
    /// Status code.
    pub status: u16,
    /// Those headers that clients look at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: JSON where it is, else text.
    pub body: Value,
}

/// What the texts of requests stand for.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Port of the REST API.
    pub rest: u16,
    /// Port of Postgres.
    pub port: u16,
    /// Database.
    pub database: String,
}

/// How long a state has to last.
const SETTLES: Duration = Duration::from_millis(500);

/// The headers that are kept.
const HEADERS: [&str; 11] = [
    "content-type",
    "location",
    "allow",
    "www-authenticate",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-allow-credentials",
    "access-control-max-age",
    "x-frame-options",
    "cache-control",
];

/// What a worker file says where `doors.toml` is asked.
pub const LINES: [&str; 4] = [
    "rest.extension.classes=org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension",
    "access.control.allow.origin=http://shop.example",
    "access.control.allow.methods=GET,POST,PUT",
    "response.http.headers.config=add X-Frame-Options: DENY, \"set Cache-Control: no-cache, no-store\"",
];

/// Users and passwords of that worker, in Java's form.
pub const USERS: &str = "# people\nops=s3\\=cr:et\ntwo\\ words : p\\u00e9\ntail=x,read\n";

/// Writes the file of users, and JAAS's file that names it. Returns the option that names that one.
pub fn jaas(folder: &Path) -> String {
    let (users, jaas) = (folder.join("users.properties"), folder.join("jaas.conf"));
    fs::write(&users, USERS).expect("the users can be written");
    let text = format!(
        "KafkaConnect {{\n  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required\n  file=\"{}\";\n}};\n",
        users.display()
    );
    fs::write(&jaas, text).expect("the login configuration can be written");
    format!("-Djava.security.auth.login.config={}", jaas.display())
}

/// The folder of requests and answers.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rest")
}

/// All requests of a file, in order.
pub fn requests_of(file: &str) -> Vec<Request> {
    #[derive(Deserialize)]
    struct File {
        request: Vec<Request>,
    }
    let text = fs::read_to_string(folder().join(file)).expect("the requests can be read");
    toml::from_str::<File>(&text).expect("the requests are TOML").request
}

/// The answers of Kafka Connect that a file holds.
pub fn recorded_in(file: &str) -> Vec<Exchange> {
    let text = fs::read_to_string(folder().join(file)).expect("the answers can be read");
    let exchanges = text.lines().map(|line| serde_json::from_str(line).expect("an answer"));
    exchanges.collect()
}

/// Empties the texts that describe properties: they are Kafka's and Debezium's prose, and nothing is compared with them.
pub fn without_documentation(body: &mut Value) {
    match body {
        Value::Object(members) => {
            if let Some(text) = members.get_mut("documentation") {
                *text = Value::from("");
            }
            members.values_mut().for_each(without_documentation);
        }
        Value::Array(items) => items.iter_mut().for_each(without_documentation),
        _ => {}
    }
}

impl Surroundings {
    /// Asks one of several workers of a group, which the request's number decides without a pattern, after what the request waits for has come on
    /// all of them.
    pub fn ask_one_of(&self, ports: &[u16], number: u32, request: &Request) -> Exchange {
        let chosen = number.wrapping_mul(0x9E37_79B9) >> 16;
        let of = |port: &u16| Self {
            rest: *port,
            ..self.clone()
        };
        let all_hold = || ports.iter().all(|port| of(port).holds(request));
        if let Some((path, text)) = &request.until {
            wait_for(&format!("{path} of all to hold {text}"), || {
                all_hold().then(|| thread::sleep(SETTLES))?;
                all_hold().then_some(())
            });
        }
        of(&ports[chosen as usize % ports.len()]).ask_now(request)
    }

    /// Asks one request, after what it waits for has come.
    pub fn ask(&self, request: &Request) -> Exchange {
        self.wait_until(request);
        self.ask_now(request)
    }

    fn wait_until(&self, request: &Request) {
        if let Some((path, text)) = &request.until {
            // Also a little later: what was asked before may not have begun at the first look.
            wait_for(&format!("{path} to hold {text}"), || {
                self.holds(request).then(|| thread::sleep(SETTLES))?;
                self.holds(request).then_some(())
            });
        }
    }

    /// Whether what a request waits for has come.
    fn holds(&self, request: &Request) -> bool {
        let Some((path, text)) = &request.until else {
            return true;
        };
        let answer = self.send("GET", path, &BTreeMap::new(), None);
        answer.is_some_and(|answer| answer.body.to_string().contains(text.as_str()))
    }

    fn ask_now(&self, request: &Request) -> Exchange {
        let (method, path) = request.ask.split_once(' ').expect("a method and a path");
        let body = request.body.as_ref().map(|body| self.fill_in(body));
        // Connect answers 409 while it rebalances, and clients ask again.
        wait_for(&request.ask, || {
            let answer = self.send(method, path, &request.headers, body.as_deref())?;
            let rebalances = answer.status == 409 && answer.body.to_string().contains("momentarily");
            (!rebalances).then_some(answer)
        })
    }

    fn fill_in(&self, text: &str) -> String {
        let config = format!(
            r#""connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "127.0.0.1",
            "database.port": "{}", "database.user": "postgres", "database.dbname": "{}", "plugin.name": "pgoutput",
            "table.include.list": "public.orders""#,
            self.port, self.database
        );
        text.replace("@CONFIG@", &config)
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        body: Option<&str>,
    ) -> Option<Exchange> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.rest)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(100))).ok()?;
        // Version 1.0: the body is not chunked and ends with the connection.
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n", self.rest);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if body.is_some() && !headers.contains_key("Content-Type") {
            head += "Content-Type: application/json\r\n";
        }
        let body = body.unwrap_or_default();
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Some(Exchange {
            ask: format!("{method} {path}"),
            status,
            headers: headers.filter(|(name, _)| HEADERS.contains(&name.as_str())).collect(),
            body: serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)),
        })
    }
}
