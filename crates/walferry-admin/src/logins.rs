//! Slows down those who guess passwords, and remembers who has logged in.
//!
//! Attempts from one address are looked at one after another. After each one that fails, the next one waits longer. An attempt counts as
//! failed until it has succeeded, so that attempts at the same time do not all come first. Whoever has logged in once does not wait, whatever
//! others do from the same address, such as that of a proxy.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::{Instant, sleep_until},
};

use crate::doors::{Digested, Identity};

/// The pause after the first failure. It doubles with each further one,
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// up to this one.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// An attempt that would have to wait longer than this is refused at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time without a failure, an address begins anew.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Addresses with failures that are remembered.
const PEERS: usize = 4096;

/// Attempts to log in.
#[derive(Debug)]
pub(crate) struct Logins {
    first_pause: Duration,
    state: Mutex<LoginState>,
    /// Somebody has logged in.
    proven: Notify,
    /// One attempt is looked at at a time: bcrypt is work on purpose.
    looking: Semaphore,
}

#[derive(Debug, Default)]
struct LoginState {
    /// What has opened the door: user and password, or a token.
    proven: HashMap<Digested, Identity>,
    peers: HashMap<IpAddr, Failures>,
}

/// The failures of an address.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// When its next attempt may be looked at.
    next: Instant,
}

/// Too many attempts wait already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// When the next one may be looked at.
    pub(crate) retry_after: Duration,
}

/// An attempt whose turn it is. It counts as failed unless it succeeds.
#[derive(Debug)]
pub(crate) struct Attempt<'l> {
    logins: &'l Logins,
    peer: Option<IpAddr>,
    failures: u32,
    _turn: Option<SemaphorePermit<'l>>,
}

impl Logins {
    /// With this pause after the first failure of an address.
    pub(crate) fn new(first_pause: Duration) -> Self {
        Self {
            first_pause,
            state: Mutex::default(),
            proven: Notify::new(),
            looking: Semaphore::new(1),
        }
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has logged in with this before.
    pub(crate) fn proven(&self, digest: &Digested) -> Option<Identity> {
        self.state().proven.get(digest).cloned()
    }

    /// Waits until an attempt may be looked at, or until another request has proven the same.
    pub(crate) async fn attempt(&self, peer: Option<SocketAddr>, digest: &Digested) -> Result<Attempt<'_>, Busy> {
        let peer = peer.map(|peer| network(peer.ip()));
        let (begins, failures) = self.reserve(peer, Instant::now())?;
        let mut own_start = std::pin::pin!(sleep_until(begins));
        loop {
            let mut proven = std::pin::pin!(self.proven.notified());
            proven.as_mut().enable();
            if self.proven(digest).is_some() {
                break;
            }
            tokio::select! {
                () = own_start.as_mut() => break,
                () = proven => {}
            }
        }
        Ok(Attempt {
            logins: self,
            peer,
            failures,
            _turn: self.looking.acquire().await.ok(),
        })
    }

    /// When the next attempt of an address may be looked at, and how many of its attempts have failed or are not decided, with this one.
    fn reserve(&self, peer: Option<IpAddr>, now: Instant) -> Result<(Instant, u32), Busy> {
        let Some(peer) = peer else { return Ok((now, 1)) };
        let mut state = self.state();
        if state.peers.len() >= PEERS && !state.peers.contains_key(&peer) {
            let oldest = state.peers.iter().min_by_key(|(_, failures)| failures.next);
            let oldest = oldest.map(|(peer, _)| *peer);
            oldest.and_then(|oldest| state.peers.remove(&oldest));
        }
        let failures = state.peers.entry(peer).or_insert(Failures { count: 0, next: now });
        if now > failures.next + FORGOTTEN {
            failures.count = 0;
        }
        let begins = failures.next.max(now);
        if begins - now > PATIENCE {
            let retry_after = begins - now;
            return Err(Busy { retry_after });
        }
        failures.count = failures.count.saturating_add(1);
        failures.next = begins + self.pause(failures.count);
        Ok((begins, failures.count))
    }

    fn pause(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause.saturating_mul(doubled).min(LONGEST_PAUSE)
    }
}

