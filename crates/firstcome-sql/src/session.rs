//! Locks of a database server's own: advisory locks in PostgreSQL, `GET_LOCK` in MySQL and MariaDB.
//!
//! # Promises
//! - Mutual exclusion as the server has it: a lock is held by one session, and until that ends or gives it back.
//! - A fence with every grant, larger than those of all grants of this lock before it. It is drawn in the session that
//!   holds the lock, after the grant. A session does one thing after the other, and gives its locks up last: its draw
//!   was drawn before the next one was granted the lock, also if it died in between or no process heard the number.
//! - Nothing is left behind. A future that is dropped while it waits closes its connection, which ends the wait (the server
//!   notices within about a second; PostgreSQL on Windows only when it would grant). So does everything else that fails.
//! - A process is told no fence that is as low as one that it was told before, also if the database went back: it is refused with
//!   [`FaultKind::WentBack`], and nothing is held, until the counter exceeds what this process was told.
//! - A dead connection is noticed by a ping, and the hold is lost then.
//!
//! # Not promised
//! - An order: that is the server's. (PostgreSQL and MariaDB serve mostly by arrival.)
//! - A lease. The hold lasts as long as the session, and a session may end at the server at any time, unnoticed here until
//!   the next ping and its time-out. In between another process may have the lock: let what is guarded refuse smaller fences. A
//!   machine that vanishes without a word keeps its locks until the server's keep-alives fail: about 25 s in PostgreSQL,
//!   what the system says in MySQL and MariaDB (hours, unless it is set).
//! - Anything after a failover: a replica knows nothing of the locks of the server before it, nor does another node of a
//!   Galera cluster. Fences may go back if the server does not flush each commit, or the replica was behind.
//!
//! # Poolers
//! A pooler that gives each transaction to any free connection (PgBouncer and pgcat in transaction mode, Supavisor on port
//! 6543, ProxySQL without its rule for `GET_LOCK`) breaks locks of sessions: they stay with a connection of the pooler. Connect
//! past it. It is refused at the opening if two connections are seen to share one session, and a hold is lost if its
//! session has become another one; a pooler with many idle connections can hide from both for as long as it gives each of
//! ours the same one.
//!
//! # Cost
//! A connection for each lock that is held or waited for; one that is given back is used again. A grant is one round trip in
//! PostgreSQL and two in MySQL, the end is one; a hold pings twice a second. A waiter in PostgreSQL keeps a
//! snapshot open, so rows that die meanwhile are not cleared away before the wait is over.
//!
//! # Names
//! PostgreSQL has 64-bit keys for each database, and this takes the first 8 bytes of SHA-256 of `firstcome/lock/` and the name:
//! no key of others is met but by a chance of 2^-64, and then both wait for each other, which harms no process. In MySQL the name
//! is `fc:` and 60 hexadecimal digits, of the whole server: let all who share locks name the same database and schema, for
//! the fences are counted there.

mod mysql;
mod postgres;

use super::{Address, SqlError, SqlOptions};
use firstcome_core::id::LockName;
use firstcome_core::lock::Fence;
use firstcome_store::edge::Stopwatch;
use firstcome_store::{FaultKind, Guarantees};
use mysql::MySqlSession;
use parking_lot::Mutex;
use postgres::PgSession;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};

/// Locks of one database server, over connections of their own. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct SessionLocks {
    shared: Arc<Shared>,
}

firstcome_core::debug_by_name!(SessionLocks);

struct Shared {
    address: Address,
    options: SqlOptions,
    connections: Arc<Semaphore>,
    /// Sessions without a lock, and since when.
    idle: Mutex<Vec<(Session, Stopwatch)>>,
    runtime: Handle,
    /// The highest fence that was told.
    highest: AtomicU64,
}

impl SessionLocks {
    /// What the store promises for these locks. No request.
    pub const fn guarantees(&self) -> Guarantees {
        Guarantees::SQL_SESSION
    }

