//! Where the admin endpoint listens.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tracing::{info, warn};
use walferry_admin::{Admin, BoundListener, ListenerTls, Resources, RestSettings, without_effect};
use walferry_config::{Options, Worker, quoted};
use walferry_diagnosis::Kind;
use walferry_engine::Failure;
use walferry_worker::vital::spawn_vital;

use crate::{error::Error, output};

/// The default without a flag and `listeners`. Only this machine can connect, because the endpoint has no password.
pub(crate) const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8083);
/// The default in a container if somebody has to log in. Nobody outside could connect otherwise. It is also Kafka Connect's.
pub(crate) const IN_CONTAINER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8083);

/// A listener of the endpoint.
#[derive(Debug)]
pub(crate) struct ListenerSettings {
    pub(crate) address: SocketAddr,
    /// The host as it was written. `None` without one.
    pub(crate) host: Option<String>,
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) resources: Resources,
}

impl ListenerSettings {
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }
}

/// All listeners: those of the flag or of `listeners`, or else the default, and those of `admin.listeners`.
pub(crate) fn wanted(
    flag: Option<SocketAddr>,
    worker: &Worker,
    default: SocketAddr,
) -> Result<Vec<ListenerSettings>, Error> {
    let rest_api = &worker.rest_api;
    let mut main = match flag {
        Some(address) => vec![(address, false)],
        None if worker.listeners.is_empty() => vec![(default, false)],
        None => addresses("listeners", &worker.listeners)?,
    };
    let hosts: Vec<Option<String>> = match flag {
        // Nobody can connect to `0.0.0.0`, so other workers are told the address of this machine.
        Some(address) if address.ip().is_unspecified() => vec![None],
        Some(address) => vec![Some(address.ip().to_string())],
        None if worker.listeners.is_empty() => match default.ip().is_unspecified() {
            true => vec![None],
            false => vec![Some(default.ip().to_string())],
        },
        None => worker.listeners.iter().map(|listener| host(listener)).collect(),
    };
    let mut own = addresses(
        "admin.listeners",
        rest_api.admin_listeners.as_deref().unwrap_or_default(),
    )?;
    // Connect could not open such a listener twice.
    let (shared, own_only): (Vec<_>, Vec<_>) = own.drain(..).partition(|listener| main.contains(listener));
    let mut all = Vec::new();
    let mut tls = LazyTls::new("listeners", &rest_api.tls);
    for (listener, host) in main.drain(..).zip(hosts) {
        let has_admin = rest_api.admin_listeners.is_none() || shared.contains(&listener);
        all.push(ListenerSettings {
            address: listener.0,
            host,
            tls: tls.get(listener.1)?,
            resources: if has_admin {
                Resources::All
            } else {
                Resources::WithoutAdmin
            },
        });
    }
    let mut tls = LazyTls::new("admin.listeners", &rest_api.admin_tls);
    for (address, is_tls) in own_only {
        all.push(ListenerSettings {
            address,
            host: None,
            tls: tls.get(is_tls)?,
            resources: Resources::OnlyAdmin,
        });
    }
    Ok(all)
}

/// Certificates. They are read once, when the first listener needs them.
struct LazyTls<'a> {
    property: &'static str,
    options: &'a Options,
    read: Option<ListenerTls>,
}

impl<'a> LazyTls<'a> {
    const fn new(property: &'static str, options: &'a Options) -> Self {
        Self {
            property,
            options,
            read: None,
        }
    }

    fn get(&mut self, is_tls: bool) -> Result<Option<ListenerTls>, Error> {
        if !is_tls {
            return Ok(None);
        }
        if self.read.is_none() {
            for name in without_effect(self.options) {
                warn!(
                    property = name,
                    "it means something to Java alone, and has no effect on the admin endpoint"
                );
            }
            let read = ListenerTls::read(self.options).map_err(|error| {
                let what = format!("{} names an address with https://, and {}", self.property, error.what);
                Error::new(Kind::Configuration, "the admin endpoint did not start").cause(what, Some(error.hint))
            })?;
            self.read = Some(read);
        }
        Ok(self.read.clone())
    }
}

/// The host of a listener as it is written, without the brackets of IPv6.
fn host(listener: &str) -> Option<String> {
    let (_, place) = listener.trim().split_once("://")?;
    let (host, _) = place.trim_end_matches('/').rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| host.to_owned())
}

/// The address of each listener, and whether it uses TLS.
fn addresses(property: &str, listeners: &[String]) -> Result<Vec<(SocketAddr, bool)>, Error> {
    let listeners = listeners.iter().map(|listener| address(property, listener.trim()));
    listeners.collect()
}

