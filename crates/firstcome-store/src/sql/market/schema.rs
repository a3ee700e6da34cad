//! The tables, their version, and what the server must promise.

use super::load::Reader;
use super::shop::Shop;
use super::tongue::{Cells, Tongue};
use crate::sql::SqlError;
use std::time::Duration;
use tokio::time::Instant;

/// How long opening may take in all, others who look after the tables included.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// Refuses a server that does not keep what it acknowledges, or whose sessions are not what was asked for.
pub(super) async fn check<D: Tongue>(shop: &Shop<D>) -> Result<(), SqlError> {
    let mut session = shop.session(Instant::now() + OPENING_MAX).await?;
    let rows = session.ask(D::settings().to_owned()).await?;
    session.done();
    let mut settings = Vec::new();
    for row in &rows {
        let mut cells = Reader::at(row, 0);
        if let (Some(name), Some(value)) = (cells.maybe_text()?, cells.maybe_text()?) {
            settings.push((name, value));
        }
    }
    D::judge(&settings, &shop.options).map_err(SqlError::broken)
}

/// Brings the tables to this version. Whoever comes first does it, the others wait. A second time has no effect. Refuses
/// tables of a later version.
pub(super) async fn migrate<D: Tongue>(shop: &Shop<D>) -> Result<(), SqlError> {
    let known = D::STEPS.len() as i64;
    let mut session = shop.session(Instant::now() + OPENING_MAX).await?;
    let begin = format!("{}SELECT version FROM firstcome_schema WHERE part='market';", D::MIGRATION_BEGINS);
    let rows = session.ask(begin).await?;
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
        for step in &D::STEPS[usize::try_from(version).unwrap_or(0)..] {
            session.run((*step).to_owned()).await?;
        }
        let version =
            "DELETE FROM firstcome_schema WHERE part='market'; INSERT INTO firstcome_schema (part,version) VALUES";
        session.run(format!("{version} ('market',{known});")).await?;
    }
    session.run(D::MIGRATION_ENDS.to_owned()).await?;
    session.done();
    Ok(())
}
