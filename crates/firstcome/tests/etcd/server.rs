//! An etcd of a test's own, and how tests wait.

use firstcome::etcd::EtcdOptions;
use firstcome::lock::etcd;
use firstcome::{Guard, Locks};
use firstcome_test_servers::{CertificateFiles, Durability, EtcdCluster, Kind, Options, Server, machine_has};
use std::future::Future;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any test: what it holds is only lost if that is what it wants.
pub(crate) const LONG: Duration = Duration::from_secs(300);
/// The shortest that a quick server gives.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Stops a test that hangs.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs")
}

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < until, "timed out waiting for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

fn is_there() -> bool {
    let control = Command::new("etcdctl").arg("version").stdout(Stdio::null()).status();
    machine_has("etcd or etcdctl", Server::is_installed(Kind::Etcd) && control.is_ok())
}

/// Three members of one cluster. `None`, and a word about it, where there is no etcd; in CI it must be there.
pub(crate) async fn cluster() -> Option<EtcdCluster> {
    if !is_there() {
        return None;
    }
    Some(EtcdCluster::start(&Options::new(Durability::Quick)).await.unwrap_or_else(|error| panic!("{error}")))
}

/// A server with a directory and a port of its own; ended when it is dropped.
pub(crate) struct Etcd(Server);

impl Etcd {
    /// `None`, and a word about it, where there is none; in CI it must be there.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// The same with settings of one's own.
    pub(crate) async fn start_with(settings: &[&str]) -> Option<Self> {
        let mut options = Options::new(Durability::Quick);
        options.settings = settings.iter().map(ToString::to_string).collect();
        Self::start_as(&options).await
    }

    /// The same with a second port for TLS, which shows this certificate.
    pub(crate) async fn start_secured(certificate: CertificateFiles) -> Option<Self> {
        let mut options = Options::new(Durability::Quick);
        options.tls = Some(certificate);
        Self::start_as(&options).await
    }

    async fn start_as(options: &Options) -> Option<Self> {
        if !is_there() {
            return None;
        }
        Some(Self(Server::start(Kind::Etcd, options).await.unwrap_or_else(|error| panic!("{error}"))))
    }

    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// Its address by TLS.
    pub(crate) fn secured_url(&self) -> String {
        format!("etcds://127.0.0.1:{}", self.0.tls_port().expect("it has TLS"))
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url().trim_start_matches("etcd://")
    }

    /// Its address for a user.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("etcd://{user}:{password}@{}", self.address())
    }

    /// A client whose lease no test outlives.
    pub(crate) async fn open(&self) -> Locks {
        self.open_for(LONG).await
    }

    /// A client with a lease of one's own.
    pub(crate) async fn open_for(&self, lease: Duration) -> Locks {
        open(self.url(), lease).await
    }

    /// Kills it: no caller is told.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Starts it again on its files. Returns when it answers.
    pub(crate) async fn restart(&mut self) {
        self.0.restart().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Makes it stand still: connections stay open, no caller answers.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.process().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name} fails");
    }

    /// Another caller's client.
    pub(crate) fn control(&self, arguments: &[&str]) -> Command {
        let mut control = Command::new("etcdctl");
        control.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.address())).args(arguments);
        control.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        control
    }

    /// What it says to a question of another caller's client.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.control(arguments).output().expect("etcdctl runs");
        assert!(status.success(), "etcdctl {arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// The places of a lock.
    pub(crate) fn places(&self, name: &str) -> Vec<String> {
        let keys = self.ask(&["get", "--prefix", "--keys-only", &format!("firstcome/lock/{name}/")]);
        keys.lines().filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect()
    }
}

/// A client with times that only a hang can reach.
pub(crate) async fn open(url: &str, lease: Duration) -> Locks {
    Locks::etcd_with(url, patient(lease)).await.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn patient(lease: Duration) -> EtcdOptions {
    let mut options = EtcdOptions::default();
    options.lease = lease;
    options.connect_timeout = PATIENCE;
    options.answer_timeout = PATIENCE;
    options
}

/// A client that soon takes a missing answer for a lost one.
pub(crate) async fn open_hasty(url: &str, lease: Duration) -> Locks {
    let mut options = patient(lease);
    options.answer_timeout = Duration::from_millis(500);
    wait_for("an answer in time", async || Locks::etcd_with(url, options.clone()).await.ok()).await
}

/// Waits until so many stand in line for a lock.
pub(crate) async fn until_waiting(locks: &Locks, name: &str, waiters: u32) {
    wait_for("the line", async || {
        let seen = locks.view(name).await.expect("it answers");
        (seen.view.held.is_some() && seen.view.waiters == waiters).then_some(())
    })
    .await;
}

/// Waits until no caller has a lock or wants it.
pub(crate) async fn until_free(locks: &Locks, name: &str) {
    wait_for("the lock to be free", async || {
        locks.view(name).await.expect("it answers").view.held.is_none().then_some(())
    })
    .await;
}

/// The key in etcd that a guard holds.
pub(crate) fn key(guard: &Guard) -> String {
    String::from_utf8_lossy(etcd::key(guard).expect("a hold on etcd")).into_owned()
}

/// How many waiters this client has woken.
pub(crate) fn wakes(locks: &Locks) -> u64 {
    etcd::counts(locks).expect("locks on etcd").wakes
}
