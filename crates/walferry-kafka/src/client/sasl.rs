//! SASL: the mechanism and its credentials.

use std::collections::BTreeMap;

use walferry_config::{Jaas, Secret, ValueError};

use super::{Translation, kerberos, tls::Protocol};
use crate::aws::{Msk, Role};

/// Where tokens for OAUTHBEARER come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    OAuth(OAuth),
    /// Amazon MSK with IAM
    Msk(Msk),
}

/// A token endpoint: OAuth's client credentials.
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
const CLIENT_HANDLER: &str = "sasl.client.callback.handler.class";

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
    client_handler(t, &mechanism);
    match mechanism.as_str() {
        "PLAIN" => password(t, "PlainLoginModule"),
        "SCRAM-SHA-256" | "SCRAM-SHA-512" => password(t, "ScramLoginModule"),
        "OAUTHBEARER" => oauth(t),
        "GSSAPI" => kerberos::translate(t),
        "AWS_MSK_IAM" => {
            msk(t, "IAMLoginModule");
            // The brokers of MSK take the same signature in either mechanism.
            t.set(MECHANISM, "OAUTHBEARER");
            return;
        }
        other => {
            let error = ValueError::not_one_of(
                other,
                &[
                    "PLAIN",
                    "SCRAM-SHA-256",
                    "SCRAM-SHA-512",
                    "OAUTHBEARER",
                    "AWS_MSK_IAM",
                    "GSSAPI",
                ],
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
        Some("IAMOAuthBearerLoginCallbackHandler") => return msk(t, "OAuthBearerLoginModule"),
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
    t.out.token = Some(TokenSource::OAuth(OAuth {
        token_endpoint,
        client_id,
        client_secret: Secret::new(client_secret),
        scope,
        escaped,
        extensions,
        trusted: t.out.values.get("ssl.ca.pem").cloned(),
    }));
}

/// Amazon's library names a class that signs. Others would change the log-in.
fn client_handler(t: &mut Translation, mechanism: &str) {
    let Some(class) = t.get_filled(CLIENT_HANDLER) else {
        return;
    };
    let is_amazons = match class.rsplit('.').next().unwrap_or_default() {
        "IAMClientCallbackHandler" => mechanism == "AWS_MSK_IAM",
        "IAMOAuthBearerLoginCallbackHandler" => mechanism == "OAUTHBEARER",
        _ => false,
    };
    if !is_amazons {
        t.problem(CLIENT_HANDLER, "is not supported by Walferry")
            .hint("Walferry cannot load Java classes; remove it");
    }
}

/// The options of Amazon's library.
fn msk(t: &mut Translation, module: &str) {
    let options = match (t.get_filled(JAAS).is_some(), jaas(t, module)) {
        (true, None) => return,
        (_, jaas) => jaas.map(|jaas| jaas.options).unwrap_or_default(),
    };
    let option = |name: &str| options.get(name).cloned().filter(|text| !text.is_empty());
    let is_true = |name: &str| options.get(name).is_some_and(|text| text == "true");
    if options.contains_key("awsMskRegionProvider") {
        t.problem(JAAS, "contains awsMskRegionProvider, which refers to a Java class")
            .hint("remove it, and set AWS_REGION");
        return;
    }
    if is_true("awsDebugCreds") {
        t.note(
            JAAS,
            "contains awsDebugCreds, which has no effect: `aws sts get-caller-identity` shows whose credentials they are",
        );
    }
    for name in ["awsMaxRetries", "awsMaxBackOffTimeMs"] {
        if options.contains_key(name) {
            t.note(
                JAAS,
                format!("contains {name}, which has no effect: Walferry tries again without end"),
            );
        }
    }
    if is_true("awsAddDefaultProviders") {
        t.note(
            JAAS,
            "contains awsAddDefaultProviders, which has no effect: no other credentials are taken than those that are named",
        );
    }
    for name in options.keys().filter(|name| name.starts_with("aws")) {
        if !OPTIONS.contains(&name.as_str()) {
            let place = t.written_as(JAAS);
            t.findings
                .warning(
                    place,
                    format!("contains {name}, which Amazon's library does not have, so it has no effect"),
                )
                .hint("correct the name, or remove it");
        }
    }
    let given = option("awsRoleAccessKeyId")
        .zip(option("awsRoleSecretAccessKey"))
        .map(|(id, secret)| (id, Secret::new(secret), option("awsRoleSessionToken").map(Secret::new)));
    let role = option("awsRoleArn").map(|arn| Role {
        arn,
        session_name: option("awsRoleSessionName"),
        external_id: option("awsRoleExternalId"),
        duration_seconds: None,
        given,
    });
    let sts_region = option("awsStsRegion");
    if let Some(region) = &sts_region
        && !crate::aws::is_region(region)
    {
        t.problem(JAAS, "contains an awsStsRegion that is no AWS region")
            .hint("write a region such as eu-central-1");
    }
    t.out.token = Some(TokenSource::Msk(Msk {
        profile: option("awsProfileName"),
        role,
        sts_region,
        fips: is_true("awsShouldUseFips"),
    }));
}

/// The options of Amazon's library.
const OPTIONS: [&str; 13] = [
    "awsProfileName",
    "awsRoleArn",
    "awsRoleExternalId",
    "awsRoleAccessKeyId",
    "awsRoleSecretAccessKey",
    "awsRoleSessionName",
    "awsRoleSessionToken",
    "awsStsRegion",
    "awsAddDefaultProviders",
    "awsDebugCreds",
    "awsShouldUseFips",
    "awsMaxRetries",
    "awsMaxBackOffTimeMs",
];
