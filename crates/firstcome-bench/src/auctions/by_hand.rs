//! The strategies beside firstcome: one transaction per bid, written by hand as careful teams write it, on separate
//! tables.
//!
//! Some things are in their favour: their rows have no hash chain and no idempotency keys, and nothing else uses their
//! wallets. The rules are the same: the core judges.

mod mysql;
mod postgres;

pub(super) use mysql::ByMySql;
pub(super) use postgres::ByPostgres;

use super::audit::{AuditedWallet, Entry, Facts};
use super::engine::{POINTS, member};
use super::hot::{BidOutcome, Bidding, PlacedOnHot, Run};
use anyhow::Context;
use firstcome::core::auction::{AuctionTerms, Bid, Listing, ListingStanding, Phase, Terms};
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::points::{Amount, Kind};
use firstcome::core::time::Timestamp;
use firstcome::lock::Pauses;
use firstcome::{LockError, Locks};
use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

/// How long a strategy waits for a lock, and the lock's lease: usual values of services.
const WAIT: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(3);
/// The pause between two tries of a spin lock, and before the next try after a version conflict.
const PAUSE_MS: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// How often a spin lock is tried, and a transaction after a conflict: once, and three times more.
const TRIES: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// The lock's name, for all strategies.
const LOCK: &str = "AUCTION:1";

/// The mutual exclusion of two bids.
pub(super) enum BidWay {
    /// Row locks: the listing and both wallets, for update.
    Rows,
    /// A named lock of the database.
    Named,
    /// A lock of firstcome, in order of arrival; then the version of the listing.
    Ours(Locks),
    /// A spin lock; then the version of the listing.
    Spin(Locks),
}

/// A database on which the hand-written strategies place bids.
pub(super) trait HandDatabase: Send + Sync + 'static {
    type Session: Session;

    /// Takes a connection from the pool, or waits for one.
    fn session(&self) -> impl Future<Output = anyhow::Result<Self::Session>> + Send;

    /// Recreates the tables, with so many bidders.
    fn lay_out(&self, bidders: usize) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Reads the stored rows, together with the answers of the run.
    fn facts(&self, run: &Run) -> impl Future<Output = anyhow::Result<Facts>> + Send;

    /// Returns how many writing transactions the server has seen.
    fn commits(&self) -> impl Future<Output = anyhow::Result<u64>> + Send;

    /// Returns the product and version of the server.
    fn version(&self) -> impl Future<Output = anyhow::Result<String>> + Send;

    /// Runs a statement that returns nothing.
    fn say(&self, statement: String) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// A connection. Each method is one round trip, unless it says otherwise.
