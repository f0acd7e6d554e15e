//! A member of a consumer group whose group does not notice that its process is gone.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::wait_for;

/// How often it sends a heartbeat.
const BEAT: Duration = Duration::from_millis(200);
/// Requests of Kafka's protocol, in their first versions.
const HEARTBEAT: i16 = 12;
const LEAVE_GROUP: i16 = 13;
/// Kafka's error codes.
const NONE: i16 = 0;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE_IN_PROGRESS: i16 = 27;
/// No test gives out so many assignments.
const GENERATIONS: i32 = 500;

/// Sends heartbeats for a member until it is dropped. Then the member leaves the group, so that the others need not wait for its session to end.
#[derive(Debug)]
pub struct HeldMember {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HeldMember {
    /// Begins once the broker has taken the first heartbeat.
    #[track_caller]
    pub(super) fn of(port: u16, group: &str, member: &str) -> Self {
        let mut line = Line {
            stream: TcpStream::connect(("127.0.0.1", port)).expect("the broker listens"),
            group: group.to_owned(),
            member: member.to_owned(),
            generation: 0,
        };
        wait_for("a heartbeat to be taken", || line.beat().expect("the broker answers"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Relaxed) {
                if line.beat().is_err() {
                    return;
                }
                thread::sleep(BEAT);
            }
            let _ = line.leave();
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for HeldMember {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // If it has panicked, the test has failed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection to the broker that knows all groups: there is only one broker.
struct Line {
    stream: TcpStream,
    group: String,
    member: String,
    /// The group's generation. Each request for the member has to name it. Kafka shows it only to members, so it is found by trying.
    generation: i32,
}

impl Line {
    /// Sends a heartbeat. `None`: it was not taken.
    fn beat(&mut self) -> io::Result<Option<()>> {
        for generation in (self.generation..GENERATIONS).chain(0..self.generation) {
            let mut body = text(&self.group);
            body.extend(generation.to_be_bytes());
            body.extend(text(&self.member));
            match self.ask(HEARTBEAT, &body)? {
                ILLEGAL_GENERATION => {}
                code => {
                    self.generation = generation;
                    return Ok(matches!(code, NONE | REBALANCE_IN_PROGRESS).then_some(()));
                }
            }
        }
        Ok(None)
    }

    fn leave(&mut self) -> io::Result<i16> {
        let body = [text(&self.group), text(&self.member)].concat();
        self.ask(LEAVE_GROUP, &body)
    }

    /// Asks, and returns the error code of the answer.
    fn ask(&mut self, request: i16, body: &[u8]) -> io::Result<i16> {
        let mut message = request.to_be_bytes().to_vec();
        // The version, and a number for the answer.
        message.extend([0; 6]);
        message.extend(text("walferry-test"));
        message.extend(body);
        let size = u32::try_from(message.len()).expect("it is short");
        self.stream.write_all(&[&size.to_be_bytes()[..], &message].concat())?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut answer)?;
        match answer[..] {
            [_, _, _, _, high, low, ..] => Ok(i16::from_be_bytes([high, low])),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("it is short");
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}
