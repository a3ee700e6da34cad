//! Passes that a back end verifies by one node of a cluster, while another node ends their admissions and changes the key.

use crate::proxy::until;
use crate::service::{ADMIN, SERVICE, soon};
use firstcome::cluster::{Cluster, ClusterOptions, DeploymentSecret};
use firstcome::core::room::RoomSettings;
use firstcome::pass::{PassError, PassRefusal, PassVerifier};
use firstcome::sql::SqlAuctions;
use firstcome::{Admission, HandleKey, Locks, Store};
use firstcome_server::auth::KeyDigest;
use firstcome_server::{App, Config, Keys, Scope, api, serve};
use firstcome_store::edge::Stopwatch;
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How soon a release and a new key must reach a verifier at another node.
const REACHES_WITHIN: Duration = Duration::from_secs(5);
/// A busy machine may delay one change. A system that is too slow delays each.
const TRIES: u32 = 5;

/// Starts a node that listens until the test ends.
async fn node(redis: &Server, sql: &Server) -> SocketAddr {
    let mut options = ClusterOptions::default();
    options.database.allow_volatile = true;
    let database = options.database.clone();
    let secret = DeploymentSecret::new("canary: a secret that no test has to guess").expect("it is long enough");
    let cluster = Cluster::open(redis.url(), sql.url(), secret, options).await.expect("a node opens");
    let auctions = SqlAuctions::open_with(sql.url(), database).await.expect("auctions open");
    let locks = Locks::redis(redis.url()).await.expect("the locks open");
    let handle_key = HandleKey::new(cluster.secret("lock_handles").await.expect("it is drawn"));
    let key = |scope, key| (scope, KeyDigest::of(key));
    let config = Config::with_keys(Keys::Known(vec![key(Scope::Service, SERVICE), key(Scope::Admin, ADMIN)]));
    let app = Arc::new(App::of_cluster(cluster, auctions, config, locks, handle_key));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (address, router) = (listener.local_addr().expect("an address"), api::router(Arc::clone(&app)));
    tokio::spawn(serve(listener, app, router, std::future::pending()));
    address
}

/// Changes something again and again, until the effect comes in time once.
async fn comes_in_time(what: &str, mut change: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    while took.last().is_none_or(|last| REACHES_WITHIN < *last) {
        assert!(took.len() < TRIES as usize, "{what}: never within {REACHES_WITHIN:?}: {took:?}");
        took.push(change().await);
    }
}

#[tokio::test]
async fn a_release_and_a_new_key_at_one_node_reach_a_verifier_at_another_within_5_seconds() {
    for kind in [Kind::Redis, Kind::Postgres] {
        if !machine_has(&kind.to_string(), Server::is_installed(kind)) {
            return;
        }
    }
    let options = Options::new(Durability::Quick);
    let redis = Server::start(Kind::Redis, &options).await.expect("it starts");
    let sql = Server::start(Kind::Postgres, &options).await.expect("it starts");
    let (one, two) = (node(&redis, &sql).await, node(&redis, &sql).await);
    let store = Store::http(&format!("http://{one}"), ADMIN).expect("it can be made");
    let room = store.room("sale").expect("a name");
    let settings = RoomSettings { idle_ttl_ms: None, ..RoomSettings::with_slots(50) };
    soon(room.put(settings)).await.expect("it is put");
    let passes = PassVerifier::start(&format!("http://{two}"), SERVICE, "sale").expect("it starts");
    soon(passes.ready()).await;
    // Joins at the first node, and returns the admission and its pass.
    let admitted = async || {
        let (_, place) = soon(room.join().send()).await.expect("it joins");
        let mut admission = None;
        until(async || {
            admission = Admission::of(&soon(room.poll(&place.ticket)).await.expect("it polls"));
            admission.is_some()
        })
        .await;
        let told = crate::pass::call(one, &format!("GET /v1/rooms/sale/tickets/{}", place.ticket)).await;
        (admission.expect("it is admitted"), told["pass"].as_str().expect("a pass").to_owned())
    };
    let (kept, kept_pass) = admitted().await;
    until(async || passes.check(&kept_pass).is_ok()).await;
    comes_in_time("a release", async || {
        let (admission, pass) = admitted().await;
        until(async || passes.check(&pass).is_ok()).await;
        soon(room.release(admission)).await.expect("it is released");
        let released = Stopwatch::start();
        until(async || passes.check(&pass) == Err(PassError::Refused(PassRefusal::Ended))).await;
        released.elapsed()
    })
    .await;
    comes_in_time("a new key", async || {
        crate::pass::call(one, "POST /v1/pass-keys").await;
        let rotated = Stopwatch::start();
        let (_, pass) = admitted().await;
        until(async || passes.check(&pass).is_ok()).await;
        rotated.elapsed()
    })
    .await;
    assert!(passes.check(&kept_pass).is_ok_and(|pass| pass.number == kept.number), "a new key ends no admission");
}
