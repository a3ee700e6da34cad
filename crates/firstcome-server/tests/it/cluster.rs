//! The service over a cluster: coupons over Redis and a database that the tests start, members and listings in the same
//! database, locks on the same Redis.

use crate::auction::{charge, member};
use crate::in_time;
use crate::service::{ADMIN, Answer, Ask, SERVICE, STRANGER, claim, config, redeem, send};
use axum::Router;
use axum::body::Body;
use axum::http::Method;
use firstcome::cluster::{Cluster, ClusterOptions, DeploymentSecret};
use firstcome::sql::SqlAuctions;
use firstcome::{HandleKey, Locks};
use firstcome_server::{App, Config, api};
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::{Duration, Instant, sleep};
use tower::ServiceExt;

const SECRET: &str = "canary: a secret that nobody needs to guess";

/// A Redis and a database.
pub(crate) struct World {
    pub(crate) redis: Server,
    pub(crate) sql: Server,
}

impl World {
    /// Starts both. `None`, and a word about it, where there is none; in CI they must be there.
    pub(crate) async fn start(kind: Kind) -> Option<Self> {
        for kind in [Kind::Redis, kind] {
            if !machine_has(&kind.to_string(), Server::is_installed(kind)) {
                return None;
            }
        }
        let options = Options::new(Durability::Quick);
        let [redis, sql] = [Server::start(Kind::Redis, &options).await, Server::start(kind, &options).await];
        Some(Self { redis: redis.expect("it starts"), sql: sql.expect("it starts") })
    }

    async fn node(&self) -> Node {
        Node { router: api::router(self.app(config()).await) }
    }

    /// A node with these settings.
    pub(crate) async fn app(&self, config: Config) -> Arc<App> {
        let mut options = ClusterOptions::default();
        options.database.allow_volatile = true;
        let (redis, sql) = (self.redis.url(), self.sql.url());
        let database = options.database.clone();
        let secret = DeploymentSecret::new(SECRET).expect("it is long enough");
        let cluster = Cluster::open(redis, sql, secret, options).await.expect("a node opens");
        let auctions = SqlAuctions::open_with(sql, database).await.expect("auctions opens");
        let locks = Locks::redis(redis).await.expect("the locks open");
        let handle_key = HandleKey::new(cluster.secret("lock_handles").await.expect("it is drawn"));
        Arc::new(App::of_cluster(cluster, auctions, config, locks, handle_key))
    }

    /// Says something to Redis, past all nodes.
    pub(crate) async fn say(&self, words: &[&str]) -> Option<String> {
        let client = redis::Client::open(self.redis.url()).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("it answers");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.expect("it is done")
    }
}

struct Node {
    router: Router,
}

impl Node {
    async fn send(&self, ask: Ask) -> Answer {
        send(self.router.clone(), ask).await
    }

    async fn put(&self, coupon: &str, settings: Value) -> Answer {
        self.send(Ask::put(&format!("/v1/coupons/{coupon}")).by(ADMIN).json(&settings)).await
    }

    async fn claim_of(&self, coupon: &str, user: &str) -> Answer {
        self.send(Ask::get(&format!("/v1/coupons/{coupon}/claims/{user}")).by(SERVICE)).await
    }