    /// Connects, and looks whether the server will do; makes the counter of fences if it is absent (a sequence or a table
    /// named `firstcome_fence`). Call within a Tokio runtime, which then keeps the holds.
    ///
    /// Refused with [`SqlError::Broken`] for a version that is too old, for lack of rights, and for a pooler that could be
    /// detected; see above.
    pub async fn open(url: &str, options: SqlOptions) -> Result<Self, SqlError> {
        let address = Address::parse(url)?;
        let connections = Arc::new(Semaphore::new(options.connections_max.max(2) as usize));
        let shared = Shared {
            address,
            options,
            connections,
            idle: Mutex::default(),
            runtime: Handle::current(),
            highest: AtomicU64::new(0),
        };
        let (mut one, mut other) = (shared.connect().await?, shared.connect().await?);
        if one.id() == other.id() {
            return Err(pooled());
        }
        shared.in_time(one.prepare()).await?;
        for session in [&mut other, &mut one] {
            shared.in_time(session.ping()).await?;
        }
        shared.idle.lock().extend([one, other].map(|session| (session, Stopwatch::start())));
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Takes a lock, after waiting for at most so long; `None` if it was not to be had in time. The wait begins with the one for a
    /// connection, but the time to make one comes on top.
    ///
    /// Cancel-safe: a future that is dropped takes nothing.
    ///
    /// Fails if the server cannot be reached, and, for a wait of zero, with [`SqlError::Unavailable`] if all connections are
    /// in use. Nothing is held then.
    pub async fn take(&self, name: &LockName, wait: Duration) -> Result<Option<SessionHold>, SqlError> {
        let (shared, waited) = (&self.shared, Stopwatch::start());
        let connections = Arc::clone(&shared.connections);
        let permit = if wait.is_zero() {
            connections
                .try_acquire_owned()
                .map_err(|_| SqlError::unreachable("all connections for locks are in use"))?
        } else {
            match timeout(wait, connections.acquire_owned()).await {
                Ok(permit) => permit.map_err(|_| SqlError::unreachable("closed"))?,
                Err(_) => return Ok(None),
            }
        };
        let key = Key::of(name, &shared.address);
        if let Some(session) = shared.idle_one().await {
            match shared.attempt(session, &key, wait.saturating_sub(waited.elapsed())).await {
                // It had ended unnoticed, and so have others perhaps. What it was given has ended with it.
                Err(SqlError::Unavailable { .. }) => shared.idle.lock().clear(),
                told => return Ok(told?.map(|taken| SessionHold::new(shared, taken, key, permit))),
            }
        }
        let session = shared.connect().await?;
        let told = shared.attempt(session, &key, wait.saturating_sub(waited.elapsed())).await?;
        Ok(told.map(|taken| SessionHold::new(shared, taken, key, permit)))
    }
}

/// The counter of fences is below what this process was told: a backup was restored, or a copy took over that was behind.
fn went_back(fence: Fence, told: u64) -> SqlError {
    let says = format!(
        "the counter firstcome_fence went back: it gave {fence} after this process was told {told}; set it above all fences that \
         any process was told"
    );
    SqlError::Unavailable { kind: FaultKind::WentBack, says }
}

/// Something between us and the server gives our statements to other sessions.
fn pooled() -> SqlError {
    SqlError::broken("a pooler in transaction mode is in between, on which session locks do not hold: connect past it")
}

/// What a server calls a lock.
enum Key {
    Postgres(postgres::Key),
    MySql(mysql::Key),
}

impl Key {
    fn of(name: &LockName, address: &Address) -> Self {
        match address {
            Address::Postgres(_) => Self::Postgres(postgres::Key::of(name)),
            Address::MySql(_) => Self::MySql(mysql::Key::of(name)),
        }
    }
}

/// A connection, which has one lock at most. Dropped, it is closed, and its lock is free.
enum Session {
    Postgres(PgSession),
    MySql(MySqlSession),
}

/// A session that has a lock.
struct Granted {
    session: Session,
    fence: Fence,
}

impl Session {
    async fn prepare(&mut self) -> Result<(), SqlError> {
        match self {
            Self::Postgres(session) => session.prepare().await,
            Self::MySql(session) => session.prepare().await,
        }
    }

    async fn take(&mut self, key: &Key, wait: Duration) -> Result<Option<Fence>, SqlError> {
        match (self, key) {
            (Self::Postgres(session), Key::Postgres(key)) => session.take(*key, wait).await,
            (Self::MySql(session), Key::MySql(key)) => session.take(key, wait).await,
            _ => Err(another_kind()),
        }
    }

    async fn give_back(&mut self, key: &Key) -> Result<bool, SqlError> {
        match (self, key) {
            (Self::Postgres(session), Key::Postgres(key)) => session.give_back(*key).await,
            (Self::MySql(session), Key::MySql(key)) => session.give_back(key).await,
            _ => Err(another_kind()),
        }
    }

    async fn ping(&mut self) -> Result<(), SqlError> {
        match self {
            Self::Postgres(session) => session.ping().await,
            Self::MySql(session) => session.ping().await,
        }
    }

    /// As the server numbers its sessions.
    const fn id(&self) -> u64 {
        match self {
            Self::Postgres(session) => session.id(),
            Self::MySql(session) => session.id(),
        }
    }

    /// Whether the server waits for a whole number of seconds, and this is none.
    const fn rounds(&self, wait: Duration) -> bool {
        match self {
            Self::Postgres(_) => false,
            Self::MySql(session) => session.rounds(wait),
        }
    }
}

fn another_kind() -> SqlError {
    SqlError::broken("a session of another kind of server")
}

impl Shared {
    async fn connect(&self) -> Result<Session, SqlError> {
        let opened = async {
            match &self.address {
                Address::Postgres(options) => PgSession::open(options, &self.options).await.map(Session::Postgres),
                Address::MySql(options) => MySqlSession::open(options, &self.options).await.map(Session::MySql),
            }
        };
        self.in_time(opened).await
    }

