//! Makes connections to the right server, with tables of this version.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::{Client, Error as PgError};

use super::connect::{Cause, Connector};
use super::connection::{Connection, Driving};
use super::error::{Failure, is_passing, store_error};
use super::migrate;
use super::options::PostgresOptions;
use super::route::Route;
use super::time::Timekeeper;
use super::upgrade;
use crate::error::{StoreError, StoreErrorKind};

/// The first and the longest pause between attempts to connect.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The server that a connection must lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Any server, including a standby.
    Any,
    /// A server that can be written to.
    Primary,
}

/// Whether the tables have been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// They may have to be created.
    New,
    /// They existed, and must still exist.
    Known,
}

/// Makes connections for one purpose, one after another.
#[derive(Clone)]
pub(super) struct Dialer {
    connector: Connector,
    pub(super) options: Arc<PostgresOptions>,
    pub(super) time: Arc<Timekeeper>,
    tables: Tables,
}

impl Dialer {
    pub(super) fn new(
        tables: Tables,
        connector: Connector,
        options: Arc<PostgresOptions>,
        time: Arc<Timekeeper>,
    ) -> Self {
        Self { connector, options, time, tables }
    }

    /// Connects to tables of this version. Retries until the connect timeout, if the failure may pass.
    pub(super) async fn connect(&mut self, role: Role) -> Result<Connection, Failure> {
        let deadline = self.deadline();
        let mut pause = PAUSES.0;
        loop {
            let (error, may_pass) = match self.attempt(role, deadline).await {
                Ok(connection) => {
                    self.tables = Tables::Known;
                    return Ok(connection);
                }
                Err(not) => not.explain()?,
            };
            let over = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
            if over || !may_pass {
                return Err(Failure::Lost(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Connects like [`Self::connect`], but without retries.
    pub(super) async fn connect_once(&mut self, role: Role) -> Result<Connection, Failure> {
        let connection = self.attempt(role, self.deadline()).await;
        let connection =
            connection.or_else(|not| not.explain().and_then(|(error, _)| Err(Failure::Lost(error))))?;
        self.tables = Tables::Known;
        Ok(connection)
    }

    fn deadline(&self) -> Option<Instant> {
        let limit = self.options.connect_timeout;
        if limit.is_zero() { None } else { Instant::now().checked_add(limit) }
    }

    async fn attempt(&self, role: Role, deadline: Option<Instant>) -> Result<Connection, NotConnected> {
        // In a separate task, a panic in the host's connector ends only this attempt.
        let mut connecting = tokio::spawn(self.connector.connect());
        let made = match deadline {
            None => (&mut connecting).await,
            Some(deadline) => timeout_at(deadline, &mut connecting).await.unwrap_or_else(|_| {
                connecting.abort();
                Ok(Err(format!("no answer in {:?}", self.options.connect_timeout).into()))
            }),
        };
        let (mut client, driving) = match made {
            Ok(made) => made.map_err(NotConnected::Failed)?,
            Err(panic) => return Err(NotConnected::Failed(panic.into())),
        };
        let driving = Driving::spawn(driving);
        let settle = async {
            let server = Server::ask(&client).await?;
            let route = Route::of(&client, server.process).await;
            if route == Route::Direct {
                client.batch_execute(&self.options.session()).await?;
            }
            self.time.measure(&client).await?;
            Ok((route, server.is_standby))
        };
        let (route, is_standby) = self.answered(deadline, settle).await?.map_err(failed)?;
        if is_standby && role == Role::Primary {
            return Err(NotConnected::Standby);
        }
        let schema = &self.options.schema;
        match (self.tables, self.options.apply_migrations) {
            // It may have to wait for another process that does the same.
            (Tables::New, true) if !is_standby => {
                self.answered(None, upgrade::migrate(&mut client, schema)).await?
            }
            _ => self.answered(deadline, migrate::check(&client, schema)).await?,
        }
        .map_err(|error| match is_passing(&error) {
            true => NotConnected::Failed(Box::new(error)),
            false => NotConnected::Refused(error),
        })?;
        let beginnings = self.options.beginnings(route);
        let standby_since = is_standby.then(Instant::now);
        Ok(Connection::new(client, driving, route, beginnings, standby_since))
    }

    /// Runs the setup of a new connection, until the deadline, or for as long as the server may take for a
    /// statement.
    async fn answered<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Result<T, NotConnected> {
        let patience = self.options.patience().and_then(|patience| Instant::now().checked_add(patience));
        match deadline.or(patience) {
            None => Ok(work.await),
            Some(deadline) => timeout_at(deadline, work)
                .await
                .map_err(|_| NotConnected::Failed("the server did not answer in time".into())),
        }
    }
}

/// What a server says about itself after connecting.
struct Server {
    process: Option<i32>,
    is_standby: bool,
}

impl Server {
    async fn ask(client: &Client) -> Result<Self, PgError> {
        let rows = client.query_typed("SELECT pg_backend_pid(), pg_is_in_recovery()", &[]).await?;
        let Some(row) = rows.first() else { return Ok(Self { process: None, is_standby: false }) };
        Ok(Self { process: row.try_get(0)?, is_standby: row.try_get(1)? })
    }
}

enum NotConnected {
    /// There is no connection.
    Failed(Cause),
    /// There is one, and it leads to a standby.
    Standby,
    /// There is one, but what it leads to is unusable.
    Refused(StoreError),
}

impl NotConnected {
    /// Returns the error and whether another try may help, or a failure that is final.
    fn explain(self) -> Result<(StoreError, bool), Failure> {
        match self {
            Self::Refused(error) => Err(Failure::Refused(error)),
            Self::Failed(cause) => {
                let may_pass = is_passing(&*cause);
                Ok((unreachable(cause), may_pass))
            }
            // It may be promoted, or the address may lead to the primary soon.
            Self::Standby => Ok((standby(), true)),
        }
    }
}

fn failed(error: PgError) -> NotConnected {
    NotConnected::Failed(Box::new(error))
}

fn standby() -> StoreError {
    let text = "the server is a standby, which can only be read: see to it that the address leads to the primary, and call again";
    StoreError::new(StoreErrorKind::ReadOnly, text)
}

fn unreachable(cause: Cause) -> StoreError {
    let cause = match cause.downcast::<PgError>() {
        Ok(error) => return store_error(*error),
        Err(cause) => cause,
    };
    match cause.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(cause) => {
            let text = format!("PostgreSQL cannot be connected to: {cause}: check that the server runs");
            StoreError::new(StoreErrorKind::Io, text).with_source(cause)
        }
    }
}
