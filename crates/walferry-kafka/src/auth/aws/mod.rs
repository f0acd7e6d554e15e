//! Amazon MSK with IAM: tokens that are signed with AWS credentials, for SASL OAUTHBEARER.
//!
//! This is a module of our own because no crate does what users of Amazon's Java library rely on without a second HTTP stack: `aws-config`
//! brings hyper and a runtime; `reqsign-aws-core` knows neither profiles that assume a role (`role_arn` with `source_profile` or
//! `credential_source`) nor `AWS_ENDPOINT_URL_STS`, and asks the sources in another order.

mod credentials;
mod http;
mod keys;
pub(crate) mod options;
mod profile;
mod sign;
mod sts;
#[cfg(test)]
mod tests;

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use credentials::Sources;
use keys::Credentials;
#[cfg(test)]
use options::Role;
use options::{AwsError, Env, Msk};

use crate::native::token::Token;

/// The environment of the process. An empty variable counts as none, as in AWS's tools.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Credentials that expire are kept until shortly before that.
static CACHE: Mutex<Vec<(Msk, String, Credentials)>> = Mutex::new(Vec::new());

/// Temporary credentials are renewed when less than this is left of them. Amazon's SDKs do so five minutes before the end.
const RENEWED_BEFORE_MS: i64 = 5 * 60 * 1_000;

/// Makes a token. Blocks while credentials are asked for. The error never shows a secret.
pub(crate) fn fetch(msk: &Msk, bootstrap_servers: &str, now_ms: i64) -> Result<Token, AwsError> {
    fetch_with(msk, bootstrap_servers, now_ms, &environment)
}

fn fetch_with(msk: &Msk, bootstrap_servers: &str, now_ms: i64, env: Env<'_>) -> Result<Token, AwsError> {
    let region = region(bootstrap_servers)
        .or_else(|| env("AWS_REGION"))
        .or_else(|| env("AWS_DEFAULT_REGION"))
        .or_else(|| profile::region(msk.profile.as_deref(), env))
        .ok_or_else(|| {
            AwsError::new(
                "the AWS region of the cluster is not known: bootstrap.servers does not name it",
                "set AWS_REGION, or use the names of the brokers that MSK shows, such as \
                 b-1.shop.abcdef.c2.kafka.eu-central-1.amazonaws.com:9098",
            )
        })?;
    let credentials = credentials(msk, &region, now_ms, env)?;
    if credentials.expires_ms.is_some_and(|at| at <= now_ms) {
        return Err(AwsError::new(
            "the AWS credentials have expired",
            "renew them, and check the machine's clock",
        ));
    }
    let at = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let expires_ms = credentials
        .expires_ms
        .unwrap_or(i64::MAX)
        .min(now_ms / 1_000 * 1_000 + sign::LIFETIME_SECONDS * 1_000);
    Ok(Token {
        value: sign::token(&credentials, &region, at, sign::USER_AGENT),
        principal: sign::SERVICE.to_owned(),
        expires_ms,
        extensions: Vec::new(),
    })
}

/// Whether it is time to tell of a failed renewal. Each client tries, and the more often the less time is left, so a minute has one message.
fn is_due(now_ms: i64) -> bool {
    static TOLD_MS: AtomicI64 = AtomicI64::new(i64::MIN);
    let due = |logged_at: i64| (now_ms.saturating_sub(logged_at) >= 60_000).then_some(now_ms);
    TOLD_MS.fetch_update(Relaxed, Relaxed, due).is_ok()
}

/// Kept credentials while they are good for a while, else new ones. If there are no new ones, kept ones are used to their end.
fn credentials(msk: &Msk, region: &str, now_ms: i64, env: Env<'_>) -> Result<Credentials, AwsError> {
    let is_ours = |(entry, of, _): &(Msk, String, Credentials)| entry == msk && of == region;
    let left = |credentials: &Credentials| credentials.expires_ms.map_or(0, |at| at - now_ms);
    let cached = {
        let cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        cache
            .iter()
            .find(|entry| is_ours(entry))
            .map(|(.., found)| found.clone())
    };
    if let Some(cached) = cached.as_ref().filter(|cached| left(cached) > RENEWED_BEFORE_MS) {
        return Ok(cached.clone());
    }
    let sources = Sources {
        msk,
        region,
        now_ms,
        env,
    };
    let (found, failed) = match sources.find() {
        Ok(found) => (found, None),
        Err(error) => match cached.filter(|cached| left(cached) > 0) {
            Some(cached) => (cached, Some(error)),
            None => return Err(error),
        },
    };
    if let Some(error) = failed
        && is_due(now_ms)
    {
        tracing::warn!(
            hint = error.hint,
            seconds.left = left(&found) / 1_000,
            "AWS credentials are not renewed yet, the present ones are used: {error}"
        );
    }
    if found.expires_ms.is_some() {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|entry| !is_ours(entry));
        cache.push((msk.clone(), region.to_owned(), found.clone()));
    }
    Ok(found)
}

/// The region in a broker's name, such as `b-1.shop.abcdef.c2.kafka.eu-central-1.amazonaws.com`. Like Amazon's signer, it asks no more than that a
/// part of the name looks like a region.
fn region(bootstrap_servers: &str) -> Option<String> {
    let hosts = bootstrap_servers.split(',').map(|server| {
        let server = server.trim();
        let host = server.rsplit_once("://").map_or(server, |(_, host)| host);
        host.split(':').next().unwrap_or_default()
    });
    hosts
        .flat_map(|host| host.split('.'))
        .map(str::to_ascii_lowercase)
        .find(|label| is_region(label))
}

/// Such as `us-east-1`, `cn-north-1`, `us-gov-west-1` and `eusc-de-east-1`.
pub(crate) fn is_region(label: &str) -> bool {
    const WHERE: [&str; 9] = [
        "north",
        "south",
        "east",
        "west",
        "central",
        "northeast",
        "northwest",
        "southeast",
        "southwest",
    ];
    let parts: Vec<&str> = label.split('-').collect();
    let [area, between @ .., direction, number] = &parts[..] else {
        return false;
    };
    let is_word = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    (2..=4).contains(&area.len())
        && is_word(area)
        && between.len() <= 1
        && between.iter().all(is_word)
        && WHERE.contains(direction)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}
