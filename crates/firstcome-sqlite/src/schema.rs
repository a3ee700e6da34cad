//! The file's schema, its version, and the steps from each version to the next.

use firstcome_store::{Fault, FaultKind};
use rusqlite::{Connection, TransactionBehavior};

/// The identification of a kind of file, and the steps of its schema.
pub(super) struct Schema {
    /// Marks the file as ours.
    application_id: i32,
    /// Step N brings a file of version N to version N + 1. Steps are never changed once released, only added.
    steps: &'static [&'static str],
}

/// The file of coupons, rooms and auctions: "FCOM".
pub(super) const STORE: Schema = Schema {
    application_id: 0x4643_4f4d,
    steps: &[
        include_str!("0001_coupons.sql"),
        include_str!("0002_rooms.sql"),
        include_str!("0003_market.sql"),
        include_str!("0004_bound_codes.sql"),
        include_str!("0005_appearances.sql"),
        include_str!("0006_draws.sql"),
        include_str!("0007_memory.sql"),
        include_str!("0008_renewals.sql"),
        include_str!("0009_heads.sql"),
        include_str!("0010_api_keys.sql"),
        include_str!("0011_purges.sql"),
        include_str!("0012_first_polls.sql"),
        include_str!("0013_anchors.sql"),
        include_str!("0014_purged_rows.sql"),
        include_str!("0015_removed_heads.sql"),
        include_str!("0016_renamed_members.sql"),
    ],
};

/// The file of locks: "FCLK".
pub(super) const LOCKS: Schema = Schema {
    application_id: 0x4643_4c4b,
    steps: &[include_str!("lock/0001_locks.sql"), include_str!("lock/0002_shared.sql")],
};

type Checked<T> = rusqlite::Result<Result<T, Fault>>;

pub(super) fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

impl Schema {
    /// Returns the version that this program writes.
    pub(super) const fn version(&self) -> i32 {
        self.steps.len() as i32
    }

    /// Accepts an empty file, or one of ours that is not of a later version. Changes nothing.
    pub(super) fn admit(&self, connection: &Connection) -> Checked<()> {
        let version = number(connection, "user_version")?;
        let application = number(connection, "application_id")?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let fresh = version == 0 && application == 0 && tables == 0;
        Ok(if fresh { Ok(()) } else { self.judge(application, version) })
    }

    /// Upgrades the file to this version, in one transaction.
    pub(super) fn prepare(&self, connection: &mut Connection) -> Checked<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Checks again: another process may have changed the file before the transaction began.
        if let Err(fault) = self.admit(&transaction)? {
            return Ok(Err(fault));
        }
        let version = number(&transaction, "user_version")?;
        if version == self.version() {
            return Ok(Ok(()));
        }
        for step in &self.steps[usize::try_from(version).unwrap_or(0)..] {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "application_id", self.application_id)?;
        transaction.pragma_update(None, "user_version", self.version())?;
        transaction.commit()?;
        Ok(Ok(()))
    }

    /// Accepts a connection whose file has exactly this version.
    pub(super) fn check(&self, connection: Connection) -> Checked<Connection> {
        let look = connection.unchecked_transaction()?;
        let (version, application) = (number(&look, "user_version")?, number(&look, "application_id")?);
        look.finish()?;
        if let Err(fault) = self.judge(application, version) {
            return Ok(Err(fault));
        }
        let known = self.version();
        if version < known {
            let detail =
                format!("the file has schema version {version}; start the service once to bring it to {known}");
            return Ok(Err(Fault::new(FaultKind::Foreign, detail)));
        }
        Ok(Ok(connection))
    }

    fn judge(&self, application: i32, version: i32) -> Result<(), Fault> {
        if application != self.application_id {
            return Err(Fault::new(FaultKind::Foreign, "the file belongs to another program"));
        }
        let known = self.version();
        if known < version {
            let detail = format!("the file has schema version {version}, this program knows up to {known}");
            return Err(Fault::new(FaultKind::Newer, detail));
        }
        Ok(())
    }
}
