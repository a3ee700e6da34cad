//! The hand-written strategies on PostgreSQL.

use super::super::audit::Facts;
use super::super::engine::POINTS;
use super::super::hot::Run;
use super::{CHARGE, Change, HandDatabase, HandListing, RecordRow, Session, Wallet, facts};
use anyhow::Context;
use firstcome::sql::Address;
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Postgres};
use std::time::Duration;

/// The tables. Rows that are updated often get free space on their pages, so that they need not move to another page.
const TABLES: &str = "
DROP TABLE IF EXISTS by_hand_listing, by_hand_wallet, by_hand_bid, by_hand_record;
CREATE TABLE by_hand_listing (id bigint PRIMARY KEY, bids bigint NOT NULL, highest bigint, highest_price bigint,
  version bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE by_hand_wallet (member bigint PRIMARY KEY, total bigint NOT NULL, held bigint NOT NULL,
  records bigint NOT NULL, CHECK (0 <= held AND held <= total)) WITH (fillfactor = 50);
CREATE TABLE by_hand_bid (number bigint PRIMARY KEY, member bigint NOT NULL, price bigint NOT NULL, at bigint NOT NULL);
CREATE TABLE by_hand_record (member bigint NOT NULL, number bigint NOT NULL, kind bigint NOT NULL, amount bigint NOT NULL,
  bid bigint, at bigint NOT NULL, total bigint NOT NULL, held bigint NOT NULL, PRIMARY KEY (member, number));
INSERT INTO by_hand_listing VALUES (1, 0, NULL, NULL, 1);";

/// A pool of connections.
pub(in super::super) struct ByPostgres(PgPool);

/// One connection of the pool.
pub(in super::super) struct PostgresSession(PoolConnection<Postgres>);

impl ByPostgres {
    /// Opens connections on demand, at most so many.
    pub(in super::super) fn new(url: &str, connections: u32) -> anyhow::Result<Self> {
        // A task waits for a connection in the order of arrival, as long as it takes.
        let pool = PoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(60));
        Ok(Self(pool.connect_lazy_with(Address::postgres(url)?)))
    }
}

impl HandDatabase for ByPostgres {
    type Session = PostgresSession;

    async fn session(&self) -> anyhow::Result<PostgresSession> {
        Ok(PostgresSession(self.0.acquire().await?))
    }

    async fn lay_out(&self, bidders: usize) -> anyhow::Result<()> {
        sqlx::raw_sql(TABLES).execute(&self.0).await?;
        let (last, points) = (bidders as i64 - 1, POINTS.cast_signed());
        sqlx::query("INSERT INTO by_hand_wallet SELECT n, $2, 0, 1 FROM generate_series(0, $1) n")
            .bind(last)
            .bind(points)
            .execute(&self.0)
            .await?;
        sqlx::query("INSERT INTO by_hand_record SELECT n, 1, $3, $2, NULL, 0, $2, 0 FROM generate_series(0, $1) n")
            .bind(last)
            .bind(points)
            .bind(CHARGE)
            .execute(&self.0)
            .await?;
        Ok(())
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
        // Only transactions that write get a number.
        let number: String = sqlx::query_scalar("SELECT pg_current_xact_id()::text").fetch_one(&self.0).await?;
        number.parse().context("the number of a transaction")
    }

    async fn version(&self) -> anyhow::Result<String> {
        let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&self.0).await?;
        Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
    }

    async fn say(&self, statement: String) -> anyhow::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.0).await?;
        Ok(())
    }
}

impl Session for PostgresSession {
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
        self.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *self.0).await?;
        Ok(true)
    }

    async fn end_named(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn listing(&mut self, lock: bool) -> anyhow::Result<HandListing> {
        const LOOK: &str = "SELECT bids, highest, highest_price, version, \
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM by_hand_listing WHERE id = 1";
        const LOCK: &str = "SELECT bids, highest, highest_price, version, \
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM by_hand_listing WHERE id = 1 FOR UPDATE";
        let row: (i64, Option<i64>, Option<i64>, i64, i64) =
            sqlx::query_as(if lock { LOCK } else { LOOK }).fetch_one(&mut *self.0).await?;
        let (bids, member, price, version, now_us) = row;
        Ok(HandListing { bids, highest: member.zip(price), version, now_us })
    }

    async fn wallets(&mut self, [one, other]: [i64; 2], lock: bool) -> anyhow::Result<Vec<Wallet>> {
        const LOOK: &str = "SELECT member, total, held, records FROM by_hand_wallet WHERE member IN ($1, $2)";
        const LOCK: &str = "SELECT member, total, held, records FROM by_hand_wallet WHERE member IN ($1, $2) \
            ORDER BY member FOR UPDATE";
        let asked = sqlx::query_as(if lock { LOCK } else { LOOK }).bind(one).bind(other);
        let rows: Vec<(i64, i64, i64, i64)> = asked.fetch_all(&mut *self.0).await?;
        let wallet = |(member, total, held, records)| Wallet { member, total, held, records };
        Ok(rows.into_iter().map(wallet).collect())
    }

    async fn write(&mut self, change: &Change) -> anyhow::Result<bool> {
        let listing = "UPDATE by_hand_listing SET bids = $1, highest = $2, highest_price = $3, version = version + 1 \
            WHERE id = 1 AND version = $4";
        let written = sqlx::query(listing).bind(change.number).bind(change.bidder.member).bind(change.price);
        if written.bind(change.version).execute(&mut *self.0).await?.rows_affected() != 1 {
            return Ok(false);
        }
        let (outbid, released) = change.outbid.map_or((-1, 0), |(wallet, _, price)| (wallet.member, price));
        sqlx::query(
            "UPDATE by_hand_wallet SET held = held + CASE member WHEN $1 THEN $2 ELSE -$4 END, records = records + 1 \
             WHERE member IN ($1, $3)",
        )
        .bind(change.bidder.member)
        .bind(change.price)
        .bind(outbid)
        .bind(released)
        .execute(&mut *self.0)
        .await?;
        let records = change.records();
        let statement = if records.len() == 1 {
            "INSERT INTO by_hand_record VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        } else {
            "INSERT INTO by_hand_record VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16)"
        };
        let mut insert = sqlx::query(statement);
        for record in &records {
            let wallet = record.wallet;
            insert = insert.bind(wallet.member).bind(wallet.records).bind(record.kind).bind(record.amount);
            insert = insert.bind(record.bid).bind(change.now_us).bind(wallet.total).bind(wallet.held);
        }
        insert.execute(&mut *self.0).await?;
        let bid = sqlx::query("INSERT INTO by_hand_bid VALUES ($1, $2, $3, $4)").bind(change.number);
        let bid = bid.bind(change.bidder.member).bind(change.price).bind(change.now_us);
        bid.execute(&mut *self.0).await?;
        Ok(true)
    }

    fn discard(mut self) {
        self.0.close_on_drop();
    }
}
