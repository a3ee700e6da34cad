//! Rows of how the pages of rooms look.

use super::Database;
use firstcome_core::room::appearance::Appearance;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Dialect;
use firstcome_sql::reader::{Reader, wrong};
use std::fmt::Write as _;
use tokio::time::Instant;

/// What the database has of the appearance of a room.
pub(crate) enum AppearanceRow {
    /// Nothing.
    Absent,
    /// The version that the caller knows.
    Known,
    /// Another version.
    Other(i64, Appearance),
}

/// What reads an appearance, or only that its version is the known one.
fn select(room: i64, known: i64) -> String {
    format!(
        "SELECT version,CASE WHEN version={known} THEN NULL ELSE appearance END FROM firstcome_appearance WHERE room={room};"
    )
}

impl Database {
    /// Reads how the page of a room looks, if it is not the `known` version.
    pub(crate) async fn appearance(&self, room: i64, known: i64) -> Result<AppearanceRow, SqlError> {
        let rows = self.base.read(select(room, known)).await?;
        let Some(row) = rows.first() else { return Ok(AppearanceRow::Absent) };
        let mut columns = Reader::at(row, 0);
        let version = columns.integer()?;
        let Some(bytes) = columns.maybe_blob()? else { return Ok(AppearanceRow::Known) };
        Ok(AppearanceRow::Other(version, Appearance::decode(&bytes).map_err(|_| wrong("an appearance that is none"))?))
    }

    /// What reads the appearance of a room, whichever version it has.
    pub(crate) fn appearance_of(room: i64) -> String {
        format!("SELECT appearance FROM firstcome_appearance WHERE room={room};")
    }

    /// What replaces how the page of a room looks.
    pub(crate) fn write_appearance(&self, room: i64, version: i64, appearance: &Appearance) -> String {
        let mut text = format!("INSERT INTO firstcome_appearance (room,version,appearance) VALUES ({room},{version},");
        self.dialect().bytes(&mut text, &appearance.encode());
        let _ = match self.dialect() {
            Dialect::Postgres => write!(
                text,
                ") ON CONFLICT (room) DO UPDATE SET version=excluded.version,appearance=excluded.appearance;"
            ),
            Dialect::MySql => {
                write!(text, ") ON DUPLICATE KEY UPDATE version=VALUES(version),appearance=VALUES(appearance);")
            }
        };
        text
    }

    /// Replaces how the page of a room looks. It is on disk when this returns. `version` must be another one each time.
    pub(crate) async fn put_appearance(
        &self,
        room: i64,
        version: i64,
        appearance: &Appearance,
    ) -> Result<(), SqlError> {
        let text = self.write_appearance(room, version, appearance);
        let mut attempts = self.attempts();
        loop {
            match self.try_put_appearance(&text, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_put_appearance(&self, text: &str, until: Instant) -> Result<(), SqlError> {
        let mut session = self.base.session(until).await?;
        session.run(text.to_owned()).await?;
        session.done();
        drop(session);
        self.base.flush(until).await
    }
}
