//! One state of the tables of a database, read page by page, beside those who write. Nothing is written.

use super::SqlError;
use super::dialect::{Connection, Dialect, Row};
use super::reader::Reader;
use std::time::Duration;
use tokio::time::timeout;

/// Rows that are asked for at once.
pub const PAGE: usize = 8_192;
/// How long a page may take: a server that is loaded meanwhile is slow.
const ANSWER: Duration = Duration::from_secs(60);
/// How long an answer may take that goes through all rows of one coupon or room, whose index may be gone.
const ANSWER_OF_ALL: Duration = Duration::from_secs(30 * 60);

/// A connection over which one state is read.
pub struct Reading {
    connection: Connection,
}

firstcome_core::debug_by_name!(Reading);

impl Reading {
    /// Reads over this connection. Each question sees a state of its own until [`Self::begin`].
    pub const fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// What its server speaks.
    pub const fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    /// From now on all questions see the state of the first one.
    pub async fn begin(&mut self) -> Result<(), SqlError> {
        self.ask(self.dialect().words().begin_read_only.to_owned()).await.map(drop)
    }

    /// Ends that state.
    pub async fn end(&mut self) -> Result<(), SqlError> {
        self.ask("COMMIT;".to_owned()).await.map(drop)
    }

    /// Closes the connection.
    pub async fn close(self) {
        // Nothing is left to be lost with it.
        let _ = self.connection.close().await;
    }

    /// Asks, and waits for all rows.
    pub async fn ask(&mut self, text: String) -> Result<Vec<Row>, SqlError> {
        self.ask_within(ANSWER, text).await
    }

    /// The same where the server has to go through all rows of one coupon or room.
    pub async fn ask_of_all(&mut self, text: String) -> Result<Vec<Row>, SqlError> {
        self.ask_within(ANSWER_OF_ALL, text).await
    }

    async fn ask_within(&mut self, limit: Duration, text: String) -> Result<Vec<Row>, SqlError> {
        match timeout(limit, self.connection.lent().ask(text)).await {
            Ok(rows) => rows.map_err(|error| SqlError::in_transaction(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        }
    }

    /// All rows of a table with a number of its own, by it. The first column is that number.
    pub async fn numbered(
        &mut self,
        what: &str,
        mut visit: impl FnMut(i64, &Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut after = i64::MIN;
        loop {
            let rows = self.ask(format!("{what} WHERE id>{after} ORDER BY id LIMIT {PAGE};")).await?;
            for row in &rows {
                after = Reader::at(row, 0).integer()?;
                visit(after, row)?;
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// All rows of a table whose key is two numbers, by it. These are the first columns.
    pub async fn paired(
        &mut self,
        what: &str,
        key: [&str; 2],
        mut visit: impl FnMut(i64, &mut Reader<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let (mut first, mut second) = (i64::MIN, i64::MIN);
        let [one, two] = key;
        loop {
            let after = self.dialect().after(key, first, &second.to_string());
            let rows =
                self.ask(format!("SELECT {one},{what} WHERE {after} ORDER BY {one},{two} LIMIT {PAGE};")).await?;
            for row in &rows {
                let mut columns = Reader::at(row, 0);
                first = columns.integer()?;
                second = Reader::at(row, 1).integer()?;
                visit(first, &mut columns)?;
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }
}
