//! How a client of MSK finds its credentials, and why it does not.

use walferry_config::Secret;

/// How a client of MSK finds its credentials: the options of Amazon's log-in module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Msk {
    /// `awsProfileName`
    pub(crate) profile: Option<String>,
    /// `awsRoleArn` and what belongs to it
    pub(crate) role: Option<Role>,
    /// `awsStsRegion`
    pub(crate) sts_region: Option<String>,
    /// `awsShouldUseFips`
    pub(crate) fips: bool,
}

/// A role that is assumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) session_name: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) duration_seconds: Option<u32>,
    /// Credentials that are written in the options: access key, secret key, session token.
    pub(crate) given: Option<(String, Secret, Option<Secret>)>,
}

/// Why there is no token. Shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct AwsError {
    pub(super) what: String,
    pub(crate) hint: &'static str,
}

impl AwsError {
    pub(super) fn new(what: impl Into<String>, hint: &'static str) -> Self {
        Self {
            what: what.into(),
            hint,
        }
    }
}

/// Where settings come from besides the properties: the environment.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The domain of AWS's services in a region.
pub(super) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else if region.starts_with("eusc-") {
        "amazonaws.eu"
    } else {
        "amazonaws.com"
    }
}
