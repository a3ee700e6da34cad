//! Chains the records of a renamed member again, a page in each transaction.
//!
//! An erasure changes the name, and the first page with it, and ends the keys of bids. What is left is a row of `firstcome_renaming`, until the last page is done: by
//! the erasure itself, by the same erasure again, or by the next purge. A page locks the member's row, as every batch does that moves
//! its points, so two nodes that go on with one member wait for each other, and each begins where the other one ended.

use super::database::AuctionDatabase;
use super::dialect::{put_anchor, put_renaming, tag};
use super::load::{self, RENAMING_COLUMNS};
use crate::SqlError;
use crate::base::{Pause, ROLL_BACK, Session, is_passing};
use crate::dialect::{list, quoted};
use crate::reader::Reader;
use firstcome_core::id::MemberName;
use firstcome_core::points::{Record, Wallet};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::time::Instant;

/// Records whose chain one statement writes, and so one page; and keys that one statement removes.
const PAGE_RECORDS: usize = 500;

impl AuctionDatabase {
    /// Chains all records again that are left: of members that had this name, or of all. A member whose rows are damaged holds up no
    /// other one; its error comes at the end.
    pub(super) async fn chain_again(&self, of: Option<&MemberName>) -> Result<(), SqlError> {
        let (mut after, mut damage) = (i64::MIN, Ok(()));
        loop {
            let mut text = format!("SELECT member FROM firstcome_renaming WHERE member>{after}");
            if let Some(name) = of {
                text.push_str(" AND name=");
                quoted(&mut text, name.as_str());
            }
            text.push_str(" ORDER BY member LIMIT 1;");
            let rows = self.read(text).await?;
            let Some(row) = rows.first() else { return damage };
            after = Reader::at(row, 0).integer()?;
            match self.chain_member_again(after).await {
                Err(error @ SqlError::Broken { .. }) => damage = damage.and(Err(error)),
                done => done?,
            }
        }
    }

    /// Chains all records of a member again, page by page.
    async fn chain_member_again(&self, id: i64) -> Result<(), SqlError> {
        loop {
            let (until, mut pause) = (Instant::now() + self.options.patience, Pause::new());
            let is_whole = loop {
                match self.chain_page_again(id, until).await {
                    Err(error) if is_passing(&error) && pause.again(until).await => {}
                    done => break done?,
                }
            };
            if is_whole {
                return Ok(());
            }
        }
    }

