//! Exports a cluster: one state of its database, page by page, and from Redis the tickets that only a log holds.

use super::{TransferError, archived, session};
use crate::Cluster;
use crate::database::{CouponRow, HeadKeys, archive as rows, heads_after, kind};
use crate::node::Node;
use firstcome_core::auction::{Bid, PlacedBid};
use firstcome_core::coupon::Serial;
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::{CouponName, ListingName, MemberName, RequestId, RoomName};
use firstcome_core::points::{Anchor, Renaming};
use firstcome_core::receipt::Object;
use firstcome_sql::SqlError;
use firstcome_sql::auction::archive::{self as auctions, ArchivedMember};
use firstcome_sql::base::{ROLL_BACK, Session};
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::archive::{
    ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedHead, ArchivedLine, ArchivedListing, ArchivedRecord,
    ArchivedSecret,
};
use firstcome_store::embedded::journal::PassSecret;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that are asked for at once. Each page of rows with keys looks through those of one coupon, listing or member.
pub(super) const PAGE: usize = 32_768;

/// What a deployment holds, as it was when this began: what nodes do meanwhile is not in it.
///
/// Memory: names of coupons, members and listings, and a page of everything else; while a room goes out, its line.
pub struct ClusterArchive {
    export: Box<Export>,
}

firstcome_core::debug_by_name!(ClusterArchive);

impl Cluster {
    /// Begins to read one state of everything.
    pub async fn archive(&self) -> Result<ClusterArchive, TransferError> {
        Ok(ClusterArchive { export: Box::new(Export::begin(Arc::clone(&self.node)).await?) })
    }
}

impl ClusterArchive {
    /// What all nodes know and no other caller.
    pub async fn secrets(&mut self) -> Result<Vec<ArchivedSecret>, TransferError> {
        Ok(self.export.secrets().await?)
    }

    /// All coupons in the order in which they were made, each with the number of its claims.
    pub async fn coupons(&mut self) -> Result<Vec<(ArchivedCoupon, u64)>, TransferError> {
        Ok(self.export.coupons().await?)
    }

    /// Walks over all claims: coupons in the order of [`Self::coupons`], claims in serial order. Stops at the first error of the
    /// visitor.
    pub async fn for_each_claim<E: From<TransferError>>(
        &mut self,
        visit: impl FnMut(ArchivedClaim) -> Result<(), E>,
    ) -> Result<(), E> {
        self.export.claims(visit).await
    }

    /// The secrets that sign passes, the newest last.
    pub async fn pass_secrets(&mut self) -> Result<Vec<PassSecret>, TransferError> {
        Ok(self.export.pass_secrets().await?)
    }

    /// Walks over all rooms, each followed by its tickets in the order of their numbers. Of tickets without user and key SQL
    /// knows nothing but a ceiling: who of them is in line stands on Redis. Where that does not know it either they go out as
    /// lost: all up to the ceiling if its server was another one, or has started anew, since the last call of a node. A Redis
    /// that gives no answer is an error. Stops at the first error of the visitor.
    pub async fn for_each_ticket<E: From<TransferError>>(
        &mut self,
        visit: impl FnMut(ArchivedLine) -> Result<(), E>,
    ) -> Result<(), E> {
        self.export.tickets(visit).await
    }

    /// Walks over all published heads, chain by chain in their order. Stops at the first error of the visitor.
    pub async fn for_each_head<E: From<TransferError>>(
        &mut self,
        visit: impl FnMut(ArchivedHead) -> Result<(), E>,
    ) -> Result<(), E> {
        self.export.heads(visit).await
    }

    /// All listings, in the order in which they were made.
    pub async fn listings(&mut self) -> Result<Vec<ArchivedListing>, TransferError> {
        Ok(self.export.listings().await?)
    }

