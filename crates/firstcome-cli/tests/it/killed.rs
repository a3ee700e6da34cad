//! The service is killed again and again while people claim. Whoever was told something must find it true for ever.

use crate::support::http::{Answer, Client, Lost};
use crate::support::program::firstcome;
use crate::support::server::Server;
use crate::support::{Rng, kill_rounds, wait_for};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: u32 = 12;
const THREADS: usize = 8;
/// Coupons of each round, and the people who want one: some must go away empty-handed.
const LIMIT: u64 = 60;
const PEOPLE: u64 = 75;

/// What a holder was told. It may never change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    serial: u64,
    code: String,
    issued_at: String,
}

impl Told {
    /// What a claim in JSON says.
    #[track_caller]
    pub(crate) fn new(claim: &Value) -> Self {
        let text = |name: &str| claim[name].as_str().unwrap_or_else(|| panic!("no {name} in {claim}")).to_owned();
        let serial = claim["serial"].as_u64().expect("a serial is a number");
        Self { serial, code: text("code"), issued_at: text("issued_at") }
    }
}

/// Everything that anybody was told about one coupon.
#[derive(Default)]
struct Ledger {
    holders: BTreeMap<String, Told>,
    sold_out: BTreeSet<String>,
}

impl Ledger {
    /// Writes down one answer, which must not contradict any before it.
    fn hear(&mut self, user: &str, answer: &Answer) {
        let body = answer.json();
        let claim = match (answer.status, answer.code().as_str()) {
            (201, _) => &body,
            (409, "already_issued") => &body["claim"],
            (409, "sold_out") => {
                assert!(!self.holders.contains_key(user), "{user} holds a claim and is told sold_out");
                self.sold_out.insert(user.to_owned());
                return;
            }
            _ => panic!("{user}: {} {}", answer.status, answer.text()),
        };
        assert!(!self.sold_out.contains(user), "{user} was told sold_out and now gets {claim}");
        assert_eq!(claim["user"], user, "{claim}");
        let told = Told::new(claim);
        let first = self.holders.entry(user.to_owned()).or_insert_with(|| told.clone());
        assert_eq!(*first, told, "{user} is told two different claims");
    }
}

/// One request of one person.
#[derive(Clone)]
struct Wish {
    user: String,
    idempotency_key: Option<String>,
}

/// What each thread still has to ask for: everybody wants one three times over, twice with the same key.
fn wishes(round: u32, rng: &mut Rng) -> Vec<Vec<Wish>> {
    let mut all = Vec::new();
    for person in 0..PEOPLE {
        let user = format!("person-{round}-{person}");
        let key = Some(format!("key-{round}-{person}"));
        for idempotency_key in [key.clone(), key, None] {
            all.push(Wish { user: user.clone(), idempotency_key });
        }
    }
    rng.shuffle(&mut all);
    let per_thread = all.len().div_ceil(THREADS);
    all.chunks(per_thread).map(<[Wish]>::to_vec).collect()
}

