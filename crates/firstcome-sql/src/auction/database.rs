//! Auctions of one kind of database: connections, the numbers of names, and reads.

use super::dialect::{self, LISTING_COLUMNS, auction_part, tag};
use super::judge::Command;
use super::load;
use super::queues::{Scope, ScopeQueues};
use crate::base::{Base, Session};
use crate::dialect::quoted;
use crate::reader::Reader;
use crate::{Address, DatabaseOptions, SqlError, schema};
use firstcome_core::auction::{Bid, Listing, Rejection};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Balance, Record};
use firstcome_store::StoreError;
use firstcome_store::edge::draw_hasher;
use firstcome_store::{AuctionAnswer, Closings, ListingView, Names, Numbered};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Names whose numbers are kept in memory. Beyond it all are forgotten, and asked for again.
const NAMES_MAX: usize = 1 << 19;

/// Auctions on one kind of database.
pub(super) struct AuctionDatabase {
    base: Base,
    pub(super) queues: ScopeQueues,
    members: Mutex<HashMap<MemberName, i64, RandomState>>,
    listings: Mutex<HashMap<ListingName, i64, RandomState>>,
    pub(super) counts: Counts,
    /// Told when a listing may be due earlier than was known.
    pub(super) due: Arc<Notify>,
}

/// What was done since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) closed: AtomicU64,
    pub(super) defaulted: AtomicU64,
    pub(super) repeated: AtomicU64,
}

impl Deref for AuctionDatabase {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl AuctionDatabase {
    /// Connects, makes sure that the server keeps its promises, and brings the tables to this version.
    pub(super) async fn open(address: Address, options: DatabaseOptions) -> Result<Self, SqlError> {
        let database = Self {
            base: Base::open(address, options).await?,
            queues: ScopeQueues::new(),
            members: Mutex::new(HashMap::with_hasher(draw_hasher())),
            listings: Mutex::new(HashMap::with_hasher(draw_hasher())),
            counts: Counts::default(),
            due: Arc::new(Notify::new()),
        };
        schema::prepare(&database.base, auction_part(database.dialect)).await?;
        let rows = database.base.read("SELECT generation FROM firstcome_market_state WHERE id=1;".to_owned()).await?;
        let generation = rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?;
        database.base.watch.begin(generation.ok_or_else(|| SqlError::broken("firstcome_market_state has no row"))?);
        Ok(database)
    }

    /// Brings the tables to this version.
    pub(super) async fn migrate(&self) -> Result<(), SqlError> {
        schema::migrate(&self.base, auction_part(self.dialect)).await.map(drop)
    }

    pub(super) fn closings(&self) -> Closings {
        let [closed, defaulted] =
            [&self.counts.closed, &self.counts.defaulted].map(|count| count.load(Ordering::Relaxed));
        Closings { closed, defaulted }
    }

    /// Forgets the numbers of all names: a caller has put other tables in the place of those that were read.
    pub(super) fn forget_names(&self) {
        self.members.lock().clear();
        self.listings.lock().clear();
    }

    /// The number of a listing, if there is one.
    pub(super) async fn listing_id(&self, session: &mut Session, name: &ListingName) -> Result<Option<i64>, SqlError> {
        if let Some(id) = self.listings.lock().get(name) {
            return Ok(Some(*id));
        }
        let rows = session.ask(dialect::find_listing(name)).await?;
        session.done();
        let Some(row) = rows.first() else { return Ok(None) };
        let id = Reader::at(row, 1).integer()?;
        keep(&self.listings, name, id);
        Ok(Some(id))
    }

    /// The numbers of members, who are created if they are not there.
    pub(super) async fn member_ids(
        &self,
        session: &mut Session,
        names: Vec<MemberName>,
    ) -> Result<BTreeMap<MemberName, i64>, SqlError> {
        let mut ids: BTreeMap<MemberName, Option<i64>> = {
            let known = self.members.lock();
            let id = |name: &MemberName| known.get(name).copied();
            names.into_iter().map(|name| (name.clone(), id(&name))).collect()
        };
        for created in [false, true] {
            let missing: Vec<_> = ids.iter().filter(|(_, id)| id.is_none()).map(|(name, _)| name.clone()).collect();
            if missing.is_empty() {
                break;
            }
            let missing: Vec<_> = missing.iter().collect();
            // In the order of their names, so that two who create the same ones do not wait for each other.
            let create = if created { dialect::create_members(self.dialect, &missing) } else { String::new() };
            let rows = session.ask(format!("{create}{}", dialect::find_members(&missing))).await?;
            session.done();
            for row in &rows {
                let mut columns = Reader::at(row, 1);
                let (id, name) = (columns.integer()?, columns.member()?);
                keep(&self.members, &name, id);
                ids.insert(name, Some(id));
            }
        }
        let ids: BTreeMap<_, _> = ids.into_iter().filter_map(|(name, id)| Some((name, id?))).collect();
        Ok(ids)
    }