    /// Walks over all records, member by member in the order in which they came, after [`Self::listings`]. Stops at the first
    /// error of the visitor.
    pub async fn for_each_record<E: From<TransferError>>(
        &mut self,
        visit: impl FnMut(ArchivedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        self.export.records(visit).await
    }

    /// Walks over all bids, listing by listing, in their order, after [`Self::for_each_record`]. Stops at the first error of the
    /// visitor.
    pub async fn for_each_bid<E: From<TransferError>>(
        &mut self,
        visit: impl FnMut(ArchivedBid) -> Result<(), E>,
    ) -> Result<(), E> {
        self.export.bids(visit).await
    }
}

/// One export from one kind of database.
pub(super) struct Export {
    pub(super) node: Arc<Node>,
    pub(super) session: Session,
    listings: BTreeMap<i64, ListingName>,
    members: BTreeMap<i64, MemberName>,
    /// Anchors of members whose first record was not visited yet.
    anchors: BTreeMap<i64, Arc<Anchor>>,
    /// Of members of whom an erasure has left records to chain again.
    renamings: BTreeMap<i64, Renaming>,
}

fn request(columns: &mut Reader<'_>) -> Result<RequestId, SqlError> {
    Ok(RequestId { key: columns.key()?, body: columns.integer()?.cast_unsigned() })
}

/// The page that begins after `before` and ends with `last`, as a condition on its two columns.
fn within([one, two]: [&str; 2], first: [i64; 2], last: [i64; 2]) -> String {
    if first[0] == last[0] {
        return format!("{one}={} AND {two} BETWEEN {} AND {}", first[0], first[1], last[1]);
    }
    format!(
        "(({one}={} AND {two}>={}) OR ({one}>{} AND {one}<{}) OR ({one}={} AND {two}<={}))",
        first[0], first[1], first[0], last[0], last[0], last[1]
    )
}

impl Export {
    async fn begin(node: Arc<Node>) -> Result<Self, TransferError> {
        node.auctions_are_ready().await?;
        let mut session = session(&node).await?;
        // In MySQL what was set for the next transaction must not be in one text with a rollback before it.
        session.run(ROLL_BACK.to_owned()).await?;
        session.run(session.dialect().words().begin_read_only.to_owned()).await?;
        let (listings, members) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { node, session, listings, members, anchors: BTreeMap::new(), renamings: BTreeMap::new() })
    }

    async fn secrets(&mut self) -> Result<Vec<ArchivedSecret>, SqlError> {
        let text = "SELECT name,wrapped FROM firstcome_secret ORDER BY name;".to_owned();
        let rows = self.session.ask(text).await?;
        let secret = |row| self.node.database.secret_of(row).map(|(name, bytes)| ArchivedSecret { name, bytes });
        rows.iter().map(secret).collect()
    }

    async fn pass_secrets(&mut self) -> Result<Vec<PassSecret>, SqlError> {
        let text = "SELECT id,secret,created_at FROM firstcome_pass_secret ORDER BY id;".to_owned();
        let rows = self.session.ask(text).await?;
        rows.iter().map(|row| self.node.database.old_pass_secret(row)).collect()
    }

    async fn coupon_rows(&mut self) -> Result<Vec<CouponRow>, SqlError> {
        let mut coupons = Vec::new();
        let mut after = i64::MIN;
        loop {
            let text = crate::database::Database::coupons_after(after, PAGE);
            let rows = self.session.ask(text).await?;
            for row in &rows {
                let coupon = self.node.database.old_coupon(row)?;
                after = coupon.id;
                coupons.push(coupon);
            }
            if rows.len() < PAGE {
                return Ok(coupons);
            }
        }
    }

    async fn coupons(&mut self) -> Result<Vec<(ArchivedCoupon, u64)>, SqlError> {
        let rows = self.coupon_rows().await?;
        // None of a purged coupon goes out, whether its rows are all removed yet or not.
        let claims = |row: &CouponRow| if row.purged_at.is_some() { 0 } else { row.issued.into() };
        Ok(rows.into_iter().map(|row| (claims(&row), row)).map(|(claims, row)| (archived(row), claims)).collect())
    }

