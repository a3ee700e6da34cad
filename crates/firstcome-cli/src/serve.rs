//! `firstcome serve`: the service over the embedded store, over a database (members and listings only), or as one node
//! of a cluster over Redis and a database.

mod lifecycle;
mod listeners;
mod operators;
mod renewal;
mod runtime;
mod supervisor;
#[cfg(feature = "otlp")]
mod traces;

use crate::arguments::duration;
use crate::clocks;
use crate::cluster::{Node, Servers};
use crate::deployment_secret::SecretArgs;
use crate::descriptors;
use crate::failure::{Failure, Outcome};
use crate::failures::FailureArgs;
use crate::gate::GatePlan;
use crate::joins::JoinArgs;
use crate::keys;
use crate::logs::LogArgs;
use crate::output::write_out;
use crate::purge::RetentionArgs;
use crate::settings::{
    self, AfterGrace, ChangedSettings, ConfigArgs, Problems, at_once, at_once_or_0, check_data, per_minute,
};
use crate::store_address::{StoreAddressArgs, StoreAddresses};
use crate::transport::TransportArgs;
use anyhow::anyhow;
use clap::Args;
use firstcome::core::coupon::{CouponLimit, CouponSettings};
use firstcome::core::id::CouponName;
use firstcome::edge::SystemClock;
use firstcome::sql::{Address, SqlAuctions};
use firstcome::sqlite::DATABASE_FILE;
use firstcome::work::WorkBits;
use firstcome::{CouponStore, Embedded, Locks, Retention};
use firstcome_server::address::{Block, Proxies};
use firstcome_server::api::FiguresFor;
use firstcome_server::auth::{KeyDigest, Keys};
use firstcome_server::gate::{GateConfig, serve_gate};
use firstcome_server::live::STREAMS_MAX;
use firstcome_server::rate::RateLimit;
use firstcome_server::{
    App, Config, ConnectionThreads, FailureLimits, GracePolicy, JoinLimits, Limits, LockLimits, OnLoss, api,
};
use firstcome_tls::ServerTls;
use http::HeaderValue;
use listeners::Listeners;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Where a service listens unless a setting says otherwise.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The arguments of `firstcome serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// Address to listen on
    #[arg(long, env = "FIRSTCOME_LISTEN", value_name = "ADDRESS", default_value_t = LISTEN)]
    listen: SocketAddr,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// The arguments of a service, also of one behind a gate.
#[derive(Args)]
pub(crate) struct ServiceArgs {
    /// Address for /metrics and health, for a port that only operators reach. /metrics needs a key unless the address is on
    /// loopback
    #[arg(long, env = "FIRSTCOME_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,
    /// Certificate as PEM, with those between it and its authority; then only TLS is accepted, at the address of visitors too.
    /// Read again when it changes, and at SIGHUP [default: plain text]
    #[arg(long, env = "FIRSTCOME_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, as PEM
    #[arg(long, env = "FIRSTCOME_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Directory of the embedded store; made if it is not there and its parent is
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "firstcome-data")]
    data: PathBuf,
    #[command(flatten)]
    servers: StoreAddressArgs,
    #[command(flatten)]
    secret: SecretArgs,
    /// Development mode: a call without a key acts as admin; loopback only
    #[arg(long, env = "FIRSTCOME_DEV")]
    dev: bool,
    /// Create this coupon if it is not there
    #[arg(long, value_name = "NAME=LIMIT", value_parser = settings::coupon)]
    coupon: Vec<(CouponName, CouponLimit)>,
    /// Coupon without a room that any visitor may claim, at /coupons/NAME [default: none]
    #[arg(long, env = "FIRSTCOME_PUBLIC_COUPON", value_name = "NAME", value_delimiter = ',', value_parser = settings::coupon_name)]
    public_coupon: Vec<CouponName>,
    /// Origin whose pages may make public calls [default: none]
    #[arg(long, env = "FIRSTCOME_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', value_parser = settings::origin)]
    allow_origin: Vec<HeaderValue>,
    /// Proxy whose X-Forwarded-For counts, as an address or a block such as 10.0.0.0/8 [default: none]
    #[arg(long, env = "FIRSTCOME_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',')]
    trusted_proxy: Vec<Block>,
    #[command(flatten)]
    log: LogArgs,
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    traces: traces::TraceArgs,
    #[command(flatten)]
    joins: JoinArgs,
    /// Calls without a valid key per minute and address; 0 for as many as come
    #[arg(long, env = "FIRSTCOME_CALLS_PER_MINUTE", value_name = "N", default_value_t = RateLimit::CALLS.per_minute.get())]
    calls_per_minute: u32,
    #[command(flatten)]
    failures: FailureArgs,
    /// Connections at once; fewer if the limit of file descriptors is lower
    #[arg(long, env = "FIRSTCOME_CONNECTIONS_MAX", value_name = "N", value_parser = at_once, default_value = "10000")]
    connections_max: usize,
    /// Connections of one address at once, and requests of one client behind a trusted proxy; 0 for as many as fit, as with
    /// --dev [default: 1000]
    #[arg(long, env = "FIRSTCOME_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = at_once_or_0)]
    connections_per_address: Option<usize>,
    /// Streams of events to visitors near the front of a line at once; a further visitor polls, and 0 lets all of them and
    /// the dashboard poll
    #[arg(long, env = "FIRSTCOME_STREAMS_MAX", value_name = "N", default_value_t = STREAMS_MAX)]
    streams_max: usize,
    /// Gates: how long visitors whose admission had not ended go on while the store gives no answer
    #[arg(long, env = "FIRSTCOME_GRACE", value_name = "DURATION", value_parser = duration, default_value = "30s")]
    grace: Duration,
    /// Gates: whom they let in after that, no visitor (close) or all of them (open)
    #[arg(long, env = "FIRSTCOME_ON_LOSS", value_name = "RULE", value_enum, default_value_t = AfterGrace::Close)]
    on_loss: AfterGrace,
    /// Lock requests that wait at once, each on a connection; a further request gets a free lock or `overloaded`
    #[arg(long, env = "FIRSTCOME_LOCK_WAITS_MAX", value_name = "N", value_parser = at_once, default_value = "10000")]
    lock_waits_max: usize,
    /// After a signal to stop: time during which /readyz says no and everything is served as before, for a balancer to notice.
    /// A second signal ends it. Without a balancer nothing is gained by waiting
    #[arg(long, env = "FIRSTCOME_STOP_GRACE", value_name = "DURATION", value_parser = duration, default_value = "0s")]
    stop_grace: Duration,
    /// Time for what is under way, after a signal to stop and the grace
    #[arg(long, env = "FIRSTCOME_DRAIN", value_name = "DURATION", value_parser = duration, default_value = "9s")]
    drain: Duration,
    /// On the dashboard, a second operator must confirm within this time that a room is closed or a coupon ended
    /// [default: one operator is enough]
    #[arg(long, env = "FIRSTCOME_SECOND_PERSON_WITHIN", value_name = "DURATION", value_parser = duration)]
    second_person_within: Option<Duration>,
    #[command(flatten)]
    retention: RetentionArgs,
    #[command(flatten)]
    _settings: ConfigArgs,
    /// For the log: the settings that are no defaults.
    #[arg(skip)]
    pub(crate) changed: ChangedSettings,
}

/// The stores of the service.
enum Stores {
    /// Everything in the data directory.
    Directory,
    /// Members and listings in the database at this address.
    Auctions(String),
    /// Everything on servers that other nodes share.
    Cluster(Servers),
}

pub(crate) struct Plan {
    listen: SocketAddr,
    admin_listen: Option<SocketAddr>,
    /// The certificate of the service; `None` in plain text.
    tls: Option<ServerTls>,
    data: PathBuf,
    stores: Stores,
    dev: bool,
    /// Keys from the environment; `None` to use those of the data directory or of the deployment.
    keys: Option<Keys>,
    /// Further keys, which may only view.
    view_keys: Vec<KeyDigest>,
    second_person_within: Option<Duration>,
    coupons: Vec<(CouponName, CouponLimit)>,
    public_coupons: Vec<CouponName>,
    allow_origins: Vec<HeaderValue>,
    proxies: Proxies,
    joins: JoinLimits,
    join_work: Option<WorkBits>,
    calls: Option<RateLimit>,
    failures: FailureLimits,
    streams_max: usize,
    grace: GracePolicy,
    limits: Limits,
    stop_grace: Duration,
    locks: LockLimits,
    retention: Retention,
    gate: Option<GatePlan>,
    #[cfg(feature = "otlp")]
    traces: Option<firstcome_server::TraceConfig>,
    changed: ChangedSettings,
}

impl ServiceArgs {
    /// How other machines are reached.
    pub(crate) const fn transport(&self) -> &TransportArgs {
        &self.servers.transport
    }

    /// Returns the limits of connections: those that were set, as far as the system has file descriptors for them.
    fn limits(&self) -> Limits {
        let connections_per_address = match self.connections_per_address {
            // In development mode all calls come from this machine.
            None if self.dev => None,
            None => Limits::default().connections_per_address,
            Some(count) => NonZeroUsize::new(count),
        };
        let connections_max = descriptors::fitting(self.connections_max);
        Limits { drain: self.drain, connections_max, connections_per_address, ..Limits::default() }
    }

    /// Returns what gates do while the store gives no answer.
    fn grace(&self) -> GracePolicy {
        GracePolicy { grace: self.grace, on_loss: OnLoss::from(self.on_loss) }
    }

    fn lock_limits(&self) -> LockLimits {
        LockLimits { waits_max: self.lock_waits_max, ..LockLimits::default() }
    }

    /// Returns the stores, and what contradicts them.
    fn stores(&self, has_gate: HasGate) -> Result<Stores, Failure> {
        let usage = |says: &str| Err(Failure::Usage(anyhow!("{says}")));
        let mut problems = Problems::default();
        let addresses = problems.take(self.servers.read());
        let secret = self.servers.are_both_named().then(|| self.secret.read());
        let secret = secret.and_then(|secret| problems.take(secret));
        problems.end()?;
        let StoreAddresses { redis, sql } = addresses.unwrap_or_default();
        let Some(sql) = sql else {
            // A node of a cluster stores nothing in a directory.
            check_data(&self.data)?;
            return Ok(Stores::Directory);
        };
        if let Some(redis) = redis {
            let secret = secret.map_or_else(|| self.secret.read(), Ok)?;
            return Ok(Stores::Cluster(Servers { redis, sql, secret }));
        }
        if !self.coupon.is_empty() {
            return usage("--coupon makes no sense with --sql alone: it serves no coupons");
        }
        if has_gate == HasGate::Yes {
            return usage("a gate needs rooms, and --sql alone has none: give --redis too");
        }
        check_data(&self.data)?;
        Ok(Stores::Auctions(sql))
    }

    /// Refuses addresses that development mode must not serve.
    fn check_dev(&self, listen: SocketAddr, gate: Option<&GatePlan>) -> Outcome {
        let usage = |says: &str| Err(Failure::Usage(anyhow!("{says}")));
        if self.dev && !listen.ip().is_loopback() {
            return usage("--dev listens on loopback only: anybody who reaches it acts as admin");
        }
        if self.dev && gate.is_some_and(|gate| !gate.listen.ip().is_loopback()) {
            return usage("--dev listens on loopback only: without keys no limit of an address counts");
        }
        Ok(())
    }
}

/// Whether a service stands before a site.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasGate {
    No,
    Yes,
}

/// Checks what the settings say together, and reads the files that they name. Fails with all problems at once.
fn plan(listen: SocketAddr, args: ServiceArgs, gate: Option<GatePlan>) -> Result<Plan, Failure> {
    let mut problems = Problems::default();
    problems.take(args.check_dev(listen, gate.as_ref()));
    let admin_listen = problems.take(operators::check(args.admin_listen, args.dev));
    let stores = problems.take(args.stores(if gate.is_some() { HasGate::Yes } else { HasGate::No }));
    let keys = problems.take(if args.dev { Ok(Some(Keys::Dev)) } else { keys::given() });
    let view_keys = problems.take(keys::view_keys());
    #[cfg(feature = "otlp")]
    let traces = problems.take(args.traces.config(&args.servers.transport)).flatten();
    let tls = problems.take(renewal::certificate(args.tls_cert.clone(), args.tls_key.clone()));
    problems.end()?;
    let given = (stores, keys, view_keys, tls, admin_listen);
    let (Some(stores), Some(keys), Some(view_keys), Some(tls), Some(admin_listen)) = given else {
        return Err(Failure::Usage(anyhow!("a setting is missing")));
    };
    Ok(Plan {
        listen,
        tls,
        admin_listen,
        stores,
        dev: args.dev,
        keys,
        view_keys,
        second_person_within: args.second_person_within,
        joins: args.joins.limits(),
        join_work: args.joins.work(),
        failures: args.failures.limits(),
        calls: per_minute(args.calls_per_minute),
        streams_max: args.streams_max,
        grace: args.grace(),
        limits: args.limits(),
        stop_grace: args.stop_grace,
        locks: args.lock_limits(),
        retention: args.retention.retention(),
        data: args.data,
        #[cfg(feature = "otlp")]
        traces,
        changed: args.changed,
        coupons: args.coupon,
        public_coupons: args.public_coupon,
        allow_origins: args.allow_origin,
        proxies: Proxies::new(args.trusted_proxy),
        gate,
    })
}

/// Plants the bug that a drill has to detect, or a panic of a thread that the log has to show.
#[cfg(feature = "planted-bugs")]
#[expect(clippy::disallowed_methods, reason = "no setting: test only")]
fn plant() -> Outcome {
    let Ok(name) = std::env::var("FIRSTCOME_PLANTED") else { return Ok(()) };
    if name == "panic" {
        // The error is the panic.
        let _ = std::thread::spawn(|| panic!("a bug that was planted\nin two lines")).join();
        return Ok(());
    }
    if firstcome::core::planted::plant_everywhere(&name) {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!("no bug is called {name:?}")))
}

/// Runs the service until SIGTERM or SIGINT, and logs to standard error. Call it once in a process.
pub fn run(args: ServeArgs) -> Outcome {
    run_with(args.listen, args.service, None)
}

/// Checks the settings as a start does, and starts nothing.
pub(crate) fn check(args: ServeArgs) -> Outcome {
    check_with(args.listen, args.service, None)
}

/// [`check`] of a service with a gate if there is a plan of one.
pub(crate) fn check_with(listen: SocketAddr, args: ServiceArgs, gate: Option<GatePlan>) -> Outcome {
    plan(listen, args, gate).map(drop)
}

/// Runs a service, with a gate if there is a plan of one. Once in a process, as [`run`].
pub(crate) fn run_with(listen: SocketAddr, args: ServiceArgs, gate: Option<GatePlan>) -> Outcome {
    args.log.start();
    let plan = plan(listen, args, gate)?;
    renewal::warn_of_time(plan.tls.as_ref());
    #[cfg(feature = "planted-bugs")]
    plant()?;
    // Not a part of the plan: an operator who checks the settings may be unable to read this file. A cluster keeps its own digests.
    if plan.keys.is_none() && !matches!(plan.stores, Stores::Cluster(_)) {
        keys::check_directory(&plan.data)?;
    }
    if !matches!(plan.stores, Stores::Directory) {
        let runtime = runtime::in_order().enable_all().build()?;
        return runtime.block_on(async { serve(&plan, Listeners::bind(&plan).await?, None).await });
    }
    // Connections have threads of their own; this one accepts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = runtime.block_on(Listeners::bind(&plan))?;
    let is_new = !plan.data.join(DATABASE_FILE).exists();
    let store = firstcome::sqlite::open(&plan.data, Arc::new(SystemClock::default())).map_err(Failure::Store)?;
    if is_new {
        // Shows an operator who misspelt --data that the store is empty.
        tracing::info!("made a new empty store at {}", plan.data.display());
    }
    clocks::warn_of_directory(&store);
    let served = runtime.block_on(serve(&plan, listeners, Some(store.clone())));
    // Every accepted request has been answered. The writer finishes calls that their callers gave up, and checkpoints
    // the file.
    store.close();
    tracing::info!("the store is closed");
    served
}

/// Creates the coupons of the command line that do not exist. Never changes an existing one: an operator may have
/// changed it.
async fn make_coupons(store: &impl CouponStore, coupons: &[(CouponName, CouponLimit)]) -> Outcome {
    for (name, limit) in coupons {
        match store.coupon(name).await? {
            Ok(view) if view.settings.limit == *limit => {}
            Ok(view) => tracing::warn!(
                "--coupon {name}={limit} changes nothing: the coupon is there with limit {there}; change it by PUT /v1/coupons/{name}",
                limit = limit.get(),
                there = view.settings.limit.get(),
            ),
            Err(_) => {
                let put = store.put_coupon(name, CouponSettings::with_limit(*limit)).await?;
                put.map_err(|refused| anyhow!("coupon {name}: {}", refused.rejection.code()))?;
            }
        }
    }
    Ok(())
}

/// A service that is ready to start.
struct Opened {
    app: App,
    /// The file in which a first start has left the keys.
    keys_file: Option<PathBuf>,
    /// Where the data is stored, for the start message.
    place: String,
}

/// Opens the stores that the plan names; the embedded one is open already.
async fn open(plan: &Plan, embedded: Option<Embedded>) -> Result<Opened, Failure> {
    let config = |keys: Keys| Config {
        second_person_within: plan.second_person_within,
        allow_origins: plan.allow_origins.clone(),
        limits: plan.limits,
        proxies: plan.proxies.clone(),
        joins: plan.joins,
        join_work: plan.join_work,
        calls: plan.calls,
        failures: plan.failures,
        public_coupons: plan.public_coupons.clone(),
        streams_max: plan.streams_max,
        grace: plan.grace,
        locks: plan.locks,
        retention: plan.retention,
        tls: plan.tls.clone(),
        #[cfg(feature = "otlp")]
        traces: plan.traces.clone(),
        ..Config::with_keys(keys.with_view_keys(plan.view_keys.iter().copied()))
    };
    let shown_on = keys::ShownOn::of_output();
    let of_directory = || match &plan.keys {
        Some(keys) => Ok((keys.clone(), None)),
        None => keys::of_directory(&plan.data, shown_on),
    };
    match (&plan.stores, embedded) {
        (Stores::Cluster(servers), _) => {
            let node = Node::open(servers).await?;
            clocks::warn_of_database(&node.cluster).await;
            make_coupons(&node.cluster, &plan.coupons).await?;
            let (keys, keys_file) = match &plan.keys {
                Some(keys) => (keys.clone(), None),
                None => node.keys(&plan.data, shown_on).await?,
            };
            let (keys, first_keys) = keys::adopted(plan.keys.as_ref(), keys, &node.cluster).await?;
            let config = Config { first_keys, ..config(keys) };
            let place = format!("rooms, coupons, members, listings and locks on {}", node.place);
            Ok(Opened { app: node.app(config), keys_file, place })
        }
        (Stores::Auctions(url), _) => {
            let auctions = SqlAuctions::open(url).await.map_err(|error| Failure::Unreachable(error.into()))?;
            let (keys, keys_file) = of_directory()?;
            let place = format!("members and listings on {:?}", Address::parse(url)?);
            Ok(Opened { app: App::of_auctions(auctions, config(keys)), keys_file, place })
        }
        (Stores::Directory, Some(store)) => {
            make_coupons(&store, &plan.coupons).await?;
            let (keys, keys_file) = of_directory()?;
            let (keys, first_keys) = keys::adopted(plan.keys.as_ref(), keys, &store).await?;
            let config = Config { first_keys, ..config(keys) };
            let (locks, handle_key) = Locks::open_with_handles(&plan.data).map_err(Failure::Store)?;
            let place = format!("data in {}", plan.data.display());
            Ok(Opened { app: App::with_locks(store, config, locks, handle_key), keys_file, place })
        }
        (Stores::Directory, None) => Err(Failure::Usage(anyhow!("neither a directory nor a database is given"))),
    }
}

async fn serve(plan: &Plan, listeners: Listeners, store: Option<Embedded>) -> Outcome {
    // Before the first line is printed: a program that reads it may stop the service at once.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let hangup = signal(SignalKind::hangup())?;
    // Over the embedded store each processor has a thread that serves connections. Other stores are asked on this
    // runtime.
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = store.is_some().then(|| ConnectionThreads::start(processors)).transpose()?.map(Arc::new);
    let opened = lifecycle::traced(open(plan, store).await?)?;
    if let Some(gate) = &plan.gate {
        gate.prepare(&opened.app).await?;
    }
    announce(plan, &listeners, &opened)?;
    let Listeners { main: listener, admin, door } = listeners;
    lifecycle::started(&opened.place, &plan.changed, [Some(&listener), admin.as_ref(), door.as_ref()]);
    supervisor::ready();
    let app = Arc::new(opened.app);
    tokio::spawn(supervisor::keep_alive(Arc::clone(&app)));
    let (stop, stopping) = tokio::sync::watch::channel(());
    let stopped = |mut stopping: tokio::sync::watch::Receiver<()>| async move {
        // An error means that the sender is gone, which is a stop too.
        let _ = stopping.changed().await;
    };
    let router = api::router(Arc::clone(&app));
    let gate = plan.gate.as_ref().zip(door).map(|(gate, listener)| {
        let (app, router) = (Arc::clone(&app), router.clone());
        serve_gate(threads.clone(), listener, app, router, gate.config.clone(), stopped(stopping.clone()))
    });
    let gate = async {
        if let Some(gate) = gate {
            gate.await;
        }
    };
    let (ours, stops) = (Arc::clone(&app), stopped(stopping.clone()));
    let main = async move {
        match threads {
            Some(threads) => firstcome_server::serve_on_threads(threads, listener, ours, router, stops).await,
            None => firstcome_server::serve(listener, ours, router, stops).await,
        }
    };
    let admin = admin.map(|listener| {
        let figures_for = listener.local_addr().map_or(FiguresFor::Keys, operators::figures_for);
        let router = api::admin_router(Arc::clone(&app), figures_for);
        firstcome_server::serve_admin(listener, Arc::clone(&app), router, stopped(stopping))
    });
    let admin = async {
        if let Some(admin) = admin {
            admin.await;
        }
    };
    let _renewals = renewal::keep_renewing(plan.tls.clone(), hangup);
    let signalled = async {
        let stopping = lifecycle::to_stop(&app, plan.stop_grace, &mut term, &mut int).await;
        drop(stop);
        stopping
    };
    let ((), (), (), stopping) = tokio::join!(main, admin, gate, signalled);
    lifecycle::ended(&app, stopping).await;
    Ok(())
}

/// Prints the addresses, and where the keys of the first start are, to standard output, since programs wait for these lines.
fn announce(plan: &Plan, listeners: &Listeners, opened: &Opened) -> Outcome {
    let Listeners { main: listener, admin, door } = listeners;
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let mut text = format!("listening on {scheme}://{}\n", listener.local_addr()?);
    if let (Some(door), Some(gate)) = (door, &plan.gate) {
        let GateConfig { room, upstream, .. } = &gate.config;
        text.push_str(&format!("gate on {scheme}://{}, room {room} before {upstream}\n", door.local_addr()?));
    }
    if let Some(admin) = admin {
        text.push_str(&format!("admin on http://{}\n", admin.local_addr()?));
    }
    text.push_str(&format!("{}\n", opened.place));
    if plan.dev {
        text.push_str("development mode: every call from this machine acts as admin\n");
    }
    if let Some(path) = &opened.keys_file {
        text.push_str(&format!("keys of the first start, kept only as digests: read and delete {}\n", path.display()));
    }
    write_out(text.as_bytes())?;
    Ok(())
}
