//! Locks as rows with leases, in PostgreSQL.

use crate::databases::{Running, postgres, postgres_with};
use crate::in_time;
use crate::server::{PATIENCE, wait_for};
use firstcome_sql::{PostgresLocks, SqlError, SqlOptions};
use firstcome_store::conformance::{self, LetPass};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Acquired, Answer, ClientId, Copies, LockAnswer, Mode, Released, Request, Step, Taken, Wait, Waiter, bucket_of,
};
use firstcome_store::{FaultKind, LockEvent, LockStore, StoreError};
use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, PgPool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::interval;

/// Times that only a hang can reach, except for the ping.
fn patient() -> SqlOptions {
    let mut options = SqlOptions::default();
    options.connect_timeout = PATIENCE;
    options.answer_timeout = PATIENCE;
    options.ping_interval = Duration::from_millis(50);
    options
}

async fn open(server: &Running) -> PostgresLocks {
    PostgresLocks::open(server.url(), patient()).await.expect("the server will do")
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("a valid name")
}

const fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

fn ask_for(lease_ms: u32, lock: &str, client: u64, number: u64) -> Step {
    let owner = OwnerName::parse("tester").expect("a valid name");
    let waiter = Waiter { request: request(client, number), owner, lease_ms, mode: Mode::ALONE };
    Step::Acquire { name: name(lock), waiter, wait: Wait::Yes }
}

fn ask(lock: &str, client: u64, number: u64) -> Step {
    ask_for(60_000, lock, client, number)
}

fn give_back(lock: &str, client: u64, number: u64) -> Step {
    Step::Release { name: name(lock), request: request(client, number), copies: Copies::One }
}

async fn take(store: &PostgresLocks, step: Step) -> LockAnswer {
    store.take(step).await.expect("the store answers").said
}

async fn fence(store: &PostgresLocks, lock: &str, client: u64, number: u64) -> u64 {
    match take(store, ask(lock, client, number)).await {
        LockAnswer::Acquired(Acquired::Granted(grant)) => grant.fence.get(),
        said => panic!("{lock} is granted: {said:?}"),
    }
}

fn unavailable(told: Result<Answer, StoreError>) -> FaultKind {
    match told {
        Err(StoreError::Faulted(fault)) => fault.kind,
        told => panic!("the store cannot answer: {told:?}"),
    }
}

async fn run(pool: &PgPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.expect("it can be done");
}

async fn count(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.expect("it can be counted")
}

/// What a client hears.
#[derive(Clone, Default)]
struct ReceivedEvents(Arc<Mutex<Vec<LockEvent>>>);

impl ReceivedEvents {
    fn by(store: &PostgresLocks, client: u64) -> Self {
        let heard = Self::default();
        let kept = Arc::clone(&heard.0);
        store.attach(ClientId(client), Arc::new(move |event| kept.lock().push(event)));
        heard
    }

    /// Waits for so many beginnings of listening.
    async fn begins(&self, times: usize) {
        let begins = || self.0.lock().iter().filter(|event| **event == LockEvent::MayHaveMissed).count();
        wait_for("listening to begin", async || (times <= begins()).then_some(())).await;
    }

    /// Waits for the grant to a request.
    async fn granted(&self, wanted: Request) -> u64 {
        wait_for("the push", async || {
            self.0.lock().iter().find_map(|event| match event {
                LockEvent::Push(push) if push.grant.request == wanted => {
                    assert_eq!(push.grant.taken, Taken::Open);
                    Some(push.grant.fence.get())
                }
                _ => None,
            })
        })
        .await
    }
}

