//! Makes connections: by the host's closure, or without TLS.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

use super::error::store_error;
use super::hub::Hub;
use crate::error::StoreResult;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a connection could not be made.
pub(super) type Cause = Box<dyn StdError + Send + Sync>;

/// A client, and the future that drives its connection.
pub(super) type Made = Result<(Client, Boxed<()>), Cause>;

/// Makes connections whenever one is needed.
///
/// # Examples
///
/// For TLS, use a crate such as `postgres-native-tls` or `tokio-postgres-rustls` in place of `NoTls`:
///
/// ```no_run
/// use std::time::Duration;
///
/// use stationmaster::store::PostgresStore;
/// use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
/// use stationmaster::store::postgres::{Connector, PostgresOptions};
///
/// let mut config: Config = "host=db.example user=jobs dbname=jobs".parse()?;
/// // The operating system notices a dead machine in half a minute. Without these it takes two hours.
/// config.keepalives_idle(Duration::from_secs(15)).keepalives_interval(Duration::from_secs(5)).keepalives_retries(3);
/// config.tcp_user_timeout(Duration::from_secs(30));
/// let connector = Connector::new(move || {
///     let config = config.clone();
///     async move { config.connect(NoTls).await }
/// });
/// let store = PostgresStore::open(connector, PostgresOptions::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Connector {
    make: Arc<Make>,
    hub: Option<Arc<Hub>>,
}

type Make = dyn Fn(Option<Arc<Hub>>) -> Boxed<Made> + Send + Sync;

impl Connector {
    /// Connects with this closure. Its futures run on the store's own thread, in a tokio runtime with I/O and
    /// time. So does the connection that it returns beside the client.
    ///
    /// Set TCP keepalives, as the example does. Without them the store still drops a connection on which a
    /// call gets no response (see
    /// [`PostgresOptions::statement_timeout`](super::PostgresOptions::statement_timeout)), but one call per
    /// connection has to wait for that.
    pub fn new<Connect, Connecting, Stream, Tls, Failure>(connect: Connect) -> Self
    where
        Connect: Fn() -> Connecting + Send + Sync + 'static,
        Connecting: Future<Output = Result<(Client, Connection<Stream, Tls>), Failure>> + Send + 'static,
        Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        Tls: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        Failure: Into<Box<dyn StdError + Send + Sync>>,
    {
        let make = move |hub: Option<Arc<Hub>>| -> Boxed<Made> {
            let connecting = connect();
            Box::pin(async move {
                let (client, connection) = connecting.await.map_err(Into::into)?;
                let driving: Boxed<()> = Box::pin(drive(connection, hub));
                Ok((client, driving))
            })
        };
        Self { make: Arc::new(make), hub: None }
    }

    /// Connects without TLS to the server that a URL or a list of `key=value` names. By default a connection
    /// is dropped when the server's machine does not respond for half a minute.
    ///
    /// # Errors
    ///
    /// Kind `Backend` if the text cannot be understood.
    pub fn plain(url: &str) -> StoreResult<Self> {
        let mut config = Config::from_str(url).map_err(store_error)?;
        if config.get_application_name().is_none() {
            config.application_name("stationmaster");
        }
        if !url.contains("keepalives") {
            config.keepalives_idle(Duration::from_secs(15));
            config.keepalives_interval(Duration::from_secs(5));
            config.keepalives_retries(3);
        }
        if !url.contains("tcp_user_timeout") {
            config.tcp_user_timeout(Duration::from_secs(30));
        }
        Ok(Self::new(move || {
            let config = config.clone();
            async move { config.connect(NoTls).await }
        }))
    }

    /// Returns a connector whose connections deliver notifications to this hub.
    pub(super) fn delivering_to(&self, hub: &Arc<Hub>) -> Self {
        Self { make: Arc::clone(&self.make), hub: Some(Arc::clone(hub)) }
    }

    pub(super) fn connect(&self) -> Boxed<Made> {
        (self.make)(self.hub.clone())
    }
}

/// Moves the bytes of a connection until it ends. The client reports how it ended to the next call.
async fn drive<Stream, Tls>(mut connection: Connection<Stream, Tls>, hub: Option<Arc<Hub>>)
where
    Stream: AsyncRead + AsyncWrite + Unpin,
    Tls: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(notification), Some(hub)) = (&message, &hub) {
            hub.receive(notification);
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
