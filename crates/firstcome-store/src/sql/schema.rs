//! The tables, their version, and what the server must promise.

use super::SqlError;
use super::base::Base;
use super::dialect::{Cells, Dialect};
use super::reader::Reader;
use std::time::Duration;
use tokio::time::Instant;

/// How long opening may take in all, others who look after the tables included.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// Refuses a server that does not keep what it acknowledges, or whose sessions are not what was asked for.
pub(crate) async fn check<D: Dialect>(base: &Base<D>) -> Result<(), SqlError> {
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let rows = session.ask(D::settings().to_owned()).await?;
    session.done();
    let mut settings = Vec::new();
    for row in &rows {
        let mut cells = Reader::at(row, 0);
        if let (Some(name), Some(value)) = (cells.maybe_text()?, cells.maybe_text()?) {
            settings.push((name, value));
        }
    }
    D::judge(&settings, &base.options).map_err(SqlError::broken)
}

/// Brings the tables of a part to this version; step N leads from version N to version N + 1, and steps are never changed once
/// released, only added. Whoever comes first does it, the others wait. A second time has no effect. Refuses
/// tables of a later version.
pub(crate) async fn migrate<D: Dialect>(base: &Base<D>, part: &str, steps: &[&str]) -> Result<(), SqlError> {
    let known = steps.len() as i64;
    let mut session = base.session(Instant::now() + OPENING_MAX).await?;
    let begin = format!("{}SELECT version FROM firstcome_schema WHERE part='{part}';", D::MIGRATION_BEGINS);
    let rows = session.ask(begin).await.map_err(|error| match error {
        SqlError::Broken { says } => {
            SqlError::broken(format!("{says}; the user in the address must be able to create tables there"))
        }
        other => other,
    })?;
    if rows.first().map(|row| row.integer(0)).transpose().ok().flatten() != Some(1) {
        return Err(SqlError::unreachable("another process looks after the tables, and takes too long"));
    }
    let version = rows.get(1).map(|row| Reader::at(row, 0).integer()).transpose()?.unwrap_or(0);
    if known < version {
        return Err(SqlError::broken(format!(
            "the tables have version {version}, and this program knows up to {known}: use the version of firstcome that \
             made them, or a later one"
        )));
    }
    if version < known {
        for step in &steps[usize::try_from(version).unwrap_or(0)..] {
            session.run((*step).to_owned()).await?;
        }
        let version = format!(
            "DELETE FROM firstcome_schema WHERE part='{part}'; \
             INSERT INTO firstcome_schema (part,version) VALUES ('{part}',{known});"
        );
        session.run(version).await?;
    }
    session.run(D::MIGRATION_ENDS.to_owned()).await?;
    session.done();
    Ok(())
}
