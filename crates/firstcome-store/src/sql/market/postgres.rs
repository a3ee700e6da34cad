//! PostgreSQL.

use super::changes::{Changes, stored};
use super::options::MarketOptions;
use super::tongue::{Cells, Opening, Tongue, hex, list, listing_columns, maybe, number, owners, tag};
use crate::sql::{Address, SqlError};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Pool, Postgres, Row as _};
use std::fmt::Write as _;

/// The oldest version with all that is used here.
const VERSION_MIN: u32 = 130_000;

impl Cells for PgRow {
    fn integer(&self, at: usize) -> Result<i64, sqlx::Error> {
        // A number that stands in a statement is of the smaller kind.
        self.try_get(at).or_else(|_| self.try_get::<i32, _>(at).map(i64::from))
    }

    fn maybe_integer(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(at)
    }

    fn maybe_text(&self, at: usize) -> Result<Option<String>, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error> {
        self.try_get(at)
    }
}

impl Tongue for Postgres {
    // A commit is on disk before anybody sees it.
    const FLUSH: &'static str = "";
    // The isolation is named with every transaction: whatever the database, the role or a pool in between has set.
    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED;";
    const UNLESS_THERE: &'static str = "ON CONFLICT (name) DO NOTHING";
    const CLOCK: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const STEPS: &'static [&'static str] = &[include_str!("postgres_0001.sql")];
    const MIGRATION_BEGINS: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
        SELECT 1 FROM pg_advisory_xact_lock(7378697629483820646); \
        CREATE TABLE IF NOT EXISTS firstcome_schema (part text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL);";
    const MIGRATION_ENDS: &'static str = "COMMIT;";

    fn pool(address: Address, options: &MarketOptions) -> Result<Pool<Self>, SqlError> {
        let Address::Postgres(connect) = address else {
            return Err(SqlError::broken("the address must begin with postgres://"));
        };
        // They ride in the packet that opens the connection.
        let idle_ms = options.idle_timeout.as_millis();
        let connect = connect.options([("idle_in_transaction_session_timeout", format!("{idle_ms}ms"))]);
        // A dead connection is found by its first statement, and another one is taken; to ask each time is a round trip.
        Ok(options.connections.pool().test_before_acquire(false).connect_lazy_with(connect))
    }

    fn settings() -> &'static str {
        "BEGIN ISOLATION LEVEL READ COMMITTED; \
         SELECT name::text, setting::text FROM pg_catalog.pg_settings WHERE name IN ('fsync', \
         'full_page_writes', 'synchronous_commit', 'transaction_isolation', 'transaction_read_only', \
         'server_version_num', 'idle_in_transaction_session_timeout'); \
         ROLLBACK;"
    }

    fn judge(settings: &[(String, String)], options: &MarketOptions) -> Result<(), String> {
        let idle_ms = options.idle_timeout.as_millis().to_string();
        for (name, value) in settings {
            let wanted = match name.as_str() {
                "fsync" | "full_page_writes" if !options.allow_volatile && value != "on" => "on",
                "synchronous_commit" if !options.allow_volatile && value == "off" => "on",
                "transaction_isolation" if value != "read committed" => "read committed",
                "transaction_read_only" if value != "off" => "off",
                "idle_in_transaction_session_timeout" if *value != idle_ms => &idle_ms,
                "server_version_num" if value.parse::<u32>().is_ok_and(|version| version < VERSION_MIN) => {
                    return Err(format!("PostgreSQL 13 or later is needed, and this is {value}"));
                }
                _ => continue,
            };
            return Err(format!("{name} is {value} and must be {wanted}"));
        }
        Ok(())
    }

    async fn ask(connection: &mut PgConnection, text: String) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await
    }

    async fn run(connection: &mut PgConnection, text: String) -> Result<u64, sqlx::Error> {
        Ok(sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?.rows_affected())
    }

    fn open(opening: &Opening<'_>) -> String {
        let lock = if opening.locks { "FOR UPDATE" } else { "" };
        let mut text = Self::BEGIN.to_owned();
        let mut members = list(opening.members, |text, id| number(text, *id));
        if let Some(id) = opening.listing {
            let (listing, columns) = (tag::LISTING, listing_columns());
            let _ = write!(text, "SELECT {listing},{columns} FROM firstcome_listing WHERE id={id} {lock};");
            // Each statement sees what was committed before it: this one reads what the one before has locked.
            for column in ["highest_id", "owner_id"].iter().take(1 + usize::from(opening.with_owner)) {
                let comma = if members.is_empty() { "" } else { "," };
                let _ = write!(members, "{comma}(SELECT {column} FROM firstcome_listing WHERE id={id})");
            }
        }
        // Rows are sorted first, and locked in that order.
        let wallet = tag::WALLET;
        let columns = "m.id,m.name,m.total,m.held,m.records,m.last_at,m.chain";
        #[cfg(feature = "planted-bugs")]
        if firstcome_core::planted::is(firstcome_core::planted::Bug::WalletsUnordered) {
            let _ = write!(
                text,
                "SELECT {wallet},{columns} FROM firstcome_member m \
                 JOIN unnest(ARRAY[{members}]::bigint[]) WITH ORDINALITY v(id,at) ON m.id=v.id ORDER BY v.at {lock} OF m;"
            );
            members.clear();
        }
        if !members.is_empty() {
            let _ = write!(
                text,
                "SELECT {wallet},{columns} FROM firstcome_member m \
                 WHERE m.id=ANY(ARRAY[{members}]::bigint[]) ORDER BY m.id {lock};"
            );
        }
        owners(&mut text, opening.owners);
        if !opening.keys.is_empty() {
            let (request, (kind, scope)) = (tag::REQUEST, opening.scope.parts());
            let keys = list(opening.keys, |text, key| bytes(text, &key.to_be_bytes()));
            let _ = write!(
                text,
                "SELECT {request},request,body,number,at FROM firstcome_request \
                 WHERE kind={kind} AND scope={scope} AND request=ANY(ARRAY[{keys}]::bytea[]);"
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

/// A text of bytes.
fn bytes(text: &mut String, bytes: &[u8]) {
    text.push_str("'\\x");
    hex(text, bytes);
    text.push('\'');
}

/// One column of several rows: read far faster than rows of values.
fn integers(text: &mut String, column: impl IntoIterator<Item = Option<i64>>) {
    let _ = write!(text, "'{{{}}}'::bigint[]", list(column, maybe));
}

fn digests<'a>(text: &mut String, column: impl IntoIterator<Item = &'a [u8]>) {
    let column = list(column, |text, digest| {
        text.push_str("\\\\x");
        hex(text, digest);
    });
    // Within an array a backslash stands for itself only twice.
    let _ = write!(text, "'{{{column}}}'::bytea[]");
}

fn insert_bids(text: &mut String, changes: &Changes) {
    let bids = &changes.bids;
    if bids.is_empty() {
        return;
    }
    text.push_str("INSERT INTO firstcome_bid (listing,number,member,price,at,ends_at,fence) SELECT * FROM unnest(");
    integers(text, bids.iter().map(|row| Some(row.listing)));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.bid.number.into())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.member)));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(stored(row.placed.bid.price.get()))));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.bid.at.as_us())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.effective_ends_at.as_us())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(stored(row.placed.fence))));
    text.push_str(");");
}

