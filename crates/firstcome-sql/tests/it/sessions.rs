//! Locks of sessions. Each row is played on PostgreSQL and on MariaDB.

use crate::databases::{Running, mariadb_with, postgres, postgres_with};
use crate::in_time;
use crate::pooler::{Exchange, Pooler};
use crate::server::{PATIENCE, wait_for};
use firstcome_sql::{PostgresLocks, SessionHold, SessionLocks, SqlError, SqlOptions};
use firstcome_store::core::id::LockName;
use firstcome_store::{FaultKind, LockStore};
use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, PgPool};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const AT_ONCE: Duration = Duration::ZERO;

/// Times that a test is ready to wait for.
fn hasty() -> SqlOptions {
    let mut options = SqlOptions::default();
    // A slow machine is no dead one.
    options.connect_timeout = PATIENCE;
    options.answer_timeout = PATIENCE;
    options.ping_interval = Duration::from_millis(50);
    options
}

async fn open(server: &Running) -> SessionLocks {
    SessionLocks::open(server.url(), hasty()).await.expect("the server will do")
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("a valid name")
}

async fn obtain(locks: &SessionLocks, lock: &str) -> SessionHold {
    locks.take(&name(lock), PATIENCE).await.expect("the server answers").expect("it is its turn")
}

async fn is_free(locks: &SessionLocks, lock: &str) -> bool {
    match locks.take(&name(lock), AT_ONCE).await.expect("the server answers") {
        Some(hold) => hold.release().await,
        None => false,
    }
}

/// A process that stands beside, and may do anything.
struct Operator<'a>(&'a Running);

impl Operator<'_> {
    fn is_postgres(&self) -> bool {
        self.0.url().starts_with("postgres")
    }

    async fn number_on_postgres(&self, sql: &str) -> i64 {
        let mut connection = PgConnection::connect(self.0.url()).await.expect("it answers");
        let asked = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await;
        asked.expect("a number")
    }

    /// How many sessions wait for a lock of ours.
    async fn waiting(&self) -> usize {
        if self.is_postgres() {
            let sql =
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'";
            return usize::try_from(self.number_on_postgres(sql).await).expect("a count");
        }
        let mut connection = MySqlConnection::connect(self.0.url()).await.expect("it answers");
        // Not `information_schema.processlist`: MariaDB 10.11.19 dies of signal 11 in `ha_maria::drop_table`, about once in
        // thirty runs of this test, when it drops the temporary table of that query.
        let sessions = sqlx::raw_sql("SHOW FULL PROCESSLIST").fetch_all(&mut connection).await.expect("a list");
        let state = |session| sqlx::Row::get::<Option<String>, _>(session, "State");
        sessions.iter().filter(|session| state(*session).as_deref() == Some("User lock")).count()
    }

    async fn end_session(&self, id: u64) {
        if self.is_postgres() {
            self.number_on_postgres(&format!("SELECT pg_terminate_backend({id})::int::bigint")).await;
        } else {
            let mut connection = MySqlConnection::connect(self.0.url()).await.expect("it answers");
            let killed = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut connection).await;
            killed.expect("it is there");
        }
    }
}

