//! The `client.id` of a member of a worker's group, which says where the member's REST API is.

/// Follows the name of a client, before the address of its worker.
const ADDRESS: char = '@';
/// Ends the name of a client whose worker shares connectors.
const SHARES: &str = "+share";
/// The `client.id` of a member: the brokers show it to the other members, and in their logs and quotas. It carries the URL of the member's
/// REST API, and whether it shares connectors.
pub(super) fn client_id(configured: Option<&str>, address: &str, shares: bool) -> String {
    let name = configured.unwrap_or("walferry");
    let shares = if shares { SHARES } else { "" };
    format!("{name}{shares}{ADDRESS}{address}")
}

/// The address in a `client.id`, and whether its process shares connectors.
pub(super) fn address_in(client_id: &str) -> Option<(&str, bool)> {
    let (name, address) = client_id.rsplit_once(ADDRESS)?;
    let host = address
        .strip_prefix("http://")
        .or_else(|| address.strip_prefix("https://"))?;
    let is_plain = |symbol: char| symbol.is_ascii_graphic() && !matches!(symbol, '/' | '?' | '#' | '\\' | '@');
    (!host.is_empty() && host.chars().all(is_plain)).then_some((address, name.ends_with(SHARES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_carries_the_address_of_a_worker() {
        for address in [
            "http://10.0.0.7:8083",
            "https://worker-1.example.com:8443",
            "http://[::1]:8083",
        ] {
            for name in [None, Some("walferry-connect"), Some("a@b")] {
                for shares in [false, true] {
                    assert_eq!(address_in(&client_id(name, address, shares)), Some((address, shares)));
                }
            }
        }
        // Of an earlier version, or of somebody who wants requests to go elsewhere.
        for other in [
            "walferry-connect",
            "walferry@shop",
            "x@ftp://host:1",
            "x@http://",
            "x@http://host/path",
            "x@http://host:1?a",
            "x@http://ho st",
            "x@http://user@host:1 ",
        ] {
            assert_eq!(address_in(other), None, "{other}");
        }
    }
}
