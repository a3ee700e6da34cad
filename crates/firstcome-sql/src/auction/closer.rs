//! Closes auctions by time, without anybody's call. Every process does it; each auction is closed once, since all go
//! through the same transaction, which sees that it is closed.

use super::database::AuctionDatabase;
use super::dialect::tag;
use super::judge::Command;
use super::queues::Scope;
use crate::SqlError;
use crate::reader::Reader;
use crate::watch::{LOOK_EVERY, LOOK_EVERY_WHILE_BACK};
use firstcome_core::id::ListingName;
use firstcome_store::StoreError;
use firstcome_store::edge::draw_pause;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The longest time between two looks: an auction that another process has put is closed so late at most, and by
/// [`CLOSE_MAX`] more while another one cannot be closed.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The shortest one.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// Auctions closed at once, and read at once.
const CLOSE_AT_ONCE: usize = 64;
/// How long one auction is waited for between two looks. It is tried again with the next one, and closed meanwhile if its turn
/// comes.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// A listing that is due, and where it stands among those.
struct Due {
    name: ListingName,
    due_at: i64,
    id: i64,
}

impl AuctionDatabase {
    /// Closes what is due until nothing is, and says when the next one will be, if it is known. Waits for each listing so long
    /// at most, and as long as any command may wait.
    ///
    /// An error is told after all others that are due were closed: one listing that is locked, or damaged, holds up no other caller.
    pub(super) async fn close_due(self: &Arc<Self>, each_max: Duration) -> Result<Option<Duration>, StoreError> {
        loop {
            // What is closed now may already be due again.
            if let (false, next) = self.close_each_due(each_max).await? {
                return Ok(next);
            }
        }
    }

    /// Closes everything that is due, each once. Says whether there was anything, and when the next one will be.
    async fn close_each_due(self: &Arc<Self>, each_max: Duration) -> Result<(bool, Option<Duration>), StoreError> {
        let mut closing = JoinSet::new();
        let mut page = VecDeque::new();
        let (mut last, mut any, mut next, mut is_end) = (None, false, None, false);
        let mut first_error = None;
        loop {
            if page.is_empty() && !is_end {
                let (due, then) = self.due(last.as_ref()).await?;
                (page, next, is_end) = (due.into(), then, then.is_some());
                is_end |= page.is_empty();
            }
            if closing.len() < CLOSE_AT_ONCE
                && let Some(due) = page.pop_front()
            {
                let (database, scope) = (Arc::clone(self), Scope::Listing(due.name.clone()));
                closing.spawn(async move { timeout(each_max, database.command(scope, Command::Advance)).await });
                (last, any) = (Some(due), true);
                continue;
            }
            let Some(closed) = closing.join_next().await else { break };
            // A refusal: a caller has taken the listing away.
            let error = match closed {
                Ok(Ok(Ok(_))) => continue,
                Ok(Ok(Err(error))) => error,
                Ok(Err(_)) | Err(_) => StoreError::Unknown,
            };
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok((any, next)), Err)
    }

    /// Some of the listings that are due, after one of them, and how long it is until the next one.
    async fn due(&self, after: Option<&Due>) -> Result<(Vec<Due>, Option<Duration>), StoreError> {
        let after = after.map_or_else(String::new, |Due { due_at, id, .. }| {
            format!(" AND {due_at}<=due_at AND ({due_at}<due_at OR {id}<id)")
        });
        let text = format!(
            "SELECT {},name,due_at,id,(SELECT {}) FROM firstcome_listing WHERE due_at IS NOT NULL{after} \
             ORDER BY due_at,id LIMIT {CLOSE_AT_ONCE};",
            tag::LISTING,
            self.dialect.words().clock
        );
        let rows = self.read(text).await?;
        let mut due = Vec::new();
        for row in &rows {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.and_then(|name| ListingName::parse(&name).ok());
            let name = name.ok_or_else(|| SqlError::broken("a listing without a name"))?;
            let (due_at, id, now) = (columns.integer()?, columns.integer()?, columns.integer()?);
            if now < due_at {
                let left_us = due_at.abs_diff(now);
                return Ok((due, Some(Duration::from_micros(left_us))));
            }
            due.push(Due { name, due_at, id });
        }
        Ok((due, None))
    }
}

/// Looks whether the database lacks what it had acknowledged, until auctions is dropped.
pub(super) async fn keep_looking_back(database: Weak<AuctionDatabase>) {
    loop {
        let Some(database) = database.upgrade() else { return };
        // A database that cannot be reached is seen by the next call that uses it.
        let _ = database.look_back().await;
        let pause = if database.watch.is_back() { LOOK_EVERY_WHILE_BACK } else { LOOK_EVERY };
        drop(database);
        sleep(pause).await;
    }
}

/// Closes what is due, until auctions is dropped.
pub(super) async fn keep_closing(database: Weak<AuctionDatabase>) {
    loop {
        let Some(database) = database.upgrade() else { return };
        // An error is told to the caller that calls; here it is tried again.
        let next = database.close_due(CLOSE_MAX).await.unwrap_or_default();
        let due = Arc::clone(&database.due);
        drop(database);
        let wait = match next {
            Some(next) if next < LOOK_MAX / 2 => next.max(LOOK_MIN),
            // Not all processes at once.
            _ => draw_pause(LOOK_MAX),
        };
        // A new listing may be due earlier.
        let _ = timeout(wait, due.notified()).await;
    }
}
