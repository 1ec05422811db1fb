//! Where a store is, as a test tells its child processes.

#[cfg(feature = "postgres")]
pub mod postgres;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stationmaster::error::Result;
#[cfg(feature = "sqlite")]
use stationmaster::store::Durability;
use stationmaster::store::Store;
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};

/// Whether commits wait for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Commits {
    Durable,
    Quick,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Place {
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Database),
}

impl Place {
    /// Opens the store; makes its tables if need be.
    pub fn open(&self, commits: Commits) -> Arc<dyn Store> {
        self.try_open(commits).unwrap()
    }

    /// Opens the store in which `open`, the store of this place, is to tick. It is another one where
    /// transactions are a host's: there a tick is refused.
    #[allow(dead_code)]
    pub fn try_open_to_tick(&self, open: &Arc<dyn Store>, commits: Commits) -> Result<Arc<dyn Store>> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(database) if database.owner != postgres::Owner::Store => {
                postgres::Database { owner: postgres::Owner::Store, ..database.clone() }.open(commits)
            }
            _ => {
                let _ = commits;
                Ok(open.clone())
            }
        }
    }

    pub fn try_open(&self, commits: Commits) -> Result<Arc<dyn Store>> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                let synchronous = match commits {
                    Commits::Durable => Durability::Power,
                    Commits::Quick => Durability::Process,
                };
                Ok(Arc::new(SqliteStore::open(path, SqliteOptions::new().durability(synchronous))?))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.open(commits),
        }
    }
}
