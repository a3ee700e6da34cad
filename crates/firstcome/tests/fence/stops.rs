//! Holders that are stopped in the middle of their section, and go on when the lock is another process's.
//!
//! Each holder is this test binary once more, with [`holder`] as its only test. It takes a lock of a short lease, says so, and
//! is stopped by a signal. When another one holds the lock and has written, it is let go on, and writes at once, as a
//! section does that was in the middle of a call to the system: through guarded stores, and to one that is not guarded. The
//! latter is the control: if it never takes a stale write, the test has shown nothing.

use crate::databases;
use crate::in_redis::connect_for;
use crate::server::{PATIENCE, Server};
use firstcome::fence::{self, FenceError, redis::GuardedKey};
use firstcome::lock::LinkOptions;
use firstcome::{FenceToken, Guard, LockError, Locks};
use redis::aio::MultiplexedConnection;
use rusqlite::{Connection, TransactionBehavior};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};

/// What a holder says begins so: the test harness says other things.
const MARK: &str = "> ";

/// The shortest lease but a little: each round lasts as long.
const LEASE: Duration = Duration::from_millis(150);

/// Holders that are stopped at the same time.
const HOLDERS: u32 = 8;

/// How many holders are stopped in all: some by default, `FIRSTCOME_STOP_ROUNDS` for a long run.
fn stop_rounds() -> u32 {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests are set up from outside")]
    let setting = std::env::var("FIRSTCOME_STOP_ROUNDS");
    setting.map_or(100, |text| text.parse().expect("FIRSTCOME_STOP_ROUNDS is a number"))
}

/// What the lock of one holder protects, in every kind of store.
struct Goods {
    locks: Locks,
    connection: MultiplexedConnection,
    pool: PgPool,
    file: Connection,
    lock: String,
    guarded: GuardedKey,
    unguarded: String,
}

/// Which stores took a write.
#[derive(Default, Debug, PartialEq, Eq)]
struct Taken {
    unguarded: u32,
    redis: u32,
    postgres: u32,
    sqlite: u32,
}

impl Goods {
    async fn open(number: u32, redis: &str, postgres: &str, file: &Path) -> Self {
        let mut options = LinkOptions::default();
        options.answer_timeout = PATIENCE;
        let file = Connection::open(file).expect("the file opens");
        file.busy_timeout(PATIENCE).expect("it can wait");
        Self {
            locks: Locks::redis_with(redis, options).await.expect("the server is there"),
            connection: connect_for(redis, PATIENCE).await,
            pool: PgPoolOptions::new().max_connections(1).connect(postgres).await.expect("the server is there"),
            file,
            lock: format!("lock:{number}"),
            guarded: GuardedKey::new(&format!("goods:{number}")).expect("a key"),
            unguarded: format!("unguarded:{number}"),
        }
    }

    async fn take(&mut self, lease: Duration) -> Guard {
        self.locks.lock(&self.lock).lease(lease).wait(PATIENCE).acquire().await.expect("it is this one's turn")
    }

    /// Writes to every store, with a token that may be stale.
    async fn write(&mut self, token: &FenceToken, text: &str) -> Taken {
        let written = self.guarded.set(&mut self.connection, token, text).await;
        let mut taken = Taken { redis: count(written), ..Taken::default() };
        taken.postgres = count(self.write_postgres(token, text).await);
        taken.sqlite = count(self.write_sqlite(token, text));
        let mut set = redis::cmd("SET");
        let () = set.arg(&self.unguarded).arg(text).query_async(&mut self.connection).await.expect("it is written");
        taken.unguarded = 1;
        taken
    }

    async fn write_postgres(&mut self, token: &FenceToken, text: &str) -> Result<(), FenceError<sqlx::Error>> {
        let mut transaction = self.pool.begin().await.map_err(FenceError::Failed)?;
        if let Err(error) = fence::sqlx::check(&mut *transaction, token).await {
            // Not dropped: the row would stay locked until that is told in the background, and this may be stopped before.
            transaction.rollback().await.map_err(FenceError::Failed)?;
            return Err(error);
        }
        let row =
            sqlx::query("INSERT INTO goods VALUES ($1, $2) ON CONFLICT (lock_name) DO UPDATE SET text = excluded.text");
        row.bind(&self.lock).bind(text).execute(&mut *transaction).await.map_err(FenceError::Failed)?;
        transaction.commit().await.map_err(FenceError::Failed)
    }

