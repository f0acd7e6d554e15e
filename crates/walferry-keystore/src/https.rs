//! TLS of HTTP clients. OpenSSL does the work, as for Postgres and Kafka, so all of them take the same certificates, keys and ciphers.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslStream, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector,
    Transport, TransportAdapter,
};

use crate::tls::{CIPHERS, STRICT, alert, identify, reasons, trust_only};
use crate::trust::{Refusal, Words, demand_name, demand_usage, judge, system_authorities};
use crate::{ClientIdentity, StoreError};

/// What an HTTP client demands of a server's certificate, and what it shows of itself.
#[derive(Clone)]
pub struct Https {
    context: SslContext,
    trusted: Arc<Vec<X509>>,
    words: &'static Words,
}

impl fmt::Debug for Https {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Https")
    }
}

/// Why there is no TLS with a server.
#[derive(Debug, thiserror::Error)]
pub enum TlsFailure {
    /// Its certificate is not trusted.
    #[error("{0}")]
    Refused(Refusal),
    /// It does not accept the certificate of this client, or that there is none.
    #[error("it refuses the certificate of this client, or that there is none: {0}")]
    ClientRefused(String),
    /// Anything else, in the words of OpenSSL.
    #[error("no TLS with it: {0}")]
    Handshake(String),
}

impl TlsFailure {
    /// The TLS failure in an error of the HTTP client.
    pub fn of(error: &ureq::Error) -> Option<&Self> {
        match error {
            ureq::Error::Other(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

/// The text of an error of the HTTP client, without the client's own word for its kind.
pub fn error_text(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        _ => TlsFailure::of(error).map_or_else(|| error.to_string(), ToString::to_string),
    }
}

impl Https {
    /// A client that trusts these authorities, and shows this certificate if it is asked for one.
    ///
    /// # Errors
    /// The key does not belong to the certificate, or OpenSSL cannot use them.
    pub fn new(
        trusted: Vec<X509>,
        identity: Option<&ClientIdentity>,
        words: &'static Words,
    ) -> Result<Self, StoreError> {
        let context = context(&trusted, identity).map_err(|error| StoreError::Mismatch(reasons(&error)))?;
        Ok(Self {
            context,
            trusted: Arc::new(trusted),
            words,
        })
    }

    /// A client that trusts the authorities of the operating system.
    ///
    /// # Errors
    /// OpenSSL has no memory.
    pub fn of_system(words: &'static Words) -> Result<Self, StoreError> {
        Self::new(system_authorities(), None, words)
    }

    /// A client that trusts the authorities in a PEM text.
    ///
    /// # Errors
    /// It has no certificate.
    pub fn trusting(pem: &[u8], words: &'static Words) -> Result<Self, StoreError> {
        Self::new(crate::certificates(pem)?, None, words)
    }

    /// An HTTP client with this TLS. What the configuration says of TLS does not count.
    pub fn agent(&self, config: Config) -> Agent {
        let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(self.clone());
        Agent::with_parts(config, connector, DefaultResolver::default())
    }

    /// Encrypts a connection to a host.
    fn handshake(&self, host: &str, socket: TransportAdapter) -> Result<SslStream<TransportAdapter>, ureq::Error> {
        let setup = |error: ErrorStack| other(TlsFailure::Handshake(reasons(&error)));
        let mut session = Ssl::new(&self.context).map_err(setup)?;
        if host.parse::<IpAddr>().is_err() {
            session.set_hostname(host).map_err(setup)?;
        }
        let refusal = Arc::new(Mutex::new(None::<Refusal>));
        let (first, trusted, words) = (refusal.clone(), self.trusted.clone(), self.words);
        session.set_verify_callback(SslVerifyMode::PEER, move |is_valid, step| {
            let judged = judge(is_valid, step, &trusted, words);
            let is_trusted = judged.is_ok();
            if let Err(refusal) = judged {
                // What follows may be its consequence.
                first
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(refusal);
            }
            is_trusted
        });
        let mut stream = SslStream::new(session, socket).map_err(setup)?;
        if let Err(error) = stream.connect() {
            return Err(match refusal.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(refusal) => other(TlsFailure::Refused(refusal)),
                None => failure(error),
            });
        }
        let certificate = stream.ssl().peer_certificate();
        let cipher = stream
            .ssl()
            .current_cipher()
            .map(|cipher| cipher.name())
            .unwrap_or_default();
        let named = certificate.map_or(Ok(()), |certificate| {
            demand_usage(&certificate, cipher, &self.trusted, self.words)?;
            demand_name(&certificate, host, self.words)
        });
        named.map_err(|refusal| other(TlsFailure::Refused(refusal)))?;
        Ok(stream)
    }
}

fn context(trusted: &[X509], identity: Option<&ClientIdentity>) -> Result<SslContext, ErrorStack> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_cipher_list(CIPHERS)?;
    builder.set_security_level(STRICT);
    trust_only(&mut builder, trusted)?;
    if let Some(identity) = identity {
        let chain = X509::stack_from_pem(identity.chain.as_bytes())?;
        let key = openssl::pkey::PKey::private_key_from_pem(identity.key.as_bytes())?;
        identify(&mut builder, &chain, &key)?;
    }
    Ok(builder.build())
}

fn other(failure: TlsFailure) -> ureq::Error {
    ureq::Error::Other(Box::new(failure))
}

/// An error of OpenSSL. If the socket has none, the other side has sent something that cannot be used, or has refused what we sent.
fn failure(error: openssl::ssl::Error) -> ureq::Error {
    let Some(stack) = error.ssl_error() else {
        // The socket's own error, such as a timeout, or its end.
        return match error.into_io_error() {
            Ok(error) => error.into(),
            Err(_) => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
        };
    };
    let text = reasons(stack);
    if text.contains("unexpected eof") {
        return io::Error::from(io::ErrorKind::UnexpectedEof).into();
    }
    other(match alert(stack) {
        Some(alert) if alert.is_about_the_certificate() => TlsFailure::ClientRefused(text),
        _ => TlsFailure::Handshake(text),
    })
}

impl<In: Transport> Connector<In> for Https {
    type Out = Either<In, Encrypted>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        // The host of a URL has an IPv6 address in brackets.
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut socket = TransportAdapter::new(Box::new(transport) as Box<dyn Transport>, details.current_time.clone());
        socket.set_timeout(details.timeout);
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        let stream = self.handshake(host, socket)?;
        Ok(Some(Either::B(Encrypted { buffers, stream })))
    }
}

/// An encrypted connection.
pub struct Encrypted {
    buffers: LazyBuffers,
    stream: SslStream<TransportAdapter>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

/// An error while an encrypted connection is read or written. With TLS 1.3, a server refuses a client's certificate only there.
fn io_failure(error: io::Error) -> ureq::Error {
    match error.downcast::<openssl::ssl::Error>() {
        Ok(error) => failure(error),
        Err(error) => error.into(),
    }
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).map_err(io_failure)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(io_failure)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
