//! The scripts of locks against the core's rules: step by step the same answers.

use super::server::{PATIENCE, Server, wait_for};
use super::{in_time, patient, several};
use firstcome_redis::{RedisLocks, Script};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Acquired, Answer, ClientId, Copies, LockAnswer, LockTable, MemoryLockTable, Mode, Push, Released, Renewal, Request,
    Step, Wait, Waiter, bucket_of, take,
};
use firstcome_store::edge::draw_hasher;
use firstcome_store::edge::rng::Rng;
use firstcome_store::{LockEvent, LockStore};
use firstcome_test_servers::Durability;
use parking_lot::Mutex;
use redis::Value;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

/// A server's locks beside the rules themselves.
struct Pair {
    stores: Vec<RedisLocks>,
    tables: BTreeMap<u8, MemoryLockTable<RandomState>>,
    pushed: Arc<Mutex<Vec<Push>>>,
    due: Vec<Push>,
    numbers: BTreeMap<(u64, String), u64>,
    /// How often each kind of answer came.
    said: BTreeMap<&'static str, u32>,
}

/// The kind of an answer.
fn kind(said: &LockAnswer) -> &'static str {
    match said {
        LockAnswer::Acquired(Acquired::Granted(_)) => "granted",
        LockAnswer::Acquired(Acquired::Queued { .. }) => "queued",
        LockAnswer::Acquired(Acquired::Contended { .. }) => "contended",
        LockAnswer::Acquired(Acquired::Void) => "void",
        LockAnswer::Released(Released::Released) => "released",
        LockAnswer::Released(Released::Withdrawn { .. }) => "withdrawn",
        LockAnswer::Released(Released::NotHeld) => "not held",
        LockAnswer::Renewed(ends) if ends.iter().any(Option::is_some) => "renewed",
        LockAnswer::Renewed(_) => "not renewed",
        LockAnswer::Beaten { looked, .. } if looked.iter().any(|(grants, _)| !grants.is_empty()) => {
            "beaten with a grant"
        }
        LockAnswer::Beaten { .. } => "beaten",
    }
}

