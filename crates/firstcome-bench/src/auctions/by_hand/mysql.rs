//! The hand-written strategies on MySQL and MariaDB.

use super::super::audit::Facts;
use super::super::engine::POINTS;
use super::super::hot::Run;
use super::{CHARGE, Change, HandDatabase, HandListing, RecordRow, Session, Wallet, facts};
use anyhow::Context;
use firstcome::sql::Address;
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{AssertSqlSafe, MySql, MySqlPool};
use std::time::Duration;

const TABLES: &str = "
DROP TABLE IF EXISTS by_hand_listing, by_hand_wallet, by_hand_bid, by_hand_record;
CREATE TABLE by_hand_listing (id bigint PRIMARY KEY, bids bigint NOT NULL, highest bigint, highest_price bigint,
  version bigint NOT NULL) ENGINE = InnoDB;
CREATE TABLE by_hand_wallet (member bigint PRIMARY KEY, total bigint NOT NULL, held bigint NOT NULL,
  records bigint NOT NULL, CHECK (0 <= held AND held <= total)) ENGINE = InnoDB;
CREATE TABLE by_hand_bid (number bigint PRIMARY KEY, member bigint NOT NULL, price bigint NOT NULL,
  at bigint NOT NULL) ENGINE = InnoDB;
CREATE TABLE by_hand_record (member bigint NOT NULL, number bigint NOT NULL, kind bigint NOT NULL, amount bigint NOT NULL,
  bid bigint, at bigint NOT NULL, total bigint NOT NULL, held bigint NOT NULL, PRIMARY KEY (member, number))
  ENGINE = InnoDB;
INSERT INTO by_hand_listing VALUES (1, 0, NULL, NULL, 1);";

/// A pool of connections.
pub(in super::super) struct ByMySql(MySqlPool);

/// One connection of the pool.
pub(in super::super) struct MySqlSession(PoolConnection<MySql>);

impl ByMySql {
    /// Opens connections on demand, at most so many.
    pub(in super::super) fn new(url: &str, connections: u32) -> anyhow::Result<Self> {
        // A task waits for a connection in the order of arrival, as long as it takes.
        let pool = PoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(60));
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
                sqlx::raw_sql(isolation).execute(connection).await.map(drop)
            })
        });
        Ok(Self(pool.connect_lazy_with(Address::mysql(url)?)))
    }
}

impl HandDatabase for ByMySql {
    type Session = MySqlSession;

    async fn session(&self) -> anyhow::Result<MySqlSession> {
        Ok(MySqlSession(self.0.acquire().await?))
    }

    async fn lay_out(&self, bidders: usize) -> anyhow::Result<()> {
        sqlx::raw_sql(TABLES).execute(&self.0).await?;
        let (points, bidders) = (POINTS.cast_signed(), 0..bidders);
        let wallets: Vec<String> = bidders.clone().map(|bidder| format!("({bidder},{points},0,1)")).collect();
        let records: Vec<String> =
            bidders.map(|bidder| format!("({bidder},1,{CHARGE},{points},NULL,0,{points},0)")).collect();
        self.say(format!("INSERT INTO by_hand_wallet VALUES {}", wallets.join(","))).await?;
        self.say(format!("INSERT INTO by_hand_record VALUES {}", records.join(","))).await
    }

    async fn facts(&self, run: &Run) -> anyhow::Result<Facts> {
        let (bids, highest, highest_price): (i64, Option<i64>, Option<i64>) =
            sqlx::query_as("SELECT bids, highest, highest_price FROM by_hand_listing").fetch_one(&self.0).await?;
        let placed: Vec<(i64, i64, i64)> =
            sqlx::query_as("SELECT number, member, price FROM by_hand_bid ORDER BY number").fetch_all(&self.0).await?;
        let wallets: Vec<(i64, i64)> =
            sqlx::query_as("SELECT total, held FROM by_hand_wallet ORDER BY member").fetch_all(&self.0).await?;
        let records: Vec<RecordRow> = sqlx::query_as(
            "SELECT member, number, kind, amount, bid, total, held FROM by_hand_record ORDER BY member, number",
        )
        .fetch_all(&self.0)
        .await?;
        facts(run, (bids, highest.zip(highest_price)), &placed, &wallets, &records)
    }

    async fn commits(&self) -> anyhow::Result<u64> {
        let (_, commits): (String, String) =
            sqlx::query_as("SHOW GLOBAL STATUS LIKE 'Com_commit'").fetch_one(&self.0).await?;
        commits.parse().context("the number of commits")
    }

