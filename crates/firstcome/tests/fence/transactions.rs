//! The check within a transaction: the row stays locked until it ends, and a rollback forgets.

use crate::server::wait_for;
use crate::stores::Store;
use crate::{databases, token};
use firstcome::fence::{self, FenceError, accepts, sqlx::FenceConnection};
use firstcome::lock::Retry;
use firstcome::{Fence, FenceToken, Guard, LockError, Locks, distributed_lock};
use sqlx::{AssertSqlSafe, Database, MySqlPool, PgPool, Pool, Transaction};
use std::sync::atomic::{AtomicU32, Ordering};

/// What differs between the two.
trait Server: Database<Connection: FenceConnection> {
    /// How many transactions wait for another one's rows.
    const WAITING: &str;
    const ISOLATIONS: [&str; 3];

    async fn count(pool: &Pool<Self>, query: &'static str) -> i64;
    async fn say(connection: &mut Self::Connection, statement: String);
    async fn begin(pool: &Pool<Self>, isolation: &str) -> Transaction<'static, Self>;
}

impl Server for sqlx::Postgres {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

    async fn count(pool: &PgPool, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
    }

    async fn say(connection: &mut sqlx::PgConnection, statement: String) {
        sqlx::query(AssertSqlSafe(statement)).execute(connection).await.unwrap();
    }

    async fn begin(pool: &PgPool, isolation: &str) -> Transaction<'static, Self> {
        let mut transaction = pool.begin().await.unwrap();
        Self::say(&mut transaction, format!("SET TRANSACTION ISOLATION LEVEL {isolation}")).await;
        transaction
    }
}

impl Server for sqlx::MySql {
    // Not from the table of transactions, which stands still while it is asked again and again.
    const WAITING: &str = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
         WHERE variable_name = 'Innodb_row_lock_current_waits'";
    const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

    async fn count(pool: &MySqlPool, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
    }

    async fn say(connection: &mut sqlx::MySqlConnection, statement: String) {
        sqlx::query(AssertSqlSafe(statement)).execute(connection).await.unwrap();
    }

    async fn begin(pool: &MySqlPool, isolation: &str) -> Transaction<'static, Self> {
        // Of the next transaction of this connection.
        let mut connection = pool.acquire().await.unwrap();
        Self::say(&mut connection, format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")).await;
        Transaction::begin(connection, None).await.unwrap()
    }
}

/// How the first transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Commit,
    Rollback,
    Drop,
}

/// One transaction shows a token while another one's is not over: it waits, and then is judged by what remains.
async fn a_later_holder_waits<D: Server>(pool: &Pool<D>) {
    let mut number = 0;
    for isolation in D::ISOLATIONS {
        for before in [None, Some((3, "old"))] {
            for end in [End::Commit, End::Rollback, End::Drop] {
                for second in [(6, "bob"), (4, "bob"), (5, "bob"), (5, "ann"), (2, "bob")] {
                    number += 1;
                    let lock = format!("lock-{number}");
                    let named = |(fence, owner): (u64, &str)| token(&lock, fence, owner);
                    let case = Case { isolation, before: before.map(named), end, second: named(second) };
                    case.holds(pool, &lock).await;
                }
            }
        }
    }
}

struct Case {
    isolation: &'static str,
    before: Option<FenceToken>,
    end: End,
    second: FenceToken,
}