    /// Asks until the status is this one.
    async fn until(&self, status: u16, ask: impl Fn() -> Ask) -> Answer {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.send(ask()).await;
            if answer.status == status {
                return answer;
            }
            assert!(Instant::now() < until, "{}: {}", answer.status, answer.body());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn acquire(lock: &str, owner: &str) -> Ask {
    let body = json!({"owner": owner, "wait_ms": 0, "lease_ms": 60_000});
    Ask::post(&format!("/v1/locks/{lock}/acquire")).by(SERVICE).json(&body)
}

fn release(lock: &str, handle: &str) -> Ask {
    Ask::post(&format!("/v1/locks/{lock}/release")).by(SERVICE).json(&json!({"handle": handle}))
}

async fn nodes_answer_alike(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let [one, two] = [world.node().await, world.node().await];
    let shown = one.put("launch", json!({"limit": 3, "title": "Launch"})).await.is(201).json();
    assert_eq!(shown["durability"], "database");
    let ann = one.send(claim("launch", "ann").once("a-key")).await.is(201).json();
    assert_eq!((ann["serial"].as_u64(), ann["durability"].as_str()), (Some(1), Some("database")));
    // The same request, and another one of the same user, at the other node.
    assert_eq!(two.send(claim("launch", "ann").once("a-key")).await.is(201).json(), ann);
    two.send(claim("launch", "bob").once("a-key")).await.refused(422, "idempotency_key_reused");
    let again = two.send(claim("launch", "ann")).await.refused(409, "already_issued").json();
    assert_eq!((&again["claim"]["serial"], &again["claim"]["code"]), (&ann["serial"], &ann["code"]));
    two.send(claim("launch", "bob")).await.is(201);
    one.send(claim("launch", "cid")).await.is(201);
    for node in [&one, &two] {
        node.send(claim("launch", "dan")).await.refused(409, "sold_out");
        let shown = node.send(Ask::get("/v1/coupons/launch")).await.is(200).json();
        assert_eq!((&shown["issued"], &shown["state"]), (&json!(3), &json!("sold_out")));
    }
    let list = || Ask::get("/v1/coupons/launch/claims").by(ADMIN);
    let page = one.send(list()).await.is(200).json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(two.send(list()).await.is(200).json(), page);
    let code = json!({"code": ann["code"]});
    two.send(redeem("launch", &code)).await.is(201);
    one.send(redeem("launch", &code)).await.refused(409, "already_redeemed");
    // Members and locks.
    one.send(charge("ann", 50)).await.is(200);
    assert_eq!(two.send(member("ann")).await.is(200).json()["total"], 50);
    let handle = one.send(acquire("door", "ann")).await.is(200).text("handle");
    two.send(acquire("door", "bob")).await.refused(409, "contended");
    two.send(release("door", &handle)).await.is(200);
    let handle = one.send(acquire("door", "ann")).await.is(200).text("handle");
    // A node that begins anew has forgotten nothing.
    drop((one, two));
    let three = world.node().await;
    three.send(release("door", &handle)).await.is(200);
    let record = three.claim_of("launch", "ann").await.is(200).json();
    assert_eq!((&record["serial"], &record["code"]), (&ann["serial"], &ann["code"]));
    three.send(claim("launch", "dan")).await.refused(409, "sold_out");
}

#[tokio::test]
async fn nodes_over_postgres_answer_alike() {
    in_time(nodes_answer_alike(Kind::Postgres)).await;
}

#[tokio::test]
async fn nodes_over_mariadb_answer_alike() {
    in_time(nodes_answer_alike(Kind::MariaDb)).await;
}

async fn rows_and_scopes() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let node = world.node().await;
    node.put("launch", json!({"limit": 3})).await.is(201);
    let ask = |row: &str, body: Option<Value>| {
        let (method, path) = row.split_once(' ').expect("a method and a path");
        let ask = Ask::new(method.parse::<Method>().expect("a method"), path);
        body.map_or_else(|| Ask::new(method.parse().expect("a method"), path), |body| ask.json(&body))
    };
    let rows = [
        ("PUT /v1/coupons/launch", Some(json!({"limit": 3})), 403),
        ("POST /v1/coupons/launch/claims", Some(json!({"user": "ann"})), 201),
        ("GET /v1/coupons/launch/claims", None, 403),
        ("GET /v1/coupons/launch/claims/ann", None, 200),
        ("GET /v1/coupons/launch/dead-letters", None, 403),
        ("POST /v1/locks/door/acquire", Some(json!({"owner": "ann", "wait_ms": 0, "lease_ms": 1_000})), 200),
        ("GET /v1/members/ann", None, 200),
        ("GET /metrics", None, 403),
    ];
    for (row, body, of_service) in rows {
        node.send(ask(row, body.clone())).await.refused(401, "unauthorized");
        node.send(ask(row, body.clone()).by(STRANGER)).await.refused(401, "unauthorized");
        let told = node.send(ask(row, body.clone()).by(SERVICE)).await;
        assert_eq!(told.status, of_service, "{row}");
        let told = node.send(ask(row, body).by(ADMIN)).await.status;
        assert!([200, 201, 409].contains(&told), "{row}: {told}");
    }
    for row in ["GET /v1/rooms/sale", "GET /v1/rooms/sale/tickets/x"] {
        node.send(ask(row, None).by(ADMIN)).await.refused(404, "unknown_room");
    }
    // A coupon behind a room that has given no pass yet.
    node.send(ask("PUT /v1/rooms/sale", Some(json!({"max_active": 1}))).by(ADMIN)).await.is(201);
    node.put("behind", json!({"limit": 3, "room": "sale"})).await.is(201);
    node.send(claim("behind", "ann").without("authorization")).await.refused(403, "pass_required");
    let pass = claim("behind", "ann").without("authorization").header("x-firstcome-pass", "v4.public.x");
    node.send(pass).await.refused(403, "invalid_pass");
}

#[tokio::test]
async fn each_row_has_its_scope() {
    in_time(rows_and_scopes()).await;
}

async fn a_room_at_two_nodes() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let [one, two] = [world.node().await, world.node().await];
    let room = json!({"max_active": 1});
    one.send(Ask::put("/v1/rooms/hall").by(ADMIN).json(&room)).await.is(201);
    one.put("seat", json!({"limit": 5, "room": "hall"})).await.is(201);
    let join = || Ask::post("/v1/rooms/hall/tickets").json(&json!({}));
    let ann = two.send(join()).await.is(201).json();
    let bob = one.send(join()).await.is(201).json();
    assert_eq!((&ann["number"], &bob["number"]), (&json!(1), &json!(2)));
    let poll = |ticket: &Value| Ask::get(&format!("/v1/rooms/hall/tickets/{}", ticket["ticket"].as_str().unwrap()));
    let admitted = async |node: &Node, ticket: &Value| {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let told = node.send(poll(ticket)).await.is(200).json();
            if let Some(pass) = told["pass"].as_str() {
                return pass.to_owned();
            }
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    let pass = admitted(&one, &ann).await;
    assert_eq!(two.send(poll(&bob)).await.is(200).json()["state"], "waiting");
    let metrics = two.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
    for line in ["firstcome_rooms 1", "firstcome_room_waiting 1", "firstcome_room_active 1"] {
        assert!(metrics.lines().any(|told| told.split('.').next() == Some(line)), "{line}: {metrics}");
    }
    // The pass of one node counts at the other, for one claim, and no longer than its slot.
    let with_pass = |pass: &str| Ask::post("/v1/coupons/seat/claims").json(&json!({})).header("x-firstcome-pass", pass);
    assert_eq!(two.send(with_pass(&pass)).await.is(201).json()["serial"], 1);
    let release = Ask::post("/v1/rooms/hall/passes/release").by(SERVICE).json(&json!({"pass": pass}));
    two.send(release).await.is(204);
    one.until(403, || with_pass(&pass)).await.refused(403, "invalid_pass");
    // What another node's newer secret has signed counts at once, also at a node that comes only now.
    one.send(Ask::post("/v1/pass-keys").by(ADMIN)).await.is(201);
    let pass = admitted(&one, &bob).await;
    assert_eq!(two.send(with_pass(&pass)).await.is(201).json()["serial"], 2);
    let cid = one.send(join()).await.is(201).json();
    let release = Ask::post("/v1/rooms/hall/passes/release").by(SERVICE).json(&json!({"pass": pass}));
    one.send(release).await.is(204);
    let pass = admitted(&one, &cid).await;
    let three = world.node().await;
    assert_eq!(three.send(with_pass(&pass)).await.is(201).json()["serial"], 3);
    let four = world.node().await;
    let keys = four.send(Ask::get("/v1/pass-keys")).await.is(200).json();
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(2), "{keys}");
    // A key that one node revokes is void at the others within about a second, also for a pass that they have accepted.
    let check = || Ask::post("/v1/rooms/hall/passes/verify").by(SERVICE).json(&json!({"pass": pass}));
    for node in [&two, &three, &four] {
        assert_eq!(node.send(check()).await.is(200).json()["valid"], true);
    }
    one.send(Ask::delete("/v1/pass-keys/2").by(ADMIN)).await.is(200);
    assert_eq!(one.send(check()).await.is(200).json()["reason"], "unknown_key");
    let revoked_at = Instant::now();
    for node in [&two, &three, &four] {
        while node.send(check()).await.is(200).json()["reason"] != "unknown_key" {
            assert!(revoked_at.elapsed() < Duration::from_secs(5), "a revoked key counts for five seconds");
            sleep(Duration::from_millis(20)).await;
        }
    }
    let fresh = admitted(&four, &cid).await;
    assert!(fresh != pass, "signed by another key");
    let check = Ask::post("/v1/rooms/hall/passes/verify").by(SERVICE).json(&json!({"pass": fresh}));
    assert_eq!(two.send(check).await.is(200).json()["valid"], true, "the slot goes on");
    assert_eq!(two.send(Ask::get("/v1/rooms/hall")).await.is(200).json()["waiting"], 0);
}

