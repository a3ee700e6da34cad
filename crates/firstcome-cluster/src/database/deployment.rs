//! Checks that Redis, database and secret belong to the same cluster.

use super::Database;
use super::dead_letters::{dead_letter_counts, early_coupon};
use crate::wrap::OpenedBy;
use crate::{Deployment, DeploymentSecret};
use firstcome_sql::SqlError;
use firstcome_sql::base::Base;
use firstcome_sql::reader::Reader;
use firstcome_store::edge::draw_id;
use tokio::time::Instant;

/// Where the probe stands, for which it is wrapped.
pub(crate) const PLACE: &str = "deployment";
/// What the probe holds: nothing of worth.
pub(crate) const PROBE: [u8; 32] = [0; 32];

impl Database {
    /// The number of this deployment. The first node draws it. Another secret than that node's is refused.
    pub(crate) async fn deployment(&self) -> Result<i64, SqlError> {
        let broken = |fault: firstcome_store::Fault| SqlError::broken(fault.to_string());
        let number = (draw_id().map_err(broken)? >> 1).cast_signed();
        let probe = self.secret.wrap(&PROBE, PLACE).map_err(broken)?;
        let mut text = format!("INSERT INTO firstcome_deployment (id,number,probe) VALUES (1,{number},");
        self.dialect().bytes(&mut text, &probe);
        text.push_str(&format!(
            ") {};SELECT number,probe FROM firstcome_deployment WHERE id=1;",
            self.dialect().words().unless_there
        ));
        let until = Instant::now() + self.base.options.patience;
        let mut session = self.base.session(until).await?;
        let rows = session.ask(text).await?;
        session.done();
        drop(session);
        // Redis is told whose it is only when nothing can take that back.
        self.base.flush(until).await?;
        let row = rows.first().ok_or_else(|| SqlError::broken("the row of the deployment is not there"))?;
        let mut columns = Reader::at(row, 0);
        let (number, probe) = (columns.integer()?, columns.maybe_blob()?.unwrap_or_default());
        if self.secret.unwrap(&probe, PLACE) != Some(PROBE) {
            return Err(other_secret());
        }
        Ok(number)
    }
}

impl Database {
    /// Whether the database answers. One round trip.
    pub(crate) async fn answers(&self) -> Result<(), SqlError> {
        let mut session = self.base.session(Instant::now() + self.base.options.connections.answer_timeout).await?;
        session.ask("SELECT number FROM firstcome_deployment WHERE id=1;".to_owned()).await?;
        session.done();
        Ok(())
    }
}

/// What there is of a deployment. Writes nothing.
pub(crate) async fn deployed(base: &Base, secret: Option<&DeploymentSecret>) -> Result<Deployment, SqlError> {
    let rows = base.read("SELECT number,probe FROM firstcome_deployment WHERE id=1;".to_owned()).await?;
    let (mut number, mut is_secret_right, mut is_rewrap_due) = (None, None, None);
    if let Some(row) = rows.first() {
        let mut columns = Reader::at(row, 0);
        number = Some(columns.integer()?);
        let probe = columns.maybe_blob()?.unwrap_or_default();
        let opened = secret.map(|secret| secret.unwrap_by(&probe, PLACE).filter(|(opened, _)| *opened == PROBE));
        is_secret_right = opened.map(|opened| opened.is_some());
        is_rewrap_due = opened.map(|opened| opened.is_some_and(|(_, by)| by == OpenedBy::Fallback));
    }
    let (early_coupon, dead_letters) = (early_coupon(base).await?, dead_letter_counts(base).await?);
    Ok(Deployment { number, is_secret_right, is_rewrap_due, early_coupon, dead_letters })
}

/// What is said where something was wrapped by another secret.
pub(super) fn other_secret() -> SqlError {
    SqlError::broken(
        "the secrets in it were wrapped by another secret than FIRSTCOME_SECRET: give this node the one that the others have",
    )
}
