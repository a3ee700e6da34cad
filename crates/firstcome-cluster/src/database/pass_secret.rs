//! Reads and writes the secrets that sign passes.

use super::Database;
use super::room::pass_place;
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::base::{ROLL_BACK, Session};
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::Reader;
use firstcome_store::edge::draw_secret;
use firstcome_store::embedded::journal::{PassSecret, PassSecretRevocation};
use std::fmt::Write as _;
use tokio::time::Instant;

impl Database {
    /// The secrets that sign passes, the newest last.
    pub(crate) async fn pass_secrets(&self) -> Result<Vec<PassSecret>, SqlError> {
        let rows =
            self.base.read("SELECT id,secret,created_at FROM firstcome_pass_secret ORDER BY id;".to_owned()).await?;
        rows.iter().map(|row| self.pass_secret_of(row)).collect()
    }

    pub(super) fn pass_secret_of(&self, row: &Row) -> Result<PassSecret, SqlError> {
        let mut columns = Reader::at(row, 0);
        let id = columns.small()?;
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        let bytes = self.secret.unwrap(&wrapped, &pass_place(id.into())).ok_or_else(super::deployment::other_secret)?;
        Ok(PassSecret { id, bytes, created_at: columns.instant()? })
    }

    /// Adds a secret that signs from now on, and forgets those whose last pass has ended `alive_us` after the next one came.
    pub(crate) async fn rotate_pass_secret(&self, alive_us: i64) -> Result<PassSecret, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_rotate_pass_secret(alive_us, attempts.until).await {
                // Another node may have added one just now.
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_rotate_pass_secret(&self, alive_us: i64, until: Instant) -> Result<PassSecret, SqlError> {
        let mut session = self.base.session(until).await?;
        let (secrets, now) = self.locked_pass_secrets(&mut session).await?;
        let (fresh, mut text) = self.next_pass_secret(&secrets, now)?;
        // A secret was in use until the next one came; its last pass ends at most one longest slot after that.
        let ended = |next: &&PassSecret| next.created_at.as_us().saturating_add(alive_us) < now.as_us();
        if let Some(kept) = secrets.iter().skip(1).take_while(ended).last() {
            let _ = write!(text, "DELETE FROM firstcome_pass_secret WHERE id<{};", kept.id);
        }
        session.run(text).await?;
        self.commit(session).await?;
        Ok(fresh)
    }

    /// Deletes a secret, and adds one that signs from now on if the deleted one did.
    pub(crate) async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_revoke_pass_secret(id, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_revoke_pass_secret(&self, id: u32, until: Instant) -> Result<PassSecretRevocation, SqlError> {
        let mut session = self.base.session(until).await?;
        let (secrets, now) = self.locked_pass_secrets(&mut session).await?;
        let revocation = PassSecretRevocation::of(id, &secrets);
        if revocation != PassSecretRevocation::Revoked {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(revocation);
        }
        let mut text = String::new();
        if secrets.last().is_some_and(|newest| newest.id == id) {
            text = self.next_pass_secret(&secrets, now)?.1;
        }
        let _ = write!(text, "DELETE FROM firstcome_pass_secret WHERE id={id};");
        session.run(text).await?;
        self.commit(session).await?;
        Ok(revocation)
    }

    /// Begins a transaction, locks the secrets, and returns them with the time.
    async fn locked_pass_secrets(&self, session: &mut Session) -> Result<(Vec<PassSecret>, Timestamp), SqlError> {
        let text = format!(
            "{}SELECT id,secret,created_at FROM firstcome_pass_secret ORDER BY id FOR UPDATE;SELECT 0,{};",
            self.dialect().words().begin,
            self.clock()
        );
        let mut rows = session.ask(text).await?;
        let now = rows.pop().ok_or_else(super::coupon::gone)?;
        let now = Reader::at(&now, 1).instant()?;
        Ok((rows.iter().map(|row| self.pass_secret_of(row)).collect::<Result<_, _>>()?, now))
    }

    /// Draws the secret after these, and writes the statement that adds it.
    fn next_pass_secret(&self, secrets: &[PassSecret], now: Timestamp) -> Result<(PassSecret, String), SqlError> {
        let broken = |fault: firstcome_store::Fault| SqlError::broken(fault.to_string());
        let id = secrets.last().map_or(0, |last| last.id) + 1;
        let bytes = draw_secret().map_err(broken)?;
        let mut text = format!("INSERT INTO firstcome_pass_secret (id,secret,created_at) VALUES ({id},");
        self.dialect().bytes(&mut text, &self.secret.wrap(&bytes, &pass_place(id.into())).map_err(broken)?);
        let _ = write!(text, ",{});", now.as_us());
        Ok((PassSecret { id, bytes, created_at: now }, text))
    }
}
