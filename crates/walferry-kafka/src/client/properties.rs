//! What a Kafka client is made with.

use std::collections::BTreeMap;

use crate::auth::TokenSource;

/// A Kafka client, ready to be made.
#[derive(Clone, Default)]
pub(crate) struct Properties {
    /// librdkafka's properties. Values may be secrets.
    pub(crate) values: BTreeMap<String, String>,
    /// Where tokens come from, with the mechanism OAUTHBEARER.
    pub(crate) token: Option<TokenSource>,
    /// Settings that weaken a guarantee.
    pub(crate) warnings: Vec<String>,
}
