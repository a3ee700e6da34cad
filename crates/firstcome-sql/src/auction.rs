//! Members, listings and bids on PostgreSQL, MySQL and MariaDB: [`SqlAuctions`].
//!
//! The database holds the truth, and any number of processes may use it at once. Everything that waits in one process for the same
//! listing, or for the points of the same member, is combined: one transaction locks the row of the listing and then the
//! wallets that matter, in the order of their numbers, reads the server's clock, judges all commands in the order of their
//! arrival by the rules of the core, writes what they change, and commits; then all are answered. A combined bid may so
//! overtake bids that wait in other processes, by one batch at most. The order of bids is the order of commits.
//!
//! - Isolation is READ COMMITTED. Nothing rests on it but that each statement sees what was committed before it: everything that is
//!   judged by was locked first, and is written only if it is as it was read (versions of listings, counts of records).
//! - Serialization failures, deadlocks and broken connections repeat the whole batch, on what is there then, for
//!   [`DatabaseOptions::patience`]; they are never a refusal. After a commit without an answer the adapter looks itself: see
//!   the module `proof`.
//! - A process that is stopped in the middle of a transaction delays others by [`DatabaseOptions::idle_timeout`]; then the server
//!   gives its locks back, and its late commit fails.
//! - Where commits of PostgreSQL wait for other servers (`synchronous_standby_names`), a change is told after that wait, also if its
//!   commit was not answered and had to be looked up. A wait that an operator cancels is acknowledged by the server itself.
//!   Reads, refusals and repeats show what the primary shows: after its restart, or such a cancelled wait, the others may
//!   not have all of it yet.
//! - A member is created by the first request that names it.

pub mod archive;
mod batch;
mod batcher;
mod changes;
mod closer;
mod database;
mod dialect;
mod erase;
mod judge;
mod load;
mod mysql;
mod postgres;
mod proof;
mod purge;
mod queues;
mod renaming;
mod verify;

pub use dialect::auction_part;
pub use verify::verify_auctions;