#[tokio::test]
async fn two_nodes_have_one_room_and_know_each_others_passes() {
    in_time(a_room_at_two_nodes()).await;
}

/// Asks as often as it takes until the answer has this status, for as long as a change may take to reach a node.
async fn within_seconds(node: &Node, key: &str, status: u16) {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let told = node.send(Ask::get("/v1/members/ann").by(key)).await.status;
        if told == status {
            return;
        }
        assert!(Instant::now() < until, "after five seconds it is {told}, not {status}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn keys_at_two_nodes(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let [one, two] = [world.node().await, world.node().await];
    let ask = |body: Value| Ask::post("/v1/keys").by(ADMIN).json(&body);
    let shop = one.send(ask(json!({"name": "shop", "scope": "service"})).once("one")).await.is(201).text("key");
    let again = two.send(ask(json!({"name": "shop", "scope": "service"})).once("one")).await.is(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "one effect at all nodes");
    within_seconds(&one, &shop, 200).await;
    within_seconds(&two, &shop, 200).await;
    let short =
        two.send(ask(json!({"name": "short", "scope": "view", "valid_for_ms": 1_000}))).await.is(201).text("key");
    within_seconds(&one, &short, 401).await;
    two.send(ask(json!({"name": "shop", "scope": "view"}))).await.refused(409, "api_key_exists");
    let rotation = Ask::post("/v1/keys/shop/rotate").by(ADMIN).json(&json!({"old_valid_for_ms": 1_000}));
    let new = two.send(rotation).await.is(201).text("key");
    within_seconds(&one, &new, 200).await;
    within_seconds(&one, &shop, 401).await;
    two.send(Ask::delete("/v1/keys/shop").by(ADMIN)).await.is(204);
    two.send(Ask::get("/v1/members/ann").by(&new)).await.is(401);
    within_seconds(&one, &new, 401).await;
    let three = world.node().await;
    let list = three.send(Ask::get("/v1/keys").by(ADMIN)).await.is(200);
    assert!(!list.body().contains("fc_"), "{}", list.body());
    let items = list.json()["items"].as_array().cloned().unwrap_or_default();
    let state = |name: &str| items.iter().find(|key| key["name"] == name).map(|key| key["state"].clone());
    assert_eq!((state("shop"), state("short")), (Some(json!("revoked")), Some(json!("expired"))));
    let metrics = three.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
    let age = metrics.lines().find_map(|line| line.strip_prefix("firstcome_api_keys_age_seconds "));
    assert!(age.and_then(|age| age.parse::<f64>().ok()).is_some_and(|age| age < 5.0), "{age:?}");
}

#[tokio::test]
async fn a_key_that_one_node_makes_or_revokes_is_known_to_the_other_within_seconds() {
    in_time(keys_at_two_nodes(Kind::Postgres)).await;
}

#[tokio::test]
async fn keys_are_shared_over_mariadb_too() {
    in_time(keys_at_two_nodes(Kind::MariaDb)).await;
}

/// A stream of events, as its frames come.
struct Stream(Body);

impl Stream {
    async fn open(node: &Node, path: &str) -> Self {
        let opened = node.router.clone().oneshot(Ask::get(path).by(ADMIN).request()).await;
        let response = opened.unwrap_or_else(|never| match never {});
        assert_eq!(response.status(), 200);
        Self(response.into_body())
    }

    /// The next event, without comments.
    async fn event(&mut self) -> String {
        loop {
            let frame = self.0.frame().await.expect("the stream goes on").expect("it cannot fail");
            let event = String::from_utf8(frame.into_data().expect("no trailers").to_vec()).expect("text");
            if event.starts_with("event: ") {
                return event;
            }
        }
    }

    /// Waits for an event with this text, and returns those before it.
    async fn until(&mut self, text: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let event = self.event().await;
            if event.contains(text) {
                return before;
            }
            before.push(event);
        }
    }
}

