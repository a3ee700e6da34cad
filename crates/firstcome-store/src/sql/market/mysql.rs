//! MySQL and MariaDB.

use super::changes::Changes;
use super::options::MarketOptions;
use super::tongue::{Cells, Opening, Tongue, hex, list, listing_columns, maybe, number, owners, tag};
use crate::sql::{Address, SqlError};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, MySql, Pool, Row as _};
use std::fmt::Write as _;
use std::time::Duration;

impl Cells for MySqlRow {
    fn integer(&self, at: usize) -> Result<i64, sqlx::Error> {
        self.try_get(at)
    }

    fn maybe_integer(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn maybe_text(&self, at: usize) -> Result<Option<String>, sqlx::Error> {
        let bytes: Option<Vec<u8>> = self.try_get_unchecked(at)?;
        bytes.map(|bytes| String::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(error.into()))).transpose()
    }

    fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error> {
        self.try_get(at)
    }
}

impl Tongue for MySql {
    const FLUSH: &'static str = "UPDATE firstcome_flush SET flushed=flushed+1 WHERE id=1;";
    const BEGIN: &'static str = "BEGIN;";
    const UNLESS_THERE: &'static str = "ON DUPLICATE KEY UPDATE id=id";
    const CLOCK: &'static str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
    const STEPS: &'static [&'static str] = &[include_str!("mysql_0001.sql")];
    // A lock of the session, since statements that create tables end every transaction. It ends with the connection.
    const MIGRATION_BEGINS: &'static str = "SELECT CAST(COALESCE(GET_LOCK(CONCAT('firstcome:', LEFT(DATABASE(), 40)), 10), 0) AS SIGNED); \
        CREATE TABLE IF NOT EXISTS firstcome_schema (part VARBINARY(32) PRIMARY KEY, version bigint NOT NULL) \
        ENGINE = InnoDB;";
    const MIGRATION_ENDS: &'static str = "DO RELEASE_LOCK(CONCAT('firstcome:', LEFT(DATABASE(), 40)));";

    fn pool(address: Address, options: &MarketOptions) -> Result<Pool<Self>, SqlError> {
        let Address::MySql(connect) = address else {
            return Err(SqlError::broken("the address must begin with mysql://"));
        };
        let session = session(options);
        let idle = options.idle_timeout;
        let pool: PoolOptions<Self> = options.connections.pool();
        // A dead connection is found by its first statement, and another one is taken; to ask each time is a round trip.
        // Where a silent session ends as a silent transaction does, those that rest in the pool are to go before.
        let pool =
            pool.test_before_acquire(false).idle_timeout(idle.mul_f64(0.6)).after_connect(move |connection, _| {
                let session = session.clone();
                Box::pin(async move {
                    let idle = session_idle(connection, idle).await?;
                    Self::run(connection, format!("{session}{idle}")).await.map(drop)
                })
            });
        Ok(pool.connect_lazy_with(connect))
    }

    fn settings() -> &'static str {
        "SHOW SESSION VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
         'binlog_format', 'tx_isolation', 'transaction_isolation', 'autocommit', 'read_only', 'innodb_read_only', \
         'version', 'idle_transaction_timeout', 'wait_timeout', 'innodb_doublewrite')"
    }

    fn judge(settings: &[(String, String)], options: &MarketOptions) -> Result<(), String> {
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

    async fn ask(connection: &mut MySqlConnection, text: String) -> Result<Vec<MySqlRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await
    }

    async fn run(connection: &mut MySqlConnection, text: String) -> Result<u64, sqlx::Error> {
        Ok(sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?.rows_affected())
    }

    fn open(opening: &Opening<'_>) -> String {
        let lock = if opening.locks { "FOR UPDATE" } else { "" };
        let mut text = Self::BEGIN.to_owned();
        let mut members = list(opening.members, |text, id| number(text, *id));
        if let Some(id) = opening.listing {
            let (listing, columns) = (tag::LISTING, listing_columns());
            let _ = write!(text, "SELECT {listing},{columns} FROM firstcome_listing WHERE id={id} {lock};");
            // Of a subquery the server would not know that it is one number, and read all members.
            let _ = write!(
                text,
                "SELECT COALESCE(highest_id,0),owner_id INTO @firstcome_highest,@firstcome_owner \
                 FROM firstcome_listing WHERE id={id};"
            );
            members.push_str(if members.is_empty() { "@firstcome_highest" } else { ",@firstcome_highest" });
            members.push_str(if opening.with_owner { ",@firstcome_owner" } else { "" });
        }
        // Read, and so locked, along the primary key.
        let wallet = tag::WALLET;
        let columns = "m.id,m.name,m.total,m.held,m.records,m.last_at,m.chain";
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::WalletsUnordered) {
            let ids = list(opening.members, |text, id| number(text, *id));
            let ids = if ids.is_empty() { String::new() } else { format!("'{ids}',") };
            let highest = if opening.listing.is_some() { "@firstcome_highest" } else { "0" };
            let owner = if opening.with_owner { ",@firstcome_owner" } else { "" };
            let _ = write!(
                text,
                "SELECT {wallet},{columns} FROM JSON_TABLE(CONCAT('[',CONCAT_WS(',',{ids}{highest}{owner}),']'),'$[*]' \
                 COLUMNS (id bigint PATH '$')) v STRAIGHT_JOIN firstcome_member m FORCE INDEX (PRIMARY) ON m.id=v.id {lock};"
            );
            members.clear();
        }
        if !members.is_empty() {
            let _ = write!(
                text,
                "SELECT {wallet},{columns} FROM firstcome_member m FORCE INDEX (PRIMARY) \
                 WHERE m.id IN ({members}) ORDER BY m.id {lock};"
            );
        }
        owners(&mut text, opening.owners);
        if !opening.keys.is_empty() {
            let (request, (kind, scope)) = (tag::REQUEST, opening.scope.parts());
            let keys = list(opening.keys, |text, key| bytes(text, &key.to_be_bytes()));
            let _ = write!(
                text,
                "SELECT {request},request,body,number,at FROM firstcome_request \
                 WHERE kind={kind} AND scope={scope} AND request IN ({keys});"
            );
        }
        let _ = write!(text, "SELECT {},{};", tag::CLOCK, Self::CLOCK);
        text
    }

    fn write(changes: &Changes) -> String {
        let mut text = String::new();
        for (scope, key) in &changes.forgotten {
            let (kind, scope) = scope.parts();
            let _ = write!(text, "DELETE FROM firstcome_request WHERE kind={kind} AND scope={scope} AND request=");
            bytes(&mut text, &key.to_be_bytes());
            text.push(';');
        }
        insert_bids(&mut text, changes);
        insert_records(&mut text, changes);
        insert_requests(&mut text, changes);
        update_wallets(&mut text, changes);
        if let Some(listing) = &changes.listing {
            listing.write(&mut text, changes.writer, changes.unguarded);
        }
        text
    }
}