use super::base::Base;
use super::reader::Reader;
use super::{Address, DatabaseOptions, Migrated, SqlError, schema};
use crate::boxed::boxed;
use database::AuctionDatabase;
use firstcome_core::auction::{Bid, ListingSettings, PlacedBid, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::erase::Pseudonym;
use firstcome_core::id::{ListingName, MemberName, UserId};
use firstcome_core::points::{Balance, Record};
use firstcome_core::revision::Revision;
use firstcome_store::Faults;
use firstcome_store::Put;
use firstcome_store::StoreError;
use firstcome_store::edge::draw_secret;
use firstcome_store::{
    AuctionAnswer, AuctionStore, Closings, EraseAnswer, EraseStore, ListingView, MovePoints, Names, Numbered, PlaceBid,
    Purchase,
};
use judge::{Answer, Command};
use queues::Scope;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Auctions on a database. Dropping it ends its tasks; commands that are under way are finished.
pub struct SqlAuctions {
    database: Arc<AuctionDatabase>,
    tasks: [JoinHandle<()>; 2],
}

firstcome_core::debug_by_name!(SqlAuctions);

impl SqlAuctions {
    /// Opens auctions of a database with the default options: see [`Self::open_with`].
    pub fn open(url: &str) -> impl Future<Output = Result<Self, SqlError>> + Send {
        Self::open_with(url, DatabaseOptions::default())
    }

    /// Opens auctions of a database, and makes its tables or brings them to this version. Must run within a runtime, which
    /// then closes auctions in the background.
    ///
    /// [`SqlError::Broken`]: a server that may lose what it acknowledges (unless [`DatabaseOptions::allow_volatile`] says
    /// that it may), that does not give the isolation it is asked for, or that is too old; and tables of a later version.
    pub fn open_with(url: &str, options: DatabaseOptions) -> impl Future<Output = Result<Self, SqlError>> + Send {
        boxed(async move {
            let database = Arc::new(AuctionDatabase::open(Address::parse(url)?, options).await?);
            let closer = tokio::spawn(closer::keep_closing(Arc::downgrade(&database)));
            let watch = tokio::spawn(closer::keep_looking_back(Arc::downgrade(&database)));
            Ok(Self { database, tasks: [closer, watch] })
        })
    }

    /// Brings the tables to this version; opening does the same. A second time has no effect. Several at once wait for each
    /// other.
    pub async fn migrate(&self) -> Result<(), SqlError> {
        boxed(self.database.migrate()).await
    }

    /// How many batches were done again since the start, because others were served first or a connection broke.
    pub fn repeated(&self) -> u64 {
        self.database.counts.repeated.load(Ordering::Relaxed)
    }

    async fn command(&self, scope: Scope, command: Command) -> AuctionAnswer<Answer> {
        boxed(self.database.command(scope, command)).await
    }
}

impl Drop for SqlAuctions {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl AuctionStore for SqlAuctions {
    async fn put_listing(
        &self,
        listing: &ListingName,
        revision: impl Into<Revision<ListingSettings>> + Send,
    ) -> AuctionAnswer<Put> {
        match self.command(Scope::Listing(listing.clone()), Command::Put(revision.into())).await? {
            Ok(Answer::Put(put)) => Ok(Ok(put)),
            other => foreign(other),
        }
    }

    async fn listing(&self, listing: &ListingName) -> AuctionAnswer<ListingView> {
        boxed(self.database.listing(listing)).await
    }

    async fn bids(&self, listing: &ListingName, after: Option<u64>, count: usize) -> AuctionAnswer<Numbered<Bid>> {
        boxed(self.database.bids(listing, after, count)).await
    }

    async fn place_bid(&self, listing: &ListingName, bid: PlaceBid) -> AuctionAnswer<Effect<PlacedBid>> {
        match self.command(Scope::Listing(listing.clone()), Command::Bid(bid)).await? {
            Ok(Answer::Bid(placed)) => Ok(Ok(placed)),
            other => foreign(other),
        }
    }

    async fn purchase(&self, listing: &ListingName, purchase: Purchase) -> AuctionAnswer<Effect<Sale>> {
        match self.command(Scope::Listing(listing.clone()), Command::Purchase(purchase)).await? {
            Ok(Answer::Sale { sale, .. }) => Ok(Ok(sale)),
            other => foreign(other),
        }
    }

    async fn move_points(&self, member: &MemberName, movement: MovePoints) -> AuctionAnswer<Effect<Balance>> {
        let scope = Scope::Member(written(member));
        match self.command(scope, Command::Move(movement)).await? {
            Ok(Answer::Moved(balance)) => Ok(Ok(balance)),
            other => foreign(other),
        }
    }

    async fn balance(&self, member: &MemberName) -> Result<Balance, StoreError> {
        boxed(self.database.balance(&written(member))).await
    }

    async fn records(
        &self,
        member: &MemberName,
        after: Option<u64>,
        count: usize,
    ) -> Result<Numbered<Record>, StoreError> {
        boxed(self.database.records(&written(member), after, count)).await
    }

    async fn close_due(&self) -> Result<(), StoreError> {
        boxed(self.database.close_due(Duration::MAX)).await.map(drop)
    }

    async fn listing_names(
        &self,
        after: Option<&ListingName>,
        count: usize,
    ) -> Result<Option<Names<ListingName>>, StoreError> {
        boxed(self.database.listing_names(after, count)).await.map(Some)
    }

    async fn member_names(
        &self,
        after: Option<&MemberName>,
        count: usize,
    ) -> Result<Option<Names<MemberName>>, StoreError> {
        boxed(self.database.member_names(after, count)).await.map(Some)
    }

    fn closings(&self) -> Closings {
        self.database.closings()
    }

    fn faults(&self) -> Faults {
        self.database.watch.faults.clone()
    }
}

/// Claims and tickets are in other stores.
impl EraseStore for SqlAuctions {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        // Every user is a name that a member may have, except a pass without a user, which no member is.
        let Ok(member) = MemberName::parse(user.as_str()) else { return Ok(Ok(Default::default())) };
        let secret = draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
        let mut random = [0; 16];
        random.copy_from_slice(&secret[..16]);
        let pseudonym = Pseudonym::new(u128::from_le_bytes(random));
        let (database, member) = (Arc::clone(&self.database), written(&member));
        // It goes on if the caller goes away.
        let erasure = tokio::spawn(async move { boxed(database.erase(&member, &pseudonym.member())).await });
        Ok(erasure.await.map_err(|_| StoreError::Unknown)??)
    }
}

/// Brings the tables of auctions of a database to this version, as opening does unless it is told not to. A second time
/// has no effect; several at once wait for each other.
pub async fn migrate_auction(url: &str, options: DatabaseOptions) -> Result<Migrated, SqlError> {
    let base = Base::open(Address::parse(url)?, options).await?;
    schema::migrate(&base, auction_part(base.dialect)).await
}

/// Accepts that a database went back, and that what its nodes were acknowledged since is gone: the nodes that stand still for it
/// see the new generation, and go on with what is there. Returns that generation. Brings the tables to this version first, since
/// a restored backup may have earlier ones.
pub async fn accept_auction_loss(url: &str, options: DatabaseOptions) -> Result<i64, SqlError> {
    let base = Base::open(Address::parse(url)?, options).await?;
    schema::prepare(&base, auction_part(base.dialect)).await?;
    let (until, patience) = (Instant::now() + base.options.patience, base.options.connections.answer_timeout);
    let mut session = base.session(until).await?;
    // By the clock, so that it exceeds generations that are gone with the rest.
    let raise = format!(
        "{}UPDATE firstcome_market_state SET generation=GREATEST(generation+1,{}) WHERE id=1;\
         SELECT generation FROM firstcome_market_state WHERE id=1;",
        base.dialect.words().begin,
        base.dialect.words().clock
    );
    let rows = session.ask(raise).await?;
    let generation = rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?;
    let generation = generation.ok_or_else(|| SqlError::broken("firstcome_market_state has no row"))?;
    session.commit(patience).await?;
    Ok(generation)
}

/// A refusal; anything else is the answer to another command, which cannot be.
fn foreign<T>(answer: Result<Answer, firstcome_core::auction::Rejection>) -> AuctionAnswer<T> {
    match answer {
        Err(rejection) => Ok(Err(rejection)),
        Ok(_) => Err(StoreError::Unknown),
    }
}

/// A member's name as it is written: as it is, except for a planted bug.
fn written(member: &MemberName) -> MemberName {
    #[cfg(feature = "planted-bugs")]
    if firstcome_core::planted::is(firstcome_core::planted::Bug::NamesFolded) {
        return MemberName::parse(&member.as_str().to_ascii_lowercase()).unwrap_or_else(|_| member.clone());
    }
    member.clone()
}
