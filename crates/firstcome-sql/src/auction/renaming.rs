//! Chains the records of a renamed member again, a page in each transaction.
//!
//! An erasure changes the name, and the first page with it. What is left is a row of `firstcome_renaming`, until the last page is done: by
//! the erasure itself, by the same erasure again, or by the next purge. A page locks the member's row, as every batch does that moves
//! its points, so two nodes that go on with one member wait for each other, and each begins where the other one ended.

use super::database::AuctionDatabase;
use super::dialect::{put_renaming, tag};
use super::load::{self, RENAMING_COLUMNS};
use crate::SqlError;
use crate::base::{Pause, ROLL_BACK, Session, is_passing};
use crate::dialect::quoted;
use crate::reader::Reader;
use firstcome_core::id::MemberName;
use firstcome_core::points::Wallet;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::time::Instant;

/// Records whose chain one statement writes, and so one page.
const PAGE_RECORDS: usize = 500;

impl AuctionDatabase {
    /// Chains all records again that are left: of members that had this name, or of all.
    pub(super) async fn chain_again(&self, of: Option<&MemberName>) -> Result<(), SqlError> {
        let mut text = "SELECT member FROM firstcome_renaming".to_owned();
        if let Some(name) = of {
            text.push_str(" WHERE name=");
            quoted(&mut text, name.as_str());
        }
        text.push_str(" ORDER BY member LIMIT 1;");
        while let Some(row) = self.read(text.clone()).await?.first() {
            let id = Reader::at(row, 0).integer()?;
            let (until, mut pause) = (Instant::now() + self.options.patience, Pause::new());
            loop {
                match self.chain_page_again(id, until).await {
                    Err(error) if is_passing(&error) && pause.again(until).await => {}
                    done => break done?,
                }
            }
        }
        Ok(())
    }

    async fn chain_page_again(&self, id: i64, until: Instant) -> Result<(), SqlError> {
        let mut session = self.session(until).await?;
        let mut text = self.dialect.words().begin.to_owned();
        let _ = write!(
            text,
            "SELECT {},id,name,total,held,records,last_at,chain FROM firstcome_member WHERE id={id} FOR UPDATE;",
            tag::WALLET
        );
        let rows = session.ask(text).await?;
        let (_, wallet) = load::wallet(rows.first().ok_or_else(|| SqlError::broken("a renamed member is not there"))?)?;
        let text = format!("SELECT {RENAMING_COLUMNS} FROM firstcome_renaming n WHERE n.member={id};");
        let rows = session.ask(text).await?;
        let Some(row) = rows.first() else {
            // Another node has done the last page.
            return self.end(session, ROLL_BACK).await;
        };
        let renaming = load::renaming_of(&mut Reader::at(row, 0))?;
        let anchor = self.anchor(&mut session, id).await?.map(Arc::new);
        let mut wallet = Wallet { renaming, anchor, ..wallet };
        let text = self.renamed_page(&mut session, id, &mut wallet).await?;
        session.run(text).await?;
        // Another connection may have shown meanwhile that the database went back.
        self.watch.allow()?;
        session.commit(self.options.connections.answer_timeout).await
    }

    /// Reads the next page of a renamed member whose row is locked, and chains it again in the wallet. Returns the statements that
    /// write the page, the wallet's name and chain, and what is left.
    pub(super) async fn renamed_page(
        &self,
        session: &mut Session,
        id: i64,
        wallet: &mut Wallet,
    ) -> Result<String, SqlError> {
        let after = wallet.renaming.as_ref().map_or(wallet.records, |renaming| renaming.done);
        let text = format!(
            "SELECT {},r.number,r.kind,r.amount,l.name,r.bid,r.at,r.total,r.held,r.chain,r.listing \
             FROM firstcome_record r LEFT JOIN firstcome_listing l ON l.id=r.listing \
             WHERE r.member={id} AND r.number>{after} ORDER BY r.number LIMIT {PAGE_RECORDS};",
            tag::RECORD
        );
        let (mut records, mut bids) = (Vec::new(), BTreeSet::new());
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 1);
            let record = load::record_of(&mut columns, &wallet.member, Reader::maybe_listing)?;
            let about = record.about.as_ref().and_then(|about| about.bid);
            bids.extend(columns.maybe_integer()?.zip(about));
            records.push(record);
        }
        let is_next = (after + 1..).zip(&records).all(|(number, record)| record.number == number);
        if !is_next || records.is_empty() || wallet.records < after + records.len() as u64 {
            return Err(SqlError::broken(format!("member {id} lacks records after {after}, or has too many")));
        }
        let chains = wallet.chain_again(records);
        let (first, last) = (after + 1, after + chains.len() as u64);
        let mut text = "UPDATE firstcome_record SET chain=CASE number".to_owned();
        for (number, chain) in (first..).zip(&chains) {
            let _ = write!(text, " WHEN {number} THEN ");
            self.dialect.bytes(&mut text, &chain.0);
        }
        let _ = write!(
            text,
            " ELSE chain END WHERE member={id} AND number BETWEEN {first} AND {last};\
             DELETE FROM firstcome_request WHERE kind=2 AND scope={id} AND number BETWEEN {first} AND {last};\
             UPDATE firstcome_member SET name="
        );
        quoted(&mut text, wallet.member.as_str());
        text.push_str(",chain=");
        self.dialect.bytes(&mut text, &wallet.chain.0);
        let _ = write!(text, " WHERE id={id};");
        put_renaming(self.dialect, &mut text, id, wallet.renaming.as_deref());
        if wallet.renaming.is_none() && wallet.anchor.is_some() {
            bids.extend(keyed_bids(session, id).await?);
        }
        for (listing, bid) in bids {
            let _ = write!(text, "DELETE FROM firstcome_request WHERE kind=1 AND scope={listing} AND number={bid};");
        }
        Ok(text)
    }
}

/// Finds the bids of a member that have an idempotency key, where the records that would tell are removed. Reads all keys of bids.
async fn keyed_bids(session: &mut Session, id: i64) -> Result<Vec<(i64, u32)>, SqlError> {
    let text = format!(
        "SELECT b.listing,b.number FROM firstcome_request q JOIN firstcome_bid b ON b.listing=q.scope AND b.number=q.number \
         WHERE q.kind=1 AND b.member={id};"
    );
    let read = |row| {
        let mut columns = Reader::at(row, 0);
        Ok((columns.integer()?, columns.small()?))
    };
    session.ask(text).await?.iter().map(read).collect()
}
