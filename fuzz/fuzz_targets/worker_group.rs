//! The `client.id` of a member of a worker's group, which names the address of its REST API.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/connect/client_id.rs"]
mod client_id;
fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let Some((address, shares)) = client_id::address_in(&text) else { return };
    // It is the beginning of the URL of a request, whose path begins after it.
    let (_, host) = address.split_once("://").expect("it has a scheme");
    assert!(!host.is_empty() && host.chars().all(|symbol| symbol.is_ascii_graphic()), "{address}");
    assert!(!host.contains(['/', '?', '#', '@', '\\']), "{address}");
    let (name, _) = text.rsplit_once('@').expect("it has an address");
    let name = name.strip_suffix("+share").unwrap_or(name);
    let again = client_id::client_id(Some(name), address, shares);
    assert_eq!(client_id::address_in(&again), Some((address, shares)));
});
