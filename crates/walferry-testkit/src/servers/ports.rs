//! Ports for servers, which may stop and start again on theirs.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Ports that no kernel gives to a connection by itself: usually those begin at 32768.
const PORTS: Range<u16> = 20_000..32_000;
/// So many ports that lie beside each other belong to one process.
const BLOCK: u16 = 50;

/// The blocks of this process, and the ports of them that were not handed out. Nobody else has a block while its socket is open, so a port is
/// this process's own from the moment on in which it is handed out, although nothing listens on it yet. The kernel closes the socket when
/// the process ends, however it does.
struct Ports {
    left: Range<u16>,
    blocks: Vec<UnixListener>,
}

static PORTS_OF_PROCESS: Mutex<Ports> = Mutex::new(Ports {
    left: 0..0,
    blocks: Vec::new(),
});

/// A loopback port that nothing listens on, and that neither this process nor another one with this kit hands out again while this one runs.
#[track_caller]
pub fn free_port() -> u16 {
    let mut ports = PORTS_OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = ports.left.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()) {
            return port;
        }
        let (block, socket) = free_block();
        ports.left = block;
        ports.blocks.push(socket);
    }
}

/// The first block that no process has. The names of abstract sockets are those of one network, as ports are.
#[track_caller]
fn free_block() -> (Range<u16>, UnixListener) {
    let blocks = PORTS.step_by(usize::from(BLOCK)).map(|first| first..first + BLOCK);
    let mut free = blocks.filter_map(|block| {
        let name = format!("walferry-test-ports-{}", block.start);
        let address = SocketAddr::from_abstract_name(name).expect("the name is short");
        Some((block, UnixListener::bind_addr(&address).ok()?))
    });
    free.next()
        .unwrap_or_else(|| panic!("other processes have all ports of {PORTS:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_a_block_has_one_owner() {
        let mut ports: Vec<u16> = (0..3 * BLOCK).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), usize::from(3 * BLOCK));
        let (first, _one) = free_block();
        let (second, _other) = free_block();
        assert_ne!(first, second);
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_left_out() {
        let stranger = TcpListener::bind(("127.0.0.1", free_port())).expect("it is free");
        let taken = stranger.local_addr().expect("it listens").port();
        let mut ports = PORTS_OF_PROCESS.lock().expect("no test has panicked");
        ports.left = taken..taken + 1;
        drop(ports);
        assert_ne!(free_port(), taken);
    }
}
