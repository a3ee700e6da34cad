//! The market of one kind of database: connections, the numbers of names, and reads.

use super::flush::Flushes;
use super::judge::Command;
use super::lanes::{Lanes, Scope};
use super::load::{self, Reader};
use super::options::MarketOptions;
use super::tongue::{self, LISTING_COLUMNS, Tongue, quoted, tag};
use crate::edge::{draw_hasher, draw_pause};
use crate::error::{FaultKind, StoreError};
use crate::market::{Closings, ListingView, MarketAnswer, Numbered};
use crate::sql::{Address, SqlError};
use firstcome_core::auction::{Bid, Listing, Rejection};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Balance, Record};
use parking_lot::Mutex;
use sqlx::Pool;
use sqlx::pool::PoolConnection;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Names whose numbers are kept in memory. Beyond it all are forgotten, and asked for again.
const NAMES_MAX: usize = 1 << 19;
/// The first pause before something is done again, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A market on one kind of database.
pub(super) struct Shop<D: Tongue> {
    pool: Pool<D>,
    pub(super) options: MarketOptions,
    pub(super) lanes: Lanes,
    pub(super) flushes: Flushes,
    /// Connections over which something is done.
    in_use: Arc<AtomicUsize>,
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

/// A connection while something is done over it. One that was left in the middle of a transaction is closed.
pub(super) struct Session<D: Tongue> {
    connection: PoolConnection<D>,
    until: Instant,
    clean: bool,
    in_use: Arc<AtomicUsize>,
}

impl<D: Tongue> Drop for Session<D> {
    fn drop(&mut self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}

impl<D: Tongue> Session<D> {
    /// Runs statements before a commit, and gives their rows.
    pub(super) async fn ask(&mut self, text: String) -> Result<Vec<D::Row>, SqlError> {
        self.clean = false;
        match timeout_at(self.until, D::ask(&mut self.connection, text)).await {
            Ok(rows) => rows.map_err(|error| conflict_or(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        }
    }

    /// Runs statements before a commit, and says how many rows they have written.
    pub(super) async fn run(&mut self, text: String) -> Result<u64, SqlError> {
        self.clean = false;
        match timeout_at(self.until, D::run(&mut self.connection, text)).await {
            Ok(rows) => rows.map_err(|error| conflict_or(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        }
    }

    /// Commits. After an error that is [`SqlError::Unknown`] it may stand.
    pub(super) async fn commit(mut self, patience: Duration) -> Result<(), SqlError> {
        self.clean = false;
        match timeout(patience, D::run(&mut self.connection, "COMMIT".to_owned())).await {
            Ok(Ok(_)) => self.clean = true,
            Ok(Err(error)) => return Err(SqlError::at_commit(&error)),
            Err(_) => return Err(SqlError::late_at_commit()),
        }
        Ok(())
    }

    /// Says that no transaction is open.
    pub(super) const fn done(&mut self) {
        self.clean = true;
    }
}

/// A row that somebody else has made in the meantime is a conflict like others: whoever comes next sees it.
fn conflict_or(error: &sqlx::Error) -> SqlError {
    match error.as_database_error() {
        Some(said) if said.is_unique_violation() => SqlError::Serialization { says: error.to_string() },
        _ => SqlError::in_transaction(error),
    }
}

/// A pause before something is done again, longer each time.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) const fn new() -> Self {
        Self(PAUSE_MIN)
    }

    /// Pauses; false, at once, if that would be too long.
    pub(super) async fn again(&mut self, until: Instant) -> bool {
        let pause = draw_pause(self.0);
        self.0 = (self.0 * 2).min(PAUSE_MAX);
        if until <= Instant::now() + pause {
            return false;
        }
        sleep(pause).await;
        true
    }
}

/// Ends a transaction, and nothing of it stays.
pub(super) const ROLL_BACK: &str = "ROLLBACK;";

/// Whether it may go better the next time.
pub(super) const fn is_passing(error: &SqlError) -> bool {
    matches!(
        error,
        SqlError::Serialization { .. }
            | SqlError::Overloaded { .. }
            | SqlError::Unavailable { kind: FaultKind::Unreachable, .. }
    )
}

impl<D: Tongue> Shop<D> {
    /// Connects, makes sure that the server keeps its promises, and brings the tables to this version.
    pub(super) async fn open(address: Address, options: MarketOptions) -> Result<Self, SqlError> {
        let shop = Self {
            pool: D::pool(address, &options)?,
            options,
            lanes: Lanes::new(),
            flushes: Flushes::default(),
            in_use: Arc::default(),
            members: Mutex::new(HashMap::with_hasher(draw_hasher())),
            listings: Mutex::new(HashMap::with_hasher(draw_hasher())),
            counts: Counts::default(),
            due: Arc::new(Notify::new()),
        };
        super::schema::check(&shop).await?;
        super::schema::migrate(&shop).await?;
        Ok(shop)
    }

    /// Takes a connection. Without one nothing was sent: [`SqlError::Overloaded`] if others have theirs, so that the server
    /// is there and too much is wanted of it; else it cannot be reached.
    pub(super) async fn session(&self, until: Instant) -> Result<Session<D>, SqlError> {
        let says = || "no connection in time".to_owned();
        match timeout_at(until, self.pool.acquire()).await {
            Ok(Ok(connection)) => {
                self.in_use.fetch_add(1, Ordering::Relaxed);
                Ok(Session { connection, until, clean: true, in_use: Arc::clone(&self.in_use) })
            }
            Err(_) | Ok(Err(sqlx::Error::PoolTimedOut)) if 0 < self.in_use.load(Ordering::Relaxed) => {
                Err(SqlError::Overloaded { says: says() })
            }
            Ok(Err(error)) => Err(SqlError::in_transaction(&error)),
            Err(_) => Err(SqlError::unreachable(says())),
        }
    }

    /// Ends a transaction that has changed nothing. What it has read is durable then.
    pub(super) async fn end(&self, mut session: Session<D>, how: &str) -> Result<(), SqlError> {
        session.run(how.to_owned()).await?;
        session.done();
        let until = session.until;
        // Others are not to wait for it meanwhile.
        drop(session);
        self.flush(until).await
    }

    pub(super) fn closings(&self) -> Closings {
        let [closed, defaulted] =
            [&self.counts.closed, &self.counts.defaulted].map(|count| count.load(Ordering::Relaxed));
        Closings { closed, defaulted }
    }

    /// Forgets the numbers of all names: somebody has put other tables in the place of those that were read.
    pub(super) fn forget_names(&self) {
        self.members.lock().clear();
        self.listings.lock().clear();
    }

    /// The number of a listing, if there is one.
    pub(super) async fn listing_id(
        &self,
        session: &mut Session<D>,
        name: &ListingName,
    ) -> Result<Option<i64>, SqlError> {
        if let Some(id) = self.listings.lock().get(name) {
            return Ok(Some(*id));
        }
        let rows = session.ask(tongue::find_listing(name)).await?;
        session.done();
        let Some(row) = rows.first() else { return Ok(None) };
        let id = Reader::at(row, 1).integer()?;
        keep(&self.listings, name, id);
        Ok(Some(id))
    }

    /// The numbers of members, who are created if they are not there.
    pub(super) async fn member_ids(
        &self,
        session: &mut Session<D>,
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
            let create = if created { tongue::create_members::<D>(&missing) } else { String::new() };
            let rows = session.ask(format!("{create}{}", tongue::find_members(&missing))).await?;
            session.done();
            for row in &rows {
                let mut cells = Reader::at(row, 1);
                let (id, name) = (cells.integer()?, cells.member()?);
                keep(&self.members, &name, id);
                ids.insert(name, Some(id));
            }
        }
        let ids: BTreeMap<_, _> = ids.into_iter().filter_map(|(name, id)| Some((name, id?))).collect();
        Ok(ids)
    }

    /// Runs a text that only reads, again if the connection breaks. What it shows is durable.
    pub(super) async fn read(&self, text: String) -> Result<Vec<D::Row>, SqlError> {
        let until = Instant::now() + self.options.connections.answer_timeout;
        let mut pause = Pause::new();
        loop {
            let mut session = self.session(until).await?;
            let read = session.ask(text.clone()).await;
            if read.is_ok() {
                session.done();
            }
            drop(session);
            let durable = match read {
                Ok(rows) => self.flush(until).await.map(|()| rows),
                Err(error) => Err(error),
            };
            match durable {
                Err(error) if is_passing(&error) && pause.again(until).await => {}
                durable => return durable,
            }
        }
    }

    pub(super) async fn listing(self: &Arc<Self>, name: &ListingName) -> MarketAnswer<ListingView> {
        let seen = self.seen(name).await?;
        let is_due = |view: &ListingView| {
            Listing::restore(view.standing.clone())
                .is_ok_and(|listing| listing.due_at().is_some_and(|due| due <= view.now))
        };
        if !seen.as_ref().is_ok_and(is_due) {
            return Ok(seen);
        }
        // Time has decided, and whoever holds the row may be committing what came just before that: closing waits for it.
        let _ = self.command(Scope::Listing(name.clone()), Command::Advance).await?;
        self.seen(name).await
    }

    /// A listing as it was committed last.
    async fn seen(&self, name: &ListingName) -> MarketAnswer<ListingView> {
        let columns = tongue::listing_columns();
        let mut text = format!("SELECT {},{columns},{} FROM firstcome_listing WHERE name=", tag::LISTING, D::CLOCK);
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
    ) -> MarketAnswer<Numbered<Bid>> {
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
            let mut cells = Reader::at(row, 0);
            match cells.integer()? {
                tag::BID => bids.push(load::bid(&mut cells)?),
                _ => known = true,
            }
        }
        if !known {
            return Ok(Err(Rejection::UnknownListing));
        }
        Ok(Ok(numbered(bids, count, |bid| bid.number.into())))
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
             WHERE r.member=(SELECT id FROM firstcome_member WHERE name={name}) AND {};",
            tag::RECORD,
            page("r.number", after, count)
        );
        let rows = self.read(text).await?;
        let records: Result<Vec<_>, _> = rows.iter().map(|row| load::record(row, member)).collect();
        Ok(numbered(records?, count, |record| record.number))
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
    Numbered { items, next }
}

fn keep<N: Clone + Eq + Hash>(names: &Mutex<HashMap<N, i64, RandomState>>, name: &N, id: i64) {
    let mut names = names.lock();
    if NAMES_MAX <= names.len() {
        names.clear();
    }
    names.insert(name.clone(), id);
}