pub(super) trait Session: Send {
    fn begin(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    fn commit(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    fn rollback(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Takes the named lock and begins: two round trips. Returns false if the lock was not obtained in time.
    fn begin_named(&mut self) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Releases the named lock, if the end of the transaction does not.
    fn end_named(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Reads the listing and the server's clock.
    fn listing(&mut self, lock: bool) -> impl Future<Output = anyhow::Result<HandListing>> + Send;

    /// Reads the wallets of two members, in the order of their numbers. Both may be the same member.
    fn wallets(&mut self, members: [i64; 2], lock: bool) -> impl Future<Output = anyhow::Result<Vec<Wallet>>> + Send;

    /// Writes the listing if its version is unchanged, the wallets, the records and the bid: four round trips.
    /// Otherwise returns false, and the transaction must be rolled back.
    fn write(&mut self, change: &Change) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Closes the connection, which releases its locks.
    fn discard(self);
}

/// The listing as it was read.
pub(super) struct HandListing {
    pub(super) bids: i64,
    pub(super) highest: Option<(i64, i64)>,
    pub(super) version: i64,
    pub(super) now_us: i64,
}

/// A wallet as it was read.
#[derive(Clone, Copy)]
pub(super) struct Wallet {
    pub(super) member: i64,
    pub(super) total: i64,
    pub(super) held: i64,
    pub(super) records: i64,
}

/// The changes of an accepted bid.
pub(super) struct Change {
    pub(super) version: i64,
    pub(super) number: i64,
    pub(super) price: i64,
    pub(super) now_us: i64,
    pub(super) bidder: Wallet,
    /// The wallet whose hold ends, the bid that it backed, and its price.
    pub(super) outbid: Option<(Wallet, i64, i64)>,
}

/// One record to write.
pub(super) struct Written {
    pub(super) wallet: Wallet,
    pub(super) kind: i64,
    pub(super) amount: i64,
    pub(super) bid: i64,
}

impl Change {
    /// Returns the records, with the wallets after them.
    pub(super) fn records(&self) -> Vec<Written> {
        let after =
            |wallet: &Wallet, by: i64| Wallet { held: wallet.held + by, records: wallet.records + 1, ..*wallet };
        let hold =
            Written { wallet: after(&self.bidder, self.price), kind: HOLD, amount: self.price, bid: self.number };
        let release = self.outbid.as_ref().map(|(wallet, bid, price)| Written {
            wallet: after(wallet, -price),
            kind: RELEASE,
            amount: *price,
            bid: *bid,
        });
        std::iter::once(hold).chain(release).collect()
    }
}

/// The numbers of the record kinds, as in the core.
pub(super) const CHARGE: i64 = Kind::Charge.number() as i64;
const HOLD: i64 = firstcome::core::points::Kind::Hold.number() as i64;
const RELEASE: i64 = firstcome::core::points::Kind::Release.number() as i64;

/// One strategy on one database.
pub(super) struct HandAuction<H> {
    pub(super) hand: H,
    way: BidWay,
    listing: ListingName,
    seller: MemberName,
    bidders: Vec<MemberName>,
}

/// The outcome of one transaction.
enum Attempt {
    Accepted(i64),
    Refused,
    /// Another bid was first: a retry may succeed.
    Conflict,
    NoLock,
}

/// An error, and whether it occurred in the commit.
struct Broken {
    in_commit: bool,
    error: anyhow::Error,
}

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Self {
        Self { in_commit: false, error }
    }
}

fn no_lock() -> BidOutcome {
    BidOutcome::Failed { may_be_done: false, says: "the lock was not to be had in time".into() }
}

impl<H: HandDatabase> HandAuction<H> {
    pub(super) fn new(hand: H, way: BidWay, bidders: usize) -> anyhow::Result<Self> {
        let listing = ListingName::parse("hot").ok().context("a name")?;
        Ok(Self { hand, way, listing, seller: member("seller")?, bidders: super::engine::bidders("hot", bidders)? })
    }

    /// Whether the rules of the core accept the bid.
    fn takes(&self, listing: &HandListing, bidder: usize, price: u64, available: i64) -> anyhow::Result<bool> {
        let terms = AuctionTerms { ends_at: Timestamp::MAX, min_increment: None, extend: None, settle_within_ms: None };
        let now = Timestamp::clamped_us(listing.now_us);
        let bids = u32::try_from(listing.bids)?;
        let highest = match listing.highest {
            None => None,
            Some((member, price)) => Some(Bid {
                number: bids,
                bidder: self.bidders.get(usize::try_from(member)?).context("an unknown bidder")?.clone(),
                price: Amount::new(u64::try_from(price)?).context("a price")?,
                at: now,
            }),
        };
        let standing = ListingStanding {
            name: self.listing.clone(),
            owner: self.seller.clone(),
            price: Amount::new(1).context("a price")?,
            starts_at: Timestamp::MIN,
            terms: Terms::Auction(terms),
            effective_ends_at: Timestamp::MAX,
            extensions: 0,
            bids,
            highest,
            phase: Phase::Open,
            version: listing.version.cast_unsigned(),
            last_at: now,
        };
        let listing = Listing::restore(standing).map_err(|damage| anyhow::anyhow!("{}", damage.as_str()))?;
        let price = Amount::new(price).context("a price")?;
        Ok(listing.judge_bid(&self.bidders[bidder], price, || available.max(0).cast_unsigned(), now).is_ok())
    }

    /// Reads, judges and writes within an open transaction.
    async fn judge(&self, session: &mut H::Session, bidder: usize, price: u64) -> Result<Attempt, Broken> {
        let lock = matches!(self.way, BidWay::Rows);
        let listing = session.listing(lock).await?;
        let member = bidder as i64;
        let outbid = listing.highest.map_or(member, |(highest, _)| highest);
        let wallets = session.wallets([member, outbid], lock).await?;
        let of = |member: i64| wallets.iter().find(|wallet| wallet.member == member).copied().context("no wallet");
        let wallet = of(member)?;
        if !self.takes(&listing, bidder, price, wallet.total - wallet.held)? {
            return Ok(Attempt::Refused);
        }
        let outbid = match listing.highest {
            Some((highest, price)) => Some((of(highest)?, listing.bids, price)),
            None => None,
        };
        let number = listing.bids + 1;
        let (version, now_us, price) = (listing.version, listing.now_us, price.cast_signed());
        let change = Change { version, number, price, now_us, bidder: wallet, outbid };
        if !session.write(&change).await? {
            return Ok(Attempt::Conflict);
        }
        session.commit().await.map_err(|error| Broken { in_commit: true, error })?;
        Ok(Attempt::Accepted(number))
    }

    async fn transact(&self, session: &mut H::Session, bidder: usize, price: u64) -> Result<Attempt, Broken> {
        let named = matches!(self.way, BidWay::Named);
        if !named {
            session.begin().await?;
        } else if !session.begin_named().await? {
            return Ok(Attempt::NoLock);
        }
        let attempt = self.judge(session, bidder, price).await?;
        if !matches!(attempt, Attempt::Accepted(_)) {
            session.rollback().await?;
        }
        if named {
            // An error here does not affect the bid: the lock then ends with the connection.
            session.end_named().await.map_err(|error| Broken { in_commit: true, error })?;
        }
        Ok(attempt)
    }

    async fn attempt(&self, bidder: usize, price: u64) -> Result<Attempt, Broken> {
        let mut session = self.hand.session().await?;
        let told = self.transact(&mut session, bidder, price).await;
        if told.is_err() {
            session.discard();
        }
        told
    }

    /// Tries so many times, again after each conflict.
    async fn attempts(&self, bidder: usize, price: u64, tries: u32) -> BidOutcome {
        for left in (0..tries).rev() {
            match self.attempt(bidder, price).await {
                Ok(Attempt::Accepted(number)) => {
                    return BidOutcome::Accepted(PlacedOnHot {
                        number: u32::try_from(number).unwrap_or(0),
                        bidder,
                        price,
                    });
                }
                Ok(Attempt::Refused) => return BidOutcome::Refused,
                Ok(Attempt::NoLock) => return no_lock(),
                Ok(Attempt::Conflict) if left == 0 => break,
                Ok(Attempt::Conflict) => tokio::time::sleep(Duration::from_millis(PAUSE_MS.get().into())).await,
                Err(Broken { in_commit, error }) => {
                    return BidOutcome::Failed { may_be_done: in_commit, says: format!("{error:#}") };
                }
            }
        }
        BidOutcome::Failed { may_be_done: false, says: "others were first at every try".into() }
    }
}

/// Returns the outcome of a bid whose lock was not obtained.
fn without_lock(error: &LockError) -> BidOutcome {
    match error {
        LockError::TimedOut { .. } | LockError::Contended { .. } => no_lock(),
        error => BidOutcome::Failed { may_be_done: false, says: error.to_string() },
    }
}

impl<H: HandDatabase> Bidding for HandAuction<H> {
    async fn place(&self, bidder: usize, price: u64) -> BidOutcome {
        match &self.way {
            BidWay::Rows | BidWay::Named => self.attempts(bidder, price, 1).await,
            BidWay::Ours(locks) => match locks.lock(LOCK).wait(WAIT).lease(LEASE).acquire().await {
                Err(error) => without_lock(&error),
                Ok(guard) => {
                    let told = self.attempts(bidder, price, TRIES.get()).await;
                    // The commit stands even if the lock was lost meanwhile: the version guards against that.
                    let _ = guard.release().await;
                    told
                }
            },
            BidWay::Spin(locks) => {
                let request = locks.lock(LOCK).policy(Pauses::Constant { every_ms: PAUSE_MS }).tries(TRIES);
                match request.wait(WAIT).lease(LEASE).fixed().acquire().await {
                    Err(error) => without_lock(&error),
                    Ok(guard) => {
                        let told = self.attempts(bidder, price, TRIES.get()).await;
                        let _ = guard.release().await;
                        told
                    }
                }
            }
        }
    }
}

/// Member, number, kind, amount, bid, total and held after it.
type RecordRow = (i64, i64, i64, i64, Option<i64>, i64, i64);

/// Converts rows of either kind of database to facts.
fn facts(
    run: &Run,
    (bids, highest): (i64, Option<(i64, i64)>),
    placed: &[(i64, i64, i64)],
    wallets: &[(i64, i64)],
    records: &[RecordRow],
) -> anyhow::Result<Facts> {
    let mut wallets: Vec<AuditedWallet> =
        wallets.iter().map(|&(total, held)| AuditedWallet { total, held, records: Vec::new() }).collect();
    for &(member, number, kind, amount, bid, total, held) in records {
        let kind = u8::try_from(kind).ok().and_then(Kind::from_number);
        let bid = bid.map(u32::try_from).transpose()?;
        let wallets = wallets.get_mut(usize::try_from(member)?).context("a record without a member")?;
        wallets.records.push(Entry { number, kind, amount, bid, total, held });
    }
    let as_placed = |&(number, member, price): &(i64, i64, i64)| -> anyhow::Result<PlacedOnHot> {
        Ok(PlacedOnHot { number: number.try_into()?, bidder: member.try_into()?, price: price.try_into()? })
    };
    Ok(Facts {
        points: POINTS.cast_signed(),
        accepted: run.accepted,
        told: run.placed.clone(),
        may_be_done: run.may_be_done,
        bids,
        highest: highest.map(|(member, price)| anyhow::Ok((usize::try_from(member)?, price))).transpose()?,
        placed: placed.iter().map(as_placed).collect::<Result<_, _>>()?,
        wallets,
    })
}