async fn streams_of_another_node() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    let [one, two] = [world.node().await, world.node().await];
    one.send(Ask::put("/v1/rooms/hall").by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    let join = || Ask::post("/v1/rooms/hall/tickets").json(&json!({}));
    let path = |ticket: Value| format!("/v1/rooms/hall/tickets/{}", ticket["ticket"].as_str().expect("a ticket"));
    let ann = path(one.send(join()).await.is(201).json());
    let bob = path(one.send(join()).await.is(201).json());
    // Until she has the slot, he is not next.
    let until = Instant::now() + Duration::from_secs(30);
    while one.send(Ask::get(&ann)).await.is(200).json()["state"] != "admitted" {
        assert!(Instant::now() < until, "she is not admitted");
        sleep(Duration::from_millis(20)).await;
    }
    two.until(200, || Ask::get(&bob)).await;
    let mut place = Stream::open(&two, &format!("{bob}/events")).await;
    assert!(place.event().await.contains("\"position\":0,"));
    one.send(Ask::new(Method::DELETE, &ann)).await.is(204);
    place.until("\"reason\":\"turn\"").await;

    let mut figures = Stream::open(&two, "/v1/events").await;
    figures.until("\"room\":\"hall\"").await;
    world.sql.kill();
    let ticks = async || {
        let metrics = two.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
        let line = metrics.lines().find_map(|line| line.strip_prefix("firstcome_stream_ticks_total "));
        line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
    };
    let from = ticks().await;
    while ticks().await < from + 3 {
        assert!(Instant::now() < until, "the task of the stream stands still");
        sleep(Duration::from_millis(20)).await;
    }
    world.sql.restart().await.expect("it starts");
    // Nothing is told of rooms while the database cannot name them: an empty list would say that there are none.
    for event in figures.until("\"room\":\"hall\"").await {
        assert!(!event.contains("\"rooms\":[]"), "{event}");
    }
}