impl Case {
    async fn holds<D: Server>(self, pool: &Pool<D>, lock: &str) {
        let says = format!("{} {:?} {:?} {:?}", self.isolation, self.before, self.end, self.second);
        if let Some(before) = &self.before {
            fence::sqlx::check(&mut *pool.acquire().await.unwrap(), before).await.unwrap();
        }
        let first = token(lock, 5, "ann");
        let mut one = D::begin(pool, self.isolation).await;
        fence::sqlx::check(&mut *one, &first).await.unwrap();
        // As often as one likes within it.
        fence::sqlx::check(&mut *one, &first).await.unwrap();
        let waiting = tokio::spawn({
            let (mut other, second) = (D::begin(pool, self.isolation).await, self.second.clone());
            async move {
                let checked = fence::sqlx::check(&mut *other, &second).await;
                if checked.is_ok() {
                    other.commit().await.unwrap();
                }
                checked
            }
        });
        wait_for("the other to wait", async || (D::count(pool, D::WAITING).await == 1).then_some(())).await;
        assert!(!waiting.is_finished(), "{says}");
        match self.end {
            End::Commit => one.commit().await.unwrap(),
            End::Rollback => one.rollback().await.unwrap(),
            End::Drop => drop(one),
        }
        let remembered = if self.end == End::Commit { Some(first) } else { self.before.clone() };
        match waiting.await.unwrap() {
            Ok(()) => assert!(accepts(remembered.as_ref(), &self.second), "{says}"),
            Err(FenceError::Stale(_)) => assert!(!accepts(remembered.as_ref(), &self.second), "{says}"),
            // A database that promises one view of everything may send it away instead of judging it.
            Err(failed) => {
                assert!(self.isolation != "READ COMMITTED", "{says}: {failed:?}");
                assert!(failed.is_conflict(), "{says}: {failed:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_postgres_a_later_holder_waits_for_the_end() {
    let Some((_server, pool)) = databases::postgres().await else { return };
    Store::postgres(pool.clone()).await;
    a_later_holder_waits(&pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_mariadb_a_later_holder_waits_for_the_end() {
    let Some((_server, pool)) = databases::mariadb().await else { return };
    Store::mariadb(pool.clone()).await;
    a_later_holder_waits(&pool).await;
}

#[derive(Debug)]
enum BidError {
    TooLow,
    Lock(LockError),
    Fence(FenceError<sqlx::Error>),
    Database(sqlx::Error),
}

impl From<LockError> for BidError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<FenceError<sqlx::Error>> for BidError {
    fn from(error: FenceError<sqlx::Error>) -> Self {
        Self::Fence(error)
    }
}

impl From<sqlx::Error> for BidError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Retry for BidError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Fence(error) => error.is_conflict(),
            Self::Database(error) => panic!("{error}"),
            Self::Lock(error) => panic!("{error}"),
            Self::TooLow => false,
        }
    }
}

/// A service as the documentation shows it.
struct Bids<D: Database> {
    locks: Locks,
    pool: Pool<D>,
    runs: AtomicU32,
}

impl<D: Server> Bids<D> {
    #[distributed_lock(key = "auction:{auction}", guard = held, transaction(tx = self.pool.begin()))]
    async fn bid(&self, auction: u64, price: u64, least: u64) -> Result<Fence, BidError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        D::say(tx, format!("INSERT INTO bids VALUES ({auction}, {price})")).await;
        if price < least {
            return Err(BidError::TooLow);
        }
        Ok(Guard::fence(held)?)
    }
}

async fn the_attribute_checks<D: Server>(pool: Pool<D>) {
    const BIDS: &str = "SELECT count(*) FROM bids";
    const FENCES: &str = "SELECT count(*) FROM fences";
    D::say(&mut *pool.acquire().await.unwrap(), "CREATE TABLE bids (auction bigint, price bigint)".into()).await;
    let bids = Bids { locks: Locks::memory(), pool: pool.clone(), runs: AtomicU32::new(0) };
    let count = async |query: &'static str| D::count(&pool, query).await;
    // What is rolled back leaves neither a bid nor a fence.
    assert!(matches!(bids.bid(7, 1, 100).await, Err(BidError::TooLow)));
    assert_eq!((count(BIDS).await, count(FENCES).await), (0, 0));
    let first = bids.bid(7, 120, 100).await.unwrap();
    assert!(first < bids.bid(7, 130, 100).await.unwrap());
    assert_eq!((count(BIDS).await, count(FENCES).await), (2, 1));
    // A newer holder has written, whom this store of locks does not know of: the body does not run.
    let newer = token("auction:7", (1 << 53) - 1, "somebody");
    fence::sqlx::check(&mut *pool.acquire().await.unwrap(), &newer).await.unwrap();
    let refused = bids.bid(7, 140, 100).await.unwrap_err();
    assert!(matches!(&refused, BidError::Fence(FenceError::Stale(stale)) if stale.token().lock() == "auction:7"));
    assert!(!refused.is_conflict());
    assert_eq!((count(BIDS).await, bids.runs.load(Ordering::Relaxed)), (2, 3));
    bids.bid(8, 140, 100).await.unwrap();
    // A table that is not there is no refusal.
    D::say(&mut *pool.acquire().await.unwrap(), "DROP TABLE fences".into()).await;
    let failed = bids.bid(8, 150, 100).await.unwrap_err();
    assert!(matches!(&failed, BidError::Fence(FenceError::Failed(_))), "{failed:?}");
    assert!(!failed.is_conflict());
}

#[tokio::test]
async fn under_the_attribute_postgres_checks() {
    let Some((_server, pool)) = databases::postgres().await else { return };
    Store::postgres(pool.clone()).await;
    the_attribute_checks(pool).await;
}

#[tokio::test]
async fn under_the_attribute_mariadb_checks() {
    let Some((_server, pool)) = databases::mariadb().await else { return };
    Store::mariadb(pool.clone()).await;
    the_attribute_checks(pool).await;
}
