//! A broker that takes the log-in of Amazon MSK with IAM.

use super::ports::free_port;
use super::{Kafka, scratch, tools};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const HANDLER: &str = include_str!("MskTokens.java");

/// A Kafka with a second listener, SASL_SSL with OAUTHBEARER, whose broker checks the signatures of tokens as MSK does.
#[derive(Debug)]
pub struct Msk {
    /// The broker. Its first listener wants no log-in.
    pub kafka: Kafka,
    /// `host:port` of the listener with the log-in.
    pub login: String,
    folder: PathBuf,
}

impl Msk {
    /// Compiles the class that checks, and starts the broker. `pem` has a certificate for 127.0.0.1 and its key, `keys` the identities: a line
    /// `access-key secret-key session-token` for each. A token is taken for `age` seconds, and a connection for half of that.
    #[track_caller]
    pub fn start(pem: &str, keys: &[&str], age: u32) -> Self {
        let folder = scratch::folder("msk");
        let write =
            |name: &str, text: &str| fs::write(folder.join(name), text).expect("the scratch folder can be written");
        write("MskTokens.java", HANDLER);
        write("keys", &keys.join("\n"));
        write("age", &age.to_string());
        write("log", "");
        write("broker.pem", pem);
        let classpath = tools::jars().join("*");
        let compiled = Command::new(tools::java().with_file_name("javac"))
            .arg("-cp")
            .arg(&classpath)
            .arg("-d")
            .arg(&folder)
            .arg(folder.join("MskTokens.java"))
            .output()
            .expect("`javac` lies beside `java`");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let (plain, controller, login) = (free_port(), free_port(), free_port());
        let listener = "listener.name.login";
        let kafka = Kafka::start_on(
            plain,
            controller,
            &[
                &format!(
                    "listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},LOGIN://127.0.0.1:{login}"
                ),
                &format!("advertised.listeners=PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}"),
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
                "inter.broker.listener.name=PLAINTEXT",
                &format!("{listener}.sasl.enabled.mechanisms=OAUTHBEARER"),
                &format!(
                    "{listener}.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
                ),
                &format!("{listener}.oauthbearer.sasl.server.callback.handler.class=MskTokens"),
                &format!("{listener}.oauthbearer.sasl.login.callback.handler.class=MskTokens"),
                &format!("{listener}.oauthbearer.connections.max.reauth.ms={}", age * 500),
                &format!("{listener}.ssl.keystore.type=PEM"),
                &format!(
                    "{listener}.ssl.keystore.location={}",
                    folder.join("broker.pem").display()
                ),
            ],
            &[
                "-cp",
                &format!("{}:{}", classpath.display(), folder.display()),
                &format!("-Dwalferry.msk={}", folder.display()),
            ],
        );
        Self {
            kafka,
            login: format!("127.0.0.1:{login}"),
            folder,
        }
    }

    /// What the broker has decided about tokens: lines `accepted KEY SIGNED-AT` and `refused WHY`.
    #[track_caller]
    pub fn decisions(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("log")).expect("the file is there from the start");
        text.lines().map(str::to_owned).collect()
    }
}
