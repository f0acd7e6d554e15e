//! Where AWS credentials come from, in the order of Amazon's library.

use serde_json::Value as Json;

use super::keys::Credentials;
use super::options::{AwsError, Env, Msk, Role};
use super::{http, profile, sts::Sts};

/// One search for credentials.
pub(super) struct Sources<'a> {
    pub(super) msk: &'a Msk,
    /// The cluster's.
    pub(super) region: &'a str,
    pub(super) now_ms: i64,
    pub(super) env: Env<'a>,
}

const NOTHING: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (awsProfileName, AWS_PROFILE), or give the machine, the task or \
                       the service account of the pod a role";
const METADATA: &str = "check that the machine or the task has a role, and that the process may reach the endpoint";

impl Sources<'_> {
    /// A source that is named and fails is an error: with credentials of somebody else, the brokers would refuse what the right ones may do.
    pub(super) fn find(&self) -> Result<Credentials, AwsError> {
        let Some(role) = &self.msk.role else {
            return match self.msk.profile.as_deref() {
                Some(name) => self.profile(name),
                None => self.default(),
            };
        };
        let by = match (&role.given, self.msk.profile.as_deref()) {
            (Some((id, secret, token)), _) => Credentials {
                access_key: id.clone(),
                secret_key: secret.clone(),
                session_token: token.clone(),
                expires_ms: None,
            },
            (None, Some(name)) => self.profile(name)?,
            (None, None) => self.default()?,
        };
        self.sts().assume(role, &by)
    }

    pub(super) fn sts(&self) -> Sts<'_> {
        Sts {
            region: self.msk.sts_region.as_deref().unwrap_or(self.region),
            fips: self.msk.fips,
            now_ms: self.now_ms,
            env: self.env,
        }
    }

    fn profile(&self, name: &str) -> Result<Credentials, AwsError> {
        profile::find(self, name)?.ok_or_else(|| {
            AwsError::new(
                format!("the AWS profile {name} does not exist, or has no credentials"),
                "check the name, the files ~/.aws/config and ~/.aws/credentials of the user that runs Walferry, and AWS_CONFIG_FILE and \
                 AWS_SHARED_CREDENTIALS_FILE",
            )
        })
    }

    fn default(&self) -> Result<Credentials, AwsError> {
        if let Some(found) = self.environment()? {
            return Ok(found);
        }
        if let Some(found) = self.web_identity()? {
            return Ok(found);
        }
        if let Some(name) = (self.env)("AWS_PROFILE") {
            return self.profile(&name);
        }
        if let Some(found) = profile::find(self, "default")? {
            return Ok(found);
        }
        if let Some(found) = self.container()? {
            return Ok(found);
        }
        let none = |why: &str| AwsError::new(format!("no AWS credentials were found: {why}"), NOTHING);
        match self.machine() {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(none(
                "the environment, the profiles and the container have none, and AWS_EC2_METADATA_DISABLED is set",
            )),
            Err(error) => Err(none(&format!(
                "the environment, the profiles and the container have none, and {error}"
            ))),
        }
    }

    /// `AWS_ACCESS_KEY_ID` and what belongs to it
    pub(super) fn environment(&self) -> Result<Option<Credentials>, AwsError> {
        match ((self.env)("AWS_ACCESS_KEY_ID"), (self.env)("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => Ok(Some(Credentials::lasting(id, secret, (self.env)("AWS_SESSION_TOKEN")))),
            (None, None) => Ok(None),
            _ => Err(AwsError::new(
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
                "set both, or neither",
            )),
        }
    }

    /// The service account of a pod (IRSA).
    fn web_identity(&self) -> Result<Option<Credentials>, AwsError> {
        let (Some(file), Some(arn)) = ((self.env)("AWS_WEB_IDENTITY_TOKEN_FILE"), (self.env)("AWS_ROLE_ARN")) else {
            return Ok(None);
        };
        let role = Role {
            arn,
            session_name: (self.env)("AWS_ROLE_SESSION_NAME"),
            ..Role::default()
        };
        self.sts().assume_with_token(&role, &file).map(Some)
    }

    /// ECS, and EKS Pod Identity.
    pub(super) fn container(&self) -> Result<Option<Credentials>, AwsError> {
        let url = match (
            (self.env)("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            (self.env)("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ) {
            (Some(path), _) => format!("http://169.254.170.2{path}"),
            (None, Some(url)) if may_have_token(&url) => url,
            (None, Some(_)) => {
                return Err(AwsError::new(
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of the machine or the container",
                    "use https, or a loopback address",
                ));
            }
            (None, None) => return Ok(None),
        };
        let failed = |what: &str| {
            AwsError::new(
                format!("no credentials from the endpoint of the container: {what}"),
                METADATA,
            )
        };
        let token = match (self.env)("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => Some(std::fs::read_to_string(&file).map_err(|error| failed(&format!("{file}: {error}")))?),
            None => (self.env)("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        };
        let headers: Vec<_> = token.iter().map(|token| ("authorization", token.trim())).collect();
        let agent = if url.starts_with("https") {
            http::service()
        } else {
            http::local()
        };
        let agent = agent.map_err(|error| failed(&error))?;
        let answer = http::get(&agent, &url, &headers).map_err(|error| failed(&error))?;
        if !answer.is_success() {
            return Err(failed(&format!("it answers with status {}", answer.status)));
        }
        let json: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        let found = Credentials::from_json(&json, "Token").ok_or_else(|| failed("its answer has no credentials"))?;
        Ok(Some(found))
    }

    /// The role of an EC2 machine (IMDSv2).
    pub(super) fn machine(&self) -> Result<Option<Credentials>, AwsError> {
        if (self.env)("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let endpoint = (self.env)("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let endpoint = endpoint
            .as_deref()
            .unwrap_or("http://169.254.169.254")
            .trim_end_matches('/');
        let failed = |what: String| AwsError::new(format!("the EC2 metadata service gives none: {what}"), METADATA);
        let agent = http::local().map_err(failed)?;
        let checked = |answer: Result<http::Answer, String>, what: &str| match answer {
            Ok(answer) if answer.is_success() => Ok(answer.body),
            Ok(answer) => Err(failed(format!("status {} for {what}", answer.status))),
            Err(error) => Err(failed(error)),
        };
        let ttl = [("x-aws-ec2-metadata-token-ttl-seconds", "21600")];
        let token = checked(
            http::put(&agent, &format!("{endpoint}/latest/api/token"), &ttl),
            "a token",
        )?;
        let headers = [("x-aws-ec2-metadata-token", token.trim())];
        let roles = format!("{endpoint}/latest/meta-data/iam/security-credentials/");
        let role = checked(http::get(&agent, &roles, &headers), "the role of the machine")?;
        let role = role.lines().next().unwrap_or_default().trim();
        let body = checked(
            http::get(&agent, &format!("{roles}{role}"), &headers),
            "the credentials",
        )?;
        let json: Json = serde_json::from_str(&body).unwrap_or_default();
        let found =
            Credentials::from_json(&json, "Token").ok_or_else(|| failed("its answer has no credentials".into()))?;
        Ok(Some(found))
    }
}

/// Whether the token of the container may be sent there, as in Amazon's SDKs.
fn may_have_token(url: &str) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let Some(address) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = address.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    !authority.contains('@')
        && (is_loopback || ["localhost", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"].contains(&host))
}
