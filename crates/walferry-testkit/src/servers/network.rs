//! A network that can be made to fail: a proxy on a loopback port in front of a server.

use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a write that nobody takes looks whether the connection was reset.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);

/// What the network does with what is sent through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weather {
    /// Passes everything on at once.
    #[default]
    Fair,
    /// Passes each piece on after a pause.
    Slow(Duration),
    /// Passes nothing on, in neither direction, and closes nothing: like a cable that was pulled.
    Frozen,
    /// Passes on what the client sends, and nothing of what the server answers.
    FrozenAnswers,
    /// Passes on what the server sends, and nothing of what the client sends.
    FrozenRequests,
    /// Closes new connections at once.
    Closed,
}

/// A proxy in front of a loopback port. It lasts as long as the process.
#[derive(Debug, Clone)]
pub struct Network {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    weather: Weather,
    alter: Option<fn(&mut [u8])>,
    /// How many more bytes of answers pass; `None` for all.
    budget: Option<usize>,
    connections: Vec<Arc<Connection>>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    is_reset: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

impl Network {
    /// Listens on a port of its own and passes connections on to `target`, which need not listen yet.
    #[track_caller]
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.connect(client, target);
            }
        });
        Self { port, state }
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the weather, for the connections that are open and for those to come.
    pub fn set(&self, weather: Weather) {
        self.state.lock().weather = weather;
        self.state.changed.notify_all();
    }

    /// Lets a function change what the server answers, piece by piece as it is read. It holds for connections that are open and for those to come.
    pub fn alter_answers(&self, alter: fn(&mut [u8])) {
        self.state.lock().alter = Some(alter);
    }

    /// Lets so many bytes of answers pass, on all connections together, and no more until `None` is given: what a client is in the middle of
    /// stays so.
    pub fn limit_answers(&self, bytes: Option<usize>) {
        self.state.lock().budget = bytes;
        self.state.changed.notify_all();
    }

    /// Resets all open connections: both ends get an RST. Returns how many there were.
    pub fn reset(&self) -> usize {
        let connections = std::mem::take(&mut self.state.lock().connections);
        connections.iter().for_each(|connection| connection.reset());
        self.state.changed.notify_all();
        connections.len()
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a connection on to `target`, with one thread for each direction.
    fn connect(self: &Arc<Self>, client: TcpStream, target: u16) {
        if self.lock().weather == Weather::Closed {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        for end in [&client, &server] {
            end.set_nodelay(true).ok();
            end.set_write_timeout(Some(WRITE_TIMEOUT)).ok();
        }
        let connection = Arc::new(Connection {
            client,
            server,
            is_reset: AtomicBool::new(false),
        });
        self.lock().connections.push(connection.clone());
        for direction in [Direction::Request, Direction::Answer] {
            let (state, connection) = (self.clone(), connection.clone());
            thread::spawn(move || state.pass(direction, &connection));
        }
    }

    /// Passes on what comes from one end to the other, until one of them is closed.
    fn pass(&self, direction: Direction, connection: &Arc<Connection>) {
        let (mut from, to) = match direction {
            Direction::Request => (&connection.client, &connection.server),
            Direction::Answer => (&connection.server, &connection.client),
        };
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            self.wait_until_passable(direction, connection);
            if direction == Direction::Answer {
                self.wait_for_budget(count, connection);
                let alter = self.lock().alter;
                if let Some(alter) = alter {
                    alter(&mut piece[..count]);
                }
            }
            if !connection.write(to, &piece[..count]) {
                break;
            }
        }
        // An end that is closed while the network is frozen stays unknown to the other end, as it does without a cable.
        self.wait_until_passable(direction, connection);
        if !connection.is_reset() {
            to.shutdown(Shutdown::Write).ok();
            from.shutdown(Shutdown::Read).ok();
        }
        self.lock().connections.retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// Waits until a piece of an answer may pass: one passes as a whole where anything is left.
    fn wait_for_budget(&self, count: usize, connection: &Connection) {
        let mut now = self.lock();
        while !connection.is_reset() {
            match &mut now.budget {
                None => return,
                Some(0) => now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    *left = left.saturating_sub(count);
                    return;
                }
            }
        }
    }

    fn wait_until_passable(&self, direction: Direction, connection: &Connection) {
        let mut now = self.lock();
        while !connection.is_reset() {
            match now.weather {
                Weather::Slow(pause) => {
                    drop(now);
                    return thread::sleep(pause);
                }
                weather if weather.passes(direction) => return,
                _ => now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Connection {
    fn is_reset(&self) -> bool {
        self.is_reset.load(Relaxed)
    }

    /// The threads that pass it on let go of it, and with a linger of zero that sends an RST instead of a FIN.
    fn reset(&self) {
        self.is_reset.store(true, Relaxed);
        for end in [&self.client, &self.server] {
            SockRef::from(end).set_linger(Some(Duration::ZERO)).ok();
            end.shutdown(Shutdown::Read).ok();
        }
    }

    /// Writes all of a piece, unless the connection is closed or reset. Returns whether it did.
    fn write(&self, mut to: &TcpStream, mut piece: &[u8]) -> bool {
        while !piece.is_empty() && !self.is_reset() {
            match to.write(piece) {
                Ok(count) => piece = &piece[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return false,
            }
        }
        piece.is_empty()
    }
}

impl Weather {
    fn passes(self, direction: Direction) -> bool {
        match self {
            Self::Fair | Self::Slow(_) | Self::Closed => true,
            Self::Frozen => false,
            Self::FrozenAnswers => direction == Direction::Request,
            Self::FrozenRequests => direction == Direction::Answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets, on a port of its own.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        port
    }

    fn client(network: &Network) -> TcpStream {
        TcpStream::connect(("127.0.0.1", network.port())).unwrap()
    }

    /// What is read within a moment.
    fn heard(mut stream: &TcpStream) -> Result<usize, ErrorKind> {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.read(&mut [0; 16]).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_frozen_arrives_when_it_thaws() {
        let network = Network::to(echo());
        let mut stream = client(&network);
        stream.write_all(b"one").unwrap();
        assert_eq!(heard(&stream), Ok(3));
        for weather in [Weather::Frozen, Weather::FrozenAnswers, Weather::FrozenRequests] {
            network.set(weather);
            stream.write_all(b"two").unwrap();
            assert_eq!(heard(&stream), Err(ErrorKind::WouldBlock), "{weather:?}");
            network.set(Weather::Fair);
            assert_eq!(heard(&stream), Ok(3), "{weather:?}");
        }
    }

    #[test]
    fn a_reset_is_one_and_not_an_end() {
        let network = Network::to(echo());
        let mut stream = client(&network);
        stream.write_all(b"one").unwrap();
        assert_eq!(heard(&stream), Ok(3));
        assert_eq!(network.reset(), 1);
        assert_eq!(heard(&stream), Err(ErrorKind::ConnectionReset));
        // The next one is as good as the first.
        let mut stream = client(&network);
        stream.write_all(b"two").unwrap();
        assert_eq!(heard(&stream), Ok(3));
    }

    #[test]
    fn a_closed_network_lets_nobody_in() {
        let network = Network::to(echo());
        network.set(Weather::Closed);
        assert!(matches!(
            heard(&client(&network)),
            Ok(0) | Err(ErrorKind::ConnectionReset)
        ));
    }
}