fn address(property: &str, listener: &str) -> Result<(SocketAddr, bool), Error> {
    let wrong = |what: String| {
        let hint = "write it as http://127.0.0.1:8083 or https://127.0.0.1:8443";
        Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(what, Some(hint.to_owned()))
    };
    let (tls, text) = match listener.split_once("://") {
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("http") => (false, text),
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("https") => (true, text),
        _ => {
            let what = format!(
                "{property} names {}, which begins with neither http:// nor https://",
                quoted(listener)
            );
            return Err(wrong(what));
        }
    };
    // Without a host Kafka Connect listens on every address.
    let every = if text.starts_with(':') { "0.0.0.0" } else { "" };
    let found = format!("{every}{}", text.trim_end_matches('/')).to_socket_addrs();
    match found.ok().and_then(|mut found| found.next()) {
        Some(address) => Ok((address, tls)),
        None => Err(wrong(format!(
            "{property} names {}, which is no address with a port",
            quoted(text)
        ))),
    }
}

/// Opens the listeners.
pub(crate) async fn open(wanted: Vec<ListenerSettings>, settings: &RestSettings) -> Result<Vec<BoundListener>, Error> {
    let mut doors = Vec::new();
    for wanted in wanted {
        let listener = walferry_admin::bind(wanted.address).await.map_err(|error| {
            let hint = error.hint();
            Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(Failure::chain(&error), hint)
        })?;
        // Port 0 means any free port.
        let address = listener.local_addr().unwrap_or(wanted.address);
        let url = wanted.url(address);
        match wanted.resources {
            Resources::OnlyAdmin => {
                info!(%address, loggers = %format_args!("{url}/admin/loggers"), "admin.listeners are open")
            }
            Resources::All | Resources::WithoutAdmin => {
                info!(%address, page = %format_args!("{url}/ui"), "admin endpoint listens");
            }
        }
        let asks_who =
            settings.doors.are_closed() || wanted.tls.as_ref().is_some_and(ListenerTls::asks_for_certificates);
        if !address.ip().to_canonical().is_loopback() && !asks_who {
            warn!(
                %address,
                hint = "listen on 127.0.0.1, add users with walferry.rest.users.file, set ssl.client.auth=required, or restrict access \
                        with a firewall or a proxy with a login",
                "the admin endpoint has no login and may be reachable from other machines: they can see names of topics, tables and \
                 slots, and can create, change, pause, stop and remove connectors"
            );
        }
        doors.push(BoundListener {
            listener,
            tls: wanted.tls,
            resources: wanted.resources,
        });
    }
    Ok(doors)
}

/// Where the endpoint listens in a container if nothing names an address. Without a login, only programs in the container reach it.
pub(crate) fn default_in_container(settings: &RestSettings) -> SocketAddr {
    match settings.doors.are_closed() {
        true => IN_CONTAINER,
        false => DEFAULT,
    }
}

/// Says that nobody outside of the container reaches the endpoint.
pub(crate) fn tell_that_only_the_container_gets_in(address: SocketAddr) {
    warn!(
        %address,
        hint = "name users with walferry.rest.users.file, and it listens on all interfaces; or set listeners=http://0.0.0.0:8083 (the \
                variable CONNECT_LISTENERS): then whoever reaches the container can create, change and remove connectors",
        "the admin endpoint can be reached only from inside of this container, because nobody has to log in"
    );
}

/// The same listeners, to be served once more.
pub(crate) fn again(doors: &[BoundListener]) -> Result<Vec<BoundListener>, Failure> {
    let again = doors.iter().map(BoundListener::try_clone).collect::<Result<_, _>>();
    again.map_err(|error| {
        let what = format!("the admin endpoint's socket cannot be used twice: {error}");
        Failure::stop(Kind::AdminAddress, what, "raise the limit of open files (`ulimit -n`)")
    })
}

/// Closes each connection that comes, so that nobody waits for an answer. It ends when it is aborted.
pub(crate) fn turn_away(doors: Vec<BoundListener>) -> JoinHandle<()> {
    spawn_vital(async move {
        let mut all = JoinSet::new();
        for door in doors {
            all.spawn_local(async move {
                loop {
                    if door.listener.accept().await.is_err() {
                        // Such as no descriptor that is free.
                        sleep(Duration::from_millis(200)).await;
                    }
                }
            });
        }
        all.join_all().await;
    })
}

/// The endpoint while it answers.
pub(crate) struct RunningEndpoint {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningEndpoint {
    /// Answers requests. It must be called within a set of local tasks.
    pub(crate) fn start(doors: Vec<BoundListener>, admin: Admin) -> Self {
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let until = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let task = spawn_vital(async move {
            // A process that nobody can ask any more is not to look alive.
            if let Err(error) = walferry_admin::serve(doors, admin, until).await {
                let mut error =
                    Error::new(Kind::AdminAddress, "the admin endpoint has ended").cause(error.to_string(), None);
                error.tell();
                output::exit(error.exit as u8);
            }
        });
        Self { stop, task }
    }

