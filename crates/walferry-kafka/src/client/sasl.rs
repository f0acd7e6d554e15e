//! SASL: the mechanism and its credentials.

use std::collections::BTreeMap;

use walferry_config::{Jaas, Secret, ValueError};

use super::{Translation, kerberos, tls::Protocol};

/// Where tokens for OAUTHBEARER come from: OAuth's client credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OAuth {
    pub(crate) token_endpoint: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret,
    pub(crate) scope: Option<String>,
    /// Whether id and secret are escaped before they are sent.
    pub(crate) escaped: bool,
    /// SASL extensions, such as Confluent Cloud's `logicalCluster`.
    pub(crate) extensions: BTreeMap<String, String>,
    /// Whom the token endpoint's certificate must come from; `None` for the system's authorities.
    pub(crate) trusted: Option<String>,
}

pub(super) const JAAS: &str = "sasl.jaas.config";
pub(super) const MECHANISM: &str = "sasl.mechanism";
const HANDLER: &str = "sasl.login.callback.handler.class";

pub(super) fn translate(t: &mut Translation, protocol: Protocol) {
    if !protocol.has_login() {
        if t.get_filled(JAAS).is_some() {
            let name = t.written_as(JAAS);
            t.findings
                .warning(name, "has no effect while security.protocol does not use SASL")
                .hint("set security.protocol=SASL_SSL or SASL_PLAINTEXT");
        }
        return;
    }
    let mechanism = t.get_filled(MECHANISM).unwrap_or("GSSAPI").to_ascii_uppercase();
    match mechanism.as_str() {
        "PLAIN" => password(t, "PlainLoginModule"),
        "SCRAM-SHA-256" | "SCRAM-SHA-512" => password(t, "ScramLoginModule"),
        "OAUTHBEARER" => oauth(t),
        "GSSAPI" => kerberos::translate(t),
        "AWS_MSK_IAM" => {
            t.problem(MECHANISM, "is AWS_MSK_IAM, which Walferry does not support")
                .hint("enable SASL/SCRAM on the cluster");
            return;
        }
        other => {
            let error = ValueError::not_one_of(
                other,
                &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"],
            );
            t.wrong_value(MECHANISM, error);
            return;
        }
    }
    t.set(MECHANISM, mechanism);
}

/// Reads the log-in module; a problem is told of.
pub(super) fn jaas(t: &mut Translation, module: &str) -> Option<Jaas> {
    match Jaas::parse(t.get_filled(JAAS)?) {
        Ok(jaas) if jaas.module == module => Some(jaas),
        Ok(jaas) => {
            // What stands in the place of the class may be anything.
            let message = match jaas.module.ends_with("LoginModule") {
                true => format!("contains {}, which does not match sasl.mechanism", jaas.module),
                false => "contains a class that does not match sasl.mechanism".to_owned(),
            };
            t.problem(JAAS, message)
                .hint(format!("the matching module is {module}"));
            None
        }
        Err(error) => {
            t.problem(JAAS, error.to_string()).hint(format!(
                "write … {module} required username=\"…\" password=\"…\"; with the semicolon"
            ));
            None
        }
    }
}

fn password(t: &mut Translation, module: &str) {
    if t.get_filled(JAAS).is_none() {
        // librdkafka's own names may say it.
        if t.get("sasl.username").is_none() {
            t.problem(JAAS, "is required by sasl.mechanism")
                .hint(format!("… {module} required username=\"…\" password=\"…\";"));
        }
        return;
    }
    let Some(jaas) = jaas(t, module) else {
        return;
    };
    if jaas.options.get("tokenauth").is_some_and(|text| text == "true") {
        t.problem(JAAS, "contains a delegation token, which Walferry does not support")
            .hint("use a user name and a password");
    }
    for (option, native) in [("username", "sasl.username"), ("password", "sasl.password")] {
        match jaas.required(option) {
            Ok(value) => t.set(native, value),
            Err(why) => {
                t.problem(JAAS, why)
                    .hint("write username=\"…\" and password=\"…\" after required");
            }
        }
    }
}

fn oauth(t: &mut Translation) {
    let handler = t
        .get_filled(HANDLER)
        .map(|class| class.rsplit('.').next().unwrap_or_default().to_owned());
    // Strimzi's has options of its own for the same.
    let strimzi = match handler.as_deref() {
        None | Some("OAuthBearerLoginCallbackHandler") => false,
        Some("JaasClientOauthLoginCallbackHandler") => true,
        Some(_) => {
            t.problem(HANDLER, "is not supported by Walferry").hint(
                "obtain tokens with a client id and a secret: sasl.oauthbearer.token.endpoint.url, \
                 sasl.oauthbearer.client.credentials.client.id and .secret",
            );
            return;
        }
    };
    let options = match (t.get_filled(JAAS).is_some(), jaas(t, "OAuthBearerLoginModule")) {
        (true, None) => return,
        (_, jaas) => jaas.map(|jaas| jaas.options).unwrap_or_default(),
    };
    if options.keys().any(|name| name.starts_with("unsecuredLogin")) {
        t.problem(JAAS, "requests unsecured tokens, which Walferry does not support")
            .hint("set a token endpoint");
        return;
    }
    let option = |property: &str, kafka: &str, other: &str| {
        let own = t
            .get_filled(property)
            .filter(|_| !property.is_empty())
            .map(str::to_owned);
        own.or_else(|| options.get(if strimzi { other } else { kafka }).cloned())
    };
    let endpoint = option("sasl.oauthbearer.token.endpoint.url", "", "oauth.token.endpoint.uri");
    let id = option(
        "sasl.oauthbearer.client.credentials.client.id",
        "clientId",
        "oauth.client.id",
    );
    let secret = option(
        "sasl.oauthbearer.client.credentials.client.secret",
        "clientSecret",
        "oauth.client.secret",
    );
    let scope = option("sasl.oauthbearer.scope", "scope", "oauth.scope");
    let escaped = t.get("sasl.oauthbearer.header.urlencode") == Some("true");
    let extensions = options
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("extension_")?.to_owned(), value.clone())));
    let extensions = extensions.collect();
    let (Some(token_endpoint), Some(client_id), Some(client_secret)) = (endpoint, id, secret) else {
        t.problem(
            MECHANISM,
            "is OAUTHBEARER, which needs a token endpoint, a client id and its secret",
        )
        .hint(
            "set sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.credentials.client.id and \
             sasl.oauthbearer.client.credentials.client.secret",
        );
        return;
    };
    t.out.oauth = Some(OAuth {
        token_endpoint,
        client_id,
        client_secret: Secret::new(client_secret),
        scope,
        escaped,
        extensions,
        trusted: t.out.values.get("ssl.ca.pem").cloned(),
    });
}
