//! Profiles of `~/.aws/config` and `~/.aws/credentials`.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value as Json;

use super::credentials::Sources;
use super::keys::Credentials;
use super::options::{AwsError, Env, Role};

type Profile = BTreeMap<String, String>;

const FILES: &str = "correct the profile in ~/.aws/config or ~/.aws/credentials";
/// How long a program of `credential_process` may run.
const PATIENCE: Duration = Duration::from_secs(30);

/// Credentials of a profile. `None` if it does not exist or has none.
pub(super) fn find(sources: &Sources<'_>, name: &str) -> Result<Option<Credentials>, AwsError> {
    resolve(sources, &read(sources.env)?, name, &mut Vec::new())
}

/// Credentials of a `credential_source`; `None` if there is no source of this name.
fn of_source(sources: &Sources<'_>, source: &str) -> Option<Result<Option<Credentials>, AwsError>> {
    Some(match source {
        "Environment" => sources.environment(),
        "EcsContainer" => sources.container(),
        "Ec2InstanceMetadata" => sources.machine(),
        _ => return None,
    })
}

/// `region` of the profile that is in use.
pub(super) fn region(profile: Option<&str>, env: Env<'_>) -> Option<String> {
    let name = profile.map(str::to_owned).or_else(|| env("AWS_PROFILE"));
    let profiles = read(env).ok()?;
    profiles
        .get(name.as_deref().unwrap_or("default"))?
        .get("region")
        .cloned()
}

/// Profiles that name one another end in one with credentials.
fn resolve(
    sources: &Sources<'_>,
    profiles: &BTreeMap<String, Profile>,
    name: &str,
    seen: &mut Vec<String>,
) -> Result<Option<Credentials>, AwsError> {
    let Some(profile) = profiles.get(name) else {
        return Ok(None);
    };
    let option = |key: &str| profile.get(key).cloned().filter(|text| !text.is_empty());
    let wrong = |what: &str| AwsError::new(format!("the AWS profile {name} {what}"), FILES);
    let own = match (option("aws_access_key_id"), option("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Some(Credentials::lasting(id, secret, option("aws_session_token"))),
        _ => None,
    };
    // A profile that is its own source uses its own keys to assume its role.
    if seen.last().is_some_and(|last| last == name) {
        return Ok(own);
    }
    if seen.iter().any(|seen| seen == name) {
        return Err(wrong("is its own source_profile, by way of others"));
    }
    if let Some(arn) = option("role_arn") {
        let role = Role {
            arn,
            session_name: option("role_session_name"),
            external_id: option("external_id"),
            duration_seconds: option("duration_seconds").and_then(|text| text.parse().ok()),
            given: None,
        };
        if option("mfa_serial").is_some() {
            return Err(wrong("asks for a code of an MFA device, which nobody can type here"));
        }
        if let Some(file) = option("web_identity_token_file") {
            return sources.sts().assume_with_token(&role, &file).map(Some);
        }
        let by = match (option("source_profile"), option("credential_source")) {
            (Some(source), _) => {
                seen.push(name.to_owned());
                let found = resolve(sources, profiles, &source, seen)?;
                found.ok_or_else(|| {
                    wrong(&format!(
                        "has the source_profile {source}, which does not exist or has no credentials"
                    ))
                })?
            }
            (None, Some(source)) => {
                let found = of_source(sources, &source).unwrap_or_else(|| {
                    Err(wrong(
                        "has a credential_source other than Environment, EcsContainer and Ec2InstanceMetadata",
                    ))
                })?;
                found.ok_or_else(|| wrong(&format!("has the credential_source {source}, which has no credentials")))?
            }
            (None, None) => {
                return Err(wrong(
                    "has a role_arn, but neither source_profile nor credential_source",
                ));
            }
        };
        return sources.sts().assume(&role, &by).map(Some);
    }
    if own.is_some() {
        return Ok(own);
    }
    if let Some(command) = option("credential_process") {
        return process(name, &command).map(Some);
    }
    if option("sso_session").or_else(|| option("sso_start_url")).is_some() {
        return Err(AwsError::new(
            format!("the AWS profile {name} logs in with IAM Identity Center (SSO), which Walferry does not do"),
            "use a profile with `credential_process = aws configure export-credentials --profile NAME`, or a role",
        ));
    }
    Ok(None)
}

/// Runs a program that prints credentials. It runs in a shell, as with Amazon's SDK for Java.
fn process(name: &str, command: &str) -> Result<Credentials, AwsError> {
    let failed = |what: String| AwsError::new(format!("credential_process of the AWS profile {name} {what}"), FILES);
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    let stdout = child.stdout.take();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|stdout| stdout.take(64 * 1024).read_to_string(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            outcome => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(match outcome {
                    Err(error) => format!("was lost: {error}"),
                    Ok(_) => format!("did not end within {} s", PATIENCE.as_secs()),
                }));
            }
        }
    };
    if !status.success() {
        return Err(failed(format!("failed: {status}")));
    }
    let text = reading.join().ok().flatten().unwrap_or_default();
    let json: Json = serde_json::from_str(&text).unwrap_or_default();
    let is_known = json["Version"].as_i64() == Some(1);
    let found = is_known
        .then(|| Credentials::from_json(&json, "SessionToken"))
        .flatten();
    found.ok_or_else(|| failed("prints no credentials of version 1".into()))
}

/// All profiles of both files. What the file of credentials says wins.
fn read(env: Env<'_>) -> Result<BTreeMap<String, Profile>, AwsError> {
    let mut profiles = BTreeMap::new();
    for (variable, file, is_config) in [
        ("AWS_CONFIG_FILE", "config", true),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", false),
    ] {
        let home = || env("HOME").map(|home| PathBuf::from(home).join(".aws").join(file));
        let Some(path) = env(variable).map(PathBuf::from).or_else(home) else {
            continue;
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => add(&mut profiles, &text, is_config),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => {
                return Err(AwsError::new(
                    format!("{} cannot be read: {error}", path.display()),
                    "check its permissions",
                ));
            }
        }
    }
    Ok(profiles)
}

fn add(profiles: &mut BTreeMap<String, Profile>, text: &str, is_config: bool) {
    let mut current: Option<String> = None;
    for line in text.lines() {
        // Lines that are indented belong to a setting of another service.
        if line.starts_with([' ', '\t', '#', ';']) || line.trim().is_empty() {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|header| header.split(']').next()) {
            let section = section.trim();
            let named = section
                .strip_prefix("profile")
                .filter(|name| name.starts_with([' ', '\t']));
            let name = match (is_config, named) {
                (true, Some(name)) => Some(name.trim().trim_matches(['"', '\''])),
                (true, None) => Some(section).filter(|section| *section == "default"),
                (false, _) => Some(section),
            };
            current = name.map(str::to_owned);
            if let Some(name) = &current {
                profiles.entry(name.clone()).or_default();
            }
        } else if let (Some(name), Some((key, value))) = (&current, line.split_once('=')) {
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split(" ;").next().unwrap_or_default().trim();
            let profile = profiles.entry(name.clone()).or_default();
            profile.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
}
