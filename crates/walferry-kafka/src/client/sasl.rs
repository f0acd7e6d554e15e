//! SASL: the mechanism and its credentials.

use walferry_config::{Secret, ValueError};

use super::jaas::{JAAS, MECHANISM, jaas};
use super::{Translation, kerberos, tls::Protocol};
use crate::auth::{
    TokenSource,
    aws::options::{Msk, Role},
    oauth::OAuth,
};

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
        && !crate::auth::aws::is_region(region)
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
