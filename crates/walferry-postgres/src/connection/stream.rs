//! The byte stream to the server: a TCP socket, optionally with TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_openssl::SslStream;
use walferry_config::connector::{PostgresSection, SslNegotiation};

use super::channel_binding::tls_server_end_point;
use super::methods::LoginWatch;
use super::sslmode::Encryption;
use super::tls;
use crate::error::Error;

/// Host and port of a server, for messages.
pub(super) fn host_and_port(server: &PostgresSection) -> String {
    let (host, port) = (&server.hostname, server.port);
    if host.as_str().contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A connection to the server. What a server may ask for while a client logs in is checked here.
#[derive(Debug)]
pub(crate) struct Stream {
    transport: Transport,
    login: LoginWatch,
}

/// Encrypted or not.
#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<SslStream<TcpStream>>),
}

impl Stream {
    /// Opens the TCP connection.
    pub(crate) async fn reach(server: &PostgresSection) -> Result<TcpStream, Error> {
        tcp(server).await
    }

    /// Negotiates TLS.
    pub(crate) async fn open(
        server: &PostgresSection,
        socket: TcpStream,
        encryption: Encryption,
    ) -> Result<Self, Error> {
        match encryption {
            Encryption::Plain => Ok(Self::plain(server, socket)),
            Encryption::Tls if server.ssl_negotiation == SslNegotiation::Direct => handshake(server, socket).await,
            Encryption::TlsIfOffered | Encryption::Tls => {
                negotiate(server, socket, encryption == Encryption::Tls).await
            }
        }
    }

    pub(crate) fn plain(server: &PostgresSection, socket: TcpStream) -> Self {
        Self {
            transport: Transport::Plain(socket),
            login: LoginWatch::new(server.require_auth, false),
        }
    }

    /// The hash that SCRAM-SHA-256-PLUS binds to. `None` without TLS.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => tls_server_end_point(&stream.ssl().peer_certificate()?.to_der().ok()?),
        }
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }
}

async fn tcp(server: &PostgresSection) -> Result<TcpStream, Error> {
    let mut addresses = tokio::net::lookup_host((server.hostname.as_str(), server.port))
        .await
        .map_err(|source| Error::Resolve {
            host: server.hostname.to_string(),
            source,
        })?
        .peekable();
    if addresses.peek().is_none() {
        let source = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        return Err(Error::Resolve {
            host: server.hostname.to_string(),
            source,
        });
    }
    let mut last = None;
    for address in addresses {
        let begun = Instant::now();
        let attempt = tokio::time::timeout(server.connect_timeout, TcpStream::connect(address)).await;
        let failure = match attempt {
            Ok(Ok(socket)) => return prepare(socket, server, begun.elapsed()),
            Ok(Err(source)) => source,
            Err(_) => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", server.connect_timeout.as_secs()),
            ),
        };
        last = Some(Error::Unreachable {
            address: host_and_port(server),
            source: failure,
        });
    }
    Err(last.expect("there was at least one address"))
}

/// A server that answers within this time is near. A small receive buffer does not slow it down.
const NEAR: Duration = Duration::from_millis(1);
/// A walsender writes each message separately. While our receive buffer has room, each message costs it a packet. If
/// the buffer is full while we pause (see the stream's `Pace`), messages gather in the server's own buffer and are sent
/// in large packets: more than twice as many rows a second if transactions are small.
const RECEIVE_BUFFER_BYTES: usize = 128 * 1024;

/// A connection is probed after it has been idle for this time,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// at this interval,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// and is given up after this number of unanswered probes.
const KEEPALIVE_PROBES: u32 = 6;

