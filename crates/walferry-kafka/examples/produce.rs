//! Measures the producer: a million records of 300 bytes with three headers, to a broker that runs.
//!
//! ```text
//! cargo run --release -p walferry-kafka --example produce -- 127.0.0.1:9092 topic [--records N] [--wrapper] [name=value …]
//! ```
//! `--wrapper` sends through the `rdkafka` crate's own producer instead, for comparison; `name=value` sets a property of
//! librdkafka's.

use std::{
    env, fs,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext,
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, ProducerContext, ThreadedProducer},
};
use walferry_engine::{
    Position,
    progress::{Progress, StreamChange, StreamEntry},
    sink::{Acks, Outgoing, RecordOrigin, Sink, Sinks},
    store::StoredOffset,
};
use walferry_kafka::{ClientSettings, Producers};
use walferry_pgoutput::Lsn;

const IN_FLIGHT_BYTES: usize = 16 << 20;

type Send = Box<dyn FnMut(&Outgoing<'_>, u64)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let servers = args.next().ok_or("no bootstrap servers")?;
    let topic = args.next().ok_or("no topic")?;
    let mut settings = ClientSettings::new("measure", &servers);
    let (mut records, mut wrapper) = (1_000_000u64, false);
    while let Some(arg) = args.next() {
        match arg.split_once('=') {
            Some((name, value)) => settings.set(name, value),
            None if arg == "--wrapper" => wrapper = true,
            None => records = args.next().ok_or("no number")?.parse()?,
        }
    }

    let progress = Arc::new(Progress::new(StoredOffset::default(), IN_FLIGHT_BYTES));
    let acks = Acks::new(Arc::clone(&progress));
    let mut send: Send = if wrapper {
        let producer = wrapped(&settings, acks);
        Box::new(move |record, sequence| send_wrapped(&producer, record, sequence))
    } else {
        let mut sink = Producers::new(settings).open(acks)?;
        Box::new(move |record, sequence| sink.send(record, sequence).expect("sent"))
    };

    let value = [b'v'; 300];
    let (cpu, start) = (cpu_seconds(), Instant::now());
    for n in 0..records {
        let position = Position {
            lsn: Lsn(n),
            ..Position::default()
        };
        let step = StreamEntry::Record {
            change: StreamChange {
                position,
                message: walferry_engine::message_type::MessageType::Insert,
            },
            last: true,
            bytes: value.len() + 64,
        };
        let sequence = progress.push([step]);
        if n % 64 == 0 {
            progress.wait_for_room();
        }
        let key = format!("{{\"id\":{n}}}");
        let record = Outgoing {
            topic: &topic,
            partition: None,
            timestamp_ms: None,
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[
                ("id", Some(key.as_bytes())),
                ("type", Some(b"created")),
                ("trace", None),
            ],
            origin: RecordOrigin {
                table: "public.outbox",
                position: &Lsn(n),
            },
        };
        send(&record, sequence);
    }
    while progress.in_flight().0 > 0 && progress.failure().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    if let Some(failure) = progress.failure() {
        return Err(failure.into());
    }
    println!(
        "{records} records in {seconds:.2} s: {:.0}/s, {cpu:.2} CPU s, peak {} MiB",
        records as f64 / seconds,
        peak_mib()
    );
    Ok(())
}

struct Wrapped(Acks);

impl ClientContext for Wrapped {}

impl ProducerContext for Wrapped {
    type DeliveryOpaque = usize;
    fn delivery(&self, result: &DeliveryResult<'_>, sequence: usize) {
        if result.is_ok() {
            self.0.delivered(sequence as u64);
        }
    }
}

fn wrapped(settings: &ClientSettings, acks: Acks) -> ThreadedProducer<Wrapped> {
    let mut config = ClientConfig::new();
    for (name, value) in settings.properties() {
        config.set(name, value);
    }
    config.create_with_context(Wrapped(acks)).expect("settings are good")
}

fn send_wrapped(producer: &ThreadedProducer<Wrapped>, record: &Outgoing<'_>, sequence: u64) {
    let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
    for &(key, value) in record.headers {
        headers = headers.insert(Header { key, value });
    }
    let mut message = BaseRecord::with_opaque_to(record.topic, sequence as usize).headers(headers);
    message.key = record.key;
    message.payload = record.value;
    producer.send(message).expect("queue has room");
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or_default()
        / 1024
}
