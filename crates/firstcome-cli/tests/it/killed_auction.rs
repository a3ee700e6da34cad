//! The service is killed again and again while members are charged, bid and buy. What was told of points, bids and sales stays
//! true, and auctions that end while no member runs are closed by the next start.

use crate::support::http::{Answer, Client, Lost};
use crate::support::program::firstcome;
use crate::support::server::Server;
use crate::support::{Rng, kill_rounds, wait_for};
use firstcome::edge::{Clock, SystemClock};
use firstcome_server::rfc3339;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u32 = 4;
const THREADS: u64 = 6;
/// Of each kind and thread.
const WISHES: u64 = 30;
/// What every bidder has at first.
const POINTS: u64 = 1_000_000;

/// One request of one member, sent with a key until it is answered.
#[derive(Clone)]
struct Wish {
    path: String,
    key: String,
    body: Value,
}

/// Everything that anybody was told in one round.
#[derive(Default)]
struct Ledger {
    /// Bids by their number.
    bids: BTreeMap<u64, Value>,
    /// Sales by the path of their request.
    sales: BTreeMap<String, Value>,
    /// Charges by their key: the balance that each led to.
    charges: BTreeMap<String, Value>,
}

impl Ledger {
    /// Writes down one answer, which must not contradict any before it.
    fn hear(&mut self, wish: &Wish, answer: &Answer) {
        let body = answer.json();
        let says = format!("{} {}: {} {body}", wish.path, wish.body, answer.status);
        match (answer.status, answer.code().as_str()) {
            (200, _) => {
                let first = self.charges.entry(wish.key.clone()).or_insert_with(|| body.clone());
                assert_eq!(*first, body, "{says}");
            }
            (201, _) if wish.path.ends_with("/bids") => {
                let (bid, highest) = (body["bid"].as_u64().expect("a number"), &body["highest"]);
                assert_eq!(
                    (&highest["bidder"], &highest["price"]),
                    (&wish.body["bidder"], &wish.body["price"]),
                    "{says}"
                );
                let first = self.bids.entry(bid).or_insert_with(|| highest.clone());
                assert_eq!(first, highest, "{says}");
            }
            (201, _) => self.sold(wish, &body, &says),
            (409, "already_sold") => self.sold(wish, &body["purchase"], &says),
            (409, "already_highest_bidder" | "bid_too_low") => {}
            _ => panic!("{says}"),
        }
    }

    fn sold(&mut self, wish: &Wish, sale: &Value, says: &str) {
        let first = self.sales.entry(wish.path.clone()).or_insert_with(|| sale.clone());
        assert_eq!(first, sale, "sold to two: {says}");
    }
}

fn bidder(round: u32, thread: u64) -> String {
    format!("bidder-{round}-{thread}")
}

/// What each thread asks for: charges of one point, bids that rise over all threads, and things that others want as well.
fn wishes(round: u32, thread: u64, rng: &mut Rng) -> Vec<Wish> {
    let name = bidder(round, thread);
    let mut all = Vec::new();
    for step in 0..WISHES {
        let price = 100 + step * THREADS + rng.below(THREADS);
        let paths = [
            (format!("/v1/members/{name}/points/charge"), json!({"amount": 1})),
            (format!("/v1/listings/lamp-{round}/bids"), json!({"bidder": name, "price": price})),
            (format!("/v1/listings/vase-{round}-{step}/purchase"), json!({"buyer": name})),
        ];
        for (path, body) in paths {
            let wish = Wish { path, body, key: format!("key-{round}-{thread}-{step}") };
            // Some are sent twice, no matter what the first time has brought.
            all.extend(std::iter::repeat_n(wish, 1 + rng.below(2) as usize));
        }
    }
    all
}

