//! A service over a store in memory, which listens on a free port.

use firstcome_client::{HttpOptions, HttpStore};
use firstcome_server::auth::KeyDigest;
use firstcome_server::{App, Config, Keys, Limits, Scope, api, serve};
use firstcome_store::Embedded;
use firstcome_store::edge::{Clock, ManualClock, SystemClock};
use firstcome_tls::ServerTls;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const ADMIN: &str = "canary-admin-0123456789";
pub(crate) const SERVICE: &str = "canary-service-0123456789";

/// How long a test waits before it counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// A running service. Dropping it stops it.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) store: Embedded,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::on(Arc::new(SystemClock::default())).await
    }

    pub(crate) async fn on_manual(clock: Arc<ManualClock>) -> Self {
        Self::on(clock).await
    }

    async fn on(clock: Arc<dyn Clock>) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), Embedded::memory_with(clock)).await
    }

    /// Serves a store at an address.
    pub(crate) async fn at(address: SocketAddr, store: Embedded) -> Self {
        Self::secured(address, store, None).await
    }

    /// Serves a store at an address, by TLS if there is a certificate.
    pub(crate) async fn secured(address: SocketAddr, store: Embedded, tls: Option<ServerTls>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let key = |scope, key| (scope, KeyDigest::of(key));
        let keys = Keys::Known(vec![key(Scope::Service, SERVICE), key(Scope::Admin, ADMIN)]);
        let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
        let app =
            Arc::new(App::new(store.clone(), Config { limits, heads_every: None, tls, ..Config::with_keys(keys) }));
        let (address, router) = (listener.local_addr().expect("an address"), api::router(Arc::clone(&app)));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move { serve(listener, app, router, async { drop(stopped.await) }).await });
        Self { address, store, stop, served }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> HttpStore {
        HttpStore::new(&self.url(), ADMIN).expect("it can be made")
    }

    /// Stops it, and waits until no client can reach it any more.
    pub(crate) async fn stop(self) -> Embedded {
        drop(self.stop);
        self.served.await.expect("it does not panic");
        self.store
    }
}

/// Options with which a test does not wait.
pub(crate) fn hasty() -> HttpOptions {
    HttpOptions {
        answer_timeout: Duration::from_millis(2_000),
        retry_for: Duration::from_millis(500),
        ..HttpOptions::default()
    }
}

/// [`hasty`] for tests in which each request has an answer or fails at once: however slow the machine, none is given up.
pub(crate) fn patient() -> HttpOptions {
    HttpOptions { answer_timeout: PATIENCE, ..hasty() }
}

/// Fails a test that hangs.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}
