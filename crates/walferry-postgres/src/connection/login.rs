//! Startup and authentication of a replication connection.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::{self, sasl};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::session::{Startup, after_bare_startup, startup_parameters};
use walferry_config::connector::{ChannelBinding, PostgresSection};

use super::{Purpose, Stream};
use crate::connection::wire::Wire;
use crate::error::Error;

const DOING: &str = "logging in";

/// Logs in for replication commands.
pub(super) async fn replication(settings: &PostgresSection, startup: Startup, stream: Stream) -> Result<Wire, Error> {
    let mut wire = Wire::new(stream);
    let parameters = startup_parameters(settings, Purpose::Streaming.application_name(), startup);
    wire.put(DOING, |out| frontend::startup_message(parameters, out))?;
    wire.flush(DOING).await?;
    authenticate(settings, &mut wire).await?;
    loop {
        match wire.message(DOING).await? {
            Message::BackendKeyData(body) => wire.cancel_key = (body.process_id(), body.secret_key()),
            Message::ReadyForQuery(_) => break,
            _ => return Err(unexpected("between login and the first command")),
        }
    }
    wire.process = wire.cancel_key.0;
    if startup == Startup::Bare {
        wire.command(DOING, &after_bare_startup()).await?;
        // The pooler has named itself.
        let rows = wire.command(DOING, "SELECT pg_catalog.pg_backend_pid()").await?;
        let process = rows.into_iter().flatten().flatten().next();
        wire.process = process.and_then(|process| process.parse().ok()).unwrap_or_default();
    }
    Ok(wire)
}

async fn authenticate(settings: &PostgresSection, wire: &mut Wire) -> Result<(), Error> {
    loop {
        match wire.message(DOING).await? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                let password = password(settings)?;
                without_binding(settings)?;
                wire.put(DOING, |out| frontend::password_message(password, out))?;
                wire.flush(DOING).await?;
            }
            Message::AuthenticationMd5Password(body) => {
                let password = password(settings)?;
                without_binding(settings)?;
                let hash = authentication::md5_hash(settings.user.as_bytes(), password, body.salt());
                wire.put(DOING, |out| frontend::password_message(hash.as_bytes(), out))?;
                wire.flush(DOING).await?;
            }
            Message::AuthenticationSasl(body) => scram(settings, wire, &body).await?,
            Message::AuthenticationGss | Message::AuthenticationGssContinue(_) => return Err(unsupported("GSSAPI")),
            Message::AuthenticationSspi => return Err(unsupported("SSPI")),
            Message::AuthenticationKerberosV5 => return Err(unsupported("Kerberos 5")),
            Message::AuthenticationScmCredential => return Err(unsupported("SCM credential")),
            _ => return Err(unexpected("instead of a request for authentication")),
        }
    }
}

/// SCRAM-SHA-256, with channel binding if both the connection and the server support it.
async fn scram(settings: &PostgresSection, wire: &mut Wire, offer: &AuthenticationSaslBody) -> Result<(), Error> {
    let offered: Vec<String> = offer
        .mechanisms()
        .map(|mechanism| Ok(mechanism.to_owned()))
        .collect()
        .map_err(|source| Error::lost(DOING, source))?;
    let offers = |name: &str| offered.iter().any(|mechanism| mechanism == name);
    if !offers(sasl::SCRAM_SHA_256) && !offers(sasl::SCRAM_SHA_256_PLUS) {
        return Err(unsupported("SASL other than SCRAM-SHA-256"));
    }
    let end_point = wire
        .end_point()
        .filter(|_| settings.channel_binding != ChannelBinding::Disable);
    let (mechanism, binding) = match end_point {
        Some(hash) if offers(sasl::SCRAM_SHA_256_PLUS) => (
            sasl::SCRAM_SHA_256_PLUS,
            sasl::ChannelBinding::tls_server_end_point(hash),
        ),
        // Tells the server that we could have used channel binding. It then notices a man in the middle who removed its
        // offer.
        Some(_) => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
        None => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
    };
    if mechanism != sasl::SCRAM_SHA_256_PLUS {
        without_binding(settings)?;
    }
    let mut exchange = sasl::ScramSha256::new(password(settings)?, binding);
    wire.put(DOING, |out| {
        frontend::sasl_initial_response(mechanism, exchange.message(), out)
    })?;
    wire.flush(DOING).await?;
    let Message::AuthenticationSaslContinue(body) = wire.message(DOING).await? else {
        return Err(unexpected("instead of SCRAM's first answer"));
    };
    exchange.update(body.data()).map_err(|source| Error::Scram { source })?;
    wire.put(DOING, |out| frontend::sasl_response(exchange.message(), out))?;
    wire.flush(DOING).await?;
    let Message::AuthenticationSaslFinal(body) = wire.message(DOING).await? else {
        return Err(unexpected("instead of SCRAM's last answer"));
    };
    exchange.finish(body.data()).map_err(|source| Error::Scram { source })
}

fn password(settings: &PostgresSection) -> Result<&[u8], Error> {
    match &settings.password {
        Some(password) => Ok(password.expose().as_bytes()),
        None => Err(Error::PasswordMissing {
            user: settings.user.clone(),
        }),
    }
}

fn without_binding(settings: &PostgresSection) -> Result<(), Error> {
    if settings.channel_binding == ChannelBinding::Require {
        Err(Error::ChannelBinding)
    } else {
        Ok(())
    }
}

fn unsupported(method: &'static str) -> Error {
    Error::AuthenticationMethod { method }
}

fn unexpected(place: &str) -> Error {
    Error::Protocol {
        doing: DOING,
        problem: format!("an unexpected message {place}"),
    }
}