    /// Accepts no more requests.
    pub(crate) fn stop(&mut self) {
        self.stop.send_replace(true);
    }

    /// Waits until the last request is answered, after [`Self::stop`].
    pub(crate) async fn ended(self) {
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_count_with_and_without_tls() {
        let cases = [
            ("http://0.0.0.0:9000", Some(("0.0.0.0:9000", false))),
            ("http://:9000", Some(("0.0.0.0:9000", false))),
            (" HTTP://[::1]:9000/ ", Some(("[::1]:9000", false))),
            ("https://:8443", Some(("0.0.0.0:8443", true))),
            ("http://127.0.0.1", None),
            ("127.0.0.1:9000", None),
            ("ftp://127.0.0.1:9000", None),
        ];
        for (listener, expected) in cases {
            let expected = expected.map(|(text, tls)| vec![(text.parse().expect("an address"), tls)]);
            assert_eq!(
                addresses("listeners", &[listener.to_owned()]).ok(),
                expected,
                "{listener}"
            );
        }
    }

    #[test]
    fn admin_resources_are_where_admin_listeners_says() {
        let resources = |admin: Option<&[&str]>, flag: Option<&str>| {
            let mut worker = Worker {
                listeners: vec!["http://127.0.0.1:9000".into()],
                ..Worker::default()
            };
            worker.rest_api.admin_listeners =
                admin.map(|listeners| listeners.iter().map(ToString::to_string).collect());
            let flag = flag.map(|address| address.parse().expect("an address"));
            let wanted = wanted(flag, &worker, DEFAULT).expect("listeners");
            let wanted = wanted
                .into_iter()
                .map(|wanted| (wanted.address.port(), wanted.resources));
            wanted.collect::<Vec<_>>()
        };
        use Resources::{All, OnlyAdmin, WithoutAdmin};
        assert_eq!(resources(None, None), [(9000, All)]);
        assert_eq!(resources(Some(&[]), None), [(9000, WithoutAdmin)]);
        assert_eq!(
            resources(Some(&["http://127.0.0.1:9001"]), None),
            [(9000, WithoutAdmin), (9001, OnlyAdmin)]
        );
        assert_eq!(resources(Some(&["http://127.0.0.1:9000"]), None), [(9000, All)]);
        assert_eq!(resources(None, Some("127.0.0.1:7")), [(7, All)]);
    }

    #[test]
    fn a_container_is_open_to_others_only_with_a_login() {
        let mut settings = RestSettings::default();
        assert!(default_in_container(&settings).ip().is_loopback());
        settings.doors.users.push(walferry_admin::User {
            name: "ops".into(),
            password: walferry_admin::Digested::of("secret").into(),
            writes: true,
        });
        assert!(default_in_container(&settings).ip().is_unspecified());
    }

    #[test]
    fn the_host_of_a_listener_is_the_one_that_was_written() {
        let cases = [
            ("http://connect-1.example:8083", Some("connect-1.example")),
            (" https://0.0.0.0:8443/ ", Some("0.0.0.0")),
            ("http://[::1]:8083", Some("::1")),
            ("http://:8083", None),
        ];
        for (listener, expected) in cases {
            assert_eq!(host(listener).as_deref(), expected, "{listener}");
        }
        let of_flag = |flag: &str| {
            let flag = flag.parse().expect("an address");
            wanted(Some(flag), &Worker::default(), DEFAULT).expect("a listener")[0]
                .host
                .clone()
        };
        assert_eq!(of_flag("127.0.0.1:7").as_deref(), Some("127.0.0.1"));
        assert_eq!(of_flag("0.0.0.0:7"), None);
    }

    #[test]
    fn what_is_wrong_with_listeners_is_said_of_the_listener() {
        let cases = [
            (
                "127.0.0.1:9000",
                "listeners names \"127.0.0.1:9000\", which begins with neither http:// nor https://",
            ),
            (
                "http://127.0.0.1",
                "listeners names \"127.0.0.1\", which is no address with a port",
            ),
            (
                "https://:8443",
                "listeners names an address with https://, and ssl.keystore.location is missing: a listener with https:// needs a \
                 certificate and its key",
            ),
        ];
        for (listener, expected) in cases {
            let worker = Worker {
                listeners: vec![listener.to_owned()],
                ..Worker::default()
            };
            let error = format!("{:?}", wanted(None, &worker, DEFAULT).unwrap_err());
            assert!(error.contains(&format!("{expected:?}")), "{error}");
        }
    }
}