impl Attempt<'_> {
    /// How many attempts of this address have failed or are not decided, with this one.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// What was claimed is true.
    pub(crate) fn has_succeeded(self, digest: Digested, identity: Identity) {
        let mut state = self.logins.state();
        state.proven.insert(digest, identity);
        if let Some(peer) = self.peer {
            state.peers.remove(&peer);
        }
        drop(state);
        self.logins.proven.notify_waiters();
    }
}

/// What counts as one address. Whoever has one address of IPv6 has a whole network of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(format!("{text}:4711").parse().unwrap())
    }

    fn wrong(number: u32) -> Digested {
        Digested::of(&format!("wrong {number}"))
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_of_an_address_delays_its_next_attempt() {
        let logins = Logins::new(FIRST_PAUSE);
        let begun = Instant::now();
        let mut waited = Vec::new();
        for number in 0..9 {
            let before = Instant::now();
            drop(logins.attempt(peer("192.0.2.1"), &wrong(number)).await.unwrap());
            waited.push((Instant::now() - before).as_millis());
        }
        // The clock of tokio counts whole milliseconds.
        let expected = [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000];
        assert!(
            waited
                .iter()
                .zip(expected)
                .all(|(waited, expected)| waited.abs_diff(expected) <= 2),
            "{waited:?}"
        );
        let others = Instant::now();
        logins.attempt(peer("192.0.2.2"), &wrong(0)).await.unwrap();
        assert_eq!(others, Instant::now(), "another address does not wait");
        assert!(begun < others);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_at_the_same_time_wait_for_each_other_and_too_many_are_refused() {
        let logins = Logins::new(FIRST_PAUSE);
        let now = Instant::now();
        let network = Some(network(peer("[2001:db8::1]").unwrap().ip()));
        let begins: Vec<_> = (0..7)
            .map(|_| logins.reserve(network, now).map(|(begins, _)| begins - now))
            .collect();
        let ms = Duration::from_millis;
        let expected = [0, 250, 750, 1750, 3750, 7750].map(|begins| Ok(ms(begins)));
        assert_eq!(begins[..6], expected);
        let busy = Busy {
            retry_after: ms(15_750),
        };
        assert_eq!(begins[6], Err(busy));
        let neighbour = logins.attempt(peer("[2001:db8::2]"), &wrong(0)).await;
        assert!(neighbour.is_err(), "it is in the same network");
        tokio::time::advance(FORGOTTEN + ms(20_000)).await;
        let (_, failures) = logins.reserve(network, Instant::now()).unwrap();
        assert_eq!(failures, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_logged_in_waits_for_nobody() {
        let logins = Logins::new(FIRST_PAUSE);
        let right = Digested::of("right");
        let user = Identity::User {
            name: "ops".into(),
            writes: true,
        };
        for number in 0..3 {
            drop(logins.attempt(peer("192.0.2.1"), &wrong(number)).await.unwrap());
        }
        let before = Instant::now();
        // The page sends several requests at once. All but the first one are waiting when it has succeeded.
        let first = logins.attempt(peer("192.0.2.1"), &right);
        let second = logins.attempt(peer("192.0.2.1"), &right);
        let succeeds = async {
            let attempt = first.await.unwrap();
            attempt.has_succeeded(right.clone(), user.clone());
            Instant::now()
        };
        let (first, second) = tokio::join!(succeeds, second);
        assert!(second.is_ok() && Instant::now() - first <= Duration::from_millis(2));
        assert!(
            first - before >= Duration::from_secs(1),
            "it had to wait for the failures before it"
        );
        assert_eq!(logins.proven(&right), Some(user));
        assert_eq!(logins.proven(&wrong(0)), None);
    }

    #[test]
    fn the_addresses_that_are_remembered_are_limited() {
        let logins = Logins::new(FIRST_PAUSE);
        let now = Instant::now();
        for number in 0..PEERS as u32 + 10 {
            let peer = IpAddr::V4(number.into());
            logins
                .reserve(Some(peer), now + Duration::from_millis(number.into()))
                .unwrap();
        }
        assert_eq!(logins.state().peers.len(), PEERS);
    }
}
