//! The load beside a roll: claims, one lock that all callers want, charges and refunds of one member, and bids on one auction.

use super::{ADMIN, post};
use crate::support::http::{Answer, Client, Lost};
use crate::support::{Over, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Callers that claim, and as many that lock.
const CALLERS: usize = 4;
/// Callers that move points, and as many that bid: two of three bidders may bid at any time.
const TRADERS: usize = 3;
/// More than the callers claim in the time of the test.
const LIMIT: u64 = 1_000_000;
/// What every bidder has at first: more than the highest bid of the test.
const POINTS: u64 = 1_000_000_000;
/// Answers of each kind of load between two steps of the roll.
const BETWEEN_STEPS: u64 = 20;
/// Repeats of each kind after the load.
const REPEATS: usize = 50;
/// The member whose points all callers move.
const PURSE: &str = "/v1/members/purse";
/// The auction that all bidders want.
const LAMP: &str = "/v1/listings/lamp";

fn bidder(caller: usize) -> String {
    format!("bidder-{caller}")
}

/// Reads all pages of a list.
#[track_caller]
fn pages(client: &mut Client, path: &str) -> Vec<Value> {
    let (mut items, mut after) = (Vec::new(), 0);
    loop {
        let page = client.get(&format!("{path}?after={after}&limit=1000"));
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        items.extend(page["items"].as_array().expect("a page has items").iter().cloned());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => return items,
        }
    }
}

/// A request that had its effect, and the answer.
struct Answered {
    path: String,
    key: String,
    body: Value,
    answer: Value,
}

/// What the callers of a load were told.
pub(super) struct Ledger {
    /// The serial of each user.
    claims: BTreeMap<String, u64>,
    /// Charges and refunds.
    movements: Vec<Answered>,
    /// Bids that were accepted.
    bids: Vec<Answered>,
}

/// Callers of two nodes.
pub(super) struct Load {
    pub(super) addresses: [SocketAddr; 2],
    /// No caller begins another request.
    over: AtomicBool,
    /// A step of the test has failed: no caller waits for an answer.
    failed: AtomicBool,
    claims: AtomicU64,
    holds: AtomicU64,
    movements: AtomicU64,
    bids: AtomicU64,
    /// The last price that a bidder has offered.
    price: AtomicU64,
    /// How many callers have the lock.
    inside: AtomicU64,
    last_fence: AtomicU64,
}

/// A back end behind a balancer.
struct Sender<'a> {
    load: &'a Load,
    clients: [Client; 2],
    place: usize,
}

impl Sender<'_> {
    /// Sends a request with a key to the nodes in turn until one answers it. `None` if the test has failed and no node answers.
    fn ask(&mut self, key: &str, path: &str, body: &Value) -> Option<Answer> {
        wait_for("an answer of some node", || {
            self.place ^= 1;
            match self.clients[self.place].try_call("POST", path, Some(key), Some(body)) {
                Ok(answer) if answer.status != 503 => Some(Some(answer)),
                // The node is about to stop, or has just started. The key makes the repetition safe.
                Ok(_) | Err(Lost::Unsent(_) | Lost::Unanswered(_)) => {
                    self.load.failed.load(Ordering::Relaxed).then_some(None)
                }
                Err(Lost::Truncated(part)) => panic!("an answer broke off: {part}"),
            }
        })
    }
}

impl Load {
    /// Makes the coupon, the room and the auction, and gives points to the bidders.
    pub(super) fn prepare(addresses: [SocketAddr; 2]) -> Self {
        let mut admin = Client::with_key(addresses[0], ADMIN);
        admin.put_coupon("launch", LIMIT);
        assert_eq!(admin.put_status("/v1/rooms/hall", &json!({"max_active": 5})), 201);
        let lamp = json!({"owner": "shop", "kind": "auction", "price": 1, "ends_at": "2099-01-01T00:00:00Z"});
        assert_eq!(admin.put_status(LAMP, &lamp), 201);
        for caller in 0..TRADERS {
            let path = format!("/v1/members/{}/points/charge", bidder(caller));
            post(&mut admin, &path, &json!({"amount": POINTS}));
        }
        Self {
            addresses,
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            claims: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            movements: AtomicU64::new(0),
            bids: AtomicU64::new(0),
            price: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            last_fence: AtomicU64::new(0),
        }
    }

    /// Clients of both nodes with connections of their own.
    pub(super) fn clients(&self) -> [Client; 2] {
        self.addresses.map(|address| Client::with_key(address, ADMIN))
    }

