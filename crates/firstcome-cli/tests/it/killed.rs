//! The service is killed again and again while people claim. A caller that was told something must find it true for ever.

use crate::support::http::{Answer, Client, Lost};
use crate::support::program::{PROGRAM, command, firstcome, rows, run, wait};
use crate::support::server::Server;
use crate::support::{Rng, kill_rounds, wait_for};
use firstcome::edge::Stopwatch;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: u32 = 12;
/// One round in so many is a long one.
const LONG_EVERY: u32 = 6;

/// Who comes in a round. There are fewer coupons than people: some must go away empty-handed.
#[derive(Clone, Copy)]
struct Crowd {
    threads: usize,
    limit: u64,
    people: u64,
}

/// Many at once: large batches.
const SHORT: Crowd = Crowd { threads: 8, limit: 60, people: 75 };
/// Two at a time: so many commits that the log is moved into the file meanwhile.
const LONG: Crowd = Crowd { threads: 2, limit: 900, people: 1_000 };

/// What a holder was told. It may never change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToldClaim {
    serial: u64,
    code: String,
    issued_at: String,
}

impl ToldClaim {
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
    holders: BTreeMap<String, ToldClaim>,
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
        let told = ToldClaim::new(claim);
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
fn wishes(crowd: Crowd, round: u32, rng: &mut Rng) -> Vec<Vec<Wish>> {
    let mut all = Vec::new();
    for person in 0..crowd.people {
        let user = format!("person-{round}-{person}");
        let key = Some(format!("key-{round}-{person}"));
        for idempotency_key in [key.clone(), key, None] {
            all.push(Wish { user: user.clone(), idempotency_key });
        }
    }
    rng.shuffle(&mut all);
    let per_thread = all.len().div_ceil(crowd.threads);
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
            Err(lost) => return Left { wishes: wishes[at..].to_vec(), in_flight: !matches!(lost, Lost::Unsent(_)) },
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
fn audit(client: &mut Client, coupon: &str, crowd: Crowd, ledger: &Ledger) {
    let Crowd { limit, people, .. } = crowd;
    let claims = client.claims(coupon);
    let stored: BTreeMap<String, ToldClaim> = claims
        .iter()
        .map(|claim| (claim["user"].as_str().expect("a name").to_owned(), ToldClaim::new(claim)))
        .collect();
    assert_eq!(claims.len() as u64, limit.min(people), "{coupon}: oversold or undersold");
    assert_eq!(stored.len(), claims.len(), "{coupon}: a user holds two");
    let serials: Vec<u64> = claims.iter().map(|claim| claim["serial"].as_u64().expect("a serial")).collect();
    assert_eq!(serials, Vec::from_iter(1..=limit), "{coupon}: a gap");
    assert_eq!(stored, ledger.holders, "{coupon}: what is stored is not what was told");
    assert_eq!(ledger.sold_out.len() as u64, people - limit, "{coupon}: who got nothing was told so");
}

/// One coupon, one kill while requests are in flight. `None` if no caller was: then it does not count.
fn round(directory: &Path, server: &mut Server, number: u32, crowd: Crowd) -> Option<Ledger> {
    let mut rng = Rng::new(u64::from(number));
    let coupon = format!("round-{number}");
    server.client().put_coupon(&coupon, crowd.limit);
    let ledger = Mutex::new(Ledger::default());
    let wishes = wishes(crowd, number, &mut rng);
    // Up to nine tenths: at the very end too few are under way.
    let kill_after = rng.below(crowd.people * 3 * 9 / 10);
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
        assert_eq!(view["issued"], crowd.limit, "{coupon}: somebody was told sold_out before all were durable");
    }
    let (left, _) = everybody_asks(server, &coupon, &left, &ledger, |_, _| ());
    assert!(left.iter().all(Vec::is_empty), "{coupon}: the service went away by itself: {}", server.errors());
    let ledger = ledger.into_inner().expect("no test has failed");
    audit(&mut server.client(), &coupon, crowd, &ledger);
    (0 < in_flight).then_some(ledger)
}

/// Kills the service so many times, and audits everything after each kill and once more at the end.
fn kill_and_audit(rounds: u32) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path());
    let mut met = Vec::new();
    let mut tries = 0;
    let mut issued = 0;
    while met.len() < rounds as usize {
        assert!(tries < rounds * 4, "most kills meet nobody");
        let crowd = if tries % LONG_EVERY == LONG_EVERY - 1 { LONG } else { SHORT };
        let ledger = round(directory.path(), &mut server, tries, crowd);
        met.extend(ledger.map(|ledger| (tries, crowd, ledger)));
        issued += crowd.limit;
        tries += 1;
    }
    for (number, crowd, ledger) in &met {
        audit(&mut server.client(), &format!("round-{number}"), *crowd, ledger);
    }
    server.kill();
    let report = firstcome(directory.path(), &["verify", "--json", "--data", "data"]).well();
    let report: Value = serde_json::from_str(&report).expect("the report is JSON");
    assert_eq!(report["breaches"], 0, "{report:#}");
    let checked = |part: &str| {
        let checks = report["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["invariant"].as_str().is_some_and(|text| text.starts_with(part)));
        check.unwrap_or_else(|| panic!("no check {part:?} in {report:#}"))["checked"].as_u64()
    };
    assert_eq!(checked("one each"), Some(issued));
    assert_eq!(checked("gapless"), Some(issued));
    assert_eq!(checked("no oversell"), Some(u64::from(tries)));
    println!("{rounds} kills met requests in flight, of {tries}");
}

