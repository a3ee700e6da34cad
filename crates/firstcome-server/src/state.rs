//! The state that all handlers share.

mod readiness;

use crate::accept::{Limits, Peer};
use crate::address::{self, FORWARDED_HOST, FORWARDED_PROTO, Forwarders, Proxies, wide_network};
use crate::auction::Auctions;
use crate::auth::{self, Caller, FirstKeys, KeyDigest, Keys, Scope};
use crate::backend::{ApiKeys, Backend, Coupons, Erasures, Purges, Rooms};
use crate::cookie::Transport;
use crate::dashboard::Dashboard;
use crate::error::{Code, Problem};
use crate::failures::{
    Credential, FailureCap, FailureLimits, Failures, Refused, note_failed_authentication, note_refused_attempt,
};
use crate::grace::{GateWatches, GracePolicy};
use crate::joins::{Cap, JoinLimits, Joins};
use crate::live::{Live, STREAMS_MAX};
use crate::lock::{LockLimits, LockService, Parts};
use crate::metrics::Metrics;
use crate::pass::{PassKey, PassKeys, Passes};
use crate::purge::PURGE_EVERY;
use crate::rate::{Counted, Limiter, RateLimit, Table};
use crate::receipt::HEADS_EVERY;
#[cfg(feature = "otlp")]
use crate::trace::TraceConfig;
use crate::trace::Tracer;
use crate::work::{Accepted, Earned, Offer, Work};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header, request};
use firstcome::cluster::Cluster;
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::room::RoomSettings;
use firstcome::core::room::appearance::Appearance;
use firstcome::core::time::Timestamp;
use firstcome::edge::{draw_hasher, draw_secret};
use firstcome::throttle::Throttle;
use firstcome::work::WorkBits;
use firstcome::{
    AuctionStore, CouponStore, Durability, Embedded, EraseStore, HandleKey, Locks, PurgeStore, Retention, RoomStore,
    StoreError,
};
use firstcome_tls::ServerTls;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// The configuration of a service.
#[derive(Clone)]
pub struct Config {
    /// The known keys and their scopes.
    pub keys: Keys,
    /// Whether keys of the first start count that the store has.
    pub first_keys: FirstKeys,
    /// Pages of these origins may make public calls; empty for none.
    pub allow_origins: Vec<HeaderValue>,
    /// The limits on connections, and the deadlines.
    pub limits: Limits,
    /// The proxies whose `X-Forwarded-For` is believed; empty for none.
    pub proxies: Proxies,
    /// How often visitors may join rooms anonymously.
    pub joins: JoinLimits,
    /// The work that a join without a key has to show; `None` for none. Development mode demands none.
    pub join_work: Option<WorkBits>,
    /// How often one address may call without a valid key; `None` for no limit.
    pub calls: Option<RateLimit>,
    /// How often authentications may fail.
    pub failures: FailureLimits,
    /// Coupons without a room that any visitor may claim, on a page of their own.
    pub public_coupons: Vec<CouponName>,
    /// The most streams of visitors at once. A visitor who gets none polls. With 0 the dashboard polls as well.
    pub streams_max: usize,
    /// What gates do while the store gives no answer.
    pub grace: GracePolicy,
    /// The limits on waiting acquires and remembered holds.
    pub locks: LockLimits,
    /// On the dashboard a second operator must confirm within this time that a room is closed or a coupon ended; `None` if one
    /// operator is enough. Development mode has no operators, and ignores it.
    pub second_person_within: Option<Duration>,
    /// How often the service publishes heads of rooms and coupons; `None` if the caller does so by
    /// [`ReceiptStore::publish_heads`](firstcome::ReceiptStore::publish_heads). Receipts wait for heads.
    pub heads_every: Option<Duration>,
    /// How long data stay that are over.
    pub retention: Retention,
    /// How often the service purges what is over; `None` if the caller does so by [`PurgeStore::purge`].
    /// The nodes of a cluster together purge so often.
    pub purge_every: Option<Duration>,
    /// The certificate of the ports of the service and of a gate, which then accept TLS alone; `None` for plain text. The port of
    /// operators stays in plain text.
    pub tls: Option<ServerTls>,
    /// Which requests are traced, and where their traces go; `None` if none are.
    #[cfg(feature = "otlp")]
    pub traces: Option<TraceConfig>,
}