/// What is set in every session.
fn session(options: &MarketOptions) -> String {
    let wait_s = options.patience.as_secs().max(1);
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
         SET SESSION autocommit=1,innodb_lock_wait_timeout={wait_s},\
         sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';"
    )
}

/// How a session gets rid of a transaction whose process says nothing: MariaDB tells it from a connection that rests.
async fn session_idle(connection: &mut MySqlConnection, idle: Duration) -> Result<String, sqlx::Error> {
    let version: Vec<u8> = sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut *connection).await?.try_get_unchecked(0)?;
    let idle_s = idle.as_secs().max(1);
    let is_mariadb = String::from_utf8_lossy(&version).contains("MariaDB");
    let variable = if is_mariadb { "idle_transaction_timeout" } else { "wait_timeout" };
    Ok(format!("SET SESSION {variable}={idle_s};"))
}

/// Bytes.
fn bytes(text: &mut String, bytes: &[u8]) {
    text.push_str("0x");
    hex(text, bytes);
}

fn insert_bids(text: &mut String, changes: &Changes) {
    if changes.bids.is_empty() {
        return;
    }
    let rows = list(&changes.bids, |text, row| {
        let (placed, bid) = (&row.placed, &row.placed.bid);
        let _ = write!(text, "({},{},{},{},", row.listing, bid.number, row.member, bid.price.get());
        let _ = write!(text, "{},{},{})", bid.at.as_us(), placed.effective_ends_at.as_us(), placed.fence);
    });
    let _ = write!(text, "INSERT INTO firstcome_bid (listing,number,member,price,at,ends_at,fence) VALUES {rows};");
}

