//! Reads the database of a cluster at the end by plain SQL statements, without any code of the service.

use super::Setting;
use super::audit::{Recorded, in_sql};
use super::facts::AuditCheck;
use super::record::History;
use crate::database::is_postgres;
use anyhow::Context;
use firstcome::sql::Address;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

/// One row: a number, and a name where it has one.
type Row = (i64, Option<String>);

enum Database {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Database {
    async fn open(url: &str) -> anyhow::Result<Self> {
        Ok(if is_postgres(url) {
            Self::Postgres(PgConnection::connect_with(&Address::postgres(url)?).await?)
        } else {
            Self::MySql(MySqlConnection::connect_with(&Address::mysql(url)?).await?)
        })
    }

    /// Returns the expression for a name. MySQL stores names as bytes.
    const fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "name",
            Self::MySql(_) => "CONVERT(name USING utf8mb4)",
        }
    }

    async fn rows(&mut self, statement: String) -> anyhow::Result<Vec<Row>> {
        let statement = AssertSqlSafe(statement);
        match self {
            Self::Postgres(connection) => sqlx::query_as(statement).fetch_all(connection).await,
            Self::MySql(connection) => sqlx::query_as(statement).fetch_all(connection).await,
        }
        .context("the database of the drill")
    }

    async fn one(&mut self, statement: String) -> anyhow::Result<i64> {
        let rows = self.rows(statement).await?;
        Ok(rows.first().context("the database has no row of it")?.0)
    }
}

fn small(number: i64) -> anyhow::Result<u32> {
    u32::try_from(number).with_context(|| format!("{number} is no number of this drill"))
}

/// Reads the rows of one sale. The drill has chosen its names, so it inserts them into statements unescaped.
async fn read(url: &str, setting: &Setting) -> anyhow::Result<Recorded> {
    let mut database = Database::open(url).await?;
    let coupon = format!("(SELECT id FROM firstcome_coupon WHERE name='{}')", setting.coupon);
    let name = database.name();
    let claims = format!("SELECT serial,{name} FROM firstcome_claim WHERE coupon={coupon} ORDER BY serial");
    let mut recorded = Recorded {
        issued: small(database.one(format!("SELECT issued,NULL FROM firstcome_coupon WHERE id={coupon}")).await?)?,
        ..Recorded::default()
    };
    for (serial, name) in database.rows(claims).await? {
        recorded.claims.push((small(serial)?, name.unwrap_or_default()));
    }
    let Some(room) = &setting.room else { return Ok(recorded) };
    let room = format!("(SELECT id FROM firstcome_room WHERE name='{room}')");
    recorded.ceiling =
        Some(small(database.one(format!("SELECT ceiling,NULL FROM firstcome_room WHERE id={room}")).await?)?);
    for (number, _) in database.rows(format!("SELECT number,NULL FROM firstcome_slot WHERE room={room}")).await? {
        recorded.admitted.insert(small(number)?);
    }
    Ok(recorded)
}

/// Compares the answers with the database.
pub(crate) async fn all(url: &str, setting: &Setting, history: &History) -> anyhow::Result<Vec<AuditCheck>> {
    Ok(in_sql::all(history, &read(url, setting).await?))
}