/// Plays rows on each server that this machine has.
async fn on_each(rows: impl AsyncFn(&mut Running)) {
    in_time(async {
        if let Some(mut server) = postgres_with(&[]).await {
            rows(&mut server).await;
        }
        // Without flushing each commit a crash would take the last fences along.
        if let Some(mut server) = mariadb_with(&["innodb-flush-log-at-trx-commit=1"]).await {
            rows(&mut server).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_with_rising_fences() {
    on_each(async |server| {
        let pools = [open(server).await, open(server).await];
        let (inside, highest) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(0)));
        let tasks = (0..8).map(|task| {
            let (locks, inside, highest) = (pools[task % 2].clone(), Arc::clone(&inside), Arc::clone(&highest));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let hold = obtain(&locks, "door").await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is in there");
                    let before = std::mem::replace(&mut *highest.lock(), hold.fence().get());
                    assert!(before < hold.fence().get(), "{} after {before}", hold.fence());
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(!hold.is_lost() && hold.release().await, "held to the end");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task fails");
        }
    })
    .await;
}

#[tokio::test]
async fn who_does_not_get_it_is_told_in_time() {
    on_each(async |server| {
        let (one, other) = (open(server).await, open(server).await);
        let hold = obtain(&one, "door").await;
        assert!(!is_free(&other, "door").await && !is_free(&one, "door").await);
        for wait in [300, 1_250].map(Duration::from_millis) {
            let begun = Instant::now();
            assert!(other.take(&name("door"), wait).await.expect("the server answers").is_none());
            let waited = begun.elapsed();
            assert!(wait <= waited && waited < wait + Duration::from_secs(5), "{waited:?} instead of {wait:?}");
        }
        // Nothing was kept of the attempts.
        assert!(hold.release().await && is_free(&other, "door").await && is_free(&one, "door").await);
    })
    .await;
}

#[tokio::test]
async fn every_name_is_a_lock_of_its_own() {
    on_each(async |server| {
        let (one, other) = (open(server).await, open(server).await);
        let long = "n".repeat(127);
        let names = ["a", "A", &format!("{long}a"), &format!("{long}b")];
        let mut holds = Vec::new();
        for name in names {
            holds.push(obtain(&one, name).await);
        }
        for (name, hold) in names.iter().zip(holds) {
            assert!(!is_free(&other, name).await, "{name}");
            assert!(hold.release().await && is_free(&other, name).await, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_ended_loses_its_lock_and_learns_it() {
    on_each(async |server| {
        let locks = open(server).await;
        for round in 0..2 {
            let hold = obtain(&locks, "door").await;
            assert!(!hold.is_lost());
            Operator(server).end_session(hold.session()).await;
            let next = obtain(&locks, "door").await;
            assert!(hold.fence() < next.fence());
            // Noticed by a ping, or not yet.
            if round == 0 {
                timeout(PATIENCE, hold.lost()).await.expect("it is noticed");
                assert!(hold.is_lost());
            }
            let lost = hold.lost();
            assert!(!hold.release().await, "it was lost");
            timeout(PATIENCE, lost).await.expect("whoever watches it is told too");
            assert!(!is_free(&locks, "door").await && !next.is_lost());
            assert!(next.release().await);
        }
    })
    .await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_leaves_nothing_behind() {
    on_each(async |server| {
        let locks = open(server).await;
        let operator = Operator(server);
        let hold = obtain(&locks, "door").await;
        {
            // Longer than this test has patience.
            let door = name("door");
            let waits = (0..3).map(|_| Box::pin(locks.take(&door, 10 * PATIENCE))).collect();
            let mut waits = std::pin::pin!(all_in_vain(waits));
            wait_for("three to wait", async || {
                let _ = timeout(Duration::from_millis(1), &mut waits).await;
                (operator.waiting().await == 3).then_some(())
            })
            .await;
        }
        wait_for("nobody to wait", async || (operator.waiting().await == 0).then_some(())).await;
        assert!(!hold.is_lost() && hold.release().await);
        assert!(is_free(&locks, "door").await);
        // A hold that is dropped is given back by itself.
        drop(obtain(&locks, "door").await);
        assert!(obtain(&locks, "door").await.release().await);
    })
    .await;
}

/// Polls all of them, for ever.
async fn all_in_vain<T>(mut waits: Vec<Pin<Box<impl Future<Output = T>>>>) {
    poll_fn(|context| {
        for wait in &mut waits {
            assert!(wait.as_mut().poll(context).is_pending(), "somebody has it");
        }
        Poll::<()>::Pending
    })
    .await;
}

#[tokio::test]
async fn connections_are_bounded_and_used_again() {
    on_each(async |server| {
        let mut options = hasty();
        options.connections_max = 2;
        let locks = SessionLocks::open(server.url(), options).await.expect("the server will do");
        let (a, b) = (obtain(&locks, "a").await, obtain(&locks, "b").await);
        let full = locks.take(&name("c"), AT_ONCE).await;
        assert!(matches!(full, Err(SqlError::Unavailable { .. })), "{full:?}");
        assert!(locks.take(&name("c"), Duration::from_millis(20)).await.expect("no fault").is_none());
        let session = a.session();
        assert!(a.release().await);
        let c = obtain(&locks, "c").await;
        assert_eq!(c.session(), session, "the one that was given back");
        assert!(b.release().await && c.release().await);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_dies_takes_holds_along_and_no_fence() {
    on_each(async |server| {
        let locks = open(server).await;
        let hold = obtain(&locks, "door").await;
        server.kill();
        timeout(PATIENCE, hold.lost()).await.expect("it is noticed");
        let refused = locks.take(&name("door"), AT_ONCE).await;
        assert!(matches!(refused, Err(SqlError::Unavailable { .. })), "{refused:?}");
        server.restart().await;
        let next = obtain(&locks, "door").await;
        assert!(hold.fence() < next.fence(), "{} after {}", next.fence(), hold.fence());
        assert!(!hold.release().await && next.release().await);
    })
    .await;
}

#[tokio::test]
async fn a_fence_that_was_told_is_not_given_again_after_the_database_went_back() {
    on_each(async |server| {
        let locks = open(server).await;
        let copy = server.keep_copy().await;
        let hold = wait_for("the server", async || locks.take(&name("door"), AT_ONCE).await.ok().flatten()).await;
        for _ in 0..40 {
            // More than PostgreSQL counts ahead.
            obtain(&locks, "other").await.release().await;
        }
        let highest = obtain(&locks, "door2").await.fence();
        server.restore(&copy).await;
        timeout(PATIENCE, hold.lost()).await.expect("it is noticed");
        let refused = wait_for("the server", async || match locks.take(&name("door"), AT_ONCE).await {
            Err(SqlError::Unavailable { kind: FaultKind::Unreachable, .. }) => None,
            told => Some(told),
        });
        let refused = refused.await;
        assert!(
            matches!(&refused, Err(SqlError::Unavailable { kind: FaultKind::WentBack, says }) if says.contains("firstcome_fence")),
            "{refused:?}"
        );
        // A process that starts afresh knows nothing.
        let fresh = obtain(&open(server).await, "door").await;
        assert!(fresh.fence() < highest, "the counter went back: {} {highest}", fresh.fence());
        assert!(fresh.release().await);
        // Each refusal has drawn a number, so the counter catches up by itself.
        let next = wait_for("higher fences", async || locks.take(&name("door"), AT_ONCE).await.ok().flatten()).await;
        assert!(highest < next.fence(), "{} after {highest}", next.fence());
    })
    .await;
}

/// Changes something on a PostgreSQL server.
async fn run(pool: &PgPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.expect("it can be done");
}

#[tokio::test]
async fn a_counter_that_would_not_rise_is_refused() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let opens = async || SessionLocks::open(server.url(), hasty()).await.err();
        assert!(opens().await.is_none(), "it is made");
        // Each session would draw twenty at once, and hand them out in its own time.
        for change in ["CACHE 20", "CACHE 1 CYCLE", "NO CYCLE NO MAXVALUE", "INCREMENT -1 MINVALUE -9"] {
            run(&pool, "DROP SEQUENCE firstcome_fence; CREATE SEQUENCE firstcome_fence MAXVALUE 999").await;
            assert!(opens().await.is_none(), "it will do");
            let alter = format!("ALTER SEQUENCE firstcome_fence {change}");
            sqlx::raw_sql(AssertSqlSafe(alter)).execute(&pool).await.expect("it can be changed");
            let refused = opens().await;
            assert!(matches!(refused, Some(SqlError::Broken { .. })), "{change}: {refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_fence_that_is_waited_for_in_vain_leaves_the_lock_free() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let (one, other) = (open(&server).await, open(&server).await);
        let mut keeps = pool.begin().await.expect("it begins");
        sqlx::raw_sql("ALTER SEQUENCE firstcome_fence INCREMENT 2")
            .execute(&mut *keeps)
            .await
            .expect("it can be changed");
        assert!(one.take(&name("door"), Duration::from_millis(100)).await.expect("no fault").is_none());
        keeps.rollback().await.expect("it ends");
        assert!(is_free(&other, "door").await);
    })
    .await;
}

#[tokio::test]
async fn a_pooler_that_gives_sessions_away_is_refused() {
    let Some((server, _pool)) = postgres().await else { return };
    in_time(async {
        let pooler = Pooler::start(server.url()).await;
        let refused = SessionLocks::open(&pooler.url, hasty()).await.err();
        assert!(matches!(&refused, Some(SqlError::Broken { says }) if says.contains("pooler")), "{refused:?}");
        // Locks in rows do not mind.
        let store = PostgresLocks::open(&pooler.url, hasty()).await.expect("it will do");
        let seen = store.view(&name("door")).await.expect("it answers").view;
        assert_eq!((seen.held, seen.waiters), (None, 0));
    })
    .await;
}

#[tokio::test]
async fn a_hold_whose_session_is_given_to_another_process_is_lost() {
    on_each(async |server| {
        let line = Exchange::start(server.url()).await;
        let mut options = hasty();
        // So that no ping is under way while sessions change hands.
        options.ping_interval = Duration::from_millis(500);
        let locks = SessionLocks::open(&line.url, options).await.expect("two sessions of their own");
        let hold = obtain(&locks, "door").await;
        assert!(!hold.is_lost());
        line.exchange();
        timeout(PATIENCE, hold.lost()).await.expect("a ping is answered by another session");
        assert!(!hold.release().await, "nobody can say");
    })
    .await;
}
