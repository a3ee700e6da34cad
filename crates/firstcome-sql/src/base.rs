//! Connections to a database, and the operations that all tables need.

use super::dialect::{self, Connection, Dialect, Pool, Row, quoted};
use super::options::DatabaseOptions;
use super::reader::{Reader, wrong};
use super::watch::{Shown, Watch};
use super::{Address, SqlError, schema};
use firstcome_core::time::Timestamp;
use firstcome_store::edge::{Stopwatch, draw_pause};
use firstcome_store::outage::{Outage, ServerKind};
use firstcome_store::stats::{LastSuccess, RoundTrips};
use firstcome_store::{FaultKind, Names};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The first pause before something is done again, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// One database, and the connections to it.
pub struct Base {
    pool: Pool,
    /// See [`Address::server`].
    server: String,
    /// What its server speaks.
    pub dialect: Dialect,
    /// How connections behave.
    pub options: DatabaseOptions,
    flushes: Flushes,
    /// What the database has acknowledged to this process.
    pub watch: Arc<Watch>,
    usage: Arc<Usage>,
}

firstcome_core::debug_by_name!(Base);

/// What connections have in common.
struct Usage {
    /// Connections over which something is done.
    in_use: AtomicUsize,
    /// Whether the server answers.
    outage: Outage,
    round_trips: RoundTrips,
    last_commit: LastSuccess,
}

impl Usage {
    /// Measures a round trip.
    async fn timed<F: Future>(&self, call: F) -> F::Output {
        let watch = Stopwatch::start();
        let answer = call.await;
        self.round_trips.record(watch.elapsed());
        answer
    }

    /// Notes what an answer, or its lack, says of the server: to something that began when so many outages were over.
    fn noted<T>(&self, returns: u64, answer: Result<T, SqlError>) -> Result<T, SqlError> {
        match &answer {
            Err(error @ (SqlError::Unavailable { kind: FaultKind::Unreachable, .. } | SqlError::Unknown { .. })) => {
                self.outage.begin_since(error, returns);
            }
            // That others have all connections says nothing.
            Err(SqlError::Overloaded { .. }) => {}
            Ok(_) | Err(_) => self.outage.over(),
        }
        answer
    }
}

/// Makes durable what was read, on servers that show a commit before it is on disk: a flush makes durable everything that was shown
/// before it began. Those who wait at the same time share one.
#[derive(Default)]
pub struct Flushes {
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that went well. A caller that has it locked may begin another.
    ended: Mutex<u64>,
}

firstcome_core::debug_by_name!(Flushes);

/// A connection while something is done over it. One that was left in the middle of a transaction is closed.
pub struct Session {
    connection: Connection,
    until: Instant,
    /// How long one answer may take, if not all the time that is left.
    answer_max: Option<Duration>,
    clean: bool,
    /// [`Watch::looks`] when it was taken.
    pub looks: u64,
    usage: Arc<Usage>,
    /// [`Outage::returns`] when it was taken.
    returns: u64,
}

firstcome_core::debug_by_name!(Session);

impl Drop for Session {
    fn drop(&mut self) {
        self.usage.in_use.fetch_sub(1, Ordering::Relaxed);
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}

impl Session {
    /// Goes on until then, while no answer takes longer than `answer_max`.
    pub const fn lasting(mut self, until: Instant, answer_max: Duration) -> Self {
        (self.until, self.answer_max) = (until, Some(answer_max));
        self
    }

    /// What its server speaks.
    pub const fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    fn deadline(&self) -> Instant {
        self.answer_max.map_or(self.until, |answer_max| self.until.min(Instant::now() + answer_max))
    }

