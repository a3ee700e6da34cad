//! Re-checks every stored invariant of members, listings and bids from the rows of a database: the same checks as those of
//! the file. Nothing is written, and rules of the server (who may write, what is durable) are not looked at.

use super::dialect::{LISTING_COLUMNS, auction_part};
use super::load::{self, Columns};
use crate::dialect::Connection;
use crate::reader::Reader;
use crate::snapshot::{PAGE, Reading};
use crate::{Address, SqlError, SqlOptions};
use firstcome_core::auction::Bid;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Wallet;
use firstcome_store::check::Check;
use firstcome_store::check::auction::Replay;
use std::collections::BTreeMap;
use std::time::Duration;

/// Re-checks every invariant of auctions in a database, also beside services that use it: it reads one consistent state.
/// The checks are those of `firstcome_sqlite::verify` for auctions. Memory: about 100 bytes per bid, and what members and
/// listings take.
///
/// [`SqlError::Broken`]: no address, no tables of firstcome, tables of another version, or a row that cannot be read at all.
pub async fn verify_auctions(url: &str) -> Result<Vec<Check>, SqlError> {
    // An operator who asks for this can wait for a busy server.
    let times = SqlOptions { connect_timeout: Duration::from_secs(10), ..SqlOptions::default() };
    let mut reading = Reading::new(Connection::open(&Address::parse(url)?, &times).await?);
    reading.is_ours(auction_part(reading.dialect()).steps.len() as i64).await?;
    reading.begin().await?;
    let mut replay = Replay::new();
    let listings = reading.listings().await?;
    let names = listings.iter().map(|(id, listing)| (*id, listing.standing.name.clone())).collect();
    let members = reading.members().await?;
    reading.records(&mut replay, &members, &names).await?;
    for (id, Columns { standing, .. }) in &listings {
        replay.listing(*id, standing.clone());
    }
    reading.bids(&mut replay, &members).await?;
    let is = |id: i64, name: &MemberName| members.get(&id).is_some_and(|wallet| wallet.member == *name);
    for (id, Columns { owner, highest, standing }) in &listings {
        let bidder = match (highest, &standing.highest) {
            (Some(id), Some(bid)) => is(*id, &bid.bidder),
            (None, None) => true,
            _ => false,
        };
        replay.repeated(*id, standing.highest.as_ref(), bidder && is(*owner, &standing.owner));
    }
    reading.keys(&mut replay).await?;
    reading.close().await;
    Ok(replay.finish())
}

impl Reading {
    /// Refuses what is no auctions, and one of another version than the one known.
    async fn is_ours(&mut self, known: i64) -> Result<(), SqlError> {
        let foreign = || SqlError::broken("this database has no tables of auctions of firstcome");
        let rows = self.ask(self.dialect().words().has_schema.to_owned()).await?;
        let there = rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?;
        if there != Some(1) {
            return Err(foreign());
        }
        let rows = self.ask("SELECT version FROM firstcome_schema WHERE part='market';".to_owned()).await?;
        let version = rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?.ok_or_else(foreign)?;
        let advice = match version {
            version if known < version => "use the version of firstcome that made them, or a later one",
            version if version < known => "start the service on them once, which brings them to this version",
            _ => return Ok(()),
        };
        Err(SqlError::broken(format!("the tables have version {version}, and this program reads {known}: {advice}")))
    }

    async fn listings(&mut self) -> Result<BTreeMap<i64, Columns>, SqlError> {
        let mut listings = BTreeMap::new();
        let what = format!("SELECT id,{} FROM firstcome_listing", LISTING_COLUMNS.join(","));
        self.numbered(&what, |id, row| {
            listings.insert(id, load::columns(row)?);
            Ok(())
        })
        .await?;
        Ok(listings)
    }

