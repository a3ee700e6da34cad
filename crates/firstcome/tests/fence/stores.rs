//! The checks as the suite sees them: each shows a token, and writes a line beside what it remembers.

use firstcome::FenceToken;
use firstcome::fence::sql::{Columns, Placeholders};
use firstcome::fence::{self, FenceError, redis::FENCE_LUA};
use firstcome::lock::Retry;
use redis::aio::MultiplexedConnection;
use rusqlite::{Connection, TransactionBehavior, named_params};
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Postgres, QueryBuilder};
use std::sync::{Arc, Mutex};

/// What a check says, where nothing may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Accepted,
    Refused,
}

impl From<bool> for Verdict {
    fn from(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::Refused }
    }
}

/// A line per accepted token, in the order in which they were: of the lock, its fence, its owner.
pub(crate) type Journal = Vec<(i64, String)>;

/// Where fences are remembered.
#[derive(Clone)]
pub(crate) enum Store {
    Postgres(PgPool),
    PostgresColumns(PgPool),
    Mariadb(MySqlPool),
    MariadbColumns(MySqlPool),
    Sqlite(Arc<Mutex<Connection>>),
    SqliteColumns(Arc<Mutex<Connection>>),
    Redis(MultiplexedConnection),
}

const GOODS_SQL: &str = "CREATE TABLE goods (name varchar(128) PRIMARY KEY, fence bigint, fence_owner varchar(160))";
const INSERT_MYSQL: &str = "INSERT INTO journal (lock_name, fence, owner) VALUES (?, ?, ?)";
const INSERT_POSTGRES: &str = "INSERT INTO journal (lock_name, fence, owner) VALUES ($1, $2, $3)";

impl Store {
    pub(crate) async fn postgres(pool: PgPool) -> [Self; 2] {
        let mut connection = pool.acquire().await.unwrap();
        // Twice: it may be there.
        fence::sqlx::create_table(&mut *connection).await.unwrap();
        fence::sqlx::create_table(&mut *connection).await.unwrap();
        let journal = "CREATE TABLE journal (id bigserial, lock_name text, fence bigint, owner text)";
        sqlx::query(journal).execute(&mut *connection).await.unwrap();
        sqlx::query(GOODS_SQL).execute(&mut *connection).await.unwrap();
        [Self::Postgres(pool.clone()), Self::PostgresColumns(pool)]
    }

    pub(crate) async fn mariadb(pool: MySqlPool) -> [Self; 2] {
        let mut connection = pool.acquire().await.unwrap();
        fence::sqlx::create_table(&mut *connection).await.unwrap();
        fence::sqlx::create_table(&mut *connection).await.unwrap();
        let journal = "CREATE TABLE journal (id bigint AUTO_INCREMENT PRIMARY KEY, \
            lock_name varchar(128) COLLATE ascii_bin, fence bigint, owner varchar(160) COLLATE ascii_bin) CHARACTER SET ascii";
        sqlx::query(journal).execute(&mut *connection).await.unwrap();
        let goods = "CREATE TABLE goods (name varchar(128) COLLATE ascii_bin PRIMARY KEY, \
            fence bigint, fence_owner varchar(160) COLLATE ascii_bin) CHARACTER SET ascii";
        sqlx::query(goods).execute(&mut *connection).await.unwrap();
        [Self::Mariadb(pool.clone()), Self::MariadbColumns(pool)]
    }

    pub(crate) fn sqlite() -> [Self; 2] {
        let connection = Connection::open_in_memory().unwrap();
        fence::sqlite::create_table(&connection).unwrap();
        fence::sqlite::create_table(&connection).unwrap();
        let journal = "CREATE TABLE journal (id INTEGER PRIMARY KEY, lock_name TEXT, fence INTEGER, owner TEXT)";
        connection.execute_batch(journal).unwrap();
        connection.execute_batch(GOODS_SQL).unwrap();
        let connection = Arc::new(Mutex::new(connection));
        [Self::Sqlite(Arc::clone(&connection)), Self::SqliteColumns(connection)]
    }