#[test]
fn what_was_told_survives_every_kill() {
    kill_and_audit(kill_rounds(ROUNDS));
}

/// Kills a child that does something with a directory after a part of a time.
pub(crate) fn kill_within(command: &mut Command, longest: Duration, rng: &mut Rng) {
    let pause = Duration::from_micros(rng.below(longest.as_micros() as u64 + 1));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let watch = Stopwatch::start();
    while watch.elapsed() < pause {
        std::thread::park_timeout(pause.saturating_sub(watch.elapsed()));
    }
    // An error means that it has ended by itself.
    let _ = child.kill();
    wait(&mut child);
}

#[test]
fn a_first_start_that_is_killed_hinders_no_later_one() {
    let mut rng = Rng::new(1);
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data", "data", "--coupon", "launch=5"];
    for number in 0..ROUNDS {
        // Half of them begin anew, the others go on with what is there.
        if number % 2 == 0 && directory.path().join("data").exists() {
            std::fs::remove_dir_all(directory.path().join("data")).expect("it can be removed");
        }
        let mut serve = command(PROGRAM, directory.path());
        kill_within(serve.args(arguments), Duration::from_millis(40), &mut rng);
        if number % 3 == 0 {
            Server::start_with(directory.path(), &["--coupon", "launch=5"]).stop();
            firstcome(directory.path(), &["verify", "--data", "data"]).well();
        }
    }
    Server::spawn(command(PROGRAM, directory.path()).args(arguments)).stop();
}

#[test]
fn an_import_that_is_killed_leaves_all_or_nothing() {
    const WINNERS: usize = 20_000;
    let directory = tempfile::tempdir().expect("a directory");
    let winners: String = (0..WINNERS).map(|number| format!("launch,person-{number}\n")).collect();
    std::fs::write(directory.path().join("winners.csv"), format!("coupon,user\n{winners}")).expect("a file");
    let import = |data: &str| {
        let mut import = command(PROGRAM, directory.path());
        import.args(["import", "--coupon", "launch=20000", "winners.csv", "--data", data]);
        import
    };
    let watch = Stopwatch::start();
    run(&mut import("whole")).well();
    let longest = watch.elapsed();
    let mut rng = Rng::new(2);
    for number in 0..ROUNDS {
        let data = format!("data-{number}");
        kill_within(&mut import(&data), longest, &mut rng);
        // Opened for writing first, so that there is a store however early the end came.
        Server::spawn(command(PROGRAM, directory.path()).args([
            "serve",
            "--dev",
            "--listen",
            "127.0.0.1:0",
            "--data",
            &data,
        ]))
        .stop();
        let lines = rows(&firstcome(directory.path(), &["export", "--data", &data]).well()).len();
        assert!(lines == 0 || lines == WINNERS + 1, "{lines} lines");
        firstcome(directory.path(), &["verify", "--data", &data]).well();
    }
}