    async fn version(&self) -> anyhow::Result<String> {
        let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&self.0).await?;
        let name = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
        Ok(format!("{name} {}", version.split('-').next().unwrap_or_default()))
    }

    async fn say(&self, statement: String) -> anyhow::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.0).await?;
        Ok(())
    }
}

impl Session for MySqlSession {
    async fn begin(&mut self) -> anyhow::Result<()> {
        sqlx::raw_sql("BEGIN").execute(&mut *self.0).await?;
        Ok(())
    }

    async fn commit(&mut self) -> anyhow::Result<()> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.0).await?;
        Ok(())
    }

    async fn rollback(&mut self) -> anyhow::Result<()> {
        sqlx::raw_sql("ROLLBACK").execute(&mut *self.0).await?;
        Ok(())
    }

    async fn begin_named(&mut self) -> anyhow::Result<bool> {
        let got: Option<i64> =
            sqlx::query_scalar("SELECT GET_LOCK('firstcome_bench_auction', 5)").fetch_one(&mut *self.0).await?;
        if got == Some(1) {
            self.begin().await?;
        }
        Ok(got == Some(1))
    }

    async fn end_named(&mut self) -> anyhow::Result<()> {
        sqlx::query("DO RELEASE_LOCK('firstcome_bench_auction')").execute(&mut *self.0).await?;
        Ok(())
    }

    async fn listing(&mut self, lock: bool) -> anyhow::Result<HandListing> {
        const LOOK: &str = "SELECT bids, highest, highest_price, version, \
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM by_hand_listing WHERE id = 1";
        const LOCK: &str = "SELECT bids, highest, highest_price, version, \
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM by_hand_listing WHERE id = 1 FOR UPDATE";
        let row: (i64, Option<i64>, Option<i64>, i64, i64) =
            sqlx::query_as(if lock { LOCK } else { LOOK }).fetch_one(&mut *self.0).await?;
        let (bids, member, price, version, now_us) = row;
        Ok(HandListing { bids, highest: member.zip(price), version, now_us })
    }

    async fn wallets(&mut self, [one, other]: [i64; 2], lock: bool) -> anyhow::Result<Vec<Wallet>> {
        const LOOK: &str = "SELECT member, total, held, records FROM by_hand_wallet WHERE member IN (?, ?)";
        const LOCK: &str = "SELECT member, total, held, records FROM by_hand_wallet WHERE member IN (?, ?) \
            ORDER BY member FOR UPDATE";
        let asked = sqlx::query_as(if lock { LOCK } else { LOOK }).bind(one).bind(other);
        let rows: Vec<(i64, i64, i64, i64)> = asked.fetch_all(&mut *self.0).await?;
        let wallet = |(member, total, held, records)| Wallet { member, total, held, records };
        Ok(rows.into_iter().map(wallet).collect())
    }

    async fn write(&mut self, change: &Change) -> anyhow::Result<bool> {
        let listing = "UPDATE by_hand_listing SET bids = ?, highest = ?, highest_price = ?, version = version + 1 \
            WHERE id = 1 AND version = ?";
        let written = sqlx::query(listing).bind(change.number).bind(change.bidder.member).bind(change.price);
        if written.bind(change.version).execute(&mut *self.0).await?.rows_affected() != 1 {
            return Ok(false);
        }
        let (outbid, released) = change.outbid.map_or((-1, 0), |(wallet, _, price)| (wallet.member, price));
        sqlx::query(
            "UPDATE by_hand_wallet SET held = held + IF(member = ?, ?, -?), records = records + 1 \
             WHERE member IN (?, ?)",
        )
        .bind(change.bidder.member)
        .bind(change.price)
        .bind(released)
        .bind(change.bidder.member)
        .bind(outbid)
        .execute(&mut *self.0)
        .await?;
        let records = change.records();
        let statement = if records.len() == 1 {
            "INSERT INTO by_hand_record VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        } else {
            "INSERT INTO by_hand_record VALUES (?, ?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?, ?)"
        };
        let mut insert = sqlx::query(statement);
        for record in &records {
            let wallet = record.wallet;
            insert = insert.bind(wallet.member).bind(wallet.records).bind(record.kind).bind(record.amount);
            insert = insert.bind(record.bid).bind(change.now_us).bind(wallet.total).bind(wallet.held);
        }
        insert.execute(&mut *self.0).await?;
        let bid = sqlx::query("INSERT INTO by_hand_bid VALUES (?, ?, ?, ?)").bind(change.number);
        let bid = bid.bind(change.bidder.member).bind(change.price).bind(change.now_us);
        bid.execute(&mut *self.0).await?;
        Ok(true)
    }

    fn discard(mut self) {
        self.0.close_on_drop();
    }
}
