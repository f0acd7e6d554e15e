//! What the brokers tell of a member of a worker's group. First byte: whether the rest is a `client.id` or an assignment.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/connect/client_id.rs"]
mod client_id;
#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/connect/places.rs"]
mod places;

use places::Places;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0, text)) => {
            let text = String::from_utf8_lossy(text);
            let Some((address, shares)) = client_id::address_in(&text) else { return };
            // It is the beginning of the URL of a request, whose path begins after it.
            let (_, host) = address.split_once("://").expect("it has a scheme");
            assert!(!host.is_empty() && host.chars().all(|symbol| symbol.is_ascii_graphic()), "{address}");
            assert!(!host.contains(['/', '?', '#', '@', '\\']), "{address}");
            let (name, _) = text.rsplit_once('@').expect("it has an address");
            let name = name.strip_suffix("+share").unwrap_or(name);
            let again = client_id::client_id(Some(name), address, shares);
            assert_eq!(client_id::address_in(&again), Some((address, shares)));
        }
        Some((_, assignment)) => {
            let Some(places) = Places::read(assignment, "configs", "work") else { return };
            // Each partition takes four bytes.
            assert!(places.partitions.len() * 4 < assignment.len());
            let mut others = places.clone();
            others.remove(&places);
            assert!(others.is_empty());
            others.add(&places);
            assert_eq!(others, places);
        }
        None => {}
    }
});
