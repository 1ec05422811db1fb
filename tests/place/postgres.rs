//! A store in a PostgreSQL schema.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stationmaster::store::Store;
use stationmaster::store::postgres::{Isolation, PostgresOptions, PostgresStore, Schema, SynchronousCommit};

use super::Commits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    pub fn isolation(self) -> Isolation {
        match self {
            Self::ReadCommitted => Isolation::ReadCommitted,
            Self::RepeatableRead => Isolation::RepeatableRead,
            Self::Serializable => Isolation::Serializable,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Database {
    pub url: String,
    pub schema: String,
    pub level: Level,
}

impl Database {
    pub fn options(&self) -> PostgresOptions {
        let schema = Schema::new(&self.schema).unwrap();
        PostgresOptions::new().schema(schema).isolation(self.level.isolation())
    }

    pub fn open(&self, commits: Commits) -> Arc<dyn Store> {
        let commit = match commits {
            Commits::Durable => SynchronousCommit::On,
            Commits::Quick => SynchronousCommit::Off,
        };
        let options = self.options().synchronous_commit(commit);
        Arc::new(PostgresStore::connect(&self.url, options).unwrap())
    }
}
