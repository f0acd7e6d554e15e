//! A member of a consumer group with a subscription that cannot be parsed.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// What the member calls itself.
pub(crate) const CLIENT_ID: &str = "intruder";
const JOIN_GROUP: i16 = 11;
const LEAVE_GROUP: i16 = 13;
/// Kafka's error code: the member has to join again with the id that this answer has.
const MEMBER_ID_REQUIRED: i16 = 79;

/// Joins a consumer group, and leaves it when it is dropped. Until then, the coordinator cannot complete any generation of the group.
pub(crate) struct HostileMember {
    port: u16,
    group: String,
    id: String,
    /// The answer to its second request does not come.
    _waits: TcpStream,
}

impl HostileMember {
    #[track_caller]
    pub(crate) fn join(bootstrap: &str, group: &str) -> Self {
        let port = bootstrap
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
            .expect("there is one broker");
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the broker listens");
        send(&mut stream, JOIN_GROUP, 5, &join_body(group, ""));
        // Time, error, generation, protocol, leader; then the id.
        let answer = receive(&mut stream);
        assert_eq!(number(&answer, 8), MEMBER_ID_REQUIRED, "{answer:?}");
        let mut at = 14;
        for _ in 0..2 {
            at += 2 + usize::try_from(number(&answer, at)).unwrap_or(0);
        }
        let length = usize::try_from(number(&answer, at)).expect("it has an id");
        let id = String::from_utf8(answer[at + 2..at + 2 + length].to_vec()).expect("it is text");
        send(&mut stream, JOIN_GROUP, 5, &join_body(group, &id));
        Self {
            port,
            group: group.to_owned(),
            id,
            _waits: stream,
        }
    }
}

impl Drop for HostileMember {
    fn drop(&mut self) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return;
        };
        send(
            &mut stream,
            LEAVE_GROUP,
            1,
            &[text(&self.group), text(&self.id)].concat(),
        );
        receive(&mut stream);
    }
}

fn join_body(group: &str, id: &str) -> Vec<u8> {
    const SESSION_MS: i32 = 300_000;
    const REBALANCE_MS: i32 = 1_800_000;
    let garbage = [0xff; 50];
    let mut body = text(group);
    body.extend(SESSION_MS.to_be_bytes());
    body.extend(REBALANCE_MS.to_be_bytes());
    body.extend(text(id));
    // No `group.instance.id`, and one protocol.
    body.extend((-1_i16).to_be_bytes());
    body.extend(text("consumer"));
    body.extend(1_i32.to_be_bytes());
    body.extend(text("cooperative-sticky"));
    body.extend(50_i32.to_be_bytes());
    body.extend(garbage);
    body
}

fn send(stream: &mut TcpStream, request: i16, version: i16, body: &[u8]) {
    let mut message = request.to_be_bytes().to_vec();
    message.extend(version.to_be_bytes());
    message.extend(1_i32.to_be_bytes());
    message.extend(text(CLIENT_ID));
    message.extend(body);
    let size = u32::try_from(message.len()).expect("it is short");
    let message = [&size.to_be_bytes()[..], &message].concat();
    stream.write_all(&message).expect("the broker reads it");
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).expect("the broker answers");
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer).expect("the broker answers");
    answer
}

fn number(answer: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([answer[at], answer[at + 1]])
}

fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("it is short");
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}