/// What a thread has left when the service goes away: the unanswered request comes first and is sent again as it was.
fn ask(mut client: Client, coupon: &str, wishes: &[Wish], ledger: &Mutex<Ledger>, answers: &AtomicU64) -> Left {
    for (at, wish) in wishes.iter().enumerate() {
        match client.claim(coupon, &wish.user, wish.idempotency_key.as_deref()) {
            Ok(answer) => {
                ledger.lock().expect("no test has failed").hear(&wish.user, &answer);
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(lost) => return Left { wishes: wishes[at..].to_vec(), in_flight: lost != Lost::Unsent },
        }
    }
    Left { wishes: Vec::new(), in_flight: false }
}

struct Left {
    wishes: Vec<Wish>,
    in_flight: bool,
}

/// All threads ask; meanwhile `meddle` may kill the service. Gives back what is left, and how many requests were in
/// flight when it went away.
fn everybody_asks(
    server: &mut Server,
    coupon: &str,
    wishes: &[Vec<Wish>],
    ledger: &Mutex<Ledger>,
    meddle: impl FnOnce(&mut Server, &AtomicU64),
) -> (Vec<Vec<Wish>>, usize) {
    let answers = AtomicU64::new(0);
    let lefts: Vec<Left> = std::thread::scope(|scope| {
        let client = |wishes| {
            let (client, answers) = (server.client(), &answers);
            scope.spawn(move || ask(client, coupon, wishes, ledger, answers))
        };
        let threads: Vec<_> = wishes.iter().map(|wishes| client(wishes)).collect();
        meddle(server, &answers);
        threads.into_iter().map(|thread| thread.join().expect("no answer contradicts another")).collect()
    });
    let in_flight = lefts.iter().filter(|left| left.in_flight).count();
    (lefts.into_iter().map(|left| left.wishes).collect(), in_flight)
}

/// After everything was answered: what is stored is exactly what was told.
fn audit(client: &mut Client, coupon: &str, ledger: &Ledger) {
    let claims = client.claims(coupon);
    let stored: BTreeMap<String, Told> =
        claims.iter().map(|claim| (claim["user"].as_str().expect("a name").to_owned(), Told::new(claim))).collect();
    assert_eq!(claims.len() as u64, LIMIT.min(PEOPLE), "{coupon}: oversold or undersold");
    assert_eq!(stored.len(), claims.len(), "{coupon}: a user holds two");
    let serials: Vec<u64> = claims.iter().map(|claim| claim["serial"].as_u64().expect("a serial")).collect();
    assert_eq!(serials, Vec::from_iter(1..=LIMIT), "{coupon}: a gap");
    assert_eq!(stored, ledger.holders, "{coupon}: what is stored is not what was told");
    assert_eq!(ledger.sold_out.len() as u64, PEOPLE - LIMIT, "{coupon}: who got nothing was told so");
}

/// One coupon, one kill while requests are in flight. `None` if nobody was: then it does not count.
fn round(directory: &std::path::Path, server: &mut Server, number: u32, seed: u64) -> Option<Ledger> {
    let mut rng = Rng::new(seed);
    let coupon = format!("round-{number}");
    server.client().put_coupon(&coupon, LIMIT);
    let ledger = Mutex::new(Ledger::default());
    let wishes = wishes(number, &mut rng);
    // Up to nine tenths: at the very end too few are under way.
    let kill_after = rng.below(PEOPLE * 3 * 9 / 10);
    let pause = Duration::from_micros(rng.below(2_000));
    let (left, in_flight) = everybody_asks(server, &coupon, &wishes, &ledger, |server, answers| {
        wait_for("the moment to kill", || (kill_after <= answers.load(Ordering::Relaxed)).then_some(()));
        std::thread::park_timeout(pause);
        server.kill();
    });
    *server = Server::start(directory);
    let told_sold_out = !ledger.lock().expect("no test has failed").sold_out.is_empty();
    if told_sold_out {
        let view = server.client().get(&format!("/v1/coupons/{coupon}")).json();
        assert_eq!(view["issued"], LIMIT, "seed {seed}: somebody was told sold_out before all were durable");
    }
    let (left, _) = everybody_asks(server, &coupon, &left, &ledger, |_, _| ());
    assert!(left.iter().all(Vec::is_empty), "seed {seed}: the service went away by itself: {}", server.errors());
    let ledger = ledger.into_inner().expect("no test has failed");
    audit(&mut server.client(), &coupon, &ledger);
    (0 < in_flight).then_some(ledger)
}

/// Kills the service so many times, and audits everything after each kill and once more at the end.
fn kill_and_audit(rounds: u32) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path());
    let mut ledgers = BTreeMap::new();
    let mut tries = 0;
    while ledgers.len() < rounds as usize {
        assert!(tries < rounds * 4, "most kills meet nobody");
        if let Some(ledger) = round(directory.path(), &mut server, tries, u64::from(tries)) {
            ledgers.insert(format!("round-{tries}"), ledger);
        }
        tries += 1;
    }
    for (coupon, ledger) in &ledgers {
        audit(&mut server.client(), coupon, ledger);
    }
    server.kill();
    let report: Value = serde_json::from_str(&firstcome(directory.path(), &["verify", "--json", "--data", "data"]).well())
        .expect("the report is JSON");
    assert_eq!(report["breaches"], 0, "{report:#}");
    let checked = |part: &str| {
        let checks = report["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["invariant"].as_str().is_some_and(|text| text.starts_with(part)));
        check.unwrap_or_else(|| panic!("no check {part:?} in {report:#}"))["checked"].as_u64()
    };
    assert_eq!(checked("one each"), Some(u64::from(tries) * LIMIT));
    assert_eq!(checked("gapless"), Some(u64::from(tries) * LIMIT));
    assert_eq!(checked("no oversell"), Some(u64::from(tries)));
    println!("{rounds} kills met requests in flight, of {tries}");
}

#[test]
fn what_was_told_survives_every_kill() {
    kill_and_audit(kill_rounds(ROUNDS));
}
