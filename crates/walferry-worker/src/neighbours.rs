//! Whether the processes of the other workers are there, as far as their addresses show it.
//!
//! An open connection to each worker's REST API tells at once when its process ends, because its system then closes the connection. A new
//! connection that is *refused* shows that nobody listens there any more. Nothing is sent. An address that does not answer, or that cannot be
//! reached, shows nothing: its process may be at work behind a network that is cut.
//!
//! A worker listens as long as it is a member of the group, also while it ends in order, and a listener that fails ends its process.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, lookup_host},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::vital::spawn_vital;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// A connection is renewed after this time: a worker that was lost without a trace has not closed it.
const HOLD: Duration = Duration::from_secs(20);
/// One that was closed after a shorter time than this was not accepted for long.
const SHORT: Duration = Duration::from_millis(500);
/// So many short ones in a row are followed by a pause.
const SHORT_ONES: u32 = 3;
/// The pause before another try.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause between the two refusals that count as one sign: the second one shows that the first was no accident of a moment.
const SECOND: Duration = Duration::from_millis(20);
/// No more addresses than this are watched: a group has at most so many workers with connectors.
const MOST: usize = 64;

/// What an address shows of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Somebody listens there.
    Listens,
    /// Nobody does.
    Refuses,
}

/// The other workers' addresses, which are watched.
pub(crate) struct Neighbours {
    dial: Dial,
    watched: BTreeMap<String, JoinHandle<()>>,
    signs: mpsc::UnboundedReceiver<(String, Sign)>,
    tell: mpsc::UnboundedSender<(String, Sign)>,
}

/// Connects to `host:port`. A simulation provides its own.
pub(crate) type Dial = Rc<dyn Fn(&str) -> Pin<Box<dyn Future<Output = Connected>>>>;

impl Default for Neighbours {
    fn default() -> Self {
        Self::by(Rc::new(|place: &str| {
            let place = place.to_owned();
            Box::pin(async move { connect(&place).await })
        }))
    }
}

impl Neighbours {
    /// Watches no address yet; opens connections with `dial`.
    pub(crate) fn by(dial: Dial) -> Self {
        let (tell, signs) = mpsc::unbounded_channel();
        Self {
            dial,
            watched: BTreeMap::new(),
            signs,
            tell,
        }
    }
}

impl Neighbours {
    /// Watches these URLs, and no others any more.
    pub(crate) fn watch(&mut self, addresses: BTreeSet<String>) {
        self.watched.retain(|address, task| {
            let is_wanted = addresses.contains(address);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for address in addresses {
            if self.watched.len() >= MOST || self.watched.contains_key(&address) {
                continue;
            }
            let task = spawn_vital(watch(self.dial.clone(), address.clone(), self.tell.clone()));
            self.watched.insert(address, task);
        }
    }

    /// The next sign of one of them.
    pub(crate) async fn next(&mut self) -> (String, Sign) {
        match self.signs.recv().await {
            Some(sign) => sign,
            // There is always a sender: this one's own.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.watched.values().for_each(JoinHandle::abort);
    }
}

/// Watches one address for ever.
async fn watch(dial: Dial, address: String, signs: mpsc::UnboundedSender<(String, Sign)>) {
    let place = address.split_once("://").map_or(address.as_str(), |(_, place)| place);
    let (mut refusals, mut short_ones) = (0_u32, 0_u32);
    loop {
        match dial(place).await {
            Connected::Open(closed) => {
                refusals = 0;
                let _ = signs.send((address.clone(), Sign::Listens));
                let begun = Instant::now();
                let _ = timeout(HOLD, closed).await;
                short_ones = if begun.elapsed() < SHORT { short_ones + 1 } else { 0 };
                if short_ones < SHORT_ONES {
                    continue;
                }
            }
            Connected::Refused => {
                refusals += 1;
                if refusals < 2 {
                    sleep(SECOND).await;
                    continue;
                }
                let _ = signs.send((address.clone(), Sign::Refuses));
            }
            Connected::Unknown => refusals = 0,
        }
        sleep(PAUSE).await;
    }
}

/// The outcome of a connection attempt.
pub(crate) enum Connected {
    /// There is a connection, until this ends.
    Open(Pin<Box<dyn Future<Output = ()>>>),
    Refused,
    Unknown,
}

/// Waits until the other side closes a connection.
async fn closed(mut socket: TcpStream) {
    let mut nothing = [0];
    let _ = socket.read(&mut nothing).await;
}

/// Connects to one of the addresses of a host. It counts as refused only if all of them refuse.
async fn connect(place: &str) -> Connected {
    let Ok(Ok(found)) = timeout(CONNECT, lookup_host(place)).await else {
        return Connected::Unknown;
    };
    let mut are_all_refused = None;
    for address in found {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Connected::Open(Box::pin(closed(socket))),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                are_all_refused.get_or_insert(true);
            }
            _ => are_all_refused = Some(false),
        }
    }
    match are_all_refused {
        Some(true) => Connected::Refused,
        _ => Connected::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, task::LocalSet};

    use super::*;

    #[test]
    fn a_listener_that_is_gone_is_noticed_and_one_that_hangs_or_comes_back_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let place = listener.local_addr().expect("an address");
            let url = format!("http://{place}");
            let mut neighbours = Neighbours::default();
            neighbours.watch(BTreeSet::from([url.clone()]));
            // The system accepts the connection, though nobody takes it.
            assert_eq!(neighbours.next().await, (url.clone(), Sign::Listens));
            let (taken, _) = listener.accept().await.expect("a connection");
            drop(taken);
            assert_eq!(
                neighbours.next().await,
                (url.clone(), Sign::Listens),
                "it was only closed"
            );
            drop(listener);
            assert_eq!(neighbours.next().await, (url.clone(), Sign::Refuses));
            let listener = TcpListener::bind(place).await.expect("the same port");
            while neighbours.next().await.1 == Sign::Refuses {}
            drop(listener);
            neighbours.watch(BTreeSet::new());
            assert!(neighbours.watched.is_empty());
        });
    }

    /// Whoever may join the group names an address.
    #[test]
    fn whoever_names_addresses_gets_connections_to_few_of_them_and_nothing_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            // Nobody resolves them, and none of them is a place.
            let odd = [
                "http://",
                "http://[",
                "http://a:b:c",
                "http://:0",
                "http://\u{1b}]0;x:1",
                "http://x:99999",
            ];
            let many = (0..1000).map(|number| format!("http://127.0.0.1:0{number:04}x"));
            let mut neighbours = Neighbours::default();
            neighbours.watch(
                odd.map(str::to_owned)
                    .into_iter()
                    .chain(many)
                    .chain([url.clone()])
                    .collect(),
            );
            assert_eq!(neighbours.watched.len(), MOST);
            neighbours.watch(BTreeSet::from([url.clone()]));
            assert_eq!(neighbours.watched.len(), 1);
            assert_eq!(neighbours.next().await, (url, Sign::Listens));
            let (mut taken, _) = listener.accept().await.expect("a connection");
            drop(neighbours);
            let mut sent = Vec::new();
            taken.read_to_end(&mut sent).await.expect("it ends");
            assert!(sent.is_empty(), "{sent:?}");
        });
    }
}
