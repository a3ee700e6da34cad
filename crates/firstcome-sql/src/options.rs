//! How what is kept in a database behaves.

use super::SqlOptions;
use std::time::Duration;

/// How what is kept in a database behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatabaseOptions {
    /// Its connections.
    pub connections: SqlOptions,
    /// How long a batch is tried again when others were served first or a connection broke, from when its turn comes on.
    /// Longer than [`Self::idle_timeout`], so that a process that was stopped delays the others and does not fail them.
    pub patience: Duration,
    /// After so long the server ends a transaction whose process says nothing. Whole seconds on MySQL and MariaDB.
    pub idle_timeout: Duration,
    /// Opens a database that may lose what it has acknowledged. For tests and trials.
    pub allow_volatile: bool,
    /// What opening does with tables that are not there, or of an earlier version.
    pub tables: Tables,
}

/// What opening does with tables that are not there, or of an earlier version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tables {
    /// Makes them, or brings them to this version: then the user needs the right to do so.
    #[default]
    Migrate,
    /// Refuses them, and a user who may not read and write them.
    Require,
}

impl Default for DatabaseOptions {
    /// 8 s of patience, 5 s for a silent transaction, and nothing but durable databases, whose tables are made.
    fn default() -> Self {
        Self {
            connections: SqlOptions::default(),
            patience: Duration::from_secs(8),
            idle_timeout: Duration::from_secs(5),
            allow_volatile: false,
            tables: Tables::default(),
        }
    }
}
