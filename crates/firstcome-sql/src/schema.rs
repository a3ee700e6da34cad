//! The tables, their version, and what the server must promise.

use super::SqlError;
use super::base::Base;
use super::dialect::Row;
use super::options::Tables;
use super::reader::Reader;
use super::replication::Replication;
use firstcome_core::time::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// How long opening may take in all, others who look after the tables included.
const OPENING_MAX: Duration = Duration::from_secs(30);
/// After the name of a part: the row that says which programs may use its tables.
const READABLE_FROM: &str = ":readable_from";

/// Refuses a server that does not keep what it acknowledges, or whose sessions are not what was asked for.
pub async fn check(base: &Base) -> Result<(), SqlError> {
    base.dialect.judge(&settings(base).await?, &base.options).map_err(SqlError::broken)
}

/// The settings by which a server is judged.
pub async fn settings(base: &Base) -> Result<Vec<(String, String)>, SqlError> {
    pairs(base, base.dialect.words().settings).await
}

/// How servers that copy this one are kept.
pub async fn replication(base: &Base) -> Result<Replication, SqlError> {
    Ok(base.dialect.replication(&pairs(base, base.dialect.words().replication).await?))
}

/// The version of TLS of a session, as the server sees it; `None` in plain text.
pub async fn tls_version(base: &Base) -> Result<Option<String>, SqlError> {
    let rows = pairs(base, base.dialect.words().tls).await?;
    Ok(rows.into_iter().map(|(_, version)| version).find(|version| !version.is_empty()))
}

/// Rows of a name and its value.
async fn pairs(base: &Base, text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let rows = session.ask(text.to_owned()).await?;
    session.done();
    let mut pairs = Vec::new();
    for row in &rows {
        let mut columns = Reader::at(row, 0);
        if let (Some(name), Some(value)) = (columns.maybe_text()?, columns.maybe_text()?) {
            pairs.push((name, value));
        }
    }
    Ok(pairs)
}

/// What became of the tables of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// `auctions` or `coupons`.
    pub part: &'static str,
    /// The version before; 0 if there were none.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

/// A part of the tables, which has a version of its own.
#[derive(Clone, Copy)]
pub struct Part {
    /// `auctions` or `coupons`.
    pub name: &'static str,
    /// Step N leads from version N to version N + 1. Steps are never changed once released, only added.
    pub steps: &'static [&'static str],
    /// The lowest version whose programs may read and write the tables after all steps, beside programs of this version. A
    /// step that only adds what older programs need not know leaves it as it is. Rows may raise it later: see `keep_out`.
    pub readable_from: i64,
    /// Its tables that are written, each with a column that may be.
    pub written: &'static [(&'static str, &'static str)],
}

firstcome_core::debug_by_name!(Part);

impl Part {
    const fn version(&self) -> i64 {
        self.steps.len() as i64
    }
}

/// The version of the tables of a part, and who may use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The version; 0 if there are none.
    pub version: i64,
    /// The lowest version whose programs may read and write them.
    pub readable_from: i64,
}

impl Standing {
    const NONE: Self = Self { version: 0, readable_from: 0 };

    /// Whether a program that knows tables up to this version may use these, or may bring them to that version.
    pub const fn admits(self, known: i64) -> bool {
        self.version <= known || self.readable_from <= known
    }

    fn judge(self, part: &Part) -> Result<(), SqlError> {
        let (Self { version, readable_from }, known) = (self, part.version());
        if !self.admits(known) {
            return Err(SqlError::broken(format!(
                "the tables of {} have version {version}, which programs that know version {readable_from} can use; this one \
                 knows up to {known}: use the version of firstcome that made them, or a later one",
                part.name
            )));
        }
        if known < version {
            let part = part.name;
            tracing::info!(part, version, known, "the tables are of a later version, which this program may use");
        }
        Ok(())
    }
}

/// Adds the statement by which no program that knows less than `version` of a part opens its tables once the transaction is over. For
/// rows that such a program would take for damage.
pub fn keep_out(text: &mut String, part: &str, version: i64) {
    let row = format!("part='{part}{READABLE_FROM}'");
    text.push_str(&format!("UPDATE firstcome_schema SET version={version} WHERE {row} AND version<{version};"));
}

/// Selects what [`standing_of`] reads. Two rows say it, so that programs from before the second one read the first as ever.
fn select_standing(part: &str) -> String {
    format!("SELECT part,version FROM firstcome_schema WHERE part IN ('{part}','{part}{READABLE_FROM}');")
}