    /// Chains one page again. Returns whether none is left.
    async fn chain_page_again(&self, id: i64, until: Instant) -> Result<bool, SqlError> {
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
            self.end(session, ROLL_BACK).await?;
            return Ok(true);
        };
        let renaming = load::renaming_of(&mut Reader::at(row, 0))?;
        let anchor = self.anchor(&mut session, id).await?.map(Arc::new);
        let mut wallet = Wallet { renaming, anchor, ..wallet };
        // An earlier program may have removed records beyond the mark.
        let skips = wallet.skip_removed();
        let mut text = self.renamed_page(&mut session, id, &mut wallet).await?;
        if let Some(anchor) = wallet.anchor.as_ref().filter(|_| skips) {
            put_anchor(self.dialect, &mut text, id, anchor);
        }
        session.run(text).await?;
        // Another connection may have shown meanwhile that the database went back.
        self.watch.allow()?;
        session.commit(self.options.connections.answer_timeout).await?;
        Ok(wallet.renaming.is_none())
    }

    /// Reads the next page of a renamed member whose row is locked, and chains it again in the wallet. Returns the statements that
    /// write the page, the wallet's name and chain, and what is left.
    pub(super) async fn renamed_page(
        &self,
        session: &mut Session,
        id: i64,
        wallet: &mut Wallet,
    ) -> Result<String, SqlError> {
        let mut text = String::new();
        if let Some(after) = wallet.renaming.as_ref().map(|renaming| renaming.done) {
            let records = page_after(session, id, wallet, after).await?;
            let chains = wallet.chain_again(records).map_err(|damage| {
                SqlError::broken(format!("member {id}, records after {after}: {}", damage.as_str()))
            })?;
            let (first, last) = (after + 1, after + chains.len() as u64);
            text.push_str("UPDATE firstcome_record SET chain=CASE number");
            for (number, chain) in (first..).zip(&chains) {
                let _ = write!(text, " WHEN {number} THEN ");
                self.dialect.bytes(&mut text, &chain.0);
            }
            let _ = write!(text, " ELSE chain END WHERE member={id} AND number BETWEEN {first} AND {last};");
        }
        self.remove_keys_of_points(session, id, wallet, &mut text).await?;
        text.push_str("UPDATE firstcome_member SET name=");
        quoted(&mut text, wallet.member.as_str());
        text.push_str(",chain=");
        self.dialect.bytes(&mut text, &wallet.chain.0);
        let _ = write!(text, " WHERE id={id};");
        put_renaming(self.dialect, &mut text, id, wallet.renaming.as_deref());
        Ok(text)
    }

    /// Removes a page of the keys of charges and refunds; with the last page of records all that are left. A new member of the name has
    /// another number, so none of these keys is one of its own.
    async fn remove_keys_of_points(
        &self,
        session: &mut Session,
        id: i64,
        wallet: &Wallet,
        text: &mut String,
    ) -> Result<(), SqlError> {
        let of_member = format!("kind=2 AND scope={id}");
        if wallet.renaming.is_none() {
            let _ = write!(text, "DELETE FROM firstcome_request WHERE {of_member};");
            return Ok(());
        }
        let rows = format!("SELECT request FROM firstcome_request WHERE {of_member} LIMIT {PAGE_RECORDS};");
        let rows = session.ask(rows).await?;
        let keys = rows.iter().map(|row| Reader::at(row, 0).key()).collect::<Result<Vec<_>, _>>()?;
        if !keys.is_empty() {
            let keys = list(&keys, |text, key| self.dialect.bytes(text, &key.to_be_bytes()));
            let _ = write!(text, "DELETE FROM firstcome_request WHERE {of_member} AND request IN ({keys});");
        }
        Ok(())
    }

    /// Removes the keys of all bids of a member: a key of a bid is known by the listing alone, and a new member of the name may use it
    /// again. Reads all keys of bids.
    pub(super) async fn remove_keys_of_bids(
        &self,
        session: &mut Session,
        id: i64,
        text: &mut String,
    ) -> Result<(), SqlError> {
        let rows = format!(
            "SELECT q.scope,q.request FROM firstcome_request q \
             JOIN firstcome_bid b ON b.listing=q.scope AND b.number=q.number WHERE q.kind=1 AND b.member={id};"
        );
        let rows = session.ask(rows).await?;
        for page in rows.chunks(PAGE_RECORDS) {
            let keys = page.iter().map(|row| Ok((Reader::at(row, 0).integer()?, Reader::at(row, 1).key()?)));
            let keys = keys.collect::<Result<Vec<_>, SqlError>>()?;
            let keys = list(&keys, |text, (listing, key)| {
                let _ = write!(text, "({listing},");
                self.dialect.bytes(text, &key.to_be_bytes());
                text.push(')');
            });
            let _ = write!(text, "DELETE FROM firstcome_request WHERE kind=1 AND (scope,request) IN ({keys});");
        }
        Ok(())
    }
}

/// Reads the records of a member after a number, a page of them.
async fn page_after(session: &mut Session, id: i64, wallet: &Wallet, after: u64) -> Result<Vec<Record>, SqlError> {
    let text = format!(
        "SELECT {},r.number,r.kind,r.amount,l.name,r.bid,r.at,r.total,r.held,r.chain \
         FROM firstcome_record r LEFT JOIN firstcome_listing l ON l.id=r.listing \
         WHERE r.member={id} AND r.number>{after} ORDER BY r.number LIMIT {PAGE_RECORDS};",
        tag::RECORD
    );
    session.ask(text).await?.iter().map(|row| load::record(row, &wallet.member)).collect()
}
