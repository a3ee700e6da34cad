//! Grants that count only when replicas have them.

use super::several::{cluster, home};
use super::*;
use firstcome_redis::{RedisLocks, Redisson, ReplicaAck, SingleKey};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Acquired, ClientId, Copies, Fence, LockAnswer, Mode, Push, Released, Renewal, Request, Step, Taken, Wait, Waiter,
    bucket_of,
};
use firstcome_store::key::{KeyStore, Tried};
use firstcome_store::{LockEvent, LockStore, StoreError};
use firstcome_test_servers::Durability;
use parking_lot::Mutex;
use std::num::NonZeroU8;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A primary and one that follows it.
struct Two {
    primary: Server,
    replica: Server,
}

impl Two {
    async fn start() -> Option<Self> {
        let arguments = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600"];
        let (primary, replica) = (Server::start(&arguments).await?, Server::start(&arguments).await?);
        replica.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
        let two = Self { primary, replica };
        two.until_in_step().await;
        Some(two)
    }

    async fn until_in_step(&self) {
        wait_for("the replica", async || {
            let told = self.primary.text(&["INFO", "replication"]).await;
            let written = told.lines().find_map(|line| line.trim_end().strip_prefix("master_repl_offset:"))?;
            told.contains(&format!("state=online,offset={written},")).then_some(())
        })
        .await;
    }
}

/// One replica within this time.
pub(super) fn one_within(time: Duration) -> LinkOptions {
    let mut options = patient();
    options.replica_ack = Some(ReplicaAck::by(NonZeroU8::MIN).within(time));
    options
}

const SHORT: Duration = Duration::from_millis(200);

pub(super) fn name(text: &str) -> LockName {
    LockName::parse(text).expect("a name")
}

pub(super) fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

pub(super) fn acquire(lock: &str, client: u64, number: u64, wait: Wait) -> Step {
    let owner = OwnerName::parse("owner").expect("a name");
    let waiter = Waiter { request: request(client, number), owner, lease_ms: 60_000, mode: Mode::ALONE };
    Step::Acquire { name: name(lock), waiter, wait }
}

pub(super) fn release(lock: &str, client: u64, number: u64) -> Step {
    Step::Release { name: name(lock), request: request(client, number), copies: Copies::One }
}

fn renewal(lock: &str, client: u64, number: u64) -> Step {
    let renewal = Renewal { name: name(lock), request: request(client, number), lease_ms: 60_000 };
    Step::Renew { bucket: bucket_of(&name(lock)), renewals: vec![renewal] }
}