fn insert_records(text: &mut String, changes: &Changes) {
    if changes.records.is_empty() {
        return;
    }
    let rows = list(&changes.records, |text, row| {
        let record = &row.record;
        let _ = write!(text, "({},{},{},", row.member, record.number, record.kind.number());
        let _ = write!(text, "{},", record.amount.get());
        maybe(text, row.listing);
        text.push(',');
        maybe(text, record.about.as_ref().and_then(|about| about.bid).map(i64::from));
        let (at, balance) = (record.at.as_us(), record.balance);
        let _ = write!(text, ",{at},{},{},{},", balance.total(), balance.held(), changes.writer);
        bytes(text, &record.chain.0);
        text.push(')');
    });
    let columns = "member,number,kind,amount,listing,bid,at,total,held,writer,chain";
    let _ = write!(text, "INSERT INTO firstcome_record ({columns}) VALUES {rows};");
}

fn insert_requests(text: &mut String, changes: &Changes) {
    if changes.requests.is_empty() {
        return;
    }
    let rows = list(&changes.requests, |text, row| {
        let (kind, scope) = row.scope.parts();
        let _ = write!(text, "({kind},{scope},");
        bytes(text, &row.key.to_be_bytes());
        let _ = write!(text, ",{},{},{})", row.body.cast_signed(), row.number, row.at.as_us());
    });
    let _ = write!(text, "INSERT INTO firstcome_request (kind,scope,request,body,number,at) VALUES {rows};");
}

fn update_wallets(text: &mut String, changes: &Changes) {
    if changes.wallets.is_empty() {
        return;
    }
    let rows = list(&changes.wallets, |text, row| {
        let (wallet, balance) = (&row.wallet, row.wallet.balance);
        let _ = write!(text, "[{},{},{},{},", row.id, row.before, balance.total(), balance.held());
        let _ = write!(text, "{},{},\"", wallet.records, wallet.last_at.as_us());
        hex(text, &wallet.chain.0);
        text.push_str("\"]");
    });
    // The table of values leads, so that members are found by their numbers and not searched: a search locks all of them.
    let guard = if changes.unguarded { "" } else { " AND m.records=v.was" };
    let _ = write!(
        text,
        "UPDATE JSON_TABLE('[{rows}]','$[*]' COLUMNS (id bigint PATH '$[0]',was bigint PATH '$[1]',\
         total bigint PATH '$[2]',held bigint PATH '$[3]',records bigint PATH '$[4]',last_at bigint PATH '$[5]',\
         chain char(64) PATH '$[6]')) v STRAIGHT_JOIN firstcome_member m FORCE INDEX (PRIMARY) ON m.id=v.id{guard} \
         SET m.total=v.total,m.held=v.held,m.records=v.records,m.last_at=v.last_at,m.chain=UNHEX(v.chain);"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server says of itself, and what it is refused for.
    type Row = (&'static [(&'static str, &'static str)], Option<&'static str>);

    #[test]
    fn a_session_that_is_not_what_was_asked_for_is_refused() {
        let options = MarketOptions::default();
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
            let judged = MySql::judge(&settings, &options);
            match refused {
                Some(says) => assert!(judged.as_ref().is_err_and(|said| said.contains(says)), "{judged:?}"),
                None => assert_eq!(judged, Ok(()), "{settings:?}"),
            }
        }
    }
}