fn name(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn bucket(step: &Step) -> u8 {
    match step {
        Step::Acquire { name, .. } | Step::Release { name, .. } => bucket_of(name),
        Step::Renew { bucket, .. } | Step::Beat { bucket, .. } => *bucket,
    }
}

impl Pair {
    async fn new(url: &str, clients: u64) -> Self {
        let pushed: Arc<Mutex<Vec<Push>>> = Arc::default();
        let mut stores = Vec::new();
        for client in 1..=clients {
            let store = RedisLocks::open(url, ClientId(client), patient()).await.unwrap();
            let pushed = Arc::clone(&pushed);
            let inbox = move |event| {
                if let LockEvent::Push(push) = event {
                    pushed.lock().push(push);
                }
            };
            store.attach(ClientId(client), Arc::new(inbox));
            stores.push(store);
        }
        Self {
            stores,
            tables: BTreeMap::new(),
            pushed,
            due: Vec::new(),
            numbers: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// Who has a lock now, as the rules know it.
    fn holder(&self, lock: &str) -> Option<Request> {
        let lock = name(lock);
        Some(self.tables.get(&bucket_of(&lock))?.hold(&lock)?.waiter.request)
    }

    /// Waits until the hold of a lock is over by the server's clock.
    async fn outlive(&self, lock: &str) {
        let lock = name(lock);
        wait_for("a lease to end", async || {
            self.stores[0].view(&lock).await.unwrap().view.held.is_none().then_some(())
        })
        .await;
    }

    /// As if the clock had been set back by an hour since the last number of this lock's bucket was drawn.
    async fn put_numbers_ahead(&mut self, lock: &str) {
        let lock = name(lock);
        let last = self.stores[0].view(&lock).await.unwrap().now_us + 3_600_000_000;
        let key = format!("fc:{{l{:02x}}}:n", bucket_of(&lock));
        static SET: Script = Script::new("redis.call('SET', KEYS[1], ARGV[1])");
        self.stores[0].link().run(&SET, &[key.as_bytes()], &[last.to_string().as_bytes()]).await.unwrap();
        self.tables.entry(bucket_of(&lock)).or_insert_with(|| MemoryLockTable::new(draw_hasher())).set_last(last);
    }

    /// Takes a step on both, and compares.
    async fn take(&mut self, step: Step) -> Answer {
        let answer = self.stores[0].take(step.clone()).await.unwrap();
        let table = self.tables.entry(bucket(&step)).or_insert_with(|| MemoryLockTable::new(draw_hasher()));
        let (expected, pushes) = take(table, &step, answer.now_us);
        assert_eq!(answer, expected, "{step:?}");
        self.due.extend(pushes);
        *self.said.entry(kind(&answer.said)).or_default() += 1;
        if let (Step::Acquire { name, waiter, .. }, LockAnswer::Acquired(Acquired::Queued { number, .. })) =
            (&step, &answer.said)
        {
            self.numbers.insert((waiter.request.client.0, name.to_string()), *number);
        }
        answer
    }
}

fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

fn acquire(lock: &str, client: u64, number: u64, lease_ms: u32, wait: Wait) -> Step {
    let owner = OwnerName::parse(&format!("owner-{client}")).unwrap();
    let waiter = Waiter {
        request: request(client, number),
        owner,
        lease_ms,
        mode: Mode::Exclusive { passes: 1 + (number % 3) as u32 },
    };
    Step::Acquire { name: name(lock), waiter, wait }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_says_what_the_rules_say() {
    let Some(server) = Server::start(&[]).await else { return };
    every_step(&server.url(), &[&server.url()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_says_what_the_rules_say_in_a_cluster() {
    let Some(cluster) = several::cluster(Durability::Quick, 0).await else { return };
    every_step(&cluster.url(), &cluster.nodes().iter().map(|node| node.url()).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_says_what_the_rules_say_behind_sentinels() {
    let Some(trio) = several::trio(1, PATIENCE).await else { return };
    every_step(&trio.url(), &[trio.servers()[0].url()]).await;
}

async fn every_step(url: &str, servers: &[&str]) {
    in_time(async {
        let mut pair = Pair::new(url, 3).await;
        let locks = ["a", "auction:7", "b"];
        for seed in 0..40 {
            let mut rng = Rng::from_seed(seed);
            if seed % 4 == 3 {
                pair.put_numbers_ahead(locks[rng.index(3)]).await;
            }
            for _ in 0..80 {
                let lock = locks[rng.index(3)];
                let (client, number) = (rng.range(1, 3), seed * 100 + rng.below(12));
                let lease_ms = 100 + 50 * rng.below(3) as u32;
                // Half of the time about the holder.
                let known = pair.holder(lock).filter(|_| rng.once_in(2));
                let about = known.unwrap_or(request(client, number));
                let step = match rng.below(10) {
                    0..3 => {
                        let place = pair.numbers.get(&(client, lock.into())).copied();
                        let wait = match (rng.below(4), place) {
                            (0, _) => Wait::No,
                            (1, Some(place)) => Wait::Again(place),
                            _ => Wait::Yes,
                        };
                        let mut step = acquire(lock, client, number, lease_ms, wait);
                        if let (Step::Acquire { waiter, .. }, true) = (&mut step, rng.once_in(2)) {
                            waiter.mode = Mode::Shared { permits: [1, 2, 2, 1_000][rng.index(4)] };
                        }
                        step
                    }
                    3..7 => {
                        let copies = if rng.once_in(8) { Copies::Several } else { Copies::One };
                        Step::Release { name: name(lock), request: about, copies }
                    }
                    7 => {
                        let renewal = Renewal { name: name(lock), request: about, lease_ms };
                        Step::Renew { bucket: bucket_of(&name(lock)), renewals: vec![renewal.clone(), renewal] }
                    }
                    8 => {
                        Step::Beat { bucket: bucket_of(&name(lock)), client: ClientId(client), names: vec![name(lock)] }
                    }
                    _ => {
                        if rng.once_in(6) {
                            pair.outlive(lock).await;
                        }
                        continue;
                    }
                };
                pair.take(step).await;
            }
        }
        // Everything is given up: nothing stays but the counters, the lives and the void requests.
        for lock in locks {
            for client in 1..=3 {
                for number in 0..4_000 {
                    if number % 100 < 12 {
                        pair.take(Step::Release {
                            name: name(lock),
                            request: request(client, number),
                            copies: Copies::One,
                        })
                        .await;
                    }
                }
            }
        }
        assert!(pair.said.len() == 11 && pair.said.values().all(|count| 5 < *count), "{:?}", pair.said);
        let pushed = pair.pushed.clone();
        wait_for("every grant to be pushed", async || (pushed.lock().len() == pair.due.len()).then_some(())).await;
        let said = pushed.lock().clone();
        for push in &pair.due {
            assert!(said.contains(push), "{push:?}");
        }
        for server in servers {
            let keys: Vec<String> = several::try_ask(server, &["KEYS", "*"]).await.unwrap();
            let left = keys.iter().find(|key| [":h:", ":q:", ":w:"].iter().any(|kind| key.contains(kind)));
            assert_eq!(left, None);
        }
    })
    .await;
}

/// No process gives up what it does not hold, and nothing is sent twice: the ordinary case, for which scripts have short ways.
#[tokio::test(flavor = "multi_thread")]
async fn the_short_ways_say_what_the_rules_say() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let mut pair = Pair::new(&server.url(), 3).await;
        let mut number = 0;
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let locks = ["a", "auction:7", "b"].map(|lock| format!("{lock}-{seed}"));
            if seed % 5 == 4 {
                pair.put_numbers_ahead(&locks[0]).await;
            }
            if seed % 5 == 2 {
                // Something else of the bucket is void, which is to change nothing.
                let nobody = Step::Release { name: name(&locks[0]), request: request(9, seed), copies: Copies::One };
                pair.take(nobody).await;
            }
            for step in 0..200 {
                let lock = rng.pick(&locks);
                match pair.holder(lock) {
                    // In the end everybody is served.
                    Some(request) if 150 <= step || rng.once_in(2) => {
                        pair.take(Step::Release { name: name(lock), request, copies: Copies::One }).await;
                    }
                    _ => {
                        // A multiple of three: one pass.
                        number += 3;
                        pair.take(acquire(lock, rng.range(1, 3), number, 10_000, Wait::Yes)).await;
                    }
                }
            }
        }
        let pushed = pair.pushed.clone();
        wait_for("every grant to be pushed", async || (pushed.lock().len() == pair.due.len()).then_some(())).await;
        assert!(pair.due.iter().all(|push| pushed.lock().contains(push)));
        // Only the short way to the end of a line reads several lives at once, and only the long one asks for a rank.
        let (short, long) = (server.calls("hmget").await, server.calls("zrank").await);
        assert!(400 < short && 3 * long < short, "{short} short ways to the end of a line, {long} long ones");
        // Only the long ways read the counter.
        let (read, scripts) = (server.calls("get").await, server.calls("evalsha").await);
        assert!(read < scripts + long, "{read} reads by {scripts} scripts, {long} of them on long ways");
    })
    .await;
}

/// What a hand-over costs the server: its one thread runs every call, so calls bound the rate of all locks. A change of a
/// script that needs one more call is a decision, and changes this number.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_makes_no_more_calls_than_it_did() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let mut pair = Pair::new(&server.url(), 2).await;
        let mut number = 0;
        let mut next = || {
            number += 3;
            acquire("hot", 1 + number / 3 % 2, number, 60_000, Wait::Yes)
        };
        for _ in 0..8 {
            pair.take(next()).await;
        }
        let before = server.calls_of_scripts().await;
        for _ in 0..HAND_OVERS {
            let request = pair.holder("hot").expect("it is held");
            pair.take(Step::Release { name: name("hot"), request, copies: Copies::One }).await;
            pair.take(next()).await;
        }
        let calls = server.calls_of_scripts().await - before;
        // Signs of life come beside, a few per second.
        assert!(
            calls <= HAND_OVERS * CALLS_MAX + HAND_OVERS / 2,
            "{} calls per hand-over",
            calls as f64 / HAND_OVERS as f64
        );
        assert!(HAND_OVERS * (CALLS_MAX - 1) < calls, "fewer calls than before: lower the number");
    })
    .await;
}

/// Hand-overs whose calls are counted.
const HAND_OVERS: u64 = 400;
/// Calls within scripts for a release that grants to the next in line, and for a request that joins the line.
const CALLS_MAX: u64 = 18;

/// The last command over the connection that listens, and its number.
async fn listener(server: &Server) -> Option<(String, String)> {
    let list = match server.ask(&["CLIENT", "LIST"]).await {
        Value::VerbatimString { text, .. } => text,
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    let of = |line: &str, what: &str| {
        let word = line.split(' ').find_map(|word| word.strip_prefix(what)).unwrap_or_default();
        word.to_owned()
    };
    let listens = |line: &&str| of(line, "sub=") == "1";
    list.lines().find(listens).map(|line| (of(line, "id="), of(line, "cmd=")))
}

#[tokio::test]
async fn signs_of_life_do_not_stand_behind_commands() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let store = RedisLocks::open(&server.url(), ClientId(1), patient()).await.unwrap();
        let lock = name("a");
        let beat = || Step::Beat { bucket: bucket_of(&lock), client: ClientId(1), names: vec![lock.clone()] };
        store.take(acquire("a", 1, 1, 10_000, Wait::No)).await.unwrap();
        assert_ne!(listener(&server).await.unwrap().1, "evalsha");
        store.take(beat()).await.unwrap();
        let (id, command) = listener(&server).await.unwrap();
        assert_eq!(command, "evalsha");
        // Without the connection that listens they go over the other one.
        server.ask(&["CLIENT", "KILL", "ID", &id]).await;
        store.take(beat()).await.unwrap();
        wait_for("another connection that listens", async || listener(&server).await.filter(|(new, _)| *new != id))
            .await;
        store.take(beat()).await.unwrap();
        wait_for("it to be used", async || {
            store.take(beat()).await.unwrap();
            listener(&server).await.filter(|(_, command)| command == "evalsha")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_sign_of_life_whose_connection_breaks_goes_over_the_other_one_at_once() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let store = Arc::new(RedisLocks::open(&server.url(), ClientId(1), patient()).await.unwrap());
        let lock = name("a");
        let beat = || Step::Beat { bucket: bucket_of(&lock), client: ClientId(1), names: vec![lock.clone()] };
        store.take(acquire("a", 1, 1, 10_000, Wait::No)).await.unwrap();
        store.take(beat()).await.unwrap();
        let before = store.link().counts().requests;
        // No script runs until the pause is over.
        server.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
        let beaten = {
            let (store, beat) = (Arc::clone(&store), beat());
            tokio::spawn(async move { store.take(beat).await })
        };
        wait_for("it to be sent", async || (before < store.link().counts().requests).then_some(())).await;
        server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        server.ask(&["CLIENT", "UNPAUSE"]).await;
        beaten.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn signs_of_life_go_beside_again_when_the_server_will_do_again() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let mut options = patient();
        options.ping_interval = Duration::from_millis(50);
        let store = RedisLocks::open(&server.url(), ClientId(1), options).await.unwrap();
        let lock = name("a");
        let beat = || Step::Beat { bucket: bucket_of(&lock), client: ClientId(1), names: vec![lock.clone()] };
        let policy = async |policy| server.ask(&["CONFIG", "SET", "maxmemory-policy", policy]).await;
        policy("allkeys-lru").await;
        let (id, _) = listener(&server).await.unwrap();
        server.ask(&["CLIENT", "KILL", "ID", &id]).await;
        wait_for("a look at the server over another connection", async || {
            listener(&server).await.filter(|(new, command)| *new != id && command == "info")
        })
        .await;
        store.take(beat()).await.unwrap();
        assert_ne!(listener(&server).await.unwrap().1, "evalsha", "it leads to a server on which nothing may be kept");
        policy("noeviction").await;
        wait_for("it to be used", async || {
            store.take(beat()).await.unwrap();
            listener(&server).await.filter(|(_, command)| command == "evalsha")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_rights_that_a_refusal_names_are_enough() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let rights = "+info +ping +subscribe +script +evalsha +eval +@read +@write +time +publish";
        let mut user = vec!["ACL", "SETUSER", "app", "on", ">secret", "resetchannels", "~fc:*", "&fc:*"];
        user.extend(rights.split(' '));
        server.ask(&user).await;
        let url = server.url_as("app", "secret");
        let [one, other] = [1, 2].map(|client| RedisLocks::open(&url, ClientId(client), patient()));
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        let lock = name("a");
        let granted = one.take(acquire("a", 1, 3, 10_000, Wait::Yes)).await.unwrap();
        assert!(matches!(granted.said, LockAnswer::Acquired(Acquired::Granted(_))), "{granted:?}");
        let queued = other.take(acquire("a", 2, 3, 10_000, Wait::Yes)).await.unwrap();
        assert!(matches!(queued.said, LockAnswer::Acquired(Acquired::Queued { .. })), "{queued:?}");
        let bucket = bucket_of(&lock);
        other.take(Step::Beat { bucket, client: ClientId(2), names: vec![lock.clone()] }).await.unwrap();
        let renewal = Renewal { name: lock.clone(), request: request(1, 3), lease_ms: 10_000 };
        one.take(Step::Renew { bucket, renewals: vec![renewal] }).await.unwrap();
        let gone = Step::Release { name: lock.clone(), request: request(1, 3), copies: Copies::One };
        assert_eq!(one.take(gone.clone()).await.unwrap().said, LockAnswer::Released(Released::Released));
        assert_eq!(one.take(gone).await.unwrap().said, LockAnswer::Released(Released::NotHeld));
        assert!(one.view(&lock).await.unwrap().view.held.is_some(), "the other one has it");
    })
    .await;
}