pub(super) async fn open_locks(url: &str, client: u64, options: LinkOptions) -> RedisLocks {
    RedisLocks::open(url, ClientId(client), options).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

async fn said(locks: &RedisLocks, step: Step) -> Result<LockAnswer, StoreError> {
    locks.take(step).await.map(|answer| answer.said)
}

/// Takes a lock that is free; again if the replica was slow.
pub(super) async fn granted(locks: &RedisLocks, lock: &str, client: u64, number: u64) -> Fence {
    wait_for("a grant", async || match said(locks, acquire(lock, client, number, Wait::No)).await {
        Ok(LockAnswer::Acquired(Acquired::Granted(grant))) => Some(grant.fence),
        Ok(other) => panic!("{lock}: {other:?}"),
        Err(_) => None,
    })
    .await
}

#[track_caller]
fn assert_unknown(said: &Result<LockAnswer, StoreError>) {
    assert!(matches!(said, Err(StoreError::Unknown)), "{said:?}");
}

/// What a process is pushed.
fn attach(locks: &RedisLocks, client: u64) -> Arc<Mutex<Vec<Push>>> {
    let pushed: Arc<Mutex<Vec<Push>>> = Arc::default();
    let heard = Arc::clone(&pushed);
    let inbox = move |event| {
        if let LockEvent::Push(push) = event {
            heard.lock().push(push);
        }
    };
    locks.attach(ClientId(client), Arc::new(inbox));
    pushed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_replica_has_is_unknown_and_counts_when_one_has_it() {
    let Some(two) = Two::start().await else { return };
    in_time(async {
        let locks = open_locks(&two.primary.url(), 1, one_within(SHORT)).await;
        granted(&locks, "before", 1, 1).await;
        two.replica.freeze();
        let asked = Instant::now();
        assert_unknown(&said(&locks, acquire("a", 1, 2, Wait::No)).await);
        assert!(SHORT <= asked.elapsed() && asked.elapsed() < PATIENCE / 2, "{:?}", asked.elapsed());
        // It stands with the primary, which may be lost: no other process gets it, and no process was told that he has it.
        assert!(locks.view(&name("a")).await.unwrap().view.held.is_some());
        assert_unknown(&said(&locks, renewal("before", 1, 1)).await);
        // What rests on no grant waits for no process, nor does a release.
        let contended = said(&locks, acquire("a", 1, 3, Wait::No)).await.unwrap();
        assert!(matches!(contended, LockAnswer::Acquired(Acquired::Contended { .. })), "{contended:?}");
        let gone = said(&locks, renewal("nobody-has-it", 1, 9)).await.unwrap();
        assert_eq!(gone, LockAnswer::Renewed(vec![None]));
        assert_eq!(said(&locks, release("before", 1, 1)).await.unwrap(), LockAnswer::Released(Released::Released));
        two.replica.thaw();
        granted(&locks, "a", 1, 2).await;
        let renewed = wait_for("the replica", async || said(&locks, renewal("a", 1, 2)).await.ok()).await;
        assert!(matches!(&renewed, LockAnswer::Renewed(ends) if ends[0].is_some()), "{renewed:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_grant_is_told_when_a_replica_has_it() {
    let Some(two) = Two::start().await else { return };
    in_time(async {
        let locks = open_locks(&two.primary.url(), 1, one_within(SHORT)).await;
        let others = open_locks(&two.primary.url(), 2, one_within(SHORT)).await;
        let pushed = attach(&others, 2);
        granted(&locks, "a", 1, 1).await;
        let queued = said(&others, acquire("a", 2, 1, Wait::Yes)).await.unwrap();
        assert!(matches!(queued, LockAnswer::Acquired(Acquired::Queued { .. })), "{queued:?}");
        assert_eq!(said(&locks, release("a", 1, 1)).await.unwrap(), LockAnswer::Released(Released::Released));
        let push = wait_for("the push", async || pushed.lock().pop()).await;
        assert_eq!((push.grant.request, push.grant.taken), (request(2, 1), Taken::Open));
        // The same again, while no process follows.
        let queued = said(&locks, acquire("a", 1, 2, Wait::Yes)).await.unwrap();
        assert!(matches!(queued, LockAnswer::Acquired(Acquired::Queued { .. })), "{queued:?}");
        let pushed = attach(&locks, 1);
        two.replica.freeze();
        let before = locks.link().counts();
        assert_eq!(said(&others, release("a", 2, 1)).await.unwrap(), LockAnswer::Released(Released::Released));
        wait_for("the hint", async || (before.pushes < locks.link().counts().pushes).then_some(())).await;
        let heartbeat = || {
            let (bucket, client) = (bucket_of(&name("a")), ClientId(1));
            said(&locks, Step::Beat { bucket, client, names: vec![name("a")] })
        };
        // Its heartbeat shows nothing either, and comes at once; it counts as alive.
        let asked = Instant::now();
        match heartbeat().await.unwrap() {
            LockAnswer::Beaten { looked, .. } => {
                assert!(matches!(&looked[..], [(grants, Some(_))] if grants.is_empty()), "{looked:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(asked.elapsed() < SHORT, "{:?}", asked.elapsed());
        // The hint and the heartbeat are looked into, in vain. What comes behind them goes with a later question to the replicas.
        for (lock, number) in [("b", 3), ("c", 4)] {
            assert_unknown(&said(&locks, acquire(lock, 1, number, Wait::No)).await);
        }
        assert!(pushed.lock().is_empty(), "{:?}", pushed.lock());
        two.replica.thaw();
        let push = wait_for("the push", async || {
            heartbeat().await.unwrap();
            pushed.lock().pop()
        })
        .await;
        assert_eq!(push.grant.request, request(1, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_was_asked_for_again_is_written_again() {
    let Some(two) = Two::start().await else { return };
    in_time(async {
        // A connection that has written nothing has nothing to wait for: a repeat over another one must write.
        let locks = open_locks(&two.primary.url(), 1, patient()).await;
        let fence = granted(&locks, "a", 1, 1).await;
        let before = two.primary.figure("master_repl_offset").await;
        assert_eq!(granted(&locks, "a", 1, 1).await, fence);
        assert!(before < two.primary.figure("master_repl_offset").await);
        let beat = Step::Beat { bucket: bucket_of(&name("a")), client: ClientId(1), names: vec![name("a")] };
        locks.take(beat.clone()).await.unwrap();
        let before = two.primary.figure("master_repl_offset").await;
        locks.take(beat).await.unwrap();
        assert!(before < two.primary.figure("master_repl_offset").await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_question_to_the_replicas_does_for_all_who_come_meanwhile() {
    let Some(two) = Two::start().await else { return };
    in_time(async {
        let plain = open_locks(&two.primary.url(), 1, patient()).await;
        let locks = Arc::new(open_locks(&two.primary.url(), 2, one_within(PATIENCE)).await);
        for (locks, client) in [(&plain, 1), (&*locks, 2)] {
            granted(locks, "warm", client, 1).await;
            locks.take(release("warm", client, 1)).await.unwrap();
        }
        let requests = |locks: &RedisLocks| locks.link().counts().requests;
        for (locks, client, expected) in [(&plain, 1, 2), (&*locks, 2, 3)] {
            let before = requests(locks);
            granted(locks, "one", client, 2).await;
            locks.take(release("one", client, 2)).await.unwrap();
            assert_eq!(requests(locks) - before, expected, "a script to take, one to release, and who waits");
        }
        assert_eq!(two.primary.calls("wait").await, 2);
        // Frozen, so that all come while the first one is asked about.
        two.replica.freeze();
        let mut callers = JoinSet::new();
        let call = |lock: String| {
            let locks = Arc::clone(&locks);
            async move {
                let answer = locks.take(acquire(&lock, 2, 3, Wait::No)).await;
                assert!(
                    matches!(&answer, Ok(answer) if matches!(answer.said, LockAnswer::Acquired(Acquired::Granted(_)))),
                    "{answer:?}"
                );
            }
        };
        let before = requests(&locks);
        callers.spawn(call("first".to_owned()));
        wait_for("the first", async || (before + 2 == requests(&locks)).then_some(())).await;
        for number in 0..100 {
            callers.spawn(call(format!("lock-{number}")));
        }
        // Signs of life and releases stand behind none of it.
        let beat = Step::Beat { bucket: 7, client: ClientId(2), names: Vec::new() };
        locks.take(beat).await.unwrap();
        locks.take(release("nothing", 2, 4)).await.unwrap();
        assert_eq!(callers.len(), 101);
        two.replica.thaw();
        callers.join_all().await;
        let sent = requests(&locks) - before;
        assert!((101 + 2 + 2..101 + 20).contains(&sent), "{sent} requests for 101 grants, a heartbeat and a release");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_enough_replicas_nothing_is_granted_and_what_was_tried_is_given_back() {
    let Some(server) = Server::start(&[]).await else { return };
    in_time(async {
        let locks = open_locks(&server.url(), 1, one_within(Duration::from_millis(20))).await;
        assert_unknown(&said(&locks, acquire("a", 1, 1, Wait::No)).await);
        // As a process that asked does then.
        let undo = Step::Release { name: name("a"), request: request(1, 1), copies: Copies::Several };
        assert_eq!(said(&locks, undo).await.unwrap(), LockAnswer::Released(Released::Released));
        assert_eq!(locks.view(&name("a")).await.unwrap().view.held, None);
        // A script that the server has forgotten is loaded as ever.
        server.ask(&["SCRIPT", "FLUSH"]).await;
        assert_unknown(&said(&locks, acquire("b", 1, 2, Wait::No)).await);
        assert!(locks.view(&name("b")).await.unwrap().view.held.is_some());
    })
    .await;
}

async fn keys_count_when_a_replica_has_them<S: KeyStore<Grant = ()>>(two: &Two, locks: &S) {
    let taken = async |key| wait_for("the replica", async || locks.take(key, "mine", 60_000).await.ok()).await;
    assert_eq!(taken("before").await, Tried::Taken(()));
    two.replica.freeze();
    assert!(matches!(locks.take("key", "mine", 60_000).await, Err(StoreError::Unknown)));
    assert!(matches!(locks.take("key", "other", 60_000).await, Ok(Tried::Held { .. })));
    assert!(matches!(locks.renew("before", "mine", 60_000).await, Err(StoreError::Unknown)));
    assert!(locks.release("before", "mine").await.unwrap());
    two.replica.thaw();
    assert_eq!(taken("key").await, Tried::Taken(()));
    assert!(wait_for("the replica", async || locks.renew("key", "mine", 60_000).await.ok()).await);
    assert!(locks.release("key", "mine").await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_layouts_of_others_too_a_grant_counts_when_a_replica_has_it() {
    let Some(two) = Two::start().await else { return };
    in_time(async {
        let locks = SingleKey::open(&two.primary.url(), one_within(SHORT)).await.unwrap();
        keys_count_when_a_replica_has_them(&two, &locks).await;
        let locks = Redisson::open(&two.primary.url(), one_within(SHORT)).await.unwrap();
        keys_count_when_a_replica_has_them(&two, &locks).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_the_replica_of_the_lock_s_own_node_counts() {
    let Some(mut cluster) = cluster(Durability::Quick, 1).await else { return };
    in_time(async {
        let locks = open_locks(&cluster.url(), 1, one_within(SHORT)).await;
        let [mut here, mut there] = [None, None];
        for number in 0.. {
            let lock = format!("lock-{number}");
            let key = format!("{{l{:02x}}}", bucket_of(&name(&lock)));
            match home(&cluster, &key).await.1 {
                0 => here = Some(lock),
                1 => there = Some(lock),
                _ => {}
            }
            if here.is_some() && there.is_some() {
                break;
            }
        }
        let (here, there) = (here.expect("a lock"), there.expect("a lock"));
        granted(&locks, &here, 1, 1).await;
        granted(&locks, &there, 1, 2).await;
        let before = locks.link().counts().requests;
        locks.take(release(&here, 1, 1)).await.unwrap();
        granted(&locks, &here, 1, 3).await;
        assert_eq!(locks.link().counts().requests - before, 3 + 2, "the release is loaded first");
        locks.take(release(&here, 1, 3)).await.unwrap();
        // The replica of the first master.
        cluster.kill(3);
        assert_unknown(&said(&locks, acquire(&here, 1, 4, Wait::No)).await);
        locks.take(release(&there, 1, 2)).await.unwrap();
        granted(&locks, &there, 1, 5).await;
    })
    .await;
}
