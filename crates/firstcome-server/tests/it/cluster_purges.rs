//! Purges that nodes of a cluster run by themselves, over a Redis and a database that the tests start.

use crate::auction::{charge, fixed_price, purchase, put};
use crate::cluster::World;
use crate::in_time;
use crate::service::{ADMIN, Answer, Ask, claim, config, send};
use axum::Router;
use firstcome::Retention;
use firstcome_server::{App, Config, api, serve};
use firstcome_test_servers::Kind;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::time::{Duration, Instant, sleep};

const PERIOD: Duration = Duration::from_secs(8);

struct Node(Router);

impl Node {
    /// A node that serves, and purges at once what is over.
    async fn start(world: &World) -> Self {
        let now = Some(Duration::ZERO);
        let retention =
            Retention { requests: now, tickets: now, claims: now, dead_letters: now, records: None, heads: None };
        let app: Arc<App> = world.app(Config { retention, purge_every: Some(PERIOD), ..config() }).await;
        let router = api::router(Arc::clone(&app));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        tokio::spawn(serve(listener, app, router.clone(), std::future::pending()));
        Self(router)
    }

    async fn send(&self, ask: Ask) -> Answer {
        send(self.0.clone(), ask).await
    }

    /// Makes a coupon with a claim, and deletes it.
    async fn drop_over(&self, coupon: &str) {
        let path = format!("/v1/coupons/{coupon}");
        self.send(Ask::put(&path).by(ADMIN).json(&json!({"limit": 9}))).await.is(201);
        self.send(claim(coupon, "ann")).await.is(201);
        self.send(Ask::delete(&path).by(ADMIN)).await.is(204);
    }

    async fn is_purged(&self, coupon: &str) -> bool {
        let shown = self.send(Ask::get(&format!("/v1/coupons/{coupon}")).by(ADMIN)).await.is(200).json();
        shown["purged_at"].is_string()
    }

    async fn figure(&self, name: &str) -> u64 {
        let text = self.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Redis is gone, so the cluster's part fails behind its first page.
async fn listings_are_purged_all_the_same() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    let retention = Retention { requests: Some(Duration::ZERO), ..Retention::FOREVER };
    let node = Node(api::router(world.app(Config { retention, purge_every: None, ..config() }).await));
    node.send(Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 9}))).await.is(201);
    node.send(claim("launch", "ann").once("a-claim")).await.is(201);
    node.send(charge("ann", 100)).await.is(200);
    node.send(put("vase", &fixed_price())).await.is(201);
    node.send(purchase("vase", "ann").once("a-purchase")).await.is(201);
    world.redis.kill();
    node.send(Ask::post("/v1/purge").by(ADMIN).json(&json!({}))).await.is(503);
    let requests = "firstcome_purged_rows_total{kind=\"requests\"}";
    until("the key of the claim and that of the purchase are counted", async || node.figure(requests).await == 2).await;
    assert_eq!(node.figure("firstcome_last_purge_timestamp_seconds").await, 0, "it did not end");
}

#[tokio::test]
async fn listings_are_purged_and_counted_though_the_purge_of_the_cluster_fails() {
    in_time(listings_are_purged_all_the_same()).await;
}

async fn nodes_purge_for_each_other() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let [one, two] = [Node::start(&world).await, Node::start(&world).await];
    let (ended, claims) = ("firstcome_last_purge_timestamp_seconds", "firstcome_purged_rows_total{kind=\"claims\"}");
    one.drop_over("first").await;
    one.send(Ask::post("/v1/purge").by(ADMIN).json(&json!({}))).await.is(200);
    assert!(two.is_purged("first").await);
    assert_eq!((one.figure(claims).await, two.figure(claims).await), (1, 0));
    // The other node finds that one has purged just now, and leaves it at that until the period is over.
    one.drop_over("second").await;
    until("the other node knows of the purge", async || two.figure(ended).await != 0).await;
    assert!(!one.is_purged("second").await, "it purged before the period was over");
    assert!(one.figure(ended).await.abs_diff(two.figure(ended).await) <= 2);
    until("a node purges by itself", async || one.is_purged("second").await).await;
    until("it is counted", async || one.figure(claims).await + two.figure(claims).await == 2).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_purge_by_themselves_and_not_twice_in_a_period() {
    in_time(nodes_purge_for_each_other()).await;
}