/// Gives back what is left when the service goes away, and whether a request was in flight then.
fn ask(mut client: Client, wishes: &[Wish], ledger: &Mutex<Ledger>, answers: &AtomicU64) -> (Vec<Wish>, bool) {
    for (at, wish) in wishes.iter().enumerate() {
        match client.try_call("POST", &wish.path, Some(&wish.key), Some(&wish.body)) {
            Ok(answer) => {
                ledger.lock().expect("no answer contradicts another").hear(wish, &answer);
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(lost) => return (wishes[at..].to_vec(), !matches!(lost, Lost::Unsent(_))),
        }
    }
    (Vec::new(), false)
}

fn everybody_asks(
    server: &mut Server,
    wishes: &[Vec<Wish>],
    ledger: &Mutex<Ledger>,
    meddle: impl FnOnce(&mut Server, &AtomicU64),
) -> (Vec<Vec<Wish>>, usize) {
    let answers = AtomicU64::new(0);
    let lefts: Vec<(Vec<Wish>, bool)> = std::thread::scope(|scope| {
        let client = |wishes| {
            let (client, answers) = (server.client(), &answers);
            scope.spawn(move || ask(client, wishes, ledger, answers))
        };
        let threads: Vec<_> = wishes.iter().map(|wishes| client(wishes)).collect();
        meddle(server, &answers);
        threads.into_iter().map(|thread| thread.join().expect("no answer contradicts another")).collect()
    });
    let in_flight = lefts.iter().filter(|(_, in_flight)| *in_flight).count();
    (lefts.into_iter().map(|(left, _)| left).collect(), in_flight)
}

/// An auction or a sale of the owner of this round.
fn list(client: &mut Client, round: u32, listing: &str, further: Value) {
    let mut settings = json!({"owner": format!("owner-{round}"), "price": 1});
    let Value::Object(further) = further else { panic!("{further} is no object") };
    settings.as_object_mut().expect("an object").extend(further);
    let answer = client.call("PUT", &format!("/v1/listings/{listing}"), Some(&settings));
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn in_ms(ms: u64) -> String {
    rfc3339::format(SystemClock::default().now().plus_ms(ms))
}

fn number(client: &mut Client, path: &str, member: &str) -> u64 {
    let answer = client.get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()[member].as_u64().unwrap_or_else(|| panic!("no {member} in {}", answer.text()))
}

/// What is stored is what was told, and no member has gained or lost a point by the kill.
fn audit(client: &mut Client, round: u32, ledger: &Ledger) {
    let stored = client.get(&format!("/v1/listings/lamp-{round}/bids?limit=1000")).json();
    let stored = stored["items"].as_array().expect("items");
    let told: Vec<&Value> = ledger.bids.values().collect();
    assert_eq!(stored.iter().collect::<Vec<_>>(), told, "bids that are stored are those that were told");
    let prices: Vec<u64> = stored.iter().filter_map(|bid| bid["price"].as_u64()).collect();
    assert!(!prices.is_empty() && prices.is_sorted_by(|before, after| before < after), "{prices:?}");
    assert_eq!(ledger.sales.len() as u64, WISHES, "every thing is sold");
    let highest = stored.last().expect("a bid");
    let mut totals = 0;
    for thread in 0..THREADS {
        let name = bidder(round, thread);
        let path = format!("/v1/members/{name}");
        let (total, available) = (number(client, &path, "total"), number(client, &path, "available"));
        let bought = ledger.sales.values().filter(|sale| sale["buyer"] == name).count() as u64;
        assert_eq!(total, POINTS + WISHES - bought, "{name}: charged once each, one point for each thing");
        let held = if highest["bidder"] == name { highest["price"].as_u64().expect("a price") } else { 0 };
        assert_eq!(total - available, held, "{name}: the highest bid is backed, and nothing else");
        totals += total;
    }
    let owner = number(client, &format!("/v1/members/owner-{round}"), "total");
    assert_eq!((owner, totals + owner), (WISHES, THREADS * (POINTS + WISHES)));
}

/// One kill while requests are in flight; false if no member was there. An auction that ends meanwhile is closed without a caller.
fn round(directory: &Path, server: &mut Server, number_of: u32) -> bool {
    let mut rng = Rng::new(u64::from(number_of));
    let mut client = server.client();
    let day = json!({"kind": "auction", "price": 100, "ends_at": in_ms(86_400_000)});
    list(&mut client, number_of, &format!("lamp-{number_of}"), day);
    for step in 0..WISHES {
        list(&mut client, number_of, &format!("vase-{number_of}-{step}"), json!({"kind": "fixed_price"}));
    }
    for thread in 0..THREADS {
        let path = format!("/v1/members/{}/points/charge", bidder(number_of, thread));
        assert_eq!(client.call("POST", &path, Some(&json!({"amount": POINTS}))).status, 200);
    }
    let soon = format!("soon-{number_of}");
    list(&mut client, number_of, &soon, json!({"kind": "auction", "ends_at": in_ms(400), "settle_within_ms": 100}));
    let late = format!("late-{number_of}");
    let charged = client.call("POST", &format!("/v1/members/{late}/points/charge"), Some(&json!({"amount": 50})));
    assert_eq!(charged.status, 200, "{}", charged.text());
    let placed = client.call("POST", &format!("/v1/listings/{soon}/bids"), Some(&json!({"bidder": late, "price": 50})));
    assert_eq!(placed.status, 201, "{}", placed.text());

    let ledger = Mutex::new(Ledger::default());
    let wishes: Vec<Vec<Wish>> = (0..THREADS).map(|thread| wishes(number_of, thread, &mut rng)).collect();
    let kill_after = rng.below(THREADS * WISHES * 3);
    let (left, in_flight) = everybody_asks(server, &wishes, &ledger, |server, answers| {
        wait_for("the moment to kill", || (kill_after <= answers.load(Ordering::Relaxed)).then_some(()));
        server.kill();
    });
    *server = Server::start(directory);
    let (left, _) = everybody_asks(server, &left, &ledger, |_, _| ());
    assert!(left.iter().all(Vec::is_empty), "the service went away by itself: {}", server.errors());
    let ledger = ledger.into_inner().expect("no answer contradicts another");
    let mut client = server.client();
    audit(&mut client, number_of, &ledger);
    // No member settles: the points come back by themselves.
    wait_for("the end of an auction", || {
        (number(&mut client, &format!("/v1/members/{late}"), "available") == 50).then_some(())
    });
    assert_eq!(client.get(&format!("/v1/listings/{soon}")).json()["state"], "unsold");
    0 < in_flight
}

#[test]
fn points_bids_and_sales_survive_every_kill() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path());
    let (mut met, mut tries) = (0, 0);
    let rounds = kill_rounds(ROUNDS);
    while met < rounds {
        assert!(tries < rounds * 4, "most kills meet nobody");
        met += u32::from(round(directory.path(), &mut server, tries));
        tries += 1;
    }
    server.kill();
    let report = firstcome(directory.path(), &["verify", "--json", "--data", "data"]).well();
    let report: Value = serde_json::from_str(&report).expect("the report is JSON");
    assert_eq!(report["breaches"], 0, "{report:#}");
    let checks = report["checks"].as_array().expect("checks");
    let check =
        checks.iter().find(|check| check["invariant"].as_str().is_some_and(|text| text.contains("are a chain")));
    assert!(check.is_some_and(|check| 1_000 < check["checked"].as_u64().unwrap_or(0)), "{report:#}");
    println!("{rounds} kills met requests in flight, of {tries}");
}