/// Time passes as the suite wants it: the function that tells the time is found in the schema of the test first, and adds
/// what has passed to the server's own clock. Nothing in the store knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_keep_every_promise_of_the_port() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        run(&pool, "CREATE TABLE public.passed (ms bigint NOT NULL); INSERT INTO public.passed VALUES (0)").await;
        let stores = AtomicU32::new(0);
        conformance::lock(|| async {
            let schema = format!("s{}", stores.fetch_add(1, Ordering::Relaxed));
            run(
                &pool,
                format!(
                    "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz VOLATILE \
                     LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + \
                     (SELECT ms * interval ''1 millisecond'' FROM public.passed)'"
                ),
            )
            .await;
            let url = format!("{}?options[search_path]={schema},pg_catalog", server.url());
            let store = PostgresLocks::open(&url, patient()).await.expect("a fresh schema will do");
            let pool = pool.clone();
            let pass: LetPass = Arc::new(move |ms| {
                let pool = pool.clone();
                Box::pin(async move { run(&pool, format!("UPDATE public.passed SET ms = ms + {ms}")).await })
            });
            (store, pass)
        })
        .await;
        assert!(20 < stores.into_inner());
    })
    .await;
}

#[tokio::test]
async fn grants_go_from_process_to_process_with_rising_fences() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let (one, other) = (open(&server).await, open(&server).await);
        let (first_hears, other_hears) = (ReceivedEvents::by(&one, 1), ReceivedEvents::by(&other, 2));
        first_hears.begins(1).await;
        other_hears.begins(1).await;
        let mut before = fence(&one, "door", 1, 0).await;
        for number in 1..=5 {
            let (next, waits) = if number % 2 == 1 { (2, &other) } else { (1, &one) };
            let queued = take(waits, ask("door", next, number)).await;
            assert!(matches!(queued, LockAnswer::Acquired(Acquired::Queued { ahead: 0, .. })), "{queued:?}");
            let (holder, hears) = if next == 2 { (&one, &other_hears) } else { (&other, &first_hears) };
            let released = take(holder, give_back("door", 3 - next, number - 1)).await;
            assert_eq!(released, LockAnswer::Released(Released::Released));
            let after = hears.granted(request(next, number)).await;
            assert!(before < after, "{after} after {before}");
            before = after;
        }
        assert_eq!(take(&other, give_back("door", 2, 5)).await, LockAnswer::Released(Released::Released));
        let left = "SELECT (SELECT count(*) FROM firstcome_lock_hold) + (SELECT count(*) FROM firstcome_lock_waiter)";
        assert_eq!(count(&pool, left).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_listens_and_is_lost_is_made_again() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let (one, other) = (open(&server).await, open(&server).await);
        let hears = ReceivedEvents::by(&other, 2);
        hears.begins(1).await;
        fence(&one, "door", 1, 1).await;
        take(&other, ask("door", 2, 1)).await;
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE application_name = 'firstcome' AND query LIKE 'LISTEN%'";
        // It has asked whether it lives since, or not.
        let pinged = ended.replace("'LISTEN%'", "'SELECT 1'");
        wait_for("the connection that listens", async || {
            (0 < count(&pool, ended).await + count(&pool, &pinged).await).then_some(())
        })
        .await;
        // What is granted now no caller may hear; but that something may have been missed, and what comes after that.
        take(&one, give_back("door", 1, 1)).await;
        hears.begins(2).await;
        let granted = fence(&other, "door", 2, 1).await;
        take(&one, ask("door", 1, 2)).await;
        take(&other, ask("door", 2, 2)).await;
        take(&other, give_back("door", 2, 1)).await;
        take(&one, give_back("door", 1, 2)).await;
        assert!(granted < hears.granted(request(2, 2)).await);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_starts_again_has_every_grant_that_was_told() {
    let Some(mut server) = postgres_with(&["fsync=on"]).await else { return };
    in_time(async {
        let store = open(&server).await;
        let granted = fence(&store, "door", 1, 1).await;
        take(&store, ask("door", 2, 1)).await;
        server.kill();
        // The process behind a connection may live on for a moment after its parent, and take a step, or half of one.
        match store.take(ask("door", 1, 1)).await {
            Err(StoreError::Unknown) => {}
            Ok(answer) => match answer.said {
                LockAnswer::Acquired(Acquired::Granted(grant)) => assert_eq!(grant.fence.get(), granted),
                said => panic!("it is held by whoever asks: {said:?}"),
            },
            told => assert_eq!(unavailable(told), FaultKind::Unreachable),
        }
        server.restart().await;
        assert_eq!(fence(&store, "door", 1, 1).await, granted);
        assert_eq!(take(&store, give_back("door", 1, 1)).await, LockAnswer::Released(Released::Released));
        assert!(granted < fence(&store, "door", 2, 1).await);
    })
    .await;
}

/// What one task was told: the fence of each hold; none of one that was given back.
type FencesByRequest = Arc<Mutex<BTreeMap<(String, u64, u64), Option<u64>>>>;

/// Takes locks one after the other until it is stopped, and gives every third one back. What is unknown is asked for again, and no answer
/// contradicts one of before.
async fn take_and_tell(store: Arc<PostgresLocks>, client: u64, told: FencesByRequest, stop: Arc<AtomicBool>) {
    const HOUR_MS: u32 = 3_600_000;
    for number in 0_u64.. {
        let lock = format!("lock-{client}-{number}");
        for (step, gives) in
            [(ask_for(HOUR_MS, &lock, client, number), false), (give_back(&lock, client, number), true)]
        {
            if gives && number % 3 != 0 {
                continue;
            }
            let mut tries = interval(Duration::from_millis(5));
            let said = loop {
                tries.tick().await;
                match store.take(step.clone()).await {
                    _ if stop.load(Ordering::SeqCst) => return,
                    Ok(answer) => break answer.said,
                    // The server is away; it comes back, or the test stops.
                    Err(_) => {}
                }
            };
            let key = (lock.clone(), client, number);
            match said {
                LockAnswer::Acquired(Acquired::Granted(grant)) => {
                    told.lock().insert(key, Some(grant.fence.get()));
                }
                // Given back before, by a try whose answer was lost.
                LockAnswer::Released(_) => {
                    told.lock().insert(key, None);
                }
                said => panic!("{lock} is its own: {said:?}"),
            }
        }
    }
}

/// Six clients take locks and give some back, without a pause, while the server is killed and starts again five times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_under_load_has_every_grant_that_was_told() {
    let Some(mut server) = postgres_with(&["fsync=on"]).await else { return };
    in_time(async {
        let mut options = patient();
        // A step whose connection dies without a word is soon asked again.
        options.answer_timeout = Duration::from_secs(2);
        let store = Arc::new(PostgresLocks::open(server.url(), options).await.expect("the server will do"));
        let (told, stop) = (FencesByRequest::default(), Arc::new(AtomicBool::new(false)));
        let tasks: Vec<_> = (1..=6)
            .map(|client| tokio::spawn(take_and_tell(Arc::clone(&store), client, Arc::clone(&told), Arc::clone(&stop))))
            .collect();
        let mut seen_before = BTreeSet::new();
        for round in 0..5 {
            let before = told.lock().len();
            wait_for("grants", async || (before + 40 <= told.lock().len()).then_some(())).await;
            // Those of rounds before have been looked at, and all are at the end.
            let known: Vec<_> = told.lock().iter().map(|(key, fence)| (key.clone(), *fence)).collect();
            let known: Vec<_> = known.into_iter().filter(|(key, _)| seen_before.insert(key.clone())).collect();
            server.kill();
            server.restart().await;
            let beside = open(&server).await;
            for ((lock, client, number), fence_told) in &known {
                // It may have been given back since it was told.
                let seen = beside.view(&name(lock)).await.expect("the store answers").view.held;
                let seen = seen.map(|(_, fence, _)| fence.get());
                let in_hand = *number % 3 == 0;
                let as_told = seen == *fence_told || (in_hand && seen.is_none());
                assert!(as_told, "round {round}: {lock} of {client}: {seen:?}, told {fence_told:?}");
            }
        }
        stop.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.expect("no task fails");
        }
        let told = told.lock().clone();
        assert!(200 <= told.len(), "{}", told.len());
        for ((lock, client, number), fence_told) in &told {
            let Some(granted) = fence_told.filter(|_| number % 3 != 0) else { continue };
            let seen = store.view(&name(lock)).await.expect("the store answers").view.held;
            assert_eq!(seen.map(|(_, fence, _)| fence.get()), Some(granted), "{lock}");
            if number % 10 == 1 {
                assert_eq!(
                    fence(&store, lock, *client, *number).await,
                    granted,
                    "the client that had {lock} has it again"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn fences_of_rows_grow_on_a_database_that_went_back() {
    let Some(mut server) = postgres_with(&["fsync=on"]).await else { return };
    in_time(async {
        let store = open(&server).await;
        let copy = server.keep_copy().await;
        let told = wait_for("the server", async || match store.take(ask("door", 1, 1)).await.ok()?.said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => Some(grant.fence.get()),
            said => panic!("it is free: {said:?}"),
        });
        let told = told.await;
        server.restore(&copy).await;
        // The grant is gone, and another client has the lock at once; the fence tells them apart.
        let next = wait_for("the server", async || match store.take(ask("door", 2, 1)).await.ok()?.said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => Some(grant.fence.get()),
            said => panic!("it is free: {said:?}"),
        });
        let next = next.await;
        assert!(told < next, "{next} after {told}");
    })
    .await;
}

#[tokio::test]
async fn a_bucket_that_a_caller_keeps_is_waited_for_and_not_for_ever() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let mut options = patient();
        options.answer_timeout = Duration::from_millis(300);
        let store = PostgresLocks::open(server.url(), options).await.expect("the server will do");
        fence(&store, "door", 1, 1).await;
        let mut keeps = pool.begin().await.expect("it begins");
        let lock = format!("SELECT 1 FROM firstcome_lock_bucket WHERE id = {} FOR UPDATE", bucket_of(&name("door")));
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *keeps).await.expect("it is free");
        let told = store.take(give_back("door", 1, 1)).await;
        assert!(matches!(told, Err(StoreError::Busy { .. })), "{told:?}");
        keeps.rollback().await.expect("it ends");
        assert_eq!(take(&store, give_back("door", 1, 1)).await, LockAnswer::Released(Released::Released));
    })
    .await;
}