#[tokio::test]
async fn streams_tell_what_another_node_did_and_nothing_that_is_not_known() {
    in_time(streams_of_another_node()).await;
}

async fn claims_at_the_gate() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let node = world.node().await;
    let settings = json!({"limit": 10_000, "durability": "redis"});
    let wanted = "durability redis needs a Redis that syncs each write: appendonly yes and appendfsync always";
    node.put("early", settings.clone()).await.refused(400, "invalid_field").about("durability", wanted);
    node.send(Ask::get("/v1/coupons/early")).await.refused(404, "unknown_coupon");
    world.say(&["CONFIG", "SET", "appendonly", "yes"]).await;
    node.put("early", settings.clone()).await.refused(400, "invalid_field");
    world.say(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert_eq!(node.put("early", settings.clone()).await.is(201).json()["durability"], "redis");
    assert_eq!(node.send(Ask::get("/v1/coupons/early")).await.json()["durability"], "redis");
    // The names before version 0.2 stay accepted, and the answer has the new ones.
    for (old, new) in [("sql", "database"), ("gate", "redis")] {
        let put = node.put("early", json!({"limit": 10_000, "durability": old})).await.is(200).json();
        assert_eq!(put["durability"], new);
    }
    // The node has to find it out, and Redis to finish the file that it writes anew.
    let until = Instant::now() + Duration::from_secs(30);
    for number in 0.. {
        let told = node.send(claim("early", &format!("before-{number}"))).await.is(201).json();
        if told["durability"] == "redis" {
            break;
        }
        assert!(Instant::now() < until, "{told}");
        sleep(Duration::from_millis(20)).await;
    }
    let placed = node.send(claim("early", "ann")).await.is(201).json();
    assert_eq!(placed["durability"], "redis");
    assert!(placed.get("serial").is_none() && placed.get("code").is_none(), "{placed}");
    let stored = node.until(200, || Ask::get("/v1/coupons/early/claims/ann").by(SERVICE)).await.json();
    assert_eq!(stored["durability"], "database");
    let serial = stored["serial"].as_u64().expect("a serial");
    let again = node.send(claim("early", "ann")).await.refused(409, "already_issued").json();
    assert_eq!(again["claim"]["code"], stored["code"]);
    // Without a word about it a PUT sets it back, as everything else.
    assert_eq!(node.put("early", json!({"limit": 10_000})).await.is(200).json()["durability"], "database");
    let bob = node.send(claim("early", "bob")).await.is(201).json();
    assert_eq!((&bob["serial"], &bob["durability"]), (&json!(serial + 1), &json!("database")));
    for wrong in [json!("disk"), json!("")] {
        let answer = node.put("early", json!({"limit": 5, "durability": wrong})).await;
        answer.refused(400, "invalid_field").about("durability", "durability must be database or redis");
    }
}

