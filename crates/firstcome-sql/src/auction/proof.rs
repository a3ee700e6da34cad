//! What became of a batch whose commit was not answered.
//!
//! Every transaction draws a number, its writer, and leaves it in each record that it makes and in the row of the listing that
//! it changes. That is the only thing which no other transaction can have written: with a clock that fell back, two
//! processes may well make the same record, with the same chain.
//!
//! - Records stay as they are, so the writer of the first one tells in every case, also after later writes.
//! - Settings, and the closing of an auction without bids, leave no record. Then the listing's row tells, unless others have
//!   written it since: that cannot be told from a row that they wrote instead, and the outcome stays unknown.

use super::batch::Judged;
use super::changes::{Changes, ListingChange};
use super::database::AuctionDatabase;
use super::dialect::{RequestScope, lock};
use crate::SqlError;
use crate::base::ROLL_BACK;
use crate::dialect::{Row, quoted};
use crate::reader::Reader;
use crate::watch::AcknowledgedCommit;
use firstcome_store::edge::draw_id;
use tokio::time::Instant;

/// A batch whose commit was not answered.
pub(super) struct Pending {
    pub(super) judged: Judged,
    /// What shows that it was committed, and [`crate::watch::Watch::looks`] before it.
    pub(super) told: Option<(AcknowledgedCommit, u64)>,
    writer: i64,
    trace: Option<Trace>,
}

/// Where a batch leaves its writer.
enum Trace {
    /// In a record. `scope` is what the batch had locked.
    Record { scope: RequestScope, member: i64, number: u64 },
    /// In the row of a listing, as that version.
    Listing { id: i64, version: u64 },
    /// In the row of a listing that was to be made.
    New(Box<ListingChange>),
}

impl Trace {
    fn of(scope: RequestScope, changes: Changes) -> Option<Self> {
        if let Some(row) = changes.records.first() {
            return Some(Self::Record { scope, member: row.member, number: row.record.number });
        }
        let change = changes.listing?;
        let version = change.listing.standing().version;
        Some(match change.before {
            Some(before) => Self::Listing { id: before.id, version },
            None => Self::New(Box::new(change)),
        })
    }
}

/// A number that no other transaction has, and not 0.
pub(super) fn draw_writer() -> Result<i64, SqlError> {
    let drawn = draw_id().map_err(|fault| SqlError::broken(fault.to_string()))?;
    Ok(((drawn >> 1) | 1).cast_signed())
}

impl Pending {
    pub(super) fn new(judged: Judged, scope: RequestScope, changes: Changes, looks: u64) -> Self {
        let writer = changes.writer;
        Self { judged, told: changes.told().map(|told| (told, looks)), writer, trace: Trace::of(scope, changes) }
    }

    /// What the row of a listing tells: it has this writer, and the batch was to write that version.
    fn of_row(&self, row: Option<(u64, i64)>, version: u64) -> Option<bool> {
        match row {
            Some((_, writer)) if writer == self.writer => Some(true),
            // Versions only rise, each with the writer of the last change.
            Some((there, _)) if there <= version => Some(false),
            None => Some(false),
            Some(_) => None,
        }
    }
}

impl AuctionDatabase {
    /// Finds out whether a batch was committed; `None` if nothing tells that, an error if it cannot be looked up now.
    ///
    /// Waits for the row that the batch had locked, or for its name: a caller that gets it knows that the batch is over, in one way
    /// or the other. Its success is told only after a commit of our own: where commits wait for other servers this one
    /// waits too, and with it all before it, also those whose own wait has ended with the server.
    pub(super) async fn look(&self, pending: &Pending, until: Instant) -> Result<Option<bool>, SqlError> {
        let Some(trace) = &pending.trace else { return Ok(None) };
        let mut session = self.session(until).await?;
        let found = match trace {
            Trace::Record { scope, member, number } => {
                session.ask(lock(self.dialect, *scope)).await?;
                let text = format!("SELECT 0,writer FROM firstcome_record WHERE member={member} AND number={number};");
                let rows = session.ask(text).await?;
                let writer = rows.first().map(|row| Reader::at(row, 1).integer()).transpose()?;
                Some(writer == Some(pending.writer))
            }
            Trace::Listing { id, version } => {
                let rows = session.ask(lock(self.dialect, RequestScope::Listing(*id))).await?;
                pending.of_row(rows.first().map(version_and_writer).transpose()?, *version)
            }
            Trace::New(change) => {
                // A caller that makes the same name waits until the batch is over. No transaction has drawn 0.
                let mut text = self.dialect.words().begin.to_owned();
                change.insert(&mut text, 0);
                text.push_str(&format!(
                    " {};SELECT 0,version,writer FROM firstcome_listing WHERE name=",
                    self.dialect.words().unless_there
                ));
                quoted(&mut text, change.listing.standing().name.as_str());
                text.push_str(" FOR UPDATE;");
                let rows = session.ask(text).await?;
                let row = rows.first().map(version_and_writer).transpose()?;
                pending.of_row(row, change.listing.standing().version)
            }
        };
        self.end(session, if found == Some(true) { "COMMIT;" } else { ROLL_BACK }).await?;
        Ok(found)
    }
}

fn version_and_writer(row: &Row) -> Result<(u64, i64), SqlError> {
    let mut columns = Reader::at(row, 1);
    Ok((columns.count()?, columns.integer()?))
}
