//! The workers' ways to the servers, which can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use walferry_testkit::servers::{Host, Kafka, Links, Machine, Network, Postgres, PostgresOptions, Side, Weather};

/// The servers, and the ways to them of each worker.
pub(super) struct Servers {
    pub(super) postgres: Postgres,
    pub(super) kafka: Kafka,
    pub(super) ways: Vec<Ways>,
}

/// A worker's ways to the servers.
pub(super) enum Ways {
    /// Those that are cut pass nothing on, but acknowledge what they get.
    Proxies { kafka: Network, postgres: Network },
    /// The links of a machine of its own.
    Links {
        machine: Machine,
        bootstrap: String,
        postgres_port: u16,
    },
}

impl Servers {
    /// Starts them, for so many workers.
    pub(super) fn start(workers: usize, on_links: bool) -> Self {
        let links = on_links.then(|| Links::new(workers));
        // The shortest time in which a server of this load takes a client whose machine is gone for dead.
        let mut settings = vec!["wal_sender_timeout = 5s".into()];
        let mut hba = Vec::new();
        if on_links {
            settings.push(format!("listen_addresses = '127.0.0.1, {}'", Side::Postgres.server()));
            let network = Side::Postgres.network();
            hba.push(format!("host all,replication all {network} trust"));
        }
        let postgres = Postgres::start_with(&PostgresOptions {
            settings,
            hba,
            ..PostgresOptions::default()
        });
        let Some(links) = links else {
            let (kafka, networks) = Kafka::start_with_networks(workers);
            let ways = networks.into_iter().map(|kafka| Ways::Proxies {
                kafka,
                postgres: Network::to(postgres.port()),
            });
            let ways = ways.collect();
            return Self { postgres, kafka, ways };
        };
        let (kafka, bootstrap) = Kafka::start_at(Side::Kafka.server());
        let ways = (0..workers).map(|number| Ways::Links {
            machine: links.machine(number),
            bootstrap: bootstrap.clone(),
            postgres_port: postgres.port(),
        });
        let ways = ways.collect();
        Self { postgres, kafka, ways }
    }
}

impl Ways {
    /// The broker for this worker.
    pub(super) fn bootstrap(&self) -> String {
        match self {
            Self::Proxies { kafka, .. } => format!("127.0.0.1:{}", kafka.port()),
            Self::Links { bootstrap, .. } => bootstrap.clone(),
        }
    }

    /// The database for this worker.
    pub(super) fn postgres(&self) -> SocketAddr {
        match self {
            Self::Proxies { postgres, .. } => (Ipv4Addr::LOCALHOST, postgres.port()).into(),
            Self::Links { postgres_port, .. } => (Side::Postgres.server(), *postgres_port).into(),
        }
    }

    /// Where the worker runs, if it is somewhere of its own.
    pub(super) fn host(&self) -> Option<Host> {
        match self {
            Self::Proxies { .. } => None,
            Self::Links { machine, .. } => Some(machine.host()),
        }
    }

    /// Passes nothing from now on, in neither direction, and closes nothing.
    pub(super) fn cut(&self, side: Side) {
        match (self, side) {
            (Self::Proxies { kafka, .. }, Side::Kafka) => kafka.set(Weather::Frozen),
            (Self::Proxies { postgres, .. }, Side::Postgres) => postgres.set(Weather::Frozen),
            (Self::Links { machine, .. }, side) => machine.cut(side),
        }
    }

    pub(super) fn mend(&self, side: Side) {
        match (self, side) {
            (Self::Proxies { kafka, .. }, Side::Kafka) => kafka.set(Weather::Fair),
            (Self::Proxies { postgres, .. }, Side::Postgres) => postgres.set(Weather::Fair),
            (Self::Links { machine, .. }, side) => machine.mend(side),
        }
    }

    /// A new machine in the place of this one. Its processes must have ended.
    pub(super) fn renew(&mut self) -> Option<Host> {
        match self {
            Self::Proxies { .. } => panic!("only machines can be replaced"),
            Self::Links { machine, .. } => machine.renew(),
        }
        self.host()
    }
}