/// Sets the socket's options. `took` is how long the server needed to answer.
fn prepare(socket: TcpStream, server: &PostgresSection, took: Duration) -> Result<TcpStream, Error> {
    let options = || -> io::Result<()> {
        socket.set_nodelay(true)?;
        if took < NEAR {
            SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        }
        if server.tcp_keepalive {
            // With the system's own times (two hours on Linux), a vanished server would be noticed far too late.
            let times = TcpKeepalive::new()
                .with_time(KEEPALIVE_IDLE)
                .with_interval(KEEPALIVE_INTERVAL)
                .with_retries(KEEPALIVE_PROBES);
            let socket = SockRef::from(&socket);
            socket.set_tcp_keepalive(&times)?;
            // While sent data is unacknowledged, no probes are sent, and the system retransmits for a quarter of an
            // hour.
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES))?;
        }
        Ok(())
    };
    options().map_err(|source| Error::Unreachable {
        address: host_and_port(server),
        source,
    })?;
    Ok(socket)
}

async fn negotiate(server: &PostgresSection, mut socket: TcpStream, demanded: bool) -> Result<Stream, Error> {
    let lost = |source| Error::lost("requesting TLS", source);
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::ssl_request(&mut request);
    socket.write_all(&request).await.map_err(lost)?;
    // Read exactly one byte. Bytes that a man in the middle appended must go into the TLS handshake, which rejects
    // them.
    match socket.read_u8().await.map_err(lost)? {
        b'S' => handshake(server, socket).await,
        b'N' if demanded => Err(Error::TlsNotOffered {
            address: host_and_port(server),
            mode: server.sslmode,
        }),
        b'N' => Ok(Stream::plain(server, socket)),
        // The server sends an error message instead: it could not even start a process.
        b'E' => Err(Error::TlsRequestFailed {
            address: host_and_port(server),
        }),
        other => Err(Error::Protocol {
            doing: "requesting TLS",
            problem: format!("answer {other:#04x}"),
        }),
    }
}

async fn handshake(server: &PostgresSection, socket: TcpStream) -> Result<Stream, Error> {
    let session = tls::handshake(server, host_and_port(server), socket).await?;
    Ok(Stream {
        login: LoginWatch::new(server.require_auth, session.is_verified),
        transport: Transport::Tls(Box::new(session.stream)),
    })
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buf.filled().len();
        let read = match &mut stream.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf).map_err(tls::error_of_io),
        };
        // After the login this costs a comparison.
        if let Err(refused) = stream.login.look(&buf.filled()[before..]) {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, refused)));
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> tokio_postgres::tls::ChannelBinding {
        match self.end_point() {
            Some(hash) => tokio_postgres::tls::ChannelBinding::tls_server_end_point(hash),
            None => tokio_postgres::tls::ChannelBinding::none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::Endpoint;
    use super::*;

    #[tokio::test]
    async fn a_vanished_server_is_noticed_after_a_minute_and_a_half() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut endpoint = Endpoint::nowhere();
        endpoint.settings.port = listener.local_addr().unwrap().port();
        endpoint.settings.hostname = walferry_config::Value::parse("127.0.0.1").unwrap();
        for kept_alive in [true, false] {
            endpoint.settings.tcp_keepalive = kept_alive;
            let socket = Stream::reach(&endpoint.settings).await.unwrap();
            let socket = SockRef::from(&socket);
            assert_eq!(socket.keepalive().unwrap(), kept_alive);
            #[cfg(target_os = "linux")]
            assert_eq!(
                socket.tcp_user_timeout().unwrap(),
                kept_alive.then_some(Duration::from_secs(90))
            );
        }
    }

    /// A server, or something that pretends to be one, accepts the connection but does not answer the TLS request.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_the_request_for_tls_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut endpoint = Endpoint::nowhere();
        endpoint.settings.port = listener.local_addr().unwrap().port();
        endpoint.settings.hostname = walferry_config::Value::parse("127.0.0.1").unwrap();
        let refused = endpoint.replication().await;
        assert!(
            matches!(refused, Err(Error::LoginTimeout { seconds: 1, .. })),
            "{refused:?}"
        );
    }
}
