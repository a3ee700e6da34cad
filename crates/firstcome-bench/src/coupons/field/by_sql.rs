//! Coupons in SQL by hand, as careful teams write them, on PostgreSQL.

use super::Answer;
use anyhow::bail;
use firstcome::sql::Address;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The connections of a pool: as many as a node has at most.
const CONNECTIONS: u32 = 32;
/// The SQLSTATE of a unique violation: this user has a coupon.
const UNIQUE_VIOLATION: &str = "23505";

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS hand_coupon (name text PRIMARY KEY, stock bigint NOT NULL, issued bigint NOT NULL)
  WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS hand_claim (coupon text NOT NULL, holder text NOT NULL, serial bigint,
  PRIMARY KEY (coupon, holder));
CREATE TABLE IF NOT EXISTS hand_number (coupon text NOT NULL, serial bigint NOT NULL, holder text,
  PRIMARY KEY (coupon, serial), UNIQUE (coupon, holder));
CREATE INDEX IF NOT EXISTS hand_number_free ON hand_number (coupon, serial) WHERE holder IS NULL;";

/// How the number is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SqlWay {
    /// Another system decides, and this adds a row.
    Insert,
    /// One statement that counts up below the limit, and inserts.
    ConditionalUpdate,
    /// One statement that takes the first number that no other transaction has locked.
    SkipLocked,
    /// A transaction that locks the coupon, reads, decides and writes.
    ForUpdate,
}

/// Coupons in a database, by one of the ways.
#[derive(Clone)]
pub(super) struct BySql {
    pool: PgPool,
    way: SqlWay,
}

impl BySql {
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(Address::postgres(url)?).await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self { pool, way: SqlWay::Insert })
    }

    pub(super) fn by(&self, way: SqlWay) -> Self {
        Self { pool: self.pool.clone(), way }
    }

    /// Creates a coupon with this stock. A table of numbers gets `numbers` of them.
    pub(super) async fn put(&self, coupon: &str, stock: u32, numbers: u32) -> anyhow::Result<()> {
        let put = sqlx::query("INSERT INTO hand_coupon VALUES ($1, $2, 0)").bind(coupon).bind(i64::from(stock));
        put.execute(&self.pool).await?;
        if self.way == SqlWay::SkipLocked {
            let fill = "INSERT INTO hand_number SELECT $1, n, NULL FROM generate_series(1, $2) n";
            sqlx::query(fill).bind(coupon).bind(i64::from(numbers)).execute(&self.pool).await?;
            sqlx::query("ANALYZE hand_number").execute(&self.pool).await?;
        }
        Ok(())
    }

    pub(super) async fn claim(&self, coupon: &str, user: &str) -> anyhow::Result<Answer> {
        let claimed = match self.way {
            SqlWay::Insert => {
                let insert = sqlx::query("INSERT INTO hand_claim VALUES ($1, $2, NULL)").bind(coupon).bind(user);
                insert.execute(&self.pool).await.map(|done| done.rows_affected())
            }
            SqlWay::ConditionalUpdate => {
                // A second claim of a user violates the key, which undoes the count.
                let claim = "WITH taken AS (UPDATE hand_coupon SET issued = issued + 1 \
                    WHERE name = $1 AND issued < stock RETURNING issued) \
                    INSERT INTO hand_claim SELECT $1, $2, issued FROM taken";
                sqlx::query(claim).bind(coupon).bind(user).execute(&self.pool).await.map(|done| done.rows_affected())
            }
            SqlWay::SkipLocked => {
                let claim = "UPDATE hand_number SET holder = $2 WHERE coupon = $1 AND serial = (SELECT serial \
                    FROM hand_number WHERE coupon = $1 AND holder IS NULL ORDER BY serial LIMIT 1 \
                    FOR UPDATE SKIP LOCKED)";
                sqlx::query(claim).bind(coupon).bind(user).execute(&self.pool).await.map(|done| done.rows_affected())
            }
            SqlWay::ForUpdate => self.locked(coupon, user).await,
        };
        match claimed {
            Ok(0) => Ok(Answer::Refused),
            Ok(1) => Ok(Answer::Issued),
            Ok(rows) => bail!("{rows} rows were written for one claim"),
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code());
                if code.is_some_and(|code| code == UNIQUE_VIOLATION) { Ok(Answer::Refused) } else { Err(error.into()) }
            }
        }
    }

    /// Locks the row of the coupon, reads it, and writes the claim and the count.
    async fn locked(&self, coupon: &str, user: &str) -> Result<u64, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let (issued, stock): (i64, i64) =
            sqlx::query_as("SELECT issued, stock FROM hand_coupon WHERE name = $1 FOR UPDATE")
                .bind(coupon)
                .fetch_one(&mut *transaction)
                .await?;
        if stock <= issued {
            transaction.rollback().await?;
            return Ok(0);
        }
        sqlx::query("INSERT INTO hand_claim VALUES ($1, $2, $3)")
            .bind(coupon)
            .bind(user)
            .bind(issued + 1)
            .execute(&mut *transaction)
            .await?;
        let count = sqlx::query("UPDATE hand_coupon SET issued = issued + 1 WHERE name = $1").bind(coupon);
        let rows = count.execute(&mut *transaction).await?.rows_affected();
        transaction.commit().await?;
        Ok(rows)
    }

    /// Returns how many claims the rows hold.
    pub(super) async fn count(&self, coupon: &str) -> anyhow::Result<u64> {
        let count = match self.way {
            SqlWay::SkipLocked => {
                sqlx::query_scalar("SELECT count(*) FROM hand_number WHERE coupon = $1 AND holder IS NOT NULL")
            }
            _ => sqlx::query_scalar("SELECT count(*) FROM hand_claim WHERE coupon = $1"),
        };
        let count: i64 = count.bind(coupon).fetch_one(&self.pool).await?;
        Ok(count.unsigned_abs())
    }
}
