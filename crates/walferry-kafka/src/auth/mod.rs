//! How clients log in with tokens (SASL OAUTHBEARER): from an OAuth server, or signed for Amazon MSK.

pub(crate) mod aws;
pub(crate) mod oauth;
pub(crate) mod tokens;

use aws::options::Msk;
use oauth::OAuth;

/// Where tokens for OAUTHBEARER come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    OAuth(OAuth),
    /// Amazon MSK with IAM
    Msk(Msk),
}