#[tokio::test]
async fn a_claim_is_told_when_its_coupon_says() {
    in_time(claims_at_the_gate()).await;
}

async fn dead_letters() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let node = world.node().await;
    node.put("launch", json!({"limit": 9})).await.is(201);
    node.send(claim("launch", "ann")).await.is(201);
    let letters = |query: &str| Ask::get(&format!("/v1/coupons/launch/dead-letters{query}")).by(ADMIN);
    assert_eq!(node.send(letters("")).await.is(200).json(), json!({"items": []}));
    // Another client writes into the outbox, twice.
    let of_gate = async |field: &'static str| world.say(&["HGET", "fc:{c1}:gate", field]).await;
    let generation = of_gate("generation").await.expect("there is a gate");
    let outbox = format!("fc:{{c1}}:outbox:{generation}");
    for (user, ticket) in [("bob", 2), ("cid", 4)] {
        assert_eq!(of_gate("ticket").await, Some((ticket - 1).to_string()));
        world.say(&["XADD", &outbox, &format!("{ticket}-1"), "junk", user]).await;
        world.say(&["HINCRBY", "fc:{c1}:gate", "ticket", "1"]).await;
        let serial = node.send(claim("launch", user)).await.is(201).json()["serial"].as_u64();
        assert_eq!(serial, Some(ticket / 2 + 1), "no serial is used up");
    }
    let page = node.send(letters("?limit=1")).await.is(200).json();
    assert_eq!((&page["next"], &page["items"][0]["position"]), (&json!(2), &json!(2)));
    assert_eq!(page["items"][0]["reason"], "it has no first ticket");
    assert_eq!(page["items"][0]["entry"], "6a756e6b626f62");
    let page = node.send(letters("?limit=1&after=2")).await.is(200).json();
    assert_eq!((page.get("next"), &page["items"][0]["entry"]), (None, &json!("6a756e6b636964")));
    node.send(letters("?after=x")).await.refused(400, "invalid_query");
    node.send(Ask::get("/v1/coupons/none/dead-letters").by(ADMIN)).await.refused(404, "unknown_coupon");
    let metrics = node.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
    for line in ["firstcome_fleet_dead_letters_total 2", "firstcome_fleet_claims_written_total 3"] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    assert!(metrics.contains("firstcome_redis_reconnects_total"), "{metrics}");
}