    fn write_sqlite(&mut self, token: &FenceToken, text: &str) -> Result<(), FenceError<rusqlite::Error>> {
        let begun = self.file.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(FenceError::Failed)?;
        fence::sqlite::check(&transaction, token)?;
        let row = "INSERT INTO goods VALUES (?1, ?2) ON CONFLICT (lock_name) DO UPDATE SET text = excluded.text";
        transaction.execute(row, (&self.lock, text)).map_err(FenceError::Failed)?;
        transaction.commit().map_err(FenceError::Failed)
    }

    /// How many stores hold something else than this text.
    async fn others_than(&mut self, text: &str) -> Taken {
        let get = |key: &str| redis::Cmd::get(key);
        let other = |read: String| u32::from(read != text);
        let redis: String = get(self.guarded.key()).query_async(&mut self.connection).await.expect("it is there");
        let unguarded: String = get(&self.unguarded).query_async(&mut self.connection).await.expect("it is there");
        let postgres = sqlx::query_scalar("SELECT text FROM goods WHERE lock_name = $1").bind(&self.lock);
        let postgres: String = postgres.fetch_one(&self.pool).await.expect("it is there");
        let sqlite = self.file.query_row("SELECT text FROM goods WHERE lock_name = ?1", [&self.lock], |row| row.get(0));
        Taken {
            unguarded: other(unguarded),
            redis: other(redis),
            postgres: other(postgres),
            sqlite: other(sqlite.expect("it is there")),
        }
    }
}

/// Accepted is 1, refused is 0, and nothing else may happen here.
#[track_caller]
fn count<E: std::fmt::Debug>(written: Result<(), FenceError<E>>) -> u32 {
    match written {
        Ok(()) => 1,
        Err(FenceError::Stale(_)) => 0,
        Err(FenceError::Failed(error)) => panic!("{error:?}"),
    }
}

/// A process that holds a lock, is stopped, and writes.
struct Holder {
    child: Child,
    orders: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(number: u32, redis: &str, postgres: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
            .args(["--exact", "stops::holder", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs once more");
        let mut orders = child.stdin.take().expect("it is piped");
        let told = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        writeln!(orders, "{number} {redis} {postgres} {}", file.display()).expect("it listens");
        Self { child, orders, told }
    }

    /// The next word of the holder.
    #[track_caller]
    fn next(&mut self) -> String {
        let said = self.told.by_ref().map(|line| line.expect("it can be read"));
        let mut marked = said.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
        marked.next().expect("the holder has ended")
    }

    fn order(&mut self, word: &str) {
        writeln!(self.orders, "{word}").expect("it listens");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Also one that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str) {
    // At the start of no line in particular: the harness has written there before.
    println!("{MARK}{word}");
}

/// The next order; `None` when no process gives any more.
async fn ordered() -> Option<String> {
    let line = spawn_blocking(|| std::io::stdin().lines().next()).await.expect("it can be awaited");
    line.map(|line| line.expect("it can be read"))
}

/// Does something only as a process of its own, which the other test starts.
#[test]
fn holder() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let Some(order) = ordered().await else { return };
        let [number, redis, postgres, file] = order.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{order}?") };
        let mut goods = Goods::open(number.parse().expect("a number"), redis, postgres, Path::new(file)).await;
        say("ready");
        while ordered().await.is_some() {
            let guard = goods.take(LEASE).await;
            let token = guard.token().unwrap();
            say(&token.to_header());
            // Here it is stopped; what follows is what it was about to do.
            ordered().await;
            let taken = goods.write(&token, "stale").await;
            let Taken { unguarded, redis, postgres, sqlite } = taken;
            let lost = guard.is_lost();
            let heard = tokio::time::timeout(PATIENCE, guard.lost()).await.is_ok();
            let released = matches!(guard.release().await, Err(LockError::Lost));
            say(&format!("{unguarded} {redis} {postgres} {sqlite} {}", u32::from(lost && heard && released)));
        }
    });
}