    /// Shows a token, and writes a line in the journal if it is accepted. A database that sends one of several away, because
    /// they wait for each other in a ring, is asked again.
    pub(crate) async fn show(&self, token: &FenceToken) -> Verdict {
        loop {
            let shown = match self {
                Self::Postgres(pool) => show_postgres(pool, token).await,
                Self::Mariadb(pool) => show_mariadb(pool, token).await,
                Self::PostgresColumns(pool) => return update_postgres(pool, token).await,
                Self::MariadbColumns(pool) => return update_mariadb(pool, token).await,
                Self::Sqlite(connection) => match show_sqlite(&mut connection.lock().unwrap(), token) {
                    Err(FenceError::Failed(error)) => panic!("{error}"),
                    shown => return shown.is_ok().into(),
                },
                Self::SqliteColumns(connection) => return update_sqlite(&mut connection.lock().unwrap(), token),
                Self::Redis(connection) => return show_redis(connection.clone(), token).await,
            };
            match shown {
                Ok(()) => return Verdict::Accepted,
                Err(FenceError::Stale(stale)) => {
                    assert_eq!(stale.token(), token);
                    return Verdict::Refused;
                }
                Err(failed) => assert!(failed.is_conflict(), "{failed:?}"),
            }
        }
    }

    /// The accepted tokens of a lock, in order.
    pub(crate) async fn journal(&self, lock: &str) -> Journal {
        match self {
            Self::Postgres(pool) | Self::PostgresColumns(pool) => {
                let rows = sqlx::query_as("SELECT fence, owner FROM journal WHERE lock_name = $1 ORDER BY id");
                rows.bind(lock).fetch_all(pool).await.unwrap()
            }
            Self::Mariadb(pool) | Self::MariadbColumns(pool) => {
                let rows = sqlx::query_as("SELECT fence, owner FROM journal WHERE lock_name = ? ORDER BY id");
                rows.bind(lock).fetch_all(pool).await.unwrap()
            }
            Self::Sqlite(connection) | Self::SqliteColumns(connection) => {
                let connection = connection.lock().unwrap();
                let rows = "SELECT fence, owner FROM journal WHERE lock_name = ?1 ORDER BY id";
                let mut rows = connection.prepare(rows).unwrap();
                let rows = rows.query_map([lock], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Self::Redis(connection) => {
                let mut range = redis::cmd("LRANGE");
                range.arg(format!("{{suite}}:{lock}")).arg(0).arg(-1);
                let lines: Vec<String> = range.query_async(&mut connection.clone()).await.unwrap();
                let parts =
                    |line: String| line.split_once(' ').map(|(fence, owner)| (fence.parse().unwrap(), owner.into()));
                lines.into_iter().filter_map(parts).collect()
            }
        }
    }

    /// What is remembered of a lock.
    pub(crate) async fn remembered(&self, lock: &str) -> Option<(i64, String)> {
        match self {
            Self::Postgres(pool) => {
                let row = sqlx::query_as("SELECT fence, owner FROM fences WHERE lock_name = $1");
                row.bind(lock).fetch_optional(pool).await.unwrap()
            }
            Self::Mariadb(pool) => {
                let row = sqlx::query_as("SELECT fence, owner FROM fences WHERE lock_name = ?");
                row.bind(lock).fetch_optional(pool).await.unwrap()
            }
            Self::PostgresColumns(pool) => {
                let row = sqlx::query_as("SELECT fence, fence_owner FROM goods WHERE name = $1");
                row.bind(lock).fetch_optional(pool).await.unwrap()
            }
            Self::MariadbColumns(pool) => {
                let row = sqlx::query_as("SELECT fence, fence_owner FROM goods WHERE name = ?");
                row.bind(lock).fetch_optional(pool).await.unwrap()
            }
            // One writer at a time: the last line is what is remembered.
            Self::Sqlite(_) | Self::SqliteColumns(_) | Self::Redis(_) => self.journal(lock).await.pop(),
        }
    }
}

async fn show_postgres(pool: &PgPool, token: &FenceToken) -> Result<(), FenceError<sqlx::Error>> {
    let mut transaction = pool.begin().await.unwrap();
    fence::sqlx::check(&mut *transaction, token).await?;
    let line = sqlx::query(INSERT_POSTGRES).bind(token.lock()).bind(number(token)).bind(token.owner());
    line.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.map_err(FenceError::Failed)
}

async fn show_mariadb(pool: &MySqlPool, token: &FenceToken) -> Result<(), FenceError<sqlx::Error>> {
    let mut transaction = pool.begin().await.unwrap();
    fence::sqlx::check(&mut *transaction, token).await?;
    let line = sqlx::query(INSERT_MYSQL).bind(token.lock()).bind(number(token)).bind(token.owner());
    line.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.map_err(FenceError::Failed)
}

/// The one `UPDATE`, of a row that is there before.
fn update<D: fence::sqlx::FenceDatabase>(token: &FenceToken) -> QueryBuilder<D>
where
    String: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
    D::Arguments: Default,
{
    let columns = Columns::default();
    let mut update = QueryBuilder::new("UPDATE goods SET ");
    fence::sqlx::push_set(&mut update, &columns, token);
    update.push(" WHERE name = ").push_bind(token.lock().to_owned()).push(" AND ");
    fence::sqlx::push_condition(&mut update, &columns, token);
    update
}

/// The same from texts.
fn update_text(placeholders: Placeholders, name: &str) -> String {
    let columns = Columns::new("fence", "fence_owner").unwrap();
    let (set, condition) = (columns.set(placeholders), columns.condition(placeholders));
    format!("UPDATE goods SET {set} WHERE name = {name} AND {condition}")
}

async fn update_postgres(pool: &PgPool, token: &FenceToken) -> Verdict {
    let row = sqlx::query("INSERT INTO goods (name) VALUES ($1) ON CONFLICT DO NOTHING").bind(token.lock());
    row.execute(pool).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    // Both ways to write it, in turns.
    let updated = if token.fence().get().is_multiple_of(2) {
        update::<Postgres>(token).build().execute(&mut *transaction).await
    } else {
        let text = update_text(Placeholders::Numbered(2), "$1");
        let update = sqlx::query(AssertSqlSafe(text)).bind(token.lock()).bind(number(token)).bind(token.owner());
        update.execute(&mut *transaction).await
    };
    let accepted = updated.unwrap().rows_affected() == 1;
    if accepted {
        let line = sqlx::query(INSERT_POSTGRES).bind(token.lock()).bind(number(token)).bind(token.owner());
        line.execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
    accepted.into()
}

async fn update_mariadb(pool: &MySqlPool, token: &FenceToken) -> Verdict {
    let row = sqlx::query("INSERT IGNORE INTO goods (name) VALUES (?)").bind(token.lock());
    row.execute(pool).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let updated = if token.fence().get().is_multiple_of(2) {
        update::<MySql>(token).build().execute(&mut *transaction).await
    } else {
        let update = sqlx::query(AssertSqlSafe(update_text(Placeholders::InOrder, "?")));
        let update = update.bind(number(token)).bind(token.owner()).bind(token.lock());
        let update = update.bind(number(token)).bind(number(token)).bind(token.owner());
        update.execute(&mut *transaction).await
    };
    let accepted = updated.unwrap().rows_affected() == 1;
    if accepted {
        let line = sqlx::query(INSERT_MYSQL).bind(token.lock()).bind(number(token)).bind(token.owner());
        line.execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
    accepted.into()
}

fn show_sqlite(connection: &mut Connection, token: &FenceToken) -> Result<(), FenceError<rusqlite::Error>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    fence::sqlite::check(&transaction, token)?;
    write_line(&transaction, token);
    transaction.commit().map_err(FenceError::Failed)
}

fn update_sqlite(connection: &mut Connection, token: &FenceToken) -> Verdict {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute("INSERT OR IGNORE INTO goods (name) VALUES (?1)", [token.lock()]).unwrap();
    let update = update_text(Placeholders::Named, ":name");
    let values = named_params! { ":name": token.lock(), ":fence": number(token), ":owner": token.owner() };
    let accepted = transaction.execute(&update, values).unwrap() == 1;
    if accepted {
        write_line(&transaction, token);
    }
    transaction.commit().unwrap();
    accepted.into()
}

fn write_line(connection: &Connection, token: &FenceToken) {
    let line = "INSERT INTO journal (lock_name, fence, owner) VALUES (?1, ?2, ?3)";
    connection.execute(line, (token.lock(), number(token), token.owner())).unwrap();
}

/// A script of one's own.
async fn show_redis(mut connection: MultiplexedConnection, token: &FenceToken) -> Verdict {
    let script = "if not fence_ok(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return 0 end
        redis.call('RPUSH', KEYS[2], ARGV[2] .. ' ' .. ARGV[3])
        return 1";
    let script = redis::Script::new(&[FENCE_LUA, script].concat());
    let mut run = script.key("{suite}:fences");
    run.key(format!("{{suite}}:{}", token.lock()));
    run.arg(token.lock()).arg(token.fence().get()).arg(token.owner());
    let accepted: bool = run.invoke_async(&mut connection).await.unwrap();
    accepted.into()
}

fn number(token: &FenceToken) -> i64 {
    token.fence().get().cast_signed()
}
