//! MySQL and MariaDB.

use super::connection::LentConnection;
use super::{Column, Dialect, Value, Words, add_list, quoted};
use crate::DatabaseOptions;
use crate::replication::{Replication, count, value};
use crate::watch::Watch;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, MySql, Pool, Row as _};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// What stands in a row.
fn element(text: &mut String, value: Value<'_>) {
    match value {
        Value::Number(number) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
        }
        Value::Name(name) => quoted(text, name),
        Value::Bytes(bytes) => Dialect::MySql.bytes(text, bytes),
        Value::Key(key) => Dialect::MySql.bytes(text, &key.to_be_bytes()),
        Value::Nothing => text.push_str("NULL"),
    }
}

pub(super) const WORDS: Words = Words {
    flush: "UPDATE firstcome_flush SET flushed=flushed+1 WHERE id=1;",
    begin: "BEGIN;",
    begin_read_only: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;",
    unless_there: "ON DUPLICATE KEY UPDATE id=id",
    clock: "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))",
    has_schema: "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.tables \
        WHERE table_schema=DATABASE() AND table_name='firstcome_schema';",
    // A lock of the session, since statements that create tables end every transaction. It ends with the connection.
    migration_begins: "SELECT CAST(COALESCE(GET_LOCK(CONCAT('firstcome:', LEFT(DATABASE(), 40)), 10), 0) AS SIGNED); \
        CREATE TABLE IF NOT EXISTS firstcome_schema (part VARBINARY(32) PRIMARY KEY, version bigint NOT NULL) \
        ENGINE = InnoDB;",
    migration_ends: "DO RELEASE_LOCK(CONCAT('firstcome:', LEFT(DATABASE(), 40)));",
    settings: "SHOW SESSION VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
        'binlog_format', 'tx_isolation', 'transaction_isolation', 'autocommit', 'read_only', 'innodb_read_only', \
        'version', 'idle_transaction_timeout', 'wait_timeout', 'innodb_doublewrite', 'max_allowed_packet')",
    // Without the right PROCESS a user sees no threads but its own; MariaDB counts copies all the same. Only MySQL reads
    // the comments `/*!80016 */`: reading `information_schema.processlist` crashes MariaDB 10.11.19 now and then (signal 11
    // in `ha_maria::drop_table`, when it drops the temporary table of the query).
    replication: "SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', \
        'Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_status', \
        'Rpl_semi_sync_source_clients');\
        SELECT 'binlog_dumps', CAST(0 /*!80016 + COUNT(*) */ AS CHAR) \
        /*!80016 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' */;",
    tls: "SHOW SESSION STATUS LIKE 'Ssl_version';",
    bytes: "x'",
};

/// See [`super::pool`].
pub(super) fn pool(connect: MySqlConnectOptions, options: &DatabaseOptions, watch: Arc<Watch>) -> Pool<MySql> {
    let session = Session::of(options);
    let pool: PoolOptions<MySql> = options.connections.pool();
    // A dead connection is found by its first statement, and another one is taken; to ask each time is a round trip.
    // Where a silent session ends as a silent transaction does, those that rest in the pool are to go before.
    let pool = pool.test_before_acquire(false).idle_timeout(options.idle_timeout.mul_f64(0.6));
    let pool = pool.after_connect(move |connection, _| {
        let (session, watch) = (session.clone(), Arc::clone(&watch));
        Box::pin(async move {
            session.begin(connection).await?;
            watch.look(LentConnection::MySql(connection)).await.map(drop)
        })
    });
    pool.connect_lazy_with(connect)
}

pub(super) fn insert<'a, const N: usize>(
    table: &str,
    columns: [Column; N],
    rows: impl Iterator<Item = [Value<'a>; N]> + Clone,
) -> String {
    let mut text = format!("INSERT INTO {table} ({}) VALUES ", columns.map(Column::name).join(","));
    add_list(&mut text, rows, |text, row| {
        text.push('(');
        add_list(text, row, element);
        text.push(')');
    });
    text.push(';');
    text
}

