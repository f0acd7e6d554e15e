//! Writes `docs/reference/kafka-client.md` to the standard output.

fn main() {
    print!("{}", walferry_kafka::reference_markdown());
}