impl Config {
    /// Returns the default configuration with these keys.
    pub fn with_keys(keys: Keys) -> Self {
        let (joins, calls) = (JoinLimits::default(), Some(RateLimit::CALLS));
        let (limits, proxies, locks) = (Limits::default(), Proxies::default(), LockLimits::default());
        let (allow_origins, public_coupons, second_person_within) = (Vec::new(), Vec::new(), None);
        let (streams_max, grace) = (STREAMS_MAX, GracePolicy::default());
        Self {
            keys,
            first_keys: FirstKeys::Accepted,
            allow_origins,
            limits,
            proxies,
            joins,
            join_work: None,
            calls,
            failures: FailureLimits::default(),
            public_coupons,
            streams_max,
            grace,
            locks,
            second_person_within,
            heads_every: Some(HEADS_EVERY),
            retention: Retention::default(),
            purge_every: Some(PURGE_EVERY),
            tls: None,
            #[cfg(feature = "otlp")]
            traces: None,
        }
    }

    /// How a peer reaches the port of the service or of a gate.
    pub(crate) const fn transport(&self) -> Transport {
        if self.tls.is_some() { Transport::Tls } else { Transport::Plain }
    }
}

/// A service: its store, its configuration, its metrics.
pub struct App {
    pub(crate) backend: Backend,
    pub(crate) api_keys: ApiKeys,
    pub(crate) coupons: Coupons,
    pub(crate) rooms: Rooms,
    pub(crate) auctions: Auctions,
    pub(crate) erasures: Erasures,
    pub(crate) purges: Purges,
    /// Whether the service has members and listings only. Then `backend` is an empty store that no client reaches.
    pub(crate) is_auctions_alone: bool,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    /// Absent if no request is traced.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) live: Live,
    pub(crate) gates: GateWatches,
    pub(crate) service: Arc<LockService>,
    joins: Joins,
    /// Absent if joins need no work.
    work: Option<Work>,
    calls: Limiter,
    logins: Limiter,
    texts_at_gates: Limiter,
    pub(crate) failures: Failures,
    pub(crate) dashboard: Dashboard,
    pub(crate) forwarders: Forwarders,
    /// Absent until the first room exists.
    passes: OnceLock<Passes>,
    /// Whether an operator has announced a stop. The service still serves.
    leaving: AtomicBool,
    draining: watch::Sender<bool>,
    /// Warnings of heads that could not be published.
    pub(crate) unpublished: Throttle,
    /// When the stores were last probed, and whether they answered.
    probe: Mutex<Option<(Instant, bool)>>,
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

fn pass_keys(rooms: &Rooms) -> Option<PassKeys> {
    let mut keys = rooms.pass_secrets().into_iter().map(|secret| PassKey::new(secret.id, secret.bytes));
    let mut keys: Vec<PassKey> = keys.by_ref().collect::<Result<_, _>>().ok()?;
    let current = keys.pop()?;
    PassKeys::new(current, keys).ok()
}

impl App {
    /// Creates a service over an embedded store, with locks in memory.
    ///
    /// Panics if the operating system gives no random bytes.
    pub fn new(store: Embedded, config: Config) -> Self {
        #[expect(clippy::expect_used, reason = "nothing here is safe without chance")]
        let secret = draw_secret().expect("the operating system gives random bytes");
        Self::with_locks(store, config, Locks::memory(), HandleKey::new(secret))
    }

    /// Creates a service over an embedded store, with these locks. `handle_key` must live as long as the holds do:
    /// store it beside durable locks. Call within a Tokio runtime.
    pub fn with_locks(store: Embedded, config: Config, locks: Locks, handle_key: HandleKey) -> Self {
        let auctions = Auctions::over(store.clone());
        Self::of_parts(Backend::Embedded(store), auctions, false, config, locks, handle_key)
    }

    /// Creates one node of a cluster: rooms and coupons over `cluster`, members and listings in the same database,
    /// locks on the same Redis. All nodes have the same `handle_key`. Call within a Tokio runtime.
    pub fn of_cluster(
        cluster: Cluster,
        auctions: impl AuctionStore + EraseStore + PurgeStore + 'static,
        config: Config,
        locks: Locks,
        handle_key: HandleKey,
    ) -> Self {
        Self::of_parts(Backend::cluster(cluster), Auctions::beyond(auctions), false, config, locks, handle_key)
    }