pub(super) fn judge(settings: &[(String, String)], options: &DatabaseOptions) -> Result<(), String> {
    let of = |wanted: &str| settings.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let must = |name: &str, wanted: &[&str]| match of(name) {
        Some(value) if !wanted.iter().any(|wanted| value.eq_ignore_ascii_case(wanted)) => {
            Err(format!("{name} is {value} and must be {}", wanted[0]))
        }
        _ => Ok(()),
    };
    let version = of("version").unwrap_or_default();
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version_min = if version.contains("MariaDB") { (10, 6, 0) } else { (8, 0, 16) };
    let number = |numbers: &mut dyn Iterator<Item = u32>| numbers.next().unwrap_or(0);
    if (number(&mut numbers), number(&mut numbers), number(&mut numbers)) < version_min {
        return Err(format!("MariaDB 10.6 or MySQL 8.0.16 or later is needed, and this is {version}"));
    }
    for isolation in ["tx_isolation", "transaction_isolation"] {
        must(isolation, &["READ-COMMITTED"])?;
    }
    must("autocommit", &["ON", "1"])?;
    must("innodb_read_only", &["OFF", "0"])?;
    let binlog = of("log_bin").is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1");
    if binlog {
        must("binlog_format", &["ROW", "MIXED"])?;
    }
    if options.allow_volatile {
        return Ok(());
    }
    must("innodb_flush_log_at_trx_commit", &["1", "3"])?;
    must("innodb_doublewrite", &["ON", "1", "fast", "DETECT_AND_RECOVER"])?;
    // With a binary log a crash keeps only what that log has kept.
    if binlog { must("sync_binlog", &["1"]) } else { Ok(()) }
}

pub(super) fn replication(rows: &[(String, String)]) -> Replication {
    let replicas = count(rows, "Slaves_connected").max(count(rows, "binlog_dumps"));
    // The status goes to OFF when no copy has answered in time, and commits wait no longer.
    let waits = ["master", "source"].into_iter().any(|role| {
        value(rows, &format!("Rpl_semi_sync_{role}_status")) == Some("ON")
            && 0 < count(rows, &format!("Rpl_semi_sync_{role}_clients"))
    });
    Replication::of(replicas, waits)
}

pub(super) fn insert_nothing(table: &str) -> String {
    // One column would be too few: others have no default.
    format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1=0;")
}

/// What is set in every session.
#[derive(Clone)]
pub(super) struct Session {
    settings: String,
    idle: Duration,
}

impl Session {
    /// Returns what these options set.
    pub(super) fn of(options: &DatabaseOptions) -> Self {
        let wait_s = options.patience.as_secs().max(1);
        let settings = format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
             SET SESSION autocommit=1,innodb_lock_wait_timeout={wait_s},\
             sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';"
        );
        Self { settings, idle: options.idle_timeout }
    }

    /// Sets it in a session that has just begun. Two round trips.
    pub(super) async fn begin(&self, connection: &mut MySqlConnection) -> sqlx::Result<()> {
        let idle = session_idle(connection, self.idle).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("{}{idle}", self.settings))).execute(connection).await.map(drop)
    }
}

/// How a session gets rid of a transaction whose process says nothing: MariaDB tells it from a connection that rests.
async fn session_idle(connection: &mut MySqlConnection, idle: Duration) -> sqlx::Result<String> {
    let version: Vec<u8> = sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut *connection).await?.try_get_unchecked(0)?;
    let idle_s = idle.as_secs().max(1);
    let is_mariadb = String::from_utf8_lossy(&version).contains("MariaDB");
    let variable = if is_mariadb { "idle_transaction_timeout" } else { "wait_timeout" };
    Ok(format!("SET SESSION {variable}={idle_s};"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server says of itself, and what it is refused for.
    type Row = (&'static [(&'static str, &'static str)], Option<&'static str>);

    #[test]
    fn a_session_that_is_not_what_was_asked_for_is_refused() {
        let options = DatabaseOptions::default();
        let rows: [Row; 10] = [
            (&[], None),
            (&[("tx_isolation", "REPEATABLE-READ")], Some("tx_isolation is REPEATABLE-READ")),
            (&[("transaction_isolation", "SERIALIZABLE")], Some("transaction_isolation is SERIALIZABLE")),
            (&[("autocommit", "OFF")], Some("autocommit is OFF")),
            (&[("innodb_flush_log_at_trx_commit", "2")], Some("innodb_flush_log_at_trx_commit is 2")),
            (&[("log_bin", "ON"), ("sync_binlog", "0")], Some("sync_binlog is 0")),
            (&[("log_bin", "OFF"), ("sync_binlog", "0")], None),
            (&[("log_bin", "ON"), ("binlog_format", "STATEMENT")], Some("binlog_format is STATEMENT")),
            (&[("version", "10.5.29-MariaDB")], Some("MariaDB 10.6")),
            (&[("version", "5.7.44")], Some("MySQL 8.0.16")),
        ];
        for (settings, refused) in rows {
            let mut settings: Vec<_> =
                settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            settings.push(("version".to_owned(), "8.0.36".to_owned()));
            let judged = judge(&settings, &options);
            match refused {
                Some(says) => assert!(judged.as_ref().is_err_and(|said| said.contains(says)), "{judged:?}"),
                None => assert_eq!(judged, Ok(()), "{settings:?}"),
            }
        }
    }
}
