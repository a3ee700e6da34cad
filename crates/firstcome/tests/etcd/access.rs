//! Addresses, users and their rights.

use super::server::{Etcd, PATIENCE, SHORT, cluster, in_time, open, open_hasty, patient, wait_for};
use firstcome::lock::EtcdError;
use firstcome::{LockError, Locks};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::interval;

/// What is said of an address that will not do, and whether to try again would help.
async fn refusal(url: &str) -> (String, bool) {
    let error = Locks::etcd_with(url, patient(SHORT)).await.map(drop).expect_err(url);
    (error.to_string(), !matches!(error, EtcdError::Broken { .. }))
}

/// Where no caller listens, and no server of another test ever will.
const CLOSED: &str = "127.0.0.1:1";

#[tokio::test]
async fn a_wrong_address_is_told_with_what_to_do() {
    for (url, says, passes) in [
        ("http://127.0.0.1:2379".to_owned(), "must be etcd://", false),
        ("etcd://127.0.0.1:2379?cacert=/ca.pem".to_owned(), "write etcds://", false),
        ("etcds://127.0.0.1:2379?cacert=/nowhere/ca.pem".to_owned(), "/nowhere/ca.pem", false),
        ("etcd://ann@127.0.0.1:2379".to_owned(), "etcd://user:password@host:port", false),
        (format!("etcd://{CLOSED}"), "no etcd answers at 127.0.0.1:1 (", true),
        (format!("etcd://{CLOSED}"), "); check that it runs, and the address", true),
    ] {
        let told = in_time(refusal(&url)).await;
        assert!(told.0.contains(says) && told.1 == passes, "{url}: {told:?}");
        assert!(told.0.matches("tcp connect error").count() < 2, "{url}: {told:?}");
    }
}

/// A hold as its holder saw it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    fence: u64,
    /// After the grant was told.
    from: Instant,
    /// The last instant at which its holder may have believed that it has the lock.
    until: Instant,
}

#[expect(clippy::disallowed_methods, reason = "a test compares when things happened")]
fn now() -> Instant {
    Instant::now()
}

/// Takes the lock, keeps it for a moment and gives it back, again and again; what is refused or unknown is asked for again.
async fn contend(locks: Locks, holds: Arc<Mutex<Vec<Hold>>>, stop: Arc<AtomicBool>) {
    let mut round = 0_u32;
    let mut tries = interval(Duration::from_millis(5));
    while !stop.load(Ordering::SeqCst) {
        tries.tick().await;
        let guard = match locks.lock("a").wait(Duration::from_secs(5)).acquire().await {
            Ok(guard) => guard,
            // The cluster has no leader; it gets one, or the test stops.
            Err(LockError::Unavailable(_) | LockError::Unknown | LockError::TimedOut { .. } | LockError::Lost) => {
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let from = now();
        // Some are held for longer than servers need to choose a leader.
        round += 1;
        let stay = Duration::from_millis(if round.is_multiple_of(10) { 700 } else { 2 });
        let _ = tokio::time::timeout(stay, guard.lost()).await;
        let until = now().min(guard.deadline().unwrap());
        holds.lock().expect("no thread panics").push(Hold { fence: guard.fence().unwrap().get(), from, until });
        // It may be lost, or not be told.
        let _ = guard.release().await;
    }
}

/// Three members. Clients of all of them contend for a lock while the leader is killed and comes back, then another member, again and again. One
/// holder at a time by their own clocks, higher fences for later holds; and it goes on each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_server_of_the_cluster_will_do() {
    let Some(mut cluster) = cluster().await else { return };
    in_time(async {
        let (holds, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut contenders = Vec::new();
        for _ in 0..4 {
            let locks = open_hasty(&cluster.url(), Duration::from_secs(2)).await;
            contenders.push(tokio::spawn(contend(locks, Arc::clone(&holds), Arc::clone(&stop))));
        }
        let goes_on = async |what: &str| {
            let count = || holds.lock().expect("no thread panics").len();
            let before = count();
            wait_for(what, async || (before + 10 <= count()).then_some(())).await;
        };
        goes_on("holds with all members").await;
        for round in 0..2 {
            let leader = cluster.leader().await.expect("one leads");
            for killed in [leader, (leader + 1 + round) % 3] {
                cluster.kill(killed);
                goes_on("holds without a member").await;
                cluster.restart(killed).await.expect("it starts again");
                goes_on("holds with all members again").await;
            }
        }
        stop.store(true, Ordering::SeqCst);
        for contender in contenders {
            contender.await.expect("no contender fails");
        }
        let mut holds = holds.lock().expect("no thread panics").clone();
        holds.sort_by_key(|hold| hold.from);
        for pair in holds.windows(2) {
            assert!(pair[0].until <= pair[1].from, "two had it at once: {pair:?}");
            assert!(pair[0].fence < pair[1].fence, "a fence fell: {pair:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left_for_another() {
    let Some(server) = Etcd::start().await else { return };
    in_time(async {
        let address = server.address();
        let url = format!("etcd://{CLOSED},{address}");
        let locks = open(&url, Duration::from_secs(60)).await;
        locks.lock("a").acquire().await.expect("it is free").release().await.expect("held to the end");
        // As it is without options.
        let locks = Locks::etcd(server.url()).await.expect("it will do");
        locks.lock("a").try_acquire().await.expect("it is free").release().await.expect("held to the end");
        // One that says nothing is left for another.
        let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("etcd://{},{address}", mute.local_addr().expect("it has one"));
        let locks = open_hasty(&url, Duration::from_secs(60)).await;
        locks.lock("a").acquire().await.expect("it is free").release().await.expect("held to the end");
    })
    .await;
}

#[tokio::test]
async fn users_are_let_in_by_their_password_and_rights() {
    // Tokens that no caller uses for a second are forgotten.
    let Some(mut server) = Etcd::start_with(&["auth-token-ttl=1"]).await else { return };
    in_time(async {
        for step in [
            "user add root:root-secret",
            "user add ann:s3cret",
            "user add bob:s3cret",
            "role add locks",
            "role grant-permission locks readwrite --prefix=true firstcome/",
            "user grant-role root root",
            "user grant-role ann locks",
            "auth enable",
        ] {
            server.ask(&step.split(' ').collect::<Vec<_>>());
        }
        for (url, says) in [
            (server.url().to_owned(), "etcd://user:password@host:port"),
            (server.url_as("ann", "wr0ng"), "correct etcd://user:password@host:port"),
            (server.url_as("nobody", "s3cret"), "correct etcd://user:password@host:port"),
            (server.url_as("bob", "s3cret"), "role grant-permission"),
        ] {
            let (told, passes) = refusal(&url).await;
            assert!(told.contains(says) && !passes && !told.contains("s3cret"), "{url}: {told}");
        }
        let locks = open_hasty(&server.url_as("ann", "s3cret"), Duration::from_secs(60)).await;
        let held = locks.lock("a").acquire().await.expect("it is free");
        // It forgets its tokens when it is killed, and those that are not used.
        server.restart().await;
        wait_for("a renewal", async || held.renew(Duration::from_secs(60)).await.ok()).await;
        let waiting = tokio::spawn(locks.lock("a").wait(PATIENCE).acquire());
        wait_for("the line", async || locks.view("a").await.ok().filter(|seen| seen.view.waiters == 1)).await;
        let idle = tokio::time::timeout(Duration::from_secs(3), std::future::pending::<()>()).await;
        assert!(idle.is_err());
        held.release().await.expect("held to the end");
        waiting.await.expect("it ends").expect("it is its turn").release().await.expect("held to the end");
    })
    .await;
}
