//! Erases a member: another name in its row and in the listings that name it, a chain of records under that name, and no
//! idempotency key.
//!
//! The first transaction changes the name, with the first page of records; [`renaming`](super::renaming) has the others. It locks the
//! listings that name the member, in the order of their numbers, and then the row of the member, as batches do. What it has not
//! found before it locked is a reason to begin again.

use super::database::AuctionDatabase;
use super::dialect::{self, listing_columns, tag};
use super::load;
use crate::SqlError;
use crate::base::{Pause, ROLL_BACK, Session, is_passing};
use crate::dialect::{list, number, quoted};
use crate::reader::Reader;
use firstcome_core::auction::ListingStanding;
use firstcome_core::erase::{Erased, Rejection, judge};
use firstcome_core::id::MemberName;
use firstcome_core::points::Wallet;
use firstcome_core::time::Timestamp;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::time::Instant;

/// What the transaction has locked.
struct Locked {
    member: i64,
    wallet: Wallet,
    listings: Vec<(i64, ListingStanding)>,
    now: Timestamp,
}

fn name_of(member: &MemberName) -> String {
    let mut text = String::new();
    quoted(&mut text, member.as_str());
    text
}

/// Finds the listings that name a member. Reads all listings.
fn naming(name: &str) -> String {
    format!("SELECT id FROM firstcome_listing WHERE owner={name} OR highest={name} OR buyer={name} ORDER BY id;")
}

impl AuctionDatabase {
    /// Erases a member. Refused as [`judge`] says. [`SqlError::Unknown`]: it may be erased; the same again tells.
    pub(super) async fn erase(
        &self,
        member: &MemberName,
        pseudonym: &MemberName,
    ) -> Result<Result<Erased, Rejection>, SqlError> {
        let (until, mut pause) = (Instant::now() + self.options.patience, Pause::new());
        let erased = loop {
            match self.try_erase(member, pseudonym, until).await {
                Err(error) if is_passing(&error) && pause.again(until).await => {}
                done => break done?,
            }
        };
        // Also those of an erasure before, whose process has ended.
        self.chain_again(Some(member)).await?;
        Ok(erased)
    }

    async fn try_erase(
        &self,
        member: &MemberName,
        pseudonym: &MemberName,
        until: Instant,
    ) -> Result<Result<Erased, Rejection>, SqlError> {
        let mut session = self.session(until).await?;
        let Some(Locked { member: id, wallet, listings, now }) = self.lock_named(&mut session, member).await? else {
            return Ok(Ok(Erased::default()));
        };
        let standings = listings.iter().map(|(_, standing)| standing);
        if let Err(rejection) = judge(member, wallet.balance, standings, now) {
            self.end(session, ROLL_BACK).await?;
            return Ok(Err(rejection));
        }
        let anchor = self.anchor(&mut session, id).await?.map(Arc::new);
        let mut renamed = Wallet { anchor, ..wallet }.renamed(pseudonym.clone());
        let records = renamed.records - renamed.begins_with().number;
        let mut text = self.renamed_page(&mut session, id, &mut renamed).await?;
        self.remove_keys_of_bids(&mut session, id, &mut text).await?;
        let (before, after) = (name_of(member), name_of(pseudonym));
        if let Some(anchor) = &renamed.anchor {
            dialect::put_anchor(self.dialect, &mut text, id, anchor);
        }
        if !listings.is_empty() {
            let ids = list(&listings, |text, (id, _)| number(text, *id));
            let column = |column| format!("{column}=CASE WHEN {column}={before} THEN {after} ELSE {column} END");
            let columns = ["owner", "highest", "buyer"].map(column).join(",");
            let _ = write!(text, "UPDATE firstcome_listing SET {columns} WHERE id IN ({ids});");
            // Number 0: the request that bought it.
            let sold = listings.iter().filter(|(_, standing)| {
                matches!(&standing.phase, firstcome_core::auction::Phase::Sold(sale) if sale.buyer == *member)
            });
            for (listing, _) in sold {
                let _ = write!(text, "DELETE FROM firstcome_request WHERE kind=1 AND scope={listing} AND number=0;");
            }
        }
        session.run(text).await?;
        // Another connection may have shown meanwhile that the database went back.
        self.watch.allow()?;
        session.commit(self.options.connections.answer_timeout).await?;
        self.forget_names();
        Ok(Ok(Erased { members: 1, records, listings: listings.len() as u64, ..Erased::default() }))
    }

    /// Locks the listings that name a member, and its row. `None` if there is no such member.
    async fn lock_named(&self, session: &mut Session, member: &MemberName) -> Result<Option<Locked>, SqlError> {
        let name = name_of(member);
        let rows = session.ask(format!("SELECT id FROM firstcome_member WHERE name={name};")).await?;
        session.done();
        let Some(row) = rows.first() else { return Ok(None) };
        let id = Reader::at(row, 0).integer()?;
        let ids = |rows: &[crate::dialect::Row]| {
            rows.iter().map(|row| Reader::at(row, 0).integer()).collect::<Result<BTreeSet<i64>, _>>()
        };
        let found = ids(&session.ask(naming(&name)).await?)?;
        session.done();
        let mut text = self.dialect.words().begin.to_owned();
        for listing in &found {
            let (tag, columns) = (tag::LISTING, listing_columns());
            let _ = write!(text, "SELECT {tag},{columns},id FROM firstcome_listing WHERE id={listing} FOR UPDATE;");
        }
        let _ = write!(
            text,
            "SELECT {},id,name,total,held,records,last_at,chain FROM firstcome_member WHERE id={id} FOR UPDATE;\
             SELECT {},{};",
            tag::WALLET,
            tag::CLOCK,
            self.dialect.words().clock
        );
        let (mut listings, mut wallet, mut now) = (Vec::new(), None, Timestamp::MIN);
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::LISTING => {
                    let standing = load::columns(row)?.standing;
                    let listing = Reader::at(row, 1 + super::dialect::LISTING_COLUMNS.len()).integer()?;
                    listings.push((listing, standing));
                }
                tag::WALLET => wallet = Some(load::wallet(row)?.1),
                _ => now = columns.instant()?,
            }
        }
        // A statement that names the member from now on waits for its row.
        let again = ids(&session.ask(naming(&name)).await?)?;
        match wallet {
            Some(wallet) if wallet.member == *member && again == found => {
                Ok(Some(Locked { member: id, wallet, listings, now }))
            }
            _ => Err(SqlError::Serialization { says: "a member was named meanwhile".to_owned() }),
        }
    }
}