    /// With the time of a connection on top: what it is made for is asked there.
    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
        let limit = self.options.connect_timeout + self.options.answer_timeout;
        timeout(limit, asked).await.unwrap_or_else(|_| Err(SqlError::late_in_transaction()))
    }

    /// A session that was used before. One that stood for a while is asked whether it lives: a wait on it may be long.
    async fn idle_one(&self) -> Option<Session> {
        let (mut session, since) = self.idle.lock().pop()?;
        if since.elapsed() < self.options.ping_interval {
            return Some(session);
        }
        match timeout(self.options.answer_timeout, session.ping()).await {
            Ok(Ok(())) => Some(session),
            Ok(Err(_)) | Err(_) => {
                self.idle.lock().clear();
                None
            }
        }
    }

    /// Asks for a lock in a session, which is closed unless it has the lock, or surely does not have it.
    async fn attempt(&self, mut session: Session, key: &Key, wait: Duration) -> Result<Option<Granted>, SqlError> {
        // All locks draw from one counter, so everything that is drawn from now on exceeds what was told before.
        let told = self.highest.load(Ordering::SeqCst);
        let ends_early = session.rounds(wait);
        let limit = if ends_early { wait } else { wait + self.options.answer_timeout };
        match timeout(limit, session.take(key, wait)).await {
            Ok(Ok(Some(fence))) if fence.get() <= told => Err(went_back(fence, told)),
            Ok(Ok(Some(fence))) => {
                self.highest.fetch_max(fence.get(), Ordering::SeqCst);
                Ok(Some(Granted { session, fence }))
            }
            Ok(Ok(None)) => {
                self.put_back(session);
                Ok(None)
            }
            Ok(Err(error)) => Err(error),
            Err(_) if ends_early => Ok(None),
            Err(_) => Err(SqlError::late_in_transaction()),
        }
    }

    fn put_back(&self, session: Session) {
        self.idle.lock().push((session, Stopwatch::start()));
    }
}

/// A lock that is held by a session. Dropped, it is given back in the background.
pub struct SessionHold {
    fence: Fence,
    session: u64,
    lost: watch::Receiver<bool>,
    /// To the process that keeps the session: give it back, and say whether it was held until then.
    keeper: oneshot::Sender<oneshot::Sender<bool>>,
}

impl SessionHold {
    fn new(shared: &Arc<Shared>, granted: Granted, key: Key, permit: OwnedSemaphorePermit) -> Self {
        let Granted { session, fence } = granted;
        let ((tell_lost, lost), (keeper, asked)) = (watch::channel(false), oneshot::channel());
        let id = session.id();
        let keep = Keep { shared: Arc::clone(shared), session, key, lost: tell_lost, permit };
        shared.runtime.spawn(keep.run(asked));
        Self { fence, session: id, lost, keeper }
    }

    /// The fence: larger than that of every hold of this lock before it.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// What the server calls the session that holds it: a process id in PostgreSQL, a connection id in MySQL. For operators,
    /// who can end it.
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// Whether the session is known to be over, or no process answers for it. No request.
    pub fn is_lost(&self) -> bool {
        // No process keeps it any more: the runtime has ended.
        *self.lost.borrow() || self.lost.has_changed().is_err()
    }

    /// Resolves when the session is known to be over; never once the lock was given back.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Gives the lock back. Returns whether it was held until then: `false` also if no process can say. One round trip.
    ///
    /// A future that is dropped leaves it to the background.
    pub async fn release(self) -> bool {
        let (tell, told) = oneshot::channel();
        // An error means that the session has ended.
        self.keeper.send(tell).is_ok() && told.await.unwrap_or(false)
    }
}

impl fmt::Debug for SessionHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHold")
            .field("fence", &self.fence)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The task behind a hold.
struct Keep {
    shared: Arc<Shared>,
    session: Session,
    key: Key,
    lost: watch::Sender<bool>,
    /// Free again when the session is.
    permit: OwnedSemaphorePermit,
}

impl Keep {
    async fn run(mut self, mut asked: oneshot::Receiver<oneshot::Sender<bool>>) {
        let (pause, patience) = (self.shared.options.ping_interval, self.shared.options.answer_timeout);
        let tell = loop {
            tokio::select! {
                biased;
                // Dropped, no process wants to be told.
                asked = &mut asked => break asked.ok(),
                () = sleep(pause) => {}
            }
            if !matches!(timeout(patience, self.session.ping()).await, Ok(Ok(()))) {
                // And the connection is closed: a server that still has the session then ends it.
                self.lost.send_replace(true);
                return;
            }
        };
        let given_back = timeout(patience, self.session.give_back(&self.key)).await;
        let was_held = matches!(given_back, Ok(Ok(true)));
        let Self { shared, session, lost, permit, .. } = self;
        if was_held {
            shared.put_back(session);
        } else {
            lost.send_replace(true);
        }
        // With the connection and the permit free, so that a process that is told can use them.
        drop(permit);
        if let Some(tell) = tell {
            // An error means that no process waits for it any more.
            let _ = tell.send(was_held);
        }
    }
}
