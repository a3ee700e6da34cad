//! Removes the first records of members, and puts an anchor in their place.
//!
//! One page is one transaction: it locks the member's row, as every batch does that moves its points, reads the anchor and the first
//! records, and writes the next anchor as it deletes them. Two nodes that purge at once wait for each other, and the second one finds
//! the anchor of the first. The keys of requests that name removed records go with them, since a repeat would look for its record.

use super::super::database::AuctionDatabase;
use super::super::dialect::{RequestScope, lock, put_anchor, tag};
use super::super::load::{self, ANCHOR_COLUMNS};
use super::{PAUSE_MAX, PAUSE_MIN};
use crate::SqlError;
use crate::base::{Pause, ROLL_BACK, Session, is_passing};
use crate::reader::Reader;
use firstcome_core::id::MemberName;
use firstcome_core::points::{Anchor, Record};
use firstcome_core::time::Timestamp;
use firstcome_store::edge::Stopwatch;
use firstcome_store::purge::{PAGE_ROWS_MAX, PurgeMode};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use tokio::time::{Instant, sleep};

/// How many records go at once: with as many keys they are one page.
const RECORDS_MAX: usize = PAGE_ROWS_MAX / 2;

/// The first records of a member.
struct FirstRecords {
    /// The number of the last record of all.
    last: u64,
    anchor: Anchor,
    records: Vec<Record>,
    /// Numbers of those that are holds of bids which may still win.
    open: BTreeSet<u64>,
    /// Whether some are chained under an erased name: none goes until all are chained again.
    is_renaming: bool,
}

impl FirstRecords {
    fn next_anchor(&self, since: Timestamp) -> Option<Anchor> {
        // A hold is about one bid, and has the number of one record.
        let open: Vec<_> = self.records.iter().filter(|record| self.open.contains(&record.number)).collect();
        let holds = |about: &_| open.iter().any(|record| record.about.as_ref() == Some(about));
        self.anchor.advanced(self.last, &self.records, since, holds)
    }
}

impl AuctionDatabase {
    /// Removes records before `since`, or counts them.
    pub(super) async fn purge_records(&self, since: Timestamp, mode: PurgeMode) -> Result<u64, SqlError> {
        let (mut count, mut after) = (0, i64::MIN);
        loop {
            let (members, last) = self.with_old_records(after, since).await?;
            for member in members {
                count += self.purge_records_of(member, since, mode).await?;
            }
            let Some(last) = last else { return Ok(count) };
            after = last;
        }
    }

    /// Those of a page of members whose first record is old, and the last member of that page.
    async fn with_old_records(
        &self,
        after: i64,
        since: Timestamp,
    ) -> Result<(Vec<(i64, MemberName)>, Option<i64>), SqlError> {
        let text = format!(
            "SELECT m.id,m.name,r.at FROM \
             (SELECT id,name,records FROM firstcome_member WHERE id>{after} ORDER BY id LIMIT {PAGE_ROWS_MAX}) m \
             LEFT JOIN firstcome_anchor a ON a.member=m.id \
             LEFT JOIN firstcome_record r ON r.member=m.id AND r.number=COALESCE(a.number,0)+1 AND r.number<m.records \
             ORDER BY m.id;"
        );
        let (mut found, mut last) = (Vec::new(), None);
        for row in &self.read(text).await? {
            let mut columns = Reader::at(row, 0);
            let (id, member) = (columns.integer()?, columns.member()?);
            if columns.maybe_instant()?.is_some_and(|at| at < since) {
                found.push((id, member));
            }
            last = Some(id);
        }
        Ok((found, last))
    }