/// Reads rows of [`select_standing`]. Tables whose makers did not say who may use them are for programs of their version.
fn standing_of(part: &str, rows: &[Row]) -> Result<Standing, SqlError> {
    let mut standing = Standing::NONE;
    let mut readable_from = None;
    for row in rows {
        let mut columns = Reader::at(row, 0);
        let (name, number) = (columns.maybe_text()?, columns.integer()?);
        if name.as_deref() == Some(part) {
            standing.version = number;
        } else {
            readable_from = Some(number);
        }
    }
    standing.readable_from = readable_from.unwrap_or(standing.version);
    Ok(standing)
}

/// Brings the tables of a part to this version, or refuses others, as the options say.
pub async fn prepare(base: &Base, part: Part) -> Result<(), SqlError> {
    match base.options.tables {
        Tables::Migrate => migrate(base, part).await.map(drop),
        Tables::Require => {
            require(base, part).await?;
            may_write(base, part).await
        }
    }
}

/// The version of the tables of a part, and who may use them. Writes nothing.
pub async fn standing(base: &Base, part: &str) -> Result<Standing, SqlError> {
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let there = session.ask(base.dialect.words().has_schema.to_owned()).await?;
    session.done();
    if there.first().map(|row| Reader::at(row, 0).integer()).transpose()? != Some(1) {
        return Ok(Standing::NONE);
    }
    let rows = session.ask(select_standing(part)).await.map_err(without_rights)?;
    session.done();
    standing_of(part, &rows)
}

/// The time by the server's clock.
pub async fn now(base: &Base) -> Result<Timestamp, SqlError> {
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let rows = session.ask(format!("SELECT {};", base.dialect.words().clock)).await?;
    session.done();
    rows.first().map(|row| Reader::at(row, 0).instant()).transpose()?.ok_or_else(|| SqlError::broken("it has no clock"))
}

async fn require(base: &Base, part: Part) -> Result<(), SqlError> {
    let standing = standing(base, part.name).await?;
    standing.judge(&part)?;
    let (version, known) = (standing.version, part.version());
    if version < known {
        let name = part.name;
        return Err(SqlError::broken(format!(
            "the tables of {name} have version {version}, and this program needs {known}: run `firstcome migrate --sql URL` \
             once, as a user who may create tables"
        )));
    }
    Ok(())
}

/// Refuses a user who may not read and write all tables of a part. Says statements that find no row, and undoes them.
async fn may_write(base: &Base, part: Part) -> Result<(), SqlError> {
    let mut text = base.dialect.words().begin.to_owned();
    for (table, column) in part.written {
        text.push_str(&format!("UPDATE {table} SET {column}={column} WHERE 1=0;"));
        text.push_str(&base.dialect.insert_nothing(table, column));
        text.push_str(&format!("DELETE FROM {table} WHERE 1=0;"));
    }
    text.push_str(base.dialect.words().flush);
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    session.run(text).await.map_err(without_rights)?;
    session.run(super::base::ROLL_BACK.to_owned()).await?;
    session.done();
    Ok(())
}

/// Adds what to do to the error of a server that turns a user away.
fn without_rights(error: SqlError) -> SqlError {
    match error {
        SqlError::Broken { says } => SqlError::broken(format!(
            "{says}; the user needs SELECT, INSERT, UPDATE and DELETE on the tables that begin with firstcome_"
        )),
        error => error,
    }
}

/// Brings the tables of a part to this version. A caller that comes first does it, the others wait. A second time has no effect.
/// Tables of a later version stay as they are; it refuses those that this version may not use.
pub async fn migrate(base: &Base, part: Part) -> Result<Migrated, SqlError> {
    let (known, name) = (part.version(), part.name);
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let begin = format!("{}{}", base.dialect.words().migration_begins, select_standing(name));
    let rows = session.ask(begin).await.map_err(|error| match error {
        SqlError::Broken { says } => {
            SqlError::broken(format!("{says}; the user in the address must be able to create tables there"))
        }
        other => other,
    })?;
    if rows.first().map(|row| row.integer(0)).transpose().ok().flatten() != Some(1) {
        return Err(SqlError::unreachable("another process looks after the tables, and takes too long"));
    }
    let standing = standing_of(name, &rows[1..])?;
    standing.judge(&part)?;
    let version = standing.version;
    if version < known {
        for step in &part.steps[usize::try_from(version).unwrap_or(0)..] {
            session.run((*step).to_owned()).await?;
        }
        // A transaction may have raised it: see `keep_out`.
        let readable_from = part.readable_from.max(standing.readable_from);
        let version = format!(
            "DELETE FROM firstcome_schema WHERE part IN ('{name}','{name}{READABLE_FROM}'); \
             INSERT INTO firstcome_schema (part,version) VALUES ('{name}',{known}),('{name}{READABLE_FROM}',{readable_from});"
        );
        session.run(version).await?;
    }
    session.run(base.dialect.words().migration_ends.to_owned()).await?;
    session.done();
    Ok(Migrated { part: name, from: version, to: known.max(version) })
}
