//! Serves what a cluster has beside coupons: shared secrets, readiness of its servers, dead letters.

use super::database::{cluster_part, dead_letter_counts, early_coupon};
use super::node::Node;
use super::{Cluster, ClusterError};
use firstcome_core::coupon::Rejection;
use firstcome_core::id::CouponName;
use firstcome_core::time::Timestamp;
use firstcome_redis::{Fsync, Link, LinkError, ServerFacts};
use firstcome_sql::base::Base;
use firstcome_sql::{Address, DatabaseOptions, Migrated, SqlError, migrate_auction, schema};
use firstcome_store::Numbered;
use firstcome_store::edge::draw_secret;
use firstcome_store::{Answer, Refused};
use firstcome_store::{Fault, FaultKind, StoreError};
use std::sync::Arc;

/// An entry of a sequencer's stream that no caller could read. A caller that waited for it was let in anew; a caller that was told
/// early, at the sequencer, has lost it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Of the sequencer that it is from.
    pub generation: i64,
    /// Its last ticket. Grows over all generations.
    pub position: u64,
    /// When it was put aside.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// The entry as it stood in the stream.
    pub entry: Vec<u8>,
}

impl Cluster {
    /// A secret of this name, the same at all nodes of the deployment: the first one that asks draws it. Names are of letters,
    /// digits and `. _ : @ -`. One round trip.
    pub async fn secret(&self, name: &str) -> Result<[u8; 32], ClusterError> {
        let drawn = draw_secret().map_err(ClusterError::Chance)?;
        let kept = self.keep(&[(name, drawn)]).await?;
        kept.first().copied().ok_or_else(|| SqlError::broken("the secret is not there").into())
    }

    /// Keeps each of these values under its name, for all nodes and for as long as the deployment lives, unless there is one
    /// under that name. Returns what is kept, in the same order: of several calls with the same new names at once, all find
    /// the values of one. The database sees them only wrapped. One round trip; it is told once they are stored.
    pub async fn keep(&self, values: &[(&str, [u8; 32])]) -> Result<Vec<[u8; 32]>, ClusterError> {
        Ok(self.node.database.keep(values).await?)
    }

    /// Whether there is a value under this name. One round trip.
    pub async fn keeps(&self, name: &str) -> Result<bool, ClusterError> {
        Ok(self.node.database.keeps(name).await?)
    }

    /// Whether both servers answer, and are those of one deployment. One round trip to each.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.node.answers().await
    }

    /// Returns the time by the clock of the database. One round trip. An error if the database cannot be asked, after up to 30 s.
    pub async fn database_clock(&self) -> Result<Timestamp, ClusterError> {
        Ok(schema::now(&self.node.database.base).await?)
    }

    /// Why the server that decides the order may lose claims that it has acknowledged; `None` if it syncs each write.
    pub async fn redis_forgets(&self) -> Result<Option<String>, LinkError> {
        redis_forgets(self.link()).await
    }

    /// Refuses a deployment with a coupon that acknowledges claims at the sequencer, on a server that may lose them.
    pub async fn check_gates(&self) -> Result<(), ClusterError> {
        let Some(coupon) = early_coupon(&self.node.database.base).await? else { return Ok(()) };
        match self.redis_forgets().await? {
            Some(why) => Err(ClusterError::Forgets { coupon, why }),
            None => Ok(()),
        }
    }

    /// The entries of a coupon's sequencers that no caller could read, after this position, oldest first. Refused: `unknown_coupon`.
    pub async fn dead_letters(
        &self,
        coupon: &CouponName,
        after: Option<u64>,
        count: usize,
    ) -> Answer<Numbered<DeadLetter>> {
        self.node.dead_letters(coupon, after, count).await
    }

    /// How many such entries there are of each coupon that has any.
    pub async fn dead_letter_counts(&self) -> Result<Vec<(CouponName, u64)>, StoreError> {
        Ok(dead_letter_counts(&self.node.database.base).await?)
    }
}

impl Node {
    async fn answers(&self) -> Result<(), StoreError> {
        let (belongs, answers) = tokio::join!(self.sequencer.belongs(self.deployment), self.database.answers());
        answers?;
        if belongs? == self.deployment {
            return Ok(());
        }
        let says = "the keys on this Redis are those of another deployment now";
        Err(StoreError::Faulted(Arc::new(Fault::new(FaultKind::Unfit, says))))
    }

    async fn dead_letters(&self, name: &CouponName, after: Option<u64>, count: usize) -> Answer<Numbered<DeadLetter>> {
        let Some(row) = self.database.coupon(name).await? else {
            return Ok(Err(Refused::from(Rejection::UnknownCoupon)));
        };
        // One more than is wanted, to see whether there are more.
        let wanted = count.saturating_add(1) as u64;
        let mut items = self.database.dead_letters(row.id, after.unwrap_or(0), wanted).await?;
        let more = count < items.len();
        items.truncate(count);
        let next = if more { items.last().map(|letter| letter.position) } else { None };
        Ok(Ok(Numbered { items, next, removed_to: 0 }))
    }
}

/// Why a server may lose what it has acknowledged.
pub(super) fn forgets(facts: &ServerFacts) -> Option<String> {
    let address = &facts.address;
    match facts.fsync {
        _ if !facts.append_only => {
            Some(format!("the Redis at {address} does not write to disk what it does (appendonly no)"))
        }
        Some(Fsync::Always) => None,
        Some(Fsync::EverySecond) => Some(format!("the Redis at {address} syncs once a second (appendfsync everysec)")),
        Some(Fsync::Never) => Some(format!("the Redis at {address} leaves syncing to the system (appendfsync no)")),
        None => Some(format!("the Redis at {address} does not say when it syncs (CONFIG GET is not allowed)")),
    }
}

async fn redis_forgets(link: &Link) -> Result<Option<String>, LinkError> {
    Ok(link.servers().await?.iter().find_map(forgets))
}

/// Brings all tables of a database to this version: those of members and listings, and those of coupons on a cluster. A
/// second time has no effect; several at once wait for each other. Needs the right to create tables.
pub async fn migrate(sql: &str, options: DatabaseOptions) -> Result<Vec<Migrated>, SqlError> {
    let auctions = migrate_auction(sql, options.clone()).await?;
    let base = Base::open(Address::parse(sql)?, options).await?;
    Ok(vec![auctions, schema::migrate(&base, cluster_part(base.dialect)).await?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_syncs_each_write_keeps_what_it_acknowledged() {
        let info = |aof: u8| format!("redis_version:7.0.15\r\nrole:master\r\naof_enabled:{aof}\r\n");
        let why = |aof, sync| forgets(&ServerFacts::read("one:1".to_owned(), &info(aof), sync, None));
        assert_eq!(why(1, Some("always")), None);
        for (aof, sync, word) in [
            (0, Some("always"), "appendonly no"),
            (1, Some("everysec"), "appendfsync everysec"),
            (1, Some("no"), "appendfsync no"),
            (1, None, "CONFIG GET"),
        ] {
            let stored = why(aof, sync).unwrap_or_default();
            assert!(stored.contains(word) && stored.contains("one:1"), "{stored}");
        }
    }
}
