//! One service under test, what it is asked, and what it answers.

use crate::promises;
use crate::stores;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use firstcome::core::time::Timestamp;
use firstcome::edge::ManualClock;
use firstcome::{CouponStore, Embedded};
use firstcome_server::accept::Peer;
use firstcome_server::auth::KeyDigest;
use firstcome_server::{App, Config, Keys, Scope, api};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;

/// Keys with a word that no answer may ever contain: see `promises`.
pub(crate) const ADMIN: &str = "canary-admin-0123456789";
pub(crate) const SERVICE: &str = "canary-service-0123456789";
/// A second service key of the same service.
pub(crate) const SERVICE_TOO: &str = "canary-service-too-0123456789";
/// A key that no service knows.
pub(crate) const STRANGER: &str = "canary-stranger-0123456789";

/// Where the clock of every service stands at first: 2030-01-01T00:00:00Z.
pub(crate) const START_S: i64 = 1_893_456_000;

/// The instant so many seconds after the start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_us((START_S + seconds) * 1_000_000).expect("the year 2030 can be written")
}

/// The keys that services know.
pub(crate) fn keys() -> Keys {
    let key = |scope, key| (scope, KeyDigest::of(key));
    Keys::Known(vec![key(Scope::Service, SERVICE), key(Scope::Admin, ADMIN), key(Scope::Service, SERVICE_TOO)])
}

/// The settings of a service with keys and the limits of production.
pub(crate) fn config() -> Config {
    Config::with_keys(keys())
}

/// A service without a port.
pub(crate) struct Service {
    pub(crate) app: Arc<App>,
    pub(crate) store: Embedded,
    pub(crate) clock: Arc<ManualClock>,
    router: Router,
}

impl Service {
    pub(crate) fn new(store: Embedded, clock: Arc<ManualClock>, config: Config) -> Self {
        Self::of(App::new(store.clone(), config), store, clock)
    }

    pub(crate) fn of(app: App, store: Embedded, clock: Arc<ManualClock>) -> Self {
        let app = Arc::new(app);
        let router = api::router(Arc::clone(&app));
        Self { app, store, clock, router }
    }

    /// Over a store in memory.
    pub(crate) fn memory() -> Self {
        Self::memory_with(config())
    }

    pub(crate) fn memory_with(config: Config) -> Self {
        let clock = stores::clock();
        Self::new(Embedded::memory_with(Arc::clone(&clock) as _), clock, config)
    }

    /// Asks, and checks what every answer promises.
    #[track_caller]
    pub(crate) fn send(&self, ask: Ask) -> impl Future<Output = Answer> + use<> {
        send(self.router.clone(), ask)
    }

    /// An admin's PUT of a coupon, and of its room before if it is not there.
    pub(crate) async fn put(&self, coupon: &str, settings: Value) -> Answer {
        let plain = |room: &&str| !room.is_empty() && room.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if let Some(room) = settings["room"].as_str().filter(plain) {
            let room = Ask::get(&format!("/v1/rooms/{room}"));
            let path = room.path.clone();
            if self.send(room).await.status == 404 {
                self.send(Ask::put(&path).by(ADMIN).json(&json!({"max_active": 1}))).await.is(201);
            }
        }
        self.send(Ask::put(&format!("/v1/coupons/{coupon}")).by(ADMIN).json(&settings)).await
    }

    /// An admin's PUT of a coupon that must not fail.
    pub(crate) async fn make(&self, coupon: &str, settings: Value) {
        let status = self.put(coupon, settings).await.status;
        assert!([200, 201].contains(&status), "{coupon}: {status}");
    }

    /// Anybody's look at a coupon.
    pub(crate) async fn show(&self, coupon: &str) -> Answer {
        self.send(Ask::get(&format!("/v1/coupons/{coupon}"))).await
    }

    /// How many are issued.
    pub(crate) async fn issued(&self, coupon: &str) -> u64 {
        self.show(coupon).await.is(200).json()["issued"].as_u64().expect("a number")
    }

    /// A back end's claim for a user.
    pub(crate) async fn claim(&self, coupon: &str, user: &str) -> Answer {
        self.send(claim(coupon, user)).await
    }

    /// The code of a claim that must not fail.
    pub(crate) async fn claim_code(&self, coupon: &str, user: &str) -> String {
        self.claim(coupon, user).await.is(201).text("code")
    }

    /// A back end's redemption.
    pub(crate) async fn redeem(&self, coupon: &str, code: &str) -> Answer {
        self.send(redeem(coupon, &json!({"code": code}))).await
    }

