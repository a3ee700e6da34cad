//! A node runs over a durable Redis and PostgreSQL, with one coupon of the durability `redis` and one without. An operator says
//! `CONFIG SET maxmemory-policy allkeys-lru` and `CONFIG SET appendonly no` to the Redis. Twelve seconds later `/readyz` was 200,
//! claims were 201, and `durability: redis` still promised what a restart of Redis would lose.
//!
//! Now the node finds it within two seconds and an answer's time: it is not ready, says why, logs it and counts it. It tells no
//! claim before the database has it and grants no lock. When the operator sets both back it recovers by itself.

use crate::support::http::{Answer, Client};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::World;
use firstcome_test_servers::Kind;
use serde_json::json;

/// Claims as a new user, who must get a place.
#[track_caller]
fn durability_of(client: &mut Client, coupon: &str, number: &mut u32) -> String {
    *number += 1;
    let claim = client.claim(coupon, &format!("user-{number}"), None).expect("an answer");
    assert_eq!(claim.status, 201, "{}", claim.text());
    let claim = claim.json();
    let durability = claim["durability"].as_str().expect("it says so").to_owned();
    // What is told when the database has it comes with serial and code.
    assert_eq!(claim["serial"].is_u64(), durability == "database", "{claim}");
    durability
}

#[track_caller]
fn acquire(client: &mut Client, lock: &str) -> Answer {
    let body = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
    client.call("POST", &format!("/v1/locks/{lock}/acquire"), Some(&body))
}

#[test]
fn a_redis_that_is_made_unfit_is_noticed_and_recovery_too() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let node = Server::spawn(world.node().args(["--dev"]));
    let (client, mut number) = (&mut node.client(), 0);
    assert_eq!(client.put_status("/v1/coupons/early", &json!({"limit": 100_000, "durability": "redis"})), 201);
    assert_eq!(client.put_status("/v1/coupons/plain", &json!({"limit": 100_000})), 201);
    wait_for("an early answer", || (durability_of(client, "early", &mut number) == "redis").then_some(()));
    wait_for("readiness", || (client.get("/readyz").status == 200).then_some(()));
    assert_eq!(acquire(client, "held").status, 200);

    world.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    world.redis(&["CONFIG", "SET", "appendonly", "no"]);
    let unready = wait_for("the fault", || Some(client.get("/readyz")).filter(|answer| answer.status == 503)).json();
    assert_eq!((&unready["ready"], &unready["reason"]), (&json!(false), &json!("unfit")), "{unready}");
    assert_eq!((&unready["faults"][0]["object"], &unready["faults"][0]["code"]), (&json!("redis"), &json!("unfit")));
    node.wait_for_log("maxmemory-policy allkeys-lru");
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("firstcome_faults_open{code=\"unfit\"} 1"), "{metrics}");
    // Claims go on, and no longer rest on Redis.
    for _ in 0..10 {
        assert_eq!(durability_of(client, "early", &mut number), "database");
        assert_eq!(durability_of(client, "plain", &mut number), "database");
    }
    let mut lock = 0;
    let refused = wait_for("no grant", || {
        lock += 1;
        Some(acquire(client, &format!("lock-{lock}"))).filter(|answer| answer.status != 200)
    });
    assert_eq!((refused.status, refused.code().as_str()), (503, "store_unavailable"), "{}", refused.text());

    // One of the two is not enough.
    world.redis(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    wait_for("a grant", || (acquire(client, &format!("lock-{lock}")).status == 200).then_some(()));
    assert_eq!(client.get("/readyz").status, 503);
    assert_eq!(durability_of(client, "early", &mut number), "database");
    world.redis(&["CONFIG", "SET", "appendonly", "yes"]);
    wait_for("readiness", || (client.get("/readyz").status == 200).then_some(()));
    wait_for("an early answer", || (durability_of(client, "early", &mut number) == "redis").then_some(()));
    node.wait_for_log("the fault is over");
    node.stop();
}