/// One holder is stopped so often.
async fn stop_again_and_again(mut holder: Holder, mut goods: Goods, rounds: u32) -> Taken {
    let mut stale = Taken::default();
    let on_event = async |holder: Holder, order: &'static str| {
        let asked = spawn_blocking(move || {
            let mut holder = holder;
            if !order.is_empty() {
                holder.order(order);
            }
            let said = holder.next();
            (holder, said)
        });
        asked.await.expect("it speaks")
    };
    let said;
    (holder, said) = on_event(holder, "").await;
    assert_eq!(said, "ready");
    for round in 0..rounds {
        let said;
        (holder, said) = on_event(holder, "take").await;
        let old: FenceToken = said.parse().expect("a token");
        holder.signal("-STOP");
        let newer = goods.take(PATIENCE).await;
        assert!(old.fence() < newer.fence().unwrap(), "the lock went to a later one");
        let text = format!("round {round}");
        let all = Taken { unguarded: 1, redis: 1, postgres: 1, sqlite: 1 };
        assert_eq!(goods.write(&newer.token().unwrap(), &text).await, all, "the newer holder writes everywhere");
        // Whether the newer one is still there makes no difference.
        let newer =
            if round % 2 == 0 { Some(newer) } else { newer.release().await.map(|()| None).expect("it is held") };
        holder.signal("-CONT");
        let said;
        (holder, said) = on_event(holder, "write").await;
        let figures: Vec<u32> = said.split(' ').map(|figure| figure.parse().expect("a figure")).collect();
        let [unguarded, redis, postgres, sqlite, lost] = figures[..] else { panic!("{said}?") };
        assert_eq!(lost, 1, "its guard says that the lock is lost, and so does the release");
        // What it was told, and what is there.
        let taken = Taken { unguarded, redis, postgres, sqlite };
        assert_eq!(goods.others_than(&text).await, taken);
        stale.unguarded += unguarded;
        stale.redis += redis;
        stale.postgres += postgres;
        stale.sqlite += sqlite;
        if let Some(newer) = newer {
            newer.release().await.expect("it is held");
        }
    }
    stale
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_guarded_store_takes_a_write_of_a_holder_that_was_stopped() {
    let Some((postgres, pool)) = databases::postgres().await else { return };
    let Some(redis) = Server::start(&[]).await else { return };
    let directory = tempfile::tempdir().expect("a directory for the test");
    let path = directory.path().join("goods.db");
    let goods = "CREATE TABLE goods (lock_name varchar(128) PRIMARY KEY, text varchar(128))";
    fence::sqlx::create_table(&mut *pool.acquire().await.unwrap()).await.unwrap();
    sqlx::query(goods).execute(&pool).await.unwrap();
    let file = Connection::open(&path).unwrap();
    file.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    file.execute_batch("PRAGMA synchronous = OFF").unwrap();
    fence::sqlite::create_table(&file).unwrap();
    file.execute_batch(goods).unwrap();
    let rounds = stop_rounds();
    let mut stopping = JoinSet::new();
    for number in 0..HOLDERS {
        let share = (rounds + number) / HOLDERS;
        let holder = Holder::start(number, &redis.url(), postgres.url(), &path);
        let goods = Goods::open(number, &redis.url(), postgres.url(), &path).await;
        stopping.spawn(stop_again_and_again(holder, goods, share));
    }
    let mut stale = Taken::default();
    while let Some(one) = stopping.join_next().await {
        let one = one.expect("no round fails");
        stale.unguarded += one.unguarded;
        stale.redis += one.redis;
        stale.postgres += one.postgres;
        stale.sqlite += one.sqlite;
    }
    println!("{rounds} holders stopped; stale writes that were taken: {stale:?}");
    assert_eq!(stale.unguarded, rounds, "without stale writes this shows nothing");
    assert_eq!(stale, Taken { unguarded: rounds, ..Taken::default() });
}