    async fn purge_records_of(
        &self,
        (id, member): (i64, MemberName),
        since: Timestamp,
        mode: PurgeMode,
    ) -> Result<u64, SqlError> {
        let (mut count, mut counted) = (0, None);
        loop {
            let begun = Stopwatch::start();
            let (until, mut pause) = (Instant::now() + self.options.patience, Pause::new());
            let page = loop {
                match self.records_page(id, &member, since, mode, counted, until).await {
                    Err(error) if is_passing(&error) && pause.again(until).await => {}
                    page => break page?,
                }
            };
            let Some((before, anchor)) = page else { return Ok(count) };
            count += anchor.number - before;
            counted = Some(anchor);
            sleep(begun.elapsed().clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    /// One page: the numbers of the anchor before it, and the anchor after it. `counted` takes the place of the stored anchor when
    /// records are only counted.
    async fn records_page(
        &self,
        id: i64,
        member: &MemberName,
        since: Timestamp,
        mode: PurgeMode,
        counted: Option<Anchor>,
        until: Instant,
    ) -> Result<Option<(u64, Anchor)>, SqlError> {
        let mut session = self.session(until).await?;
        let counted = counted.filter(|_| mode == PurgeMode::Count);
        let first = self.first_records(&mut session, id, member, counted).await?;
        let next = first.next_anchor(since).filter(|_| !first.is_renaming);
        let Some(anchor) = next.filter(|_| mode == PurgeMode::Remove) else {
            self.end(session, ROLL_BACK).await?;
            return Ok(next.map(|anchor| (first.anchor.number, anchor)));
        };
        let (to, (kind, scope)) = (anchor.number, RequestScope::Member(id).parts());
        let mut text = format!(
            "DELETE FROM firstcome_record WHERE member={id} AND number<={to};\
             DELETE FROM firstcome_request WHERE kind={kind} AND scope={scope} AND number<={to};"
        );
        put_anchor(self.dialect, &mut text, id, &anchor);
        session.run(text).await?;
        // Another connection may have shown meanwhile that the database went back.
        self.watch.allow()?;
        session.commit(self.options.connections.answer_timeout).await?;
        Ok(Some((first.anchor.number, anchor)))
    }

    /// Begins a transaction, locks a member, and reads its first records.
    async fn first_records(
        &self,
        session: &mut Session,
        id: i64,
        member: &MemberName,
        counted: Option<Anchor>,
    ) -> Result<FirstRecords, SqlError> {
        let rows = session.ask(lock(self.dialect, RequestScope::Member(id))).await?;
        let text = format!("SELECT member FROM firstcome_renaming WHERE member={id};");
        let is_renaming = !session.ask(text).await?.is_empty();
        let last = rows.first().map(|row| Reader::at(row, 1).count()).transpose()?.unwrap_or_default();
        let anchor = match counted {
            Some(anchor) => anchor,
            None => self.anchor(session, id).await?.unwrap_or(Anchor::START),
        };
        let mut text = String::new();
        let _ = write!(
            text,
            "SELECT {},r.number,r.kind,r.amount,l.name,r.bid,r.at,r.total,r.held,r.chain,\
             CASE WHEN r.kind=3 AND (l.id IS NULL OR l.phase IN (0,1) AND l.bids<=r.bid) THEN 1 ELSE 0 END \
             FROM firstcome_record r LEFT JOIN firstcome_listing l ON l.id=r.listing \
             WHERE r.member={id} AND r.number>{} ORDER BY r.number LIMIT {RECORDS_MAX};",
            tag::RECORD,
            anchor.number
        );
        let (mut records, mut open) = (Vec::new(), BTreeSet::new());
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 1);
            let record = load::record_of(&mut columns, member, Reader::maybe_listing)?;
            if columns.integer()? == 1 {
                open.insert(record.number);
            }
            records.push(record);
        }
        Ok(FirstRecords { last, anchor, records, open, is_renaming })
    }

    /// The anchor of a member, if it has one.
    pub(in super::super) async fn anchor(&self, session: &mut Session, id: i64) -> Result<Option<Anchor>, SqlError> {
        let text = format!("SELECT {ANCHOR_COLUMNS} FROM firstcome_anchor a WHERE a.member={id};");
        let rows = session.ask(text).await?;
        let anchor = rows.first().map(|row| load::anchor_of(&mut Reader::at(row, 0))).transpose()?;
        Ok(anchor.flatten().as_deref().copied())
    }
}