    /// Holds what it shows against what was acknowledged.
    async fn look(&mut self, watch: &Watch) -> Result<Shown, SqlError> {
        self.clean = false;
        let shown = match timeout_at(self.deadline(), watch.look(self.connection.lent())).await {
            Ok(Ok(shown)) => {
                self.clean = true;
                Ok(shown)
            }
            Ok(Err(error)) => Err(SqlError::in_transaction(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        };
        self.usage.noted(self.returns, shown)
    }

    /// Runs statements before a commit, and gives their rows.
    pub async fn ask(&mut self, text: String) -> Result<Vec<Row>, SqlError> {
        self.clean = false;
        let rows = match self.usage.timed(timeout_at(self.deadline(), self.connection.lent().ask(text))).await {
            Ok(rows) => rows.map_err(|error| conflict_or(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        };
        self.usage.noted(self.returns, rows)
    }

    /// Runs statements before a commit, and says how many rows they have written.
    pub async fn run(&mut self, text: String) -> Result<u64, SqlError> {
        self.clean = false;
        let rows = match self.usage.timed(timeout_at(self.deadline(), self.connection.lent().run(text))).await {
            Ok(rows) => rows.map_err(|error| conflict_or(&error)),
            Err(_) => Err(SqlError::late_in_transaction()),
        };
        self.usage.noted(self.returns, rows)
    }

    /// Commits. After an error that is [`SqlError::Unknown`] it may stand.
    pub async fn commit(mut self, patience: Duration) -> Result<(), SqlError> {
        self.clean = false;
        let committed = match self.usage.timed(timeout(patience, self.connection.lent().run("COMMIT".to_owned()))).await
        {
            Ok(Ok(_)) => {
                self.usage.last_commit.note();
                self.clean = true;
                Ok(())
            }
            Ok(Err(error)) => Err(SqlError::at_commit(&error)),
            Err(_) => Err(SqlError::late_at_commit()),
        };
        self.usage.noted(self.returns, committed)
    }

    /// Says that no transaction is open.
    pub const fn done(&mut self) {
        self.clean = true;
    }
}

/// A row that another caller has made in the meantime is a conflict like others: a caller that comes next sees it.
fn conflict_or(error: &sqlx::Error) -> SqlError {
    match error.as_database_error() {
        Some(said) if said.is_unique_violation() => SqlError::Serialization { says: error.to_string() },
        _ => SqlError::in_transaction(error),
    }
}

/// A pause before something is done again, longer each time.
#[derive(Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self::new()
    }
}

impl Pause {
    /// Starts with the shortest pause.
    pub const fn new() -> Self {
        Self(PAUSE_MIN)
    }

    /// Pauses; false, at once, if that would be too long.
    pub async fn again(&mut self, until: Instant) -> bool {
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
pub const ROLL_BACK: &str = "ROLLBACK;";

/// Whether it may go better the next time.
pub const fn is_passing(error: &SqlError) -> bool {
    matches!(
        error,
        SqlError::Serialization { .. }
            | SqlError::Overloaded { .. }
            | SqlError::Unavailable { kind: FaultKind::Unreachable, .. }
    )
}

impl Base {
    /// Connects, and makes sure that the server keeps its promises.
    pub async fn open(address: Address, options: DatabaseOptions) -> Result<Self, SqlError> {
        let base = Self::unchecked(address, options);
        match schema::check(&base).await {
            Ok(()) => Ok(base),
            Err(error) => Err(base.explained(error).await),
        }
    }

    /// The error of a first use, with its first cause: a pool tries again until its time is over, and tells only that. Names the
    /// server if that gives no connection.
    pub async fn explained(&self, error: SqlError) -> SqlError {
        if !matches!(error, SqlError::Unavailable { kind: FaultKind::Unreachable, .. }) {
            return error;
        }
        match timeout(self.options.connections.connect_timeout, self.pool.try_connect(&self.options)).await {
            Ok(Err(cause)) => SqlError::no_connection(&cause, &self.server),
            Ok(Ok(())) => error,
            Err(_) => SqlError::no_connection(&sqlx::Error::PoolTimedOut, &self.server),
        }
    }

    /// The same no matter what the server is. Nothing is sent yet.
    pub fn unchecked(address: Address, options: DatabaseOptions) -> Self {
        let watch = Arc::new(Watch::default());
        let (dialect, server) = (Dialect::of(&address), address.server());
        let outage = Outage::of(ServerKind::Database, &format!("{address:?}"));
        let pool = dialect::pool(address, &options, Arc::clone(&watch));
        let usage = Arc::new(Usage {
            in_use: AtomicUsize::new(0),
            outage,
            round_trips: RoundTrips::default(),
            last_commit: LastSuccess::default(),
        });
        Self { pool, server, dialect, options, flushes: Flushes::default(), watch, usage }
    }

    /// Takes a connection. Without one nothing was sent: [`SqlError::Overloaded`] if others have theirs, so that the server
    /// is there and too much is wanted of it; else it cannot be reached. Refused while the database lacks what it had acknowledged.
    pub async fn session(&self, until: Instant) -> Result<Session, SqlError> {
        let mut session = self.any_session(until).await?;
        if self.watch.takes_look() {
            session.look(&self.watch).await?;
        }
        self.watch.allow().map(|()| session)
    }

    /// Holds what the database shows against what it had acknowledged, also while it lacks some of it.
    pub async fn look_back(&self) -> Result<(), SqlError> {
        let mut session = self.any_session(Instant::now() + self.options.connections.answer_timeout).await?;
        if session.look(&self.watch).await? == Shown::Whole && self.watch.is_back() {
            self.watch.is_whole();
        }
        Ok(())
    }

    /// How long statements took.
    pub fn round_trips(&self) -> &RoundTrips {
        &self.usage.round_trips
    }

    /// When a transaction was committed for the last time, by the clock of this machine.
    pub fn last_commit(&self) -> Option<Timestamp> {
        self.usage.last_commit.at()
    }

    async fn any_session(&self, until: Instant) -> Result<Session, SqlError> {
        let says = || "no connection in time".to_owned();
        let returns = self.usage.outage.returns();
        let error = match timeout_at(until, self.pool.acquire()).await {
            Ok(Ok(connection)) => {
                self.usage.in_use.fetch_add(1, Ordering::Relaxed);
                let (looks, usage) = (self.watch.looks(), Arc::clone(&self.usage));
                // A connection that is at rest says nothing of the server: its first answer does.
                return Ok(Session { connection, until, answer_max: None, clean: true, looks, usage, returns });
            }
            Err(_) | Ok(Err(sqlx::Error::PoolTimedOut)) if 0 < self.usage.in_use.load(Ordering::Relaxed) => {
                SqlError::Overloaded { says: says() }
            }
            Ok(Err(error)) => SqlError::in_transaction(&error),
            Err(_) => SqlError::unreachable(says()),
        };
        self.usage.noted(returns, Err(error))
    }

    /// Ends a transaction that has changed nothing. What it has read is durable then.
    pub async fn end(&self, mut session: Session, how: &str) -> Result<(), SqlError> {
        session.run(how.to_owned()).await?;
        session.done();
        let until = session.until;
        // Others are not to wait for it meanwhile.
        drop(session);
        self.flush(until).await
    }

    /// Runs a text that only reads, and tries again for [`DatabaseOptions::patience`] when the connection breaks, none is free or no
    /// answer comes within [`SqlOptions::answer_timeout`](super::SqlOptions::answer_timeout). What it shows is durable.
    ///
    /// The time-out of one answer finds a dead connection. A server that stands still for a moment outlasts it, and a reader that
    /// waits is better off than one that is told an error.
    pub async fn read(&self, text: String) -> Result<Vec<Row>, SqlError> {
        let until = Instant::now() + self.options.patience.max(self.options.connections.answer_timeout);
        let mut pause = Pause::new();
        loop {
            match self.read_once(&text, until).await {
                Err(error) if is_passing(&error) && pause.again(until).await => {}
                read => return read,
            }
        }
    }

    /// Reads the names of a table after one, in the order of their bytes: at most `count`, as [`Self::read`] does. The table has
    /// them in a column `name`, of which `parse` makes a name.
    pub async fn names<N: Ord + Clone>(
        &self,
        table: &str,
        after: Option<&str>,
        count: usize,
        parse: impl Fn(&str) -> Option<N>,
    ) -> Result<Names<N>, SqlError> {
        let mut text = format!("SELECT name FROM {table} ");
        if let Some(after) = after {
            text.push_str("WHERE ");
            quoted(&mut text, after);
            text.push_str("<name ");
        }
        // One more than is wanted, to see whether there are more.
        text.push_str(&format!("ORDER BY name LIMIT {};", count.saturating_add(1)));
        let rows = self.read(text).await?;
        let name = |row| {
            let text = Reader::at(row, 0).maybe_text()?;
            text.as_deref().and_then(&parse).ok_or_else(|| wrong("an invalid name"))
        };
        Ok(Names::of_sorted(rows.iter().map(name).collect::<Result<_, _>>()?, count))
    }

    async fn read_once(&self, text: &str, until: Instant) -> Result<Vec<Row>, SqlError> {
        let session = self.session(until).await?;
        let mut session = session.lasting(until, self.options.connections.answer_timeout);
        let rows = session.ask(text.to_owned()).await?;
        session.done();
        drop(session);
        self.flush(until).await?;
        Ok(rows)
    }

    /// Returns when a flush has ended that began after this call. Nothing, on servers that need none.
    ///
    /// A caller that goes away in the middle leaves it to the next.
    pub async fn flush(&self, until: Instant) -> Result<(), SqlError> {
        if self.dialect.words().flush.is_empty() {
            return Ok(());
        }
        // One that has begun by now may be from before what was read.
        let begun = self.flushes.begun.load(Ordering::SeqCst);
        let ended = timeout_at(until, self.flushes.ended.lock()).await;
        let mut ended = ended.map_err(|_| SqlError::late_in_transaction())?;
        if begun < *ended {
            return Ok(());
        }
        let number = self.flushes.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut session = self.session(until).await?;
        session.run(self.dialect.words().flush.to_owned()).await?;
        session.done();
        *ended = number;
        Ok(())
    }
}