#[tokio::test]
async fn a_long_line_of_the_dead_is_passed_over_in_one_step() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let store = open(&server).await;
        fence(&store, "door", 1, 1).await;
        for number in 1..=100 {
            take(&store, ask("door", 2, number)).await;
        }
        let queued = take(&store, ask("door", 3, 1)).await;
        assert!(matches!(queued, LockAnswer::Acquired(Acquired::Queued { ahead: 100, .. })), "{queued:?}");
        let again = take(&store, ask("door", 2, 50)).await;
        assert!(matches!(again, LockAnswer::Acquired(Acquired::Queued { ahead: 49, .. })), "{again:?}");
        // As after three seconds in which only one of the two was heard of.
        run(&pool, "UPDATE firstcome_lock_life SET seen_us = seen_us - 3000000 WHERE client = 2").await;
        assert_eq!(take(&store, give_back("door", 1, 1)).await, LockAnswer::Released(Released::Released));
        assert!(0 < fence(&store, "door", 3, 1).await);
        assert_eq!(count(&pool, "SELECT count(*) FROM firstcome_lock_waiter").await, 0);
        assert_eq!(count(&pool, "SELECT waiters FROM firstcome_lock_hold").await, 0);
    })
    .await;
}

#[tokio::test]
async fn what_is_old_is_forgotten() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let store = open(&server).await;
        fence(&store, "door", 1, 1).await;
        take(&store, ask("door", 2, 1)).await;
        take(&store, give_back("door", 3, 1)).await;
        let rows =
            "SELECT (SELECT count(*) FROM firstcome_lock_life) * 10 + (SELECT count(*) FROM firstcome_lock_void)";
        assert_eq!(count(&pool, rows).await, 11);
        run(&pool, "UPDATE firstcome_lock_life SET seen_us = seen_us - 61000000").await;
        run(&pool, "UPDATE firstcome_lock_void SET until_us = until_us - 61000000").await;
        take(&store, ask("door", 4, 1)).await;
        take(&store, give_back("door", 5, 1)).await;
        assert_eq!(count(&pool, rows).await, 11, "each of the new ones");
    })
    .await;
}

