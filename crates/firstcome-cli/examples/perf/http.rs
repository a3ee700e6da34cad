//! A request's bytes to its answer's bytes: the service's own connection, with its watch, hyper, the limits of an address, the
//! router and the store, over a pipe in memory in place of a socket.

use crate::COUNT_MAX;
use crate::world::{START_US, World, closed_door, coupon_name, listing_name, price, room_name, user};
use firstcome::core::coupon::Claim;
use firstcome::work::{CHANCE_BYTES, WorkBits, solve};
use firstcome::{CouponStore, HandleKey, Locks};
use firstcome_server::auth::KeyDigest;
use firstcome_server::rate::RateLimit;
use firstcome_server::{App, Config, JoinLimits, Keys, Scope, api, serve_stream};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, RngSeed, Runtime};

const KEY: &str = "service-key-of-a-measurement";
/// The secret of the service: each run draws the same challenges.
const SECRET: [u8; 32] = [7; 32];
/// More than a request or an answer has.
const PIPE_BYTES: usize = 16 * 1024;
/// Turns of the runtime within which an answer comes.
const TURNS_MAX: usize = 64;
/// So many calls a minute are as many as come; the count of them is part of a call.
const PER_MINUTE: NonZeroU32 = NonZeroU32::new(1_000_000_000).unwrap();

/// A service, and one connection to it.
struct Service {
    world: World,
    runtime: Runtime,
    client: DuplexStream,
}

impl Service {
    fn over(world: World) -> Self {
        Self::demanding(world, None, HandleKey::new(SECRET))
    }

    /// The same with work before a join.
    fn demanding(world: World, join_work: Option<WorkBits>, handle_key: HandleKey) -> Self {
        let mut seeded = Builder::new_current_thread();
        // Which branch of a `select!` is looked at first is drawn: with a seed it is the same in every run.
        let runtime = seeded.enable_all().rng_seed(RngSeed::from_bytes(b"perf")).build().expect("a runtime");
        let mut config = Config::with_keys(Keys::Known(vec![(Scope::Service, KeyDigest::of(KEY))]));
        config.calls = Some(RateLimit { per_minute: PER_MINUTE, burst: PER_MINUTE });
        (config.joins, config.join_work) = (JoinLimits::of_address(config.calls), join_work);
        let (client, server) = duplex(PIPE_BYTES);
        runtime.block_on(async {
            let app = Arc::new(App::with_locks(world.store.clone(), config, Locks::memory(), handle_key));
            let router = api::router(Arc::clone(&app));
            tokio::spawn(serve_stream(server, IpAddr::V4(Ipv4Addr::LOCALHOST), app, router));
        });
        Self { world, runtime, client }
    }

    /// Sends requests one after the other, each after the answer to the one before, which must have this status.
    fn send(self, requests: &[String], status: &str) {
        let Self { mut world, runtime, mut client } = self;
        runtime.block_on(async {
            let mut answer = Vec::with_capacity(PIPE_BYTES);
            for request in requests {
                client.write_all(request.as_bytes()).await.expect("a connection");
                answer.clear();
                receive(&mut client, &mut world, &mut answer).await;
                // Answers are small, and leave whole.
                let is_whole = answer.get(9..12) == Some(status.as_bytes()) && answer.ends_with(b"}\n");
                assert!(is_whole, "{request}\n{}", String::from_utf8_lossy(&answer));
            }
        });
        // Their drops would be counted once, in every run.
        std::mem::forget((world, runtime, client));
    }
}

/// Lets the connection and the writer take turns until an answer is there.
async fn receive(client: &mut DuplexStream, world: &mut World, answer: &mut Vec<u8>) {
    for _ in 0..TURNS_MAX {
        tokio::select! {
            biased;
            read = client.read_buf(answer) => {
                read.expect("an answer");
                return;
            }
            () = tokio::task::yield_now() => world.step(),
        }
    }
    panic!("no answer came");
}

fn post(path: &str, body: &str) -> String {
    post_with(&format!("authorization: Bearer {KEY}"), path, body)
}

fn post_with(header: &str, path: &str, body: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{header}\r\n");
    format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn requests(request: impl Fn(usize) -> String) -> Vec<String> {
    (0..COUNT_MAX).map(request).collect()
}

fn claim_by(number: usize) -> String {
    post("/v1/coupons/launch/claims", &format!(r#"{{"user":"{}"}}"#, user(number)))
}

/// A claim that is issued.
pub(crate) fn claim(count: usize) {
    let mut world = World::new();
    world.put_coupon(&coupon_name(), 1_000_000);
    Service::over(world).send(&requests(claim_by)[..count], "201");
}

/// A claim after the last coupon is gone.
pub(crate) fn sold_out(count: usize) {
    let mut world = World::new();
    let (store, coupon) = (world.store.clone(), coupon_name());
    world.put_coupon(&coupon, 1);
    let first = Claim { user: user(COUNT_MAX), attributes: None, request: None };
    assert!(matches!(world.ask(store.claim(&coupon, first)), Ok(Ok(_))));
    Service::over(world).send(&requests(claim_by)[..count], "409");
}

/// A look of a waiting ticket's holder, without a key.
pub(crate) fn poll(count: usize) {
    let mut world = World::new();
    let tickets = world.put_line(&room_name(), closed_door());
    let path = |number: usize| format!("/v1/rooms/sale/tickets/{}", tickets[number]);
    let look = |number| format!("GET {} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", path(number));
    Service::over(world).send(&requests(look)[..count], "200");
}

/// A bid on a hot auction.
pub(crate) fn bid(count: usize) {
    let mut world = World::new();
    world.put_auction(&listing_name());
    let body = |number| format!(r#"{{"bidder":"bidder-{}","price":{}}}"#, number % 2, price(number));
    let bid = |number| post("/v1/listings/lamp/bids", &body(number));
    Service::over(world).send(&requests(bid)[..count], "201");
}

/// A join of a visitor without a key, who shows work.
pub(crate) fn join_with_work(count: usize) {
    join_showing(count, "201", solve);
}

/// A join of a visitor without a key, who is told to work first.
pub(crate) fn join_without_work(count: usize) {
    join_showing(count, "403", |_, _| String::new());
}

/// Joins that show what is made of a challenge. Few bits: to check a solution costs the same for any number of them.
fn join_showing(count: usize, status: &str, shown: impl Fn(&str, WorkBits) -> String) {
    let (handle_key, bits) = (HandleKey::new(SECRET), WorkBits::new(1).expect("within the limits"));
    let mut world = World::new();
    world.put_room(&room_name(), closed_door());
    let (key, made_s) = (handle_key.work_key(), (START_US / 1_000_000) as u32);
    let join = |number: usize| {
        let mut chance = [0; CHANCE_BYTES];
        chance[..8].copy_from_slice(&number.to_be_bytes());
        let shown = shown(&key.challenge(&room_name(), made_s, chance), bits);
        post_with(&format!("x-firstcome-work: {shown}"), "/v1/rooms/sale/tickets", "{}")
    };
    let requests = requests(join);
    Service::demanding(world, Some(bits), handle_key).send(&requests[..count], status);
}