fn insert_records(text: &mut String, changes: &Changes) {
    let rows = &changes.records;
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "INSERT INTO firstcome_record (member,number,kind,amount,listing,bid,at,total,held,writer,chain) SELECT * FROM unnest(",
    );
    integers(text, rows.iter().map(|row| Some(row.member)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.number))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.record.kind.number().into())));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.amount.get()))));
    text.push(',');
    integers(text, rows.iter().map(|row| row.listing));
    text.push(',');
    integers(text, rows.iter().map(|row| row.record.about.as_ref()?.bid.map(i64::from)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.record.at.as_us())));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.balance.total()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.balance.held()))));
    text.push(',');
    integers(text, rows.iter().map(|_| Some(changes.writer)));
    text.push(',');
    digests(text, rows.iter().map(|row| row.record.chain.0.as_slice()));
    text.push_str(");");
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
    let rows = &changes.wallets;
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "UPDATE firstcome_member m SET total=v.total,held=v.held,records=v.records,last_at=v.last_at,chain=v.chain FROM unnest(",
    );
    integers(text, rows.iter().map(|row| Some(row.id)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.before))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.balance.total()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.balance.held()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.records))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.wallet.last_at.as_us())));
    text.push(',');
    digests(text, rows.iter().map(|row| row.wallet.chain.0.as_slice()));
    text.push_str(") v(id,before,total,held,records,last_at,chain) WHERE m.id=v.id");
    text.push_str(if changes.unguarded { ";" } else { " AND m.records=v.before;" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_what_was_asked_for_is_refused() {
        let options = MarketOptions::default();
        let rows = [
            ("transaction_isolation", "serializable", Some("transaction_isolation is serializable")),
            ("transaction_isolation", "read committed", None),
            ("transaction_read_only", "on", Some("transaction_read_only is on")),
            ("idle_in_transaction_session_timeout", "0", Some("must be 5000")),
            ("idle_in_transaction_session_timeout", "5000", None),
            ("synchronous_commit", "off", Some("synchronous_commit is off")),
            ("synchronous_commit", "remote_apply", None),
            ("server_version_num", "120004", Some("PostgreSQL 13")),
            ("server_version_num", "150004", None),
        ];
        for (name, value, refused) in rows {
            let judged = Postgres::judge(&[(name.to_owned(), value.to_owned())], &options);
            match refused {
                Some(says) => assert!(judged.as_ref().is_err_and(|said| said.contains(says)), "{judged:?}"),
                None => assert_eq!(judged, Ok(()), "{name}"),
            }
        }
    }
}