#[tokio::test]
async fn what_no_client_could_read_is_listed_and_counted() {
    in_time(dead_letters()).await;
}

async fn readiness() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    let node = world.node().await;
    let (ready, of_node) = (|| Ask::get("/readyz"), || Ask::get("/readyz?of=node"));
    node.send(ready()).await.is(200);
    world.redis.kill();
    assert_eq!(node.until(503, ready).await.json()["reason"], "store_unavailable");
    node.send(Ask::get("/healthz")).await.is(200);
    // All nodes have lost it, so no balancer is asked to take this one away.
    node.send(of_node()).await.is(200);
    world.redis.restart().await.expect("it starts");
    node.until(200, ready).await;
    world.sql.kill();
    assert_eq!(node.until(503, ready).await.json()["reason"], "store_unavailable");
    node.send(of_node()).await.is(200);
    world.sql.restart().await.expect("it starts");
    node.until(200, ready).await;
}

#[tokio::test]
async fn a_node_is_ready_while_both_servers_answer() {
    in_time(readiness()).await;
}

/// An operator logs in at one node and looks at another one.
async fn one_dashboard_at_two_nodes(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let [one, two] = [world.node().await, world.node().await];
    one.put("launch", json!({"limit": 3})).await.is(201);
    one.put("autumn", json!({"limit": 3})).await.is(201);
    for room in ["sale", "shop"] {
        one.send(Ask::put(&format!("/v1/rooms/{room}")).by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
    }
    let join = Ask::post("/v1/rooms/sale/tickets").by(SERVICE).json(&json!({"user": "ann"}));
    one.send(join).await.is(201);
    one.send(charge("ann", 100)).await;
    one.send(Ask::put("/v1/listings/lamp").by(ADMIN).json(&crate::auction::auction(10))).await.is(201);
    let form = Ask::post("/dashboard/login").raw(format!("key={ADMIN}"));
    let answer = one.send(form.header("content-type", "application/x-www-form-urlencoded")).await.is(303);
    let cookie = answer.header("set-cookie").and_then(|line| line.split(';').next()).expect("a cookie").to_owned();
    let page = async |path: &str| two.send(Ask::get(path).header("cookie", &cookie)).await.is(200).body();
    for (section, names) in [
        ("rooms", ["sale", "shop"]),
        ("coupons", ["autumn", "launch"]),
        ("listings", ["lamp"; 2]),
        ("members", ["ann"; 2]),
    ] {
        let html = page(&format!("/dashboard/{section}")).await;
        let place = |name: &str| html.find(&format!("/dashboard/{section}/{name}\"")).expect("it is listed");
        assert!(place(names[0]) <= place(names[1]), "by name: {html}");
    }
    let rest = page("/dashboard/rooms?after=sale").await;
    assert!(rest.contains("rooms/shop\"") && !rest.contains("rooms/sale\""), "{rest}");
    let found = page("/dashboard/find?kind=user&in=sale&what=ann").await;
    assert!(found.contains("<dt>Number</dt><dd>1</dd>"), "{found}");
    // A look at the other node has taken nothing from the visitor: the slot is still an offer.
    assert!(!found.contains(">inside<"), "{found}");
    assert!(page("/dashboard").await.contains("all nodes share"));
}

#[tokio::test]
async fn an_operator_of_one_node_is_one_of_all() {
    in_time(one_dashboard_at_two_nodes(Kind::Postgres)).await;
}

#[tokio::test]
async fn names_are_listed_in_their_order_on_mariadb_too() {
    in_time(one_dashboard_at_two_nodes(Kind::MariaDb)).await;
}
