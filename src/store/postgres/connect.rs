//! Making connections: the host's business, or plain.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, Config, NoTls};

use super::error::store_error;
use crate::error::StoreResult;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a connection could not be made.
pub(super) type Cause = Box<dyn StdError + Send + Sync>;

/// A client, and what drives its connection.
pub(super) type Made = Result<(Client, Boxed<()>), Cause>;

/// Makes connections, whenever one is needed.
///
/// # Examples
///
/// With TLS, by a crate such as `postgres-native-tls` or `tokio-postgres-rustls`, in place of `NoTls`:
///
/// ```no_run
/// use stationmaster::store::PostgresStore;
/// use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
/// use stationmaster::store::postgres::{Connector, PostgresOptions};
///
/// let config: Config = "host=db.example user=jobs dbname=jobs".parse()?;
/// let connector = Connector::new(move || {
///     let config = config.clone();
///     async move { config.connect(NoTls).await }
/// });
/// let store = PostgresStore::open(connector, PostgresOptions::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn() -> Boxed<Made> + Send + Sync>);

impl Connector {
    /// Connects with this closure. Its futures are run on the store's own thread, in a tokio runtime with I/O and time; what it
    /// answers beside the client drives the connection and is run there too.
    pub fn new<Connect, Connecting, Driving, Failure>(connect: Connect) -> Self
    where
        Connect: Fn() -> Connecting + Send + Sync + 'static,
        Connecting: Future<Output = Result<(Client, Driving), Failure>> + Send + 'static,
        Driving: Future + Send + 'static,
        Failure: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let connecting = connect();
            Box::pin(async move {
                let (client, driving) = connecting.await.map_err(Into::into)?;
                let driving: Boxed<()> = Box::pin(async move {
                    // How it ended, the client tells whoever asks it next.
                    driving.await;
                });
                Ok((client, driving))
            })
        }))
    }

    /// Connects without TLS to what a URL or a list of `key=value` names. Unless it says otherwise, a connection is given up
    /// when the server's machine does not answer for half a minute.
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

    pub(super) fn connect(&self) -> Boxed<Made> {
        (self.0)()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