    /// Creates a service with members and listings only, over any store of them. It answers `not_served` to the
    /// endpoints of coupons, rooms and locks. Call within a Tokio runtime.
    ///
    /// Panics if the operating system gives no random bytes.
    pub fn of_auctions(auctions: impl AuctionStore + EraseStore + PurgeStore + 'static, config: Config) -> Self {
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
        let mut metrics = Metrics::new((!is_auctions_alone).then_some(&backend), &auctions);
        if let Some(tls) = &config.tls {
            metrics.show_certificate(tls.clone());
        }
        let table = Table::new(draw_hasher());
        let joins = Joins::new(config.joins, &table);
        let work = config.join_work.map(|bits| Work::new(handle_key.work_key(), bits));
        let calls = Limiter::new(config.calls, Counted::Calls, &table);
        let logins = Limiter::new(config.calls.map(|_| RateLimit::LOGINS), Counted::Logins, &table);
        let texts_at_gates = Limiter::new(config.failures.address, Counted::TextsAtGates, &table);
        let failures = Failures::new(config.failures, &table);
        let (draining, stopping) = watch::channel(false);
        let live = Live::new(config.streams_max, stopping.clone(), metrics.live.clone());
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
            api_keys: ApiKeys::new(&backend, is_auctions_alone),
            coupons: Coupons::new(&backend),
            rooms: Rooms::new(&backend),
            erasures: Erasures::new(&backend, &auctions, is_auctions_alone),
            purges: Purges::new(&backend, &auctions, is_auctions_alone),
            backend,
            auctions,
            is_auctions_alone,
            config,
            metrics,
            tracer: None,
            live,
            gates: GateWatches::default(),
            service,
            joins,
            work,
            calls,
            logins,
            texts_at_gates,
            failures,
            dashboard: Dashboard::default(),
            forwarders: Forwarders::default(),
            passes: OnceLock::new(),
            leaving: AtomicBool::new(false),
            draining,
            unpublished: Throttle::default(),
            probe: Mutex::new(None),
        }
    }

    /// Loads the secrets of passes that the store has now.
    fn refresh_passes(&self) {
        let Some(keys) = pass_keys(&self.rooms) else { return };
        match self.passes.get() {
            Some(passes) => passes.replace_keys(keys),
            // A concurrent call that sets it has read the same secrets.
            None => drop(self.passes.set(Passes::new(keys))),
        }
    }

    /// Returns the keys that mint and verify passes. `None` before the first room exists.
    ///
    /// Checks each time whether the store has other secrets: the call that made or revoked one may have been dropped
    /// before it ended, and nothing else would announce that.
    pub(crate) fn passes(&self) -> Option<&Passes> {
        let known = self.passes.get().map(|passes| passes.keys().secret_set());
        if known != self.rooms.pass_secret_set() {
            self.refresh_passes();
        }
        self.passes.get()
    }

    /// Returns the settings of a room, if it is there.
    pub async fn room_settings(&self, room: &RoomName) -> Result<Option<RoomSettings>, StoreError> {
        Ok(self.rooms.room(room).await?.ok().map(|summary| summary.settings))
    }

    /// Makes a room. `settings` must be checked.
    pub async fn make_room(&self, room: &RoomName, settings: RoomSettings) -> Result<(), StoreError> {
        // Settings that replace any others are refused by no rule.
        self.rooms.put_room(room, settings).await.map(drop)
    }

    /// Returns how the page of a room looks; the usual look if the room is not there.
    pub async fn appearance(&self, room: &RoomName) -> Result<Appearance, StoreError> {
        let appearance = self.rooms.appearance(room).await?;
        Ok(appearance.map(|appearance| Appearance::clone(&appearance)).unwrap_or_default())
    }

    /// Sets how the page of a room looks, if the room is there. `appearance` must be checked.
    pub async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> Result<(), StoreError> {
        self.rooms.put_appearance(room, appearance).await.map(drop)
    }

    /// Judges what an anonymous join shows as its work, and counts it against the client's address and network, the room
    /// and the service. Returns the accepted work; `None` if joins need none.
    pub(crate) fn may_join<'a>(
        &self,
        room: &RoomName,
        shown: Option<&'a str>,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Result<Option<Accepted<'a>>, Problem> {
        // The work first: a client is told a challenge without being counted.
        let accepted = self.work.as_ref().map(|work| work.check(room, shown, self.backend.now())).transpose()?;
        let earned = accepted.map_or(Earned::Work, |accepted| accepted.earned);
        self.count_join(Some(room), earned, peer, headers)?;
        Ok(accepted)
    }

