//! Wraps all secrets in SQL by the new secret of a deployment, beside nodes at work.
//!
//! # Promises
//! - Each row changes from one wrapping of its secret to another, and no secret changes: passes, codes, tickets, cookies of the
//!   dashboard and handles of locks stay valid.
//! - The probe, by which a node checks its secret when it starts, comes after all other rows: once a node that knows the new secret
//!   alone starts, it can open every row that was there.
//! - A run that was ended in the middle is done again from the beginning, at no harm.
//!
//! # Not promised
//! - That a node which still wraps by the former secret writes no further row meanwhile. A second pass wraps these rows and counts
//!   them ([`Rewrapped::late`]).

use super::wrap::{DeploymentSecret, OpenedBy};
use crate::database::{Database, Time, coupon, deployment, room, secrets};
use firstcome_sql::dialect::{Row, quoted};
use firstcome_sql::reader::Reader;
use firstcome_sql::{Address, DatabaseOptions, SqlError};
use tokio::time::Instant;

/// Rows that are wrapped in one transaction.
const ROWS: usize = 512;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Rewrapped {
    /// Secrets that there are.
    pub secrets: u64,
    /// Of these, how many the other secret had wrapped.
    pub rewrapped: u64,
    /// Secrets that a node wrapped by the other secret during the run. They are wrapped anew as well, but there may be more: a
    /// node still has the other secret as its first one.
    pub late: u64,
}

/// A table with a number for each row.
struct Numbered {
    table: &'static str,
    /// What names the row for its wrapping.
    label: &'static str,
    column: &'static str,
    place: fn(&str) -> String,
}

const NUMBERED: [Numbered; 3] = [
    Numbered { table: "firstcome_coupon", label: "name", column: "code_key", place: |name| coupon::place(name) },
    Numbered { table: "firstcome_room", label: "name", column: "ticket_key", place: |name| room::place(name) },
    Numbered { table: "firstcome_pass_secret", label: "''", column: "secret", place: |id| format!("pass:{id}") },
];

/// Wraps every secret of a deployment by `secret`, whose fallback is the other one. The tables must be those of this version.
///
/// [`SqlError::Broken`]: the database has a secret that neither of the two opens. Then the probe stays as it was.
pub async fn rewrap(sql: &str, secret: DeploymentSecret, options: DatabaseOptions) -> Result<Rewrapped, SqlError> {
    let database = Database::open(Address::parse(sql)?, options, secret, Time::Server).await?;
    let mut done = Rewrapped::default();
    // Says so at once if both secrets are wrong.
    let Some(probe) = probe(&database).await? else { return Ok(done) };
    let of_rows = all(&database).await?;
    (done.secrets, done.rewrapped) = (of_rows.secrets + 1, of_rows.rewrapped);
    if let Some(text) = change(&database, &probe, deployment::PLACE, "firstcome_deployment", "probe", "id=1")? {
        write(&database, text).await?;
        done.rewrapped += 1;
    }
    done.late = all(&database).await?.rewrapped;
    Ok(done)
}

/// The wrapped probe; `None` if no node has started yet.
async fn probe(database: &Database) -> Result<Option<Vec<u8>>, SqlError> {
    let rows = database.base.read("SELECT probe FROM firstcome_deployment WHERE id=1;".to_owned()).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let probe = Reader::at(row, 0).maybe_blob()?.unwrap_or_default();
    match database.secret().unwrap(&probe, deployment::PLACE) {
        Some(_) => Ok(Some(probe)),
        None => Err(neither("the deployment's own")),
    }
}

fn neither(what: &str) -> SqlError {
    SqlError::broken(format!(
        "neither FIRSTCOME_SECRET nor FIRSTCOME_SECRET_FALLBACK opens {what}: give the secret that the nodes had before, and the new one"
    ))
}

/// Goes once through all rows but the probe.
async fn all(database: &Database) -> Result<Rewrapped, SqlError> {
    let mut done = Rewrapped::default();
    for table in &NUMBERED {
        numbered(database, table, &mut done).await?;
    }
    // A handful, by their names.
    let rows = database.base.read("SELECT name,wrapped FROM firstcome_secret ORDER BY name;".to_owned()).await?;
    for row in &rows {
        let mut columns = Reader::at(row, 0);
        let name = columns.maybe_text()?.unwrap_or_default();
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        let mut key = String::from("name=");
        quoted(&mut key, &name);
        done.secrets += 1;
        if let Some(text) = change(database, &wrapped, &secrets::place(&name), "firstcome_secret", "wrapped", &key)? {
            write(database, text).await?;
            done.rewrapped += 1;
        }
    }
    Ok(done)
}

async fn numbered(database: &Database, of: &Numbered, done: &mut Rewrapped) -> Result<(), SqlError> {
    let Numbered { table, label, column, .. } = of;
    let mut after = i64::MIN;
    loop {
        let text = format!("SELECT id,{label},{column} FROM {table} WHERE id>{after} ORDER BY id LIMIT {ROWS};");
        let rows: Vec<Row> = database.base.read(text).await?;
        let mut changes = String::new();
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            after = columns.integer()?;
            let name = columns.maybe_text()?.filter(|name| !name.is_empty()).unwrap_or_else(|| after.to_string());
            let wrapped = columns.maybe_blob()?.unwrap_or_default();
            done.secrets += 1;
            if let Some(text) = change(database, &wrapped, &(of.place)(&name), table, column, &format!("id={after}"))? {
                changes.push_str(&text);
                done.rewrapped += 1;
            }
        }
        if !changes.is_empty() {
            write(database, changes).await?;
        }
        if rows.len() < ROWS {
            return Ok(());
        }
    }
}

/// The statement that wraps a secret anew, if the fallback had wrapped it. It does nothing to a row that has changed meanwhile.
fn change(
    database: &Database,
    wrapped: &[u8],
    place: &str,
    table: &str,
    column: &str,
    key: &str,
) -> Result<Option<String>, SqlError> {
    let opened = database.secret().unwrap_by(wrapped, place);
    let secret = match opened.ok_or_else(|| neither(&format!("{place:?} in {table}")))? {
        (_, OpenedBy::Secret) => return Ok(None),
        (secret, OpenedBy::Fallback) => secret,
    };
    let fresh = database.secret().wrap(&secret, place).map_err(|fault| SqlError::broken(fault.to_string()))?;
    let mut text = format!("UPDATE {table} SET {column}=");
    database.dialect().bytes(&mut text, &fresh);
    text.push_str(&format!(" WHERE {key} AND {column}="));
    database.dialect().bytes(&mut text, wrapped);
    text.push(';');
    Ok(Some(text))
}

async fn write(database: &Database, text: String) -> Result<(), SqlError> {
    let begin = database.dialect().words().begin;
    let mut session = database.base.session(Instant::now() + database.base.options.patience).await?;
    session.run(format!("{begin}{text}")).await?;
    database.commit(session).await
}
