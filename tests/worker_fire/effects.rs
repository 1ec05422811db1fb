//! The host's own rows, each written in the transaction that ends its task.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{Fenced, Finish};
use stationmaster::service::Attempt;

use crate::place::Place;

pub type Refused = Box<dyn std::error::Error + Send + Sync>;

pub const ON_PURPOSE: &str = "on purpose, after the effect";
/// How long every fourth transaction stays open before its commit.
const OPEN: Duration = Duration::from_millis(5);

/// What becomes of the transaction that ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Commits,
    /// The handler fails, and what it did is rolled back.
    Fails,
    Panics,
}

impl Fate {
    fn befall(self) -> Result<(), Refused> {
        match self {
            Self::Commits => Ok(()),
            Self::Fails => Err(ON_PURPOSE.into()),
            Self::Panics => panic!("{ON_PURPOSE}"),
        }
    }
}

/// Where the store and the host's table are. The table has no key, so an effect that takes place twice is there twice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effects {
    pub place: Place,
}

impl Effects {
    pub fn make_table(&self) {
        match &self.place {
            #[cfg(feature = "sqlite")]
            Place::Sqlite(path) => {
                let conn = sqlite::connect(path).unwrap();
                conn.execute_batch("CREATE TABLE effect (task TEXT NOT NULL)").unwrap();
            }
            #[cfg(feature = "postgres")]
            Place::Postgres(at) => {
                let plain = crate::postgres_server::Plain::connect(&at.url);
                plain.ask("CREATE SCHEMA host; CREATE TABLE host.effect (task TEXT NOT NULL)");
            }
        }
    }

    /// How often each effect took place.
    pub fn count(&self) -> BTreeMap<String, i64> {
        match &self.place {
            #[cfg(feature = "sqlite")]
            Place::Sqlite(path) => {
                let conn = sqlite::connect(path).unwrap();
                let mut select = conn.prepare("SELECT task, count(*) FROM effect GROUP BY task").unwrap();
                let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                rows.map(Result::unwrap).collect()
            }
            #[cfg(feature = "postgres")]
            Place::Postgres(at) => {
                let plain = crate::postgres_server::Plain::connect(&at.url);
                let rows = plain.ask("SELECT task, count(*) FROM host.effect GROUP BY task");
                let text = |row: &Vec<Option<String>>, at: usize| row[at].clone().unwrap();
                rows.iter().map(|row| (text(row, 0), text(row, 1).parse().unwrap())).collect()
            }
        }
    }

    /// Writes the effect of an attempt and ends it, in one of the host's own transactions.
    pub async fn take_place(&self, attempt: &Attempt, fate: Fate) -> Result<(), Refused> {
        let task = attempt.task().key.task.as_str();
        let open = if attempt.task().id.0 % 4 == 0 { OPEN } else { Duration::ZERO };
        let end = [Finish::success(attempt.lease())];
        match &self.place {
            #[cfg(feature = "sqlite")]
            Place::Sqlite(path) => tokio::task::block_in_place(|| {
                use stationmaster::store::sqlite::{SqliteTx, rusqlite::TransactionBehavior};
                let mut conn = sqlite::connect(path)?;
                let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
                tx.execute("INSERT INTO effect VALUES (?1)", [task])?;
                SqliteTx::attach(&tx, &Default::default())?.finish(SystemClock.now(), &end)?.fenced()?;
                std::thread::sleep(open);
                fate.befall()?;
                tx.commit()?;
                Ok::<(), Refused>(())
            })?,
            #[cfg(feature = "postgres")]
            Place::Postgres(at) => {
                use stationmaster::store::postgres::{Schema, tokio_postgres as pg, tx};
                let (mut client, connection) = pg::connect(&at.url, pg::NoTls).await?;
                tokio::spawn(connection);
                let (transaction, schema) = (client.transaction().await?, Schema::new(&at.schema)?);
                transaction.execute("INSERT INTO host.effect VALUES ($1)", &[&task]).await?;
                let finish = move |tx: &mut stationmaster::store::Tx<'_>| {
                    let finished = tx.finish(SystemClock.now(), &end)?.fenced()?;
                    std::thread::sleep(open);
                    Ok(finished)
                };
                tx(&transaction, &schema, finish).await?;
                fate.befall()?;
                transaction.commit().await?;
            }
        }
        attempt.ended_elsewhere();
        Ok(())
    }
}

#[cfg(feature = "sqlite")]
pub mod sqlite {
    use std::path::Path;
    use std::time::Duration;

    use stationmaster::store::sqlite::rusqlite::{Connection, Result};

    pub fn connect(path: &Path) -> Result<Connection> {
        let conn = Connection::open(path)?;
        conn.busy_timeout(Duration::from_secs(2))?;
        Ok(conn)
    }
}