    /// Counts one anonymous claim of a coupon that has no room, as a join that counts against the client alone.
    pub(crate) fn may_claim(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Result<(), Problem> {
        self.count_join(None, Earned::Work, peer, headers)
    }

    /// Returns the challenge for the page of a room: the given one as long as it counts, or a new one. `None` if joins need
    /// no work.
    pub(crate) fn work_offer(&self, room: &RoomName, given: Option<&str>) -> Option<Offer> {
        let work = self.work.as_ref().filter(|_| !self.is_dev())?;
        Some(work.offer(room, given, self.backend.now()))
    }

    /// Returns a header in which a trusted proxy says something of its client.
    pub(crate) fn forwarded<'a>(&self, parts: &'a request::Parts, name: &HeaderName) -> Option<&'a HeaderValue> {
        let Peer(peer) = parts.extensions.get()?;
        parts.headers.get(name).filter(|_| self.config.proxies.trusts(*peer))
    }

    /// How a client has reached the site. What a trusted proxy says counts before the connection, which is that of the proxy.
    pub(crate) fn transport(&self, parts: &request::Parts) -> Transport {
        match self.forwarded(parts, &FORWARDED_PROTO) {
            Some(scheme) if scheme == "https" => Transport::Tls,
            Some(_) => Transport::Plain,
            None => self.config.transport(),
        }
    }

    /// Whether a browser got to this service over TLS by a name that other machines know. `transport` is that of the connection.
    pub(crate) fn is_secure(&self, transport: Transport, peer: IpAddr, headers: &HeaderMap) -> bool {
        let is_of_proxy =
            || self.config.proxies.trusts(peer) && headers.get(FORWARDED_PROTO).is_some_and(|scheme| scheme == "https");
        if self.is_dev() || !(transport == Transport::Tls || is_of_proxy()) {
            return false;
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        !auth::is_loopback(host)
    }

    /// Returns the name by which a client has reached the site; empty if it says none.
    pub(crate) fn host<'a>(&self, parts: &'a request::Parts) -> &'a str {
        let host = self.forwarded(parts, &FORWARDED_HOST).or_else(|| parts.headers.get(header::HOST));
        host.and_then(|host| host.to_str().ok()).unwrap_or_default()
    }

    /// Whether a page of another site sent this request. Browsers say so by one header over TLS, by another without. A program
    /// says neither, and has no cookies of a browser.
    pub(crate) fn is_foreign(&self, parts: &request::Parts) -> bool {
        if let Some(site) = parts.headers.get(SEC_FETCH_SITE) {
            return site != "same-origin" && site != "none";
        }
        let Some(origin) = parts.headers.get(header::ORIGIN) else { return false };
        let named = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        named.is_none_or(|(_, named)| named != self.host(parts))
    }

    fn count_join(
        &self,
        room: Option<&RoomName>,
        earned: Earned,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        // A call within the process has no connection, so it has no address.
        let Some(peer) = peer else { return Ok(()) };
        let client = address::client(peer, headers, &self.config.proxies);
        let Err((cap, limited)) = self.joins.check(client, room, earned, self.steady()) else { return Ok(()) };
        self.metrics.joins.refused(cap);
        let problem = match cap {
            Cap::Address => Problem::new(Code::RateLimited).of_address(client),
            Cap::Network | Cap::Wait => {
                Problem::new(Code::TooManyJoins).with("network", wide_network(client).to_string())
            }
            Cap::Room | Cap::Total => Problem::new(Code::TooManyJoins),
        };
        Err(problem.with("limit", cap.as_str()).retry_after_ms(limited.retry_after_ms))
    }

    /// Returns the clock that limits count by. No operator can set it: a wall clock that was set back would stand still,
    /// and limit for as long.
    fn steady(&self) -> Timestamp {
        Timestamp::clamped_us(self.backend.steady().as_us())
    }

    /// Counts one call without a valid key against its address.
    pub(crate) fn may_call(&self, client: IpAddr) -> Result<(), Problem> {
        self.count(&self.calls, client)
    }

    /// Counts one attempt to log in to the dashboard against the client's address.
    pub(crate) fn may_log_in(&self, client: IpAddr) -> Result<(), Problem> {
        self.count(&self.logins, client)?;
        self.may_show_key(client)
    }

    /// Refuses a key unread if its address, or all addresses together, have failed to authenticate too often. An address that
    /// has shown a valid key is not refused.
    pub(crate) fn may_show_key(&self, client: IpAddr) -> Result<(), Problem> {
        match self.failures.check(client, || self.steady()) {
            Err(refused) if !self.failures.is_proven(client) => Err(self.refused_attempt(client, refused)),
            _ => Ok(()),
        }
    }

    /// Refuses to read what a client has shown to a gate in place of a key, if its address has shown no valid key and too much
    /// of this. Counts it.
    pub(crate) fn may_show_text(&self, client: IpAddr) -> Result<(), Problem> {
        if self.failures.is_proven(client) { Ok(()) } else { self.count(&self.texts_at_gates, client) }
    }

    /// Refuses a pass unread as [`Self::may_show_key`] refuses a key. A pass that is remembered costs no signature, and is
    /// not refused.
    pub(crate) fn may_show_pass(&self, client: IpAddr, pass: &str) -> Result<(), Problem> {
        match self.failures.check(client, || self.steady()) {
            Err(refused) if !self.passes().is_some_and(|passes| passes.remembers(pass)) => {
                Err(self.refused_attempt(client, refused))
            }
            _ => Ok(()),
        }
    }

    /// Counts one failed authentication. An error is the answer to it, in place of the usual one: it is over a limit.
    pub(crate) fn failed_to_authenticate(&self, client: IpAddr, shown: Credential) -> Result<(), Problem> {
        self.metrics.failures.failed(shown);
        note_failed_authentication(client, shown);
        self.failures.count(client, self.steady()).map_err(|refused| self.refused_attempt(client, refused))
    }

    fn refused_attempt(&self, client: IpAddr, (cap, limited): Refused) -> Problem {
        self.metrics.failures.refused(cap);
        note_refused_attempt(client, cap);
        let problem = Problem::new(Code::RateLimited).detail("Too many authentications have failed.");
        let problem = problem.of_address(client).with("limit", cap.as_str()).retry_after_ms(limited.retry_after_ms);
        match cap {
            FailureCap::Network => problem.with("network", wide_network(client).to_string()),
            FailureCap::Address | FailureCap::Total => problem,
        }
    }

    fn count(&self, limiter: &Limiter, client: IpAddr) -> Result<(), Problem> {
        limiter.check(client, self.steady()).map_err(|limited| {
            Problem::new(Code::RateLimited).of_address(client).retry_after_ms(limited.retry_after_ms)
        })
    }

    /// Makes `/readyz` answer 503, so that a balancer sends no further clients. Calls are served as before.
    pub fn announce_stop(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Makes `/readyz` answer 503, and ends all waits for locks. No client then waits longer than the service drains,
    /// and each can turn to another node at once. [`crate::serve`] calls this when it is told to stop.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
    }

    /// Returns the path prefixes of the endpoints that this service does not provide.
    pub(crate) const fn lacks(&self) -> &'static [&'static str] {
        if self.is_auctions_alone {
            return &[
                "/v1/coupons/",
                "/v1/rooms/",
                "/v1/events",
                "/rooms/",
                "/coupons/",
                "/v1/locks/",
                "/v1/pass-keys",
                "/dashboard/rooms",
                "/dashboard/coupons",
                "/dashboard/locks",
            ];
        }
        &[]
    }

    pub(crate) fn is_dev(&self) -> bool {
        matches!(self.config.keys, Keys::Dev)
    }

    /// Identifies the caller of a call that may change something, or that shows secrets. Refuses a key to view.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        match self.reader(headers)? {
            caller if caller.scope == Scope::View => Err(Code::ViewOnly.into()),
            caller => Ok(caller),
        }
    }

    /// Identifies the caller of a call that changes nothing. Accepts a key to view.
    pub(crate) fn reader(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(key) = auth::shown_key(headers)? else { return Ok(self.config.keys.caller_without_key()) };
        self.key_holder(&KeyDigest::of(key)).ok_or_else(|| Code::Unauthorized.into())
    }

    /// Returns the caller that a key identifies now: one of the configuration, or of the store. `None` for an unknown key, and in
    /// development mode.
    pub(crate) fn key_holder(&self, digest: &KeyDigest) -> Option<Caller> {
        if self.is_dev() {
            return None;
        }
        let (first_keys, now) = (self.config.first_keys, || self.backend.now());
        let stored = self.api_keys.find(digest, |key| auth::stored_caller(key, digest, first_keys, now));
        // A key that is in both has the larger scope.
        [stored, self.config.keys.caller_of(digest)].into_iter().flatten().max_by_key(|caller| caller.scope)
    }

    /// Returns the keys that are accepted now, with which operators may have logged in. None in development mode.
    pub(crate) fn accepted_keys(&self) -> Vec<(Scope, KeyDigest)> {
        if self.is_dev() {
            return Vec::new();
        }
        let (book, first_keys, now) = (self.api_keys.book(), self.config.first_keys, self.backend.now());
        let accepted = |key| auth::stored_scope(key, first_keys, || now).map(|scope| (scope, key.digest));
        self.config.keys.known().iter().copied().chain(book.keys().filter_map(accepted)).collect()
    }

    pub(crate) fn durability(&self) -> Durability {
        self.coupons.durability()
    }
}