    /// A back end's look at a claim.
    pub(crate) async fn claim_of(&self, coupon: &str, user: &str) -> Answer {
        self.send(Ask::get(&format!("/v1/coupons/{coupon}/claims/{user}")).by(SERVICE)).await
    }

    /// An admin's look at all claims.
    pub(crate) async fn claims(&self, coupon: &str, query: &str) -> Answer {
        self.send(Ask::get(&format!("/v1/coupons/{coupon}/claims{query}")).by(ADMIN)).await
    }

    /// The figures.
    pub(crate) async fn metrics(&self) -> String {
        self.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body()
    }

    /// How many coupons there are.
    pub(crate) async fn coupons(&self) -> u64 {
        let metrics = self.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("firstcome_store_coupons "));
        line.and_then(|count| count.parse::<f64>().ok()).expect("the store counts its coupons") as u64
    }

    /// What an acknowledged claim survives.
    pub(crate) fn durability(&self) -> &'static str {
        self.store.durability().as_str()
    }

    /// Moves the clock to so many seconds after the start.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.set(at(seconds));
    }
}

/// A back end's claim for a user, to be altered.
pub(crate) fn claim(coupon: &str, user: &str) -> Ask {
    Ask::post(&format!("/v1/coupons/{coupon}/claims")).by(SERVICE).json(&json!({"user": user}))
}

/// A back end's redemption, to be altered.
pub(crate) fn redeem(coupon: &str, body: &Value) -> Ask {
    Ask::post(&format!("/v1/coupons/{coupon}/redemptions")).by(SERVICE).json(body)
}

/// Sends to a router. The future owns what it needs, so that it can be spawned or dropped.
pub(crate) async fn send(router: Router, ask: Ask) -> Answer {
    let (method, path) = (ask.method.clone(), ask.path.clone());
    let response = router.oneshot(ask.request()).await.unwrap_or_else(|never| match never {});
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("bodies of answers are whole").to_bytes();
    let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, bytes: bytes.to_vec() };
    promises::hold(&method, &path, &answer);
    answer
}

/// One request.
#[derive(Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Body,
    peer: Option<Peer>,
}

impl Ask {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: HeaderMap::new(), body: Body::empty(), peer: None }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn put(path: &str) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(crate) fn post(path: &str) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Sets a header.
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.insert(name, HeaderValue::from_bytes(value.as_ref()).expect("a header value"));
        self
    }

    /// Sends a header once more.
    pub(crate) fn also(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value.parse().expect("a header value"));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Over a connection from this address.
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.peer = Some(Peer(address.parse().expect("an address")));
        self
    }

    /// With a key.
    pub(crate) fn by(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    /// With an idempotency key.
    pub(crate) fn once(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.raw(body.to_string())
    }

    /// With bytes that are announced as JSON.
    pub(crate) fn raw(self, body: impl Into<Body>) -> Self {
        let mut ask = self.header("content-type", "application/json");
        ask.body = body.into();
        ask
    }

    pub(crate) fn request(self) -> Request<Body> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().unwrap_or_else(|error| panic!("{}: {error}", self.path));
        *request.headers_mut() = self.headers;
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        request
    }
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn body(&self) -> String {
        String::from_utf8(self.bytes.clone()).expect("bodies are UTF-8")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {}", self.body()))
    }

    /// The view without a key.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = self.json();
        // Shown to an admin key alone.
        for member in ["settings", "pace"] {
            shown.as_object_mut().expect("an object").remove(member);
        }
        shown
    }

    /// A member that is a text.
    #[track_caller]
    pub(crate) fn text(&self, member: &str) -> String {
        let json = self.json();
        json[member].as_str().unwrap_or_else(|| panic!("{member} of {json}")).to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("answers have plain headers"))
    }

    /// Has this status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body());
        self
    }

    /// Is a problem with this status and code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.text("code").as_str()), (status, code), "{}", self.body());
        self
    }

    /// Is a problem about this field, told in these words.
    #[track_caller]
    pub(crate) fn about(self, field: &str, detail: &str) -> Self {
        let json = self.json();
        assert_eq!((json["field"].as_str(), json["detail"].as_str()), (Some(field), Some(detail)), "{json}");
        self
    }

    /// The status, and the code if it is a problem: for comparisons.
    pub(crate) fn outcome(&self) -> String {
        match promises::code(self) {
            Some(code) => format!("{} {}", self.status, code.as_str()),
            None => self.status.to_string(),
        }
    }
}

/// How long one side waits for the other before the test is taken for failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
