//! What all handlers share.

use crate::accept::Limits;
use crate::address::{self, Forwarders, Proxies};
use crate::auction::Auctions;
use crate::auth::{Caller, Keys};
use crate::backend::{Backend, Coupons, Rooms};
use crate::error::Code;
use crate::error::Problem;
use crate::lock::{LockLimits, LockService, Parts};
use crate::metrics::Metrics;
use crate::pass::{PassKey, PassKeys, Passes};
use crate::rate::{Limiter, RateLimit};
use axum::http::{HeaderMap, HeaderValue};
use firstcome::cluster::Cluster;
use firstcome::core::id::MemberName;
use firstcome::core::time::Timestamp;
use firstcome::edge::{draw_hasher, draw_secret};
use firstcome::{AuctionStore, CouponStore, Durability, Embedded, HandleKey, Locks, OpenFault, RoomStore};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// How a service is set up.
#[derive(Clone)]
pub struct Config {
    /// Who may do what.
    pub keys: Keys,
    /// Pages of these origins may make public calls; none without it.
    pub allow_origins: Vec<HeaderValue>,
    /// Deadlines and numbers.
    pub limits: Limits,
    /// Whose word counts about where a call comes from; no client's without it.
    pub proxies: Proxies,
    /// How often one address may join rooms anonymously; as often as it likes without it.
    pub joins: Option<RateLimit>,
    /// How often one address may call without a valid key; as often as it likes without it.
    pub calls: Option<RateLimit>,
    /// How much waiting for locks, and holding them, may take.
    pub locks: LockLimits,
}

impl Config {
    /// A service with these keys, and everything else as it is by default.
    pub fn with_keys(keys: Keys) -> Self {
        let (joins, calls) = (Some(RateLimit::JOINS), Some(RateLimit::CALLS));
        let (limits, proxies, locks) = (Limits::default(), Proxies::default(), LockLimits::default());
        Self { keys, allow_origins: Vec::new(), limits, proxies, joins, calls, locks }
    }
}

/// A service: its store, its settings, its figures.
pub struct App {
    pub(crate) backend: Backend,
    pub(crate) coupons: Coupons,
    pub(crate) rooms: Rooms,
    pub(crate) auctions: Auctions,
    /// Whether members and listings are all that is served: then `backend` is an empty store, and no client reaches it.
    pub(crate) is_auctions_alone: bool,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) service: Arc<LockService>,
    joins: Limiter,
    calls: Limiter,
    pub(crate) forwarders: Forwarders,
    /// Absent until the first room is made.
    passes: OnceLock<Passes>,
    /// Whether an operator wants it to stop, though it still serves.
    leaving: AtomicBool,
    draining: watch::Sender<bool>,
    /// When the stores were last asked whether they answer, and whether they did.
    probe: Mutex<Option<(Instant, bool)>>,
}

/// Stores that take longer to answer are not ready: a client that asks does not wait much longer himself.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// For so long it counts that another store has answered, or has not: anybody may ask, without a key.
const PROBE_COUNTS: Duration = Duration::from_secs(1);

fn pass_keys(rooms: &Rooms) -> Option<PassKeys> {
    let mut keys = rooms.pass_secrets().into_iter().map(|secret| PassKey::new(secret.id, secret.bytes));
    let mut keys: Vec<PassKey> = keys.by_ref().collect::<Result<_, _>>().ok()?;
    let current = keys.pop()?;
    PassKeys::new(current, keys).ok()
}

impl App {
    /// A service over a store, with locks in memory.
    ///
    /// Panics if the operating system gives no random bytes.
    pub fn new(store: Embedded, config: Config) -> Self {
        #[expect(clippy::expect_used, reason = "nothing here is safe without chance")]
        let secret = draw_secret().expect("the operating system gives random bytes");
        Self::with_locks(store, config, Locks::memory(), HandleKey::new(secret))
    }

    /// A service over a store, with these locks. `handle_key` must live as long as what they hold: beside durable locks
    /// it is kept where they are. Call within a Tokio runtime.
    pub fn with_locks(store: Embedded, config: Config, locks: Locks, handle_key: HandleKey) -> Self {
        let auctions = Auctions::over(store.clone());
        Self::of_parts(Backend::Embedded(store), auctions, false, config, locks, handle_key)
    }

    /// One node of a cluster: rooms and coupons over `cluster`, members and listings in the same database, locks on the same Redis.
    /// All nodes have the same `handle_key`. Call within a Tokio runtime.
    pub fn of_cluster(
        cluster: Cluster,
        auctions: impl AuctionStore + 'static,
        config: Config,
        locks: Locks,
        handle_key: HandleKey,
    ) -> Self {
        Self::of_parts(Backend::cluster(cluster), Auctions::beyond(auctions), false, config, locks, handle_key)
    }

    /// A service of members and listings alone, over any store of them: the rows of coupons, rooms and locks are answered
    /// `not_served`. Call within a Tokio runtime.
    ///
    /// Panics if the operating system gives no random bytes.
    pub fn of_auctions(auctions: impl AuctionStore + 'static, config: Config) -> Self {
        #[expect(clippy::expect_used, reason = "nothing here is safe without chance")]
        let secret = draw_secret().expect("the operating system gives random bytes");
        let (auctions, locks) = (Auctions::beyond(auctions), Locks::memory());
        Self::of_parts(Backend::Embedded(Embedded::memory()), auctions, true, config, locks, HandleKey::new(secret))
    }