    fn sender(&self, caller: usize) -> Sender<'_> {
        Sender { load: self, clients: self.clients(), place: caller % 2 }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Does the work beside the load. Afterwards each request of the load is answered.
    pub(super) fn beside<T>(&self, work: impl FnOnce() -> T) -> (T, Ledger) {
        let load = self;
        std::thread::scope(|scope| {
            let claimers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || load.claim(caller))).collect();
            let movers: Vec<_> = (0..TRADERS).map(|caller| scope.spawn(move || load.move_points(caller))).collect();
            let bidders: Vec<_> = (0..TRADERS).map(|caller| scope.spawn(move || load.bid(caller))).collect();
            for caller in 0..CALLERS {
                scope.spawn(move || load.hold(caller));
            }
            let _failed = Over(&load.failed);
            let done = work();
            load.over.store(true, Ordering::Relaxed);
            let answered = "each request of the load has the answer that it must have";
            let ledger = Ledger {
                claims: claimers.into_iter().flat_map(|caller| caller.join().expect(answered)).collect(),
                movements: movers.into_iter().flat_map(|caller| caller.join().expect(answered)).collect(),
                bids: bidders.into_iter().flat_map(|caller| caller.join().expect(answered)).collect(),
            };
            (done, ledger)
        })
    }

    /// Claims for one user after the other, and returns the serial that each was told.
    fn claim(&self, caller: usize) -> BTreeMap<String, u64> {
        let mut sender = self.sender(caller);
        let mut told = BTreeMap::new();
        while !self.is_over() {
            let user = format!("caller-{caller}-{}", told.len());
            let body = json!({"user": user});
            let Some(answer) = sender.ask(&user, "/v1/coupons/launch/claims", &body) else { break };
            assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
            told.insert(user, answer.json()["serial"].as_u64().expect("a serial"));
            self.claims.fetch_add(1, Ordering::Relaxed);
        }
        told
    }

    /// Takes the lock and gives it back, and checks that no other caller has it meanwhile and that fences grow.
    fn hold(&self, caller: usize) {
        let mut sender = self.sender(caller);
        for number in 0_u64.. {
            if self.is_over() {
                return;
            }
            let acquire = json!({"owner": format!("caller-{caller}"), "wait_ms": 2_000, "lease_ms": 60_000});
            let key = format!("lock-{caller}-{number}");
            let Some(held) = sender.ask(&key, "/v1/locks/door/acquire", &acquire) else { return };
            if held.status == 409 {
                continue;
            }
            assert_eq!(held.status, 200, "{}", held.text());
            let (held, fence) = (held.json(), held.json()["fence"].as_u64().expect("a fence"));
            assert_eq!(self.inside.swap(1, Ordering::SeqCst), 0, "two hold the lock");
            let before = self.last_fence.swap(fence, Ordering::SeqCst);
            assert!(before < fence, "fence {fence} after {before}");
            self.inside.store(0, Ordering::SeqCst);
            let release = json!({"handle": held["handle"]});
            let key = format!("free-{caller}-{number}");
            let Some(released) = sender.ask(&key, "/v1/locks/door/release", &release) else { return };
            assert_eq!(released.status, 200, "{}", released.text());
            self.holds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Charges a member that all callers share, and refunds a part of it, in turns.
    fn move_points(&self, caller: usize) -> Vec<Answered> {
        let mut sender = self.sender(caller);
        let mut told = Vec::new();
        while !self.is_over() {
            let (movement, amount) = if told.len() % 2 == 0 { ("charge", 5) } else { ("refund", 2) };
            let (path, key) = (format!("{PURSE}/points/{movement}"), format!("{movement}-{caller}-{}", told.len()));
            let body = json!({"amount": amount});
            let Some(answer) = sender.ask(&key, &path, &body) else { break };
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            told.push(Answered { path, key, body, answer: answer.json() });
            self.movements.fetch_add(1, Ordering::Relaxed);
        }
        told
    }

    /// Bids more than any bidder before, and returns the bids that were accepted.
    fn bid(&self, caller: usize) -> Vec<Answered> {
        let mut sender = self.sender(caller);
        let (mut told, path) = (Vec::new(), format!("{LAMP}/bids"));
        while !self.is_over() {
            let price = self.price.fetch_add(1, Ordering::Relaxed) + 1;
            let body = json!({"bidder": bidder(caller), "price": price});
            let key = format!("bid-{price}");
            let Some(answer) = sender.ask(&key, &path, &body) else { break };
            match (answer.status, answer.code().as_str()) {
                (201, _) => {
                    let answer = answer.json();
                    assert_eq!(answer["highest"]["price"], json!(price), "{answer}");
                    told.push(Answered { path: path.clone(), key, body, answer });
                    self.bids.fetch_add(1, Ordering::Relaxed);
                }
                (409, "already_highest_bidder" | "bid_too_low") => {}
                _ => panic!("{body}: {}", answer.text()),
            }
        }
        told
    }

    /// Waits until each kind of load has had answers since now: the step before stopped none of them.
    pub(super) fn goes_on(&self) {
        let now = || {
            let counts = [&self.claims, &self.holds, &self.movements, &self.bids];
            counts.map(|count| count.load(Ordering::Relaxed))
        };
        let wanted = now().map(|count| count + BETWEEN_STEPS);
        wait_for("answers beside the roll", || {
            now().iter().zip(&wanted).all(|(count, wanted)| wanted <= count).then_some(())
        });
    }
}

impl Ledger {
    /// Compares what the callers were told with what a node shows.
    pub(super) fn is_kept(&self, client: &mut Client) {
        self.claims_are_kept(client);
        self.points_are_kept(client);
        self.bids_are_kept(client);
        self.repeats_are_told_the_same(client);
    }

    fn claims_are_kept(&self, client: &mut Client) {
        let of_claim = |claim: Value| {
            (claim["user"].as_str().expect("a user").to_owned(), claim["serial"].as_u64().expect("a serial"))
        };
        let kept: BTreeMap<String, u64> = client.claims("launch").into_iter().map(of_claim).collect();
        let lost: Vec<_> = self.claims.iter().filter(|(user, serial)| kept.get(*user) != Some(serial)).collect();
        assert!(lost.is_empty(), "told and not kept: {lost:?}");
        let mut serials: Vec<_> = kept.values().copied().collect();
        serials.sort_unstable();
        assert!(serials.iter().copied().eq(1..=kept.len() as u64), "serials have gaps or are given twice");
    }

    /// The balance is the charges less the refunds, and each of them is one record.
    fn points_are_kept(&self, client: &mut Client) {
        let moved = |told: &Answered| {
            let amount = told.body["amount"].as_i64().expect("an amount");
            if told.path.ends_with("/charge") { amount } else { -amount }
        };
        let wanted: i64 = self.movements.iter().map(moved).sum();
        let shown = client.get(PURSE).json();
        assert_eq!((&shown["total"], &shown["available"]), (&json!(wanted), &json!(wanted)), "charges less refunds");
        let records = pages(client, &format!("{PURSE}/points/records"));
        assert_eq!(records.len(), self.movements.len(), "a charge or a refund is lost, or is there twice");
    }

    /// The bids are those that were told, the highest of them is the highest bid, and it alone holds points.
    fn bids_are_kept(&self, client: &mut Client) {
        let mut told: Vec<&Value> = self.bids.iter().map(|told| &told.answer["highest"]).collect();
        told.sort_by_key(|bid| bid["bid"].as_u64());
        let kept = pages(client, &format!("{LAMP}/bids"));
        assert!(kept.iter().eq(told.iter().copied()), "{} bids were told, {} are kept", told.len(), kept.len());
        let highest = told.iter().max_by_key(|bid| bid["price"].as_u64()).expect("a bid");
        assert_eq!(client.get(LAMP).json()["highest"], **highest);
        for caller in 0..TRADERS {
            let bidder = bidder(caller);
            let held = if highest["bidder"] == bidder { highest["price"].as_u64().expect("a price") } else { 0 };
            let shown = client.get(&format!("/v1/members/{bidder}")).json();
            let shown = [&shown["total"], &shown["available"]].map(Value::as_u64);
            assert_eq!(shown, [Some(POINTS), Some(POINTS - held)], "{bidder}");
        }
    }

    /// Each node of each version knows the keys of all others.
    fn repeats_are_told_the_same(&self, client: &mut Client) {
        for told in [&self.movements, &self.bids] {
            for Answered { path, key, body, answer } in told.iter().step_by(told.len() / REPEATS + 1) {
                let again = client.try_call("POST", path, Some(key), Some(body)).expect("an answer");
                assert!(matches!(again.status, 200 | 201), "{path} {body}: {}", again.text());
                let again = again.json();
                for member in ["total", "available", "highest"] {
                    assert_eq!(again[member], answer[member], "{path} {body}");
                }
            }
        }
    }
}