    pub(super) async fn listing(self: &Arc<Self>, name: &ListingName) -> AuctionAnswer<ListingView> {
        let seen = self.seen(name).await?;
        let is_due = |view: &ListingView| {
            Listing::restore(view.standing.clone())
                .is_ok_and(|listing| listing.due_at().is_some_and(|due| due <= view.now))
        };
        if !seen.as_ref().is_ok_and(is_due) {
            return Ok(seen);
        }
        // Time has decided, and a caller that holds the row may be committing what came just before that: closing waits for it.
        let _ = self.command(Scope::Listing(name.clone()), Command::Advance).await?;
        self.seen(name).await
    }

    /// A listing as it was committed last.
    async fn seen(&self, name: &ListingName) -> AuctionAnswer<ListingView> {
        let columns = dialect::listing_columns();
        let mut text = format!(
            "SELECT {},{columns},{} FROM firstcome_listing WHERE name=",
            tag::LISTING,
            self.dialect.words().clock
        );
        quoted(&mut text, name.as_str());
        text.push(';');
        let rows = self.read(text).await?;
        let Some(row) = rows.first() else { return Ok(Err(Rejection::UnknownListing)) };
        let stored = load::listing(row, 0)?;
        let standing = stored.listing.standing().clone();
        // The clock may have been read before what it is shown beside was committed.
        let now = Reader::at(row, 1 + LISTING_COLUMNS.len()).instant()?.max(standing.last_at);
        Ok(Ok(ListingView { standing, now }))
    }

    pub(super) async fn bids(
        &self,
        name: &ListingName,
        after: Option<u64>,
        count: usize,
    ) -> AuctionAnswer<Numbered<Bid>> {
        let mut listing = String::new();
        quoted(&mut listing, name.as_str());
        let text = format!(
            "SELECT {},id FROM firstcome_listing WHERE name={listing};\
             SELECT {},b.number,m.name,b.price,b.at FROM firstcome_bid b JOIN firstcome_member m ON m.id=b.member \
             WHERE b.listing=(SELECT id FROM firstcome_listing WHERE name={listing}) AND {};",
            tag::LISTING,
            tag::BID,
            page("b.number", after, count)
        );
        let rows = self.read(text).await?;
        let mut known = false;
        let mut bids = Vec::new();
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::BID => bids.push(load::bid(&mut columns)?),
                _ => known = true,
            }
        }
        if !known {
            return Ok(Err(Rejection::UnknownListing));
        }
        Ok(Ok(numbered(bids, count, |bid| bid.number.into())))
    }

    pub(super) async fn listing_names(
        &self,
        after: Option<&ListingName>,
        count: usize,
    ) -> Result<Names<ListingName>, StoreError> {
        let parse = |name: &str| ListingName::parse(name).ok();
        Ok(self.names("firstcome_listing", after.map(ListingName::as_str), count, parse).await?)
    }

    pub(super) async fn member_names(
        &self,
        after: Option<&MemberName>,
        count: usize,
    ) -> Result<Names<MemberName>, StoreError> {
        let parse = |name: &str| MemberName::restore(name).ok();
        Ok(self.names("firstcome_member", after.map(MemberName::as_str), count, parse).await?)
    }

    pub(super) async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        let mut text = format!("SELECT {},total,held FROM firstcome_member WHERE name=", tag::WALLET);
        quoted(&mut text, member.as_str());
        text.push(';');
        let rows = self.read(text).await?;
        let balance = rows.first().map(|row| Reader::at(row, 1).balance()).transpose()?;
        Ok(balance.unwrap_or_default())
    }

    pub(super) async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        let mut name = String::new();
        quoted(&mut name, member.as_str());
        let text = format!(
            "SELECT {},r.number,r.kind,r.amount,l.name,r.bid,r.at,r.total,r.held,r.chain FROM firstcome_record r \
             LEFT JOIN firstcome_listing l ON l.id=r.listing \
             WHERE r.member=(SELECT id FROM firstcome_member WHERE name={name}) AND {};\
             SELECT {},number FROM firstcome_anchor WHERE member=(SELECT id FROM firstcome_member WHERE name={name});",
            tag::RECORD,
            page("r.number", after, count),
            tag::ANCHOR
        );
        let (mut records, mut removed_to) = (Vec::new(), 0);
        // The anchor is read after the records: it knows of all that were missing.
        for row in &self.read(text).await? {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::ANCHOR => removed_to = columns.count()?,
                _ => records.push(load::record(row, member)?),
            }
        }
        Ok(Numbered { removed_to, ..numbered(records, count, |record| record.number) })
    }
}

/// One more than are wanted, to see whether there are more.
fn page(column: &str, after: Option<u64>, count: usize) -> String {
    let after = after.unwrap_or(0).min(i64::MAX.unsigned_abs());
    format!("{column}>{after} ORDER BY {column} LIMIT {}", count.saturating_add(1).min(1 << 32))
}

fn numbered<T>(mut items: Vec<T>, count: usize, number: impl Fn(&T) -> u64) -> Numbered<T> {
    let more = count < items.len();
    items.truncate(count);
    let next = if more { items.last().map(number) } else { None };
    Numbered { items, next, removed_to: 0 }
}

fn keep<N: Clone + Eq + Hash>(names: &Mutex<HashMap<N, i64, RandomState>>, name: &N, id: i64) {
    let mut names = names.lock();
    if NAMES_MAX <= names.len() {
        names.clear();
    }
    names.insert(name.clone(), id);
}