    fn of_parts(
        backend: Backend,
        auctions: Auctions,
        is_auctions_alone: bool,
        config: Config,
        locks: Locks,
        handle_key: HandleKey,
    ) -> Self {
        let metrics = Metrics::new((!is_auctions_alone).then_some(&backend), &auctions);
        let joins = Limiter::new(config.joins, draw_hasher());
        let calls = Limiter::new(config.calls, draw_hasher());
        let (draining, stopping) = watch::channel(false);
        let service = LockService::new(Parts {
            locks,
            handle_key,
            store: backend.clone(),
            figures: metrics.locks.clone(),
            limits: config.locks,
            patience: config.limits.answer,
            stopping,
        });
        Self {
            coupons: Coupons::new(&backend),
            rooms: Rooms::new(&backend),
            backend,
            auctions,
            is_auctions_alone,
            config,
            metrics,
            service,
            joins,
            calls,
            forwarders: Forwarders::default(),
            passes: OnceLock::new(),
            leaving: AtomicBool::new(false),
            draining,
            probe: Mutex::new(None),
        }
    }

    /// Takes over the secrets of passes that the store has now.
    fn refresh_passes(&self) {
        let Some(keys) = pass_keys(&self.rooms) else { return };
        match self.passes.get() {
            Some(passes) => passes.replace_keys(keys),
            // An operator that sets it at the same time has read the same secrets.
            None => drop(self.passes.set(Passes::new(keys))),
        }
    }

    /// What makes and reads passes. There is none before the first room.
    ///
    /// Looks each time whether there is a newer secret: the call that brought it may have been given up before it was
    /// done, and no other client would tell.
    pub(crate) fn passes(&self) -> Option<&Passes> {
        let known = self.passes.get().map(|passes| passes.keys().signing_id());
        if known != self.rooms.newest_pass_secret() {
            self.refresh_passes();
        }
        self.passes.get()
    }

    /// Counts one anonymous join of the client that is behind this call.
    pub(crate) fn may_join(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Problem> {
        // Without a connection there is no address: a call within the process.
        let Some(peer) = peer else { return Ok(()) };
        self.count(&self.joins, address::client(peer, headers, &self.config.proxies))
    }

    /// Counts one call without a valid key.
    pub(crate) fn may_call(&self, client: IpAddr) -> Result<(), Problem> {
        self.count(&self.calls, client)
    }

    fn count(&self, limiter: &Limiter, client: IpAddr) -> Result<(), Problem> {
        // By the clock that no operator sets: after the wall was set back it stands still, and would limit for as long.
        let now = Timestamp::clamped_us(self.backend.steady().as_us());
        limiter.check(client, now).map_err(|limited| {
            Problem::new(Code::RateLimited).of_address(client).retry_after_ms(limited.retry_after_ms)
        })
    }

    /// Makes `/readyz` say no, so that a balancer sends no further clients, while everything is served as before.
    pub fn announce_stop(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Makes `/readyz` say no, so that a balancer sends no client any more, and sends away a client that waits for a lock:
    /// no client waits longer than the service drains, and who is told at once finds another one. [`crate::serve`] does it
    /// when it is told to stop.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
    }

    /// Why the service should get no requests, if it should not.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.leaving.load(Ordering::Relaxed) || *self.draining.borrow() {
            return Some("draining");
        }
        if let Some(fault) = self.backend.fault() {
            return Some(fault.kind.code());
        }
        self.faults().first().map(|open| open.fault.kind.code())
    }

    /// The faults that stop a part of the stores, and are open now.
    pub(crate) fn faults(&self) -> Vec<OpenFault> {
        let [backend, auctions] = [self.backend.faults(), self.auctions.faults()];
        [backend.open(), auctions.open()].concat()
    }

    /// Whether the stores can be reached. Those of this process can; others are asked, auctions for what no client has, once in
    /// [`PROBE_COUNTS`] however many want to know.
    pub(crate) async fn stores_answer(&self) -> bool {
        if !self.is_auctions_alone && self.backend.as_cluster().is_none() {
            return true;
        }
        let Ok(nobody) = MemberName::parse("readyz") else { return false };
        // A client that comes meanwhile waits for the same answer.
        let mut probe = self.probe.lock().await;
        if let Some((at, answers)) = *probe
            && at.elapsed() < PROBE_COUNTS
        {
            return answers;
        }
        let both = async { tokio::join!(self.backend.answers(), self.auctions.balance(&nobody)) };
        let answer = tokio::time::timeout(PROBE_WITHIN, both).await;
        let answers = matches!(answer, Ok((Ok(()), Ok(_))));
        *probe = Some((Instant::now(), answers));
        answers
    }

    /// The rows that are not served here, by the beginnings of their paths.
    pub(crate) const fn lacks(&self) -> &'static [&'static str] {
        if self.is_auctions_alone {
            return &["/v1/coupons/", "/v1/rooms/", "/v1/locks/", "/v1/pass-keys"];
        }
        &[]
    }

    pub(crate) fn is_dev(&self) -> bool {
        matches!(self.config.keys, Keys::Dev)
    }

    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.config.keys.caller(headers)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.coupons.durability()
    }
}