    async fn members(&mut self) -> Result<BTreeMap<i64, Wallet>, SqlError> {
        let mut members = BTreeMap::new();
        let what = format!(
            "SELECT m.id,m.name,m.total,m.held,records,last_at,m.chain,{},{} FROM firstcome_member m \
             LEFT JOIN firstcome_anchor a ON a.member=m.id LEFT JOIN firstcome_renaming n ON n.member=m.id",
            load::ANCHOR_COLUMNS,
            load::RENAMING_COLUMNS
        );
        self.numbered(&what, |id, row| {
            let mut columns = Reader::at(row, 1);
            let wallet = load::wallet_of(&mut columns)?;
            let renaming = load::renaming_of(&mut Reader::at(row, columns.position() + load::ANCHOR_WIDTH))?;
            let anchor = load::anchor_of(&mut columns)?;
            members.insert(id, Wallet { anchor, renaming, ..wallet });
            Ok(())
        })
        .await?;
        Ok(members)
    }

    /// Plays the records of everybody, and then says what each should have.
    async fn records(
        &mut self,
        replay: &mut Replay,
        members: &BTreeMap<i64, Wallet>,
        names: &BTreeMap<i64, ListingName>,
    ) -> Result<(), SqlError> {
        let mut rest = members.iter();
        let mut wallet: Option<(i64, Wallet)> = None;
        let what = "number,kind,amount,listing,bid,at,total,held,chain FROM firstcome_record";
        self.paired(what, ["member", "number"], |id, columns| {
            let Some(stored) = members.get(&id) else {
                replay.ownerless_record(|| format!("a record of a member number {id} who does not exist"));
                return Ok(());
            };
            if wallet.as_ref().is_none_or(|(of, _)| *of != id) {
                up_to(replay, &mut rest, wallet.take().as_ref(), Some(id));
            }
            let (_, played) = wallet.get_or_insert_with(|| (id, replay.begin(stored)));
            let record = load::record_of(columns, &stored.member, |columns| {
                Ok(columns.maybe_integer()?.and_then(|listing| names.get(&listing).cloned()))
            })?;
            replay.record(played, &record);
            Ok(())
        })
        .await?;
        up_to(replay, &mut rest, wallet.as_ref(), None);
        Ok(())
    }

    async fn bids(&mut self, replay: &mut Replay, members: &BTreeMap<i64, Wallet>) -> Result<(), SqlError> {
        self.paired("number,member,price,at FROM firstcome_bid", ["listing", "number"], |listing, columns| {
            let (number, member) = (columns.small()?, columns.integer()?);
            let (price, at) = (columns.amount()?, columns.instant()?);
            match members.get(&member) {
                Some(wallet) => replay.bid(listing, Bid { number, bidder: wallet.member.clone(), price, at }),
                None => replay.ownerless_bid(|| format!("listing number {listing}, bid {number}: without a member")),
            }
            Ok(())
        })
        .await
    }

    /// Keys of bids and sales. That a key comes once its table sees to; it remains that a bid has one.
    async fn keys(&mut self, replay: &mut Replay) -> Result<(), SqlError> {
        let (mut first, mut second) = (i64::MIN, [0; 16]);
        loop {
            let mut request = String::new();
            self.dialect().bytes(&mut request, &second);
            let after = self.dialect().after(["scope", "request"], first, &request);
            let rows = self
                .ask(format!(
                    "SELECT scope,request,number FROM firstcome_request WHERE kind=1 AND {after} \
                     ORDER BY kind,scope,request LIMIT {PAGE};"
                ))
                .await?;
            for row in &rows {
                let mut columns = Reader::at(row, 0);
                first = columns.integer()?;
                second = columns.key()?.to_be_bytes();
                let number = columns.small()?;
                replay.key(first, number, number.into());
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }
}

/// Says what members should have who come before `until`: `played` is the one of them who has records.
fn up_to<'a>(
    replay: &mut Replay,
    rest: &mut (impl Iterator<Item = (&'a i64, &'a Wallet)> + Clone),
    played: Option<&(i64, Wallet)>,
    until: Option<i64>,
) {
    while let Some((id, stored)) = rest.clone().next().filter(|(id, _)| until.is_none_or(|until| **id < until)) {
        rest.next();
        match played {
            Some((of, wallet)) if of == id => replay.member(wallet, stored),
            _ => {
                let begun = replay.begin(stored);
                replay.member(&begun, stored);
            }
        }
    }
}