#[tokio::test]
async fn older_tables_are_brought_to_this_version_with_their_locks() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let store = open(&server).await;
        let held = fence(&store, "door", 1, 1).await;
        drop(store);
        // As the first version made them.
        run(&pool, "ALTER TABLE firstcome_lock_hold DROP COLUMN sharers").await;
        run(&pool, "DELETE FROM firstcome_lock_version WHERE version = 2").await;
        let store = open(&server).await;
        assert_eq!(fence(&store, "door", 1, 1).await, held, "it is still held by the same request");
        assert_eq!(count(&pool, "SELECT max(version) FROM firstcome_lock_version").await, 2);
    })
    .await;
}

#[tokio::test]
async fn tables_that_are_not_ours_are_refused() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        // Many may make them at once.
        let opened = (0..8).map(|_| {
            let url = server.url().to_owned();
            tokio::spawn(async move { PostgresLocks::open(&url, patient()).await.map(drop) })
        });
        for opened in opened.collect::<Vec<_>>() {
            opened.await.expect("no task fails").expect("it opens");
        }
        let store = open(&server).await;
        fence(&store, "door", 1, 1).await;
        run(&pool, "UPDATE firstcome_lock_bucket SET last = -1").await;
        assert_eq!(unavailable(store.take(ask("door", 1, 1)).await), FaultKind::Unfit);
        run(&pool, "DELETE FROM firstcome_lock_bucket").await;
        assert_eq!(unavailable(store.take(ask("door", 1, 1)).await), FaultKind::Unfit);
        run(&pool, "UPDATE firstcome_lock_version SET version = 99").await;
        let refused = PostgresLocks::open(server.url(), patient()).await.err();
        assert!(matches!(refused, Some(SqlError::Broken { .. })), "{refused:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_ask_at_once_lose_no_step() {
    let Some((server, pool)) = postgres().await else { return };
    in_time(async {
        let stores = [Arc::new(open(&server).await), Arc::new(open(&server).await)];
        let highest = Arc::new(Mutex::new(0));
        let tasks = (0..8).map(|client| {
            let (store, highest) = (Arc::clone(&stores[client as usize % 2]), Arc::clone(&highest));
            tokio::spawn(async move {
                for number in 0..15 {
                    let granted = loop {
                        match take(&store, ask("door", client, number)).await {
                            LockAnswer::Acquired(Acquired::Granted(grant)) => break grant.fence.get(),
                            LockAnswer::Acquired(Acquired::Queued { .. }) => {}
                            said => panic!("it is granted or waits: {said:?}"),
                        }
                    };
                    let before = std::mem::replace(&mut *highest.lock(), granted);
                    assert!(before < granted, "{granted} after {before}");
                    assert_eq!(
                        take(&store, give_back("door", client, number)).await,
                        LockAnswer::Released(Released::Released)
                    );
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task fails");
        }
        let left = "SELECT (SELECT count(*) FROM firstcome_lock_hold) + (SELECT count(*) FROM firstcome_lock_waiter)";
        assert_eq!(count(&pool, left).await, 0);
    })
    .await;
}
