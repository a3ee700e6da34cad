//! Keeps the secrets that all nodes share.

use super::Database;
use super::deployment::other_secret;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Dialect, list, quoted};
use firstcome_sql::reader::Reader;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// For what a secret is wrapped.
pub(crate) fn place(name: &str) -> String {
    format!("secret:{name}")
}

impl Database {
    /// Keeps each of these values under its name, unless there is one. Returns what is there then, in the same order; it is
    /// on disk. Names are of letters, digits and `. _ : @ -`.
    pub(crate) async fn keep(&self, values: &[(&str, [u8; 32])]) -> Result<Vec<[u8; 32]>, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_keep(values, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                kept => return kept,
            }
        }
    }

    /// Whether there is a value under this name.
    pub(crate) async fn keeps(&self, name: &str) -> Result<bool, SqlError> {
        let mut text = "SELECT name FROM firstcome_secret WHERE name=".to_owned();
        quoted(&mut text, name);
        text.push(';');
        Ok(!self.base.read(text).await?.is_empty())
    }

    async fn try_keep(&self, values: &[(&str, [u8; 32])], until: Instant) -> Result<Vec<[u8; 32]>, SqlError> {
        let mut rows = Vec::with_capacity(values.len());
        for (name, value) in values {
            let wrapped = self.secret.wrap(value, &place(name));
            rows.push((*name, wrapped.map_err(|fault| SqlError::broken(fault.to_string()))?));
        }
        let rows = list(&rows, |text, (name, wrapped)| {
            text.push('(');
            quoted(text, name);
            text.push(',');
            self.dialect().bytes(text, wrapped);
            text.push(')');
        });
        let names = list(values, |text, (name, _)| quoted(text, name));
        // As `unless_there` of the dialect; these rows go by their names.
        let unless_there = match self.dialect() {
            Dialect::Postgres => "ON CONFLICT DO NOTHING",
            Dialect::MySql => "ON DUPLICATE KEY UPDATE name=name",
        };
        // One statement, in one order: a caller that comes second waits for the first row, and then finds all of them.
        let text = format!(
            "INSERT INTO firstcome_secret (name,wrapped) VALUES {rows} {unless_there};\
             SELECT name,wrapped FROM firstcome_secret WHERE name IN ({names});"
        );
        let mut session = self.base.session(until).await?;
        let rows = session.ask(text).await?;
        session.done();
        drop(session);
        self.base.flush(until).await?;
        let mut kept = BTreeMap::new();
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            let name = columns.maybe_text()?.unwrap_or_default();
            let wrapped = columns.maybe_blob()?.unwrap_or_default();
            let value = self.secret.unwrap(&wrapped, &place(&name)).ok_or_else(other_secret)?;
            kept.insert(name, value);
        }
        let there = values.iter().map(|(name, _)| kept.get(*name).copied());
        there
            .collect::<Option<_>>()
            .ok_or_else(|| SqlError::broken("some secrets of the deployment are there, and some are not"))
    }
}