    async fn claims<E: From<TransferError>>(
        &mut self,
        mut visit: impl FnMut(ArchivedClaim) -> Result<(), E>,
    ) -> Result<(), E> {
        for coupon in self.coupon_rows().await.map_err(TransferError::from)? {
            if coupon.purged_at.is_some() {
                continue;
            }
            let mut after = 0;
            while after < coupon.issued {
                let page = self.page_of_claims(coupon.id, after).await.map_err(TransferError::from)?;
                let Some((last, _, _)) = page.last() else {
                    return Err(TransferError::from(wrong("fewer claims than are counted")).into());
                };
                after = last.issued.serial.get();
                for (claim, made, redeemed) in page {
                    visit(ArchivedClaim {
                        coupon: coupon.name.clone(),
                        code: coupon.voucher_key.code(claim.issued, claim.user.as_str()),
                        issued: claim.issued,
                        user: claim.user,
                        attributes: claim.attributes,
                        request: made,
                        redeemed: claim.redeemed_at.map(|at| (at, redeemed)),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Claims after a serial, each with its request and that of its redemption.
    async fn page_of_claims(
        &mut self,
        coupon: i64,
        after: u32,
    ) -> Result<Vec<(rows::OldClaim, Option<RequestId>, Option<RequestId>)>, SqlError> {
        let found = self.session.ask(rows::claims_after(coupon, after, PAGE)).await?;
        let claims: Vec<rows::OldClaim> = found.iter().map(rows::claim_of).collect::<Result<_, _>>()?;
        let serial = |claim: Option<&rows::OldClaim>| claim.map_or(0, |claim| claim.issued.serial.get());
        let text = rows::requests_of(coupon, [serial(claims.first()), serial(claims.last())]);
        let mut keys: [BTreeMap<Serial, RequestId>; 2] = Default::default();
        for row in &self.session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            let kind = columns.integer()?;
            let serial = Serial::new(columns.small()?).ok_or_else(|| wrong("a serial out of its range"))?;
            keys[usize::from(kind == kind::REDEMPTION)].insert(serial, request(&mut columns)?);
        }
        let [mut made, mut redeemed] = keys;
        let with_keys = claims.into_iter().map(|claim| {
            let serial = claim.issued.serial;
            (claim, made.remove(&serial), redeemed.remove(&serial))
        });
        Ok(with_keys.collect())
    }

    async fn heads<E: From<TransferError>>(
        &mut self,
        mut visit: impl FnMut(ArchivedHead) -> Result<(), E>,
    ) -> Result<(), E> {
        for (keys, removed_to) in self.published().await.map_err(TransferError::from)? {
            let (mut after, mut before) = (0, None);
            loop {
                let rows = self.session.ask(heads_after(&keys, after, PAGE)).await.map_err(TransferError::from)?;
                for row in &rows {
                    let signed = keys.read(&mut Reader::at(row, 0)).map_err(TransferError::from)?;
                    after = signed.head.sequence;
                    visit(ArchivedHead::next(before, signed, |_| removed_to))?;
                    before = Some(&keys.object);
                }
                if rows.len() < PAGE {
                    break;
                }
            }
        }
        Ok(())
    }

    /// What has heads: rooms and coupons, each with the sequence up to which a purge removed them.
    async fn published(&mut self) -> Result<Vec<(HeadKeys, u64)>, SqlError> {
        let text = "SELECT DISTINCT h.kind,h.object,COALESCE(r.name,c.name),COALESCE(x.sequence,0) FROM firstcome_head h \
            LEFT JOIN firstcome_room r ON h.kind=1 AND r.id=h.object LEFT JOIN firstcome_coupon c ON h.kind=2 AND c.id=h.object \
            LEFT JOIN firstcome_head_removed x ON x.kind=h.kind AND x.object=h.object ORDER BY 1,2;";
        let rows = self.session.ask(text.to_owned()).await?;
        let keys = |row| {
            let mut columns = Reader::at(row, 0);
            let (kind, id) = (columns.integer()?, columns.integer()?);
            let name = columns.maybe_text()?.unwrap_or_default();
            let object = match kind {
                1 => RoomName::parse(&name).map(Object::Room),
                _ => CouponName::parse(&name).map(Object::Coupon),
            };
            let object = object.map_err(|_| wrong("a head of a room or coupon that does not exist"))?;
            Ok((HeadKeys { object, id }, columns.count()?))
        };
        rows.iter().map(keys).collect()
    }

    async fn listings(&mut self) -> Result<Vec<ArchivedListing>, SqlError> {
        let mut sales = BTreeMap::new();
        let text = "SELECT scope,request,body FROM firstcome_request WHERE kind=1 AND number=0;".to_owned();
        for row in &self.session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            sales.insert(columns.integer()?, request(&mut columns)?);
        }
        let (mut listings, mut after) = (Vec::new(), i64::MIN);
        loop {
            let rows = self.session.ask(auctions::listings_after(after, PAGE)).await?;
            for row in &rows {
                let (id, mut standing) = auctions::listing_of(row)?;
                after = id;
                standing.highest = None;
                self.listings.insert(id, standing.name.clone());
                listings.push(ArchivedListing { standing, sale_request: sales.remove(&id) });
            }
            if rows.len() < PAGE {
                return Ok(listings);
            }
        }
    }

    async fn members(&mut self) -> Result<(), SqlError> {
        let mut after = i64::MIN;
        loop {
            let rows = self.session.ask(auctions::members_after(after, PAGE)).await?;
            for row in &rows {
                let ArchivedMember { id, name, anchor, renaming } = auctions::member_of(row)?;
                after = id;
                self.anchors.extend(anchor.map(|anchor| (id, anchor)));
                self.renamings.extend(renaming.map(|renaming| (id, Arc::unwrap_or_clone(renaming))));
                self.members.insert(id, name);
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// A page of rows whose key is two numbers, after this one: the rows, and the requests that made them.
    async fn paired(
        &mut self,
        [columns, table]: [&str; 2],
        key: [&str; 2],
        kind: i64,
        after: [i64; 2],
    ) -> Result<(Vec<Row>, BTreeMap<[i64; 2], RequestId>), SqlError> {
        let [one, two] = key;
        let text = format!(
            "SELECT {one},{columns} FROM {table} WHERE {} ORDER BY {one},{two} LIMIT {PAGE};",
            self.session.dialect().after(key, after[0], &after[1].to_string())
        );
        let rows = self.session.ask(text).await?;
        let mut requests = BTreeMap::new();
        let ends = |row: &Row| -> Result<[i64; 2], SqlError> {
            let mut columns = Reader::at(row, 0);
            Ok([columns.integer()?, columns.integer()?])
        };
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            let within = within(["scope", "number"], ends(first)?, ends(last)?);
            let text = format!(
                "SELECT scope,number,request,body FROM firstcome_request WHERE kind={kind} AND number>0 AND {within};"
            );
            for row in &self.session.ask(text).await? {
                let mut columns = Reader::at(row, 0);
                requests.insert([columns.integer()?, columns.integer()?], request(&mut columns)?);
            }
        }
        Ok((rows, requests))
    }

    async fn records<E: From<TransferError>>(
        &mut self,
        mut visit: impl FnMut(ArchivedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        self.members().await.map_err(TransferError::from)?;
        let mut after = [i64::MIN; 2];
        loop {
            let what = [auctions::RECORD_COLUMNS, "firstcome_record"];
            let page = self.paired(what, ["member", "number"], 2, after).await.map_err(TransferError::from)?;
            let (rows, mut requests) = page;
            for row in &rows {
                let mut columns = Reader::at(row, 0);
                let read = |columns: &mut Reader<'_>| -> Result<_, SqlError> {
                    let id = columns.integer()?;
                    let member = self.members.get(&id).ok_or_else(|| wrong("a record without a member"))?;
                    Ok((id, auctions::record_of(columns, member, &self.listings)?))
                };
                let (id, record) = read(&mut columns).map_err(TransferError::from)?;
                after = [id, record.number.cast_signed()];
                let anchor = self.anchors.remove(&id);
                // An erasure that is under way is in the export as if it were done.
                let (record, request) = match self.renamings.get_mut(&id) {
                    Some(renaming) => (renaming.read(record), None),
                    None => (record, requests.remove(&after)),
                };
                visit(ArchivedRecord { record, request, anchor })?;
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn bids<E: From<TransferError>>(
        &mut self,
        mut visit: impl FnMut(ArchivedBid) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut after = [i64::MIN; 2];
        loop {
            let what = ["number,member,price,at,ends_at,fence", "firstcome_bid"];
            let page = self.paired(what, ["listing", "number"], 1, after).await.map_err(TransferError::from)?;
            let (rows, mut requests) = page;
            for row in &rows {
                let (id, listing, placed) = self.bid_of(row).map_err(TransferError::from)?;
                after = [id, placed.bid.number.into()];
                let request = requests.remove(&after).filter(|_| !is_pseudonym(placed.bid.bidder.as_str()));
                visit(ArchivedBid { listing, placed, request })?;
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn bid_of(&self, row: &Row) -> Result<(i64, ListingName, PlacedBid), SqlError> {
        let mut columns = Reader::at(row, 0);
        let id = columns.integer()?;
        let listing = self.listings.get(&id).cloned().ok_or_else(|| wrong("a bid of a listing that is not there"))?;
        let number = columns.small()?;
        let member = columns.integer()?;
        let bidder = self.members.get(&member).cloned().ok_or_else(|| wrong("a bid without a member"))?;
        let (price, at) = (columns.amount()?, columns.instant()?);
        let (effective_ends_at, fence) = (columns.instant()?, columns.count()?);
        let bid = Bid { number, bidder, price, at };
        Ok((id, listing, PlacedBid { bid, effective_ends_at, fence }))
    }
}
